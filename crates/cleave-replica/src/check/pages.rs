//! Checks pages one after the other: read as blocks from the device, and compared with every description of them.
//!
//! 1. [`verify`] reads a page and its pages of long values, past any pool.
//! 2. The header is compared with the directory's checksum, each chunk with the header's; every fault is named by its
//!    column.
//! 3. All columns are decoded, and their values compared with the directory's bounds.
//! 4. Versions are compared with the version map, entries of an index run with each other and with their fences.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, UInt64Type};
use bytes::Bytes;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::storage_error::{StorageError, into_store_error};
use cleave_engine::device::Device;
use cleave_engine::device::whole_pages::{PageBlocks, blocks, chunk, with_shared};
use cleave_fragment::command::DeviceErrorCause;
use cleave_fragment::link::LinkError;
use cleave_media::Extent;
use cleave_store::index::run::KEY_COLUMN;
use cleave_store::page::overflow::overflow_payload;
use cleave_store::{
    ColumnRef, Corruption, OverflowValues, PageColumns, PageEntry, PageHeader, PageKind, PageRead,
    PageRef, PageSource, Projection, SegmentDirectory, SegmentId, SegmentKind, SegmentRef,
    StoreError, TabletKey, ZoneEntry, ZoneValue, all_columns, decode_batch, overflow_pages,
    parse_header,
};
use datafusion_common_runtime::SpawnedTask;
use futures::future::{BoxFuture, try_join_all};
use futures::{FutureExt, StreamExt, stream};

use super::maps::judge;
use super::{CheckOptions, CheckReport, Fault, Finding, Place, Progress, Work};

/// Blocks that hold the header of nearly every page.
const HEADER_BLOCK_COUNT: u32 = 16;

/// Damaged pages, so that their consequences are not reported again; and what the others have.
#[derive(Debug, Default)]
pub(super) struct Damaged {
    pages: BTreeSet<(SegmentId, u32)>,
    /// The device does not answer, or refuses reads.
    pub(super) unreachable: bool,
    /// Rows of the others, dead ones among them.
    pub(super) rows: u64,
}

impl Damaged {
    /// Whether this page does not hold.
    pub(super) fn has(&self, segment: SegmentId, page: u32) -> bool {
        self.pages.contains(&(segment, page))
    }

    /// Whether no page is damaged.
    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Whether a page of this segment does not hold.
    pub(super) fn in_segment(&self, segment: SegmentId) -> bool {
        self.pages.range((segment, 0)..=(segment, u32::MAX)).next().is_some()
    }
}

/// What one page gave.
#[derive(Debug, Default)]
struct Outcome {
    findings: Vec<Finding>,
    is_damaged: bool,
    unreachable: bool,
    pages: u64,
    chunks: u64,
    bytes: u64,
    rows: u64,
    index_entries: u64,
}

/// Verifies every page of a tablet, several at once.
pub(super) async fn check(
    work: &Arc<Work>,
    options: &CheckOptions,
    progress: &mut Progress,
    report: &mut CheckReport,
) -> Damaged {
    let mut damaged = Damaged::default();
    let quick = options.quick;
    let segments: Vec<Arc<SegmentDirectory>> = work.tablet.segments().map(Arc::clone).collect();
    report.counts.segments += segments.len() as u64;
    let pages = segments.into_iter().flat_map(|segment| {
        (0..segment.pages.len()).map(move |index| (Arc::clone(&segment), index))
    });
    let outcomes = stream::iter(pages).map(|(segment, index)| {
        let work = Arc::clone(work);
        async move {
            let number = segment.pages.get(index).map(|entry| entry.page.page);
            let key = (segment.segment, number.unwrap_or_default());
            let outcome = SpawnedTask::spawn(async move {
                match segment.pages.get(index) {
                    Some(entry) => verify(&work, &segment, entry, quick).await,
                    None => Outcome::default(),
                }
            });
            (key, outcome.join().await)
        }
    });
    let mut outcomes = std::pin::pin!(outcomes.buffered(options.threads.max(1) * 2));
    while let Some((key, outcome)) = outcomes.next().await {
        let outcome = outcome.unwrap_or_else(|error| {
            let place = Place { segment: Some(key.0), page: Some(key.1), ..work.place() };
            let fault = Fault::Values(format!("verifying it failed: {error}"));
            Outcome {
                findings: vec![Finding { place, fault }],
                is_damaged: true,
                ..Outcome::default()
            }
        });
        progress.page();
        if outcome.unreachable {
            damaged.unreachable = true;
            report.findings.extend(outcome.findings);
            break;
        }
        if outcome.is_damaged {
            damaged.pages.insert(key);
        }
        damaged.rows += outcome.rows;
        report.counts.pages += outcome.pages;
        report.counts.chunks += outcome.chunks;
        report.counts.bytes += outcome.bytes;
        report.counts.rows += outcome.rows;
        report.counts.index_entries += outcome.index_entries;
        report.findings.extend(outcome.findings);
    }
    damaged
}

