//! What runs the statements of a shell: a database of this process, or a server.

use std::sync::Arc;

use cleave_host::{Changes, Database, Session};

use super::remote::Remote;

/// See the [module](self).
pub(crate) enum Target {
    /// A database of this process.
    Local(Box<Local>),
    /// A server.
    Remote(Box<Remote>),
}

/// A database of this process.
pub(crate) struct Local {
    pub(super) database: Arc<Database>,
    pub(super) session: Session,
    /// What its tables had when it was opened, or when one of them could not be analysed.
    pub(super) before: Changes,
}

impl Target {
    /// A session of a database of this process.
    pub(crate) fn local(database: Arc<Database>, session: Session) -> Self {
        let before = database.changes();
        Self::Local(Box::new(Local { database, session, before }))
    }
}
