//! The version of one row that a snapshot sees: a VID in, its place out, for look-ups by key.
//!
//! 1. The version map and the placement give the place of the newest version.
//! 2. The version columns there are read, and a [`ChainWalk`] says whether to stop or to go on to an older version.
//!
//! Scans do not come here: they judge whole pages ([`super::Snapshot::page_visibility`]) and ask only for rows with
//! superseded versions. Source: rules 16 and 17.

#![deny(clippy::indexing_slicing)]

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Schema, SchemaRef, UInt64Type};

use super::chain::{ChainStep, ChainWalk, VersionHeader};
use super::version_map::VersionMap;
use super::visibility::Snapshot;
use crate::decode::{Projection, decode_rows};
use crate::error::StoreError;
use crate::frame::FrameError;
use crate::ids::RecId;
use crate::page::OverflowValues;
use crate::page_source::{ColumnRef, PageRead, PageSource};
use crate::placement::{Placement, RowPlace};

/// The version columns that a walk reads.
const COLUMNS: [ColumnRef; 3] = [ColumnRef::Commit, ColumnRef::Predecessor, ColumnRef::Tombstone];

/// Where the version of `vid` lies that `snapshot` sees; None: it sees no such row.
///
/// # Errors
/// What `pages` says; [`StoreError::Frame`] where a predecessor lies in none of the segments, or the chain is
/// damaged.
pub async fn find_visible<'a>(
    pages: &dyn PageSource,
    placement: &'a Placement,
    map: &VersionMap,
    vid: u64,
    snapshot: Snapshot,
) -> Result<Option<RowPlace<'a>>, StoreError> {
    let Some(mut place) = placement.newest(map, vid) else { return Ok(None) };
    let Some(newest) = place.record() else { return Ok(None) };
    let mut walk = ChainWalk::new(snapshot, newest);
    loop {
        let header = read_version(pages, place).await?;
        match walk.step(header)? {
            ChainStep::Seen(_) => return Ok(Some(place)),
            ChainStep::NoRow => return Ok(None),
            ChainStep::Older(record) => {
                place = placement.record(record).ok_or_else(|| FrameError::Malformed {
                    name: "version chain",
                    reason: format!("row {vid} has a version at {record}, where there is none"),
                })?;
            }
        }
    }
}

/// The version columns of the version at `place`.
///
/// # Errors
/// What `pages` says.
pub async fn read_version(
    pages: &dyn PageSource,
    place: RowPlace<'_>,
) -> Result<VersionHeader, StoreError> {
    let read = PageRead {
        segment: place.directory.segment_ref(),
        page: place.entry.page,
        columns: COLUMNS.to_vec(),
    };
    let answers = pages.read(vec![read.clone()]).await?;
    let mismatch =
        |reason: &str| StoreError::Mismatch { what: "reading a version", reason: reason.into() };
    let Some(page) = answers.first() else { return Err(mismatch("no answer to a read")) };
    let fields = COLUMNS.into_iter().filter_map(Projection::version_field);
    let projection =
        Projection::new(SchemaRef::new(Schema::new(fields.collect::<Vec<_>>())), COLUMNS.to_vec());
    let row = decode_rows(page, &read, &[place.slot], &projection, &OverflowValues::none())?;
    header_of(&row).ok_or_else(|| mismatch("version columns of other types"))
}

fn header_of(row: &RecordBatch) -> Option<VersionHeader> {
    let [commit, predecessor, tombstone] = row.columns() else { return None };
    let number = |array: &arrow::array::ArrayRef| {
        array.as_primitive_opt::<UInt64Type>()?.values().first().copied()
    };
    Some(VersionHeader {
        commit: number(commit)?,
        predecessor: RecId::from_bits(number(predecessor)?),
        tombstone: tombstone.as_boolean_opt()?.values().iter().next()?,
    })
}

#[cfg(test)]
mod tests;
