//! Prints the results, as a table or as JSON.

use std::io::Write;
use std::time::Duration;

use comfy_table::{CellAlignment, Table};
use serde_json::json;

use super::driver::Figures;
use super::latency::Latencies;
use crate::failure::Failure;

/// Prints how long it took to make the tables.
pub(crate) fn loaded(taken: Duration) {
    drop(writeln!(std::io::stderr(), "loaded in {:.1} s", taken.as_secs_f64()));
}

/// Prints the figures, and the findings of a check.
pub(crate) fn print(
    figures: &[Figures],
    faults: &[String],
    measured: Duration,
    as_json: bool,
) -> Result<(), Failure> {
    let mut all = Figures { name: "all", ..Figures::default() };
    for one in figures {
        all.merge(one);
    }
    let lines: Vec<&Figures> =
        figures.iter().filter(|one| one.latencies.count() > 0).chain([&all]).collect();
    let mut out = std::io::stdout().lock();
    if as_json {
        let operations: Vec<_> = lines.iter().map(|one| of_kind(one, measured)).collect();
        writeln!(
            out,
            "{}",
            json!({ "seconds": measured.as_secs_f64(), "operations": operations, "faults": faults })
        )?;
        return Ok(());
    }
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_header(["operation", "count", "a second", "mean ms", "p50", "p95", "p99", "retries"]);
    table
        .column_iter_mut()
        .skip(1)
        .for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    for one in lines {
        let ms = |duration: Duration| format!("{:.3}", duration.as_secs_f64() * 1e3);
        let taken = &one.latencies;
        table.add_row([
            one.name.to_owned(),
            taken.count().to_string(),
            format!("{:.1}", rate(taken, measured)),
            ms(taken.mean()),
            ms(taken.quantile(500)),
            ms(taken.quantile(950)),
            ms(taken.quantile(990)),
            one.retries.to_string(),
        ]);
    }
    writeln!(out, "{table}")?;
    faults.iter().try_for_each(|fault| writeln!(out, "FAULT: {fault}"))?;
    Ok(())
}

fn of_kind(one: &Figures, measured: Duration) -> serde_json::Value {
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let taken = &one.latencies;
    json!({
        "name": one.name,
        "count": taken.count(),
        "per_second": rate(taken, measured),
        "mean_ms": ms(taken.mean()),
        "p50_ms": ms(taken.quantile(500)),
        "p95_ms": ms(taken.quantile(950)),
        "p99_ms": ms(taken.quantile(990)),
        "retries": one.retries,
    })
}

fn rate(taken: &Latencies, measured: Duration) -> f64 {
    let count = u32::try_from(taken.count()).unwrap_or(u32::MAX);
    f64::from(count) / measured.as_secs_f64().max(1e-9)
}
