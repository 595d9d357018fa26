//! The settings `stack` and `page_filter`: what crosses the link where a plan stays on the host; and `filter_history`:
//! which pages are not looked at again.

use std::fmt;

use cleave_fragment::filter_history::HistoryMode;

use super::{Setting, Settings, Value, Values, WHEN, When, when_text};

/// How the host reaches rows on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stack {
    /// Plain block reads with read-ahead; the plan stays on the host.
    Blk,
    /// Reads by physical address and column; the plan stays on the host.
    Native,
    /// Near-data processing: fragments of the plan run on the device.
    Ndp,
}

/// `stack`.
pub(super) const STACK: Setting = Setting {
    name: "stack",
    description: "Access to rows on devices: ndp (fragments), blk (block reads) or native (reads by address)",
    values: Values::Words(&["blk", "native", "ndp"]),
    get: |settings| settings.stack.to_string(),
    set: |settings, value| {
        settings.stack = match value {
            Value::Word(0) => Stack::Blk,
            Value::Word(1) => Stack::Native,
            _ => Stack::Ndp,
        }
    },
};

/// `page_filter`.
pub(super) const PAGE_FILTER: Setting = Setting {
    name: "page_filter",
    description: "Whether the host reads only pages that devices say have a matching row: on (by cost), off or always",
    values: WHEN,
    get: |settings| when_text(settings.page_filter),
    set: |settings, value| settings.page_filter = value.when(),
};

/// `filter_history`.
pub(super) const FILTER_HISTORY: Setting = Setting {
    name: "filter_history",
    description: "Whether scans use which rows conditions of earlier ones left: on (noted from the second run), off or \
        always (from the first)",
    values: WHEN,
    get: |settings| when_text(settings.filter_history),
    set: |settings, value| settings.filter_history = value.when(),
};

impl Settings {
    /// When scans note what their conditions are true for. Never by blocks or by address: these have no devices that
    /// compute.
    pub fn history_mode(&self) -> HistoryMode {
        match self.filter_history {
            _ if self.stack != Stack::Ndp => HistoryMode::Off,
            When::Never => HistoryMode::Off,
            When::WherePays => HistoryMode::On,
            When::Always => HistoryMode::Always,
        }
    }
}

impl fmt::Display for Stack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Blk => "blk",
            Self::Native => "native",
            Self::Ndp => "ndp",
        })
    }
}
