//! Settings of PostgreSQL without an effect here that its clients read or set when they connect: what this server is
//! ([`Values::ReadOnly`]), and what SET may change and SHOW then gives ([`Values::Idle`]).
//!
//! Source: PostgreSQL's manual, "Preset Options", "Query Planning" and "Client Connection Defaults".

use super::bytes::{KIB, MIB, bytes_text, parse_bytes};
use super::{Setting, Settings, Values};

/// The sessions that a server admits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Admits {
    /// All of them, those of superusers included.
    pub session_count_max: usize,
    /// Those that are kept for superusers.
    pub reserved_count: usize,
}

/// What an idle setting takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// A boolean.
    Switch,
    /// A number, with or without a unit behind it.
    Number,
    /// Bytes, in kB where there is no unit.
    Memory,
    /// One of these words.
    Words(&'static [&'static str]),
    /// Any text.
    Text,
}

impl Idle {
    /// `text` as SHOW gives it; None: the setting does not take it.
    pub(super) fn read(self, text: &str) -> Option<String> {
        let lower = text.to_ascii_lowercase();
        match self {
            Self::Switch => switch(&lower).map(str::to_owned),
            Self::Number => {
                let end =
                    lower.trim_end_matches(|unit: char| unit.is_ascii_alphabetic() || unit == ' ');
                end.parse::<f64>().ok().filter(|number| number.is_finite()).map(|_| lower)
            }
            Self::Memory => match lower.parse::<i64>() {
                Ok(-1) => Some(lower),
                Ok(number) => Some(bytes_text(u64::try_from(number).ok()?.checked_mul(KIB)?)),
                Err(_) => parse_bytes(text).filter(|bytes| *bytes < MIB * MIB).map(bytes_text),
            },
            Self::Words(words) => {
                let known = |word: &str| words.iter().find(|known| **known == word);
                let found = known(&lower).or_else(|| known(switch(&lower)?));
                found.map(|word| (*word).to_owned())
            }
            Self::Text => {
                (text.len() <= 255 && !text.contains(char::is_control)).then(|| text.to_owned())
            }
        }
    }
}

/// `on` or `off`.
fn switch(text: &str) -> Option<&'static str> {
    match text {
        "on" | "true" | "yes" | "1" | "t" | "y" | "tr" | "tru" | "ye" => Some("on"),
        "off" | "false" | "no" | "0" | "f" | "n" | "of" | "fa" | "fal" | "fals" => Some("off"),
        _ => None,
    }
}

const fn preset(name: &'static str, value: &'static str) -> Setting {
    let description = "What this server is; for clients that ask";
    // Without a value of its own it is that of `values`.
    Setting {
        name,
        description,
        values: Values::Preset(value),
        get: |_| String::new(),
        set: |_, _| {},
    }
}

/// A number of what the server admits; nothing without one.
fn admitted(settings: &Settings, of: fn(&Admits) -> usize) -> String {
    settings.client.admits.as_ref().map_or_else(String::new, |admits| of(admits).to_string())
}

const fn idle(name: &'static str, kind: Idle, default: &'static str) -> Setting {
    let description = "Of PostgreSQL; kept for clients that set it, and without an effect";
    let values = Values::Idle(kind, default);
    Setting { name, description, values, get: |_| String::new(), set: |_, _| {} }
}

const fn on(name: &'static str) -> Setting {
    idle(name, Idle::Switch, "on")
}

const fn off(name: &'static str) -> Setting {
    idle(name, Idle::Switch, "off")
}

const fn number(name: &'static str, default: &'static str) -> Setting {
    idle(name, Idle::Number, default)
}

const fn memory(name: &'static str, default: &'static str) -> Setting {
    idle(name, Idle::Memory, default)
}

const LEVELS: Idle = Idle::Words(&[
    "debug5", "debug4", "debug3", "debug2", "debug1", "debug", "log", "notice", "info", "warning",
    "error", "fatal", "panic",
]);

