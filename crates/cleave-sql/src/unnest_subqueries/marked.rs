//! IN, ANY and ALL of a subquery: as values, with NULL for unknown, and as conditions, where NULL counts as false.

use cleave_fragment::walk::Walk;
use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, ExprSchema, Spans, internal_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::count::count;
use datafusion::logical_expr::expr::{Case, Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Subquery,
    binary_expr, lit, not, when,
};
use datafusion::scalar::ScalarValue;

use super::left_to_engine::is_range_of_condition;
use super::outer_references::{has_subquery, is_correlated, over};
use super::{Around, Place};

/// A value that is compared with those of a subquery.
struct Compared {
    value: Expr,
    operator: Operator,
    quantifier: SetQuantifier,
    subquery: Subquery,
}

impl Compared {
    /// The comparison in `expression`; None if it is something else.
    fn of(expression: &Expr) -> Option<Self> {
        match expression {
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => Some(Self {
                value: expr.as_ref().clone(),
                operator: if *negated { Operator::NotEq } else { Operator::Eq },
                quantifier: if *negated { SetQuantifier::All } else { SetQuantifier::Any },
                subquery: subquery.clone(),
            }),
            Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => Some(Self {
                value: expr.as_ref().clone(),
                operator: *op,
                quantifier: *quantifier,
                subquery: subquery.clone(),
            }),
            _ => None,
        }
    }

    /// The opposite.
    fn negated(self) -> Option<Self> {
        let quantifier = match self.quantifier {
            SetQuantifier::Any => SetQuantifier::All,
            SetQuantifier::All => SetQuantifier::Any,
        };
        Some(Self { operator: self.operator.negate()?, quantifier, ..self })
    }

    /// `=` ANY or `<>` ALL as DataFusion represents them.
    fn as_in(&self) -> Option<Expr> {
        let negated = match (self.operator, self.quantifier) {
            (Operator::Eq, SetQuantifier::Any) => false,
            (Operator::NotEq, SetQuantifier::All) => true,
            _ => return None,
        };
        let value = Box::new(self.value.clone());
        Some(Expr::InSubquery(InSubquery::new(value, self.subquery.clone(), negated)))
    }

    /// The subquery's value.
    fn own(&self) -> Expr {
        Expr::Column(Column::from(self.subquery.subquery.schema().qualified_field(0)))
    }

    fn is_nullable(&self, around: &Around<'_>) -> Result<bool> {
        let own = self.own().nullable(self.subquery.subquery.schema().as_ref())?;
        Ok(own || self.value.nullable(around.plan.schema().as_ref())?)
    }

    /// The comparison, as a condition within the subquery.
    fn comparison(&self, around: &Around<'_>) -> Result<Expr> {
        Ok(binary_expr(self.seen_within(around)?, self.operator, self.own()))
    }

    /// Where the comparison is NULL, as a condition within the subquery.
    fn unknown(&self, around: &Around<'_>) -> Result<Expr> {
        use Operator as Op;
        Ok(match self.operator {
            Op::Eq | Op::NotEq | Op::Lt | Op::LtEq | Op::Gt | Op::GtEq => {
                self.seen_within(around)?.is_null().or(self.own().is_null())
            }
            _ => self.comparison(around)?.is_null(),
        })
    }

    /// The compared value, as the subquery refers to it.
    fn seen_within(&self, around: &Around<'_>) -> Result<Expr> {
        let schema = around.plan.schema();
        let value = self.value.clone().transform_up(|part| {
            Ok(match part {
                Expr::Column(column) => {
                    let field = Arc::clone(schema.field_from_column(&column)?);
                    Transformed::yes(Expr::OuterReferenceColumn(field, column))
                }
                part => Transformed::no(part),
            })
        })?;
        Ok(value.data)
    }

