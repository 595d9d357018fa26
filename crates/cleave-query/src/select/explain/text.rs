//! EXPLAIN as text: a line for each operator in plain words, with a line across where rows cross to another side; in
//! VERBOSE, every operator as DataFusion shows it.
//!
//! ```text
//! Final aggregate by kind_id: count(*)  (rows 7, expected 7, 0.100 ms)
//!   ──── link to device nas ──── rows 7 of ~7, 1.2 kB ────
//!   Partial aggregate by kind_id: count(*)  (rows 7, expected 7, 3.000 ms)
//!     Scan of title: columns kind_id  (rows 9000, expected 3000 (3.0x more), 2.100 ms)
//! ```

use std::fmt::Write as _;

use super::expression_text::without_controls;
use super::plan_nodes::{Cut, PlanNode};
use super::{Tail, about_bytes, bytes, time};

/// Rows are said to be off if they are more than so many times as many as expected, or as few.
const OFF_BY: f64 = 2.0;
const RULE: &str = "────";

/// The plan and what is known of it, in plain words.
pub(super) fn plain_lines(nodes: &[PlanNode], tail: &Tail) -> Vec<String> {
    let mut lines = Vec::new();
    // Nodes above the next one: the depth, that of the lines below it, and whether it is a device's.
    let mut above: Vec<(usize, usize, bool)> = Vec::new();
    for node in nodes {
        while above.last().is_some_and(|(depth, ..)| *depth >= node.depth) {
            above.pop();
        }
        let (mut indent, is_below_device) =
            above.last().map_or((0, false), |(_, indent, is_device)| (*indent, *is_device));
        let is_device = node.device.is_some();
        let takes_rows = node.cut.as_ref().is_some_and(|cut| cut.is_all);
        if is_below_device && !is_device && !takes_rows {
            lines.push(format!("{}{RULE} from the host {RULE}", "  ".repeat(indent)));
        }
        if !node.words.is_hidden && !takes_rows {
            let words = node.words.line();
            lines.push(format!("{}{words}{}", "  ".repeat(indent), figures(node)));
            indent += 1;
        }
        if let Some(cut) = &node.cut {
            lines.push(format!("{}{}", "  ".repeat(indent), cut_line(cut, node)));
        }
        above.push((node.depth, indent, is_device));
    }
    for (title, entries) in &tail.groups {
        let shown = match *title {
            "Splits" => tail.candidates.clone(),
            "Cuts" => entries.iter().map(|entry| spoken(&entry_line(entry))).collect(),
            _ => entries.iter().map(entry_line).collect(),
        };
        if !shown.is_empty() {
            let title = if *title == "Splits" { "Candidates" } else { *title };
            lines.push(format!("{title}:"));
            lines.extend(shown);
        }
    }
    // Names of tables and texts of DataFusion's may have some.
    lines.iter_mut().filter(|line| line.contains(char::is_control)).for_each(|line| {
        *line = without_controls(line);
    });
    lines
}

/// Rows, time and space of a node, in brackets; nothing where nothing is known.
fn figures(node: &PlanNode) -> String {
    let rows = match (node.rows, node.estimate) {
        (Some(rows), Some(estimate)) => {
            // What others did is not in these rows.
            let off = if node.is_partial { String::new() } else { off(rows, estimate) };
            Some(format!("rows {rows}, expected {estimate:.0}{off}"))
        }
        (Some(rows), None) => Some(format!("rows {rows}")),
        (None, Some(estimate)) => Some(format!("expected {estimate:.0}")),
        (None, None) => None,
    };
    let said = [
        rows,
        node.time.filter(|_| node.rows.is_some()).map(time),
        node.spilled_bytes.map(|count| format!("{} spilled", bytes(count as u64))),
    ];
    let said: Vec<String> = said.into_iter().flatten().collect();
    match said.is_empty() {
        true => String::new(),
        false => format!("  ({})", said.join(", ")),
    }
}

/// By how much rows are off, where that is much.
fn off(rows: usize, estimate: f64) -> String {
    let (rows, estimate) = ((rows as f64).max(1.0), estimate.round().max(1.0));
    let (ratio, word) = match rows >= estimate {
        true => (rows / estimate, "more"),
        false => (estimate / rows, "fewer"),
    };
    match ratio {
        ratio if ratio <= OFF_BY => String::new(),
        ratio if ratio < 10.0 => format!(" ({ratio:.1}x {word})"),
        ratio => format!(" ({ratio:.0}x {word})"),
    }
}

