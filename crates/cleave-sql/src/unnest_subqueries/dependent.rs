//! Joins a correlated subquery's plan with its domain, the values of the outer columns. Outer references become columns
//! of the plan itself, and it gives the rows for all values at once, each with its value.
//!
//! The join is pushed down to the uncorrelated parts of the plan; the domain's columns are added on the way up:
//!
//! ```text
//!  leaf              ─▶ leaf × domain
//!  filter, list      ─▶ the same, and the columns of the domain
//!  aggregate, window ─▶ GROUP BY, PARTITION BY these columns too; an aggregate without GROUP BY has a row for
//!                       each value of the domain, whether it has rows or not
//!  LIMIT             ─▶ the first rows of each value, numbered by row_number(); so too DISTINCT ON
//!  join              ─▶ on these columns too, if both sides are correlated
//!  unnest            ─▶ the same, and the columns of the domain
//! ```
//!
//! Source: Neumann and Kemper, "Unnesting Arbitrary Queries", BTW 2015.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema, NullEquality, not_impl_err};
use datafusion::error::Result;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::{WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Aggregate, Distinct, DistinctOn, EmptyRelation, Expr, ExprFunctionExt, FetchType, Filter, Join,
    JoinType, Limit, LogicalPlan, LogicalPlanBuilder, Operator, Projection, SkipType, Sort,
    SortExpr, SubqueryAlias, Union, Unnest, Window, WindowFunctionDefinition, binary_expr, lit,
    when,
};
use datafusion::scalar::ScalarValue;

use super::domain::Domain;
use super::outer_references::{is_correlated, is_lateral, replace_in};

/// A plan and the places of the domain's columns in it, in order.
pub(super) struct Joined {
    /// It has the columns of the original plan, by name, and those of the domain.
    pub(super) plan: LogicalPlan,
    /// The domain's.
    pub(super) outer: Vec<Column>,
}

/// `plan` for all values of `domain`.
pub(super) fn join(domain: &Domain<'_>, plan: &LogicalPlan) -> Result<Joined> {
    if !is_correlated(plan)? {
        return cross(domain, plan);
    }
    match plan {
        LogicalPlan::Projection(projection) => {
            let input = join(domain, &projection.input)?;
            let list = replaced(domain, &projection.expr, &input, &projection.input)?;
            listed(input.plan, list, plan.schema(), &input.outer)
        }
        LogicalPlan::Filter(filter) => {
            let input = join(domain, &filter.input)?;
            let predicate = replaced_one(domain, &filter.predicate, &input, &filter.input)?;
            let filter = Filter::try_new(predicate, Arc::new(input.plan))?;
            Ok(Joined { plan: LogicalPlan::Filter(filter), outer: input.outer })
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let Joined { plan: input, outer } = join(domain, &alias.input)?;
            // The domain's columns come last, whatever order the join has given them.
            let input = listed(input, all_of(&alias.input), alias.input.schema(), &outer)?;
            let named = SubqueryAlias::try_new(Arc::new(input.plan), alias.alias.clone())?;
            let plan = LogicalPlan::SubqueryAlias(named);
            let outer = plan.schema().columns().split_off(alias.schema.fields().len());
            Ok(Joined { plan, outer })
        }
        LogicalPlan::Aggregate(aggregate) => grouped(domain, aggregate),
        LogicalPlan::Window(window) => numbered(domain, window),
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
            let input = join(domain, &sort.input)?;
            let expr = sorted(domain, &sort.expr, &input, &sort.input)?;
            let sort = Sort { expr, input: Arc::new(input.plan), fetch: None };
            Ok(Joined { plan: LogicalPlan::Sort(sort), outer: input.outer })
        }
        LogicalPlan::Limit(limit) => limited(domain, limit),
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let Joined { plan, outer } = join(domain, input)?;
            let plan = LogicalPlan::Distinct(Distinct::All(Arc::new(plan)));
            Ok(Joined { plan, outer })
        }
        LogicalPlan::Distinct(Distinct::On(distinct)) => {
            join(domain, &numbered_firsts(domain, distinct)?)
        }
        LogicalPlan::Union(union) => {
            let inputs = union.inputs.iter().map(|input| {
                let joined = join(domain, input)?;
                Ok(Arc::new(renamed(joined, all_of(input), plan.schema())?))
            });
            united(domain, inputs.collect::<Result<_>>()?, plan.schema())
        }
        LogicalPlan::Values(values) => {
            let rows = values.values.iter().map(|row| {
                let (input, outer) = domain.once()?;
                let replace =
                    |value: &Expr| replaced_with(domain, value, &outer, &DFSchema::empty());
                let row = row.iter().map(replace).collect::<Result<_>>()?;
                Ok(Arc::new(renamed(Joined { plan: input, outer }, row, plan.schema())?))
            });
            united(domain, rows.collect::<Result<_>>()?, plan.schema())
        }
        LogicalPlan::Join(joined) => both_sides(domain, joined),
        LogicalPlan::Unnest(lists) => {
            let Joined { plan: input, outer } = join(domain, &lists.input)?;
            let made = Unnest::try_new(
                Arc::new(input),
                lists.exec_columns.clone(),
                lists.options.clone(),
            )?;
            listed(LogicalPlan::Unnest(made), all_of(plan), plan.schema(), &outer)
        }
        LogicalPlan::Subquery(subquery) => join(domain, &subquery.subquery),
        other => not_impl_err!("a column of the query around it in {}", other.display()),
    }
}

