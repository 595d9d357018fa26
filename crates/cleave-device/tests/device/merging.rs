//! Fragments that write pages, over every link: runs merged on the device, and nothing written elsewhere.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};

use arrow::array::RecordBatch;
use cleave_fragment::command::{DeviceErrorCause, Execute};
use cleave_fragment::link::RunStream;
use cleave_fragment::{
    IndexFilter, IndexFilteredPart, IndexInput, IndexPages, MergeRunsExec, PlacedRun, WriteRunExec,
    encode_fragment,
};
use cleave_media::{AlignedBuffer, BLOCK_SIZE, BlockAddress, Extent, Media, MediaError, Memory};
use cleave_store::{
    KeyRange, MediaPages, PageCursor, PageRef, Run, RunProperties, RunWriter, SegmentDirectory,
    SegmentId, SegmentKind, SegmentRef, index::run::INDEX_PAGE_CLASS,
};
use datafusion_physical_plan::ExecutionPlan;

use crate::bench::{Bench, benches, device_error, extent, options};

pub(crate) type Entries = BTreeMap<Vec<u8>, u64>;

/// The space for the merged run.
pub(crate) const RESERVED: u64 = 10_000;

fn segment(number: u32) -> SegmentRef {
    SegmentRef { table_id: 5, segment: SegmentId(number), schema_version: 1, commit: 3 }
}

/// `count` keys, every third one of all from `first` on.
fn entries(first: u64, count: u64) -> Entries {
    (0..count).map(|n| (format!("{:010}", first + 3 * n).into_bytes(), first + 3 * n)).collect()
}

/// Writes a run of `entries` from block `start` on, through the link.
async fn write_run(
    bench: &Bench,
    number: u32,
    start: u64,
    entries: impl IntoIterator<Item = (Vec<u8>, u64)>,
) -> IndexPages {
    let mut writer = RunWriter::new(segment(number), 0, true).unwrap();
    let mut pages = Vec::new();
    for (key, vid) in entries {
        pages.extend(writer.push(&key, vid).unwrap());
    }
    pages.extend(writer.finish().unwrap().pages);
    let (mut next, mut placed) = (start, Vec::new());
    for page in pages {
        bench.reserve(next, page.block_count()).await;
        bench.write(next, &page.bytes).await.unwrap();
        placed.push(page.page_ref(BlockAddress(next)));
        next += u64::from(page.block_count());
    }
    IndexPages::whole(segment(number), placed)
}

fn merge(input: u32, table_id: u32) -> Arc<dyn ExecutionPlan> {
    let entries = Arc::new(MergeRunsExec::new(input, table_id));
    Arc::new(WriteRunExec::new(entries, segment(100), true).unwrap())
}

/// A run that merges `runs` into `reserved`.
pub(crate) fn request(
    bench: &Bench,
    run: u64,
    runs: Vec<IndexPages>,
    reserved: Vec<Extent>,
) -> Execute {
    Execute {
        indexes: vec![IndexInput { number: 0, runs }],
        reserved,
        ..bench.request(run, &merge(0, 5), &[])
    }
}

async fn rows(stream: &mut RunStream) -> Vec<RecordBatch> {
    let mut batches = Vec::new();
    while let Some(batch) = stream.next().await.unwrap() {
        batches.push(batch);
    }
    batches
}

/// All entries on `pages`, as they lie on the media.
pub(crate) async fn read_back(
    media: &Arc<dyn Media>,
    segment: SegmentRef,
    pages: Vec<PageRef>,
) -> Entries {
    let source = MediaPages::new(Arc::clone(media));
    let mut cursor = PageCursor::new(segment, pages, 4);
    let mut found = Entries::new();
    while let Some(block) = cursor.next(&source).await.unwrap() {
        found.extend(block.iter().map(|(key, vid)| (key.to_vec(), vid)));
    }
    found
}

