//! Refuses operands and branches of types that PostgreSQL does not combine: the engine would compare numbers and times
//! as text.
//!
//! A literal in quotes has no type of its own and takes that of the others. Any other text stays text, and `text =
//! integer` is no operator. [`check_operands`] checks operators while they are planned; once the plan exists it also
//! checks what has no operator in the text (`IN`, `BETWEEN`, `USING`). [`matched`] checks expressions with one type for
//! all parts: CASE, COALESCE, UNION.
//!
//! Source: PostgreSQL's documentation, "Operator Type Resolution" and "UNION, CASE, and Related Constructs".

use std::fmt::Display;
use std::sync::Arc;

use cleave_catalog::error::{Error, Fault, NoOperator};
use cleave_catalog::identifiers::shown_name;
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::type_coercion::binary::type_union_coercion;
use datafusion::logical_expr::{
    Distinct, Expr, ExprSchemable, LogicalPlan, Operator, Projection, Union, cast,
};

use super::functions::type_name;
use super::typed_literals::{is_text, typed_literal};

/// Types whose values compare with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Text,
    Number,
    Boolean,
    Moment,
    TimeOfDay,
    Interval,
    Bytes,
    Uuid,
}

impl Family {
    /// None: for lists and other types the engine decides what they compare with.
    fn of(own: &DataType) -> Option<Self> {
        Some(match own {
            own if is_text(own) => Self::Text,
            own if own.is_numeric() => Self::Number,
            DataType::Boolean => Self::Boolean,
            DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => Self::Moment,
            DataType::Time32(_) | DataType::Time64(_) => Self::TimeOfDay,
            DataType::Interval(_) | DataType::Duration(_) => Self::Interval,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Self::Bytes,
            DataType::FixedSizeBinary(16) => Self::Uuid,
            _ => return None,
        })
    }

    fn is_apart(self, other: Self) -> bool {
        // A time of day beside an interval is an interval.
        let is_time = |own| matches!(own, Self::TimeOfDay | Self::Interval);
        self != other && !(is_time(self) && is_time(other))
    }
}

/// The kind of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    Compare,
    Calculate,
}

/// One operand: its form and its type.
pub(super) type Operand<'a> = (&'a Expr, &'a DataType);

/// Refuses operands that PostgreSQL has no such operator for.
///
/// # Errors
/// [`Error::NoOperator`].
pub(super) fn check_operands(
    operator: &dyn Display,
    does: Does,
    left: Operand<'_>,
    right: Operand<'_>,
) -> Result<()> {
    let (one, other) = (family(left), family(right));
    let is_refused = match does {
        Does::Compare => one.zip(other).is_some_and(|(one, other)| one.is_apart(other)),
        Does::Calculate => {
            let refuses = |own| matches!(own, Some(Family::Text | Family::Boolean));
            let is_known =
                |operand: Operand<'_>| family(operand).is_some() || is_unknown(operand.0);
            (refuses(one) && is_known(right)) || (refuses(other) && is_known(left))
        }
    };
    if !is_refused {
        return Ok(());
    }
    let name = |(expr, own): Operand<'_>| match expr {
        expr if is_unknown(expr) => "unknown".to_owned(),
        // The type that it has beside most operators by then.
        Expr::Literal(ScalarValue::Int64(Some(number)), _) if i32::try_from(*number).is_ok() => {
            type_name(&DataType::Int32)
        }
        _ => type_name(own),
    };
    Err(Error::NoOperator(Box::new(NoOperator {
        operator: operator.to_string(),
        types: [name(left), name(right)],
        operands: [shown(left.0), shown(right.0)],
        position: None,
    }))
    .into())
}

/// As [`check_operands`], for comparisons that appear once the plan exists.
///
/// # Errors
/// [`Error::NoOperator`].
pub(super) fn check_comparison(
    operator: Operator,
    left: Operand<'_>,
    right: Operand<'_>,
) -> Result<()> {
    match operator {
        Operator::NotEq => check_operands(&"<>", Does::Compare, left, right),
        Operator::IsDistinctFrom | Operator::IsNotDistinctFrom => {
            check_operands(&"=", Does::Compare, left, right)
        }
        operator => check_operands(&operator, Does::Compare, left, right),
    }
}

/// The same for two expressions, if both have a type by now.
///
/// # Errors
/// [`Error::NoOperator`].
pub(super) fn check_compared(
    operator: Operator,
    left: &Expr,
    right: &Expr,
    schema: &DFSchema,
) -> Result<()> {
    match (left.get_type(schema), right.get_type(schema)) {
        (Ok(one), Ok(other)) => check_comparison(operator, (left, &one), (right, &other)),
        _ => Ok(()),
    }
}

fn family((expr, own): Operand<'_>) -> Option<Family> {
    if is_unknown(expr) { None } else { Family::of(own) }
}

/// Whether `expr` has no type of its own: a literal in quotes, NULL, or a parameter.
pub(super) fn is_unknown(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value.is_null() || is_text(&value.data_type()),
        Expr::Placeholder(_) => true,
        Expr::Alias(alias) => is_unknown(&alias.expr),
        _ => false,
    }
}

