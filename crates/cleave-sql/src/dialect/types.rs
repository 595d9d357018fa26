//! Type names in casts and typed literals, where DataFusion's reading differs from the column type; and the column type
//! for an Arrow type.

use std::sync::Arc;

use cleave_catalog::error::{Error, Fault};
use cleave_store::ColumnType;
use datafusion::arrow::datatypes::{self, Field, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{DataType, ExactNumberInfo, TimezoneInfo};

use super::typed_literals::column_type_of;

/// Most digits of a numeric.
const NUMERIC_DIGITS: u8 = 38;

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
            DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => {
                match wide_numeric(info)? {
                    Some(column_type) => column_type,
                    None => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(Arc::new(Field::new("", column_type.arrow(), true))))
    }
}

/// A numeric of more digits than a value has here, and up to PostgreSQL's limit: one of as many as there are. None: it
/// has no more.
fn wide_numeric(info: &ExactNumberInfo) -> Result<Option<ColumnType>> {
    let (precision, scale) = match info {
        ExactNumberInfo::Precision(precision) => (*precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
        ExactNumberInfo::None => return Ok(None),
    };
    if (1..=u64::from(NUMERIC_DIGITS)).contains(&precision) {
        return Ok(None);
    }
    if !(1..=1000).contains(&precision) {
        let message = format!("NUMERIC precision {precision} must be between 1 and 1000");
        let error = Error::Invalid { message, fault: Fault::Parameter, position: None };
        return Err(error.into());
    }
    let scale = i8::try_from(scale).ok().filter(|scale| (0..=38).contains(scale));
    let scale =
        scale.ok_or_else(|| Error::unsupported(format!("a numeric with such a scale: {info}")))?;
    Ok(Some(ColumnType::Numeric { precision: NUMERIC_DIGITS, scale }))
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
