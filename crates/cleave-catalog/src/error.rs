//! Errors of statements, in a form that a person or a program can act on.
//!
//! One variant of [`Error`] per action of the caller: change the text, the name, the value or the file, wait, or give
//! up. Each carries its data in fields, a SQLSTATE of PostgreSQL ([`Error::sqlstate`]), its position in the statement
//! ([`Error::position`]) and a hint ([`Error::hint`]); `Display` joins all of them in one line.
//!
//! Through DataFusion an error travels as `DataFusionError::External`; `From<DataFusionError>` unwraps it at the SQL
//! edge, so its SQLSTATE survives.

mod codes;
mod no_operator;
mod shown;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::error::ArrowError;
use cleave_store::{SchemaError, StoreError};
use cleave_txn::{LockError, SerializationFailure};
use datafusion_common::error::DataFusionError;
use datafusion_common::{Column, SchemaError as NameError};

use crate::identifiers::shown_name;
pub use crate::role_fault::RoleFault;
use crate::storage_error::StorageError;
use crate::suggest::nearest;
use crate::value::ValueError;
use codes::{engine_sqlstate, schema_sqlstate};
pub use no_operator::NoOperator;
use shown::{AndOthers, At, Hint, Meant, Missing, Near, engine_message};

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a statement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is no valid SQL: change it.
    #[error("{}syntax error {}: {message}", At(*position), Near(near))]
    Syntax {
        /// What was expected, and what was found.
        message: String,
        /// The token at which reading stopped, as written; None at the end of the text.
        near: Option<String>,
        /// Where that token starts.
        position: Option<Position>,
    },
    /// Valid SQL that this version does not support: write it differently.
    #[error("{}{what} is not supported{}", At(*position), Hint(hint.as_deref()))]
    Unsupported {
        /// The statement, clause or type, as SQL names it.
        what: String,
        /// What to do instead.
        hint: Option<String>,
        /// Its position.
        position: Option<Position>,
    },
    /// Well-formed, but it contradicts itself or its objects: change it.
    #[error("{}{message}", At(*position))]
    Invalid {
        /// The contradiction.
        message: String,
        /// The kind of contradiction.
        fault: Fault,
        /// Its position.
        position: Option<Position>,
    },
    /// An unknown name: correct it.
    #[error("{}{}{}", At(*position), Missing { kind: *kind, name, of: of.as_deref() }, Meant(suggestion))]
    UnknownName {
        /// The kind of object that was expected.
        kind: NameKind,
        /// The name as folded by SQL.
        name: String,
        /// The scope of the search, for example `relation "title"`.
        of: Option<String>,
        /// The nearest name that exists.
        suggestion: Option<String>,
        /// Its position.
        position: Option<Position>,
    },
    /// A name that is already used: choose another.
    #[error("{} \"{name}\" already exists", kind.as_taken())]
    NameTaken {
        /// The kind of object that has the name.
        kind: NameKind,
        /// The name.
        name: String,
    },
    /// A value that a setting does not accept: choose one of those listed.
    #[error("invalid value for parameter \"{name}\": \"{}\"; {expected}", cut(value))]
    SettingValue {
        /// The setting.
        name: &'static str,
        /// The value as given.
        value: String,
        /// The accepted values.
        expected: String,
    },
    /// A value that its column does not accept: change the value.
    #[error("column \"{column}\": {source}")]
    Value {
        /// The column.
        column: String,
        /// What is wrong with the value.
        #[source]
        source: Box<ValueError>,
    },
    /// A value that a parameter of a prepared statement does not accept: change the value.
    #[error("parameter ${number}: {source}")]
    Parameter {
        /// The parameter, from 1.
        number: usize,
        /// What is wrong with the value.
        #[source]
        source: Box<ValueError>,
    },
    /// A quoted literal that is no value of the expected type: change it.
    #[error("{}{source}", At(*position))]
    Literal {
        /// The fault.
        #[source]
        source: Box<ValueError>,
        /// Its position.
        position: Option<Position>,
    },
    /// An operator that values of these types do not have: cast one of them (42883).
    #[error("{_0}")]
    NoOperator(Box<NoOperator>),
    /// An error at one place of a file or stream that is loaded: correct it there.
    #[error("{place}: {fault}")]
    Input {
        /// File, line, column and value.
        place: Box<InputPlace>,
        /// What is wrong there.
        #[source]
        fault: Box<InputFault>,
    },
    /// A file to be loaded whose columns do not match the table: change the file or the column list.
    #[error("{file}: {message}")]
    InputSchema {
        /// The file.
        file: String,
        /// The mismatch.
        message: String,
    },
    /// NULL in a NOT NULL column: give a value.
    #[error(
        "null value in column \"{column}\" of relation \"{table}\" violates not-null constraint"
    )]
    NotNull {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// A duplicate key: give another.
    #[error(
        "duplicate key value violates unique constraint \"{constraint}\": Key ({columns})=({key}) already exists."
    )]
    DuplicateKey {
        /// The table.
        table: String,
        /// The unique index or constraint.
        constraint: String,
        /// The columns of the key, separated by commas.
        columns: String,
        /// The values of the key, separated by commas.
        key: String,
    },
    /// A row that violates a constraint of its table, or that a row of another table needs: change the row.
    #[error("{message}: {detail}")]
    Violation {
        /// The kind of constraint.
        rule: Rule,
        /// The table with the constraint.
        table: String,
        /// The constraint.
        constraint: String,
        /// The fault.
        message: String,
        /// The row or the key.
        detail: String,
    },
    /// A conflict with another transaction: run the transaction again.
    #[error("{kind}{}", Hint(detail.as_deref()))]
    Conflict {
        /// The kind of conflict.
        kind: ConflictKind,
        /// The cycle of waits, or a hint.
        detail: Option<String>,
    },
    /// A query of a batch, the first of those that failed: see its error.
    #[error("query {number} of the batch{}: {source}", AndOthers(*others))]
    InBatch {
        /// The query's number, from 1.
        number: usize,
        /// Queries behind it that failed too.
        others: usize,
        /// Its error.
        #[source]
        source: Box<Error>,
    },
    /// A statement exceeded `statement_timeout` (57014): raise the limit, or find the cause.
    #[error("canceling statement due to statement timeout")]
    StatementTimeout,
    /// An invalid definition of a table: change the statement; if it comes from storage, the database is damaged.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A file that cannot be read or written: check the path, the permissions and the disk.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The attempted action: "read", "write", "open", ...
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// A failing directory, device, link or page: see its message.
    #[error(transparent)]
    Storage(Arc<StorageError>),
    /// Any other refusal of DataFusion: see its message.
    #[error("{}", engine_message(.0))]
    Query(#[source] Box<DataFusionError>),
}

