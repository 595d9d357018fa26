//! Literals in quotes, read as the type of the expression beside them.
//!
//! DataFusion would compare a number with `'10'` as text, bytes with the letters of `'\x00ff'`, and times through
//! nanoseconds, which end in 2262.

use cleave_catalog::error::Error;
use cleave_catalog::value::ColumnBuilder;
use cleave_fragment::functions::quotient::NUMERIC;
use cleave_fragment::functions::{bytes_of_text, interval_span, longest, round_to_even, shortest};
use cleave_fragment::walk::WalkPlan;
use cleave_store::ColumnType;
use datafusion::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::{
    Expr, ExprSchemable, JoinConstraint, LogicalPlan, Operator, case, cast, lit, when,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercionRewriter;

use super::functions::{
    FIRST_OF, MATCHES, innermost, list_read, nested_as, numeric_of_text, of_engine,
    same_dimensions, text_of, with_digits,
};
use super::operand_types::{
    check_cast, check_compared, check_comparison, check_condition, matched, matched_union,
    matched_values, nullif_type,
};
use super::rewrite::rewrite_expressions;

/// Functions of bytes and of nothing else: a literal in quotes is no text for them.
const OF_BYTES: [&str; 8] =
    ["convert_from", "encode", "get_byte", "set_byte", "sha224", "sha256", "sha384", "sha512"];

/// Gives literals in quotes their type.
#[derive(Debug)]
pub struct TypedLiterals;

impl AnalyzerRule for TypedLiterals {
    fn name(&self) -> &'static str {
        "typed_literals"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_everywhere(analyze_node)?.data)
    }
}

fn analyze_node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    // Until types are settled, a union has those of its first branch.
    let plan = match plan {
        LogicalPlan::Union(union) => TypeCoercionRewriter::coerce_union(matched_union(union)?)?,
        LogicalPlan::Unnest(unnest) => {
            let rows = unnest.input.schema();
            let is_nested = |place: usize| {
                !gives_lists(&unnest.input, place)
                    && rows
                        .fields()
                        .get(place)
                        .is_some_and(|field| innermost(field.data_type()).1 > 1)
            };
            if unnest.list_type_columns.iter().any(|(place, _)| is_nested(*place)) {
                // One level alone would be taken apart.
                return Err(Error::unsupported("unnest of an array of several dimensions").into());
            }
            LogicalPlan::Unnest(unnest)
        }
        LogicalPlan::Values(values) => LogicalPlan::Values(matched_values(values)?),
        LogicalPlan::Join(join) => {
            for (left, right) in &join.on {
                match join.join_constraint {
                    JoinConstraint::On => {
                        check_compared(Operator::Eq, left, right, &join.schema)?;
                    }
                    JoinConstraint::Using => {
                        let (mut left, mut right) = (left.clone(), right.clone());
                        matched("JOIN/USING", vec![&mut left, &mut right], &join.schema)?;
                    }
                }
            }
            LogicalPlan::Join(join)
        }
        plan => plan,
    };
    rewrite_expressions(plan, &typed)?.map_data(as_described)
}

/// Rows of VALUES whose cells have the types of their columns: a cell that was cast to `numeric` has one of its own.
fn as_described(plan: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Values(mut values) = plan else { return Ok(plan) };
    let none = DFSchema::empty();
    for row in &mut values.values {
        for (cell, field) in row.iter_mut().zip(values.schema.fields()) {
            if *field.data_type() == NUMERIC && cell.get_type(&none)? != NUMERIC {
                *cell = cast(std::mem::take(cell), NUMERIC);
            }
        }
    }
    Ok(LogicalPlan::Values(values))
}

/// Whether a column of the input of an unnesting has the rows of a function that gives lists.
fn gives_lists(input: &LogicalPlan, place: usize) -> bool {
    fn is_it(expr: &Expr) -> bool {
        match expr {
            Expr::Alias(alias) => is_it(&alias.expr),
            Expr::ScalarFunction(function) => function.name() == MATCHES,
            _ => false,
        }
    }
    match input {
        LogicalPlan::Projection(projection) => projection.expr.get(place).is_none_or(is_it),
        _ => true,
    }
}

