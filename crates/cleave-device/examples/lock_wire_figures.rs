//! Measures locks of a remote device over TCP with TLS: locks in a second, and bytes on the wire for each.
//!
//! `lock_wire_figures` is both sides, over the loopback. `lock_wire_figures device ADDRESS CERTIFICATE` and
//! `lock_wire_figures host ADDRESS CERTIFICATE` are one each: the device writes its certificate into the file, the host
//! reads it.
//!
//! A stand-in for a fragment asks for a million rows, 4096 at a time and 16 batches ahead, in the order of a scan and
//! scattered. A lock is counted with its unlocking: the time is to the end of the job, which releases all rows. Each
//! line is the median, the least and the most of 5 rounds, without a rate limit and with 1 Gbit/s each way.

#![expect(clippy::disallowed_methods, reason = "a stopwatch is what it is")]

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use cleave_device::{ListenOptions, Listener};
use cleave_fragment::build_id;
use cleave_fragment::command::message::RunEvent;
use cleave_fragment::command::wire::PROTOCOL_VERSION;
use cleave_fragment::command::{
    Command, CommandHeader, DeviceError, DeviceErrorCause, Execute, Identity, LockRefusal, Outputs,
    Reply, Request,
};
use cleave_fragment::link::{
    AbandonedRuns, ConnectedLink, DeviceIdentity, DeviceService, Link, RemoteAddress, SlotSender,
    Token,
};
use cleave_fragment::row_locks::{AskedLocks, HostedJob, JobTransaction, RowLock, Served};
use cleave_shmem::{HostLocks, Row, TableShape};
use cleave_store::RecId;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

const ROWS: u64 = 1 << 20;
const BATCH: usize = 4096;
const AHEAD: usize = 16;
const ROUNDS: usize = 5;
const GIGABIT: u64 = 125_000_000;
const OBJECT: u64 = 7;
const TOKEN: &str = "a-token-that-only-figures-use";
/// The snapshot of an execute selects the order here: this one means scattered rows.
const SCATTERED: u64 = 1;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let far = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let near = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    match arguments.as_slice() {
        [] => {
            let (address, certificate) = start(&far, SocketAddr::from(([127, 0, 0, 1], 0)))?;
            near.block_on(measure(address, &certificate))
        }
        ["device", address, file] => {
            let (_, certificate) = start(&far, address.parse()?)?;
            std::fs::write(file, certificate)?;
            far.block_on(std::future::pending())
        }
        ["host", address, file] => {
            let certificate = std::fs::read_to_string(Path::new(file))?;
            near.block_on(measure(address.parse()?, &certificate))
        }
        _ => Err("lock_wire_figures [device|host ADDRESS CERTIFICATE]".into()),
    }
}

/// Serves on a thread of its own; returns the address and the certificate.
fn start(runtime: &Runtime, address: SocketAddr) -> Outcome<(SocketAddr, String)> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let identity = DeviceIdentity::from_pem(certificate.as_bytes(), key.as_bytes())?;
    let options = ListenOptions {
        address,
        identity: Some(Arc::new(identity)),
        token: Token::new(TOKEN, "the figures")?,
        rate_cap: None,
        log: Arc::new(|_| ()),
    };
    let listener = runtime.block_on(Listener::bind(Arc::<Locker>::default(), options))?;
    let address = listener.local_address();
    let _serving = runtime.spawn(listener.serve());
    Ok((address, certificate))
}

async fn measure(address: SocketAddr, certificate: &str) -> Outcome<()> {
    let mut out = io::stdout();
    writeln!(out, "{:38} {:>10} {:>8} {:>8} {:>8}", "", "locks/s", "least", "most", "bytes")?;
    for (wire, cap) in [("as it comes", None), ("1 Gbit/s", Some(GIGABIT))] {
        for (order, snapshot) in [("scan's order", 0), ("scattered", SCATTERED)] {
            let address = RemoteAddress { host: address.ip().to_string(), port: address.port() };
            let token = Token::new(TOKEN, "the figures")?;
            let pem = Some(certificate.as_bytes());
            let link = ConnectedLink::remote(address, token, pem, cap, AbandonedRuns::default())?;
            let link = link.connected().await?;
            let (mut rates, mut bytes) = (Vec::new(), 0.0);
            for run in 0..ROUNDS {
                let (rate, each) =
                    one_run(&link, run as u64 + 1 + snapshot * 100, snapshot).await?;
                rates.push(rate);
                bytes = each;
            }
            rates.sort_by(f64::total_cmp);
            let (least, most) = (rates[0], rates[ROUNDS - 1]);
            let name = format!("{wire}, {order}");
            let median = rates[ROUNDS / 2];
            writeln!(out, "{name:38} {median:>10.0} {least:>8.0} {most:>8.0} {bytes:>8.2}")?;
        }
    }
    Ok(())
}

