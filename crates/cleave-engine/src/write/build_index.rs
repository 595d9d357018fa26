//! CREATE INDEX: a table's rows in, runs of a new index out, while others read and write the table.
//!
//! ```text
//!  ids ─▶ snapshot S ─▶ workers: pages ─▶ keys ─▶ KeyRunWriter ─┐         rows since S ─▶ KeyRunWriter ─┐
//!  (a commit)                                                   └─▶ one run ──────────────────▶ (a commit)
//! ```
//!
//! 1. [`build_index`] takes ids for the index's runs in a commit of its own, which changes nothing else. The build
//!    reads the catalog version of that commit.
//! 2. Without the writer lock, workers share the pages of that version, those of all tablets [side by
//!    side](side_by_side). Each sorts the keys of its pages within its share of memory, and writes what does not fit as
//!    runs, on the device of the tablet, which merges them into one. A device across a link [sorts the
//!    keys](on_device) itself.
//! 3. With the writer lock, keys of rows that were inserted meanwhile make a second run. The commit names both.
//!
//! A block that has the table to itself builds it in one go ([`build_index_within`]).
//!
//! Invariant: until the last commit nothing names what the build wrote, so an early end, a crash or a full disk leaves
//! the table as it was and the space free. Whether the table or the name belongs to something else by then is checked
//! under the writer lock.

mod on_device;
mod side_by_side;

use std::collections::BTreeMap;
use std::sync::Arc;

use cleave_catalog::catalog::index_definition::IndexDefinition;
use cleave_catalog::catalog::{DeviceId, TableState, TabletState};
use cleave_catalog::error::Result;
use cleave_catalog::index::{IndexShape, TabletIndex};
use cleave_catalog::settings::{Settings, Stack};
use cleave_store::{
    KeyRange, MergeSource, Run, SegmentDirectory, SegmentId, SegmentKind, SegmentRef,
};
use futures::future::try_join_all;

use super::load::{made_anew, segment_ref};
use super::unique::check_across;
use crate::device::Claim;
use crate::storage_engine::Engine;
use crate::storage_engine::catalog_edit::CatalogEdit;
use crate::storage_engine::commit::Changes;
use side_by_side::{Part, build_runs};

/// Builds the index that `define` returns for the table `name`. `define` is called twice, with the table as it is when
/// the build begins and when it ends, and returns None where the index exists already.
///
/// # Errors
/// Those of `define`; an unknown table; a duplicate key where rows are not unique; those of the device.
pub async fn build_index(
    database: &Arc<Engine>,
    settings: &Arc<Settings>,
    name: &str,
    define: impl Fn(&CatalogEdit, &TableState) -> Result<Option<IndexDefinition>>,
) -> Result<()> {
    let mut first = CatalogEdit::begin(database).await?;
    let table = first.table(name)?;
    let Some(definition) = define(&first, &table)? else { return Ok(()) };
    // Two for each tablet: of the rows that are there, and of those that come meanwhile.
    let mut segments: Vec<[SegmentId; 2]> = Vec::with_capacity(table.tablets.len());
    for _ in &table.tablets {
        segments.push([first.segment_id()?, first.segment_id()?]);
    }
    let commit = first.commit_number();
    let state = database.commit(Changes::edit(first)).await?.state;

    let shape = IndexShape::new(Arc::new(definition), &table.schema)?;
    let reference = |segment| SegmentRef {
        table_id: table.schema.table_id,
        segment,
        schema_version: table.schema.version,
        commit,
    };
    let mut claims: BTreeMap<DeviceId, Arc<Claim>> = BTreeMap::new();
    let mut parts = Vec::with_capacity(table.tablets.len());
    for (tablet, [segment, _]) in table.tablets.iter().zip(&segments) {
        let claim = match claims.get(&tablet.device) {
            Some(claim) => Arc::clone(claim),
            None => {
                let claim = Arc::new(Claim::new(database.attached(tablet.device)?));
                claims.insert(tablet.device, Arc::clone(&claim));
                claim
            }
        };
        let (tablet, segment) = (Arc::clone(tablet), reference(*segment));
        parts.push(Part { tablet, vid_from: 0, claim, segment });
    }
    let runs = build_runs(database, settings, &shape, parts).await?;
    // Without the writer lock: what comes meanwhile is compared with it below.
    let divided = shape.definition.unique && table.divides(&shape.definition);
    if divided {
        let built = table.tablets.iter().zip(&runs);
        let built = built.filter_map(|(tablet, run)| Some((Arc::clone(tablet), run.clone()?)));
        check_across(database, &table, &shape, &built.collect::<Vec<_>>()).await?;
    }

    let mut last = CatalogEdit::begin(database).await?;
    let now = last.table(name)?;
    let same = now.schema == table.schema && now.tablets.len() == table.tablets.len();
    if !same {
        return Err(made_anew(name));
    }
    // Its columns are the same; its id and a generated name may differ by now.
    let Some(definition) = define(&last, &now)?.map(Arc::new) else { return Ok(()) };
    let shape = IndexShape::new(Arc::clone(&definition), &now.schema)?;
    for (device, claim) in &claims {
        last.adopt(*device, Arc::clone(claim));
    }
    let mut parts = Vec::with_capacity(now.tablets.len());
    for ((tablet, before), [_, segment]) in now.tablets.iter().zip(&table.tablets).zip(&segments) {
        if tablet.device != before.device {
            return Err(made_anew(name));
        }
        let claim = last.claim(&database.attached(tablet.device)?);
        let (tablet, segment) = (Arc::clone(tablet), reference(*segment));
        parts.push(Part { tablet, vid_from: before.next_vid, claim, segment });
    }
    let since = build_runs(database, settings, &shape, parts).await?;
    let grew = since.iter().any(Option::is_some);
    let opened = |run: Option<_>| run.map(|run| Run::new(named(run, definition.id))).transpose();
    let runs = runs.into_iter().zip(since).map(|(run, since)| {
        Ok(opened(run)?.into_iter().chain(opened(since)?).collect::<Vec<Run>>())
    });
    let runs: Vec<Vec<Run>> = runs.collect::<Result<_>>()?;
    let of_tablets = || now.tablets.iter().zip(&runs);
    try_join_all(of_tablets().map(|(tablet, runs)| check_unique(database, &shape, tablet, runs)))
        .await?;
    let written: Vec<(Arc<TabletState>, Arc<SegmentDirectory>)> = of_tablets()
        .flat_map(|(tablet, runs)| {
            runs.iter().map(|run| (Arc::clone(tablet), Arc::clone(run.directory())))
        })
        .collect();
    if divided && grew {
        check_across(database, &now, &shape, &written).await?;
    }
    let built = now.tablets.iter().zip(runs).map(|(tablet, runs)| {
        let mut changed = TabletState::clone(tablet);
        let index = TabletIndex::built(Arc::clone(&shape), runs, tablet.next_vid);
        changed.indexes.push(Arc::new(index));
        Arc::new(changed)
    });
    let mut changed = TableState { tablets: built.collect(), ..TableState::clone(&now) };
    changed.indexes.push(definition);
    last.put_table(changed);
    database.commit(Changes::edit(last)).await?;
    drop(state);
    Ok(())
}

