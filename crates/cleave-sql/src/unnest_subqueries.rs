//! Unnests subqueries to joins, where DataFusion's own rules differ from PostgreSQL's meaning, or do not apply.
//!
//! DataFusion makes joins of EXISTS and IN in conditions, and of scalar subqueries that aggregate rows with columns
//! equal to outer ones: these are left to it. All others become columns of the input of their node:
//!
//! ```text
//!  (q)            ─▶ LEFT JOIN with q for all values of its outer columns (`dependent`), and an error where it has
//!                    several rows for one of them (`one_row`)
//!  EXISTS (q)     ─▶ mark join with q
//!  x IN (q)       ─▶ CASE WHEN mark of x = v THEN true WHEN mark of (x = v) IS NULL THEN NULL ELSE false END
//!  x NOT IN (q)   as a condition, correlated: NOT EXISTS (q with x = v not false)
//!  LATERAL (q)    ─▶ INNER or LEFT JOIN with q for all these values
//! ```
//!
//! Outer subqueries are processed first: a reference two levels up then becomes one level up. An uncorrelated scalar
//! subquery stays; it is NULL if it has no row, even if its column is NOT NULL.
//!
//! Invariant: the resulting plan has the same columns as before, by name and order.

mod dependent;
mod domain;
mod left_to_engine;
mod marked;
mod one_row;
mod outer_references;
mod peeled;

use cleave_fragment::walk::{Walk, WalkPlan};
use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, NullEquality, Spans, not_impl_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::functions_aggregate::count::count_all;
use datafusion::functions_aggregate::first_last::first_value;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Expr, Filter, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Projection, Sort, Subquery, lit,
    when,
};
use datafusion::optimizer::AnalyzerRule;

use domain::Domain;
use left_to_engine::{
    has_one_row, has_one_row_at_most, is_aggregate_of_equals, is_range_of_condition,
};
use marked::{as_condition, contained};
use one_row::one_row;
use outer_references::{has_any_subquery, has_subquery, is_correlated, is_lateral, outer_columns};
pub(crate) use outer_references::{over, subquery_of, with_subquery};
use peeled::Peeled;

/// Unnests subqueries.
#[derive(Debug)]
pub struct UnnestSubqueries;

impl AnalyzerRule for UnnestSubqueries {
    fn name(&self) -> &'static str {
        "unnest_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        unnest(plan, &Names::default())
    }
}

/// Reserved names within a plan.
#[derive(Debug, Default)]
struct Names {
    given: Cell<u64>,
}

impl Names {
    fn next(&self, prefix: &str) -> String {
        let number = self.given.get() + 1;
        self.given.set(number);
        format!("{prefix}_{number}")
    }
}

/// Processes a whole plan without outer references.
fn unnest(plan: LogicalPlan, names: &Names) -> Result<LogicalPlan> {
    if !has_any_subquery(&plan)? {
        return Ok(plan);
    }
    let plan = match plan {
        LogicalPlan::Filter(filter) => filtered(filter, names)?,
        LogicalPlan::Join(join) => joined(join, names)?,
        LogicalPlan::Sort(sort) => with_sorted_columns(sort)?,
        other => other,
    };
    let plan = match plan {
        LogicalPlan::Projection(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Sort(_) => with_columns(plan, names)?,
        other => other,
    };
    let plan = plan.map_children(|child| Ok(Transformed::yes(unnest(child, names)?)))?.data;
    // The remaining ones.
    let plan = plan.change_expressions(|expression| {
        expression.transform_up(|part| {
            let Some(subquery) = subquery_of(&part) else { return Ok(Transformed::no(part)) };
            if is_correlated(&subquery.subquery)? {
                return Ok(Transformed::no(part));
            }
            let own = unnest(subquery.subquery.as_ref().clone(), names)?;
            let own = match part {
                Expr::ScalarSubquery(_) => or_null(own)?,
                _ => own,
            };
            let subquery = over(subquery, own);
            Ok(Transformed::yes(with_subquery(part, subquery)))
        })
    })?;
    plan.data.recompute_schema()
}

/// `plan` with a column that is NULL without a row: DataFusion assumes that a NOT NULL column always has a value.
fn or_null(plan: LogicalPlan) -> Result<LogicalPlan> {
    let is_nullable = plan.schema().fields().iter().all(|field| field.is_nullable());
    if is_nullable || has_one_row(&plan) {
        return Ok(plan);
    }
    let columns = plan.schema().columns().into_iter().map(Expr::Column);
    LogicalPlanBuilder::empty(true)
        .join_on(plan, JoinType::Left, [lit(true)])?
        .project(columns)?
        .build()
}

/// The place of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In a condition of rows.
    Condition,
    /// In the list of SELECT.
    List,
    /// Elsewhere.
    Other,
}

