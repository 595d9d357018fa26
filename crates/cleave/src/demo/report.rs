//! The demo's measurements in, bars and plain words out.

use std::fmt;
use std::time::Duration;

/// Columns of the longest bar.
const BAR_COLUMNS: u32 = 40;

/// One query, run with all work on the host and run split.
#[derive(Debug, Clone)]
pub(crate) struct Measurement {
    /// The query's name.
    pub(crate) name: String,
    /// Rows it returned, the same both ways.
    pub(crate) row_count: usize,
    /// All work on the host.
    pub(crate) host: Timing,
    /// The split that Cleave chose.
    pub(crate) split: Timing,
}

/// What one run took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Timing {
    /// From the statement to its last row.
    pub(crate) time: Duration,
    /// Bytes over the link, both directions.
    pub(crate) link_bytes: u64,
}

impl Measurement {
    /// How many times as fast the split run was.
    fn speed_up(&self) -> f64 {
        self.host.time.as_secs_f64() / self.split.time.as_secs_f64().max(1e-9)
    }
}

/// A bar for each way of running a query; the longer way fills the line.
pub(crate) fn bars(measurement: &Measurement) -> String {
    let longest = measurement.host.time.max(measurement.split.time).as_secs_f64().max(1e-9);
    let line = |label: &str, way: &str, run: &Timing, rest: String| {
        let bar = bar(run.time.as_secs_f64() / longest);
        let (time, bytes) = (time_text(run.time), bytes_text(run.link_bytes));
        let width = BAR_COLUMNS as usize;
        let line = format!("{label:<14} {way:<6} {bar:<width$} {time:>8} {bytes:>8}  {rest}");
        format!("{}\n", line.trim_end())
    };
    let rows = match measurement.row_count {
        1 => "1 row".to_owned(),
        count => format!("{count} rows"),
    };
    line(&measurement.name, "host", &measurement.host, String::new())
        + &line(&rows, "split", &measurement.split, format!("{:.1}x", measurement.speed_up()))
}

/// A bar of `share` of the longest, in eighths of a column.
fn bar(share: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (0..=BAR_COLUMNS * 8)
        .take_while(|eighths| f64::from(*eighths) <= share * f64::from(BAR_COLUMNS * 8))
        .last()
        .unwrap_or(0)
        .max(1);
    let rest = EIGHTHS.get(eighths as usize % 8).copied().unwrap_or("");
    "█".repeat(eighths as usize / 8) + rest
}

/// What a link's measurements say together.
#[derive(Debug, Clone)]
pub(crate) struct Gain {
    link: String,
    mean: f64,
    best: Option<(String, f64)>,
    least: Option<(String, f64)>,
    host_bytes: u64,
    split_bytes: u64,
}

impl Gain {
    /// Of the queries measured over the link called `link`.
    pub(crate) fn of(link: String, measurements: &[Measurement]) -> Self {
        let log_sum: f64 = measurements.iter().map(|m| m.speed_up().ln()).sum();
        let count = f64::from(u32::try_from(measurements.len().max(1)).unwrap_or(u32::MAX));
        let named = |m: &Measurement| (m.name.clone(), m.speed_up());
        let by_gain = |a: &&Measurement, b: &&Measurement| a.speed_up().total_cmp(&b.speed_up());
        Self {
            link,
            mean: (log_sum / count).exp(),
            best: measurements.iter().max_by(by_gain).map(named),
            least: measurements.iter().min_by(by_gain).map(named),
            host_bytes: measurements.iter().map(|m| m.host.link_bytes).sum(),
            split_bytes: measurements.iter().map(|m| m.split.link_bytes).sum(),
        }
    }
}

impl fmt::Display for Gain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: the split runs are {} in geometric mean", self.link, factor(self.mean))?;
        if let (Some((best, most)), Some((least, fewest))) = (&self.best, &self.least) {
            write!(f, "; best {best} ({most:.1}x), least {least} ({fewest:.1}x)")?;
        }
        let (host, split) = (bytes_text(self.host_bytes), bytes_text(self.split_bytes));
        write!(f, ".\n{host} crossed the link for the host, {split} for the split.")
    }
}

fn factor(factor: f64) -> String {
    match factor {
        slower if slower < 0.995 => format!("{:.1} times slower", 1.0 / slower),
        factor => format!("{factor:.1} times as fast"),
    }
}

/// What the figures are of, true for this run.
pub(crate) fn closing(gains: &[Gain], has_cores: bool) -> String {
    let cores = match has_cores {
        true => "each process has one core of this machine",
        false => "both processes share one core of this machine, so little is gained by using both",
    };
    let links = gains.iter().map(|gain| gain.link.clone()).collect::<Vec<_>>().join(", ");
    format!(
        "host:  every page that a query needs crosses the link, and the host does all the work.\n\
         split: Cleave cuts the plan; scans, filters, joins and partial aggregates run in the device process,\n\
         \x20      the rest on the host, both at once.\n\
         All results were the same rows, both ways. Timing mode: capped ({links}):\n\
         {cores}, and the link is held to its rate by a token bucket.\n\
         Nothing sleeps to look slow. Pages are read cold.\n"
    )
}

/// The one line to remember.
pub(crate) fn last_line(gains: &[Gain]) -> String {
    let of_link = |gain: &Gain| format!("{} over a link of {}", factor(gain.mean), gain.link);
    let all = gains.iter().map(of_link).collect::<Vec<_>>().join(", and ");
    format!("Splitting made the same queries {all}.")
}

/// A link's rate as people write it.
pub(crate) fn rate_text(bytes_per_second: u64) -> String {
    let bits = bytes_per_second.saturating_mul(8);
    match bits {
        _ if bits >= 1_000_000_000 && bits.is_multiple_of(1_000_000_000) => {
            format!("{} Gbit/s", bits / 1_000_000_000)
        }
        _ if bits >= 1_000_000 && bits.is_multiple_of(1_000_000) => {
            format!("{} Mbit/s", bits / 1_000_000)
        }
        _ => format!("{}/s", bytes_text(bytes_per_second)),
    }
}

fn time_text(time: Duration) -> String {
    let milliseconds = time.as_secs_f64() * 1e3;
    if milliseconds < 10.0 {
        format!("{milliseconds:.1} ms")
    } else if milliseconds < 10_000.0 {
        format!("{milliseconds:.0} ms")
    } else {
        format!("{:.1} s", milliseconds / 1e3)
    }
}

/// Bytes as people read them, in powers of 1000.
pub(crate) fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["B", "kB", "MB", "GB"];
    let mut scaled = bytes;
    let mut tenths = 0;
    let mut unit = 0;
    while scaled >= 1000 && unit + 1 < UNITS.len() {
        tenths = scaled % 1000 / 100;
        scaled /= 1000;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or("B");
    if unit > 0 && scaled < 100 {
        format!("{scaled}.{tenths} {name}")
    } else {
        format!("{scaled} {name}")
    }
}

#[cfg(test)]
mod tests;
