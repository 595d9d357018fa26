//! Types by the numbers that PostgreSQL's clients know them by, and back.
//!
//! A column of a result has the type that its Arrow type is nearest to; lengths and digits are not told (as PostgreSQL
//! does not for what is computed).
//!
//! Source: PostgreSQL's `pg_type.dat`.

use arrow::datatypes::{DataType, TimeUnit};
use cleave_host::Error;
use cleave_store::ColumnType;

/// A type of values, or of lists of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WireType {
    /// The type, or that of the list's items.
    pub(crate) element: Element,
    /// Whether it is a list.
    pub(crate) is_list: bool,
}

/// A type of single values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    /// `boolean`.
    Bool,
    /// `bytea`.
    Bytea,
    /// `bigint`.
    Int8,
    /// `smallint`.
    Int2,
    /// `integer`.
    Int4,
    /// `text`, and whatever else is told as text.
    Text,
    /// A number of a thing, as clients send it.
    Oid,
    /// `real`.
    Float4,
    /// `double precision`.
    Float8,
    /// `date`.
    Date,
    /// `time`.
    Time,
    /// `timestamp`.
    Timestamp,
    /// `timestamp with time zone`.
    TimestampTz,
    /// `interval`.
    Interval,
    /// `numeric`.
    Numeric,
    /// `uuid`.
    Uuid,
    /// A row: as text only.
    Record,
}

impl Element {
    /// Number, number of the list type, and size in bytes; -1: it varies.
    fn facts(self) -> (u32, u32, i16) {
        match self {
            Self::Bool => (16, 1000, 1),
            Self::Bytea => (17, 1001, -1),
            Self::Int8 => (20, 1016, 8),
            Self::Int2 => (21, 1005, 2),
            Self::Int4 => (23, 1007, 4),
            Self::Text => (25, 1009, -1),
            Self::Oid => (26, 1028, 4),
            Self::Float4 => (700, 1021, 4),
            Self::Float8 => (701, 1022, 8),
            Self::Date => (1082, 1182, 4),
            Self::Time => (1083, 1183, 8),
            Self::Timestamp => (1114, 1115, 8),
            Self::TimestampTz => (1184, 1185, 8),
            Self::Interval => (1186, 1187, 16),
            Self::Numeric => (1700, 1231, -1),
            Self::Uuid => (2950, 2951, 16),
            Self::Record => (2249, 2287, -1),
        }
    }

    /// Its number.
    pub(crate) fn oid(self) -> u32 {
        self.facts().0
    }
}

impl WireType {
    /// Its number.
    pub(crate) fn oid(self) -> u32 {
        let (one, list, _) = self.element.facts();
        if self.is_list { list } else { one }
    }

    /// Its size in bytes; -1: it varies.
    pub(crate) fn size(self) -> i16 {
        if self.is_list { -1 } else { self.element.facts().2 }
    }

    /// What a column of this Arrow type is told as.
    pub(crate) fn of_arrow(data_type: &DataType) -> Self {
        match data_type {
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                Self { element: element_of(item.data_type()), is_list: true }
            }
            DataType::Dictionary(_, value) => Self::of_arrow(value),
            other => Self { element: element_of(other), is_list: false },
        }
    }
}

fn element_of(data_type: &DataType) -> Element {
    match data_type {
        DataType::Boolean => Element::Bool,
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => Element::Int2,
        DataType::UInt16 | DataType::Int32 => Element::Int4,
        DataType::UInt32 | DataType::Int64 | DataType::UInt64 => Element::Int8,
        DataType::Float16 | DataType::Float32 => Element::Float4,
        DataType::Float64 => Element::Float8,
        DataType::Decimal128(..) => Element::Numeric,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Element::Bytea,
        DataType::FixedSizeBinary(16) => Element::Uuid,
        DataType::FixedSizeBinary(_) => Element::Bytea,
        DataType::Date32 | DataType::Date64 => Element::Date,
        DataType::Time32(_) | DataType::Time64(_) => Element::Time,
        DataType::Timestamp(_, None) => Element::Timestamp,
        DataType::Timestamp(_, Some(_)) => Element::TimestampTz,
        DataType::Interval(_) => Element::Interval,
        DataType::Struct(_) => Element::Record,
        DataType::Dictionary(_, value) => element_of(value),
        _ => Element::Text,
    }
}

/// The Arrow type in whose form values of `data_type` are written in binary.
pub(crate) fn plain(data_type: &DataType) -> DataType {
    match element_of(data_type) {
        Element::Int2 => DataType::Int16,
        Element::Int4 => DataType::Int32,
        Element::Int8 => DataType::Int64,
        Element::Float4 => DataType::Float32,
        Element::Date => DataType::Date32,
        Element::Time => DataType::Time64(TimeUnit::Microsecond),
        Element::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        Element::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Element::Interval => DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano),
        Element::Text => DataType::Utf8,
        Element::Bytea => DataType::Binary,
        _ => data_type.clone(),
    }
}

/// How a parameter of this type is told and read.
fn element_of_parameter(column_type: ColumnType) -> Element {
    match column_type {
        ColumnType::SmallInt => Element::Int2,
        ColumnType::Int => Element::Int4,
        ColumnType::BigInt => Element::Int8,
        ColumnType::Real => Element::Float4,
        ColumnType::Double => Element::Float8,
        ColumnType::Numeric { .. } => Element::Numeric,
        ColumnType::Boolean => Element::Bool,
        ColumnType::Text | ColumnType::Varchar(_) | ColumnType::Char(_) => Element::Text,
        ColumnType::Date => Element::Date,
        ColumnType::Time => Element::Time,
        ColumnType::Timestamp => Element::Timestamp,
        ColumnType::TimestampTz => Element::TimestampTz,
        ColumnType::Interval => Element::Interval,
        ColumnType::Bytea => Element::Bytea,
        ColumnType::Uuid => Element::Uuid,
    }
}

/// How a parameter is told and read that a client has declared by `oid`, 0: it has not, and whose type is `column_type`.
pub(crate) fn parameter(oid: u32, column_type: ColumnType) -> (u32, Element) {
    let element = match oid {
        26 => Element::Oid,
        _ => element_of_parameter(column_type),
    };
    // Drivers insist on what they have declared.
    (if matches!(oid, 0 | 705) { element.oid() } else { oid }, element)
}

/// The type of parameter `number` that a client declares by `oid`; None: it leaves it open.
///
/// # Errors
/// [`Error::Unsupported`] for a type that the database does not have.
pub(crate) fn declared(number: usize, oid: u32) -> Result<Option<ColumnType>, Error> {
    Ok(Some(match oid {
        // Not declared, and "unknown".
        0 | 705 => return Ok(None),
        16 => ColumnType::Boolean,
        17 => ColumnType::Bytea,
        20 | 26 => ColumnType::BigInt,
        21 => ColumnType::SmallInt,
        23 => ColumnType::Int,
        // "char", name, text, character(n), character varying.
        18 | 19 | 25 | 1042 | 1043 => ColumnType::Text,
        700 => ColumnType::Real,
        701 => ColumnType::Double,
        1082 => ColumnType::Date,
        1083 => ColumnType::Time,
        1114 => ColumnType::Timestamp,
        1184 => ColumnType::TimestampTz,
        1186 => ColumnType::Interval,
        1700 => ColumnType::NUMERIC,
        2950 => ColumnType::Uuid,
        _ => {
            return Err(Error::unsupported(format!(
                "parameter ${number} of the type with number {oid}"
            )));
        }
    }))
}
