//! Whose session it is, and what the session shows of itself to its statements.

use std::sync::Arc;

use cleave_fragment::progress::Progress;
use cleave_fragment::trace::Trace;

use super::{Admits, transaction};
use crate::acting::Acting;
use crate::advisory_locks::AdvisoryLocks;
use crate::error::{Error, Fault, Result};
use crate::outside::Outside;
use crate::sequence_values::SequenceValues;
use crate::session_objects::SessionObjects;
use crate::statement_cost::StatementCost;

/// The client of the session, as `current_user` and similar functions report it. Not a setting, and untouched by RESET.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Client {
    /// The user.
    pub user: String,
    /// The client's name for the database.
    pub database: String,
    /// The connection's number; 0: it is in this process.
    pub backend: i32,
    /// Its values of sequences.
    pub sequences: SequenceValues,
    /// Its advisory locks.
    pub advisory: AdvisoryLocks,
    /// The role that it acts as.
    pub acting: Acting,
    /// When its present statement began.
    pub began: transaction::Began,
    /// Its prepared statements and cursors, as the catalog shows them.
    pub objects: SessionObjects,
    /// What its server admits; None: it has none.
    pub admits: Option<Admits>,
    /// Tables that are not of the database, which its statements may name.
    pub outside: Outside,
    /// What its present statement has cost.
    pub cost: StatementCost,
    /// The span of its present statement, if that is traced.
    pub trace: Trace,
    /// The span of the client that its present statement is a part of.
    pub asked_by: Trace,
    /// How far its present statement is.
    pub progress: Progress,
    /// Its statements may name files of this machine, if its role may: true but for clients of a server that does not
    /// allow it.
    pub serves_files: bool,
    /// Its statements look on for whoever watches the server, and are not among those that are counted.
    pub looks_on: bool,
    /// Why its statements may only read, whatever they set; None: they may change what there is.
    pub only_reads: Option<Arc<str>>,
}

impl Client {
    /// Refuses `what`, which changes more than the session, where statements may only read.
    ///
    /// # Errors
    /// [`Fault::ReadOnlyTransaction`].
    pub fn check_may_change(&self, what: &str) -> Result<()> {
        let Some(why) = &self.only_reads else { return Ok(()) };
        let message = format!("cannot execute {what}: this session only reads, because {why}");
        Err(Error::Invalid { message, fault: Fault::ReadOnlyTransaction, position: None })
    }
}

impl Default for Client {
    fn default() -> Self {
        Self {
            user: "cleave".to_owned(),
            database: "cleave".to_owned(),
            backend: 0,
            sequences: SequenceValues::default(),
            advisory: AdvisoryLocks::default(),
            acting: Acting::default(),
            began: transaction::Began::now(),
            objects: SessionObjects::default(),
            admits: None,
            outside: Outside::default(),
            cost: StatementCost::default(),
            trace: Trace::default(),
            asked_by: Trace::default(),
            progress: Progress::default(),
            serves_files: true,
            looks_on: false,
            only_reads: None,
        }
    }
}
