//! Checks under ALTER TABLE: adds, renames and drops check constraints; a table in, the table with its new rules out.
//!
//! A check is stored as SQL text that names columns. A renamed column is renamed in the text. Qualifying table names
//! are left out of the text, since tables may be renamed too.

use std::ops::ControlFlow;
use std::sync::Arc;

use cleave_catalog::catalog::index_definition::{IndexDefinition, chosen_name};
use cleave_catalog::catalog::rules::Check;
use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::{Error, Fault, NameKind, Result, Rule};
use cleave_query::check_constraints::{check_rows, compile};
use cleave_sql::statement::conform::Conform;
use cleave_sql::statement::ddl::GivenCheck;
use cleave_sql::statement::ddl::rules::mentioned;
use cleave_sql::statement::names::{fold, in_quotes};
use cleave_sql::statement::parse::parse_expression;
use cleave_store::Column;
use datafusion::sql::sqlparser::ast;
use futures::StreamExt;

use super::alter::reshaped;
use super::definitions::Definition;
use super::{Session, alter};
use crate::database::Database;
use cleave_sql::visiting::visit_expressions_mut;

/// `definition` with one more check on `table`, which all existing rows satisfy.
///
/// # Errors
/// [`Error::NameTaken`]; [`Error::Violation`]; those of an expression that is no condition on one row.
pub(super) async fn add_check(
    session: &Session,
    mut definition: Definition,
    table: TableState,
    given: GivenCheck,
) -> Result<Definition> {
    let schema = Arc::clone(&table.schema);
    let columns = mentioned(&parse_expression(&given.expression)?, &schema);
    let name = match given.name {
        Some(name) if is_taken(&table, &name) => {
            return Err(Error::NameTaken { kind: NameKind::Constraint, name });
        }
        Some(name) => name,
        None => {
            let only = match columns.as_slice() {
                [only] => schema.column_by_id(*only),
                _ => None,
            };
            let only: Vec<&str> = only.iter().map(|column| &*column.name).collect();
            chosen_name(&schema.name, &only, "check", |name| is_taken(&table, name))
        }
    };
    let id = table.rules.next_id();
    let check = Check { id, name: name.clone(), expression: given.expression, columns };
    let compiled = compile(session.database.query_runtime(), &schema, std::slice::from_ref(&check));
    Box::pin(compiled).await.map_err(|error| error.at(given.position))?;
    let mut changed = with_own_rules(&table)?;
    let rules = Arc::make_mut(&mut changed.rules);
    rules.checks.push(check);
    rules.checks.sort_by(|one, other| one.name.cmp(&other.name));
    if table.row_count() > 0 {
        let all = schema.columns.iter().map(|column| in_quotes(&column.name));
        let select = format!("SELECT {}", all.collect::<Vec<_>>().join(", "));
        let mut rows = alter::rows_of(
            &session.database,
            session.in_force(),
            &definition,
            &schema.name,
            &select,
            "",
        )
        .await?;
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            let batch = Conform::by_name(&schema, &batch.schema(), 0)?.rows(&batch)?;
            let checked = Box::pin(check_rows(&session.database, &changed, [&batch])).await;
            checked.map_err(|error| of_rows_there(error, &name))?;
        }
    }
    definition.edit.put_table(changed);
    Ok(definition)
}

/// Refuses a table whose checks do not fit its columns.
///
/// # Errors
/// Those of binding them.
pub(super) async fn check_rules(database: &Arc<Database>, table: &TableState) -> Result<()> {
    let checks = &table.rules.checks;
    Box::pin(compile(database.query_runtime(), &table.schema, checks)).await.map(drop)
}

