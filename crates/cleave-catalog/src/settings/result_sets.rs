//! Settings of results that stay: of materialized views, of queries that come again, and of stages.

use super::bytes::{GIB, MIB, bytes_text};
use super::{Setting, Value, Values, WHEN, when_text};

/// How REFRESH MATERIALIZED VIEW finds the rows of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RefreshMethod {
    /// By changes if that is expected to be faster.
    #[default]
    Auto,
    /// By what its tables have got and lost, wherever that can be done.
    Changes,
    /// The whole query runs.
    All,
}

/// Results of queries that are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ResultReuse {
    /// `result_reuse`: the session's queries take part.
    pub is_on: bool,
    /// `result_cache_bytes`: bytes that a database holds after a result of the session is added.
    pub cache_bytes: u64,
    /// `result_device_bytes`: the same of each device, after a stage of the session is added.
    pub device_bytes: u64,
}

impl Default for ResultReuse {
    fn default() -> Self {
        Self { is_on: false, cache_bytes: 64 * MIB, device_bytes: 256 * MIB }
    }
}

pub(super) const REFRESH_METHOD: Setting = Setting {
    name: "refresh_method",
    description: "How REFRESH MATERIALIZED VIEW finds the rows: from changed rows, by the whole query, or as is faster",
    values: Values::Words(&["auto", "changes", "all"]),
    get: |settings| match settings.limits.refresh {
        RefreshMethod::Auto => "auto".to_owned(),
        RefreshMethod::Changes => "changes".to_owned(),
        RefreshMethod::All => "all".to_owned(),
    },
    set: |settings, value| {
        settings.limits.refresh = match value {
            Value::Word(1) => RefreshMethod::Changes,
            Value::Word(2) => RefreshMethod::All,
            _ => RefreshMethod::Auto,
        };
    },
};

pub(super) const POPULATE: Setting = Setting {
    name: "populate",
    description: "Whether CREATE MATERIALIZED VIEW waits for its rows, or returns while they are made (background)",
    values: Values::Words(&["wait", "background"]),
    get: |settings| match settings.limits.populates_in_background {
        true => "background".to_owned(),
        false => "wait".to_owned(),
    },
    set: |settings, value| {
        settings.limits.populates_in_background = matches!(value, Value::Word(1));
    },
};

pub(super) const CACHE_BYTES: Setting = Setting {
    name: "result_cache_bytes",
    description: "Bytes of results that a database holds in memory for queries that come again; 0: none",
    values: Values::Bytes(0, 1024 * GIB),
    get: |settings| bytes_text(settings.limits.reuse.cache_bytes),
    set: |settings, value| settings.limits.reuse.cache_bytes = value.number(),
};

pub(super) const DEVICE_BYTES: Setting = Setting {
    name: "result_device_bytes",
    description: "Bytes of results that a database holds on each device for queries that come again; 0: none",
    values: Values::Bytes(0, 1024 * GIB),
    get: |settings| bytes_text(settings.limits.reuse.device_bytes),
    set: |settings, value| settings.limits.reuse.device_bytes = value.number(),
};

pub(super) const REUSE: Setting = Setting {
    name: "result_reuse",
    description: "Whether a query that comes again takes its result from memory while its tables have the same rows",
    values: Values::Words(&["on", "off"]),
    get: |settings| if settings.limits.reuse.is_on { "on" } else { "off" }.to_owned(),
    set: |settings, value| settings.limits.reuse.is_on = matches!(value, Value::Word(0)),
};

pub(super) const STAGES: Setting = Setting {
    name: "stages",
    description: "Whether rows of WITH queries are written to the device that makes them: on (by cost), off or always",
    values: WHEN,
    get: |settings| when_text(settings.stages),
    set: |settings, value| settings.stages = value.when(),
};
