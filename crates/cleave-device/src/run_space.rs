//! The space of one run: the extents that its request names, and those that the host adds while it works.
//!
//! ```text
//! a partition finds no room ─▶ more ─▶ SpaceNeed (n, blocks) ─▶ the run's stream ─▶ host
//!                               ▲ parked                                             │ reserves blocks
//!                               └──── extension n, checked ◀── Request::Extend ◀─────┘
//! ```
//!
//! 1. [`RunSpace::new`] checks the extents of the request, [`RunSpace::extend`] those of an extension: reserved by its
//!    database in this epoch, apart from each other, and apart from what the run reads.
//! 2. [`RunSpace::more`] tells the host what is needed, and waits for the extension. Other partitions that find no room
//!    wait for the same one.
//! 3. [`RunSpace::connect`] tells the host again over a new connection: what is needed is a state, not an event.
//!
//! Invariants: extensions are numbered from 1 without gaps, and each is taken once. A repeated one must be the one that
//! the run has. An extension without extents is the last: the host has no more, and every partition that needs more
//! fails. Nothing is taken that the run has not asked for.

use std::collections::BTreeMap;

use cleave_fragment::IndexInput;
use cleave_fragment::command::message::RunEvent;
use cleave_fragment::command::{DeviceError, DeviceErrorCause, Execute, SpaceNeed};
use cleave_fragment::link::SlotSender;
use cleave_media::{BlockAddress, Extent};
use tokio::sync::watch;

use crate::reservations::Reservations;

/// Most extents of a run's space.
const EXTENTS_MAX: usize = 1 << 16;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct RunSpace {
    run: u64,
    is_extensible: bool,
    /// What it reads, if more space may come.
    read: BlocksRead,
    given: watch::Sender<Given>,
}

#[derive(Debug)]
struct Given {
    /// Where it may write, in the order in which that came.
    extents: Vec<Extent>,
    /// The same by the first block: the block behind the last.
    ranges: BTreeMap<u64, u64>,
    /// How many extents there were before each extension.
    before: Vec<usize>,
    /// Blocks that somebody waits for, in one piece.
    wanted: Option<u32>,
    /// Whether no extension will come any more.
    is_last: bool,
    /// The way to the host.
    sink: SlotSender,
}

impl RunSpace {
    /// The space of a run of `request`, which tells its host through `sink` what it needs; `reservations` are those of
    /// its database.
    ///
    /// # Errors
    /// For extents that it may not write to.
    pub(crate) fn new(
        request: &Execute,
        reservations: &Reservations,
        sink: SlotSender,
    ) -> Result<Self, DeviceError> {
        let is_extensible = request.extensible;
        let read = match is_extensible || !request.reserved.is_empty() {
            true => BlocksRead::of(request),
            false => BlocksRead::default(),
        };
        let mut given = Given {
            extents: Vec::new(),
            ranges: BTreeMap::new(),
            before: Vec::new(),
            wanted: None,
            is_last: !is_extensible,
            sink,
        };
        given.add(&request.reserved, &read, reservations)?;
        let read = if is_extensible { read } else { BlocksRead::default() };
        Ok(Self { run: request.header.run, is_extensible, read, given: watch::Sender::new(given) })
    }

    /// Whether it has space, or may get some.
    pub(crate) fn is_given(&self) -> bool {
        self.is_extensible || !self.given.borrow().extents.is_empty()
    }

    /// Blocks in it.
    pub(crate) fn block_count(&self) -> u64 {
        let given = self.given.borrow();
        given.extents.iter().map(|extent| u64::from(extent.block_count)).sum()
    }

    /// Bytes of memory that it takes.
    pub(crate) fn held_bytes(&self) -> usize {
        size_of_val(self.read.0.as_slice())
    }

    /// The extents behind the first `had`.
    pub(crate) fn beyond(&self, had: usize) -> Vec<Extent> {
        self.given.borrow().extents.get(had..).unwrap_or_default().to_vec()
    }

