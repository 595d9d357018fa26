//! The setting `transfer`: in which form the rows of a device cross the link.
//!
//! Source: NDP result sets, section 2.1 (block I/O, block-level NDP, blocks of tuples).

use super::{Setting, Settings, Split, Value, Values, When};

/// In which form the rows of a device cross the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Transfer {
    /// As is expected to be soonest, each scan by itself.
    #[default]
    Auto,
    /// Whole pages, as they are stored.
    Native,
    /// Pages that have a row which the condition of the scan leaves.
    Pages,
    /// Blocks of rows: no pages of tables.
    Rows,
}

/// `transfer`.
pub(super) const TRANSFER: Setting = Setting {
    name: "transfer",
    description: "How rows cross the link: auto (by cost), native (pages), pages (those with a matching row) or rows",
    values: Values::Words(&["auto", "native", "pages", "rows"]),
    get: |settings| settings.transfer.word().to_owned(),
    set: |settings, value| {
        settings.transfer = match value {
            Value::Word(1) => Transfer::Native,
            Value::Word(2) => Transfer::Pages,
            Value::Word(3) => Transfer::Rows,
            _ => Transfer::Auto,
        }
    },
};

impl Transfer {
    fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Native => "native",
            Self::Pages => "pages",
            Self::Rows => "rows",
        }
    }

    /// What EXPLAIN says of it, behind other settings.
    #[must_use]
    pub fn asked(self) -> String {
        match self {
            Self::Auto => String::new(),
            _ => format!(", transfer {}", self.word()),
        }
    }
}

impl Settings {
    /// The same with what the form of transfer asks of other settings.
    #[must_use]
    pub fn for_transfer(mut self) -> Self {
        match self.transfer {
            Transfer::Pages => self.page_filter = When::Always,
            // A host that takes morsels over reads their pages.
            Transfer::Rows => self.stealing = When::Never,
            Transfer::Auto | Transfer::Native => {}
        }
        self
    }

    /// Whether a split is to be chosen that leaves no scan to the host.
    #[must_use]
    pub fn sends_rows_alone(&self) -> bool {
        let is_asked = self.transfer == Transfer::Rows || self.is_prescribed();
        is_asked && self.split_in_force() == Split::Auto
    }
}