/// A place in the text of a script, both numbers from 1, the column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Line.
    pub line: u32,
    /// Column, in characters.
    pub column: u32,
}

/// The kinds of named objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NameKind {
    /// A table, a view or a sequence, whichever a statement would take.
    Relation,
    /// A table that DROP TABLE names.
    Table,
    /// A view that DROP VIEW names.
    View,
    /// An index.
    Index,
    /// A constraint of a table.
    Constraint,
    /// A sequence that DROP SEQUENCE names.
    Sequence,
    /// A column of a table or of a query.
    Column,
    /// A schema, as in `schema.table`.
    Schema,
    /// A data type.
    Type,
    /// A function.
    Function,
    /// A session setting.
    Setting,
    /// A storage device.
    Device,
    /// A prepared statement.
    PreparedStatement,
    /// A parameter of a statement, as `$1`.
    Parameter,
    /// A cursor.
    Cursor,
    /// A role.
    Role,
    /// A window of a query.
    Window,
}

/// A kind of constraint; decides the SQLSTATE of [`Error::Violation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// CHECK (23514).
    Check,
    /// FOREIGN KEY (23503).
    ForeignKey,
}

/// The kinds of conflict with another transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConflictKind {
    /// It has changed a row since this one's snapshot (40001).
    Update,
    /// Its reads and writes and those of others have no serial order (40001).
    Dependencies,
    /// A deadlock (40P01).
    Deadlock,
    /// It holds a lock for longer than `lock_timeout` (55P03).
    LockTimeout,
    /// It holds a lock, and NOWAIT was asked for (55P03).
    LockNotAvailable,
}

