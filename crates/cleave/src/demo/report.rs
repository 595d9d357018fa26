//! The demo's measurements in, a table and plain words out.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, TableComponent};

/// One query, run with all work on the host and run split.
#[derive(Debug, Clone)]
pub(crate) struct Measurement {
    /// The query's name.
    pub(crate) name: String,
    /// Rows it returned, the same both ways.
    pub(crate) row_count: usize,
    /// All work on the host.
    pub(crate) host: Run,
    /// Cut above every scan.
    pub(crate) split: Run,
    /// As Cleave itself chose.
    pub(crate) auto: Run,
}

/// What one run took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Run {
    /// From the statement to its last row.
    pub(crate) time: Duration,
    /// Bytes over the link, both directions.
    pub(crate) link_bytes: u64,
}

impl Measurement {
    /// How many times faster the split run was.
    fn speed_up(&self) -> f64 {
        self.host.time.as_secs_f64() / self.split.time.as_secs_f64().max(1e-9)
    }
}

/// The table.
pub(crate) fn table(measurements: &[Measurement]) -> String {
    let mut table = Table::new();
    table
        .load_preset(comfy_table::presets::NOTHING)
        .set_style(TableComponent::HeaderLines, '-')
        .set_header([
            "query",
            "rows",
            "host",
            "split",
            "auto",
            "host moved",
            "split moved",
            "speed-up",
        ]);
    for measurement in measurements {
        table.add_row([
            measurement.name.clone(),
            measurement.row_count.to_string(),
            time_text(measurement.host.time),
            time_text(measurement.split.time),
            time_text(measurement.auto.time),
            bytes_text(measurement.host.link_bytes),
            bytes_text(measurement.split.link_bytes),
            format!("{:.1}x", measurement.speed_up()),
        ]);
    }
    for index in 1..8 {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// What the table means, in plain words, true for these measurements.
pub(crate) fn meaning(measurements: &[Measurement], rate: Option<u64>) -> String {
    let host_bytes: u64 = measurements.iter().map(|m| m.host.link_bytes).sum();
    let split_bytes: u64 = measurements.iter().map(|m| m.split.link_bytes).sum();
    let log_sum: f64 = measurements.iter().map(|m| m.speed_up().ln()).sum();
    let mean = (log_sum / f64::from(u32::try_from(measurements.len()).unwrap_or(u32::MAX))).exp();
    let best = measurements.iter().max_by(|a, b| a.speed_up().total_cmp(&b.speed_up()));
    let worst = measurements.iter().min_by(|a, b| a.speed_up().total_cmp(&b.speed_up()));
    let mut text = String::new();
    text.push_str(&format!(
        "host:  every page that a query needs crossed the link, {} in all, and the host did the work.\n\
         split: the scans, filters and partial aggregates ran in the device process beside their pages;\n\
         \x20      {} crossed. auto: Cleave chose for itself.\n",
        bytes_text(host_bytes),
        bytes_text(split_bytes),
    ));
    text.push_str(&format!(
        "Split was {mean:.1} times {} in geometric mean.",
        if mean >= 1.0 { "as fast" } else { "as fast (that is, slower)" }
    ));
    if let (Some(best), Some(worst)) = (best, worst) {
        text.push_str(&format!(
            " Best: {} ({:.1}x). Least: {} ({:.1}x).\n",
            best.name,
            best.speed_up(),
            worst.name,
            worst.speed_up()
        ));
    }
    text.push_str(match rate {
        Some(_) => {
            "Timing mode: capped. Both processes share this machine and its cores; the only thing made\n\
             smaller is the link, held to its rate by a token bucket. Nothing sleeps to look slow. A real\n\
             storage node has cores of its own, and a real device may have weaker ones: neither is shown here.\n"
        }
        None => {
            "Timing mode: unthrottled. Both processes share this machine, its cores and its memory bus, and\n\
             the link is as fast as loopback: there is little here for a split to save.\n"
        }
    });
    text
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
