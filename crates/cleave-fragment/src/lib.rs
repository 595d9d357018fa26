//! A piece of a plan that either side can run, and how it travels.
//!
//! What enters is a physical plan whose leaves are [`TableScanExec`]s; what leaves is the same plan
//! as bytes, the commands that carry it, and the link they cross. In the order data passes through:
//!
//! 1. [`operators`]: the location-free leaves. They name tables and morsel inputs and find pages
//!    and snapshot in the [`FragmentContext`] at run time (rule 1).
//! 2. [`codec`]: plan ↔ bytes, the list of what a device runs, and the [`build_id`] without which
//!    no fragment is sent (rule 2).
//!    [`functions`] and [`expressions`] are those that the engine lacks.
//! 3. [`morsel`]: the units of input that partitions of a pipeline share (rule 3). [`index_filter`]: which rows of
//!    them an index leaves. [`index_input`]: what a merge reads of indexes; [`page_sink`]: where it writes pages.
//!    [`spill_space`]: where operators put rows that do not fit their memory. [`broadcast`]: rows that the host sends
//!    along. [`read_ahead`] has the media at work on the next ones while a scan decodes the present one. [`hand_down`]:
//!    what joins and top-k learn while they run goes down to the scans below them. [`stoppable_joins`]: how they end in
//!    their midst when nobody wants their rows.
//! 4. [`command`]: what a host asks of a device, versioned, with a status that names its cause.
//! 5. [`link`]: how commands and slots cross: in process, or over TCP with TLS and a token.
//!    What comes from a peer is counted before it is decoded: [`field_count`].
//! 6. [`row_locks`]: rows that a fragment is going to change, locked among those of the host.
//! 7. [`profile`]: what a side can do, as cost models see it.
//! 8. [`waiting`]: for time, and for work that blocks.
//!
//! Deliberately absent: SQL, planning, catalogs, and any knowledge of which side this is.

pub mod broadcast;
pub mod codec;
pub mod command;
pub mod expressions;
pub mod fed_filter;
pub mod field_count;
pub mod fragment;
pub mod functions;
pub mod hand_down;
pub mod index_filter;
pub mod index_input;
pub mod link;
pub mod morsel;
pub mod operators;
pub mod page_sink;
pub mod profile;
pub mod read_ahead;
pub mod row_locks;
pub mod row_places;
pub mod spill_space;
pub mod strip;
pub mod waiting;

pub use broadcast::{Broadcast, BroadcastInputs, BroadcastRows, broadcast_inputs};
pub use codec::{build_id, decode_fragment, encode_fragment, reserve_plan};
pub use fragment::{
    FragmentContext, FragmentCounters, fragment_task_context, index_filtered_inputs, index_inputs,
    streamed_input, unread_task_context, with_partitions,
};
pub use hand_down::hand_down_filters;
pub use index_filter::{
    IndexFigures, IndexFilter, IndexFilteredInput, IndexFilteredPart, ScanKeys, Thrift,
};
pub use index_input::{IndexInput, IndexPages};
pub use morsel::{Lease, Morsel, MorselList, MorselPage, MorselSource, Passes};
pub use operators::broadcast_exec::BroadcastExec;
pub use operators::collect_keys_exec::CollectKeysExec;
pub use operators::dense_aggregate_exec::DenseAggregateExec;
pub use operators::fetch_columns_exec::{FetchColumnsExec, FetchedColumns};
pub use operators::grace_exec::GraceExec;
pub use operators::merge_runs_exec::MergeRunsExec;
pub use operators::placed_run::PlacedRun;
pub use operators::stoppable_join_exec::{Stop, StopOnDrop, loops, stoppable_joins};
pub use operators::table_scan_exec::TableScanExec;
pub use operators::write_rows_exec::{WriteRowsExec, WrittenSegment, read_written};
pub use operators::write_run_exec::WriteRunExec;
pub use page_sink::{OutOfReservedPages, PageSink};
pub use read_ahead::ReadAheadPages;
pub use row_places::RowPlaces;
pub use spill_space::{SpillDamaged, SpillSpace};
