//! Aggregates in a subquery that belong to an outer query: `(SELECT sum(t.a) FROM x LIMIT 1)`.
//!
//! By SQL's rule an aggregate over columns of an outer query alone is one of that query, over its groups. DataFusion
//! would compute it over the rows of the subquery. While names are written out, such an aggregate is put beside its
//! subquery (`query_names::outer_calls`), so that it is computed there:
//!
//! ```text
//!  first_of(subquery, sum(t.a), 'outer⟨1⟩')  ─▶  the subquery, with the outer column `sum(t.a)` in place of its
//!                                                 subquery of a column `outer⟨1⟩`
//! ```
//!
//! Those whose query is not known by then are refused.

use cleave_catalog::error::Error;
use cleave_fragment::walk::{Walk, WalkPlan};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{ExprSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use super::functions::FIRST_OF;
use super::rewrite::{has_operator, rewrite_expressions, rewrite_named};
use crate::unnest_subqueries::{over, subquery_of, with_subquery};

/// The name of an aggregate of an outer query, before its number.
pub(super) const OUTER: &str = "outer";

/// See the module.
#[derive(Debug)]
pub struct OuterAggregates;

impl AnalyzerRule for OuterAggregates {
    fn name(&self) -> &'static str {
        "outer_aggregates"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let found = Found::of(&plan)?;
        if !found.beside && !found.within {
            return Ok(plan);
        }
        let put = |node| {
            rewrite_expressions(node, &|part, schema| {
                let Some(values) = beside(&part) else { return Ok(Transformed::no(part)) };
                let columns = values.into_iter().map(|(name, value)| {
                    // Beside columns there are their names, and casts to PostgreSQL's types.
                    let value = value.unalias_nested().data.transform_up(|part| match part {
                        Expr::Column(column) => {
                            let field = std::sync::Arc::clone(schema.field_from_column(&column)?);
                            Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
                        }
                        part => Ok(Transformed::no(part)),
                    })?;
                    Ok((name, value.data))
                });
                let columns: Vec<(String, Expr)> = columns.collect::<Result<_>>()?;
                let Expr::ScalarFunction(mut call) = part else { return Ok(Transformed::no(part)) };
                let subquery = std::mem::take(&mut call.args).into_iter().next();
                put_in(subquery.unwrap_or_default(), &columns)
            })
        };
        let plan = if found.beside { plan.transform_up_everywhere(put)?.data } else { plan };
        match Found::of(&plan)?.within {
            true => Err(Error::Unsupported {
                what: "an aggregate in a subquery over columns of an outer query alone".to_owned(),
                hint: Some(
                    "it is one of the outer query: compute it in a subquery of FROM there, and name its result here"
                        .to_owned(),
                ),
                position: None,
            }
            .into()),
            false => Ok(plan),
        }
    }
}

/// What a plan has of them.
#[derive(Debug, Default)]
struct Found {
    /// Beside subqueries.
    beside: bool,
    /// In the plan of a subquery.
    within: bool,
}

impl Found {
    fn of(plan: &LogicalPlan) -> Result<Self> {
        let mut found = Self::default();
        has_operator(plan, |node| {
            let aggregates = matches!(node, LogicalPlan::Aggregate(_));
            node.each_expression(|expr| {
                found.beside |= expr.exists(|part| Ok(beside(part).is_some()))?;
                found.within |= aggregates && expr.exists(is_of_outer_query)?;
                Ok(TreeNodeRecursion::Continue)
            })?;
            Ok(false)
        })?;
        Ok(found)
    }
}

/// The aggregates beside a subquery, and the names of their places in it.
fn beside(expr: &Expr) -> Option<Vec<(String, Expr)>> {
    let Expr::ScalarFunction(call) = expr else { return None };
    let [_, values @ ..] = call.args.as_slice() else { return None };
    if call.name() != FIRST_OF || values.len() < 2 {
        return None;
    }
    let pairs = values.chunks_exact(2).map(|pair| match pair {
        [value, Expr::Literal(ScalarValue::Utf8(Some(name)), _)] => {
            Some((name.clone(), value.clone()))
        }
        _ => None,
    });
    pairs.collect()
}

/// `expr`, with `columns` in place of the subqueries of their names in the subqueries of `expr`.
fn put_in(expr: Expr, columns: &[(String, Expr)]) -> Result<Transformed<Expr>> {
    expr.transform_up(|part| {
        let Some(subquery) = subquery_of(&part) else { return Ok(Transformed::no(part)) };
        if let (Expr::ScalarSubquery(_), [field]) =
            (&part, subquery.subquery.schema().fields().as_ref())
            && let Some((_, column)) = columns.iter().find(|(name, _)| name == field.name())
        {
            return Ok(Transformed::yes(column.clone()));
        }
        let plan = put_in_plan(subquery.subquery.as_ref().clone(), columns)?;
        let subquery = over(subquery, plan);
        Ok(Transformed::yes(with_subquery(part, subquery)))
    })
}

fn put_in_plan(plan: LogicalPlan, columns: &[(String, Expr)]) -> Result<LogicalPlan> {
    let plan = plan.transform_up(|node| {
        let node = rewrite_named(node, &|expr| put_in(expr, columns))?.data;
        Ok(Transformed::yes(match node {
            LogicalPlan::Subquery(subquery) => {
                let plan = subquery.subquery.as_ref().clone();
                LogicalPlan::Subquery(over(&subquery, plan))
            }
            node => node.recompute_schema()?,
        }))
    })?;
    Ok(plan.data)
}

/// Whether `expr` is an aggregate that names columns, all of them of an outer query.
fn is_of_outer_query(expr: &Expr) -> Result<bool> {
    let Expr::AggregateFunction(function) = expr else { return Ok(false) };
    let (mut outer, mut own) = (false, false);
    for argument in function.params.args.iter().chain(function.params.filter.as_deref()) {
        argument.apply(|part| {
            outer |= matches!(part, Expr::OuterReferenceColumn(..));
            own |= matches!(part, Expr::Column(_));
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(outer && !own)
}