impl ConflictKind {
    fn sqlstate(self) -> &'static str {
        match self {
            Self::Update | Self::Dependencies => "40001",
            Self::Deadlock => "40P01",
            Self::LockTimeout | Self::LockNotAvailable => "55P03",
        }
    }
}

/// The kinds of contradiction; decides the SQLSTATE of [`Error::Invalid`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The definition of a table (42P16).
    TableDefinition,
    /// The definition of a column (42611).
    ColumnDefinition,
    /// A foreign key that refers to no unique columns (42830).
    ForeignKey,
    /// A value or expression of another type than its column (42804).
    Type,
    /// An expression of a type that is not assigned to its column (42804): cast it.
    Assigned,
    /// A column named twice (42701).
    DuplicateColumn,
    /// A name that several columns have (42702).
    AmbiguousColumn,
    /// More names than a table has columns, or the number of a column that is not there (42P10).
    ColumnAliases,
    /// A function that does not exist for such arguments (42883).
    UndefinedFunction,
    /// A value of a type that is not converted to the type asked for (42846).
    Cast,
    /// A name of two tables of a statement (42712).
    DuplicateAlias,
    /// A table that the statement does not read, or has under another name (42P01).
    MissingTable,
    /// Options that exclude each other or are given twice (42601).
    Options,
    /// An aggregate where there are no groups (42803).
    Grouping,
    /// A recursive reference where it is not allowed (42P19).
    Recursion,
    /// A window that repeats a clause of the window that it is based on (42P20).
    Window,
    /// What PostgreSQL does not implement either, in its words (0A000).
    Feature,
    /// A parameter out of its range (22023).
    Parameter,
    /// A parameter whose type cannot be determined (42P18).
    ParameterType,
    /// Any other contradiction (42601).
    Statement,
    /// A value or key beyond a limit (54000).
    TooLong,
    /// More locks than allowed (53200).
    TooManyLocks,
    /// More columns than allowed (54011).
    TooManyColumns,
    /// A limit of the parser: nested too deeply (54001).
    TooComplex,
    /// An object of the wrong kind (42809).
    ObjectKind,
    /// An object that another one depends on (2BP01).
    Dependent,
    /// A statement for which the database or transaction is in the wrong state (55000).
    State,
    /// A statement in a transaction that has failed (25P02).
    FailedTransaction,
    /// A statement that cannot run within a transaction block (25001).
    ActiveTransaction,
    /// A statement that needs a transaction block (25P01).
    NoTransaction,
    /// A statement that writes, in a read-only transaction (25006).
    ReadOnlyTransaction,
    /// An unknown savepoint (3B001).
    Savepoint,
    /// An unknown constraint or operator class (42704).
    UnknownConstraint,
    /// A number out of its range (22003).
    Range,
    /// A LIMIT below zero (2201W).
    Limit,
    /// An OFFSET below zero (2201X).
    Offset,
    /// An exhausted sequence (2200H).
    SequenceLimit,
    /// A column that has NULL and is to refuse it (23502).
    NullValues,
    /// A value for a column that is GENERATED ALWAYS (428C9).
    GeneratedAlways,
    /// ON CONFLICT that names no unique index (42P10).
    ConflictTarget,
    /// ON CONFLICT DO UPDATE that would change a row twice (21000).
    Cardinality,
    /// A new object without a schema, with none in the search path (3F000).
    NoSchema,
    /// A character that no text has (22021).
    Encoding,
    /// Of roles and rights.
    Role(RoleFault),
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputPlace {
    /// The file as named in the statement, or `STDIN`.
    pub file: String,
    /// Line from 1 on which the record starts.
    pub line: u64,
    /// Number from 1 and name of the column, if the fault lies in one.
    pub column: Option<(usize, String)>,
    /// The value, unless it is part of the fault.
    pub value: Option<String>,
}

