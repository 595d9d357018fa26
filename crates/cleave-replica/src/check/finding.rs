//! A finding of a check: what does not hold, where, and what to do about it.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use cleave_media::BlockAddress;
use cleave_store::{Corruption, SegmentId};

/// Something that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub place: Place,
    /// What.
    pub fault: Fault,
}

/// Where something was found; what is not known or does not apply is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// A file of the database's folder.
    pub file: Option<PathBuf>,
    /// The table.
    pub table: Option<String>,
    /// The index.
    pub index: Option<String>,
    /// The segment.
    pub segment: Option<SegmentId>,
    /// The page in the segment.
    pub page: Option<u32>,
    /// The column, by name, or the version column.
    pub column: Option<String>,
    /// The device.
    pub device: Option<String>,
    /// The mirror that this device is a copy of, where that is what was checked.
    pub mirror: Option<String>,
    /// Where the page begins on it.
    pub address: Option<BlockAddress>,
}

impl Finding {
    /// What to do about it there.
    #[must_use]
    pub fn advice(&self) -> Cow<'static, str> {
        match (&self.fault, &self.place.mirror) {
            (Fault::Page(_) | Fault::Media(_), Some(mirror)) => Cow::Owned(format!(
                "ALTER DEVICE \"{mirror}\" RESYNC writes it anew, as another copy has it"
            )),
            (fault, _) => Cow::Borrowed(fault.advice()),
        }
    }
}

/// What does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A file is missing or not what was written.
    #[error("{0}")]
    File(String),
    /// Blocks belong to two pages, or to none that may have them, or lie beyond the media.
    #[error("{0}")]
    Space(String),
    /// The bytes of a page are not what was written.
    #[error("{0}")]
    Page(Corruption),
    /// The device could not read the page.
    #[error("{0}")]
    Media(String),
    /// The bytes are as written, and are no values of the column.
    #[error("{0}")]
    Values(String),
    /// The bounds that the directory has of a column do not hold its values.
    #[error("its bounds in the segment's directory do not hold for its values")]
    Bounds,
    /// A page's references to pages of long values and the directory's differ.
    #[error("{0}")]
    Overflow(String),
    /// VIDs or commit numbers of rows.
    #[error("{0}")]
    Version(String),
    /// The version map and the rows differ.
    #[error("{0}")]
    Map(String),
    /// An index and its table differ.
    #[error("{0}")]
    Index(String),
    /// The file of a table's statistics.
    #[error("{0}")]
    Statistics(String),
    /// The device does not answer, or refuses reads of this database: its pages were not verified.
    #[error("{0}")]
    Unreachable(String),
}

impl Fault {
    /// Which kind of thing does not hold, in a word.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Space(_) => "space",
            Self::Page(_) => "page",
            Self::Media(_) => "media",
            Self::Values(_) => "values",
            Self::Bounds => "bounds",
            Self::Overflow(_) => "overflow",
            Self::Version(_) => "version",
            Self::Map(_) => "map",
            Self::Index(_) => "index",
            Self::Statistics(_) => "statistics",
            Self::Unreachable(_) => "unreachable",
        }
    }

    /// What to do about it, wherever it is; [`Finding::advice`] knows more.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self {
            Self::File(_) => {
                "restore the file from a copy made with this media; a table or index whose segment file is lost can be \
                 dropped"
            }
            Self::Space(_) => "copy out the tables that can be read, and restore the database",
            Self::Page(_) | Self::Media(_) => {
                "restore the device's media from a copy; statements that do not touch the page work"
            }
            Self::Values(_) | Self::Overflow(_) | Self::Version(_) | Self::Map(_) => {
                "restore the database from a copy, and report this: the bytes are as they were written"
            }
            Self::Bounds => {
                "copy the table to a new one (SELECT without WHERE reads all rows), and report this"
            }
            Self::Index(_) => {
                "make the index anew from its table, or load the table again, and report this"
            }
            Self::Statistics(_) => {
                "run ANALYZE on the table; nothing else is lost, plans are made without them"
            }
            Self::Unreachable(_) => {
                "see that the device can be reached and serves this database, and check again"
            }
        }
    }
}

/// Findings, up to a number of them.
#[derive(Debug, Default)]
pub struct Findings {
    kept: Vec<Finding>,
    count: u64,
    limit: usize,
}

impl Findings {
    /// Keeps at most `limit`.
    pub(super) fn limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Adds one.
    pub(super) fn add(&mut self, place: Place, fault: Fault) {
        self.extend([Finding { place, fault }]);
    }

    pub(super) fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        for finding in findings {
            self.count += 1;
            if self.kept.len() < self.limit {
                self.kept.push(finding);
            }
        }
    }

    /// Those that were kept, in the order in which they were found.
    #[must_use]
    pub fn kept(&self) -> &[Finding] {
        &self.kept
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.fault)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(file) = &self.file {
            parts.push(format!("file \"{}\"", file.display()));
        }
        if let Some(table) = &self.table {
            parts.push(format!("table \"{table}\""));
        }
        if let Some(index) = &self.index {
            parts.push(format!("index \"{index}\""));
        }
        if let Some(segment) = self.segment {
            parts.push(segment.to_string());
        }
        if let Some(page) = self.page {
            parts.push(format!("page {page}"));
        }
        if let Some(column) = &self.column {
            parts.push(column.clone());
        }
        if let Some(device) = &self.device {
            parts.push(format!("device \"{device}\""));
        }
        if let Some(address) = self.address {
            parts.push(address.to_string());
        }
        f.write_str(&parts.join(", "))
    }
}