/// Columns of one page, read past any pool.
///
/// # Errors
/// Those of the device; [`StoreError`] for a page that does not hold.
pub(super) async fn read_page(device: &Device, read: &PageRead) -> Result<PageColumns> {
    let bytes = blocks(device, read.page.extent).await?;
    let header = Arc::new(parse_header(&bytes, &read.page, &read.segment)?);
    let parts = with_shared(device, &header, read.page, bytes).await?;
    let chunks = read.columns.iter().map(|column| chunk(&header, &parts, *column)).collect();
    Ok(PageColumns::verify_with_header(read, header, chunks)?)
}

/// As [`read_page`], with the pages of long values.
///
/// # Errors
/// As [`read_page`].
pub(super) async fn read_rows(
    device: &Device,
    read: &PageRead,
    entry: &PageEntry,
    projection: &Projection,
) -> Result<RecordBatch> {
    let page = read_page(device, read).await?;
    let mut values = OverflowValues::none();
    for number in overflow_pages(&page, read, &projection.columns, None)? {
        if let Some(overflow) = entry.overflow_page(number) {
            let bytes = blocks(device, overflow.extent).await?;
            values.insert(number, overflow_payload(&read.segment, &overflow, &bytes)?);
        }
    }
    Ok(decode_batch(&page, read, projection, None, &values)?)
}

/// Pages of a device, read past any pool, as a page source.
#[derive(Debug)]
pub(super) struct DevicePages(pub(super) Arc<Device>);

impl PageSource for DevicePages {
    fn read(&self, reads: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        let pages =
            async move { try_join_all(reads.iter().map(|read| read_page(&self.0, read))).await };
        pages.map(|pages| pages.map_err(into_store_error)).boxed()
    }

    fn read_overflow(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>> {
        let payloads = async move {
            try_join_all(pages.iter().map(|page| async move {
                let bytes = blocks(&self.0, page.extent).await?;
                Ok::<_, Error>(overflow_payload(&segment, page, &bytes)?)
            }))
            .await
        };
        payloads.map(|payloads| payloads.map_err(into_store_error)).boxed()
    }
}

/// Whether an error of reading a page keeps the device from being read at all, and is not the page's own.
pub(super) fn is_of_device(error: &Error) -> bool {
    // Refused: blocks that the media does not have.
    use DeviceErrorCause::{Corrupt, Io, Refused};
    let Error::Storage(error) = error else { return false };
    match &**error {
        StorageError::Refused { source, .. } => !matches!(source.cause, Corrupt | Io | Refused),
        StorageError::Link { source, .. } => !matches!(source, LinkError::Corrupt { .. }),
        StorageError::CutOff { .. } | StorageError::Store(_) => false,
        _ => true,
    }
}

/// One page under check.
struct Subject<'a> {
    work: &'a Work,
    segment: &'a SegmentDirectory,
    entry: &'a PageEntry,
    reference: SegmentRef,
    outcome: Outcome,
}

