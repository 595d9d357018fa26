//! CREATE TABLE and CREATE INDEX: the parser's tree in, a [`TableSchema`] or [`CreateIndex`] out.
//!
//! 1. [`create_table`] refuses every unsupported clause by name.
//! 2. [`column_type`] maps PostgreSQL's type names to [`ColumnType`].
//! 3. Column constraints, then table constraints, fill NOT NULL, DEFAULT, the primary key, unique constraints and
//!    [`rules`].
//! 4. [`index::create_index`] reads CREATE INDEX.
//!
//! Invariant: a schema that leaves here has passed [`TableSchema::validate`], its column ids rise from 1 in declared
//! order, and every default can be evaluated. `table_id` is 0 and `version` 1: the catalog assigns the id.
//!
//! PRIMARY KEY and UNIQUE may be named: the name is that of their index. `COLLATE "C"` is accepted because it is the
//! only collation; any other is refused.
//!
//! Source: PostgreSQL's manual, CREATE TABLE and "Data Types".

use cleave_catalog::error::{Error, Fault, NameKind, Position, Result};
use cleave_store::{Column, ColumnType, TableSchema};
use datafusion::sql::sqlparser::ast::{self, DataType, Spanned};

use crate::statement::defaults::check_default;
use crate::statement::names::{fold, position_of, table_name};
use crate::statement::placement::{Placement, placement};
use crate::statement::sequence::SequenceOptions;

pub mod foreign_key;
mod index;
pub mod rules;

pub use foreign_key::GivenForeignKey;
use foreign_key::foreign_key;
pub use index::{CreateIndex, CreateIndexColumn, check_class, create_index};
pub use rules::{GivenCheck, GivenSequence};
use rules::{Written, check, identity, serial};

/// CREATE TABLE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateTable {
    /// A table of the name that exists is no error, and stays.
    pub if_not_exists: bool,
    /// What to create; `table_id` is 0.
    pub schema: TableSchema,
    /// The devices and tablets for it.
    pub placement: Placement,
    /// The name given to the primary key.
    pub primary_key_name: Option<String>,
    /// Its unique constraints: a name where one was given, and the ids of the columns.
    pub unique: Vec<(Option<String>, Vec<u32>)>,
    /// Its checks.
    pub checks: Vec<GivenCheck>,
    /// Sequences of its columns.
    pub sequences: Vec<GivenSequence>,
    /// Its foreign keys.
    pub foreign_keys: Vec<GivenForeignKey>,
    /// For a temporary table: what happens to it at COMMIT.
    pub temporary: Option<OnCommit>,
}

/// ON COMMIT: what happens to a temporary table when a transaction commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnCommit {
    /// It stays.
    PreserveRows,
    /// Its rows are deleted.
    DeleteRows,
    /// It is dropped.
    Drop,
}

/// The type names that a misspelt one is compared with.
const TYPE_NAMES: &[&str] = &[
    "smallint",
    "integer",
    "bigint",
    "real",
    "double",
    "numeric",
    "decimal",
    "boolean",
    "text",
    "varchar",
    "character",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "interval",
    "bytea",
    "uuid",
];

/// Makes a table description of the parser's tree.
///
/// # Errors
/// [`Error::Unsupported`] naming the clause or type, [`Error::Invalid`] for contradictions,
/// [`Error::Schema`] for limits, [`Error::Value`] for a default that is no value of its column.
pub fn create_table(statement: &ast::CreateTable) -> Result<CreateTable> {
    refuse_clauses(statement)?;
    let name = table_name(&statement.name)?;
    let mut schema = TableSchema {
        table_id: 0,
        version: 1,
        name,
        columns: Vec::with_capacity(statement.columns.len()),
        primary_key: Vec::new(),
    };
    let mut keys = Keys::default();
    for (definition, id) in statement.columns.iter().zip(1..) {
        let (column, key, unique) = column(id, definition, &mut keys.written)?;
        if let Some(name) = key {
            if !schema.primary_key.is_empty() {
                let position = position_of(definition.name.span.start);
                return Err(two_primary_keys(&schema.name, position));
            }
            schema.primary_key.push(id);
            keys.primary_key_name = name;
        }
        keys.unique.extend(unique.map(|name| (name, vec![id])));
        schema.columns.push(column);
    }
    for constraint in &statement.constraints {
        table_constraint(&mut schema, &mut keys, constraint)?;
    }
    for column in &mut schema.columns {
        column.not_null |= schema.primary_key.contains(&column.id);
    }
    schema.validate()?;
    for column in &schema.columns {
        check_default(column)?;
    }
    let placement = placement(&statement.table_options, &schema)
        .map_err(|error| error.at(position_of(statement.name.span().start)))?;
    let Keys { primary_key_name, unique, written } = keys;
    let Written { checks, sequences, foreign_keys } = written;
    let checks = rules::given(checks, &schema);
    let if_not_exists = statement.if_not_exists;
    Ok(CreateTable {
        if_not_exists,
        schema,
        placement,
        primary_key_name,
        unique,
        checks,
        sequences,
        foreign_keys,
        temporary: on_commit(statement),
    })
}

