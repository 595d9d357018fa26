//! Operators whose operand types DataFusion would reconcile differently from PostgreSQL.

use cleave_catalog::error::{Error, Fault};
use cleave_fragment::functions::{
    checked_add, checked_multiply, checked_subtract, date_minus, date_plus, days_between,
    interval_divided, interval_of_time, interval_times, moments_between, part_of_time, quotient,
    time_minus, time_plus,
};
use cleave_fragment::walk::Walk;
use datafusion::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::functions_nested::make_array::make_array_udf;
use datafusion::logical_expr::planner::{
    ExprPlanner, PlannerResult, RawAggregateExpr, RawBinaryExpr, RawFieldAccessExpr, RawWindowExpr,
};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, GetFieldAccess, Operator, binary_expr, cast, lit,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::functions::{array_has_all, list_item, list_slice, same_dimensions};
use super::integer_literals::{as_integer, follows_argument, is_whole};
use super::operand_types::{Does, check_operands, is_unknown, matched};
use super::typed_literals::{is_text, read_as_list, typed, typed_literal};
use super::window_exclusion::excluding;

/// Plans comparisons with literals in quotes, sums of dates and days, and multiples of intervals; whole numbers are
/// integers.
#[derive(Debug)]
pub struct PostgresOperators;

impl ExprPlanner for PostgresOperators {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let RawBinaryExpr { op, left, right } = expr;
        let (left, right) =
            (settled(as_integer(left), schema)?, settled(as_integer(right), schema)?);
        let expr = RawBinaryExpr { op, left, right };
        let (Ok(left), Ok(right)) = (type_of(&expr.left, schema), type_of(&expr.right, schema))
        else {
            return Ok(PlannerResult::Original(expr));
        };
        let (expr, left, right) = match of_lists(expr, left, right)? {
            PlannerResult::Planned(planned) => return Ok(PlannerResult::Planned(planned)),
            PlannerResult::Original(typed) => typed,
        };
        let (expr, left, right) = as_bigints(expr, left, right);
        let (one, other) = ((&expr.left, &left), (&expr.right, &right));
        if is_comparison(&expr.op) {
            check_operands(&expr.op, Does::Compare, one, other)?;
            let (expr, left, right) = as_doubles(expr, left, right);
            let (expr, left, right) = as_intervals(expr, left, right);
            return comparison(expr, &left, &right).map(PlannerResult::Original);
        }
        if let Some(does) = does(&expr.op) {
            check_operands(&expr.op, does, one, other)?;
        }
        let (expr, left, right) = null_as_text(expr, left, right);
        let (expr, left, right) = as_doubles(expr, left, right);
        let (expr, left, right) = with_numbers(expr, left, right)?;
        if (&left, &right) == (&DataType::Int16, &DataType::Int32)
            && let Some(shifted) = shifted_smallint(&expr)
        {
            return Ok(PlannerResult::Planned(shifted));
        }
        let (expr, left, right) = with_times(expr, left, right)?;
        let planned = days(&expr, &left, &right)
            .or_else(|| scaled(&expr, &left, &right))
            .or_else(|| exact(&expr, &left, &right));
        Ok(match planned {
            Some(planned) => PlannerResult::Planned(planned),
            None => PlannerResult::Original(expr),
        })
    }

    fn plan_array_literal(
        &self,
        exprs: Vec<Expr>,
        schema: &DFSchema,
    ) -> Result<PlannerResult<Vec<Expr>>> {
        let mut exprs: Vec<Expr> = exprs.into_iter().map(as_integer).collect();
        // DataFusion would make decimals of floats beside decimals.
        let types: Vec<DataType> =
            exprs.iter().filter_map(|item| item.get_type(schema).ok()).collect();
        let has_decimal = types.iter().any(DataType::is_decimal);
        if has_decimal && types.iter().any(DataType::is_floating) {
            matched("ARRAY", exprs.iter_mut().collect(), schema)?;
        }
        if types.iter().any(|own| matches!(own, DataType::List(_))) {
            let lists = make_array_udf().call(exprs);
            return Ok(PlannerResult::Planned(same_dimensions().call(vec![lists])));
        }
        Ok(PlannerResult::Original(exprs))
    }

    fn plan_field_access(
        &self,
        expr: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        let RawFieldAccessExpr { expr: list, field_access } = expr;
        let is_list = matches!(list.get_type(schema), Ok(DataType::List(_)));
        Ok(match field_access {
            GetFieldAccess::ListIndex { key } if is_list => {
                PlannerResult::Planned(list_item().call(vec![list, *key]))
            }
            GetFieldAccess::ListRange { start, stop, stride }
                if is_list && *stride == lit(1_i64) =>
            {
                PlannerResult::Planned(list_slice().call(vec![list, *start, *stop]))
            }
            field_access => {
                PlannerResult::Original(RawFieldAccessExpr { expr: list, field_access })
            }
        })
    }

    fn plan_extract(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(part_of_time().call(args)))
    }

    fn plan_aggregate(
        &self,
        mut expr: RawAggregateExpr,
    ) -> Result<PlannerResult<RawAggregateExpr>> {
        if follows_argument(expr.func.name()) {
            expr.args = expr.args.into_iter().map(as_integer).collect();
        }
        Ok(PlannerResult::Original(expr))
    }

    fn plan_window(&self, mut expr: RawWindowExpr) -> Result<PlannerResult<RawWindowExpr>> {
        if expr.distinct {
            let message = "DISTINCT is not implemented for window functions".to_owned();
            return Err(Error::Invalid { message, fault: Fault::Feature, position: None }.into());
        }
        if follows_argument(expr.func_def.name()) {
            expr.args = expr.args.into_iter().map(as_integer).collect();
        }
        excluding(expr).map(PlannerResult::Original)
    }
}

