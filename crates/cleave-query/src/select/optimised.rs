//! The plan cache: a repeated query in, its cached plan after DataFusion's optimiser rules out.
//!
//! ```text
//!  query, values in their places ─▶ bind ─▶ optimise ─▶ order joins ─▶ physical plan ─▶ cuts
//!                                  └─── cached ───┘     └──── anew, each time ──────────┘
//! ```
//!
//! A query that comes a second time is cached, by its syntax tree. Its tables are slots then, which each use fills from
//! its own snapshot. The pages that its conditions leave, the order of its joins, its operators and its split are found
//! anew: these depend on rows (`docs/design/sql-and-planning.md`).
//!
//! Invariants: a cached plan refers to no catalog version. It is the same whenever the tables that the query names have
//! the same definitions: it has no function that may give another result next time or that reads anything but its
//! arguments, and no table but Cleave's.

use cleave_fragment::walk::{Walk, WalkPlan};
use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};

use cleave_store::TableSchema;
use datafusion::catalog::MemoryCatalogProviderList;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::logical_plan::builder::LogicalTableSource;
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan, TableSource, Volatility};
use datafusion::sql::sqlparser::ast;
use rustc_hash::FxBuildHasher;

use super::origins::ColumnOrigin;
use super::statement_context::StatementContext;
use super::table_provider::{CleaveTable, is_subquery};
use super::with_parts::{OptimisedPart, part_of};

/// Most plans that are kept; the one that was not asked for longest goes first.
const PLAN_COUNT_MAX: usize = 64;
/// Queries that are remembered, to know one that comes again.
const SEEN_COUNT_MAX: usize = 256;
/// A plan of more expressions takes too much memory.
const EXPRESSION_COUNT_MAX: usize = 2000;

/// The plans that a database keeps.
#[derive(Debug, Default)]
pub(crate) struct OptimisedPlans {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Those that were asked for last come first.
    plans: VecDeque<Arc<Optimised>>,
    /// Hashes of queries of which nothing is kept, the newest first.
    seen: VecDeque<u64>,
}

#[derive(Debug)]
struct Optimised {
    key: Key,
    query: ast::Query,
    /// The tables that the query names, as they were then.
    tables: Vec<Arc<TableSchema>>,
    /// Its tables are slots.
    plan: LogicalPlan,
    /// The same of queries of WITH that run by themselves.
    parts: Vec<OptimisedPart>,
    origins: Vec<Option<ColumnOrigin>>,
    /// Without tables.
    state: Arc<SessionState>,
}

/// An optimised query, over the tables of a statement.
pub(super) struct OptimisedQuery {
    pub(super) state: Arc<SessionState>,
    pub(super) plan: LogicalPlan,
    /// Queries of WITH that run by themselves.
    pub(super) parts: Vec<OptimisedPart>,
    /// Where the columns of its result come from.
    pub(super) origins: Vec<Option<ColumnOrigin>>,
    /// The tables and views that it names, if its result depends on nothing else and that was asked.
    pub(super) tables: Option<Vec<Arc<TableSchema>>>,
}

/// The hash by which a query is looked up, before it is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    hash: u64,
    partitions: usize,
    batch_size: u32,
}

impl Key {
    /// Of `query`, with values in the places of its parameters, for a host's half of so many `partitions`.
    pub(super) fn of(query: &ast::Query, partitions: usize, batch_size: u32) -> Self {
        Self { hash: FxBuildHasher.hash_one(query), partitions, batch_size }
    }
}

impl OptimisedPlans {
    /// The cached plan of `query`, with the tables of `context`; None: there is none, or its tables have changed.
    pub(super) fn get(
        &self,
        key: &Key,
        query: &ast::Query,
        context: &Arc<StatementContext>,
    ) -> Option<OptimisedQuery> {
        let found = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let is_it = |plan: &Arc<Optimised>| plan.key == *key && plan.query == *query;
            let place = kept.plans.iter().position(is_it)?;
            let found = kept.plans.remove(place)?;
            if !found.tables.iter().all(|schema| context.state().has(schema)) {
                return None;
            }
            kept.plans.push_front(Arc::clone(&found));
            found
        };
        let plan = with_tables(found.plan.clone(), context)?;
        let parts = found
            .parts
            .iter()
            .cloned()
            .map(|part| Some(OptimisedPart { plan: with_tables(part.plan, context)?, ..part }));
        let (state, origins) = (Arc::clone(&found.state), found.origins.clone());
        let (parts, tables) = (parts.collect::<Option<_>>()?, Some(found.tables.clone()));
        Some(OptimisedQuery { state, plan, parts, origins, tables })
    }

    /// Keeps `optimised` and `parts`, which are what became of `bound`, if the query has come before and can be kept.
    pub(super) fn keep(
        &self,
        key: Key,
        query: &ast::Query,
        tables: &[Arc<TableSchema>],
        state: &SessionState,
        bound: &[&LogicalPlan],
        (optimised, parts, origins): (&LogicalPlan, &[OptimisedPart], &[Option<ColumnOrigin>]),
    ) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.seen.contains(&key.hash) {
            kept.seen.truncate(SEEN_COUNT_MAX - 1);
            kept.seen.push_front(key.hash);
            return;
        }
        kept.seen.retain(|seen| *seen != key.hash);
        drop(kept);
        if !says_the_same(bound) {
            return;
        }
        let Some(plan) = cached_plan(optimised) else { return };
        let parts = parts
            .iter()
            .map(|part| Some(OptimisedPart { plan: cached_plan(&part.plan)?, ..part.clone() }));
        let Some(parts) = parts.collect::<Option<Vec<_>>>() else { return };
        let mut state = state.clone();
        state.register_catalog_list(Arc::new(MemoryCatalogProviderList::new()));
        let (query, tables, state) = (query.clone(), tables.to_vec(), Arc::new(state));
        let origins = origins.to_vec();
        let plan = Arc::new(Optimised { key, query, tables, plan, parts, origins, state });
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.plans.truncate(PLAN_COUNT_MAX - 1);
        kept.plans.push_front(plan);
    }
}

