//! CREATE, ALTER and DROP SEQUENCE, and the sequences of columns: definitions change by commits, values do not.

use std::sync::Arc;

use cleave_store::Column;

use super::indexes::{name_taken, wrong_kind};
use super::{Outcome, Session};
use crate::catalog::CatalogState;
use crate::catalog::commit::Transaction;
use crate::catalog::index_definition::chosen_name;
use crate::catalog::sequence::{Owner, Sequence};
use crate::error::{Error, Fault, NameKind, Result};
use crate::sequences::named;
use crate::statement::CreateTable;
use crate::statement::defaults::{next_default, next_text};
use crate::statement::sequence::{SequenceOptions, SequenceStatement};

impl Session {
    /// Runs a statement on sequences.
    pub(super) async fn sequence_statement(
        &mut self,
        statement: SequenceStatement,
    ) -> Result<Outcome> {
        match statement {
            SequenceStatement::Create { if_not_exists, name, options } => {
                self.check_outside_block("CREATE SEQUENCE")?;
                self.create_sequence(if_not_exists, name, &options).await
            }
            SequenceStatement::Alter { if_exists, name, options } => {
                self.check_outside_block("ALTER SEQUENCE")?;
                self.alter_sequence(if_exists, &name, &options).await
            }
            SequenceStatement::Drop { if_exists, names } => {
                self.check_outside_block("DROP SEQUENCE")?;
                self.drop_sequences(if_exists, &names).await
            }
        }
    }

    async fn create_sequence(
        &self,
        if_not_exists: bool,
        name: String,
        options: &SequenceOptions,
    ) -> Result<Outcome> {
        let mut transaction = Transaction::begin(&self.database).await?;
        let state = &transaction.next;
        if state.is_name_taken(&name) {
            if if_not_exists {
                return Ok(Outcome::done("CREATE SEQUENCE"));
            }
            return Err(name_taken(state, &name));
        }
        let owner = match &options.owner {
            Some(Some(owner)) => Some(owner_of(state, owner)?),
            _ => None,
        };
        let id = transaction.table_id()?;
        let made = Sequence { owner, ..options.created(id, name.clone())? };
        transaction.next.sequences.insert(name, Arc::new(made));
        transaction.commit().await?;
        Ok(Outcome::done("CREATE SEQUENCE"))
    }

    async fn alter_sequence(
        &self,
        if_exists: bool,
        name: &str,
        options: &SequenceOptions,
    ) -> Result<Outcome> {
        let mut transaction = Transaction::begin(&self.database).await?;
        let before = match named(&transaction.next, name) {
            Ok(before) => Arc::clone(before),
            Err(Error::UnknownName { .. }) if if_exists => {
                return Ok(Outcome::done("ALTER SEQUENCE"));
            }
            Err(error) => return Err(error.at(options.position)),
        };
        let mut made = options.altered(&before)?;
        if let Some(owner) = &options.owner {
            if before.owner.is_some_and(|owner| owner.is_identity) {
                let message = "cannot change ownership of identity sequence".to_owned();
                let (fault, position) = (Fault::State, options.position);
                return Err(Error::Invalid { message, fault, position });
            }
            let owner = owner.as_ref().map(|owner| owner_of(&transaction.next, owner));
            made.owner = owner.transpose()?;
        }
        let restart = options.restart.map(|value| value.unwrap_or(made.start));
        let (last, is_called) = self.database.sequences().last(&before);
        let next = restart.unwrap_or(last);
        if !(made.min..=made.max).contains(&next) {
            let (word, than, limit) = match next < made.min {
                true => ("less", "MINVALUE", made.min),
                false => ("greater", "MAXVALUE", made.max),
            };
            let message = format!("RESTART value ({next}) cannot be {word} than {than} ({limit})");
            return Err(options.refused(message));
        }
        (made.last, made.is_called) = (last, is_called);
        let made = Arc::new(made);
        transaction.next.sequences.insert(made.name.clone(), Arc::clone(&made));
        transaction.commit().await?;
        self.database.sequences().altered(&made);
        if let Some(value) = restart {
            self.database.sequences().set(&self.database, &made, (value, false))?;
        }
        Ok(Outcome::done("ALTER SEQUENCE"))
    }

    async fn drop_sequences(&self, if_exists: bool, names: &[String]) -> Result<Outcome> {
        let mut transaction = Transaction::begin(&self.database).await?;
        let mut dropped = false;
        for name in names {
            let Some(sequence) = transaction.next.sequences.get(name) else {
                if transaction.next.is_name_taken(name) {
                    return Err(wrong_kind(name, "a sequence"));
                }
                if if_exists {
                    continue;
                }
                let names = transaction.next.sequences.keys().map(String::as_str);
                return Err(Error::unknown(NameKind::Sequence, name, names));
            };
            if let Some((table, column)) = user_of(&transaction.next, sequence) {
                return Err(Error::Invalid {
                    message: format!(
                        "cannot drop sequence \"{name}\" because the default of column \"{column}\" of table \
                         \"{table}\" needs it"
                    ),
                    fault: Fault::Dependent,
                    position: None,
                });
            }
            transaction.next.sequences.remove(name);
            dropped = true;
        }
        if dropped {
            transaction.commit().await?;
        }
        Ok(Outcome::done("DROP SEQUENCE"))
    }
}

/// The sequences of the columns of `create`, whose table gets `table_id`; the columns get them as their defaults.
///
/// # Errors
/// Those of limits; [`Error::UnknownName`] for a sequence that a default names and that there is not.
pub(super) fn of_columns(
    transaction: &mut Transaction,
    create: &mut CreateTable,
    table_id: u32,
) -> Result<()> {
    for column in &create.schema.columns {
        if let Some(sequence) = next_default(column) {
            named(&transaction.next, &sequence)?;
        }
    }
    let table = create.schema.name.clone();
    for given in &create.sequences {
        let columns = &mut create.schema.columns;
        let Some(column) = columns.iter_mut().find(|column| column.id == given.column) else {
            continue;
        };
        let name = chosen_name(&table, &[&column.name], "seq", |name| {
            name == table || transaction.next.is_name_taken(name)
        });
        let id = transaction.table_id()?;
        let options =
            SequenceOptions { data_type: Some(column.column_type), ..given.options.clone() };
        let made = options.created(id, name.clone())?;
        let owner = Owner { table: table_id, column: column.id, is_identity: given.is_identity };
        column.default = Some(next_text(&name));
        let made = Sequence { owner: Some(owner), ..made };
        transaction.next.sequences.insert(name, Arc::new(made));
    }
    Ok(())
}

fn owner_of(state: &CatalogState, (table, column): &(String, String)) -> Result<Owner> {
    let schema = &state.find_table(table)?.schema;
    let names = schema.columns.iter().map(|column| column.name.as_str());
    let found = schema.column(column);
    let found = found.ok_or_else(|| Error::unknown_column(table, column, names))?;
    Ok(Owner { table: schema.table_id, column: found.id, is_identity: false })
}

/// A table and its column whose default takes numbers of `sequence`.
fn user_of<'a>(state: &'a CatalogState, sequence: &Sequence) -> Option<(&'a str, &'a str)> {
    let takes = |column: &&Column| {
        let name = next_default(column);
        name.and_then(|name| named(state, &name).ok()).is_some_and(|used| used.id == sequence.id)
    };
    state.tables().find_map(|table| {
        let column = table.schema.columns.iter().find(takes)?;
        Some((table.schema.name.as_str(), column.name.as_str()))
    })
}
