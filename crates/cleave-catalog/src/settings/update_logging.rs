//! The setting that says what a commit of an update fragment's pages waits for.

use std::fmt;

use super::{Setting, Value, Values};

/// What is logged of the pages that update fragments write. Source: Update NDP, section 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpdateLogging {
    /// References. An archive gets the contents behind the commit.
    #[default]
    Basic,
    /// The contents as well, before a commit is acknowledged: an archive has them though the device is lost.
    Extended,
}

/// `update_logging`.
pub(super) const UPDATE_LOGGING: Setting = Setting {
    name: "update_logging",
    description: "Whether commits of update fragments wait until the archive has their pages (extended) or not (basic)",
    values: Values::Words(&["basic", "extended"]),
    get: |settings| settings.update_logging.to_string(),
    set: |settings, value| {
        settings.update_logging = match value {
            Value::Word(1) => UpdateLogging::Extended,
            _ => UpdateLogging::Basic,
        }
    },
};

impl fmt::Display for UpdateLogging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Basic => "basic",
            Self::Extended => "extended",
        })
    }
}
