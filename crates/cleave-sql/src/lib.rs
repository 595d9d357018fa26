//! SQL text in, typed statements out: PostgreSQL's dialect over DataFusion's parser.
//!
//! 1. [`statement`]: a script to typed statements, with everything checked that needs no database.
//! 2. [`dialect`]: what PostgreSQL means and DataFusion does not: operators, functions, types, names.
//! 3. [`copy`]: the formats of COPY, to and from batches.
//! 4. [`unnest_subqueries`]: correlated subqueries to joins, a rule over logical plans.
//!
//! Invariant: it knows no database. What it asks of the catalog is a value (`CatalogState`) that it is handed.

pub mod copy;
pub mod dialect;
pub mod statement;
pub mod unnest_subqueries;
