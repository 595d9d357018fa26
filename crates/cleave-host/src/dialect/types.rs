//! Names of types in casts and typed literals, where the engine's reading is not the column's.

use std::sync::Arc;

use cleave_store::ColumnType;
use datafusion::arrow::datatypes::{Field, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{DataType, ExactNumberInfo, TimezoneInfo};

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