/// The plan that gets subqueries as columns.
struct Around<'a> {
    plan: LogicalPlan,
    place: Place,
    names: &'a Names,
}

impl Around<'_> {
    /// `expression` with columns in place of subqueries.
    fn values(&mut self, expression: Expr) -> Result<Expr> {
        if !has_subquery(&expression) {
            return Ok(expression);
        }
        let replaced = expression.transform_up(|part| {
            Ok(match part {
                Expr::ScalarSubquery(subquery) => match self.is_left(&subquery)? {
                    true => Transformed::no(Expr::ScalarSubquery(subquery)),
                    false => Transformed::yes(self.scalar(&subquery)?),
                },
                Expr::Exists(exists)
                    if self.place == Place::Condition
                        && is_range_of_condition(&exists.subquery.subquery)? =>
                {
                    Transformed::no(Expr::Exists(exists))
                }
                Expr::Exists(exists) => {
                    let mark = self.mark(&exists.subquery.subquery, None)?;
                    Transformed::yes(if exists.negated { !mark } else { mark })
                }
                Expr::InSubquery(_) | Expr::SetComparison(_) => {
                    Transformed::yes(contained(self, part)?)
                }
                part => Transformed::no(part),
            })
        })?;
        Ok(replaced.data)
    }

    /// `expression` as a column of the outer rows.
    fn column(&mut self, expression: Expr) -> Result<Expr> {
        let value = self.values(expression)?;
        let name = self.names.next("__value");
        let own = self.plan.schema().columns().into_iter().map(Expr::Column);
        let list: Vec<Expr> = own.chain([value.alias(name.as_str())]).collect();
        self.plan = LogicalPlanBuilder::from(self.plan.clone()).project(list)?.build()?;
        Ok(Expr::Column(Column::new_unqualified(name)))
    }

    /// Whether `subquery` is left to DataFusion as a scalar value.
    fn is_left(&self, subquery: &Subquery) -> Result<bool> {
        let plan = &subquery.subquery;
        Ok(!is_correlated(plan)? || (self.place != Place::Other && is_aggregate_of_equals(plan)?))
    }

    /// The value of a correlated subquery.
    fn scalar(&mut self, subquery: &Subquery) -> Result<Expr> {
        let plan = subquery.subquery.as_ref();
        if plan.schema().fields().len() != 1 {
            return not_impl_err!("a subquery of several columns as a value");
        }
        let values = self.for_all_values(plan)?;
        let is_single = has_one_row_at_most(plan);
        let own = || Expr::Column(Column::new_unqualified("value_0"));
        let rows = match is_single {
            true => values.plan,
            false => {
                let list = [
                    first_value(own(), Vec::new()).alias("value_0"),
                    count_all().alias("row_count"),
                ];
                let keys = (0..values.outer.len()).map(|place| Expr::Column(key(place)));
                LogicalPlanBuilder::from(values.plan).aggregate(keys, list)?.build()?
            }
        };
        let alias = self.beside(rows, JoinType::Left, &values.outer)?;
        let column = |name: &str| Expr::Column(Column::new(Some(alias.as_str()), name));
        match is_single {
            true => Ok(column("value_0")),
            // Only once the rows that need the value are known.
            false => when(one_row().call(vec![column("row_count")]), column("value_0")).end(),
        }
    }

    /// Whether a row of `plan`, a subquery, satisfies `condition`, which refers to outer columns as the subquery does.
    fn mark(&mut self, plan: &LogicalPlan, condition: Option<Expr>) -> Result<Expr> {
        let plan = match condition {
            Some(condition) => {
                LogicalPlan::Filter(Filter::try_new(condition, Arc::new(plan.clone()))?)
            }
            None if !is_correlated(plan)? => return there_is(plan),
            None => plan.clone(),
        };
        let alias = match Peeled::of(&plan)? {
            Some(peeled) => {
                let alias = self.names.next("__mark");
                let (rows, condition) = peeled.beside(&alias)?;
                self.join_on(rows, JoinType::LeftMark, condition)?;
                alias
            }
            None => {
                let values = self.for_all_values(&plan)?;
                self.beside(values.plan, JoinType::LeftMark, &values.outer)?
            }
        };
        Ok(Expr::Column(Column::new(Some(alias), "mark")))
    }

    /// `plan` for all values of its outer columns in the outer rows.
    fn for_all_values(&self, plan: &LogicalPlan) -> Result<ForAllValues> {
        let outer = outer_columns(plan)?;
        if outer.iter().any(|column| !self.plan.schema().has_column(column)) {
            return not_impl_err!("a subquery that names a column which is not there for it");
        }
        let Some(domain) = Domain::new(&self.plan, outer, self.names)? else {
            return not_impl_err!("such a subquery beside rows that are not the same each time");
        };
        let joined = dependent::join(&domain, plan)?;
        let own = plan.schema().columns().into_iter().enumerate();
        let own = own.map(|(place, column)| Expr::Column(column).alias(format!("value_{place}")));
        let keys = joined.outer.into_iter().enumerate();
        let keys = keys.map(|(place, column)| Expr::Column(column).alias(key(place).name));
        let list: Vec<Expr> = own.chain(keys).collect();
        let plan = LogicalPlanBuilder::from(joined.plan).project(list)?.build()?;
        Ok(ForAllValues { plan, outer: domain.outer })
    }

    /// Joins the outer rows with `rows`, whose keys are the values of `outer`; returns their names.
    fn beside(
        &mut self,
        rows: LogicalPlan,
        join_type: JoinType,
        outer: &[Column],
    ) -> Result<String> {
        let alias = self.names.next("__beside");
        let rows = LogicalPlanBuilder::from(rows).alias(alias.as_str())?.build()?;
        let inner =
            (0..outer.len()).map(|place| Column::new(Some(alias.as_str()), key(place).name));
        let inner: Vec<Column> = inner.collect();
        let equality = NullEquality::NullEqualsNull;
        self.plan = LogicalPlanBuilder::from(self.plan.clone())
            .join_detailed(rows, join_type, (outer.to_vec(), inner), None, equality)?
            .build()?;
        Ok(alias)
    }

    fn join_on(&mut self, rows: LogicalPlan, join_type: JoinType, condition: Expr) -> Result<()> {
        self.plan = LogicalPlanBuilder::from(self.plan.clone())
            .join_on(rows, join_type, [condition])?
            .build()?;
        Ok(())
    }
}

