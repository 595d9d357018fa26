//! The setting that says where bulk updates and deletes change rows, and where rows of a query are inserted.

use std::fmt;

use super::{Setting, Value, Values};

/// Where an UPDATE or DELETE changes rows, and an INSERT makes those of a query. Source: Update NDP, section 8 (S1, S2
/// and S3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpdatePlacement {
    /// On pages if that is expected to be cheaper, else row by row.
    #[default]
    Auto,
    /// Rows come to the host, which inserts new row versions and marks the old rows dead.
    Host,
    /// The host finds the rows; a fragment that is sent their VIDs, and the new values that it cannot make, writes page
    /// versions. What inserts rows or locks them runs on the host.
    Keys,
    /// Wherever it can be done, a fragment writes page versions, or new pages.
    Device,
}

/// `update_placement`.
pub(super) const UPDATE_PLACEMENT: Setting = Setting {
    name: "update_placement",
    description: "Where rows are changed: host (row by row), keys (found by the host, page versions by fragments), \
                  device (found and changed by fragments) or auto (by cost)",
    values: Values::Words(&["auto", "host", "keys", "device"]),
    get: |settings| settings.update_placement.to_string(),
    set: |settings, value| {
        settings.update_placement = match value {
            Value::Word(1) => UpdatePlacement::Host,
            Value::Word(2) => UpdatePlacement::Keys,
            Value::Word(3) => UpdatePlacement::Device,
            _ => UpdatePlacement::Auto,
        }
    },
};

impl fmt::Display for UpdatePlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Host => "host",
            Self::Keys => "keys",
            Self::Device => "device",
        })
    }
}
