//! Generates benchmark databases: from a size and a seed, the tables of a well-known benchmark as record batches, the
//! same bytes every time.
//!
//! 1. [`Imdb`] resembles the Internet Movie Database with the schema of the Join Order Benchmark, with its skew and its
//!    correlations between tables; [`Tpch`] is TPC-H; [`Particles`] is the table that plasma simulations write.
//! 2. All list their tables as [`TableSpec`]s, in an order that suits foreign keys, and divide each table into parts.
//!    A part can be computed by any thread, at any time, without the others.
//! 3. [`csv`] writes batches as PostgreSQL reads them.
//!
//! No state is kept between two parts and no file is read: every row is a pure function of (seed, table, row number),
//! so memory stays constant at every scale.

pub(crate) mod csv;
mod imdb;
mod particles;
pub(crate) mod random;
mod rows;
mod tpch;

use arrow::datatypes::SchemaRef;

pub(crate) use imdb::Imdb;
pub(crate) use particles::{PARTICLES_DEFAULT, PARTICLES_MAX, Particles};
pub(crate) use tpch::Tpch;

/// One table of a generated database.
#[derive(Clone, Debug)]
pub(crate) struct TableSpec {
    /// Its name, in lower case.
    pub(crate) name: &'static str,
    /// Its columns.
    pub(crate) schema: SchemaRef,
    /// How many rows all of its parts have together.
    pub(crate) rows: u64,
}

/// Why a database cannot be generated. In every case the caller chooses another scale.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum GenerateError {
    /// The scale is not a number above 0 and up to 100.
    #[error("the scale must be above 0 and at most 100, not {scale}")]
    Scale {
        /// The requested scale.
        scale: f64,
    },
    /// TPC-H below 0.01, or at one of a few scales above it where keys of `partsupp` repeat.
    #[error(
        "tpch cannot be made at scale {scale}: its generator repeats keys of `partsupp` at some scales below 0.025; \
            take 0.01, 0.02, or 0.025 and more"
    )]
    RepeatedKeys {
        /// The requested scale.
        scale: f64,
    },
    /// A table would have more rows than an `integer` key can number.
    #[error("at this scale `{table}` has {rows} rows, more than an integer key can number")]
    TooManyRows {
        /// The table that is too long.
        table: &'static str,
        /// How long it would be.
        rows: u64,
    },
}