async fn verify(
    work: &Work,
    segment: &SegmentDirectory,
    entry: &PageEntry,
    quick: bool,
) -> Outcome {
    let reference = segment.segment_ref();
    let mut subject = Subject { work, segment, entry, reference, outcome: Outcome::default() };
    if quick {
        for page in entry.page_refs() {
            subject.header(page).await;
        }
        return subject.outcome;
    }
    let Some(bytes) = subject.read(&entry.page).await else { return subject.outcome };
    let header = match parse_header(&bytes, &entry.page, &reference) {
        Ok(header) => Arc::new(header),
        Err(error) => {
            subject.store_error(&entry.page, error);
            return subject.outcome;
        }
    };
    let columns: Vec<ColumnRef> = header.chunks.iter().map(|entry| entry.column).collect();
    let Some(parts) = subject.shared(&header, bytes).await else { return subject.outcome };
    let chunks: Vec<_> = columns.iter().map(|column| chunk(&header, &parts, *column)).collect();
    let read = PageRead { segment: reference, page: entry.page, columns };
    for (column, chunk) in read.columns.iter().zip(&chunks) {
        match header.verify_chunk(&read, *column, chunk.as_deref()) {
            Ok(()) => subject.outcome.chunks += 1,
            Err(error) => subject.store_error(&entry.page, error),
        }
    }
    let mut values = OverflowValues::none();
    for page in &entry.overflow {
        let Some(bytes) = subject.read(page).await else { continue };
        match overflow_payload(&reference, page, &bytes) {
            Ok(payload) => {
                subject.outcome.chunks += 1;
                values.insert(page.page, payload);
            }
            Err(error) => subject.store_error(page, error),
        }
    }
    if subject.outcome.is_damaged {
        return subject.outcome;
    }
    let page = PageColumns { header, chunks };
    match segment.kind {
        SegmentKind::Heap => subject.heap(&page, read, &values),
        SegmentKind::Index(_) => subject.index(&page, read),
    }
    subject.outcome
}

