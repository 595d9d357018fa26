//! Prints what came of simulations, as a table or as lines of JSON.

use std::io::Write;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use super::scenario::{Scenario, seconds};
use super::world::Figures;
use crate::failure::Failure;

/// Efficiency of which it is said how many morsels it takes.
const EFFICIENCY: f64 = 0.95;

/// Prints each simulation.
pub(super) struct Report {
    /// None: lines of JSON are printed at once.
    table: Option<Table>,
    /// Morsels of queries that a device does in a second, of the first simulation.
    first: Option<f64>,
    remarks: Vec<String>,
}

impl Report {
    pub(super) fn new(is_json: bool) -> Self {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_header([
            "devices",
            "nodes",
            "seconds",
            "efficiency",
            "of first",
            "imbalance",
            "by node",
            "by host",
            "messages",
            "host busy",
            "host link",
            "ns a decision",
        ]);
        Self { table: (!is_json).then_some(table), first: None, remarks: Vec::new() }
    }

    pub(super) fn add(&mut self, scenario: &Scenario, figures: &Figures) -> Result<(), Failure> {
        let line = Line::new(scenario, figures, &mut self.first);
        if let Some(after_ns) = figures.after_loss_ns {
            self.remarks.push(format!(
                "{} devices: the last statement that ran when a node was lost ended {:.3} s later; {} failed; {} \
                 morsels were run in vain.",
                scenario.devices,
                seconds(after_ns),
                figures.failed,
                figures.lost,
            ));
        }
        match &mut self.table {
            Some(table) => {
                table.add_row(line.cells());
                self.remarks.extend(line.morsels_for());
            }
            None => writeln!(std::io::stdout(), "{}", line.json())?,
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<(), Failure> {
        let Some(mut table) = self.table else { return Ok(()) };
        for column in table.column_iter_mut() {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut out = std::io::stdout().lock();
        for line in table.lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
        for remark in self.remarks {
            writeln!(out, "{remark}")?;
        }
        Ok(())
    }
}

/// The figures of one simulation, as they are printed.
struct Line<'a> {
    scenario: &'a Scenario,
    figures: &'a Figures,
    /// The least time of all devices against the time that it took.
    efficiency: f64,
    /// Throughput of a device against that of the first simulation.
    of_first: f64,
    /// The busiest device against the mean.
    imbalance: f64,
    host_busy: f64,
    link_busy: f64,
    decision_ns: f64,
}

impl<'a> Line<'a> {
    fn new(scenario: &'a Scenario, figures: &'a Figures, first: &mut Option<f64>) -> Self {
        let makespan_s = seconds(figures.makespan_ns).max(1e-9);
        let of_makespan =
            |ns: u64, servers: u32| seconds(ns) / makespan_s / f64::from(servers.max(1));
        let throughput = figures.asked as f64 / makespan_s / scenario.devices as f64;
        let first = *first.get_or_insert(throughput);
        let busiest = figures.busy_ns.iter().copied().max().unwrap_or(0);
        let mean = figures.busy_ns.iter().map(|ns| seconds(*ns)).sum::<f64>()
            / figures.busy_ns.len().max(1) as f64;
        Self {
            scenario,
            figures,
            efficiency: seconds(figures.ideal_ns) / makespan_s,
            of_first: throughput / first.max(f64::MIN_POSITIVE),
            imbalance: seconds(busiest) / mean.max(f64::MIN_POSITIVE),
            host_busy: of_makespan(figures.host_busy_ns, scenario.host.cores),
            link_busy: of_makespan(figures.link_busy_ns, 1),
            decision_ns: figures.decided.as_secs_f64() * 1e9 / figures.decisions.max(1) as f64,
        }
    }

    fn cells(&self) -> [String; 12] {
        let figures = self.figures;
        let ran = (figures.by_own + figures.by_node + figures.by_host).max(1);
        let percent = |count: u64| format!("{:.1} %", count as f64 * 100.0 / ran as f64);
        [
            self.scenario.devices.to_string(),
            self.scenario.nodes().to_string(),
            format!("{:.3}", seconds(figures.makespan_ns)),
            format!("{:.3}", self.efficiency),
            format!("{:.3}", self.of_first),
            format!("{:.2}", self.imbalance),
            percent(figures.by_node),
            percent(figures.by_host),
            figures.messages.to_string(),
            format!("{:.1} %", self.host_busy * 100.0),
            format!("{:.1} %", self.link_busy * 100.0),
            format!("{:.0}", self.decision_ns),
        ]
    }

    /// How many morsels a device needs for an efficiency of [`EFFICIENCY`], if it has fewer: what a run takes beside
    /// them is to be so small a part.
    fn morsels_for(&self) -> Option<String> {
        let (figures, scenario) = (self.figures, self.scenario);
        if self.efficiency >= EFFICIENCY
            || scenario.statements > 1
            || figures.after_loss_ns.is_some()
        {
            return None;
        }
        let beside_s = seconds(figures.makespan_ns) - seconds(figures.ideal_ns);
        let wanted_s = beside_s * EFFICIENCY / (1.0 - EFFICIENCY);
        let each_s = seconds(figures.ideal_ns) / f64::from(scenario.morsels);
        let count = (wanted_s / each_s).ceil();
        let devices = scenario.devices;
        Some(format!("{devices} devices: {EFFICIENCY} would take about {count} morsels a device."))
    }

    fn json(&self) -> Value {
        let (scenario, figures) = (self.scenario, self.figures);
        json!({
            "devices": scenario.devices,
            "nodes": scenario.nodes(),
            "statements": figures.statements,
            "queries": figures.queries,
            "morsels": figures.asked,
            "seconds": seconds(figures.makespan_ns),
            "ideal_seconds": seconds(figures.ideal_ns),
            "longest_statement_seconds": seconds(figures.statement_ns_max),
            "efficiency": self.efficiency,
            "of_first": self.of_first,
            "imbalance": self.imbalance,
            "by_own": figures.by_own,
            "by_node": figures.by_node,
            "by_host": figures.by_host,
            "messages": figures.messages,
            "link_bytes": figures.link_bytes,
            "host_busy": self.host_busy,
            "host_link_busy": self.link_busy,
            "failed_statements": figures.failed,
            "run_in_vain": figures.lost,
            "seconds_after_loss": figures.after_loss_ns.map(seconds),
            "decisions": figures.decisions,
            "decision_ns": self.decision_ns,
        })
    }
}
