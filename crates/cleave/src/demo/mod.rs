//! `cleave demo`: shows what splitting a query between host and device gains, on links of two rates.
//!
//! 1. [`device_process`] starts a real device beside this program: another process, TLS, a token, loopback. Where there
//!    are two cores, each side gets one of its own ([`cores`]).
//! 2. A database is made whose tables lie on that device: IMDb-like data, loaded through a link without a limit, and
//!    analysed.
//! 3. For each link, each query runs with all work on the host, and with the split that Cleave chooses. The host's
//!    buffer pool is emptied before each run; [`rows`] checks that both give the same rows.
//! 4. [`report`] draws times and bytes, and says what was gained.

mod cores;
mod device_process;
pub(crate) mod report;
mod rows;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use cleave_host::{Database, Device, Outcome, Session, storage_engine};
use cleave_media::Stopwatch;

use crate::arguments::{Place, rate};
use crate::commands::generate::{self, Generator, Report};
use crate::failure::Failure;
use crate::generate::Imdb;
use crate::open::{self, Create};
use cores::Cores;
use device_process::DeviceProcess;
use report::{Measurement, Timing};
use rows::Rows;

/// `cleave demo`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DemoOptions {
    /// Size of the database; 1 has the 74 million rows of the real one
    #[arg(long, default_value_t = 0.4)]
    scale: f64,
    /// Rates of the link between host and device, one after the other: 1gbit, 100mbit, bytes a second, or none
    #[arg(long, default_value = "1gbit,100mbit", value_parser = rate_or_none, value_delimiter = ',')]
    rate: Vec<Rate>,
    /// A folder of .sql files to run instead of the demo's own, one query each
    #[arg(long, value_name = "DIR")]
    queries: Option<PathBuf>,
    /// How often each query runs each way; the median counts. One that takes seconds runs once
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Keep the database in this folder, which must be empty or missing
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// A link's rate in bytes a second, or no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rate(Option<u64>);

/// The two ways in which each query runs, by the settings that choose them.
const WAYS: [[(&str, &str); 2]; 2] =
    [[("stack", "native"), ("split", "host")], [("stack", "ndp"), ("split", "auto")]];

/// Name of the demo's device in its database.
const DEVICE: &str = "beside";
/// A query whose round takes longer is not run again: its figure is clear.
const LONG_ROUND: Duration = Duration::from_millis(1500);

/// Runs the demo.
pub(crate) async fn run(options: &DemoOptions, place: &Place) -> Result<(), Failure> {
    let queries = match &options.queries {
        Some(folder) => queries_in(folder)?,
        None => OWN_QUERIES.iter().map(|(name, text)| Query::new(name, text)).collect(),
    };
    let imdb = Imdb::new(options.scale, generate::SEED_DEFAULT)
        .map_err(|error| Failure::Usage(error.to_string()))?;
    let imdb: Arc<dyn Generator> = Arc::new(imdb);
    let temporary = tempfile::tempdir().map_err(Failure::file(std::env::temp_dir()))?;
    let directory = options.keep.as_deref().unwrap_or(temporary.path());
    let mut out = std::io::stdout();

    let device_directory = directory.join("device");
    std::fs::create_dir_all(&device_directory).map_err(Failure::file(&device_directory))?;
    let cores = Cores::of_this_process();
    cores.inspect(|cores| cores.enter_device());
    let process = DeviceProcess::start(&device_directory).await?;
    cores.inspect(|cores| cores.enter_host());
    let database_directory = directory.join("db");
    writeln!(
        out,
        "A device runs beside this program, process {}, {}.",
        process.id(),
        if cores.is_some() { "on a core of its own" } else { "on the same core" },
    )?;
    load(&imdb, &database_directory, &process, place).await?;

    let mut gains = Vec::new();
    for rate in &options.rate {
        storage_engine::change_device(&database_directory, DEVICE, process.remote(rate.0))
            .await
            .map_err(Failure::Open)?;
        let database =
            open::open_directory(&database_directory, Create::Never, place.memory()).await?;
        let device = database.device_named(DEVICE).map_err(Failure::Open)?;
        let mut session = open::session(&database, &place.settings)?;
        // Both sides and the link are measured, as before a database's first large query.
        database.profile(device.id(), true).await.map_err(Failure::Open)?;
        writeln!(out, "\nLink of {}\n", rate.text())?;
        let mut measurements = Vec::new();
        for query in &queries {
            let found = measure(&database, &device, &mut session, query, options.rounds).await?;
            write!(out, "{}", report::bars(&found))?;
            out.flush()?;
            measurements.push(found);
        }
        let gain = report::Gain::of(rate.text(), &measurements);
        write!(out, "\n{gain}\n")?;
        gains.push(gain);
    }
    write!(out, "\n{}", report::closing(&gains, cores.is_some()))?;
    write!(out, "\n{}", what_next())?;
    if options.keep.is_some() {
        let (directory, command) = (database_directory.display(), process.command_line());
        writeln!(
            out,
            "The database stays in {directory}. Its device ends with this program; start it again with\n  {command}"
        )?;
    }
    writeln!(out, "\n{}", report::last_line(&gains))?;
    Ok(())
}

/// Makes the database in `directory`, whose tables lie on the device of `process`.
async fn load(
    imdb: &Arc<dyn Generator>,
    directory: &Path,
    process: &DeviceProcess,
    place: &Place,
) -> Result<(), Failure> {
    let stopwatch = Stopwatch::start();
    let database = open::open_directory(directory, Create::IfAbsent, place.memory()).await?;
    database.add_device(DEVICE, process.remote(None)).await.map_err(Failure::Open)?;
    let mut session = open::session(&database, &place.settings)?;
    session.set("default_device", DEVICE).map_err(Failure::Sql)?;
    let row_count = generate::load(&mut session, imdb, Report::Nothing).await?;
    session.run("ANALYZE").await.map_err(Failure::Sql)?;
    writeln!(
        std::io::stdout(),
        "Made an IMDb-like database of {row_count} rows on it, and analysed its tables, in {:.1} s.",
        stopwatch.elapsed().as_secs_f64()
    )?;
    Ok(())
}

