//! Which pages of a large table ANALYZE reads: page sizes in, the places of some pages out.
//!
//! Every page is drawn with the same chance, so that every row is, and a column's shares need no weights. The number of
//! pages follows from the statistics target: they have 300 rows for each unit of it, and count as so many pages of
//! equal size that neighbours with equal values do little harm. Pages are drawn a few at a time from equal stretches of
//! the table: values that rise from load to load are seen evenly, and two pages may still lie close to each other,
//! which tells how far equal values reach. A quick choice is of fewer pages, and of a share of the table's rows, the
//! first ones of each page: what ANALYZE takes follows from these.
//!
//! Source: PostgreSQL's `analyze.c` for 300 rows a unit (Chaudhuri, Motwani and Narasayya, SIGMOD 1998).

use std::collections::BTreeSet;

use cleave_media::SplitMix64;

/// Rows for each unit of the target.
const ROWS_OF_UNIT: f64 = 300.0;
/// Pages of equal size for each unit of the target.
const PAGES_OF_UNIT: f64 = 0.3;
/// Bytes that are read at most for each unit of the target, where pages are larger than usual.
const BYTES_OF_UNIT: f64 = (4 << 20) as f64;
/// Fewest pages.
const PAGES_MIN: usize = 4;
/// Pages drawn from one stretch.
const PAGES_OF_STRETCH: usize = 4;

/// Rows up to which a quick ANALYZE reads a table whole.
const FEW_ROWS: u64 = 60_000;
/// One row in so many is read of other tables, but so many rows at least: of fewer, slices are too short to tell how
/// far equal values reach.
const ROWS_FOR_ONE: u64 = 32;
const SLICED_ROWS_MIN: u64 = 20_000;
/// The first rows of a page that are read at most.
const SLICE_ROWS_MAX: u64 = 8192;
/// The pages that a quick one reads, a quarter of all within these bounds, and their bytes.
const FEW_PAGES_MIN: usize = 6;
const FEW_PAGES_MAX: usize = 30;
const FEW_BYTES_MAX: u64 = 400 << 20;

/// The size of a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageSize {
    /// Its rows, dead ones too.
    pub(super) rows: u64,
    /// Its bytes, with those of long values.
    pub(super) bytes: u64,
}

/// Some pages of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PageChoice {
    /// Their places.
    pub(super) places: BTreeSet<usize>,
    /// Rows that are read of each, its first ones; None: all.
    pub(super) first_rows: Option<usize>,
}

/// The pages to read, for this statistics target (0: all); None: all, which is not much more.
pub(super) fn choose(pages: &[PageSize], target: u32, seed: u64) -> Option<PageChoice> {
    let count = wanted(pages, target)?;
    Some(PageChoice { places: drawn(pages.len(), count, seed), first_rows: None })
}

/// `count` of so many places, each with the same chance.
fn drawn(page_count: usize, count: usize, seed: u64) -> BTreeSet<usize> {
    let mut random = SplitMix64::new(seed);
    let mut chosen = BTreeSet::new();
    let stretch_count = count.div_ceil(PAGES_OF_STRETCH);
    for stretch in 0..stretch_count {
        // As long as the pages drawn from it ask for.
        let drawn = |stretch: usize| (stretch * PAGES_OF_STRETCH).min(count);
        let place = |stretch| drawn(stretch) * page_count / count.max(1);
        let places = place(stretch)..place(stretch + 1);
        let mut left = drawn(stretch + 1) - drawn(stretch);
        // Knuth's algorithm S: each place with the chance that is left to it.
        for place in places.clone() {
            if random.below((places.end - place) as u64) < left as u64 {
                chosen.insert(place);
                left -= 1;
            }
        }
    }
    chosen
}

/// A few pages, for a quick ANALYZE of their first rows; None: all rows of all pages, which are few.
pub(super) fn choose_few(pages: &[PageSize], seed: u64) -> Option<PageChoice> {
    let sum = |of: fn(&PageSize) -> u64| pages.iter().map(of).sum::<u64>();
    let (rows, bytes) = (sum(|page| page.rows), sum(|page| page.bytes));
    if rows <= FEW_ROWS {
        return None;
    }
    // Small pages have fewer rows than a slice.
    let enough = (pages.len() as u64).saturating_mul(SLICED_ROWS_MIN).div_ceil(rows);
    let within = (FEW_BYTES_MAX.saturating_mul(pages.len() as u64) / bytes.max(1)).max(1);
    let count = usize::try_from(enough).unwrap_or(usize::MAX);
    let count = count.max((pages.len() / 4).clamp(FEW_PAGES_MIN, FEW_PAGES_MAX));
    let count = count.min(usize::try_from(within).unwrap_or(usize::MAX).max(PAGES_MIN));
    let count = count.min(pages.len());
    let sliced = (rows / ROWS_FOR_ONE).max(SLICED_ROWS_MIN);
    let slice = sliced.div_ceil(count.max(1) as u64).min(SLICE_ROWS_MAX);
    let first_rows = usize::try_from(slice).ok();
    Some(PageChoice { places: drawn(pages.len(), count, seed), first_rows })
}

