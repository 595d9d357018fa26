//! Runs whose space is extended while they work, over every link: they go on where they waited, whatever is lost, late
//! or repeated, and write nowhere else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use async_trait::async_trait;
use cleave_fragment::command::message::RunEvent;
use cleave_fragment::command::{
    Command, DeviceError, DeviceErrorCause, Execute, Reply, Request, RunState, SpaceNeed,
};
use cleave_fragment::link::{DeviceService, EmbeddedLink, Link, LinkError, RunStream, SlotSender};
use cleave_fragment::operators::table_scan_exec::{References, TableScan};
use cleave_fragment::{
    IndexPages, Morsel, PlacedRun, TableScanExec, WriteRowsExec, WrittenSegment, read_written,
};
use cleave_media::{BLOCK_SIZE, Extent};
use cleave_store::{
    ColumnRef, MediaPages, OverflowValues, PageClass, PageEntry, PageRead, PageSource, Projection,
    SegmentId, SegmentKind, SegmentRef, decode_batch,
};
use datafusion_physical_plan::ExecutionPlan;

use crate::bench::{
    Bench, Credentials, ROW_COUNT, Server, any_port, benches, device_error, extent, ids, memory,
    options, scan, segment,
};
use crate::faults::{Liar, Lie, Wire};
use crate::merging::{RESERVED, read_back, request, three_runs};

/// Blocks of each extension, and from one to the next.
const BLOCKS: u32 = 60;
const STEP: u64 = 100;

/// Extension `number`, in two pieces if that is even.
fn extension(number: u32, block_count: u32) -> Vec<Extent> {
    let (start, blocks) = (RESERVED + u64::from(number) * STEP, BLOCKS.max(block_count));
    match number % 2 {
        0 => vec![extent(start, blocks), extent(start + 80, 5)],
        _ => vec![extent(start, blocks)],
    }
}

async fn extend(bench: &Bench, run: u64, number: u32, extents: Vec<Extent>) -> Reply {
    bench.call_run(run, Request::Extend { number, extents }).await.unwrap()
}

/// The rows of `stream`, whose needs `answer` answers.
async fn answered(
    stream: &mut RunStream,
    mut answer: impl AsyncFnMut(SpaceNeed),
) -> Result<Vec<RecordBatch>, LinkError> {
    let mut needs = stream.space_needs().unwrap();
    let mut batches = Vec::new();
    loop {
        let need = *needs.borrow_and_update();
        tokio::select! {
            next = stream.next() => match next? {
                Some(batch) => batches.push(batch),
                None => return Ok(batches),
            },
            // Not asked about again before it has changed.
            () = async {
                if let Some(need) = need {
                    answer(need).await;
                }
                needs.changed().await.unwrap();
            } => {}
        }
    }
}

/// The need of a run that has said one.
async fn need_of(stream: &RunStream) -> SpaceNeed {
    let mut needs = stream.space_needs().unwrap();
    needs.wait_for(Option::is_some).await.unwrap().unwrap()
}

fn merging(bench: &Bench, run: u64, runs: &[IndexPages], reserved: Vec<Extent>) -> Execute {
    Execute { extensible: true, ..request(bench, run, runs.to_vec(), reserved) }
}