impl Subject<'_> {
    fn place(&self, page: &PageRef) -> Place {
        Place {
            index: match &self.segment.kind {
                SegmentKind::Heap => None,
                SegmentKind::Index(run) => Some(self.work.index_name(run.index_id)),
            },
            segment: Some(self.segment.segment),
            page: Some(page.page),
            address: Some(page.extent.start),
            ..self.work.place()
        }
    }

    fn find(&mut self, place: Place, fault: Fault) {
        self.outcome.findings.push(Finding { place, fault });
    }

    /// Notes a fault that leaves the page's rows unknown.
    fn damaged(&mut self, place: Place, fault: Fault) {
        self.outcome.is_damaged = true;
        self.find(place, fault);
    }

    /// The bytes of a page; None where they cannot be read.
    async fn read(&mut self, page: &PageRef) -> Option<Bytes> {
        match blocks(&self.work.device, page.extent).await {
            Ok(bytes) => {
                self.outcome.pages += 1;
                self.outcome.bytes += bytes.len() as u64;
                Some(bytes)
            }
            Err(error) => {
                self.device_error(page, &error);
                None
            }
        }
    }

    /// The blocks `bytes` of the page, with those that it shares; None where these cannot be read.
    async fn shared(&mut self, header: &PageHeader, bytes: Bytes) -> Option<PageBlocks> {
        let page = self.entry.page;
        let shared = header.shared_extents();
        // The directory says which blocks are in use: one that it does not name would be overwritten.
        let is_named = |extent: &Extent| self.entry.shared.iter().any(|own| own.contains(*extent));
        if let Some(extent) = shared.iter().find(|extent| !is_named(extent)) {
            let fault = format!("it shares {extent}, which the directory does not name");
            self.damaged(self.place(&page), Fault::Space(fault));
            return None;
        }
        match with_shared(&self.work.device, header, page, bytes).await {
            Ok(parts) => {
                let read = parts.iter().skip(1).map(|(_, bytes)| bytes.len() as u64);
                self.outcome.bytes += read.sum::<u64>();
                Some(parts)
            }
            Err(error) => {
                self.device_error(&page, &error);
                None
            }
        }
    }

    fn device_error(&mut self, page: &PageRef, error: &Error) {
        if is_of_device(error) {
            self.outcome.unreachable = true;
            self.find(self.work.device_place(), Fault::Unreachable(error.to_string()));
        } else {
            self.damaged(self.place(page), Fault::Media(error.to_string()));
        }
    }

    fn store_error(&mut self, page: &PageRef, error: StoreError) {
        let mut place = self.place(page);
        let fault = match error {
            StoreError::Corrupt { column, reason, .. } => {
                place.column = column.map(|column| self.work.column_name(self.segment, column));
                match reason {
                    Corruption::Values(reason) => Fault::Values(reason),
                    reason => Fault::Page(reason),
                }
            }
            other => Fault::Values(other.to_string()),
        };
        self.damaged(place, fault);
    }

    /// The header alone.
    async fn header(&mut self, page: &PageRef) {
        for most in [HEADER_BLOCK_COUNT, u32::MAX] {
            let block_count = page.extent.block_count.min(most);
            let part = PageRef { extent: Extent { block_count, ..page.extent }, ..*page };
            let Some(bytes) = self.read(&part).await else { return };
            match parse_header(&bytes, page, &self.reference) {
                Ok(_) => return,
                Err(StoreError::Corrupt { reason: Corruption::Truncated { .. }, .. })
                    if block_count < page.extent.block_count => {}
                Err(error) => return self.store_error(page, error),
            }
        }
    }

    fn heap(&mut self, page: &PageColumns, read: PageRead, values: &OverflowValues) {
        let schema = &self.work.table.schema;
        if page.header.kind != PageKind::Heap {
            let fault = Fault::Page(Corruption::Field { field: "kind", found: 0, expected: None });
            return self.damaged(self.place(&self.entry.page), fault);
        }
        // Columns that the page does not have, since they are younger, are NULL; others are the table's, or were
        // dropped since.
        let known = all_columns(schema);
        let is_strange = |column: &&ColumnRef| {
            !known.contains(column) && page.header.schema_version >= schema.version
        };
        for column in read.columns.iter().filter(is_strange) {
            let mut place = self.place(&self.entry.page);
            place.column = Some(column.to_string());
            self.find(place, Fault::Values("the table has no such column".into()));
        }
        match overflow_pages(page, &read, &read.columns, None) {
            Ok(needed) => {
                let named: Vec<u32> = self.entry.overflow.iter().map(|page| page.page).collect();
                if needed != named {
                    let fault = format!(
                        "its long values lie on pages {needed:?}, and its directory names {named:?}"
                    );
                    return self.damaged(self.place(&self.entry.page), Fault::Overflow(fault));
                }
            }
            Err(error) => return self.store_error(&self.entry.page, error),
        }
        // All columns, also those that the page does not store.
        let chunk = |column: &ColumnRef| {
            let place = read.columns.iter().position(|found| found == column)?;
            page.chunks.get(place).cloned().flatten()
        };
        let chunks = known.iter().map(chunk).collect();
        let page = PageColumns { header: Arc::clone(&page.header), chunks };
        let read = PageRead { columns: known, ..read };
        let indices: Vec<usize> = (0..schema.columns.len()).collect();
        let user = Projection::of_table(schema, &indices).nullable();
        for column in user.columns.iter().zip(user.schema.fields()) {
            let field = Schema::new(vec![Arc::clone(column.1)]).into();
            let one = user.others(field, vec![*column.0]);
            match decode_batch(&page, &read, &one, None, values) {
                Ok(batch) => self.bounds(*column.0, column.1, batch.column(0)),
                Err(error) => {
                    let mut place = self.place(&self.entry.page);
                    place.column = Some(self.work.column_name(self.segment, *column.0));
                    let fault = match error {
                        StoreError::Corrupt { reason: Corruption::Values(reason), .. } => reason,
                        other => other.to_string(),
                    };
                    self.damaged(place, Fault::Values(fault));
                }
            }
        }
        if let Some(key) = self.work.tablet_key.as_ref().filter(|_| !self.outcome.is_damaged) {
            self.in_tablet(key, &page, &read, values);
        }
        let versions = Projection::new(Schema::empty().into(), Vec::new())
            .with_version(ColumnRef::Vid)
            .with_version(ColumnRef::Commit);
        match decode_batch(&page, &read, &versions, None, values) {
            Ok(batch) => self.versions(&batch),
            Err(error) => self.store_error(&self.entry.page, error),
        }
    }

    /// Compares the tablet of each row with the one that its values say.
    fn in_tablet(
        &mut self,
        key: &TabletKey,
        page: &PageColumns,
        read: &PageRead,
        values: &OverflowValues,
    ) {
        let projection = Projection::of_table(&self.work.table.schema, key.columns()).nullable();
        let count = u32::try_from(self.work.table.tablets.len()).unwrap_or(u32::MAX);
        let tablets = decode_batch(page, read, &projection, None, values)
            .and_then(|batch| key.tablets_of(batch.columns(), count));
        let tablets = match tablets {
            Ok(tablets) => tablets,
            Err(error) => return self.store_error(&self.entry.page, error),
        };
        let own = self.work.tablet.id;
        let mut wrong = tablets.iter().filter(|tablet| **tablet != own.0);
        if let Some(tablet) = wrong.next() {
            let fault =
                format!("a row of {own} belongs to tablet {tablet} ({} more)", wrong.count());
            self.find(self.place(&self.entry.page), Fault::Map(fault));
        }
    }

    fn bounds(&mut self, column: ColumnRef, field: &Field, values: &dyn Array) {
        let ColumnRef::User(id) = column else { return };
        let found = ZoneEntry::of(id, values);
        let Some(stored) = self.entry.zones.iter().find(|zone| zone.column == id) else { return };
        if !stored.covers(&found) {
            let mut place = self.place(&self.entry.page);
            place.column = Some(format!("column \"{}\"", field.name()));
            self.find(place, Fault::Bounds);
        }
    }

    fn versions(&mut self, batch: &RecordBatch) {
        let number = |place: usize| batch.column(place).as_primitive_opt::<UInt64Type>();
        let (Some(vids), Some(commits)) = (number(0), number(1)) else { return };
        let page = self.entry.page.page;
        if vids.values().first() != Some(&self.entry.vid_first) {
            let fault = format!(
                "it begins with VID {:?}, and its directory says {}",
                vids.values().first(),
                self.entry.vid_first
            );
            self.find(self.place(&self.entry.page), Fault::Version(fault));
        }
        let newest = self.work.state.commit;
        if let Some(commit) = commits.values().iter().find(|commit| **commit > newest) {
            let fault =
                format!("it has a version of commit {commit}, and the last one is {newest}");
            self.find(self.place(&self.entry.page), Fault::Version(fault));
        }
        let mut wrong: Option<(String, u64)> = None;
        for (slot, vid) in vids.values().iter().enumerate() {
            let slot = u16::try_from(slot).unwrap_or(u16::MAX);
            match judge(self.work, self.segment.segment, page, slot, *vid) {
                Ok(()) => self.outcome.rows += 1,
                Err(reason) => wrong.get_or_insert((reason, 0)).1 += 1,
            }
        }
        if let Some((reason, count)) = wrong {
            let more =
                if count > 1 { format!(" (and {} more rows)", count - 1) } else { String::new() };
            self.damaged(self.place(&self.entry.page), Fault::Map(format!("{reason}{more}")));
        }
    }

    fn index(&mut self, page: &PageColumns, read: PageRead) {
        let place = self.place(&self.entry.page);
        let key = ColumnRef::User(KEY_COLUMN);
        let projection = Projection::new(
            Schema::new(vec![Field::new("key", DataType::Binary, false)]).into(),
            vec![key],
        )
        .with_version(ColumnRef::Vid);
        let batch = match decode_batch(page, &read, &projection, None, &OverflowValues::none()) {
            Ok(batch) => batch,
            Err(error) => return self.store_error(&self.entry.page, error),
        };
        let Some(keys) = batch.column(0).as_binary_opt::<i32>() else { return };
        self.outcome.index_entries += keys.len() as u64;
        let out_of_order =
            keys.iter().zip(keys.iter().skip(1)).position(|(before, behind)| before >= behind);
        if let Some(slot) = out_of_order {
            let fault = format!("its keys do not ascend behind slot {slot}");
            self.damaged(place.clone(), Fault::Index(fault));
        }
        let ends = [keys.iter().flatten().next(), keys.iter().flatten().last()];
        let zone = self.entry.zones.iter().find(|zone| zone.column == KEY_COLUMN);
        let fences = zone
            .map(|zone| [&zone.min, &zone.max].map(|end| end.as_ref().and_then(ZoneValue::bytes)));
        if fences != Some(ends) {
            let fault = "its directory has other first and last keys than it has".to_owned();
            self.damaged(place, Fault::Index(fault));
        }
    }
}

impl Work {
    /// How people call a column of a page.
    fn column_name(&self, segment: &SegmentDirectory, column: ColumnRef) -> String {
        let ColumnRef::User(id) = column else { return column.to_string() };
        if segment.kind != SegmentKind::Heap {
            return "its keys".to_owned();
        }
        let known = self.table.schema.columns.iter().find(|column| column.id == id);
        known.map_or(column.to_string(), |column| format!("column \"{}\"", column.name))
    }
}
