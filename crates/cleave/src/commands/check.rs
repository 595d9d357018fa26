//! `cleave check`: verifies that a database is as it was written, and reports faults.
//!
//! Findings go to standard output, progress and the summary to standard error. Exit codes: 0 nothing found, 1 faults
//! found, 2 the check could not run.

use std::io::{IsTerminal, Write};
use std::sync::Arc;

use clap::Args;
use cleave_host::check::{CheckCounts, CheckOptions, CheckReport, Fault, check};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::arguments::{Place, bytes};
use crate::failure::Failure;
use crate::open;

/// `cleave check …`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CheckCommand {
    /// Read files, maps and page headers, but not the pages' values
    #[arg(long)]
    quick: bool,
    /// Memory for comparing indexes with their tables, as in 256MB
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    check_memory: Option<u64>,
    /// Print one line of JSON for each finding
    #[arg(long)]
    json: bool,
}

/// Runs `cleave check …`.
pub(crate) async fn run(command: &CheckCommand, place: &Place) -> Result<(), Failure> {
    let (directory, open) = open::options(place)?;
    let bar = bar();
    let shown = bar.clone();
    let mut options = CheckOptions {
        quick: command.quick,
        progress: Some(Arc::new(move |done, total| {
            shown.set_length(total);
            shown.set_position(done);
        })),
        ..CheckOptions::default()
    };
    if let Some(bytes) = command.check_memory {
        options.memory_bytes = bytes;
    }
    let report = Box::pin(check(directory, open, &options)).await;
    bar.finish_and_clear();
    let report = report.map_err(Failure::Open)?;
    let mut out = std::io::stdout().lock();
    for finding in report.findings.kept() {
        if command.json {
            writeln!(out, "{}", json(finding))?;
        } else {
            writeln!(out, "{finding}\n  {}", finding.advice())?;
        }
    }
    // Standard error may be closed; the findings were printed all the same.
    drop(writeln!(std::io::stderr(), "{}", summary(&report)));
    let only_unreachable =
        report.findings.kept().iter().all(|finding| matches!(finding.fault, Fault::Unreachable(_)));
    match report.findings.count() {
        0 => Ok(()),
        _ if only_unreachable => {
            Err(Failure::Device("what lies on devices that do not answer was not verified".into()))
        }
        count => Err(Failure::Faults(count)),
    }
}

fn bar() -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(None, target);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} pages, {eta} left") {
        bar.set_style(style);
    }
    bar
}

fn summary(report: &CheckReport) -> String {
    let CheckCounts {
        tables,
        segments,
        files,
        statistics,
        pages,
        chunks,
        bytes,
        rows,
        map_entries,
        index_entries,
        blocks,
    } = report.counts;
    let found = match report.findings.count() {
        0 => "everything holds".to_owned(),
        1 => "1 fault".to_owned(),
        count => format!("{count} faults"),
    };
    let kept = report.findings.kept().len() as u64;
    let more = report.findings.count().saturating_sub(kept);
    let more = if more > 0 { format!(" ({more} of them not shown)") } else { String::new() };
    format!(
        "verified {tables} tables: {files} segment files, {statistics} files of statistics, {segments} segments, \
            {pages} pages and {chunks} chunks \
         ({:.1} MB in {blocks} blocks), {rows} row versions, {map_entries} map entries, {index_entries} index \
            entries: {found}{more}",
        bytes as f64 / 1e6
    )
}

/// One finding as JSON.
fn json(finding: &cleave_host::check::Finding) -> String {
    let place = &finding.place;
    let mut fields = vec![
        ("fault", quoted(finding.fault.kind())),
        ("message", quoted(&finding.fault.to_string())),
        ("advice", quoted(&finding.advice())),
    ];
    let mut text = |name, value: Option<String>| {
        if let Some(value) = value {
            fields.push((name, quoted(&value)));
        }
    };
    text("file", place.file.as_ref().map(|file| file.display().to_string()));
    text("table", place.table.clone());
    text("index", place.index.clone());
    text("column", place.column.clone());
    text("device", place.device.clone());
    text("mirror", place.mirror.clone());
    let mut number = |name, value: Option<u64>| {
        if let Some(value) = value {
            fields.push((name, value.to_string()));
        }
    };
    number("segment", place.segment.map(|segment| u64::from(segment.0)));
    number("page", place.page.map(u64::from));
    number("block", place.address.map(|address| address.0));
    let fields = fields.into_iter().map(|(name, value)| format!("\"{name}\":{value}"));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            character if character < ' ' => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(character)))
            }
            character => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}