/// Renames a column in the checks of `table`, and removes the table's name from them.
///
/// # Errors
/// A text that does not parse.
pub(super) fn rename_column(table: &mut TableState, names: Option<(&str, &str)>) -> Result<()> {
    if table.rules.checks.is_empty() {
        return Ok(());
    }
    for check in &mut Arc::make_mut(&mut table.rules).checks {
        let mut expression = parse_expression(&check.expression)?;
        let flow: ControlFlow<()> = visit_expressions_mut(&mut expression, |expression| {
            let name = match expression {
                ast::Expr::Identifier(name) => Some(name.clone()),
                ast::Expr::CompoundIdentifier(parts) => parts.last().cloned(),
                _ => None,
            };
            if let Some(name) = name {
                let renamed = names.filter(|(from, _)| fold(&name) == *from);
                let own = renamed.map(|(_, to)| ast::Ident::with_quote('"', to));
                *expression = ast::Expr::Identifier(own.unwrap_or(name));
            }
            ControlFlow::Continue(())
        });
        debug_assert!(flow.is_continue(), "nothing stops the visit");
        check.expression = expression.to_string();
    }
    Ok(())
}

/// `table` with its check or foreign key `from` called `to`; None: it has none of this name.
///
/// # Errors
/// [`Error::NameTaken`].
pub(super) fn renamed(table: &TableState, from: &str, to: &str) -> Result<Option<TableState>> {
    if !table.rules.is_name_taken(from) {
        return Ok(None);
    }
    if is_taken(table, to) {
        return Err(Error::NameTaken { kind: NameKind::Constraint, name: to.to_owned() });
    }
    let mut changed = with_own_rules(table)?;
    let rules = Arc::make_mut(&mut changed.rules);
    for check in rules.checks.iter_mut().filter(|check| check.name == from) {
        to.clone_into(&mut check.name);
    }
    rules.checks.sort_by(|one, other| one.name.cmp(&other.name));
    for key in rules.foreign_keys.iter_mut().filter(|key| key.name == from) {
        to.clone_into(&mut key.name);
    }
    rules.foreign_keys.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Some(changed))
}

/// `table` without its check or foreign key `name`; None: it has none of this name.
///
/// # Errors
/// None that is to be expected.
pub(super) fn without(table: &TableState, name: &str) -> Result<Option<TableState>> {
    if !table.rules.is_name_taken(name) {
        return Ok(None);
    }
    let mut changed = with_own_rules(table)?;
    let rules = Arc::make_mut(&mut changed.rules);
    rules.checks.retain(|check| check.name != name);
    rules.foreign_keys.retain(|key| key.name != name);
    Ok(Some(changed))
}

/// Refuses to give an identity column another default, or NULL.
///
/// # Errors
/// [`Error::Invalid`].
pub(super) fn check_no_identity(
    state: &CatalogState,
    table_id: u32,
    column: &Column,
) -> Result<()> {
    let mut owners = state.sequences.values().filter_map(|sequence| sequence.owner);
    let is_identity = owners
        .any(|owner| owner.is_identity && (owner.table, owner.column) == (table_id, column.id));
    if !is_identity {
        return Ok(());
    }
    Err(Error::Invalid {
        message: format!("column \"{}\" is an identity column", column.name),
        fault: Fault::Statement,
        position: None,
    })
}

/// `table` under a new version: statements prepared for it are prepared again.
pub(super) fn with_own_rules(table: &TableState) -> Result<TableState> {
    let indexes = table.indexes.iter().map(|index| IndexDefinition::clone(index)).collect();
    reshaped(table, cleave_store::TableSchema::clone(&table.schema), indexes)
}

pub(super) fn is_taken(table: &TableState, name: &str) -> bool {
    table.rules.is_name_taken(name) || table.indexes.iter().any(|index| index.name == name)
}

/// The error for an existing row that breaks the check `name`.
fn of_rows_there(error: Error, name: &str) -> Error {
    match error {
        Error::Violation { rule: Rule::Check, table, constraint, .. } if constraint == name => {
            let message = format!(
                "check constraint \"{name}\" of relation \"{table}\" is violated by some row"
            );
            Error::Violation {
                rule: Rule::Check,
                table,
                constraint,
                message,
                detail: String::new(),
            }
        }
        other => other,
    }
}
