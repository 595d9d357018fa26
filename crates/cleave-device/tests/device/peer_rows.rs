//! Rows from device to device: each comes once to whoever is to have it, whatever happens to the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use cleave_device::{Node, Runtime, RuntimeOptions};
use cleave_fragment::command::{
    DeviceErrorCause, Execute, Grant, Outputs, Peer, PeerAddress, PeerRows, PeerSecret, PeerStream,
    PeerWay, Reply, Request, RunState,
};
use cleave_fragment::link::{DeviceService, EmbeddedLink, LinkError, RunStream};
use cleave_fragment::{Morsel, PeerRowsExec};
use cleave_media::Media;
use datafusion_common::{JoinType, NullEquality};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{CastExpr, Column, Literal};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion_physical_plan::projection::ProjectionExec;
use futures::future::join_all;
use tokio::time::timeout;

use crate::bench::{
    Bench, Credentials, ROW_COUNT, Server, any_port, device_error, drain, ids, memory, options,
    port_of_my_own, scan,
};

const SLOTS: (u32, u32) = (4, 16 << 10);
/// More time than anything here takes.
const LONG: Duration = Duration::from_secs(60);

fn id_of(number: u8) -> [u8; 16] {
    [number + 1; 16]
}

/// A device of `node`, which the database of the tests has not claimed.
fn device(node: &Arc<Node>, number: u8) -> (Arc<Runtime>, Arc<dyn Media>) {
    let media = memory();
    let options = RuntimeOptions { device_id: id_of(number), ..options() };
    (Runtime::in_node(Arc::clone(&media), options, node).unwrap(), media)
}

/// Three devices of one node, each with the whole table.
struct Three {
    devices: Vec<Bench>,
    morsels: Vec<Morsel>,
}

impl Three {
    async fn new() -> Self {
        let node = Node::new("n1");
        let mut devices = Vec::new();
        let mut morsels = Vec::new();
        for number in 0..3 {
            let (runtime, media) = device(&node, number);
            let bench = Bench::unclaimed(EmbeddedLink::new(runtime, None), media);
            bench.claim(0).await.unwrap();
            morsels = bench.load().await;
            devices.push(bench);
        }
        Self { devices, morsels }
    }

    /// Begins a run of `plan` over part `number` of `count` of the table on that device, for `outputs`.
    async fn produce(
        &self,
        (number, count): (usize, usize),
        run: u64,
        plan: &Arc<dyn ExecutionPlan>,
        outputs: Outputs,
    ) -> RunStream {
        let bench = &self.devices[number];
        let part = self.morsels.iter().skip(number).step_by(count).cloned();
        let part: Vec<Morsel> = part.collect();
        bench.execute(Execute { outputs, ..bench.request(run, plan, &part) }).await
    }

    /// A run of `plan`, which reads no pages, on device `number`.
    fn request(
        &self,
        number: usize,
        run: u64,
        plan: &Arc<dyn ExecutionPlan>,
        peer_rows: Vec<PeerRows>,
    ) -> Execute {
        let peers = (0..3).filter(|other| usize::from(*other) != number);
        let peers = peers.map(|other| Peer { device: id_of(other), way: PeerWay::Node });
        Execute {
            inputs: Vec::new(),
            peers: peers.collect(),
            peer_rows,
            memory_bytes: 16 << 20,
            ..self.devices[number].request(run, plan, &[])
        }
    }

    async fn reach_idle(&self) {
        for bench in &self.devices {
            timeout(LONG, bench.reach_idle()).await.unwrap();
        }
    }
}

/// Output `output` of `run` on device `number`.
fn stream(number: u8, run: u64, output: u32) -> PeerStream {
    PeerStream { device: id_of(number), run, output }
}

fn all_ids() -> Vec<i32> {
    (0..ROW_COUNT).collect()
}

/// Listens to `output` of `run` from `first_slot` on.
async fn listen(
    bench: &Bench,
    run: u64,
    output: u32,
    first_slot: u64,
) -> Result<RunStream, LinkError> {
    let attach = Execute::attaching(bench.header_of_run(run), output, SLOTS);
    bench.link.execute(Execute { first_slot, ..attach }).await
}

fn schema() -> SchemaRef {
    let id = Field::new("id", DataType::Int32, true);
    Arc::new(Schema::new(vec![id, Field::new("name", DataType::Utf8, true)]))
}