    /// An extent of it that overlaps one of `extents`.
    pub(crate) fn overlapping(&self, extents: &[Extent]) -> Option<Extent> {
        let given = self.given.borrow();
        extents.iter().find_map(|extent| overlapping(&given.ranges, *extent))
    }

    // ---- from its partitions -------------------------------------------------------------------

    /// Waits until there are extents behind the first `had`, for a partition that found no room for `block_count`
    /// blocks in these. False: there will be none.
    pub(crate) async fn more(&self, had: usize, block_count: u32) -> bool {
        self.given.send_if_modified(|given| {
            given.want(had, block_count);
            // Nobody waits for this change.
            false
        });
        let mut given = self.given.subscribe();
        let is_answered = |given: &Given| given.extents.len() > had || given.is_last;
        // The sender lives as long as `self`.
        let given = given.wait_for(is_answered).await;
        given.is_ok_and(|given| given.extents.len() > had)
    }

    /// Whether a partition waits for an extension.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.given.borrow().wanted.is_some()
    }

    // ---- from the host -------------------------------------------------------------------------

    /// Switches to `sink` as the way to the host, and repeats what is needed.
    pub(crate) fn connect(&self, sink: SlotSender) {
        self.given.send_if_modified(|given| {
            given.sink = sink;
            given.tell();
            false
        });
    }

    /// Takes extension `number`, or finds that it has it; `reservations` are those of its database.
    ///
    /// # Errors
    /// For extents that the run may not write to, and an extension that it has not asked for.
    pub(crate) fn extend(
        &self,
        number: u32,
        extents: &[Extent],
        reservations: &Reservations,
    ) -> Result<(), DeviceError> {
        let mut outcome = Ok(false);
        self.given.send_if_modified(|given| {
            outcome = self.take_extension(given, number, extents, reservations);
            matches!(outcome, Ok(true))
        });
        outcome.map(drop)
    }

    /// Whether it is new.
    fn take_extension(
        &self,
        given: &mut Given,
        number: u32,
        extents: &[Extent],
        reservations: &Reservations,
    ) -> Result<bool, DeviceError> {
        let run = self.run;
        if let Some(known) = given.extension(number) {
            return match known == extents {
                true => Ok(false),
                false => Err(refused(format!(
                    "extension {number} of the space of run {run} has come before, with other blocks"
                ))),
            };
        }
        if given.wanted.is_none() || given.next_number() != number {
            return Err(refused(format!(
                "run {run} has not asked for extension {number} of its space"
            )));
        }
        if given.extents.len().saturating_add(extents.len()) > EXTENTS_MAX {
            return Err(refused(format!(
                "the space of run {run} would have more than {EXTENTS_MAX} extents"
            )));
        }
        let before = given.extents.len();
        given.add(extents, &self.read, reservations)?;
        given.before.push(before);
        given.wanted = None;
        given.is_last = extents.is_empty();
        Ok(true)
    }
}

impl Given {
    /// All or nothing: adds `extents` to the space of a run that reads `read`.
    fn add(
        &mut self,
        extents: &[Extent],
        read: &BlocksRead,
        reservations: &Reservations,
    ) -> Result<(), DeviceError> {
        let mut added = BTreeMap::new();
        for extent in extents {
            if extent.block_count == 0 {
                return Err(refused(format!("{extent}, reserved for a fragment, is empty")));
            }
            if !reservations.contains(*extent) {
                let message =
                    format!("{extent}, named for a fragment, were not reserved in this epoch");
                return Err(DeviceError::new(DeviceErrorCause::NotReserved, message));
            }
            let other = overlapping(&self.ranges, *extent);
            if let Some(other) = other.or_else(|| overlapping(&added, *extent)) {
                let message = format!("{other} and {extent}, reserved for one fragment, overlap");
                return Err(refused(message));
            }
            if let Some(page) = read.overlapping(*extent) {
                return Err(refused(format!("the fragment would read {page} and write {extent}")));
            }
            added.insert(extent.start.0, extent.end().0);
        }
        self.ranges.append(&mut added);
        self.extents.extend_from_slice(extents);
        Ok(())
    }

