//! What the filter history of a side spares a scan: pages whose conditions are known are not evaluated, and read only
//! where a row is left.

use std::borrow::Cow;

use super::{Conditions, ScanWork};

/// The pages of a scan whose conditions one side knows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct KnownPages {
    /// Share of the pages whose conditions are known; 0: those of none.
    pub share: f64,
    /// Share of these that is read: those with a row left.
    pub read: f64,
    /// Bytes of their chunks that are read, by those that are read where nothing is known.
    pub bytes: f64,
}

impl ScanWork {
    /// The scan on a side that knows the conditions of `known`.
    pub(super) fn with(&self, known: &KnownPages) -> Cow<'_, Self> {
        let share = known.share.clamp(0.0, 1.0);
        if share <= 0.0 {
            return Cow::Borrowed(self);
        }
        let asked = 1.0 - share;
        let left = |of_known: f64| asked + share * of_known.clamp(0.0, 1.0);
        let conditions = Conditions {
            comparisons: self.conditions.comparisons * asked,
            patterns: self.conditions.patterns * asked,
            text_bytes: self.conditions.text_bytes * asked,
            // Keys of joins above are looked up of every row that is left.
            key_sets: self.conditions.key_sets,
        };
        Cow::Owned(Self {
            filter_columns: self.filter_columns * asked,
            pages: self.pages * left(known.read),
            chunk_bytes: self.chunk_bytes * left(known.bytes),
            held_bytes: self.held_bytes * left(known.bytes),
            conditions,
            ..self.clone()
        })
    }
}
