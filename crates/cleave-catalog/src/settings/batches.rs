//! The settings `batch_reuse_min` and `batch_size_max`: which queries of a batch run at once.

use super::{Setting, Values};

/// How the queries of a batch are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BatchLimits {
    /// `batch_reuse_min`: the least reuse score with which a query joins a group.
    pub reuse_min: u32,
    /// `batch_size_max`: most queries of a group.
    pub size_max: u32,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self { reuse_min: 10, size_max: 8 }
    }
}

/// `batch_reuse_min`.
pub(super) const REUSE_MIN: Setting = Setting {
    name: "batch_reuse_min",
    description: "Reuse score from which queries of a batch run at once: 10 a shared filter column, 1 a shared output",
    values: Values::Number(0, 10_000),
    get: |settings| settings.limits.batches.reuse_min.to_string(),
    set: |settings, value| settings.limits.batches.reuse_min = value.number_u32(),
};

/// `batch_size_max`.
pub(super) const SIZE_MAX: Setting = Setting {
    name: "batch_size_max",
    description: "Most queries of a batch that run at once over the same devices",
    values: Values::Number(1, 64),
    get: |settings| settings.limits.batches.size_max.to_string(),
    set: |settings, value| settings.limits.batches.size_max = value.number_u32(),
};
