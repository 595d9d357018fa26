//! Literals in quotes, read as the type that they stand beside.
//!
//! The engine would compare a number with `'10'` as text, bytes with the letters of `'\x00ff'`, and times by way
//! of nanoseconds, which end in 2262.

use cleave_fragment::functions::sum_bigint;
use cleave_store::ColumnType;
use datafusion::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, Operator, WindowFunctionDefinition, cast, lit,
};
use datafusion::optimizer::AnalyzerRule;

use crate::error::Error;
use crate::value::ColumnBuilder;

/// Gives literals in quotes their type, and sums of bigint a type that holds them.
#[derive(Debug)]
pub struct TypedLiterals;

impl AnalyzerRule for TypedLiterals {
    fn name(&self) -> &'static str {
        "typed_literals"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(analyze_node)?.data)
    }
}

fn analyze_node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = &plan {
        let name = scan.table_name.clone();
        schema.merge(&DFSchema::try_from_qualified_schema(name, &scan.source.schema())?);
    }
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let rewritten = expr.transform_up(|expr| typed(expr, &schema))?;
        Ok(rewritten.update_data(|expr| name.restore(expr)))
    })?
    .map_data(LogicalPlan::recompute_schema)
}

fn typed(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::InList(mut list) => {
            let Ok(own) = list.expr.get_type(schema) else {
                return Ok(Transformed::no(Expr::InList(list)));
            };
            for item in &mut list.list {
                replace(item, &own, schema)?;
            }
            Ok(Transformed::yes(Expr::InList(list)))
        }
        Expr::Between(mut between) => {
            let Ok(own) = between.expr.get_type(schema) else {
                return Ok(Transformed::no(Expr::Between(between)));
            };
            replace(&mut between.low, &own, schema)?;
            replace(&mut between.high, &own, schema)?;
            Ok(Transformed::yes(Expr::Between(between)))
        }
        Expr::Case(mut case) => {
            if let Some(Ok(own)) = case.expr.as_ref().map(|expr| expr.get_type(schema)) {
                for (when, _) in &mut case.when_then_expr {
                    replace(when, &own, schema)?;
                }
            }
            Ok(Transformed::yes(Expr::Case(case)))
        }
        Expr::BinaryExpr(mut binary) if compares(binary.op) => {
            let types = (binary.left.get_type(schema), binary.right.get_type(schema));
            if let (Ok(left), Ok(right)) = types {
                replace(&mut binary.left, &right, schema)?;
                replace(&mut binary.right, &left, schema)?;
            }
            Ok(Transformed::yes(Expr::BinaryExpr(binary)))
        }
        Expr::Cast(cast) => Ok(match typed_literal(&cast.expr, cast.field.data_type())? {
            Some(literal) => Transformed::yes(literal),
            None => Transformed::no(Expr::Cast(cast)),
        }),
        Expr::AggregateFunction(mut function) if function.func.name() == "sum" => {
            let params = &mut function.params;
            if !is_bigint(&params.args, schema) {
                return Ok(Transformed::no(Expr::AggregateFunction(function)));
            }
            if params.distinct {
                widen(&mut params.args);
            } else {
                function.func = sum_bigint();
            }
            Ok(Transformed::yes(Expr::AggregateFunction(function)))
        }
        Expr::WindowFunction(mut function) if matches!(&function.fun, WindowFunctionDefinition::AggregateUDF(sum) if sum.name() == "sum") =>
        {
            let params = &mut function.params;
            if !is_bigint(&params.args, schema) {
                return Ok(Transformed::no(Expr::WindowFunction(function)));
            }
            if params.distinct {
                widen(&mut params.args);
            } else {
                function.fun = WindowFunctionDefinition::AggregateUDF(sum_bigint());
            }
            Ok(Transformed::yes(Expr::WindowFunction(function)))
        }
        expr => Ok(Transformed::no(expr)),
    }
}

fn compares(operator: Operator) -> bool {
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

/// Whether `args` is one bigint, whose sum may be none.
fn is_bigint(args: &[Expr], schema: &DFSchema) -> bool {
    matches!(args, [arg] if matches!(arg.get_type(schema), Ok(DataType::Int64)))
}

fn widen(args: &mut [Expr]) {
    for arg in args {
        *arg = cast(std::mem::replace(arg, lit(ScalarValue::Null)), DataType::Decimal128(38, 0));
    }
}

/// Makes `expr` what it means beside an expression of type `other`.
fn replace(expr: &mut Expr, other: &DataType, schema: &DFSchema) -> Result<()> {
    if let Some(typed) = typed_literal(expr, other)? {
        *expr = typed;
    } else if let Ok(own) = expr.get_type(schema) {
        let taken = std::mem::replace(expr, lit(ScalarValue::Null));
        *expr = in_microseconds(taken, &own, other);
    }
    Ok(())
}

/// `expr` of type `own`, in microseconds where the other side is: nanoseconds reach from 1677 to 2262 only.
pub(super) fn in_microseconds(expr: Expr, own: &DataType, other: &DataType) -> Expr {
    use TimeUnit::{Microsecond, Nanosecond};
    match (own, other) {
        (DataType::Timestamp(Nanosecond, zone), DataType::Timestamp(Microsecond, _))
        | (DataType::Date32, DataType::Timestamp(Microsecond, zone)) => {
            cast(expr, DataType::Timestamp(Microsecond, zone.clone()))
        }
        _ => expr,
    }
}

/// `literal`, if it is one in quotes, as a value of type `other`; `None` where it stays what it is.
pub(super) fn typed_literal(literal: &Expr, other: &DataType) -> Result<Option<Expr>> {
    let Expr::Literal(
        ScalarValue::Utf8(Some(text))
        | ScalarValue::Utf8View(Some(text))
        | ScalarValue::LargeUtf8(Some(text)),
        metadata,
    ) = literal
    else {
        return Ok(None);
    };
    let Some(column_type) = column_type(other, text) else { return Ok(None) };
    let mut builder = ColumnBuilder::new(&column_type, 1);
    builder
        .append_text(text)
        .map_err(|error| DataFusionError::External(Box::new(Error::Literal(Box::new(error)))))?;
    let value = ScalarValue::try_from_array(&builder.finish(), 0)?;
    Ok(Some(Expr::Literal(value, metadata.clone())))
}

/// The SQL type that an expression of type `arrow` has; `None` for text and what is no SQL type.
fn column_type(arrow: &DataType, text: &str) -> Option<ColumnType> {
    Some(match arrow {
        DataType::Int16 => ColumnType::SmallInt,
        DataType::Int32 => ColumnType::Int,
        DataType::Int64 => ColumnType::BigInt,
        DataType::Float32 => ColumnType::Real,
        DataType::Float64 => ColumnType::Double,
        // The literal keeps its digits: 1.234 does not equal 1.23.
        DataType::Decimal128(_, scale) => {
            let digits = text.trim().split_once('.').map_or(0, |(_, digits)| digits.len());
            let scale = u8::try_from(*scale).ok()?.max(u8::try_from(digits).ok()?);
            ColumnType::Numeric { precision: 38, scale: i8::try_from(scale.min(38)).ok()? }
        }
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
