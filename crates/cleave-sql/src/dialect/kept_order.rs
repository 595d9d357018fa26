//! The order of a subquery in FROM, kept for who sees it. DataFusion takes it for meaningless.
//!
//! ```text
//!  array_agg(k) of (Sort [i] of x)        ─▶ array_agg(k ORDER BY i) of x
//!  row_number() OVER () of (Sort [i] of x) ─▶ row_number() OVER (ORDER BY i) of x
//!  Limit of (Sort [i] of x)               ─▶ Limit of Sort [i] of x
//!  (Sort [i] of x) as the whole query     ─▶ Sort [i] of x
//!  (Sort [i] of x) in a join, below count(*), in IN ─▶ x
//! ```
//!
//! A sort is taken out of its subquery, and its keys are handed up through projections, conditions and names to the
//! first operator that sees an order. A key that a projection leaves out becomes a hidden column of it. So the order is
//! part of what an operator asks for: no cut, exchange or number of partitions changes it.
//!
//! A sort of the query itself is left where it is.

use std::sync::Arc;

use cleave_fragment::walk::Walk;
use datafusion::common::Column;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{AggregateFunction, Sort as SortKey, WindowFunction};
use datafusion::logical_expr::{
    Aggregate, Distinct, DistinctOn, Expr, Filter, Limit, LogicalPlan, Projection, Sort,
    SubqueryAlias, Window, WindowFrame, WindowFrameBound, WindowFrameUnits,
};

use super::rewrite::has_operator;

/// Prefix of the reserved names of hidden columns.
const KEY: &str = "__order_key_";

/// Aggregates whose value depends on the order of their input.
const BY_ORDER: [&str; 5] = ["array_agg", "string_agg", "first_value", "last_value", "nth_value"];

/// Window functions that number or find rows by their order.
const BY_PLACE: [&str; 9] = [
    "row_number",
    "ntile",
    "lag",
    "lead",
    "lag_by_row",
    "lead_by_row",
    "first_value",
    "last_value",
    "nth_value",
];

/// Window functions for which all rows without an order are equal.
const BY_PEERS: [&str; 4] = ["rank", "dense_rank", "percent_rank", "cume_dist"];

/// `plan`, in which the order of subqueries is kept where something depends on it, and dropped elsewhere.
pub(super) fn keep_order(plan: LogicalPlan) -> Result<LogicalPlan> {
    if !has_operator(&plan, |node| Ok(is_ordered(node)))? {
        return Ok(plan);
    }
    Kept::default().settled(plan, Asked { is_wanted: true, is_within: false })
}

/// Whether `node` names a subquery with an order.
fn is_ordered(node: &LogicalPlan) -> bool {
    let LogicalPlan::SubqueryAlias(alias) = node else { return false };
    let mut input = &alias.input;
    loop {
        input = match &**input {
            LogicalPlan::Sort(_) => return true,
            LogicalPlan::Projection(node) => &node.input,
            LogicalPlan::SubqueryAlias(node) => &node.input,
            LogicalPlan::Filter(node) => &node.input,
            LogicalPlan::Limit(node) => &node.input,
            LogicalPlan::Window(node) => &node.input,
            _ => return false,
        }
    }
}

/// Whether `plan` is a query with ORDER BY.
fn is_sorted(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(projection) => is_sorted(&projection.input),
        _ => false,
    }
}

/// A column by which an operator's rows are in order.
#[derive(Debug, Clone, Copy)]
struct Key {
    place: usize,
    asc: bool,
    nulls_first: bool,
}

impl Key {
    fn sort(self, plan: &LogicalPlan) -> SortKey {
        let column = Expr::Column(Column::from(plan.schema().qualified_field(self.place)));
        SortKey::new(column, self.asc, self.nulls_first)
    }
}

fn sorts(keys: &[Key], plan: &LogicalPlan) -> Vec<SortKey> {
    keys.iter().map(|key| key.sort(plan)).collect()
}

/// What the operator above asks for.
#[derive(Debug, Clone, Copy)]
struct Asked {
    /// It sees the order.
    is_wanted: bool,
    /// The operator is within a subquery in FROM.
    is_within: bool,
}

impl Asked {
    fn wanted(self, is_wanted: bool) -> Self {
        Self { is_wanted, ..self }
    }
}

#[derive(Debug, Default)]
struct Kept {
    hidden: usize,
}

