//! Splits a subquery of which only the existence of rows matters into an uncorrelated plan and the correlated
//! conditions.

use cleave_fragment::walk::Walk;
use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{Distinct, Expr, Filter, LogicalPlan, LogicalPlanBuilder, lit};

use super::outer_references::{has_subquery, is_correlated};

/// A subquery's plan without its top projections, aliases, sorts and filters.
pub(super) struct Peeled {
    plan: LogicalPlan,
    /// The conditions on the plan's rows.
    conditions: Vec<Expr>,
}

impl Peeled {
    /// None if something other than conditions is correlated.
    pub(super) fn of(plan: &LogicalPlan) -> Result<Option<Self>> {
        let mut peeled = Self { plan: plan.clone(), conditions: Vec::new() };
        while peeled.peel()? {}
        Ok((!is_correlated(&peeled.plan)?).then_some(peeled))
    }

    /// Removes one node; returns whether there was one to remove.
    fn peel(&mut self) -> Result<bool> {
        let below = match &self.plan {
            LogicalPlan::Filter(filter) => {
                let conditions = split_conjunction(&filter.predicate).into_iter().cloned();
                let (within, own): (Vec<_>, Vec<_>) = conditions.partition(has_subquery);
                self.conditions.extend(own);
                if let Some(within) = conjunction(within) {
                    let rest = Filter::try_new(within, Arc::clone(&filter.input))?;
                    self.plan = LogicalPlan::Filter(rest);
                    return Ok(false);
                }
                &filter.input
            }
            LogicalPlan::Projection(list) => {
                let is_kept = |value: &Expr| !value.is_volatile() && !has_subquery(value);
                if !list.expr.iter().all(is_kept) {
                    return Ok(false);
                }
                let values: Vec<Expr> =
                    list.expr.iter().map(|value| value.clone().unalias()).collect();
                let names = list.schema.columns();
                replace(&mut self.conditions, &names, &values)?;
                &list.input
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let own = alias.input.schema().columns();
                let own: Vec<Expr> = own.into_iter().map(Expr::Column).collect();
                replace(&mut self.conditions, &alias.schema.columns(), &own)?;
                &alias.input
            }
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => &sort.input,
            LogicalPlan::Distinct(Distinct::All(input)) => input,
            _ => return Ok(false),
        };
        self.plan = below.as_ref().clone();
        Ok(true)
    }

    /// Its rows under the name `alias`, and the condition that matches one with an outer row.
    pub(super) fn beside(self, alias: &str) -> Result<(LogicalPlan, Expr)> {
        let (of_both, own): (Vec<_>, Vec<_>) =
            self.conditions.into_iter().partition(Expr::contains_outer);
        let mut plan = LogicalPlanBuilder::from(self.plan);
        if let Some(own) = conjunction(own) {
            plan = plan.filter(own)?;
        }
        let of_both = conjunction(of_both).unwrap_or_else(|| lit(true));
        let named: BTreeSet<Column> = of_both.column_refs().into_iter().cloned().collect();
        let names: Vec<Column> = named.into_iter().collect();
        let columns = names
            .iter()
            .enumerate()
            .map(|(place, column)| Expr::Column(column.clone()).alias(format!("column_{place}")));
        // Whether there is a row at all.
        let columns = columns.chain(names.is_empty().then(|| lit(true).alias("is_there")));
        let plan = plan.project(columns.collect::<Vec<_>>())?.alias(alias)?.build()?;
        let own: Vec<Expr> = (0..names.len())
            .map(|place| Expr::Column(Column::new(Some(alias), format!("column_{place}"))))
            .collect();
        let mut conditions = vec![of_both];
        replace(&mut conditions, &names, &own)?;
        let condition = conjunction(conditions).unwrap_or_else(|| lit(true));
        let around = condition.transform_up(|part| {
            Ok(match part {
                Expr::OuterReferenceColumn(_, column) => Transformed::yes(Expr::Column(column)),
                part => Transformed::no(part),
            })
        })?;
        Ok((plan, around.data))
    }
}

/// Puts `values` in the places of the columns `names`.
fn replace(conditions: &mut Vec<Expr>, names: &[Column], values: &[Expr]) -> Result<()> {
    for condition in conditions {
        let taken = std::mem::replace(condition, lit(true));
        let replaced = taken.transform_down(|part| {
            let place = match &part {
                Expr::Column(column) => names.iter().position(|name| name == column),
                _ => None,
            };
            Ok(match place.and_then(|place| values.get(place)) {
                // The replaced part names columns of the input.
                Some(value) => Transformed::new(value.clone(), true, TreeNodeRecursion::Jump),
                None => Transformed::no(part),
            })
        })?;
        *condition = replaced.data;
    }
    Ok(())
}
