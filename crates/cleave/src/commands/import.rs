//! `cleave import`: what `pg_dump` has written as text in, the same tables, rows and indexes here out.
//!
//! 1. [`dump`] reads the file once: statements with their lines, and where the rows of each COPY lie.
//! 2. [`plan`] says what becomes of each statement. Primary and unique keys, which a dump adds when the rows are there, go into CREATE TABLE: so
//!    every row is checked as it comes.
//! 3. Each is run by itself, the rows straight from the file.
//!
//! Invariant: nothing is dropped in silence. What is not run, and what fails, is told at the end with its line and the reason.
//!
//! Source: PostgreSQL's `pg_dump`, plain format.

mod dump;
mod plan;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use cleave_host::statement::parse_script;
use cleave_host::{ClientStreams, Error, Outcome, Session};

use crate::arguments::Place;
use crate::failure::Failure;
use crate::open::{self, Create};
use dump::Item;
use plan::Fate;

/// `cleave import …`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ImportOptions {
    /// The file that pg_dump has written, as text (its default)
    file: PathBuf,
    /// Reads the file and tells what would be taken and what not, and opens no database
    #[arg(long)]
    dry_run: bool,
}

/// What became of a dump.
#[derive(Debug, Default)]
struct Told {
    /// How often something was done, by its tag without counts.
    done: BTreeMap<String, u64>,
    row_count: u64,
    /// Line, statement and reason.
    failed: Vec<(u64, String, String)>,
    /// Lines by reason.
    passed: BTreeMap<&'static str, Vec<u64>>,
}

/// Runs `cleave import …`.
pub(crate) async fn run(options: &ImportOptions, place: &Place) -> Result<(), Failure> {
    let path = &options.file;
    if path.to_str().is_some_and(|text| text.starts_with("postgres") && text.contains("://")) {
        let message = "a server that runs is not read in this version; write a dump (pg_dump URL > dump.sql) and import that";
        return Err(Failure::Usage(message.to_owned()));
    }
    let file = File::open(path).map_err(Failure::file(path))?;
    let items = dump::read(BufReader::new(file)).map_err(|error| match error {
        dump::DumpError::Io(source) => Failure::File { path: path.clone(), source },
        other => Failure::Usage(format!("{}: {other}", path.display())),
    })?;
    let mut opened = match options.dry_run {
        true => None,
        false => Some(open::open(place, Create::IfAbsent).await?),
    };
    let mut told = Told::default();
    for (item, fate) in plan::planned(&items) {
        let statement = match fate {
            Fate::Run(statement) => statement,
            Fate::Done => continue,
            Fate::PassedOver(reason) => {
                told.passed.entry(reason).or_default().push(item.line);
                continue;
            }
        };
        let done = match &mut opened {
            Some((_, session)) => Box::pin(take(session, path, item, &statement)).await?,
            None => parse_script(&statement).map(|_| (first_words(&statement), item.row_count())),
        };
        match done {
            Ok((tag, row_count)) => {
                *told.done.entry(tag).or_default() += 1;
                told.row_count += row_count;
            }
            Err(error) => {
                let rows = match item.row_count() {
                    0 => String::new(),
                    count => format!(" ({count} rows)"),
                };
                let reason = error.to_string();
                told.failed.push((item.line, summary(&statement), format!("{reason}{rows}")));
            }
        }
    }
    if let Some((database, _)) = &opened {
        // So that the next opening has nothing to make again.
        database.checkpoint().await.map_err(Failure::Sql)?;
    }
    told.write(&mut std::io::stdout(), options.dry_run)?;
    if told.failed.is_empty() { Ok(()) } else { Err(Failure::Reported) }
}

/// Runs one statement; its tag without counts, and how many rows it brought.
async fn take(
    session: &mut Session,
    path: &Path,
    item: &Item,
    statement: &str,
) -> Result<Result<(String, u64), Error>, Failure> {
    let mut input: Option<Box<dyn Read + Send>> = None;
    if let Some(rows) = &item.rows {
        let mut file = File::open(path).map_err(Failure::file(path))?;
        file.seek(SeekFrom::Start(rows.start)).map_err(Failure::file(path))?;
        input = Some(Box::new(file.take(rows.end - rows.start)));
    }
    session.set_client_streams(ClientStreams { input, output: None });
    let outcomes = Box::pin(session.run(statement)).await;
    session.set_client_streams(ClientStreams::default());
    Ok(outcomes.map(|outcomes| {
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
    }))
}

impl Told {
    fn write(&self, out: &mut impl Write, is_dry: bool) -> std::io::Result<()> {
        writeln!(out, "{}", if is_dry { "would be taken:" } else { "taken:" })?;
        for (tag, count) in &self.done {
            writeln!(out, "  {count} × {tag}")?;
        }
        writeln!(out, "  {} rows", self.row_count)?;
        if !self.passed.is_empty() {
            writeln!(out, "passed over:")?;
        }
        for (reason, lines) in &self.passed {
            let lines: Vec<String> = lines.iter().map(u64::to_string).collect();
            let word = if lines.len() == 1 { "line" } else { "lines" };
            writeln!(out, "  {word} {}: {reason}", lines.join(", "))?;
        }
        if !self.failed.is_empty() {
            writeln!(out, "not taken:")?;
        }
        for (line, statement, reason) in &self.failed {
            writeln!(out, "  line {line}: {statement}: {reason}")?;
        }
        Ok(())
    }
}

/// A statement as one line that is not too long.
fn summary(statement: &str) -> String {
    let words: Vec<&str> = statement.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or(&line)),
        None => line,
    }
}

/// What a statement does: `CREATE TABLE`, `COPY`.
fn first_words(statement: &str) -> String {
    let mut words = statement.split_whitespace().map(str::to_ascii_uppercase);
    let first = words.next().unwrap_or_default();
    match (first.as_str(), words.next()) {
        ("CREATE" | "ALTER" | "DROP", Some(second)) if second == "UNIQUE" => {
            format!("{first} INDEX")
        }
        ("CREATE" | "ALTER" | "DROP", Some(second)) => format!("{first} {second}"),
        _ => first,
    }
}
