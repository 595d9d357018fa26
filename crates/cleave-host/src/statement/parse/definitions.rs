//! TRUNCATE and ALTER: the crate's tree in, a [`Define`] out.

use datafusion::sql::sqlparser::ast;

use crate::error::{Error, Result};
use crate::statement::alter::{AlterTable, alter_table};
use crate::statement::names::table_name;

/// A statement that defines something anew, other than CREATE and DROP of tables and indexes.
#[derive(Debug, Clone, PartialEq)]
pub enum Define {
    /// TRUNCATE.
    Truncate(Truncate),
    /// ALTER TABLE.
    AlterTable(AlterTable),
    /// ALTER INDEX … RENAME TO.
    RenameIndex {
        /// What it was called.
        from: String,
        /// What it shall be called.
        to: String,
    },
}

/// TRUNCATE [TABLE] name [, …] [RESTART IDENTITY | CONTINUE IDENTITY] [CASCADE | RESTRICT].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Truncate {
    /// The tables.
    pub tables: Vec<String>,
    /// Sequences of their columns begin anew.
    pub restart_identity: bool,
    /// Tables that refer to them, too.
    pub cascade: bool,
}

/// Reads one of these statements; None: it is another one.
///
/// # Errors
/// [`Error::Unsupported`] naming the clause.
pub(super) fn define(statement: &ast::Statement) -> Result<Option<Define>> {
    Ok(Some(match statement {
        ast::Statement::Truncate(statement) => truncate(statement)?,
        ast::Statement::AlterTable(statement) => {
            Define::AlterTable(alter_table(statement.clone())?)
        }
        ast::Statement::AlterIndex { name, operation } => {
            let ast::AlterIndexOperation::RenameIndex { index_name } = operation;
            Define::RenameIndex { from: table_name(name)?, to: table_name(index_name)? }
        }
        _ => return Ok(None),
    }))
}

/// Reads TRUNCATE.
///
/// # Errors
/// [`Error::Unsupported`] for clauses that PostgreSQL does not have.
fn truncate(statement: &ast::Truncate) -> Result<Define> {
    if statement.partitions.is_some() || statement.if_exists || statement.on_cluster.is_some() {
        return Err(Error::unsupported("TRUNCATE with PARTITION, IF EXISTS or ON CLUSTER"));
    }
    let names = statement.table_names.iter();
    Ok(Define::Truncate(Truncate {
        tables: names.map(|target| table_name(&target.name)).collect::<Result<_>>()?,
        restart_identity: statement.identity == Some(ast::TruncateIdentityOption::Restart),
        cascade: statement.cascade == Some(ast::CascadeOption::Cascade),
    }))
}