/// Three runs of together 60,000 entries, and their blocks.
pub(crate) async fn three_runs(bench: &Bench) -> (Vec<IndexPages>, Entries, u32) {
    let (mut runs, mut all, mut start) = (Vec::new(), Entries::new(), 0);
    for number in 0..3_u32 {
        let entries = entries(u64::from(number), 20_000);
        let run = write_run(bench, number + 1, start, entries.clone()).await;
        start = run.pages.last().unwrap().extent.end().0;
        runs.push(run);
        all.extend(entries);
    }
    (runs, all, u32::try_from(start).unwrap())
}

#[tokio::test]
async fn runs_are_merged_where_they_lie() {
    for bench in benches().await {
        let (runs, all, blocks) = three_runs(&bench).await;
        // In several pieces; no page spans two.
        let reserved: Vec<Extent> =
            (0..u64::from(blocks)).map(|n| extent(RESERVED + n * 50, 40)).collect();
        bench.reserve(RESERVED, blocks * 50).await;
        let received = bench.link.traffic();
        let mut stream = bench.execute(request(&bench, 1, runs, reserved.clone())).await;
        let placed = PlacedRun::read(&rows(&mut stream).await).unwrap();
        let crossed = bench.link.traffic().since(received).received_bytes;
        assert_eq!(placed.entry_count, 60_000);
        assert!(
            placed.pages.iter().all(|entry| {
                reserved.iter().any(|reserved| reserved.contains(entry.page.extent))
            })
        );
        let bytes: usize = placed.pages.iter().map(|entry| entry.page.extent.bytes()).sum();
        // The filter and the names of pages cross, and the pages do not.
        let filter = placed.filter.as_ref().unwrap();
        assert!(crossed < filter.bytes.len() as u64 + bytes as u64 / 20, "{crossed} of {bytes}");
        let pages = placed.pages.iter().map(|entry| entry.page).collect();
        assert_eq!(read_back(&bench.media, segment(100), pages).await, all);
        let run = RunProperties { filter: placed.filter, ..RunProperties::default() };
        let kind = SegmentKind::Index(run);
        let directory =
            SegmentDirectory::sealed(segment(100), kind, INDEX_PAGE_CLASS, placed.pages).unwrap();
        let run = Run::new(Arc::new(directory)).unwrap();
        let source = MediaPages::new(Arc::clone(&bench.media));
        assert_eq!(run.get(&source, b"0000000042").await.unwrap(), Some(42));
        assert_eq!(run.get(&source, b"0000000042x").await.unwrap(), None);
        let report = stream.report().unwrap();
        assert_eq!((report.partitions, report.rows_scanned), (1, 60_000));
        assert!(report.peak_memory_bytes > 0 && report.peak_memory_bytes <= 4 << 20);
        drop(stream);
        bench.reach_idle().await;
    }
}

#[tokio::test]
async fn a_fragment_that_fills_its_pages_says_so_and_writes_nowhere_else() {
    for bench in benches().await {
        let (runs, _, _) = three_runs(&bench).await;
        bench.reserve(RESERVED, 400).await;
        let behind = vec![7; 400 * BLOCK_SIZE];
        bench.write(RESERVED, &behind).await.unwrap();
        let mut stream = bench.execute(request(&bench, 1, runs, vec![extent(RESERVED, 40)])).await;
        let (cause, message) = loop {
            match stream.next().await {
                Ok(Some(_)) => {}
                other => break device_error(other),
            }
        };
        assert_eq!(cause, DeviceErrorCause::OutOfReserved);
        assert!(message.contains("40 blocks"), "{message}");
        let found = bench.read_blocks(extent(RESERVED + 40, 360)).await.unwrap();
        assert_eq!(found, behind[..360 * BLOCK_SIZE]);
    }
}

