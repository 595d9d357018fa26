//! Faults of segment files, and what to do about them.

use std::fmt;
use std::path::PathBuf;

use cleave_store::SegmentId;

/// Why a segment cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{segment} cannot be read: file \"{}\": {reason}", path.display())]
pub struct SegmentFault {
    /// The segment.
    pub segment: SegmentId,
    /// The file that holds its directory.
    pub path: PathBuf,
    /// The fault.
    pub reason: String,
}

/// One or more faults, of which the message shows one.
#[derive(Debug, Clone)]
pub struct Faults(pub Vec<SegmentFault>);

/// The remedy for a damaged index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// It can be dropped and created again.
    DropIndex,
    /// It belongs to a constraint, and is dropped with its table only.
    CopyRows,
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.0.first() else { return f.write_str("it cannot be read") };
        first.fmt(f)?;
        match self.0.len() - 1 {
            0 => Ok(()),
            more => write!(f, " (and {more} more)"),
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DropIndex => "DROP INDEX and make it anew",
            Self::CopyRows => "copy the rows, which can be read, to another table and DROP TABLE",
        })
    }
}