/// What happens to the table at COMMIT, if it is temporary.
pub fn on_commit(statement: &ast::CreateTable) -> Option<OnCommit> {
    let on_commit = match statement.on_commit {
        None | Some(ast::OnCommit::PreserveRows) => OnCommit::PreserveRows,
        Some(ast::OnCommit::DeleteRows) => OnCommit::DeleteRows,
        Some(ast::OnCommit::Drop) => OnCommit::Drop,
    };
    statement.temporary.then_some(on_commit)
}

/// What constraints define beside the schema.
#[derive(Default)]
struct Keys {
    primary_key_name: Option<String>,
    unique: Vec<(Option<String>, Vec<u32>)>,
    written: Written,
}

/// Refuses every clause that Cleave does not have, by name.
///
/// # Errors
/// [`Error::Unsupported`].
pub(crate) fn refuse_clauses(statement: &ast::CreateTable) -> Result<()> {
    let clauses = [
        (statement.or_replace, "CREATE OR REPLACE TABLE"),
        (statement.global.is_some() && !statement.temporary, "CREATE GLOBAL or LOCAL TABLE"),
        (statement.external, "CREATE EXTERNAL TABLE"),
        (statement.dynamic || statement.transient || statement.volatile, "CREATE ... TABLE"),
        (statement.iceberg || statement.snapshot, "CREATE ... TABLE"),
        (statement.query.is_some(), "CREATE TABLE ... AS"),
        (statement.like.is_some(), "CREATE TABLE ... LIKE"),
        (statement.clone.is_some() || statement.version.is_some(), "CREATE TABLE ... CLONE"),
        (statement.inherits.is_some(), "INHERITS"),
        (statement.partition_of.is_some() || statement.for_values.is_some(), "PARTITION OF"),
        (statement.partition_by.is_some(), "PARTITION BY"),
        (statement.on_commit.is_some() && !statement.temporary, "ON COMMIT"),
        (statement.order_by.is_some(), "ORDER BY in CREATE TABLE"),
        (statement.cluster_by.is_some() || statement.clustered_by.is_some(), "CLUSTER BY"),
        (statement.on_cluster.is_some(), "ON CLUSTER"),
        (statement.comment.is_some(), "COMMENT in CREATE TABLE"),
        (statement.without_rowid || statement.strict, "WITHOUT ROWID or STRICT"),
        (statement.primary_key.is_some(), "PRIMARY KEY outside of the column list"),
        (statement.file_format.is_some() || statement.location.is_some(), "STORED AS or LOCATION"),
        (statement.hive_formats.is_some(), "ROW FORMAT"),
        (
            !matches!(statement.hive_distribution, ast::HiveDistributionStyle::NONE),
            "PARTITIONED BY or SKEWED BY",
        ),
        (statement.default_ddl_collation.is_some(), "a default collation"),
        (
            statement.diststyle.is_some()
                || statement.distkey.is_some()
                || statement.sortkey.is_some()
                || statement.backup.is_some(),
            "DISTSTYLE, DISTKEY, SORTKEY or BACKUP",
        ),
    ];
    match clauses.into_iter().find(|(present, _)| *present) {
        Some((_, what)) => Err(Error::Unsupported {
            what: what.to_owned(),
            hint: None,
            position: position_of(statement.name.span().start),
        }),
        None => Ok(()),
    }
}

/// An optional constraint of a column, perhaps with a name.
type ColumnConstraint = Option<Option<String>>;

