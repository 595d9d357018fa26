//! The candidates of the choice of a split: predictions in, a table and its legend out.
//!
//! ```text
//!   split  on the device  expected  first row  limited by  over the link
//!   host   nothing        12.3 ms   1.000 ms   link        34.0 kB
//!   h0     scans          3.100 ms  1.200 ms   device      1.2 kB         chosen
//! ```
//!
//! What each split means is in [`Split`].

use std::fmt::Write as _;

use cleave_plan::cost::{CostStrategy, Prediction};
use cleave_plan::split::{Leaves, PricedSplit, Split, needed};

use super::{about_bytes, seconds};
use crate::select::PlannedQuery;

/// Names of one meaning that are shown.
const NAMES_MAX: usize = 3;

/// The table, and below it what its names mean; nothing where nothing was priced. `asked` is the split of the settings.
pub(super) fn table(priced: &[PricedSplit], has_link: bool, asked: Split) -> Vec<String> {
    if priced.is_empty() {
        return Vec::new();
    }
    let way = if has_link { "over the link" } else { "handed over" };
    let head = ["split", "on the device", "expected", "first row", "limited by", way, ""];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(priced.iter().map(cells));
    let mut lines = aligned(&rows);
    let mut legend: Vec<(&str, Vec<String>)> = Vec::new();
    for split in priced.iter().map(|one| one.split) {
        let (name, meaning) = (split.to_string(), meaning(split));
        match legend.iter_mut().find(|(known, _)| *known == meaning) {
            Some((_, names)) => names.push(name),
            None => legend.push((meaning, vec![name])),
        }
    }
    let legend = legend.iter().map(|(meaning, names)| {
        let shown: Vec<&str> = names.iter().take(NAMES_MAX).map(String::as_str).collect();
        let more = if names.len() > NAMES_MAX { ", …" } else { "" };
        format!("  {}{more}: {meaning}", shown.join(", "))
    });
    lines.extend(legend);
    let chosen = priced.iter().find(|one| one.is_chosen).map(|one| one.split);
    if let Some(chosen) = chosen.filter(|chosen| asked != Split::Auto && *chosen != asked) {
        lines.push(format!("  {asked}, as the settings ask, is the same as {chosen} here"));
    }
    lines
}

fn cells(priced: &PricedSplit) -> [String; 7] {
    let it = &priced.prediction;
    let sides = [(it.host_busy, "host"), (it.device_busy, "device"), (it.link_busy, "link")];
    let most = |most: (f64, &'static str), side: (f64, &'static str)| match side.0 > most.0 {
        true => side,
        false => most,
    };
    let (_, limit) = sides.into_iter().fold((f64::MIN, ""), most);
    let mut remarks = Vec::new();
    remarks.extend(priced.is_chosen.then(|| "chosen".to_owned()));
    if it.device_memory_bytes > 0.0 {
        remarks.push(format!("{} of device memory", about_bytes(it.device_memory_bytes)));
    }
    remarks.extend(it.why.clone());
    [
        priced.split.to_string(),
        on_device(priced.split),
        seconds(it.finish),
        seconds(it.first_result),
        limit.to_owned(),
        about_bytes(it.link_bytes),
        remarks.join("; "),
    ]
}

/// Rows of cells as lines, each column as wide as its widest cell.
fn aligned<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let width = |place: usize| {
        let cells = rows.iter().filter_map(|row| row.get(place));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths.iter().copied());
        let cells = cells.map(|(cell, width)| format!("{cell:<width$}"));
        format!("  {}", cells.collect::<Vec<_>>().join("  ")).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// What a split leaves to the device, in few words.
fn on_device(split: Split) -> String {
    let counted = |joins: usize| match joins {
        1 => "1 join".to_owned(),
        joins => format!("{joins} joins"),
    };
    match split {
        Split::Host => "nothing".to_owned(),
        Split::Hybrid { joins: 0, leaves: Leaves::All } => "scans".to_owned(),
        Split::Hybrid { joins: 0, leaves: Leaves::Some } => "some scans".to_owned(),
        Split::Hybrid { joins, leaves: Leaves::None } => counted(joins),
        Split::Hybrid { joins, leaves: Leaves::Some } => {
            format!("{}, some scans", counted(joins))
        }
        Split::Hybrid { joins, leaves: Leaves::All } => format!("{}, scans", counted(joins)),
        Split::Complete { joins: 0 } => "scans, groups".to_owned(),
        Split::Complete { joins } => format!("{}, scans, groups", counted(joins)),
        Split::Ndp => "everything".to_owned(),
        Split::Auto => "what is expected to be soonest".to_owned(),
    }
}