/// The type of an operand. DataFusion asks all links of a chain of conditions for theirs, at each link.
fn type_of(operand: &Expr, schema: &DFSchema) -> Result<DataType> {
    match operand {
        Expr::BinaryExpr(BinaryExpr { op: Operator::And | Operator::Or, .. }) => {
            Ok(DataType::Boolean)
        }
        operand => operand.get_type(schema),
    }
}

/// An operator with its operands' types.
type Typed = (RawBinaryExpr, DataType, DataType);

/// An operator beside a list: a literal in quotes is one too, and `||` adds nothing for a NULL without a type.
fn of_lists(
    mut expr: RawBinaryExpr,
    mut left: DataType,
    mut right: DataType,
) -> Result<PlannerResult<Typed>> {
    use BinaryOperator::{ArrowAt, AtArrow, StringConcat};
    let is_list = |own: &DataType| matches!(own, DataType::List(_));
    let takes_lists =
        is_comparison(&expr.op) || matches!(expr.op, AtArrow | ArrowAt | StringConcat);
    if !takes_lists || !is_list(&left) && !is_list(&right) {
        return Ok(PlannerResult::Original((expr, left, right)));
    }
    let is_quoted = |side: &Expr, own: &DataType| is_text(own) && is_unknown(side);
    if is_list(&left) && is_quoted(&expr.right, &right) {
        expr.right = read_as_list(expr.right, &left)?;
        right = left.clone();
    } else if is_list(&right) && is_quoted(&expr.left, &left) {
        expr.left = read_as_list(expr.left, &right)?;
        left = right.clone();
    }
    let RawBinaryExpr { op, left: one, right: other } = expr;
    Ok(match op {
        StringConcat if right.is_null() => PlannerResult::Planned(one),
        StringConcat if left.is_null() => PlannerResult::Planned(other),
        AtArrow => PlannerResult::Planned(array_has_all().call(vec![one, other])),
        ArrowAt => PlannerResult::Planned(array_has_all().call(vec![other, one])),
        op => PlannerResult::Original((RawBinaryExpr { op, left: one, right: other }, left, right)),
    })
}

