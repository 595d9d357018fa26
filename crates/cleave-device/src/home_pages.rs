//! The pages of one run, wherever they lie.
//!
//! ```text
//!   read of a page ─▶ its segment ─┬─ has no home ─▶ the device's own media, or the host's cache
//!                                  └─ has a home ─┬▶ the media of that device of the node, while the database has it
//!                                                 └▶ over a link to the device, by a grant
//! ```
//!
//! 1. [`HomePages::new`] compares the [homes](cleave_fragment::command::PageHome) of an execute with the pages that
//!    came with it, and finds these devices: in the node, unless the execute says that they are reached by a link.
//! 2. A read goes where its segment lies: overflow pages, and those of indexes that filter an input, too.
//!
//! Invariants: of another device's media a run reads only segments of which pages came with its fragment, and operators
//! ask for no pages but those. Each is compared with the checksum of its reference, like the device's own. Where a home
//! cannot be reached, the device refuses the run, and the host runs it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use cleave_fragment::command::{DeviceError, DeviceErrorCause, Execute, PageHome, PeerWay};
use cleave_fragment::scattered_reads::in_order;
use cleave_store::{PageColumns, PageRead, PageRef, PageSource, SegmentId, SegmentRef, StoreError};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use crate::node::{HomeUnreachable, NodeEngine, Sibling};
use crate::peers::{PeerLinks, PeerPages};
use crate::run_pages::RunPages;

/// Bytes that the home of a segment takes.
const SEGMENT_BYTES: usize = 48;

/// Another device on which pages of the run lie.
#[derive(Debug)]
enum Home {
    /// Of the node.
    Sibling(Sibling, RunPages),
    /// Over a link.
    Peer(PeerPages),
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct HomePages {
    own: RunPages,
    homes: Vec<Home>,
    /// The place of a segment's home in the list; without one it is the device's own.
    by_segment: BTreeMap<SegmentId, usize>,
}

impl HomePages {
    /// The pages of `request`, which `engine` runs: `own` ones, those of other devices of its node, and those that are
    /// reached by `links`.
    ///
    /// # Errors
    /// [`DeviceErrorCause::Unsupported`] for a device that the node does not have, [`DeviceErrorCause::Peer`] for one
    /// that has an address which cannot be used; [`DeviceErrorCause::Refused`] for one, or a segment, that is named
    /// twice, and for a segment of which no page came.
    pub(crate) fn new(
        own: RunPages,
        (engine, links): (&NodeEngine, &PeerLinks),
        request: &Execute,
    ) -> Result<Self, DeviceError> {
        let mut pages = Self { own, homes: Vec::new(), by_segment: BTreeMap::new() };
        if request.homes.is_empty() {
            return Ok(pages);
        }
        let came = segments_of(request);
        for home in &request.homes {
            if pages.homes.iter().any(|known| known.device() == home.device) {
                return Err(refused("a device that pages lie on is named twice".to_owned()));
            }
            let reached = pages.reach(home, (engine, links), request)?;
            for segment in &home.segments {
                if !came.contains(segment) {
                    let message = format!("{segment} lies elsewhere, and no page of it is read");
                    return Err(refused(message));
                }
                if pages.by_segment.insert(*segment, pages.homes.len()).is_some() {
                    return Err(refused(format!("{segment} lies in two places")));
                }
            }
            pages.homes.push(reached);
        }
        Ok(pages)
    }

    /// The device of `home`, wherever it is.
    fn reach(
        &self,
        home: &PageHome,
        (engine, links): (&NodeEngine, &PeerLinks),
        request: &Execute,
    ) -> Result<Home, DeviceError> {
        let peer = request.peers.iter().find(|peer| peer.device == home.device);
        if let Some(PeerWay::Link(_)) = peer.map(|peer| &peer.way) {
            let link = links.link(request, home.device)?;
            let cpu = Arc::clone(self.own.cpu());
            return Ok(Home::Peer(PeerPages::new(home.device, link, request.header, cpu)));
        }
        let owner = request.header.ownership();
        let sibling = engine.sibling(home.device, owner).map_err(out_of_reach)?;
        let media = sibling.media().map_err(out_of_reach)?;
        Ok(Home::Sibling(sibling, self.own.beside(media)))
    }

