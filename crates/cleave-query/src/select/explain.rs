//! EXPLAIN: the plan with its cuts, the reason for each, and, with ANALYZE, what was measured.

mod below_cuts;
mod device_names;
mod page_filters;
mod stages;
mod timeline;
mod unrun;
mod used_statistics;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use cleave_catalog::error::Result;
use cleave_catalog::settings::{Settings, bytes_text};
use cleave_fragment::command::RunReport;
use cleave_fragment::command::status::metrics_sets;
use cleave_fragment::filter_history::HistoryCounts;
use cleave_fragment::{IndexFigures, TableScanExec};
use cleave_plan::PlanEstimates;
use cleave_plan::cardinality::estimate_rows_with;
use cleave_plan::cost::{CostStrategy, Prediction};
use cleave_plan::profile::Origin;
use cleave_plan::split::{PricedSplit, Split, needed};
use cleave_sql::statement::ExplainFormat;
use datafusion::arrow::array::{RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{ExecutionPlan, displayable};

use self::below_cuts::{Sources, fragment_of, fragments, runs_on};
use super::index_choice::IndexChoice;
use super::{
    ComparedOrders, PlannedQuery, PricedOrder, QueryRequest, RunningQuery, has_link, plan_shown,
};
use crate::cooperative::figures::QueryFigures;
use crate::cooperative::fragment_exec::FragmentExec;
use crate::query_engine::QueryEngine;

/// Characters of an operator's arguments that are shown.
const DETAIL_CHARACTERS_MAX: usize = 1000;

/// One line of the plan: an operator and where it runs.
#[derive(Debug)]
struct PlanNode {
    depth: usize,
    /// The device, for what runs on one.
    device: Option<String>,
    name: String,
    /// Its arguments, as DataFusion shows them.
    detail: String,
    rows: Option<usize>,
    /// Rows that the planner expects.
    estimate: Option<f64>,
    time: Option<Duration>,
    /// Bytes that it put aside, where it did.
    spilled_bytes: Option<usize>,
}

/// Runs EXPLAIN on a query: one text column, a row a line; or one row of JSON.
pub async fn explain(
    database: &Arc<QueryEngine>,
    settings: &Settings,
    asked: QueryRequest<'_>,
    analyze: bool,
    format: ExplainFormat,
    change: Option<ExplainedChange>,
) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let planned = plan_shown(database, settings, asked).await?;
    let plan = Arc::clone(&planned.cuts.plan);
    if analyze {
        let mut running = planned.run(true).await?;
        while running.next().await?.is_some() {}
        let Measured { nodes, tail, .. } = Measured::of(&mut running).await?;
        return shown(lines(&nodes, &tail, &planned_plans(running.planned(), plan), format)?);
    }
    let nodes = query_nodes(&planned, false);
    let mut tail = Tail::of(&planned, None);
    if let Some(change) = change {
        tail.groups.push(("Placement", change.placement));
    }
    shown(lines(&nodes, &tail, &planned_plans(&planned, plan), format)?)
}

/// How an UPDATE or DELETE changes rows, for EXPLAIN.
#[derive(Debug)]
pub struct ExplainedChange {
    /// The statement in few words.
    pub what: String,
    /// The fragments that run it, each with what is known of its rows; none: rows are changed one by one.
    pub fragments: Vec<(Arc<dyn ExecutionPlan>, PlanEstimates)>,
    /// The ways to change rows, with their expected costs, by name.
    pub placement: Vec<(String, String)>,
}

impl ExplainedChange {
    /// What EXPLAIN shows of a statement that its fragments run.
    ///
    /// # Errors
    /// Those of encoding the fragments.
    pub fn shown(self, format: ExplainFormat) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        let Measured { nodes, tail, plans, .. } = self.measured(Vec::new());
        shown(lines(&nodes, &tail, &plans, format)?)
    }

    /// The same of one that has run, with figures of the run.
    #[must_use]
    pub fn measured(self, figures: Vec<(String, String)>) -> Measured {
        let mut nodes = vec![PlanNode::named(self.what)];
        for (plan, estimates) in &self.fragments {
            let of_fragment = plan_nodes(plan, false, estimates).into_iter();
            nodes.extend(of_fragment.map(|node| PlanNode { depth: node.depth + 1, ..node }));
        }
        let groups = vec![("Placement", self.placement), ("Measured", figures)];
        let (priced, orders) = (Vec::new(), ComparedOrders::default());
        let tail = Tail { groups, priced, orders, profile: None };
        let plans = self.fragments.into_iter().map(|(plan, _)| plan).collect();
        Measured { nodes, tail, plans, is_whole: true }
    }
}

