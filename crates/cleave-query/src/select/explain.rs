//! EXPLAIN: the plan with its cuts, the reason for each, and, with ANALYZE, what was measured.
//!
//! 1. [`plan_nodes`](mod@plan_nodes) lists the operators, on both sides of the cuts. [`wording`] says what each does,
//!    with the expressions of [`expression_text`].
//! 2. [`Tail`] has what stands below the plan: [`candidates`], [`figures`] and [where the time went](spent), among
//!    others.
//! 3. [`text`] or [`json`](mod@json) shows both. VERBOSE and JSON have everything; plain text leaves out what tells a
//!    person nothing.

mod below_cuts;
mod calls;
mod candidates;
mod column_tables;
mod device_names;
mod expression_text;
mod figures;
mod json;
mod page_filters;
mod plan_nodes;
mod spent;
mod stages;
mod text;
mod timeline;
mod unrun;
mod used_statistics;
mod wording;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use cleave_catalog::error::Result;
use cleave_catalog::settings::Settings;
use cleave_plan::PlanEstimates;
use cleave_plan::cardinality::estimate_rows_with;
use cleave_plan::profile::Origin;
use cleave_plan::split::PricedSplit;
use cleave_sql::statement::ExplainFormat;
use datafusion::arrow::array::{RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::physical_plan::ExecutionPlan;

use self::below_cuts::{Sources, fragments};
use self::json::json;
use self::plan_nodes::{PlanNode, plan_nodes};
use self::spent::Spent;
use self::text::{plain_lines, verbose_lines};
use super::index_choice::IndexChoice;
use super::{
    ComparedOrders, PlannedQuery, PricedOrder, QueryRequest, RunningQuery, has_link, plan_shown,
};
use crate::cooperative::figures::{FragmentFigures, QueryFigures};
use crate::query_engine::QueryEngine;

/// Runs EXPLAIN on a query: one text column, a row a line; or one row of JSON. `change` is what is done with its rows
/// on the host, if it is not run.
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
    let mut nodes = query_nodes(&planned, false);
    let mut tail = Tail::of(&planned, None);
    if let Some(change) = change {
        nodes.iter_mut().for_each(|node| node.depth += 1);
        nodes.insert(0, PlanNode::named(change.what));
        if !change.placement.is_empty() {
            tail.groups.push(("Placement", change.placement));
        }
    }
    shown(lines(&nodes, &tail, &planned_plans(&planned, plan), format)?)
}

/// How an INSERT, UPDATE or DELETE changes rows, for EXPLAIN.
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
        let Measured { nodes, tail, plans, .. } = self.measured(Vec::new(), &[]);
        shown(lines(&nodes, &tail, &plans, format)?)
    }

    /// The same of one that has run, with figures of the run and those of its fragments.
    #[must_use]
    pub fn measured(
        self,
        figures: Vec<(String, String)>,
        fragments: &[FragmentFigures],
    ) -> Measured {
        let mut nodes = vec![PlanNode::named(self.what)];
        for (plan, estimates) in &self.fragments {
            let of_fragment = plan_nodes(plan, false, estimates).into_iter();
            nodes.extend(of_fragment.map(|node| PlanNode { depth: node.depth + 1, ..node }));
        }
        let mut groups = vec![("Placement", self.placement), ("Measured", figures)];
        groups.extend(fragments.iter().map(|own| ("Fragment", figures::fragment_lines(own))));
        let tail = Tail { groups, ..Tail::default() };
        let plans = self.fragments.into_iter().map(|(plan, _)| plan).collect();
        Measured { nodes, tail, plans, is_whole: true, spent: None }
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
    if !query.stages.is_empty() {
        let named = |text: String| stages::named(text, query);
        for node in &mut nodes {
            node.detail = named(std::mem::take(&mut node.detail));
            node.words = std::mem::take(&mut node.words).renamed(&named);
        }
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
    let (plan, known) = (&query.cuts.plan, query.context.estimates());
    let sources = Sources::of(plan);
    let rows = estimate_rows_with(plan, &known, &|node| sources.below(node));
    rows.first().copied().unwrap_or(1.0)
}

/// A query that has run, as EXPLAIN ANALYZE shows it.
#[derive(Debug)]
pub struct Measured {
    nodes: Vec<PlanNode>,
    tail: Tail,
    plans: Vec<Arc<dyn ExecutionPlan>>,
    /// Whether the first node is the statement, and not its query.
    is_whole: bool,
    /// Where the time of its query went.
    spent: Option<Spent>,
}

impl Measured {
    /// The measurements of `running`, which has given its last row.
    pub async fn of(running: &mut RunningQuery) -> Result<Self> {
        let figures = running.figures().await?;
        let nodes = query_nodes(running.planned(), true);
        let spent = Spent::of(&nodes, &figures);
        let tail = Tail::of(running.planned(), Some((&figures, spent)));
        let plans = planned_plans(running.planned(), Arc::clone(running.plan()));
        Ok(Self { nodes, tail, plans, is_whole: false, spent: Some(spent) })
    }

    /// The same of a statement that took so long, of which it has all, or the query.
    #[must_use]
    pub fn within(mut self, elapsed: Duration) -> Self {
        self.spent = self.spent.map(|spent| spent.with_writing(elapsed));
        if let Some(spent) = self.spent {
            self.tail.execution = Some(spent.execution);
            for (title, lines) in &mut self.tail.groups {
                match *title {
                    "Where the time went" => *lines = spent.lines(),
                    "Measured" => {
                        let line = lines.iter_mut().find(|(name, _)| name == "execution time");
                        line.into_iter().for_each(|(_, text)| *text = time(spent.execution));
                    }
                    _ => {}
                }
            }
        }
        if self.is_whole {
            self.nodes.iter_mut().take(1).for_each(|node| node.time = Some(elapsed));
            self.tail.execution = Some(elapsed);
            let line = ("execution time".to_owned(), time(elapsed));
            let measured = self.tail.groups.iter_mut().find(|(title, _)| *title == "Measured");
            measured.into_iter().for_each(|(_, lines)| lines.push(line.clone()));
        }
        self
    }

    /// The same below what was done with its rows, which `what` describes, and of so many `rows`, if it was done.
    pub fn shown(
        mut self,
        what: String,
        rows: Option<usize>,
        format: ExplainFormat,
    ) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        if !self.is_whole {
            self.nodes.iter_mut().for_each(|node| node.depth += 1);
            let time = self.spent.and_then(|spent| spent.writing);
            self.nodes.insert(0, PlanNode { time, ..PlanNode::named(what) });
        }
        if let Some(node) = self.nodes.first_mut().filter(|_| format == ExplainFormat::Json) {
            // In the text it is what says the number.
            node.rows = rows;
        }
        shown(lines(&self.nodes, &self.tail, &self.plans, format)?)
    }
}