/// How many pages are to be read; None: all.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, and compared with a count"
)]
fn wanted(pages: &[PageSize], target: u32) -> Option<usize> {
    let sum = |of: fn(&PageSize) -> f64| pages.iter().map(of).sum::<f64>();
    let (rows, squares) = (sum(|page| page.rows as f64), sum(|page| (page.rows as f64).powi(2)));
    let bytes = sum(|page| page.bytes as f64);
    let target = f64::from(target);
    if target <= 0.0 || rows <= 0.0 {
        return None;
    }
    // A few large pages among many small ones count as hardly more than the large ones.
    let equal_pages = rows * rows / squares;
    let share = (PAGES_OF_UNIT * target / equal_pages).max(ROWS_OF_UNIT * target / rows);
    let share = share.min(BYTES_OF_UNIT * target / bytes.max(1.0));
    let count = ((share * pages.len() as f64).ceil() as usize).max(PAGES_MIN);
    (count < pages.len().div_ceil(2)).then_some(count)
}

#[cfg(test)]
mod tests {
    //! Small tables are read whole, large ones in part, and every page has its chance.

    use super::*;

    fn pages(count: usize, rows: u64, bytes: u64) -> Vec<PageSize> {
        vec![PageSize { rows, bytes }; count]
    }

    fn chosen(pages: &[PageSize], target: u32) -> Option<usize> {
        choose(pages, target, 1).map(|choice| choice.places.len())
    }

    #[test]
    fn as_many_pages_are_read_as_the_target_asks() {
        // Bulk pages: 30 of any number.
        let bulk = |count| pages(count, 65_536, 2 << 20);
        assert_eq!(chosen(&bulk(60), 100), None);
        assert_eq!(chosen(&bulk(62), 100), Some(30));
        assert_eq!(chosen(&bulk(10_000), 100), Some(30));
        assert_eq!(chosen(&bulk(10_000), 1000), Some(300));
        assert_eq!(chosen(&bulk(10_000), 1), Some(4));
        assert_eq!(chosen(&bulk(10_000), 0), None);
        // Small pages: those with 30,000 rows.
        assert_eq!(chosen(&pages(5000, 150, 16 << 10), 100), Some(200));
        assert_eq!(chosen(&pages(390, 150, 16 << 10), 100), None);
        // Long values: those with 400 MB, and never fewer than 4.
        assert_eq!(chosen(&pages(10_000, 60_000, 20 << 20), 100), Some(20));
        assert_eq!(chosen(&pages(10_000, 60_000, 1 << 40), 100), Some(4));
        assert_eq!(chosen(&[], 100), None);
        assert_eq!(chosen(&pages(9, 0, 0), 100), None);
    }

    #[test]
    fn a_quick_choice_is_of_a_share_of_the_rows_within_bounds() {
        let few = |pages: &[PageSize]| {
            choose_few(pages, 1).map(|choice| (choice.places.len(), choice.first_rows.unwrap()))
        };
        let bulk = |count| pages(count, 65_536, 2 << 20);
        assert_eq!(few(&bulk(1)), Some((1, 8192)));
        assert_eq!(few(&bulk(4)), Some((4, 5000)));
        assert_eq!(few(&bulk(8)), Some((6, 3334)));
        assert_eq!(few(&bulk(20)), Some((6, 6827)));
        assert_eq!(few(&bulk(60)), Some((15, 8192)));
        assert_eq!(few(&bulk(10_000)), Some((30, 8192)));
        assert_eq!(few(&pages(1, 60_000, 2 << 20)), None);
        // Small pages are read whole.
        assert_eq!(few(&pages(1000, 150, 16 << 10)), Some((134, 150)));
        assert_eq!(few(&pages(10_000, 60_000, 1 << 40)), Some((4, 8192)));
        assert_eq!(few(&[]), None);
    }

    #[test]
    fn large_pages_among_small_ones_are_not_missed() {
        let mut mixed = pages(10_000, 150, 16 << 10);
        mixed.extend(pages(100, 65_536, 2 << 20));
        let places = choose(&mixed, 100, 1).unwrap().places;
        let large = places.range(10_000..).count();
        assert!((12..=35).contains(&large), "{large} of 100 large pages");
        assert!(places.len() < 3000, "{}", places.len());
    }

    #[test]
    fn every_page_has_the_same_chance() {
        let (count, rounds) = (101, 4000);
        let mut drawn = vec![0_u32; count];
        for seed in 0..rounds {
            let places = choose(&pages(count, 65_536, 1), 100, seed).unwrap().places;
            assert_eq!(places.len(), 30);
            places.iter().for_each(|place| drawn[*place] += 1);
        }
        let expected = rounds as f64 * 30.0 / count as f64;
        for (place, drawn) in drawn.iter().enumerate() {
            let share = f64::from(*drawn) / expected;
            assert!((0.8..1.2).contains(&share), "page {place}: {share}");
        }
    }
}
