//! Maps errors to PostgreSQL's SQLSTATEs.
//!
//! Source: PostgreSQL's manual, "PostgreSQL Error Codes".

use arrow::error::ArrowError;
use cleave_fragment::functions::ArgumentFault;
use cleave_fragment::functions::bounded::ResultTooLarge;
use cleave_fragment::wanted::NotWanted;
use cleave_store::{SchemaError, StoreError};
use datafusion_common::SchemaError as NameError;
use datafusion_common::error::DataFusionError;

use super::{Error, Fault, InputFault, NameKind};
use crate::storage_error::store_sqlstate;

impl Fault {
    /// The hint for an expression that cannot be assigned to its column, in PostgreSQL's words.
    pub const ASSIGNED_HINT: &str = "You will need to rewrite or cast the expression.";

    pub(super) fn sqlstate(self) -> &'static str {
        match self {
            Self::TableDefinition => "42P16",
            Self::ColumnDefinition => "42611",
            Self::ForeignKey => "42830",
            Self::Type | Self::Assigned => "42804",
            Self::DuplicateColumn => "42701",
            Self::AmbiguousColumn => "42702",
            Self::UndefinedFunction => "42883",
            Self::Cast => "42846",
            Self::DuplicateAlias => "42712",
            Self::MissingTable => "42P01",
            Self::Options | Self::Statement => "42601",
            Self::Grouping => "42803",
            Self::Recursion => "42P19",
            Self::Window => "42P20",
            Self::Feature => "0A000",
            Self::Parameter => "22023",
            Self::ParameterType => "42P18",
            Self::TooLong => "54000",
            Self::TooManyLocks => "53200",
            Self::TooManyColumns => "54011",
            Self::TooComplex => "54001",
            Self::ObjectKind => "42809",
            Self::Dependent => "2BP01",
            Self::State => "55000",
            Self::FailedTransaction => "25P02",
            Self::ActiveTransaction => "25001",
            Self::NoTransaction => "25P01",
            Self::ReadOnlyTransaction => "25006",
            Self::Savepoint => "3B001",
            Self::UnknownConstraint => "42704",
            Self::Range => "22003",
            Self::Limit => "2201W",
            Self::Offset => "2201X",
            Self::SequenceLimit => "2200H",
            Self::NullValues => "23502",
            Self::GeneratedAlways => "428C9",
            Self::ConflictTarget | Self::ColumnAliases => "42P10",
            Self::Cardinality => "21000",
            Self::NoSchema => "3F000",
            Self::Encoding => "22021",
            Self::Role(fault) => fault.sqlstate(),
        }
    }
}

impl NameKind {
    pub(super) fn sqlstate_unknown(self) -> &'static str {
        match self {
            Self::Relation | Self::Table | Self::View | Self::Sequence => "42P01",
            Self::Column => "42703",
            Self::Schema => "3F000",
            Self::Index
            | Self::Constraint
            | Self::Type
            | Self::Role
            | Self::Setting
            | Self::Window
            | Self::Device => "42704",
            Self::Function => "42883",
            Self::PreparedStatement => "26000",
            Self::Parameter => "42P02",
            Self::Cursor => "34000",
        }
    }

    pub(super) fn sqlstate_taken(self) -> &'static str {
        match self {
            Self::Relation | Self::Table | Self::View | Self::Index | Self::Sequence => "42P07",
            Self::Column => "42701",
            Self::Schema => "42P06",
            Self::Function => "42723",
            Self::PreparedStatement => "42P05",
            Self::Cursor => "42P03",
            Self::Window => "42P20",
            Self::Constraint
            | Self::Type
            | Self::Setting
            | Self::Device
            | Self::Parameter
            | Self::Role => "42710",
        }
    }
}

impl InputFault {
    /// The SQLSTATE of the fault, for [`Error::sqlstate`].
    #[must_use]
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::Value(error) => error.sqlstate(),
            Self::Inferred { source, .. } => source.sqlstate(),
            Self::NotNull => "23502",
            Self::MissingColumn { .. }
            | Self::ExtraColumn { .. }
            | Self::ExtraBelowFirst { .. }
            | Self::OpenQuote
            | Self::LineEnd { .. }
            | Self::Header { .. } => "22P04",
            Self::RecordTooLong { .. } => "54000",
            Self::Encoding { .. } => "22021",
        }
    }
}

/// Of an invalid table definition.
pub(super) fn schema_sqlstate(error: &SchemaError) -> &'static str {
    match error {
        SchemaError::NameEmpty { .. } => "42601",
        SchemaError::ColumnCount { .. } => "54011",
        SchemaError::ColumnNameRepeated { .. } | SchemaError::PrimaryKeyRepeated { .. } => "42701",
        SchemaError::TypeOutOfRange { .. } => "22023",
        SchemaError::PrimaryKeyUnknown { .. } => "42703",
        SchemaError::PrimaryKeyNullable { .. } => "42P16",
        _ => "XX001",
    }
}