/// One column, and whether it says PRIMARY KEY and UNIQUE.
fn column(
    id: u32,
    definition: &ast::ColumnDef,
    written: &mut Written,
) -> Result<(Column, ColumnConstraint, ColumnConstraint)> {
    let name = fold(&definition.name);
    let position = position_of(definition.name.span.start);
    let serial = serial(&definition.data_type);
    let column_type = match serial {
        Some(serial) => serial,
        None => column_type(&definition.data_type).map_err(|error| error.at(position))?,
    };
    if serial.is_some() {
        let options = SequenceOptions::default();
        let (is_identity, is_always) = (false, false);
        written.sequences.push(GivenSequence { column: id, is_identity, is_always, options });
    }
    let (mut not_null, mut null, mut key, mut unique, mut default) =
        (false, false, None, None, None);
    for ast::ColumnOptionDef { option, name: constraint_name } in &definition.options {
        let constraint_name = constraint_name.as_ref().map(fold);
        match option {
            ast::ColumnOption::NotNull => not_null = true,
            ast::ColumnOption::Null => null = true,
            ast::ColumnOption::PrimaryKey(constraint) => {
                refuse_key_clauses(constraint).map_err(|error| error.at(position))?;
                key = Some(constraint_name);
            }
            ast::ColumnOption::Unique(constraint) => {
                refuse_unique_clauses(constraint).map_err(|error| error.at(position))?;
                unique = Some(constraint_name);
            }
            ast::ColumnOption::Default(_) if default.is_some() => {
                return Err(Error::Invalid {
                    message: format!("multiple default values specified for column \"{name}\""),
                    fault: Fault::Statement,
                    position,
                });
            }
            ast::ColumnOption::Default(expression) => default = Some(expression.to_string()),
            ast::ColumnOption::ForeignKey(constraint) => {
                let key = foreign_key(constraint_name, constraint, Some(&name), position);
                written.foreign_keys.push(key?);
            }
            ast::ColumnOption::Check(constraint) => {
                written.checks.push(check(constraint_name, constraint, position)?);
            }
            ast::ColumnOption::Generated { generation_expr: None, .. } => {
                let sequence = identity(id, (&name, column_type), option);
                written.sequences.push(sequence.map_err(|error| error.at(position))?);
            }
            ast::ColumnOption::Collation(collation) if is_c_collation(collation) => {}
            other => return Err(unsupported_option(other, position)),
        }
    }
    let is_key = key.is_some();
    if null && (not_null || is_key) {
        return Err(Error::Invalid {
            message: format!("conflicting NULL/NOT NULL declarations for column \"{name}\""),
            fault: Fault::Statement,
            position,
        });
    }
    let own = written.sequences.iter().filter(|sequence| sequence.column == id).count();
    if own > 1 || own == 1 && default.is_some() {
        return Err(Error::Invalid {
            message: format!("multiple default values specified for column \"{name}\""),
            fault: Fault::Statement,
            position,
        });
    }
    not_null |= own > 0;
    let default = default.filter(|text| !text.eq_ignore_ascii_case("null"));
    let column =
        Column { id, name, column_type, not_null: not_null || is_key, default, absent: None };
    Ok((column, key, unique))
}

fn table_constraint(
    schema: &mut TableSchema,
    keys: &mut Keys,
    constraint: &ast::TableConstraint,
) -> Result<()> {
    let position = position_of(constraint.span().start);
    match constraint {
        ast::TableConstraint::PrimaryKey(constraint) => {
            refuse_key_clauses(constraint).map_err(|error| error.at(position))?;
            if !schema.primary_key.is_empty() {
                return Err(two_primary_keys(&schema.name, position));
            }
            schema.primary_key =
                constraint_columns(schema, "PRIMARY KEY", &constraint.columns, position)?;
            keys.primary_key_name = constraint.name.as_ref().map(fold);
            Ok(())
        }
        ast::TableConstraint::Unique(constraint) => {
            refuse_unique_clauses(constraint).map_err(|error| error.at(position))?;
            let columns = constraint_columns(schema, "UNIQUE", &constraint.columns, position)?;
            if let Some((twice, _)) = columns
                .iter()
                .enumerate()
                .find(|(place, id)| columns.iter().take(*place).any(|before| before == *id))
            {
                let column = columns.get(twice).and_then(|id| schema.column_by_id(*id));
                let column = column.map_or("", |column| column.name.as_str());
                return Err(Error::Invalid {
                    message: format!("column \"{column}\" appears twice in unique constraint"),
                    fault: Fault::DuplicateColumn,
                    position,
                });
            }
            keys.unique.push((constraint.name.as_ref().map(fold), columns));
            Ok(())
        }
        ast::TableConstraint::ForeignKey(constraint) => {
            keys.written.foreign_keys.push(foreign_key(None, constraint, None, position)?);
            Ok(())
        }
        ast::TableConstraint::Check(constraint) => {
            keys.written.checks.push(check(None, constraint, position)?);
            Ok(())
        }
        other => {
            let text = other.to_string();
            let what = text.split('(').next().unwrap_or_default().trim().to_owned();
            Err(unsupported(&what, None, position))
        }
    }
}

