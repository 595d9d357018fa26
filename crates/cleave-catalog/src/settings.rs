//! The settings of a session: a name and a text in (`SET split = h0`, `--set split=h0`), a typed value out.
//!
//! One table, [`LIST`], defines names, descriptions, allowed values and defaults. SET, RESET, SHOW, SHOW ALL and error
//! messages read it. Every setting in it has an effect, except for a few that PostgreSQL's clients set: those accept
//! only the value that is in force here.
//!
//! Source: `docs/design/split-and-cost.md`.

mod allowed;
mod batches;
mod bytes;
mod client;
mod custom;
mod devices;
mod for_clients;
mod interval_style;
mod join_order;
mod limits;
mod presets;
mod result_sets;
mod search_path;
mod stack;
mod timeouts;
pub mod transaction;
mod transfer;
mod update_locking;
mod update_logging;
mod update_placement;

use std::fmt;
use std::sync::Arc;

use cleave_fragment::broadcast::BROADCAST_BYTES_MAX;
pub use cleave_plan::cost::CostStrategy;
pub use cleave_plan::split::{Split, When};

use crate::error::{Error, Fault, NameKind, Result};
use crate::value::parse;
pub use batches::BatchLimits;
use bytes::{GIB, KIB, MIB};
pub use bytes::{bytes_text, parse_bytes};
pub use client::Client;
use custom::CustomSettings;
pub use devices::Prescribed;
use for_clients::only_means;
pub use interval_style::IntervalStyle;
pub use limits::{Limits, TABLET_COUNT_MAX};
pub use presets::{Admits, Idle};
pub use result_sets::{RefreshMethod, ResultReuse};
pub use search_path::SearchPath;
pub use stack::Stack;
pub use timeouts::Timeouts;
pub use transfer::Transfer;
pub use update_locking::UpdateLocking;
pub use update_logging::UpdateLogging;
pub use update_placement::UpdatePlacement;

/// The join operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JoinMethod {
    /// Hash join where there is an equality, nested loops otherwise.
    Auto,
    /// Hash join; a join without an equality is refused.
    Hash,
    /// Nested loops over all pairs.
    NestedLoop,
}

/// The isolation level of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// Each statement sees what was committed before it began.
    ReadCommitted,
    /// All statements see what was committed before the first of them began.
    RepeatableRead,
    /// The same, and committed transactions have a serial order.
    Serializable,
}

/// The modes of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransactionModes {
    /// Its isolation level.
    pub isolation: Isolation,
    /// It may only read.
    pub read_only: bool,
    /// It waits for a safe snapshot, in which it cannot fail.
    pub deferrable: bool,
}

impl TransactionModes {
    /// The modes of a single statement's own transaction.
    pub const OWN: Self =
        Self { isolation: Isolation::ReadCommitted, read_only: false, deferrable: false };
}

/// The order of inner joins.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum JoinOrder {
    /// By predicted cost.
    Auto,
    /// As written in the statement.
    Written,
    /// These first, in this order, then the others by predicted cost.
    Leading(Vec<String>),
}