    /// Bytes of memory that it takes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.by_segment.len() * SEGMENT_BYTES
    }

    /// Bytes that came from media, here and elsewhere.
    pub(crate) fn media_bytes(&self) -> u64 {
        self.own.media_bytes() + self.foreign_bytes()
    }

    /// Of these, bytes from other devices.
    pub(crate) fn foreign_bytes(&self) -> u64 {
        self.homes.iter().map(Home::byte_count).sum()
    }

    /// Pages that were read.
    pub(crate) fn pages_read(&self) -> u64 {
        let foreign: u64 = self.homes.iter().map(Home::pages_read).sum();
        self.own.pages_read() + foreign
    }

    fn place_of(&self, segment: SegmentRef) -> Option<usize> {
        self.by_segment.get(&segment.segment).copied()
    }

    /// The pages at the home of this place.
    fn at(&self, place: Option<usize>) -> Result<&dyn PageSource, StoreError> {
        match place.and_then(|place| self.homes.get(place)) {
            None => Ok(&self.own),
            Some(Home::Peer(pages)) => Ok(pages),
            Some(Home::Sibling(home, pages)) => match home.media() {
                Ok(_) => Ok(pages),
                Err(error) => Err(StoreError::Source(Arc::new(error))),
            },
        }
    }
}

impl Home {
    fn device(&self) -> [u8; 16] {
        match self {
            Self::Sibling(sibling, _) => sibling.device(),
            Self::Peer(pages) => pages.device(),
        }
    }

    fn byte_count(&self) -> u64 {
        match self {
            Self::Sibling(_, pages) => pages.media_bytes(),
            Self::Peer(pages) => pages.byte_count(),
        }
    }

    fn pages_read(&self) -> u64 {
        match self {
            Self::Sibling(_, pages) => pages.pages_read(),
            Self::Peer(pages) => pages.pages_read(),
        }
    }
}

impl PageSource for HomePages {
    /// The reads of one call are of one device mostly; those of several are made side by side.
    fn read(&self, reads: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        if self.homes.is_empty() {
            return self.own.read(reads);
        }
        let mut by_home: BTreeMap<Option<usize>, (Vec<usize>, Vec<PageRead>)> = BTreeMap::new();
        for (number, read) in reads.into_iter().enumerate() {
            let (numbers, asked) = by_home.entry(self.place_of(read.segment)).or_default();
            numbers.push(number);
            asked.push(read);
        }
        let mut parts = Vec::with_capacity(by_home.len());
        for (place, (numbers, asked)) in by_home {
            let source = match self.at(place) {
                Ok(source) => source,
                Err(error) => return ready(Err(error)).boxed(),
            };
            parts.push((numbers, source.read(asked)));
        }
        in_order(parts).boxed()
    }

    fn read_overflow(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>> {
        match self.at(self.place_of(segment)) {
            Ok(source) => source.read_overflow(segment, pages),
            Err(error) => ready(Err(error)).boxed(),
        }
    }
}

/// The segments of which pages came with `request`, except for shipped ones.
fn segments_of(request: &Execute) -> BTreeSet<SegmentId> {
    let morsels = request.inputs.iter().flat_map(|(_, morsels)| morsels);
    let parts = request.index_filters.iter().flat_map(|filter| &filter.parts);
    let runs = parts.flat_map(|part| &part.runs).map(|run| run.segment.segment);
    let segments = morsels.map(|morsel| morsel.segment.segment).chain(runs);
    segments.filter(|segment| !segment.is_shipped()).collect()
}

fn out_of_reach(error: HomeUnreachable) -> DeviceError {
    DeviceError::new(DeviceErrorCause::Unsupported, error.to_string())
}

fn refused(message: String) -> DeviceError {
    DeviceError::new(DeviceErrorCause::Refused, message)
}