#[tokio::test]
async fn what_a_fragment_may_not_write_is_refused_by_name() {
    use DeviceErrorCause::{NotReserved, Refused, Unsupported};
    for bench in benches().await {
        let run = write_run(&bench, 1, 0, entries(0, 100)).await;
        let of_run = run.pages[0].extent;
        bench.reserve(RESERVED, 100).await;
        let refusal = async |change: &dyn Fn(&mut Execute)| {
            let reserved = vec![extent(RESERVED, 50)];
            let mut request = request(&bench, 7, vec![run.clone()], reserved);
            change(&mut request);
            match bench.link.execute(request).await {
                Err(error) => device_error::<()>(Err(error)),
                Ok(mut stream) => loop {
                    match stream.next().await {
                        Ok(Some(_)) => {}
                        other => break device_error(other),
                    }
                },
            }
        };
        let expect = |(cause, message): (DeviceErrorCause, String), expected, text: &str| {
            assert!(cause == expected && message.contains(text), "{cause:?}: {message}");
        };
        let extents = |extents: Vec<Extent>| move |r: &mut Execute| r.reserved = extents.clone();
        let outside = extents(vec![extent(RESERVED + 90, 20)]);
        expect(refusal(&outside).await, NotReserved, "blocks 10090..10110");
        let huge = extents(vec![extent(u64::MAX - 5, u32::MAX)]);
        expect(refusal(&huge).await, NotReserved, "named for a fragment");
        let empty = extents(vec![extent(RESERVED, 0)]);
        expect(refusal(&empty).await, Refused, "is empty");
        let twice = extents(vec![extent(RESERVED + 5, 20), extent(RESERVED, 6)]);
        expect(refusal(&twice).await, Refused, "overlap");
        let own_input = extents(vec![extent(RESERVED, 50), of_run]);
        expect(refusal(&own_input).await, Refused, "would read");
        expect(
            refusal(&extents(Vec::new())).await,
            DeviceErrorCause::Execution,
            "none were reserved",
        );
        let double = |r: &mut Execute| r.indexes.push(r.indexes[0].clone());
        expect(refusal(&double).await, Unsupported, "given twice");
        let none = |r: &mut Execute| r.indexes.clear();
        expect(refusal(&none).await, DeviceErrorCause::Execution, "index input 0");
        let plan = |plan: Arc<dyn ExecutionPlan>| {
            let bytes = encode_fragment(&plan).unwrap();
            move |r: &mut Execute| r.fragment = bytes.clone().into()
        };
        let foreign = plan(merge(0, 6));
        expect(refusal(&foreign).await, DeviceErrorCause::Execution, "belongs to table 5");
        let inner = merge(0, 5);
        let limit = datafusion_physical_plan::limit::GlobalLimitExec::new(inner, 0, Some(1));
        expect(refusal(&plan(Arc::new(limit))).await, Unsupported, "not the root");
        // Nothing was written by any of them.
        assert_eq!(bench.read_blocks(extent(RESERVED, 100)).await.unwrap(), [0; 100 * BLOCK_SIZE]);
    }
}

#[tokio::test]
async fn runs_that_are_none_are_refused() {
    use DeviceErrorCause::{Corrupt, Execution, OutOfMemory};
    for bench in benches().await {
        let run = write_run(&bench, 1, 0, entries(0, 30_000)).await;
        bench.reserve(RESERVED, 2000).await;
        let failure = async |runs: Vec<IndexPages>, memory_bytes: u64| {
            bench.reach_idle().await;
            let reserved = vec![extent(RESERVED, 2000)];
            let request = Execute { memory_bytes, ..request(&bench, 9, runs, reserved) };
            match bench.link.execute(request).await {
                Err(error) => device_error::<()>(Err(error)),
                Ok(mut stream) => loop {
                    match stream.next().await {
                        Ok(Some(_)) => {}
                        other => break device_error(other),
                    }
                },
            }
        };
        let twice = failure(vec![run.clone(), run.clone()], 4 << 20).await;
        assert!(twice.0 == Execution && twice.1.contains("duplicate key"), "{twice:?}");
        let mut turned = run.clone();
        turned.pages.reverse();
        let unsorted = failure(vec![turned], 4 << 20).await;
        assert!(unsorted.0 == Corrupt && unsorted.1.contains("is below that"), "{unsorted:?}");
        let mut spoilt = run.clone();
        spoilt.pages[0].checksum ^= 1;
        assert_eq!(failure(vec![spoilt], 4 << 20).await.0, Corrupt);
        let mut elsewhere = run.clone();
        elsewhere.pages[0].extent.start = BlockAddress(1 << 40);
        assert_eq!(failure(vec![elsewhere], 4 << 20).await.0, DeviceErrorCause::Refused);
        let morsels = bench.load().await;
        let heap = IndexPages::whole(morsels[0].segment, vec![morsels[0].pages[0].page]);
        let heap = failure(vec![heap], 4 << 20).await;
        assert!(heap.1.contains("is no index page"), "{heap:?}");
        assert_eq!(failure(vec![run; 40], 1 << 20).await.0, OutOfMemory);
        bench.reach_idle().await;
    }
}

