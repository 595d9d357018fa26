//! Whether the rows of a query can be brought up to date from what its tables have got and lost, and how.
//!
//! ```text
//!  Q(A', B') = Q(A, B) + Q(ΔA, B') + Q(A, ΔB)
//! ```
//!
//! Filters, projections and inner joins are linear in each table that they read once: each row of such a table has its
//! rows of the result, whatever the others are. So what a query has over the rows that one table has got comes to its
//! result, and what it has over those that are lost goes. An aggregate over these adds up by group: a count or an
//! exact sum can be subtracted from, a minimum or maximum only gets rows. Whatever else an aggregate computes, only the
//! groups that got or lost rows can have changed ([`Upkeep::computes_groups`]). DISTINCT is an aggregate of keys.
//!
//! [`upkeep`] looks at the bound plan, before any rule, with its views in their places. Deliberately absent: outer
//! joins, UNION, aggregates below other operators, tables that are read twice.
//!
//! Source: Gupta and Mumick, "Maintenance of Materialized Views" (1995).

use std::sync::Arc;

use cleave_catalog::error::Result;
use cleave_catalog::settings::Settings;
use cleave_fragment::functions::exact_sum;
use cleave_fragment::walk::{Walk, WalkPlan};
use cleave_sql::statement::locked_parts::GivenRows;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::JoinType;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Aggregate, Distinct, Expr, ExprSchemable, LogicalPlan};
use datafusion::sql::sqlparser::ast;

use super::optimised::says_the_same;
use super::table_provider::{CleaveTable, is_subquery};
use super::{Bound, ReadView, bind, small_query};
use crate::planner::planning;
use crate::query_engine::QueryEngine;

/// How the rows of a query follow the changes of its tables.
#[derive(Debug, Clone)]
pub struct Upkeep {
    /// Ids of the tables that it reads.
    pub tables: Vec<u32>,
    /// How each column of its result combines.
    pub columns: Vec<Combined>,
    /// Whether it is an aggregate: rows with the same keys are one.
    pub is_aggregate: bool,
    /// Why rows of one group do not combine, but only what the query has over all of its rows tells; None: they do.
    pub anew: Option<String>,
    /// Whether HAVING chooses among its groups: without it, it has all groups.
    pub has_having: bool,
}

/// How the values of one column combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combined {
    /// They do not: rows differ by it.
    Key,
    /// The number of all rows of a group.
    Rows,
    /// A number of some rows.
    Count,
    /// A sum; NULL where the `count`, a column's index, is 0. None: nothing tells that, if it is 0 itself.
    Sum {
        /// See above.
        count: Option<usize>,
    },
    /// The least value.
    Min,
    /// The greatest value.
    Max,
    /// They do not: it is computed over all rows of a group.
    Anew,
}

impl Upkeep {
    /// Why the groups that got or lost rows are to be computed anew, if rows are lost or none; None: they are combined
    /// with the rows of the result.
    #[must_use]
    pub fn computes_groups(&self, loses: bool) -> Option<&str> {
        if self.anew.is_some() || !self.is_aggregate || !loses {
            return self.anew.as_deref();
        }
        let has = |is: fn(&Combined) -> bool| self.columns.iter().any(is);
        if has(|column| matches!(column, Combined::Min | Combined::Max)) {
            return Some("min and max cannot give up rows");
        }
        (!has(|column| *column == Combined::Rows))
            .then_some("without count(*), nothing tells which groups have ended")
    }

    /// Whether its groups have keys.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        self.columns.contains(&Combined::Key)
    }
}

/// How the rows of `query`, over the tables of `view`, follow their changes; an error text: why they do not.
///
/// # Errors
/// Those of binding it.
pub async fn upkeep(
    database: &Arc<QueryEngine>,
    settings: &Settings,
    view: &ReadView,
    query: &ast::Query,
) -> Result<Result<Upkeep, String>> {
    let planning = planning::Planning::new(settings, &database.query_runtime());
    let is_small = small_query::is_small(query, &view.state);
    let (own, settings) = (Arc::clone(database), settings.clone());
    let (view, query) = (view.clone(), query.clone());
    let found = async move {
        let given = GivenRows::default();
        let bound = bind(&own, &settings, Some(&view), query, &given, |_| Ok(()));
        let (Bound { logical, parts, .. }, _) = Box::pin(bound).await?;
        Ok(match parts.is_empty() {
            true => of_plan(&logical),
            false => Err("a query of WITH is used more than once".to_owned()),
        })
    };
    Box::pin(planning.over(is_small, found)).await
}

