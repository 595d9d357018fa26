//! Tells which expressions are total (have a value for every row). A total one may be evaluated on rows that an earlier
//! condition would have removed, or on a dictionary's values, and raises no error that the statement itself would not.

use crate::walk::Walk;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion_expr::Operator;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, DynamicFilterPhysicalExpr, InListExpr, IsNotNullExpr,
    IsNullExpr, LikeExpr, Literal, NotExpr,
};
use datafusion_physical_plan::joins::HashTableLookupExpr;

use super::absent_key::AbsentKeyExpr;
use super::key_filter::KeyFilterExpr;
use super::key_set::KeySetExpr;

/// Whether `expr`, over rows of `schema`, has a value (or NULL) for any content of their columns. Unknown expressions
/// count as fallible.
pub fn cannot_fail(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    expr.exists(|part| Ok(!part_cannot_fail(part, schema))).is_ok_and(|fails| !fails)
}

/// Whether `expr` has a value for all values of its parts.
fn part_cannot_fail(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    use Operator::{And, Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq, Or};
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        return matches!(
            binary.op(),
            And | Or | Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom
        );
    }
    if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        let from = cast.expr().data_type(schema);
        return from.is_ok_and(|from| is_total_cast(&from, cast.cast_type()));
    }
    expr.is::<Column>()
        || expr.is::<Literal>()
        || expr.is::<NotExpr>()
        || expr.is::<IsNullExpr>()
        || expr.is::<IsNotNullExpr>()
        || expr.is::<InListExpr>()
        || expr.is::<LikeExpr>()
        || expr.is::<CaseExpr>()
        || expr.is::<KeySetExpr>()
        || expr.is::<KeyFilterExpr>()
        || expr.is::<DynamicFilterPhysicalExpr>()
        || expr.is::<HashTableLookupExpr>()
        // Conditions with it are left out.
        || expr.is::<AbsentKeyExpr>()
}

/// Whether a cast from one type to the other has a value for each but NULL, and no two values have the same.
pub fn is_total_cast(from: &DataType, to: &DataType) -> bool {
    let is_widened = matches!((from, to), (DataType::Float32, DataType::Float64));
    is_widened || cast_factor(from, to).is_some()
}

/// The factor that converts values of one type to the other, if the cast cannot overflow.
pub fn cast_factor(from: &DataType, to: &DataType) -> Option<i64> {
    let digits = match from {
        DataType::Int16 => 5,
        DataType::Int32 => 10,
        DataType::Int64 => 19,
        DataType::Decimal128(precision, scale) => {
            let DataType::Decimal128(wider, same) = to else { return None };
            return (wider >= precision && same == scale).then_some(1);
        }
        _ => return None,
    };
    match to {
        DataType::Int32 if digits <= 10 => Some(1),
        DataType::Int64 => Some(1),
        DataType::Decimal128(precision, scale) => {
            let scale = u8::try_from(*scale).ok()?;
            let fits = precision.checked_sub(scale)? >= digits;
            if fits { 10_i64.checked_pow(u32::from(scale)) } else { None }
        }
        _ => None,
    }
}
