//! Randomness as a pure function of (seed, table, row): counter-based streams and the distributions that the generators
//! draw from. No state is held between rows, so any row can be computed on any thread, in any order, with the same
//! result.

/// Mixes two words into one that looks random (the finaliser of splitmix64).
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut x = a ^ b.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31);
    x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// One stream of random numbers, cheap to start from a key.
#[derive(Clone, Debug)]
pub(crate) struct Draw {
    state: u64,
}

impl Draw {
    /// The stream of `purpose` for the object with `key`.
    pub(crate) fn new(key: u64, purpose: u64) -> Self {
        Self { state: mix(key, purpose.wrapping_add(0x5851_F42D_4C95_7F2D)) }
    }

    /// 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.state;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// A number in `[0, 1)`.
    pub(crate) fn unit(&mut self) -> f64 {
        unit_of(self.bits())
    }

    /// A whole number below `n` (0 if `n` is 0).
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        low32(((self.bits() >> 32) * u64::from(n)) >> 32)
    }

    /// True with probability `p`.
    pub(crate) fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// A standard normal number.
    pub(crate) fn normal(&mut self) -> f64 {
        normal_quantile(self.unit())
    }

    /// A Poisson number of the given mean: exact for small means, rounded normal above.
    pub(crate) fn poisson(&mut self, mean: f64) -> u32 {
        if mean <= 0.0 {
            return 0;
        }
        if mean > 24.0 {
            return floor32((mean + mean.sqrt() * self.normal() + 0.5).max(0.0));
        }
        let limit = (-mean).exp();
        let mut product = self.unit();
        let mut count = 0;
        while product > limit {
            product *= self.unit();
            count += 1;
        }
        count
    }

    /// One of `items`, all equally likely. `items` must not be empty.
    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        let n = u32::try_from(items.len()).unwrap_or(u32::MAX);
        items[self.below(n) as usize]
    }

    /// One of `items`, the earlier ones likelier: the density falls with the square root of the
    /// position (`skew` 2), or faster (3, 4, ...).
    pub(crate) fn pick_skewed<T: Copy>(&mut self, items: &[T], skew: i32) -> T {
        let n = f64::from(u32::try_from(items.len()).unwrap_or(u32::MAX));
        let index = floor32(self.unit().powi(skew) * n) as usize;
        items[index.min(items.len() - 1)]
    }
}

/// A finite distribution: index `i` has a probability in proportion to its weight.
#[derive(Clone, Debug)]
pub(crate) struct Weighted {
    cumulative: Vec<f64>,
}

impl Weighted {
    pub(crate) fn new(weights: impl IntoIterator<Item = f64>) -> Self {
        let mut sum = 0.0;
        let cumulative: Vec<f64> = weights
            .into_iter()
            .map(|weight| {
                sum += weight;
                sum
            })
            .collect();
        Self { cumulative }
    }

    /// The sum of all weights.
    pub(crate) fn total(&self) -> f64 {
        self.cumulative.last().copied().unwrap_or(0.0)
    }

    /// The index at `unit` (in `[0, 1)`) of the distribution.
    pub(crate) fn at(&self, unit: f64) -> usize {
        let target = unit * self.total();
        self.cumulative.partition_point(|&c| c <= target).min(self.cumulative.len() - 1)
    }

    pub(crate) fn pick(&self, draw: &mut Draw) -> usize {
        self.at(draw.unit())
    }
}

/// A bijection of `0..n` onto itself that scatters neighbours, and its inverse.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scatter {
    n: u64,
    factor: u64,
    inverse: u64,
    offset: u64,
}

impl Scatter {
    pub(crate) fn new(n: u32, key: u64) -> Self {
        let n = u64::from(n.max(1));
        let mut factor = mix(key, 1) % n;
        let inverse = loop {
            factor = factor % n + 1;
            if let Some(inverse) = modular_inverse(factor, n) {
                break inverse;
            }
        };
        Self { n, factor, inverse, offset: mix(key, 2) % n }
    }

