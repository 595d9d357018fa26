//! Which conditions are used, with the constant on either side, and what they leave.

use datafusion::arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::ScalarValue;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::{Operator, col, lit};

use super::*;

fn batch() -> RecordBatch {
    let a: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3), Some(4), Some(5)]));
    let b: ArrayRef = Arc::new(Float64Array::from(vec![0.0, 1.0, f64::NAN, -0.0, 2.0]));
    RecordBatch::try_from_iter_with_nullable([("a", a, true), ("b", b, true)]).unwrap()
}

#[test]
fn the_constant_is_on_either_side() {
    let batch = batch();
    let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("a", 0));
    let constant: Arc<dyn PhysicalExpr> = Arc::new(Literal::new(ScalarValue::Int64(Some(3))));
    let cases: [(bool, Operator, &[usize]); 5] = [
        (false, Operator::Gt, &[3, 4]),
        (true, Operator::Gt, &[0]),
        (false, Operator::LtEq, &[0, 2]),
        (true, Operator::LtEq, &[2, 3, 4]),
        (true, Operator::Eq, &[2]),
    ];
    for (is_left, operator, expected) in cases {
        let (left, right) = match is_left {
            true => (&constant, &column),
            false => (&column, &constant),
        };
        let binary = BinaryExpr::new(Arc::clone(left), operator, Arc::clone(right));
        let condition: Arc<dyn PhysicalExpr> = Arc::new(binary);
        let comparison = comparison_of(&condition).unwrap();
        let left = rows_left(&[comparison], batch.columns(), batch.num_rows());
        assert_eq!(left.set_indices().collect::<Vec<_>>(), expected, "{condition}");
    }
}

#[test]
fn only_comparisons_of_columns_that_are_read_are_used() {
    let (batch, session) = (batch(), SessionStateBuilder::new_with_default_features().build());
    let left = |filters: &[Expr]| {
        let conditions = Conditions::of(&session, filters, &batch.schema()).unwrap();
        let left = conditions.left_of(batch.clone()).unwrap();
        let ids: Vec<_> = left.column(0).as_primitive::<Int64Type>().iter().collect();
        (conditions.list().len(), ids)
    };
    let wanted = col("a").gt(lit(3_i64)).and(col("b").lt_eq(lit(0.0)));
    assert_eq!(left(&[wanted, col("c").gt(lit(3_i64))]), (2, vec![Some(4)]));
    let sum = (col("a") + col("a")).gt(lit(3_i64));
    assert_eq!(left(&[sum, col("b").lt(lit(0.0))]), (1, vec![Some(3)]));
    let all: Vec<_> = batch.column(0).as_primitive::<Int64Type>().iter().collect();
    // Most are left, so nothing is copied.
    assert_eq!(left(&[col("a").gt(lit(0_i64))]), (1, all.clone()));
    assert_eq!(left(&[]), (0, all));
}
