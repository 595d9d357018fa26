//! Type names in casts and typed literals, where DataFusion's reading differs from the column type; and the column type
//! for an Arrow type.

use std::sync::Arc;

use cleave_catalog::error::{Error, Fault};
use cleave_catalog::identifiers::quoted;
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
                match numeric(info)? {
                    Some(column_type) => column_type,
                    None => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(Arc::new(Field::new("", column_type.arrow(), true))))
    }
}

/// A numeric without a precision; of more digits than a value has here, and up to PostgreSQL's limit: one of as many as
/// there are. None: it has no more.
fn numeric(info: &ExactNumberInfo) -> Result<Option<ColumnType>> {
    let (precision, scale) = match info {
        ExactNumberInfo::Precision(precision) => (*precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
        ExactNumberInfo::None => return Ok(Some(ColumnType::NUMERIC)),
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

/// The name of a type, down to the parts of those that no column has: `bigint[]`, `struct(x bigint, y text)`,
/// `map(text, bigint)`. Values without a type are text, as in a table.
pub fn whole_type_name(data_type: &datatypes::DataType) -> String {
    use datatypes::DataType;
    match data_type {
        DataType::Null => ColumnType::Text.sql_name(),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => format!("{}[]", whole_type_name(item.data_type())),
        DataType::Struct(fields) => {
            let fields = fields.iter().map(|field| {
                format!("{} {}", quoted(field.name()), whole_type_name(field.data_type()))
            });
            format!("struct({})", fields.collect::<Vec<_>>().join(", "))
        }
        DataType::Map(entry, _) => match entry.data_type() {
            DataType::Struct(parts) => {
                let parts = parts.iter().map(|part| whole_type_name(part.data_type()));
                format!("map({})", parts.collect::<Vec<_>>().join(", "))
            }
            other => other.to_string(),
        },
        DataType::Dictionary(_, values) => whole_type_name(values),
        DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(..=15 | 17..) => {
            ColumnType::Bytea.sql_name()
        }
        DataType::Date64 => ColumnType::Date.sql_name(),
        DataType::Time32(_) | DataType::Time64(_) => ColumnType::Time.sql_name(),
        DataType::Duration(_) | DataType::Interval(_) => ColumnType::Interval.sql_name(),
        other => sql_type(other).map_or_else(|| other.to_string(), |own| own.sql_name()),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::DataType;

    use super::*;

    #[test]
    fn types_of_no_column_are_named_with_their_parts() {
        let field = |name: &str, own: DataType| Field::new(name, own, true);
        let list = |item: DataType| DataType::List(Arc::new(field("element", item)));
        let parts = vec![field("x", DataType::Int64), field("My y", list(DataType::Utf8View))];
        let parts = DataType::Struct(parts.into());
        let entry = vec![field("key", DataType::Utf8), field("value", list(parts.clone()))];
        let entry = Arc::new(field("entries", DataType::Struct(entry.into())));
        for (own, expected) in [
            (DataType::Null, "text"),
            (DataType::Int32, "integer"),
            (list(list(DataType::Int64)), "bigint[][]"),
            (parts, "struct(x bigint, \"My y\" text[])"),
            (DataType::Map(entry, false), "map(text, struct(x bigint, \"My y\" text[])[])"),
        ] {
            assert_eq!(whole_type_name(&own), expected);
        }
    }
}
