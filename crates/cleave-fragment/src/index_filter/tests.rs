//! The rows that an index filter keeps, against a plain filter, and the index filters that are refused.

mod by_keys;

use arrow::datatypes::{DataType, Field, Schema};
use bytes::Bytes;
use cleave_media::{BlockAddress, Extent, Media, Memory};
use cleave_store::{
    ColumnRef, MediaPages, PageColumns, PageRead, PageRef, PageSource, Projection, RunWriter,
    SegmentRef, StoreError,
};
use datafusion_execution::memory_pool::{GreedyMemoryPool, MemoryPool, UnboundedMemoryPool};
use datafusion_physical_expr::PhysicalExpr;
use futures::executor::block_on;
use futures::future::BoxFuture;
use proptest::prelude::*;

use super::*;
use crate::operators::table_scan_exec::{References, TableScan};

/// A scan of column 1, a bigint `k`, and column 2, a text `t`, which keeps rows that satisfy `predicate`, over both.
fn scan(predicate: Option<Arc<dyn PhysicalExpr>>) -> TableScan {
    let fields =
        vec![Field::new("k", DataType::Int64, true), Field::new("t", DataType::Utf8, true)];
    let both = Projection::new(
        Arc::new(Schema::new(fields)),
        vec![ColumnRef::User(1), ColumnRef::User(2)],
    );
    TableScan {
        table: "t".into(),
        table_id: 1,
        output: both.clone(),
        filter: both,
        predicate,
        input: 3,
        fetch: None,
        references: References::None,
    }
}

async fn resolve(
    pass: &IndexFilteredPass,
    scan: &TableScan,
    pages: &dyn PageSource,
    memory: &Arc<dyn MemoryPool>,
) -> Result<Vec<IndexFigures>> {
    let recorded = Mutex::new(Vec::new());
    let own = scan.predicate.iter().map(|predicate| (Arc::clone(predicate), &scan.filter));
    let record = |figures: &IndexFigures| recorded.lock().unwrap().push(figures.clone());
    let asked =
        LookUpRequest { filters: own.collect(), scan, pages, memory, record: Box::new(&record) };
    pass.resolve(&asked).await?;
    drop(asked);
    Ok(recorded.into_inner().unwrap())
}

/// One index filter of no morsels, in its first pass.
fn filtered(index_filter: IndexFilter) -> IndexFilteredPass {
    IndexFilteredInput::new(vec![index_filter], &[]).unwrap().of_pass(0)
}

fn range(from: &str, below: Option<&str>) -> KeyRange {
    KeyRange { from: from.into(), below: below.map(Into::into) }
}

fn index_filter(ranges: Vec<KeyRange>) -> IndexFilter {
    IndexFilter { input: 3, ranges, ..IndexFilter::default() }
}

/// A run of 10,000 keys `00000`, `00001`, …, whose rows are `vid_of` them, on media.
fn run(vid_of: impl Fn(u64) -> u64) -> (Arc<Memory>, IndexPages) {
    let segment = SegmentRef { table_id: 1, segment: SegmentId(9), schema_version: 1, commit: 1 };
    let mut writer = RunWriter::new(segment, 0, true).unwrap();
    let mut pages = Vec::new();
    for number in 0..10_000 {
        pages.extend(writer.push(format!("{number:05}").as_bytes(), vid_of(number)).unwrap());
    }
    pages.extend(writer.finish().unwrap().pages);
    let (media, mut placed) = (Arc::new(Memory::new()), Vec::new());
    for page in pages {
        let start = media.block_count();
        media.grow_to(start + u64::from(page.block_count())).unwrap();
        media.write(BlockAddress(start), &page.bytes).unwrap();
        placed.push(page.page_ref(BlockAddress(start)));
    }
    (media, IndexPages::whole(segment, placed))
}

fn page(vid_first: u64, row_count: u32) -> MorselPage {
    let extent = Extent { start: BlockAddress(0), block_count: 1 };
    let page = PageRef { page: 0, extent, row_count, checksum: 0 };
    MorselPage {
        page,
        vid_first,
        gaps: Default::default(),
        overflow: Vec::new(),
        dead: Default::default(),
    }
}

/// All of segment 1, with the index `pages`.
fn part(pages: IndexPages) -> IndexFilteredPart {
    IndexFilteredPart {
        segments: vec![SegmentId(1)],
        runs: vec![pages],
        ..IndexFilteredPart::default()
    }
}

fn unbounded() -> Arc<dyn MemoryPool> {
    Arc::new(UnboundedMemoryPool::default())
}

#[test]
fn entries_in_the_ranges_and_rows_that_were_given_are_hits() {
    let (media, pages) = run(|number| 20_000 - number);
    let source = MediaPages::new(media);
    let index_filter = IndexFilter {
        ranges: vec![range("00010", Some("00013")), range("09998", None)],
        parts: vec![
            IndexFilteredPart {
                segments: vec![SegmentId(1), SegmentId(2)],
                runs: vec![pages],
                rows: vec![77, 19_990],
                ..IndexFilteredPart::default()
            },
            IndexFilteredPart {
                segments: vec![SegmentId(3)],
                rows: vec![5],
                ..IndexFilteredPart::default()
            },
        ],
        ..index_filter(Vec::new())
    };
    let filtered = filtered(index_filter);
    block_on(resolve(&filtered, &scan(None), &source, &unbounded())).unwrap();
    let hits = |segment, page| filtered.hits_on(SegmentId(segment), &page).map(<[u64]>::to_vec);
    let all = vec![77, 10_001, 10_002, 19_988, 19_989, 19_990];
    assert_eq!(hits(1, page(0, 30_000)), Some(all));
    assert_eq!(hits(2, page(10_002, 9987)), Some(vec![10_002, 19_988]));
    assert_eq!(hits(2, page(10_003, 9000)), Some(Vec::new()));
    assert_eq!(hits(3, page(0, 30_000)), Some(vec![5]));
    assert_eq!(hits(4, page(0, 30_000)), None, "of this segment nothing is known");
    let rows = rows_of(&[10_002, 19_988], 10_002, &VidGaps::none(), 9987);
    assert_eq!(rows.set_indices().collect::<Vec<_>>(), [0, 9986]);
}

