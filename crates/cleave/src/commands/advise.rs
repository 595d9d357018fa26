//! `cleave advise`: predicts what splitting would save for a list of queries, by the figures of this database's
//! devices.
//!
//! 1. [`sources`] reads the files; [`statements::split`] finds their statements, [`logged`] those of a query log.
//! 2. Devices that are not embedded are measured, if they have not been before.
//! 3. Each statement is planned with `EXPLAIN (FORMAT JSON)`, which prices every split, and never run: [`advice`].
//! 4. [`Output`] prints host-only against the best split, for each and in all; [`picture`] draws them.
//!
//! All figures are predictions; measured times are in the table `cleave.query_log` of the process that ran the queries.

mod picture;

use std::io::Write;
use std::path::{Path, PathBuf};

use arrow::array::AsArray;
use clap::Args;
use cleave_fragment::link::AttachMode;
use cleave_host::copy::{CsvOptions, CsvReader, InputColumns};
use cleave_host::statement::{Statement, parse_script};
use cleave_host::{Database, Error, Outcome, Session};
use cleave_store::{Column, ColumnType, TableSchema};
use comfy_table::{CellAlignment, Table, TableComponent};
use serde_json::{Value, json};

use crate::arguments::Place;
use crate::demo::report::bytes_text;
use crate::failure::Failure;
use crate::open;
use crate::shell::statements;
use picture::Drawn;

