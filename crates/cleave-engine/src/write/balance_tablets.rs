//! Balances the rows of a table over devices: where its tablets lie in, which of them should move out.
//!
//! 1. Tablets on other devices go to these, the largest first, each to the device with the fewest rows.
//! 2. As long as one device has more than its share, and some more, the tablet whose move brings that device and the
//!    emptiest one nearest to each other moves between these two, if that leaves the fuller of them with fewer rows
//!    than before; the fullest device first. Tablets that are too small to matter stay.
//!
//! Each move makes the sum of the squares of rows smaller, so this ends. It is greedy: it looks at one move at a time,
//! and never exchanges two tablets. A tablet counts as many rows as it has, and one if it has none, so that the tablets
//! of an empty table are spread as well.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use cleave_catalog::catalog::division::TABLET_COUNT_MAX;
use cleave_catalog::catalog::{DeviceId, TableState};

/// A device is not relieved of tablets if it has no more than one in so many rows above its share: moving costs more
/// than it brings, and the tablets of a hash are never quite the same.
const TOLERANCE: u64 = 20;

/// The tablets of `table` that should move for its rows to be balanced over `devices`, by place, with their devices.
#[must_use]
pub fn balanced(table: &TableState, devices: &[DeviceId]) -> BTreeMap<usize, DeviceId> {
    let tablets = table.tablets.iter().map(|tablet| (tablet.device, tablet.row_count()));
    moves(&tablets.collect::<Vec<_>>(), devices)
}

/// The moves for tablets that lie so and have so many rows.
fn moves(tablets: &[(DeviceId, u64)], devices: &[DeviceId]) -> BTreeMap<usize, DeviceId> {
    let mut rows: BTreeMap<DeviceId, u64> = devices.iter().map(|device| (*device, 0)).collect();
    // By place: the tablet's device and its rows.
    let mut lies: BTreeMap<usize, (DeviceId, u64)> = BTreeMap::new();
    let mut left: Vec<(u64, usize)> = Vec::new();
    for (place, (device, count)) in tablets.iter().enumerate() {
        let count = (*count).max(1);
        match rows.get_mut(device) {
            Some(sum) => {
                *sum = sum.saturating_add(count);
                lies.insert(place, (*device, count));
            }
            None => left.push((count, place)),
        }
    }
    left.sort_unstable_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(&other.1)));
    for (count, place) in left {
        let Some((device, sum)) = rows.iter_mut().min_by_key(|(_, sum)| **sum) else { break };
        *sum = sum.saturating_add(count);
        lies.insert(place, (*device, count));
    }
    let share = rows.values().sum::<u64>() / (rows.len() as u64).max(1);
    while let Some((place, target)) = next_move(&rows, &lies, share) {
        let Some((device, count)) = lies.get_mut(&place) else { break };
        if let Some(sum) = rows.get_mut(device) {
            *sum = sum.saturating_sub(*count);
        }
        if let Some(sum) = rows.get_mut(&target) {
            *sum = sum.saturating_add(*count);
        }
        *device = target;
    }
    let is_elsewhere = |(place, (device, _)): &(usize, (DeviceId, u64))| {
        tablets.get(*place).is_some_and(|(before, _)| before != device)
    };
    let moved = lies.into_iter().filter(is_elsewhere);
    moved.map(|(place, (device, _))| (place, device)).collect()
}

/// The place of the next tablet to move, and the device that it goes to; None: no move helps enough.
fn next_move(
    rows: &BTreeMap<DeviceId, u64>,
    lies: &BTreeMap<usize, (DeviceId, u64)>,
    share: u64,
) -> Option<(usize, DeviceId)> {
    let (empty, least) = rows.iter().min_by_key(|(_, sum)| **sum)?;
    let limit = share.saturating_add(share / TOLERANCE);
    let full = rows.iter().map(|(device, sum)| (*sum, *device)).filter(|(sum, _)| *sum > limit);
    let mut full: Vec<(u64, DeviceId)> = full.collect();
    full.sort_unstable_by_key(|(sum, device)| (Reverse(*sum), *device));
    full.into_iter().find_map(|(most, full)| {
        let excess = most.saturating_sub(share);
        let matters = |count: u64| count.saturating_mul(u64::from(TABLET_COUNT_MAX)) >= excess;
        let there = lies.iter().filter(|(_, (device, count))| *device == full && matters(*count));
        // The fuller of the two afterwards, for each tablet that may move.
        let moves = there.map(|(place, (_, count))| {
            (most.saturating_sub(*count).max(least.saturating_add(*count)), *place)
        });
        let (after, place) = moves.min()?;
        (after < most).then_some((place, *empty))
    })
}

#[cfg(test)]
mod tests;
