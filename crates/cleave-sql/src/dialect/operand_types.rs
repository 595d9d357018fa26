//! Refuses operands and branches of types that PostgreSQL does not combine: DataFusion would compare numbers and times
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
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, FieldRef, TimeUnit};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::type_coercion::binary::type_union_coercion;
use datafusion::logical_expr::{
    Distinct, Expr, ExprSchemable, LogicalPlan, Operator, Projection, SubqueryAlias, Union, Values,
    cast,
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
    /// None: for lists and other types DataFusion decides what they compare with.
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

/// What an operator does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    Compare,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Concatenate,
    Bits,
}

impl Does {
    /// Whether PostgreSQL has the operator for two operands of known types; it converts them only where nothing is
    /// lost.
    fn takes(self, (left, one): (&DataType, Family), (right, other): (&DataType, Family)) -> bool {
        use Family::{Boolean, Interval, Moment, Number, Text, TimeOfDay};
        // Some functions give bigints that are integers in PostgreSQL, as generate_series.
        let days = DataType::is_integer;
        let is_date = |own: &DataType| *own == DataType::Date32;
        match (self, one, other) {
            (Self::Compare, ..) => !one.is_apart(other),
            (Self::Concatenate, ..) => {
                one == Text || other == Text || (one, other) == (Family::Bytes, Family::Bytes)
            }
            (_, Text | Boolean, _) | (_, _, Text | Boolean) => false,
            (Self::Bits, ..) => left.is_integer() && right.is_integer(),
            (Self::Modulo, Number, Number) => !left.is_floating() && !right.is_floating(),
            (_, Number, Number) => true,
            (Self::Add, Moment, Number) => is_date(left) && days(right),
            (Self::Add, Number, Moment) => days(left) && is_date(right),
            (Self::Subtract, Moment, Number) => is_date(left) && days(right),
            (Self::Add, Moment | Interval | TimeOfDay, Interval)
            | (Self::Add, Interval, Moment | TimeOfDay)
            | (Self::Add, Moment, TimeOfDay)
            | (Self::Add, TimeOfDay, Moment) => true,
            (Self::Subtract, Moment, Moment | Interval | TimeOfDay)
            | (Self::Subtract, TimeOfDay | Interval, TimeOfDay | Interval) => true,
            (Self::Multiply, Interval | TimeOfDay, Number)
            | (Self::Multiply, Number, Interval | TimeOfDay)
            | (Self::Divide, Interval | TimeOfDay, Number) => true,
            _ => false,
        }
    }
}

/// Refuses conversions that PostgreSQL does not make, even where they are asked for. A literal in quotes is read as
/// any type.
///
/// # Errors
/// 42846.
pub(super) fn check_cast((expr, from): Operand<'_>, to: &DataType) -> Result<()> {
    use Family::{Boolean, Interval, Moment, Number, Text, TimeOfDay};
    let Some((one, other)) = Family::of(from).zip(Family::of(to)).filter(|_| !is_unknown(expr))
    else {
        return Ok(());
    };
    // Some functions give bigints that are integers in PostgreSQL, as generate_series.
    let is_integer = match from {
        DataType::Int64 => !has_bigint(expr),
        own => *own == DataType::Int32,
    };
    let is_made = one == other
        || matches!((one, other), (Text, _) | (_, Text))
        || matches!((one, other), (Interval, TimeOfDay) | (TimeOfDay, Interval))
        || (one, other) == (Moment, TimeOfDay) && matches!(from, DataType::Timestamp(..))
        || (one, other) == (Number, Boolean) && is_integer
        || (one, other) == (Boolean, Number) && *to == DataType::Int32;
    if is_made {
        return Ok(());
    }
    let message = format!("cannot cast type {} to {}", type_name(from), type_name(to));
    Err(Error::Invalid { message, fault: Fault::Cast, position: None }.into())
}

