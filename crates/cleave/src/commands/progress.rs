//! Progress of a load: a bar on a terminal, and one line at the end everywhere; and the bar of a backup or a restore.

use std::io::{IsTerminal, Write};
use std::pin::pin;
use std::time::Duration;

use cleave_fragment::progress::Progress as Counts;
use cleave_fragment::waiting;
use cleave_media::Stopwatch;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Time from one look at the counts of a backup to the next.
const PAUSE: Duration = Duration::from_millis(200);

/// What `work` gives, whose bytes `counts` has; a bar on standard error shows them, if that is a terminal.
pub(crate) async fn with_bar<T>(counts: &Counts, work: impl Future<Output = T>) -> T {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(None, target);
    let template = "{bar:30} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    let mut work = pin!(work);
    loop {
        if let Some(done) = waiting::timeout(PAUSE, work.as_mut()).await {
            bar.finish_and_clear();
            return done;
        }
        // Nothing is shown before it is known how much there is.
        if let (done, total @ 1..) = counts.read() {
            bar.set_length(total);
            bar.set_position(done);
        }
    }
}

/// Progress of one table, on standard error, so that standard output stays for results.
pub(crate) struct Progress {
    bar: ProgressBar,
    table: String,
    stopwatch: Stopwatch,
}

impl Progress {
    /// Starts the clock; `total` is the number of units to come if it is known, in `unit`s.
    pub(crate) fn start(table: &str, total: Option<u64>, unit: Unit) -> Progress {
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(total, target);
        let template = match (total, unit) {
            (Some(_), Unit::Rows) => "{prefix:20} {bar:30} {pos}/{len} rows, {per_sec}, {eta} left",
            (None, Unit::Rows) => "{prefix:20} {spinner} {pos} rows, {per_sec}",
            (_, Unit::Bytes) => {
                "{prefix:20} {bar:30} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left {msg}"
            }
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_prefix(table.to_owned());
        Progress { bar, table: table.to_owned(), stopwatch: Stopwatch::start() }
    }

    /// Units done so far.
    pub(crate) fn set(&self, done: u64) {
        self.bar.set_position(done);
    }

    /// Rows done so far, if the units are bytes.
    pub(crate) fn set_rows(&self, row_count: u64) {
        self.bar.set_message(format!("{row_count} rows"));
    }

    /// Removes the bar and prints the summary.
    pub(crate) fn finish(self, row_count: u64) {
        self.bar.finish_and_clear();
        let line = summary(&self.table, row_count, self.stopwatch.elapsed());
        // Standard error may be closed; the work is done all the same.
        drop(writeln!(std::io::stderr(), "{line}"));
    }
}

/// The unit of progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Rows.
    Rows,
    /// Bytes of the files read.
    Bytes,
}

/// `title: 50000 rows in 0.25 s, 200 k rows/s`.
pub(crate) fn summary(table: &str, row_count: u64, time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let exact = f64::from(u32::try_from(row_count).unwrap_or(u32::MAX));
    let per_second = exact / seconds.max(1e-6);
    let rate = if per_second >= 1e6 {
        format!("{:.1} M", per_second / 1e6)
    } else if per_second >= 1e3 {
        format!("{:.0} k", per_second / 1e3)
    } else {
        format!("{per_second:.0} ")
    };
    format!("{table}: {row_count} rows in {seconds:.2} s, {} rows/s", rate.trim_end())
}

#[cfg(test)]
mod tests;