#[tokio::test]
async fn a_run_that_is_full_goes_on_in_what_is_added() {
    for bench in benches().await {
        let (runs, all, blocks) = three_runs(&bench).await;
        bench.reserve(RESERVED, 20_000).await;
        let whole = vec![extent(RESERVED + 10_000, 2 * blocks)];
        let mut stream = bench.execute(merging(&bench, 1, &runs, whole)).await;
        let at_once = answered(&mut stream, async |need| panic!("{need:?}")).await.unwrap();
        let at_once = PlacedRun::read(&at_once).unwrap();
        drop(stream);
        // Begun without any space at all.
        let mut given = Vec::new();
        let mut numbers = Vec::new();
        let mut stream = bench.execute(merging(&bench, 2, &runs, Vec::new())).await;
        let rows = answered(&mut stream, async |need| {
            numbers.push(need.extension);
            let extents = extension(need.extension, need.block_count);
            // Before it is sent: the answer is dropped where rows come first.
            given.extend(extents.clone());
            // Twice, and all older ones again: they change nothing.
            for _ in 0..2 {
                extend(&bench, 2, need.extension, extents.clone()).await;
                for number in 1..need.extension {
                    extend(&bench, 2, number, extension(number, 0)).await;
                }
            }
        });
        let placed = PlacedRun::read(&rows.await.unwrap()).unwrap();
        let (first, last) = (numbers[0], *numbers.last().unwrap());
        assert!(first == 1 && last > 2, "{numbers:?}");
        numbers.dedup();
        assert_eq!(numbers, (1..=last).collect::<Vec<_>>());
        // The same pages, at other places.
        let content = |placed: &PlacedRun| -> Vec<_> {
            placed.pages.iter().map(|entry| (entry.page.page, entry.page.checksum)).collect()
        };
        assert_eq!(content(&placed), content(&at_once));
        assert_eq!((placed.entry_count, &placed.filter), (60_000, &at_once.filter));
        let is_given = |page: Extent| given.iter().any(|given| given.contains(page));
        assert!(placed.pages.iter().all(|entry| is_given(entry.page.extent)));
        let written: Vec<_> = placed.pages.iter().map(|entry| entry.page.extent).collect();
        for start in RESERVED..RESERVED + u64::from(last + 1) * STEP {
            if !written.iter().any(|extent| extent.contains(self::extent(start, 1))) {
                let block = bench.media.read(extent(start, 1)).unwrap();
                assert!(block.iter().all(|byte| *byte == 0), "block {start} was written");
            }
        }
        let pages = placed.pages.iter().map(|entry| entry.page).collect();
        let segment = SegmentRef { segment: SegmentId(100), ..segment() };
        assert_eq!(read_back(&bench.media, segment, pages).await, all);
        assert_eq!(stream.report().unwrap().rows_scanned, 60_000);
        drop(stream);
        bench.reach_idle().await;
    }
}

#[tokio::test]
async fn a_run_that_gets_no_more_fails_as_one_that_may_not_ask() {
    for bench in benches().await {
        let (runs, _, _) = three_runs(&bench).await;
        bench.reserve(RESERVED, 2000).await;
        let reserved = vec![extent(RESERVED, 20)];
        let mut stream = bench.execute(merging(&bench, 1, &runs, reserved)).await;
        let refused = answered(&mut stream, async |need| {
            let extents = if need.extension < 3 { extension(need.extension, 0) } else { vec![] };
            extend(&bench, 1, need.extension, extents.clone()).await;
            extend(&bench, 1, need.extension, extents).await;
        });
        let (cause, message) = device_error(refused.await);
        assert_eq!(cause, DeviceErrorCause::OutOfReserved);
        let blocks = 20 + 2 * BLOCKS + 5;
        assert!(message.contains(&format!("{blocks} blocks")), "{message}");
        drop(stream);
        bench.reach_idle().await;
    }
}

#[tokio::test]
async fn a_run_that_waits_for_space_can_be_cancelled() {
    for bench in benches().await {
        let (runs, _, _) = three_runs(&bench).await;
        bench.reserve(RESERVED, 2000).await;
        let mut stream = bench.execute(merging(&bench, 1, &runs, Vec::new())).await;
        let need = need_of(&stream).await;
        bench.reach(1, RunState::Stalled).await;
        bench.call_run(1, Request::Cancel).await.unwrap();
        assert_eq!(device_error(stream.next().await).0, DeviceErrorCause::Cancelled);
        let written = bench.media.bytes_written();
        // Too late: whether it is taken or not, the run is over, and its space another's.
        let extents = extension(need.extension, need.block_count);
        let late = Request::Extend { number: need.extension, extents: extents.clone() };
        drop(bench.call_run(1, late.clone()).await);
        let mut other = bench.execute(merging(&bench, 2, &runs, extents)).await;
        assert_eq!(need_of(&other).await.extension, 1);
        assert!(bench.media.bytes_written() > written);
        bench.call_run(2, Request::Extend { number: 1, extents: Vec::new() }).await.unwrap();
        let failed = answered(&mut other, async |_| {}).await;
        assert_eq!(device_error(failed).0, DeviceErrorCause::OutOfReserved);
        drop((stream, other));
        bench.reach_idle().await;
        assert_eq!(device_error(bench.call_run(1, late).await).0, DeviceErrorCause::UnknownRun);
    }
}

