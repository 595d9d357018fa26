//! Pages of several devices as one source: each read goes to the device that its segment lies on.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cleave_catalog::catalog::DeviceId;
use cleave_catalog::error::Result;
use cleave_catalog::settings::Stack;
use cleave_fragment::scattered_reads::in_order;
use cleave_store::{PageColumns, PageRead, PageRef, PageSource, SegmentId, SegmentRef, StoreError};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use crate::storage_engine::Engine;

/// See the module's description.
#[derive(Debug)]
pub struct RoutedPages {
    by_segment: BTreeMap<SegmentId, Arc<dyn PageSource>>,
}

impl RoutedPages {
    /// The pages of `segments`, each with its device, as `stack` has them.
    ///
    /// # Errors
    /// As [`Engine::page_source`].
    pub fn new(
        database: &Engine,
        stack: Stack,
        segments: impl IntoIterator<Item = (DeviceId, SegmentId)>,
    ) -> Result<Self> {
        let mut devices: BTreeMap<DeviceId, Arc<dyn PageSource>> = BTreeMap::new();
        let mut by_segment = BTreeMap::new();
        for (device, segment) in segments {
            let source = match devices.get(&device) {
                Some(source) => Arc::clone(source),
                None => {
                    let source = database.page_source(device, stack)?;
                    devices.insert(device, Arc::clone(&source));
                    source
                }
            };
            by_segment.insert(segment, source);
        }
        Ok(Self { by_segment })
    }

    fn source(&self, segment: SegmentId) -> Result<&Arc<dyn PageSource>, StoreError> {
        self.by_segment.get(&segment).ok_or_else(|| StoreError::Mismatch {
            what: "a page read",
            reason: format!("{segment} is not among the segments of the statement"),
        })
    }
}

/// The reads of one call for one device, with the place of each read in the call.
struct ReadsOf<'a> {
    source: &'a Arc<dyn PageSource>,
    places: Vec<usize>,
    reads: Vec<PageRead>,
}

impl PageSource for RoutedPages {
    /// The reads of one call are of one device mostly; those of several are asked for side by side.
    fn read(&self, reads: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        let sources = reads.iter().map(|read| self.source(read.segment.segment));
        let sources: Vec<&Arc<dyn PageSource>> = match sources.collect() {
            Ok(sources) => sources,
            Err(error) => return ready(Err(error)).boxed(),
        };
        let Some(first) = sources.first() else { return ready(Ok(Vec::new())).boxed() };
        if sources.iter().all(|source| Arc::ptr_eq(source, first)) {
            return first.read(reads);
        }
        let mut by_source: Vec<ReadsOf<'_>> = Vec::new();
        for (place, (source, read)) in sources.into_iter().zip(reads).enumerate() {
            match by_source.iter_mut().find(|known| Arc::ptr_eq(known.source, source)) {
                Some(known) => {
                    known.places.push(place);
                    known.reads.push(read);
                }
                None => {
                    by_source.push(ReadsOf { source, places: vec![place], reads: vec![read] });
                }
            }
        }
        let parts =
            by_source.into_iter().map(|asked| (asked.places, asked.source.read(asked.reads)));
        in_order(parts.collect()).boxed()
    }

    fn read_overflow(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>> {
        match self.source(segment.segment) {
            Ok(source) => source.read_overflow(segment, pages),
            Err(error) => ready(Err(error)).boxed(),
        }
    }
}
