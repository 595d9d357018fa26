//! Parses the command line into a command.
//!
//! Invariant: everything that can be checked without opening a database is checked here.

pub(crate) mod config;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::bench::BenchOptions;
use crate::commands::advise::AdviseOptions;
use crate::commands::backup::{BackupOptions, RestoreOptions};
use crate::commands::check::CheckCommand;
use crate::commands::config::ConfigOptions;
use crate::commands::device::DeviceOptions;
use crate::commands::explain::ExplainOptions;
use crate::commands::failover::FailoverOptions;
use crate::commands::generate::GenerateOptions;
use crate::commands::import::ImportOptions;
use crate::commands::inspect::InspectCommand;
use crate::commands::load::LoadOptions;
use crate::commands::manual::{CompletionsOptions, ManOptions};
use crate::commands::user::UserOptions;
use crate::demo::DemoOptions;
use crate::serve::ServeOptions;
use crate::shell::Source;
use crate::shell::format::Format;
use crate::simulate::SimulateOptions;

/// A parsed invocation.
#[derive(Debug)]
pub(crate) struct Invocation {
    /// The database and its settings.
    pub(crate) place: Place,
    /// The command.
    pub(crate) command: Command,
}

/// The database, and how to open it: the same for every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Place {
    /// The database's folder
    #[arg(long = "db", value_name = "DIR", env = "CLEAVE_DB", global = true)]
    pub(crate) directory: Option<PathBuf>,
    /// A session setting, as in --set split=h0; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting, global = true)]
    pub(crate) settings: Vec<(String, String)>,
    /// Memory for the host's page cache, as in 256MB
    #[arg(long, value_name = "BYTES", value_parser = bytes, global = true)]
    pub(crate) buffer_pool: Option<u64>,
    /// Memory for running queries, besides the page cache, as in 256MB
    #[arg(long, value_name = "BYTES", value_parser = bytes, global = true)]
    pub(crate) query_memory: Option<u64>,
    /// Memory for which rows the conditions of scans in this process were true for, as in 32MB; 0: none
    #[arg(long, value_name = "BYTES", value_parser = bytes, global = true)]
    pub(crate) filter_history: Option<u64>,
    /// Seconds to wait for a device that does not answer; 60 by default
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..), global = true)]
    pub(crate) device_timeout: Option<u32>,
}

/// Memory of the host, and the time limit of devices; the database's defaults where not given.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MemoryBudgets {
    /// The page cache, in bytes.
    pub(crate) buffer_pool: Option<u64>,
    /// Memory of operators, in bytes.
    pub(crate) query: Option<u64>,
    /// The filter history, in bytes.
    pub(crate) filter_history: Option<u64>,
    /// The time limit of a device, in seconds.
    pub(crate) device_timeout: Option<u32>,
}

impl Place {
    /// The given budgets.
    pub(crate) fn memory(&self) -> MemoryBudgets {
        MemoryBudgets {
            buffer_pool: self.buffer_pool,
            query: self.query_memory,
            filter_history: self.filter_history,
            device_timeout: self.device_timeout,
        }
    }
}

/// The commands.
#[derive(Debug)]
pub(crate) enum Command {
    /// `cleave demo`.
    Demo(DemoOptions),
    /// `cleave sql`.
    Sql {
        /// The layout of results; None: one for who looks at it.
        format: Option<Format>,
        /// A database that is not there is made.
        create: bool,
        /// Its statements only read.
        read_only: bool,
        /// Sources of statements, in order; if empty, standard input.
        sources: Vec<Source>,
    },
    /// `cleave serve`.
    Serve(ServeOptions),
    /// `cleave bench`.
    Bench(BenchOptions),
    /// `cleave config`.
    Config(ConfigOptions),
    /// `cleave user`.
    User(UserOptions),
    /// `cleave generate`.
    Generate(GenerateOptions),
    /// `cleave import`.
    Import(ImportOptions),
    /// `cleave load`.
    Load(LoadOptions),
    /// `cleave advise`.
    Advise(AdviseOptions),
    /// `cleave explain`.
    Explain(ExplainOptions),
    /// `cleave backup`.
    Backup(BackupOptions),
    /// `cleave restore`.
    Restore(RestoreOptions),
    /// `cleave failover`.
    Failover(FailoverOptions),
    /// `cleave check`.
    Check(CheckCommand),
    /// `cleave inspect`.
    Inspect(InspectCommand),
    /// `cleave device`.
    Device(DeviceOptions),
    /// `cleave simulate`.
    Simulate(Box<SimulateOptions>),
    /// `cleave completions`.
    Completions(CompletionsOptions),
    /// `cleave man`.
    Man(ManOptions),
    /// `cleave device-process`: the program `cleaved`.
    DeviceProcess {
        /// Its own arguments.
        arguments: Vec<OsString>,
    },
}

