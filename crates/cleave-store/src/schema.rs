//! Describes tables: names and SQL types in, an Arrow schema and a stored description out.
//!
//! A [`TableSchema`] is a list of [`Column`]s, each with a stable id and a [`ColumnType`]. Pages name columns by id and
//! never by position, so a page of an older schema version stays readable: a column that it lacks decodes as
//! [`Column::absent`], the default at the time when it was added, or NULL. Ids are never reused within a table.
//!
//! Invariant: a schema that [`TableSchema::validate`] accepted has distinct column names and ids, types within
//! their limits, and a primary key of existing, distinct, NOT NULL columns. [`TableSchema::decode`] validates.
//! Deliberately absent: defaults as expressions (they stay SQL text, which only the host binds) and tablets.
//!
//! Source: `docs/design/pages-and-encodings.md`.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Field, IntervalUnit, Schema, SchemaRef, TimeUnit,
};
use prost::Message;

use crate::absent_value::AbsentValue;
use crate::proto;

/// Most columns of one table, as PostgreSQL allows.
pub const COLUMN_COUNT_MAX: usize = 1600;
/// Longest declared length of `character` and `character varying`, in characters, as PostgreSQL allows.
pub const CHARACTER_COUNT_MAX: u32 = 10_485_760;
/// Digits of a NUMERIC declared without a precision, in all. PostgreSQL has no bound there; Cleave holds 256 bits.
pub const NUMERIC_DEFAULT_PRECISION: u8 = 76;
/// Of these, digits behind the point. Its values are shown with as many as they need.
pub const NUMERIC_DEFAULT_SCALE: i8 = 38;

/// A table: its identity, its columns in declared order, and its primary key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSchema {
    /// Identity of the table within its database; never reused.
    pub table_id: u32,
    /// Version of this description: raised by one with every change of the columns.
    pub version: u32,
    /// Name as stored, folded to lower case unless it was quoted.
    pub name: String,
    /// Columns in the order that `SELECT *` shows.
    pub columns: Vec<Column>,
    /// Ids of the key columns in key order; empty: the table has no primary key.
    pub primary_key: Vec<u32>,
}

/// One column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Stable identity within the table, from 1; never reused.
    pub id: u32,
    /// Name as stored, folded to lower case unless it was quoted.
    pub name: String,
    /// SQL type.
    pub column_type: ColumnType,
    /// True where NULL is refused; always true for a column of the primary key.
    pub not_null: bool,
    /// SQL text of the default, None: NULL.
    pub default: Option<String>,
    /// Value of the column for rows of pages that are older than it; None: NULL.
    pub absent: Option<AbsentValue>,
}

/// The SQL types that Cleave stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// `smallint`: 16 bits.
    SmallInt,
    /// `integer`: 32 bits.
    Int,
    /// `bigint`: 64 bits.
    BigInt,
    /// `real`: 32-bit IEEE 754.
    Real,
    /// `double precision`: 64-bit IEEE 754.
    Double,
    /// `numeric(precision, scale)`, held in 128 bits; [`ColumnType::NUMERIC`] in 256.
    Numeric {
        /// Decimal digits in all, 1 to 38, or [`NUMERIC_DEFAULT_PRECISION`].
        precision: u8,
        /// Decimal digits after the point; negative rounds before the point.
        scale: i8,
    },
    /// `boolean`.
    Boolean,
    /// `text`.
    Text,
    /// `character varying(n)`, n in characters; None: without a limit.
    Varchar(Option<u32>),
    /// `character(n)`, n in characters; stored without trailing blanks, and never padded.
    Char(u32),
    /// `date`: days since 1970-01-01.
    Date,
    /// `time without time zone`: microseconds since midnight.
    Time,
    /// `timestamp without time zone`: microseconds since 1970-01-01T00:00:00.
    Timestamp,
    /// `timestamp with time zone`: microseconds since 1970-01-01T00:00:00Z.
    TimestampTz,
    /// `interval`: months, days and nanoseconds, kept apart.
    Interval,
    /// `bytea`.
    Bytea,
    /// `uuid`: 16 bytes.
    Uuid,
}

