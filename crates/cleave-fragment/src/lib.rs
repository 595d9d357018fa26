//! Fragments: parts of a plan that either side can run, and how they travel.
//!
//! The input is a physical plan whose leaves are [`TableScanExec`]s. The output is the same plan as bytes, the commands
//! that carry it, and the link they cross. In the order data passes through:
//!
//! 1. [`operators`]: the location-free leaves. They name tables and morsel inputs, and find pages and snapshot in the
//!    [`FragmentContext`] at run time (rule 1).
//! 2. [`codec`]: plan ↔ bytes, the list of what a device runs, and the [`build_id`] without which no fragment is sent
//!    (rule 2). [`functions`] and [`expressions`] are those that DataFusion lacks.
//! 3. [`morsel`]: the units of input that partitions of a pipeline share (rule 3). [`index_filter`]: which rows of them
//!    an index keeps. [`index_input`]: the index pages that a merge reads; [`page_sink`]: where it writes pages.
//!    [`spill_space`]: where operators put rows that do not fit their memory. [`broadcast`]: rows that the host sends
//!    with a fragment. [`read_ahead`] reads the next morsels while a scan decodes the present one.
//!    [`scattered_reads`] puts pages of several places in order. [`hand_down`]: hands filters learnt by joins and top-k
//!    down to the scans below. [`stoppable_joins`]: cancels joins in their midst when nobody wants their rows.
//!    [`filter_history`]: the rows of pages that conditions of earlier scans were true for. [`queues`]: which engine of
//!    a storage node helps another one.
//! 4. [`command`]: the commands of a host to a device, versioned, with a status that names its cause.
//! 5. [`link`]: how commands and slots cross: in process, or over TCP with TLS and a token. A peer's messages are
//!    counted before they are decoded: [`field_count`].
//! 6. [`row_locks`]: locks the rows that a fragment is going to change, in one lock table with the host's.
//! 7. [`profile`]: the performance figures of a side, for cost models.
//! 8. [`waiting`]: for time, and for work that blocks. [`ending`]: of threads. [`walk`]: walks over plans and
//!    expressions, compiled once. [`wanted`]: whether somebody still waits for a result. [`result_memory`]: the memory
//!    of large function results. [`progress`]: how far a statement is. [`trace`]: when what of it happened.
//!    [`comparisons`]: which rows of columns in memory constants leave.
//!
//! Deliberately absent: SQL, planning, catalogs, and any knowledge of which side this is.

pub mod broadcast;
pub mod codec;
pub mod command;
pub mod comparisons;
pub mod ending;
pub mod expressions;
pub mod fed_filter;
pub mod field_count;
pub mod filter_history;
pub mod fragment;
pub mod functions;
pub mod index_filter;
pub mod index_input;
pub mod link;
pub mod morsel;
pub mod operators;
pub mod page_sink;
pub mod profile;
pub mod progress;
pub mod queues;
pub mod read_ahead;
pub mod result_memory;
pub mod row_locks;
pub mod row_places;
pub mod run_tasks;
pub mod scattered_reads;
pub mod spill_space;
pub mod strip;
pub mod trace;
pub mod waiting;
pub mod walk;
pub mod wanted;

pub use broadcast::{Broadcast, BroadcastInputs, BroadcastRows, broadcast_inputs};
pub use codec::{build_id, check_device_operator, decode_fragment, encode_fragment, reserve_plan};
pub use fragment::{
    FragmentContext, FragmentCounters, fragment_task_context, index_filtered_inputs, index_inputs,
    streamed_input, streams_from_recursion, unread_task_context, with_partitions,
};
pub use index_filter::{
    IndexFigures, IndexFilter, IndexFilteredInput, IndexFilteredPart, ScanKeys, Thrift,
};
pub use index_input::{IndexInput, IndexPages};
pub use morsel::{Lease, Morsel, MorselList, MorselPage, MorselSource, Passes};
pub use operators::broadcast_exec::BroadcastExec;
pub use operators::change_pages_exec::{
    ChangePagesExec, ChangedColumns, ChangedPage, changed_schema, read_changed, read_returned,
};
pub use operators::collect_keys_exec::CollectKeysExec;
pub use operators::dense_aggregate_exec::{DenseAggregateExec, RepeatedStates};
pub use operators::fetch_columns_exec::{FetchColumnsExec, FetchedColumns};
pub use operators::grace_exec::GraceExec;
pub use operators::hand_down::{self, hand_down_filters};
pub use operators::insert_pages_exec::{
    InsertPagesExec, InsertTarget, InsertedRows, RowDivision, STRETCH_ROWS, read_inserted,
    read_replaced, slice_bytes,
};
pub use operators::lock_rows_exec::{
    LockRowsExec, LockWaitPolicy, RowLockTimeout, RowNotFree, RowsToLock,
};
pub use operators::merge_runs_exec::MergeRunsExec;
pub use operators::new_values::{RefusedRow, RefusedValue};
pub use operators::page_writing::{read_written, written_schema};
pub use operators::peer_rows::{PeerRowInputs, PeerRowSource, PeerRowsExec};
pub use operators::placed_run::PlacedRun;
pub use operators::recursion_exec::{RecursionExec, WorkingTableExec, referred_to};
pub use operators::sort_keys_exec::{KeyOrder, SortKeysExec};
pub use operators::stoppable_join_exec::{
    OwnThreads, Start, Stop, StopOnDrop, loops, stoppable_joins,
};
pub use operators::table_scan_exec::TableScanExec;
pub use operators::write_rows_exec::{WriteRowsExec, WrittenSegment};
pub use operators::write_run_exec::WriteRunExec;
pub use page_sink::{OutOfReservedPages, PageSink, page_numbers};
pub use read_ahead::ReadAheadPages;
pub use row_places::RowPlaces;
pub use spill_space::{SpillDamaged, SpillSpace};
