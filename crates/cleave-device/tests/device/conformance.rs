//! The conformance suite of links, run over each kind: every command, good and bad.

use std::sync::Arc;

use cleave_fragment::TableScanExec;
use cleave_fragment::command::{
    Command, CommandHeader, DeviceErrorCause, MetricKind, Ownership, Payload, ReadItem,
    ReadPayload, Reply, Request, RunState,
};
use cleave_fragment::fed_filter::encode_filter;
use cleave_fragment::link::{AttachMode, LinkError};
use cleave_media::{BLOCK_SIZE, BlockAddress, Media};
use cleave_store::{ColumnRef, PageColumns, PageRead, RawColumns};
use datafusion_common::ScalarValue;
use datafusion_expr::Operator;
use datafusion_physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion_physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion_physical_plan::sorts::sort::SortExec;

use crate::bench::{
    Bench, DATABASE, DEVICE_ID, INCARNATION, MEMORY_BYTES, PAGE_ROW_COUNT, ROW_COUNT, device_error,
    drain, every_request, extent, ids, memory, options, scan, scan_with, segment, write_item,
};

macro_rules! over_every_link {
    ($($name:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test] async fn $name() {
                super::$name(super::Bench::embedded(super::memory(), super::options()).await).await;
            })*
        }
        mod local {
            $(#[tokio::test] async fn $name() {
                super::$name(super::Bench::local(super::memory(), super::options()).await).await;
            })*
        }
        mod remote {
            $(#[tokio::test] async fn $name() {
                super::$name(super::Bench::remote(super::memory(), super::options()).await).await;
            })*
        }
    };
}

over_every_link![
    a_device_says_who_it_is,
    what_was_written_is_read,
    writes_outside_reservations_are_refused,
    spoilt_writes_are_refused,
    requests_that_make_no_sense_are_refused,
    a_database_that_is_not_the_owner_is_refused,
    a_copy_of_the_database_that_did_not_claim_is_refused,
    columns_are_read_and_verify,
    what_would_take_memory_without_bound_is_refused,
    a_damaged_page_is_named,
    a_fragment_returns_every_row_once_and_a_report,
    a_predicate_is_applied_on_the_device,
    the_device_stalls_without_credit,
    what_a_run_gave_back_it_does_not_run,
    a_filter_that_is_fed_stops_rows_from_then_on,
    a_cancelled_run_ends_and_its_outcome_stays,
    a_repeated_execute_attaches_to_the_run_that_exists,
    a_finished_run_can_be_fetched_again,
    dropping_a_stream_releases_the_run,
    dropping_an_execute_under_way_leaves_nothing,
    fragments_that_cannot_run_are_refused,
    an_operator_that_fails_says_why,
    memory_is_admitted_with_figures,
    a_damaged_page_ends_the_run,
    a_higher_epoch_ends_runs_and_reservations,
    host_reads_do_not_wait_behind_fragments,
    traffic_is_counted,
];

async fn a_device_says_who_it_is(bench: Bench) {
    // Anybody may ask for the owner.
    let asked = Command::new(CommandHeader::default(), Request::Identify);
    let Reply::Identity(identity) = bench.link.call(asked).await.unwrap() else { panic!() };
    assert_eq!(identity.device, DEVICE_ID);
    assert_eq!(identity.build, cleave_fragment::build_id());
    assert_eq!(identity.capabilities, ["columns", "fragments"]);
    assert_eq!((identity.cores, identity.block_size), (2, 4096));
    assert_eq!(identity.fragment_memory_bytes, MEMORY_BYTES);
    assert_eq!(identity.block_count, 0);
    let owner = Ownership { database: DATABASE, epoch: 1, incarnation: INCARNATION + 1 };
    assert_eq!(identity.owner, Some(owner));
    bench.reserve(0, 7).await;
    let Reply::Identity(identity) = bench.call(Request::Identify).await.unwrap() else { panic!() };
    assert_eq!(identity.block_count, 7);
    assert_ne!(bench.status().await.incarnation, 0);
}