fn peer_rows(input: u32) -> Arc<dyn ExecutionPlan> {
    Arc::new(PeerRowsExec::new(input, schema()))
}

fn by_name(count: u32) -> Outputs {
    Outputs::ByHash { columns: vec![1], count }
}

fn column(name: &str, place: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new(name, place))
}

/// The id of the left side and the name of the right one, joined by name.
fn joined(left: Arc<dyn ExecutionPlan>, right: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let join = HashJoinExec::try_new(
        left,
        right,
        vec![(column("name", 1), column("name", 1))],
        None,
        &JoinType::Inner,
        Some(vec![0, 3]),
        PartitionMode::CollectLeft,
        NullEquality::NullEqualsNothing,
        false,
    );
    Arc::new(join.unwrap())
}

/// Ids, and names in another form.
fn with_names_as(form: DataType) -> Arc<dyn ExecutionPlan> {
    let name = Arc::new(CastExpr::new(column("name", 1), form, None)) as Arc<dyn PhysicalExpr>;
    let list = vec![(column("id", 0), "id".to_owned()), (name, "name".to_owned())];
    Arc::new(ProjectionExec::try_new(list, scan(None)).unwrap())
}

/// The first column of all remaining rows, sorted.
async fn first_column(stream: &mut RunStream) -> Result<Vec<i32>, LinkError> {
    let mut found = Vec::new();
    while let Some(batch) = stream.next().await? {
        found.extend(batch.column(0).as_primitive::<Int32Type>().values());
    }
    found.sort_unstable();
    Ok(found)
}

#[tokio::test]
async fn each_listener_gets_a_copy_of_all_rows() {
    let three = Three::new().await;
    let bench = &three.devices[0];
    let mut host = three.produce((0, 1), 1, &scan(None), Outputs::Copies(3)).await;
    // Nobody listens: the run waits, and so do those that come later for the slowest.
    timeout(LONG, bench.reach(1, RunState::Stalled)).await.unwrap();
    let listeners = (0..3).map(|output| async move {
        let mut listener = listen(bench, 1, output, 0).await.unwrap();
        assert_eq!(drain(&mut listener).await.unwrap(), all_ids(), "output {output}");
        assert_eq!(listener.report().unwrap().rows, 20_000);
    });
    timeout(LONG, join_all(listeners)).await.unwrap();
    assert!(host.next().await.unwrap().is_none(), "the host gets no rows, and the end");
    let report = host.report().unwrap();
    assert_eq!((report.rows, report.slots, report.morsels), (0, 0, 20));
    assert!(report.slot_bytes > 0);
    drop(host);
    three.reach_idle().await;
}

#[tokio::test]
async fn rows_are_divided_by_the_values_of_their_keys() {
    const COUNT: u32 = 5;
    let three = Three::new().await;
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let plans = [scan(None), with_names_as(DataType::Utf8View), with_names_as(dictionary)];
    let mut found: Vec<BTreeMap<i32, u32>> = Vec::new();
    for (number, plan) in plans.iter().enumerate() {
        let run = 7 + number as u64;
        let bench = &three.devices[number];
        let part = Execute { outputs: by_name(COUNT), ..bench.request(run, plan, &three.morsels) };
        let mut host = bench.execute(part).await;
        let listeners = (0..COUNT).map(|output| async move {
            let mut listener = listen(bench, run, output, 0).await.unwrap();
            (output, first_column(&mut listener).await.unwrap())
        });
        let mut output_of = BTreeMap::new();
        for (output, ids) in timeout(LONG, join_all(listeners)).await.unwrap() {
            assert!(ids.len() > 3000, "output {output} has {}", ids.len());
            for id in ids {
                assert!(output_of.insert(id, output).is_none(), "{id} comes twice");
            }
        }
        assert!(host.next().await.unwrap().is_none());
        assert!(output_of.keys().copied().eq(0..ROW_COUNT));
        found.push(output_of);
    }
    assert!(found[0] == found[1] && found[0] == found[2], "the form makes no difference");
}

