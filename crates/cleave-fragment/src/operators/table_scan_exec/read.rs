//! The stream of one partition of a scan: morsels in, batches of visible, matching rows out.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::{iter, vec};

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use cleave_media::Stopwatch;
use cleave_store::{ColumnRef, OverflowValues, PageColumns, PageRead, Pick};
use datafusion_common::{DataFusionError, Result, internal_datafusion_err};
use datafusion_execution::TaskContext;
use datafusion_execution::memory_pool::MemoryPool;
use datafusion_physical_expr::split_conjunction;
use datafusion_physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, RecordOutput,
};
use futures::future::{BoxFuture, try_join};
use futures::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};

use super::condition::Condition;
use super::conditions::Conditions;
use super::filters_above::FiltersAbove;
use super::history::{CONDITIONS_MAX, KnownRows, ScanHistory, Shares};
use super::scan_page::{ScanPage, external, read_overflow};
use super::{References, TableScan, version_columns};
use crate::expressions::key_set::compact::is_implied;
use crate::fragment::FragmentContext;
use crate::index_filter::{IndexFigures, IndexFilteredPass, LookUpRequest, rows_of};
use crate::morsel::{Morsel, MorselPage, MorselSource};
use crate::operators::dense_aggregate_exec::SharedGroups;
use crate::row_places::page_reference;

/// A batch with at most one row in so many of its capacity is merged with others.
const SMALL: usize = 4;

/// The state of one partition of a scan.
pub(super) struct ScanRun {
    scan: Arc<TableScan>,
    conditions: Conditions,
    /// What earlier scans know of these.
    history: Option<ScanHistory>,
    /// Filters that tighten while the scan runs. Losing one changes nothing.
    filters_above: Arc<FiltersAbove>,
    context: Arc<FragmentContext>,
    /// The index filter of the input.
    filtered: Option<IndexFilteredPass>,
    metrics: ExecutionPlanMetricsSet,
    partition: usize,
    memory: Arc<dyn MemoryPool>,
    batch_size: usize,
    /// The output schema.
    schema: SchemaRef,
    baseline: BaselineMetrics,
    rows_read: Count,
    pages_read: Count,
    /// Whether a morsel has been read.
    has_begun: AtomicBool,
    /// Whether the last page had matches: the next is then read in one request.
    pages_match: AtomicBool,
    /// Whether no row of the last morsel was left where a bound from above was evaluated.
    bound_excludes: AtomicBool,
    /// The groups that are offered each page before it is decoded.
    taker: Option<SharedGroups>,
}

impl ScanRun {
    pub(super) fn new(
        scan: Arc<TableScan>,
        filters_above: Arc<FiltersAbove>,
        context: Arc<FragmentContext>,
        task: &TaskContext,
        metrics: &ExecutionPlanMetricsSet,
        (partition, pass): (usize, usize),
        taker: Option<SharedGroups>,
    ) -> Result<Self> {
        let parts: Vec<_> = scan.predicate.iter().flat_map(split_conjunction).collect();
        // Bounds of keys are for pruning pages; for the remaining rows the keys themselves are stricter.
        let asked = parts.iter().filter(|part| !is_implied(part, parts.iter().copied()));
        let asked: Vec<_> = asked.copied().collect();
        let conditions = asked.iter().map(|expr| Ok(Arc::new(Condition::new(expr, &scan.filter)?)));
        let conditions = conditions.collect::<Result<Vec<_>>>()?;
        let taken = asked.into_iter().zip(&conditions);
        // One that may leave pages out, by an index or for its limit, has nothing for others and nothing to wait for.
        let reads_all = scan.fetch.is_none() && !context.index_filters.contains_key(&scan.input);
        let shares = Shares {
            morsels: context.inputs.get(&scan.input).filter(|_| reads_all),
            waits: filters_above.filters().is_empty(),
        };
        let used = context.history.as_ref();
        let history = ScanHistory::of(used, &scan, taken, shares, (metrics, partition))?;
        Ok(Self {
            conditions: Conditions::new(conditions),
            history,
            filtered: context.index_filters.get(&scan.input).map(|input| input.of_pass(pass)),
            filters_above,
            metrics: metrics.clone(),
            partition,
            memory: Arc::clone(task.memory_pool()),
            schema: scan.schema(),
            scan,
            context,
            batch_size: task.session_config().batch_size().max(1),
            baseline: BaselineMetrics::new(metrics, partition),
            rows_read: MetricBuilder::new(metrics).counter("rows_read", partition),
            pages_read: MetricBuilder::new(metrics).counter("pages_read", partition),
            has_begun: false.into(),
            pages_match: false.into(),
            bound_excludes: false.into(),
            taker,
        })
    }
}