/// Why a description of a table is refused. The caller fixes the statement; from a stored description it means
/// that the database is damaged or newer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// A table or column without a name.
    #[error("table \"{table}\" has a column or a name that is empty")]
    NameEmpty {
        /// The table.
        table: String,
    },
    /// No columns, or more than [`COLUMN_COUNT_MAX`].
    #[error("table \"{table}\" has {count} columns; it needs 1 to {COLUMN_COUNT_MAX}")]
    ColumnCount {
        /// The table.
        table: String,
        /// Columns given.
        count: usize,
    },
    /// Two columns of one name.
    #[error("column \"{column}\" of table \"{table}\" specified more than once")]
    ColumnNameRepeated {
        /// The table.
        table: String,
        /// The repeated name.
        column: String,
    },
    /// A column id of zero, or used twice.
    #[error("column \"{column}\" of table \"{table}\" has the id {id}, which is zero or taken")]
    ColumnId {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// Its id.
        id: u32,
    },
    /// A length, precision or scale beyond what the type takes.
    #[error("column \"{column}\" of table \"{table}\": {sql_type} is out of range; {limit}")]
    TypeOutOfRange {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// The type as SQL writes it.
        sql_type: String,
        /// What the type takes.
        limit: &'static str,
    },
    /// The primary key names a column id that the table does not have.
    #[error("the primary key of table \"{table}\" names the column id {id}, which does not exist")]
    PrimaryKeyUnknown {
        /// The table.
        table: String,
        /// The unknown column id.
        id: u32,
    },
    /// The primary key names a column twice.
    #[error("column \"{column}\" of table \"{table}\" appears twice in primary key constraint")]
    PrimaryKeyRepeated {
        /// The table.
        table: String,
        /// The repeated column.
        column: String,
    },
    /// A column of the primary key that allows NULL.
    #[error("column \"{column}\" is in the primary key of table \"{table}\" and must be NOT NULL")]
    PrimaryKeyNullable {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// Stored bytes that are no description of a table.
    #[error("a stored table description cannot be read: {reason}")]
    Malformed {
        /// What is wrong with the bytes.
        reason: String,
    },
}

impl TableSchema {
    /// The columns as an Arrow schema, in declared order. Cheap next to a scan, not free: keep it.
    #[must_use]
    pub fn arrow(&self) -> SchemaRef {
        Arc::new(Schema::new(self.columns.iter().map(Column::arrow).collect::<Vec<_>>()))
    }

    /// Position of the column with this stored name.
    #[must_use]
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// The column with this stored name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The column with this id.
    #[must_use]
    pub fn column_by_id(&self, id: u32) -> Option<&Column> {
        self.columns.iter().find(|column| column.id == id)
    }

    /// Positions of the primary-key columns in key order; ids that the table does not have are left out, which
    /// [`TableSchema::validate`] rules out.
    #[must_use]
    pub fn primary_key_indices(&self) -> Vec<usize> {
        self.primary_key
            .iter()
            .filter_map(|id| self.columns.iter().position(|column| column.id == *id))
            .collect()
    }

    /// The id for the next column to be added.
    #[must_use]
    pub fn next_column_id(&self) -> u32 {
        self.columns.iter().map(|column| column.id).max().unwrap_or(0).saturating_add(1)
    }

    /// Checks everything that this module promises of a schema.
    ///
    /// # Errors
    /// The first [`SchemaError`] found, columns before the primary key.
    pub fn validate(&self) -> Result<(), SchemaError> {
        let table = || self.name.clone();
        if self.name.is_empty() || self.columns.iter().any(|column| column.name.is_empty()) {
            return Err(SchemaError::NameEmpty { table: table() });
        }
        if self.columns.is_empty() || self.columns.len() > COLUMN_COUNT_MAX {
            return Err(SchemaError::ColumnCount { table: table(), count: self.columns.len() });
        }
        let (mut names, mut ids) = (BTreeSet::new(), BTreeSet::new());
        for column in &self.columns {
            if !names.insert(column.name.as_str()) {
                return Err(SchemaError::ColumnNameRepeated {
                    table: table(),
                    column: column.name.clone(),
                });
            }
            if column.id == 0 || !ids.insert(column.id) {
                return Err(SchemaError::ColumnId {
                    table: table(),
                    column: column.name.clone(),
                    id: column.id,
                });
            }
            if let Some(limit) = column.column_type.limit_broken() {
                return Err(SchemaError::TypeOutOfRange {
                    table: table(),
                    column: column.name.clone(),
                    sql_type: column.column_type.sql_name(),
                    limit,
                });
            }
        }
        self.validate_primary_key()
    }

    fn validate_primary_key(&self) -> Result<(), SchemaError> {
        let mut seen = BTreeSet::new();
        for id in &self.primary_key {
            let Some(column) = self.column_by_id(*id) else {
                return Err(SchemaError::PrimaryKeyUnknown { table: self.name.clone(), id: *id });
            };
            if !seen.insert(*id) {
                return Err(SchemaError::PrimaryKeyRepeated {
                    table: self.name.clone(),
                    column: column.name.clone(),
                });
            }
            if !column.not_null {
                return Err(SchemaError::PrimaryKeyNullable {
                    table: self.name.clone(),
                    column: column.name.clone(),
                });
            }
        }
        Ok(())
    }