/// An operand with the type that it will have: DataFusion takes that of the first branch for that of a CASE.
fn settled(operand: Expr, schema: &DFSchema) -> Result<Expr> {
    if !matches!(operand, Expr::Case(_)) {
        return Ok(operand);
    }
    let of_case = |own: Expr| match own {
        Expr::Case(_) => typed(own, schema),
        own => Ok(Transformed::no(own)),
    };
    Ok(operand.transform_up(of_case)?.data)
}

/// Whether `operator` compares its operands.
pub fn is_comparison(operator: &BinaryOperator) -> bool {
    use BinaryOperator as Op;
    matches!(operator, Op::Eq | Op::NotEq | Op::Lt | Op::LtEq | Op::Gt | Op::GtEq)
}

/// What an operator other than a comparison does, of those whose operands PostgreSQL restricts.
fn does(operator: &BinaryOperator) -> Option<Does> {
    Some(match operator {
        BinaryOperator::Plus => Does::Add,
        BinaryOperator::Minus => Does::Subtract,
        BinaryOperator::Multiply => Does::Multiply,
        BinaryOperator::Divide => Does::Divide,
        BinaryOperator::Modulo => Does::Modulo,
        BinaryOperator::StringConcat => Does::Concatenate,
        BinaryOperator::BitwiseAnd | BinaryOperator::BitwiseOr | BinaryOperator::PGBitwiseXor => {
            Does::Bits
        }
        _ => return None,
    })
}

fn calculates(operator: &BinaryOperator) -> bool {
    use Does::{Add, Divide, Modulo, Multiply, Subtract};
    matches!(does(operator), Some(Add | Subtract | Multiply | Divide | Modulo))
}

/// Ranks and row numbers are bigints; DataFusion has them unsigned.
fn as_bigints(
    mut expr: RawBinaryExpr,
    mut left: DataType,
    mut right: DataType,
) -> (RawBinaryExpr, DataType, DataType) {
    for (side, own) in [(&mut expr.left, &mut left), (&mut expr.right, &mut right)] {
        if *own == DataType::UInt64 {
            *own = DataType::Int64;
            *side = cast(std::mem::take(side), DataType::Int64);
        }
    }
    (expr, left, right)
}

/// A time of day beside an interval is one, too.
fn as_intervals(
    mut expr: RawBinaryExpr,
    mut left: DataType,
    mut right: DataType,
) -> (RawBinaryExpr, DataType, DataType) {
    let is_interval = |own: &DataType| matches!(own, DataType::Interval(_));
    if matches!(left, DataType::Time64(_)) && is_interval(&right) {
        expr.left = interval_of_time().call(vec![expr.left]);
        left = right.clone();
    } else if is_interval(&left) && matches!(right, DataType::Time64(_)) {
        expr.right = interval_of_time().call(vec![expr.right]);
        right = left.clone();
    }
    (expr, left, right)
}

/// A NULL beside `||` is a text, unless the other side is a list.
fn null_as_text(
    mut expr: RawBinaryExpr,
    mut left: DataType,
    mut right: DataType,
) -> (RawBinaryExpr, DataType, DataType) {
    if expr.op == BinaryOperator::StringConcat {
        let is_alone = |own: &DataType, other: &DataType| own.is_null() && !other.is_nested();
        if is_alone(&left, &right) {
            expr.left = cast(expr.left, DataType::Utf8);
            left = DataType::Utf8;
        } else if is_alone(&right, &left) {
            expr.right = cast(expr.right, DataType::Utf8);
            right = DataType::Utf8;
        }
    }
    (expr, left, right)
}

