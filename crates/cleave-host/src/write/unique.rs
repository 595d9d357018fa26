//! Unique indexes whose equal keys may lie in different tablets: what is new in against all that is there.
//!
//! One statement writes at a time, so what is checked here holds until the statement's commit. Where a table is divided
//! by some of an index's columns, equal keys share a tablet, and each tablet's own check is enough.

use std::sync::Arc;

use cleave_store::{KeyRange, MergeSource, Run, SegmentDirectory, SegmentId};

use crate::catalog::{DeviceId, TableState};
use crate::database::Database;
use crate::error::Result;
use crate::host_pages::RoutedPages;
use crate::index::IndexShape;
use crate::settings::Stack;

/// Refuses a key of the runs `new`, each with its device, that another of them has, or any tablet of `table` in the index
/// of this `shape`, if it has that already.
///
/// # Errors
/// [`Error::DuplicateKey`](crate::error::Error::DuplicateKey), and those of reading.
pub(crate) async fn check_across(
    database: &Database,
    table: &TableState,
    shape: &IndexShape,
    new: &[(DeviceId, Arc<SegmentDirectory>)],
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
    segments.extend(new.iter().map(|(device, run)| (*device, run.segment)));
    sources.extend(runs.iter().map(|run| MergeSource::Run(run.scan(KeyRange::default()))));
    if sources.len() < 2 {
        return Ok(());
    }
    let pages = RoutedPages::new(database, Stack::Native, segments)?;
    shape.check_unique_across(sources, &pages).await
}
