//! Aggregates in plain words.

use std::sync::Arc;

use cleave_fragment::DenseAggregateExec;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};

use super::super::expression_text::{column_text, listed, sort_keys, sql};
use super::{COLUMNS_MAX, Words};

/// What EXPLAIN says of an aggregate.
pub(super) fn words(plan: &Arc<dyn ExecutionPlan>) -> Option<Words> {
    if let Some(dense) = plan.downcast_ref::<DenseAggregateExec>() {
        return words(dense.aggregate()).map(|words| words.with_text("Groups", "dense"));
    }
    let aggregate = plan.downcast_ref::<AggregateExec>()?;
    let (title, partial_mode) = match aggregate.mode() {
        AggregateMode::Partial => ("Partial aggregate", "Partial"),
        AggregateMode::PartialReduce => ("Combining aggregate", "Combine"),
        AggregateMode::Final | AggregateMode::FinalPartitioned => ("Final aggregate", "Finalize"),
        AggregateMode::Single | AggregateMode::SinglePartitioned => ("Aggregate", "Simple"),
    };
    let group_by = aggregate.group_expr();
    let keys: Vec<String> = group_by.expr().iter().map(|(key, _)| sql(key)).collect();
    let mut title = title.to_owned();
    if !keys.is_empty() {
        title = format!("{title} by {}", listed(&keys, COLUMNS_MAX));
    }
    if group_by.has_grouping_set() {
        title = format!("{title}, {} grouping sets", group_by.groups().len());
    }
    if let Some(limit) = aggregate.limit_options() {
        title = format!("{title}, first {} groups", limit.limit());
    }
    // Later steps have no rows left to filter.
    let filters: &[Option<Arc<dyn PhysicalExpr>>] = match aggregate.mode() {
        AggregateMode::Partial | AggregateMode::Single | AggregateMode::SinglePartitioned => {
            aggregate.filter_expr()
        }
        AggregateMode::PartialReduce | AggregateMode::Final | AggregateMode::FinalPartitioned => {
            &[]
        }
    };
    let calls = aggregate.aggr_expr().iter().enumerate().map(|(place, function)| {
        let filter = filters.get(place).and_then(Option::as_ref);
        call(function, filter)
    });
    let calls: Vec<String> = calls.collect();
    let strategy = match (keys.is_empty(), group_by.has_grouping_set()) {
        (true, _) => "Plain",
        (false, true) => "Mixed",
        (false, false) => "Hashed",
    };
    let words = Words::new("Aggregate", title)
        .with_detail(listed(&calls, COLUMNS_MAX))
        .with_text("Strategy", strategy)
        .with_text("Partial Mode", partial_mode)
        .with_texts("Group Key", keys);
    Some(words.with_texts("Output", calls))
}

/// An aggregate function, as SQL calls it.
fn call(function: &AggregateFunctionExpr, filter: Option<&Arc<dyn PhysicalExpr>>) -> String {
    let values = function.expressions();
    let name = match function.fun().name() {
        // A sum that does not depend on the order of its rows.
        "exact_sum" => "sum".to_owned(),
        name => column_text(name),
    };
    let is_constant = values
        .iter()
        .all(|value| value.downcast_ref::<Literal>().is_some_and(|value| !value.value().is_null()));
    let values: Vec<String> = match name == "count" && is_constant && !function.is_distinct() {
        true => vec!["*".to_owned()],
        false => values.iter().map(sql).collect(),
    };
    let distinct = if function.is_distinct() { "DISTINCT " } else { "" };
    let order = match function.order_bys() {
        [] => String::new(),
        keys => format!(" ORDER BY {}", sort_keys(keys).join(", ")),
    };
    let filter = filter.map(|filter| format!(" FILTER (WHERE {})", sql(filter)));
    format!("{name}({distinct}{}{order}){}", values.join(", "), filter.unwrap_or_default())
}