/// `plan`, which is that of `query`, and those of its queries of WITH.
fn planned_plans(
    query: &PlannedQuery,
    plan: Arc<dyn ExecutionPlan>,
) -> Vec<Arc<dyn ExecutionPlan>> {
    let of_parts = query.with.iter();
    let of_parts = of_parts.filter_map(|rows| rows.with_query(|part| Arc::clone(&part.cuts.plan)));
    std::iter::once(plan).chain(of_parts).collect()
}

/// The operators of `query`, and below them those of its queries of WITH, each under its name.
fn query_nodes(query: &PlannedQuery, analyzed: bool) -> Vec<PlanNode> {
    let mut nodes = plan_nodes(&query.cuts.plan, analyzed, &query.context.estimates());
    for node in &mut nodes {
        node.detail = stages::named(std::mem::take(&mut node.detail), query);
    }
    for rows in &query.with {
        let mut head = PlanNode::named(format!("{}, run once", rows.name()));
        let spilled = usize::try_from(rows.spilled_bytes()).unwrap_or(usize::MAX);
        head.spilled_bytes = (analyzed && spilled > 0).then_some(spilled);
        nodes.push(head);
        let own = rows.with_query(|part| query_nodes(part, analyzed)).unwrap_or_default();
        nodes.extend(own.into_iter().map(|node| PlanNode { depth: node.depth + 1, ..node }));
    }
    nodes
}

/// Rows that are expected of `query`.
pub(super) fn row_estimate(query: &PlannedQuery) -> f64 {
    let nodes = plan_nodes(&query.cuts.plan, false, &query.context.estimates());
    nodes.first().and_then(|node| node.estimate).unwrap_or(1.0)
}

/// A query that has run, as EXPLAIN ANALYZE shows it.
#[derive(Debug)]
pub struct Measured {
    nodes: Vec<PlanNode>,
    tail: Tail,
    plans: Vec<Arc<dyn ExecutionPlan>>,
    /// Whether the first node is the statement, and not its query.
    is_whole: bool,
}

impl Measured {
    /// The measurements of `running`, which has given its last row.
    pub async fn of(running: &mut RunningQuery) -> Result<Self> {
        let figures = running.figures().await?;
        let nodes = query_nodes(running.planned(), true);
        let tail = Tail::of(running.planned(), Some(&figures));
        let plans = planned_plans(running.planned(), Arc::clone(running.plan()));
        Ok(Self { nodes, tail, plans, is_whole: false })
    }

    /// The same below what was done with its rows, which `what` describes.
    pub fn shown(
        mut self,
        what: String,
        format: ExplainFormat,
    ) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        if !self.is_whole {
            self.nodes.iter_mut().for_each(|node| node.depth += 1);
            self.nodes.insert(0, PlanNode::named(what));
        }
        shown(lines(&self.nodes, &self.tail, &self.plans, format)?)
    }
}

impl PlanNode {
    /// One of which nothing is known but what it does.
    fn named(name: String) -> Self {
        let (name, detail, depth) = (shortened(&name), String::new(), 0);
        let (device, rows, estimate, time, spilled_bytes) = (None, None, None, None, None);
        Self { depth, device, name, detail, rows, estimate, time, spilled_bytes }
    }
}

fn lines(
    nodes: &[PlanNode],
    tail: &Tail,
    plans: &[Arc<dyn ExecutionPlan>],
    format: ExplainFormat,
) -> Result<Vec<String>> {
    Ok(match format {
        ExplainFormat::Text => text_lines(nodes, tail),
        ExplainFormat::Json => vec![json(nodes, tail)],
        ExplainFormat::Fragment => {
            let mut lines = Vec::new();
            plans.iter().try_for_each(|plan| fragments(plan, &mut lines))?;
            lines
        }
    })
}