async fn what_was_written_is_read(bench: Bench) {
    bench.reserve(2, 6).await;
    assert_eq!(bench.status().await.reserved_block_count, 6);
    let bytes: Vec<u8> = (0..3 * BLOCK_SIZE).map(|i| u8::try_from(i % 251).unwrap()).collect();
    let items = vec![write_item(2, &bytes), write_item(6, &bytes[..BLOCK_SIZE])];
    assert_eq!(bench.call(Request::Write(items.clone())).await.unwrap(), Reply::Done);
    assert_eq!(bench.call(Request::Write(items)).await.unwrap(), Reply::Done, "may be repeated");
    assert_eq!(bench.call(Request::Sync).await.unwrap(), Reply::Done);
    assert_eq!(bench.read_blocks(extent(2, 3)).await.unwrap(), bytes);
    let many = [extent(6, 1), extent(0, 1), extent(2, 3)].map(ReadItem::Blocks).to_vec();
    let Reply::Read(payloads) = bench.call(Request::Read(many)).await.unwrap() else { panic!() };
    let expected = [&bytes[..BLOCK_SIZE], &[0; BLOCK_SIZE], &bytes[..]];
    for (payload, expected) in payloads.iter().zip(expected) {
        assert!(matches!(payload, ReadPayload::Blocks(found) if found == expected));
    }
    assert_eq!(payloads.len(), 3);
    let status = bench.status().await;
    assert_eq!(status.media_bytes_written, 8 * BLOCK_SIZE as u64);
    assert_eq!(status.media_bytes_read, 8 * BLOCK_SIZE as u64);
}

async fn writes_outside_reservations_are_refused(bench: Bench) {
    let block = [7; BLOCK_SIZE];
    let (cause, message) = device_error(bench.write(0, &block).await);
    assert_eq!(cause, DeviceErrorCause::NotReserved);
    assert!(message.contains("blocks 0..1"), "{message}");
    bench.reserve(0, 4).await;
    // All or nothing.
    let items = vec![write_item(0, &block), write_item(4, &block)];
    let (cause, message) = device_error(bench.call(Request::Write(items)).await);
    assert_eq!(cause, DeviceErrorCause::NotReserved);
    assert!(message.contains("blocks 4..5"), "{message}");
    let straddling = [7; 2 * BLOCK_SIZE];
    assert_eq!(device_error(bench.write(3, &straddling).await).0, DeviceErrorCause::NotReserved);
    assert_eq!(device_error(bench.write(u64::MAX, &block).await).0, DeviceErrorCause::NotReserved);
    assert_eq!(bench.read_blocks(extent(0, 4)).await.unwrap(), [0; 4 * BLOCK_SIZE]);
    bench.write(3, &block).await.unwrap();
}

async fn spoilt_writes_are_refused(bench: Bench) {
    bench.reserve(0, 4).await;
    let good = write_item(1, &[1; BLOCK_SIZE]);
    let mut spoilt = write_item(0, &[2; BLOCK_SIZE]);
    spoilt.payload = Payload { checksum: spoilt.payload.checksum ^ 1, ..spoilt.payload };
    let (cause, message) = device_error(bench.call(Request::Write(vec![good, spoilt])).await);
    assert_eq!(cause, DeviceErrorCause::Corrupt);
    assert!(message.contains("blocks 0..1"), "{message}");
    assert_eq!(bench.media.bytes_written(), 0);
}

async fn requests_that_make_no_sense_are_refused(bench: Bench) {
    use DeviceErrorCause::{OutOfSpace, Refused, UnknownRun};
    bench.reserve(0, 4).await;
    assert_eq!(device_error(bench.read_blocks(extent(3, 2)).await).0, Refused);
    assert_eq!(device_error(bench.read_blocks(extent(u64::MAX, 2)).await).0, Refused);
    assert_eq!(device_error(bench.write(0, &[1; 100]).await).0, Refused);
    assert_eq!(device_error(bench.write(0, &[]).await).0, Refused);
    let extents = vec![extent(1 << 20, 1)];
    let (cause, message) = device_error(bench.call(Request::Reserve { extents }).await);
    assert_eq!(cause, OutOfSpace);
    assert!(message.contains("1048576"), "{message}");
    let extents = vec![extent(u64::MAX, u32::MAX)];
    assert_eq!(device_error(bench.call(Request::Reserve { extents }).await).0, OutOfSpace);
    // Too much for one command: refused by the link or by the device.
    let everything = vec![ReadItem::Blocks(extent(0, u32::MAX))];
    match bench.call(Request::Read(everything)).await.unwrap_err() {
        LinkError::TooLarge { .. } => {}
        LinkError::Device { source, .. } => assert_eq!(source.cause, Refused),
        other => panic!("{other}"),
    }
    let nobody = Command::new(CommandHeader::default(), Request::Sync);
    assert_eq!(device_error(bench.link.call(nobody).await).0, Refused);
    // For a missing run, fetch is an error; cancel and release have nothing to do.
    let fetch = bench.call_run(9, Request::Fetch { consumed: 1, output: 0 }).await;
    assert_eq!(device_error(fetch).0, UnknownRun);
    assert_eq!(bench.call_run(9, Request::Cancel).await.unwrap(), Reply::Done);
    assert_eq!(bench.call_run(9, Request::Release).await.unwrap(), Reply::Done);
    assert_eq!(bench.call(Request::Read(Vec::new())).await.unwrap(), Reply::Read(Vec::new()));
    assert_eq!(bench.call(Request::Write(Vec::new())).await.unwrap(), Reply::Done);
}