/// Whether a whole number is a bigint because an operand was made one.
fn has_bigint(expr: &Expr) -> bool {
    match expr {
        Expr::Cast(cast) => *cast.field.data_type() == DataType::Int64,
        Expr::Negative(inner) => has_bigint(inner),
        Expr::BinaryExpr(binary) => has_bigint(&binary.left) || has_bigint(&binary.right),
        Expr::ScalarFunction(call) if call.name().starts_with("checked_") => {
            call.args.iter().any(has_bigint)
        }
        _ => false,
    }
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
    let is_refused = match (family(left), family(right)) {
        (Some(one), Some(other)) => !does.takes((left.1, one), (right.1, other)),
        // A literal in quotes takes the other's type, but for text, and truth values, which have no arithmetic.
        (Some(own), None) => has_none(does, own) && is_unknown(right.0),
        (None, Some(own)) => has_none(does, own) && is_unknown(left.0),
        (None, None) => false,
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

/// Whether values of the family have no such operator at all.
fn has_none(does: Does, own: Family) -> bool {
    match does {
        Does::Compare | Does::Concatenate => false,
        _ => matches!(own, Family::Text | Family::Boolean),
    }
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

/// Refuses a condition, the argument of `what`, that is not boolean; a literal in quotes is read as one.
///
/// # Errors
/// 42804.
pub(super) fn check_condition(what: &str, condition: &Expr, schema: &DFSchema) -> Result<()> {
    let Ok(own) = condition.get_type(schema) else { return Ok(()) };
    if own == DataType::Boolean || own.is_null() || is_unknown(condition) {
        return Ok(());
    }
    let message = format!("argument of {what} must be type boolean, not type {}", type_name(&own));
    Err(Error::Invalid { message, fault: Fault::Type, position: None }.into())
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

/// The common type of `parts`; None if all are unknown, if it is text, or if DataFusion decides.
///
/// # Errors
/// 42804 where they have none, as `what` says it.
pub(super) fn common(
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
                    // DataFusion would use nanoseconds, which end in 2262.
                    (DataType::Date32, DataType::Timestamp(_, zone))
                    | (DataType::Timestamp(_, zone), DataType::Date32) => {
                        DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
                    }
                    (DataType::Timestamp(_, one), DataType::Timestamp(_, other)) => {
                        let zone = one.as_ref().or(other.as_ref());
                        DataType::Timestamp(TimeUnit::Microsecond, zone.cloned())
                    }
                    // DataFusion would make decimals of floats beside decimals.
                    (one, other) if one.is_numeric() && other.is_numeric() => {
                        let floats = [DataType::Float64, DataType::Float32];
                        let float = floats.into_iter().find(|float| one == float || other == float);
                        float.or_else(|| type_union_coercion(one, other)).unwrap_or(before)
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
    let types = parts.iter().filter_map(|part| {
        let own = part.get_type(schema).ok()?;
        Some((is_unknown(part), signed(own)))
    });
    let Some(common) = common(what, types.collect::<Vec<_>>())? else { return Ok(()) };
    for part in &mut parts {
        if let Some(typed) = typed_literal(part, &common)? {
            **part = typed;
        } else if part.get_type(schema).is_ok_and(|own| is_converted(&own, &common)) {
            **part = cast(std::mem::take(*part), common.clone());
        }
    }
    Ok(())
}

/// The type of PostgreSQL for an unsigned one of DataFusion: it has ranks and row numbers as such.
pub(super) fn signed(own: DataType) -> DataType {
    match own {
        DataType::UInt64 => DataType::Int64,
        own => own,
    }
}

/// Whether DataFusion would convert both `own` and the common type to another one.
fn is_converted(own: &DataType, common: &DataType) -> bool {
    match common {
        DataType::Int64 => *own == DataType::UInt64,
        DataType::Timestamp(..) => {
            matches!(own, DataType::Date32 | DataType::Timestamp(..)) && own != common
        }
        DataType::Float32 | DataType::Float64 => own.is_numeric() && own != common,
        _ => false,
    }
}

/// The type of `nullif(one, other)` of two numbers: that of the first operand of PostgreSQL's `=` for them. None if
/// it is that of `one`.
pub(super) fn nullif_type(one: &DataType, other: &DataType) -> Option<DataType> {
    let is_exact =
        |own: &DataType| matches!(own, DataType::Decimal128(..) | DataType::Decimal256(..));
    let is_float = |own: &DataType| matches!(own, DataType::Float32 | DataType::Float64);
    if one.is_integer() && is_exact(other) {
        return Some(match other {
            // Wide enough for any integer.
            DataType::Decimal128(precision, scale @ 0..) => {
                let wide = scale.unsigned_abs().saturating_add(19).min(DECIMAL128_MAX_PRECISION);
                DataType::Decimal128(wide.max(*precision), *scale)
            }
            other => other.clone(),
        });
    }
    ((one.is_integer() || is_exact(one)) && is_float(other)).then_some(DataType::Float64)
}

/// `values` whose columns of dates and timestamps have the common type of PostgreSQL: DataFusion has cast them to
/// nanoseconds without a zone.
///
/// # Errors
/// As [`matched`].
pub(super) fn matched_values(mut values: Values) -> Result<Values> {
    let is_nanosecond =
        |own: &DataType| matches!(own, DataType::Timestamp(TimeUnit::Nanosecond, _));
    if !values.schema.fields().iter().any(|field| is_nanosecond(field.data_type())) {
        return Ok(values);
    }
    let none = DFSchema::empty();
    let mut fields = Vec::with_capacity(values.schema.fields().len());
    for (place, (qualifier, field)) in values.schema.iter().enumerate() {
        let mut own = field.data_type().clone();
        if is_nanosecond(&own) {
            let cells = values.values.iter_mut().filter_map(|row| row.get_mut(place));
            let mut cells: Vec<&mut Expr> = cells.collect();
            for cell in &mut cells {
                while let Expr::Cast(cast) = &mut **cell
                    && is_nanosecond(cast.field.data_type())
                {
                    **cell = std::mem::take(cast.expr.as_mut());
                }
            }
            matched("VALUES", cells, &none)?;
            let first = values.values.first().and_then(|row| row.get(place));
            own = first.map_or(Ok(own), |cell| cell.get_type(&none))?;
        }
        fields.push((qualifier.cloned(), Arc::new(field.as_ref().clone().with_data_type(own))));
    }
    let metadata = values.schema.metadata().clone();
    values.schema = Arc::new(DFSchema::new_with_metadata(fields, metadata)?);
    Ok(values)
}

/// `union` with its columns of literals in quotes given the types of the others.
///
/// # Errors
/// As [`matched`].
pub(super) fn matched_union(union: Union) -> Result<Union> {
    let mut inputs = union.inputs;
    matched_inputs("UNION", &mut inputs)?;
    if let Some((first, others)) = inputs.split_first_mut() {
        for other in others {
            *other = with_names(Arc::clone(other), first.schema())?;
        }
    }
    // Of the types that the inputs have now.
    Union::try_new_with_loose_types(inputs)
}

/// `plan` with the names of `named`, if it has others: DataFusion's rule for inputs without rows takes the one input
/// that is left for one with the union's names, and rows of VALUES have names of their own.
fn with_names(plan: Arc<LogicalPlan>, named: &DFSchema) -> Result<Arc<LogicalPlan>> {
    let own = plan.schema();
    let is_named = |(own, name): (&FieldRef, &FieldRef)| own.name() == name.name();
    if own.fields().iter().zip(named.fields()).all(is_named) {
        return Ok(plan);
    }
    let columns = own.iter().zip(named.fields()).map(|(column, name)| {
        let column = Column::from(column);
        match column.name() == name.name() {
            true => Expr::Column(column),
            false => Expr::Column(column).alias(name.name()),
        }
    });
    let columns = columns.collect();
    Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(columns, plan)?)))
}

/// The same of the inputs of any set operation.
pub(super) fn matched_inputs(what: &str, inputs: &mut [Arc<LogicalPlan>]) -> Result<()> {
    let width = inputs.iter().map(|input| input.schema().fields().len()).min().unwrap_or(0);
    let mut all_common = Vec::with_capacity(width);
    for place in 0..width {
        let types = inputs.iter().map(|input| {
            let own = input.schema().field(place).data_type().clone();
            (is_unknown_column(input, place), signed(own))
        });
        let common = common(what, types.collect::<Vec<_>>())?;
        all_common.push(common.filter(|common| !is_text(common)));
    }
    let all_common =
        || all_common.iter().enumerate().filter_map(|(at, own)| Some((at, own.as_ref()?)));
    for input in inputs.iter_mut() {
        // Literals first: behind a conversion they would be columns.
        for (place, common) in all_common() {
            if is_unknown_column(input, place) {
                let plan = Arc::unwrap_or_clone(std::mem::take(input));
                *input = Arc::new(with_typed_column(plan, place, common)?);
            }
        }
        let fields = input.schema().fields().iter();
        let mut types: Vec<DataType> = fields.map(|field| field.data_type().clone()).collect();
        let mut is_other = false;
        for (place, common) in all_common() {
            if let Some(own) = types.get_mut(place).filter(|own| is_converted(own, common)) {
                (*own, is_other) = (common.clone(), true);
            }
        }
        if is_other {
            let plan = Arc::unwrap_or_clone(std::mem::take(input));
            *input = Arc::new(with_types(plan, &types)?);
        }
    }
    Ok(())
}

/// `plan` with columns of these types.
pub(super) fn with_types(plan: LogicalPlan, types: &[DataType]) -> Result<LogicalPlan> {
    let schema = Arc::clone(plan.schema());
    if schema.fields().iter().zip(types).all(|(field, own)| field.data_type() == own) {
        return Ok(plan);
    }
    let columns = schema.iter().zip(types).map(|((qualifier, field), wanted)| {
        let column = Expr::Column(Column::from((qualifier, field)));
        match field.data_type() == wanted {
            true => column,
            false => cast(column, wanted.clone()).alias_qualified(qualifier.cloned(), field.name()),
        }
    });
    let columns = columns.collect();
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?))
}