#[tokio::test]
async fn a_listener_that_comes_again_gets_each_row_once() {
    let three = Three::new().await;
    let bench = &three.devices[0];
    let _host = three.produce((0, 1), 1, &scan(None), Outputs::Copies(1)).await;
    let mut found = Vec::new();
    let mut first_slot = 0;
    let mut attempts = 0;
    loop {
        let mut listener = listen(bench, 1, 0, first_slot).await.unwrap();
        attempts += 1;
        let mut taken = 0;
        let is_over = loop {
            let Some(batch) = listener.next().await.unwrap() else { break true };
            found.extend(ids(&batch));
            taken += 1;
            if taken == attempts {
                break false;
            }
        };
        if is_over {
            break;
        }
        first_slot = listener.next_slot();
        if attempts % 2 == 0 {
            // The new one takes over from one that still listens.
            let again = listen(bench, 1, 0, first_slot).await.unwrap();
            let (cause, text) = device_error(drain(&mut listener).await);
            assert_eq!(cause, DeviceErrorCause::Cancelled, "{text}");
            drop(again);
        }
    }
    assert!(attempts > 3);
    found.sort_unstable();
    assert_eq!(found, all_ids());
    let (cause, text) = device_error(listen(bench, 1, 0, 0).await.map(drop));
    assert_eq!(cause, DeviceErrorCause::Refused);
    assert!(text.contains("were consumed"), "{text}");
}

#[tokio::test]
async fn a_join_takes_one_side_of_other_devices() {
    let three = Three::new().await;
    for repeat in 0..3 {
        let run = 10 * repeat + 1;
        let mut hosts = Vec::new();
        for number in 0..2 {
            let copies = Outputs::Copies(2);
            hosts.push(three.produce((number, 2), run, &scan(None), copies).await);
        }
        // Each of two devices joins its half of the table with all rows of both.
        let halves = (1..3_usize).map(|number| {
            let output = u32::try_from(number).unwrap() - 1;
            let streams = vec![stream(0, run, output), stream(1, run, output)];
            let plan = joined(peer_rows(9), scan(None));
            let rows = vec![PeerRows { input: 9, streams }];
            let request = three.request(number, run + 1, &plan, rows);
            let half = three.morsels.iter().skip(number - 1).step_by(2).cloned();
            let inputs = vec![(0, half.collect())];
            let execute = Execute { inputs, ..request };
            let bench = &three.devices[number];
            async move { drain(&mut bench.execute(execute).await).await.unwrap() }
        });
        let found = timeout(LONG, join_all(halves)).await.unwrap();
        assert!(found.iter().all(|half| half.len() == 10_000));
        let mut found = found.concat();
        found.sort_unstable();
        assert_eq!(found, all_ids());
        for host in &mut hosts {
            assert!(host.next().await.unwrap().is_none());
        }
    }
    three.reach_idle().await;
}

#[tokio::test]
async fn a_join_of_two_tables_that_are_divided_anew_reads_no_page() {
    let three = Three::new().await;
    let mut hosts = Vec::new();
    for number in 0..3 {
        for run in [1, 2] {
            hosts.push(three.produce((number, 3), run, &scan(None), by_name(3)).await);
        }
    }
    let parts = (0..3_usize).map(|number| {
        let output = u32::try_from(number).unwrap();
        let input = |input: u32, run: u64| PeerRows {
            input,
            streams: (0..3).map(|from| stream(from, run, output)).collect(),
        };
        let plan = joined(peer_rows(4), peer_rows(5));
        let request = three.request(number, 3, &plan, vec![input(4, 1), input(5, 2)]);
        let bench = &three.devices[number];
        async move {
            let mut stream = bench.execute(Execute { partitions: 2, ..request }).await;
            let found = drain(&mut stream).await.unwrap();
            let report = stream.report().unwrap();
            assert_eq!((report.morsels, report.partitions, report.media_bytes), (0, 2, 0));
            assert!(report.peer_slots > 0 && report.peer_bytes > report.peer_slots, "{report:?}");
            found
        }
    });
    let found = timeout(LONG, join_all(parts)).await.unwrap();
    assert!(found.iter().all(|part| part.len() > 5000), "each has its share");
    let mut found = found.concat();
    found.sort_unstable();
    assert_eq!(found, all_ids());
    for host in &mut hosts {
        assert!(host.next().await.unwrap().is_none());
    }
    drop(hosts);
    three.reach_idle().await;
}

