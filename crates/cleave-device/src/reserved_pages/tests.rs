//! The places that reserved pages get.

use cleave_fragment::SpillSpace;
use cleave_media::Memory;
use cleave_store::PageKind;

use super::*;
use crate::run_space::tests::{needs, reservations, space_of};

fn extent(start: u64, block_count: u32) -> Extent {
    Extent { start: BlockAddress(start), block_count }
}

fn space(reserved: &[Extent]) -> Arc<RunSpace> {
    space_of(reserved, false).0
}

fn cpu() -> Arc<CpuTime> {
    Arc::new(CpuTime::by(cleave_media::Stopwatch::start()))
}

fn page(number: u32, blocks: usize) -> EncodedPage {
    EncodedPage {
        page: number,
        kind: PageKind::IndexRun,
        bytes: AlignedBuffer::zeroed(blocks * cleave_media::BLOCK_SIZE),
        row_count: 1,
        checksum: 0,
        vid_first: 0,
        zones: Vec::new(),
        overflow_first_count: (0, 0),
    }
}

#[tokio::test]
async fn pages_lie_one_behind_the_other_and_never_in_two_extents() {
    let media = Arc::new(Memory::new());
    media.grow_to(100).unwrap();
    let reserved = [extent(10, 5), extent(50, 4)];
    let pages = ReservedPages::new(media, Handle::current(), cpu(), space(&reserved));
    for (number, blocks, expected) in [(0, 2, 10), (1, 2, 12), (2, 3, 50), (3, 1, 53)] {
        let placed = pages.push(page(number, blocks)).await.unwrap();
        assert_eq!((placed.page, placed.extent.start.0), (number, expected));
    }
    let error = pages.push(page(4, 1)).await.unwrap_err();
    assert!(error.to_string().contains("9 blocks"), "{error}");
    pages.finish().await.unwrap();
}

#[tokio::test]
async fn a_partition_that_has_ended_waits_for_no_later_page_of_another() {
    let media = Arc::new(Memory::new());
    media.grow_to(100).unwrap();
    let pages = ReservedPages::new(media, Handle::current(), cpu(), space(&[extent(0, 9)]));
    // Neither ends before the test says so: a real write may end before the first poll.
    let earlier = UnderWay::begin(&pages.0);
    let mut finishing = std::pin::pin!(pages.finish());
    assert!(futures::poll!(&mut finishing).is_pending());
    let later = UnderWay::begin(&pages.0);
    assert!(futures::poll!(&mut finishing).is_pending());
    drop(earlier);
    finishing.await.unwrap();
    assert!(futures::poll!(std::pin::pin!(pages.stand_still())).is_pending());
    let others: Vec<_> = (1..WRITES_MAX).map(|_| UnderWay::begin(&pages.0)).collect();
    let mut pushing = std::pin::pin!(pages.push(page(1, 1)));
    assert!(futures::poll!(&mut pushing).is_pending());
    drop(others);
    pushing.await.unwrap();
    drop(later);
    pages.stand_still().await;
}

#[tokio::test]
async fn partitions_and_operators_that_find_no_room_go_on_in_what_is_added() {
    let media = Arc::new(Memory::new());
    media.grow_to(100).unwrap();
    let (space, mut events) = space_of(&[extent(0, 2)], true);
    let pages = ReservedPages::new(media, Handle::current(), cpu(), Arc::clone(&space));
    pages.push(page(0, 1)).await.unwrap();
    let mut large = std::pin::pin!(pages.push(page(1, 4)));
    let mut spilling = pages.write(AlignedBuffer::zeroed(2 * cleave_media::BLOCK_SIZE));
    assert!(futures::poll!(&mut large).is_pending() && futures::poll!(&mut spilling).is_pending());
    assert_eq!(needs(&mut events), [(1, 4)]);
    // Waiting for space keeps no other page from being written, and nothing of it is under way.
    pages.finish().await.unwrap();
    pages.stand_still().await;
    // Too little for the page that needs most.
    space.extend(1, &[extent(10, 3)], &reservations()).unwrap();
    assert_eq!(spilling.await.unwrap(), extent(10, 2));
    assert!(futures::poll!(&mut large).is_pending());
    assert_eq!(needs(&mut events), [(2, 4)]);
    space.extend(2, &[extent(20, 2), extent(30, 6)], &reservations()).unwrap();
    assert_eq!(large.await.unwrap().extent, extent(30, 4));
    assert_eq!(pages.push(page(2, 2)).await.unwrap().extent, extent(34, 2));
    let mut last = std::pin::pin!(pages.push(page(3, 1)));
    assert!(futures::poll!(&mut last).is_pending());
    space.extend(3, &[], &reservations()).unwrap();
    let error = last.await.unwrap_err().to_string();
    assert!(error.contains("13 blocks"), "{error}");
    // What was too small for pages is left for rows that are put aside.
    let put = pages.write(AlignedBuffer::zeroed(2 * cleave_media::BLOCK_SIZE));
    assert_eq!(put.await.unwrap(), extent(20, 2));
}

#[tokio::test]
async fn a_write_that_fails_is_told() {
    // Media that has not grown.
    let media = Arc::new(Memory::new());
    let pages = ReservedPages::new(media, Handle::current(), cpu(), space(&[extent(0, 9)]));
    pages.push(page(0, 1)).await.unwrap();
    let error = pages.finish().await.unwrap_err();
    assert!(matches!(error.find_root(), DataFusionError::External(_)), "{error}");
}

#[tokio::test]
async fn blocks_that_were_put_aside_and_given_back_are_taken_again_with_their_neighbours() {
    let media = Arc::new(Memory::new());
    media.grow_to(100).unwrap();
    let reserved = [extent(10, 5), extent(50, 4)];
    let pages = ReservedPages::new(media, Handle::current(), cpu(), space(&reserved));
    let put = |blocks: usize, byte: u8| {
        let mut bytes = AlignedBuffer::zeroed(blocks * cleave_media::BLOCK_SIZE);
        bytes.fill(byte);
        pages.write(bytes)
    };
    assert_eq!(put(2, 1).await.unwrap(), extent(10, 2));
    assert_eq!(put(4, 2).await.unwrap(), extent(50, 4));
    // Space that was too small before is not lost.
    assert_eq!(put(3, 3).await.unwrap(), extent(12, 3));
    assert!(put(1, 4).await.unwrap_err().to_string().contains("9 blocks"));
    assert_eq!(pages.read(extent(12, 3)).await.unwrap().first(), Some(&3));
    assert_eq!(pages.spilled_bytes_read(), 3 * cleave_media::BLOCK_SIZE as u64);
    pages.give_back(extent(10, 2));
    assert!(put(3, 5).await.is_err());
    pages.give_back(extent(12, 3));
    assert_eq!(put(5, 6).await.unwrap(), extent(10, 5));
    // No page is placed where spilled rows may lie.
    assert!(pages.push(page(0, 1)).await.is_err());
    assert_eq!(pages.read(extent(50, 4)).await.unwrap().first(), Some(&2));
}
