//! Pages of a shipped delta, over every link: scanned with those of media, kept for the run, and refused if malformed.

use bytes::Bytes;
use cleave_fragment::Morsel;
use cleave_fragment::command::{DeviceErrorCause, Execute, Payload, ShippedPage};
use cleave_media::{BLOCK_SIZE, BlockAddress};
use cleave_store::ids::SHIPPED_SEGMENT_FIRST;
use cleave_store::{SHIPPED_START, SegmentId};

use crate::bench::{Bench, ROW_COUNT, benches, device_error, scan, segment, table_pages_of};

/// The table as shipped pages, and their morsels.
fn shipped() -> (Vec<ShippedPage>, Vec<Morsel>) {
    let own = cleave_store::SegmentRef { segment: SegmentId(SHIPPED_SEGMENT_FIRST), ..segment() };
    let (bytes, mut morsels) = table_pages_of(own);
    let bytes = Bytes::from(bytes);
    let pages = morsels.iter_mut().flat_map(|morsel| &mut morsel.pages).map(|page| {
        let from = usize::try_from(page.page.extent.start.0).unwrap() * BLOCK_SIZE;
        let blocks = bytes.slice(from..from + page.page.extent.bytes());
        let start = BlockAddress(SHIPPED_START.0 + page.page.extent.start.0);
        page.page.extent.start = start;
        ShippedPage { start, payload: Payload::new(blocks) }
    });
    (pages.collect(), morsels)
}

async fn rows(bench: &Bench, request: Execute) -> Result<usize, String> {
    let mut stream = bench.execute(request).await;
    let mut found = 0;
    loop {
        match stream.next().await {
            Ok(Some(batch)) => found += batch.num_rows(),
            Ok(None) => return Ok(found),
            Err(error) => return Err(error.to_string()),
        }
    }
}

#[tokio::test]
async fn pages_that_come_along_are_scanned_beside_those_of_media() {
    let table = usize::try_from(ROW_COUNT).unwrap();
    for bench in benches().await {
        let stored = bench.load().await;
        let (pages, morsels) = shipped();
        let both: Vec<Morsel> = stored.iter().chain(&morsels).cloned().collect();
        let request = Execute { shipped: pages.clone(), ..bench.request(1, &scan(None), &both) };
        assert_eq!(rows(&bench, request).await, Ok(2 * table));
        // Only for that run.
        let without = bench.request(2, &scan(None), &morsels);
        let error = rows(&bench, without).await.unwrap_err();
        assert!(error.contains("behind the end of the media"), "{error}");
        let few = Execute {
            shipped: pages.into_iter().skip(1).collect(),
            ..bench.request(3, &scan(None), &morsels)
        };
        let error = rows(&bench, few).await.unwrap_err();
        assert!(error.contains("behind the end of the media"), "{error}");
        bench.reach_idle().await;
    }
}

#[tokio::test]
async fn what_is_no_page_is_refused_or_found_when_it_is_read() {
    for bench in benches().await {
        let (pages, morsels) = shipped();
        let good = bench.request(1, &scan(None), &morsels);
        let refusal = async |shipped: Vec<ShippedPage>, memory_bytes: u64| {
            let request = Execute { shipped, memory_bytes, ..good.clone() };
            device_error(bench.link.execute(request).await)
        };
        let mut at_media = pages.clone();
        at_media[0].start = BlockAddress(7);
        let mut torn = pages.clone();
        torn[0].payload = Payload::new(torn[0].payload.bytes.slice(..100));
        let twice: Vec<ShippedPage> = pages.iter().chain(&pages[..1]).cloned().collect();
        for shipped in [at_media, torn, twice] {
            let (cause, message) = refusal(shipped, good.memory_bytes).await;
            assert_eq!(cause, DeviceErrorCause::Refused, "{message}");
            assert!(message.contains("shipped delta"), "{message}");
        }
        let large = ShippedPage {
            start: SHIPPED_START,
            payload: Payload::new(vec![0; (16 << 20) + BLOCK_SIZE].into()),
        };
        let (cause, message) = refusal(vec![large], good.memory_bytes).await;
        assert_eq!(cause, DeviceErrorCause::Refused, "{message}");
        assert!(message.contains("bytes of the shipped delta"), "{message}");
        let (cause, message) = refusal(pages.clone(), 3000).await;
        assert_eq!(cause, DeviceErrorCause::OutOfMemory, "{message}");
        // Malformed pages with a correct checksum.
        let mut spoilt = pages.clone();
        let mut bytes = spoilt[0].payload.bytes.to_vec();
        bytes[60] ^= 1;
        spoilt[0].payload = Payload::new(bytes.into());
        let error = rows(&bench, Execute { shipped: spoilt, ..good.clone() }).await.unwrap_err();
        assert!(error.contains("segment"), "{error}");
        bench.reach_idle().await;
    }
}