async fn a_database_that_is_not_the_owner_is_refused(bench: Bench) {
    bench.reserve(0, 1).await;
    let other = CommandHeader { database: *b"another database", ..bench.header() };
    let (cause, message) = device_error(
        bench.link.call(Command::new(other, Request::Claim { after: INCARNATION + 1 })).await,
    );
    assert_eq!(cause, DeviceErrorCause::OtherDatabase);
    assert!(message.contains("serves database 6120746573742773"), "{message}");
    let write = Request::Write(vec![write_item(0, &[1; BLOCK_SIZE])]);
    assert!(bench.link.call(Command::new(other, write)).await.is_err());
    assert_eq!(bench.media.bytes_written(), 0);
    bench.write(0, &[1; BLOCK_SIZE]).await.unwrap();
}

async fn a_copy_of_the_database_that_did_not_claim_is_refused(bench: Bench) {
    let morsels = bench.load().await;
    let before = bench.read_blocks(extent(0, 4)).await.unwrap();
    let mut request = bench.request(1, &scan(None), &morsels);
    request.slot_count = 1;
    let mut stream = bench.execute(request.clone()).await;
    bench.reach(1, RunState::Stalled).await;
    // Equal in database, epoch and run.
    for incarnation in [INCARNATION, 0] {
        let copy = bench.copy(1, incarnation);
        for request in every_request() {
            let what = format!("{request:?}");
            let (cause, message) = device_error(copy.call_run(1, request).await);
            assert_eq!(cause, DeviceErrorCause::StaleEpoch, "{what}: {message}");
            assert!(message.contains("a copy of the database"), "{what}: {message}");
        }
        request.header = copy.header_of_run(1);
        let (cause, _) = device_error(bench.link.execute(request.clone()).await);
        assert_eq!(cause, DeviceErrorCause::StaleEpoch);
    }
    assert_eq!(bench.read_blocks(extent(0, 4)).await.unwrap(), before);
    assert_eq!(drain(&mut stream).await.unwrap().len(), usize::try_from(ROW_COUNT).unwrap());
}

async fn columns_are_read_and_verify(bench: Bench) {
    let morsels = bench.load().await;
    let page = morsels[3].pages[0].page;
    let columns = vec![ColumnRef::User(2), ColumnRef::User(1), ColumnRef::User(77), ColumnRef::Vid];
    let items = vec![
        ReadItem::Columns { page, segment: segment(), columns: columns.clone() },
        ReadItem::Columns { page, segment: segment(), columns: vec![ColumnRef::User(1)] },
    ];
    let Reply::Read(payloads) = bench.call(Request::Read(items)).await.unwrap() else { panic!() };
    assert_eq!(payloads.len(), 2);
    let read = PageRead { segment: segment(), page, columns };
    let ReadPayload::Columns { header, chunks } = payloads[0].clone() else { panic!() };
    assert!(chunks[2].is_none(), "a column that the page does not have");
    let found = PageColumns::verify(&read, RawColumns { header, chunks }).unwrap();
    assert_eq!(found.header.row_count, 1000);
    let ReadPayload::Columns { header, chunks } = payloads[1].clone() else { panic!() };
    assert_eq!((chunks.len(), header.is_empty()), (1, false));
    assert!(payloads[1].byte_count() < page.extent.bytes() / 2, "it is not the whole page");
}

async fn what_would_take_memory_without_bound_is_refused(bench: Bench) {
    let morsels = bench.load().await;
    let page = morsels[0].pages[0].page;
    let read = async |page, columns: Vec<ColumnRef>| {
        let item = ReadItem::Columns { page, segment: segment(), columns };
        bench.call(Request::Read(vec![item])).await
    };
    for count in [2, 100_000] {
        let (cause, message) = device_error(read(page, vec![ColumnRef::User(1); count]).await);
        assert_eq!(cause, DeviceErrorCause::Refused);
        assert!(message.contains("twice"), "{message}");
    }
    let huge = cleave_store::PageRef { extent: extent(0, 8193), ..page };
    let (cause, message) = device_error(read(huge, vec![ColumnRef::User(1)]).await);
    assert_eq!(cause, DeviceErrorCause::Refused, "{message}");
    for is_overflow in [false, true] {
        let mut morsels = morsels.clone();
        let page = &mut morsels[3].pages[0];
        if is_overflow {
            page.overflow.push(huge);
        } else {
            page.page = huge;
        }
        let request = bench.request(1, &scan(None), &morsels);
        let (cause, message) = device_error(bench.link.execute(request).await);
        assert_eq!(cause, DeviceErrorCause::Refused);
        assert!(message.contains("a page of 33558528 bytes"), "{message}");
    }
    let all = vec![ColumnRef::User(2), ColumnRef::User(1), ColumnRef::Vid];
    read(page, all).await.unwrap();
}