/// The values of one session's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `stack`.
    pub stack: Stack,
    /// `ndp`: whether fragments may be sent at all.
    pub ndp: bool,
    /// `split`, as set; [`Settings::split_in_force`] is the one in force.
    pub split: Split,
    /// `join_method`: the join operator.
    pub join_method: JoinMethod,
    /// `join_order`: whether inner joins are reordered.
    pub join_order: JoinOrder,
    /// `join_order_with_split`: whether the order of joins and the split are chosen together.
    pub join_order_with_split: When,
    /// `cost_strategy`: how splits are compared under `auto`.
    pub cost_strategy: CostStrategy,
    /// `threads`: partitions of the host's part of a plan; 0: one per core.
    pub threads: u32,
    /// `slot_bytes`: size of one slot of the result ring, in bytes; None: chosen for each fragment.
    pub slot_bytes: Option<u32>,
    /// `slot_count`: slots of the result ring.
    pub slot_count: u32,
    /// `device_memory`: bytes that one fragment may use on a device.
    pub device_memory_bytes: u64,
    /// `device_spill`: bytes that one fragment may spill on a device; 0: none.
    pub device_spill_bytes: u64,
    /// `batch_size`: rows of one batch between operators.
    pub batch_size: u32,
    /// `shipped_delta_bytes`: bytes of delta that are shipped with a query; 0: the delta is always flushed first.
    pub shipped_delta_bytes: u64,
    /// `broadcast_bytes`: bytes of rows that may be sent to one run of a fragment on a device; 0: none.
    pub broadcast_bytes: u64,
    /// `compute_on`: see [`Settings::computers`].
    pub compute_on: String,
    /// `output_on`: see [`Settings::outputs`].
    pub output_on: String,
    /// `default_device`: names of the devices of new tables, separated by commas.
    pub default_device: String,
    /// `default_tablets`: tablets of a new table; 0: one per device.
    pub default_tablets: u32,
    /// `default_transaction_isolation`: the isolation level of a BEGIN without one.
    pub default_transaction_isolation: Isolation,
    /// `default_transaction_read_only`: whether a BEGIN without this mode is read-only.
    pub default_transaction_read_only: bool,
    /// `default_transaction_deferrable`: whether a read-only one waits for a safe snapshot if BEGIN does not say.
    pub default_transaction_deferrable: bool,
    /// The modes of the present transaction; None: the defaults above.
    pub transaction: Option<TransactionModes>,
    /// `dense_aggregates`: aggregates may work on encoded pages.
    pub dense_aggregates: bool,
    /// `exchange`: whether devices join and group rows that they send to each other.
    pub exchange: When,
    /// `gather`: whether engines of storage nodes merge partial results before they go to the host.
    pub gather: When,
    /// `index_scan`: whether look-ups and scans may go through indexes.
    pub index_scan: When,
    /// `key_filters`: whether join keys are sent to devices as Bloom filters.
    pub key_filters: When,
    /// `late_materialisation`: when wide columns are fetched above joins.
    pub late_materialisation: When,
    /// `page_filter`: when devices leave out pages without a matching row before the host reads the others.
    pub page_filter: When,
    /// `filter_history`: when what conditions are true for is noted, and used again.
    pub filter_history: When,
    /// `stages`: when queries of WITH are written to the device that makes their rows.
    pub stages: When,
    /// `stealing`: whether the host takes morsels of fragments that run on devices.
    pub stealing: When,
    /// `transfer`: in which form rows cross the link.
    pub transfer: Transfer,
    /// `update_locking`: what update fragments lock.
    pub update_locking: UpdateLocking,
    /// `update_logging`: what commits of update fragments wait for.
    pub update_logging: UpdateLogging,
    /// `update_placement`: where bulk updates and deletes run.
    pub update_placement: UpdatePlacement,
    /// `lock_timeout`: milliseconds that a statement waits for a lock; 0: no limit.
    pub lock_timeout_ms: u64,
    /// `look_up_rows`: rows up to which statements take the range path, without a plan; 0: none does.
    pub look_up_rows: u32,
    /// Limits on its statements.
    pub limits: Limits,
    /// `query_log`: queries are entered in the query log.
    pub query_log: bool,
    /// `use_statistics`: the planner uses the statistics of ANALYZE.
    pub use_statistics: bool,
    /// `application_name`: the client program's name for itself.
    pub application_name: String,
    /// `statement_timeout`: milliseconds after which a statement is ended; 0: never.
    pub statement_timeout_ms: u32,
    /// Timeouts after which a server ends a session.
    pub timeouts: Timeouts,
    /// `as_of`: queries read the database as it was then; empty: as it is.
    pub as_of: String,
    /// `search_path`: the schemas searched for names without one.
    pub search_path: Arc<SearchPath>,
    /// `IntervalStyle`: how intervals are written to clients.
    pub interval_style: IntervalStyle,
    /// Those with a point in their names, and idle ones that were set.
    pub custom: CustomSettings,
    /// Whose session it is.
    pub client: Client,
}

