//! Rows that operators spill, in the blocks that are reserved for their run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cleave_fragment::SpillSpace;
use cleave_fragment::waiting::spawn_blocking_on;
use cleave_media::{AlignedBuffer, BLOCK_SIZE, BlockAddress, Extent};
use datafusion_common::{DataFusionError, Result};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use tokio::task::JoinError;

use super::{ReservedPages, UnderWay, external};

/// Free blocks for spilled rows: neighbours are merged.
#[derive(Debug, Default)]
pub(super) struct Returned {
    /// Start of each hole, and its blocks.
    holes: BTreeMap<u64, u32>,
}

impl Returned {
    /// Takes so many blocks of the first hole that has them.
    pub(super) fn take(&mut self, block_count: u32) -> Option<Extent> {
        let (start, blocks) = self
            .holes
            .iter()
            .map(|(start, blocks)| (*start, *blocks))
            .find(|(_, blocks)| *blocks >= block_count)?;
        self.holes.remove(&start);
        if blocks > block_count {
            self.holes.insert(start + u64::from(block_count), blocks - block_count);
        }
        Some(Extent { start: BlockAddress(start), block_count })
    }

    fn give_back(&mut self, extent: Extent) {
        let (mut start, mut blocks) = (extent.start.0, extent.block_count);
        let before = self.holes.range(..start).next_back().map(|(start, blocks)| (*start, *blocks));
        if let Some((hole, count)) = before
            && hole + u64::from(count) == start
            && let Some(sum) = count.checked_add(blocks)
        {
            self.holes.remove(&hole);
            (start, blocks) = (hole, sum);
        }
        let behind = start + u64::from(blocks);
        if let Some(sum) = self.holes.get(&behind).and_then(|count| count.checked_add(blocks)) {
            self.holes.remove(&behind);
            blocks = sum;
        }
        self.holes.insert(start, blocks);
    }
}

impl Extend<Extent> for Returned {
    fn extend<T: IntoIterator<Item = Extent>>(&mut self, extents: T) {
        let extents = extents.into_iter().filter(|extent| extent.block_count > 0);
        extents.for_each(|extent| self.give_back(extent));
    }
}

impl SpillSpace for ReservedPages {
    fn write(&self, blocks: AlignedBuffer) -> BoxFuture<'static, Result<Extent>> {
        let count = u32::try_from(blocks.len() / BLOCK_SIZE).unwrap_or(u32::MAX);
        let again = self.0.lock().returned.take(count);
        let place = match again.map_or_else(|| self.0.take(count), Ok) {
            Ok(place) => place,
            Err(error) => return ready(Err(error)).boxed(),
        };
        let under_way = UnderWay::begin(&self.0);
        let write = move || {
            let this = &under_way.shared;
            this.cpu.measure(|| this.media.write(place.start, &blocks)).map_err(external)
        };
        let written = spawn_blocking_on(&self.0.threads, write);
        written.map(move |joined| joined.unwrap_or_else(broke_off).map(|()| place)).boxed()
    }

    fn read(&self, place: Extent) -> BoxFuture<'static, Result<AlignedBuffer>> {
        let shared = Arc::clone(&self.0);
        let read = move || {
            let blocks = shared.cpu.measure(|| shared.media.read(place)).map_err(external)?;
            shared.spilled_bytes_read.fetch_add(blocks.len() as u64, Ordering::Relaxed);
            Ok(blocks)
        };
        let read = spawn_blocking_on(&self.0.threads, read);
        read.map(|joined| joined.unwrap_or_else(broke_off)).boxed()
    }

    fn give_back(&self, place: Extent) {
        self.0.lock().returned.extend([place]);
    }
}

fn broke_off<T>(error: JoinError) -> Result<T> {
    Err(DataFusionError::External(Box::new(error)))
}