    /// Notes, and tells the host, that so many blocks are needed, unless there are extents behind the first `had`.
    fn want(&mut self, had: usize, block_count: u32) {
        let is_answered = self.extents.len() > had || self.is_last;
        if is_answered || self.wanted >= Some(block_count) {
            return;
        }
        self.wanted = Some(block_count);
        self.tell();
    }

    fn tell(&self) {
        let Some(block_count) = self.wanted else { return };
        let need = SpaceNeed { extension: self.next_number(), block_count };
        // Without a listener nothing is sent; a new one is told.
        let _heard = self.sink.send(RunEvent::Full(need));
    }

    fn next_number(&self) -> u32 {
        u32::try_from(self.before.len()).unwrap_or(u32::MAX).saturating_add(1)
    }

    /// The extents of extension `number`, if it has come.
    fn extension(&self, number: u32) -> Option<&[Extent]> {
        let place = usize::try_from(number).ok()?.checked_sub(1)?;
        let start = *self.before.get(place)?;
        let end = self.before.get(place + 1).copied().unwrap_or(self.extents.len());
        self.extents.get(start..end)
    }
}

/// The one of disjoint `ranges` that overlaps `extent`, if one does.
fn overlapping(ranges: &BTreeMap<u64, u64>, extent: Extent) -> Option<Extent> {
    let (start, end) = ranges.range(..extent.end().0).next_back()?;
    let block_count = u32::try_from(end - start).ok()?;
    let found = Extent { start: BlockAddress(*start), block_count };
    found.overlaps(extent).then_some(found)
}

/// Blocks that a run reads, neighbours merged: first block and the one behind the last, ascending.
#[derive(Debug, Default)]
struct BlocksRead(Vec<(u64, u64)>);

impl BlocksRead {
    fn of(request: &Execute) -> Self {
        let mut pages: Vec<(u64, u64)> =
            pages_read(request).map(|page| (page.start.0, page.end().0)).collect();
        pages.sort_unstable();
        pages.dedup_by(|next, before| {
            let touches = next.0 <= before.1;
            if touches {
                before.1 = before.1.max(next.1);
            }
            touches
        });
        pages.shrink_to_fit();
        Self(pages)
    }

    /// What it reads of `extent`.
    fn overlapping(&self, extent: Extent) -> Option<Extent> {
        let place = self.0.partition_point(|(_, end)| *end <= extent.start.0);
        let (start, end) = self.0.get(place)?;
        let start = (*start).max(extent.start.0);
        let blocks = (*end).min(extent.end().0).checked_sub(start).filter(|blocks| *blocks > 0)?;
        Some(Extent { start: BlockAddress(start), block_count: u32::try_from(blocks).ok()? })
    }
}

/// The places of the pages that `request` reads.
fn pages_read(request: &Execute) -> impl Iterator<Item = Extent> {
    let morsels = request.inputs.iter().flat_map(|(_, morsels)| morsels);
    let pages = morsels.flat_map(|morsel| &morsel.pages);
    let pages = pages.flat_map(|place| std::iter::once(&place.page).chain(&place.overflow));
    let indexes = request.indexes.iter().flat_map(IndexInput::pages);
    let filtered = request.index_filters.iter().flat_map(|index_filter| &index_filter.parts);
    let filtered = filtered.flat_map(|part| &part.runs).flat_map(|run| &run.pages);
    pages.chain(indexes).chain(filtered).map(|page| page.extent)
}

fn refused(message: String) -> DeviceError {
    DeviceError::new(DeviceErrorCause::Refused, message)
}

#[cfg(test)]
pub(crate) mod tests;
