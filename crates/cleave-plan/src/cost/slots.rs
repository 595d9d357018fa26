//! Chooses the size of a slot: the costs of making, carrying and taking a fragment's rows in, bytes out.
//!
//! A stream of B bytes, of which device, link and host take d, l and h seconds in all, crosses in n = B/s slots of s
//! bytes. The first slot passes all three, one after the other; from then on the slowest sets the pace. So beside the
//! time of the slowest, there are W = d + l + h − max(d, l, h) seconds of work of the others, of which one n-th is not
//! hidden behind it, and each slot costs o = [`SLOT_S`] seconds of its own (a message, a credit, a thread that wakes
//! up):
//!
//! ```text
//!   W/n + n·o   is least for   n = √(W/o),   s = B/n
//! ```
//!
//! A result that is small, or that leaves nothing to overlap, comes in one slot; a long stream in large ones. The slots
//! in use must hold as many bytes as the link carries in a round trip, or it idles between them.
//!
//! Invariant: the size is a power of two from [`SLOT_BYTES_AUTO`].

use std::ops::RangeInclusive;

use cleave_fragment::profile::LinkProfile;

/// Seconds that each slot costs beside its bytes. A guess: the order of a message and a wake-up on a local network.
const SLOT_S: f64 = 50e-6;
/// Share of the slots that are on their way while credits for the others come back.
pub(super) const SLOTS_AT_WORK: f64 = 0.75;
/// The sizes that are chosen among.
pub const SLOT_BYTES_AUTO: RangeInclusive<u32> = 1 << 10..=1 << 20;
/// The size where nothing is known, or nothing crosses.
pub const SLOT_BYTES_USUAL: u32 = 256 << 10;

/// How large slots are to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotSize {
    /// So many bytes.
    Fixed(u32),
    /// As the rows of each fragment have it.
    Auto {
        /// No more than this, for the memory that the ring takes.
        bytes_max: u32,
    },
}

/// The rows of a fragment on their way to the host, with what each station takes for all of them, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Crossing {
    /// Bytes that cross.
    pub bytes: f64,
    /// The device, to make them.
    pub device_s: f64,
    /// The link, to carry them.
    pub link_s: f64,
    /// The host, to take them in.
    pub host_s: f64,
}

impl SlotSize {
    /// The size where nothing is known of what crosses.
    pub fn usual(self) -> u32 {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Auto { bytes_max } => SLOT_BYTES_USUAL.min(bytes_max),
        }
    }

    /// The size for the rows of one fragment, of which `slot_count` slots may be outstanding.
    pub fn of(self, crossing: &Crossing, link: &LinkProfile, slot_count: u32) -> u32 {
        let bytes_max = match self {
            Self::Fixed(bytes) => return bytes,
            Self::Auto { .. } if link.is_embedded => return self.usual(),
            Self::Auto { bytes_max } => bytes_max,
        };
        let Crossing { device_s, link_s, host_s, .. } = *crossing;
        let bytes = crossing.bytes.max(0.0);
        let hidden_s = device_s + link_s + host_s - device_s.max(link_s).max(host_s);
        let slots = (hidden_s / SLOT_S).sqrt().max(1.0);
        let at_work = (f64::from(slot_count) * SLOTS_AT_WORK).max(1.0);
        let carried = link.bytes_per_second * link.round_trip_s / at_work;
        let wanted = (bytes / slots).max(carried.min(bytes));
        let (least, most) = (*SLOT_BYTES_AUTO.start(), bytes_max.min(*SLOT_BYTES_AUTO.end()));
        let most = if most.is_power_of_two() { most } else { most.next_power_of_two() / 2 };
        // Doubling ends: NaN compares as not smaller.
        let mut size = least;
        while f64::from(size) < wanted && size < most {
            size *= 2;
        }
        size
    }
}

#[cfg(test)]
mod tests {
    //! The size at its limits, and as a minimum of the cost.

    use super::*;

    const AUTO: SlotSize = SlotSize::Auto { bytes_max: 1 << 20 };

    fn ethernet() -> LinkProfile {
        LinkProfile { bytes_per_second: 125e6, round_trip_s: 1e-4, ..LinkProfile::assumed() }
    }

    fn crossing(bytes: f64, device_s: f64) -> Crossing {
        Crossing { bytes, device_s, link_s: bytes / 125e6, host_s: bytes / 4e9 }
    }

    #[test]
    fn small_results_come_in_one_slot_and_streams_in_large_ones() {
        let size = |bytes, device_s| AUTO.of(&crossing(bytes, device_s), &ethernet(), 16);
        assert_eq!(size(0.0, 0.0), 1 << 10);
        assert_eq!(size(100.0, 1.0), 1 << 10);
        // One slot, however long it takes to make it.
        assert_eq!((size(3000.0, 0.001), size(3000.0, 10.0)), (4 << 10, 4 << 10));
        assert_eq!(size(100e6, 1.0), 1 << 20);
        let middle = size(1e6, 0.01);
        assert!((32 << 10..=256 << 10).contains(&middle), "{middle}");
        // More to overlap, smaller pieces.
        assert!(size(1e6, 1e-4) >= middle && middle >= size(1e6, 1.0));
        assert_eq!(size(f64::NAN, f64::INFINITY), 1 << 10);
    }

    #[test]
    fn a_long_link_is_kept_full() {
        let far = LinkProfile { round_trip_s: 0.05, ..ethernet() };
        let size = AUTO.of(&crossing(50e6, 0.5), &far, 16);
        assert!(f64::from(size) * 12.0 >= 125e6 * 0.05, "{size}");
        // But no more slots than there are bytes for.
        assert_eq!(AUTO.of(&crossing(2000.0, 0.5), &far, 16), 2 << 10);
    }

    #[test]
    fn what_is_asked_for_or_bounded_holds() {
        let all = crossing(100e6, 1.0);
        assert_eq!(SlotSize::Fixed(5000).of(&all, &ethernet(), 16), 5000);
        assert_eq!(SlotSize::Auto { bytes_max: 100_000 }.of(&all, &ethernet(), 16), 64 << 10);
        assert_eq!(AUTO.of(&all, &LinkProfile::embedded(), 16), SLOT_BYTES_USUAL);
        assert_eq!(SlotSize::Fixed(5000).usual(), 5000);
    }

    #[test]
    fn no_power_of_two_near_it_is_better() {
        for (bytes, device_s) in [(1e5, 0.001), (1e6, 0.01), (5e6, 0.02), (2e7, 3.0)] {
            let all = crossing(bytes, device_s);
            let hidden_s = all.device_s + all.link_s + all.host_s
                - all.device_s.max(all.link_s).max(all.host_s);
            let cost = |size: u32| {
                let slots = (bytes / f64::from(size)).max(1.0);
                hidden_s / slots + slots * SLOT_S
            };
            let size = AUTO.of(&all, &ethernet(), 16);
            for other in [size / 4, size.saturating_mul(4)] {
                if SLOT_BYTES_AUTO.contains(&other) {
                    assert!(cost(size) <= cost(other), "{bytes}: {size} or {other}");
                }
            }
        }
    }
}
