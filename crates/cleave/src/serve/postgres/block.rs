//! Transaction blocks, as far as they can be had: one that only reads.
//!
//! Every statement of this version commits by itself, and each sees what was committed when it began, as READ COMMITTED
//! has it. So a block of statements that only read means what it means in PostgreSQL; a statement that writes is refused
//! within one, because ROLLBACK could not undo it. After a failure the block takes nothing but its end.

use cleave_host::statement::{Copy, Statement};

use super::complaint::{Complaint, Severity};
use super::reply::BlockState;

/// A session's transaction block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Block {
    /// There is none.
    #[default]
    None,
    /// One that has only read.
    Reading,
    /// One in which a statement failed.
    Failed,
}

/// What a statement about blocks did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BlockDone {
    /// Its tag.
    pub(crate) tag: &'static str,
    /// What the client ought to know.
    pub(crate) warning: Option<Complaint>,
}

impl Block {
    /// As ReadyForQuery says it.
    pub(crate) fn state(self) -> BlockState {
        match self {
            Self::None => BlockState::Idle,
            Self::Reading => BlockState::Open,
            Self::Failed => BlockState::Failed,
        }
    }

    /// Takes a failure in.
    pub(crate) fn fail(&mut self) {
        if *self == Self::Reading {
            *self = Self::Failed;
        }
    }

    /// Runs a statement about blocks; None: it is another.
    pub(crate) fn run(&mut self, statement: &Statement) -> Option<BlockDone> {
        let warning = |sqlstate, message: &'static str| {
            Some(Complaint::new(Severity::Warning, sqlstate, message))
        };
        let none = || warning("25P01", "there is no transaction in progress");
        let (tag, warning, next) = match (statement, *self) {
            (Statement::Begin, Self::None) => ("BEGIN", None, Self::Reading),
            (Statement::Begin, Self::Reading) => {
                let already = warning("25001", "there is already a transaction in progress");
                ("BEGIN", already, Self::Reading)
            }
            (Statement::Commit, Self::None) => ("COMMIT", none(), Self::None),
            (Statement::Commit, Self::Reading) => ("COMMIT", None, Self::None),
            (Statement::Commit, Self::Failed) => ("ROLLBACK", None, Self::None),
            (Statement::Rollback, Self::None) => ("ROLLBACK", none(), Self::None),
            (Statement::Rollback, _) => ("ROLLBACK", None, Self::None),
            _ => return None,
        };
        *self = next;
        Some(BlockDone { tag, warning })
    }

    /// Whether `statement` may run.
    ///
    /// # Errors
    /// What the client is told where it may not.
    pub(crate) fn admit(self, statement: &Statement) -> Result<(), Complaint> {
        match self {
            Self::None => Ok(()),
            Self::Failed => Err(Complaint::error(
                "25P02",
                "current transaction is aborted, commands ignored until end of transaction block",
            )),
            Self::Reading => match written_by(statement) {
                None => Ok(()),
                Some(what) => {
                    let message = format!("{what} in a transaction block is not in this version");
                    let hint = "every statement that writes commits by itself: run it outside of BEGIN and COMMIT \
                                (clients call this autocommit)";
                    Err(Complaint::error("0A000", message).hint(hint))
                }
            },
        }
    }
}

/// What a statement that writes is called.
fn written_by(statement: &Statement) -> Option<&'static str> {
    match statement {
        Statement::CreateTable(_) => Some("CREATE TABLE"),
        Statement::DropTable { .. } => Some("DROP TABLE"),
        Statement::CreateIndex(_) => Some("CREATE INDEX"),
        Statement::DropIndex { .. } => Some("DROP INDEX"),
        Statement::Insert(_) => Some("INSERT"),
        Statement::Copy(copy) => match copy.as_ref() {
            Copy::From { .. } => Some("COPY FROM"),
            Copy::To { .. } => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(sql: &str) -> Statement {
        cleave_host::statement::parse_script(sql).unwrap().remove(0).statement
    }

    #[test]
    fn a_block_reads_and_does_not_write() {
        let mut block = Block::default();
        let (begin, commit) = (statement("BEGIN"), statement("COMMIT"));
        let insert = statement("INSERT INTO t VALUES (1)");
        assert!(block.admit(&insert).is_ok());
        assert_eq!(block.run(&begin), Some(BlockDone { tag: "BEGIN", warning: None }));
        assert!(block.admit(&statement("SELECT 1")).is_ok());
        let refused = block.admit(&insert).unwrap_err();
        assert_eq!(refused.sqlstate, "0A000");
        block.fail();
        assert_eq!(block.admit(&statement("SELECT 1")).unwrap_err().sqlstate, "25P02");
        assert_eq!(block.state(), BlockState::Failed);
        assert_eq!(block.run(&commit).unwrap().tag, "ROLLBACK");
        assert_eq!(block.run(&commit).unwrap().warning.unwrap().sqlstate, "25P01");
        block.fail();
        assert_eq!(
            block.state(),
            BlockState::Idle,
            "outside of a block a failure is the statement's alone"
        );
    }
}
