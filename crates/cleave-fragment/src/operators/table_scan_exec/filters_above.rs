//! The current filters of the operators above a scan, as conditions: filters in flight in, [`Conditions`] out.
//!
//! A filter is examined again only when its generation has changed, once for all partitions of a scan:
//!
//! 1. its current form is taken apart, and its keys become sets of integers ([`compact_keys`]), each a condition;
//! 2. bounds that a set of keys implies are dropped, because the look-up implies them;
//! 3. the bound of a top-k of several columns gives one of its first column besides ([`leading_bound`]), which a page
//!    evaluates on the encoded form;
//! 4. a condition that [`compact_keys`] would drop because it cannot cross a link is kept: here it can be evaluated,
//!    unless it asks for an [absent key](has_absent_key).
//!
//! Invariant: losing a condition changes no rows (rule 4), so each of them is optional.

use std::sync::{Arc, Mutex, PoisonError};

use cleave_store::Projection;
use datafusion_common::Result;
use datafusion_expr::Operator;
use datafusion_physical_expr::expressions::{BinaryExpr, Column, InListExpr, IsNullExpr, Literal};
use datafusion_physical_expr::{PhysicalExpr, split_conjunction};
use datafusion_physical_expr_common::physical_expr::{snapshot_generation, snapshot_physical_expr};

use super::condition::Condition;
use super::conditions::Conditions;
use crate::expressions::absent_key::has_absent_key;
use crate::expressions::key_set::compact::{
    KeyBounds, LIST_COUNT_MAX, compact_keys, compares_bits, is_always, is_implied,
};

/// The filters from above of one scan, which its partitions share.
#[derive(Debug, Default)]
pub(super) struct FiltersAbove {
    filters: Vec<Arc<dyn PhysicalExpr>>,
    now: Mutex<Now>,
}

#[derive(Default)]
struct Now {
    /// Each filter in the form in which it was last examined.
    forms: Vec<Form>,
    conditions: Arc<Conditions>,
}

struct Form {
    generation: u64,
    conditions: Vec<Arc<Condition>>,
}

impl FiltersAbove {
    pub(super) fn new(filters: Vec<Arc<dyn PhysicalExpr>>) -> Self {
        Self { filters, now: Mutex::default() }
    }

    /// The filters as they were given.
    pub(super) fn filters(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.filters
    }

    /// The current conditions, over rows with the columns of `of`. A partition waits while another one computes them.
    pub(super) fn conditions(&self, of: &Projection) -> Result<Arc<Conditions>> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_new = false;
        for (place, filter) in self.filters.iter().enumerate() {
            // Read first: if the filter changes meanwhile, it is examined once more.
            let generation = snapshot_generation(filter);
            if now.forms.get(place).is_some_and(|form| form.generation == generation) {
                continue;
            }
            let form = Form { generation, conditions: conditions_of(filter, of)? };
            match now.forms.get_mut(place) {
                Some(known) => *known = form,
                None => now.forms.push(form),
            }
            is_new = true;
        }
        if is_new {
            let all = now.forms.iter().flat_map(|form| form.conditions.iter().cloned());
            now.conditions = Arc::new(Conditions::new(all.collect()));
        }
        Ok(Arc::clone(&now.conditions))
    }
}

/// The current conditions of `filter`.
fn conditions_of(filter: &Arc<dyn PhysicalExpr>, of: &Projection) -> Result<Vec<Arc<Condition>>> {
    let current = snapshot_physical_expr(Arc::clone(filter))?;
    let given = split_conjunction(&current);
    let mut parts: Vec<Arc<dyn PhysicalExpr>> = Vec::with_capacity(given.len());
    for part in &given {
        let compact = compact_keys(Arc::clone(part))?;
        if !is_always(&compact) {
            parts.extend(split_conjunction(&compact).into_iter().cloned());
        } else if !is_always(part) && !has_absent_key(part) && !compares_bits(part) {
            parts.push(Arc::clone(part));
        }
    }
    let is_long =
        |part: &Arc<dyn PhysicalExpr>| part.downcast_ref::<InListExpr>().map(InListExpr::len);
    let has_long =
        parts.iter().any(|part| is_long(part).is_some_and(|count| count > LIST_COUNT_MAX));
    if has_long && !has_absent_key(&current) {
        // Taking apart a list of so many values takes longer than evaluating it.
        return Ok(vec![Arc::new(Condition::new(filter, of)?.optional(None))]);
    }
    parts.extend(given.iter().filter_map(|part| leading_bound(part)).collect::<Vec<_>>());
    let new = parts.iter().filter(|part| !is_implied(part, &parts));
    new.map(|part| {
        let bounds = KeyBounds::of_look_up(part, &given);
        Ok(Arc::new(Condition::new(part, of)?.optional(bounds)))
    })
    .collect()
}

