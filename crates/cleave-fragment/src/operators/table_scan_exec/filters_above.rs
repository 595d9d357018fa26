//! The current filters of the operators above a scan, as conditions: filters in flight in, [`Conditions`] out.
//!
//! A filter is examined again only when its generation has changed, once for all partitions of a scan:
//!
//! 1. its current form is taken apart, and its keys become sets of integers ([`compact_keys`]), each a condition;
//! 2. bounds that a set of keys implies are dropped, because the look-up implies them;
//! 3. a condition that [`compact_keys`] would drop because it cannot cross a link is kept: here it can be evaluated,
//!    unless it asks for an [absent key](has_absent_key).
//!
//! Invariant: losing a condition changes no rows (rule 4), so each of them is optional.

use std::sync::{Arc, Mutex, PoisonError};

use cleave_store::Projection;
use datafusion_common::Result;
use datafusion_physical_expr::expressions::InListExpr;
use datafusion_physical_expr::{PhysicalExpr, split_conjunction};
use datafusion_physical_expr_common::physical_expr::{snapshot_generation, snapshot_physical_expr};

use super::condition::Condition;
use super::conditions::Conditions;
use crate::expressions::absent_key::has_absent_key;
use crate::expressions::key_set::compact::{
    KeyBounds, LIST_COUNT_MAX, compact_keys, is_always, is_implied,
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
        } else if !is_always(part) && !has_absent_key(part) {
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
    let new = parts.iter().filter(|part| !is_implied(part, &parts));
    new.map(|part| {
        let bounds = KeyBounds::of_look_up(part, &given);
        Ok(Arc::new(Condition::new(part, of)?.optional(bounds)))
    })
    .collect()
}

impl std::fmt::Debug for Now {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Now").field("conditions", &self.conditions.list().len()).finish()
    }
}