#[tokio::test]
async fn what_no_one_reads_for_a_while_holds_up_only_its_run() {
    let three = Three::new().await;
    let bench = &three.devices[0];
    // All rows have one key: they go to one output, and the others get none.
    let key = Arc::new(Literal::new(1_i32.into())) as Arc<dyn PhysicalExpr>;
    let list = vec![(column("id", 0), "id".to_owned()), (key, "key".to_owned())];
    let one_key = ProjectionExec::try_new(list, scan(None)).unwrap();
    let one_key = Arc::new(one_key) as Arc<dyn ExecutionPlan>;
    let mut host = three.produce((0, 1), 1, &one_key, by_name(3)).await;
    timeout(LONG, bench.reach(1, RunState::Stalled)).await.unwrap();
    let mut other = bench.execute(bench.request(2, &scan(None), &three.morsels)).await;
    assert_eq!(timeout(LONG, drain(&mut other)).await.unwrap().unwrap(), all_ids());
    let mut counts = Vec::new();
    for output in 0..3 {
        let listener = listen(bench, 1, output, 0).await.unwrap();
        counts.push((output, listener));
    }
    let drained = counts.iter_mut().map(|(_, listener)| first_column(listener));
    let drained = timeout(LONG, join_all(drained)).await.unwrap();
    let mut lengths: Vec<usize> = drained.into_iter().map(|ids| ids.unwrap().len()).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [0, 0, 20_000]);
    assert!(host.next().await.unwrap().is_none());
}

#[tokio::test]
async fn a_reader_that_is_cancelled_or_wants_no_more_ends_nothing_else() {
    let three = Three::new().await;
    let bench = &three.devices[0];
    let mut host = three.produce((0, 1), 1, &scan(None), Outputs::Copies(4)).await;
    let reads = |output: u32| vec![PeerRows { input: 3, streams: vec![stream(0, 1, output)] }];
    // Cancelled while nobody takes its rows.
    let reader = &three.devices[1];
    let request = three.request(1, 2, &peer_rows(3), reads(0));
    let mut cancelled = reader.execute(Execute { slot_count: 1, ..request }).await;
    // Ended by an empty build side, before it has asked for rows of the other one.
    let nothing = joined(scan(Some(0)), peer_rows(3));
    let request = three.request(2, 3, &nothing, reads(1));
    let inputs = vec![(0, three.morsels.clone())];
    let mut empty = three.devices[2].execute(Execute { inputs, ..request }).await;
    assert_eq!(timeout(LONG, drain(&mut empty)).await.unwrap().unwrap(), Vec::<i32>::new());
    // One that the listener itself closes.
    let closing = Request::Fetch { consumed: u64::MAX, output: 2 };
    assert_eq!(bench.call_run(1, closing).await.unwrap(), Reply::Done);
    let mut listener = listen(bench, 1, 3, 0).await.unwrap();
    assert_eq!(reader.call_run(2, Request::Cancel).await.unwrap(), Reply::Done);
    assert_eq!(device_error(drain(&mut cancelled).await).0, DeviceErrorCause::Cancelled);
    assert_eq!(timeout(LONG, drain(&mut listener)).await.unwrap().unwrap(), all_ids());
    assert!(host.next().await.unwrap().is_none());
    drop((host, cancelled, empty, listener));
    three.reach_idle().await;
}

#[tokio::test]
async fn a_run_that_loses_its_producer_fails_and_names_the_device() {
    let three = Three::new().await;
    let host = three.produce((0, 1), 1, &scan(None), Outputs::Copies(1)).await;
    let rows = vec![PeerRows { input: 3, streams: vec![stream(0, 1, 0)] }];
    let request = three.request(1, 2, &peer_rows(3), rows.clone());
    let mut reader = three.devices[1].execute(Execute { slot_count: 1, ..request }).await;
    assert!(reader.next().await.unwrap().is_some());
    // Its host wants no more of it.
    drop(host);
    let (cause, text) = device_error(timeout(LONG, drain(&mut reader)).await.unwrap());
    assert_eq!(cause, DeviceErrorCause::Peer, "{text}");
    assert!(text.contains("device, 01010101") && text.contains("rows of its run 1"), "{text}");
    drop(reader);
    // One that never was.
    let request = three.request(1, 3, &peer_rows(3), rows);
    let mut reader = three.devices[1].execute(request).await;
    let (cause, text) = device_error(timeout(LONG, drain(&mut reader)).await.unwrap());
    assert_eq!(cause, DeviceErrorCause::Peer, "{text}");
    drop(reader);
    three.reach_idle().await;
}

