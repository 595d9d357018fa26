//! Columns of which DataFusion takes too much for granted.
//!
//! **Beside a list in FROM** a column occurs once for each of its items. DataFusion takes columns that were unique
//! below for unique above, and leaves out a DISTINCT, a key of GROUP BY or a join accordingly. Behind a function it
//! does not know them again:
//!
//! ```text
//!  Unnest: items            Unnest: items
//!    rows (key unique)  ─▶    Projection: items, opaque(key) AS key
//!                               rows
//! ```
//!
//! **Keys of grouping sets** are NULL in some rows. DataFusion takes keys that are equal or constant below for equal or
//! constant above, and leaves them out of ORDER BY. The number of the set, which varies, and that of the key keep it
//! from that:
//!
//! ```text
//!                                     Projection: opaque(a, __grouping_id, 0) AS a, …, __grouping_id, sums
//!  Aggregate: ROLLUP (a, b), sums  ─▶  Aggregate: ROLLUP (a, b), sums
//! ```

use cleave_fragment::functions::opaque;
use cleave_fragment::walk::{Walk, WalkPlan};
use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection, Unnest, lit};
use datafusion::optimizer::AnalyzerRule;

use super::rewrite::has_operator;

/// See the module.
#[derive(Debug)]
pub struct RepeatedRows;

impl AnalyzerRule for RepeatedRows {
    fn name(&self) -> &'static str {
        "repeated_rows"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let concerns = |node: &LogicalPlan| {
            Ok(match node {
                LogicalPlan::Unnest(_) => true,
                LogicalPlan::Aggregate(aggregate) => has_sets(aggregate),
                _ => false,
            })
        };
        if !has_operator(&plan, concerns)? {
            return Ok(plan);
        }
        let hidden = |plan| match plan {
            LogicalPlan::Aggregate(aggregate) if has_sets(&aggregate) => {
                Ok(Transformed::yes(LogicalPlan::Projection(with_varying_keys(aggregate)?)))
            }
            LogicalPlan::Unnest(unnest) if may_be_unique(&unnest.input)? => {
                Ok(Transformed::yes(LogicalPlan::Unnest(hidden(unnest)?)))
            }
            plan => Ok(Transformed::no(plan)),
        };
        Ok(plan.transform_up_everywhere(hidden)?.data)
    }
}

/// Whether the keys of `aggregate` are NULL in some of its rows.
fn has_sets(aggregate: &Aggregate) -> bool {
    matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_)])
}

fn with_varying_keys(aggregate: Aggregate) -> Result<Projection> {
    let plan = LogicalPlan::Aggregate(aggregate);
    let number = Expr::Column(Column::new_unqualified(Aggregate::INTERNAL_GROUPING_ID));
    let mut are_keys = true;
    let columns = (0_i64..).zip(plan.schema().iter()).map(|(ordinal, (qualifier, field))| {
        // The keys come first, then the number of the set.
        are_keys &= field.name() != Aggregate::INTERNAL_GROUPING_ID;
        let column = Expr::Column(Column::from((qualifier, field)));
        match are_keys {
            true => opaque()
                .call(vec![column, number.clone(), lit(ordinal)])
                .alias_qualified(qualifier.cloned(), field.name()),
            false => column,
        }
    });
    let columns = columns.collect();
    Projection::try_new(columns, Arc::new(plan))
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
            false => opaque()
                .call(vec![Expr::Column(column)])
                .alias_qualified(qualifier.cloned(), field.name()),
        }
    });
    let list = Projection::try_new(list.collect(), input)?;
    Unnest::try_new(Arc::new(LogicalPlan::Projection(list)), exec_columns, options)
}