#[tokio::test]
async fn a_run_that_waits_for_space_says_so_to_whoever_comes_back() {
    for bench in benches().await {
        let (runs, all, _) = three_runs(&bench).await;
        bench.reserve(RESERVED, 8000).await;
        let request = merging(&bench, 1, &runs, Vec::new());
        let mut stream = bench.execute(request.clone()).await;
        let need = need_of(&stream).await;
        let again = Execute { first_slot: stream.next_slot(), ..request };
        let mut successor = bench.execute(again).await;
        assert_eq!(need_of(&successor).await, need);
        let (cause, message) = device_error(stream.next().await);
        assert!(cause == DeviceErrorCause::Cancelled && message.contains("taken over"));
        drop(stream);
        let rows = answered(&mut successor, async |need| {
            extend(&bench, 1, need.extension, extension(need.extension, need.block_count)).await;
        });
        assert_eq!(PlacedRun::read(&rows.await.unwrap()).unwrap().entry_count, all.len() as u64);
    }
}

#[tokio::test]
async fn a_connection_that_breaks_while_a_run_waits_loses_nothing() {
    let device = cleave_device::Runtime::new(memory(), options()).unwrap();
    let media = Arc::clone(device.media());
    let credentials = Credentials::new();
    let server = Server::start(device, any_port(), Some(&credentials)).await;
    let wire = Wire::to(server.address).await;
    let link = credentials.connect(wire.address).await.unwrap();
    let bench = Bench::of(link, media, Some(server)).await;
    let (runs, all, _) = three_runs(&bench).await;
    bench.reserve(RESERVED, 8000).await;
    let request = merging(&bench, 1, &runs, Vec::new());
    let mut stream = bench.execute(request.clone()).await;
    let need = need_of(&stream).await;
    wire.cut();
    let error = stream.next().await.unwrap_err();
    assert!(matches!(error, LinkError::Lost { .. }), "{error:?}");
    // The answer to the extension may be what was lost; the run continues before anybody listens.
    let extents = extension(need.extension, need.block_count);
    extend(&bench, 1, need.extension, extents.clone()).await;
    let again = Execute { first_slot: stream.next_slot(), ..request };
    let mut stream = bench.execute(again).await;
    extend(&bench, 1, need.extension, extents).await;
    let rows = answered(&mut stream, async |need| {
        extend(&bench, 1, need.extension, extension(need.extension, need.block_count)).await;
    });
    assert_eq!(PlacedRun::read(&rows.await.unwrap()).unwrap().entry_count, all.len() as u64);
}

#[tokio::test]
async fn extensions_that_a_run_may_not_have_are_refused_and_it_waits_on() {
    use DeviceErrorCause::{NotReserved, Refused, UnknownRun};
    for bench in benches().await {
        let (runs, all, _) = three_runs(&bench).await;
        bench.reserve(RESERVED, 8000).await;
        let own = extent(RESERVED, 20);
        let mut stream = bench.execute(merging(&bench, 1, &runs, vec![own])).await;
        let need = need_of(&stream).await;
        assert_eq!(need.extension, 1);
        let other =
            bench.execute(merging(&bench, 2, &runs, vec![extent(RESERVED + 7000, 20)])).await;
        assert_eq!(need_of(&other).await.extension, 1);
        let read = runs[1].pages[0].extent;
        let good = extent(RESERVED + 500, 60);
        for (number, extents, cause, text) in [
            (1, vec![extent(RESERVED + 7999, 2)], NotReserved, "were not reserved"),
            (1, vec![good, extent(u64::MAX - 3, 9)], NotReserved, "were not reserved"),
            (1, vec![good, extent(RESERVED + 600, 0)], Refused, "is empty"),
            (1, vec![good, extent(RESERVED + 559, 5)], Refused, "overlap"),
            (1, vec![extent(RESERVED + 19, 5)], Refused, "overlap"),
            (1, vec![extent(RESERVED + 7010, 20)], Refused, "reserved for run 2"),
            (1, vec![good, read], Refused, "would read"),
            (2, vec![good], Refused, "has not asked for extension 2"),
            (0, vec![good], Refused, "has not asked for extension 0"),
        ] {
            let extend = Request::Extend { number, extents };
            let (found, message) = device_error(bench.call_run(1, extend).await);
            assert!(found == cause && message.contains(text), "{found:?}: {message}");
        }
        let extend_other = Request::Extend { number: 1, extents: vec![good] };
        let unknown = device_error(bench.call_run(3, extend_other.clone()).await);
        assert_eq!(unknown.0, UnknownRun);
        // None of it was kept: another run may have the good part.
        bench.call_run(2, extend_other).await.unwrap();
        let rows = answered(&mut stream, async |need| {
            let extents = extension(need.extension + 10, need.block_count);
            extend(&bench, 1, need.extension, extents).await;
        });
        assert_eq!(PlacedRun::read(&rows.await.unwrap()).unwrap().entry_count, all.len() as u64);
        drop(stream);
        // A run that does not wait takes none, even if it may be extended.
        drop(other);
        bench.reach_idle().await;
        let request =
            Execute { slot_count: 1, ..bench.request(4, &scan(None), &bench.load().await) };
        let running = bench.execute(Execute { extensible: true, ..request }).await;
        let extend = Request::Extend { number: 1, extents: vec![good] };
        let (cause, message) = device_error(bench.call_run(4, extend).await);
        assert!(cause == Refused && message.contains("has not asked"), "{message}");
        drop(running);
    }
}

