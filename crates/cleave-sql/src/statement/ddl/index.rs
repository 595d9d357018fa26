//! CREATE INDEX: the parser's tree in, names of a table and its columns out.
//!
//! Every unsupported clause is refused by name. `CONCURRENTLY` is accepted because it always holds: a build lets others
//! read and write the table while it reads it. `USING btree` names the only kind of index.

use cleave_catalog::error::{Error, Fault, Position, Result};
use cleave_store::ColumnType;
use datafusion::sql::sqlparser::ast::{self, Spanned};

use super::unsupported;
use crate::statement::names::{fold, position_of, table_name};
use crate::statement::parameters;

/// Most columns of one index, as PostgreSQL allows.
const COLUMN_COUNT_MAX: usize = 32;

/// CREATE INDEX.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateIndex {
    /// Name; None: a generated one.
    pub name: Option<String>,
    /// An index or table of the name that exists is no error.
    pub if_not_exists: bool,
    /// The table.
    pub table: String,
    /// Columns, in key order.
    pub columns: Vec<CreateIndexColumn>,
    /// Those of INCLUDE, which must exist: the key alone finds rows here, so they change nothing.
    pub included: Vec<(String, Option<Position>)>,
    /// Equal rows are refused.
    pub unique: bool,
}

/// One column of an index, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateIndexColumn {
    /// Name.
    pub name: String,
    /// DESC.
    pub descending: bool,
    /// NULLS FIRST, explicit or implied by DESC.
    pub nulls_first: bool,
    /// The operator class.
    pub class: Option<String>,
    /// Where it stands.
    pub position: Option<Position>,
}

/// Reads CREATE INDEX.
///
/// # Errors
/// [`Error::Unsupported`] naming the clause; [`Error::Invalid`] for a column that comes twice, too many columns, or IF
/// NOT EXISTS without a name.
pub fn create_index(statement: &ast::CreateIndex) -> Result<CreateIndex> {
    let position = position_of(statement.table_name.span().start);
    let btree = |index_type: &ast::IndexType| matches!(index_type, ast::IndexType::BTree);
    let clauses = [
        (!statement.using.iter().all(btree), "an index USING anything but btree"),
        (statement.nulls_distinct == Some(false), "CREATE INDEX ... NULLS NOT DISTINCT"),
        (!statement.with.is_empty(), "CREATE INDEX ... WITH"),
        (statement.predicate.is_some(), "a partial index (WHERE)"),
        (
            !statement.index_options.is_empty() || !statement.alter_options.is_empty(),
            "an option of CREATE INDEX",
        ),
    ];
    if let Some((_, what)) = clauses.into_iter().find(|(present, _)| *present) {
        return Err(unsupported(what, None, position));
    }
    let invalid = |message: String, fault, position| Error::Invalid { message, fault, position };
    let name = statement.name.as_ref().map(index_name).transpose()?;
    if name.is_none() && statement.if_not_exists {
        let message = "CREATE INDEX IF NOT EXISTS needs a name".to_owned();
        return Err(invalid(message, Fault::Statement, position));
    }
    if statement.columns.len() > COLUMN_COUNT_MAX {
        let message = format!("an index has at most {COLUMN_COUNT_MAX} columns");
        return Err(invalid(message, Fault::TooManyColumns, position));
    }
    let mut columns: Vec<CreateIndexColumn> = Vec::with_capacity(statement.columns.len());
    for column in &statement.columns {
        let column = index_column(column)?;
        if columns.iter().any(|before| before.name == column.name) {
            let message = format!("column \"{}\" appears twice in the index", column.name);
            return Err(invalid(message, Fault::DuplicateColumn, column.position));
        }
        columns.push(column);
    }
    Ok(CreateIndex {
        name,
        if_not_exists: statement.if_not_exists,
        table: table_name(&statement.table_name)?,
        columns,
        included: statement
            .include
            .iter()
            .map(|name| (fold(name), position_of(name.span.start)))
            .collect(),
        unique: statement.unique,
    })
}