/// The bound of the first column that `a < 5 OR a = 5 AND b < 7` implies: `a <= 5`, or with `a IS NULL OR` before both.
/// None unless all alternatives compare one column with one value in one direction.
fn leading_bound(part: &Arc<dyn PhysicalExpr>) -> Option<Arc<dyn PhysicalExpr>> {
    let mut alternatives = Vec::new();
    collect_alternatives(part, &mut alternatives);
    let mut bound: Option<(&BinaryExpr, Operator)> = None;
    let mut null: Option<&Arc<dyn PhysicalExpr>> = None;
    let mut is_several = false;
    for alternative in alternatives {
        let first = *split_conjunction(alternative).first()?;
        if first.is::<IsNullExpr>() {
            null = null.is_none_or(|known| known.eq(first)).then_some(Some(first))?;
            continue;
        }
        let compared = first.downcast_ref::<BinaryExpr>()?;
        let operator = *compared.op();
        let (known, joined) = match bound {
            None => (compared, Some(operator)),
            Some((known, before)) => (known, wider(before, operator)),
        };
        let is_same = known.left().eq(compared.left()) && known.right().eq(compared.right());
        is_several |= bound.is_some();
        bound = Some((known, joined.filter(|_| is_same)?));
    }
    let (compared, operator) = bound.filter(|_| is_several)?;
    let column = compared.left().downcast_ref::<Column>()?;
    let value = compared.right().downcast_ref::<Literal>()?.value();
    value.data_type().is_primitive().then_some(())?;
    let (left, right) = (Arc::clone(compared.left()), Arc::clone(compared.right()));
    let bound: Arc<dyn PhysicalExpr> = Arc::new(BinaryExpr::new(left, operator, right));
    let Some(null) = null else { return Some(bound) };
    let of = null.downcast_ref::<IsNullExpr>()?.arg().downcast_ref::<Column>()?;
    (of == column).then(|| {
        let bound = BinaryExpr::new(Arc::clone(null), Operator::Or, bound);
        Arc::new(bound) as Arc<dyn PhysicalExpr>
    })
}

/// The parts of `part` of which one must hold.
fn collect_alternatives<'a>(
    part: &'a Arc<dyn PhysicalExpr>,
    alternatives: &mut Vec<&'a Arc<dyn PhysicalExpr>>,
) {
    match part.downcast_ref::<BinaryExpr>() {
        Some(either) if *either.op() == Operator::Or => {
            collect_alternatives(either.left(), alternatives);
            collect_alternatives(either.right(), alternatives);
        }
        _ => alternatives.push(part),
    }
}

/// A comparison in one direction that holds where one of two does; None if they point in different directions.
fn wider(left: Operator, right: Operator) -> Option<Operator> {
    use Operator::{Eq, Gt, GtEq, Lt, LtEq};
    match (left, right) {
        _ if left == right => Some(left),
        (Lt | LtEq | Eq, Lt | LtEq | Eq) => Some(LtEq),
        (Gt | GtEq | Eq, Gt | GtEq | Eq) => Some(GtEq),
        _ => None,
    }
}

impl std::fmt::Debug for Now {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Now").field("conditions", &self.conditions.list().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    //! The bound of the first column that the bound of a top-k implies.

    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion_physical_expr::expressions::{binary, col, is_null, lit};

    use super::*;

    fn shown(alternatives: &[&[(&str, Operator, i64)]], nulls: &[&str]) -> Option<String> {
        let fields = ["a", "b"].map(|name| Field::new(name, DataType::Int64, true));
        let schema = Schema::new(fields.to_vec());
        let mut all: Vec<Arc<dyn PhysicalExpr>> =
            nulls.iter().map(|name| is_null(col(name, &schema).unwrap()).unwrap()).collect();
        for parts in alternatives {
            let parts = parts.iter().map(|(name, operator, value)| {
                binary(col(name, &schema).unwrap(), *operator, lit(*value), &schema).unwrap()
            });
            let joined = |left, right| binary(left, Operator::And, right, &schema).unwrap();
            all.push(parts.reduce(joined).unwrap());
        }
        let joined = |left, right| binary(left, Operator::Or, right, &schema).unwrap();
        leading_bound(&all.into_iter().reduce(joined).unwrap()).map(|bound| bound.to_string())
    }

    #[test]
    fn a_bound_of_several_columns_implies_one_of_the_first() {
        use Operator::{Eq, Gt, Lt};
        let rising: [&[_]; 2] = [&[("a", Lt, 5)], &[("a", Eq, 5), ("b", Gt, 7)]];
        assert_eq!(shown(&rising, &[]).unwrap(), "a@0 <= 5");
        let falling: [&[_]; 2] = [&[("a", Gt, 5)], &[("a", Eq, 5), ("b", Lt, 7)]];
        assert_eq!(shown(&falling, &["a"]).unwrap(), "a@0 IS NULL OR a@0 >= 5");
        assert_eq!(shown(&falling, &["b"]), None, "NULLs of the other column");
        assert_eq!(shown(&falling, &["a", "b"]), None);
        assert_eq!(shown(&[&[("a", Lt, 5)]], &[]), None, "it is one already");
        assert_eq!(shown(&[&[("a", Lt, 5)], &[("a", Gt, 5)]], &[]), None, "both directions");
        assert_eq!(shown(&[&[("a", Lt, 5)], &[("a", Eq, 6)]], &[]), None, "two values");
        assert_eq!(shown(&[&[("a", Lt, 5)], &[("b", Eq, 5)]], &[]), None, "two columns");
    }
}
