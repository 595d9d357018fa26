//! `cleave bench`: standard transactional workloads, over the wire or embedded, against any server of PostgreSQL's
//! protocol.
//!
//! ```text
//!  Workload ─ operation by operation ─▶ driver: a thread a client ─▶ Client ─▶ embedded session │ server over the wire
//!                                            └─▶ latencies, retries ─▶ report, plot
//! ```
//!
//! 1. [`BenchOptions`] names the workload, and the target: the database of `--db`, or the server of `--url`.
//! 2. [`workloads`] make tables and rows, and choose each next operation.
//! 3. [`driver`] runs clients side by side for a time, retries operations that failed because of isolation, and counts.
//! 4. A workload with invariants over its rows has them checked afterwards ([`Workload::check`]).
//!
//! Every choice follows from the seed, the client and the operation's number, so that two systems get the same load.

pub(crate) mod client;
mod driver;
mod latency;
mod plot;
mod random;
mod report;
#[cfg(test)]
mod without_plans;
mod workloads;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use cleave_client::Address;
use cleave_media::clock::Stopwatch;
use tokio::runtime::Handle;

use crate::arguments::Place;
use crate::failure::Failure;
use crate::open;
use crate::picture::Picture;
use client::embedded::Embedded;
use client::wire::Wire;
use client::{Client, ClientError};
use driver::{Course, drive};
use workloads::{Workload, ch::Analytics};

/// `cleave bench …`.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchOptions {
    /// The workload
    #[arg(value_enum)]
    workload: WorkloadName,
    /// Measure this server, as in postgres://user@127.0.0.1:5432/database, instead of the database of --db
    #[arg(long, value_name = "URL", value_parser = server)]
    url: Option<Address>,
    /// The scale: for YCSB and LinkBench 1 is 100,000 records or nodes, for TPC-C warehouses (below 1: a part of one)
    #[arg(long, default_value_t = 1.0, value_parser = scale)]
    scale: f64,
    /// Connections that run operations in parallel
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    clients: u16,
    /// Connections that run the analytic queries of `ch` at the same time
    #[arg(long, default_value_t = 1)]
    analysts: u16,
    /// Measured seconds
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    seconds: f64,
    /// Seconds of warm-up before the measurement
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    warmup: f64,
    /// Measure the existing tables, without making them anew
    #[arg(long, conflicts_with = "load_only")]
    no_load: bool,
    /// Make the tables, without measuring
    #[arg(long)]
    load_only: bool,
    /// The isolation level of every transaction, as in 'repeatable read'
    #[arg(long, value_name = "LEVEL")]
    isolation: Option<String>,
    /// The seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Draw throughput over time and latencies into this file, as SVG
    #[arg(long, value_name = "FILE", conflicts_with = "load_only")]
    plot: Option<PathBuf>,
}

/// The workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WorkloadName {
    /// Half reads, half updates of one record
    YcsbA,
    /// 95 % reads, 5 % updates
    YcsbB,
    /// Reads
    YcsbC,
    /// Reads of the latest records, 5 % inserts
    YcsbD,
    /// Short scans, 5 % inserts
    YcsbE,
    /// Half reads, half read-modify-writes
    YcsbF,
    /// A social graph: nodes, links and counts
    Linkbench,
    /// Orders of a wholesaler
    Tpcc,
    /// TPC-C, and TPC-H-like queries over the same tables
    Ch,
}

impl WorkloadName {
    fn workload(self, scale: f64, clients: u16) -> Box<dyn Workload> {
        use workloads::linkbench::LinkBench;
        use workloads::tpcc::Tpcc;
        use workloads::ycsb::{Mix, Ycsb};
        let ycsb = |mix| Box::new(Ycsb::new(mix, scale, clients)) as Box<dyn Workload>;
        match self {
            Self::YcsbA => ycsb(Mix::A),
            Self::YcsbB => ycsb(Mix::B),
            Self::YcsbC => ycsb(Mix::C),
            Self::YcsbD => ycsb(Mix::D),
            Self::YcsbE => ycsb(Mix::E),
            Self::YcsbF => ycsb(Mix::F),
            Self::Linkbench => Box::new(LinkBench::new(scale, clients)),
            Self::Tpcc => Box::new(Tpcc::new(scale, false)),
            Self::Ch => Box::new(Tpcc::new(scale, true)),
        }
    }
}

/// The measured target, and how its clients are made.
enum Measured {
    Server(Address),
    Embedded {
        database: Arc<cleave_host::Database>,
        settings: Vec<(String, String)>,
        runtime: Handle,
    },
}

