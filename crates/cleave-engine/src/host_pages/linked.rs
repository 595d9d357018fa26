//! Pages of one device over its link: reads in, verified columns out, nothing cached.

use std::sync::Arc;

use bytes::Bytes;
use cleave_catalog::error::Result;
use cleave_catalog::storage_error::into_store_error;
use cleave_fragment::command::{ReadItem, ReadPayload};
use cleave_store::page::overflow::overflow_payload;
use cleave_store::{
    PageColumns, PageRead, PageRef, PageSource, RawColumns, SegmentRef, StoreError,
};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::Counters;
use crate::device::Device;

/// The page source over a link. A chunk comes in memory of about its own size, from the embedded device
/// ([`RawColumns`]) as over a wire.
#[derive(Debug)]
pub(super) struct LinkedPages {
    device: Arc<Device>,
    counters: Arc<Counters>,
}

impl LinkedPages {
    pub(super) fn new(device: Arc<Device>, counters: Arc<Counters>) -> Self {
        Self { device, counters }
    }

    /// The chunks asked for, and nothing else; of a mirror from a copy that has them.
    async fn read_columns(&self, reads: Vec<PageRead>) -> Result<Vec<PageColumns>> {
        if !self.device.is_mirror() {
            return self.columns_of(&self.device, reads).await;
        }
        let columns = self.device.ask_pages(|copy| {
            let reads = reads.clone();
            async move { self.columns_of(&copy, reads).await }.boxed()
        });
        columns.await
    }

    async fn columns_of(&self, device: &Device, reads: Vec<PageRead>) -> Result<Vec<PageColumns>> {
        let items = reads.iter().map(|read| ReadItem::Columns {
            page: read.page,
            segment: read.segment,
            columns: read.columns.clone(),
        });
        let payloads = device.read(items.collect()).await?;
        let mut pages = Vec::with_capacity(reads.len());
        for (read, payload) in reads.iter().zip(payloads) {
            self.counters.note_link(payload.byte_count());
            let ReadPayload::Columns { header, chunks } = payload else {
                return Err(device.strange_payload("blocks where columns were asked for"));
            };
            let verified = PageColumns::verify(read, RawColumns { header, chunks });
            pages.push(checked(device, verified).await?);
        }
        Ok(pages)
    }

    async fn read_payloads(&self, segment: SegmentRef, pages: Vec<PageRef>) -> Result<Vec<Bytes>> {
        if !self.device.is_mirror() {
            return self.payloads_of(&self.device, segment, pages).await;
        }
        let payloads = self.device.ask_pages(|copy| {
            let pages = pages.clone();
            async move { self.payloads_of(&copy, segment, pages).await }.boxed()
        });
        payloads.await
    }

    async fn payloads_of(
        &self,
        device: &Device,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> Result<Vec<Bytes>> {
        let items = pages.iter().map(|page| ReadItem::Blocks(page.extent)).collect();
        let blocks = device.read(items).await?;
        let mut payloads = Vec::with_capacity(pages.len());
        for (page, block) in pages.iter().zip(blocks) {
            self.counters.note_link(block.byte_count());
            let ReadPayload::Blocks(block) = block else {
                return Err(device.strange_payload("columns where blocks were asked for"));
            };
            payloads.push(checked(device, overflow_payload(&segment, page, &block)).await?);
        }
        Ok(payloads)
    }
}

/// The result of verifying a page; a failure may mean that another device answers than the attached one.
pub(super) async fn checked<T>(device: &Device, verified: Result<T, StoreError>) -> Result<T> {
    match verified {
        Ok(value) => Ok(value),
        Err(error) => {
            device.check_identity().await?;
            Err(error.into())
        }
    }
}

impl PageSource for LinkedPages {
    fn read(&self, reads: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        self.read_columns(reads).map(|pages| pages.map_err(into_store_error)).boxed()
    }

    fn read_overflow(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>> {
        self.read_payloads(segment, pages)
            .map(|payloads| payloads.map_err(into_store_error))
            .boxed()
    }
}
