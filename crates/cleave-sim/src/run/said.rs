//! The outcome of a statement, as the trace has it.

use std::fmt;

use cleave_host::{Error, Outcome};

/// See the [module](self).
pub(super) struct Said<'a>(pub(super) &'a Option<Result<Vec<Outcome>, Error>>);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("sql: nobody hears the answer"),
            Some(Err(error)) => write!(f, "sql: {}: {error}", error.sqlstate()),
            Some(Ok(outcomes)) => {
                for outcome in outcomes {
                    match outcome {
                        Outcome::Done { tag } => write!(f, "sql: {tag}")?,
                        Outcome::Rows { batches, .. } => {
                            let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
                            write!(f, "sql: {rows} rows in {} batches", batches.len())?;
                        }
                    }
                }
                Ok(())
            }
        }
    }
}
