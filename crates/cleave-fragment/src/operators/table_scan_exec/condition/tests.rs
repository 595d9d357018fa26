//! Whatever a page's encodings offer, a condition keeps the rows of plain evaluation.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Decimal128Array, Int64Array, RecordBatch, StringArray};
use arrow::buffer::BooleanBuffer;
use bytes::Bytes;
use cleave_media::BlockAddress;
use cleave_store::{
    Column as TableColumn, ColumnRef, ColumnType, Encoding, OverflowValues, PageClass, PageColumns,
    PageRead, Projection, RawColumns, SegmentId, SegmentRef, SegmentWriter, TableSchema,
    parse_header,
};
use datafusion_common::ScalarValue;
use datafusion_common::cast::as_boolean_array;
use datafusion_expr::Operator;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{binary, col, in_list, is_null, like, lit};

use super::Condition;
use crate::morsel::MorselPage;
use crate::operators::table_scan_exec::scan_page::{ScanPage, true_bits};

const SEGMENT: SegmentRef =
    SegmentRef { table_id: 1, segment: SegmentId(1), schema_version: 1, commit: 1 };
const ROWS: i64 = 3000;

fn table() -> (TableSchema, RecordBatch) {
    let types = [
        ColumnType::BigInt,
        ColumnType::Numeric { precision: 12, scale: 2 },
        ColumnType::Text,
        ColumnType::Text,
    ];
    let columns = (1..).zip(types).map(|(id, column_type)| TableColumn {
        id,
        name: format!("c{id}"),
        column_type,
        not_null: false,
        default: None,
        absent: None,
    });
    let schema = TableSchema {
        table_id: 1,
        version: 1,
        name: "t".into(),
        columns: columns.collect(),
        primary_key: Vec::new(),
    };
    let decimals = (0..ROWS).map(|row| (row % 7 > 0).then(|| i128::from(row % 200)));
    let columns: Vec<ArrayRef> = vec![
        Arc::new((0..ROWS).map(|row| Some(row * 7919 % 1009)).collect::<Int64Array>()),
        Arc::new(decimals.collect::<Decimal128Array>().with_precision_and_scale(12, 2).unwrap()),
        Arc::new(
            (0..ROWS).map(|row| (row % 5 > 0).then(|| kind(row % 11))).collect::<StringArray>(),
        ),
        Arc::new(
            (0..ROWS).map(|row| (row % 17 > 0).then(|| comment(row))).collect::<StringArray>(),
        ),
    ];
    let batch = RecordBatch::try_new(schema.arrow(), columns).unwrap();
    (schema, batch)
}

/// One of eleven is empty.
fn kind(number: i64) -> String {
    if number == 3 { String::new() } else { format!("kind {number}") }
}

/// One of thirteen is empty.
fn comment(row: i64) -> String {
    if row % 13 == 0 { String::new() } else { format!("the comment of row {row}") }
}

/// The rows as one page of `class`.
fn page(schema: &TableSchema, batch: &RecordBatch, class: PageClass) -> (PageRead, PageColumns) {
    let mut writer = SegmentWriter::new(SEGMENT, schema, class, 0, 0).unwrap();
    writer.push(batch).unwrap();
    let page = writer.finish().unwrap().remove(0);
    let place = page.page_ref(BlockAddress(0));
    let bytes = page.bytes.into_bytes();
    let columns: Vec<ColumnRef> =
        schema.columns.iter().map(|column| ColumnRef::User(column.id)).collect();
    let header = parse_header(&bytes, &place, &SEGMENT).unwrap();
    let chunk = |column: &ColumnRef| -> Option<Bytes> {
        let entry = header.entry(*column).unwrap();
        Some(bytes.slice(entry.offset as usize..(entry.offset + entry.length) as usize))
    };
    let raw = RawColumns {
        header: bytes.slice(..header.header_length as usize),
        chunks: columns.iter().map(chunk).collect(),
    };
    let read = PageRead { segment: SEGMENT, page: place, columns };
    let columns = PageColumns::verify(&read, raw).unwrap();
    (read, columns)
}

