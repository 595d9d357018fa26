//! Verifies a database: files, space, maps, pages, versions and indexes, through the link like every reader.
//!
//! In goes a folder ([`check`]) or an open database (`Database::check`); out comes a [`CheckReport`]: what was
//! verified, and a [`Finding`] for each thing that does not hold. In order:
//!
//! 1. [`files`]: the manifest, the segment files that it names; tables and indexes whose files are damaged are left out
//!    of the rest.
//! 2. [`space`]: no block belongs to two pages, lies beyond the media, or is taken for free.
//! 3. [`maps`]: every VID of a version map has its row's place in a directory, every chain ends.
//! 4. [`pages`]: each page is read as blocks, past the buffer pool: checksums, values, bounds, versions. On a mirror it
//!    is read on each copy that is not stale.
//! 5. [`indexes`]: each entry points to a row with that very key, and each row is found.
//! 6. [`unique`]: no two tablets of a table have the same key of a unique index.
//!
//! Invariants: nothing is written; the check goes on after a fault; memory is bounded by [`CheckOptions`], whatever the
//! size of the database; consequences of a reported fault are not reported again where they can be recognised.

mod files;
mod finding;
mod indexes;
mod maps;
mod pages;
mod space;
mod unique;

use std::path::Path;
use std::sync::Arc;

use cleave_catalog::catalog::{CatalogState, DeviceEntry, TableState, TabletState};
use cleave_catalog::error::Result;
use cleave_engine::device::Device;
use cleave_engine::storage_engine::snapshot::SnapshotKind;
use cleave_engine::storage_engine::{Engine, OpenOptions};
use cleave_store::{Placement, TabletKey};
use datafusion_common::utils::get_available_parallelism;

pub use finding::{Fault, Finding, Findings, Place};

use pages::Damaged;
use space::Moment;

/// How thoroughly a database is checked, and with how much.
#[derive(Clone)]
pub struct CheckOptions {
    /// Read no more of a page than its header.
    pub quick: bool,
    /// Bytes that rows and keys may take while indexes are compared with their tables.
    pub memory_bytes: u64,
    /// Pages that are verified at once.
    pub threads: usize,
    /// Most findings that are kept; more are counted.
    pub findings_max: usize,
    /// Is told how many pages of how many are done.
    pub progress: Option<Arc<dyn Fn(u64, u64) + Send + Sync>>,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self {
            quick: false,
            memory_bytes: 256 << 20,
            threads: get_available_parallelism(),
            findings_max: 1000,
            progress: None,
        }
    }
}

impl std::fmt::Debug for CheckOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckOptions")
            .field("quick", &self.quick)
            .field("memory_bytes", &self.memory_bytes)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// How much was verified.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckCounts {
    /// Tables.
    pub tables: u64,
    /// Segments of heaps and indexes.
    pub segments: u64,
    /// Files of sealed segments.
    pub files: u64,
    /// Files of statistics.
    pub statistics: u64,
    /// Pages, those of long values too.
    pub pages: u64,
    /// Chunks whose checksum held.
    pub chunks: u64,
    /// Bytes read from devices.
    pub bytes: u64,
    /// Versions of rows.
    pub rows: u64,
    /// Entries of version maps, a run of them counted as its rows.
    pub map_entries: u64,
    /// Entries of indexes.
    pub index_entries: u64,
    /// Blocks that belong to pages.
    pub blocks: u64,
}

/// What a check found.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// What does not hold.
    pub findings: Findings,
    /// What was verified.
    pub counts: CheckCounts,
}

impl CheckReport {
    /// Whether everything holds.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.count() == 0
    }
}

/// Checks the database in `directory`, which no process has open.
///
/// # Errors
/// What keeps a check from beginning: no database there, in use, of a newer version, or its own device is not to be
/// had. A damaged manifest or segment file is a finding.
pub async fn check(
    directory: &Path,
    open: OpenOptions,
    options: &CheckOptions,
) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    report.findings.limit(options.findings_max);
    let Some(database) = files::open(directory, open, &mut report).await? else {
        return Ok(report);
    };
    let moment = space::moment(&database).await;
    run(&database, &moment, options, report).await
}

/// Checks an open database at its last commit, while others go on using it.
///
/// # Errors
/// Those of flushing what is committed; none of what the check finds.
pub async fn check_open(database: &Arc<Engine>, options: &CheckOptions) -> Result<CheckReport> {
    database.snapshot(SnapshotKind::Flushed).await?;
    let mut report = CheckReport::default();
    report.findings.limit(options.findings_max);
    let moment = space::moment(database).await;
    files::verify(database, &moment.state, &mut report).await;
    run(database, &moment, options, report).await
}