#[tokio::test]
async fn a_scan_looks_only_at_rows_that_an_index_has_found() {
    use crate::bench::{drain, scan};
    for bench in benches().await {
        let morsels = bench.load().await;
        let media_bytes = async |index_filters: Vec<IndexFilter>, run: u64, expected: Vec<i32>| {
            let mut request = bench.request(run, &scan(Some(15_000)), &morsels);
            request.index_filters = index_filters;
            let mut stream = bench.execute(request).await;
            assert_eq!(drain(&mut stream).await.unwrap(), expected);
            let report = stream.report().unwrap().clone();
            drop(stream);
            bench.reach_idle().await;
            report
        };
        let whole = media_bytes(Vec::new(), 1, (0..15_000).collect()).await;
        // Row 1 has id 0; keys are the ids in reverse order. Row 19,001 exists and does not match.
        let entries = (0..20_000_u64).map(|n| (format!("{n:010}").into_bytes(), 20_000 - n));
        let index = write_run(&bench, 2, RESERVED, entries).await;
        let key = |n: u64| format!("{n:010}").into_bytes();
        let part = IndexFilteredPart {
            segments: vec![morsels[0].segment.segment],
            runs: vec![index],
            rows: vec![1, 19_001, 7],
            ..IndexFilteredPart::default()
        };
        let index_filter = IndexFilter {
            input: 0,
            ranges: vec![KeyRange { from: key(9_000), below: Some(key(9_003)) }],
            keys: None,
            parts: vec![part],
        };
        let expected = vec![0, 6, 10_997, 10_998, 10_999];
        let narrow = media_bytes(vec![index_filter.clone()], 2, expected).await;
        assert_eq!((whole.morsels, whole.rows_scanned), (20, 20_000));
        // Of twenty pages three have hits: one, one and four.
        assert!((narrow.morsels, narrow.rows_scanned) == (3, 6), "{narrow:?}");
        // Rows of another segment are not affected.
        let mut other = index_filter.clone();
        other.parts[0].segments = vec![SegmentId(77)];
        media_bytes(vec![other], 3, (0..15_000).collect()).await;
        let none = IndexFilter {
            parts: vec![IndexFilteredPart {
                segments: index_filter.parts[0].segments.clone(),
                ..IndexFilteredPart::default()
            }],
            ..index_filter
        };
        assert_eq!(media_bytes(vec![none], 4, Vec::new()).await.media_bytes, 0);
    }
}