fn of_plan(plan: &LogicalPlan) -> Result<Upkeep, String> {
    if !says_the_same(&[plan]) {
        return Err("it calls functions that are not immutable".to_owned());
    }
    let mut tables = Vec::new();
    let (mut top, outputs) = below_renaming(plan)?;
    let mut has_having = false;
    if let LogicalPlan::Filter(filter) = top
        && matches!(*filter.input, LogicalPlan::Aggregate(_))
    {
        check_expressions(top)?;
        top = &*filter.input;
        has_having = true;
    }
    match top {
        LogicalPlan::Aggregate(aggregate) => {
            check_expressions(top)?;
            check_linear(&aggregate.input, &mut tables)?;
            let (columns, mut anew) = combined(aggregate, &outputs)?;
            if has_having {
                anew.get_or_insert("it has HAVING".to_owned());
            }
            Ok(Upkeep { tables, columns, is_aggregate: true, anew, has_having })
        }
        LogicalPlan::Distinct(Distinct::All(input)) => {
            check_linear(input, &mut tables)?;
            let count = input.schema().fields().len();
            let keys: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
            check_keys(&keys, input, &outputs)?;
            if outputs.iter().any(Option::is_none) || outputs.len() != count {
                return Err("it has an expression over DISTINCT".to_owned());
            }
            let columns = vec![Combined::Key; count];
            Ok(Upkeep { tables, columns, is_aggregate: true, anew: None, has_having })
        }
        _ => {
            check_linear(plan, &mut tables)?;
            let columns = vec![Combined::Key; plan.schema().fields().len()];
            Ok(Upkeep { tables, columns, is_aggregate: false, anew: None, has_having })
        }
    }
}

/// The first node of `plan` that does more than to name, order and choose columns, and by column of `plan` the index of
/// the node's; None: it is computed above.
fn below_renaming(plan: &LogicalPlan) -> Result<(&LogicalPlan, Vec<Option<usize>>), String> {
    let mut outputs: Vec<Option<usize>> = (0..plan.schema().fields().len()).map(Some).collect();
    let mut top = plan;
    loop {
        top = match top {
            LogicalPlan::Projection(projection) => {
                check_expressions(top)?;
                let source = |index: usize| match bare(projection.expr.get(index)?) {
                    Expr::Column(column) => projection.input.schema().maybe_index_of_column(column),
                    _ => None,
                };
                outputs.iter_mut().for_each(|output| *output = output.and_then(source));
                &*projection.input
            }
            LogicalPlan::SubqueryAlias(alias) => &*alias.input,
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => &*sort.input,
            _ => return Ok((top, outputs)),
        };
    }
}

fn bare(mut expr: &Expr) -> &Expr {
    while let Expr::Alias(alias) = expr {
        expr = &alias.expr;
    }
    expr
}

/// Checks that `plan` is linear in each table that it reads, and adds these to `tables`.
fn check_linear(plan: &LogicalPlan, tables: &mut Vec<u32>) -> Result<(), String> {
    let mut fault = None;
    let walked = plan.apply(|node| {
        fault = fault_of(node, tables);
        Ok(match fault {
            Some(_) => TreeNodeRecursion::Stop,
            None => TreeNodeRecursion::Continue,
        })
    });
    match (fault, walked) {
        (Some(fault), _) => Err(fault),
        (None, Err(error)) => Err(error.to_string()),
        (None, Ok(_)) => Ok(()),
    }
}

/// Checks that the expressions of `node` by itself read no tables.
fn check_expressions(node: &LogicalPlan) -> Result<(), String> {
    let mut has_subquery = false;
    let looked = node.each_expression(|expression| {
        expression.apply(|expression| {
            has_subquery |= is_subquery(expression);
            Ok(TreeNodeRecursion::Continue)
        })
    });
    match has_subquery || looked.is_err() {
        true => Err("it has a subquery in an expression".to_owned()),
        false => Ok(()),
    }
}

/// What of `node` by itself is not linear.
fn fault_of(node: &LogicalPlan, tables: &mut Vec<u32>) -> Option<String> {
    if let Err(fault) = check_expressions(node) {
        return Some(fault);
    }
    let what = match node {
        LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_) => {
            return None;
        }
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner => return None,
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => return None,
        LogicalPlan::TableScan(scan) => {
            let provider = source_as_provider(&scan.source).ok();
            let table = provider.as_ref().and_then(|provider| {
                let table = provider.downcast_ref::<CleaveTable>()?;
                table.plain_name().map(|_| table.table_state().schema.table_id)
            });
            return match table {
                Some(table) if tables.contains(&table) => {
                    Some(format!("it reads \"{}\" twice", scan.table_name.table()))
                }
                Some(table) => {
                    tables.push(table);
                    None
                }
                None => Some(format!("\"{}\" is not a table", scan.table_name.table())),
            };
        }
        LogicalPlan::Join(_) => "an outer join, or a subquery that became a join",
        LogicalPlan::Aggregate(_) => "an aggregate below other operators",
        LogicalPlan::Distinct(_) => "DISTINCT",
        LogicalPlan::Limit(_) | LogicalPlan::Sort(_) => "LIMIT",
        LogicalPlan::Window(_) => "a window function",
        LogicalPlan::Union(_) => "UNION",
        _ => "an operator whose changes are not known",
    };
    Some(format!("it has {what}"))
}