async fn run(
    database: &Engine,
    moment: &Moment,
    options: &CheckOptions,
    mut report: CheckReport,
) -> Result<CheckReport> {
    let mut unreachable = space::check(database, moment, &mut report).await;
    let state = &moment.state;
    files::check_statistics(state, database.directory(), &mut report);
    let mut done = Progress::new(database, state, options);
    for table in state.tables() {
        report.counts.tables += 1;
        let mut checked = Vec::with_capacity(table.tablets.len());
        for tablet in &table.tablets {
            let Some(device) = database.device(tablet.device) else { continue };
            let work = |device| Arc::new(Work::new(state, table, tablet, device));
            maps::check(&work(Arc::clone(&device)), &mut report);
            let entry = state.devices.get(&tablet.device).and_then(DeviceEntry::mirror);
            let readers = device.readers();
            if readers.is_empty() {
                let fault = Fault::Unreachable("none of its copies is current".to_owned());
                report.findings.add(work(Arc::clone(&device)).place(), fault);
            }
            let mut best: Option<(Arc<Work>, Damaged)> = None;
            for copy in readers {
                let id = copy.id();
                // One that has become current since need not have all pages of this version.
                let was_stale = entry.is_some_and(|mirror| mirror.is_stale(id));
                if was_stale || unreachable.contains(&id) {
                    continue;
                }
                let work = work(copy);
                let damaged = pages::check(&work, options, &mut done, &mut report).await;
                if damaged.unreachable {
                    unreachable.insert(id);
                } else if best.as_ref().is_none_or(|(_, best)| !best.is_empty()) {
                    best = Some((work, damaged));
                }
            }
            if let Some((work, damaged)) = best.filter(|_| !options.quick) {
                maps::check_rows(&work, &damaged, &mut report);
                indexes::check(&work, &damaged, options, &mut report).await;
                checked.push((work, damaged));
            }
        }
        unique::check(&checked, options, &mut report).await;
    }
    Ok(report)
}

/// One tablet under check, and all that its pages are compared with.
#[derive(Debug)]
struct Work {
    state: Arc<CatalogState>,
    table: Arc<TableState>,
    tablet: Arc<TabletState>,
    device: Arc<Device>,
    placement: Placement,
    /// The rule by which a row lies in this tablet and in no other of its table.
    tablet_key: Option<TabletKey>,
}

impl Work {
    fn new(
        state: &Arc<CatalogState>,
        table: &Arc<TableState>,
        tablet: &Arc<TabletState>,
        device: Arc<Device>,
    ) -> Self {
        // The manifest was refused if its columns were none.
        let tablet_key = table.division.tablet_key(&table.schema).ok().flatten();
        let tablet_key = tablet_key.filter(|_| table.tablets.len() > 1);
        let mut placement = Placement::new();
        for segment in &tablet.heap {
            placement.insert(Arc::clone(segment));
        }
        Self {
            state: Arc::clone(state),
            table: Arc::clone(table),
            tablet: Arc::clone(tablet),
            device,
            placement,
            tablet_key,
        }
    }

    /// The tablet as a place.
    fn place(&self) -> Place {
        let entry = self.state.devices.get(&self.tablet.device);
        let mirror = entry.filter(|entry| entry.mirror().is_some());
        Place {
            table: Some(self.table.schema.name.clone()),
            device: Some(self.device.name().to_owned()),
            mirror: mirror.map(|entry| entry.name.clone()),
            ..Place::default()
        }
    }

    /// The device as a place, where it does not answer.
    fn device_place(&self) -> Place {
        Place { device: Some(self.device.name().to_owned()), ..Place::default() }
    }
}

/// Pages done, of all.
struct Progress {
    done: u64,
    total: u64,
    tell: Option<Arc<dyn Fn(u64, u64) + Send + Sync>>,
}

impl Progress {
    fn new(database: &Engine, state: &CatalogState, options: &CheckOptions) -> Self {
        let tablets = state.tables().flat_map(|table| &table.tablets);
        let pages = tablets.map(|tablet| {
            let copies = database.device(tablet.device).map_or(1, |device| device.readers().len());
            let pages = tablet.segments().map(|segment| segment.pages.len() as u64);
            pages.sum::<u64>().saturating_mul(copies as u64)
        });
        Self { done: 0, total: pages.sum(), tell: options.progress.clone() }
    }

    fn page(&mut self) {
        self.done += 1;
        if let Some(tell) = &self.tell {
            tell(self.done, self.total);
        }
    }
}