/// The join of an uncorrelated plan.
fn cross(domain: &Domain<'_>, plan: &LogicalPlan) -> Result<Joined> {
    let (values, outer) = domain.once()?;
    let plan = match plan {
        LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: true, .. }) => values,
        plan => LogicalPlanBuilder::from(plan.clone()).cross_join(values)?.build()?,
    };
    Ok(Joined { plan, outer })
}

/// All columns of `plan`, by their names.
fn all_of(plan: &LogicalPlan) -> Vec<Expr> {
    plan.schema().columns().into_iter().map(Expr::Column).collect()
}

/// The columns in order, by the names of `schema`.
fn united(domain: &Domain<'_>, inputs: Vec<Arc<LogicalPlan>>, schema: &DFSchema) -> Result<Joined> {
    let plan = LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?);
    let columns = plan.schema().columns();
    let (own, outer) = columns.split_at(columns.len() - domain.outer.len());
    listed(plan, own.iter().cloned().map(Expr::Column).collect(), schema, outer)
}

/// `list` over `input`, by the names of `schema`, and the columns of the domain.
fn listed(
    input: LogicalPlan,
    list: Vec<Expr>,
    schema: &DFSchema,
    outer: &[Column],
) -> Result<Joined> {
    let named = super::named_by_schema(list, schema);
    let named: Vec<Expr> = named.chain(columns(outer)).collect();
    let plan = LogicalPlan::Projection(Projection::try_new(named, Arc::new(input))?);
    Ok(Joined { plan, outer: outer.to_vec() })
}

/// As [`listed`], with unqualified names, as inputs of a union have.
fn renamed(input: Joined, list: Vec<Expr>, schema: &DFSchema) -> Result<LogicalPlan> {
    let fields = schema.fields().iter();
    let list = list
        .into_iter()
        .zip(fields)
        .map(|(value, field)| value.unalias().alias(field.name().clone()));
    let outer = input
        .outer
        .iter()
        .enumerate()
        .map(|(place, column)| Expr::Column(column.clone()).alias(format!("__outer_{place}")));
    let list: Vec<Expr> = list.chain(outer).collect();
    Ok(LogicalPlan::Projection(Projection::try_new(list, Arc::new(input.plan))?))
}

/// `value`, over a plan whose domain columns are `outer`; subqueries within it are over `input`.
fn replaced_with(
    domain: &Domain<'_>,
    value: &Expr,
    outer: &[Column],
    input: &DFSchema,
) -> Result<Expr> {
    replace_in(value.clone(), input, &mut |field, column, depth| {
        let own = outer.get(domain.place(column)?)?.clone();
        Some(match depth {
            0 => Expr::Column(own),
            _ => Expr::OuterReferenceColumn(Arc::clone(field), own),
        })
    })
}