#[tokio::test]
async fn rows_of_other_columns_are_not_taken() {
    let three = Three::new().await;
    let _host = three.produce((0, 1), 1, &scan(None), Outputs::Copies(1)).await;
    let texts = Field::new("id", DataType::Utf8, true);
    let other = PeerRowsExec::new(3, Arc::new(Schema::new(vec![texts])));
    let plan = Arc::new(other) as Arc<dyn ExecutionPlan>;
    let rows = vec![PeerRows { input: 3, streams: vec![stream(0, 1, 0)] }];
    let mut reader = three.devices[1].execute(three.request(1, 2, &plan, rows)).await;
    let (cause, text) = device_error(timeout(LONG, drain(&mut reader)).await.unwrap());
    assert_eq!(cause, DeviceErrorCause::Peer);
    assert!(text.contains("its rows have 2 columns, and not 1"), "{text}");
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let three = Three::new().await;
    let bench = &three.devices[1];
    let refusal =
        async |request: Execute| device_error(bench.link.execute(request).await.map(drop));
    let outputs = async |outputs: Outputs| {
        let request = bench.request(1, &scan(None), &three.morsels);
        refusal(Execute { outputs, ..request }).await
    };
    for (wrong, why) in [
        (Outputs::Copies(0), "must lie between 1 and 64"),
        (Outputs::Copies(65), "must lie between 1 and 64"),
        (by_name(0), "must lie between 1 and 64"),
        (Outputs::ByHash { columns: vec![], count: 2 }, "no column"),
        (Outputs::ByHash { columns: vec![2], count: 2 }, "cannot be divided by column 2"),
    ] {
        let (cause, text) = outputs(wrong).await;
        assert_eq!(cause, DeviceErrorCause::Refused, "{text}");
        assert!(text.contains(why), "{text}");
    }
    let named = |input: u32, streams: &[PeerStream]| PeerRows { input, streams: streams.to_vec() };
    let one = stream(0, 1, 0);
    for (rows, why) in [
        (vec![named(3, &[one, one])], "output 0 of run 1 is taken twice"),
        (vec![named(3, &[one]), named(3, &[])], "input 3 are named twice"),
        (vec![named(3, &[one]), named(4, &[stream(0, 1, 1)])], "run 1 go to two inputs"),
        (vec![named(3, &[stream(1, 2, 0)])], "would wait for rows of its own"),
    ] {
        let (cause, text) = refusal(three.request(1, 2, &peer_rows(3), rows)).await;
        assert_eq!(cause, DeviceErrorCause::Refused, "{text}");
        assert!(text.contains(why), "{text}");
    }
    let request = three.request(1, 2, &peer_rows(3), vec![named(4, &[one])]);
    let (cause, text) = refusal(request).await;
    assert_eq!(cause, DeviceErrorCause::Unsupported);
    assert!(text.contains("input 3, rows of other devices, which was not given"), "{text}");
    let request = three.request(1, 2, &peer_rows(3), vec![named(3, &[one])]);
    let (cause, text) = refusal(Execute { memory_bytes: 40 << 10, ..request }).await;
    assert_eq!(cause, DeviceErrorCause::OutOfMemory, "{text}");
    let request = three.request(1, 2, &peer_rows(3), vec![named(3, &[stream(8, 1, 0)])]);
    assert_eq!(refusal(request).await.0, DeviceErrorCause::Peer, "a device that nobody knows");
    // What the host gets no other device may take, and no run is begun by who attaches.
    let mut stream = bench.execute(bench.request(5, &scan(None), &three.morsels)).await;
    let (cause, text) = device_error(listen(bench, 5, 0, 0).await.map(drop));
    assert_eq!(cause, DeviceErrorCause::Refused, "{text}");
    assert_eq!(drain(&mut stream).await.unwrap(), all_ids());
    let (cause, _) = device_error(listen(bench, 6, 0, 0).await.map(drop));
    assert_eq!(cause, DeviceErrorCause::UnknownRun);
    drop(stream);
    three.reach_idle().await;
}

