//! The only source of randomness in Cleave's sync crates: the operating system's, and a seeded one.
//!
//! Invariant: identities and tokens come from [`random_bytes`]; everything that a test must repeat comes from a
//! [`SplitMix64`] whose seed the harness owns. Only [`random_bytes`] is fit for keys.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::{MediaError, simulation};

/// `N` unpredictable bytes from the operating system, or from the simulation that owns the thread.
///
/// # Errors
/// [`MediaError::Open`] if the operating system has none to give; no Linux since 3.17 does that.
pub fn random_bytes<const N: usize>() -> Result<[u8; N], MediaError> {
    let mut bytes = [0; N];
    if let Some(world) = simulation::current() {
        world.fill_random(&mut bytes);
        return Ok(bytes);
    }
    let mut filled = 0;
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => {
                return Err(MediaError::Open { path: "getrandom".into(), source: errno.into() });
            }
        }
    }
    Ok(bytes)
}

/// Steele, Lea and Flood's generator (OOPSLA 2014): 64 bits of state, any seed is good, equal seeds repeat.
#[derive(Debug, Clone)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The generator with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, with a bias of less than `bound` / 2^64; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(product >> 64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
