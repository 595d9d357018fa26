//! Versions of rows: a VID in, the version that a snapshot sees out.
//!
//! 1. [`VersionMap`] says where the newest version of a VID lies.
//! 2. [`Snapshot`] says whether a version is seen, and for a whole page whether anybody has to ask.
//! 3. [`ChainWalk`] follows predecessors from the newest version to the one that the snapshot sees.
//! 4. [`find_visible`] does all three for one row, reading what it needs.
//!
//! Invariant: a version is superseded by the existence of its successor, so a page never changes once written.
//! Deliberately absent: transactions. A snapshot is a number that somebody else handed out.

pub mod chain;
pub mod ended_rows;
pub mod find;
pub mod version_map;
pub mod visibility;

pub use chain::{ChainStep, ChainWalk, VersionHeader};
pub use ended_rows::EndedRows;
pub use find::{find_visible, read_version};
pub use version_map::{VersionMap, VersionPlace, VersionRun};
pub use visibility::{PageVisibility, Snapshot};