    /// EXISTS of the subquery's rows that satisfy `condition`.
    fn exists(&self, condition: Expr, negated: bool) -> Result<Expr> {
        let plan = Filter::try_new(condition, Arc::clone(&self.subquery.subquery))?;
        let subquery = over(&self.subquery, LogicalPlan::Filter(plan));
        Ok(Expr::Exists(Exists { subquery, negated }))
    }
}

/// The value of IN, ANY or ALL.
pub(super) fn contained(around: &mut Around<'_>, expression: Expr) -> Result<Expr> {
    let Some(compared) = Compared::of(&expression) else {
        return internal_err!("{expression} compares nothing");
    };
    let plan = Arc::clone(&compared.subquery.subquery);
    let is_all = compared.quantifier == SetQuantifier::All;
    let comparison = compared.comparison(around)?;
    // The deciding row: an equal one, or for ALL an unequal one.
    let decides = match (is_all, compared.operator.negate()) {
        (false, _) => comparison,
        (true, Some(operator)) => {
            binary_expr(compared.seen_within(around)?, operator, compared.own())
        }
        (true, None) => not(comparison),
    };
    let is_nullable = compared.is_nullable(around)?;
    let unknown = compared.unknown(around)?;
    let is_decided = around.mark(&plan, Some(decides))?;
    let mut case = when(is_decided, lit(!is_all));
    if is_nullable {
        let is_unknown = match is_correlated(&plan)? || has_subquery(&compared.value) {
            true => around.mark(&plan, Some(unknown))?,
            false => {
                let mut wanted = when(compared.value.clone().is_null(), lit(0_i64));
                nulls_of(&compared)?.gt(wanted.otherwise(lit(1_i64))?)
            }
        };
        case = case.when(is_unknown, Expr::Literal(ScalarValue::Boolean(None), None));
    }
    case.otherwise(lit(is_all))
}

/// For an uncorrelated subquery: 0 if it has no row, 2 if a value is NULL, else 1.
fn nulls_of(compared: &Compared) -> Result<Expr> {
    let plan = compared.subquery.subquery.as_ref().clone();
    let counted =
        LogicalPlanBuilder::from(plan).project([compared.own().alias("value")])?.aggregate(
            Vec::<Expr>::new(),
            [
                count(lit(1_i64)).alias("rows"),
                count(Expr::Column(Column::new_unqualified("value"))).alias("known"),
            ],
        )?;
    let column = |name: &str| Expr::Column(Column::new_unqualified(name));
    let kind = when(column("rows").eq(lit(0_i64)), lit(0_i64))
        .when(column("rows").gt(column("known")), lit(2_i64))
        .otherwise(lit(1_i64))?;
    let plan = counted.project([kind.alias("nulls")])?.build()?;
    let (outer_ref_columns, spans) = (Vec::new(), Spans::new());
    Ok(Expr::ScalarSubquery(Subquery { subquery: Arc::new(plan), outer_ref_columns, spans }))
}

/// `expression` where NULL counts as false; `is_whole`: it is the whole condition, not a part of an OR.
pub(super) fn as_condition(
    around: &mut Around<'_>,
    expression: Expr,
    is_whole: bool,
) -> Result<Expr> {
    if !has_subquery(&expression) {
        return Ok(expression);
    }
    match expression {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let is_whole = is_whole && op == Operator::And;
            let left = as_condition(around, *left, is_whole)?;
            let right = as_condition(around, *right, is_whole)?;
            Ok(binary_expr(left, op, right))
        }
        Expr::Not(inner) => as_negated(around, *inner, is_whole),
        Expr::InSubquery(_) | Expr::SetComparison(_) => compared(around, expression, is_whole),
        Expr::Case(case) => match either_exists(&case) {
            Some((found, _)) => around.values(found),
            None => around.values(Expr::Case(case)),
        },
        other => around.values(other),
    }
}

