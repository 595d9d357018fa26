//! Type names in casts and typed literals, where the engine's reading differs from the column type; and the column type
//! for an Arrow type.

use std::sync::Arc;

use cleave_store::ColumnType;
use datafusion::arrow::datatypes::{self, Field, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{DataType, ExactNumberInfo, TimezoneInfo};

use super::typed_literals::column_type_of;

/// Reads type names as CREATE TABLE does.
#[derive(Debug)]
pub struct PostgresTypes;

impl TypePlanner for PostgresTypes {
    fn plan_type_field(&self, sql_type: &DataType) -> Result<Option<FieldRef>> {
        let column_type = match sql_type {
            DataType::Uuid => ColumnType::Uuid,
            DataType::Time(None | Some(6), TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
                ColumnType::Time
            }
            DataType::Timestamp(None | Some(6), zone) => match zone {
                TimezoneInfo::None | TimezoneInfo::WithoutTimeZone => ColumnType::Timestamp,
                TimezoneInfo::WithTimeZone | TimezoneInfo::Tz => ColumnType::TimestampTz,
            },
            DataType::Float(ExactNumberInfo::Precision(1..=24)) => ColumnType::Real,
            DataType::Float(ExactNumberInfo::None | ExactNumberInfo::Precision(25..=53)) => {
                ColumnType::Double
            }
            _ => return Ok(None),
        };
        Ok(Some(Arc::new(Field::new("", column_type.arrow(), true))))
    }
}

/// The type of a column with values of this type; None: there is none.
pub fn sql_type(data_type: &datatypes::DataType) -> Option<ColumnType> {
    use datatypes::DataType;
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Some(ColumnType::Text),
        DataType::Int8 => Some(ColumnType::SmallInt),
        other if other.is_unsigned_integer() => Some(ColumnType::BigInt),
        DataType::Timestamp(_, None) => Some(ColumnType::Timestamp),
        DataType::Timestamp(..) => Some(ColumnType::TimestampTz),
        other => column_type_of(other),
    }
}
