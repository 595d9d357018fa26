//! `cleave import`: imports the tables, rows and indexes of a text dump of `pg_dump`, or of a running PostgreSQL
//! server.
//!
//! 1. [`dump`] reads the file once: statements with their lines, and where the rows of each COPY lie.
//! 2. [`plan`] decides what to do with each statement. Primary and unique keys, which a dump adds after the rows, go
//!    into CREATE TABLE, so that every row is checked as it comes.
//! 3. Each statement is run by itself, the rows straight from the file.
//! 4. The tables that have got rows are analysed.
//!
//! A column of a type that this version does not have is imported as text ([`text_columns`]).
//!
//! A dry run does all of it in memory, and keeps nothing: it reports exactly what an import would do. If memory has no
//! room for that, a folder for temporary files has to do.
//!
//! For a server, [`live`] makes such statements from its catalog, and streams the rows.
//!
//! What somebody else wrote is not trusted: only [some kinds of statements](trust) run, in a session that neither reads
//! nor writes files.
//!
//! Invariant: nothing is dropped silently. Skipped and failed statements are reported at the end, with line and reason.
//!
//! Source: PostgreSQL's `pg_dump`, plain format.

mod dump;
mod live;
mod plan;
mod text_columns;
mod trust;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use cleave_client::{Address, ClientError};
use cleave_host::{
    Changes, Client, ClientStreams, Database, Effort, Error, NameKind, Outcome, Session,
};
use tempfile::TempDir;

use crate::arguments::Place;
use crate::failure::Failure;
use crate::open::{self, Create};
use dump::Item;
use live::{Source, Step};
use plan::Fate;
use text_columns::TextColumn;
use trust::Kind;

/// Where files are in memory, on Linux.
const MEMORY: &str = "/dev/shm";
/// The room for a dry run: so many times what is read, and some bytes.
const ROOM_TIMES: u64 = 3;
const ROOM_BYTES: u64 = 256 << 20;

/// `cleave import …`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ImportOptions {
    /// A text dump of pg_dump (its default format), or a server, as in postgres://user:password@host:port/database
    file: PathBuf,
    /// Only report objects that this version does not support, without failing
    #[arg(long)]
    skip_unsupported: bool,
    /// Only report what would be imported: does it in memory (/dev/shm), or in TMPDIR if there is no room
    #[arg(long)]
    dry_run: bool,
    /// Run whatever is written there, also what is no definition, row or comment: it may read and write files
    #[arg(long)]
    trust_statements: bool,
}

/// The results of an import.
#[derive(Debug, Default)]
struct Told {
    /// How often each tag occurred, without counts.
    done: BTreeMap<String, u64>,
    row_count: u64,
    /// Place, statement and reason.
    failed: Vec<(String, String, String)>,
    /// Whether all failures are unsupported features, or follow from one.
    fails_by_kind_only: bool,
    /// Why the source could not be read to its end.
    lost: Option<String>,
    /// Columns whose types this version does not have, by the names of their tables.
    as_text: Vec<(String, TextColumn)>,
    /// Tables that could not be analysed, with the reason.
    without_statistics: Vec<(String, Error)>,
    /// Lines of skipped statements, by reason.
    passed: BTreeMap<&'static str, Vec<u64>>,
}

/// Runs `cleave import …`.
pub(crate) async fn run(options: &ImportOptions, place: &Place) -> Result<(), Failure> {
    let path = &options.file;
    if let Some(url) = path.to_str().filter(|text| Address::is_url(text)) {
        return Box::pin(from_server(options, Address::from_url(url)?, place)).await;
    }
    let file = File::open(path).map_err(Failure::file(path))?;
    let items = dump::read(BufReader::new(file)).map_err(|error| match error {
        dump::DumpError::Io(source) => Failure::File { path: path.clone(), source },
        other => Failure::Usage(format!("{}: {other}", path.display())),
    })?;
    let bytes = std::fs::metadata(path).ok().map(|found| found.len());
    let (target, mut session) = Target::open(options, place, bytes).await?;
    let mut told = Told { fails_by_kind_only: true, ..Told::default() };
    for (item, fate) in plan::planned(&items) {
        let statement = match fate {
            Fate::Run(statement) => statement,
            Fate::Done => continue,
            Fate::Skipped(reason) => {
                told.passed.entry(reason).or_default().push(item.line);
                continue;
            }
        };
        let (statement, as_text) = with_text_columns(statement);
        let input = item_rows(path, item)?;
        let kind = options.kind(Kind::OfDump);
        match Box::pin(take(&mut session, input, (&statement, kind))).await {
            Ok((tag, row_count)) => {
                *told.done.entry(tag).or_default() += 1;
                told.row_count += row_count;
                told.as_text.extend(as_text);
            }
            Err(error) => {
                let rows = match item.row_count() {
                    0 => String::new(),
                    count => format!(" ({count} rows)"),
                };
                let place = format!("line {}: ", item.line);
                told.fail(place, &statement, &error, &rows);
            }
        }
    }
    told.without_statistics = target.finish().await?;
    told.write(&mut std::io::stdout(), options.dry_run)?;
    told.verdict(options)
}

