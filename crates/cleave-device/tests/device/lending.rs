//! Engines of one node: they lend idle cores to each other's runs, each row comes once, and a run ends with all that
//! works for it.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::Int32Type;
use cleave_device::{Node, Runtime, RuntimeOptions};
use cleave_fragment::Morsel;
use cleave_fragment::command::{
    Command, CommandHeader, DeviceErrorCause, Execute, Reply, Request, RunState,
};
use cleave_fragment::link::{EmbeddedLink, LinkError, RunStream};
use datafusion_physical_plan::ExecutionPlan;
use futures::future::join_all;
use tokio::time::{sleep, timeout};

use crate::bench::{
    Bench, Credentials, INCARNATION, PAGE_ROW_COUNT, ROW_COUNT, Server, any_port, device_error,
    drain, memory, options, scan,
};
use crate::spilling::join;

/// An engine of `node` with one core.
fn engine(node: &Arc<Node>) -> (Arc<Runtime>, Arc<dyn cleave_media::Media>) {
    let media = memory();
    let options = RuntimeOptions { cores: 1, ..options() };
    (Runtime::in_node(Arc::clone(&media), options, node).unwrap(), media)
}

/// A bench that has not claimed an engine of `node`.
fn unclaimed(node: &Arc<Node>) -> Bench {
    let (device, media) = engine(node);
    Bench::unclaimed(EmbeddedLink::new(device, None), media)
}

/// So many engines of one node, with one core each.
async fn engines(count: usize) -> Vec<Bench> {
    let node = Node::new("n1");
    let benches: Vec<Bench> = (0..count).map(|_| unclaimed(&node)).collect();
    for bench in &benches {
        bench.claim(0).await.unwrap();
    }
    benches
}

/// A run that others may help with, and that has one slot.
fn request(bench: &Bench, run: u64, plan: &Arc<dyn ExecutionPlan>, morsels: &[Morsel]) -> Execute {
    let request = bench.request(run, plan, morsels);
    Execute { partitions: 0, lends: true, slot_count: 1, ..request }
}

