//! Bytes of tables and indexes on their devices: those of their pages.

use cleave_catalog::catalog::{TableState, segment_extents};
use cleave_media::BLOCK_SIZE;
use cleave_store::SegmentDirectory;

use super::view::View;

/// What of a table is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// `pg_relation_size`, `pg_table_size`: there is nothing else beside its rows.
    Rows,
    /// `pg_indexes_size`
    Indexes,
    /// `pg_total_relation_size`
    All,
}

/// Bytes of a table, or of an index, whatever part is asked for; None: there is no such thing.
pub(super) fn of_relation(view: &View, oid: i64, part: Part) -> Option<i64> {
    if let Some(index) = view.index(oid) {
        let id = index.definition.id;
        let of = index.table.tablets.iter().filter_map(|tablet| tablet.index(id));
        return Some(bytes(of.flat_map(|index| index.runs()).map(|run| &**run)));
    }
    let table = view.table(oid)?;
    Some(match part {
        Part::Rows => all(table) - indexes(table),
        Part::Indexes => indexes(table),
        Part::All => all(table),
    })
}

/// Bytes of all tables.
pub(super) fn of_database(view: &View) -> i64 {
    view.tables().map(|table| all(table)).sum()
}

fn indexes(table: &TableState) -> i64 {
    let indexes = table.tablets.iter().flat_map(|tablet| &tablet.indexes);
    bytes(indexes.flat_map(|index| index.runs()).map(|run| &**run))
}

fn all(table: &TableState) -> i64 {
    bytes(table.tablets.iter().flat_map(|tablet| tablet.segments()).map(|segment| &**segment))
}

fn bytes<'a>(segments: impl Iterator<Item = &'a SegmentDirectory>) -> i64 {
    let blocks = segments.flat_map(segment_extents).map(|extent| u64::from(extent.block_count));
    let bytes = blocks.sum::<u64>().saturating_mul(BLOCK_SIZE as u64);
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