/// The ids of the columns that a PRIMARY KEY or UNIQUE lists.
fn constraint_columns(
    schema: &TableSchema,
    what: &str,
    columns: &[ast::IndexColumn],
    position: Option<Position>,
) -> Result<Vec<u32>> {
    let mut ids = Vec::with_capacity(columns.len());
    for key_column in columns {
        let place = position_of(key_column.span().start).or(position);
        let ordered = key_column.column.options != ast::OrderByOptions::default()
            || key_column.column.with_fill.is_some()
            || key_column.operator_class.is_some();
        let identifier = match &key_column.column.expr {
            ast::Expr::Identifier(identifier) if !ordered => identifier,
            _ => {
                let what = format!("{what} of anything but columns");
                return Err(unsupported(&what, None, place));
            }
        };
        let name = fold(identifier);
        let names = schema.columns.iter().map(|column| column.name.as_str());
        let found = schema
            .column(&name)
            .ok_or_else(|| Error::unknown_column(&schema.name, &name, names).at(place))?;
        ids.push(found.id);
    }
    Ok(ids)
}

fn refuse_key_clauses(constraint: &ast::PrimaryKeyConstraint) -> Result<()> {
    let plain = constraint.index_name.is_none()
        && constraint.index_type.is_none()
        && constraint.index_options.is_empty();
    if constraint.characteristics.is_some() {
        return Err(unsupported("DEFERRABLE or INITIALLY on PRIMARY KEY", None, None));
    }
    if !plain {
        return Err(unsupported("an index option on PRIMARY KEY", None, None));
    }
    Ok(())
}

fn refuse_unique_clauses(constraint: &ast::UniqueConstraint) -> Result<()> {
    let plain = constraint.index_name.is_none()
        && constraint.index_type.is_none()
        && constraint.index_options.is_empty()
        && constraint.index_type_display == ast::KeyOrIndexDisplay::None;
    if constraint.nulls_distinct == ast::NullsDistinctOption::NotDistinct {
        return Err(unsupported("UNIQUE NULLS NOT DISTINCT", None, None));
    }
    if constraint.characteristics.is_some() {
        return Err(unsupported("DEFERRABLE or INITIALLY on UNIQUE", None, None));
    }
    if !plain {
        return Err(unsupported("an index option on UNIQUE", None, None));
    }
    Ok(())
}

fn unsupported_option(option: &ast::ColumnOption, position: Option<Position>) -> Error {
    match option {
        ast::ColumnOption::Collation(name) => {
            let hint = "text sorts by the C collation, by bytes";
            unsupported(&format!("COLLATE {name}"), Some(hint), position)
        }
        ast::ColumnOption::Generated { .. } | ast::ColumnOption::Identity(_) => {
            let hint = "give the values in INSERT";
            unsupported("GENERATED ... AS", Some(hint), position)
        }
        other => unsupported(&other.to_string(), None, position),
    }
}

fn unsupported(what: &str, hint: Option<&str>, position: Option<Position>) -> Error {
    Error::Unsupported { what: what.to_owned(), hint: hint.map(str::to_owned), position }
}

fn two_primary_keys(table: &str, position: Option<Position>) -> Error {
    Error::Invalid {
        message: format!("multiple primary keys for table \"{table}\" are not allowed"),
        fault: Fault::TableDefinition,
        position,
    }
}

fn is_c_collation(name: &ast::ObjectName) -> bool {
    matches!(name.0.as_slice(), [ast::ObjectNamePart::Identifier(identifier)]
        if matches!(fold(identifier).as_str(), "C" | "POSIX" | "ucs_basic"))
}