/// Changes one byte of the page's second column.
fn damage(media: &dyn Media, page: &cleave_store::PageRef) {
    let last = extent(page.extent.end().0 - 1, 1);
    let mut block = media.read(last).unwrap();
    block[0] ^= 1;
    media.write(last.start, &block).unwrap();
}

async fn a_damaged_page_is_named(bench: Bench) {
    let morsels = bench.load().await;
    let page = morsels[4].pages[0].page;
    damage(bench.media.as_ref(), &page);
    let columns = |column| {
        let columns = vec![ColumnRef::User(column)];
        bench.call(Request::Read(vec![ReadItem::Columns { page, segment: segment(), columns }]))
    };
    let (cause, message) = device_error(columns(2).await);
    assert_eq!(cause, DeviceErrorCause::Corrupt);
    assert!(message.contains("page 4 of segment 1"), "{message}");
    assert!(message.contains("column 2"), "{message}");
    columns(1).await.unwrap();
    let wrong = cleave_store::PageRef { checksum: page.checksum ^ 1, ..morsels[0].pages[0].page };
    let item = ReadItem::Columns { page: wrong, segment: segment(), columns: Vec::new() };
    let read = bench.call(Request::Read(vec![item])).await;
    assert_eq!(device_error(read).0, DeviceErrorCause::Corrupt);
}

async fn a_fragment_returns_every_row_once_and_a_report(bench: Bench) {
    let morsels = bench.load().await;
    let read_before = bench.media.bytes_read();
    let mut stream = bench.execute(bench.request(1, &scan(None), &morsels)).await;
    assert_eq!(stream.schema(), scan(None).schema());
    assert_eq!(drain(&mut stream).await.unwrap(), (0..ROW_COUNT).collect::<Vec<_>>());
    let report = stream.report().unwrap().clone();
    let rows = u64::try_from(ROW_COUNT).unwrap();
    assert_eq!((report.rows, report.rows_scanned), (rows, rows));
    assert_eq!((report.morsels, report.partitions), (20, 2));
    assert!(report.pages_read >= 20);
    assert_eq!(report.media_bytes, bench.media.bytes_read() - read_before);
    assert!(report.slots > 4, "more slots than may be outstanding: {report:?}");
    assert_eq!(report.slots, stream.next_slot());
    assert!(report.slot_bytes > 12 * rows && report.slot_bytes < 60 * rows, "{report:?}");
    assert!(report.cpu > std::time::Duration::ZERO && report.wall > std::time::Duration::ZERO);
    let output_rows = report
        .operators
        .iter()
        .find(|metric| metric.node == 0 && metric.kind == MetricKind::OutputRows)
        .unwrap();
    assert_eq!(output_rows.value, rows);
    assert!(stream.next().await.unwrap().is_none(), "the end stays the end");
    drop(stream);
    bench.reach_idle().await;
}

async fn a_predicate_is_applied_on_the_device(bench: Bench) {
    let morsels = bench.load().await;
    let mut stream = bench.execute(bench.request(1, &scan(Some(1234)), &morsels)).await;
    assert_eq!(drain(&mut stream).await.unwrap(), (0..1234).collect::<Vec<_>>());
    // An empty result still has a schema and a report.
    let mut stream = bench.execute(bench.request(2, &scan(Some(-1)), &morsels)).await;
    assert_eq!(drain(&mut stream).await.unwrap(), [0_i32; 0]);
    assert_eq!(stream.report().unwrap().slots, 0);
    let mut stream = bench.execute(bench.request(3, &scan(None), &[])).await;
    assert_eq!(drain(&mut stream).await.unwrap(), [0_i32; 0]);
}

async fn the_device_stalls_without_credit(bench: Bench) {
    let morsels = bench.load().await;
    let mut request = bench.request(1, &scan(None), &morsels);
    // Room for the bytes of more slots than may be outstanding.
    (request.slot_count, request.slot_bytes) = (2, 32 << 10);
    let mut stream = bench.execute(request).await;
    bench.reach(1, RunState::Stalled).await;
    let status = bench.status().await.runs[0];
    assert_eq!((status.slots, status.consumed), (2, 0), "exactly what the credits allow");
    assert_eq!(drain(&mut stream).await.unwrap().len(), usize::try_from(ROW_COUNT).unwrap());
    let report = stream.report().unwrap();
    assert!(report.stall > std::time::Duration::ZERO && report.stall <= report.wall, "{report:?}");
}

