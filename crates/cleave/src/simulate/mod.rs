//! `cleave simulate`: statements over many devices, in virtual time, by the code that schedules real ones.
//!
//! 1. [`SimulateOptions`] say how many devices there are, what they, their links and the host can do, what a morsel
//!    takes, and where morsels lie. With a measured profile, the cost model says most of that ([`scenario::Scan`]).
//! 2. [`world`] runs a [`Scenario`] event by event, once for each number of devices.
//! 3. [`report`] prints what came of it: how long it took, how evenly devices worked, what it cost the host.
//!
//! Nothing is opened, sent or waited for. Equal options give equal figures, but for the time that decisions really
//! take.

mod report;
mod scenario;
#[cfg(test)]
mod tests;
mod world;

use std::path::PathBuf;

use clap::Args;
use cleave_host::device::profile::{Accelerator, PUBLISHED, Profile, of_file};

use crate::arguments::{bytes, rate};
use crate::failure::Failure;
use scenario::{Batch, HostCosts, Placement, Scan, Scenario, Stealing, nanoseconds, times};
use world::World;

/// Most devices of a simulation, and most morsels of all its statements.
const DEVICES_MAX: i64 = 100_000;
const MORSELS_MAX: u64 = 100_000_000;
/// Most runs of fragments, of which all are remembered.
const RUNS_MAX: u64 = 2_000_000;
/// Most bytes of rows or pages of a morsel.
const MORSEL_BYTES_MAX: u64 = 1 << 30;
/// Core time of a device before the first morsel of a run: what a fragment takes beside its operators
/// (`docs/benchmarks.md`, processor time of a device).
const START_MS: f64 = 2.0;

/// `cleave simulate …`.
#[derive(Debug, Clone, Args)]
pub(crate) struct SimulateOptions {
    /// How many devices there are: one simulation for each number
    #[arg(
        long,
        value_name = "COUNTS",
        default_value = "1,2,4,10,100,1000",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=DEVICES_MAX)
    )]
    devices: Vec<u32>,
    /// Devices of a node, which share a process and a link
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    per_node: u32,
    /// Cores of a device [default: 1, or those of the profile]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1024))]
    cores: Option<u32>,
    /// Morsels of a device for a statement, in the mean
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 256,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000)
    )]
    morsels: u32,
    /// Where morsels lie: even, zipf, or weights as in 3,1, which are repeated
    #[arg(long, value_name = "HOW", default_value = "even", value_parser = placement)]
    placement: Placement,
    /// Milliseconds of a device's core for a morsel [default: 10, or by the profile]
    #[arg(long, value_name = "MS", value_parser = positive)]
    morsel_ms: Option<f64>,
    /// Morsels take longer or shorter by up to this share
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, value_parser = share)]
    noise: f64,
    /// A device that takes so many times as long, as in 3=10; may be repeated
    #[arg(long, value_name = "DEVICE=TIMES", value_parser = slow)]
    slow: Vec<(usize, f64)>,
    /// The node of this device is lost so many seconds after the beginning, as in 3@0.5
    #[arg(long, value_name = "DEVICE@SECONDS", value_parser = lost)]
    lost: Option<(usize, f64)>,
    /// All pages lie on a device of the next node too
    #[arg(long)]
    mirrored: bool,
    /// Who takes morsels of a device beside itself
    #[arg(long, value_enum, default_value_t = Stealing::On)]
    stealing: Stealing,
    /// Statements, each over all devices
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    statements: u32,
    /// How many of them run side by side, without --batch
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    at_once: u32,
    #[command(flatten)]
    batch: BatchOptions,
    #[command(flatten)]
    costs: CostOptions,
    /// The seed of what morsels take
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one line of JSON for each number of devices
    #[arg(long)]
    json: bool,
}

/// Statements that are the queries of a batch.
#[derive(Debug, Clone, Args)]
struct BatchOptions {
    /// The statements are the queries of one batch, each of which filters by one of so many columns
    #[arg(long = "batch", value_name = "COLUMNS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    columns_asked: Option<u32>,
    /// With --batch: tables of which each query reads one, each on some of the devices in turn
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    batch_tables: u32,
    /// With --batch: most queries of a group
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    batch_size: u32,
    /// With --batch: what each further query of a group adds to the time of a morsel, as a share of it
    #[arg(long, value_name = "SHARE", default_value_t = 0.4, value_parser = share)]
    each_more: f64,
}