/// A `real` beside another number: both are doubles, as PostgreSQL prefers them.
fn as_doubles(
    mut expr: RawBinaryExpr,
    left: DataType,
    right: DataType,
) -> (RawBinaryExpr, DataType, DataType) {
    let is_real = |own: &DataType| *own == DataType::Float32;
    let is_one = is_real(&left) != is_real(&right) && left.is_numeric() && right.is_numeric();
    // The comparison with a small whole number is the same, and may use what is known of the column.
    let is_small = |side: &Expr| match side {
        Expr::Literal(ScalarValue::Int32(Some(number)), _) => number.unsigned_abs() <= 1 << 24,
        _ => false,
    };
    let is_exact = is_comparison(&expr.op) && (is_small(&expr.left) || is_small(&expr.right));
    if !is_one || is_exact || !(is_comparison(&expr.op) || calculates(&expr.op)) {
        return (expr, left, right);
    }
    expr.left = cast(expr.left, DataType::Float64);
    expr.right = cast(expr.right, DataType::Float64);
    (expr, DataType::Float64, DataType::Float64)
}

/// A literal in quotes beside a number, cast to such a number, and the common type.
fn with_numbers(
    mut expr: RawBinaryExpr,
    mut left: DataType,
    mut right: DataType,
) -> Result<(RawBinaryExpr, DataType, DataType)> {
    // By how many bits a number is shifted is an integer, and so is a literal that is shifted.
    if matches!(expr.op, BinaryOperator::PGBitwiseShiftLeft | BinaryOperator::PGBitwiseShiftRight) {
        if right.is_integer()
            && let Some(typed) = typed_literal(&expr.left, &DataType::Int32)?
        {
            (expr.left, left) = (typed, DataType::Int32);
        }
        if left.is_integer()
            && let Some(typed) = typed_literal(&expr.right, &DataType::Int32)?
        {
            (expr.right, right) = (typed, DataType::Int32);
        }
    }
    if calculates(&expr.op) || matches!(does(&expr.op), Some(Does::Bits)) {
        if right.is_numeric()
            && let Some(typed) = typed_literal(&expr.left, &right)?
        {
            left = typed.get_type(&DFSchema::empty())?;
            expr.left = typed;
        }
        if left.is_numeric()
            && let Some(typed) = typed_literal(&expr.right, &left)?
        {
            right = typed.get_type(&DFSchema::empty())?;
            expr.right = typed;
        }
    }
    Ok((expr, left, right))
}

/// A literal in quotes beside a time or an interval: of the same type where there is such an operator, else an
/// interval; behind an interval that is multiplied or divided, a double.
fn with_times(
    mut expr: RawBinaryExpr,
    mut left: DataType,
    mut right: DataType,
) -> Result<(RawBinaryExpr, DataType, DataType)> {
    let is_plus = match expr.op {
        BinaryOperator::Plus => true,
        BinaryOperator::Minus => false,
        BinaryOperator::Multiply | BinaryOperator::Divide => {
            if matches!(left, DataType::Interval(_))
                && let Some(factor) = typed_literal(&expr.right, &DataType::Float64)?
            {
                (expr.right, right) = (factor, DataType::Float64);
            }
            return Ok((expr, left, right));
        }
        _ => return Ok((expr, left, right)),
    };
    let beside = |own: &DataType| match own {
        DataType::Interval(_) => Some(own.clone()),
        DataType::Timestamp(TimeUnit::Microsecond, _) => Some(match is_plus {
            true => DataType::Interval(IntervalUnit::MonthDayNano),
            false => own.clone(),
        }),
        DataType::Date32 if !is_plus => Some(DataType::Date32),
        DataType::Time64(_) if is_plus => Some(DataType::Interval(IntervalUnit::MonthDayNano)),
        DataType::Time64(_) => Some(own.clone()),
        _ => None,
    };
    if let Some(wanted) = beside(&right)
        && let Some(typed) = typed_literal(&expr.left, &wanted)?
    {
        (expr.left, left) = (typed, wanted);
    } else if let Some(wanted) = beside(&left)
        && let Some(typed) = typed_literal(&expr.right, &wanted)?
    {
        (expr.right, right) = (typed, wanted);
    }
    Ok((expr, left, right))
}