/// Imports from a server.
async fn from_server(
    options: &ImportOptions,
    server: Address,
    place: &Place,
) -> Result<(), Failure> {
    let broken = |error: ClientError| Failure::Usage(error.to_string());
    let source = Source::connect(server).map_err(broken)?;
    let steps = source.steps().map_err(broken)?;
    let (target, mut session) = Target::open(options, place, source.bytes()).await?;
    let mut told = Told { fails_by_kind_only: true, ..Told::default() };
    let mut missing: BTreeSet<String> = BTreeSet::new();
    for step in steps {
        let mut input = None;
        let (kind, statement, table) = match step {
            Step::Missing(what) => {
                told.fail(String::new(), &what, &Error::unsupported("its kind"), "");
                continue;
            }
            Step::Rows(table, _) if missing.contains(&table) => continue,
            Step::Rows(table, columns) => {
                match source.rows(&table, &columns) {
                    Ok(rows) => input = Some(Box::new(rows) as Box<dyn Read + Send>),
                    Err(error) => {
                        told.lost = Some(error.to_string());
                        break;
                    }
                }
                (Kind::Rows, format!("COPY {table} ({columns}) FROM STDIN"), None)
            }
            Step::Table(table, statement) => (Kind::Table, statement, Some(table)),
            Step::Run(kind, statement) => (kind, statement, None),
            Step::Refused(what, table, error) if !options.trust_statements => {
                told.fail(String::new(), &what, &error, "");
                missing.extend(table);
                continue;
            }
            Step::Refused(statement, table, _) => (Kind::OfDump, statement, table),
        };
        let (statement, as_text) = with_text_columns(statement);
        let taken = take(&mut session, input, (&statement, options.kind(kind)));
        match Box::pin(taken).await {
            Ok((tag, row_count)) => {
                *told.done.entry(tag).or_default() += 1;
                told.row_count += row_count;
                told.as_text.extend(as_text);
            }
            Err(error) => {
                let what = if table.is_some() { " (with its rows)" } else { "" };
                told.fail(String::new(), &statement, &error, what);
                missing.extend(table);
            }
        }
    }
    told.without_statistics = target.finish().await?;
    told.write(&mut std::io::stdout(), options.dry_run)?;
    told.verdict(options)
}

/// The target of an import.
struct Target {
    database: Arc<Database>,
    /// What its tables had when it was opened.
    before: Changes,
    /// The folder of a dry run, removed with this.
    scratch: Option<TempDir>,
}

impl ImportOptions {
    /// What a statement has to be; None: anything runs.
    fn kind(&self, kind: Kind) -> Option<Kind> {
        (!self.trust_statements).then_some(kind)
    }
}

impl Target {
    /// For what takes about so many `bytes`.
    async fn open(
        options: &ImportOptions,
        place: &Place,
        bytes: Option<u64>,
    ) -> Result<(Self, Session), Failure> {
        let (target, mut session) = Self::opened(options, place, bytes).await?;
        if !options.trust_statements {
            let client = session.settings().client.clone();
            session.set_client(Client { serves_files: false, ..client });
        }
        Ok((target, session))
    }

    async fn opened(
        options: &ImportOptions,
        place: &Place,
        bytes: Option<u64>,
    ) -> Result<(Self, Session), Failure> {
        if !options.dry_run {
            let (database, session) = open::open(place, Create::IfAbsent).await?;
            let before = database.changes();
            return Ok((Self { database, before, scratch: None }, session));
        }
        let folder =
            if has_room_in_memory(bytes) { PathBuf::from(MEMORY) } else { env::temp_dir() };
        let mut scratch = tempfile::tempdir_in(&folder).map_err(Failure::file(&folder))?;
        let opened = scratch_database(&scratch, place).await;
        let database = match opened {
            // Not everything that a database needs may be there.
            Err(_) if folder == Path::new(MEMORY) => {
                scratch = tempfile::tempdir().map_err(Failure::file(&env::temp_dir()))?;
                scratch_database(&scratch, place).await?
            }
            opened => opened?,
        };
        let session = open::session(&database, &place.settings)?;
        let before = Changes::default();
        Ok((Self { database, before, scratch: Some(scratch) }, session))
    }

    /// Analyses the tables, and closes so that the next incarnation has nothing to recover. Returns the tables that
    /// could not be analysed.
    async fn finish(&self) -> Result<Vec<(String, Error)>, Failure> {
        if self.scratch.is_some() {
            return Ok(Vec::new());
        }
        let failures = self.database.analyze_filled(&self.before, 1, Effort::Full).await;
        self.database.checkpoint().await.map_err(Failure::Sql)?;
        Ok(failures)
    }
}

/// The database of a dry run.
async fn scratch_database(scratch: &TempDir, place: &Place) -> Result<Arc<Database>, Failure> {
    let directory = scratch.path().join("db");
    open::open_directory(&directory, Create::IfAbsent, place.memory()).await
}

