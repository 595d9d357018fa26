//! What a scan had of the filter history: counters among its metrics, and a line of EXPLAIN ANALYZE.

use std::fmt;

/// Pages whose conditions were known.
pub(crate) const ANSWERED: &str = "history_answered";
/// Pages that were not read for that.
pub(crate) const UNREAD: &str = "history_unread";
/// Pages of which something was noted.
pub(crate) const NOTED: &str = "history_noted";
/// Pages of which something was noted that only other scans asked.
pub(crate) const SHARED: &str = "history_shared";

/// Pages of scans, by what the history did for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HistoryCounts {
    /// Their conditions were known, so that only the rows that are left were read.
    pub answered: u64,
    /// No row of them is left, so that they were not read.
    pub unread: u64,
    /// Something was noted of them.
    pub noted: u64,
    /// Conditions of other scans, which were under way, were evaluated on them.
    pub shared: u64,
}

impl HistoryCounts {
    /// The counts among the metrics of scans, by name; None: the history did nothing.
    pub fn of_metrics<'a>(metrics: impl IntoIterator<Item = (&'a str, u64)>) -> Option<Self> {
        let mut counts = Self::default();
        for (name, count) in metrics {
            match name {
                ANSWERED => counts.answered += count,
                UNREAD => counts.unread += count,
                NOTED => counts.noted += count,
                SHARED => counts.shared += count,
                _ => {}
            }
        }
        (counts != Self::default()).then_some(counts)
    }
}

impl fmt::Display for HistoryCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { answered, unread, noted, shared } = self;
        write!(f, "{unread} pages not read, {answered} answered, {noted} noted")?;
        match shared {
            0 => Ok(()),
            _ => write!(f, ", {shared} for other scans"),
        }
    }
}
