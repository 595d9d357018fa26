//! The wire form of the columns that a plan reads of pages: ids, a schema, and the default values of columns that a
//! page lacks.
//!
//! Invariant: decoded columns have types that pages can store.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use cleave_store::page::ValueType;
use cleave_store::{AbsentValue, AbsentValues, ColumnRef, Projection};
use datafusion_common::{DataFusionError, Result};
use datafusion_proto::protobuf;
use prost::Message;

/// Wire form of a [`cleave_store::AbsentValue`].
#[derive(Clone, PartialEq, Message)]
pub(super) struct AbsentNode {
    #[prost(uint32, tag = "1")]
    column: u32,
    #[prost(bytes, tag = "2")]
    value: Vec<u8>,
}

/// The VID among the columns of a table, whose ids begin with 1.
const VID_COLUMN: u32 = 0;

/// Columns that a scan may name: those of the table, and the VID.
pub(super) fn named_columns(projection: &Projection) -> Result<Vec<u32>> {
    projection
        .columns
        .iter()
        .map(|column| match column {
            ColumnRef::User(id) => Ok(*id),
            ColumnRef::Vid => Ok(VID_COLUMN),
            other => Err(DataFusionError::Plan(format!("{other:?} does not travel with a scan"))),
        })
        .collect()
}

pub(super) fn decode_projection(
    what: &str,
    ids: Vec<u32>,
    schema: Option<&protobuf::Schema>,
    absent: &AbsentValues,
) -> Result<Projection> {
    let schema: Schema = schema
        .ok_or_else(|| DataFusionError::Plan(format!("a scan without its {what} schema")))?
        .try_into()?;
    if schema.fields().len() != ids.len() {
        return Err(DataFusionError::Plan(format!(
            "a scan names {} {what} columns and describes {}",
            ids.len(),
            schema.fields().len()
        )));
    }
    // A column that a page lacks is filled with NULLs, as wide as its type says.
    if let Some(field) =
        schema.fields().iter().find(|field| ValueType::from_arrow(field.data_type()).is_none())
    {
        return Err(DataFusionError::Plan(format!(
            "a scan's {what} column \"{}\" has type {}, which no page has",
            field.name(),
            field.data_type()
        )));
    }
    let schema: SchemaRef = Arc::new(schema);
    let column = |id| if id == VID_COLUMN { ColumnRef::Vid } else { ColumnRef::User(id) };
    let columns = ids.into_iter().map(column).collect();
    Ok(Projection { schema, columns, absent: absent.clone() })
}

/// Default values for those of these columns that a page lacks.
pub(super) fn encode_absent(projections: &[&Projection]) -> Vec<AbsentNode> {
    let named = projections.iter().flat_map(|projection| {
        projection.columns.iter().filter_map(|column| match column {
            ColumnRef::User(id) => Some((*id, projection.absent.get(*id)?)),
            _ => None,
        })
    });
    let node =
        |(column, value): (u32, &AbsentValue)| AbsentNode { column, value: value.bytes().to_vec() };
    named.collect::<BTreeMap<_, _>>().into_iter().map(node).collect()
}

/// Each page without the column checks that they are values of its type.
pub(super) fn decode_absent(nodes: Vec<AbsentNode>) -> AbsentValues {
    nodes.iter().map(|node| (node.column, AbsentValue::from_bytes(&node.value))).collect()
}