/// A row of SHOW ALL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingRow {
    /// Name.
    pub name: &'static str,
    /// Value in this session, as SET would take it.
    pub value: String,
    /// Its meaning and its values.
    pub description: &'static str,
    /// For a time, its milliseconds and their maximum.
    pub milliseconds: Option<(u64, u64)>,
}

/// One setting: its name, its meaning, and the conversions between text and value.
pub struct Setting {
    /// Name, in lower case, except for PostgreSQL's own spellings.
    pub name: &'static str,
    /// Its meaning, in one sentence.
    pub description: &'static str,
    /// Its values, for messages and completion.
    pub values: Values,
    get: fn(&Settings) -> String,
    set: fn(&mut Settings, Value),
}

/// Puts the value of a setting that is a text into its `place`.
fn put_text(place: &mut String, value: Value) {
    if let Value::Text(text) = value {
        *place = text;
    }
}

/// The values of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// One of these words.
    Words(&'static [&'static str]),
    /// A whole number from the first to the second.
    Number(u64, u64),
    /// A time in whole milliseconds, up to as many, with a unit (`us`, `ms`, `s`, `min`, `h`, `d`) or without.
    Milliseconds(u64),
    /// A number of bytes from the first to the second, with a unit (`B`, `kB`, `MB`, `GB`) or without.
    Bytes(u64, u64),
    /// The same, or `auto`.
    BytesOrAuto(u64, u64),
    /// Any text of at most 63 bytes.
    Text,
    /// A `timestamp with time zone`, or nothing.
    Time,
    /// The name of a split.
    Split,
    /// `auto`, `written`, or names of tables.
    JoinOrder,
    /// Names of schemas.
    SearchPath,
    /// Only this one; the setting exists because clients set it.
    Only(&'static str),
    /// The same; the others are accepted too, and change nothing.
    OnlyOr(&'static str, &'static [&'static str]),
    /// Read-only.
    ReadOnly(&'static str),
    /// The same, which [`LIST`] does not have.
    Preset(&'static str),
    /// What has no effect: what it takes, and its default.
    Idle(Idle, &'static str),
}

/// A checked value on its way from text into [`Settings`].
enum Value {
    Word(usize),
    Number(u64),
    Text(String),
    Split(Split),
    JoinOrder(JoinOrder),
    SearchPath(SearchPath),
}

/// Most bytes of the value of a setting.
pub const VALUE_BYTES_MAX: usize = 64 << 10;

/// The version for clients: that of PostgreSQL whose catalog this one follows, then our own.
pub const SERVER_VERSION: &str = concat!("15.0 (Cleave ", env!("CARGO_PKG_VERSION"), ")");

/// Every setting, by name.
pub const LIST: &[Setting] = &[
    limits::ADVISORY_LOCKS,
    Setting {
        name: "application_name",
        description: "Name of the client program, shown in the list of sessions",
        values: Values::Text,
        get: |settings| settings.application_name.clone(),
        set: |settings, value| put_text(&mut settings.application_name, value),
    },
    Setting {
        name: "as_of",
        description: "Queries read the database as of this time, within version_retention; empty: as it is now",
        values: Values::Time,
        get: |settings| settings.as_of.clone(),
        set: |settings, value| put_text(&mut settings.as_of, value),
    },
    batches::REUSE_MIN,
    Setting {
        name: "batch_size",
        description: "Rows per batch between operators",
        values: Values::Number(1, 65_536),
        get: |settings| settings.batch_size.to_string(),
        set: |settings, value| settings.batch_size = value.number_u32(),
    },
    batches::SIZE_MAX,
    Setting {
        name: "broadcast_bytes",
        description: "Bytes of rows that the host may send to a fragment for a join; 0: the host runs such joins",
        values: Values::Bytes(0, BROADCAST_BYTES_MAX),
        get: |settings| bytes_text(settings.broadcast_bytes),
        set: |settings, value| settings.broadcast_bytes = value.number(),
    },
    fixed("bytea_output", "How bytes are written", "hex"),
    for_clients::CHECK_FUNCTION_BODIES,
    fixed("client_encoding", "Encoding of text to and from the client", "UTF8"),
    devices::COMPUTE_ON,
    Setting {
        name: "cost_strategy",
        description: "Cost model of split = auto: makespan (predicted finish time) or paper (hybridNDP's equations)",
        values: Values::Words(&["makespan", "paper"]),
        get: |settings| settings.cost_strategy.to_string(),
        set: |settings, value| {
            settings.cost_strategy = match value {
                Value::Word(1) => CostStrategy::Paper,
                _ => CostStrategy::Makespan,
            }
        },
    },
    fixed("DateStyle", "How dates are written and read", "ISO, MDY"),
    devices::DEFAULT_DEVICE,
    limits::STATISTICS_TARGET,
    for_clients::DEFAULT_TABLE_ACCESS_METHOD,
    for_clients::DEFAULT_TABLESPACE,
    Setting {
        name: "default_tablets",
        description: "Tablets of a new table; 0: one per device",
        values: Values::Number(0, TABLET_COUNT_MAX as u64),
        get: |settings| settings.default_tablets.to_string(),
        set: |settings, value| settings.default_tablets = value.number_u32(),
    },
    transaction::DEFAULT_DEFERRABLE,
    transaction::DEFAULT_ISOLATION,
    transaction::DEFAULT_READ_ONLY,
    Setting {
        name: "dense_aggregates",
        description: "Whether aggregates may work on encoded pages: on, or off for comparison",
        values: Values::Words(&["on", "off"]),
        get: |settings| if settings.dense_aggregates { "on" } else { "off" }.to_owned(),
        set: |settings, value| settings.dense_aggregates = matches!(value, Value::Word(0)),
    },
    Setting {
        name: "device_memory",
        description: "Bytes of memory that one fragment may use on a device",
        values: Values::Bytes(MIB, 1024 * GIB),
        get: |settings| bytes_text(settings.device_memory_bytes),
        set: |settings, value| settings.device_memory_bytes = value.number(),
    },
    Setting {
        name: "device_spill",
        description: "Bytes that one fragment may spill on a device; 0: no spilling, the host runs the fragment",
        values: Values::Bytes(0, 1024 * GIB),
        get: |settings| bytes_text(settings.device_spill_bytes),
        set: |settings, value| settings.device_spill_bytes = value.number(),
    },
    devices::EXCHANGE,
    fixed("extra_float_digits", "Floats are written with all digits that they need", "1"),
    stack::FILTER_HISTORY,
    devices::GATHER,
    timeouts::IDLE_IN_TRANSACTION,
    timeouts::IDLE,
    Setting {
        name: "index_scan",
        description: "Use of indexes: on (by cost), off, or always (also for join keys where it does not pay)",
        values: WHEN,
        get: |settings| when_text(settings.index_scan),
        set: |settings, value| settings.index_scan = value.when(),
    },
    fixed("integer_datetimes", "Times are whole microseconds", "on"),
    interval_style::INTERVAL_STYLE,
    fixed("jit", "Whether queries are compiled", "off"),
    Setting {
        name: "join_method",
        description: "Join operator: auto (hash join where there is an equality), hash or nested_loop",
        values: Values::Words(&["auto", "hash", "nested_loop"]),
        get: |settings| match settings.join_method {
            JoinMethod::Auto => "auto".to_owned(),
            JoinMethod::Hash => "hash".to_owned(),
            JoinMethod::NestedLoop => "nested_loop".to_owned(),
        },
        set: |settings, value| {
            settings.join_method = match value {
                Value::Word(1) => JoinMethod::Hash,
                Value::Word(2) => JoinMethod::NestedLoop,
                _ => JoinMethod::Auto,
            }
        },
    },
    Setting {
        name: "join_order",
        description: "Order of inner joins: auto (by cost), written, or the first tables, as in 'a b c'",
        values: Values::JoinOrder,
        get: |settings| settings.join_order.to_string(),
        set: |settings, value| {
            if let Value::JoinOrder(order) = value {
                settings.join_order = order;
            }
        },
    },
    Setting {
        name: "join_order_with_split",
        description: "Whether auto compares the splits of several join orders: on, off or always",
        values: WHEN,
        get: |settings| when_text(settings.join_order_with_split),
        set: |settings, value| settings.join_order_with_split = value.when(),
    },
    Setting {
        name: "key_filters",
        description: "Whether join keys go to devices as Bloom filters: on (by cost), off or always",
        values: WHEN,
        get: |settings| when_text(settings.key_filters),
        set: |settings, value| settings.key_filters = value.when(),
    },
    Setting {
        name: "late_materialisation",
        description: "Whether fragments fetch wide columns after their joins: on (by cost), off or always",
        values: WHEN,
        get: |settings| when_text(settings.late_materialisation),
        set: |settings, value| settings.late_materialisation = value.when(),
    },
    timeouts::LOCK,
    limits::LOOK_UP_ROWS,
    Setting {
        name: "ndp",
        description: "Whether fragments may be sent to devices; off overrides stack and split without an error",
        values: Values::Words(&["on", "off"]),
        get: |settings| if settings.ndp { "on" } else { "off" }.to_owned(),
        set: |settings, value| settings.ndp = matches!(value, Value::Word(0)),
    },
    devices::OUTPUT_ON,
    stack::PAGE_FILTER,
    limits::PLAN_OPERATORS,
    result_sets::POPULATE,
    Setting {
        name: "query_log",
        description: "Whether queries are recorded in the table cleave.query_log: on or off",
        values: Values::Words(&["on", "off"]),
        get: |settings| if settings.query_log { "on" } else { "off" }.to_owned(),
        set: |settings, value| settings.query_log = matches!(value, Value::Word(0)),
    },
    result_sets::REFRESH_METHOD,
    result_sets::CACHE_BYTES,
    result_sets::DEVICE_BYTES,
    result_sets::REUSE,
    for_clients::ROW_SECURITY,
    search_path::SEARCH_PATH,
    fixed("server_encoding", "Encoding of text in the database", "UTF8"),
    Setting {
        name: "server_version",
        description: "Version of PostgreSQL that clients see, and the version of Cleave",
        values: Values::ReadOnly(SERVER_VERSION),
        get: |_| SERVER_VERSION.to_owned(),
        set: |_, _| {},
    },
    for_clients::SERVER_VERSION_NUM,
    Setting {
        name: "shipped_delta_bytes",
        description: "Bytes of delta that may be shipped with a query; a larger delta is flushed first; 0: always",
        values: Values::Bytes(0, 8 * MIB),
        get: |settings| bytes_text(settings.shipped_delta_bytes),
        set: |settings, value| settings.shipped_delta_bytes = value.number(),
    },
    Setting {
        name: "slot_bytes",
        description: "Size of one slot of the result ring; auto: chosen for each fragment by its predicted result",
        values: Values::BytesOrAuto(KIB, 16 * MIB),
        get: |settings| match settings.slot_bytes {
            Some(bytes) => bytes_text(u64::from(bytes)),
            None => "auto".to_owned(),
        },
        set: |settings, value| {
            settings.slot_bytes = match value {
                Value::Word(_) => None,
                number => Some(number.number_u32()),
            }
        },
    },
    Setting {
        name: "slot_count",
        description: "Slots of the result ring; a device stalls when all are full",
        values: Values::Number(1, 1024),
        get: |settings| settings.slot_count.to_string(),
        set: |settings, value| settings.slot_count = value.number_u32(),
    },
    Setting {
        name: "split",
        description: "Where the plan is cut: host, h0, h1, h2, ... (above that many joins), h1+, h2+, ..., g0, g1, ... \
                      (above groups that are complete on each device), ndp or auto",
        values: Values::Split,
        get: |settings| settings.split.to_string(),
        set: |settings, value| {
            if let Value::Split(split) = value {
                settings.split = split;
            }
        },
    },
    limits::SPLIT_GAIN,
    stack::STACK,
    result_sets::STAGES,
    fixed("standard_conforming_strings", "Backslashes in '...' are plain characters", "on"),
    timeouts::STATEMENT,
    devices::STEALING,
    for_clients::SYNCHRONIZE_SEQSCANS,
    Setting {
        name: "threads",
        description: "Partitions of the host's part of a plan; 0: one per core",
        values: Values::Number(0, 1024),
        get: |settings| settings.threads.to_string(),
        set: |settings, value| settings.threads = value.number_u32(),
    },
    fixed("TimeZone", "Time zone of timestamps with time zone", "UTC"),
    transaction::DEFERRABLE,
    transaction::ISOLATION,
    transaction::READ_ONLY,
    timeouts::TRANSACTION,
    transfer::TRANSFER,
    update_locking::UPDATE_LOCKING,
    update_logging::UPDATE_LOGGING,
    update_placement::UPDATE_PLACEMENT,
    Setting {
        name: "use_statistics",
        description: "Whether the planner uses the statistics of ANALYZE: on, or off for comparison",
        values: Values::Words(&["on", "off"]),
        get: |settings| if settings.use_statistics { "on" } else { "off" }.to_owned(),
        set: |settings, value| settings.use_statistics = matches!(value, Value::Word(0)),
    },
    for_clients::XMLOPTION,
];

const fn fixed(name: &'static str, description: &'static str, only: &'static str) -> Setting {
    Setting {
        name,
        description,
        values: Values::Only(only),
        get: |_| String::new(),
        set: |_, _| {},
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            stack: Stack::Ndp,
            ndp: true,
            split: Split::Auto,
            join_method: JoinMethod::Auto,
            join_order: JoinOrder::Auto,
            join_order_with_split: When::Never,
            cost_strategy: CostStrategy::default(),
            threads: 0,
            slot_bytes: None,
            slot_count: 16,
            device_memory_bytes: 64 * MIB,
            device_spill_bytes: 256 * MIB,
            batch_size: 8192,
            broadcast_bytes: 16 * MIB,
            shipped_delta_bytes: MIB,
            compute_on: String::new(),
            output_on: String::new(),
            default_device: "embedded".to_owned(),
            default_tablets: 0,
            default_transaction_isolation: Isolation::ReadCommitted,
            default_transaction_read_only: false,
            default_transaction_deferrable: false,
            transaction: None,
            dense_aggregates: true,
            exchange: When::Never,
            gather: When::Never,
            index_scan: When::WherePays,
            key_filters: When::WherePays,
            late_materialisation: When::WherePays,
            page_filter: When::WherePays,
            filter_history: When::WherePays,
            stages: When::WherePays,
            stealing: When::WherePays,
            transfer: Transfer::Auto,
            update_locking: UpdateLocking::Shared,
            update_logging: UpdateLogging::Basic,
            update_placement: UpdatePlacement::Auto,
            lock_timeout_ms: 0,
            look_up_rows: 1000,
            limits: Limits::default(),
            query_log: true,
            use_statistics: true,
            application_name: String::new(),
            statement_timeout_ms: 0,
            timeouts: Timeouts::default(),
            as_of: String::new(),
            search_path: Arc::default(),
            interval_style: IntervalStyle::default(),
            custom: CustomSettings::default(),
            client: Client::default(),
        }
    }
}

impl Settings {
    /// Sets one value from its text. Names and words are case-insensitive.
    ///
    /// # Errors
    /// [`Error::UnknownName`] with the nearest name, [`Error::SettingValue`] with what the setting takes; 54000: the
    /// value is longer than [`VALUE_BYTES_MAX`].
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        check_length(value.len())?;
        if CustomSettings::is_name(name) {
            return self.custom.set(name, value);
        }
        let setting = find(name)?;
        let checked = setting.values.check(value).ok_or_else(|| Error::SettingValue {
            name: setting.name,
            value: value.to_owned(),
            expected: setting.values.to_string(),
        })?;
        match (setting.values, checked) {
            (Values::Idle(..), Value::Text(text)) => return self.custom.set(setting.name, &text),
            (_, checked) => (setting.set)(self, checked),
        }
        Ok(())
    }

    /// The name of a setting as it is listed.
    ///
    /// # Errors
    /// [`Error::UnknownName`] with the nearest name.
    pub fn listed_name(name: &str) -> Result<String> {
        match CustomSettings::is_name(name) {
            true => Ok(name.to_ascii_lowercase()),
            false => find(name).map(|setting| setting.name.to_owned()),
        }
    }

    /// Bytes of the texts in them.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        let texts = [&self.compute_on, &self.output_on, &self.default_device, &self.as_of];
        let texts = texts.into_iter().chain([&self.application_name]).map(String::len);
        texts.sum::<usize>() + self.search_path.byte_count() + self.custom.byte_count()
    }

    /// Puts one setting back to its default.
    ///
    /// # Errors
    /// [`Error::UnknownName`] with the nearest name.
    pub fn reset(&mut self, name: &str) -> Result<()> {
        if CustomSettings::is_name(name) && self.custom.get(name).is_some() {
            self.custom.reset(Some(name));
            return Ok(());
        }
        let setting = find(name)?;
        self.custom.forget(setting.name);
        if matches!(setting.values, Values::Only(_) | Values::OnlyOr(..) | Values::ReadOnly(_))
            || matches!(setting.values, Values::Preset(_) | Values::Idle(..))
        {
            return Ok(());
        }
        let default = (setting.get)(&Self::default());
        self.set(name, &default)
    }

    /// Puts every setting back to its default.
    pub fn reset_all(&mut self) {
        let client = std::mem::take(&mut self.client);
        let mut custom = std::mem::take(&mut self.custom);
        custom.reset(None);
        *self = Self { client, custom, transaction: self.transaction, ..Self::default() };
    }

    /// The value of one setting, as SET would take it.
    ///
    /// # Errors
    /// [`Error::UnknownName`] with the nearest name.
    pub fn show(&self, name: &str) -> Result<String> {
        if let Some(value) = self.custom.get(name) {
            return Ok(value.clone());
        }
        find(name).map(|setting| setting.value(self))
    }

    /// Every setting with its value, by name.
    #[must_use]
    pub fn show_all(&self) -> Vec<SettingRow> {
        LIST.iter().map(|setting| setting.row(self)).collect()
    }

    /// The same of those without an effect here, which SHOW ALL leaves out.
    #[must_use]
    pub fn show_presets(&self) -> Vec<SettingRow> {
        presets::LIST.iter().map(|setting| setting.row(self)).collect()
    }

    /// The split in force: `host` if no fragments may be sent, or pages are to cross the link, whatever `split` is.
    #[must_use]
    pub fn split_in_force(&self) -> Split {
        match (self.pages_only(), self.transfer) {
            (Some(_), _) | (None, Transfer::Pages) => Split::Host,
            (None, _) => self.split,
        }
    }

    /// The setting that forbids fragments, if any.
    #[must_use]
    pub fn pages_only(&self) -> Option<&'static str> {
        match self.stack {
            _ if !self.ndp => Some("ndp is off"),
            Stack::Blk => Some("stack is blk"),
            Stack::Native => Some("stack is native"),
            Stack::Ndp if self.transfer == Transfer::Native => Some("transfer is native"),
            Stack::Ndp => None,
        }
    }
}

impl Setting {
    fn row(&self, settings: &Settings) -> SettingRow {
        let value = self.value(settings);
        let milliseconds = match self.values {
            Values::Milliseconds(max) => timeouts::milliseconds(&value).zip(Some(max)),
            _ => None,
        };
        let Self { name, description, .. } = self;
        SettingRow { name, value, description, milliseconds }
    }

    fn value(&self, settings: &Settings) -> String {
        match self.values {
            Values::Only(only) | Values::OnlyOr(only, _) => only.to_owned(),
            Values::Preset(preset) => match (self.get)(settings) {
                own if own.is_empty() => preset.to_owned(),
                own => own,
            },
            Values::Idle(_, default) => {
                settings.custom.get(self.name).map_or(default, String::as_str).to_owned()
            }
            _ => (self.get)(settings),
        }
    }
}

impl Values {
    fn check(&self, text: &str) -> Option<Value> {
        let text = text.trim();
        match self {
            Self::Words(words) => {
                words.iter().position(|word| word.eq_ignore_ascii_case(text)).map(Value::Word)
            }
            Self::Number(min, max) => {
                text.parse().ok().filter(|number| (min..=max).contains(&number)).map(Value::Number)
            }
            Self::Milliseconds(max) => {
                timeouts::milliseconds(text).filter(|number| number <= max).map(Value::Number)
            }
            Self::Bytes(min, max) => {
                parse_bytes(text).filter(|number| (min..=max).contains(&number)).map(Value::Number)
            }
            Self::BytesOrAuto(..) if text.eq_ignore_ascii_case("auto") => Some(Value::Word(0)),
            Self::BytesOrAuto(min, max) => Self::Bytes(*min, *max).check(text),
            Self::Text => (text.len() <= 63 && !text.contains(char::is_control))
                .then(|| Value::Text(text.to_owned())),
            Self::Time => (text.is_empty() || parse::timestamp_tz(text).is_ok())
                .then(|| Value::Text(text.to_owned())),
            Self::Split => text.to_ascii_lowercase().parse().ok().map(Value::Split),
            Self::JoinOrder => join_order::parse(text).map(Value::JoinOrder),
            Self::SearchPath => SearchPath::parse(text).map(Value::SearchPath),
            Self::Only(only) => only_means(only, text).then(|| Value::Text((*only).to_owned())),
            Self::OnlyOr(only, others) => std::iter::once(only)
                .chain(*others)
                .any(|word| word.eq_ignore_ascii_case(text))
                .then(|| Value::Text((*only).to_owned())),
            Self::Idle(kind, _) => kind.read(text).map(Value::Text),
            Self::ReadOnly(_) | Self::Preset(_) => None,
        }
    }
}

/// The words of an [`Isolation`]. READ UNCOMMITTED is READ COMMITTED, as in PostgreSQL.
const ISOLATIONS: Values =
    Values::Words(&["read committed", "repeatable read", "serializable", "read uncommitted"]);

/// The words of a [`When`].
const WHEN: Values = Values::Words(&["on", "off", "always"]);

fn when_text(when: When) -> String {
    match when {
        When::WherePays => "on",
        When::Never => "off",
        When::Always => "always",
    }
    .to_owned()
}

impl Value {
    fn number(&self) -> u64 {
        match self {
            Self::Number(number) => *number,
            _ => 0,
        }
    }

    /// Of [`WHEN`].
    fn isolation(&self) -> Isolation {
        match self {
            Self::Word(1) => Isolation::RepeatableRead,
            Self::Word(2) => Isolation::Serializable,
            _ => Isolation::ReadCommitted,
        }
    }

    fn when(&self) -> When {
        match self {
            Self::Word(1) => When::Never,
            Self::Word(2) => When::Always,
            _ => When::WherePays,
        }
    }

    /// The number; [`Values`] has bounded it far below the limit of the type.
    fn number_u32(&self) -> u32 {
        u32::try_from(self.number()).unwrap_or(u32::MAX)
    }
}

impl fmt::Debug for Setting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Setting")
            .field("name", &self.name)
            .field("values", &self.values)
            .finish_non_exhaustive()
    }
}

/// Fails for a value of more than [`VALUE_BYTES_MAX`] bytes: sessions, plans and held results have copies of settings.
///
/// # Errors
/// 54000.
pub fn check_length(byte_count: usize) -> Result<()> {
    if byte_count <= VALUE_BYTES_MAX {
        return Ok(());
    }
    let message = format!(
        "the value of a setting has {byte_count} bytes or more, and {VALUE_BYTES_MAX} are the most"
    );
    Err(Error::Invalid { message, fault: Fault::TooLong, position: None })
}

fn find(name: &str) -> Result<&'static Setting> {
    let mut known = LIST.iter().chain(presets::LIST);
    known.find(|setting| setting.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
        Error::unknown(NameKind::Setting, name, LIST.iter().map(|setting| setting.name))
    })
}

#[cfg(test)]
mod tests;
