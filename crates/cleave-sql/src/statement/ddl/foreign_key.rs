//! FOREIGN KEY of a table and REFERENCES of a column: the parser's tree in, names out.

use cleave_catalog::catalog::rules::{KeyAction, Timing};
use cleave_catalog::error::{Error, Fault, Position, Result};
use datafusion::sql::sqlparser::ast::{self, Spanned};

use crate::statement::names::{fold, position_of, table_name};

/// FOREIGN KEY, as a statement has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenForeignKey {
    /// The name, where one was given.
    pub name: Option<String>,
    /// Its columns.
    pub columns: Vec<String>,
    /// The referenced table.
    pub target: String,
    /// That table's columns; none: its primary key.
    pub target_columns: Vec<String>,
    /// ON DELETE.
    pub on_delete: KeyAction,
    /// ON UPDATE.
    pub on_update: KeyAction,
    /// The columns of ON DELETE SET NULL or SET DEFAULT; none: all.
    pub set_columns: Vec<String>,
    /// MATCH FULL.
    pub match_full: bool,
    /// When it is checked.
    pub timing: Timing,
    /// NOT VALID.
    pub not_valid: bool,
    /// Where it stands.
    pub position: Option<Position>,
}

/// Reads FOREIGN KEY of a table, or REFERENCES of `column`.
///
/// # Errors
/// [`Error::Unsupported`] for clauses that no foreign key can have; [`Error::Invalid`] for contradictions.
pub fn foreign_key(
    name: Option<String>,
    constraint: &ast::ForeignKeyConstraint,
    column: Option<&str>,
    position: Option<Position>,
) -> Result<GivenForeignKey> {
    let position = position_of(constraint.foreign_table.span().start).or(position);
    let columns: Vec<String> = match column {
        Some(column) => vec![column.to_owned()],
        None => constraint.columns.iter().map(fold).collect(),
    };
    let match_full = match constraint.match_kind {
        None | Some(ast::ConstraintReferenceMatchKind::Simple) => false,
        Some(ast::ConstraintReferenceMatchKind::Full) => true,
        Some(ast::ConstraintReferenceMatchKind::Partial) => {
            return Err(Error::unsupported("MATCH PARTIAL").at(position));
        }
    };
    let action = |action: Option<ast::ReferentialAction>| match action {
        None | Some(ast::ReferentialAction::NoAction) => KeyAction::NoAction,
        Some(ast::ReferentialAction::Restrict) => KeyAction::Restrict,
        Some(ast::ReferentialAction::Cascade) => KeyAction::Cascade,
        Some(ast::ReferentialAction::SetNull) => KeyAction::SetNull,
        Some(ast::ReferentialAction::SetDefault) => KeyAction::SetDefault,
    };
    let timing = constraint.characteristics.as_ref().map_or(Ok(Timing::default()), timing);
    Ok(GivenForeignKey {
        name: name.or_else(|| constraint.name.as_ref().map(fold)),
        columns,
        target: table_name(&constraint.foreign_table)?,
        target_columns: constraint.referred_columns.iter().map(fold).collect(),
        on_delete: action(constraint.on_delete),
        on_update: action(constraint.on_update),
        set_columns: Vec::new(),
        match_full,
        timing: timing.map_err(|error| error.at(position))?,
        not_valid: false,
        position,
    })
}

/// DEFERRABLE and INITIALLY DEFERRED; the latter implies the former.
fn timing(written: &ast::ConstraintCharacteristics) -> Result<Timing> {
    if written.enforced == Some(false) {
        return Err(Error::unsupported("FOREIGN KEY ... NOT ENFORCED"));
    }
    let is_deferred = written.initially == Some(ast::DeferrableInitial::Deferred);
    match (written.deferrable, is_deferred) {
        (Some(false), true) => Err(Error::Invalid {
            message: "constraint declared INITIALLY DEFERRED must be DEFERRABLE".to_owned(),
            fault: Fault::Statement,
            position: None,
        }),
        (_, true) => Ok(Timing::Deferred),
        (Some(true), false) => Ok(Timing::Immediate),
        _ => Ok(Timing::NotDeferrable),
    }
}
