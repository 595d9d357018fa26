//! Comparisons against DataFusion's evaluation: NULL, NaN, -0.0, slices, and all operators.

use arrow::array::{
    Date32Array, Decimal128Array, Float32Array, Float64Array, Int16Array, Int64Array, RecordBatch,
};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{BinaryExpr, Literal, col};
use proptest::prelude::*;

use super::*;

const OPERATORS: [Operator; 5] =
    [Operator::Eq, Operator::Lt, Operator::LtEq, Operator::Gt, Operator::GtEq];

/// Some values that are alike, and some that are not.
fn whole() -> impl Strategy<Value = Option<i64>> {
    prop_oneof![
        1 => Just(None),
        4 => (-2_i64..3).prop_map(Some),
        1 => prop::sample::select(vec![i64::MIN, i64::MAX]).prop_map(Some),
    ]
}

fn real() -> impl Strategy<Value = Option<f64>> {
    let special = vec![0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.5, -1.5];
    prop_oneof![
        1 => Just(None),
        4 => prop::sample::select(special).prop_map(Some),
        2 => any::<f64>().prop_map(Some),
    ]
}

fn small(value: i64) -> i16 {
    i16::try_from(value.clamp(-9, 9)).unwrap()
}

#[expect(clippy::cast_possible_truncation, reason = "the nearest one is what is wanted")]
fn single(value: f64) -> f32 {
    value as f32
}

/// A batch of one column, which begins at the row `from` of what it was made of.
fn batch_of(column: ArrayRef, from: usize) -> RecordBatch {
    let column = column.slice(from, column.len() - from);
    RecordBatch::try_from_iter_with_nullable([("v", column, true)]).unwrap()
}

/// The rows for which DataFusion says that all comparisons are true.
fn expected(batch: &RecordBatch, conditions: &[(Operator, ScalarValue)]) -> Vec<bool> {
    let mut all = vec![true; batch.num_rows()];
    for (operator, constant) in conditions {
        let column = col("v", &batch.schema()).unwrap();
        let constant = Arc::new(Literal::new(constant.clone()));
        let binary = BinaryExpr::new(column, *operator, constant);
        let holds = binary.evaluate(batch).unwrap().into_array(batch.num_rows()).unwrap();
        for (all, holds) in all.iter_mut().zip(holds.as_boolean()) {
            *all &= holds == Some(true);
        }
    }
    all
}

/// Whether a row is left, and what DataFusion says of it, without the rows with NaN: those it must not lose.
fn compared(batch: &RecordBatch, conditions: &[(Operator, ScalarValue)]) -> (Vec<bool>, Vec<bool>) {
    let comparisons = conditions
        .iter()
        .map(|(operator, constant)| Comparison::new(0, *operator, constant).unwrap());
    let comparisons: Vec<_> = comparisons.collect();
    let left = rows_left(&comparisons, batch.columns(), batch.num_rows());
    let is_nan = |row: usize| match batch.column(0).data_type() {
        DataType::Float32 => batch.column(0).as_primitive::<Float32Type>().value(row).is_nan(),
        DataType::Float64 => batch.column(0).as_primitive::<Float64Type>().value(row).is_nan(),
        _ => false,
    };
    let expected = expected(batch, conditions);
    let left: Vec<bool> = left.iter().collect();
    for (row, (left, expected)) in left.iter().zip(&expected).enumerate() {
        assert!(*left || !*expected, "row {row} is lost");
    }
    let of_numbers = |rows: Vec<bool>| -> Vec<bool> {
        let rows = rows.into_iter().enumerate();
        rows.filter(|(row, _)| !is_nan(*row)).map(|(_, holds)| holds).collect()
    };
    (of_numbers(left), of_numbers(expected))
}

proptest! {
    #[test]
    fn whole_numbers_are_compared_as_datafusion_does(
        values in prop::collection::vec(whole(), 1..200),
        from in 0_usize..70,
        first in (0_usize..5, whole()),
        second in (0_usize..5, whole()),
    ) {
        let from = from % values.len();
        let conditions: Vec<(Operator, i64)> = [first, second]
            .into_iter()
            .filter_map(|(operator, constant)| Some((OPERATORS[operator], constant?)))
            .collect();
        let of = |scalar: fn(i64) -> ScalarValue| -> Vec<(Operator, ScalarValue)> {
            conditions.iter().map(|(operator, constant)| (*operator, scalar(*constant))).collect()
        };
        let long = batch_of(Arc::new(Int64Array::from(values.clone())), from);
        let (left, expected) = compared(&long, &of(|value| ScalarValue::Int64(Some(value))));
        prop_assert_eq!(left, expected);
        let days: Date32Array =
            values.iter().map(|value| value.map(|value| i32::from(small(value)))).collect();
        let day = |value: i64| ScalarValue::Date32(Some(i32::from(small(value))));
        let (left, expected) = compared(&batch_of(Arc::new(days), from), &of(day));
        prop_assert_eq!(left, expected);
        let short: Int16Array = values.iter().map(|value| value.map(small)).collect();
        let shorts = |value: i64| ScalarValue::Int16(Some(small(value)));
        let (left, expected) = compared(&batch_of(Arc::new(short), from), &of(shorts));
        prop_assert_eq!(left, expected);
        let wide: Decimal128Array = values.iter().map(|value| value.map(i128::from)).collect();
        let wide = wide.with_precision_and_scale(30, 2).unwrap();
        let decimal = |value: i64| ScalarValue::Decimal128(Some(i128::from(value)), 30, 2);
        let (left, expected) = compared(&batch_of(Arc::new(wide), from), &of(decimal));
        prop_assert_eq!(left, expected);
    }

    #[test]
    fn reals_are_compared_as_datafusion_does_and_nan_may_be_left(
        values in prop::collection::vec(real(), 1..200),
        from in 0_usize..70,
        operator in 0_usize..5,
        constant in real(),
    ) {
        let constant = constant.filter(|constant| !constant.is_nan()).unwrap_or(0.0);
        let (from, operator) = (from % values.len(), OPERATORS[operator]);
        let long = batch_of(Arc::new(Float64Array::from(values.clone())), from);
        let condition = (operator, ScalarValue::Float64(Some(constant)));
        let (left, expected) = compared(&long, &[condition]);
        prop_assert_eq!(left, expected);
        let short: Float32Array = values.iter().map(|value| value.map(single)).collect();
        let condition = (operator, ScalarValue::Float32(Some(single(constant))));
        let (left, expected) = compared(&batch_of(Arc::new(short), from), &[condition]);
        prop_assert_eq!(left, expected);
    }
}

#[test]
fn what_is_no_such_comparison_is_none() {
    let one = ScalarValue::Int64(Some(1));
    assert!(Comparison::new(0, Operator::GtEq, &one).is_some());
    for (operator, constant) in [
        (Operator::NotEq, one.clone()),
        (Operator::Plus, one),
        (Operator::Lt, ScalarValue::Int64(None)),
        (Operator::Lt, ScalarValue::Float64(Some(f64::NAN))),
        (Operator::Lt, ScalarValue::Utf8(Some("a".to_owned()))),
    ] {
        assert!(Comparison::new(0, operator, &constant).is_none(), "{operator} {constant:?}");
    }
}