/// Reads a command line, the program's name first.
pub(crate) fn parse(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<Invocation, clap::Error> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut matches = CommandLine::command().try_get_matches_from(&arguments)?;
    if let Some(serve) = matches.subcommand_matches("serve")
        && let Some(file) = serve.get_one::<PathBuf>("config")
    {
        let arguments = config::with_file(arguments, serve, file)?;
        matches = CommandLine::command().try_get_matches_from(arguments)?;
    }
    let CommandLine { mut place, command } = CommandLine::from_arg_matches(&matches)?;
    let command = match command {
        Subcommands::Demo(options) => Command::Demo(options),
        Subcommands::Sql(options) => {
            if let Some(directory) = options.database {
                // One from the environment is only what is meant where nothing is said.
                if matches.value_source("directory") == Some(ValueSource::CommandLine) {
                    let message = "name the database once: as DIR, or with --db DIR";
                    return Err(CommandLine::command().error(ErrorKind::ArgumentConflict, message));
                }
                place.directory = Some(directory);
            }
            let sources =
                matches.subcommand_matches("sql").map(sources_in_order).unwrap_or_default();
            let SqlOptions { format, create, read_only, .. } = options;
            Command::Sql { format, create, read_only, sources }
        }
        Subcommands::Serve(options) => Command::Serve(options),
        Subcommands::Bench(options) => Command::Bench(options),
        Subcommands::Config(options) => Command::Config(options),
        Subcommands::User(options) => Command::User(options),
        Subcommands::Generate(options) => Command::Generate(options),
        Subcommands::Import(options) => Command::Import(options),
        Subcommands::Load(options) => Command::Load(options),
        Subcommands::Advise(options) => Command::Advise(options),
        Subcommands::Explain(options) => Command::Explain(options),
        Subcommands::Backup(options) => Command::Backup(options),
        Subcommands::Restore(options) => Command::Restore(options),
        Subcommands::Failover(options) => Command::Failover(options),
        Subcommands::Check(options) => Command::Check(options),
        Subcommands::Inspect(options) => Command::Inspect(options),
        Subcommands::Device(options) => Command::Device(options),
        Subcommands::Simulate(options) => Command::Simulate(options),
        Subcommands::Completions(options) => Command::Completions(options),
        Subcommands::Man(options) => Command::Man(options),
        Subcommands::DeviceProcess { mut arguments } => {
            // Where it stands first, it was taken for the host's option of that name.
            if let Some(bytes) = place.filter_history {
                arguments.insert(0, format!("--filter-history={bytes}").into());
            }
            Command::DeviceProcess { arguments }
        }
    };
    Ok(Invocation { place, command })
}

/// The definition of the command line.
pub(crate) fn command_line() -> clap::Command {
    CommandLine::command()
}

