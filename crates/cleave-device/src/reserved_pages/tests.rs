//! The places that reserved pages get.

use cleave_fragment::SpillSpace;
use cleave_media::Memory;
use cleave_store::PageKind;

use super::*;

fn extent(start: u64, block_count: u32) -> Extent {
    Extent { start: BlockAddress(start), block_count }
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
    let pages = ReservedPages::new(media, Handle::current(), cpu(), &reserved);
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
    let pages = ReservedPages::new(media, Handle::current(), cpu(), &[extent(0, 9)]);
    pages.push(page(0, 1)).await.unwrap();
    let mut finishing = std::pin::pin!(pages.finish());
    assert!(futures::poll!(&mut finishing).is_pending());
    // It does not end before the test does.
    let later = UnderWay::begin(&pages.0);
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
async fn a_write_that_fails_is_told() {
    // Media that has not grown.
    let media = Arc::new(Memory::new());
    let pages = ReservedPages::new(media, Handle::current(), cpu(), &[extent(0, 9)]);
    pages.push(page(0, 1)).await.unwrap();
    let error = pages.finish().await.unwrap_err();
    assert!(matches!(error.find_root(), DataFusionError::External(_)), "{error}");
}

#[tokio::test]
async fn blocks_that_were_put_aside_and_given_back_are_taken_again_with_their_neighbours() {
    let media = Arc::new(Memory::new());
    media.grow_to(100).unwrap();
    let reserved = [extent(10, 5), extent(50, 4)];
    let pages = ReservedPages::new(media, Handle::current(), cpu(), &reserved);
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