    /// The image of `x`.
    pub(crate) fn apply(&self, x: u32) -> u32 {
        low32((u64::from(x) * self.factor + self.offset) % self.n)
    }

    /// The preimage of `y`.
    pub(crate) fn invert(&self, y: u32) -> u32 {
        low32((u64::from(y) + self.n - self.offset) % self.n * self.inverse % self.n)
    }
}

fn modular_inverse(a: u64, n: u64) -> Option<u64> {
    let (mut r0, mut r1) = (i128::from(n), i128::from(a % n));
    let (mut t0, mut t1) = (0i128, 1i128);
    if n == 1 {
        return Some(0);
    }
    while r1 != 0 {
        let q = r0 / r1;
        (r0, r1) = (r1, r0 - q * r1);
        (t0, t1) = (t1, t0 - q * t1);
    }
    if r0 != 1 {
        return None;
    }
    u64::try_from(t0.rem_euclid(i128::from(n))).ok()
}

/// Thirty-two hexadecimal digits, for the columns that hold checksums in the original.
pub(crate) fn checksum(seed: u64, purpose: u64, id: u32) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(32);
    for part in 0..2 {
        let word = mix(seed ^ purpose, u64::from(id) * 2 + part);
        for digit in 0..16 {
            text.push(char::from(DIGITS[(low32(word >> (digit * 4)) & 15) as usize]));
        }
    }
    text
}

/// The number in `[0, 1)` that 64 random bits stand for.
pub(crate) fn unit_of(bits: u64) -> f64 {
    const SCALE: f64 = 1.0 / (1u64 << 53) as f64;
    (bits >> 11) as f64 * SCALE
}

/// The lower half of a word.
pub(crate) fn low32(x: u64) -> u32 {
    u32::try_from(x & 0xFFFF_FFFF).unwrap_or(u32::MAX)
}

/// The whole part of a number, saturating at the ends of `u32`.
#[expect(clippy::cast_possible_truncation, reason = "saturating is what is asked for")]
pub(crate) fn floor32(x: f64) -> u32 {
    x as u32
}

/// The value below which a standard normal number lies with probability `p` (Acklam's rational
/// approximation, relative error below 1.2e-9).
pub(crate) fn normal_quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -39.696_830_286_653_76,
        220.946_098_424_520_5,
        -275.928_510_446_968_7,
        138.357_751_867_269,
        -30.664_798_066_147_16,
        2.506_628_277_459_239,
    ];
    const B: [f64; 5] = [
        -54.476_098_798_224_06,
        161.585_836_858_040_9,
        -155.698_979_859_886_6,
        66.801_311_887_719_72,
        -13.280_681_552_885_72,
    ];
    const C: [f64; 6] = [
        -0.007_784_894_002_430_293,
        -0.322_396_458_041_136_5,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 4] = [
        0.007_784_695_709_041_462,
        0.322_467_129_070_039_8,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
    ];
    let tail = |q: f64| {
        (((((C[0] * q + C[1]) * q + C[2]) * q + C[3]) * q + C[4]) * q + C[5])
            / ((((D[0] * q + D[1]) * q + D[2]) * q + D[3]) * q + 1.0)
    };
    let p = p.clamp(1e-12, 1.0 - 1e-12);
    if p < 0.02425 {
        tail((-2.0 * p.ln()).sqrt())
    } else if p > 1.0 - 0.02425 {
        -tail((-2.0 * (1.0 - p).ln()).sqrt())
    } else {
        let q = p - 0.5;
        let r = q * q;
        (((((A[0] * r + A[1]) * r + A[2]) * r + A[3]) * r + A[4]) * r + A[5]) * q
            / (((((B[0] * r + B[1]) * r + B[2]) * r + B[3]) * r + B[4]) * r + 1.0)
    }
}

#[cfg(test)]
mod tests;
