//! Each layout's output for values that are easily printed wrong.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int32Array, StringArray,
};
use arrow::record_batch::RecordBatch;

use super::{Expanded, Format, Layout, write_rows};

fn shown(format: Format, is_expanded: bool, columns: Vec<(&str, ArrayRef)>) -> String {
    let expanded = if is_expanded { Expanded::On } else { Expanded::Off };
    laid_out(&Layout { expanded, ..Layout::plain(format) }, columns)
}

fn laid_out(layout: &Layout, columns: Vec<(&str, ArrayRef)>) -> String {
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .unwrap();
    let mut out = Vec::new();
    write_rows(&mut out, layout, &batch.schema(), &[batch]).unwrap();
    String::from_utf8(out).unwrap()
}

fn people() -> Vec<(&'static str, ArrayRef)> {
    vec![
        ("id", Arc::new(Int32Array::from(vec![Some(1), Some(20), None]))),
        ("name", Arc::new(StringArray::from(vec![Some("Ada, \"Countess\""), Some(""), None]))),
        ("likes", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None]))),
    ]
}

#[test]
fn table_aligns_and_shows_null() {
    assert_eq!(
        shown(Format::Table, false, people()),
        "   id | name            | likes\n\
         ------+-----------------+-------\n\
         \x20   1 | Ada, \"Countess\" | t\n\
         \x20  20 |                 | f\n\
         \x20NULL | NULL            | NULL\n\
         (3 rows)\n"
    );
}

#[test]
fn table_of_one_row_says_row() {
    let one: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    assert!(shown(Format::Table, false, vec![("n", one)]).ends_with("(1 row)\n"));
}

#[test]
fn expanded_gives_a_line_a_value() {
    let text = shown(Format::Table, true, people());
    assert!(text.starts_with("-[ RECORD 1 ]"), "{text}");
    assert!(text.contains("\nid    | 20\nname  | \nlikes | f\n"), "{text}");
}

fn texts(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

#[test]
fn a_box_has_a_frame_and_wide_characters_their_place() {
    let columns = vec![("name", texts(&[Some("日本"), Some("é")]))];
    assert_eq!(
        shown(Format::Box, false, columns),
        "┌──────┐\n│ name │\n├──────┤\n│ 日本 │\n│ é    │\n└──────┘\n(2 rows)\n"
    );
}

#[test]
fn a_text_of_several_lines_is_one_row() {
    let columns = || {
        vec![("a", texts(&[Some("x\nyy"), Some("\x1b[2J\r")])), ("b", texts(&[Some("1"), None]))]
    };
    assert_eq!(
        shown(Format::Table, false, columns()),
        " a         | b\n-----------+------\n x        +| 1\n yy        |\n \\x1B[2J\\r | NULL\n(2 rows)\n"
    );
    let boxed = shown(Format::Box, false, columns());
    assert!(boxed.contains("│ x        ↵│ 1    │\n│ yy        │      │"), "{boxed}");
    let records = shown(Format::Table, true, columns());
    assert!(records.contains("a | x+\n  | yy\nb | 1\n"), "{records}");
    let lines = shown(Format::Line, false, columns());
    assert_eq!(lines, "a = x\n    yy\nb = 1\n\na = \\x1B[2J\\r\nb = NULL\n");
    let pipes = vec![
        ("a|b", texts(&[Some("x\ny|z")])),
        ("n", Arc::new(Int32Array::from(vec![7])) as ArrayRef),
    ];
    let markdown = shown(Format::Markdown, false, pipes);
    assert_eq!(markdown, "| a\\|b      | n |\n| --------- | --: |\n| x<br>y\\|z | 7 |\n");
}

#[test]
fn the_text_null_is_not_null() {
    let columns = || vec![("a", texts(&[Some("NULL"), None, Some("")]))];
    assert_eq!(
        shown(Format::Table, false, columns()),
        " a\n--------\n 'NULL'\n NULL\n\n(3 rows)\n"
    );
    let dim = Layout { has_colour: true, null: "∅".to_owned(), ..Layout::plain(Format::Table) };
    let text = laid_out(&dim, columns());
    assert!(text.contains(" NULL\n \x1b[2m∅   \x1b[0m\n"), "{text:?}");
}

#[test]
fn a_screen_shows_what_it_has_room_for() {
    let long = "a long text that does not fit into a column";
    let columns = |count: usize| -> Vec<(&'static str, ArrayRef)> {
        (0..count).map(|_| ("some", texts(&[Some(long)]))).collect()
    };
    for format in [Format::Table, Format::Box] {
        let screen = Layout { width: Some(60), ..Layout::plain(format) };
        // Cells are cut first, and then columns are left out.
        for (count, missing) in [(2, 0), (3, 0), (200, 197)] {
            let text = laid_out(&screen, columns(count));
            assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
            assert!(text.contains("a long text") && text.contains('…'), "{text}");
            let told = text.contains(&format!("… {missing} columns not shown"));
            assert_eq!(told, missing > 0, "{text}");
        }
        let whole = laid_out(&screen, columns(1));
        let records = laid_out(&Layout { expanded: Expanded::Auto, ..screen }, columns(3));
        assert!(whole.contains(long) && records.contains(&format!("some | {long}\n")), "{records}");
        assert!(laid_out(&Layout::plain(format), columns(200)).contains(long));
    }
    let few = Layout { row_count_max: Some(2), ..Layout::plain(Format::Table) };
    let text = laid_out(&few, people());
    assert!(text.ends_with("(the first 2 of 3 rows; \\pset rows 0 shows all)\n"), "{text}");
}

#[test]
fn csv_tells_null_from_empty() {
    assert_eq!(
        shown(Format::Csv, false, people()),
        "id,name,likes\n1,\"Ada, \"\"Countess\"\"\",t\n20,\"\",f\n,,\n"
    );
}

#[test]
fn json_is_json() {
    let text = shown(Format::Json, false, people());
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        value,
        serde_json::json!([
            { "id": 1, "name": "Ada, \"Countess\"", "likes": true },
            { "id": 20, "name": "", "likes": false },
            { "id": null, "name": null, "likes": null },
        ])
    );
    let none: ArrayRef = Arc::new(Int32Array::from(Vec::<i32>::new()));
    assert_eq!(shown(Format::Json, false, vec![("n", none)]), "[]\n");
}

#[test]
fn numbers_that_json_cannot_say_are_strings() {
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.5, f64::NAN, f64::INFINITY, 1e300]));
    let text = shown(Format::Json, false, vec![("x", floats)]);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        value,
        serde_json::json!([{ "x": 1.5 }, { "x": "NaN" }, { "x": "Infinity" }, { "x": 1e300 }])
    );
}

#[test]
fn numbers_keep_all_their_digits() {
    let decimal = Decimal128Array::from(vec![123_456_789_012_345_678_901_234_567_890_i128])
        .with_precision_and_scale(38, 2)
        .unwrap();
    let text = shown(Format::Json, false, vec![("n", Arc::new(decimal))]);
    assert!(text.contains("\"n\":1234567890123456789012345678.90"), "{text}");
}