/// EXPLAIN of a query that is looked up without a plan, which `what` describes; `measured`: its rows and how long they
/// took.
pub fn explain_look_up(
    what: String,
    measured: Option<(usize, Duration)>,
    format: ExplainFormat,
) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let nodes = [PlanNode::named(what)];
    let lines = measured.map(|(rows, elapsed)| {
        let line = |name: &str, value: String| (name.to_owned(), value);
        vec![line("rows", rows.to_string()), line("execution time", time(elapsed))]
    });
    let groups = vec![("Measured", lines.unwrap_or_default())];
    let tail =
        Tail { groups, priced: Vec::new(), orders: ComparedOrders::default(), profile: None };
    shown(match format {
        ExplainFormat::Text => text_lines(&nodes, &tail),
        ExplainFormat::Json => vec![json(&nodes, &tail)],
        ExplainFormat::Fragment => Vec::new(),
    })
}

/// The columns of what EXPLAIN shows.
pub fn explained_columns() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("QUERY PLAN", DataType::Utf8, false)]))
}

fn shown(lines: Vec<String>) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let schema = explained_columns();
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(StringArray::from(lines))])
        .map_err(datafusion::error::DataFusionError::from)?;
    Ok((schema, vec![batch]))
}

/// The text below the plan, as titled groups of name and value.
#[derive(Debug)]
struct Tail {
    groups: Vec<(&'static str, Vec<(String, String)>)>,
    /// The prediction for each split.
    priced: Vec<PricedSplit>,
    /// The orders of joins that were compared.
    orders: ComparedOrders,
    /// The figures used; `None`: nothing was priced.
    profile: Option<Origin>,
}

impl Tail {
    fn of(query: &PlannedQuery, figures: Option<&QueryFigures>) -> Self {
        let settings = query.context.settings();
        let mut cuts = vec![(
            "asked for".to_owned(),
            format!(
                "split {}, stack {}{}{}",
                query.split,
                settings.stack,
                if settings.ndp { "" } else { ", ndp off" },
                settings.transfer.asked()
            ),
        )];
        let of_parts = query
            .with
            .iter()
            .filter_map(|rows| rows.with_query(|part| part.cuts.decisions.clone()));
        for decision in query.cuts.decisions.iter().cloned().chain(of_parts.flatten()) {
            let text = decision.to_string();
            let (table, what) = text.split_once(": ").unwrap_or(("", &text));
            cuts.push((table.to_owned(), what.to_owned()));
        }
        let pages = query
            .contexts()
            .iter()
            .flat_map(|context| context.inputs())
            .map(|input| {
                let input = &input.input;
                let total = input.page_count;
                let text = match &input.index {
                    None => format!("{} of {total} pages left by zone maps", input.pages_left()),
                    Some((IndexChoice { name, entry_count, page_count: Some(pages) }, before)) => {
                        format!(
                            "{before} of {total} pages left by zone maps; the scan reads index {name}: up to \
                             {entry_count} entries on {pages} pages"
                        )
                    }
                    Some((index, before)) => format!(
                        "{before} of {total} pages left by zone maps, {} of them by index {}: {} entries",
                        input.pages_left(),
                        index.name,
                        index.entry_count
                    ),
                };
                let offered = input.offered().iter().map(|index| index.definition.name.as_str());
                let offered = offered.collect::<Vec<_>>().join(" or ");
                let text = match offered.is_empty() {
                    true => text,
                    false => format!(
                        "{text}; the scan may go through index {offered} by the keys of the join above"
                    ),
                };
                let text = match input.tablet_count {
                    Some(count) => format!(
                        "{text}; in {count} of {} tablets by {}",
                        input.table.tablets.len(),
                        input.table.division.kind(&input.table.schema)
                    ),
                    None => text,
                };
                let text = match input.rows_shipped() {
                    0 => text,
                    rows => format!("{text}; {rows} rows of the delta are shipped"),
                };
                (input.table.schema.name.clone(), text)
            })
            .collect::<Vec<_>>();
        let priced = query.cuts.priced.clone();
        let has_link = has_link(&query.contexts());
        let named = |(name, text)| (stages::named(name, query), stages::named(text, query));
        let cuts = cuts.into_iter().map(named).collect();
        let pages = pages.into_iter().map(named).collect();
        let statistics = used_statistics::lines(&query.context).into_iter().map(named).collect();
        let mut groups = vec![
            ("Cuts", cuts),
            ("Orders", order_lines(&query.orders)),
            ("Splits", split_lines(&priced, has_link, query)),
            ("Stages", stages::lines(query)),
            ("Page filters", page_filters::lines(query)),
            ("Pages", pages),
            ("Statistics", statistics),
        ];
        if let Some(figures) = figures {
            groups.push(("Measured", measured(figures)));
            let mut looked_up = Vec::new();
            host_look_ups(&query.cuts.plan, &mut looked_up);
            groups.push(("Indexes", looked_up));
            let devices = query.context.database().devices();
            for fragment in &figures.fragments {
                let lines = device_names::named(fragment_lines(fragment), &devices);
                groups.push(("Fragment", lines));
            }
        }
        Self { groups, priced, orders: query.orders.clone(), profile: Some(query.profile) }
    }
}

/// The prediction for each join order with its best split, and by how much the chosen one is sooner than the one with
/// the least work, which is the first.
fn order_lines(orders: &ComparedOrders) -> Vec<(String, String)> {
    let first_s = orders.planned.first().map_or(0.0, |order| order.finish_s);
    let line = |(place, order): (usize, &PricedOrder)| {
        let mut text = format!("{} by split {}", seconds(order.finish_s), order.split);
        if place == 0 {
            text.push_str(", the least work");
        } else {
            let percent = order.finish_s / first_s.max(f64::MIN_POSITIVE) * 100.0;
            let _ = write!(text, ", {percent:.0} % of that");
        }
        if order.is_chosen {
            text.push_str("; chosen");
        }
        (order.order.clone(), text)
    };
    let mut lines: Vec<_> = orders.planned.iter().enumerate().map(line).collect();
    if !lines.is_empty() {
        let text = format!("{} orders, {} of them planned", orders.looked_at, lines.len());
        lines.push(("looked at".to_owned(), text));
    }
    lines
}

/// A line for each split that was priced, and what one must save where the choice is free.
fn split_lines(
    priced: &[PricedSplit],
    has_link: bool,
    query: &PlannedQuery,
) -> Vec<(String, String)> {
    let mut lines: Vec<_> = priced.iter().map(|split| split_line(split, has_link)).collect();
    let settings = query.context.settings();
    if query.split == Split::Auto
        && settings.cost_strategy == CostStrategy::Makespan
        && has_link
        && !lines.is_empty()
    {
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
        lines.push(("must save".to_owned(), text));
    }
    lines
}

/// The prediction for a split.
fn split_line(priced: &PricedSplit, has_link: bool) -> (String, String) {
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

fn seconds(seconds: f64) -> String {
    time(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX))
}

/// The results of index look-ups by keys for the scans that ran on the host, by table.
fn host_look_ups(plan: &Arc<dyn ExecutionPlan>, lines: &mut Vec<(String, String)>) {
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

fn measured(figures: &QueryFigures) -> Vec<(String, String)> {
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

fn fragment_lines(
    fragment: &crate::cooperative::figures::FragmentFigures,
) -> Vec<(String, String)> {
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

/// The operators in preorder, those of fragments beneath the node that runs them.
fn plan_nodes(
    plan: &Arc<dyn ExecutionPlan>,
    analyzed: bool,
    known: &PlanEstimates,
) -> Vec<PlanNode> {
    let mut nodes = Vec::new();
    collect_host(plan, 0, analyzed, &mut nodes);
    leave_out_bypassed(&mut nodes);
    let sources = Sources::of(plan);
    let rows = estimate_rows_with(plan, known, &|node| sources.below(node));
    nodes.iter_mut().zip(rows).for_each(|(node, rows)| node.estimate = Some(rows));
    nodes
}

/// A dense aggregate takes whole pages from its scan. The operators between the two see none of these rows, so a count
/// of zero there says nothing.
fn leave_out_bypassed(nodes: &mut [PlanNode]) {
    let mut dense_depth = None;
    for node in nodes {
        if dense_depth.is_some_and(|depth| node.depth <= depth) {
            dense_depth = None;
        }
        if node.name == "DenseAggregateExec" {
            dense_depth = Some(node.depth);
        } else if dense_depth.is_some()
            && node.rows == Some(0)
            && !node.name.starts_with("TableScan")
        {
            node.rows = None;
        }
    }
}

fn collect_host(
    plan: &Arc<dyn ExecutionPlan>,
    depth: usize,
    analyzed: bool,
    nodes: &mut Vec<PlanNode>,
) {
    let metrics = if analyzed { plan.metrics() } else { None };
    nodes.push(node(plan, depth, None, metrics));
    if let Some(fragment) = fragment_of(plan) {
        let mut metrics = device_metrics(fragment);
        metrics.reverse();
        let (runs_on, sources) = (runs_on(plan), Sources::of(plan));
        let below = (runs_on.as_str(), &sources, analyzed);
        collect_device(fragment.device_plan(), depth + 1, below, &mut metrics, nodes);
        return;
    }
    for child in plan.children() {
        collect_host(child, depth + 1, analyzed, nodes);
    }
}

/// What the devices measured of each node, all together; nothing where none has finished.
fn device_metrics(fragment: &FragmentExec) -> Vec<MetricsSet> {
    let count = count_nodes(fragment.device_plan());
    let mut together: Vec<MetricsSet> = Vec::new();
    for report in fragment.reports() {
        let sets = metrics_sets(&report.operators, count);
        if together.is_empty() {
            together = sets;
            continue;
        }
        for (all, own) in together.iter_mut().zip(sets) {
            own.iter().for_each(|metric| all.push(Arc::clone(metric)));
        }
    }
    together
}

/// The nodes of a fragment from `plan` on; what is broadcast or exchanged beneath the leaf that names it. `metrics`
/// holds those of the nodes to come, the next one last.
fn collect_device(
    plan: &Arc<dyn ExecutionPlan>,
    depth: usize,
    (runs_on, sources, analyzed): (&str, &Sources, bool),
    metrics: &mut Vec<MetricsSet>,
    nodes: &mut Vec<PlanNode>,
) {
    let own = metrics.pop();
    nodes.push(node(plan, depth, Some(runs_on.to_owned()), own));
    if let Some(source) = sources.of_leaf(plan) {
        collect_host(&source, depth + 1, analyzed, nodes);
    }
    for child in plan.children() {
        collect_device(child, depth + 1, (runs_on, sources, analyzed), metrics, nodes);
    }
}

fn count_nodes(plan: &Arc<dyn ExecutionPlan>) -> usize {
    1 + plan.children().into_iter().map(count_nodes).sum::<usize>()
}

fn node(
    plan: &Arc<dyn ExecutionPlan>,
    depth: usize,
    device: Option<String>,
    metrics: Option<MetricsSet>,
) -> PlanNode {
    let text = displayable(plan.as_ref()).one_line().to_string();
    let text = text.trim_end();
    let (name, detail) = text.split_once(": ").unwrap_or((text, ""));
    let metrics = metrics.map(|metrics| metrics.aggregate_by_name());
    let rows = metrics.as_ref().and_then(MetricsSet::output_rows);
    let nanos = metrics.as_ref().and_then(MetricsSet::elapsed_compute);
    // A device's come as counts with a name.
    let spilled = metrics.as_ref().and_then(|metrics| {
        let of_device = || Some(metrics.sum_by_name("spilled_bytes")?.as_usize());
        metrics.spilled_bytes().or_else(of_device).filter(|bytes| *bytes > 0)
    });
    PlanNode {
        depth,
        device,
        name: name.to_owned(),
        detail: shortened(detail),
        rows,
        estimate: None,
        time: nanos.map(|nanos| Duration::from_nanos(nanos as u64)),
        spilled_bytes: spilled,
    }
}

/// Cut where it is long, as the keys are that a join has handed down.
fn shortened(detail: &str) -> String {
    match detail.char_indices().nth(DETAIL_CHARACTERS_MAX) {
        Some((end, _)) => {
            let (kept, cut) = detail.split_at(end);
            format!("{kept}… ({} bytes more)", cut.len())
        }
        None => detail.to_owned(),
    }
}

fn text_lines(nodes: &[PlanNode], tail: &Tail) -> Vec<String> {
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
        lines.extend(entries.iter().map(|(name, value)| format!("  {name}: {value}")));
    }
    lines
}

fn json(nodes: &[PlanNode], tail: &Tail) -> String {
    let plan: Vec<String> = nodes
        .iter()
        .map(|node| {
            let mut fields = vec![
                format!("\"depth\":{}", node.depth),
                format!("\"operator\":{}", quoted(&node.name)),
                format!("\"detail\":{}", quoted(&node.detail)),
                format!("\"runs_on\":{}", quoted(node.device.as_deref().unwrap_or("host"))),
            ];
            if let Some(rows) = node.rows {
                fields.push(format!("\"rows\":{rows}"));
            }
            if let Some(rows) = node.estimate {
                fields.push(format!("\"rows_expected\":{rows:.0}"));
            }
            if let Some(spent) = node.time {
                fields.push(format!("\"time_us\":{}", spent.as_micros()));
            }
            if let Some(bytes) = node.spilled_bytes {
                fields.push(format!("\"spilled_bytes\":{bytes}"));
            }
            format!("{{{}}}", fields.join(","))
        })
        .collect();
    let groups: Vec<String> = tail
        .groups
        .iter()
        .map(|(title, entries)| {
            let entries: Vec<String> = entries
                .iter()
                .map(|(name, value)| {
                    format!("{{\"name\":{},\"value\":{}}}", quoted(name), quoted(value))
                })
                .collect();
            format!("{{\"title\":{},\"entries\":[{}]}}", quoted(title), entries.join(","))
        })
        .collect();
    let orders: Vec<String> = tail.orders.planned.iter().map(order_json).collect();
    let candidates: Vec<String> = tail.priced.iter().map(candidate_json).collect();
    let profile = tail.profile.map_or_else(|| "null".to_owned(), |origin| quoted(origin.name()));
    format!(
        "{{\"plan\":[{}],\"profile\":{profile},\"orders\":[{}],\"orders_looked_at\":{},\
         \"candidates\":[{}],\"notes\":[{}]}}",
        plan.join(","),
        orders.join(","),
        tail.orders.looked_at,
        candidates.join(","),
        groups.join(",")
    )
}

fn order_json(priced: &PricedOrder) -> String {
    format!(
        "{{\"order\":{},\"split\":{},\"finish_ms\":{:.3},\"chosen\":{}}}",
        quoted(&priced.order),
        quoted(&priced.split.to_string()),
        priced.finish_s * 1e3,
        priced.is_chosen
    )
}

fn candidate_json(priced: &PricedSplit) -> String {
    let it = &priced.prediction;
    format!(
        "{{\"split\":{},\"finish_ms\":{:.3},\"first_result_ms\":{:.3},\"host_ms\":{:.3},\
         \"host_cpu_ms\":{:.3},\"device_ms\":{:.3},\"link_ms\":{:.3},\"host_wait_ms\":{:.3},\
         \"device_stall_ms\":{:.3},\"link_bytes\":{:.0},\
         \"device_memory_bytes\":{:.0},\"fits\":{},\"chosen\":{}}}",
        quoted(&priced.split.to_string()),
        it.finish * 1e3,
        it.first_result * 1e3,
        it.host_busy * 1e3,
        it.host_cpu * 1e3,
        it.device_busy * 1e3,
        it.link_busy * 1e3,
        it.host_wait * 1e3,
        it.device_stall * 1e3,
        it.link_bytes,
        it.device_memory_bytes,
        it.fits,
        priced.is_chosen
    )
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn time(duration: Duration) -> String {
    let micros = duration.as_micros();
    if micros < 10_000 {
        format!("{:.3} ms", duration.as_secs_f64() * 1e3)
    } else if micros < 10_000_000 {
        format!("{:.1} ms", duration.as_secs_f64() * 1e3)
    } else {
        format!("{:.2} s", duration.as_secs_f64())
    }
}

fn bytes(count: u64) -> String {
    about_bytes(count as f64)
}

fn about_bytes(count: f64) -> String {
    if count < 10_000.0 {
        format!("{count:.0} B")
    } else if count < 10_000_000.0 {
        format!("{:.1} kB", count / 1e3)
    } else {
        format!("{:.1} MB", count / 1e6)
    }
}