/// One expression whose parts have their types.
pub(super) fn typed(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::InList(mut list) => {
            let Ok(own) = list.expr.get_type(schema) else {
                return Ok(Transformed::no(Expr::InList(list)));
            };
            for item in &mut list.list {
                check_compared(Operator::Eq, &list.expr, item, schema)?;
                replace(item, &own, schema)?;
            }
            Ok(Transformed::yes(Expr::InList(list)))
        }
        Expr::Between(mut between) => {
            let Ok(own) = between.expr.get_type(schema) else {
                return Ok(Transformed::no(Expr::Between(between)));
            };
            check_compared(Operator::GtEq, &between.expr, &between.low, schema)?;
            check_compared(Operator::LtEq, &between.expr, &between.high, schema)?;
            replace(&mut between.low, &own, schema)?;
            replace(&mut between.high, &own, schema)?;
            Ok(Transformed::yes(Expr::Between(between)))
        }
        Expr::Case(mut case) => {
            if case.expr.is_none() {
                for (when, _) in &case.when_then_expr {
                    check_condition("CASE/WHEN", when, schema)?;
                }
            }
            if let Some(Ok(own)) = case.expr.as_ref().map(|expr| expr.get_type(schema)) {
                for (when, _) in &mut case.when_then_expr {
                    if let Some(expr) = &case.expr {
                        check_compared(Operator::Eq, expr, when, schema)?;
                    }
                    replace(when, &own, schema)?;
                }
            }
            if let Some(expr) = &mut case.expr {
                // DataFusion would compare dates and times in nanoseconds, which end in 2262.
                let whens = case.when_then_expr.iter_mut().map(|(when, _)| when.as_mut());
                matched("CASE/WHEN", whens.chain([expr.as_mut()]).collect(), schema)?;
            }
            let results = case.when_then_expr.iter_mut().map(|(_, then)| then);
            let results = case.else_expr.iter_mut().chain(results).map(Box::as_mut);
            matched("CASE", results.collect(), schema)?;
            Ok(Transformed::yes(Expr::Case(case)))
        }
        Expr::BinaryExpr(mut binary) if compares(binary.op) || calculates(binary.op) => {
            let types = (binary.left.get_type(schema), binary.right.get_type(schema));
            if let (Ok(left), Ok(right)) = types {
                if compares(binary.op) {
                    let (one, other) =
                        ((binary.left.as_ref(), &left), (binary.right.as_ref(), &right));
                    check_comparison(binary.op, one, other)?;
                    replace(&mut binary.left, &right, schema)?;
                    replace(&mut binary.right, &left, schema)?;
                } else {
                    *binary.left = aligned(*binary.left, &left, &right);
                    *binary.right = aligned(*binary.right, &right, &left);
                }
            }
            Ok(Transformed::yes(Expr::BinaryExpr(binary)))
        }
        Expr::Cast(cast) => {
            if let Ok(own) = cast.expr.get_type(schema) {
                check_cast((&cast.expr, &own), cast.field.data_type())?;
            }
            converted(cast, schema)
        }
        Expr::AggregateFunction(aggregate) => {
            if let Some(condition) = &aggregate.params.filter {
                check_condition("FILTER", condition, schema)?;
            }
            Ok(Transformed::no(Expr::AggregateFunction(aggregate)))
        }
        Expr::InSubquery(within) => {
            let rows = within.subquery.subquery.schema();
            if let (Ok(own), [field]) = (within.expr.get_type(schema), rows.fields().as_ref()) {
                let rows = Expr::Column(Column::from_name(field.name()));
                let (one, other) = ((within.expr.as_ref(), &own), (&rows, field.data_type()));
                check_comparison(Operator::Eq, one, other)?;
            }
            Ok(Transformed::no(Expr::InSubquery(within)))
        }
        Expr::ScalarFunction(mut function)
            if ["coalesce", "greatest", "least"].contains(&function.name()) =>
        {
            let name = function.name().to_uppercase();
            matched(&name, function.args.iter_mut().collect(), schema)?;
            // DataFusion compares their months first.
            let is_interval =
                |arg: &Expr| matches!(arg.get_type(schema), Ok(DataType::Interval(_)));
            match name.as_str() {
                "GREATEST" if function.args.iter().any(is_interval) => function.func = longest(),
                "LEAST" if function.args.iter().any(is_interval) => function.func = shortest(),
                _ => {}
            }
            Ok(Transformed::yes(Expr::ScalarFunction(function)))
        }
        Expr::ScalarFunction(mut function) if function.name() == FIRST_OF => {
            let operand = function.args.drain(..).next();
            Ok(Transformed::yes(operand.unwrap_or_default()))
        }
        Expr::ScalarFunction(mut function)
            if ["concat", "concat_ws"].contains(&function.name()) =>
        {
            for arg in &mut function.args {
                if matches!(arg.get_type(schema), Ok(DataType::Boolean)) {
                    *arg = case(std::mem::take(arg))
                        .when(lit(true), lit("t"))
                        .when(lit(false), lit("f"))
                        .end()?;
                }
            }
            Ok(Transformed::yes(Expr::ScalarFunction(function)))
        }
        Expr::ScalarFunction(mut function) if function.name() == "nullif" => {
            if let [one, other] = function.args.as_mut_slice() {
                check_compared(Operator::Eq, one, other, schema)?;
                if let Ok(own) = one.get_type(schema) {
                    replace(other, &own, schema)?;
                    return nullif(function, own, schema);
                }
            }
            Ok(Transformed::yes(Expr::ScalarFunction(function)))
        }
        Expr::ScalarFunction(function)
            if ["array_append", "array_concat", "array_prepend"].contains(&function.name()) =>
        {
            let lists = Expr::ScalarFunction(function);
            let is_nested = lists.get_type(schema).is_ok_and(|own| innermost(&own).1 > 1);
            Ok(match is_nested {
                true => Transformed::yes(same_dimensions().call(vec![lists])),
                false => Transformed::no(lists),
            })
        }
        Expr::ScalarFunction(mut function) if OF_BYTES.contains(&function.name()) => {
            if let Some(bytes) = function.args.first_mut() {
                replace(bytes, &DataType::Binary, schema)?;
            }
            Ok(Transformed::yes(Expr::ScalarFunction(function)))
        }
        Expr::ScalarFunction(function)
            if ["ceil", "floor", "trunc", "round"].contains(&function.name()) =>
        {
            Ok(Transformed::yes(whole(function, schema)))
        }
        expr => Ok(Transformed::no(expr)),
    }
}

