//! Statements: SQL text in, typed [`Statement`]s out, with everything checked that needs no catalog.
//!
//! 1. [`parse_script`] cuts a script into statements and reads each in PostgreSQL's dialect.
//! 2. [`ddl`] makes descriptions of CREATE TABLE and CREATE INDEX, [`placement`] says on which device a table is to
//!    lie, [`copy`] makes options of COPY.
//! 3. [`properties`] lists, for each kind of statement, what is asked of it before it runs.
//!    [`hint`]: settings for one statement, in a comment. [`parameters`]: the values that stand for `$1`, `$2`, ….
//! 4. [`modify`] makes queries of UPDATE and DELETE, [`upsert`] of ON CONFLICT; [`locking`] tells which rows FOR UPDATE
//!    locks, [`locked_parts`] takes subqueries with it out of their statement, [`changing_with`] those of WITH that
//!    change rows. [`catalog_syntax`] says otherwise what only queries of PostgreSQL's catalog have, whose tables
//!    [`catalog_tables`] lists. [`alter`] says what ALTER TABLE does.
//! 5. [`conform`] makes rows fit a table's columns and refuses NULLs, [`assigned`] asks before whether their types can;
//!    [`defaults`] evaluates what CREATE TABLE allowed as DEFAULT, at a [`moment`].
//! 6. [`key_predicate`] recognises what a statement asks of the keys of one table, which may then go without a plan.
//!
//! Names leave this module folded as PostgreSQL folds them: unquoted ones in lower case.

pub mod alter;
pub mod assigned;
pub mod catalog_syntax;
pub mod catalog_tables;
pub mod changing_with;
pub mod conform;
pub mod copy;
pub mod ddl;
pub mod defaults;
pub mod hint;
pub mod key_predicate;
pub mod locked_parts;
pub mod locking;
pub mod modify;
pub mod moment;
pub mod names;
pub mod parameters;
pub mod parse;
pub mod placement;
pub mod properties;
pub mod roles;
pub mod sequence;
pub mod shared_with;
pub mod type_tree;
pub mod upsert;

pub use copy::{Copy, CopyEnd, CopySource};
pub use ddl::{CreateIndex, CreateTable};
pub use modify::Modify;
pub use parameters::{Parameter, Parameters};
pub use parse::{
    Analyze, AnalyzeTable, Declare, Discard, Execute, ExplainFormat, Fetch, Insert,
    ParsedStatement, Prepare, Statement, Vacuum, parse_script,
};