/// The fault of a file at an [`InputPlace`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputFault {
    /// A value that the column does not accept.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// A value of another type than those that its column's type was inferred from.
    #[error(
        "{source}. The type was inferred from the first {rows} rows: another one is told as in types => '\"{column}\" \
            text', and all rows are looked at with sample_size => -1"
    )]
    Inferred {
        /// What is wrong with it.
        source: Box<ValueError>,
        /// Those rows.
        rows: u64,
        /// The column.
        column: String,
    },
    /// NULL in a NOT NULL column.
    #[error("null value violates not-null constraint")]
    NotNull,
    /// A record that ends before the last column.
    #[error("missing data: the record has {found} of {expected} columns")]
    MissingColumn {
        /// Columns found.
        found: usize,
        /// Columns expected.
        expected: usize,
    },
    /// A record that goes on after the last column.
    #[error("extra data after last expected column, of {expected}")]
    ExtraColumn {
        /// Columns expected.
        expected: usize,
    },
    /// The same of one of the first records: those above it may be a title.
    #[error(
        "extra data after last expected column, of {expected}: the first record has fewer columns; skip => n passes \
            over lines before the header"
    )]
    ExtraBelowFirst {
        /// Columns expected.
        expected: usize,
    },
    /// A quote that the input does not close.
    #[error(
        "unterminated quoted field: it starts in this record and is not closed before the end of the input"
    )]
    OpenQuote,
    /// A line that ends otherwise than the first one.
    #[error(
        "{} {} found in data: the first line ends otherwise; {} a value that has one",
        if *csv { "unquoted" } else { "literal" },
        if *is_return { "carriage return" } else { "newline" },
        match (csv, is_return) {
            (true, _) => "put quotes around",
            (false, true) => "use \"\\r\" in",
            (false, false) => "use \"\\n\" in",
        }
    )]
    LineEnd {
        /// It is a carriage return without a line feed; otherwise a line feed.
        is_return: bool,
        /// The format is CSV.
        csv: bool,
    },
    /// A record longer than may be held in memory.
    #[error(
        "the record is longer than {limit} bytes; is a quote left open? An eighth of --query-memory is allowed, up \
            to 256 MB"
    )]
    RecordTooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// Invalid UTF-8, or the zero byte.
    #[error(
        "invalid byte sequence for encoding \"UTF8\": {bytes}; expected UTF-8 text without zero bytes"
    )]
    Encoding {
        /// The bytes as `0xff 0xfe`.
        bytes: String,
    },
    /// A header without the expected column names (HEADER MATCH).
    #[error("column name mismatch in header line: got \"{}\", expected \"{expected}\"", cut(found))]
    Header {
        /// Name in the file.
        found: String,
        /// Name of the table's column.
        expected: String,
    },
}