#[tokio::test]
async fn rows_cross_between_nodes_by_a_grant() {
    let credentials = Credentials::new();
    let (producer, media) = device(&Node::new("n1"), 0);
    let server = Server::start(producer, any_port(), Some(&credentials)).await;
    let address = server.address;
    let link = credentials.connect(address).await.unwrap();
    let from = Bench::of(link, media, Some(server)).await;
    let morsels = from.load().await;
    let (computer, media) = device(&Node::new("n2"), 1);
    let to = Bench::unclaimed(EmbeddedLink::new(computer, None), media);
    to.claim(0).await.unwrap();
    let secret = PeerSecret([7; PeerSecret::BYTES]);
    let grant = |outputs| Grant { number: 4, secret: secret.clone(), extents: Vec::new(), outputs };
    let outputs = vec![(1, 0), (1, 2)];
    assert_eq!(from.call(Request::Grant(grant(outputs))).await.unwrap(), Reply::Done);
    let request = from.request(1, &scan(None), &morsels);
    let mut host = from.execute(Execute { outputs: Outputs::Copies(2), ..request }).await;
    let way = PeerWay::Link(PeerAddress {
        host: address.ip().to_string(),
        port: address.port(),
        ca_pem: Some(credentials.certificate.clone()),
        grant: 4,
        secret: secret.clone(),
    });
    let reads = |run: u64, output: u32| Execute {
        inputs: Vec::new(),
        peers: vec![Peer { device: id_of(0), way: way.clone() }],
        peer_rows: vec![PeerRows { input: 3, streams: vec![stream(0, 1, output)] }],
        ..to.request(run, &peer_rows(3), &[])
    };
    // The second output was not granted: it is closed, so that the first goes on alone.
    let mut refused = to.execute(reads(2, 1)).await;
    let (cause, text) = device_error(timeout(LONG, drain(&mut refused)).await.unwrap());
    assert_eq!(cause, DeviceErrorCause::Peer, "{text}");
    let closing = Request::Fetch { consumed: u64::MAX, output: 1 };
    assert_eq!(from.call_run(1, closing).await.unwrap(), Reply::Done);
    let mut reader = to.execute(reads(3, 0)).await;
    assert_eq!(timeout(LONG, drain(&mut reader)).await.unwrap().unwrap(), all_ids());
    assert!(host.next().await.unwrap().is_none());
    drop((host, reader, refused));
    timeout(LONG, from.reach_idle()).await.unwrap();
    timeout(LONG, to.reach_idle()).await.unwrap();
}

#[tokio::test]
async fn a_connection_between_devices_that_breaks_costs_no_row() {
    let credentials = Credentials::new();
    let (producer, media) = device(&Node::new("n1"), 0);
    let service = Arc::clone(&producer) as Arc<dyn DeviceService>;
    let server = Server::start(Arc::clone(&service), port_of_my_own(51), Some(&credentials)).await;
    let address = server.address;
    // The host's own way does not break.
    let from = Bench::of(EmbeddedLink::new(producer, None), media, None).await;
    let morsels = from.load().await;
    let (computer, media) = device(&Node::new("n2"), 1);
    let to = Bench::of(EmbeddedLink::new(computer, None), media, None).await;
    let secret = PeerSecret([7; PeerSecret::BYTES]);
    let outputs = vec![(1, 0)];
    let grant = Grant { number: 4, secret: secret.clone(), extents: Vec::new(), outputs };
    assert_eq!(from.call(Request::Grant(grant)).await.unwrap(), Reply::Done);
    let request = from.request(1, &scan(None), &morsels);
    let mut host = from.execute(Execute { outputs: Outputs::Copies(1), ..request }).await;
    let way = PeerWay::Link(PeerAddress {
        host: address.ip().to_string(),
        port: address.port(),
        ca_pem: Some(credentials.certificate.clone()),
        grant: 4,
        secret,
    });
    let request = Execute {
        inputs: Vec::new(),
        peers: vec![Peer { device: id_of(0), way }],
        peer_rows: vec![PeerRows { input: 3, streams: vec![stream(0, 1, 0)] }],
        slot_count: 1,
        ..to.request(2, &peer_rows(3), &[])
    };
    let mut reader = to.execute(request).await;
    let mut found = ids(&reader.next().await.unwrap().unwrap());
    server.stop().await;
    let _server = Server::start(service, address, Some(&credentials)).await;
    found.extend(timeout(LONG, drain(&mut reader)).await.unwrap().unwrap());
    found.sort_unstable();
    assert_eq!(found, all_ids());
    assert!(host.next().await.unwrap().is_none());
}
