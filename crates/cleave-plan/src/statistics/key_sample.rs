//! Counted rows of some values of a column, chosen by their hashes: the same values in all columns that have them.

use datafusion_common::{Result, internal_err};

/// Joins of fewer values than this say nothing.
const KEYS_MIN: usize = 8;

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct KeySample {
    threshold: u64,
    counts: Vec<(u64, u64)>,
    seen: f64,
}

impl KeySample {
    /// All values whose hash lies below `threshold`: the hashes, ascending, each with its rows.
    ///
    /// # Errors
    /// Hashes out of order or beyond the threshold.
    pub fn new(threshold: u64, counts: Vec<(u64, u64)>) -> Result<Self> {
        let is_ascending = counts.is_sorted_by(|one, other| one.0 < other.0);
        if !is_ascending || counts.last().is_some_and(|(last, _)| *last >= threshold) {
            return internal_err!("counted values are out of order");
        }
        Ok(Self { threshold, counts, seen: 1.0 })
    }

    /// The same, of a column of which only some pages were read, with this share of its values; counts are of their
    /// rows.
    #[must_use]
    pub fn of_seen(self, seen: f64) -> Self {
        Self { seen: if seen > 0.0 { seen.min(1.0) } else { 1.0 }, ..self }
    }

    /// Share of the column's values that were seen.
    pub fn seen(&self) -> f64 {
        self.seen
    }

    /// Values whose hash lies from here on were not counted.
    pub fn threshold(&self) -> u64 {
        self.threshold
    }

    /// Hashes and rows.
    pub fn counts(&self) -> &[(u64, u64)] {
        &self.counts
    }
}

/// How many times as many rows the join of columns has as one would have whose values are drawn independently, with
/// those of the column with fewest values in all others; None: too few values of theirs are known.
pub(crate) fn together(columns: &[&KeySample]) -> Option<f64> {
    let threshold = columns.iter().map(|column| column.threshold).min()?;
    let known: Vec<&[(u64, u64)]> = columns
        .iter()
        .map(|column| {
            let end = column.counts.partition_point(|(hash, _)| *hash < threshold);
            column.counts.get(..end).unwrap_or_default()
        })
        .collect();
    if known.iter().any(|counts| counts.len() < KEYS_MIN) {
        return None;
    }
    let (first, others) = known.split_first()?;
    let (mut joined, mut keys) = (0.0, 0);
    for (hash, count) in *first {
        let found = others.iter().map(|counts| {
            let place = counts.binary_search_by_key(hash, |(hash, _)| *hash);
            place.ok().and_then(|place| counts.get(place)).map(|(_, count)| *count as f64)
        });
        if let Some(rows) = found.product::<Option<f64>>() {
            joined += rows * *count as f64;
            keys += 1;
        }
    }
    if keys < KEYS_MIN {
        return None;
    }
    let rows = |counts: &&[(u64, u64)]| counts.iter().map(|(_, count)| *count as f64).sum::<f64>();
    // Below the threshold, of all values; the rows of those that were not seen are missing on both sides.
    let values = || known.iter().zip(columns).map(|(counts, of)| counts.len() as f64 / of.seen);
    let fewest = values().fold(f64::INFINITY, f64::min);
    let means = known.iter().zip(values()).map(|(counts, values)| rows(counts) / values);
    Some(joined / (means.product::<f64>() * fewest))
}

#[cfg(test)]
mod tests {
    //! Join sizes from counts of values.

    use super::*;

    /// Values 0..100 by hashes of their own, of so many rows each; 0: none.
    fn column(rows: impl Fn(u64) -> u64) -> KeySample {
        let counts = (0..100).map(|value| (value * 10, rows(value)));
        KeySample::new(1000, counts.filter(|(_, count)| *count > 0).collect()).unwrap()
    }

    fn factor(columns: &[&KeySample]) -> f64 {
        (together(columns).unwrap() * 100.0).round() / 100.0
    }

    #[test]
    fn a_key_and_what_refers_to_it_are_as_independent() {
        let (key, refers) = (column(|_| 1), column(|value| value % 7));
        assert!((factor(&[&key, &refers]) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn values_that_are_frequent_in_both_join_more_often() {
        // One in ten has 91 rows, the others one: 10 in the mean, 829 in the mean of squares.
        let skewed = column(|value| if value % 10 == 0 { 91 } else { 1 });
        let squares = (91.0 * 91.0 + 9.0) / 10.0 / 100.0;
        assert!((factor(&[&skewed, &skewed]) - squares).abs() < 0.01);
        let shifted = column(|value| if value % 10 == 5 { 91 } else { 1 });
        assert!(factor(&[&skewed, &shifted]) < 0.2);
    }

    #[test]
    fn columns_with_other_values_join_less_often() {
        let (even, third) =
            (column(|value| 1 - value % 2), column(|value| u64::from(value % 3 == 0)));
        assert!((factor(&[&even, &third]) - 0.5).abs() < 0.01);
    }

    #[test]
    fn values_on_pages_that_were_not_read_count_as_they_would() {
        // Of the referring column, three values of four were seen, of the key all.
        let key = column(|_| 1);
        let refers = column(|value| if value % 4 > 0 { 5 } else { 0 }).of_seen(0.75);
        assert!((factor(&[&key, &refers]) - 1.0).abs() < 1e-9);
        // Independent halves of two columns share a quarter of the values, and count as wholes.
        let one = column(|value| value % 2).of_seen(0.5);
        let other = column(|value| value / 2 % 2).of_seen(0.5);
        assert!((factor(&[&one, &other]) - 1.0).abs() < 1e-9);
        assert!((key.clone().of_seen(f64::NAN).seen() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn only_values_below_all_thresholds_count_and_few_say_nothing() {
        let all = column(|_| 1);
        let few = KeySample::new(75, (0..7).map(|value| (value * 10, 1)).collect()).unwrap();
        assert_eq!(together(&[&all, &few]), None);
        assert!(KeySample::new(60, few.counts().to_vec()).is_err());
        assert!(KeySample::new(75, vec![(3, 1), (3, 1)]).is_err());
    }
}