/// A cast, whose literal in quotes is read as its type.
fn converted(cast: Cast, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let to = cast.field.data_type();
    if let Ok(own) = cast.expr.get_type(schema)
        && let Some(nested) = nested_as(&own, to)
    {
        return converted(Cast::new(cast.expr, nested), schema);
    }
    if let Some(literal) = cast_literal(&cast.expr, to)? {
        return Ok(Transformed::yes(literal));
    }
    if *to == NUMERIC
        && let Ok(own) = cast.expr.get_type(schema)
        && let Some(numeric) = numeric_of_exact(&own)
    {
        let is_same = numeric == own;
        return Ok(Transformed::yes(match is_same {
            true => *cast.expr,
            false => Expr::Cast(Cast::new(cast.expr, numeric)),
        }));
    }
    if matches!(to, DataType::List(_)) && cast.expr.get_type(schema).is_ok_and(|own| is_text(&own))
    {
        return Ok(Transformed::yes(read_as_list(*cast.expr, to)?));
    }
    if *to == NUMERIC && cast.expr.get_type(schema).is_ok_and(|own| is_text(&own)) {
        return Ok(Transformed::yes(numeric_of_text().call(vec![*cast.expr])));
    }
    if is_bytes(to) && cast.expr.get_type(schema).is_ok_and(|own| is_text(&own)) {
        return Ok(Transformed::yes(bytes_of_text().call(vec![*cast.expr])));
    }
    let is_ours = |own: DataType| is_written(&own) || is_bytes(&own);
    if is_text(to) && cast.expr.get_type(schema).is_ok_and(is_ours) {
        return Ok(Transformed::yes(text_of().call(vec![*cast.expr])));
    }
    Ok(rounded(cast, schema))
}