async fn what_a_run_gave_back_it_does_not_run(bench: Bench) {
    let morsels = bench.load().await;
    let mut request = bench.request(1, &scan(None), &morsels);
    request.slot_count = 1;
    let mut stream = bench.execute(request).await;
    bench.reach(1, RunState::Stalled).await;
    let revoke = async |keep| match bench.call_run(1, Request::Revoke { input: 0, keep }).await {
        Ok(Reply::Kept(kept)) => kept,
        other => panic!("{other:?}"),
    };
    let kept = revoke(u32::MAX).await;
    assert_eq!(kept.lease.kept as usize, morsels.len(), "it only asks");
    assert!(kept.lease.begun > 0 && kept.stall > std::time::Duration::ZERO, "{kept:?}");
    // Begun morsels stay; those given back do not come again.
    assert_eq!(revoke(15).await.lease.kept, 15);
    assert_eq!(revoke(17).await.lease.kept, 15);
    let left = revoke(0).await.lease;
    assert!(left.begun == left.kept && left.kept < 15, "{left:?}");
    let found = drain(&mut stream).await.unwrap();
    let expected: Vec<i32> = (0..i32::try_from(left.kept * PAGE_ROW_COUNT).unwrap()).collect();
    assert_eq!(found, expected);
    assert_eq!(stream.report().unwrap().kept, left.kept, "the report says it once more");

    let refused = bench.call_run(1, Request::Revoke { input: 3, keep: 0 }).await;
    let (cause, message) = device_error(refused.map(|_| ()));
    assert_eq!(cause, DeviceErrorCause::Refused);
    assert!(message.contains("no input 3 that streams"), "{message}");
    drop(stream);
    let unknown = bench.call_run(7, Request::Revoke { input: 0, keep: 0 }).await;
    assert_eq!(device_error(unknown.map(|_| ())).0, DeviceErrorCause::UnknownRun);
}

async fn a_filter_that_is_fed_stops_rows_from_then_on(bench: Bench) {
    let morsels = bench.load().await;
    let plan = scan(None);
    let mut request = bench.request(1, &plan, &morsels);
    (request.slot_count, request.fed) = (1, vec![0]);
    let mut stream = bench.execute(request).await;
    bench.reach(1, RunState::Stalled).await;
    let scanned: &TableScanExec = plan.downcast_ref().unwrap();
    let below = |bound: i32| {
        let (id, bound) = (Arc::new(Column::new("id", 0)), Literal::new(ScalarValue::from(bound)));
        let below = BinaryExpr::new(id, Operator::Lt, Arc::new(bound));
        encode_filter(scanned, [Arc::new(below) as _]).unwrap()
    };
    let feed = async |input, generation, filter: Vec<u8>| {
        bench.call_run(1, Request::Feed { input, generation, filter: filter.into() }).await
    };
    let (cause, _) = device_error(feed(0, 9, b"no filter".to_vec()).await);
    assert_eq!(cause, DeviceErrorCause::Unsupported);
    let (_, message) = device_error(feed(5, 9, below(0)).await);
    assert!(message.contains("no filters for input 5"), "{message}");
    // The newest filter holds, in whatever order they come.
    assert_eq!(feed(0, 2, below(0)).await.unwrap(), Reply::Done);
    assert_eq!(feed(0, 1, below(i32::MAX)).await.unwrap(), Reply::Done);
    let found = drain(&mut stream).await.unwrap();
    assert!(!found.is_empty() && found.len() < ROW_COUNT as usize / 2, "{} rows", found.len());
    let report = stream.report().unwrap();
    assert_eq!(report.rows_scanned, u64::try_from(ROW_COUNT).unwrap(), "all were looked at");
    assert_eq!(feed(0, 3, below(0)).await.unwrap(), Reply::Done, "a run that is over needs none");
}

async fn a_cancelled_run_ends_and_its_outcome_stays(bench: Bench) {
    let morsels = bench.load().await;
    let mut request = bench.request(1, &scan(None), &morsels);
    request.slot_count = 1;
    let mut stream = bench.execute(request.clone()).await;
    bench.reach(1, RunState::Stalled).await;
    assert_eq!(bench.call_run(1, Request::Cancel).await.unwrap(), Reply::Done);
    let run = bench.status().await.runs[0];
    assert_eq!((run.state, run.slots), (RunState::Cancelled, 1));
    let (cause, message) = device_error(drain(&mut stream).await);
    assert_eq!(cause, DeviceErrorCause::Cancelled);
    assert!(message.contains("run 1"), "{message}");
    assert_eq!(bench.call_run(1, Request::Cancel).await.unwrap(), Reply::Done, "twice is once");
    // The outcome of a run is kept until it is released.
    request.first_slot = stream.next_slot();
    let mut again = bench.execute(request.clone()).await;
    assert_eq!(device_error(drain(&mut again).await).0, DeviceErrorCause::Cancelled);
    assert_eq!(bench.call_run(1, Request::Release).await.unwrap(), Reply::Done);
    assert_eq!(bench.status().await.runs, []);
    drop((stream, again));
    request.first_slot = 0;
    let mut anew = bench.execute(request).await;
    assert_eq!(drain(&mut anew).await.unwrap().len(), usize::try_from(ROW_COUNT).unwrap());
}

