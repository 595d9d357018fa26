//! The location-free operators: execution plans that run unchanged on either side of a link; and what
//! [hands down](hand_down) the filters that they learn.

pub mod broadcast_exec;
pub mod change_pages_exec;
pub mod collect_keys_exec;
pub mod dense_aggregate_exec;
pub mod fetch_columns_exec;
pub(crate) mod filled_filter;
pub mod grace_exec;
pub mod hand_down;
pub(crate) mod in_pieces_exec;
pub mod insert_pages_exec;
pub(crate) mod leaf;
pub mod lock_rows_exec;
pub mod merge_runs_exec;
pub mod new_values;
pub mod page_writing;
pub mod peer_rows;
pub mod placed_run;
pub mod recursion_exec;
pub mod sort_keys_exec;
pub mod stoppable_join_exec;
pub mod table_scan_exec;
pub mod write_rows_exec;
pub mod write_run_exec;