#[test]
fn a_budget_that_does_not_do_is_told() {
    let (media, pages) = run(|number| number);
    let part = part(pages);
    let index_filter = IndexFilter { parts: vec![part], ..index_filter(vec![range("", None)]) };
    let filtered = filtered(index_filter);
    let small: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(100_000));
    let source = MediaPages::new(media);
    let error = block_on(resolve(&filtered, &scan(None), &source, &small)).unwrap_err();
    assert!(matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)), "{error}");
    assert_eq!(small.reserved(), 0);
}

/// A page source that fails if a page is read more than once.
#[derive(Debug)]
struct ReadOnce(MediaPages, std::sync::atomic::AtomicUsize);

impl PageSource for ReadOnce {
    fn read(&self, reads: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        self.1.fetch_add(reads.len(), Ordering::Relaxed);
        self.0.read(reads)
    }

    fn read_overflow(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>> {
        self.0.read_overflow(segment, pages)
    }
}

#[test]
fn partitions_read_the_index_once() {
    let (media, pages) = run(|number| number);
    let page_count = pages.pages.len();
    let part = part(pages);
    let index_filter =
        IndexFilter { parts: vec![part], ..index_filter(vec![range("0", Some("1"))]) };
    let filtered = IndexFilteredInput::new(vec![index_filter], &[]).unwrap();
    let source = ReadOnce(MediaPages::new(media), 0.into());
    let passes: Vec<IndexFilteredPass> = (0..4).map(|pass| filtered.of_pass(pass)).collect();
    let (scan, memory) = (scan(None), unbounded());
    let partitions = passes.iter().map(|pass| resolve(pass, &scan, &source, &memory));
    let done = block_on(futures::future::join_all(partitions));
    assert!(done.into_iter().all(|done| done.is_ok()));
    assert_eq!(source.1.into_inner(), page_count);
}

#[test]
fn ranges_that_no_host_sends_are_refused_by_name() {
    let refusal = |ranges| index_filter(ranges).check().unwrap_err().to_string();
    for ranges in [
        vec![range("b", Some("a"))],
        vec![range("a", Some("a"))],
        vec![range("b", Some("c")), range("a", Some("b"))],
        vec![range("a", Some("c")), range("b", Some("d"))],
        vec![range("a", None), range("b", Some("c"))],
    ] {
        assert!(refusal(ranges).contains("out of order"));
    }
    let long = KeyRange { from: vec![1; 4000], below: None };
    assert!(refusal(vec![long]).contains("4000 bytes"));
    let many: Vec<KeyRange> =
        (0..5000_u32).map(|n| range(&format!("{n:05}"), Some(&format!("{n:05}x")))).collect();
    assert!(refusal(many).contains("5000 ranges"));
    let (_, pages) = run(|number| number);
    let part = part(pages);
    let without = IndexFilter { parts: vec![part], ..index_filter(Vec::new()) };
    assert!(without.check().unwrap_err().to_string().contains("no ranges"));
    let part = IndexFilteredPart { segments: vec![SegmentId(1)], ..IndexFilteredPart::default() };
    let twice = IndexFilter { parts: vec![part.clone(), part], ..index_filter(Vec::new()) };
    assert!(IndexFilteredInput::new(vec![twice], &[]).unwrap_err().to_string().contains("twice"));
}

proptest! {
    #[test]
    fn hits_are_a_plain_filter(
        ends in prop::collection::btree_set(0_u64..10_000, 0..12),
        rows in prop::collection::vec(0_u64..20_000, 0..20),
        first in 0_u64..20_000,
        count in 1_u32..5000,
    ) {
        let vid_of = |number: u64| number * 7919 % 10_007;
        let (media, pages) = run(vid_of);
        let ends: Vec<u64> = ends.into_iter().collect();
        let ranges: Vec<KeyRange> = ends
            .chunks_exact(2)
            .map(|pair| range(&format!("{:05}", pair[0]), Some(&format!("{:05}", pair[1]))))
            .collect();
        let runs = if ranges.is_empty() { Vec::new() } else { vec![pages] };
        let mut expected: Vec<u64> = ends
            .chunks_exact(2)
            .flat_map(|pair| (pair[0]..pair[1]).map(vid_of))
            .chain(rows.iter().copied())
            .filter(|vid| (first..first + u64::from(count)).contains(vid))
            .collect();
        expected.sort_unstable();
        expected.dedup();
        let part =
            IndexFilteredPart { segments: vec![SegmentId(1)], runs, rows, ..IndexFilteredPart::default() };
        let filtered = filtered(IndexFilter { parts: vec![part], ..index_filter(ranges) });
        let source = MediaPages::new(media);
        block_on(resolve(&filtered, &scan(None), &source, &unbounded())).unwrap();
        let found = filtered.hits_on(SegmentId(1), &page(first, count)).unwrap();
        prop_assert_eq!(found, &expected);
        let bits = rows_of(found, first, &VidGaps::none(), count as usize);
        prop_assert!(bits.set_indices().map(|row| first + row as u64).eq(expected));
    }
}
