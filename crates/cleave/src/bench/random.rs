//! The distributions that the workloads draw from, over [`Draw`].

use crate::generate::random::Draw;

/// Numbers below `count`, the smaller ones likelier: number `i` in proportion to 1 / (i + 1)^theta.
///
/// Source: Gray et al., "Quickly Generating Billion-Record Synthetic Databases", SIGMOD 1994; YCSB's constant is 0.99.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Zipf {
    count: f64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// Over `count` numbers, 1 at least; `theta` from 0 to below 1.
    pub(crate) fn new(count: u64, theta: f64) -> Self {
        let count = count.max(1);
        let zeta_of = |n: u64| (1..=n).map(|i| as_float(i).powf(-theta)).sum::<f64>();
        let (zeta, floats) = (zeta_of(count), as_float(count));
        let eta = (1.0 - (2.0 / floats).powf(1.0 - theta)) / (1.0 - zeta_of(2.min(count)) / zeta);
        Self { count: floats, theta, zeta, eta: if eta.is_finite() { eta } else { 0.0 } }
    }

    /// One of them.
    pub(crate) fn draw(&self, draw: &mut Draw) -> u64 {
        let unit = draw.unit();
        let scaled = unit * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(self.theta) {
            return 1.min(as_whole(self.count) - 1);
        }
        let alpha = 1.0 / (1.0 - self.theta);
        let at = self.count * (self.eta * unit - self.eta + 1.0).powf(alpha);
        as_whole(at).min(as_whole(self.count) - 1)
    }
}

/// An integer from `low` to `high`, both included.
pub(crate) fn between(draw: &mut Draw, low: i64, high: i64) -> i64 {
    let span = u32::try_from(high.saturating_sub(low)).unwrap_or(u32::MAX - 1) + 1;
    low + i64::from(draw.below(span))
}

/// Text of `low` to `high` characters.
pub(crate) fn letters(draw: &mut Draw, low: i64, high: i64) -> String {
    const ALPHABET: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789  ";
    let length = usize::try_from(between(draw, low, high)).unwrap_or(0);
    let mut text = String::with_capacity(length);
    let mut bits = 0;
    for place in 0..length {
        if place % 10 == 0 {
            bits = draw.bits();
        }
        let character = ALPHABET.get((bits & 63) as usize).copied().unwrap_or(b' ');
        text.push(char::from(character));
        bits >>= 6;
    }
    text
}

/// Text of `length` digits.
pub(crate) fn digits(draw: &mut Draw, length: usize) -> String {
    (0..length).map(|_| char::from(b'0' + u8::try_from(draw.below(10)).unwrap_or(0))).collect()
}

fn as_float(number: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts of records are far below 2^53")]
    let float = number as f64;
    float
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "floors what is not negative"
)]
fn as_whole(float: f64) -> u64 {
    float.max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zipf_has_the_shares_of_its_formula() {
        let (count, theta) = (1000_u64, 0.99);
        let zipf = Zipf::new(count, theta);
        let mut seen = vec![0_u32; 1000];
        let mut draw = Draw::new(7, 1);
        for _ in 0..200_000 {
            seen[usize::try_from(zipf.draw(&mut draw)).unwrap()] += 1;
        }
        let zeta: f64 = (1..=count).map(|i| as_float(i).powf(-theta)).sum();
        for place in [0_u32, 1] {
            let wanted = 200_000.0 * f64::from(place + 1).powf(-theta) / zeta;
            let found = f64::from(seen[place as usize]);
            assert!((found / wanted - 1.0).abs() < 0.05, "{place}: {found} of {wanted}");
        }
        assert!(seen[999] < seen[10]);
        assert!(seen.iter().skip(500).sum::<u32>() > 0);
    }

    #[test]
    fn small_ranges_are_taken_too() {
        let mut draw = Draw::new(7, 2);
        for count in [1, 2, 3] {
            let zipf = Zipf::new(count, 0.99);
            assert!((0..100).all(|_| zipf.draw(&mut draw) < count));
        }
        assert!(
            (0..100).map(|_| between(&mut draw, 3, 4)).all(|number| number == 3 || number == 4)
        );
        let text = letters(&mut draw, 12, 12);
        assert_eq!(text.len(), 12);
    }
}
