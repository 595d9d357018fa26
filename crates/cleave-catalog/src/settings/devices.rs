//! The settings that name devices: which ones compute (`compute_on`), which ones keep the rows that a statement makes
//! (`output_on`), and where new tables lie (`default_device`); and those of how devices work together (`stealing`,
//! `exchange`, `gather`).
//!
//! Source: CORD, whose statements name the devices that compute and the one that keeps the output, or `LOCAL` for both
//! (prescriptive execution).

use super::{Setting, Settings, Split, Values, WHEN, When, put_text, when_text};

/// The word for the devices that are there anyway.
const LOCAL: &str = "local";

/// What a statement says of the devices for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prescribed<'a> {
    /// Nothing.
    Any,
    /// The devices that are there anyway: that have the pages, or that make the rows.
    Local,
    /// Those of this list of names, with commas between them.
    Named(&'a str),
}

impl<'a> Prescribed<'a> {
    fn of(text: &'a str) -> Self {
        match text {
            "" => Self::Any,
            word if word.eq_ignore_ascii_case(LOCAL) => Self::Local,
            names => Self::Named(names),
        }
    }
}

/// `compute_on`.
pub(super) const COMPUTE_ON: Setting = Setting {
    name: "compute_on",
    description: "Devices that run fragments: names, separated by commas, or local (where pages lie); empty: by cost",
    values: Values::Text,
    get: |settings| settings.compute_on.clone(),
    set: |settings, value| put_text(&mut settings.compute_on, value),
};

/// `default_device`.
pub(super) const DEFAULT_DEVICE: Setting = Setting {
    name: "default_device",
    description: "Device for the rows of new tables; several names, separated by commas, divide a table",
    values: Values::Text,
    get: |settings| settings.default_device.clone(),
    set: |settings, value| put_text(&mut settings.default_device, value),
};

/// `exchange`.
pub(super) const EXCHANGE: Setting = Setting {
    name: "exchange",
    description: "Whether devices join and group rows that they send to each other: on (by cost), off or always",
    values: WHEN,
    get: |settings| when_text(settings.exchange),
    set: |settings, value| settings.exchange = value.when(),
};

/// `gather`.
pub(super) const GATHER: Setting = Setting {
    name: "gather",
    description: "Whether a device of each node merges partial results for the host: on (by cost), off or always",
    values: WHEN,
    get: |settings| when_text(settings.gather),
    set: |settings, value| settings.gather = value.when(),
};

/// `stealing`.
pub(super) const STEALING: Setting = Setting {
    name: "stealing",
    description: "Whether idle hosts and devices take morsels of running fragments: on (by cost), off or always",
    values: WHEN,
    get: |settings| when_text(settings.stealing),
    set: |settings, value| settings.stealing = value.when(),
};

/// `output_on`.
pub(super) const OUTPUT_ON: Setting = Setting {
    name: "output_on",
    description: "Devices that keep rows which a statement makes: names, or local (that make them); empty: as placed",
    values: Values::Text,
    get: |settings| settings.output_on.clone(),
    set: |settings, value| put_text(&mut settings.output_on, value),
};

impl Settings {
    /// The devices that run fragments, as `compute_on` has it: chosen by cost, each over its own pages, or these.
    #[must_use]
    pub fn computers(&self) -> Prescribed<'_> {
        Prescribed::of(&self.compute_on)
    }

    /// The devices that keep the rows that a statement makes, as `output_on` has it: those of new tables, those that
    /// make the rows, or these.
    #[must_use]
    pub fn outputs(&self) -> Prescribed<'_> {
        Prescribed::of(&self.output_on)
    }

    /// Whether the devices that run fragments are named, and fragments may be sent.
    #[must_use]
    pub fn is_prescribed(&self) -> bool {
        self.computers() != Prescribed::Any && self.split_in_force() != Split::Host
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
