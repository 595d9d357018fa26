//! `cleave backup` writes a consistent snapshot of a database into a folder; `cleave restore` makes a database of one.
//!
//! The result goes to standard output; how far it is goes to standard error, if that is a terminal. Exit codes: 0 done,
//! 1 the command line or a folder that it names is wrong, 2 the database cannot be opened, 3 the backup failed.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use cleave_fragment::progress::Progress;
use cleave_host::backup::{self, BackupSummary, PointInTime, Reached, Until};
use cleave_host::check::{CheckOptions, check};
use cleave_host::replication;

use super::progress::with_bar;
use crate::arguments::Place;
use crate::failure::Failure;
use crate::open::{self, Create};

/// `cleave backup …`.
#[derive(Debug, Clone, Args)]
pub(crate) struct BackupOptions {
    /// The database's folder, not open in any process; if a server has it open, use BACKUP TO 'TARGET' there
    #[arg(value_name = "DATABASE", required_unless_present = "check")]
    database: Option<PathBuf>,
    /// The folder to write to: empty or missing
    #[arg(value_name = "TARGET", required_unless_present = "check")]
    target: Option<PathBuf>,
    /// Verify every byte of an existing backup instead
    #[arg(long, value_name = "TARGET", conflicts_with_all = ["database", "target"])]
    check: Option<PathBuf>,
}

/// `cleave restore …`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RestoreOptions {
    /// The folder of the backup
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// The folder of the new database: empty or missing
    #[arg(value_name = "DATABASE")]
    database: PathBuf,
    /// Verify every page, map and index entry of the new database afterwards
    #[arg(long)]
    verify: bool,
    /// The folder of archive_directory: replay the log archived there, up to its end
    #[arg(long, value_name = "DIR")]
    archive: Option<PathBuf>,
    /// Replay up to the commits at or before a time, as in '2026-11-21 20:00:00+00'
    #[arg(long, value_name = "TIME", value_parser = Until::time, requires = "archive")]
    until: Option<Until>,
    /// Replay up to the commit with this number
    #[arg(long, value_name = "NUMBER", requires = "archive", conflicts_with = "until")]
    until_commit: Option<u64>,
}

/// Runs `cleave backup …`.
pub(crate) async fn run(options: &BackupOptions, place: &Place) -> Result<(), Failure> {
    if let Some(target) = &options.check {
        let summary = backup::check_backup(target).await.map_err(Failure::Open)?;
        return tell("everything holds:", target, &summary);
    }
    let (Some(directory), Some(target)) = (&options.database, &options.target) else {
        return Err(Failure::Usage("which database, and where to?".to_owned()));
    };
    let database = open::open_directory(directory, Create::Never, place.memory()).await?;
    let counts = Progress::default();
    let made = with_bar(&counts, database.backup_counted(target, counts.clone())).await;
    let closed = database.checkpoint().await;
    let summary = made.map_err(Failure::Sql)?;
    closed.map_err(Failure::Sql)?;
    tell("made", target, &summary)
}

/// Runs `cleave restore …`.
pub(crate) async fn restore(options: &RestoreOptions, place: &Place) -> Result<(), Failure> {
    let open = open::open_options(Create::Never, place.memory());
    let (from, to) = (&options.backup, &options.database);
    let counts = Progress::default();
    let said = match &options.archive {
        None => {
            let restored = Box::pin(backup::restore_counted(from, to, &open, &counts));
            let summary = with_bar(&counts, restored).await.map_err(Failure::Open)?;
            format!("restored from {}: {summary}", from.display())
        }
        Some(archive) => {
            let commit = options.until_commit.map(Until::Commit);
            let until = options.until.or(commit).unwrap_or(Until::End);
            let wanted = PointInTime { archive: archive.clone(), until };
            let restored = replication::restore_until_counted(from, to, &open, &wanted, &counts);
            let restored = with_bar(&counts, Box::pin(restored)).await;
            reached(from, &restored.map_err(Failure::Open)?)
        }
    };
    if options.verify {
        let report = Box::pin(check(&options.database, open, &CheckOptions::default())).await;
        let report = report.map_err(Failure::Open)?;
        let mut out = std::io::stdout().lock();
        for finding in report.findings.kept() {
            writeln!(out, "{finding}\n  {}", finding.advice())?;
        }
        if report.findings.count() > 0 {
            return Err(Failure::Faults(report.findings.count()));
        }
    }
    writeln!(std::io::stdout(), "{said}")?;
    Ok(())
}

fn reached(backup: &Path, reached: &Reached) -> String {
    let Reached { commit, at, count, is_end, .. } = reached;
    let end = if *is_end { ", where the archived log ends" } else { "" };
    let backup = backup.display();
    format!(
        "restored from {backup} and {count} commits of the log: up to commit {commit} of {at}{end}"
    )
}

fn tell(what: &str, backup: &Path, summary: &BackupSummary) -> Result<(), Failure> {
    writeln!(std::io::stdout(), "{what} {}: {summary}", backup.display())?;
    Ok(())
}