/// Checks that rows of one group can be told from others by what the result shows: `keys`, over `input`.
fn check_keys(keys: &[Expr], input: &LogicalPlan, outputs: &[Option<usize>]) -> Result<(), String> {
    if keys.iter().any(|key| matches!(key, Expr::GroupingSet(_))) {
        return Err("it has grouping sets".to_owned());
    }
    // Their equal values may have different bytes.
    let is_compared = |key: &Expr| {
        let key = key.get_type(input.schema());
        key.is_ok_and(|key| !key.is_floating() && !matches!(key, DataType::Interval(_)))
    };
    if !keys.iter().all(is_compared) {
        return Err("a key of its groups is a floating-point number or an interval".to_owned());
    }
    if (0..keys.len()).any(|key| !outputs.contains(&Some(key))) {
        return Err("a key of its groups is not among its columns".to_owned());
    }
    Ok(())
}

/// How the columns of `aggregate` combine that `outputs` are, and why some do not.
fn combined(
    aggregate: &Aggregate,
    outputs: &[Option<usize>],
) -> Result<(Vec<Combined>, Option<String>), String> {
    let keys = &aggregate.group_expr;
    check_keys(keys, &aggregate.input, outputs)?;
    let calls: Vec<Option<&AggregateFunction>> =
        outputs.iter().map(|output| call_of(aggregate, *output)).collect();
    let mut anew = None;
    let columns = outputs.iter().zip(&calls).map(|(output, call)| match (output, call) {
        (Some(output), None) if *output < keys.len() => Combined::Key,
        (_, Some(call)) => combined_call(call, &calls, aggregate).unwrap_or_else(|reason| {
            anew.get_or_insert(reason);
            Combined::Anew
        }),
        _ => {
            anew.get_or_insert("it has an expression over an aggregate".to_owned());
            Combined::Anew
        }
    });
    let columns: Vec<Combined> = columns.collect();
    match anew {
        Some(reason) if keys.is_empty() => Err(reason),
        anew => Ok((columns, anew)),
    }
}

/// The function of `aggregate` that its column `output` is.
fn call_of(aggregate: &Aggregate, output: Option<usize>) -> Option<&AggregateFunction> {
    let call = output?.checked_sub(aggregate.group_expr.len())?;
    match bare(aggregate.aggr_expr.get(call)?) {
        Expr::AggregateFunction(call) => Some(call),
        _ => None,
    }
}

/// How the results of `call` combine, with the others of its aggregate that `calls` has; an error text: they do not.
fn combined_call(
    call: &AggregateFunction,
    calls: &[Option<&AggregateFunction>],
    aggregate: &Aggregate,
) -> Result<Combined, String> {
    let schema = aggregate.input.schema();
    let is_never_null = |call: &AggregateFunction| {
        let argument = call.params.args.first();
        argument.is_some_and(|argument| argument.nullable(schema).is_ok_and(|nullable| !nullable))
    };
    let (name, params) = (call.func.name(), &call.params);
    if params.args.len() != 1 {
        return Err(format!("it has {name}() of other than one value"));
    }
    if params.distinct || params.filter.is_some() || !params.order_by.is_empty() {
        return Err(format!("it has {name}() with DISTINCT, FILTER or ORDER BY"));
    }
    match name {
        "count" if is_never_null(call) => Ok(Combined::Rows),
        "count" => Ok(Combined::Count),
        "min" => Ok(Combined::Min),
        "max" => Ok(Combined::Max),
        name if name == exact_sum().name() => {
            let sum = Expr::AggregateFunction(call.clone()).get_type(schema);
            if !sum.is_ok_and(|sum| sum.is_decimal() || sum.is_integer()) {
                return Err("sums of such values cannot be subtracted exactly".to_owned());
            }
            let is_its_count = |other: &Option<&AggregateFunction>| {
                other.is_some_and(|other| {
                    other.func.name() == "count"
                        && (other.params.args == params.args
                            || is_never_null(call) && is_never_null(other))
                })
            };
            Ok(Combined::Sum { count: calls.iter().position(is_its_count) })
        }
        name => Err(format!("{name}() cannot be brought up to date")),
    }
}