/// A subquery's rows: its columns, `value_0` and so on, and the values of the outer rows, `key_0` and so on.
struct ForAllValues {
    plan: LogicalPlan,
    /// The columns that the keys equal.
    outer: Vec<Column>,
}

fn key(place: usize) -> Column {
    Column::new_unqualified(format!("key_{place}"))
}

/// Whether `plan`, which is uncorrelated, has a row.
fn there_is(plan: &LogicalPlan) -> Result<Expr> {
    let found = LogicalPlanBuilder::from(plan.clone()).limit(0, Some(1))?;
    let is_there = count_all().gt(lit(0_i64)).alias("is_there");
    let count = Vec::<Expr>::new();
    let found = found.aggregate(count, [count_all()])?.project([is_there])?.build()?;
    Ok(Expr::ScalarSubquery(Subquery {
        subquery: Arc::new(found),
        outer_ref_columns: Vec::new(),
        spans: Spans::new(),
    }))
}

/// A filter whose condition has subqueries.
fn filtered(filter: Filter, names: &Names) -> Result<LogicalPlan> {
    if !has_subquery(&filter.predicate) {
        return Ok(LogicalPlan::Filter(filter));
    }
    let conditions = split_conjunction_owned(filter.predicate.clone());
    let (with, plain): (Vec<_>, Vec<_>) = conditions.into_iter().partition(has_subquery);
    let plan = match conjunction(plain.clone()) {
        Some(plain) => LogicalPlan::Filter(Filter::try_new(plain, Arc::clone(&filter.input))?),
        None => filter.input.as_ref().clone(),
    };
    let mut around = Around { plan: plan.clone(), place: Place::Condition, names };
    let with = with.into_iter().map(|condition| as_condition(&mut around, condition, true));
    let with: Vec<Expr> = with.collect::<Result<_>>()?;
    if around.plan == plan {
        let all = conjunction(plain.into_iter().chain(with));
        let all = all.unwrap_or_else(|| lit(true));
        return Ok(LogicalPlan::Filter(Filter::try_new(all, filter.input)?));
    }
    let all = conjunction(with).unwrap_or_else(|| lit(true));
    let columns = filter.input.schema().columns().into_iter().map(Expr::Column);
    LogicalPlanBuilder::from(around.plan).filter(all)?.project(columns)?.build()
}