fn replaced_one(
    domain: &Domain<'_>,
    value: &Expr,
    input: &Joined,
    before: &LogicalPlan,
) -> Result<Expr> {
    replaced_with(domain, value, &input.outer, before.schema())
}

fn replaced(
    domain: &Domain<'_>,
    values: &[Expr],
    input: &Joined,
    before: &LogicalPlan,
) -> Result<Vec<Expr>> {
    values.iter().map(|value| replaced_one(domain, value, input, before)).collect()
}

fn sorted(
    domain: &Domain<'_>,
    keys: &[SortExpr],
    input: &Joined,
    before: &LogicalPlan,
) -> Result<Vec<SortExpr>> {
    keys.iter()
        .map(|key| Ok(key.with_expr(replaced_one(domain, &key.expr, input, before)?)))
        .collect()
}

fn columns(outer: &[Column]) -> impl Iterator<Item = Expr> {
    outer.iter().cloned().map(Expr::Column)
}

fn grouped(domain: &Domain<'_>, aggregate: &Aggregate) -> Result<Joined> {
    let has_sets = |group: &Expr| matches!(group, Expr::GroupingSet(_));
    if aggregate.group_expr.iter().any(has_sets) {
        return not_impl_err!("a column of the query around it in a subquery with grouping sets");
    }
    let input = join(domain, &aggregate.input)?;
    let groups = replaced(domain, &aggregate.group_expr, &input, &aggregate.input)?;
    let values = replaced(domain, &aggregate.aggr_expr, &input, &aggregate.input)?;
    // A key that is an outer column is one key with it: DataFusion does not group by one twice.
    let mut keys: Vec<Expr> = Vec::with_capacity(groups.len() + input.outer.len());
    let mut place_of = |key: Expr| {
        keys.iter().position(|known| *known == key).unwrap_or_else(|| {
            keys.push(key);
            keys.len() - 1
        })
    };
    let own_places: Vec<usize> = groups.into_iter().map(&mut place_of).collect();
    let outer_places: Vec<usize> = columns(&input.outer).map(&mut place_of).collect();
    let key_count = keys.len();
    let made = Aggregate::try_new(Arc::new(input.plan), keys, values)?;
    let made = LogicalPlan::Aggregate(made);
    let columns_made = made.schema().columns();
    let outer: Vec<Column> =
        outer_places.into_iter().filter_map(|place| columns_made.get(place).cloned()).collect();
    let own = own_places.into_iter().filter_map(|place| columns_made.get(place));
    let list = own.chain(columns_made.iter().skip(key_count));
    let list: Vec<Expr> = list.cloned().map(Expr::Column).collect();
    let outer = outer.as_slice();
    if !aggregate.group_expr.is_empty() {
        return listed(made, list, &aggregate.schema, outer);
    }
    // Values of the domain without a row.
    let found = domain.name("__found");
    let fields = aggregate.schema.fields();
    let named = list.into_iter().enumerate();
    let named = named.map(|(place, value)| value.alias(format!("value_{place}")));
    let keys = columns(outer).enumerate();
    let keys = keys.map(|(place, value)| value.alias(format!("outer_{place}")));
    let there = lit(true).alias("is_there");
    let groups = LogicalPlanBuilder::from(made)
        .project(named.chain(keys).chain([there]))?
        .alias(found.as_str())?
        .build()?;
    let (all, outer) = domain.once()?;
    let keys = groups.schema().columns()[fields.len()..fields.len() + outer.len()].to_vec();
    let plan = LogicalPlanBuilder::from(all)
        .join_detailed(
            groups,
            JoinType::Left,
            (outer.clone(), keys),
            None,
            NullEquality::NullEqualsNull,
        )?
        .build()?;
    let is_there = Expr::Column(Column::new(Some(found.as_str()), "is_there"));
    let list = aggregate.aggr_expr.iter().zip(fields).enumerate().map(|(place, (value, field))| {
        let column = Expr::Column(Column::new(Some(found.as_str()), format!("value_{place}")));
        let of_none = of_no_row(value, field.data_type())?;
        Ok(match of_none.is_null() {
            true => column,
            false => {
                when(is_there.clone().is_null(), Expr::Literal(of_none, None)).otherwise(column)?
            }
        })
    });
    let list: Vec<Expr> = list.collect::<Result<_>>()?;
    listed(plan, list, &aggregate.schema, &outer)
}

