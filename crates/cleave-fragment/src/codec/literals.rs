//! Checks the literals of a fragment before DataFusion decodes them, since decoding some of them would take any amount
//! of memory.
//!
//! A list or a struct is an Arrow IPC message, which is checked as slots are
//! ([`arrow_message`](crate::command::arrow_message)). A NULL is allocated as wide as its type says, so its type must
//! be a sound one.

use arrow::datatypes::{DataType, Schema};
use cleave_store::page::ValueType;
use datafusion_common::{DataFusionError, Result};
use datafusion_physical_expr::ScalarFunctionExpr;
use datafusion_physical_expr::expressions::{CastExpr, Literal, TryCastExpr};
use datafusion_physical_expr_common::physical_expr::PhysicalExpr;
use datafusion_proto::generated::datafusion_common as proto;
use datafusion_proto::generated::datafusion_common::scalar_value::Value;
use datafusion_proto::protobuf::physical_expr_node::ExprType;

use crate::command::arrow_message::{check_batch, parse};

/// Refuses a literal that would take more memory than its bytes.
pub(super) fn check_literal(expr: Option<&ExprType>) -> Result<()> {
    match expr {
        Some(ExprType::Literal(literal)) => check_value(literal),
        _ => Ok(()),
    }
}

fn check_value(literal: &proto::ScalarValue) -> Result<()> {
    match &literal.value {
        Some(Value::NullValue(data_type)) => {
            let data_type: DataType = data_type.try_into().map_err(|error| refused(&error))?;
            check_width(&data_type)
        }
        Some(
            Value::ListValue(value)
            | Value::LargeListValue(value)
            | Value::FixedSizeListValue(value)
            | Value::ListViewValue(value)
            | Value::LargeListViewValue(value)
            | Value::StructValue(value)
            | Value::MapValue(value),
        ) => check_nested(value),
        // Nesting is as deep as messages may be.
        Some(Value::DictionaryValue(dictionary)) => {
            dictionary.value.as_deref().map_or(Ok(()), check_value)
        }
        Some(Value::UnionValue(_)) => Err(refused(&"a value of a union, which no table has")),
        Some(Value::RunEndEncodedValue(_)) => {
            Err(refused(&"a value of repeated runs, which no table has"))
        }
        _ => Ok(()),
    }
}

/// Checks a list or struct: a batch of one row.
fn check_nested(value: &proto::ScalarNestedValue) -> Result<()> {
    let schema = value.schema.as_ref().ok_or_else(|| refused(&"a list without its type"))?;
    let schema: Schema = schema.try_into().map_err(|error| refused(&error))?;
    schema.fields().iter().try_for_each(|field| check_width(field.data_type()))?;
    if !value.dictionaries.is_empty() {
        return Err(refused(&"a list of a dictionary's values"));
    }
    let message = parse(&value.ipc_message).map_err(|error| refused(&error))?;
    let batch = message.header_as_record_batch();
    let batch = batch.ok_or_else(|| refused(&"a list that is no batch"))?;
    let types = schema.fields().iter().map(|field| field.data_type());
    let row_count = check_batch(&batch, types, value.arrow_data.len());
    match row_count.map_err(|error| refused(&error))? {
        1 => Ok(()),
        count => Err(refused(&format_args!("{count} values in the place of one"))),
    }
}

fn refused(what: &dyn std::fmt::Display) -> DataFusionError {
    DataFusionError::Plan(format!("fragment refused: {what}"))
}

/// Refuses a type whose NULL is wider than any value of a table.
pub(super) fn check_width(data_type: &DataType) -> Result<()> {
    if has_sound_width(data_type) {
        return Ok(());
    }
    Err(refused(&format_args!("it makes a value of type {data_type}, which no table has")))
}

/// The type that `expr` itself introduces into a plan.
pub(super) fn type_made_of(expr: &std::sync::Arc<dyn PhysicalExpr>) -> Option<DataType> {
    if let Some(literal) = expr.downcast_ref::<Literal>() {
        return Some(literal.value().data_type());
    }
    if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        return Some(cast.cast_type().clone());
    }
    if let Some(cast) = expr.downcast_ref::<TryCastExpr>() {
        return Some(cast.cast_type().clone());
    }
    let function = expr.downcast_ref::<ScalarFunctionExpr>()?;
    Some(function.return_type().clone())
}

/// Whether a NULL of this type takes about as much memory as a value.
pub(crate) fn has_sound_width(data_type: &DataType) -> bool {
    match data_type {
        DataType::FixedSizeBinary(_) => ValueType::from_arrow(data_type).is_some(),
        DataType::FixedSizeList(..)
        | DataType::Union(..)
        | DataType::RunEndEncoded(..)
        | DataType::Map(..) => false,
        DataType::List(item) | DataType::LargeList(item) => has_sound_width(item.data_type()),
        DataType::ListView(item) | DataType::LargeListView(item) => {
            has_sound_width(item.data_type())
        }
        DataType::Struct(fields) => fields.iter().all(|field| has_sound_width(field.data_type())),
        DataType::Dictionary(_, value) => has_sound_width(value),
        _ => true,
    }
}
