//! A device that dies and comes back, and a connection that breaks while the device lives.

use std::sync::Arc;

use cleave_device::{Runtime, RuntimeOptions};
use cleave_fragment::command::{DeviceErrorCause, Request, RunState};
use cleave_fragment::link::{AbandonedRuns, DeviceService, Link, LinkError};
use cleave_media::BLOCK_SIZE;

use crate::bench::{
    Bench, Credentials, ROW_COUNT, Server, any_port, device_error, drain, extent, ids, memory,
    options, port_of_my_own, scan, table_pages,
};
use crate::faults::Wire;

#[tokio::test]
async fn a_device_that_dies_gives_a_clear_error_and_works_when_it_is_back() {
    let media = memory();
    let options = options();
    let device =
        || -> Arc<dyn DeviceService> { Runtime::new(Arc::clone(&media), options.clone()).unwrap() };
    let credentials = Credentials::new();
    let server = Server::start(device(), port_of_my_own(1), Some(&credentials)).await;
    let address = server.address;
    let link: Arc<dyn Link> = credentials.connect(address).await.unwrap();
    let bench = Bench::of(Arc::clone(&link), Arc::clone(&media), None).await;
    let morsels = bench.load().await;
    let incarnation = bench.status().await.incarnation;
    let mut request = bench.request(1, &scan(None), &morsels);
    request.slot_count = 1;
    let mut stream = bench.execute(request.clone()).await;
    assert!(stream.next().await.unwrap().is_some());

    server.stop().await;
    let error = drain(&mut stream).await.unwrap_err();
    assert!(matches!(error, LinkError::Lost { .. }), "{error:?}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    for _ in 0..2 {
        let error = bench.read_blocks(extent(0, 1)).await.unwrap_err();
        assert!(error.is_unreachable(), "{error:?}");
        assert!(error.to_string().contains(&address.to_string()), "{error}");
        assert!(bench.link.execute(request.clone()).await.unwrap_err().is_unreachable());
    }

    let _server = Server::start(device(), address, Some(&credentials)).await;
    let (bytes, _) = table_pages();
    assert_eq!(bench.read_blocks(extent(0, 1)).await.unwrap(), bytes[..BLOCK_SIZE]);
    assert_ne!(bench.status().await.incarnation, incarnation, "a restart can be seen");
    // Runs begun before are gone, with an error that says so.
    request.first_slot = stream.next_slot();
    let (cause, message) = device_error(bench.link.execute(request.clone()).await);
    assert_eq!(cause, DeviceErrorCause::UnknownRun);
    assert!(message.contains("begin a new run"), "{message}");
    let written = bench.write(0, &[1; BLOCK_SIZE]).await;
    assert_eq!(device_error(written).0, DeviceErrorCause::NotReserved);
    request.header = bench.header_of_run(2);
    request.first_slot = 0;
    let mut stream = bench.execute(request).await;
    assert_eq!(drain(&mut stream).await.unwrap(), (0..ROW_COUNT).collect::<Vec<_>>());
}

/// A device with pages of its own, reached over a wire that can be cut.
async fn bench_over_a_wire() -> (Bench, Wire, Server) {
    let media = memory();
    let device = Runtime::new(Arc::clone(&media), options()).unwrap();
    let credentials = Credentials::new();
    let server = Server::start(device, any_port(), Some(&credentials)).await;
    let wire = Wire::to(server.address).await;
    let link: Arc<dyn Link> = credentials.connect(wire.address).await.unwrap();
    (Bench::of(link, media, None).await, wire, server)
}

#[tokio::test]
async fn a_run_goes_on_over_a_new_connection() {
    let (bench, wire, _server) = bench_over_a_wire().await;
    let morsels = bench.load().await;
    let mut request = bench.request(1, &scan(None), &morsels);
    (request.slot_count, request.slot_bytes) = (4, 4096);
    let mut found = Vec::new();
    let mut stream = bench.execute(request.clone()).await;
    let mut lost_count = 0;
    loop {
        match stream.next().await {
            Ok(Some(batch)) => {
                found.extend(ids(&batch));
                if stream.next_slot() % 20 == 7 && lost_count < 5 {
                    wire.cut();
                }
            }
            Ok(None) => break,
            Err(LinkError::Lost { .. }) => {
                lost_count += 1;
                request.first_slot = stream.next_slot();
                // The old stream is dropped after the new one has attached, which must not end the run.
                stream = bench.execute(request.clone()).await;
            }
            Err(other) => panic!("{other}"),
        }
    }
    found.sort_unstable();
    assert_eq!(found, (0..ROW_COUNT).collect::<Vec<_>>(), "every row once");
    assert!(lost_count > 0, "the wire was never cut");
    assert_eq!(stream.report().unwrap().rows, u64::try_from(ROW_COUNT).unwrap());
}