/// The value of an aggregate without rows.
fn of_no_row(value: &Expr, data_type: &DataType) -> Result<ScalarValue> {
    match value {
        Expr::Alias(alias) => of_no_row(&alias.expr, data_type),
        Expr::AggregateFunction(function) => function.func.default_value(data_type),
        _ => ScalarValue::try_from(data_type),
    }
}

fn numbered(domain: &Domain<'_>, window: &Window) -> Result<Joined> {
    let input = join(domain, &window.input)?;
    let values = replaced(domain, &window.window_expr, &input, &window.input)?;
    let values = values.into_iter().map(|value| parted(value, &input.outer)).collect();
    let made = LogicalPlan::Window(Window::try_new(values, Arc::new(input.plan))?);
    let made_columns = made.schema().columns();
    let first = made_columns.len() - window.window_expr.len();
    let list = window.input.schema().columns();
    let list = list.iter().chain(&made_columns[first..]).cloned().map(Expr::Column).collect();
    listed(made, list, &window.schema, &input.outer)
}

/// A window function whose partitions are divided by `outer` too.
fn parted(value: Expr, outer: &[Column]) -> Expr {
    match value {
        Expr::Alias(mut alias) => {
            *alias.expr = parted(*alias.expr, outer);
            Expr::Alias(alias)
        }
        Expr::WindowFunction(mut function) => {
            let WindowFunctionParams { partition_by, .. } = &mut function.params;
            partition_by.extend(columns(outer));
            Expr::WindowFunction(function)
        }
        other => other,
    }
}

fn limited(domain: &Domain<'_>, limit: &Limit) -> Result<Joined> {
    let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
        (limit.get_skip_type()?, limit.get_fetch_type()?)
    else {
        return not_impl_err!("LIMIT in a subquery that names a column of the query around it");
    };
    if let LogicalPlan::Distinct(Distinct::On(distinct)) = limit.input.as_ref() {
        let firsts = Arc::new(numbered_firsts(domain, distinct)?);
        return limited(domain, &Limit { input: firsts, ..limit.clone() });
    }
    // A projection or a name above the sort: it has as many rows.
    if let LogicalPlan::SubqueryAlias(named) = limit.input.as_ref()
        && is_ordered(&named.input)
    {
        let below = LogicalPlan::Limit(Limit { input: Arc::clone(&named.input), ..limit.clone() });
        let named = SubqueryAlias::try_new(Arc::new(below), named.alias.clone())?;
        return join(domain, &LogicalPlan::SubqueryAlias(named));
    }
    if let LogicalPlan::Projection(list) = limit.input.as_ref()
        && is_ordered(&list.input)
    {
        let below = Limit { input: Arc::clone(&list.input), ..limit.clone() };
        let list = Projection::try_new_with_schema(
            list.expr.clone(),
            Arc::new(LogicalPlan::Limit(below)),
            Arc::clone(&list.schema),
        )?;
        return join(domain, &LogicalPlan::Projection(list));
    }
    let (input, order) = match limit.input.as_ref() {
        LogicalPlan::Sort(sort) => {
            let input = join(domain, &sort.input)?;
            let order = sorted(domain, &sort.expr, &input, &sort.input)?;
            (input, order)
        }
        input => (join(domain, input)?, Vec::new()),
    };
    let number = Expr::from(WindowFunction::new(
        WindowFunctionDefinition::WindowUDF(row_number_udwf()),
        Vec::new(),
    ));
    let number = number.partition_by(columns(&input.outer).collect()).order_by(order).build()?;
    let name = domain.name("__row");
    let window = Window::try_new(vec![number.alias(name.as_str())], Arc::new(input.plan))?;
    let number = Expr::Column(Column::new_unqualified(name));
    let count = |count: usize| lit(count as u64);
    let mut wanted = number.clone().gt(count(skip));
    if let Some(fetch) = fetch {
        wanted = wanted.and(number.lt_eq(count(skip.saturating_add(fetch))));
    }
    let filter = Filter::try_new(wanted, Arc::new(LogicalPlan::Window(window)))?;
    listed(LogicalPlan::Filter(filter), all_of(&limit.input), limit.input.schema(), &input.outer)
}

