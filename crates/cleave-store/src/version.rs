//! Locates rows and tells dead ones: a VID in, the segment of its row out, or that the row is dead.
//!
//! 1. [`VersionMap`] says in which segment the row of a VID lies, and which rows are dead.
//! 2. [`DeadRows`] is its answer for one page: a bit for each slot.
//! 3. [`Snapshot`] says, for pages that no catalog version names, whether a row version is visible.
//!
//! Invariant: a row lies in one place. An update makes another row (`docs/design/versions-and-commit.md`) or another
//! version of a page (`docs/design/pages-and-encodings.md`). The catalog version that a reader holds decides which of
//! them it sees; there are no version chains to walk. Deliberately absent: transactions. The caller provides the
//! snapshot, a catalog version or a commit number.

pub mod dead_rows;
pub mod version_map;
pub mod visibility;

pub use dead_rows::DeadRows;
pub use version_map::{VersionMap, VersionRun};
pub use visibility::Snapshot;