/// The batches of all morsels that this partition takes.
pub(super) fn scan_stream(
    run: ScanRun,
    input: Arc<dyn MorselSource>,
    pass: usize,
) -> BoxStream<'static, Result<RecordBatch>> {
    let (fetch, partition) = (run.scan.fetch, run.partition);
    let run = Arc::new(run);
    // A limited scan reads nothing ahead: the first morsel may be enough.
    let ahead = if fetch.is_some() { 1 } else { run.context.read_ahead.max(1) };
    let morsels = stream::unfold(input, move |input| async move {
        let morsel = input.next(pass, partition).await?;
        Some((morsel, input))
    });
    let (reader, decoder) = (Arc::clone(&run), Arc::clone(&run));
    let batches: BoxStream<'static, Result<RecordBatch>> = morsels
        .map(move |morsel| read_morsel(Arc::clone(&reader), morsel))
        .buffered(ahead)
        .map_ok(move |selected| decoded(Arc::clone(&decoder), selected))
        .try_flatten()
        .boxed();
    let counted = CountedRows { run, batches, row_count: 0 };
    stream::unfold(counted, |mut counted| async move {
        let batch = counted.next().await?;
        Some((batch, counted))
    })
    .boxed()
}

/// Counts the rows of a scan up to its limit.
struct CountedRows {
    run: Arc<ScanRun>,
    batches: BoxStream<'static, Result<RecordBatch>>,
    row_count: usize,
}

impl CountedRows {
    async fn next(&mut self) -> Option<Result<RecordBatch>> {
        let left = self.run.scan.fetch.map_or(usize::MAX, |fetch| fetch - self.row_count);
        if left == 0 {
            return None;
        }
        let batch = match self.batches.next().await? {
            Ok(batch) if batch.num_rows() > left => batch.slice(0, left),
            Ok(batch) => batch,
            Err(error) => return Some(Err(error)),
        };
        self.row_count += batch.num_rows();
        Some(Ok(batch.record_output(&self.run.baseline)))
    }
}

/// The remaining pages of a morsel, with selected rows that are not decoded yet. Chunks are read ahead; their values,
/// which may take many times the space, are decoded on demand.
struct SelectedPages {
    pages: vec::IntoIter<ScanPage<'static>>,
    overflow: OverflowValues,
}

impl SelectedPages {
    fn none() -> Self {
        Self { pages: Vec::new().into_iter(), overflow: OverflowValues::default() }
    }
}

fn decoded(
    run: Arc<ScanRun>,
    selected: SelectedPages,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    stream::try_unfold((run, selected), |(run, mut selected)| async move {
        if selected.pages.len() == 0 {
            return Ok::<_, DataFusionError>(None);
        }
        let batches = run.decode(&mut selected).await?;
        Ok(Some((stream::iter(batches.into_iter().map(Ok::<_, DataFusionError>)), (run, selected))))
    })
    .try_flatten()
}

fn read_morsel(run: Arc<ScanRun>, mut morsel: Morsel) -> BoxFuture<'static, Result<SelectedPages>> {
    Box::pin(async move {
        // Pages in memory are read and filtered without a wait. The tasks of this thread, such as one that this scan
        // has just woken, could run nowhere else meanwhile.
        if run.has_begun.swap(true, Relaxed) {
            tokio::task::yield_now().await;
        }
        if let Some(filtered) = &run.filtered {
            filtered.resolve(&run.asked()).await?;
            let segment = morsel.segment.segment;
            morsel.pages.retain(|page| filtered.hits_on(segment, page) != Some(&[]));
            if morsel.pages.is_empty() {
                return Ok(SelectedPages::none());
            }
        }
        run.read_morsel(morsel).await
    })
}