impl Error {
    /// As [`StorageError::is_unanswered`](crate::storage_error::StorageError::is_unanswered).
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Self::Storage(error) if error.is_unanswered())
    }

    /// The SQLSTATE, five characters by which PostgreSQL's clients tell errors apart (its appendix A).
    #[must_use]
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::Syntax { .. } => "42601",
            Self::Unsupported { .. } => "0A000",
            Self::Invalid { fault, .. } => fault.sqlstate(),
            Self::UnknownName { kind, .. } => kind.sqlstate_unknown(),
            Self::NameTaken { kind, .. } => kind.sqlstate_taken(),
            Self::SettingValue { .. } => "22023",
            Self::Value { source, .. }
            | Self::Parameter { source, .. }
            | Self::Literal { source, .. } => source.sqlstate(),
            Self::NoOperator(_) => "42883",
            Self::Input { fault, .. } => fault.sqlstate(),
            Self::InputSchema { .. } => "22P04",
            Self::NotNull { .. } => "23502",
            Self::DuplicateKey { .. } => "23505",
            Self::Violation { rule: Rule::Check, .. } => "23514",
            Self::Violation { rule: Rule::ForeignKey, .. } => "23503",
            Self::Conflict { kind, .. } => kind.sqlstate(),
            Self::InBatch { source, .. } => source.sqlstate(),
            Self::StatementTimeout => "57014",
            Self::Schema(error) => schema_sqlstate(error),
            Self::Io { source, .. } => match source.kind() {
                std::io::ErrorKind::NotFound => "58P01",
                std::io::ErrorKind::PermissionDenied => "42501",
                std::io::ErrorKind::StorageFull => "53100",
                _ => "58030",
            },
            Self::Storage(error) => error.sqlstate(),
            Self::Query(error) => engine_sqlstate(error),
        }
    }

    /// Its position in the script, if the text is at fault.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        match self {
            Self::Syntax { position, .. }
            | Self::Unsupported { position, .. }
            | Self::Invalid { position, .. }
            | Self::Literal { position, .. }
            | Self::UnknownName { position, .. } => *position,
            Self::NoOperator(found) => found.position,
            Self::InBatch { source, .. } => source.position(),
            _ => None,
        }
    }

    /// The hint; part of `Display` too.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unsupported { hint, .. } => hint.clone(),
            Self::NoOperator(_) => Some(NoOperator::HINT.to_owned()),
            Self::InBatch { source, .. } => source.hint(),
            Self::Invalid { fault: Fault::Assigned, .. } => Some(Fault::ASSIGNED_HINT.to_owned()),
            Self::UnknownName { suggestion: Some(name), .. } => {
                Some(format!("did you mean \"{name}\"?"))
            }
            Self::SettingValue { expected, .. } => Some(expected.clone()),
            Self::Value { source, .. }
            | Self::Parameter { source, .. }
            | Self::Literal { source, .. } => Some(source.hint()),
            Self::Input { fault, .. } => match &**fault {
                InputFault::Value(source) => Some(source.hint()),
                _ => None,
            },
            Self::Storage(_) | Self::Io { .. } if self.sqlstate() == "53100" => Some(
                "make room there, or DROP tables: statements that give space back still work"
                    .to_owned(),
            ),
            Self::Conflict { kind: ConflictKind::Dependencies, .. } => {
                Some("The transaction might succeed if retried.".to_owned())
            }
            _ => None,
        }
    }

    /// An unknown name with the nearest of the existing names.
    pub fn unknown<'a>(
        kind: NameKind,
        name: &str,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        Self::UnknownName {
            kind,
            name: name.to_owned(),
            of: None,
            suggestion: nearest(name, candidates),
            position: None,
        }
    }

    /// An unknown column of a table, with the nearest existing one.
    pub fn unknown_column<'a>(
        table: &str,
        column: &str,
        columns: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        Self::UnknownName {
            kind: NameKind::Column,
            name: column.to_owned(),
            of: Some(format!("relation \"{table}\"")),
            suggestion: nearest(column, columns),
            position: None,
        }
    }

    /// The same error, with the scope of the search if it is about a name.
    #[must_use]
    pub fn within(mut self, place: String) -> Self {
        if let Self::UnknownName { of, .. } = &mut self {
            *of = Some(place);
        }
        self
    }

    /// An unsupported feature, without position and hint.
    pub fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into(), hint: None, position: None }
    }

    /// A row that another transaction has changed since the snapshot of this one.
    pub fn concurrent_update() -> Self {
        Self::Conflict { kind: ConflictKind::Update, detail: None }
    }

    /// A lock that was not granted.
    pub fn lock(error: &LockError) -> Self {
        if let LockError::TooMany { .. } | LockError::TooManyInAll { .. } = error {
            let (message, position) = (error.to_string(), None);
            return Self::Invalid { message, fault: Fault::TooManyLocks, position };
        }
        let (kind, detail) = match error {
            LockError::Deadlock(cycle) => (ConflictKind::Deadlock, cycle.to_string()),
            LockError::Timeout { key, mode } => {
                (ConflictKind::LockTimeout, format!("it waited for {mode} on {key}"))
            }
            LockError::NotAvailable { key, mode } => {
                (ConflictKind::LockNotAvailable, format!("{mode} on {key} is not free"))
            }
            other => (ConflictKind::LockNotAvailable, other.to_string()),
        };
        Self::Conflict { kind, detail: Some(detail) }
    }

    /// A quoted literal that is no value.
    pub fn literal(source: ValueError) -> Self {
        Self::Literal { source: Box::new(source), position: None }
    }

    /// A failed operation on a file.
    pub fn io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }

    /// The same error at `position`, if it has an empty field for it.
    #[must_use]
    pub fn at(mut self, place: Option<Position>) -> Self {
        match &mut self {
            Self::Syntax { position, .. }
            | Self::Unsupported { position, .. }
            | Self::Invalid { position, .. }
            | Self::Literal { position, .. }
            | Self::UnknownName { position, .. } => *position = position.or(place),
            Self::NoOperator(found) => found.position = found.position.or(place),
            _ => {}
        }
        self
    }
}

