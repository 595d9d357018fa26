//! Columns beside a list in FROM, which occur once for each of its items.
//!
//! The engine takes columns that were unique below an unnested list for unique above it, and leaves out a DISTINCT, a
//! key of GROUP BY or a join accordingly. Behind a function it does not know them again:
//!
//! ```text
//!  Unnest: items            Unnest: items
//!    rows (key unique)  ─▶    Projection: items, each_item(key) AS key
//!                               rows
//! ```

use cleave_fragment::walk::{Walk, WalkPlan};
use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Unnest};
use datafusion::optimizer::AnalyzerRule;

use super::functions::each_item;
use super::rewrite::has_operator;

/// See the module.
#[derive(Debug)]
pub struct RepeatedRows;

impl AnalyzerRule for RepeatedRows {
    fn name(&self) -> &'static str {
        "repeated_rows"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_operator(&plan, |node| Ok(matches!(node, LogicalPlan::Unnest(_))))? {
            return Ok(plan);
        }
        let hidden = |plan| match plan {
            LogicalPlan::Unnest(unnest) if may_be_unique(&unnest.input)? => {
                Ok(Transformed::yes(LogicalPlan::Unnest(hidden(unnest)?)))
            }
            plan => Ok(Transformed::no(plan)),
        };
        Ok(plan.transform_up_everywhere(hidden)?.data)
    }
}

/// Whether something within `plan` makes values unique.
fn may_be_unique(plan: &LogicalPlan) -> Result<bool> {
    let mut found = !plan.schema().functional_dependencies().is_empty();
    plan.apply(|node| {
        found |= matches!(node, LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn hidden(unnest: Unnest) -> Result<Unnest> {
    let Unnest { input, exec_columns, options, .. } = unnest;
    let schema = Arc::clone(input.schema());
    let list = schema.iter().map(|(qualifier, field)| {
        let column = Column::from((qualifier, field));
        match exec_columns.contains(&column) {
            true => Expr::Column(column),
            false => each_item()
                .call(vec![Expr::Column(column)])
                .alias_qualified(qualifier.cloned(), field.name()),
        }
    });
    let list = Projection::try_new(list.collect(), input)?;
    Unnest::try_new(Arc::new(LogicalPlan::Projection(list)), exec_columns, options)
}
