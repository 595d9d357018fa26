//! A planner rule: groups by several narrow columns, or by a short text, become groups by one integer.
//!
//! ```text
//!   Aggregate [a, b | sum(x)]   ─▶   Projection [part 0 of key, part 1 of key, sum(x)]
//!                                      ◀─ Aggregate [pack_key(a, b) AS key | sum(x)]
//! ```
//!
//! DataFusion finds a group of one integer several times as fast as one of texts, on either side of a cut, and
//! fewer bytes cross it. Widths are those that the table declares (`char(1)`, `date`), found by following the
//! column down to its scan, so that no value can be wider.
//!
//! Invariant: names and types of the columns above stay. Where a column's origin is not certain (computed, of an outer
//! join or a subquery), nothing is packed.

use std::sync::Arc;

use cleave_fragment::functions::{KeyLayout, KeyPart, PartKind, pack_key, part_of_key};
use cleave_store::ColumnType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, JoinType};
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection, lit};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use super::table_provider::CleaveTable;

/// Name of the packed key, which no statement can see.
const KEY: &str = "__packed_key";

/// See the module.
#[derive(Debug)]
pub struct PackGroupKeys;

impl OptimizerRule for PackGroupKeys {
    fn name(&self) -> &'static str {
        "pack_group_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Aggregate(aggregate) => match layout(&aggregate) {
                Some(layout) => Ok(Transformed::yes(packed(aggregate, &layout)?)),
                None => Ok(Transformed::no(LogicalPlan::Aggregate(aggregate))),
            },
            plan => Ok(Transformed::no(plan)),
        }
    }
}

/// How the group's key can be packed, if that pays.
fn layout(aggregate: &Aggregate) -> Option<KeyLayout> {
    let parts = aggregate.group_expr.iter().map(|key| match key {
        Expr::Column(column) => {
            let (column_type, may_be_null) = origin(&aggregate.input, column)?;
            Some(KeyPart { kind: part_kind(column_type)?, may_be_null })
        }
        _ => None,
    });
    let parts: Vec<KeyPart> = parts.collect::<Option<_>>()?;
    // One integer is found as fast as it is, and no key at all is no group.
    match parts.as_slice() {
        [] => None,
        [KeyPart { kind: PartKind::Text(_), .. }] | [_, _, ..] => KeyLayout::new(parts),
        _ => None,
    }
}

fn part_kind(column_type: ColumnType) -> Option<PartKind> {
    match column_type {
        ColumnType::Boolean => Some(PartKind::Boolean),
        ColumnType::SmallInt => Some(PartKind::SmallInt),
        ColumnType::Int => Some(PartKind::Int),
        ColumnType::Date => Some(PartKind::Date),
        ColumnType::Char(characters) | ColumnType::Varchar(Some(characters)) => {
            Some(PartKind::Text(characters))
        }
        _ => None,
    }
}

/// Type of the table's column that `column` of `plan` is, and whether it may be NULL.
fn origin(plan: &LogicalPlan, column: &Column) -> Option<(ColumnType, bool)> {
    match plan {
        LogicalPlan::TableScan(scan) if column.relation.as_ref() == Some(&scan.table_name) => {
            let provider = source_as_provider(&scan.source).ok()?;
            let schema = &provider.downcast_ref::<CleaveTable>()?.table_state().schema;
            let column = schema.columns.get(schema.column_index(&column.name)?)?;
            Some((column.column_type, !column.not_null))
        }
        LogicalPlan::Filter(filter) => origin(&filter.input, column),
        LogicalPlan::Projection(projection) => {
            let own = projection.expr.iter().any(|expr| *expr == Expr::Column(column.clone()));
            if own { origin(&projection.input, column) } else { None }
        }
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner => {
            let of = |side: &LogicalPlan| {
                side.schema().has_column(column).then(|| origin(side, column)).flatten()
            };
            of(&join.left).or_else(|| of(&join.right))
        }
        _ => None,
    }
}

fn packed(aggregate: Aggregate, layout: &KeyLayout) -> Result<LogicalPlan> {
    let schema = Arc::clone(&aggregate.schema);
    let group_count = aggregate.group_expr.len();
    let layout = lit(layout.to_string());
    let mut arguments = vec![layout.clone()];
    arguments.extend(aggregate.group_expr);
    let key = pack_key().call(arguments).alias(KEY);
    let new = Aggregate::try_new(aggregate.input, vec![key], aggregate.aggr_expr)?;
    let key = Expr::Column(Column::from_name(KEY));
    let columns = schema.iter().enumerate().map(|(index, (qualifier, field))| {
        if index >= group_count {
            return Expr::Column(Column::from((qualifier, field)));
        }
        let number = lit(i64::try_from(index).unwrap_or(i64::MAX));
        let part = part_of_key().call(vec![layout.clone(), number, key.clone()]);
        part.alias_qualified(qualifier.cloned(), field.name())
    });
    let columns = columns.collect();
    let new = Arc::new(LogicalPlan::Aggregate(new));
    Ok(LogicalPlan::Projection(Projection::try_new(columns, new)?))
}