/// A node of one input whose expressions have subqueries.
fn with_columns(plan: LogicalPlan, names: &Names) -> Result<LogicalPlan> {
    let expressions = plan.expressions();
    if !expressions.iter().any(has_subquery) {
        return Ok(plan);
    }
    let [input] = plan.inputs()[..] else { return Ok(plan) };
    let place = match &plan {
        LogicalPlan::Projection(_) => Place::List,
        _ => Place::Other,
    };
    let mut around = Around { plan: input.clone(), place, names };
    let values = expressions.into_iter().map(|expression| around.values(expression));
    let values: Vec<Expr> = values.collect::<Result<_>>()?;
    let is_wider = around.plan != *input;
    let own_count = input.schema().fields().len();
    let schema = Arc::clone(plan.schema());
    let made = plan.with_new_exprs(values, vec![around.plan])?;
    let columns = made.schema().columns();
    let columns = match &made {
        // The new columns are in the middle.
        LogicalPlan::Window(window) => {
            let last = columns.len() - window.window_expr.len();
            [&columns[..own_count], &columns[last..]].concat()
        }
        _ => columns[..schema.fields().len()].to_vec(),
    };
    let is_same = |(column, (qualifier, field)): (&Column, (_, _))| {
        *column == Column::from((qualifier, field))
    };
    if !is_wider && columns.iter().zip(schema.iter()).all(is_same) {
        return Ok(made);
    }
    named_as(made, columns.into_iter().map(Expr::Column), &schema)
}

/// `list` over `plan`, by the names of `schema`.
fn named_as(
    plan: LogicalPlan,
    list: impl Iterator<Item = Expr>,
    schema: &DFSchema,
) -> Result<LogicalPlan> {
    let list = named_by_schema(list, schema).collect();
    Ok(LogicalPlan::Projection(Projection::try_new(list, Arc::new(plan))?))
}

/// `list`, each by the name that `schema` has in its place.
fn named_by_schema(
    list: impl IntoIterator<Item = Expr>,
    schema: &DFSchema,
) -> impl Iterator<Item = Expr> {
    list.into_iter().zip(schema.iter()).map(|(value, (qualifier, field))| {
        let column = Column::from((qualifier, field));
        match value {
            Expr::Column(own) if own == column => Expr::Column(own),
            value => value.unalias().alias_qualified(column.relation, column.name),
        }
    })
}