async fn a_repeated_execute_attaches_to_the_run_that_exists(bench: Bench) {
    let morsels = bench.load().await;
    let mut request = bench.request(1, &scan(None), &morsels);
    (request.slot_count, request.slot_bytes) = (3, 4096);
    let mut first = bench.execute(request.clone()).await;
    let mut found = Vec::new();
    for _ in 0..5 {
        found.extend(ids(&first.next().await.unwrap().unwrap()));
    }
    let read_before = bench.media.bytes_read();
    request.first_slot = first.next_slot();
    let mut second = bench.execute(request.clone()).await;
    // The first listener is told after the events that it had received before.
    let taken_over = loop {
        match first.next().await {
            Ok(Some(_)) => {}
            other => break device_error(other),
        }
    };
    assert_eq!(taken_over.0, DeviceErrorCause::Cancelled);
    assert!(taken_over.1.contains("taken over"), "{}", taken_over.1);
    drop(first);
    found.extend(drain(&mut second).await.unwrap());
    found.sort_unstable();
    assert_eq!(found, (0..ROW_COUNT).collect::<Vec<_>>(), "every row once");
    let reads = bench.media.bytes_read() - read_before;
    assert!(reads < bench.media.block_count() * BLOCK_SIZE as u64, "it did not begin anew");
    // Consumed slots are gone, and slots that were never made do not exist.
    request.first_slot = 0;
    let (cause, message) = device_error(bench.link.execute(request.clone()).await);
    assert_eq!(cause, DeviceErrorCause::Refused);
    assert!(message.contains("were consumed"), "{message}");
    request.first_slot = 1_000_000;
    assert_eq!(
        device_error(bench.link.execute(request.clone()).await).0,
        DeviceErrorCause::Refused
    );
    (request.header.run, request.first_slot) = (77, 3);
    assert_eq!(device_error(bench.link.execute(request).await).0, DeviceErrorCause::UnknownRun);
}

async fn a_finished_run_can_be_fetched_again(bench: Bench) {
    let morsels = bench.load().await;
    let request = bench.request(1, &scan(Some(10)), &morsels);
    let first = bench.execute(request.clone()).await;
    bench.reach(1, RunState::Finished).await;
    let read_before = bench.media.bytes_read();
    let mut second = bench.execute(request).await;
    assert_eq!(drain(&mut second).await.unwrap(), (0..10).collect::<Vec<_>>());
    assert_eq!(second.report().unwrap().rows, 10);
    assert_eq!(bench.media.bytes_read(), read_before);
    drop((first, second));
    bench.reach_idle().await;
}

async fn dropping_a_stream_releases_the_run(bench: Bench) {
    let morsels = bench.load().await;
    let mut request = bench.request(1, &scan(None), &morsels);
    request.slot_count = 1;
    let mut stream = bench.execute(request).await;
    assert!(stream.next().await.unwrap().is_some());
    let status = bench.status().await;
    assert!(status.fragment_memory_bytes_free < status.fragment_memory_bytes);
    drop(stream);
    bench.reach_idle().await;
}