impl Kept {
    /// `plan` with its own columns, in its order if that is asked for.
    fn settled(&mut self, plan: LogicalPlan, asked: Asked) -> Result<LogicalPlan> {
        let columns = plan.schema().fields().len();
        let (plan, keys) = self.taken(plan, asked)?;
        if keys.is_empty() {
            return Ok(plan);
        }
        trimmed(sorted(plan, &keys), columns)
    }

    /// `plan` without its order, and the columns that tell it; none unless it is wanted. Hidden columns may follow its
    /// own.
    fn taken(&mut self, plan: LogicalPlan, asked: Asked) -> Result<(LogicalPlan, Vec<Key>)> {
        let plan = self.in_subqueries(plan)?;
        match plan {
            LogicalPlan::SubqueryAlias(SubqueryAlias { input, alias, .. }) => {
                let asked = Asked { is_within: true, ..asked };
                let (input, keys) = self.taken(Arc::unwrap_or_clone(input), asked)?;
                let named = SubqueryAlias::try_new(Arc::new(input), alias)?;
                Ok((LogicalPlan::SubqueryAlias(named), keys))
            }
            LogicalPlan::Projection(projection) => self.projection(projection, asked),
            LogicalPlan::Filter(Filter { predicate, input, .. }) => {
                let (input, keys) = self.taken(Arc::unwrap_or_clone(input), asked)?;
                Ok((LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?), keys))
            }
            LogicalPlan::Sort(sort) => self.sort(sort, asked),
            // Nothing above sees the order, and its own sort is in place.
            LogicalPlan::Limit(limit) if !asked.is_wanted && is_sorted(&limit.input) => {
                let own = Asked { is_wanted: false, is_within: false };
                Ok((self.over(LogicalPlan::Limit(limit), own)?, Vec::new()))
            }
            LogicalPlan::Limit(Limit { skip, fetch, input }) => {
                let columns = input.schema().fields().len();
                let (mut input, mut keys) =
                    self.taken(Arc::unwrap_or_clone(input), asked.wanted(true))?;
                if !keys.is_empty() {
                    input = sorted(input, &keys);
                }
                if !asked.is_wanted {
                    input = trimmed(input, columns)?;
                    keys.clear();
                }
                Ok((LogicalPlan::Limit(Limit { skip, fetch, input: Arc::new(input) }), keys))
            }
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate, asked),
            LogicalPlan::Window(window) => self.window(window, asked),
            LogicalPlan::Distinct(Distinct::On(on)) if on.sort_expr.is_none() => {
                self.distinct_on(on, asked)
            }
            // One of these keeps the order of its rows, but has no hidden columns.
            LogicalPlan::Unnest(_) => Ok((self.over(plan, asked)?, Vec::new())),
            plan => Ok((self.over(plan, asked.wanted(false))?, Vec::new())),
        }
    }

    /// `plan` over inputs with their own columns.
    fn over(&mut self, plan: LogicalPlan, asked: Asked) -> Result<LogicalPlan> {
        let changed = plan.map_children(|input| Ok(Transformed::yes(self.settled(input, asked)?)));
        Ok(changed?.data)
    }

    fn in_subqueries(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let changed = plan.map_subqueries(|node| match node {
            LogicalPlan::Subquery(mut subquery) => {
                let own = Arc::unwrap_or_clone(subquery.subquery);
                let asked = Asked { is_wanted: false, is_within: false };
                subquery.subquery = Arc::new(self.settled(own, asked)?);
                Ok(Transformed::yes(LogicalPlan::Subquery(subquery)))
            }
            node => Ok(Transformed::no(node)),
        });
        Ok(changed?.data)
    }

    fn projection(
        &mut self,
        projection: Projection,
        asked: Asked,
    ) -> Result<(LogicalPlan, Vec<Key>)> {
        let Projection { mut expr, input, schema, .. } = projection;
        let (input, mut keys) = self.taken(Arc::unwrap_or_clone(input), asked)?;
        if keys.is_empty() {
            let same = Projection::try_new_with_schema(expr, Arc::new(input), schema)?;
            return Ok((LogicalPlan::Projection(same), keys));
        }
        for key in &mut keys {
            let column = Column::from(input.schema().qualified_field(key.place));
            let is_it = |own: &Expr| match own {
                Expr::Column(own) => *own == column,
                Expr::Alias(own) => matches!(&*own.expr, Expr::Column(own) if *own == column),
                _ => false,
            };
            key.place = match expr.iter().position(is_it) {
                Some(place) => place,
                None => {
                    expr.push(Expr::Column(column).alias(self.name()));
                    expr.len() - 1
                }
            };
        }
        let changed = Projection::try_new(expr, Arc::new(input))?;
        Ok((LogicalPlan::Projection(changed), keys))
    }

    fn sort(&mut self, sort: Sort, asked: Asked) -> Result<(LogicalPlan, Vec<Key>)> {
        let Sort { expr, input, fetch } = sort;
        let input = self.settled(Arc::unwrap_or_clone(input), asked.wanted(false))?;
        if !asked.is_within {
            let same = Sort { expr, input: Arc::new(input), fetch };
            return Ok((LogicalPlan::Sort(same), Vec::new()));
        }
        if !asked.is_wanted && fetch.is_none() {
            return Ok((input, Vec::new()));
        }
        let mut columns: Vec<Expr> =
            input.schema().columns().into_iter().map(Expr::Column).collect();
        let own_count = columns.len();
        let mut keys = Vec::with_capacity(expr.len());
        for SortKey { expr, asc, nulls_first } in expr {
            let place = columns.iter().position(|column| *column == expr);
            let place = place.unwrap_or_else(|| {
                columns.push(expr.alias(self.name()));
                columns.len() - 1
            });
            keys.push(Key { place, asc, nulls_first });
        }
        let mut plan = match columns.len() > own_count {
            true => LogicalPlan::Projection(Projection::try_new(columns, Arc::new(input))?),
            false => input,
        };
        if fetch.is_some() {
            let expr = sorts(&keys, &plan);
            plan = LogicalPlan::Sort(Sort { expr, input: Arc::new(plan), fetch });
        }
        match asked.is_wanted {
            true => Ok((plan, keys)),
            false => Ok((trimmed(plan, own_count)?, Vec::new())),
        }
    }

    fn aggregate(&mut self, aggregate: Aggregate, asked: Asked) -> Result<(LogicalPlan, Vec<Key>)> {
        let Aggregate { input, group_expr, aggr_expr, schema, .. } = aggregate;
        let is_wanted = aggr_expr.iter().any(|expr| {
            matches!(expr.clone().unalias(), Expr::AggregateFunction(own) if is_by_order(&own))
        });
        let (input, keys) = self.taken(Arc::unwrap_or_clone(input), asked.wanted(is_wanted))?;
        let input = Arc::new(input);
        if keys.is_empty() {
            let same = Aggregate::try_new_with_schema(input, group_expr, aggr_expr, schema)?;
            return Ok((LogicalPlan::Aggregate(same), keys));
        }
        let order = sorts(&keys, &input);
        let aggr_expr = aggr_expr.into_iter().map(|expr| match expr.clone().unalias() {
            Expr::AggregateFunction(mut own) if is_by_order(&own) => {
                own.params.order_by.clone_from(&order);
                Expr::AggregateFunction(own).alias(expr.schema_name().to_string())
            }
            _ => expr,
        });
        let changed = Aggregate::try_new(input, group_expr, aggr_expr.collect())?;
        Ok((LogicalPlan::Aggregate(changed), Vec::new()))
    }

    fn window(&mut self, window: Window, asked: Asked) -> Result<(LogicalPlan, Vec<Key>)> {
        let Window { input, window_expr, .. } = window;
        let params = |expr: &Expr| match expr.clone().unalias() {
            Expr::WindowFunction(own) => Some(own),
            _ => None,
        };
        let own: Vec<_> = window_expr.iter().filter_map(params).collect();
        let has_by_rows = own.iter().any(|own| is_by_rows(own));
        // It sorts its rows itself.
        let sorts_itself = own
            .iter()
            .any(|own| !own.params.order_by.is_empty() || !own.params.partition_by.is_empty());
        let is_wanted = has_by_rows || asked.is_wanted && !sorts_itself;
        let own_count = input.schema().fields().len();
        let (input, keys) = self.taken(Arc::unwrap_or_clone(input), asked.wanted(is_wanted))?;
        if keys.is_empty() {
            let same = Window::try_new(window_expr, Arc::new(input))?;
            return Ok((LogicalPlan::Window(same), keys));
        }
        let order = sorts(&keys, &input);
        let columns = input.schema().columns();
        let names: Vec<String> =
            window_expr.iter().map(|expr| expr.schema_name().to_string()).collect();
        let with_order = window_expr.into_iter().map(|expr| match expr.unalias() {
            Expr::WindowFunction(mut own) if is_by_rows(&own) => {
                own.params.order_by.clone_from(&order);
                if own.params.window_frame.units != WindowFrameUnits::Rows {
                    own.params.window_frame = whole();
                }
                Expr::WindowFunction(own)
            }
            other => other,
        });
        let with_order: Vec<Expr> = with_order.collect();
        let made: Vec<String> =
            with_order.iter().map(|expr| expr.schema_name().to_string()).collect();
        let changed = LogicalPlan::Window(Window::try_new(with_order, Arc::new(input))?);
        let results = made.into_iter().zip(names);
        let results = results.map(|(made, name)| Expr::Column(Column::from_name(made)).alias(name));
        // Its own columns, its results, and then what is hidden.
        let mut keys = keys;
        let result_count = changed.schema().fields().len() - columns.len();
        for key in &mut keys {
            if key.place >= own_count {
                key.place += result_count;
            }
        }
        let (own, hidden) = columns.split_at(own_count.min(columns.len()));
        let column = |column: &Column| Expr::Column(column.clone());
        let all = own.iter().map(column).chain(results).chain(hidden.iter().map(column)).collect();
        let named = LogicalPlan::Projection(Projection::try_new(all, Arc::new(changed))?);
        match asked.is_wanted && !sorts_itself {
            true => Ok((named, keys)),
            false => Ok((trimmed(named, own_count + result_count)?, Vec::new())),
        }
    }

    fn distinct_on(&mut self, on: DistinctOn, asked: Asked) -> Result<(LogicalPlan, Vec<Key>)> {
        let DistinctOn { on_expr, select_expr, input, .. } = on;
        let (input, keys) = self.taken(Arc::unwrap_or_clone(input), asked.wanted(true))?;
        let order = (!keys.is_empty()).then(|| {
            let keys = sorts(&keys, &input);
            let of = |on: &Expr| keys.iter().find(|key| key.expr == *on).cloned();
            let first = on_expr
                .iter()
                .map(|on| of(on).unwrap_or_else(|| SortKey::new(on.clone(), true, false)));
            let rest = keys.iter().filter(|key| !on_expr.contains(&key.expr)).cloned();
            first.chain(rest).collect()
        });
        let changed = DistinctOn::try_new(on_expr, select_expr, order, Arc::new(input))?;
        Ok((LogicalPlan::Distinct(Distinct::On(changed)), Vec::new()))
    }

    fn name(&mut self) -> String {
        self.hidden += 1;
        format!("{KEY}{}", self.hidden)
    }
}

