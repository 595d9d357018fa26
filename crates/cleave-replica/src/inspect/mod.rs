//! Prints stored things for people: a name in, lines of text out.
//!
//! 1. [`open`] opens a database as far as its files are sound.
//! 2. [`inspect`] prints one [`Subject`]: [`catalog`] the manifest, [`page`] a page, [`plan`] a fragment.
//!
//! Invariant: damage is printed, and ends nothing that can go on. Only `cleave-store` reads bytes; this module lays
//! them out.

mod catalog;
mod page;
mod plan;

use std::path::Path;
use std::sync::Arc;

use cleave_media::BlockAddress;
use cleave_store::SegmentId;

pub use plan::fragment;

use cleave_catalog::error::{Error, Fault, Result};
use cleave_engine::storage_engine::{Engine, OpenOptions};

use crate::backup::check_restored;

/// What is printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The catalog.
    Manifest,
    /// The directory of a segment.
    Segment(SegmentId),
    /// A page by name.
    Page(SegmentId, u32),
    /// What lies at a block of a device; None: the embedded one.
    Address(BlockAddress, Option<String>),
    /// The version map of a table.
    Map(String),
    /// The indexes of a table.
    Index(String),
    /// The devices.
    Device,
}

/// Opens the database in `directory` to be looked at, and says what of it is damaged.
///
/// # Errors
/// Those of incarnation, where the manifest itself is at fault.
pub async fn open(directory: &Path, options: OpenOptions) -> Result<(Arc<Engine>, Vec<String>)> {
    check_restored(directory)?;
    let (database, faults) = Engine::look(directory, options.create(false)).await?;
    Ok((database, faults.into_iter().map(|fault| fault.error.to_string()).collect()))
}

/// The lines that describe `subject`, with at most `row_count` rows of a page.
///
/// # Errors
/// [`Error::UnknownName`] and [`Error::Invalid`] for what does not exist, and those of a device.
pub async fn inspect(
    database: &Engine,
    subject: &Subject,
    row_count: usize,
) -> Result<Vec<String>> {
    let state = database.catalog();
    match subject {
        Subject::Manifest => Ok(catalog::manifest(&state)),
        Subject::Segment(segment) => catalog::segment(&state, *segment),
        Subject::Map(table) => catalog::map(&state, table),
        Subject::Index(table) => catalog::index(&state, table),
        Subject::Device => Ok(catalog::devices(database).await),
        Subject::Page(segment, page) => page::named(database, *segment, *page, row_count).await,
        Subject::Address(address, device) => {
            page::at(database, *address, device.as_deref(), row_count).await
        }
    }
}

/// The error of something that does not exist.
fn absent(what: String) -> Error {
    Error::Invalid {
        message: format!("there is no {what}"),
        fault: Fault::Parameter,
        position: None,
    }
}
