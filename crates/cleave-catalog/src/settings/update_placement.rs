//! The setting that says where bulk updates and deletes change rows, and where rows of a query are inserted.

use std::fmt;

use super::{Setting, Value, Values};

/// Where an UPDATE or DELETE changes rows, and an INSERT makes those of a query. Source: Update NDP, section 8 (S1 and
/// S3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpdatePlacement {
    /// On pages if that is expected to be cheaper, else row by row.
    #[default]
    Auto,
    /// Rows come to the host, which inserts new row versions and marks the old rows dead.
    Host,
    /// Wherever it can be done, a fragment writes page versions, or new pages.
    Device,
}

/// `update_placement`.
pub(super) const UPDATE_PLACEMENT: Setting = Setting {
    name: "update_placement",
    description: "Where rows are changed: host (row by row), device (page versions by fragments) or auto (by cost)",
    values: Values::Words(&["auto", "host", "device"]),
    get: |settings| settings.update_placement.to_string(),
    set: |settings, value| {
        settings.update_placement = match value {
            Value::Word(1) => UpdatePlacement::Host,
            Value::Word(2) => UpdatePlacement::Device,
            _ => UpdatePlacement::Auto,
        }
    },
};

impl fmt::Display for UpdatePlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Host => "host",
            Self::Device => "device",
        })
    }
}