/// `table`, as `edit` alone has it, with the index `definition`.
///
/// # Errors
/// As [`build_index`].
pub async fn build_index_within(
    edit: &mut CatalogEdit,
    settings: &Arc<Settings>,
    table: &TableState,
    definition: IndexDefinition,
) -> Result<TableState> {
    let database = Arc::clone(edit.database());
    let definition = Arc::new(definition);
    let shape = IndexShape::new(Arc::clone(&definition), &table.schema)?;
    let mut parts = Vec::with_capacity(table.tablets.len());
    for tablet in &table.tablets {
        let claim = edit.claim(&database.attached(tablet.device)?);
        let segment = segment_ref(edit, &table.schema)?;
        parts.push(Part { tablet: Arc::clone(tablet), vid_from: 0, claim, segment });
    }
    let runs = build_runs(&database, settings, &shape, parts).await?;
    let runs = runs.into_iter().map(|run| run.map(|run| named(run, definition.id)));
    let runs: Vec<Option<Arc<SegmentDirectory>>> = runs.collect();
    if definition.unique && table.divides(&definition) {
        let built = table.tablets.iter().zip(&runs);
        let built = built.filter_map(|(tablet, run)| Some((Arc::clone(tablet), run.clone()?)));
        check_across(&database, table, &shape, &built.collect::<Vec<_>>()).await?;
    }
    let place = table.indexes.partition_point(|index| index.id < definition.id);
    let mut tablets = Vec::with_capacity(table.tablets.len());
    for (tablet, run) in table.tablets.iter().zip(runs) {
        let mut changed = TabletState::clone(tablet);
        let runs = run.map(Run::new).transpose()?.into_iter().collect();
        let index = TabletIndex::built(Arc::clone(&shape), runs, tablet.next_vid);
        changed.indexes.insert(place, Arc::new(index));
        tablets.push(Arc::new(changed));
    }
    let mut changed = TableState { tablets, ..TableState::clone(table) };
    changed.indexes.insert(place, definition);
    Ok(changed)
}

/// The run of the rows of `tablet` in the index of this `shape`, as `segment`, in space of `claim`.
///
/// # Errors
/// As [`build_index`].
pub(super) async fn run_of_rows(
    database: &Arc<Engine>,
    settings: &Arc<Settings>,
    shape: &Arc<IndexShape>,
    (tablet, claim): (&Arc<TabletState>, &Arc<Claim>),
    segment: SegmentRef,
) -> Result<Option<Arc<SegmentDirectory>>> {
    let (tablet, claim) = (Arc::clone(tablet), Arc::clone(claim));
    let part = Part { tablet, vid_from: 0, claim, segment };
    let runs = build_runs(database, settings, shape, vec![part]).await?;
    Ok(runs.into_iter().next().flatten())
}

/// Refuses a key that two of `runs`, which are of one tablet, have. In each alone none comes twice.
async fn check_unique(
    database: &Engine,
    shape: &IndexShape,
    tablet: &TabletState,
    runs: &[Run],
) -> Result<()> {
    let [_, .., new] = runs else { return Ok(()) };
    let Some((first, last)) = new.key_range().filter(|_| shape.definition.unique) else {
        return Ok(());
    };
    // Nothing lies between a key and that with one more byte.
    let range = KeyRange { from: first.to_vec(), below: Some([last, &[0]].concat()) };
    let sources = runs.iter().map(|run| MergeSource::Run(run.scan(range.clone()))).collect();
    let pages = database.host_pages(tablet.device, Stack::Native)?;
    shape.check_unique(sources, &*pages, &tablet.version_map).await
}

/// `run` as one of the index `id`.
fn named(mut run: Arc<SegmentDirectory>, id: u32) -> Arc<SegmentDirectory> {
    if let SegmentKind::Index(properties) = &mut Arc::make_mut(&mut run).kind {
        properties.index_id = id;
    }
    run
}
