//! Sets of rows come back as they were; complements leave out NULLs; what is implied holds wherever the leaf does; keys
//! take of the room of rows.

use std::sync::Arc;

use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, Field, Schema};
use cleave_media::{BlockAddress, Extent};
use cleave_store::{ColumnRef, PageRef, Projection, SegmentId, SegmentRef};
use datafusion_common::ScalarValue;
use datafusion_expr::Operator;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{BinaryExpr, Column, lit};

use super::{
    CompareWith, FilterHistory, Formula, HistoryMode, HistoryUse, LeafId, LeafKey, LeafKind,
    LeafRows, PageKey, RowSet,
};

#[test]
fn sets_of_rows_come_back_in_few_bytes() {
    for (count, every) in [(700, 1), (700, 2), (700, 350), (700, 701), (3, 2), (65_536, 30_000)] {
        let bits = BooleanBuffer::collect_bool(count, |row| (row + 1) % every == 0);
        let set = RowSet::of(&bits);
        assert_eq!(set.bits(count), bits, "{count}, {every}");
        let is_small = matches!(set, RowSet::None | RowSet::All | RowSet::Few(_));
        assert_eq!(is_small, every != 2, "{set:?}");
        // A slice does not keep what it is a slice of.
        let inside = bits.slice(1, count - 1);
        assert_eq!(RowSet::of(&inside).bits(count - 1), inside);
    }
}

#[test]
fn the_complement_leaves_out_nulls() {
    let set = |bits: [bool; 4]| RowSet::of(&BooleanBuffer::from(bits.to_vec()));
    let rows = LeafRows {
        is_true: set([true, false, false, false]),
        is_null: set([false, true, false, false]),
        row_count: 4,
    };
    assert_eq!(RowSet::of(&rows.rows(true)), set([false, false, true, true]));
    assert_eq!(RowSet::of(&rows.rows(false)), set([true, false, false, false]));
}

/// Whether `value` satisfies the leaf, or its negation.
fn holds(with: CompareWith, constant: i32, is_negated: bool, value: i32) -> bool {
    let is_true = match with {
        CompareWith::Less => value < constant,
        CompareWith::LessOrEqual => value <= constant,
        CompareWith::Equal => value == constant,
    };
    is_true != is_negated
}

#[test]
fn what_is_implied_holds_wherever_the_leaf_does() {
    use CompareWith::{Equal, Less, LessOrEqual};
    let key = |with, constant: i32| LeafKey {
        table_id: 1,
        column: 1,
        data_type: DataType::Int32,
        kind: LeafKind::Compare(with, ScalarValue::from(constant)),
    };
    let each =
        || [Less, LessOrEqual, Equal].into_iter().flat_map(|with| (-1..3).map(move |c| (with, c)));
    let mut implied_count = 0;
    for ((with, constant), is_negated) in each().flat_map(|one| [(one, false), (one, true)]) {
        for (other_with, other) in each() {
            let implied = key(with, constant).implies(is_negated, &key(other_with, other));
            let Some(negation) = implied else { continue };
            implied_count += 1;
            for value in -5..8 {
                let is_left = holds(with, constant, is_negated, value);
                assert!(
                    !is_left || holds(other_with, other, negation, value),
                    "{value}: {with:?} {constant} {is_negated} to {other_with:?} {other} {negation}"
                );
            }
        }
    }
    assert!(implied_count > 60, "{implied_count}");
    let other = LeafKey { column: 2, ..key(Less, 1) };
    assert_eq!(key(Less, 1).implies(false, &other), None);
    let zero = |value: f64| LeafKey {
        table_id: 1,
        column: 1,
        data_type: DataType::Float64,
        kind: LeafKind::Compare(LessOrEqual, ScalarValue::from(value)),
    };
    // Whichever order these have, none is taken for the other.
    let (minus, plus) = (zero(-0.0), zero(0.0));
    assert!(minus.implies(false, &plus).is_none() || plus.implies(false, &minus).is_none());
}

/// A run of `history` that asks whether the column `column` is `text`.
fn asked(history: &Arc<FilterHistory>, column: u32, text: &str) -> Formula {
    let schema = Arc::new(Schema::new(vec![Field::new("c", DataType::Utf8, true)]));
    let of = Projection::new(schema, vec![ColumnRef::User(column)]);
    let own: Arc<dyn PhysicalExpr> = Arc::new(Column::new("c", 0));
    let expr: Arc<dyn PhysicalExpr> = Arc::new(BinaryExpr::new(own, Operator::Eq, lit(text)));
    let mut formula = Formula::of(&expr, 1, &of).unwrap();
    HistoryUse::new(history, HistoryMode::Always).sighted(&mut formula);
    formula
}

#[test]
fn keys_take_of_the_room_of_rows() {
    const BYTES: u64 = 64 << 10;
    let history = Arc::new(FilterHistory::new(BYTES));
    let segment = SegmentRef { table_id: 1, segment: SegmentId(5), schema_version: 1, commit: 1 };
    let extent = Extent { start: BlockAddress(8), block_count: 8 };
    let page = PageRef { page: 1, extent, row_count: 10, checksum: 1 };
    let page = PageKey::of(&segment, &page).unwrap();
    let rows = || LeafRows { is_true: RowSet::None, is_null: RowSet::None, row_count: 10 };
    let mut found = 0;
    for number in 0..1000 {
        let formula = asked(&history, number % 8, &format!("{number:0>500}"));
        for leaf in formula.leaves() {
            history.note(leaf, &page, rows());
        }
        found += usize::from(history.rows(&formula, &page).is_some());
        let figures = history.figures();
        assert!(figures.bytes <= BYTES && figures.leaves * 500 <= BYTES / 2, "{figures:?}");
    }
    let figures = history.figures();
    assert!(found > 0 && figures.leaves >= 8 && figures.entries >= 8, "{found}: {figures:?}");
    history.clear();
    assert_eq!((history.figures().bytes, history.figures().leaves), (0, 0));
    // There is no room for a key.
    let small = Arc::new(FilterHistory::new(700));
    let formula = asked(&small, 1, &"y".repeat(500));
    assert!(formula.leaves().iter().all(|leaf| leaf.id == LeafId::default()));
    assert_eq!(small.figures().leaves, 0);
}
