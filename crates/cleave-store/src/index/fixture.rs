//! Runs on media in memory, for the tests of runs, merges and placement.

use std::sync::Arc;

use cleave_media::{BlockAddress, Media, Memory};

use super::run::{INDEX_PAGE_CLASS, Run, RunWriter};
use crate::error::StoreError;
use crate::ids::SegmentId;
use crate::page::EncodedPage;
use crate::page_source::{MediaPages, SegmentRef};
use crate::segment::{RunProperties, SegmentDirectory, SegmentKind};

/// Media in memory with pages, allocated from block 0 on.
#[derive(Debug)]
pub(crate) struct Shelf {
    pub(crate) media: Arc<Memory>,
    next_block: u64,
}

impl Shelf {
    pub(crate) fn new() -> Self {
        Self { media: Arc::new(Memory::new()), next_block: 0 }
    }

    pub(crate) fn source(&self) -> MediaPages {
        let media: Arc<dyn Media> = Arc::<Memory>::clone(&self.media);
        MediaPages::new(media)
    }

    /// Writes pages and enters them in the directory.
    pub(crate) fn store(&mut self, directory: &mut SegmentDirectory, pages: &[EncodedPage]) {
        let mut written = Vec::new();
        for page in pages {
            let start = BlockAddress(self.next_block);
            self.next_block += u64::from(page.block_count());
            self.media.grow_to(self.next_block).unwrap();
            self.media.write(start, &page.bytes).unwrap();
            written.push((page, start));
        }
        directory.append(&written).unwrap();
    }

    /// A run of these keys, which ascend.
    pub(crate) fn run<'a>(
        &mut self,
        segment: u32,
        entries: impl IntoIterator<Item = (&'a [u8], u64)>,
    ) -> Result<Run, StoreError> {
        let segment = segment_ref(segment);
        let kind = SegmentKind::Index(RunProperties::default());
        let mut directory = SegmentDirectory::new(segment, kind, INDEX_PAGE_CLASS);
        let mut writer = RunWriter::new(segment, 0, true)?;
        let mut pages = Vec::new();
        for (key, vid) in entries {
            pages.extend(writer.push(key, vid)?);
        }
        let finished = writer.finish()?;
        pages.extend(finished.pages);
        directory.kind = SegmentKind::Index(RunProperties {
            filter: finished.filter,
            ..RunProperties::default()
        });
        self.store(&mut directory, &pages);
        let stored = SegmentDirectory::decode(&directory.encode()).unwrap();
        assert_eq!(stored, directory);
        Run::new(Arc::new(stored))
    }
}

pub(crate) fn segment_ref(segment: u32) -> SegmentRef {
    SegmentRef { table_id: 1, segment: SegmentId(segment), schema_version: 1, commit: 3 }
}