#[derive(Debug, Parser)]
#[command(
    name = "cleave",
    version,
    about = "A SQL database whose storage computes",
    after_help = "Start with `cleave demo`. Exit codes: 0 done, 1 wrong usage or file, 2 a database or \
                  device cannot be opened, 3 a statement failed, 4 results disagree."
)]
struct CommandLine {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Show how splitting queries between host and device pays off
    Demo(DemoOptions),
    /// Run SQL: a shell, or statements from -c, -f or standard input
    Sql(SqlOptions),
    /// Serve a database to PostgreSQL's clients
    Serve(ServeOptions),
    /// Run a standard transactional workload: YCSB, LinkBench, TPC-C, CH-benCHmark
    Bench(BenchOptions),
    /// Show or check a file of options for `cleave serve`
    Config(ConfigOptions),
    /// Manage the users who may connect to a server
    User(UserOptions),
    /// Generate IMDb-like data, TPC-H, or particles of a plasma, into files or into a database
    Generate(GenerateOptions),
    /// Import the tables, rows and indexes of a PostgreSQL dump or server
    Import(ImportOptions),
    /// Load CSV or Parquet files into a table
    Load(LoadOptions),
    /// Predict what splitting would save for a list of queries
    Advise(AdviseOptions),
    /// Show how a statement runs, as text or as a picture
    Explain(ExplainOptions),
    /// Write a consistent snapshot of a database into a folder
    Backup(BackupOptions),
    /// Make a database from a backup
    Restore(RestoreOptions),
    /// Continue a database whose host is lost in a new folder, from a device that keeps a log replica
    Failover(FailoverOptions),
    /// Verify every page, map and index entry of a database
    Check(CheckCommand),
    /// Print a page, a segment, a map, a fragment or the catalog
    Inspect(InspectCommand),
    /// Attach, list and manage storage devices
    Device(DeviceOptions),
    /// Simulate statements over many devices in virtual time
    Simulate(Box<SimulateOptions>),
    /// Print what a shell completes command lines with
    Completions(CompletionsOptions),
    /// Print or write manual pages
    Man(ManOptions),
    /// Run as a storage device (the program `cleaved`)
    #[command(hide = true)]
    DeviceProcess {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

#[derive(Debug, Args)]
struct SqlOptions {
    /// The database's folder, as --db gives it, or a server: postgres://user@host:port/database
    #[arg(value_name = "DIR|URL")]
    database: Option<PathBuf>,
    /// Statements to run; may be repeated, and mixed with -f
    #[arg(short = 'c', long = "command", value_name = "SQL", allow_hyphen_values = true)]
    commands: Vec<String>,
    /// A file of statements to run
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The layout of results; box at a terminal, otherwise table
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Make the database if it is not there
    #[arg(long)]
    create: bool,
    /// Only read, whatever the statements say
    #[arg(long, conflicts_with = "create")]
    read_only: bool,
}

/// `-c` and `-f` in the order given, which the derived structure does not keep.
fn sources_in_order(matches: &clap::ArgMatches) -> Vec<Source> {
    let indices = |id: &str| matches.indices_of(id).into_iter().flatten();
    let commands = matches.get_many::<String>("commands").into_iter().flatten();
    let files = matches.get_many::<PathBuf>("files").into_iter().flatten();
    let mut sources: Vec<(usize, Source)> = indices("commands")
        .zip(commands)
        .map(|(index, text)| (index, Source::Text(text.clone())))
        .chain(indices("files").zip(files).map(|(index, path)| (index, Source::File(path.clone()))))
        .collect();
    sources.sort_by_key(|(index, _)| *index);
    sources.into_iter().map(|(_, source)| source).collect()
}

fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("expected NAME=VALUE, as in split=h0".to_owned()),
    }
}

/// Parses a number of bytes, in the units of settings.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    cleave_host::settings::parse_bytes(text)
        .ok_or_else(|| "expected a number of bytes, as in 1048576 or 256MB".to_owned())
}

/// Parses a link's rate in bytes a second: `1gbit`, `100mbit`, or a plain number of bytes.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    let wrong = || "expected a rate, as in 1gbit, 100mbit or 12500000 (bytes a second)".to_owned();
    let lower_case = text.trim().to_ascii_lowercase();
    let (number, factor) = match lower_case.strip_suffix("bit") {
        Some(number) => match number.strip_suffix(['g', 'm', 'k']) {
            Some(digits) if number.ends_with('g') => (digits, 1_000_000_000 / 8),
            Some(digits) if number.ends_with('m') => (digits, 1_000_000 / 8),
            Some(digits) => (digits, 1_000 / 8),
            None => return Err(wrong()),
        },
        None => (lower_case.as_str(), 1),
    };
    let number: u64 = number.trim().parse().map_err(|_| wrong())?;
    match number.checked_mul(factor) {
        Some(rate) if rate > 0 => Ok(rate),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests;