async fn dropping_an_execute_under_way_leaves_nothing(bench: Bench) {
    let morsels = bench.load().await;
    for run in 1..20 {
        let request = bench.request(run, &scan(None), &morsels);
        let execute = bench.link.execute(request);
        tokio::pin!(execute);
        // Polled a few times, so that it is dropped at different stages.
        for _ in 0..run / 4 {
            if futures::poll!(&mut execute).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    bench.reach_idle().await;
}

async fn fragments_that_cannot_run_are_refused(bench: Bench) {
    use DeviceErrorCause::{Refused, Unsupported};
    let morsels = bench.load().await;
    let good = bench.request(1, &scan(None), &morsels);
    let refusal = async |change: &dyn Fn(&mut cleave_fragment::command::Execute)| {
        let mut request = good.clone();
        change(&mut request);
        device_error(bench.link.execute(request).await)
    };
    let (cause, _) = refusal(&|request| request.fragment = b"garbage".to_vec().into()).await;
    assert_eq!(cause, Unsupported);
    let (cause, message) = refusal(&|request| request.build = "another".to_owned()).await;
    assert_eq!(cause, Unsupported);
    assert!(message.contains("another build (another)"), "{message}");
    for size in ["0", "65537", "-1", "many"] {
        let (cause, message) = refusal(&|request| {
            request.settings = vec![("datafusion.execution.batch_size".into(), size.into())];
        })
        .await;
        assert_eq!(cause, Refused);
        assert!(message.contains("between 1 and 65536"), "{message}");
    }
    let (cause, message) = refusal(&|request| request.slot_count = 0).await;
    assert_eq!(cause, Refused);
    assert!(message.contains("slot_count is 0"), "{message}");
    assert_eq!(refusal(&|request| request.slot_count = 1_000_000).await.0, Refused);
    assert_eq!(refusal(&|request| request.slot_bytes = 1).await.0, Refused);
    assert_eq!(refusal(&|request| request.partitions = 1_000_000).await.0, Refused);
    assert_eq!(refusal(&|request| request.header.run = 0).await.0, Refused);
    let (cause, message) = refusal(&|request| {
        request.settings = vec![("datafusion.execution.target_partitions".into(), "9".into())];
    })
    .await;
    assert_eq!(cause, Unsupported);
    assert!(message.contains("target_partitions"), "{message}");
    let (cause, message) = refusal(&|request| {
        let input = request.inputs[0].clone();
        request.inputs.push(input);
    })
    .await;
    assert_eq!(cause, Refused);
    assert!(message.contains("input 0 is given twice"), "{message}");
    let stale = refusal(&|request| request.header.database = *b"another database").await;
    assert_eq!(stale.0, DeviceErrorCause::OtherDatabase);
    bench.reach_idle().await;
    // None of them affects a good one with the same number.
    let mut stream = bench.execute(good).await;
    assert_eq!(drain(&mut stream).await.unwrap().len(), usize::try_from(ROW_COUNT).unwrap());
}

fn sorted() -> Arc<dyn ExecutionPlan> {
    let by = PhysicalSortExpr::new_default(Arc::new(Column::new("name", 1)));
    Arc::new(SortExec::new(LexOrdering::new([by]).unwrap(), scan(None)))
}

fn divided_by_zero() -> Arc<dyn ExecutionPlan> {
    let quotient = BinaryExpr::new(
        Arc::new(Column::new("id", 0)),
        Operator::Divide,
        Arc::new(Literal::new(0_i32.into())),
    );
    let expr = ProjectionExpr { expr: Arc::new(quotient), alias: "quotient".to_owned() };
    Arc::new(ProjectionExec::try_new(vec![expr], scan(None)).unwrap())
}

async fn an_operator_that_fails_says_why(bench: Bench) {
    let morsels = bench.load().await;
    let mut request = bench.request(1, &sorted(), &morsels);
    request.memory_bytes = 20_000;
    let mut stream = bench.execute(request).await;
    let (cause, message) = device_error(drain(&mut stream).await);
    assert_eq!(cause, DeviceErrorCause::OutOfMemory, "{message}");
    let mut stream = bench.execute(bench.request(2, &divided_by_zero(), &morsels)).await;
    let (cause, message) = device_error(drain(&mut stream).await);
    assert_eq!(cause, DeviceErrorCause::DivideByZero);
    assert!(message.to_lowercase().contains("divide by zero"), "{message}");
    assert!(stream.report().is_none());
    let mut stream = bench.execute(bench.request(3, &scan_with(None, 1, 9), &morsels)).await;
    let (cause, message) = device_error(drain(&mut stream).await);
    assert_eq!(cause, DeviceErrorCause::Execution);
    assert!(message.contains("input 9"), "{message}");
}

async fn memory_is_admitted_with_figures(bench: Bench) {
    let morsels = bench.load().await;
    let mut request = bench.request(1, &scan(None), &morsels);
    request.memory_bytes = MEMORY_BYTES;
    let (cause, message) = device_error(bench.link.execute(request.clone()).await);
    assert_eq!(cause, DeviceErrorCause::OutOfMemory);
    let asked = MEMORY_BYTES + 4 * (16 << 10);
    assert!(message.contains(&format!("asks for {asked} bytes")), "{message}");
    assert!(message.contains(&format!("of {MEMORY_BYTES} bytes")), "{message}");
    request.memory_bytes = u64::MAX;
    assert_eq!(
        device_error(bench.link.execute(request.clone()).await).0,
        DeviceErrorCause::OutOfMemory
    );
    // One run holds most of it; the next has to wait, here for no time at all.
    (request.memory_bytes, request.slot_count) = (MEMORY_BYTES / 10 * 6, 1);
    let mut holding = bench.execute(request.clone()).await;
    bench.reach(1, RunState::Stalled).await;
    let mut second = request.clone();
    second.header = bench.header_of_run(2);
    let (cause, message) = device_error(bench.link.execute(second.clone()).await);
    assert_eq!(cause, DeviceErrorCause::OutOfMemory);
    assert!(message.contains("did not end in time"), "{message}");
    assert_eq!(drain(&mut holding).await.unwrap().len(), usize::try_from(ROW_COUNT).unwrap());
    drop(holding);
    bench.reach_idle().await;
    let mut stream = bench.execute(second).await;
    assert_eq!(drain(&mut stream).await.unwrap().len(), usize::try_from(ROW_COUNT).unwrap());
}

async fn a_damaged_page_ends_the_run(bench: Bench) {
    let morsels = bench.load().await;
    damage(bench.media.as_ref(), &morsels[11].pages[0].page);
    let mut stream = bench.execute(bench.request(1, &scan(None), &morsels)).await;
    let (cause, message) = device_error(drain(&mut stream).await);
    assert_eq!(cause, DeviceErrorCause::Corrupt);
    assert!(message.contains("page 11 of segment 1"), "{message}");
    // Statements that do not need the page go on.
    let mut stream = bench.execute(bench.request(2, &scan(None), &morsels[..11])).await;
    assert_eq!(drain(&mut stream).await.unwrap(), (0..11_000).collect::<Vec<_>>());
}

async fn a_higher_epoch_ends_runs_and_reservations(bench: Bench) {
    let morsels = bench.load().await;
    let mut request = bench.request(1, &scan(None), &morsels);
    request.slot_count = 1;
    let mut stream = bench.execute(request).await;
    bench.reach(1, RunState::Stalled).await;
    let old = bench.header();
    let bench = Bench { epoch: 2, incarnation: INCARNATION + 2, ..bench };
    bench.claim(INCARNATION + 1).await.unwrap();
    let status = bench.status().await;
    assert_eq!((status.reserved_block_count, status.runs), (0, Vec::new()));
    assert_eq!(status.fragment_memory_bytes_free, MEMORY_BYTES);
    assert_eq!(device_error(drain(&mut stream).await).0, DeviceErrorCause::StaleEpoch);
    let write = Request::Write(vec![write_item(0, &[1; BLOCK_SIZE])]);
    let (cause, message) = device_error(bench.link.call(Command::new(old, write)).await);
    assert_eq!(cause, DeviceErrorCause::StaleEpoch);
    assert!(message.contains("epoch 1") && message.contains("in 2"), "{message}");
    assert_eq!(old.database, DATABASE);
    let (cause, _) = device_error(bench.write(0, &[1; BLOCK_SIZE]).await);
    assert_eq!(cause, DeviceErrorCause::NotReserved);
    // Run numbers begin anew with the epoch.
    let mut stream = bench.execute(bench.request(1, &scan(Some(5)), &morsels)).await;
    assert_eq!(drain(&mut stream).await.unwrap(), [0, 1, 2, 3, 4]);
}

async fn host_reads_do_not_wait_behind_fragments(bench: Bench) {
    // The same bench over media whose fragment pages cannot be read until the gate opens.
    let gate = Arc::new(crate::faults::GatedMedia::new(Arc::clone(&bench.media)));
    let media = Arc::clone(&gate) as Arc<dyn Media>;
    let bench = match bench.link.mode() {
        AttachMode::Embedded => Bench::embedded(media, options()).await,
        AttachMode::Local => Bench::local(media, options()).await,
        AttachMode::Remote => Bench::remote(media, options()).await,
    };
    let morsels = bench.load().await;
    let free = gate.block_count();
    bench.reserve(free, 1).await;
    bench.write(free, &[5; BLOCK_SIZE]).await.unwrap();
    gate.close_below(BlockAddress(free));
    let mut streams = Vec::new();
    for run in 1..5 {
        let mut request = bench.request(run, &scan(None), &morsels);
        request.partitions = 8;
        streams.push(bench.execute(request).await);
    }
    gate.wait_for_readers().await;
    assert_eq!(bench.read_blocks(extent(free, 1)).await.unwrap(), [5; BLOCK_SIZE]);
    bench.write(free, &[6; BLOCK_SIZE]).await.unwrap();
    assert!(bench.status().await.runs.iter().all(|run| run.state == RunState::Running));
    gate.open();
    for mut stream in streams {
        assert_eq!(drain(&mut stream).await.unwrap().len(), usize::try_from(ROW_COUNT).unwrap());
    }
}

async fn traffic_is_counted(bench: Bench) {
    let before = bench.link.traffic();
    bench.reserve(0, 256).await;
    bench.write(0, &[1; 1 << 20]).await.unwrap();
    let written = bench.link.traffic().since(before);
    assert_eq!(written.commands, 2);
    assert!((1 << 20..(1 << 20) + 100_000).contains(&written.sent_bytes), "{written:?}");
    assert!(written.received_bytes < 100_000, "{written:?}");
    let before = bench.link.traffic();
    bench.read_blocks(extent(0, 256)).await.unwrap();
    let read = bench.link.traffic().since(before);
    assert!((1 << 20..(1 << 20) + 100_000).contains(&read.received_bytes), "{read:?}");
    assert!(read.sent_bytes < 1000, "{read:?}");
}