/// What a split means, in words that do for all of its kind.
fn meaning(split: Split) -> &'static str {
    match split {
        Split::Host => "the host does everything, over pages that it reads from the device",
        Split::H0 => "the device scans: each scan with its filter, partial aggregate and limit",
        Split::Hybrid { leaves: Leaves::None, .. } => {
            "the device makes so many joins, counted from the scans up; the host reads the pages of other tables"
        }
        Split::Hybrid { leaves: Leaves::Some, .. } => {
            "the device makes so many joins, counted from the scans up, and some of the other scans"
        }
        Split::Hybrid { leaves: Leaves::All, .. } => {
            "the device makes so many joins, counted from the scans up, and all other scans"
        }
        Split::Complete { .. } => {
            "the device makes so many joins, all scans, and groups as far as they are complete on each device"
        }
        Split::Ndp => "the device does everything",
        Split::Auto => "the candidate that is expected to be done first",
    }
}

/// What a cut must save where the choice is free.
pub(super) fn must_save(
    priced: &[PricedSplit],
    has_link: bool,
    query: &PlannedQuery,
) -> Option<(String, String)> {
    let settings = query.context.settings();
    let is_free = query.split == Split::Auto
        && settings.cost_strategy == CostStrategy::Makespan
        && has_link
        && !priced.is_empty();
    if !is_free {
        return None;
    }
    let margin = query.context.split_margin();
    let needed = needed(priced, margin.share_max);
    let gain = (1.0 - needed.share_max) * 100.0;
    let from = match margin.runs {
        None => format!("split_gain_min {}", settings.limits.split_gain),
        Some((host, cut)) => format!(
            "split_gain_min {}, by the errors of {host} predictions of the host and {cut} of cuts",
            settings.limits.split_gain
        ),
    };
    let count = needed.different_count;
    let text = format!(
        "{gain:.0} % of the host's time (the best of {count} different predictions; {from})"
    );
    Some(("must save".to_owned(), text))
}

/// The prediction for a split.
pub(super) fn line(priced: &PricedSplit, has_link: bool) -> (String, String) {
    let Prediction { finish, first_result, link_bytes, device_memory_bytes, why, .. } =
        &priced.prediction;
    let mut text = format!("{}, first row {}", seconds(*finish), seconds(*first_result));
    let way = if has_link { "over the link" } else { "handed over in memory" };
    let _ = write!(text, ", {} {way}", about_bytes(*link_bytes));
    if *device_memory_bytes > 0.0 {
        let _ = write!(text, ", {} of device memory", about_bytes(*device_memory_bytes));
    }
    if let Some(why) = why {
        let _ = write!(text, "; {why}");
    }
    if priced.is_chosen {
        text.push_str("; chosen");
    }
    (priced.split.to_string(), text)
}

#[cfg(test)]
mod tests {
    //! The table of candidates, and its legend.

    use super::*;

    fn priced(split: &str, [host, device, link]: [f64; 3], is_chosen: bool) -> PricedSplit {
        let prediction = Prediction {
            finish: host.max(device).max(link),
            first_result: 0.001,
            host_busy: host,
            device_busy: device,
            link_busy: link,
            link_bytes: link * 1e7,
            ..Prediction::default()
        };
        PricedSplit { split: split.parse().unwrap(), prediction, is_chosen }
    }

    #[test]
    fn columns_are_aligned_and_names_are_explained() {
        let candidates = [
            priced("host", [0.002, 0.0, 0.0123], false),
            priced("h0", [0.001, 0.0031, 0.0001], true),
            priced("h1+", [0.004, 0.002, 0.003], false),
            priced("h2+", [0.005, 0.002, 0.003], false),
        ];
        let lines = table(&candidates, true, Split::Auto);
        assert_eq!(
            lines,
            [
                "  split  on the device   expected  first row  limited by  over the link",
                "  host   nothing         12.3 ms   1.000 ms   link        123.0 kB",
                "  h0     scans           3.100 ms  1.000 ms   device      1000 B         chosen",
                "  h1+    1 join, scans   4.000 ms  1.000 ms   host        30.0 kB",
                "  h2+    2 joins, scans  5.000 ms  1.000 ms   host        30.0 kB",
                "  host: the host does everything, over pages that it reads from the device",
                "  h0: the device scans: each scan with its filter, partial aggregate and limit",
                "  h1+, h2+: the device makes so many joins, counted from the scans up, and all other scans",
            ]
        );
        let forced = table(&candidates, true, Split::Ndp);
        assert_eq!(forced.last().unwrap(), "  ndp, as the settings ask, is the same as h0 here");
        assert!(table(&[], true, Split::Auto).is_empty());
    }
}
