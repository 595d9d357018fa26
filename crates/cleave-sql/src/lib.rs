//! SQL text in, typed statements out: PostgreSQL's dialect over DataFusion's parser.
//!
//! 1. [`statement`]: a script to typed statements, with every check that needs no database.
//! 2. [`dialect`]: PostgreSQL's meaning where DataFusion's differs: operators, functions, types, names.
//! 3. [`copy`]: the formats of COPY, to and from batches.
//! 4. [`unnest_subqueries`]: correlated subqueries to joins, a rule over logical plans.
//!
//! Invariant: this crate knows no database. The catalog is passed in as a value (`CatalogState`).

pub mod copy;
pub mod dialect;
pub mod statement;
pub mod unnest_subqueries;
pub mod visiting;
