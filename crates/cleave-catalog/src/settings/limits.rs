//! Limits of the statements of a session.

use super::{BatchLimits, RefreshMethod, ResultReuse, Setting, Values};

/// Most tablets of a table: each has a hot segment in the manifest, and a load takes memory for each.
pub const TABLET_COUNT_MAX: u32 = 64;

/// Limits of one statement. See the settings of these names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limits {
    /// `plan_operators_max`: operators of a plan before it is optimised.
    pub plan_operators: u32,
    /// `advisory_locks_max`: advisory locks that a session may have.
    pub advisory_locks: u32,
    /// `split_gain_min`: percent of the host's predicted time that a split must save.
    pub split_gain: u32,
    /// `default_statistics_target`: how much ANALYZE reads of a table; 0: all of it, unless the database runs it by
    /// itself.
    pub statistics_target: u32,
    /// `result_reuse` and `result_cache_bytes`.
    pub reuse: ResultReuse,
    /// `refresh_method`: how REFRESH MATERIALIZED VIEW finds the rows.
    pub refresh: RefreshMethod,
    /// `populate`: CREATE MATERIALIZED VIEW returns before its rows are there.
    pub populates_in_background: bool,
    /// `batch_reuse_min` and `batch_size_max`.
    pub batches: BatchLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            plan_operators: 10_000,
            advisory_locks: 10_000,
            split_gain: 43,
            statistics_target: 0,
            reuse: ResultReuse::default(),
            refresh: RefreshMethod::default(),
            populates_in_background: false,
            batches: BatchLimits::default(),
        }
    }
}

pub(super) const ADVISORY_LOCKS: Setting = Setting {
    name: "advisory_locks_max",
    description: "Advisory locks that a session may hold, those of its transaction included",
    values: Values::Number(10, 100_000),
    get: |settings| settings.limits.advisory_locks.to_string(),
    set: |settings, value| settings.limits.advisory_locks = value.number_u32(),
};

pub(super) const PLAN_OPERATORS: Setting = Setting {
    name: "plan_operators_max",
    description: "Operators that the plan of a statement may have, those of its views included",
    values: Values::Number(100, 1_000_000),
    get: |settings| settings.limits.plan_operators.to_string(),
    set: |settings, value| settings.limits.plan_operators = value.number_u32(),
};

pub(super) const SPLIT_GAIN: Setting = Setting {
    name: "split_gain_min",
    description: "Percent of the host's predicted time that a split must save before auto takes it",
    values: Values::Number(0, 99),
    get: |settings| settings.limits.split_gain.to_string(),
    set: |settings, value| settings.limits.split_gain = value.number_u32(),
};

pub(super) const STATISTICS_TARGET: Setting = Setting {
    name: "default_statistics_target",
    description: "ANALYZE reads pages of a table until it has 300 rows for each unit of this; 0: all pages",
    values: Values::Number(0, 10_000),
    get: |settings| settings.limits.statistics_target.to_string(),
    set: |settings, value| settings.limits.statistics_target = value.number_u32(),
};

pub(super) const LOOK_UP_ROWS: Setting = Setting {
    name: "look_up_rows",
    description: "Rows up to which a statement takes the range path (no plan); 0: every statement is planned",
    values: Values::Number(0, 100_000),
    get: |settings| settings.look_up_rows.to_string(),
    set: |settings, value| settings.look_up_rows = value.number_u32(),
};
