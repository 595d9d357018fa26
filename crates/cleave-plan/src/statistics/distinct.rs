//! The number of different values of a column of which some pages were read.
//!
//! Rows of a page are no independent draws: neighbours often have the same value. So a page counts as one draw of each
//! value that it has, however many rows have it, and the estimate for draws is applied to these.
//!
//! Sources: Haas and Stokes, "Estimating the number of classes in a finite population", JASA 1998, the estimator Duj1,
//! which PostgreSQL uses too; Chaudhuri, Das and Srivastava, "Effective use of block-level sampling in statistics
//! estimation", SIGMOD 2004, for what a page counts as.

/// Different values of a column, of which `seen` are on the pages read, which are `share` of all pages. `key_pages` are
/// the pages read that have a value, for some values chosen by their hashes.
#[must_use]
pub fn distinct_of_pages(seen: f64, key_pages: &[u64], share: f64) -> f64 {
    if key_pages.is_empty() {
        return seen;
    }
    let each = seen / key_pages.len() as f64;
    let draws = key_pages.iter().map(|pages| *pages as f64).sum::<f64>() * each;
    let once = key_pages.iter().filter(|pages| **pages == 1).count() as f64 * each;
    let estimate = draws * seen / (draws - once + once * share);
    if estimate.is_finite() { estimate.max(seen) } else { seen }
}

#[cfg(test)]
mod tests {
    //! Estimates for columns whose values lie together, lie anywhere, or are few.

    use std::collections::{BTreeMap, BTreeSet};

    use cleave_media::SplitMix64;

    use super::*;

    const PAGES: u64 = 200;
    const PAGE_ROWS: u64 = 1000;

    /// The estimate from a tenth of the pages of a column with this value in each row.
    fn estimate(value: impl Fn(u64) -> u64) -> f64 {
        let mut random = SplitMix64::new(7);
        let mut drawn = BTreeSet::new();
        while (drawn.len() as u64) < PAGES / 10 {
            drawn.insert(random.below(PAGES));
        }
        let mut pages: BTreeMap<u64, u64> = BTreeMap::new();
        for page in drawn {
            let rows = page * PAGE_ROWS..(page + 1) * PAGE_ROWS;
            let values: BTreeSet<u64> = rows.map(&value).collect();
            for value in values {
                *pages.entry(value).or_default() += 1;
            }
        }
        let key_pages: Vec<u64> = pages.values().copied().collect();
        distinct_of_pages(pages.len() as f64, &key_pages, 0.1)
    }

    fn near(found: f64, truth: f64, factor: f64) {
        assert!(found <= truth * factor && found >= truth / factor, "{found}, in truth {truth}");
    }

    #[test]
    fn columns_that_pages_show_whole_or_in_part_are_told_well() {
        near(estimate(|row| row), 200_000.0, 1.001);
        near(estimate(|_| 1), 1.0, 1.001);
        near(estimate(|row| row % 50), 50.0, 1.001);
        // Runs within a page, and runs over several pages.
        near(estimate(|row| row / 4), 50_000.0, 1.001);
        near(estimate(|row| row / 4000), 50.0, 2.0);
        // Drawn anywhere.
        let drawn = |count: u64| move |row: u64| SplitMix64::new(row).below(count);
        for count in [10, 1000, 20_000, 100_000] {
            let all: BTreeSet<u64> = (0..PAGES * PAGE_ROWS).map(drawn(count)).collect();
            near(estimate(drawn(count)), all.len() as f64, 1.35);
        }
        // Skewed: one row in two has one of 10 values.
        let skewed = |row: u64| {
            let drawn = SplitMix64::new(row).below(20_000);
            if drawn.is_multiple_of(2) { drawn % 10 } else { drawn }
        };
        near(estimate(skewed), 10_000.0, 1.35);
    }

    #[test]
    fn nothing_seen_and_all_pages_read_are_as_they_are() {
        assert!(distinct_of_pages(0.0, &[], 0.1) < 0.1);
        near(distinct_of_pages(40.0, &[1; 40], 1.0), 40.0, 1.001);
    }
}