/// Whether a column of `plan` is a literal without a type.
fn is_unknown_column(plan: &LogicalPlan, place: usize) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => {
            projection.expr.get(place).is_some_and(is_unknown)
                || carried(projection, place)
                    .is_some_and(|place| is_unknown_column(&projection.input, place))
        }
        LogicalPlan::Distinct(Distinct::All(input)) => is_unknown_column(input, place),
        LogicalPlan::SubqueryAlias(named) => is_unknown_column(&named.input, place),
        LogicalPlan::Union(union) => {
            union.inputs.iter().all(|input| is_unknown_column(input, place))
        }
        _ => false,
    }
}

/// The place below `projection` of a column that it only carries.
fn carried(projection: &Projection, place: usize) -> Option<usize> {
    let mut expr = projection.expr.get(place)?;
    while let Expr::Alias(alias) = expr {
        expr = &alias.expr;
    }
    match expr {
        Expr::Column(column) => projection.input.schema().maybe_index_of_column(column),
        _ => None,
    }
}

fn with_typed_column(plan: LogicalPlan, place: usize, to: &DataType) -> Result<LogicalPlan> {
    let inner = |input: Arc<LogicalPlan>| -> Result<Arc<LogicalPlan>> {
        Ok(Arc::new(with_typed_column(Arc::unwrap_or_clone(input), place, to)?))
    };
    Ok(match plan {
        LogicalPlan::Projection(mut projection) => {
            if let Some(place) = carried(&projection, place) {
                let names = projection.input.schema().columns();
                let below = with_typed_column(Arc::unwrap_or_clone(projection.input), place, to)?;
                // The literal has the name that it had.
                debug_assert_eq!(names, below.schema().columns(), "columns keep their names");
                let projection = Projection::try_new(projection.expr, Arc::new(below))?;
                return Ok(LogicalPlan::Projection(projection));
            }
            if let Some(expr) = projection.expr.get_mut(place) {
                let name = expr.schema_name().to_string();
                let literal = expr.clone().unalias();
                *expr = match typed_literal(&literal, to)? {
                    Some(typed) => typed.alias(name),
                    // A NULL with a type.
                    None if literal.get_type(projection.input.schema())? != *to => {
                        cast(literal, to.clone()).alias(name)
                    }
                    None => literal.alias(name),
                };
            }
            LogicalPlan::Projection(Projection::try_new(projection.expr, projection.input)?)
        }
        LogicalPlan::Distinct(Distinct::All(input)) => {
            LogicalPlan::Distinct(Distinct::All(inner(input)?))
        }
        LogicalPlan::SubqueryAlias(named) => {
            LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(inner(named.input)?, named.alias)?)
        }
        LogicalPlan::Union(union) => {
            let inputs = union.inputs.into_iter().map(inner).collect::<Result<Vec<_>>>()?;
            LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?)
        }
        plan => plan,
    })
}