#[tokio::test]
async fn index_filters_that_no_host_sends_are_refused() {
    use crate::bench::{drain, scan};
    use DeviceErrorCause::{Corrupt, Unsupported};
    for bench in benches().await {
        let morsels = bench.load().await;
        let segments = vec![morsels[0].segment.segment];
        let refusal = async |index_filters: Vec<IndexFilter>| {
            bench.reach_idle().await;
            let mut request = bench.request(1, &scan(None), &morsels);
            request.index_filters = index_filters;
            match bench.link.execute(request).await {
                Err(error) => device_error::<()>(Err(error)),
                Ok(mut stream) => device_error(drain(&mut stream).await),
            }
        };
        let range =
            |from: &str, below: &str| KeyRange { from: from.into(), below: Some(below.into()) };
        let with = |ranges: Vec<KeyRange>, runs: Vec<IndexPages>| IndexFilter {
            input: 0,
            ranges,
            keys: None,
            parts: vec![IndexFilteredPart {
                segments: segments.clone(),
                runs,
                ..IndexFilteredPart::default()
            }],
        };
        let unsorted =
            refusal(vec![with(vec![range("b", "c"), range("a", "b")], Vec::new())]).await;
        assert!(unsorted.0 == Unsupported && unsorted.1.contains("out of order"), "{unsorted:?}");
        let huge: Vec<KeyRange> =
            (0..9000).map(|n| range(&format!("{n:05}"), &format!("{n:05}x"))).collect();
        let huge = refusal(vec![with(huge, Vec::new())]).await;
        assert!(huge.0 == Unsupported && huge.1.contains("9000 ranges"), "{huge:?}");
        let long = refusal(vec![with(vec![range("a", &"b".repeat(1 << 20))], Vec::new())]).await;
        assert!(long.0 == Unsupported && long.1.contains("1048576 bytes"), "{long:?}");
        let twice = with(Vec::new(), Vec::new());
        let twice = refusal(vec![twice.clone(), twice]).await;
        assert!(
            twice.0 == Unsupported && twice.1.contains("filtered by an index twice"),
            "{twice:?}"
        );
        let heap = IndexPages::whole(morsels[0].segment, vec![morsels[0].pages[0].page]);
        let heap = refusal(vec![with(vec![range("a", "b")], vec![heap])]).await;
        assert!(heap.0 == Corrupt && heap.1.contains("is no index page"), "{heap:?}");
        bench.reach_idle().await;
    }
}

/// Media whose writes wait while the gate is closed.
#[derive(Debug, Default)]
struct GatedWrites {
    media: Memory,
    gate: Mutex<(bool, u32)>,
    changed: Condvar,
}

impl GatedWrites {
    fn close(&self, closed: bool) {
        self.gate.lock().unwrap().0 = closed;
        self.changed.notify_all();
    }
}

impl Media for GatedWrites {
    fn read(&self, extent: Extent) -> Result<AlignedBuffer, MediaError> {
        self.media.read(extent)
    }

    fn write(&self, start: BlockAddress, data: &[u8]) -> Result<(), MediaError> {
        let mut gate = self.gate.lock().unwrap();
        gate.1 += 1;
        while gate.0 {
            gate = self.changed.wait(gate).unwrap();
        }
        gate.1 -= 1;
        drop(gate);
        self.media.write(start, data)
    }

    fn sync(&self) -> Result<(), MediaError> {
        self.media.sync()
    }

    fn block_count(&self) -> u64 {
        self.media.block_count()
    }

    fn grow_to(&self, block_count: u64) -> Result<(), MediaError> {
        self.media.grow_to(block_count)
    }

    fn bytes_read(&self) -> u64 {
        self.media.bytes_read()
    }

    fn bytes_written(&self) -> u64 {
        self.media.bytes_written()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_stands_still_only_when_its_writes_do() {
    use cleave_fragment::command::Request;
    let media = Arc::new(GatedWrites::default());
    let bench = Bench::embedded(Arc::clone(&media) as Arc<dyn Media>, options()).await;
    let (runs, _, _) = three_runs(&bench).await;
    bench.reserve(RESERVED, 2000).await;
    media.close(true);
    let reserved = vec![extent(RESERVED, 1000)];
    let stream = bench.execute(request(&bench, 1, runs.clone(), reserved.clone())).await;
    while media.gate.lock().unwrap().1 == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    // As long as it may write, no other run gets its space.
    let also = request(&bench, 2, runs.clone(), vec![extent(RESERVED + 999, 100)]);
    let (cause, message) = device_error(bench.link.execute(also).await);
    assert_eq!(cause, DeviceErrorCause::Refused);
    assert!(message.contains("reserved for run 1"), "{message}");
    let mut cancelled = Box::pin(bench.call_run(1, Request::Cancel));
    let waiting = tokio::time::timeout(std::time::Duration::from_millis(100), &mut cancelled).await;
    assert!(waiting.is_err(), "the run was said to stand still while it wrote");
    media.close(false);
    cancelled.await.unwrap();
    let written = bench.media.bytes_written();
    drop(stream);
    let mut again = bench.execute(request(&bench, 3, runs, reserved)).await;
    assert_eq!(PlacedRun::read(&rows(&mut again).await).unwrap().entry_count, 60_000);
    assert!(bench.media.bytes_written() > written);
}
