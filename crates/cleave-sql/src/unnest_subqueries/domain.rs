//! The *domain* of a correlated subquery: the distinct values of its outer columns in the outer rows.
//!
//! ```text
//!  outer rows ─▶ DISTINCT outer columns ─▶ domain     joined with the subquery's plan in place of these columns
//! ```
//!
//! The domain may hold values that no row has: they cost time and change nothing. So operators that only remove outer
//! rows are left out of the domain's plan if they might give other rows the second time (LIMIT, volatile conditions).

use cleave_fragment::walk::Walk;
use datafusion::common::{Column, ExprSchema};
use datafusion::error::Result;
use datafusion::logical_expr::{
    Expr, Filter, JoinType, LogicalPlan, LogicalPlanBuilder, SubqueryAlias,
};

use super::Names;
use super::outer_references::{has_subquery, is_lateral};

/// The domain of a subquery's plan.
pub(super) struct Domain<'a> {
    plan: LogicalPlan,
    /// The columns of the outer rows, in the order of the domain's.
    pub(super) outer: Vec<Column>,
    names: &'a Names,
}

impl<'a> Domain<'a> {
    /// The domain of the columns `outer` of `around`; None if `around` may give other rows each time.
    pub(super) fn new(
        around: &LogicalPlan,
        outer: Vec<Column>,
        names: &'a Names,
    ) -> Result<Option<Self>> {
        let source = wider(around, &outer)?;
        if !is_stable(&source, &outer)? {
            return Ok(None);
        }
        let columns = outer
            .iter()
            .enumerate()
            .map(|(index, column)| Expr::Column(column.clone()).alias(format!("outer_{index}")));
        let plan = LogicalPlanBuilder::from(source).project(columns)?.distinct()?.build()?;
        Ok(Some(Self { plan, outer, names }))
    }

    /// The domain again, under a name of its own, and its columns.
    pub(super) fn once(&self) -> Result<(LogicalPlan, Vec<Column>)> {
        let alias = self.names.next("__domain");
        let plan = LogicalPlanBuilder::from(self.plan.clone()).alias(alias)?.build()?;
        let columns = plan.schema().columns();
        Ok((plan, columns))
    }

    /// The place of an outer column.
    pub(super) fn place(&self, column: &Column) -> Option<usize> {
        self.outer.iter().position(|outer| outer == column)
    }

    /// An unused name.
    pub(super) fn name(&self, prefix: &str) -> String {
        self.names.next(prefix)
    }
}

/// A plan with each value that `columns` have in `plan`, by the same names.
fn wider(plan: &LogicalPlan, columns: &[Column]) -> Result<LogicalPlan> {
    Ok(match plan {
        LogicalPlan::Limit(limit) => wider(&limit.input, columns)?,
        LogicalPlan::Sort(sort) => wider(&sort.input, columns)?,
        LogicalPlan::Filter(filter)
            if filter.predicate.is_volatile() || has_subquery(&filter.predicate) =>
        {
            wider(&filter.input, columns)?
        }
        LogicalPlan::Filter(filter) => {
            let named = with_named(columns.to_vec(), std::iter::once(&filter.predicate));
            let input = wider(&filter.input, &named)?;
            LogicalPlan::Filter(Filter::try_new(filter.predicate.clone(), input.into())?)
        }
        LogicalPlan::Join(join) => {
            let all_of = |side: &LogicalPlan| columns.iter().all(|c| side.schema().has_column(c));
            match join.join_type {
                JoinType::Inner
                | JoinType::Left
                | JoinType::LeftSemi
                | JoinType::LeftAnti
                | JoinType::LeftMark
                    if all_of(&join.left) =>
                {
                    wider(&join.left, columns)?
                }
                JoinType::Inner if all_of(&join.right) && !is_lateral(&join.right) => {
                    wider(&join.right, columns)?
                }
                _ => plan.clone(),
            }
        }
        LogicalPlan::Projection(projection) => {
            let wanted = |place: &usize| {
                columns.contains(&Column::from(projection.schema.qualified_field(*place)))
            };
            let wanted = (0..projection.expr.len()).filter(wanted);
            let wanted: Vec<Expr> = wanted.map(|place| projection.expr[place].clone()).collect();
            if wanted.iter().any(has_subquery) {
                return Ok(plan.clone());
            }
            let input = wider(&projection.input, &with_named(Vec::new(), wanted.iter()))?;
            LogicalPlanBuilder::from(input).project(wanted)?.build()?
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let wanted = |place: &usize| {
                columns.contains(&Column::from(alias.schema.qualified_field(*place)))
            };
            let wanted = (0..alias.schema.fields().len()).filter(wanted);
            let below = |place| Column::from(alias.input.schema().qualified_field(place));
            let input = wider(&alias.input, &wanted.map(below).collect::<Vec<_>>())?;
            LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(input.into(), alias.alias.clone())?)
        }
        _ => plan.clone(),
    })
}

/// `columns`, and those that `expressions` name.
fn with_named<'a>(
    mut columns: Vec<Column>,
    expressions: impl Iterator<Item = &'a Expr>,
) -> Vec<Column> {
    for column in expressions.flat_map(Expr::column_refs) {
        if !columns.contains(column) {
            columns.push(column.clone());
        }
    }
    columns
}

/// Whether `plan` gives the same values each time that it runs.
fn is_stable(plan: &LogicalPlan, columns: &[Column]) -> Result<bool> {
    let has_float = columns.iter().any(|column| {
        plan.schema().field_from_column(column).is_ok_and(|field| field.data_type().is_floating())
    });
    let is_unstable = plan.exists(|node| {
        Ok(match node {
            LogicalPlan::Limit(_) => true,
            // Sums of floats may differ in the last digit.
            LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) => has_float,
            _ => false,
        } || node.expressions().iter().any(Expr::is_volatile))
    })?;
    Ok(!is_unstable)
}
