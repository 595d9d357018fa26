//! Which rows there are: a VID in, the segment that has it out, or that its row is dead.
//!
//! 1. [`VersionMap`] says in which segment the row of a VID lies, and which rows are dead.
//! 2. [`DeadRows`] is what it says of one page: a bit for each slot.
//! 3. [`Snapshot`] says, for pages that no state names, whether a row had begun.
//!
//! Invariant: a row lies in one place. What a transaction changes is another row (`docs/design/versions-and-commit.md`)
//! or another version of a page (`docs/design/pages-and-encodings.md`), and which of them a reader sees depends on the
//! state that it reads, never on a walk. Deliberately absent: transactions. A snapshot is a state, or a number, that
//! somebody else handed out.

pub mod dead_rows;
pub mod version_map;
pub mod visibility;

pub use dead_rows::DeadRows;
pub use version_map::{VersionMap, VersionRun};
pub use visibility::Snapshot;