/// Only where DataFusion has no comparison: types may not be settled yet. [`TypedLiterals`](super::TypedLiterals)
/// reconciles the others when they are.
fn comparison(expr: RawBinaryExpr, left: &DataType, right: &DataType) -> Result<RawBinaryExpr> {
    let RawBinaryExpr { op, left: one, right: other } = expr;
    let one_typed = if is_apart(right) { typed_literal(&one, right)? } else { None };
    let other_typed = if is_apart(left) { typed_literal(&other, left)? } else { None };
    let (left, right) = (one_typed.unwrap_or(one), other_typed.unwrap_or(other));
    Ok(RawBinaryExpr { op, left, right })
}

/// Whether DataFusion compares the type only with its own kind, or with text by its bytes.
fn is_apart(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Boolean | DataType::Binary | DataType::FixedSizeBinary(_) | DataType::Interval(_)
    )
}

/// A smallint that is shifted is one: of the integer that DataFusion makes, the lower 16 bits.
fn shifted_smallint(expr: &RawBinaryExpr) -> Option<Expr> {
    let (left, right) = (expr.left.clone(), expr.right.clone());
    let shifted = match &expr.op {
        BinaryOperator::PGBitwiseShiftRight => {
            binary_expr(left, Operator::BitwiseShiftRight, right)
        }
        BinaryOperator::PGBitwiseShiftLeft => {
            let left = cast(left, DataType::Int32);
            let shifted = binary_expr(left, Operator::BitwiseShiftLeft, right);
            let lower = binary_expr(shifted, Operator::BitwiseAnd, lit(0xFFFF_i32));
            // The highest of them is the sign.
            let sign = || lit(0x8000_i32);
            let turned = binary_expr(lower, Operator::BitwiseXor, sign());
            binary_expr(turned, Operator::Minus, sign())
        }
        _ => return None,
    };
    Some(cast(shifted, DataType::Int16))
}

/// An interval that is multiplied or divided, and a part of a time that is divided, whose fraction PostgreSQL keeps.
fn scaled(expr: &RawBinaryExpr, left: &DataType, right: &DataType) -> Option<Expr> {
    use BinaryOperator::{Divide, Multiply};
    let is_interval =
        |data_type: &DataType| matches!(data_type, DataType::Interval(_) | DataType::Duration(_));
    let (one, other) = (expr.left.clone(), expr.right.clone());
    match &expr.op {
        // Of a factor that is NULL, nothing else tells the type.
        Multiply | Divide if is_interval(left) && right.is_null() => {
            Some(interval_times().call(vec![one, cast(other, DataType::Float64)]))
        }
        Multiply if left.is_null() && is_interval(right) => {
            Some(interval_times().call(vec![other, cast(one, DataType::Float64)]))
        }
        Multiply if is_interval(left) && right.is_numeric() => {
            Some(interval_times().call(vec![one, other]))
        }
        Multiply if left.is_numeric() && is_interval(right) => {
            Some(interval_times().call(vec![other, one]))
        }
        Divide if is_interval(left) && right.is_numeric() => {
            Some(interval_divided().call(vec![one, other]))
        }
        Divide if is_part_of_time(&one) && left.is_integer() && right.is_integer() => {
            Some(cast(one, DataType::Decimal128(10, 0)) / other)
        }
        _ => None,
    }
}