#[test]
fn rows_do_not_depend_on_encodings() {
    let (schema, batch) = table();
    let light = page(&schema, &batch, PageClass::BULK);
    let plain = page(&schema, &batch, PageClass { chunk_alignment: 64, ..PageClass::BULK });
    let encodings =
        |page: &PageColumns| page.header.chunks[..4].iter().map(|c| c.encoding).collect::<Vec<_>>();
    let (integers, strings) = (Encoding::Integers, Encoding::Strings);
    assert_eq!(encodings(&light.1), [integers, integers, Encoding::Dictionary, strings]);
    assert_eq!(encodings(&plain.1), [Encoding::Plain; 4]);

    let arrow = batch.schema();
    let column = |name: &str| col(name, &arrow).unwrap();
    let compare = |name: &str, op: Operator, value: ScalarValue| {
        binary(column(name), op, lit(value), &arrow).unwrap()
    };
    let decimal = |value: i128| ScalarValue::Decimal128(Some(value), 12, 2);
    let text = |value: &str| lit(ScalarValue::from(value));
    let mut conditions: Vec<Arc<dyn PhysicalExpr>> = vec![
        like(false, false, column("c3"), text("kind 1%"), &arrow).unwrap(),
        like(true, false, column("c4"), text("%row 2_"), &arrow).unwrap(),
        is_null(column("c3")).unwrap(),
        is_null(column("c2")).unwrap(),
        in_list(column("c3"), vec![text("kind 2"), text("none")], &true, &arrow).unwrap(),
        binary(column("c1"), Operator::Lt, column("c1"), &arrow).unwrap(),
        binary(lit(500_i64), Operator::Gt, column("c1"), &arrow).unwrap(),
        binary(lit(10_i64), Operator::Lt, compare_free(&column("c1"), &arrow), &arrow).unwrap(),
        lit(ScalarValue::Boolean(Some(false))),
        lit(ScalarValue::Boolean(Some(true))),
        binary(text(""), Operator::Lt, column("c4"), &arrow).unwrap(),
        or_null("c2", compare("c2", Operator::GtEq, decimal(77)), &arrow),
        or_null("c1", compare("c1", Operator::Lt, 300_i64.into()), &arrow),
        or_null("c1", compare("c2", Operator::Lt, decimal(77)), &arrow),
    ];
    for op in
        [Operator::Eq, Operator::NotEq, Operator::Lt, Operator::LtEq, Operator::Gt, Operator::GtEq]
    {
        conditions.push(compare("c1", op, ScalarValue::Int64(Some(77))));
        conditions.push(compare("c1", op, ScalarValue::Int64(Some(-1))));
        conditions.push(compare("c1", op, ScalarValue::Int64(None)));
        conditions.push(compare("c2", op, decimal(150)));
        conditions.push(compare("c3", op, ScalarValue::from("kind 5")));
        conditions.push(compare("c3", op, ScalarValue::from("")));
        conditions.push(compare("c4", op, ScalarValue::from("")));
    }
    let of = Projection::of_table(&schema, &[0, 1, 2, 3]);
    let rows = batch.num_rows();
    for expr in &conditions {
        let answers = expr.evaluate(&batch).unwrap().into_array(rows).unwrap();
        let expected = true_bits(as_boolean_array(&answers).unwrap());
        let condition = Condition::new(expr, &of).unwrap();
        for keep_one_in in [1, 2, 50] {
            let kept = BooleanBuffer::collect_bool(rows, |row| row % keep_one_in == 0);
            for (read, columns) in [&light, &plain] {
                let place = MorselPage {
                    page: read.page,
                    vid_first: 0,
                    gaps: Default::default(),
                    overflow: Vec::new(),
                    dead: Default::default(),
                };
                let mut page = ScanPage::new(Cow::Borrowed(&place), read.clone(), columns.clone());
                let none = OverflowValues::none();
                let found = condition.narrow(&mut page, kept.clone(), &none, 700).unwrap();
                assert_eq!(found, &kept & &expected, "{expr}, one in {keep_one_in}");
            }
        }
    }
}