/// Waits until a run over `morsel_count` morsels, whose rows nobody takes, has begun more than its own core would.
async fn reach_lent(bench: &Bench, morsel_count: u64) {
    // Its partition decodes one morsel and has read the next.
    const OF_ONE: u64 = 2;
    let lending = async {
        while bench.status().await.queue + OF_ONE >= morsel_count {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(60), lending).await.expect("another engine helps");
}

fn all_ids() -> Vec<i32> {
    (0..ROW_COUNT).collect()
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
async fn an_idle_engine_takes_morsels_of_another_one() {
    let engines = engines(2).await;
    let bench = &engines[0];
    let Reply::Identity(identity) = bench.call(Request::Identify).await.unwrap() else { panic!() };
    assert_eq!((identity.node.as_str(), identity.cores), ("n1", 1));
    let morsels = bench.load().await;
    let mut stream = bench.execute(request(bench, 1, &scan(None), &morsels)).await;
    reach_lent(bench, 20).await;
    bench.reach(1, RunState::Stalled).await;
    assert!(engines[1].status().await.runs.is_empty(), "a helper has no run of it");
    assert_eq!(drain(&mut stream).await.unwrap(), all_ids());
    let report = stream.report().unwrap().clone();
    assert!((1..20).contains(&report.lent), "{report:?}");
    assert_eq!((report.morsels, report.partitions, report.kept), (20, 1, 20));
    assert_eq!(report.lent_text(), Some(format!("{} of 20 morsels", report.lent)));
    assert_eq!(bench.status().await.queue, 0);
    drop(stream);
    bench.reach_idle().await;
}

#[tokio::test]
async fn rows_are_the_same_whoever_helps() {
    let engines = engines(3).await;
    let bench = &engines[0];
    let morsels = bench.load().await;
    let below = (0..7777).collect::<Vec<i32>>();
    let plans = [(scan(None), all_ids()), (scan(Some(7777)), below), (join(), all_ids())];
    for run in 0..30 {
        for (place, (plan, expected)) in (1..).zip(&plans) {
            let inputs = vec![(0, morsels.clone()), (1, morsels.clone())];
            let request = request(bench, 10 * run + place, plan, &morsels);
            let slot_count = u32::try_from(run).unwrap() % 4 + 1;
            let memory_bytes = 16 << 20;
            let request = Execute { inputs, slot_count, memory_bytes, ..request };
            let mut stream = bench.execute(request).await;
            assert_eq!(&first_column(&mut stream).await.unwrap(), expected);
            let report = stream.report().unwrap();
            assert!(report.lent <= report.morsels, "{report:?}");
        }
    }
    bench.reach_idle().await;
}

#[tokio::test]
async fn only_long_runs_that_may_be_helped_are() {
    let engines = engines(2).await;
    let bench = &engines[0];
    let morsels = bench.load().await;
    let asked = |run| request(bench, run, &scan(None), &morsels);
    let alone = [
        Execute { lends: false, ..asked(1) },
        Execute { partitions: 1, ..asked(2) },
        Execute { inputs: vec![(0, morsels[..3].to_vec())], ..asked(3) },
    ];
    for request in alone {
        let mut stream = bench.execute(request).await;
        let found = drain(&mut stream).await.unwrap();
        assert!(found.len() == 20_000 || found.len() == 3 * PAGE_ROW_COUNT as usize);
        let report = stream.report().unwrap();
        assert_eq!((report.lent, report.partitions), (0, 1));
    }
}

#[tokio::test]
async fn an_engine_of_another_database_does_not_help() {
    let node = Node::new("");
    let (bench, other) = (unclaimed(&node), unclaimed(&node));
    bench.claim(0).await.unwrap();
    let morsels = bench.load().await;
    let lent = async |run: u64| {
        let mut stream = bench.execute(request(&bench, run, &scan(None), &morsels)).await;
        if run == 3 {
            reach_lent(&bench, 20).await;
        }
        assert_eq!(drain(&mut stream).await.unwrap(), all_ids());
        stream.report().unwrap().lent
    };
    assert_eq!(lent(1).await, 0, "nobody's");
    let header = CommandHeader { database: [9; 16], ..other.header() };
    let claim = Command::new(header, Request::Claim { after: 0 });
    assert_eq!(other.link.call(claim).await.unwrap(), Reply::Done);
    assert_eq!(lent(2).await, 0);
    let gives_up = Command::new(header, Request::GiveUp);
    assert_eq!(other.link.call(gives_up).await.unwrap(), Reply::Done);
    other.claim(0).await.unwrap();
    assert!(lent(3).await > 0);
}

#[tokio::test]
async fn what_the_host_revokes_no_engine_runs() {
    let engines = engines(2).await;
    let bench = &engines[0];
    let morsels = bench.load().await;
    let mut stream = bench.execute(request(bench, 1, &scan(None), &morsels)).await;
    reach_lent(bench, 20).await;
    let revoke = Request::Revoke { input: 0, keep: 0 };
    let Ok(Reply::Kept(kept)) = bench.call_run(1, revoke).await else { panic!() };
    assert!(kept.lease.begun == kept.lease.kept && kept.lease.kept < 20, "{kept:?}");
    assert_eq!(bench.status().await.queue, 0);
    let ids = i32::try_from(kept.lease.kept * PAGE_ROW_COUNT).unwrap();
    assert_eq!(drain(&mut stream).await.unwrap(), (0..ids).collect::<Vec<_>>());
    let report = stream.report().unwrap();
    assert_eq!((report.kept, report.morsels), (kept.lease.kept, u64::from(kept.lease.kept)));
}

#[tokio::test]
async fn a_run_that_is_cancelled_ends_everywhere() {
    let engines = engines(2).await;
    let bench = &engines[0];
    let morsels = bench.load().await;
    for run in 1..20 {
        let mut stream = bench.execute(request(bench, run, &scan(None), &morsels)).await;
        reach_lent(bench, 20).await;
        assert_eq!(bench.call_run(run, Request::Cancel).await.unwrap(), Reply::Done);
        assert_eq!(bench.status().await.queue, 0);
        assert_eq!(device_error(drain(&mut stream).await).0, DeviceErrorCause::Cancelled);
        assert_eq!(bench.call_run(run, Request::Release).await.unwrap(), Reply::Done);
        drop(stream);
        bench.reach_idle().await;
    }
}

#[tokio::test]
async fn a_claim_of_a_higher_epoch_ends_runs_that_are_helped() {
    let engines = engines(2).await;
    let bench = &engines[0];
    let morsels = bench.load().await;
    let mut stream = bench.execute(request(bench, 1, &scan(None), &morsels)).await;
    reach_lent(bench, 20).await;
    let later = bench.later(2);
    later.claim(INCARNATION + 1).await.unwrap();
    assert_eq!(later.status().await.runs, Vec::new());
    assert_eq!(device_error(drain(&mut stream).await).0, DeviceErrorCause::StaleEpoch);
    // The next epoch is helped as the one before.
    let mut stream = later.execute(request(&later, 1, &scan(None), &morsels)).await;
    reach_lent(&later, 20).await;
    // So it is while the helper changes hands.
    engines[1].later(2).claim(INCARNATION + 1).await.unwrap();
    assert_eq!(drain(&mut stream).await.unwrap(), all_ids());
}

#[tokio::test]
async fn a_helper_that_ends_costs_the_run_at_most() {
    for run in 0..10 {
        let mut engines = engines(2).await;
        let helper = engines.pop().unwrap();
        let bench = &engines[0];
        let morsels = bench.load().await;
        let mut stream = bench.execute(request(bench, 1, &scan(None), &morsels)).await;
        if run % 2 == 0 {
            reach_lent(bench, 20).await;
        }
        drop(helper);
        match drain(&mut stream).await {
            Ok(found) => assert_eq!(found, all_ids()),
            Err(error) => {
                // Or it had begun to read a page.
                let cause = device_error::<()>(Err(error)).0;
                let causes = [DeviceErrorCause::UnknownRun, DeviceErrorCause::Io];
                assert!(causes.contains(&cause), "{cause:?}");
            }
        }
        drop(stream);
        let mut alone = bench.execute(request(bench, 2, &scan(None), &morsels)).await;
        assert_eq!(drain(&mut alone).await.unwrap(), all_ids());
        assert_eq!(alone.report().unwrap().lent, 0);
    }
}

#[tokio::test]
async fn rows_of_a_helped_run_cross_a_link() {
    let node = Node::new("n1");
    let helper = unclaimed(&node);
    helper.claim(0).await.unwrap();
    let (device, media) = engine(&node);
    let credentials = Credentials::new();
    let server = Server::start(device, any_port(), Some(&credentials)).await;
    let link = credentials.connect(server.address).await.unwrap();
    let bench = Bench::of(link, media, Some(server)).await;
    let morsels = bench.load().await;
    let mut stream = bench.execute(request(&bench, 1, &scan(None), &morsels)).await;
    assert_eq!(drain(&mut stream).await.unwrap(), all_ids());
    assert_eq!(stream.report().unwrap().morsels, 20);
}

#[tokio::test]
async fn many_engines_with_one_core_each_run_at_once() {
    let engines = engines(64).await;
    let runs = engines.iter().enumerate().map(|(place, bench)| async move {
        // The others have nothing to do but to help.
        if place % 4 > 0 {
            return;
        }
        let morsels = bench.load().await;
        for run in 1..4 {
            let mut stream = bench.execute(request(bench, run, &scan(None), &morsels)).await;
            assert_eq!(drain(&mut stream).await.unwrap(), all_ids(), "engine {place}");
            assert_eq!(stream.report().unwrap().morsels, 20);
        }
        bench.reach_idle().await;
    });
    join_all(runs).await;
}