/// NOT `expression`, where NULL counts as false.
fn as_negated(around: &mut Around<'_>, expression: Expr, is_whole: bool) -> Result<Expr> {
    match expression {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let op = if op == Operator::And { Operator::Or } else { Operator::And };
            let negated = binary_expr(not(*left), op, not(*right));
            as_condition(around, negated, is_whole)
        }
        Expr::Not(inner) => as_condition(around, *inner, is_whole),
        Expr::Case(case) => match either_exists(&case) {
            Some((found, unknown)) => around.values(not(found).and(not(unknown))),
            None => around.values(not(Expr::Case(case))),
        },
        other => match Compared::of(&other).and_then(Compared::negated) {
            Some(negated) => {
                let set = SetComparison::new(
                    Box::new(negated.value),
                    negated.subquery,
                    negated.operator,
                    negated.quantifier,
                );
                compared(around, Expr::SetComparison(set), is_whole)
            }
            None => around.values(not(other)),
        },
    }
}

/// `CASE WHEN EXISTS (…) THEN true WHEN EXISTS (…) THEN NULL ELSE false END`, the form of IN of several columns.
fn either_exists(case: &Case) -> Option<(Expr, Expr)> {
    let [(found, yes), (unknown, none)] = case.when_then_expr.as_slice() else { return None };
    let is = |value: &Expr, wanted: Option<bool>| match value {
        Expr::Literal(ScalarValue::Boolean(own), _) => *own == wanted,
        Expr::Literal(ScalarValue::Null, _) => wanted.is_none(),
        Expr::Cast(cast) => {
            matches!(*cast.expr, Expr::Literal(ScalarValue::Null, _)) && wanted.is_none()
        }
        _ => false,
    };
    let is_exists = |value: &Expr| matches!(value, Expr::Exists(_));
    let matches = case.expr.is_none()
        && is_exists(found)
        && is_exists(unknown)
        && is(yes, Some(true))
        && is(none, None)
        && case.else_expr.as_deref().is_some_and(|otherwise| is(otherwise, Some(false)));
    matches.then(|| (found.as_ref().clone(), unknown.as_ref().clone()))
}

/// Whether a value is a column, maybe cast. DataFusion's anti join for NOT IN sees a NULL of the subquery only if the
/// value is a key of the join, which a constant, or what is folded to one, is not.
fn is_column(value: &Expr) -> bool {
    match value {
        Expr::Column(_) => true,
        Expr::Cast(cast) => is_column(&cast.expr),
        _ => false,
    }
}

/// IN, ANY or ALL, where NULL counts as false.
fn compared(around: &mut Around<'_>, expression: Expr, is_whole: bool) -> Result<Expr> {
    let Some(mut compared) = Compared::of(&expression) else {
        return internal_err!("{expression} compares nothing");
    };
    compared.value = around.values(compared.value)?;
    let plan = Arc::clone(&compared.subquery.subquery);
    let is_all = compared.quantifier == SetQuantifier::All;
    let is_correlated = is_correlated(&plan)?;
    let is_nullable = compared.is_nullable(around)?;
    if let Some(contained) = compared.as_in() {
        let is_left = match is_all {
            false => is_range_of_condition(&plan)?,
            true => !is_correlated && is_column(&compared.value) && (is_whole || !is_nullable),
        };
        if is_left && around.place == Place::Condition {
            return Ok(contained);
        }
        if is_all && !is_correlated {
            return self::contained(around, contained);
        }
    }
    let comparison = compared.comparison(around)?;
    let range = match is_all {
        false => compared.exists(comparison, false)?,
        // No row exists for which it is not true.
        true => {
            let opposite = match compared.operator.negate() {
                Some(operator) => {
                    binary_expr(compared.seen_within(around)?, operator, compared.own())
                }
                None => not(comparison),
            };
            let condition = match is_nullable {
                true => opposite.or(compared.unknown(around)?),
                false => opposite,
            };
            compared.exists(condition, true)?
        }
    };
    around.values(range)
}