/// Whether a column is NULL or `other` holds.
fn or_null(
    name: &str,
    other: Arc<dyn PhysicalExpr>,
    schema: &arrow::datatypes::Schema,
) -> Arc<dyn PhysicalExpr> {
    let null = is_null(col(name, schema).unwrap()).unwrap();
    binary(null, Operator::Or, other, schema).unwrap()
}

/// An expression over a column that has no short cut.
fn compare_free(
    column: &Arc<dyn PhysicalExpr>,
    schema: &arrow::datatypes::Schema,
) -> Arc<dyn PhysicalExpr> {
    binary(Arc::clone(column), Operator::Plus, lit(1_i64), schema).unwrap()
}

#[test]
fn a_condition_that_may_fail_is_asked_of_kept_rows_only() {
    let (schema, batch) = table();
    let (read, columns) = page(&schema, &batch, PageClass::BULK);
    let arrow = batch.schema();
    let column = col("c1", &arrow).unwrap();
    let quotient = binary(lit(5_i64), Operator::Divide, Arc::clone(&column), &arrow).unwrap();
    let expr = binary(quotient, Operator::Gt, lit(0_i64), &arrow).unwrap();
    let condition = Condition::new(&expr, &Projection::of_table(&schema, &[0, 1, 2, 3])).unwrap();
    let numbers = batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap().clone();
    let place = MorselPage {
        page: read.page,
        vid_first: 0,
        gaps: Default::default(),
        overflow: Vec::new(),
        dead: Default::default(),
    };
    let mut page = ScanPage::new(Cow::Borrowed(&place), read, columns);
    let none = OverflowValues::none();
    let rows = numbers.len();
    let not_zero = BooleanBuffer::collect_bool(rows, |row| numbers.value(row) != 0);
    assert!(not_zero.count_set_bits() < rows, "no row divides by zero");
    let found = condition.narrow(&mut page, not_zero, &none, 700).unwrap();
    let expected = BooleanBuffer::collect_bool(rows, |row| (1..=5).contains(&numbers.value(row)));
    assert_eq!(found, expected);
    let all = BooleanBuffer::new_set(rows);
    assert!(condition.narrow(&mut page, all, &none, 700).is_err(), "5 / 0");
}

#[test]
fn a_pattern_that_is_none_is_not_asked_of_rows_that_are_out() {
    let (schema, batch) = table();
    let patterns =
        (0..ROWS).map(|row| Some(if row % 11 == 0 { "(" } else { "x" })).collect::<StringArray>();
    let mut columns = batch.columns().to_vec();
    columns[2] = Arc::new(patterns.clone());
    let batch = RecordBatch::try_new(batch.schema(), columns).unwrap();
    let pattern = col("c3", &batch.schema()).unwrap();
    let text = lit(ScalarValue::from("xyz"));
    let of = Projection::of_table(&schema, &[0, 1, 2, 3]);
    let sound = BooleanBuffer::collect_bool(patterns.len(), |row| patterns.value(row) != "(");
    let classes = [PageClass::BULK, PageClass { chunk_alignment: 64, ..PageClass::BULK }];
    let encodings = classes.map(|class| {
        let (read, columns) = page(&schema, &batch, class);
        for (operator, expected) in [
            (Operator::RegexMatch, &sound),
            (Operator::RegexNotMatch, &BooleanBuffer::new_unset(patterns.len())),
        ] {
            let expr =
                binary(Arc::clone(&text), operator, Arc::clone(&pattern), &batch.schema()).unwrap();
            let condition = Condition::new(&expr, &of).unwrap();
            let filtered = |kept: BooleanBuffer| {
                let place = MorselPage {
                    page: read.page,
                    vid_first: 0,
                    gaps: Default::default(),
                    overflow: Vec::new(),
                    dead: Default::default(),
                };
                let mut page = ScanPage::new(Cow::Borrowed(&place), read.clone(), columns.clone());
                condition.narrow(&mut page, kept, &OverflowValues::none(), 700)
            };
            assert_eq!(filtered(sound.clone()).unwrap(), *expected, "{operator}");
            assert!(filtered(BooleanBuffer::new_set(patterns.len())).is_err(), "{operator}");
        }
        columns.header.chunks[2].encoding
    });
    assert_eq!(encodings, [Encoding::Dictionary, Encoding::Plain]);
}