impl ScanRun {
    /// The question to an index.
    fn asked(&self) -> LookUpRequest<'_> {
        let scan = &*self.scan;
        let own = scan.predicate.iter().map(|predicate| (Arc::clone(predicate), &scan.filter));
        let above =
            self.filters_above.filters().iter().map(|filter| (Arc::clone(filter), &scan.output));
        LookUpRequest {
            filters: own.chain(above).collect(),
            scan,
            pages: &*self.context.pages,
            memory: &self.memory,
            record: Box::new(|figures| self.record(figures)),
        }
    }

    fn record(&self, figures: &IndexFigures) {
        for (name, count) in figures.counts() {
            let counter = MetricBuilder::new(&self.metrics).counter(name, self.partition);
            counter.add(usize::try_from(count).unwrap_or(usize::MAX));
        }
    }

    async fn read_morsel(&self, mut morsel: Morsel) -> Result<SelectedPages> {
        if morsel.segment.table_id != self.scan.table_id {
            return Err(DataFusionError::Internal(format!(
                "morsel {} belongs to table {}, the scan to table {}",
                morsel.number, morsel.segment.table_id, self.scan.table_id
            )));
        }
        let claim = match &self.history {
            Some(history) => history.begins(&morsel).await,
            None => None,
        };
        let known = self.leave_known(&mut morsel);
        if morsel.pages.is_empty() {
            return Ok(SelectedPages::none());
        }
        let evaluates = !known.iter().all(KnownRows::is_whole);
        // Nothing is evaluated that others may wait for.
        let claim = claim.filter(|_| evaluates);
        let reading = Stopwatch::start();
        let row_count: u64 =
            morsel.pages.iter().map(|page| self.rows_looked_at(&morsel, page)).sum();
        self.context.counters.add_morsel(morsel.pages.len() as u64, row_count);
        self.rows_read.add(usize::try_from(row_count).unwrap_or(usize::MAX));
        self.pages_read.add(morsel.pages.len());

        let missing = self.columns_beyond_filter();
        let at_once =
            missing.is_empty() || self.scan.predicate.is_none() || self.pages_match.load(Relaxed);
        let bounded = self.bounded_columns()?;
        let mut first: Vec<ColumnRef> = self.scan.filter.columns.clone();
        first.extend(missing.iter().filter(|column| at_once || bounded.contains(column)));
        // Where a top-k has ruled out a whole morsel by its bound, that of the next one is asked before more is read.
        let bound_first = !bounded.is_empty() && self.bound_excludes.load(Relaxed);
        let mut pages = match bound_first {
            true => self.read_pages(morsel, known, &bounded, &bounded).await?,
            false => self.read_pages(morsel, known, &first, &self.scan.output.columns).await?,
        };
        if bound_first {
            let _timer = self.baseline.elapsed_compute().timer();
            for page in &mut pages {
                self.select_bounded(page)?;
            }
            pages.retain(ScanPage::has_rows);
        }
        if bound_first && !pages.is_empty() {
            self.bound_excludes.store(false, Relaxed);
            first.retain(|column| !bounded.contains(column));
            if !first.is_empty() {
                self.read_rest(&mut pages, &first).await?;
            }
        }
        if pages.is_empty() {
            return Ok(SelectedPages::none());
        }
        let is_asked = |page: &&ScanPage<'_>| bound_first || !page.known.is_whole();
        let asked = pages.iter().filter(is_asked);
        let filter_values = read_overflow(&self.context, asked, &self.scan.filter.columns).await?;
        {
            let _timer = self.baseline.elapsed_compute().timer();
            for page in &mut pages {
                self.select(page, &filter_values)?;
            }
        }
        drop(claim);
        if let Some(history) = self.history.as_ref().filter(|_| evaluates) {
            history.has_read(reading.elapsed());
        }
        pages.retain(ScanPage::has_rows);
        if self.scan.predicate.is_some() {
            self.pages_match.store(!pages.is_empty(), Relaxed);
        }
        if pages.is_empty() {
            self.bound_excludes.store(!bounded.is_empty(), Relaxed);
            return Ok(SelectedPages::none());
        }
        let missing: Vec<ColumnRef> =
            missing.into_iter().filter(|column| !bounded.contains(column)).collect();
        if !at_once && !missing.is_empty() {
            self.read_rest(&mut pages, &missing).await?;
        }
        let overflow = read_overflow(&self.context, &pages, &self.scan.output.columns).await?;
        Ok(SelectedPages { pages: pages.into_iter(), overflow })
    }

    /// Decodes the output of pages until there are rows for a batch.
    async fn decode(&self, selected: &mut SelectedPages) -> Result<Vec<RecordBatch>> {
        let mut batches: Vec<RecordBatch> = Vec::new();
        {
            let _timer = self.baseline.elapsed_compute().timer();
            for mut page in selected.pages.by_ref() {
                self.materialise(&mut page, &selected.overflow, &mut batches)?;
                let row_count: usize = batches.iter().map(RecordBatch::num_rows).sum();
                if row_count >= self.batch_size {
                    break;
                }
            }
        }
        gathered(&self.schema, batches, self.batch_size)
    }

    /// Rows of `page` on which conditions are evaluated.
    fn rows_looked_at(&self, morsel: &Morsel, page: &MorselPage) -> u64 {
        let hits = self.filtered.as_ref();
        let hits = hits.and_then(|filtered| filtered.hits_on(morsel.segment.segment, page));
        hits.map_or(u64::from(page.page.row_count), |hits| hits.len() as u64)
    }

    /// Output columns that the predicate does not read.
    fn columns_beyond_filter(&self) -> Vec<ColumnRef> {
        let filter = &self.scan.filter.columns;
        self.scan.output.columns.iter().filter(|column| !filter.contains(column)).copied().collect()
    }

    /// Leaves those pages of `morsel` that may have rows by what the history knows, and gives what it knows of each.
    fn leave_known(&self, morsel: &mut Morsel) -> Vec<KnownRows> {
        let Some(history) = &self.history else { return Vec::new() };
        let (segment, mut known) = (morsel.segment, Vec::with_capacity(morsel.pages.len()));
        morsel.pages.retain(|page| {
            let of_page = history.known(&segment, page);
            let is_left = of_page.may_have_rows();
            if is_left {
                known.push(of_page);
            }
            is_left
        });
        known
    }

    /// Reads `columns` of the pages of `morsel`, and `whole` of those of which the history knows which rows are left.
    async fn read_pages(
        &self,
        morsel: Morsel,
        known: Vec<KnownRows>,
        columns: &[ColumnRef],
        whole: &[ColumnRef],
    ) -> Result<Vec<ScanPage<'static>>> {
        let versions = version_columns(self.context.snapshot);
        let with_versions = |columns: &[ColumnRef]| -> Vec<ColumnRef> {
            versions.iter().chain(columns).copied().collect()
        };
        let (columns, whole) = (with_versions(columns), with_versions(whole));
        let known = known.into_iter().map(Some).chain(iter::repeat_with(|| None));
        let wanted = morsel.pages.iter().zip(known).map(|(place, known)| {
            let known = known.unwrap_or_default();
            let columns = if known.is_whole() { whole.clone() } else { columns.clone() };
            (PageRead { segment: morsel.segment, page: place.page, columns }, known)
        });
        let (reads, known): (Vec<PageRead>, Vec<KnownRows>) = wanted.unzip();
        let answers = self.read(&reads).await?;
        let pages = morsel.pages.into_iter().zip(reads).zip(answers).zip(known);
        let pages = pages.map(|(((place, read), columns), known)| {
            let mut page = ScanPage::new(Cow::Owned(place), read, columns);
            page.known = known;
            page
        });
        Ok(pages.collect())
    }

    /// Reads pages, of which one request names the same columns.
    async fn read(&self, reads: &[PageRead]) -> Result<Vec<PageColumns>> {
        let first = reads.first().map(|read| read.columns.as_slice());
        let is_first = |read: &PageRead| Some(read.columns.as_slice()) == first;
        if reads.iter().all(is_first) {
            return self.context.pages.read(reads.to_vec()).await.map_err(external);
        }
        let (one, other): (Vec<_>, Vec<_>) = reads.iter().cloned().partition(is_first);
        let both = try_join(self.context.pages.read(one), self.context.pages.read(other));
        let (one, other) = both.await.map_err(external)?;
        let (mut one, mut other) = (one.into_iter(), other.into_iter());
        let answers = reads.iter().map(|read| match is_first(read) {
            true => one.next(),
            false => other.next(),
        });
        let answers = answers.collect::<Option<Vec<_>>>();
        answers.ok_or_else(|| internal_datafusion_err!("fewer pages were read than were asked for"))
    }

    /// Reads the chunks `missing`, where they were not read yet, from pages with remaining rows.
    async fn read_rest(&self, pages: &mut [ScanPage<'_>], missing: &[ColumnRef]) -> Result<()> {
        let lacks = |page: &&mut ScanPage<'_>| {
            missing.iter().any(|column| !page.read.columns.contains(column))
        };
        let mut pages: Vec<_> = pages.iter_mut().filter(lacks).collect();
        if pages.is_empty() {
            return Ok(());
        }
        let reads: Vec<PageRead> = pages
            .iter()
            .map(|page| PageRead { columns: missing.to_vec(), ..page.read.clone() })
            .collect();
        let answers = self.context.pages.read(reads).await.map_err(external)?;
        for (page, answer) in pages.iter_mut().zip(answers) {
            page.read.columns.extend(missing);
            page.columns.chunks.extend(answer.chunks);
        }
        Ok(())
    }

    /// Decides which rows of `page` are visible and satisfy the predicate.
    fn select(&self, page: &mut ScanPage<'_>, overflow: &OverflowValues) -> Result<()> {
        let mut kept = page.visible_rows(self.context.snapshot)?;
        if let Some(found) = self.found(page) {
            kept = Some(match kept {
                Some(visible) => &visible & &found,
                None => found,
            });
        }
        if let Some(history) = &self.history {
            kept = history.narrow(page, kept, overflow, self.batch_size)?;
        }
        let above = self.above_early(page)?;
        let answered = page.known.answered();
        if above.is_empty() && answered == 0 {
            page.selection = self.conditions.narrow(page, kept, overflow, self.batch_size)?;
            return Ok(());
        }
        let own = self.conditions.list().iter().enumerate();
        let own = own.filter(|(index, _)| *index >= CONDITIONS_MAX || answered & (1 << index) == 0);
        let own = own.map(|(_, condition)| condition);
        let all = Conditions::new(own.chain(&above).cloned().collect());
        page.selection = all.narrow(page, kept, overflow, self.batch_size)?;
        page.asked = above;
        Ok(())
    }

    /// The current conditions from above that can be evaluated on `page` together with the predicate. If no condition
    /// can fail, their order changes nothing.
    fn above_early(&self, page: &ScanPage<'_>) -> Result<Vec<Arc<Condition>>> {
        if !self.conditions.cannot_fail() {
            return Ok(Vec::new());
        }
        let above = self.filters_above.conditions(&self.scan.output)?;
        let early = above
            .list()
            .iter()
            .filter(|condition| !condition.may_fail() && condition.needs_only(&page.read.columns));
        Ok(early.cloned().collect())
    }

    /// The columns that conditions from above ask for and that are read with those of the predicate, or before: those
    /// of bounds, and of sets of keys that remove rows at less cost than some condition of the predicate.
    fn bounded_columns(&self) -> Result<Vec<ColumnRef>> {
        if self.filters_above.filters().is_empty() || !self.conditions.cannot_fail() {
            return Ok(Vec::new());
        }
        let above = self.filters_above.conditions(&self.scan.output)?;
        let last = self.conditions.last_rank();
        let early = |condition: &Arc<Condition>| {
            let keys = || condition.looked_up_in_set().filter(|_| Some(condition.rank()) < last);
            condition.compared().or_else(keys)
        };
        let mut columns: Vec<ColumnRef> = above.list().iter().filter_map(early).collect();
        columns.sort_unstable();
        columns.dedup();
        Ok(columns)
    }

    /// Decides which rows of `page` are visible and satisfy the bounds from above.
    fn select_bounded(&self, page: &mut ScanPage<'_>) -> Result<()> {
        let kept = page.visible_rows(self.context.snapshot)?;
        let bounds = Conditions::new(self.above_early(page)?);
        let none = OverflowValues::default();
        page.selection = bounds.narrow(page, kept, &none, self.batch_size)?;
        Ok(())
    }

    /// The rows of `page` that an index has found; None if any may match.
    fn found(&self, page: &ScanPage<'_>) -> Option<BooleanBuffer> {
        let hits = self.filtered.as_ref()?.hits_on(page.read.segment.segment, &page.place)?;
        let vid_first = page.vid_first()?;
        Some(rows_of(hits, vid_first, &page.place.gaps, page.row_count()))
    }

    /// Decodes the output of one page, in slices of at most the batch size.
    fn materialise(
        &self,
        page: &mut ScanPage<'_>,
        overflow: &OverflowValues,
        batches: &mut Vec<RecordBatch>,
    ) -> Result<()> {
        // Rows that a join or TopK above has ruled out by now need no decoding.
        let above = self.filters_above.conditions(&self.scan.output)?;
        let is_new = |condition: &&Arc<Condition>| {
            !page.asked.iter().any(|asked| Arc::ptr_eq(asked, condition))
        };
        let late = Conditions::new(above.list().iter().filter(is_new).cloned().collect());
        // It stays while they look: long values of other rows were not read.
        let selection = page.selection.clone();
        page.selection = late.narrow(page, selection, overflow, self.batch_size)?;
        if self.scan.references == References::Pages {
            if page.has_rows() {
                let page = page_reference(page.read.segment.segment, page.place.page.page);
                let references: ArrayRef = Arc::new(UInt64Array::from(vec![page]));
                batches
                    .push(RecordBatch::try_new(SchemaRef::clone(&self.schema), vec![references])?);
            }
            return Ok(());
        }
        let output = &self.scan.output;
        page.open(output, overflow)?;
        if let Some(taker) = &self.taker
            && taker.lock().unwrap_or_else(PoisonError::into_inner).absorb(page, output)?
        {
            let selection = page.selection.as_ref();
            let row_count = selection.map_or(page.row_count(), BooleanBuffer::count_set_bits);
            self.baseline.record_output(row_count);
            return Ok(());
        }
        let selection = page
            .selection
            .as_ref()
            .filter(|selection| selection.count_set_bits() < selection.len());
        let mut first_row = None;
        for range in page.ranges(selection, self.batch_size) {
            let pick =
                Pick::new(range.clone(), selection, output.columns.len()).map_err(external)?;
            if pick.count() == 0 {
                continue;
            }
            let mut arrays = page.decode(&output.columns, &pick)?;
            if self.scan.references == References::Rows {
                let first = match first_row {
                    Some(first) => first,
                    None => {
                        let (segment, input) = (page.read.segment, self.scan.input);
                        let first = self.context.places.add(input, segment, &page.place)?;
                        *first_row.insert(first)
                    }
                };
                arrays.push(Arc::new(references(first, range, selection)));
            }
            let options = RecordBatchOptions::new().with_row_count(Some(pick.count()));
            let schema = SchemaRef::clone(&self.schema);
            batches.push(RecordBatch::try_new_with_options(schema, arrays, &options)?);
        }
        Ok(())
    }
}

