//! Counts the statements of a session, from the text that came to the last row that it gave
//! ([`statements`](cleave_query::statements)).
//!
//! Rows that are streamed are counted as they are fetched: their statement ends with them, or when they are dropped.
//! Statements that others run for it, as those of a foreign key, are parts of the one that asked for them.

use std::time::Duration;

use cleave_catalog::error::{Error, Result};
use cleave_fragment::trace::Trace;
use cleave_query::statements::{Counting, Shape, StatementEnd, asked_by};

use super::{Outcome, Session, Started};

impl Session {
    /// Its statements look on for whoever watches the server: from now on none is counted, nor logged as slow.
    pub fn look_on(&mut self) {
        self.settings.client.looks_on = true;
    }

    /// Its next statements come with `sql`, of which a comment may say of which trace they are a part.
    pub fn comes_with(&mut self, sql: &str) {
        if self.database.statements().are_traced() {
            let asked_by = asked_by(sql).map(Trace::of_peer);
            self.settings.client.asked_by = asked_by.unwrap_or_default();
        }
    }

    /// Begins to count a statement of this `shape`; `text` is its text with constants, if that is known. Its queries
    /// add their cost.
    pub(super) fn begin_counting(&mut self, shape: &Shape, text: Option<&str>) -> Counting {
        let (statements, client) = (self.database.statements(), &self.settings.client);
        let mut counting = Counting::begin(statements, client, shape, text);
        self.settings.client.cost = counting.cost();
        self.settings.client.trace = counting.trace();
        if let Some(hinted) = &mut self.hinted {
            hinted.client.cost = self.settings.client.cost.clone();
            hinted.client.trace = self.settings.client.trace.clone();
        }
        counting
    }

    /// Counts a look-up that began at `began`, and has had this outcome.
    pub(super) fn count_look_up(&self, shape: &Shape, began: Duration, outcome: &Outcome) {
        let (statements, client) = (self.database.statements(), &self.settings.client);
        statements.note(client, shape, began, rows_of(outcome));
    }
}

/// Ends `counting` with the whole outcome of its statement.
pub(super) fn end_with(mut counting: Counting, outcome: &Result<Outcome>) {
    match outcome {
        Ok(outcome) => {
            counting.add_rows(rows_of(outcome));
            counting.end(StatementEnd::Done);
        }
        Err(error) => fail(counting, error),
    }
}

/// Ends `counting` with its statement, or lets the rows of the statement do so.
pub(super) fn started(mut counting: Counting, started: Result<Started>) -> Result<Started> {
    match started {
        Ok(Started::Rows(rows)) => Ok(Started::Rows(rows.counted(counting))),
        Ok(Started::Done { tag }) => {
            counting.add_rows(rows_of_tag(&tag));
            counting.end(StatementEnd::Done);
            Ok(Started::Done { tag })
        }
        Err(error) => {
            fail(counting, &error);
            Err(error)
        }
    }
}

/// Ends `counting` with an error of its statement.
pub(super) fn fail(counting: Counting, error: &Error) {
    counting.end(StatementEnd::Failed(error.sqlstate()));
}

fn rows_of(outcome: &Outcome) -> u64 {
    match outcome {
        Outcome::Rows { batches, .. } => batches.iter().map(|batch| batch.num_rows() as u64).sum(),
        Outcome::Done { tag } => rows_of_tag(tag),
    }
}

/// The rows of a command tag, as in `INSERT 0 3`; 0: it tells of none.
fn rows_of_tag(tag: &str) -> u64 {
    tag.rsplit(' ').next().and_then(|last| last.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_tell_of_rows() {
        for (tag, rows) in [("INSERT 0 3", 3), ("COPY 5", 5), ("CREATE TABLE", 0), ("", 0)] {
            assert_eq!(rows_of_tag(tag), rows, "{tag}");
        }
    }
}