#[tokio::test]
async fn a_run_abandoned_with_its_connection_is_released_over_the_next() {
    let (bench, wire, _server) = bench_over_a_wire().await;
    let morsels = bench.load().await;
    let mut request = bench.request(1, &scan(None), &morsels);
    request.slot_count = 1;
    let mut stream = bench.execute(request).await;
    bench.reach(1, RunState::Stalled).await;
    wire.cut();
    assert!(matches!(drain(&mut stream).await, Err(LinkError::Lost { .. })));
    drop(stream);
    bench.reach_idle().await;
}

#[tokio::test]
async fn a_run_abandoned_with_its_link_is_released_over_the_next_link() {
    let media = memory();
    let device = Runtime::new(Arc::clone(&media), options()).unwrap();
    let credentials = Credentials::new();
    let server = Server::start(device, any_port(), Some(&credentials)).await;
    let wire = Wire::to(server.address).await;
    let abandoned = AbandonedRuns::default();
    let link = credentials.reconnect(wire.address, abandoned.clone()).await.unwrap();
    let bench = Bench::of(link, Arc::clone(&media), None).await;
    let morsels = bench.load().await;
    let mut request = bench.request(1, &scan(None), &morsels);
    request.slot_count = 1;
    let mut stream = bench.execute(request).await;
    bench.reach(1, RunState::Stalled).await;
    wire.cut();
    assert!(matches!(drain(&mut stream).await, Err(LinkError::Lost { .. })));
    drop(bench);
    // The host gives up the link, connects anew, and only then drops the stream.
    let link = credentials.reconnect(wire.address, abandoned).await.unwrap();
    let bench = Bench::of(link, Arc::clone(&media), None).await;
    bench.reach(1, RunState::Stalled).await;
    drop(stream);
    bench.reach_idle().await;
}

#[tokio::test]
async fn another_device_is_found_out_before_it_is_asked_for_anything() {
    let credentials = Credentials::new();
    let options = options();
    let device = |device_id: [u8; 16]| -> Arc<dyn DeviceService> {
        Runtime::new(memory(), RuntimeOptions { device_id, ..options.clone() }).unwrap()
    };
    let server = Server::start(device([1; 16]), port_of_my_own(3), Some(&credentials)).await;
    let address = server.address;
    let link: Arc<dyn Link> = credentials.connect(address).await.unwrap();
    let bench = Bench::of(link, memory(), None).await;
    bench.reserve(0, 1).await;
    server.stop().await;
    let other = Server::start(device([2; 16]), address, Some(&credentials)).await;
    for _ in 0..2 {
        let error = loop {
            match bench.read_blocks(extent(0, 1)).await.unwrap_err() {
                // The end of the first connection was not noticed yet.
                LinkError::Lost { .. } => tokio::task::yield_now().await,
                other => break other,
            }
        };
        let LinkError::OtherDevice { expected, found, .. } = error else { panic!("{error}") };
        assert_eq!((expected, found), ([1; 16], [2; 16]));
    }
    other.stop().await;
    let _server = Server::start(device([1; 16]), address, Some(&credentials)).await;
    bench.reserve(0, 1).await;
}

#[tokio::test]
async fn a_run_that_nobody_hears_gives_way_to_one_that_needs_its_memory() {
    let media = memory();
    let device = Runtime::new(Arc::clone(&media), options()).unwrap();
    let credentials = Credentials::new();
    let server = Server::start(
        Arc::clone(&device) as Arc<dyn DeviceService>,
        any_port(),
        Some(&credentials),
    )
    .await;
    let lost_link: Arc<dyn Link> = credentials.connect(server.address).await.unwrap();
    let lost = Bench::of(lost_link, Arc::clone(&media), None).await;
    let morsels = lost.load().await;
    let mut request = lost.request(1, &scan(None), &morsels);
    (request.slot_count, request.memory_bytes) = (1, crate::bench::MEMORY_BYTES / 10 * 8);
    let stream = lost.execute(request.clone()).await;
    lost.reach(1, RunState::Stalled).await;
    // The host vanishes silently: its stream is forgotten, its link closed.
    drop(lost);
    let link: Arc<dyn Link> = cleave_fragment::link::EmbeddedLink::new(
        Arc::clone(&device) as Arc<dyn DeviceService>,
        None,
    );
    let bench = Bench::of(link, Arc::clone(&media), None).await;
    let mut second = bench.request(2, &scan(Some(3)), &morsels);
    second.memory_bytes = request.memory_bytes;
    // The device notices in its own time that nobody listens.
    let mut result = loop {
        match bench.link.execute(second.clone()).await {
            Ok(stream) => break stream,
            Err(error) => {
                assert_eq!(device_error::<()>(Err(error)).0, DeviceErrorCause::OutOfMemory);
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        }
    };
    assert_eq!(drain(&mut result).await.unwrap(), [0, 1, 2]);
    drop(stream);
    bench.call(Request::Status).await.unwrap();
}