/// Of an error of DataFusion's.
pub(super) fn engine_sqlstate(error: &DataFusionError) -> &'static str {
    match error.find_root() {
        DataFusionError::External(inner) => external_sqlstate(&**inner),
        DataFusionError::ArrowError(inner, _) => match inner.as_ref() {
            ArrowError::DivideByZero => "22012",
            ArrowError::ArithmeticOverflow(_) => "22003",
            ArrowError::CastError(message) if is_out_of_range(message) => "22003",
            ArrowError::CastError(message) if is_of_time(message) => "22007",
            ArrowError::CastError(_) => "22P02",
            ArrowError::ParseError(_) => "22007",
            ArrowError::MemoryError(_) => "53200",
            ArrowError::OffsetOverflowError(_) => "54000",
            ArrowError::ExternalError(inner) => external_sqlstate(&**inner),
            ArrowError::InvalidArgumentError(message) if is_too_many_digits(message) => "22003",
            ArrowError::ComputeError(message) => argument_sqlstate(message),
            ArrowError::InvalidArgumentError(_) => "22000",
            _ => "XX000",
        },
        DataFusionError::NotImplemented(_) => "0A000",
        DataFusionError::SchemaError(inner, _) => match inner.as_ref() {
            NameError::AmbiguousReference { .. } => "42702",
            NameError::FieldNotFound { .. } => "42703",
            NameError::DuplicateQualifiedField { .. }
            | NameError::DuplicateUnqualifiedField { .. } => "42701",
        },
        DataFusionError::Plan(message) if message.contains("not found") => "42P01",
        DataFusionError::Plan(message) if message.contains("nvalid function") => "42883",
        DataFusionError::Plan(message) if message.contains("in GROUP BY") => "42803",
        DataFusionError::Plan(message) if message.starts_with("Aggregate func") => "42803",
        DataFusionError::Plan(message) => planning_sqlstate(message),
        DataFusionError::Configuration(_) => "22023",
        DataFusionError::Execution(message) if message.starts_with("Scalar subq") => "21000",
        DataFusionError::Execution(message) => argument_sqlstate(message),
        DataFusionError::ResourcesExhausted(_) => "53200",
        DataFusionError::IoError(_) => "58030",
        // An error of the parser. The kind has a name only if a parser is linked, and this crate does not need one.
        parser if parser.to_string().starts_with("SQL error: ") => "42601",
        _ => "XX000",
    }
}

/// Of an error that travelled through DataFusion and cannot be unwrapped, since it is shared.
fn external_sqlstate(inner: &(dyn std::error::Error + 'static)) -> &'static str {
    match (inner.downcast_ref::<Error>(), inner.downcast_ref::<StoreError>()) {
        (Some(ours), _) => ours.sqlstate(),
        (_, Some(stored)) => store_sqlstate(stored),
        _ if inner.is::<ResultTooLarge>() => "54000",
        _ if inner.is::<NotWanted>() => "57014",
        // Of DataFusion's functions of patterns.
        _ if inner.to_string().starts_with("regex parse error") => "2201B",
        _ => inner.downcast_ref::<ArgumentFault>().map_or("XX000", ArgumentFault::sqlstate),
    }
}

/// Whether a text is cast to a date, a time or an interval.
fn is_of_time(message: &str) -> bool {
    ["Date32", "Timestamp", "Time64", "Interval"].iter().any(|name| message.contains(name))
}

/// Whether a numeric has more digits before the point than its type.
fn is_too_many_digits(message: &str) -> bool {
    message.contains("to store in a Decimal")
}

/// Of DataFusion's message about an invalid statement.
fn planning_sqlstate(message: &str) -> &'static str {
    let said = [
        ("No function matches", "42883"),
        ("Cannot coerce arithmetic expression", "42883"),
        ("non-boolean predicate", "42804"),
        ("Join condition must be boolean", "42804"),
        ("different number of columns", "42601"),
        ("LIMIT must be >= 0", "2201W"),
        ("OFFSET must be >=0", "2201X"),
        ("SELECT DISTINCT ON expressions must match", "42P10"),
    ];
    said.into_iter().find(|(text, _)| message.contains(text)).map_or("42000", |(_, code)| code)
}

/// Of the messages of DataFusion's functions about their arguments.
fn argument_sqlstate(message: &str) -> &'static str {
    let said = [
        ("Unable to parse date from", "22008"),
        ("Month value '", "22008"),
        ("Day value '", "22008"),
        ("Unsupported date_trunc granularity", "22023"),
        ("field position must not be zero", "22023"),
        ("negative count not allowed", "22011"),
        ("Hour value", "22008"),
        ("Minute value", "22008"),
        ("Second value", "22008"),
        ("No function matches", "42883"),
        ("zero raised to a negative power", "2201F"),
        ("overflow on abs", "22003"),
        ("does not support: ", "0A000"),
    ];
    said.into_iter().find(|(text, _)| message.contains(text)).map_or("22000", |(_, code)| code)
}

/// Whether a cast failed because the number is too large, and not because it is malformed.
fn is_out_of_range(message: &str) -> bool {
    message.starts_with("Can't cast value") || message.contains("Overflowing on")
}
