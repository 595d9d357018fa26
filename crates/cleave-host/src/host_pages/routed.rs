//! Pages of several devices as one source: each read goes to the device that its segment lies on.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cleave_store::{PageColumns, PageRead, PageRef, PageSource, SegmentId, SegmentRef, StoreError};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::catalog::DeviceId;
use crate::database::Database;
use crate::error::Result;
use crate::settings::Stack;

/// See the module's description.
#[derive(Debug)]
pub(crate) struct RoutedPages {
    by_segment: BTreeMap<SegmentId, Arc<dyn PageSource>>,
}

impl RoutedPages {
    /// The pages of `segments`, each with its device, as `stack` has them.
    ///
    /// # Errors
    /// As [`Database::page_source`].
    pub(crate) fn new(
        database: &Database,
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

impl PageSource for RoutedPages {
    /// The reads of one call belong to one morsel or run, hence to one segment.
    fn read(&self, reads: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        let Some(first) = reads.first() else {
            return futures::future::ready(Ok(Vec::new())).boxed();
        };
        match self.source(first.segment.segment) {
            Ok(source) => source.read(reads),
            Err(error) => futures::future::ready(Err(error)).boxed(),
        }
    }

    fn read_overflow(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>> {
        match self.source(segment.segment) {
            Ok(source) => source.read_overflow(segment, pages),
            Err(error) => futures::future::ready(Err(error)).boxed(),
        }
    }
}
