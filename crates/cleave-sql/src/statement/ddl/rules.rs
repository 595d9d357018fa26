//! CHECK, SERIAL and IDENTITY of CREATE TABLE: the parser's tree in, descriptions with the ids of their columns out.

use crate::visiting::visit;
use std::ops::ControlFlow;

use cleave_catalog::error::{Error, Fault, Position, Result};
use cleave_store::{ColumnType, TableSchema};
use datafusion::sql::sqlparser::ast::{self, Spanned, Visitor};

use super::foreign_key::GivenForeignKey;
use crate::statement::names::{fold, position_of};
use crate::statement::sequence::SequenceOptions;

/// CHECK, as a statement has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenCheck {
    /// The name, where one was given.
    pub name: Option<String>,
    /// SQL text of the expression.
    pub expression: String,
    /// Ids of the columns that it names.
    pub columns: Vec<u32>,
    /// Where it stands.
    pub position: Option<Position>,
}

/// The sequence of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenSequence {
    /// Id of the column.
    pub column: u32,
    /// GENERATED … AS IDENTITY, and not SERIAL.
    pub is_identity: bool,
    /// GENERATED ALWAYS.
    pub is_always: bool,
    /// Its options.
    pub options: SequenceOptions,
}

/// The constraints collected so far.
#[derive(Default)]
pub(super) struct Written {
    pub(super) foreign_keys: Vec<GivenForeignKey>,
    pub(super) checks: Vec<WrittenCheck>,
    pub(super) sequences: Vec<GivenSequence>,
}

/// CHECK of a column or a table, before all columns are known.
pub struct WrittenCheck {
    name: Option<String>,
    expression: ast::Expr,
    position: Option<Position>,
}

/// Reads one.
///
/// # Errors
/// [`Error::Unsupported`] for clauses that no check can have.
pub fn check(
    name: Option<String>,
    constraint: &ast::CheckConstraint,
    position: Option<Position>,
) -> Result<WrittenCheck> {
    let position = position_of(constraint.expr.span().start).or(position);
    let refused = |what: &str| Err(Error::unsupported(what).at(position));
    if constraint.enforced == Some(false) {
        return refused("CHECK ... NOT ENFORCED");
    }
    let mut expression = (*constraint.expr).clone();
    while let ast::Expr::Nested(inner) = expression {
        expression = *inner;
    }
    if visit(&expression, &mut Queries).is_break() {
        return refused("a subquery in a check constraint");
    }
    let name = name.or_else(|| constraint.name.as_ref().map(fold));
    Ok(WrittenCheck { name, expression, position })
}

/// `written` for the table that `schema` describes.
pub(super) fn given(written: Vec<WrittenCheck>, schema: &TableSchema) -> Vec<GivenCheck> {
    let given = written.into_iter().map(|check| {
        let columns = mentioned(&check.expression, schema);
        GivenCheck { columns, ..unbound(check) }
    });
    given.collect()
}

/// `written` while the columns are not known yet.
pub(crate) fn unbound(written: WrittenCheck) -> GivenCheck {
    let WrittenCheck { name, expression, position } = written;
    GivenCheck { name, expression: expression.to_string(), columns: Vec::new(), position }
}

/// Ids of the columns of the table that `schema` describes which `expression` names.
pub fn mentioned(expression: &ast::Expr, schema: &TableSchema) -> Vec<u32> {
    let mut mentioned = Mentioned { schema, columns: Vec::new() };
    let flow = visit(expression, &mut mentioned);
    debug_assert!(flow.is_continue(), "nothing stops the visit");
    mentioned.columns
}

/// The type of a column that is SERIAL.
pub(super) fn serial(data_type: &ast::DataType) -> Option<ColumnType> {
    let ast::DataType::Custom(name, arguments) = data_type else { return None };
    if !arguments.is_empty() {
        return None;
    }
    match name.to_string().to_ascii_lowercase().as_str() {
        "smallserial" | "serial2" => Some(ColumnType::SmallInt),
        "serial" | "serial4" => Some(ColumnType::Int),
        "bigserial" | "serial8" => Some(ColumnType::BigInt),
        _ => None,
    }
}

/// GENERATED … AS IDENTITY of the column `column`.
///
/// # Errors
/// [`Error::Invalid`] for a column that is none of whole numbers; [`Error::Unsupported`].
pub(super) fn identity(
    column: u32,
    (name, column_type): (&str, ColumnType),
    option: &ast::ColumnOption,
) -> Result<GivenSequence> {
    let ast::ColumnOption::Generated { generated_as, sequence_options, .. } = option else {
        return Err(Error::unsupported(option.to_string()));
    };
    if !matches!(column_type, ColumnType::SmallInt | ColumnType::Int | ColumnType::BigInt) {
        return Err(Error::Invalid {
            message: format!(
                "identity column type must be smallint, integer, or bigint (column \"{name}\")"
            ),
            fault: Fault::Parameter,
            position: None,
        });
    }
    let is_always = match generated_as {
        ast::GeneratedAs::Always => true,
        ast::GeneratedAs::ByDefault => false,
        ast::GeneratedAs::ExpStored => return Err(Error::unsupported("GENERATED ... STORED")),
    };
    let options = SequenceOptions::of_identity(sequence_options.as_deref().unwrap_or_default())?;
    Ok(GivenSequence { column, is_identity: true, is_always, options })
}

/// Stops at the first subquery.
struct Queries;

impl Visitor for Queries {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}

/// The columns of a table that an expression names.
struct Mentioned<'a> {
    schema: &'a TableSchema,
    columns: Vec<u32>,
}

impl Visitor for Mentioned<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<()> {
        let name = match expression {
            ast::Expr::Identifier(name) => Some(name),
            ast::Expr::CompoundIdentifier(parts) => parts.last(),
            _ => None,
        };
        if let Some(column) = name.and_then(|name| self.schema.column(&fold(name)))
            && !self.columns.contains(&column.id)
        {
            self.columns.push(column.id);
        }
        ControlFlow::Continue(())
    }
}
