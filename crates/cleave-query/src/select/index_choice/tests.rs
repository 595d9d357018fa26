//! Tests of bounds of columns, and the ranges of keys that follow.

use cleave_catalog::catalog::index_definition::{IndexColumn, IndexDefinition};
use cleave_store::{Column, IndexKey};
use datafusion::arrow::array::{Int32Array, StringArray};
use datafusion::logical_expr::{col, lit};
use proptest::prelude::{any, proptest};
use proptest::{collection, option, prop_assert};

use super::*;

fn schema() -> Arc<TableSchema> {
    let column = |id: u32, name: &str, column_type| Column {
        id,
        name: name.to_owned(),
        column_type,
        not_null: false,
        default: None,
        absent: None,
    };
    Arc::new(TableSchema {
        table_id: 1,
        version: 1,
        name: "t".to_owned(),
        columns: vec![
            column(1, "n", ColumnType::Int),
            column(2, "s", ColumnType::Text),
            column(3, "f", ColumnType::Double),
        ],
        primary_key: Vec::new(),
    })
}

/// An index over some columns by id, each descending and NULLs first or not.
fn shape(columns: &[(u32, [bool; 2])]) -> Arc<IndexShape> {
    let columns = columns
        .iter()
        .map(|(column, [descending, nulls_first])| IndexColumn {
            column: *column,
            descending: *descending,
            nulls_first: *nulls_first,
        })
        .collect();
    let definition =
        IndexDefinition { id: 1, name: "i".to_owned(), columns, unique: false, constraint: false };
    IndexShape::new(Arc::new(definition), &schema()).unwrap()
}

fn entries(key: &IndexKey, rows: &[Row]) -> Vec<Vec<u8>> {
    let numbers: Int32Array = rows.iter().map(|row| row.0).collect();
    let texts: StringArray = rows.iter().map(|row| row.1.clone()).collect();
    let entries = key.entries(&[Arc::new(numbers), Arc::new(texts)], 1..).unwrap();
    entries.iter().flatten().map(<[u8]>::to_vec).collect()
}

/// A number and a text.
type Row = (Option<i32>, Option<String>);

/// Whether a row satisfies a condition.
type Holds = Box<dyn Fn(&Row) -> bool>;

/// One condition.
type Condition = (Expr, Holds);

fn number_condition(kind: u8, a: i32, b: i32) -> Condition {
    let holds = move |test: fn(i32, i32, i32) -> bool| -> Holds {
        Box::new(move |row| row.0.is_some_and(|n| test(n, a, b)))
    };
    match kind {
        0 => (col("n").eq(lit(a)), holds(|n, a, _| n == a)),
        1 => (lit(a).eq(col("n")), holds(|n, a, _| n == a)),
        2 => (col("n").gt(lit(a)), holds(|n, a, _| n > a)),
        3 => (lit(a).gt_eq(col("n")), holds(|n, a, _| n <= a)),
        4 => (col("n").between(lit(a), lit(b)), holds(|n, a, b| n >= a && n <= b)),
        5 => (col("n").in_list(vec![lit(a), lit(b)], false), holds(|n, a, b| n == a || n == b)),
        6 => {
            let or = col("n").eq(lit(a)).or(col("n").eq(lit(b)));
            (or, holds(|n, a, b| n == a || n == b))
        }
        7 => (col("n").gt(lit(a)).and(col("n").lt(lit(b))), holds(|n, a, b| n > a && n < b)),
        8 => (col("n").is_not_null(), Box::new(|row| row.0.is_some())),
        9 => (col("n").is_null(), Box::new(|row| row.0.is_none())),
        _ => {
            let or = col("n").is_null().or(col("n").eq(lit(a)));
            (or, Box::new(move |row| row.0.is_none_or(|n| n == a)))
        }
    }
}

fn text_condition(kind: u8, a: &str, b: &str) -> Condition {
    let (x, y) = (a.to_owned(), b.to_owned());
    let holds = move |test: fn(&str, &str, &str) -> bool| -> Holds {
        Box::new(move |row| row.1.as_ref().is_some_and(|s| test(s, &x, &y)))
    };
    match kind {
        0 => (col("s").eq(lit(a)), holds(|s, a, _| s == a)),
        1 => (col("s").gt_eq(lit(a)), holds(|s, a, _| s >= a)),
        2 => (col("s").between(lit(a), lit(b)), holds(|s, a, b| s >= a && s <= b)),
        3 => (col("s").like(lit(format!("{a}%"))), holds(|s, a, _| s.starts_with(a))),
        4 => (col("s").in_list(vec![lit(a), lit(b)], false), holds(|s, a, b| s == a || s == b)),
        5 => (col("s").is_null(), Box::new(|row| row.1.is_none())),
        _ => (col("s").is_not_null(), Box::new(|row| row.1.is_some())),
    }
}