/// Runs one query each way, up to `rounds` times interleaved, and takes medians.
async fn measure(
    database: &Arc<Database>,
    device: &Device,
    session: &mut Session,
    query: &Query,
    rounds: u32,
) -> Result<Measurement, Failure> {
    let mut runs: [Vec<Timing>; 2] = Default::default();
    let mut expected: Option<Rows> = None;
    for _ in 0..rounds {
        let round = Stopwatch::start();
        for (settings, runs) in WAYS.iter().zip(&mut runs) {
            for (name, value) in settings {
                session.set(name, value).map_err(Failure::Sql)?;
            }
            database.buffer_pool().clear();
            let before = device.traffic();
            let stopwatch = Stopwatch::start();
            let outcomes = session.run(&query.text).await.map_err(|error| {
                let settings = settings.map(|(name, value)| format!("{name}={value}")).join(", ");
                drop(writeln!(std::io::stderr(), "{} with {settings} failed:", query.name));
                Failure::Sql(error)
            })?;
            let time = stopwatch.elapsed();
            let after = device.traffic();
            let link_bytes = (after.sent_bytes + after.received_bytes)
                .saturating_sub(before.sent_bytes + before.received_bytes);
            runs.push(Timing { time, link_bytes });
            let found = query.rows(&outcomes)?;
            match &expected {
                None => expected = Some(found),
                Some(expected) => {
                    if let Some(difference) = expected.difference(&found) {
                        return Err(Failure::Disagreement(format!(
                            "{}: {settings:?} and {:?} give different rows: {difference}",
                            query.name, WAYS[0]
                        )));
                    }
                }
            }
        }
        if round.elapsed() > LONG_ROUND {
            break;
        }
    }
    let [host, split] = runs.map(median);
    let row_count = expected.map_or(0, |rows| rows.count());
    Ok(Measurement { name: query.name.clone(), row_count, host, split })
}

fn median(mut runs: Vec<Timing>) -> Timing {
    runs.sort_by_key(|run| run.time);
    let middle = runs.len() / 2;
    runs.get(middle).copied().unwrap_or_default()
}

/// One query with the name of its file.
#[derive(Debug)]
struct Query {
    name: String,
    text: String,
    is_ordered: bool,
}

impl Query {
    fn new(name: &str, text: &str) -> Query {
        let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
        let is_ordered = words.windows(2).any(|pair| pair == ["order", "by"]);
        Query { name: name.to_owned(), text: text.to_owned(), is_ordered }
    }

    fn rows(&self, outcomes: &[Outcome]) -> Result<Rows, Failure> {
        let [Outcome::Rows { batches, .. }] = outcomes else {
            let message = format!("{}: a file must hold one query", self.name);
            return Err(Failure::Usage(message));
        };
        Rows::new(batches, self.is_ordered)
            .map_err(|error| Failure::Usage(format!("{}: {error}", self.name)))
    }
}

fn queries_in(folder: &Path) -> Result<Vec<Query>, Failure> {
    let mut queries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Failure::file(folder))? {
        let path = entry.map_err(Failure::file(folder))?.path();
        if path.extension().is_some_and(|extension| extension == "sql") {
            let text = std::fs::read_to_string(&path).map_err(Failure::file(&path))?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            queries.push(Query::new(&name, &text));
        }
    }
    if queries.is_empty() {
        return Err(Failure::Usage(format!("{} holds no .sql files", folder.display())));
    }
    queries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(queries)
}

fn rate_or_none(text: &str) -> Result<Rate, String> {
    if text.eq_ignore_ascii_case("none") {
        Ok(Rate(None))
    } else {
        rate(text).map(|rate| Rate(Some(rate)))
    }
}

impl Rate {
    /// As people write it.
    fn text(self) -> String {
        match self.0 {
            None => "no set rate".to_owned(),
            Some(rate) => report::rate_text(rate),
        }
    }
}

fn what_next() -> String {
    "What to try next:\n\
     \x20 cleave demo --scale 0.02 --rate 10gbit               another size, another link\n\
     \x20 cleave generate imdb --scale 0.01 --db films         a database of your own, without a device process\n\
     \x20 cleave sql --db films                                ask it something; \\? helps\n\
     \x20 cleave sql --db films -c \"EXPLAIN ANALYZE SELECT kind_id, count(*) FROM title GROUP BY 1\"\n\
     \x20                                                      where each operator ran, and what it moved\n\
     (cleave is target/release/cleave after cargo run --release.)\n"
        .to_owned()
}

const OWN_QUERIES: &[(&str, &str)] = &[
    ("01-needle", include_str!("queries/01-needle.sql")),
    ("02-group", include_str!("queries/02-group.sql")),
    ("03-count", include_str!("queries/03-count.sql")),
    ("04-newest", include_str!("queries/04-newest.sql")),
    ("05-long-texts", include_str!("queries/05-long-texts.sql")),
    ("06-keyword", include_str!("queries/06-keyword.sql")),
    ("07-rated", include_str!("queries/07-rated.sql")),
    ("08-cast", include_str!("queries/08-cast.sql")),
    ("09-sagas", include_str!("queries/09-sagas.sql")),
    ("10-everything", include_str!("queries/10-everything.sql")),
];

#[cfg(test)]
mod tests;
