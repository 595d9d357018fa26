//! What EXPLAIN ANALYZE measured: of the statement, of each fragment, and of index look-ups. Figures in, lines of name
//! and value out.

use std::sync::Arc;

use cleave_catalog::settings::bytes_text;
use cleave_fragment::command::RunReport;
use cleave_fragment::filter_history::HistoryCounts;
use cleave_fragment::{IndexFigures, TableScanExec};
use datafusion::physical_plan::ExecutionPlan;

use super::{bytes, time, timeline};
use crate::cooperative::figures::{FragmentFigures, QueryFigures};

/// The results of index look-ups by keys for the scans that ran on the host, by table.
pub(super) fn host_look_ups(plan: &Arc<dyn ExecutionPlan>, lines: &mut Vec<(String, String)>) {
    if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
        let metrics = scan.metrics().unwrap_or_default().aggregate_by_name();
        let values = || metrics.iter().map(|metric| metric.value());
        let counts = || values().map(|value| (value.name(), value.as_usize() as u64));
        let history = HistoryCounts::of_metrics(counts()).map(|counts| counts.to_string());
        lines.extend(
            history.map(|counts| (format!("{}, filter history", scan.scan().table), counts)),
        );
        let found = IndexFigures::of_metrics(counts()).into_iter();
        lines.extend(found.map(|figures| (scan.scan().table.clone(), figures.to_string())));
    }
    plan.children().into_iter().for_each(|child| host_look_ups(child, lines));
}

/// The figures of the statement.
pub(super) fn measured(figures: &QueryFigures) -> Vec<(String, String)> {
    let line = |name: &str, value: String| (name.to_owned(), value);
    vec![
        line("rows", figures.rows.to_string()),
        line("planning time", time(figures.planning)),
        line("execution time", time(figures.elapsed)),
        line("bytes at media", bytes(figures.media_bytes)),
        line(
            if figures.has_link { "bytes over the link" } else { "bytes handed over in memory" },
            format!(
                "{} to the host, {} to the devices",
                bytes(figures.link_bytes_received),
                bytes(figures.link_bytes_sent)
            ),
        ),
        line("bytes taken by the host", bytes(figures.host_bytes)),
        line(
            "buffer pool",
            format!(
                "{} hits with {}, {} misses, {} evicted; holds {} of {}",
                figures.pool.hits,
                bytes(figures.pool.hit_bytes),
                figures.pool.misses,
                figures.pool.evictions,
                bytes(figures.pool.bytes),
                bytes(figures.pool.budget_bytes)
            ),
        ),
        line(
            "CPU",
            format!("host {}, devices {}", time(figures.host_cpu), time(figures.device_cpu)),
        ),
        line("host waited", time(figures.host_waited)),
        line("devices stalled", time(figures.device_stalled)),
    ]
}

/// The figures of a fragment on a device.
pub(super) fn fragment_lines(fragment: &FragmentFigures) -> Vec<(String, String)> {
    let line = |name: &str, value: String| (name.to_owned(), value);
    let mut lines = vec![
        line(
            "scans",
            format!("{} on device \"{}\", {}", fragment.table, fragment.device, fragment.mode),
        ),
        line("pages sent", format!("{} of {}", fragment.pages.1, fragment.pages.0)),
        line("plan", bytes(fragment.fragment_bytes as u64)),
        line(
            "rows",
            match (&fragment.report, fragment.is_for_devices) {
                (Some(sent), true) => format!("to other devices, {}", bytes(sent.slot_bytes)),
                (None, true) => "to other devices".to_owned(),
                (_, false) => fragment.rows.to_string(),
            },
        ),
    ];
    if let Some(why) = &fragment.turned {
        let side = if fragment.is_planned_here { "the device" } else { "the host" };
        lines.push(line("decided again", format!("for {side}: {why}")));
    }
    if let Some((rows, size)) = fragment.broadcast {
        lines.push(line("broadcast", format!("{rows} rows, {}", bytes(size))));
    }
    if let Some(reason) = &fragment.refused {
        lines.push(line("ran on the host", reason.clone()));
    }
    if let Some(reason) = &fragment.begun_again {
        lines.push(line("begun again", format!("on another copy: {reason}")));
    }
    if let (count, filter_bytes) = fragment.key_filters
        && count > 0
    {
        lines.push(line("key filters", format!("{count}, {}", bytes(filter_bytes as u64))));
    }
    if fragment.filters_fed > 0 {
        lines.push(line("filters in flight", fragment.filters_fed.to_string()));
    }
    if let ((taken, of), rows) = (fragment.stolen, fragment.stolen_rows)
        && taken > 0
    {
        lines.push(line("host took", format!("{taken} of {of} morsels, {rows} rows")));
    }
    for done in &fragment.done_by_others {
        let (name, of) = (format!("morsels taken by {}", done.device), fragment.stolen.1);
        let (rows, pages, cpu) = (done.rows, bytes(done.foreign_bytes), time(done.cpu));
        let figures = format!("{} of {of}, {rows} rows, {pages} read, {cpu} CPU", done.morsels);
        lines.extend((done.morsels > 0).then(|| line(&name, figures)));
        let came_back = format!("morsels back from {}", done.device);
        lines.extend(done.came_back.iter().map(|why| line(&came_back, why.clone())));
    }
    if let Some(reason) = &fragment.left_alone {
        lines.push(line("host took nothing", reason.clone()));
    }
    if let Some(report) = &fragment.report {
        lines.extend(report_lines(report, fragment.slot_bytes));
    }
    lines.push(line("host waited", time(fragment.waited)));
    lines.extend(timeline::lines(fragment));
    lines
}

fn report_lines(report: &RunReport, slot_bytes: u32) -> Vec<(String, String)> {
    let line = |name: &str, value: String| (name.to_owned(), value);
    let operators = || report.operators.iter().map(|metric| (metric.name.as_str(), metric.value));
    let indexes = IndexFigures::of_metrics(operators()).into_iter();
    let mut lines: Vec<_> = indexes.map(|figures| line("index", figures.to_string())).collect();
    let history = HistoryCounts::of_metrics(operators());
    lines.extend(history.map(|counts| line("filter history", counts.to_string())));
    lines.extend(report.lent_text().map(|lent| line("other engines", lent)));
    let foreign = Some(report.foreign_bytes).filter(|count| *count > 0);
    lines.extend(foreign.map(|count| line("bytes at other media", bytes(count))));
    let sent = (report.peer_slots, bytes(report.peer_bytes));
    let sent = Some(sent).filter(|(slots, _)| *slots > 0);
    lines.extend(
        sent.map(|(slots, of)| line("of other devices", format!("{slots} slots with {of}"))),
    );
    lines.extend([
        line("rows scanned", report.rows_scanned.to_string()),
        line("page reads", report.pages_read.to_string()),
        line("bytes at media", bytes(report.media_bytes)),
        line(
            "slots",
            format!(
                "{} of up to {}, with {}",
                report.slots,
                bytes_text(u64::from(slot_bytes)),
                bytes(report.slot_bytes)
            ),
        ),
        line(
            "device time",
            format!(
                "{} wall, {} CPU in {} partitions, {} stalled",
                time(report.wall),
                time(report.cpu),
                report.partitions,
                time(report.stall)
            ),
        ),
        line("device memory", format!("{} at most", bytes(report.peak_memory_bytes))),
    ]);
    lines
}