/// The type that a type name of PostgreSQL stands for.
///
/// # Errors
/// [`Error::Unsupported`] naming the type, [`Error::Invalid`] for a precision out of range,
/// [`Error::UnknownName`] for a name that is no type.
pub fn column_type(data_type: &DataType) -> Result<ColumnType> {
    Ok(match data_type {
        DataType::SmallInt(None) | DataType::Int2(None) => ColumnType::SmallInt,
        DataType::Int(None) | DataType::Integer(None) | DataType::Int4(None) => ColumnType::Int,
        DataType::BigInt(None) | DataType::Int8(None) => ColumnType::BigInt,
        DataType::Real | DataType::Float4 => ColumnType::Real,
        DataType::DoublePrecision
        | DataType::Double(ast::ExactNumberInfo::None)
        | DataType::Float8
        | DataType::Float(ast::ExactNumberInfo::None) => ColumnType::Double,
        DataType::Float(ast::ExactNumberInfo::Precision(bits)) => match bits {
            1..=24 => ColumnType::Real,
            25..=53 => ColumnType::Double,
            _ => return Err(out_of_range(data_type, "precision is 1 to 53 bits")),
        },
        DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => {
            numeric(data_type, info)?
        }
        DataType::Boolean | DataType::Bool => ColumnType::Boolean,
        DataType::Text => ColumnType::Text,
        DataType::CharacterVarying(length)
        | DataType::CharVarying(length)
        | DataType::Varchar(length) => ColumnType::Varchar(character_count(data_type, length)?),
        DataType::Character(length) | DataType::Char(length) => {
            ColumnType::Char(character_count(data_type, length)?.unwrap_or(1))
        }
        DataType::Date => ColumnType::Date,
        DataType::Time(precision, zone) => {
            microseconds(data_type, *precision)?;
            match zone {
                ast::TimezoneInfo::None | ast::TimezoneInfo::WithoutTimeZone => ColumnType::Time,
                _ => return Err(unsupported("time with time zone", Some("use timestamptz"), None)),
            }
        }
        DataType::Timestamp(precision, zone) => {
            microseconds(data_type, *precision)?;
            match zone {
                ast::TimezoneInfo::None | ast::TimezoneInfo::WithoutTimeZone => {
                    ColumnType::Timestamp
                }
                _ => ColumnType::TimestampTz,
            }
        }
        DataType::Interval { fields: None, precision } => {
            microseconds(data_type, *precision)?;
            ColumnType::Interval
        }
        DataType::Bytea => ColumnType::Bytea,
        DataType::Uuid => ColumnType::Uuid,
        DataType::Custom(name, arguments) => return Err(custom_type(name, arguments)),
        other => return Err(unsupported(&format!("type {other}"), None, None)),
    })
}

fn numeric(data_type: &DataType, info: &ast::ExactNumberInfo) -> Result<ColumnType> {
    let limit = "precision is 1 to 38, scale 0 up to the precision";
    let (precision, scale) = match info {
        ast::ExactNumberInfo::None => return Ok(ColumnType::NUMERIC),
        ast::ExactNumberInfo::Precision(precision) => (*precision, 0),
        ast::ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
    };
    match (u8::try_from(precision), i8::try_from(scale)) {
        (Ok(precision @ 1..=38), Ok(scale))
            if scale >= 0 && i64::from(precision) >= i64::from(scale) =>
        {
            Ok(ColumnType::Numeric { precision, scale })
        }
        _ => Err(out_of_range(data_type, limit)),
    }
}

fn character_count(
    data_type: &DataType,
    length: &Option<ast::CharacterLength>,
) -> Result<Option<u32>> {
    match length {
        None => Ok(None),
        Some(ast::CharacterLength::IntegerLength { length, unit }) => {
            if matches!(unit, Some(ast::CharLengthUnits::Octets)) {
                return Err(unsupported(&format!("type {data_type}"), None, None));
            }
            u32::try_from(*length)
                .ok()
                .filter(|length| (1..=cleave_store::schema::CHARACTER_COUNT_MAX).contains(length))
                .map(Some)
                .ok_or_else(|| out_of_range(data_type, "length is 1 to 10485760 characters"))
        }
        Some(ast::CharacterLength::Max) => {
            Err(unsupported(&format!("type {data_type}"), Some("use text"), None))
        }
    }
}

/// Times have microseconds: a declared precision of 6 says so, any other would have to round.
fn microseconds(data_type: &DataType, precision: Option<u64>) -> Result<()> {
    match precision {
        None | Some(6) => Ok(()),
        Some(0..=5) => Err(unsupported(
            &format!("type {data_type}"),
            Some("leave the precision out: times have microseconds"),
            None,
        )),
        Some(_) => Err(out_of_range(data_type, "precision is 0 to 6 digits")),
    }
}

fn out_of_range(data_type: &DataType, limit: &str) -> Error {
    Error::Invalid {
        message: format!("type {data_type} is out of range: {limit}"),
        fault: Fault::Parameter,
        position: None,
    }
}

fn custom_type(name: &ast::ObjectName, arguments: &[String]) -> Error {
    let text = name.to_string().to_ascii_lowercase();
    match text.as_str() {
        "bpchar" | "money" | "inet" | "cidr" | "macaddr" | "xml" | "oid" | "hstore" | "citext" => {
            unsupported(&format!("type {text}"), None, None)
        }
        _ if !arguments.is_empty() => unsupported(&format!("type {text}"), None, None),
        _ => Error::unknown(NameKind::Type, &text, TYPE_NAMES.iter().copied())
            .at(position_of(name.span().start)),
    }
}

#[cfg(test)]
mod tests;
