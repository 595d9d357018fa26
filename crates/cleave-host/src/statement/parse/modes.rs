//! What BEGIN and SET TRANSACTION say: the parser's modes in, ours out.

use datafusion::sql::sqlparser::ast;

use crate::settings::Isolation;

/// What BEGIN says of its transaction; None: what the settings say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Modes {
    /// ISOLATION LEVEL.
    pub isolation: Option<Isolation>,
    /// READ ONLY, READ WRITE.
    pub read_only: Option<bool>,
}

/// The modes that a statement lists.
pub(super) fn typed_modes(modes: &[ast::TransactionMode]) -> Modes {
    use ast::{TransactionAccessMode as Access, TransactionIsolationLevel as Level};
    let mut typed = Modes::default();
    for mode in modes {
        match mode {
            ast::TransactionMode::AccessMode(access) => {
                typed.read_only = Some(*access == Access::ReadOnly);
            }
            ast::TransactionMode::IsolationLevel(level) => {
                typed.isolation = Some(match level {
                    // Nobody reads what is not committed, here as in PostgreSQL.
                    Level::ReadUncommitted | Level::ReadCommitted => Isolation::ReadCommitted,
                    Level::RepeatableRead | Level::Snapshot => Isolation::RepeatableRead,
                    Level::Serializable => Isolation::Serializable,
                });
            }
        }
    }
    typed
}
