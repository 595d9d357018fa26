//! Parameters that name files: a statement with `read_csv($1)` in, the same with the name of a file out.
//!
//! The names go into a statement before anything else reads it, whatever kind of statement it is: what looks files up
//! finds constants. Its other parameters stay.
//!
//! Invariant: [`StatementText::may_name_files`] tells of every statement that has such a parameter.

use std::ops::ControlFlow;

use cleave_catalog::error::{Error, Fault, Result};
use datafusion::sql::sqlparser::ast::{self, VisitorMut};

use super::{Flow, Parameters, StatementText, ended, flow, list_elsewhere};
use crate::statement::files::{may_call, put_parameters};
use crate::statement::modify::{Action, Assignment};
use crate::statement::parse::{Define, Statement};
use crate::statement::upsert::ConflictAction;
use crate::visiting::visit_mut;

impl StatementText {
    /// Whether parameters of the statement may name files. They stand behind the function that reads the file.
    #[must_use]
    pub fn may_name_files(&self) -> bool {
        self.pieces.iter().any(|(before, _)| may_call(&before.to_ascii_lowercase()))
    }
}

impl Parameters {
    /// Puts the values of parameters that name files into `statement`.
    ///
    /// # Errors
    /// [`Error::UnknownName`] for a parameter that has no value, [`Error::Invalid`] for NULL, [`Error::Unsupported`]
    /// for a list.
    pub fn put_files_into(&self, statement: &mut Statement) -> Result<()> {
        ended(put_into(statement, &mut PutFiles(self)))
    }

    /// The file that the parameter at `place` names.
    fn file(&self, place: usize) -> Result<String> {
        let parameter = self.get(place)?;
        if parameter.items.is_some() {
            return Err(list_elsewhere(place));
        }
        parameter.text().map(str::to_owned).ok_or_else(|| Error::Invalid {
            message: format!(
                "the parameter ${} names a file, and its value is NULL; give it the name of one",
                place + 1
            ),
            fault: Fault::Parameter,
            position: None,
        })
    }
}

struct PutFiles<'a>(&'a Parameters);

impl VisitorMut for PutFiles<'_> {
    type Break = Box<Error>;

    fn pre_visit_relation(&mut self, name: &mut ast::ObjectName) -> Flow {
        flow(put_parameters(name, &|place| self.0.file(place)))
    }
}

fn put_into(statement: &mut Statement, put: &mut PutFiles<'_>) -> Flow {
    match statement {
        Statement::Query(query) => visit_mut(query, put),
        Statement::Locking(locking) => visit_mut(&mut locking.query, put),
        Statement::Declare(declare) => visit_mut(&mut declare.query, put),
        Statement::LockedParts(parts) => {
            for part in &mut parts.parts {
                visit_mut(&mut part.query, put)?;
            }
            put_into(&mut parts.statement, put)?;
            put_into(&mut parts.plain, put)
        }
        Statement::ChangingWith(with) => {
            for part in &mut with.parts {
                put_into(&mut part.statement, put)?;
            }
            put_into(&mut with.main.statement, put)
        }
        Statement::Insert(insert) => {
            visit_mut(&mut insert.source, put)?;
            visit_mut(&mut insert.returning, put)?;
            let action = insert.on_conflict.as_mut().map(|own| &mut own.action);
            if let Some(ConflictAction::Update { assignments, selection }) = action {
                put_into_values(assignments, put)?;
                visit_mut(selection, put)?;
            }
            ControlFlow::Continue(())
        }
        Statement::Modify(modify) => {
            visit_mut(&mut modify.with, put)?;
            visit_mut(&mut modify.from, put)?;
            visit_mut(&mut modify.selection, put)?;
            visit_mut(&mut modify.returning, put)?;
            match &mut modify.action {
                Action::Update(assignments) => put_into_values(assignments, put),
                Action::Delete => ControlFlow::Continue(()),
            }
        }
        Statement::Explain { statement, .. } => put_into(statement, put),
        Statement::Define(define) => match define.as_mut() {
            Define::CreateTableAs(create) => visit_mut(&mut create.query, put),
            _ => ControlFlow::Continue(()),
        },
        // They take no parameters.
        _ => ControlFlow::Continue(()),
    }
}

fn put_into_values(assignments: &mut [Assignment], put: &mut PutFiles<'_>) -> Flow {
    assignments.iter_mut().try_for_each(|assignment| visit_mut(&mut assignment.value, put))
}
