//! The setting `join_method`: a plan in, the same plan with joins of the wanted method out.
//!
//! - `nested_loop` is hybridNDP's NLJ: each pair is tried; one side lies in memory, the other streams.
//! - `hash` is BNLJ, which fills its buffer with a hash table, and GHJ: where the table outgrows its memory, it is
//!   divided.
//! - `hash` with an index on the other side's key is BNLIJ: the scan there looks the keys up
//!   ([`index_offers`](super::index_offers)).
//!
//! [`as_nested_loops`] acts on the logical plan, after joins are ordered: an equality becomes a condition as any other,
//! so that DataFusion has nothing to hash. [`check_hashed`] looks at the physical plan. Both hold above and below cuts,
//! which are placed later.
//!
//! `NOT IN` over a subquery keeps its hash join: pairs of rows do not give its semantics of NULLs.

use cleave_fragment::walk::{Walk, WalkPlan};
use std::sync::Arc;

use cleave_fragment::TableScanExec;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, JoinType, NullEquality};
use datafusion::error::Result as EngineResult;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, Join, LogicalPlan, Operator, Projection, binary_expr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{CrossJoinExec, NestedLoopJoinExec};

use cleave_catalog::error::{Error, Result};

/// `plan` with the equalities of its joins as conditions on pairs.
pub(super) fn as_nested_loops(plan: LogicalPlan) -> Result<LogicalPlan> {
    let changed = plan.transform_up_everywhere(|node| match node {
        LogicalPlan::Join(join) if !join.on.is_empty() && !join.null_aware => {
            let join = told_apart(join)?;
            let operator = match join.null_equality {
                NullEquality::NullEqualsNothing => Operator::Eq,
                NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
            };
            let pairs = join.on.into_iter().map(|(left, right)| binary_expr(left, operator, right));
            let filter = conjunction(pairs.chain(join.filter));
            Ok(Transformed::yes(LogicalPlan::Join(Join { on: Vec::new(), filter, ..join })))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(changed.data)
}

/// `join`, with columns of other names on the side that it gives no rows of, if a condition could not tell the sides'
/// columns apart: keys name the columns of one side each, and those of INTERSECT and EXCEPT may be called the same.
fn told_apart(mut join: Join) -> EngineResult<Join> {
    use JoinType::{LeftAnti, LeftMark, LeftSemi, RightAnti, RightMark, RightSemi};
    if join.left.schema().join(join.right.schema()).is_ok() {
        return Ok(join);
    }
    let hides_right = match join.join_type {
        LeftSemi | LeftAnti | LeftMark => true,
        RightSemi | RightAnti | RightMark => false,
        _ => return Ok(join),
    };
    let (hidden, shown) = match hides_right {
        true => (&mut join.right, &join.left),
        false => (&mut join.left, &join.right),
    };
    let columns = hidden.schema().columns();
    let named = |place: usize| format!("\u{1}side{place}");
    let renamed = columns.iter().enumerate();
    let renamed = renamed.map(|(place, column)| Expr::Column(column.clone()).alias(named(place)));
    let below = Projection::try_new(renamed.collect(), Arc::clone(hidden))?;
    let shown = Arc::clone(shown.schema());
    *hidden = Arc::new(LogicalPlan::Projection(below));
    let new_name = |column: &Column| {
        let place = columns.iter().position(|known| known == column)?;
        Some(Column::from_name(named(place)))
    };
    for (left, right) in &mut join.on {
        let key = if hides_right { right } else { left };
        *key = with_names(std::mem::take(key), &new_name)?;
    }
    if let Some(filter) = join.filter.take() {
        let of_hidden = |column: &Column| new_name(column).filter(|_| !shown.has_column(column));
        join.filter = Some(with_names(filter, &of_hidden)?);
    }
    Ok(join)
}

/// `expression` with other columns.
fn with_names(
    expression: Expr,
    new_name: &dyn Fn(&Column) -> Option<Column>,
) -> EngineResult<Expr> {
    let changed = expression.transform_up(|part| match &part {
        Expr::Column(column) => Ok(match new_name(column) {
            Some(new) => Transformed::yes(Expr::Column(new)),
            None => Transformed::no(part),
        }),
        _ => Ok(Transformed::no(part)),
    })?;
    Ok(changed.data)
}

/// Refuses a plan with a join that has nothing to hash.
pub(super) fn check_hashed(plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
    if plan.is::<NestedLoopJoinExec>() || plan.is::<CrossJoinExec>() {
        let sides: Vec<String> = plan.children().into_iter().map(tables).collect();
        return Err(Error::Unsupported {
            what: format!(
                "join_method \"hash\" cannot run this statement: the join of {} has no equality, which",
                sides.join(" with ")
            ),
            hint: Some("join_method \"auto\" looks at each pair there".to_owned()),
            position: None,
        });
    }
    plan.children().into_iter().try_for_each(check_hashed)
}

/// The tables that are read below `plan`.
fn tables(plan: &Arc<dyn ExecutionPlan>) -> String {
    fn collect(plan: &Arc<dyn ExecutionPlan>, names: &mut Vec<String>) {
        if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
            names.push(format!("\"{}\"", scan.scan().table));
        }
        plan.children().into_iter().for_each(|child| collect(child, names));
    }
    let mut names = Vec::new();
    collect(plan, &mut names);
    if names.is_empty() { "rows of no table".to_owned() } else { names.join(", ") }
}
