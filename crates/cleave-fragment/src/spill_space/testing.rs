//! Spill space in memory, for tests: it counts what is taken, and refuses what goes beyond its size.

use std::sync::{Arc, Mutex};

use cleave_media::{BLOCK_SIZE, Media, Memory, SpaceMap};
use datafusion_common::DataFusionError;
use futures::FutureExt;

use super::*;
use crate::page_sink::OutOfReservedPages;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct MemorySpace {
    pub(crate) media: Memory,
    map: Mutex<SpaceMap>,
    block_count: u64,
}

impl MemorySpace {
    pub(crate) fn new(block_count: u64) -> Arc<Self> {
        let media = Memory::new();
        media.grow_to(block_count).unwrap();
        Arc::new(Self { media, map: Mutex::default(), block_count })
    }

    pub(crate) fn used_blocks(&self) -> u64 {
        self.map.lock().unwrap().used_blocks()
    }

    fn place(&self, blocks: &AlignedBuffer) -> Result<Extent> {
        let mut map = self.map.lock().unwrap();
        let place = map.allocate(u32::try_from(blocks.len() / BLOCK_SIZE).unwrap());
        if place.end().0 > self.block_count {
            map.free(place).unwrap();
            let error = OutOfReservedPages { reserved_blocks: self.block_count };
            return Err(DataFusionError::External(Box::new(error)));
        }
        self.media.write(place.start, blocks).unwrap();
        Ok(place)
    }
}

impl SpillSpace for MemorySpace {
    fn write(&self, blocks: AlignedBuffer) -> BoxFuture<'static, Result<Extent>> {
        futures::future::ready(self.place(&blocks)).boxed()
    }

    fn read(&self, place: Extent) -> BoxFuture<'static, Result<AlignedBuffer>> {
        futures::future::ready(Ok(self.media.read(place).unwrap())).boxed()
    }

    fn give_back(&self, place: Extent) {
        self.map.lock().unwrap().free(place).unwrap();
    }
}