/// Host, links and bytes.
#[derive(Debug, Clone, Args)]
struct CostOptions {
    /// The profile of a device behind a link, as device-1.profile in a database's folder
    #[arg(long, value_name = "FILE", conflicts_with = "published")]
    profile: Option<PathBuf>,
    /// The profile of published hardware: cosmos-plus, alveo-u280 or smartssd
    #[arg(long, value_name = "NAME")]
    published: Option<String>,
    /// With a profile: rows of a morsel, which a condition on one column filters
    #[arg(long, value_name = "COUNT", default_value_t = 131_072, value_parser = clap::value_parser!(u32).range(1..))]
    rows: u32,
    /// With a profile: columns of the result
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    columns: u32,
    /// With a profile: the share of rows that the condition keeps
    #[arg(long, value_name = "SHARE", default_value_t = 4e-6, value_parser = share)]
    selectivity: f64,
    /// Bytes of rows that a morsel gives [default: 512, or by the profile]
    #[arg(long, value_name = "BYTES", value_parser = morsel_bytes)]
    result_bytes: Option<u64>,
    /// Bytes of pages of a morsel, where the host reads them [default: 1MB, or by the profile]
    #[arg(long, value_name = "BYTES", value_parser = morsel_bytes)]
    page_bytes: Option<u64>,
    /// Bytes of a slot [default: 256kB, or by the profile]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    slot_bytes: Option<u64>,
    /// Slots of a run that the host has not consumed
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    slot_count: u32,
    /// The rate of a node's link in each direction [default: 1gbit, or by the profile]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    link: Option<u64>,
    /// The rate of the host's own link in each direction
    #[arg(long, value_name = "RATE", default_value = "10gbit", value_parser = rate)]
    host_link: u64,
    /// Microseconds from a message to its answer [default: 200, or by the profile]
    #[arg(long, value_name = "US", value_parser = positive)]
    round_trip_us: Option<f64>,
    /// Cores of the host [default: 2, or those of the profile]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1024))]
    host_cores: Option<u32>,
    /// Milliseconds of a host's core for a morsel [default: 5, or by the profile]
    #[arg(long, value_name = "MS", value_parser = positive)]
    host_morsel_ms: Option<f64>,
    /// Microseconds of a host's core to begin a run
    #[arg(long, value_name = "US", default_value_t = 150.0, value_parser = positive)]
    host_run_us: f64,
    /// Microseconds of a host's core for a message
    #[arg(long, value_name = "US", default_value_t = 20.0, value_parser = positive)]
    host_message_us: f64,
}

/// Runs `cleave simulate …`.
pub(crate) fn run(options: &SimulateOptions) -> Result<(), Failure> {
    let profile = options.costs.profile()?;
    let mut scenarios = Vec::new();
    for devices in &options.devices {
        scenarios.push(options.scenario(*devices as usize, profile.as_ref())?);
    }
    let mut report = report::Report::new(options.json);
    for scenario in &scenarios {
        let figures = World::new(scenario).run();
        let is_exact = figures.is_exact();
        report.add(scenario, &figures)?;
        if !is_exact {
            let message = "a morsel was run by none, or by two, or a statement never ended";
            return Err(Failure::Disagreement(message.to_owned()));
        }
    }
    report.finish()
}

impl SimulateOptions {
    /// What is to be simulated with so many devices.
    fn scenario(&self, devices: usize, profile: Option<&Profile>) -> Result<Scenario, Failure> {
        let costs = &self.costs;
        let morsels = u64::from(self.morsels) * devices as u64 * u64::from(self.statements);
        if morsels > MORSELS_MAX {
            let message =
                format!("{morsels} morsels in all are more than the {MORSELS_MAX} that may be");
            return Err(Failure::Usage(message));
        }
        let runs = devices as u64 * u64::from(self.statements);
        if runs > RUNS_MAX {
            let message = format!("{runs} runs in all are more than the {RUNS_MAX} that may be");
            return Err(Failure::Usage(message));
        }
        let scan =
            Scan { rows: costs.rows, columns: costs.columns, selectivity: costs.selectivity };
        let priced = profile.and_then(|profile| scan.price(profile, costs.slot_count));
        let ms = |given: Option<f64>, priced: Option<u64>, default: f64| {
            given.map(|ms| nanoseconds(ms / 1e3)).or(priced).unwrap_or(nanoseconds(default / 1e3))
        };
        let result_bytes = costs.result_bytes.or(priced.map(|p| p.result_bytes)).unwrap_or(512);
        let slot_bytes = costs.slot_bytes.or(priced.map(|p| p.slot_bytes)).unwrap_or(256 << 10);
        let slot_bytes = slot_bytes.max(1);
        if morsels.saturating_mul(result_bytes / slot_bytes) > MORSELS_MAX {
            let message = format!("rows of {result_bytes} bytes a morsel take too many slots");
            return Err(Failure::Usage(message));
        }
        // What is given for this number of devices counts: others have it at another place, or not at all.
        let is_there = |device: &usize| *device < devices;
        Ok(Scenario {
            devices,
            per_node: self.per_node as usize,
            cores: self.cores.or(profile.map(|p| p.device.cores.max(1))).unwrap_or(1),
            morsels: self.morsels,
            placement: self.placement.clone(),
            morsel_ns: ms(self.morsel_ms, priced.map(|p| p.device_morsel_ns), 10.0).max(1),
            noise: self.noise,
            start_ns: match profile {
                // Of a core that is there in part only.
                Some(profile) => {
                    let core = profile.device.cores_together.min(1.0);
                    times(nanoseconds(START_MS / 1e3), 1.0 / core)
                }
                None => nanoseconds(START_MS / 1e3),
            },
            slow: self.slow.iter().filter(|(device, _)| is_there(device)).copied().collect(),
            result_bytes,
            page_bytes: costs.page_bytes.or(priced.map(|p| p.page_bytes)).unwrap_or(1 << 20),
            slot_bytes,
            slot_count: costs.slot_count,
            node_rate: costs
                .link
                .or(profile.map(|p| scenario::whole(p.link.bytes_per_second)))
                .unwrap_or(125_000_000)
                .max(1),
            host_rate: costs.host_link,
            round_trip_ns: costs
                .round_trip_us
                .map(|us| us / 1e6)
                .or(profile.map(|p| p.link.round_trip_s))
                .map_or(200_000, nanoseconds),
            host: HostCosts {
                cores: costs.host_cores.or(profile.map(|p| p.host.cores.max(1))).unwrap_or(2),
                morsel_ns: ms(costs.host_morsel_ms, priced.map(|p| p.host_morsel_ns), 5.0).max(1),
                run_ns: nanoseconds(costs.host_run_us / 1e6),
                message_ns: nanoseconds(costs.host_message_us / 1e6),
                decode_rate: profile.map_or(4_000_000_000, HostCosts::decode_rate_of),
            },
            stealing: self.stealing,
            statements: self.statements,
            at_once: self.at_once,
            batch: self.batch.columns_asked.map(|columns| Batch {
                columns,
                tables: self.batch.batch_tables,
                size_max: self.batch.batch_size as usize,
                each_more: self.batch.each_more,
            }),
            lost: self
                .lost
                .filter(|(device, _)| is_there(device))
                .map(|(device, at_s)| (device, nanoseconds(at_s))),
            mirrored: self.mirrored,
            seed: self.seed,
        })
    }
}