/// The line across the tree, with what crosses.
fn cut_line(cut: &Cut, node: &PlanNode) -> String {
    let rows = match (node.rows.map(|rows| cut.rows_of(rows)), node.estimate) {
        (Some(rows), Some(estimate)) => Some(format!("rows {rows} of ~{estimate:.0}")),
        (Some(rows), None) => Some(format!("rows {rows}")),
        (None, Some(estimate)) => Some(format!("rows ~{estimate:.0}")),
        (None, None) => None,
    };
    let expected = node.estimate.map(|rows| format!("~{}", about_bytes(rows * node.row_bytes)));
    let size = cut.bytes.map(bytes).or(expected.filter(|_| node.rows.is_none()));
    let crosses: Vec<String> = [rows, size, cut.without()].into_iter().flatten().collect();
    match crosses.is_empty() {
        true => format!("{RULE} {} {RULE}", cut.way),
        false => format!("{RULE} {} {RULE} {} {RULE}", cut.way, crosses.join(", ")),
    }
}

fn entry_line((name, value): &(String, String)) -> String {
    format!("  {name}: {value}")
}

/// Operators that a person knows by other words than those in their names; the words are those of the plan.
const SPOKEN: [(&str, &str); 21] = [
    ("BoundedWindowAggExec", "window"),
    ("BroadcastExec", "rows sent by the host"),
    ("CoalescePartitionsExec", "merge of threads"),
    ("DataSourceExec", "rows in memory"),
    ("EmptyExec", "no rows"),
    ("FileScanExec", "scan of files"),
    ("GlobalLimitExec", "limit"),
    ("GraceExec", "operator that spills"),
    ("LazyMemoryExec", "rows of a function"),
    ("LocalLimitExec", "limit"),
    ("NestedLoopJoinExec", "nested-loop join"),
    ("OutsideScanExec", "table of the caller"),
    ("PartialSortExec", "incremental sort"),
    ("PartitionedTopKExec", "sort of each group"),
    ("PeerRowsExec", "rows sent by other devices"),
    ("PlaceholderRowExec", "one row"),
    ("SortMergeJoinExec", "merge join"),
    ("SortPreservingMergeExec", "merge of sorted rows"),
    ("StreamingTableExec", "table of the caller"),
    ("WindowAggExec", "window"),
    ("WithScanExec", "scan of WITH"),
];

/// `text` with words for DataFusion's names of operators: `HashJoinExec` is a hash join.
fn spoken(text: &str) -> String {
    let is_of_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut out = String::with_capacity(text.len());
    for part in text.split_inclusive(|letter: char| !is_of_word(letter)) {
        let word = part.trim_end_matches(|letter: char| !is_of_word(letter));
        let known = SPOKEN.iter().find(|(name, _)| *name == word).map(|(_, words)| *words);
        let name = word.strip_suffix("Exec").filter(|name| name.starts_with(char::is_uppercase));
        match (known, name) {
            (Some(words), _) => out.push_str(words),
            (None, Some(name)) => {
                for (place, letter) in name.char_indices() {
                    if place > 0 && letter.is_ascii_uppercase() {
                        out.push(' ');
                    }
                    out.push(letter.to_ascii_lowercase());
                }
            }
            (None, None) => out.push_str(word),
        }
        out.push_str(part.get(word.len()..).unwrap_or_default());
    }
    out
}

