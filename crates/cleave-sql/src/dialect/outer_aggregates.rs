//! Refuses aggregates in a subquery over columns of an outer query alone: `(SELECT sum(t.a) FROM x LIMIT 1)`.
//!
//! By SQL's rule such an aggregate is one of the outer query, over its groups. DataFusion computes it over the rows of
//! the subquery, which is another value.

use cleave_catalog::error::Error;
use cleave_fragment::walk::Walk;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use super::rewrite::has_operator;

/// See the module.
#[derive(Debug)]
pub struct OuterAggregates;

impl AnalyzerRule for OuterAggregates {
    fn name(&self) -> &'static str {
        "outer_aggregates"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let found = has_operator(&plan, |node| {
            let LogicalPlan::Aggregate(aggregate) = node else { return Ok(false) };
            let mut found = false;
            for expr in &aggregate.aggr_expr {
                found |= expr.exists(is_of_outer_query)?;
            }
            Ok(found)
        })?;
        match found {
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

/// Whether `expr` is an aggregate that names columns, all of them of an outer query.
fn is_of_outer_query(expr: &Expr) -> Result<bool> {
    let Expr::AggregateFunction(function) = expr else { return Ok(false) };
    let (mut outer, mut own) = (false, false);
    for argument in &function.params.args {
        argument.apply(|part| {
            outer |= matches!(part, Expr::OuterReferenceColumn(..));
            own |= matches!(part, Expr::Column(_));
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(outer && !own)
}