    /// The stored form: a [`proto::TableSchema`] message, without magic or checksum; its owner adds those.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        proto::TableSchema::from(self).encode_to_vec()
    }

    /// Reads what [`TableSchema::encode`] wrote, and validates it.
    ///
    /// # Errors
    /// [`SchemaError::Malformed`] for bytes that are no such message, else what [`TableSchema::validate`] says.
    pub fn decode(bytes: &[u8]) -> Result<Self, SchemaError> {
        let message = proto::TableSchema::decode(bytes)
            .map_err(|error| SchemaError::Malformed { reason: error.to_string() })?;
        Self::try_from(message)
    }
}

impl Column {
    /// The column as an Arrow field.
    #[must_use]
    pub fn arrow(&self) -> Field {
        Field::new(&self.name, self.column_type.arrow(), !self.not_null)
    }
}

impl ColumnType {
    /// NUMERIC without precision and scale.
    pub const NUMERIC: Self =
        Self::Numeric { precision: NUMERIC_DEFAULT_PRECISION, scale: NUMERIC_DEFAULT_SCALE };

    /// The Arrow type of this column in every batch, page and plan.
    #[must_use]
    pub fn arrow(&self) -> DataType {
        match *self {
            Self::SmallInt => DataType::Int16,
            Self::Int => DataType::Int32,
            Self::BigInt => DataType::Int64,
            Self::Real => DataType::Float32,
            Self::Double => DataType::Float64,
            Self::Numeric { precision, scale } if precision > DECIMAL128_MAX_PRECISION => {
                DataType::Decimal256(precision, scale)
            }
            Self::Numeric { precision, scale } => DataType::Decimal128(precision, scale),
            Self::Boolean => DataType::Boolean,
            Self::Text | Self::Varchar(_) | Self::Char(_) => DataType::Utf8,
            Self::Date => DataType::Date32,
            Self::Time => DataType::Time64(TimeUnit::Microsecond),
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Self::Bytea => DataType::Binary,
            Self::Uuid => DataType::FixedSizeBinary(16),
        }
    }

    /// The type as PostgreSQL writes it, for example in `\d`.
    #[must_use]
    pub fn sql_name(&self) -> String {
        match *self {
            Self::SmallInt => "smallint".into(),
            Self::Int => "integer".into(),
            Self::BigInt => "bigint".into(),
            Self::Real => "real".into(),
            Self::Double => "double precision".into(),
            Self::NUMERIC => "numeric".into(),
            Self::Numeric { precision, scale } => format!("numeric({precision},{scale})"),
            Self::Boolean => "boolean".into(),
            Self::Text => "text".into(),
            Self::Varchar(None) => "character varying".into(),
            Self::Varchar(Some(length)) => format!("character varying({length})"),
            Self::Char(length) => format!("character({length})"),
            Self::Date => "date".into(),
            Self::Time => "time without time zone".into(),
            Self::Timestamp => "timestamp without time zone".into(),
            Self::TimestampTz => "timestamp with time zone".into(),
            Self::Interval => "interval".into(),
            Self::Bytea => "bytea".into(),
            Self::Uuid => "uuid".into(),
        }
    }

    /// The limit of the type that this one exceeds.
    fn limit_broken(&self) -> Option<&'static str> {
        match *self {
            Self::NUMERIC => None,
            Self::Numeric { precision, scale } => {
                let precise = (1..=DECIMAL128_MAX_PRECISION).contains(&precision);
                let scaled = i16::from(scale) <= i16::from(precision) && scale >= -38;
                (!precise || !scaled)
                    .then_some("precision is 1 to 38, scale -38 up to the precision")
            }
            Self::Varchar(Some(length)) | Self::Char(length) => (length == 0
                || length > CHARACTER_COUNT_MAX)
                .then_some("length is 1 to 10485760 characters"),
            _ => None,
        }
    }
}

impl std::fmt::Display for ColumnType {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.sql_name())
    }
}

impl From<&TableSchema> for proto::TableSchema {
    fn from(schema: &TableSchema) -> Self {
        Self {
            table_id: schema.table_id,
            version: schema.version,
            name: schema.name.clone(),
            columns: schema.columns.iter().map(proto::Column::from).collect(),
            primary_key: schema.primary_key.clone(),
        }
    }
}

impl TryFrom<proto::TableSchema> for TableSchema {
    type Error = SchemaError;

    fn try_from(message: proto::TableSchema) -> Result<Self, SchemaError> {
        let schema = Self {
            table_id: message.table_id,
            version: message.version,
            name: message.name,
            columns: message.columns.into_iter().map(Column::try_from).collect::<Result<_, _>>()?,
            primary_key: message.primary_key,
        };
        schema.validate()?;
        Ok(schema)
    }
}