/// A sort whose subqueries name columns that the projection below it has left out, with these.
fn with_sorted_columns(sort: Sort) -> Result<LogicalPlan> {
    let LogicalPlan::Projection(list) = sort.input.as_ref() else {
        return Ok(LogicalPlan::Sort(sort));
    };
    let mut left_out = Vec::new();
    for key in &sort.expr {
        key.expr.apply(|part| {
            let named = subquery_of(part).map(|subquery| outer_columns(&subquery.subquery));
            for column in named.transpose()?.into_iter().flatten() {
                let is_below = list.input.schema().has_column(&column);
                if is_below && !list.schema.has_column(&column) && !left_out.contains(&column) {
                    left_out.push(column);
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    if left_out.is_empty() {
        return Ok(LogicalPlan::Sort(sort));
    }
    let columns = list.schema.columns().into_iter().map(Expr::Column);
    let wider = list.expr.iter().cloned().chain(left_out.into_iter().map(Expr::Column));
    let wider = Projection::try_new(wider.collect(), Arc::clone(&list.input))?;
    let input = Arc::new(LogicalPlan::Projection(wider));
    LogicalPlanBuilder::from(LogicalPlan::Sort(Sort { input, ..sort })).project(columns)?.build()
}

/// A join whose condition has subqueries, or whose right side names the left one.
fn joined(join: Join, names: &Names) -> Result<LogicalPlan> {
    if is_lateral(&join.right) && is_correlated(&join.right)? {
        return lateral(join, names);
    }
    let condition = match &join.filter {
        Some(condition) if !is_left_in_join(condition)? => condition.clone(),
        _ => return Ok(LogicalPlan::Join(join)),
    };
    let schema = Arc::clone(&join.schema);
    let columns = schema.columns().into_iter().map(Expr::Column);
    if join.join_type == JoinType::Inner {
        let pairs = LogicalPlan::Join(Join { filter: None, ..join });
        return filtered(Filter::try_new(condition, Arc::new(pairs))?, names);
    }
    let mut left = Around { plan: (*join.left).clone(), place: Place::Other, names };
    let mut right = Around { plan: (*join.right).clone(), place: Place::Other, names };
    let mut conditions = Vec::new();
    for condition in split_conjunction_owned(condition) {
        let named = named_by(&condition)?;
        let is_of =
            |side: &LogicalPlan| named.iter().all(|column| side.schema().has_column(column));
        conditions.push(match () {
            () if is_left_in_join(&condition)? => condition,
            () if is_of(&right.plan) => right.column(condition)?,
            () if is_of(&left.plan) => left.column(condition)?,
            () => by_side(condition, &mut left, &mut right)?,
        });
    }
    let made = Join::try_new(
        Arc::new(left.plan),
        Arc::new(right.plan),
        join.on,
        conjunction(conditions),
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?;
    LogicalPlanBuilder::from(LogicalPlan::Join(made)).project(columns)?.build()
}

/// `condition`, which names both sides of an outer join, with a column of one side in the place of each subquery.
fn by_side(condition: Expr, left: &mut Around<'_>, right: &mut Around<'_>) -> Result<Expr> {
    let replaced = condition.transform_up(|part| {
        if subquery_of(&part).is_none() || is_left_in_join(&part)? {
            return Ok(Transformed::no(part));
        }
        let named = named_by(&part)?;
        let is_of =
            |side: &LogicalPlan| named.iter().all(|column| side.schema().has_column(column));
        Ok(Transformed::yes(match () {
            () if is_of(&right.plan) => right.column(part)?,
            () if is_of(&left.plan) => left.column(part)?,
            () => return not_impl_err!("a subquery in ON that names both sides of an outer join"),
        }))
    })?;
    Ok(replaced.data)
}

/// Whether a join's condition stays: its subqueries are uncorrelated values.
fn is_left_in_join(condition: &Expr) -> Result<bool> {
    let mut is_left = true;
    condition.apply(|part| {
        is_left &= match (part, subquery_of(part)) {
            (Expr::ScalarSubquery(_), Some(subquery)) => !is_correlated(&subquery.subquery)?,
            (_, subquery) => subquery.is_none(),
        };
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(is_left)
}

/// The columns that a condition names, also within its subqueries.
fn named_by(condition: &Expr) -> Result<Vec<Column>> {
    let mut named: Vec<Column> = condition.column_refs().into_iter().cloned().collect();
    condition.apply(|part| {
        if let Some(subquery) = subquery_of(part) {
            named.extend(outer_columns(&subquery.subquery)?);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(named)
}

/// A join with a subquery that names columns of the left side.
fn lateral(join: Join, names: &Names) -> Result<LogicalPlan> {
    let is_kept = matches!(join.join_type, JoinType::Inner | JoinType::Left);
    if !is_kept || is_range_of_condition(&join.right)? {
        return Ok(LogicalPlan::Join(join));
    }
    let mut around = Around { plan: join.left.as_ref().clone(), place: Place::Other, names };
    let values = around.for_all_values(&join.right)?;
    let name = names.next("__lateral");
    let columns = values.plan.schema().columns();
    let (own, keys) = columns.split_at(columns.len() - values.outer.len());
    let own = own.iter().zip(join.right.schema().iter());
    let own = own.map(|(column, (qualifier, field))| {
        Expr::Column(column.clone()).alias_qualified(qualifier.cloned(), field.name())
    });
    let named_keys = keys.iter().map(|column| {
        Expr::Column(column.clone()).alias_qualified(Some(name.as_str()), &column.name)
    });
    let list: Vec<Expr> = own.chain(named_keys).collect();
    let right = LogicalPlan::Projection(Projection::try_new(list, Arc::new(values.plan))?);
    let inner: Vec<Column> =
        keys.iter().map(|column| Column::new(Some(name.as_str()), &column.name)).collect();
    let on = join.on.into_iter().map(|(one, other)| one.eq(other));
    let filter = conjunction(on.chain(join.filter));
    around.plan = LogicalPlanBuilder::from(around.plan)
        .join_detailed(
            right,
            join.join_type,
            (values.outer, inner),
            filter,
            NullEquality::NullEqualsNull,
        )?
        .build()?;
    let columns = join.schema.columns().into_iter().map(Expr::Column);
    LogicalPlanBuilder::from(around.plan).project(columns)?.build()
}