/// Locks a second, and bytes for each lock.
async fn one_run(link: &ConnectedLink, run: u64, snapshot: u64) -> Outcome<(f64, f64)> {
    let (host, device) = HostLocks::embedded(TableShape::default())?;
    let job = HostedJob::begin(&host, Served::ByHost(&device), Arc::new(Alone))?.ok_or("no job")?;
    let before = link.traffic();
    let since = Instant::now();
    let mut stream = link.execute_locking(request(run, snapshot), Arc::clone(&job)).await?;
    while stream.next().await?.is_some() {}
    job.end();
    let seconds = since.elapsed().as_secs_f64();
    let crossed = link.traffic().since(before);
    let bytes = crossed.sent_bytes + crossed.received_bytes;
    Ok((ROWS as f64 / seconds, bytes as f64 / ROWS as f64))
}

fn request(run: u64, snapshot: u64) -> Execute {
    let header = CommandHeader {
        database: [7; 16],
        epoch: 1,
        incarnation: u64::MAX,
        run,
        sequence: run,
        interaction: 0,
    };
    Execute {
        header,
        build: build_id(),
        fragment: bytes::Bytes::new(),
        snapshot,
        inputs: Vec::new(),
        index_filters: Vec::new(),
        indexes: Vec::new(),
        broadcasts: Vec::new(),
        shipped: Vec::new(),
        reserved: Vec::new(),
        extensible: false,
        history: cleave_fragment::filter_history::HistoryMode::Off,
        lends: false,
        homes: Vec::new(),
        peers: Vec::new(),
        peer_rows: Vec::new(),
        outputs: Outputs::One,
        output: 0,
        attaches: false,
        trace: Default::default(),
        partitions: 1,
        memory_bytes: 1 << 20,
        slot_count: 4,
        slot_bytes: 16 << 10,
        settings: Vec::new(),
        fed: Vec::new(),
        first_slot: 0,
        locks: None,
    }
}

/// A transaction without competitors.
#[derive(Debug)]
struct Alone;

impl JobTransaction for Alone {
    fn newest(&self, _row: Row) -> Option<RecId> {
        None
    }

    fn lock_own(&self, _row: Row) -> bool {
        false
    }

    fn lock_object(&self, _object: u64) -> bool {
        false
    }

    fn closes_cycle(&self) -> bool {
        false
    }
}

/// A device whose runs only lock rows.
#[derive(Debug, Default)]
struct Locker {
    run: Mutex<Option<Arc<AskedLocks>>>,
    tasks: Mutex<JoinSet<()>>,
}

#[async_trait]
impl DeviceService for Locker {
    async fn call(&self, command: Command) -> Result<Reply, DeviceError> {
        if command.request != Request::Identify {
            return Ok(Reply::Done);
        }
        Ok(Reply::Identity(Identity {
            device: [1; 16],
            build: build_id(),
            protocol_version: PROTOCOL_VERSION,
            capabilities: Vec::new(),
            block_size: 4096,
            block_count: 0,
            cores: 1,
            fragment_memory_bytes: 0,
            slot_bytes_max: 0,
            transfer_bytes_max: 0,
            owner: None,
            node: String::new(),
        }))
    }

    async fn execute(&self, request: Execute, slots: SlotSender) -> Result<SchemaRef, DeviceError> {
        let asked = AskedLocks::new(slots.clone());
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&asked));
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let ended = match lock_all(&asked, request.snapshot == SCATTERED).await {
                Ok(()) => RunEvent::Finished(Box::default()),
                Err(why) => {
                    RunEvent::Failed(DeviceError::new(DeviceErrorCause::Cancelled, why.to_string()))
                }
            };
            slots.send(ended);
        });
        Ok(Arc::new(Schema::empty()))
    }

    fn steer(&self, command: Command) {
        let run = self.run.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let (Request::Locks(say), Some(asked)) = (command.request, run) {
            asked.hear(say);
        }
    }
}

async fn lock_all(asked: &Arc<AskedLocks>, is_scattered: bool) -> Result<(), LockRefusal> {
    let spread = |row: u64| row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
    let rows: Vec<u64> =
        if is_scattered { (0..ROWS).map(spread).collect() } else { (0..ROWS).collect() };
    let mut under_way = VecDeque::new();
    for vids in rows.chunks(BATCH) {
        under_way.push_back(asked.lock(OBJECT, vids, true).await?);
        if under_way.len() > AHEAD {
            settle(under_way.pop_front()).await?;
        }
    }
    while !under_way.is_empty() {
        settle(under_way.pop_front()).await?;
    }
    Ok(())
}

async fn settle(rows: Option<cleave_fragment::row_locks::AskedRows>) -> Result<(), LockRefusal> {
    let Some(mut rows) = rows else { return Ok(()) };
    let settled = rows.settled().await?;
    assert!(settled.iter().all(|row| *row == RowLock::Held), "nobody else is there");
    Ok(())
}