impl Measured {
    fn client(&self) -> Result<Box<dyn Client>, Failure> {
        Ok(match self {
            Self::Server(server) => Box::new(Wire::connect(server).map_err(failed)?),
            Self::Embedded { database, settings, runtime } => {
                Box::new(Embedded::new(open::session(database, settings)?, runtime.clone()))
            }
        })
    }
}

/// Runs `cleave bench …`.
pub(crate) async fn run(options: &BenchOptions, place: &Place) -> Result<(), Failure> {
    // A measurement takes long, so a file that cannot be written is found before it.
    let picture = options.plot.as_deref().map(Picture::create).transpose()?;
    let runtime = Handle::current();
    let measured = match &options.url {
        Some(server) => Measured::Server(server.clone()),
        None => {
            let (database, session) = open::open(place, open::Create::IfAbsent).await?;
            drop(session);
            Measured::Embedded { database, settings: place.settings.clone(), runtime }
        }
    };
    let options = options.clone();
    // Clients block their threads, so none of the runtime's threads may be among them.
    let work = std::thread::Builder::new().stack_size(crate::STACK_BYTES).spawn(move || {
        let measured = measured;
        measure(&options, &measured, picture)
    })?;
    let joined = tokio::task::spawn_blocking(move || work.join()).await;
    match joined.map_err(std::io::Error::other)? {
        Ok(outcome) => outcome,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn measure(
    options: &BenchOptions,
    measured: &Measured,
    picture: Option<Picture>,
) -> Result<(), Failure> {
    let workload = options.workload.workload(options.scale, options.clients);
    let workload = workload.as_ref();
    if !options.no_load {
        let mut client = measured.client()?;
        let started = Stopwatch::start();
        workload.load(client.as_mut(), options.seed).map_err(failed)?;
        report::loaded(started.elapsed());
    }
    if options.load_only {
        return Ok(());
    }
    let course = Course {
        seed: options.seed,
        warmup: Duration::from_secs_f64(options.warmup),
        measured: Duration::from_secs_f64(options.seconds),
    };
    let mut clients = Vec::new();
    for _ in 0..options.clients {
        clients.push(connected(options, measured, workload)?);
    }
    let analytics = Analytics;
    let mut analysts = Vec::new();
    if options.workload == WorkloadName::Ch {
        for _ in 0..options.analysts {
            analysts.push(connected(options, measured, &analytics)?);
        }
    }
    let driven = drive(&course, [(workload, clients), (&analytics, analysts)]);
    let figures = driven.map_err(failed)?;
    let faults = workload.check(measured.client()?.as_mut()).map_err(failed)?;
    if let Some(file) = picture {
        let name = options.workload.to_possible_value();
        let name = name.map(|name| name.get_name().to_owned()).unwrap_or_default();
        let title = format!(
            "{name}, scale {}, {} clients, {} s",
            options.scale, options.clients, options.seconds
        );
        let of_workload = figures.len().min(workload.operations().len());
        let picture = plot::picture(&title, &course, figures.split_at(of_workload));
        file.write(&picture)?;
    }
    report::print(&figures, &faults, course.measured, options.json)?;
    match faults.is_empty() {
        true => Ok(()),
        false => Err(Failure::Disagreement(
            "what the workload promises of its rows does not hold".to_owned(),
        )),
    }
}

/// A client that has prepared the workload's statements.
fn connected(
    options: &BenchOptions,
    measured: &Measured,
    workload: &dyn Workload,
) -> Result<Box<dyn Client>, Failure> {
    let mut client = measured.client()?;
    if let Some(level) = &options.isolation {
        let level = level.replace('\'', "''");
        client.run(&format!("SET default_transaction_isolation = '{level}'")).map_err(failed)?;
    }
    workload.prepare(client.as_mut()).map_err(failed)?;
    Ok(client)
}

fn failed(error: ClientError) -> Failure {
    Failure::Workload(error.to_string())
}

/// The address of a server. TLS costs time on both sides, so it is spoken only where the URL demands it.
fn server(url: &str) -> Result<Address, String> {
    let address = Address::from_url(url).map_err(|error| error.to_string())?;
    Ok(address.without_optional_tls())
}

fn scale(text: &str) -> Result<f64, String> {
    let scale: f64 = text.parse().map_err(|_| "it is no number".to_owned())?;
    match (0.001..=10_000.0).contains(&scale) {
        true => Ok(scale),
        false => Err("it is not between 0.001 and 10000".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "it is no number".to_owned())?;
    match (0.0..=86_400.0).contains(&seconds) {
        true => Ok(seconds),
        false => Err("it is not between 0 and 86400".to_owned()),
    }
}
