//! The settings that name devices: which ones compute (`compute_on`), and where new tables lie (`default_device`).
//!
//! Source: CORD, whose statements name the devices that compute, or `LOCAL` (prescriptive execution).

use super::{Setting, Settings, Split, Value, Values, When};

/// The word for the devices where the pages lie.
const LOCAL: &str = "local";

/// The devices that run fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Computers<'a> {
    /// Wherever it is expected to be soonest, the host included.
    Any,
    /// Each device over the pages that lie there.
    Local,
    /// Those of this list of names, with commas between them.
    Named(&'a str),
}

/// `compute_on`.
pub(super) const COMPUTE_ON: Setting = Setting {
    name: "compute_on",
    description: "Devices that run fragments: names, separated by commas, or local (where pages lie); empty: by cost",
    values: Values::Text,
    get: |settings| settings.compute_on.clone(),
    set: |settings, value| {
        if let Value::Text(text) = value {
            settings.compute_on = text;
        }
    },
};

/// `default_device`.
pub(super) const DEFAULT_DEVICE: Setting = Setting {
    name: "default_device",
    description: "Device for the rows of new tables; several names, separated by commas, divide a table",
    values: Values::Text,
    get: |settings| settings.default_device.clone(),
    set: |settings, value| {
        if let Value::Text(text) = value {
            settings.default_device = text;
        }
    },
};

impl Settings {
    /// The devices that run fragments, as `compute_on` has it.
    #[must_use]
    pub fn computers(&self) -> Computers<'_> {
        match self.compute_on.as_str() {
            "" => Computers::Any,
            word if word.eq_ignore_ascii_case(LOCAL) => Computers::Local,
            names => Computers::Named(names),
        }
    }

    /// Whether the devices that run fragments are named, and fragments may be sent.
    #[must_use]
    pub fn is_prescribed(&self) -> bool {
        self.computers() != Computers::Any && self.split_in_force() != Split::Host
    }

    /// The same with what naming devices asks of other settings.
    #[must_use]
    pub fn for_prescribed(mut self) -> Self {
        if self.is_prescribed() {
            // Neither the host nor another device takes over what is to be done there.
            self.stealing = When::Never;
        }
        self
    }
}