/// The name of an index to be created, which lies in its table's schema.
fn index_name(name: &ast::ObjectName) -> Result<String> {
    match name.0.as_slice() {
        [ast::ObjectNamePart::Identifier(identifier)] => Ok(fold(identifier)),
        _ => Err(unsupported(
            &format!("a schema before the name of an index ({name})"),
            Some("leave it out"),
            position_of(name.span().start),
        )),
    }
}

/// Fails unless `class` is an operator class of `column_type`: each type has one order, which all of its classes mean.
///
/// # Errors
/// [`Error::Invalid`] for an unknown class (42704), and for one of other types (42804).
pub fn check_class(class: &str, column_type: ColumnType, position: Option<Position>) -> Result<()> {
    use ColumnType as Type;
    let fits = match class {
        "bool_ops" => column_type == Type::Boolean,
        "bpchar_ops" | "bpchar_pattern_ops" => matches!(column_type, Type::Char(_)),
        "bytea_ops" => column_type == Type::Bytea,
        "date_ops" => column_type == Type::Date,
        "float4_ops" => column_type == Type::Real,
        "float8_ops" => column_type == Type::Double,
        "int2_ops" => column_type == Type::SmallInt,
        "int4_ops" => column_type == Type::Int,
        "int8_ops" => column_type == Type::BigInt,
        "interval_ops" => column_type == Type::Interval,
        "numeric_ops" => matches!(column_type, Type::Numeric { .. }),
        "text_ops" | "text_pattern_ops" | "varchar_ops" | "varchar_pattern_ops" => {
            matches!(column_type, Type::Text | Type::Varchar(_))
        }
        "time_ops" => column_type == Type::Time,
        "timestamp_ops" => column_type == Type::Timestamp,
        "timestamptz_ops" => column_type == Type::TimestampTz,
        "uuid_ops" => column_type == Type::Uuid,
        _ => {
            let message =
                format!("operator class \"{class}\" does not exist for access method \"btree\"");
            return Err(Error::Invalid { message, fault: Fault::UnknownConstraint, position });
        }
    };
    if fits {
        return Ok(());
    }
    let name = parameters::type_name(parameters::parameter_type(column_type));
    let name = match column_type {
        Type::Varchar(_) => "character varying".to_owned(),
        Type::Char(_) => "character".to_owned(),
        _ => name,
    };
    let message = format!("operator class \"{class}\" does not accept data type {name}");
    Err(Error::Invalid { message, fault: Fault::Type, position })
}

fn index_column(column: &ast::IndexColumn) -> Result<CreateIndexColumn> {
    let position = position_of(column.column.expr.span().start);
    let (identifier, collation) = match &column.column.expr {
        ast::Expr::Identifier(identifier) => (identifier, None),
        ast::Expr::Collate { expr, collation } => match expr.as_ref() {
            ast::Expr::Identifier(identifier) => (identifier, Some(collation)),
            _ => return Err(unsupported("an index over an expression", None, position)),
        },
        _ => return Err(unsupported("an index over an expression", None, position)),
    };
    if let Some(collation) = collation.filter(|collation| !super::is_c_collation(collation)) {
        let hint = "text sorts by the C collation, by bytes";
        return Err(unsupported(&format!("COLLATE {collation}"), Some(hint), position));
    }
    if column.column.with_fill.is_some() {
        return Err(unsupported("WITH FILL in CREATE INDEX", None, position));
    }
    let descending = column.column.options.asc == Some(false);
    Ok(CreateIndexColumn {
        name: fold(identifier),
        descending,
        // As in PostgreSQL, NULLs count as larger than all values.
        nulls_first: column.column.options.nulls_first.unwrap_or(descending),
        class: column
            .operator_class
            .as_ref()
            .and_then(|class| class.0.last()?.as_ident())
            .map(fold),
        position,
    })
}