/// What `numeric` without a precision is for an exact number: it keeps the digits of its type.
fn numeric_of_exact(own: &DataType) -> Option<DataType> {
    Some(match own {
        DataType::Int8 | DataType::Int16 => DataType::Decimal128(5, 0),
        DataType::Int32 => DataType::Decimal128(10, 0),
        DataType::Int64 => DataType::Decimal128(19, 0),
        other if other.is_unsigned_integer() => DataType::Decimal128(20, 0),
        other if other.is_decimal() => other.clone(),
        _ => return None,
    })
}

/// A text, read as a list of type `own`.
pub(super) fn read_as_list(text: Expr, own: &DataType) -> Result<Expr> {
    Ok(list_read().call(vec![text, lit(ScalarValue::try_from(own)?)]))
}

/// `nullif` of a value of type `own`: DataFusion gives it the type in which both are compared.
fn nullif(
    mut function: ScalarFunction,
    own: DataType,
    schema: &DFSchema,
) -> Result<Transformed<Expr>> {
    let [one, other] = function.args.as_mut_slice() else {
        return Ok(Transformed::yes(Expr::ScalarFunction(function)));
    };
    let of_other = other.get_type(schema)?;
    if let (DataType::Interval(_), DataType::Interval(_)) = (&own, &of_other) {
        // DataFusion compares their months first.
        let length = |expr: &Expr| interval_span().call(vec![expr.clone()]);
        let none = lit(ScalarValue::try_from(&own)?);
        let mut value = case(length(one)).when(length(other), none);
        return Ok(Transformed::yes(value.otherwise(std::mem::take(one))?));
    }
    let is_date_and_time = |one: &DataType, other: &DataType| {
        *one == DataType::Date32 && matches!(other, DataType::Timestamp(..))
    };
    if is_date_and_time(&own, &of_other) {
        *one = cast(std::mem::take(one), of_other);
        return Ok(Transformed::yes(cast(Expr::ScalarFunction(function), own)));
    }
    if is_date_and_time(&of_other, &own) {
        *other = cast(std::mem::take(other), own);
        return Ok(Transformed::yes(Expr::ScalarFunction(function)));
    }
    if let (DataType::Timestamp(..), DataType::Timestamp(..)) = (&own, &of_other)
        && own != of_other
    {
        *one = cast(std::mem::take(one), of_other);
        return Ok(Transformed::yes(cast(Expr::ScalarFunction(function), own)));
    }
    let is_double = own.is_floating() || of_other.is_floating();
    if !own.is_numeric() || !of_other.is_numeric() || (own == of_other && !is_double) {
        return Ok(Transformed::yes(Expr::ScalarFunction(function)));
    }
    let is_whole = own.is_integer();
    let result = nullif_type(&own, &of_other).unwrap_or(own);
    if is_whole && result.is_decimal() {
        *one = cast(std::mem::take(one), result.clone());
    }
    if is_double {
        // As PostgreSQL, as doubles.
        let as_double = |operand: &mut Expr| cast(std::mem::take(operand), DataType::Float64);
        let (left, right) = (as_double(one), as_double(other));
        // DataFusion's compares bits, and zeros have a sign. What is no column is computed once, and loses that of -0.
        if is_at_hand(&left) {
            let none = lit(ScalarValue::Float64(None));
            let value = when(left.clone().eq(right), none).otherwise(left)?;
            return Ok(Transformed::yes(cast(value, result)));
        }
        (*one, *other) = (left + lit(0.0_f64), right + lit(0.0_f64));
    }
    Ok(Transformed::yes(cast(Expr::ScalarFunction(function), result)))
}

