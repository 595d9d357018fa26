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
//!
//! [`balanced`] has all moves at once. [`next_step`] has the first of them alone, for a server that moves tablets one
//! by one and looks again after each; it leaves out moves that copy much for little, so that a table whose rows come
//! and go does not have its tablets move to and fro.

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

/// The tablet of `table`, by place, that should move next for its rows to be balanced over `devices`, and the device
/// that it goes to; None: all lie on these, and no device has more rows than `most` says of its share, or no move is
/// worth it. A move within `devices` is, if a device that has too many rows has at least one and a half times as many
/// more than the emptiest as go: before the tablet moves back, as many rows must have come and gone.
#[must_use]
pub fn next_step(
    table: &TableState,
    devices: &[DeviceId],
    most: impl Fn(u64) -> u64,
) -> Option<(usize, DeviceId)> {
    let tablets = table.tablets.iter().map(|tablet| (tablet.device, tablet.row_count()));
    step(&tablets.collect::<Vec<_>>(), devices, most)
}

/// The next move for tablets that lie so and have so many rows.
fn step(
    tablets: &[(DeviceId, u64)],
    devices: &[DeviceId],
    most: impl Fn(u64) -> u64,
) -> Option<(usize, DeviceId)> {
    let Rows { of_devices, lies, left } = Rows::of(tablets, devices);
    if let Some((_, place)) = left.first() {
        let (device, _) = of_devices.iter().min_by_key(|(_, sum)| **sum)?;
        return Some((*place, *device));
    }
    let share = share(&of_devices);
    let is_worth =
        |count: u64, difference: u64| count.saturating_add(count.div_ceil(2)) <= difference;
    next_move(&of_devices, &lies, share, (most(share), is_worth))
}

/// Where the rows of a table are.
struct Rows {
    /// By device, of those over which they are to be balanced.
    of_devices: BTreeMap<DeviceId, u64>,
    /// By place: the tablet's device and its rows.
    lies: BTreeMap<usize, (DeviceId, u64)>,
    /// Rows and places of the tablets on other devices, the largest first.
    left: Vec<(u64, usize)>,
}

impl Rows {
    fn of(tablets: &[(DeviceId, u64)], devices: &[DeviceId]) -> Self {
        let mut of_devices: BTreeMap<DeviceId, u64> =
            devices.iter().map(|device| (*device, 0)).collect();
        let mut lies: BTreeMap<usize, (DeviceId, u64)> = BTreeMap::new();
        let mut left: Vec<(u64, usize)> = Vec::new();
        for (place, (device, count)) in tablets.iter().enumerate() {
            let count = (*count).max(1);
            match of_devices.get_mut(device) {
                Some(sum) => {
                    *sum = sum.saturating_add(count);
                    lies.insert(place, (*device, count));
                }
                None => left.push((count, place)),
            }
        }
        left.sort_unstable_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(&other.1)));
        Self { of_devices, lies, left }
    }
}

/// The rows that each device should have.
fn share(rows: &BTreeMap<DeviceId, u64>) -> u64 {
    rows.values().sum::<u64>() / (rows.len() as u64).max(1)
}

/// The moves for tablets that lie so and have so many rows.
fn moves(tablets: &[(DeviceId, u64)], devices: &[DeviceId]) -> BTreeMap<usize, DeviceId> {
    let Rows { of_devices: mut rows, mut lies, left } = Rows::of(tablets, devices);
    for (count, place) in left {
        let Some((device, sum)) = rows.iter_mut().min_by_key(|(_, sum)| **sum) else { break };
        *sum = sum.saturating_add(count);
        lies.insert(place, (*device, count));
    }
    let share = share(&rows);
    let limit = share.saturating_add(share / TOLERANCE);
    while let Some((place, target)) = next_move(&rows, &lies, share, (limit, |_, _| true)) {
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

/// The place of the next tablet to move, and the device that it goes to; None: no move helps enough. It leaves a device
/// that has more rows than the limit, and is worth it, as the function says of its rows and the difference between the
/// two devices.
fn next_move(
    rows: &BTreeMap<DeviceId, u64>,
    lies: &BTreeMap<usize, (DeviceId, u64)>,
    share: u64,
    (limit, is_worth): (u64, impl Fn(u64, u64) -> bool),
) -> Option<(usize, DeviceId)> {
    let (empty, least) = rows.iter().min_by_key(|(_, sum)| **sum)?;
    let full = rows.iter().map(|(device, sum)| (*sum, *device)).filter(|(sum, _)| *sum > limit);
    let mut full: Vec<(u64, DeviceId)> = full.collect();
    full.sort_unstable_by_key(|(sum, device)| (Reverse(*sum), *device));
    full.into_iter().find_map(|(most, full)| {
        let excess = most.saturating_sub(share);
        let matters = |count: u64| {
            count.saturating_mul(u64::from(TABLET_COUNT_MAX)) >= excess
                && is_worth(count, most.saturating_sub(*least))
        };
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