/// A scan with the VIDs behind the columns.
fn rows_with_vids() -> Arc<dyn ExecutionPlan> {
    let fields =
        vec![Field::new("id", DataType::Int32, true), Field::new("name", DataType::Utf8, true)];
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    let columns = vec![ColumnRef::User(1), ColumnRef::User(2)];
    let scan = TableScan {
        table: "people".to_owned(),
        table_id: 5,
        output: Projection::new(schema, columns).with_version(ColumnRef::Vid),
        filter: Projection::new(Arc::new(Schema::empty()), Vec::new()),
        predicate: None,
        input: 0,
        fetch: None,
        references: References::None,
    };
    Arc::new(TableScanExec::new(scan, 1))
}

#[tokio::test]
async fn several_partitions_write_pages_of_one_segment_into_what_is_added() {
    let new = SegmentRef { segment: SegmentId(9), commit: 4, ..segment() };
    let written = WrittenSegment { segment: new, class: PageClass::HOT, columns: vec![1, 2] };
    let plan = WriteRowsExec::new(rows_with_vids(), written).unwrap();
    let plan: Arc<dyn ExecutionPlan> = Arc::new(plan);
    for bench in benches().await {
        let morsels: Vec<Morsel> = bench.load().await;
        bench.reserve(RESERVED, 20_000).await;
        let request = Execute { extensible: true, ..bench.request(1, &plan, &morsels) };
        let mut stream = bench.execute(request).await;
        let mut given = Vec::new();
        let rows = answered(&mut stream, async |need| {
            // Little at a time: how many pages there are depends on which partition takes which rows.
            let start = RESERVED + u64::from(need.extension) * STEP;
            let extents = vec![extent(start, need.block_count.max(8)), extent(start + 80, 5)];
            // Before it is sent: the answer is dropped where rows come first.
            given.extend(extents.clone());
            extend(&bench, 1, need.extension, extents).await;
        });
        let mut pages: Vec<PageEntry> = read_written(&rows.await.unwrap()).unwrap();
        given.sort_unstable();
        given.dedup();
        assert_eq!(stream.report().unwrap().partitions, 2);
        assert!(given.len() > 2, "{given:?}");
        pages.sort_unstable_by_key(|entry| entry.page.page);
        let mut extents: Vec<Extent> =
            pages.iter().flat_map(PageEntry::page_refs).map(|page| page.extent).collect();
        assert!(extents.iter().all(|page| given.iter().any(|given| given.contains(*page))));
        extents.sort_unstable();
        assert!(extents.windows(2).all(|pair| !pair[0].overlaps(pair[1])));
        // Every row once, and the pages of both partitions are one segment.
        let source = MediaPages::new(Arc::clone(&bench.media));
        let output =
            Projection::new(scan(None).schema(), vec![ColumnRef::User(1), ColumnRef::User(2)])
                .with_version(ColumnRef::Vid);
        let mut found = BTreeMap::new();
        for entry in &pages {
            let columns = output.columns.clone();
            let read = PageRead { segment: new, page: entry.page, columns };
            let page = source.read(vec![read.clone()]).await.unwrap().remove(0);
            let batch = decode_batch(&page, &read, &output, None, &OverflowValues::none()).unwrap();
            let vids = batch.column(2).as_primitive::<arrow::datatypes::UInt64Type>().clone();
            let written = ids(&batch.project(&[0, 1]).unwrap());
            found.extend(vids.values().iter().copied().zip(written));
        }
        let expected: BTreeMap<u64, i32> = (1..).zip(0..ROW_COUNT).collect();
        assert_eq!(found, expected);
        let rows: u64 = pages.iter().map(|entry| u64::from(entry.page.row_count)).sum();
        assert_eq!(rows, u64::try_from(ROW_COUNT).unwrap());
        cleave_store::SegmentDirectory::sealed(new, SegmentKind::Heap, PageClass::HOT, pages)
            .unwrap();
        drop(stream);
        bench.reach_idle().await;
    }
}