/// Whether a value costs nothing: it may come twice.
fn is_at_hand(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) | Expr::Literal(..) => true,
        Expr::Cast(cast) => is_at_hand(&cast.expr),
        _ => false,
    }
}

/// `ceil`, `floor`, `trunc` and `round`: results of numerics have as many digits behind the point as asked for; a
/// double rounds to even; a whole number is a double, with digits a numeric.
fn whole(mut function: ScalarFunction, schema: &DFSchema) -> Expr {
    if ["round", "trunc"].contains(&function.name()) {
        function.func = of_engine(function.name());
    }
    let [value, digits @ ..] = function.args.as_mut_slice() else {
        return Expr::ScalarFunction(function);
    };
    if let Ok(own) = value.get_type(schema) {
        let digits = match digits {
            [] if own.is_integer() => return cast(std::mem::take(value), DataType::Float64),
            [Expr::Literal(digits, _)] => Some(&*digits),
            _ => None,
        };
        if let Some(numeric) = with_digits(&own, digits) {
            *value = cast(std::mem::take(value), numeric.clone());
            return cast(Expr::ScalarFunction(function), numeric);
        }
    }
    // DataFusion's type of a rounded numeric follows from digits that are a literal, which a cast is not.
    if let ("round", [Expr::Literal(count, _)]) = (function.func.name(), &mut *digits)
        && let Ok(number) = count.cast_to(&DataType::Int32)
    {
        *count = number;
    }
    let (precision, scale) = match value.get_type(schema) {
        Ok(DataType::Decimal128(precision, scale @ 0..)) => (precision, scale),
        Ok(DataType::Decimal256(..)) if function.func.name() == "trunc" => {
            let kept = match digits {
                [] => Some(0),
                [Expr::Literal(digits, _)] => match digits.cast_to(&DataType::Int64) {
                    Ok(ScalarValue::Int64(Some(digits))) => u8::try_from(digits.max(0)).ok(),
                    _ => None,
                },
                _ => None,
            };
            // As many digits before the point as there may be.
            return match kept.filter(|kept| *kept < 37) {
                Some(kept) => {
                    let numeric = DataType::Decimal256(39 + kept, kept.cast_signed());
                    cast(Expr::ScalarFunction(function), numeric)
                }
                None => Expr::ScalarFunction(function),
            };
        }
        Ok(DataType::Decimal256(_, 1..)) if ["ceil", "floor"].contains(&function.func.name()) => {
            return cast(Expr::ScalarFunction(function), DataType::Decimal128(38, 0));
        }
        Ok(DataType::Float64 | DataType::Float32)
            if function.func.name() == "round" && digits.is_empty() =>
        {
            let value = std::mem::replace(value, lit(ScalarValue::Null));
            return round_to_even().call(vec![cast(value, DataType::Float64)]);
        }
        _ => return Expr::ScalarFunction(function),
    };
    if let [Expr::Literal(digits, _)] = digits
        && let Ok(ScalarValue::Int64(Some(digits))) = digits.cast_to(&DataType::Int64)
        && let Ok(digits) = i8::try_from(digits)
        && digits > scale
        && let Some(wider) = precision.checked_add((digits - scale).unsigned_abs())
        && wider <= 38
    {
        return cast(std::mem::take(value), DataType::Decimal128(wider, digits));
    }
    let kept = match (function.func.name(), digits) {
        _ if scale == 0 => return Expr::ScalarFunction(function),
        ("round", _) => return Expr::ScalarFunction(function),
        (_, []) => 0,
        (_, [Expr::Literal(digits, _)]) => match digits.cast_to(&DataType::Int64) {
            Ok(ScalarValue::Int64(Some(digits @ 0..))) => {
                i8::try_from(digits).map_or(scale, |digits| digits.min(scale))
            }
            _ => return Expr::ScalarFunction(function),
        },
        _ => return Expr::ScalarFunction(function),
    };
    // The next whole number may have one digit more.
    let wider = (precision + 1).min(38);
    *value =
        cast(std::mem::replace(value, lit(ScalarValue::Null)), DataType::Decimal128(wider, scale));
    let left = wider.saturating_sub((scale - kept).unsigned_abs()).max(1);
    cast(Expr::ScalarFunction(function), DataType::Decimal128(left, kept))
}