impl CostOptions {
    /// The profile that is named, if one is.
    fn profile(&self) -> Result<Option<Profile>, Failure> {
        if let Some(path) = &self.profile {
            let held = std::fs::read(path).map_err(Failure::file(path))?;
            let wrong = || {
                let path = path.display();
                Failure::Usage(format!("{path} holds no profile of a device behind a link"))
            };
            return of_file(&held).ok_or_else(wrong).map(Some);
        }
        let Some(name) = &self.published else { return Ok(None) };
        let unknown = || {
            let names = PUBLISHED.map(|accelerator| accelerator.name).join(", ");
            Failure::Usage(format!("nothing is published here of {name}, but of {names}"))
        };
        Ok(Some(Accelerator::named(name).ok_or_else(unknown)?.profile()))
    }
}

fn placement(text: &str) -> Result<Placement, String> {
    match text {
        "even" => Ok(Placement::Even),
        "zipf" => Ok(Placement::Zipf),
        weights => {
            let weights = weights
                .split(',')
                .map(|weight| number(weight, 0.0, 1e9))
                .collect::<Result<Vec<f64>, String>>()
                .map_err(|_| "expected even, zipf, or weights as in 3,1".to_owned())?;
            match weights.iter().sum::<f64>() > 0.0 {
                true => Ok(Placement::Weights(weights)),
                false => Err("no device has a morsel".to_owned()),
            }
        }
    }
}

fn slow(text: &str) -> Result<(usize, f64), String> {
    let (device, times) = text.split_once('=').ok_or("expected DEVICE=TIMES, as in 3=10")?;
    Ok((place(device)?, number(times, 1e-3, 1e6)?))
}

fn lost(text: &str) -> Result<(usize, f64), String> {
    let (device, at_s) = text.split_once('@').ok_or("expected DEVICE@SECONDS, as in 3@0.5")?;
    Ok((place(device)?, number(at_s, 0.0, 1e6)?))
}

/// Devices are counted from 0.
fn place(text: &str) -> Result<usize, String> {
    text.trim().parse().map_err(|_| format!("{text} is no number of a device; the first is 0"))
}

fn morsel_bytes(text: &str) -> Result<u64, String> {
    let count = bytes(text)?;
    match count <= MORSEL_BYTES_MAX {
        true => Ok(count),
        false => Err(format!("a morsel has up to {MORSEL_BYTES_MAX} bytes")),
    }
}

fn share(text: &str) -> Result<f64, String> {
    number(text, 0.0, 1.0)
}

fn positive(text: &str) -> Result<f64, String> {
    number(text, 0.0, 1e9)
}

fn number(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number: f64 = text.trim().parse().map_err(|_| "it is no number".to_owned())?;
    match (least..=most).contains(&number) {
        true => Ok(number),
        false => Err(format!("it is not between {least} and {most}")),
    }
}