/// Those that SHOW knows, by name.
pub(super) const LIST: &[Setting] = &[
    on("array_nulls"),
    idle("backslash_quote", Idle::Words(&["safe_encoding", "on", "off"]), "safe_encoding"),
    preset("block_size", "4096"),
    idle("client_min_messages", LEVELS, "notice"),
    idle("constraint_exclusion", Idle::Words(&["partition", "on", "off"]), "partition"),
    number("cpu_index_tuple_cost", "0.005"),
    number("cpu_operator_cost", "0.0025"),
    number("cpu_tuple_cost", "0.01"),
    number("cursor_tuple_fraction", "0.1"),
    preset("data_checksums", "on"),
    preset("data_directory_mode", "0700"),
    number("deadlock_timeout", "1s"),
    off("debug_print_plan"),
    idle("default_toast_compression", Idle::Words(&["pglz", "lz4"]), "pglz"),
    memory("effective_cache_size", "4GB"),
    number("effective_io_concurrency", "1"),
    on("enable_async_append"),
    on("enable_bitmapscan"),
    on("enable_gathermerge"),
    on("enable_hashagg"),
    on("enable_hashjoin"),
    on("enable_incremental_sort"),
    on("enable_indexonlyscan"),
    on("enable_indexscan"),
    on("enable_material"),
    on("enable_memoize"),
    on("enable_mergejoin"),
    on("enable_nestloop"),
    on("enable_parallel_append"),
    on("enable_parallel_hash"),
    on("enable_partition_pruning"),
    off("enable_partitionwise_aggregate"),
    off("enable_partitionwise_join"),
    on("enable_seqscan"),
    on("enable_sort"),
    on("enable_tidscan"),
    on("escape_string_warning"),
    number("from_collapse_limit", "8"),
    preset("fsync", "on"),
    preset("full_page_writes", "on"),
    on("geqo"),
    number("geqo_threshold", "12"),
    number("gin_fuzzy_search_limit", "0"),
    preset("hot_standby", "on"),
    preset("in_hot_standby", "off"),
    number("join_collapse_limit", "8"),
    preset("lc_collate", "C"),
    preset("lc_ctype", "C"),
    idle("lc_messages", Idle::Text, "C"),
    idle("lc_monetary", Idle::Text, "C"),
    idle("lc_numeric", Idle::Text, "C"),
    idle("lc_time", Idle::Text, "C"),
    off("lo_compat_privileges"),
    off("log_duration"),
    idle("log_error_verbosity", Idle::Words(&["default", "terse", "verbose"]), "default"),
    number("log_min_duration_statement", "-1"),
    idle("log_min_error_statement", LEVELS, "error"),
    idle("log_min_messages", LEVELS, "warning"),
    idle("log_statement", Idle::Words(&["none", "ddl", "mod", "all"]), "none"),
    memory("logical_decoding_work_mem", "64MB"),
    memory("maintenance_work_mem", "64MB"),
    Setting {
        get: |settings| admitted(settings, |admits| admits.session_count_max),
        ..preset("max_connections", "1000")
    },
    preset("max_function_args", "100"),
    preset("max_identifier_length", "63"),
    preset("max_index_keys", "32"),
    preset("max_locks_per_transaction", "64"),
    number("max_parallel_maintenance_workers", "2"),
    number("max_parallel_workers", "8"),
    number("max_parallel_workers_per_gather", "2"),
    preset("max_prepared_transactions", "0"),
    preset("max_replication_slots", "0"),
    preset("max_stack_depth", "2MB"),
    preset("max_wal_senders", "0"),
    preset("max_worker_processes", "8"),
    memory("min_parallel_index_scan_size", "512kB"),
    memory("min_parallel_table_scan_size", "8MB"),
    on("parallel_leader_participation"),
    number("parallel_setup_cost", "1000"),
    number("parallel_tuple_cost", "0.1"),
    idle("password_encryption", Idle::Words(&["scram-sha-256"]), "scram-sha-256"),
    idle(
        "plan_cache_mode",
        Idle::Words(&["auto", "force_generic_plan", "force_custom_plan"]),
        "auto",
    ),
    off("quote_all_identifiers"),
    number("random_page_cost", "4"),
    preset("segment_size", "1GB"),
    number("seq_page_cost", "1"),
    preset("shared_buffers", "128MB"),
    preset("shared_preload_libraries", ""),
    Setting {
        get: |settings| admitted(settings, |admits| admits.reserved_count),
        ..preset("superuser_reserved_connections", "3")
    },
    idle(
        "synchronous_commit",
        Idle::Words(&["on", "off", "local", "remote_write", "remote_apply"]),
        "on",
    ),
    number("tcp_keepalives_count", "0"),
    number("tcp_keepalives_idle", "0"),
    number("tcp_keepalives_interval", "0"),
    number("tcp_user_timeout", "0"),
    memory("temp_buffers", "8MB"),
    idle("temp_tablespaces", Idle::Text, ""),
    on("track_activities"),
    on("track_counts"),
    idle("track_functions", Idle::Words(&["none", "pl", "all"]), "none"),
    off("track_io_timing"),
    off("transform_null_equals"),
    number("vacuum_cost_delay", "0"),
    number("vacuum_cost_limit", "200"),
    preset("wal_block_size", "8192"),
    off("wal_compression"),
    preset("wal_level", "replica"),
    memory("work_mem", "4MB"),
    idle("xmlbinary", Idle::Words(&["base64", "hex"]), "base64"),
    off("zero_damaged_pages"),
];