/// The same with every operator as it names itself, and the predictions in full.
pub(super) fn verbose_lines(nodes: &[PlanNode], tail: &Tail) -> Vec<String> {
    let mut lines = Vec::new();
    let mut below_cut = false;
    for node in nodes {
        let indent = "  ".repeat(node.depth);
        if node.device.is_some() && !below_cut {
            lines.push(format!("{indent}- - - - cut: rows cross the link here - - - -"));
        }
        below_cut = node.device.is_some();
        let mut line = indent;
        if let Some(device) = &node.device {
            let _ = write!(line, "[{device}] ");
        }
        line.push_str(&node.name);
        if !node.detail.is_empty() {
            let _ = write!(line, ": {}", node.detail);
        }
        let said = [
            node.rows.map(|rows| format!("rows={rows}")),
            node.estimate.map(|rows| format!("expected={rows:.0}")),
            node.time.filter(|_| node.rows.is_some()).map(|spent| format!("time={}", time(spent))),
            node.spilled_bytes.map(|count| format!("spilled={}", bytes(count as u64))),
        ];
        let said: Vec<String> = said.into_iter().flatten().collect();
        if !said.is_empty() {
            let _ = write!(line, "  ({})", said.join(", "));
        }
        lines.push(line);
    }
    for (title, entries) in &tail.groups {
        if entries.is_empty() {
            continue;
        }
        lines.push(format!("{title}:"));
        lines.extend(entries.iter().map(entry_line));
        if *title == "Splits" {
            lines.push("Candidates:".to_owned());
            lines.extend(tail.candidates.iter().cloned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    //! The tree in plain words, on nodes made by hand.

    use std::time::Duration;

    use super::super::wording::Words;
    use super::*;
    use crate::cooperative::figures::DoneElsewhere;

    fn node(depth: usize, device: Option<&str>, title: &str, rows: (usize, f64)) -> PlanNode {
        PlanNode {
            depth,
            device: device.map(str::to_owned),
            words: Words { title: title.to_owned(), ..Words::default() },
            rows: Some(rows.0),
            estimate: Some(rows.1),
            row_bytes: 10.0,
            time: Some(Duration::from_millis(3)),
            ..PlanNode::default()
        }
    }

    fn hidden(node: PlanNode) -> PlanNode {
        PlanNode { words: Words { is_hidden: true, ..node.words }, ..node }
    }

    fn tail() -> Tail {
        let cuts = vec![(
            "t".into(),
            "device [TableScanExec > HashJoinExec > WindowAggExec], no \"Exec\"".into(),
        )];
        Tail { groups: vec![("Cuts", cuts)], ..Tail::default() }
    }

    fn cut(way: String, bytes: Option<u64>) -> Cut {
        Cut { way, bytes, elsewhere: DoneElsewhere::default(), is_all: true }
    }

    #[test]
    fn what_others_took_is_not_said_of_the_device() {
        let elsewhere = DoneElsewhere { by_host: 3, by_others: 0, of: 8, rows: 7 };
        let own = Cut { elsewhere, ..cut("link to device nas".to_owned(), Some(0)) };
        let scan = node(1, Some("nas"), "Scan of t", (0, 5000.0));
        let nodes = |own: Cut| {
            let fragment = node(0, None, "Fragment", (10, 8.0));
            let scan =
                PlanNode { is_partial: true, ..node(1, Some("nas"), "Scan of t", (0, 5000.0)) };
            [PlanNode { cut: Some(own), ..fragment }, scan]
        };
        let took = "──── link to device nas ──── rows 3 of ~8, 0 B, without 3 of 8 morsels that";
        let lines = plain_lines(&nodes(own.clone()), &Tail::default());
        assert_eq!(lines[0], format!("{took} the host took ────"));
        assert_eq!(lines[1], "Scan of t  (rows 0, expected 5000, 3.000 ms)");
        let elsewhere = DoneElsewhere { by_host: 2, by_others: 1, ..own.elsewhere };
        let lines = plain_lines(&nodes(Cut { elsewhere, ..own }), &Tail::default());
        assert_eq!(lines[0], format!("{took} the host and other devices took ────"));
        assert!(figures(&scan).ends_with("expected 5000 (5000x fewer), 3.000 ms)"));
    }

    #[test]
    fn a_line_is_drawn_where_rows_cross() {
        let way = "link to device nas".to_owned();
        let nodes = [
            node(0, None, "Final aggregate", (7, 7.0)),
            hidden(node(1, None, "Repartition", (7, 7.0))),
            PlanNode {
                cut: Some(cut(way, Some(1200))),
                ..node(2, None, "Fragment", (1200, 1000.0))
            },
            node(3, Some("nas"), "Hash join", (12_000, 300.0)),
            node(4, Some("nas"), "Rows sent by the host", (2, 5.0)),
            node(5, None, "Scan of few", (2, 5.0)),
            node(4, Some("nas"), "Scan of ma\u{1b}[2J\nny", (0, 3.0)),
        ];
        assert_eq!(
            plain_lines(&nodes, &tail()),
            [
                "Final aggregate  (rows 7, expected 7, 3.000 ms)",
                "  ──── link to device nas ──── rows 1200 of ~1000, 1200 B ────",
                "  Hash join  (rows 12000, expected 300 (40x more), 3.000 ms)",
                "    Rows sent by the host  (rows 2, expected 5 (2.5x fewer), 3.000 ms)",
                "      ──── from the host ────",
                "      Scan of few  (rows 2, expected 5 (2.5x fewer), 3.000 ms)",
                "    Scan of ma\\u{1b}[2J\\nny  (rows 0, expected 3 (3.0x fewer), 3.000 ms)",
                "Cuts:",
                "  t: device [table scan > hash join > window], no \"Exec\"",
            ]
        );
    }

    #[test]
    fn without_a_run_what_is_expected_crosses() {
        let way = "in memory from device embedded".to_owned();
        let cut = Some(cut(way, None));
        let expected = |node: PlanNode| PlanNode { rows: None, time: None, ..node };
        let nodes = [
            expected(PlanNode { cut, ..node(0, None, "Fragment", (0, 1000.0)) }),
            expected(node(1, Some("embedded"), "Scan of t", (0, 1000.0))),
        ];
        let priced = Tail { candidates: vec!["  split".into()], ..Tail::default() };
        let groups = vec![("Splits", Vec::new())];
        assert_eq!(
            plain_lines(&nodes, &Tail { groups, ..priced }),
            [
                "──── in memory from device embedded ──── rows ~1000, ~10.0 kB ────",
                "Scan of t  (expected 1000)",
                "Candidates:",
                "  split",
            ]
        );
    }
}