proptest! {
    #[test]
    fn ranges_hold_every_row_that_matches(
        rows in collection::vec((option::of(-4i32..4), option::of("[ab\u{7f}\u{80}\u{10ffff}]{0,3}")), 1..40),
        kinds in (0u8..11, 0u8..7),
        numbers in (-4i32..4, -4i32..4),
        texts in ("[ab\u{7f}\u{80}\u{10ffff}]{1,2}", "[ab]{0,2}"),
        options in any::<[[bool; 2]; 2]>(),
        both in any::<bool>(),
    ) {
        let shape = shape(&[(1, options[0]), (2, options[1])]);
        let number = number_condition(kinds.0, numbers.0, numbers.1);
        let text = text_condition(kinds.1, &texts.0, &texts.1);
        let conditions: Vec<&Condition> = if both { vec![&number, &text] } else { vec![&number] };
        let filters: Vec<Expr> = conditions.iter().map(|(filter, _)| filter.clone()).collect();
        let (ranges, _) = ranges(&shape, &bounds(&schema(), &filters)).unwrap();
        for (row, entry) in rows.iter().zip(entries(&shape.key, &rows)) {
            let matches = conditions.iter().all(|(_, holds)| holds(row));
            let found = ranges.iter().filter(|range| range.has(&entry)).count();
            prop_assert!(found == 1 || !matches && found == 0, "{row:?} in {found} of {ranges:?}");
            // Conditions on the first column alone leave out what is not on it.
            prop_assert!(found == 0 || row.0.is_some() || kinds.0 > 8, "{row:?}");
        }
    }
}

#[test]
fn conditions_without_a_bound_on_the_first_column_have_no_ranges() {
    let shape = shape(&[(1, [false; 2]), (2, [false; 2])]);
    for filter in [
        col("s").eq(lit("a")),
        col("n").not_eq(lit(1)),
        col("n").eq(lit(1_i64)),
        col("n").eq(lit(ScalarValue::Int32(None))),
        col("n").eq(col("f")),
        col("n").in_list(vec![lit(1)], true),
        col("n").eq(lit(1)).or(col("s").eq(lit("a"))),
        (col("n") + lit(1)).eq(lit(1)),
    ] {
        assert!(
            ranges(&shape, &bounds(&schema(), std::slice::from_ref(&filter))).is_none(),
            "{filter}"
        );
    }
}

#[test]
fn floats_have_points_and_no_ranges() {
    let shape = shape(&[(3, [false; 2])]);
    let of = |filter: Expr| ranges(&shape, &bounds(&schema(), &[filter]));
    assert_eq!(of(col("f").eq(lit(0.5))).unwrap().1, 1);
    assert!(of(col("f").gt(lit(0.5))).is_none());
}

#[test]
fn nulls_are_points_and_the_others_a_range() {
    for (column, name) in [(1, "n"), (2, "s"), (3, "f")] {
        for options in [[false, false], [false, true], [true, false], [true, true]] {
            let shape = shape(&[(column, options)]);
            let of = |filter: Expr| ranges(&shape, &bounds(&schema(), &[filter]));
            assert_eq!(of(col(name).is_null()).unwrap().1, 1);
            assert_eq!(of(col(name).is_not_null()).unwrap().1, 0);
        }
    }
    let shape = shape(&[(1, [false; 2])]);
    let either = col("n").is_not_null().or(col("n").eq(lit(1)));
    assert!(ranges(&shape, &bounds(&schema(), &[either])).is_none());
}

#[test]
fn patterns_bound_text_only_by_what_stands_before_their_first_wildcard() {
    let shape = shape(&[(2, [false; 2])]);
    let of = |pattern: &str| {
        ranges(&shape, &bounds(&schema(), &[col("s").like(lit(pattern))])).map(|(ranges, _)| ranges)
    };
    assert_eq!(of("ab%"), of("ab_d%"));
    assert!(of("ab%").is_some());
    assert!(of("%ab").is_none());
    assert!(of("_b").is_none());
}

#[test]
fn the_text_after_a_prefix() {
    assert_eq!(after_text("ab").as_deref(), Some("ac"));
    assert_eq!(after_text("a\u{10ffff}").as_deref(), Some("b"));
    assert_eq!(after_text("\u{d7ff}").as_deref(), Some("\u{e000}"));
    assert_eq!(after_text("\u{10ffff}"), None);
}

#[test]
fn an_index_is_read_where_its_pages_cost_more_than_the_names_of_the_table_s() {
    // Two pages of 64 kB, for which planning would wait once, against the names of ten pages of the table.
    assert!(is_cheaper_there(128 << 10, 1, 10));
    // Held already: nothing crosses.
    assert!(!is_cheaper_there(0, 0, 10));
    // One page, and a table of 100,000 pages.
    assert!(!is_cheaper_there(64 << 10, 1, 100_000));
    assert!(!is_cheaper_there(u64::MAX, u64::MAX, usize::MAX), "of what overflows, names");
}