fn is_ordered(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Distinct(Distinct::On(distinct)) => distinct.sort_expr.is_some(),
        LogicalPlan::Projection(list) => is_ordered(&list.input),
        LogicalPlan::SubqueryAlias(named) => is_ordered(&named.input),
        _ => false,
    }
}

/// `distinct` as the first rows of their kinds, numbered by row_number(), in their order.
fn numbered_firsts(domain: &Domain<'_>, distinct: &DistinctOn) -> Result<LogicalPlan> {
    let order = distinct.sort_expr.clone().unwrap_or_default();
    let number = Expr::from(WindowFunction::new(
        WindowFunctionDefinition::WindowUDF(row_number_udwf()),
        Vec::new(),
    ));
    let number = number.partition_by(distinct.on_expr.clone()).order_by(order.clone()).build()?;
    let name = domain.name("__first");
    let input = Arc::clone(&distinct.input);
    let window = Window::try_new(vec![number.alias(name.as_str())], input)?;
    let is_first = Expr::Column(Column::new_unqualified(name)).eq(lit(1_u64));
    let mut plan = LogicalPlanBuilder::from(LogicalPlan::Window(window)).filter(is_first)?;
    if !order.is_empty() {
        plan = plan.sort(order)?;
    }
    let select = Projection::try_new_with_schema(
        distinct.select_expr.clone(),
        Arc::new(plan.build()?),
        Arc::clone(&distinct.schema),
    )?;
    Ok(LogicalPlan::Projection(select))
}

/// A join with a correlated side or condition.
fn both_sides(domain: &Domain<'_>, made: &Join) -> Result<Joined> {
    if is_lateral(&made.right) {
        return not_impl_err!("a column of the query around it in a subquery with a lateral join");
    }
    let in_left = is_correlated(&made.left)?;
    let in_right = is_correlated(&made.right)?;
    use JoinType as Type;
    let (of_left, of_right) = match made.join_type {
        Type::Inner if in_left || in_right => (in_left, in_right),
        Type::Inner => (true, false),
        Type::Left | Type::LeftSemi | Type::LeftAnti | Type::LeftMark => (true, in_right),
        Type::Right => (in_left, true),
        _ => {
            return not_impl_err!("a column of the query around it in a {} join", made.join_type);
        }
    };
    let side = |is_joined: bool, side: &LogicalPlan| match is_joined {
        true => join(domain, side),
        false => Ok(Joined { plan: side.clone(), outer: Vec::new() }),
    };
    let (left, right) = (side(of_left, &made.left)?, side(of_right, &made.right)?);
    // The columns of the side all rows of which are kept.
    let outer = match of_left && made.join_type != Type::Right {
        true => left.outer.clone(),
        false => right.outer.clone(),
    };
    let schema = merge_schema(&[made.left.as_ref(), made.right.as_ref()]);
    let replace = |value: &Expr| replaced_with(domain, value, &outer, &schema);
    let same = left.outer.iter().zip(&right.outer).map(|(one, other)| {
        binary_expr(
            Expr::Column(one.clone()),
            Operator::IsNotDistinctFrom,
            Expr::Column(other.clone()),
        )
    });
    let filter = made.filter.as_ref().map(&replace).transpose()?;
    let filter = filter.into_iter().chain(same).reduce(Expr::and);
    let on = made.on.iter().map(|(one, other)| Ok((replace(one)?, replace(other)?)));
    let joined = Join::try_new(
        Arc::new(left.plan),
        Arc::new(right.plan),
        on.collect::<Result<_>>()?,
        filter,
        made.join_type,
        made.join_constraint,
        made.null_equality,
        made.null_aware,
    )?;
    let plan = LogicalPlan::Join(joined);
    let list = made.schema.columns().into_iter().map(Expr::Column).collect();
    listed(plan, list, &made.schema, &outer)
}