/// An operand as it is written, if it is a name or a constant.
fn shown(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Column(column) => Some(shown_name(&column.name).to_owned()),
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => Some(text.clone()),
        Expr::Literal(value, _) => Some(value.to_string()),
        _ => None,
    }
}

/// The common type of `parts`; None if all are unknown, if it is text, or if the engine decides.
///
/// # Errors
/// 42804 where they have none, as `what` says it.
fn common(
    what: &str,
    parts: impl IntoIterator<Item = (bool, DataType)>,
) -> Result<Option<DataType>> {
    let mut found: Option<DataType> = None;
    for (is_unknown, own) in parts {
        if is_unknown || own.is_null() {
            continue;
        }
        found = Some(match found {
            None => own,
            Some(before) => {
                let families = Family::of(&before).zip(Family::of(&own));
                if families.is_some_and(|(one, other)| one.is_apart(other)) {
                    let (one, other) = (type_name(&before), type_name(&own));
                    return Err(Error::Invalid {
                        message: format!("{what} types {one} and {other} cannot be matched"),
                        fault: Fault::Type,
                        position: None,
                    }
                    .into());
                }
                match (&before, &own) {
                    // The engine would use nanoseconds, which end in 2262.
                    (DataType::Date32, DataType::Timestamp(_, zone))
                    | (DataType::Timestamp(_, zone), DataType::Date32) => {
                        DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
                    }
                    _ => type_union_coercion(&before, &own).unwrap_or(before),
                }
            }
        });
    }
    Ok(found)
}

/// Gives the literals in quotes among the results of `what` the type of the others.
///
/// # Errors
/// 42804 where the others have no common type, 22P02 where a literal is no value of it.
pub(super) fn matched(what: &str, mut parts: Vec<&mut Expr>, schema: &DFSchema) -> Result<()> {
    let types =
        parts.iter().filter_map(|part| Some((is_unknown(part), part.get_type(schema).ok()?)));
    let Some(common) = common(what, types.collect::<Vec<_>>())? else { return Ok(()) };
    for part in &mut parts {
        if let Some(typed) = typed_literal(part, &common)? {
            **part = typed;
        } else if matches!(common, DataType::Timestamp(..))
            && matches!(part.get_type(schema), Ok(DataType::Date32))
        {
            **part = cast(std::mem::take(*part), common.clone());
        }
    }
    Ok(())
}

/// `union` with its columns of literals in quotes given the types of the others.
///
/// # Errors
/// As [`matched`].
pub(super) fn matched_union(union: Union) -> Result<Union> {
    let mut inputs = union.inputs;
    matched_inputs("UNION", &mut inputs)?;
    Ok(Union { inputs, schema: union.schema })
}

/// The same of the inputs of any set operation.
pub(super) fn matched_inputs(what: &str, inputs: &mut [Arc<LogicalPlan>]) -> Result<()> {
    let width = inputs.iter().map(|input| input.schema().fields().len()).min().unwrap_or(0);
    for place in 0..width {
        let types = inputs.iter().map(|input| {
            (is_unknown_column(input, place), input.schema().field(place).data_type().clone())
        });
        let Some(common) = common(what, types.collect::<Vec<_>>())? else { continue };
        if is_text(&common) {
            continue;
        }
        for input in inputs.iter_mut().filter(|input| is_unknown_column(input, place)) {
            let plan = Arc::unwrap_or_clone(std::mem::take(input));
            *input = Arc::new(with_typed_column(plan, place, &common)?);
        }
    }
    Ok(())
}

/// Whether a column of `plan` is a literal without a type.
fn is_unknown_column(plan: &LogicalPlan, place: usize) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => projection.expr.get(place).is_some_and(is_unknown),
        LogicalPlan::Distinct(Distinct::All(input)) => is_unknown_column(input, place),
        LogicalPlan::Union(union) => {
            union.inputs.iter().all(|input| is_unknown_column(input, place))
        }
        _ => false,
    }
}

fn with_typed_column(plan: LogicalPlan, place: usize, to: &DataType) -> Result<LogicalPlan> {
    let inner = |input: Arc<LogicalPlan>| -> Result<Arc<LogicalPlan>> {
        Ok(Arc::new(with_typed_column(Arc::unwrap_or_clone(input), place, to)?))
    };
    Ok(match plan {
        LogicalPlan::Projection(mut projection) => {
            if let Some(expr) = projection.expr.get_mut(place) {
                let name = expr.schema_name().to_string();
                let literal = expr.clone().unalias();
                if let Some(typed) = typed_literal(&literal, to)? {
                    *expr = typed.alias(name);
                }
            }
            LogicalPlan::Projection(Projection::try_new(projection.expr, projection.input)?)
        }
        LogicalPlan::Distinct(Distinct::All(input)) => {
            LogicalPlan::Distinct(Distinct::All(inner(input)?))
        }
        LogicalPlan::Union(union) => {
            let inputs = union.inputs.into_iter().map(inner).collect::<Result<Vec<_>>>()?;
            LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?)
        }
        plan => plan,
    })
}