fn sorted(plan: LogicalPlan, keys: &[Key]) -> LogicalPlan {
    let expr = sorts(keys, &plan);
    LogicalPlan::Sort(Sort { expr, input: Arc::new(plan), fetch: None })
}

/// The first columns of `plan`.
fn trimmed(plan: LogicalPlan, columns: usize) -> Result<LogicalPlan> {
    let own = plan.schema().columns();
    if own.len() <= columns {
        return Ok(plan);
    }
    let own = own.into_iter().take(columns).map(Expr::Column).collect();
    Ok(LogicalPlan::Projection(Projection::try_new(own, Arc::new(plan))?))
}

fn is_by_order(function: &AggregateFunction) -> bool {
    let params = &function.params;
    params.order_by.is_empty() && !params.distinct && BY_ORDER.contains(&function.func.name())
}

/// Whether the value of a window function depends on the order of its input.
fn is_by_rows(function: &WindowFunction) -> bool {
    let name = function.fun.name();
    function.params.order_by.is_empty()
        && !BY_PEERS.contains(&name)
        && (BY_PLACE.contains(&name)
            || BY_ORDER.contains(&name)
            || function.params.window_frame.units == WindowFrameUnits::Rows)
}

/// All rows of the partition.
fn whole() -> WindowFrame {
    WindowFrame::new_bounds(
        WindowFrameUnits::Rows,
        WindowFrameBound::Preceding(datafusion::common::ScalarValue::UInt64(None)),
        WindowFrameBound::Following(datafusion::common::ScalarValue::UInt64(None)),
    )
}