fn lines(
    nodes: &[PlanNode],
    tail: &Tail,
    plans: &[Arc<dyn ExecutionPlan>],
    format: ExplainFormat,
) -> Result<Vec<String>> {
    Ok(match format {
        ExplainFormat::Text => plain_lines(nodes, tail),
        ExplainFormat::Verbose => verbose_lines(nodes, tail),
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
    let mut node = PlanNode::named(what);
    if let Some((rows, elapsed)) = measured.filter(|_| format == ExplainFormat::Json) {
        // The text has both below.
        (node.rows, node.time) = (Some(rows), Some(elapsed));
    }
    let nodes = [node];
    let lines = measured.map(|(rows, elapsed)| {
        let line = |name: &str, value: String| (name.to_owned(), value);
        vec![line("rows", rows.to_string()), line("execution time", time(elapsed))]
    });
    let groups = vec![("Measured", lines.unwrap_or_default())];
    let (planning, execution) =
        (measured.map(|_| Duration::ZERO), measured.map(|(_, elapsed)| elapsed));
    let tail = Tail { groups, planning, execution, ..Tail::default() };
    shown(match format {
        ExplainFormat::Text => plain_lines(&nodes, &tail),
        ExplainFormat::Verbose => verbose_lines(&nodes, &tail),
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
#[derive(Debug, Default)]
struct Tail {
    groups: Vec<(&'static str, Vec<(String, String)>)>,
    /// The prediction for each split.
    priced: Vec<PricedSplit>,
    /// The orders of joins that were compared.
    orders: ComparedOrders,
    /// The table of these predictions, a line each.
    candidates: Vec<String>,
    /// The figures used; `None`: nothing was priced.
    profile: Option<Origin>,
    /// Of one that has run.
    planning: Option<Duration>,
    execution: Option<Duration>,
}

impl Tail {
    fn of(query: &PlannedQuery, figures: Option<(&QueryFigures, Spent)>) -> Self {
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
        let must_save = candidates::must_save(&priced, has_link, query);
        let mut table = candidates::table(&priced, has_link, query.split);
        table.extend(must_save.iter().map(|(name, text)| format!("  {name}: {text}")));
        let has_moved = figures.is_some_and(|(figures, _)| {
            figures.fragments.iter().any(|own| own.turned.is_some() || own.refused.is_some())
        });
        if has_moved && !table.is_empty() {
            table.push(
                "  chosen, but a fragment ran on another side than planned: see Fragment"
                    .to_owned(),
            );
        }
        let mut splits: Vec<_> =
            priced.iter().map(|split| candidates::line(split, has_link)).collect();
        splits.extend(must_save);
        let mut groups = vec![
            ("Cuts", cuts),
            ("Orders", order_lines(&query.orders)),
            ("Splits", splits),
            ("Stages", stages::lines(query)),
            ("Page filters", page_filters::lines(query)),
            ("Pages", pages),
            ("Statistics", statistics),
        ];
        if let Some((figures, spent)) = figures {
            groups.push(("Measured", figures::measured(figures)));
            groups.push(("Where the time went", spent.lines()));
            let mut looked_up = Vec::new();
            figures::host_look_ups(&query.cuts.plan, &mut looked_up);
            groups.push(("Indexes", looked_up));
            let devices = query.context.database().devices();
            for fragment in &figures.fragments {
                let lines = device_names::named(figures::fragment_lines(fragment), &devices);
                groups.push(("Fragment", lines));
            }
        }
        Self {
            groups,
            priced,
            orders: query.orders.clone(),
            candidates: table,
            profile: Some(query.profile),
            planning: figures.map(|(_, spent)| spent.planning),
            execution: figures.map(|(_, spent)| spent.execution),
        }
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

fn seconds(seconds: f64) -> String {
    time(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX))
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

/// An estimate of bytes, as EXPLAIN writes it.
#[must_use]
pub fn about_bytes(count: f64) -> String {
    if count < 10_000.0 {
        format!("{count:.0} B")
    } else if count < 10_000_000.0 {
        format!("{:.1} kB", count / 1e3)
    } else {
        format!("{:.1} MB", count / 1e6)
    }
}
