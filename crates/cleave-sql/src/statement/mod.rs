//! Statements: SQL text in, typed [`Statement`]s out, with every check that needs no catalog.
//!
//! 1. [`parse_script`] cuts a script into statements and reads each in PostgreSQL's dialect.
//! 2. [`ddl`] reads CREATE TABLE and CREATE INDEX, [`placement`] the devices and tablets of a table, [`copy`] the
//!    options of COPY, [`alter`] the actions of ALTER TABLE.
//! 3. [`properties`] lists the requirements of each kind of statement. [`hint`]: settings for one statement, in a
//!    comment. [`parameters`]: the values of `$1`, `$2`, ….
//! 4. [`modify`] makes queries of UPDATE and DELETE, [`upsert`] of ON CONFLICT. [`locking`] identifies the rows that
//!    FOR UPDATE locks, [`locked_parts`] takes locking subqueries out of their statement, [`changing_with`]
//!    data-modifying queries out of WITH. [`catalog_syntax`] rewrites syntax that only queries of PostgreSQL's catalog
//!    use; [`catalog_tables`] lists the catalog's tables.
//! 5. [`conform`] converts rows to a table's columns and refuses NULLs, [`assigned`] checks beforehand whether their
//!    types can be converted; [`defaults`] evaluates DEFAULT, at a [`moment`].
//! 6. [`files`] reads calls of functions that read files in FROM.
//! 7. [`key_predicate`] recognises conditions on the keys of one table, with which a statement may run without a plan.
//!    [`without_constants`] gives what statements have in common that differ in constants alone.
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
pub mod files;
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
pub mod renamed;
pub mod roles;
pub mod sequence;
pub mod shared_with;
pub mod type_tree;
pub mod upsert;
pub mod without_constants;

pub use copy::{Copy, CopyEnd, CopySource};
pub use ddl::{CreateIndex, CreateTable};
pub use modify::Modify;
pub use parameters::{Parameter, Parameters};
pub use parse::{
    Analyze, AnalyzeTable, Declare, Discard, Execute, ExplainFormat, Fetch, Insert,
    ParsedStatement, Prepare, Statement, Vacuum, parse_script, parse_script_in,
};