/// A device whose runs are never satisfied.
#[derive(Debug, Default)]
struct Insatiable(Mutex<Option<SlotSender>>);

#[async_trait]
impl DeviceService for Insatiable {
    async fn call(&self, command: Command) -> Result<Reply, DeviceError> {
        Liar(Lie::MissingSlot).call(command).await
    }

    async fn execute(
        &self,
        _request: Execute,
        slots: SlotSender,
    ) -> Result<SchemaRef, DeviceError> {
        for number in 1..=50_000 {
            slots.send(RunEvent::Full(SpaceNeed { extension: number, block_count: number }));
        }
        // Late, and older than what is known.
        slots.send(RunEvent::Full(SpaceNeed { extension: 3, block_count: 9 }));
        slots.send(RunEvent::Finished(Box::default()));
        *self.0.lock().unwrap() = Some(slots);
        Ok(crate::bench::rows().schema())
    }

    fn steer(&self, _command: Command) {}
}

#[tokio::test]
async fn needs_of_a_run_are_a_state_and_none_are_taken_from_one_that_may_not_be_extended() {
    let server = Server::start(Arc::new(Insatiable::default()), any_port(), None).await;
    let remote = crate::bench::connect_remote(
        server.address,
        crate::bench::token(),
        None,
        None,
        Default::default(),
    );
    let embedded = EmbeddedLink::new(Arc::new(Insatiable::default()), None);
    let links: [Arc<dyn Link>; 2] = [embedded, remote.await.unwrap()];
    for link in links {
        let bench = Bench::unclaimed(Arc::clone(&link), memory());
        let request = bench.request(1, &scan(None), &[]);
        let mut stream = bench.execute(Execute { extensible: true, ..request.clone() }).await;
        let needs = stream.space_needs().unwrap();
        assert!(stream.next().await.unwrap().is_none(), "needs are no slots");
        let newest = SpaceNeed { extension: 50_000, block_count: 50_000 };
        assert_eq!(*needs.borrow(), Some(newest));
        let mut stream = bench.execute(request).await;
        assert!(stream.space_needs().is_none());
        let error = stream.next().await.unwrap_err();
        assert!(error.to_string().contains("asked for more space"), "{error}");
    }
}

#[tokio::test]
async fn rows_that_are_put_aside_go_to_what_is_added() {
    use crate::spilling::{MEMORY_BYTES, join};
    for bench in benches().await {
        let morsels = bench.load().await;
        bench.reserve(RESERVED, 20_000).await;
        let plan = (&join(), MEMORY_BYTES);
        let request =
            crate::spilling::request(&bench, 1, plan, &morsels, vec![extent(RESERVED, 20)]);
        let mut stream = bench.execute(Execute { extensible: true, ..request }).await;
        let mut given = Vec::new();
        let rows = answered(&mut stream, async |need| {
            let extents = extension(need.extension, need.block_count);
            given.extend(extents.clone());
            extend(&bench, 1, need.extension, extents).await;
        });
        let rows = rows.await.unwrap();
        let mut ids: Vec<i32> = rows
            .iter()
            .flat_map(|batch| batch.column(0).as_primitive::<Int32Type>().values().to_vec())
            .collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..ROW_COUNT).collect::<Vec<_>>());
        let blocks: u32 = given.iter().map(|extent| extent.block_count).sum();
        assert!(blocks as usize * BLOCK_SIZE > 100_000, "{given:?}");
    }
}