/// Whether the result of `optimised` and `parts`, which are what became of `bound`, depends on the tables that they
/// name and on nothing else.
pub(super) fn depends_on_tables(
    bound: &[&LogicalPlan],
    optimised: &LogicalPlan,
    parts: &[OptimisedPart],
) -> bool {
    let plans = || parts.iter().map(|part| &part.plan).chain([optimised]);
    says_the_same(bound) && plans().all(|plan| cached_plan(plan).is_some())
}

/// Whether the optimised form of the plans `bound` is the same each time, and not too large.
pub(super) fn says_the_same(bound: &[&LogicalPlan]) -> bool {
    let mut count = 0;
    bound.iter().all(|plan| {
        all_expressions(plan, &mut |expr| {
            count += 1;
            count <= EXPRESSION_COUNT_MAX && is_of_arguments_alone(expr)
        })
    })
}

/// `optimised` with slots for its tables; None: they have none.
pub(super) fn cached_plan(optimised: &LogicalPlan) -> Option<LogicalPlan> {
    let is_flat = all_expressions(optimised, &mut |expr| !is_subquery(expr));
    if !is_flat {
        return None;
    }
    let slot = |scan: &TableScan| -> Option<Arc<dyn TableSource>> {
        // It refers to no catalog version.
        if part_of(scan).is_some() {
            return Some(Arc::clone(&scan.source));
        }
        let provider = source_as_provider(&scan.source).ok()?;
        let name = provider.downcast_ref::<CleaveTable>()?.plain_name()?;
        let schema = scan.source.schema();
        let slot = || Arc::new(LogicalTableSource::new(schema)) as Arc<dyn TableSource>;
        (name == scan.table_name.table()).then(slot)
    };
    with_sources(optimised.clone(), &slot)
}

/// Whether `expr` by itself always says the same of the same arguments; no function does that was made for one
/// statement.
fn is_of_arguments_alone(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(call) => call.func.signature().volatility == Volatility::Immutable,
        Expr::AggregateFunction(call) => call.func.signature().volatility == Volatility::Immutable,
        Expr::ScalarVariable(..) => false,
        _ => true,
    }
}

/// `plan` over the tables of `context`.
fn with_tables(plan: LogicalPlan, context: &Arc<StatementContext>) -> Option<LogicalPlan> {
    with_sources(plan, &|scan| {
        if part_of(scan).is_some() {
            return Some(Arc::clone(&scan.source));
        }
        let table = context.find_table(scan.table_name.table()).ok()?;
        let table = CleaveTable::new(Arc::clone(table), Arc::clone(context));
        Some(provider_as_source(Arc::new(table)))
    })
}

/// `plan` with the source that `of` gives for each scan; None: it gives none for one of them.
fn with_sources(
    plan: LogicalPlan,
    of: &dyn Fn(&TableScan) -> Option<Arc<dyn TableSource>>,
) -> Option<LogicalPlan> {
    let mut is_whole = true;
    let plan = plan.transform_down(|node| {
        let LogicalPlan::TableScan(mut scan) = node else { return Ok(Transformed::no(node)) };
        match of(&scan) {
            Some(source) => scan.source = source,
            None => is_whole = false,
        }
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    });
    plan.ok().map(|plan| plan.data).filter(|_| is_whole)
}

/// Whether `is` holds for all expressions of `plan`, those of its subqueries included.
fn all_expressions(plan: &LogicalPlan, is: &mut dyn FnMut(&Expr) -> bool) -> bool {
    let mut all = true;
    let looked = plan.apply_everywhere(|node| {
        node.each_expression(|expression| {
            expression.apply(|expression| {
                all &= is(expression);
                Ok(if all { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
            })
        })
    });
    all && looked.is_ok()
}
