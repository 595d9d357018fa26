//! Activity over time: amounts over a time of unknown length, in a few columns of equal width.
//!
//! A strip begins with short columns; when time outgrows them, each two become one of twice the width. So it takes the
//! same few bytes for a millisecond and for an hour, and strips of one run can be laid one below the other.

use std::time::Duration;

/// Most columns of a strip.
pub const COLUMN_COUNT_MAX: usize = 64;
/// Width of the columns of a new strip.
const WIDTH_FIRST: Duration = Duration::from_micros(250);

/// See the [module](self).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strip {
    width: Duration,
    /// In order; at most [`COLUMN_COUNT_MAX`].
    amounts: Vec<u64>,
}

impl Default for Strip {
    fn default() -> Self {
        Self { width: WIDTH_FIRST, amounts: Vec::new() }
    }
}

impl Strip {
    /// A strip of these columns; `None` if there are too many, or they have no width.
    pub fn new(width: Duration, amounts: Vec<u64>) -> Option<Self> {
        (!width.is_zero() && amounts.len() <= COLUMN_COUNT_MAX).then_some(Self { width, amounts })
    }

    /// Adds `amount` at the time `at`.
    pub fn add(&mut self, at: Duration, amount: u64) {
        let column = self.column(at);
        if let Some(place) = self.amounts.get_mut(column) {
            *place = place.saturating_add(amount);
        }
    }

    /// Adds the time from `from` to `until` to the columns that it lies in, in nanoseconds.
    pub fn add_span(&mut self, from: Duration, until: Duration) {
        // The last one first, because it determines the width of columns.
        self.column(until);
        let mut at = from;
        while at < until {
            let columns = u32::try_from(self.column(at) + 1).unwrap_or(u32::MAX);
            let end = self.width.saturating_mul(columns);
            let part = end.min(until).saturating_sub(at).max(Duration::from_nanos(1));
            self.add(at, u64::try_from(part.as_nanos()).unwrap_or(u64::MAX));
            at += part;
        }
    }

    /// Width of a column.
    pub fn width(&self) -> Duration {
        self.width
    }

    /// The columns.
    pub fn amounts(&self) -> &[u64] {
        &self.amounts
    }

    /// The same with columns at least as wide as `width`, as far as doubling allows.
    #[must_use]
    pub fn widened(mut self, width: Duration) -> Self {
        while self.width < width {
            self.double();
        }
        self
    }

    /// The column of the time `at`, created if needed.
    fn column(&mut self, at: Duration) -> usize {
        loop {
            let column = at.as_nanos() / self.width.as_nanos().max(1);
            match usize::try_from(column) {
                Ok(column) if column < COLUMN_COUNT_MAX => {
                    if self.amounts.len() <= column {
                        self.amounts.resize(column + 1, 0);
                    }
                    return column;
                }
                _ => self.double(),
            }
        }
    }

    fn double(&mut self) {
        self.width = self.width.saturating_mul(2);
        let pairs = self.amounts.chunks(2);
        self.amounts = pairs
            .map(|pair| pair.iter().fold(0_u64, |all, one| all.saturating_add(*one)))
            .collect();
    }
}

#[cfg(test)]
mod tests {
    //! Nothing is lost when columns become wider.

    use super::*;

    #[test]
    fn columns_double_and_keep_their_sums() {
        let mut strip = Strip::default();
        let ms = Duration::from_millis;
        for at in 0..100 {
            strip.add(ms(at), 3);
        }
        assert_eq!(strip.amounts().iter().sum::<u64>(), 300);
        assert_eq!(strip.width(), ms(2));
        assert_eq!(strip.amounts().len(), 50);
        strip.add(Duration::from_secs(86_400), 1);
        assert_eq!(strip.amounts().iter().sum::<u64>(), 301);
        assert!(strip.amounts().len() <= COLUMN_COUNT_MAX);
    }

    #[test]
    fn a_span_is_divided_among_its_columns() {
        let mut strip = Strip::default();
        let (from, until) = (Duration::from_micros(100), Duration::from_micros(900));
        strip.add_span(from, until);
        assert_eq!(strip.amounts(), [150_000, 250_000, 250_000, 150_000]);
        strip.add_span(from, Duration::from_secs(3));
        let all: u64 = strip.amounts().iter().sum();
        assert_eq!(all, 800_000 + 3_000_000_000 - 100_000);
        strip.add_span(until, from);
        assert_eq!(strip.amounts().iter().sum::<u64>(), all, "backwards is no time");
    }

    #[test]
    fn only_few_columns_of_some_width_are_a_strip() {
        assert!(Strip::new(Duration::ZERO, vec![1]).is_none());
        assert!(Strip::new(WIDTH_FIRST, vec![0; COLUMN_COUNT_MAX + 1]).is_none());
        let strip = Strip::new(WIDTH_FIRST, vec![1, 2, 3]).unwrap().widened(WIDTH_FIRST * 2);
        assert_eq!(strip.amounts(), [3, 3]);
    }
}