/// Types of text.
pub(super) fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Types whose text DataFusion writes differently.
pub(super) fn is_written(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Timestamp(..)
            | DataType::Date32
            | DataType::Time64(_)
            | DataType::Interval(_)
            | DataType::Duration(_)
            | DataType::Float32
            | DataType::Float64
            | DataType::Decimal256(..)
            | DataType::List(_)
            | DataType::FixedSizeBinary(16)
    )
}

/// Bytes, which DataFusion also accepts as text arguments.
fn is_bytes(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

/// A cast to an integer rounds: numerics away from zero, floats to even.
fn rounded(to_integer: Cast, schema: &DFSchema) -> Transformed<Expr> {
    let target = to_integer.field.data_type();
    let inner = match (target, to_integer.expr.get_type(schema)) {
        (
            DataType::Int16 | DataType::Int32 | DataType::Int64,
            Ok(DataType::Decimal128(_, 1..) | DataType::Decimal256(_, 1..)),
        ) => cast(*to_integer.expr, DataType::Decimal128(38, 0)),
        (
            DataType::Int16 | DataType::Int32 | DataType::Int64,
            Ok(DataType::Float32 | DataType::Float64),
        ) => round_to_even().call(vec![cast(*to_integer.expr, DataType::Float64)]),
        _ => return Transformed::no(Expr::Cast(to_integer)),
    };
    Transformed::yes(Expr::Cast(Cast { expr: Box::new(inner), field: to_integer.field }))
}

fn calculates(operator: Operator) -> bool {
    use Operator as Op;
    matches!(operator, Op::Plus | Op::Minus | Op::Multiply | Op::Divide | Op::Modulo)
}

pub(super) fn compares(operator: Operator) -> bool {
    use Operator as Op;
    matches!(
        operator,
        Op::Eq
            | Op::NotEq
            | Op::Lt
            | Op::LtEq
            | Op::Gt
            | Op::GtEq
            | Op::IsDistinctFrom
            | Op::IsNotDistinctFrom
    )
}

/// Gives `expr` its meaning beside an expression of type `other`.
fn replace(expr: &mut Expr, other: &DataType, schema: &DFSchema) -> Result<()> {
    if let Some(typed) = typed_literal(expr, other)? {
        *expr = typed;
    } else if let Ok(own) = expr.get_type(schema) {
        let taken = std::mem::replace(expr, lit(ScalarValue::Null));
        *expr = aligned(taken, &own, other);
    }
    Ok(())
}

/// `expr` of type `own` as the other side needs it: in microseconds, as nanoseconds reach from 1677 to 2262 only; a
/// numeric beside a float as a float, as most floats are no numeric.
fn aligned(expr: Expr, own: &DataType, other: &DataType) -> Expr {
    use TimeUnit::{Microsecond, Nanosecond};
    match (own, other) {
        (DataType::Timestamp(Nanosecond, zone), DataType::Timestamp(Microsecond, _))
        | (DataType::Date32, DataType::Timestamp(Microsecond, zone)) => {
            cast(expr, DataType::Timestamp(Microsecond, zone.clone()))
        }
        (
            DataType::Decimal128(..) | DataType::Decimal256(..),
            DataType::Float32 | DataType::Float64,
        ) => cast(expr, DataType::Float64),
        _ => expr,
    }
}

/// `literal`, if it is one in quotes, as it compares with a value of type `other`; `None` if it stays as it is.
pub(super) fn typed_literal(literal: &Expr, other: &DataType) -> Result<Option<Expr>> {
    let Some(text) = quoted(literal) else { return Ok(None) };
    match column_type_of(other) {
        // The literal keeps its digits: 1.234 does not equal 1.23.
        Some(ColumnType::NUMERIC) => parsed(literal, text, fitting_numeric(text, 0)).map(Some),
        Some(ColumnType::Numeric { scale, .. }) => {
            parsed(literal, text, fitting_numeric(text, scale)).map(Some)
        }
        Some(column_type) => parsed(literal, text, column_type).map(Some),
        None => Ok(None),
    }
}

/// `literal`, if it is one in quotes, cast to `target`.
fn cast_literal(literal: &Expr, target: &DataType) -> Result<Option<Expr>> {
    match (quoted(literal), column_type_of(target)) {
        (Some(text), Some(ColumnType::NUMERIC)) => {
            parsed(literal, text, fitting_numeric(text, 0)).map(Some)
        }
        (Some(text), Some(column_type)) => parsed(literal, text, column_type).map(Some),
        _ => Ok(None),
    }
}

fn quoted(literal: &Expr) -> Option<&str> {
    match literal {
        Expr::Literal(
            ScalarValue::Utf8(text) | ScalarValue::Utf8View(text) | ScalarValue::LargeUtf8(text),
            _,
        ) => text.as_deref(),
        _ => None,
    }
}

fn parsed(literal: &Expr, text: &str, column_type: ColumnType) -> Result<Expr> {
    let mut builder = ColumnBuilder::new(&column_type, 1);
    builder.append_text(text).map_err(|error| DataFusionError::from(Error::literal(error)))?;
    let value = ScalarValue::try_from_array(&builder.finish(), 0)?;
    let metadata = match literal {
        Expr::Literal(_, metadata) => metadata.clone(),
        _ => None,
    };
    Ok(Expr::Literal(value, metadata))
}

/// The numeric with the digits behind the point with which a number is written, and `scale` at least; one without a
/// precision where these are too many.
pub fn fitting_numeric(text: &str, scale: i8) -> ColumnType {
    let (mantissa, exponent) = text.trim().split_once(['e', 'E']).unwrap_or((text.trim(), "0"));
    let exponent = exponent.parse::<i64>().unwrap_or_default();
    let (whole, behind) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let count = |digits: &str| i64::try_from(digits.len()).unwrap_or(i64::MAX);
    let whole = count(whole.trim_start_matches(['+', '-', '0']));
    let before = whole.saturating_add(exponent).max(0);
    let behind = count(behind).saturating_sub(exponent).max(scale.into());
    match i8::try_from(behind) {
        Ok(scale) if before.saturating_add(behind) <= 38 => {
            ColumnType::Numeric { precision: 38, scale }
        }
        _ => ColumnType::NUMERIC,
    }
}

/// The SQL type that an expression of type `arrow` has; `None` for text and what is no SQL type.
pub(crate) fn column_type_of(arrow: &DataType) -> Option<ColumnType> {
    Some(match arrow {
        DataType::Int16 => ColumnType::SmallInt,
        DataType::Int32 => ColumnType::Int,
        DataType::Int64 => ColumnType::BigInt,
        DataType::Float32 => ColumnType::Real,
        DataType::Float64 => ColumnType::Double,
        DataType::Decimal128(precision, scale) => {
            ColumnType::Numeric { precision: *precision, scale: *scale }
        }
        // The type as which it would be stored.
        DataType::Decimal256(..) => ColumnType::NUMERIC,
        DataType::Boolean => ColumnType::Boolean,
        DataType::Date32 => ColumnType::Date,
        DataType::Time64(TimeUnit::Microsecond) => ColumnType::Time,
        DataType::Timestamp(TimeUnit::Microsecond, None) => ColumnType::Timestamp,
        DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) if zone.as_ref() == "UTC" => {
            ColumnType::TimestampTz
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => ColumnType::Interval,
        DataType::Binary => ColumnType::Bytea,
        DataType::FixedSizeBinary(16) => ColumnType::Uuid,
        _ => return None,
    })
}
