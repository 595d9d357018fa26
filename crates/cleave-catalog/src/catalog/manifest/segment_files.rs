//! The files of sealed segments: written once, named by segment and revision, and removed when no manifest names them.

use std::path::{Path, PathBuf};

use cleave_media::files;
use cleave_store::{SegmentDirectory, SegmentId};

use super::{SEGMENTS, SegmentFile, blocks, file_error};
use crate::error::Result;

/// Writes the directory of a sealed segment, durably but for the entry in `segments/`, which
/// [`sync_segments`] makes durable for any number of them.
///
/// # Errors
/// [`Error::Io`](crate::error::Error::Io).
pub fn write_segment(directory: &Path, segment: &SegmentDirectory) -> Result<SegmentFile> {
    let bytes = segment.encode();
    let path = segment_path(directory, segment.segment, segment.revision);
    files::write_durably(&path, &bytes).map_err(|error| file_error(&path, "write", error))?;
    Ok(SegmentFile {
        checksum: crc32c::crc32c(&bytes),
        bytes: bytes.len() as u64,
        revision: segment.revision,
        extents: Some(blocks::joined(segment)),
    })
}

/// Makes the names of all segment files durable.
///
/// # Errors
/// [`Error::Io`](crate::error::Error::Io).
pub fn sync_segments(directory: &Path) -> Result<()> {
    let segments = directory.join(SEGMENTS);
    files::sync_directory(&segments).map_err(|error| file_error(&segments, "sync", error))
}

/// Removes the file of a segment that no manifest names any more. A file that cannot be removed is
/// left for the next incarnation.
pub fn remove_segment(directory: &Path, segment: SegmentId, revision: u32) {
    drop(files::remove(&segment_path(directory, segment, revision)));
}

/// The name of the file of a revision of a segment: `7`, then `7.1`. So a file is never overwritten that the manifest
/// on disk names.
#[must_use]
pub fn segment_file_name(segment: SegmentId, revision: u32) -> String {
    match revision {
        0 => segment.0.to_string(),
        revision => format!("{}.{revision}", segment.0),
    }
}

/// The segment and the revision whose file has this name.
#[must_use]
pub fn segment_of_file(name: &str) -> Option<(SegmentId, u32)> {
    let (id, revision) = name.split_once('.').unwrap_or((name, "0"));
    let found = (SegmentId(id.parse().ok()?), revision.parse().ok()?);
    (segment_file_name(found.0, found.1) == name).then_some(found)
}

/// The path of the file of a revision of a segment.
pub(super) fn segment_path(directory: &Path, segment: SegmentId, revision: u32) -> PathBuf {
    directory.join(SEGMENTS).join(segment_file_name(segment, revision))
}
