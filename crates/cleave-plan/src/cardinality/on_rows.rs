//! Selectivity of conditions, by evaluating them on the rows that ANALYZE kept: correlation between them is measured,
//! not assumed.
//!
//! Where no row of a sample of n matches, the share is below 1/n, and the statistics of the single columns say how far
//! below.

use datafusion_common::arrow::buffer::BooleanBuffer;
use datafusion_expr::Expr;

use super::on_values::truth;
use crate::{SampledRows, TableFacts};

/// The most matches expected of a sample without one: about half of one.
const NO_MATCH: f64 = 0.5;

/// Share of a table's rows for which `predicate` is true: as the sample says, or `otherwise`.
pub(super) fn share(
    predicate: &Expr,
    table: &str,
    facts: &dyn TableFacts,
    otherwise: impl FnOnce() -> f64,
) -> f64 {
    let found = facts.sample(table).and_then(|sample| {
        let matching = matching_rows(&[predicate], &sample)?;
        Some((matching.count_set_bits() as f64, sample.rows.num_rows() as f64, sample.is_whole))
    });
    match found {
        Some((hits, rows, is_whole)) if hits > 0.0 || is_whole => hits / rows,
        Some((_, rows, _)) => otherwise().min(NO_MATCH / rows),
        None => otherwise(),
    }
}

/// Share of a table's rows for which all of `conditions` are true, of which each alone, or with the other end of a
/// range, is true for one of `shares`; None: nothing to try them on.
pub(super) fn share_of_all(
    conditions: &[&Expr],
    mut shares: Vec<f64>,
    table: &str,
    facts: &dyn TableFacts,
) -> Option<f64> {
    let sample = facts.sample(table)?;
    let rows = sample.rows.num_rows() as f64;
    let hits = matching_rows(conditions, &sample)?.count_set_bits() as f64;
    if hits > 0.0 || sample.is_whole {
        return Some(hits / rows);
    }
    // Conditions are often correlated: the most selective counts in full, the next by its square root, and so on.
    shares.sort_by(f64::total_cmp);
    let powers = (0..).map(|place| 0.5_f64.powi(place));
    let together: f64 = shares.iter().zip(powers).map(|(share, power)| share.powf(power)).product();
    Some(together.min(NO_MATCH / rows))
}

/// The rows of `sample` for which all of `conditions` are true; None: one of them cannot be tried.
pub(crate) fn matching_rows(conditions: &[&Expr], sample: &SampledRows) -> Option<BooleanBuffer> {
    let mut all = BooleanBuffer::new_set(sample.rows.num_rows());
    for condition in conditions {
        all = &all & &truth(condition, &sample.rows)?;
    }
    Some(all)
}