/// `cleave advise …`.
#[derive(Debug, Clone, Args)]
pub(crate) struct AdviseOptions {
    /// Files of statements, or folders, whose *.sql files are read in the order of their names
    #[arg(required_unless_present = "logs", value_name = "FILE_OR_DIRECTORY")]
    files: Vec<PathBuf>,
    /// A CSV file of one column of statements, as written by COPY (SELECT text FROM cleave.query_log) TO 'file'
    #[arg(long = "log", value_name = "FILE")]
    logs: Vec<PathBuf>,
    /// Print one line of JSON for each statement, and one for all of them
    #[arg(long)]
    json: bool,
    /// Draw the predicted times into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// A statement and its place in the source.
#[derive(Debug)]
struct Listed {
    place: String,
    text: String,
}

/// The prediction for one way to run a statement.
#[derive(Debug, Clone, Copy, Default)]
struct Way {
    seconds: f64,
    link_bytes: f64,
    host_cpu_s: f64,
}

/// The advice for one statement.
#[derive(Debug)]
struct Advice {
    host: Way,
    best: Way,
    /// The split with the shortest predicted time.
    split: String,
    /// The split that the session's settings choose.
    taken: String,
    /// The origin of the figures; `None` if nothing was priced.
    profile: Option<String>,
}

/// Runs `cleave advise …`.
pub(crate) async fn run(options: &AdviseOptions, place: &Place) -> Result<(), Failure> {
    let mut listed = Vec::new();
    for file in sources(&options.files)? {
        let text = std::fs::read_to_string(&file).map_err(Failure::file(&file))?;
        listed.extend(statements::split(&text).0.into_iter().map(|statement| Listed {
            place: format!("{}:{}", file.display(), statement.line),
            text: statement.text.to_owned(),
        }));
    }
    for file in &options.logs {
        listed.extend(logged(file)?);
    }
    if listed.is_empty() {
        return Err(Failure::Usage("the input has no statement".to_owned()));
    }
    let (database, mut session) = open::open(place, open::Create::Never).await?;
    measure_devices(&database).await;
    let mut output = Output::new(options.json);
    for statement in &listed {
        let found = Box::pin(advice(&mut session, &statement.text)).await;
        output.add(statement, found)?;
    }
    if let Some(file) = &options.svg {
        let drawn = picture::picture(&output.drawn);
        std::fs::write(file, drawn).map_err(Failure::file(file))?;
    }
    output.finish()
}

/// The files to read, with folders replaced by their *.sql files.
fn sources(given: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in given {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut inside = Vec::new();
        for entry in std::fs::read_dir(path).map_err(Failure::file(path))? {
            let file = entry.map_err(Failure::file(path))?.path();
            if file.extension().is_some_and(|extension| extension == "sql") && file.is_file() {
                inside.push(file);
            }
        }
        if inside.is_empty() {
            return Err(Failure::Usage(format!("no *.sql file is in {}", path.display())));
        }
        inside.sort();
        files.extend(inside);
    }
    Ok(files)
}

/// The statements of a query log, one record of one column each.
fn logged(path: &Path) -> Result<Vec<Listed>, Failure> {
    let column = Column {
        id: 1,
        name: "text".to_owned(),
        column_type: ColumnType::Text,
        not_null: false,
        default: None,
        absent: None,
    };
    let schema = TableSchema {
        table_id: 1,
        version: 1,
        name: "query_log".to_owned(),
        columns: vec![column],
        primary_key: Vec::new(),
    };
    let file = std::fs::File::open(path).map_err(Failure::file(path))?;
    let name = path.display().to_string();
    let wrong = |error: Error| Failure::Usage(error.to_string());
    let columns = InputColumns::new(&schema, &[], 0).map_err(wrong)?;
    let mut listed = Vec::new();
    let mut number = 0;
    for batch in CsvReader::new(file, &name, columns, CsvOptions::csv()).map_err(wrong)? {
        let batch = batch.map_err(wrong)?;
        for text in batch.column(0).as_string::<i32>().iter().flatten() {
            number += 1;
            // With HEADER, the first record is the column's name.
            if number == 1 && text == "text" {
                continue;
            }
            listed.extend(statements::split(text).0.into_iter().map(|statement| Listed {
                place: format!("{name}, record {number}"),
                text: statement.text.to_owned(),
            }));
        }
    }
    Ok(listed)
}

/// Measures remote devices, as the first large query would. For offline ones, figures are assumed.
async fn measure_devices(database: &Database) {
    for device in database.devices() {
        if device.mode() == AttachMode::Embedded {
            continue;
        }
        if let Err(error) = database.profile(device.id(), false).await {
            let name = device.name();
            drop(writeln!(std::io::stderr(), "device \"{name}\" is not measured: {error}"));
        }
    }
}

/// Plans a statement in every way, without running it.
async fn advice(session: &mut Session, text: &str) -> Result<Advice, Error> {
    let explain = format!("EXPLAIN (FORMAT JSON) {text}");
    let parsed = parse_script(&explain)?;
    let is_plan =
        |statement: &Statement| matches!(statement, Statement::Explain { analyze: false, .. });
    if !matches!(parsed.as_slice(), [only] if is_plan(&only.statement)) {
        return Err(Error::unsupported("advice on more than one query"));
    }
    let outcomes = session.run(&explain).await?;
    let explained = match outcomes.as_slice() {
        [Outcome::Rows { batches, .. }] => batches
            .first()
            .and_then(|batch| batch.columns().first()?.as_string_opt::<i32>()?.iter().next()?)
            .and_then(|text| serde_json::from_str::<Value>(text).ok()),
        _ => None,
    };
    let explained = explained.map(|plans| plans[0].clone()).unwrap_or_default();
    let candidates = explained["Candidates"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value, otherwise: &str| value.as_str().unwrap_or(otherwise).to_owned();
    let Some(host) = candidates.iter().find(|one| one["split"] == "host") else {
        // A point path has no plan, and nothing to split.
        let (host, best) = (Way::default(), Way::default());
        let split = "look-up".to_owned();
        return Ok(Advice { host, best, taken: split.clone(), split, profile: None });
    };
    let fitting = candidates.iter().filter(|one| one["fits"] == true);
    let best =
        fitting.fold(host, |best, one| if finish_ms(one) < finish_ms(best) { one } else { best });
    let taken = candidates.iter().find(|one| one["chosen"] == true);
    Ok(Advice {
        host: Way::of(host),
        best: Way::of(best),
        split: text(&best["split"], "host"),
        taken: text(&taken.unwrap_or(host)["split"], "host"),
        profile: explained["Profile"].as_str().map(str::to_owned),
    })
}

fn finish_ms(candidate: &Value) -> f64 {
    candidate["finish_ms"].as_f64().unwrap_or(f64::INFINITY)
}

impl Way {
    fn of(candidate: &Value) -> Self {
        let number = |name: &str| candidate[name].as_f64().unwrap_or_default();
        Self {
            seconds: number("finish_ms") / 1e3,
            link_bytes: number("link_bytes"),
            host_cpu_s: number("host_cpu_ms") / 1e3,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            seconds: self.seconds + other.seconds,
            link_bytes: self.link_bytes + other.link_bytes,
            host_cpu_s: self.host_cpu_s + other.host_cpu_s,
        }
    }

    fn json(self) -> Value {
        json!({ "seconds": self.seconds, "link_bytes": self.link_bytes, "host_cpu_seconds": self.host_cpu_s })
    }

    /// The saving against `host`.
    fn saved(self, host: Self) -> Value {
        json!({
            "seconds": host.seconds - self.seconds,
            "link_bytes": host.link_bytes - self.link_bytes,
            "host_cpu_seconds": host.host_cpu_s - self.host_cpu_s,
        })
    }
}

/// Prints the results.
struct Output {
    /// `None` if lines of JSON are printed at once.
    table: Option<Table>,
    host: Way,
    best: Way,
    planned_count: usize,
    failed_count: usize,
    profiles: Vec<String>,
    /// What is in the picture.
    drawn: Vec<Drawn>,
}

impl Output {
    fn new(is_json: bool) -> Self {
        let mut table = Table::new();
        table
            .load_preset(comfy_table::presets::NOTHING)
            .set_style(TableComponent::HeaderLines, '-')
            .set_header([
                "statement",
                "best",
                "auto",
                "host",
                "best",
                "saved",
                "host link",
                "best link",
                "host CPU saved",
            ]);
        Self {
            table: (!is_json).then_some(table),
            host: Way::default(),
            best: Way::default(),
            planned_count: 0,
            failed_count: 0,
            profiles: Vec::new(),
            drawn: Vec::new(),
        }
    }

    fn add(&mut self, listed: &Listed, found: Result<Advice, Error>) -> Result<(), Failure> {
        let place = &listed.place;
        let advice = match found {
            Ok(advice) => advice,
            Err(error) => {
                self.failed_count += 1;
                let state = error.sqlstate();
                let message = error.to_string();
                // Positions include the EXPLAIN before the statement.
                let position = error.position().map(|position| format!("{position}: "));
                let message = position
                    .and_then(|position| message.strip_prefix(&position).map(str::to_owned))
                    .unwrap_or(message);
                if self.table.is_none() {
                    let said = json!({ "sqlstate": state, "message": message });
                    print(
                        &json!({ "place": place, "statement": listed.text, "error": said })
                            .to_string(),
                    )?;
                }
                drop(writeln!(std::io::stderr(), "{place}: ERROR {state}: {message}"));
                return Ok(());
            }
        };
        let Advice { host, best, split, taken, profile } = advice;
        self.planned_count += 1;
        (self.host, self.best) = (self.host.plus(host), self.best.plus(best));
        match &mut self.table {
            Some(table) => {
                table.add_row(cells(place, &split, &taken, host, best));
            }
            None => print(
                &json!({
                    "place": place, "statement": listed.text, "best": split, "auto": taken, "profile": profile,
                    "host_only": host.json(), "best_split": best.json(), "saved": best.saved(host),
                })
                .to_string(),
            )?,
        }
        self.drawn.push(Drawn {
            place: place.clone(),
            text: listed.text.clone(),
            host_seconds: host.seconds,
            best_seconds: best.seconds,
            best: split,
            taken,
        });
        if let Some(profile) = profile.filter(|profile| !self.profiles.contains(profile)) {
            self.profiles.push(profile);
        }
        Ok(())
    }

    fn finish(self) -> Result<(), Failure> {
        let Self { table, host, best, planned_count, failed_count, profiles, .. } = self;
        match table {
            None => print(
                &json!({
                    "planned": planned_count, "failed": failed_count, "profiles": profiles,
                    "host_only": host.json(), "best_split": best.json(), "saved": best.saved(host),
                })
                .to_string(),
            )?,
            Some(mut table) => {
                table.add_row(cells("in all", "", "", host, best));
                for column in 3..9 {
                    if let Some(column) = table.column_mut(column) {
                        column.set_cell_alignment(CellAlignment::Right);
                    }
                }
                for line in table.lines() {
                    print(line.trim_end())?;
                }
                print("")?;
                print(&format!(
                    "Predicted for {planned_count} statements that were planned and not run: {} with the best splits \
                     and {} on the host alone, {} fewer over the link, {} of host CPU saved.",
                    time(best.seconds),
                    time(host.seconds),
                    moved(host.link_bytes - best.link_bytes),
                    time(host.host_cpu_s - best.host_cpu_s),
                ))?;
                let origins = match profiles.as_slice() {
                    [] => "none were needed".to_owned(),
                    some => some.join(" or "),
                };
                print(&format!("Figures of host, devices and links: {origins}."))?;
            }
        }
        if failed_count == 0 {
            return Ok(());
        }
        let count = failed_count + planned_count;
        drop(writeln!(std::io::stderr(), "{failed_count} of {count} statements cannot be planned"));
        Err(Failure::Reported)
    }
}

fn cells(place: &str, split: &str, taken: &str, host: Way, best: Way) -> [String; 9] {
    [
        place.to_owned(),
        split.to_owned(),
        taken.to_owned(),
        time(host.seconds),
        time(best.seconds),
        time(host.seconds - best.seconds),
        moved(host.link_bytes),
        moved(best.link_bytes),
        time(host.host_cpu_s - best.host_cpu_s),
    ]
}

/// Formatted seconds; negative if a split costs more.
fn time(seconds: f64) -> String {
    match seconds.abs() {
        0.0..10.0 => format!("{:.2} ms", seconds * 1e3).replace("-0.00", "0.00"),
        _ => format!("{seconds:.1} s"),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate, for people"
)]
fn moved(bytes: f64) -> String {
    let sign = if bytes < -0.5 { "-" } else { "" };
    format!("{sign}{}", bytes_text(bytes.abs() as u64))
}

fn print(line: &str) -> Result<(), Failure> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}