/// A quotient of numerics, and arithmetic with one.
fn exact(expr: &RawBinaryExpr, left: &DataType, right: &DataType) -> Option<Expr> {
    use BinaryOperator::{Divide, Minus, Multiply, Plus};
    let is_numeric =
        |own: &DataType| matches!(own, DataType::Decimal128(..) | DataType::Decimal256(..));
    let is_wide = |own: &DataType| matches!(own, DataType::Decimal256(..));
    let is_exact = |own: &DataType| is_numeric(own) || own.is_integer();
    if !is_exact(left) || !is_exact(right) {
        return None;
    }
    let function = match &expr.op {
        Divide if is_numeric(left) || is_numeric(right) => quotient(),
        Plus if is_wide(left) || is_wide(right) => checked_add(),
        Minus if is_wide(left) || is_wide(right) => checked_subtract(),
        Multiply if is_wide(left) || is_wide(right) => checked_multiply(),
        _ => return None,
    };
    let numeric = |side: &Expr, own: &DataType| match is_numeric(own) {
        true => side.clone(),
        false => cast(side.clone(), DataType::Decimal128(20, 0)),
    };
    Some(function.call(vec![numeric(&expr.left, left), numeric(&expr.right, right)]))
}

fn is_part_of_time(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(function) if function.name() == "date_part")
}

/// A date as the time it begins at.
fn moment(date: &Expr) -> Expr {
    cast(date.clone(), DataType::Timestamp(TimeUnit::Microsecond, None))
}

/// The sum of a date's beginning and a time of day, as a timestamp.
fn at_time(date: &Expr, time: &Expr) -> Expr {
    time_plus().call(vec![moment(date), time.clone()])
}

/// date + integer, date - integer and date - date, in days; date and an interval, or a time, which gives a timestamp.
fn days(expr: &RawBinaryExpr, left: &DataType, right: &DataType) -> Option<Expr> {
    use BinaryOperator::{Minus, Plus};
    let is_integer = is_whole;
    let number = |side: &Expr| cast(side.clone(), DataType::Int32);
    let (one, other) = (&expr.left, &expr.right);
    match (left, &expr.op, right) {
        (DataType::Date32, Plus, days) if is_integer(days) => {
            Some(date_plus().call(vec![one.clone(), number(other)]))
        }
        (days, Plus, DataType::Date32) if is_integer(days) => {
            Some(date_plus().call(vec![other.clone(), number(one)]))
        }
        (DataType::Date32, Minus, days) if is_integer(days) => {
            Some(date_minus().call(vec![one.clone(), number(other)]))
        }
        (DataType::Date32, Minus, DataType::Date32) => {
            Some(days_between().call(vec![one.clone(), other.clone()]))
        }
        (DataType::Timestamp(..), Minus, DataType::Timestamp(..)) => {
            Some(moments_between().call(vec![one.clone(), other.clone()]))
        }
        (DataType::Timestamp(..), Minus, DataType::Date32) => {
            Some(moments_between().call(vec![one.clone(), moment(other)]))
        }
        (DataType::Date32, Minus, DataType::Timestamp(..)) => {
            Some(moments_between().call(vec![moment(one), other.clone()]))
        }
        // DataFusion would make it a date, without the hours.
        (DataType::Date32, Plus, DataType::Interval(_)) => Some(moment(one) + other.clone()),
        (DataType::Date32, Minus, DataType::Interval(_)) => Some(moment(one) - other.clone()),
        (DataType::Interval(_), Plus, DataType::Date32) => Some(moment(other) + one.clone()),
        (DataType::Date32, Plus, DataType::Time64(_)) => Some(at_time(one, other)),
        (DataType::Date32, Minus, DataType::Time64(_)) => {
            Some(time_minus().call(vec![moment(one), other.clone()]))
        }
        (DataType::Time64(_), Plus, DataType::Date32) => Some(at_time(other, one)),
        (DataType::Timestamp(TimeUnit::Microsecond, _), Plus, DataType::Time64(_)) => {
            Some(time_plus().call(vec![one.clone(), other.clone()]))
        }
        (DataType::Time64(_), Plus, DataType::Timestamp(TimeUnit::Microsecond, _)) => {
            Some(time_plus().call(vec![other.clone(), one.clone()]))
        }
        (DataType::Timestamp(TimeUnit::Microsecond, _), Minus, DataType::Time64(_)) => {
            Some(time_minus().call(vec![one.clone(), other.clone()]))
        }
        _ => None,
    }
}
