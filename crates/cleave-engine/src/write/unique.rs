//! Checks unique indexes whose equal keys may lie in different tablets: new keys in, checked against all existing ones.
//!
//! One commit is made at a time, so what is checked here holds until the statement's commit. Where a table is divided
//! by some of an index's columns, equal keys share a tablet, and each tablet's own check is enough.
//!
//! A VID identifies a row within its tablet, and a merge does not tell the tablet of an entry: keys that come twice are
//! looked up once more, each in its place, as the rows of all entries but one may be dead.

use std::sync::Arc;

use cleave_catalog::catalog::{DeviceId, TableState, TabletState};
use cleave_catalog::error::Result;
use cleave_catalog::index::IndexShape;
use cleave_catalog::settings::Stack;
use cleave_store::{KeyMerge, KeyRange, MergeSource, Run, SegmentDirectory, SegmentId};

use crate::host_pages::RoutedPages;
use crate::storage_engine::Engine;

/// Refuses a key of the runs `new`, each with its tablet, that another of them has, or a tablet of `table` in the index
/// of this `shape`, if the table has it already.
///
/// # Errors
/// [`Error::DuplicateKey`](cleave_catalog::error::Error::DuplicateKey), and those of reading.
pub(crate) async fn check_across(
    database: &Engine,
    table: &TableState,
    shape: &IndexShape,
    new: &[(Arc<TabletState>, Arc<SegmentDirectory>)],
) -> Result<()> {
    let runs = new.iter().map(|(_, run)| Run::new(Arc::clone(run)));
    let runs: Vec<Run> = runs.collect::<Result<_, _>>()?;
    let first = runs.iter().filter_map(|run| Some(run.key_range()?.0)).min();
    let last = runs.iter().filter_map(|run| Some(run.key_range()?.1)).max();
    let Some((first, last)) = first.zip(last) else { return Ok(()) };
    let mut sources = Vec::new();
    let mut segments: Vec<(DeviceId, SegmentId)> = Vec::new();
    for tablet in &table.tablets {
        let Some(index) = tablet.index(shape.definition.id) else { continue };
        let pages = database.page_source(tablet.device, Stack::Native)?;
        sources.extend(index.overlapping(tablet, &*pages, first, last).await?);
        segments.extend(index.runs().map(|run| (tablet.device, run.segment)));
    }
    segments.extend(new.iter().map(|(tablet, run)| (tablet.device, run.segment)));
    sources.extend(runs.iter().map(|run| MergeSource::Run(run.scan(KeyRange::default()))));
    if sources.len() < 2 {
        return Ok(());
    }
    let pages = RoutedPages::new(database, Stack::Native, segments)?;
    let mut merge = KeyMerge::new(sources, false);
    let mut last: Option<Vec<u8>> = None;
    while let Some(block) = merge.next(&pages).await? {
        let mut before = last.as_deref();
        let mut twice: Vec<&[u8]> = Vec::new();
        for (key, _) in block.iter() {
            // Rows with a NULL are equal to none, though their entries may be.
            let is_twice = before == Some(key) && !shape.key.has_null(key);
            if is_twice && twice.last() != Some(&key) {
                twice.push(key);
            }
            before = Some(key);
        }
        for key in twice {
            if row_count(database, table, shape, new, key).await? > 1 {
                return Err(shape.duplicate_key(key));
            }
        }
        last = block.last_key().map(<[u8]>::to_vec);
    }
    Ok(())
}

/// How many rows have `key` that are live.
async fn row_count(
    database: &Engine,
    table: &TableState,
    shape: &IndexShape,
    new: &[(Arc<TabletState>, Arc<SegmentDirectory>)],
    key: &[u8],
) -> Result<usize> {
    let mut count = 0;
    for tablet in &table.tablets {
        let Some(index) = tablet.index(shape.definition.id) else { continue };
        let pages = database.page_source(tablet.device, Stack::Native)?;
        count += usize::from(index.get(tablet, &*pages, key).await?.is_some());
    }
    for (tablet, run) in new {
        let pages = database.page_source(tablet.device, Stack::Native)?;
        let found = Run::new(Arc::clone(run))?.get(&*pages, key).await?;
        count += usize::from(found.is_some_and(|vid| !tablet.version_map.is_dead(vid)));
    }
    Ok(count)
}
