//! Rows end up balanced as far as whole tablets allow, and what is balanced stays.

use proptest::collection::vec;
use proptest::prelude::proptest;
use proptest::{prop_assert, prop_assert_eq};

use super::*;

fn devices(count: u32) -> Vec<DeviceId> {
    (0..count).map(DeviceId).collect()
}

/// The moves of tablets with so many rows, on devices of these numbers.
fn moved(tablets: &[(u32, u64)], count: u32) -> Vec<(usize, u32)> {
    let tablets: Vec<_> = tablets.iter().map(|(device, rows)| (DeviceId(*device), *rows)).collect();
    moves(&tablets, &devices(count)).into_iter().map(|(place, device)| (place, device.0)).collect()
}

#[test]
fn few_tablets_move() {
    // One move is enough.
    assert_eq!(moved(&[(0, 100), (0, 100), (0, 100), (1, 100)], 2), [(0, 1)]);
    // The one that brings both nearest to each other.
    assert_eq!(moved(&[(0, 500), (0, 300), (0, 90), (1, 200)], 2), [(1, 1)]);
    // Nearly the same is the same.
    assert!(moved(&[(0, 104), (1, 100), (2, 96)], 3).is_empty());
    // No tablet is small enough.
    assert!(moved(&[(0, 1000), (1, 0)], 2).is_empty());
    // What cannot be helped hinders no other.
    let tablets = [(0, 28_000), (1, 8000), (1, 8000), (1, 8000)];
    assert_eq!(moved(&tablets, 3), [(1, 2)]);
    // Tablets without rows are spread as well.
    assert_eq!(moved(&[(0, 0), (0, 0), (0, 0), (0, 0)], 2), [(0, 1), (1, 1)]);
}

#[test]
fn tablets_leave_devices_that_are_not_named() {
    let tablets = [(5, 10_000), (5, 400_000), (0, 300_000), (1, 0)];
    assert_eq!(moved(&tablets, 2), [(0, 0), (1, 1)]);
    assert_eq!(moved(&tablets, 1), [(0, 0), (1, 0), (3, 0)]);
    assert!(moved(&tablets, 0).is_empty());
}

/// The next step for tablets with so many rows, on devices of these numbers, which may have a fifth more than a share.
fn next(tablets: &[(u32, u64)], count: u32) -> Option<(usize, u32)> {
    let tablets: Vec<_> = tablets.iter().map(|(device, rows)| (DeviceId(*device), *rows)).collect();
    let step = step(&tablets, &devices(count), |share| share + share / 5);
    step.map(|(place, device)| (place, device.0))
}

#[test]
fn single_steps_are_worth_what_they_copy() {
    // Other devices first, the largest tablet first.
    assert_eq!(next(&[(0, 900), (0, 900), (7, 5), (7, 6)], 2), Some((3, 1)));
    assert_eq!(next(&[(0, 100), (0, 100), (0, 100), (0, 100)], 2), Some((0, 1)));
    assert_eq!(next(&[(1, 100), (0, 100), (0, 100), (0, 100)], 2), Some((1, 1)));
    assert_eq!(next(&[(1, 100), (1, 100), (0, 100), (0, 100)], 2), None);
    // Below the threshold.
    assert_eq!(next(&[(0, 119), (1, 81)], 2), None);
    // REBALANCE would: one row less for 45 that are copied.
    let tablets = [(0, 60), (0, 45), (1, 59)];
    assert_eq!(moved(&tablets, 2), [(1, 1)]);
    assert_eq!(next(&tablets, 2), None);
    assert_eq!(next(&[(0, 5)], 0), None);
}

proptest! {
    #[test]
    fn steps_come_to_an_end(
        tablets in vec((0u32..6, 0u64..1000), 1..40),
        count in 1u32..5,
    ) {
        let mut lie: Vec<_> = tablets.iter().map(|(at, rows)| (DeviceId(*at), *rows)).collect();
        let mut steps = 0;
        while let Some((place, device)) = step(&lie, &devices(count), |share| share + share / 5) {
            let before = std::mem::replace(&mut lie[place].0, device);
            prop_assert!(before != device);
            steps += 1;
            prop_assert!(steps <= 40 * 40, "{tablets:?}");
            let back = step(&lie, &devices(count), |share| share + share / 5);
            prop_assert!(back != Some((place, before)), "{tablets:?}");
        }
        prop_assert!(lie.iter().all(|(device, _)| device.0 < count));
    }

    #[test]
    fn what_is_balanced_stays(
        tablets in vec((0u32..6, 0u64..1000), 1..40),
        count in 1u32..5,
    ) {
        let mut lie: Vec<_> = tablets.iter().map(|(at, rows)| (DeviceId(*at), *rows)).collect();
        let first = moves(&lie, &devices(count));
        for (place, device) in &first {
            prop_assert!(lie[*place].0 != *device);
            lie[*place].0 = *device;
        }
        prop_assert!(lie.iter().all(|(device, _)| device.0 < count));
        prop_assert_eq!(moves(&lie, &devices(count)), BTreeMap::new());
        // No device has more than its share by more than one tablet, nor is a tablet lost.
        let sums: Vec<u64> = devices(count)
            .iter()
            .map(|device| lie.iter().filter(|own| own.0 == *device).map(|own| own.1.max(1)).sum())
            .collect();
        let share = sums.iter().sum::<u64>() / u64::from(count);
        let largest = lie.iter().map(|own| own.1.max(1)).max().unwrap();
        prop_assert!(*sums.iter().max().unwrap() <= share + share / TOLERANCE + largest);
    }
}