/// Whether memory has room for the database of a dry run that takes about so many `bytes`.
fn has_room_in_memory(bytes: Option<u64>) -> bool {
    let found = rustix::fs::statvfs(MEMORY);
    let room = found.map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize));
    let needed = bytes.map(|bytes| bytes.saturating_mul(ROOM_TIMES).saturating_add(ROOM_BYTES));
    needed.is_some_and(|needed| needed <= room)
}

/// The rows that follow a statement in its file.
fn item_rows(path: &Path, item: &Item) -> Result<Option<Box<dyn Read + Send>>, Failure> {
    let Some(rows) = &item.rows else { return Ok(None) };
    let mut file = File::open(path).map_err(Failure::file(path))?;
    file.seek(SeekFrom::Start(rows.start)).map_err(Failure::file(path))?;
    Ok(Some(Box::new(file.take(rows.end - rows.start))))
}

/// CREATE TABLE with text for types that this version does not have; also returns these columns, with the table's name.
fn with_text_columns(statement: String) -> (String, Vec<(String, TextColumn)>) {
    let made = plan::created_table(&statement).and_then(|table| {
        let (statement, columns) = text_columns::with_text_columns(&statement)?;
        Some((statement, columns.into_iter().map(|column| (table.clone(), column)).collect()))
    });
    made.unwrap_or((statement, Vec::new()))
}

/// Runs one statement, which has to be of `kind`; returns its tag without counts, and the number of its rows.
async fn take(
    session: &mut Session,
    input: Option<Box<dyn Read + Send>>,
    (statement, kind): (&str, Option<Kind>),
) -> Result<(String, u64), Error> {
    if let Some(kind) = kind {
        trust::check(statement, &session.settings().client.database, kind)?;
    }
    session.set_client_streams(ClientStreams { input, output: None });
    let outcomes = session.run(statement).await;
    session.set_client_streams(ClientStreams::default());
    outcomes.map(|outcomes| {
        let tag = outcomes.iter().rev().find_map(|outcome| match outcome {
            Outcome::Done { tag } => Some(tag.as_str()),
            Outcome::Rows { .. } => None,
        });
        let tag = tag.unwrap_or("SELECT");
        let words: Vec<&str> = tag.split(' ').collect();
        let is_count = |word: &&&str| word.bytes().all(|byte| byte.is_ascii_digit());
        let row_count = match words.as_slice() {
            ["COPY" | "INSERT", .., count] => count.parse().unwrap_or(0),
            _ => 0,
        };
        let name: Vec<&str> = words.iter().filter(|word| !is_count(word)).copied().collect();
        (name.join(" "), row_count)
    })
}

impl Told {
    /// Records a failed statement.
    fn fail(&mut self, place: String, statement: &str, error: &Error, rows: &str) {
        let is_by_kind = match error {
            Error::Unsupported { .. } => true,
            Error::UnknownName { kind: NameKind::Type | NameKind::Function, .. } => true,
            // The name may be that of an object that failed before.
            Error::UnknownName { .. } => !self.failed.is_empty(),
            _ => false,
        };
        self.fails_by_kind_only &= is_by_kind;
        self.failed.push((place, summary(statement), format!("{error}{rows}")));
    }

    /// The outcome of the command.
    fn verdict(&self, options: &ImportOptions) -> Result<(), Failure> {
        let is_forgiven = options.skip_unsupported && self.fails_by_kind_only;
        match &self.lost {
            Some(why) => Err(Failure::Workload(why.clone())),
            None if self.failed.is_empty() || is_forgiven => Ok(()),
            None => Err(Failure::Reported),
        }
    }

    fn write(&self, out: &mut impl Write, is_dry: bool) -> std::io::Result<()> {
        writeln!(out, "{}", if is_dry { "would be taken:" } else { "taken:" })?;
        for (tag, count) in &self.done {
            writeln!(out, "  {count} × {tag}")?;
        }
        writeln!(out, "  {} rows", self.row_count)?;
        if !self.as_text.is_empty() {
            writeln!(out, "taken as text, since this version does not have their types:")?;
        }
        for (table, TextColumn { name, data_type, lost_default }) in &self.as_text {
            let lost = lost_default.as_ref().map(|default| format!(", without {default}"));
            writeln!(out, "  {table}.{name}: {data_type}{}", lost.unwrap_or_default())?;
        }
        if !self.passed.is_empty() {
            writeln!(out, "skipped:")?;
        }
        for (reason, lines) in &self.passed {
            let lines: Vec<String> = lines.iter().map(u64::to_string).collect();
            let word = if lines.len() == 1 { "line" } else { "lines" };
            writeln!(out, "  {word} {}: {reason}", lines.join(", "))?;
        }
        if !self.without_statistics.is_empty() {
            writeln!(out, "without statistics, which ANALYZE gathers:")?;
        }
        for (table, error) in &self.without_statistics {
            writeln!(out, "  {table}: {error}")?;
        }
        if !self.failed.is_empty() {
            writeln!(out, "not taken:")?;
        }
        for (place, statement, reason) in &self.failed {
            writeln!(out, "  {place}{statement}: {reason}")?;
        }
        Ok(())
    }
}

/// A statement as one line of limited length.
fn summary(statement: &str) -> String {
    let words: Vec<&str> = statement.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or(&line)),
        None => line,
    }
}