impl From<DataFusionError> for Error {
    /// Unwraps one of Cleave's errors from DataFusion's wrappers, and adds a suggestion to a name that DataFusion does
    /// not know.
    fn from(error: DataFusionError) -> Self {
        match error {
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
                Self::from(*inner)
            }
            DataFusionError::External(inner) => match inner.downcast::<Self>() {
                Ok(ours) => *ours,
                Err(other) => match other.downcast::<StoreError>() {
                    Ok(stored) => Self::from(*stored),
                    Err(other) => Self::Query(Box::new(DataFusionError::External(other))),
                },
            },
            DataFusionError::ArrowError(inner, text) => match *inner {
                ArrowError::ExternalError(inner) => Self::from(DataFusionError::External(inner)),
                other => Self::Query(Box::new(DataFusionError::ArrowError(Box::new(other), text))),
            },
            // PostgreSQL stops at the first one.
            DataFusionError::Collection(errors) => match errors.into_iter().next() {
                Some(first) => Self::from(first),
                None => Self::unsupported("an empty list of errors"),
            },
            DataFusionError::SchemaError(inner, text) => match *inner {
                NameError::FieldNotFound { field, valid_fields } => {
                    unknown_field(&field, &valid_fields)
                }
                NameError::AmbiguousReference { field } => ambiguous(field.name()),
                other => Self::Query(Box::new(DataFusionError::SchemaError(Box::new(other), text))),
            },
            other => Self::Query(Box::new(other)),
        }
    }
}

impl From<SerializationFailure> for Error {
    fn from(_: SerializationFailure) -> Self {
        Self::Conflict { kind: ConflictKind::Dependencies, detail: None }
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        match error {
            Error::Query(inner) => *inner,
            other => Self::External(Box::new(other)),
        }
    }
}

impl From<ArrowError> for Error {
    fn from(error: ArrowError) -> Self {
        Self::from(DataFusionError::from(error))
    }
}

/// A column that is not among `valid`, or occurs there several times, each under another name.
fn unknown_field(field: &Column, valid: &[Column]) -> Error {
    let is_one = |known: &&Column| {
        let is_hidden = shown_name(&known.name) == field.name && known.name != field.name;
        is_hidden && (field.relation.is_none() || known.relation == field.relation)
    };
    let name = field.flat_name().replace('"', "");
    if valid.iter().any(|known| is_one(&known)) {
        return ambiguous(&field.name);
    }
    let suggestion = nearest(field.name(), valid.iter().map(|known| shown_name(known.name())));
    Error::UnknownName { kind: NameKind::Column, name, of: None, suggestion, position: None }
}

/// An ambiguous name.
fn ambiguous(name: &str) -> Error {
    Error::Invalid {
        message: format!("column reference \"{name}\" is ambiguous"),
        fault: Fault::AmbiguousColumn,
        position: None,
    }
}

/// Text for a message: at most 60 characters, control characters escaped, with a sign if it was cut.
#[must_use]
pub fn cut(text: &str) -> String {
    const CHARACTER_COUNT_MAX: usize = 60;
    let mut shown = String::new();
    for (index, character) in text.chars().enumerate() {
        if index == CHARACTER_COUNT_MAX {
            shown.push('…');
            break;
        }
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}, column {}", self.line, self.column)
    }
}

impl fmt::Display for NameKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Relation => "relation",
            Self::Table => "table",
            Self::View => "view",
            Self::Index => "index",
            Self::Constraint => "constraint",
            Self::Sequence => "sequence",
            Self::Column => "column",
            Self::Schema => "schema",
            Self::Type => "type",
            Self::Function => "function",
            Self::Setting => "setting",
            Self::Device => "device",
            Self::PreparedStatement => "prepared statement",
            Self::Parameter => "parameter",
            Self::Cursor => "cursor",
            Self::Role => "role",
            Self::Window => "window",
        })
    }
}

impl fmt::Display for InputPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, line {}", self.file, self.line)?;
        if let Some((number, name)) = &self.column {
            write!(formatter, ", column {number} (\"{name}\")")?;
        }
        if let Some(value) = &self.value {
            write!(formatter, ", value \"{}\"", cut(value))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
