//! The host over a real embedded device, and over `cleaved` on the far side of a link.

// The future of a transaction holds those of all that a statement may do, one within the other.
#![recursion_limit = "256"]
#![expect(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

mod archive;
mod backup;
mod broadcasts;
mod check;
mod comments;
mod compaction;
mod crash;
mod damaged_files;
mod definitions;
mod dense_aggregates;
mod devices;
mod durability;
mod ended_rows;
mod explained_changes;
mod fencing;
mod few_rows_joined;
mod few_rows_nested;
mod filters_in_flight;
mod foreign_keys;
mod full_media;
mod held;
mod histories;
mod index_builds;
mod index_joins;
mod indexes;
mod insert;
mod isolation;
mod join_orders;
mod joins_below_cuts;
mod key_filters;
mod late_columns;
mod load;
mod log;
mod narrowing;
mod open;
mod pages;
mod parts_of_with;
mod prepared;
mod profile;
mod pruned_pages;
mod query_log;
mod ranges;
mod rights;
mod row_locks;
mod sequences;
mod settings;
mod settling;
mod side_by_side;
mod slots;
mod space;
mod spilling;
mod sql;
mod statistics;
mod stealing;
mod support;
mod tablets;
mod takeover;
mod transactions;
mod turning;
mod upserts;
mod vacuum;
mod versions;