/// `batches`, with consecutive small ones merged: those of pages that were written row by row have few rows, and the
/// operators above have a cost for each batch.
fn gathered(
    schema: &SchemaRef,
    batches: Vec<RecordBatch>,
    batch_size: usize,
) -> Result<Vec<RecordBatch>> {
    let is_small = |batch: &RecordBatch| batch.num_rows() * SMALL <= batch_size;
    if batches.len() < 2 || !batches.iter().any(is_small) {
        return Ok(batches);
    }
    let mut gathered = Vec::new();
    let mut batches = batches.into_iter().peekable();
    while let Some(batch) = batches.next() {
        if !is_small(&batch) {
            gathered.push(batch);
            continue;
        }
        let mut row_count = batch.num_rows();
        let mut small = vec![batch];
        while let Some(next) =
            batches.next_if(|next| is_small(next) && row_count + next.num_rows() <= batch_size)
        {
            row_count += next.num_rows();
            small.push(next);
        }
        gathered.push(match small.as_slice() {
            [_] => small.swap_remove(0),
            _ => concat_batches(schema, &small)?,
        });
    }
    Ok(gathered)
}

/// References to the rows of `range` in `selection`, on a page whose first row has the reference `first`.
fn references(first: u64, range: Range<usize>, selection: Option<&BooleanBuffer>) -> UInt64Array {
    let start = range.start;
    match selection {
        None => range.map(|slot| first + slot as u64).collect(),
        Some(selection) => {
            let bits = selection.slice(start, range.len());
            bits.set_indices().map(|slot| first + (start + slot) as u64).collect()
        }
    }
}