impl From<&Column> for proto::Column {
    fn from(column: &Column) -> Self {
        Self {
            id: column.id,
            name: column.name.clone(),
            column_type: Some(proto::ColumnType::from(&column.column_type)),
            not_null: column.not_null,
            default: column.default.clone(),
            absent: column.absent.as_ref().map(|absent| absent.bytes().to_vec()),
        }
    }
}

impl TryFrom<proto::Column> for Column {
    type Error = SchemaError;

    fn try_from(message: proto::Column) -> Result<Self, SchemaError> {
        let Some(column_type) = message.column_type else {
            return Err(SchemaError::Malformed {
                reason: format!("column \"{}\" has no type", message.name),
            });
        };
        let column_type = ColumnType::try_from(column_type)?;
        let absent = message.absent.map(|bytes| AbsentValue::from_bytes(&bytes));
        if absent.as_ref().is_some_and(|absent| absent.array(&column_type.arrow(), 1).is_none()) {
            return Err(SchemaError::Malformed {
                reason: format!(
                    "rows without column \"{}\" have what is no {column_type}",
                    message.name
                ),
            });
        }
        Ok(Self {
            id: message.id,
            name: message.name,
            column_type,
            not_null: message.not_null,
            default: message.default,
            absent,
        })
    }
}

impl From<&ColumnType> for proto::ColumnType {
    fn from(column_type: &ColumnType) -> Self {
        use proto::TypeKind;
        let plain = |kind: TypeKind| Self { kind: kind.into(), ..Self::default() };
        match *column_type {
            ColumnType::SmallInt => plain(TypeKind::SmallInt),
            ColumnType::Int => plain(TypeKind::Int),
            ColumnType::BigInt => plain(TypeKind::BigInt),
            ColumnType::Real => plain(TypeKind::Real),
            ColumnType::Double => plain(TypeKind::Double),
            ColumnType::Numeric { precision, scale } => Self {
                precision: u32::from(precision),
                scale: i32::from(scale),
                ..plain(TypeKind::Numeric)
            },
            ColumnType::Boolean => plain(TypeKind::Boolean),
            ColumnType::Text => plain(TypeKind::Text),
            ColumnType::Varchar(length) => Self { length, ..plain(TypeKind::Varchar) },
            ColumnType::Char(length) => Self { length: Some(length), ..plain(TypeKind::Char) },
            ColumnType::Date => plain(TypeKind::Date),
            ColumnType::Time => plain(TypeKind::Time),
            ColumnType::Timestamp => plain(TypeKind::Timestamp),
            ColumnType::TimestampTz => plain(TypeKind::TimestampTz),
            ColumnType::Interval => plain(TypeKind::Interval),
            ColumnType::Bytea => plain(TypeKind::Bytea),
            ColumnType::Uuid => plain(TypeKind::Uuid),
        }
    }
}

impl TryFrom<proto::ColumnType> for ColumnType {
    type Error = SchemaError;

    fn try_from(message: proto::ColumnType) -> Result<Self, SchemaError> {
        use proto::TypeKind;
        let malformed = |reason: String| SchemaError::Malformed { reason };
        let kind = TypeKind::try_from(message.kind).map_err(|_| {
            malformed(format!("column type {} is unknown to this version", message.kind))
        })?;
        Ok(match kind {
            TypeKind::Unspecified => return Err(malformed("column type 0 is none".into())),
            TypeKind::SmallInt => Self::SmallInt,
            TypeKind::Int => Self::Int,
            TypeKind::BigInt => Self::BigInt,
            TypeKind::Real => Self::Real,
            TypeKind::Double => Self::Double,
            TypeKind::Numeric => Self::Numeric {
                precision: u8::try_from(message.precision)
                    .map_err(|_| malformed(format!("precision {}", message.precision)))?,
                scale: i8::try_from(message.scale)
                    .map_err(|_| malformed(format!("scale {}", message.scale)))?,
            },
            TypeKind::Boolean => Self::Boolean,
            TypeKind::Text => Self::Text,
            TypeKind::Varchar => Self::Varchar(message.length),
            TypeKind::Char => Self::Char(
                message.length.ok_or_else(|| malformed("character without a length".into()))?,
            ),
            TypeKind::Date => Self::Date,
            TypeKind::Time => Self::Time,
            TypeKind::Timestamp => Self::Timestamp,
            TypeKind::TimestampTz => Self::TimestampTz,
            TypeKind::Interval => Self::Interval,
            TypeKind::Bytea => Self::Bytea,
            TypeKind::Uuid => Self::Uuid,
        })
    }
}

#[cfg(test)]
mod tests;
