//! What is requested ahead of its use, what becomes of it, and the memory charged for it.

use cleave_media::{BlockAddress, Extent};
use cleave_store::PageHeader;
use cleave_store::page::header::PageKind;
use datafusion_execution::memory_pool::{GreedyMemoryPool, UnboundedMemoryPool};

use super::*;
use crate::morsel::MorselPage;

const SEGMENT: SegmentRef =
    SegmentRef { table_id: 1, segment: SegmentId(1), schema_version: 1, commit: 1 };
const CHUNK_BYTES: usize = 1000;
const A: ColumnRef = ColumnRef::User(1);
const B: ColumnRef = ColumnRef::User(2);

fn page(number: u32) -> PageRef {
    let extent = Extent { start: BlockAddress(u64::from(number)), block_count: 1 };
    PageRef { page: number, extent, row_count: 1, checksum: number }
}

fn morsels(count: u32) -> Vec<Morsel> {
    let place = |number| MorselPage {
        page: page(number),
        vid_first: 0,
        gaps: Default::default(),
        overflow: Vec::new(),
        dead: Default::default(),
    };
    (0..count)
        .map(|number| Morsel { number, segment: SEGMENT, pages: vec![place(number)] })
        .collect()
}

fn read(number: u32, columns: &[ColumnRef]) -> Vec<PageRead> {
    vec![PageRead { segment: SEGMENT, page: page(number), columns: columns.to_vec() }]
}

/// Answers each column with bytes that name it and its page.
#[derive(Debug)]
struct Source {
    /// Like media: the answer is not ready at once.
    waits: bool,
    asked: Mutex<Vec<(u32, Vec<ColumnRef>)>>,
}

impl Source {
    fn new(waits: bool) -> Arc<Self> {
        Arc::new(Self { waits, asked: Mutex::default() })
    }

    fn asked(&self) -> Vec<u32> {
        self.asked.lock().unwrap().iter().map(|(page, _)| *page).collect()
    }

    fn ahead(self: &Arc<Self>, count: u32, memory_bytes: usize) -> ReadAheadPages {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(memory_bytes));
        let source = Arc::clone(self) as Arc<dyn PageSource>;
        ReadAheadPages::new(source, [(morsels(count).as_slice(), None, None)], &pool)
    }
}

fn chunk(number: u32, column: ColumnRef) -> Bytes {
    let ColumnRef::User(id) = column else { panic!("{column}") };
    Bytes::from(vec![u8::try_from((number * 10 + id) % 251).unwrap(); CHUNK_BYTES])
}

impl PageSource for Source {
    fn read(&self, reads: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        async move {
            let mut pages = Vec::new();
            for read in reads {
                self.asked.lock().unwrap().push((read.page.page, read.columns.clone()));
                if self.waits {
                    tokio::task::yield_now().await;
                }
                let chunks = read.columns.iter().map(|column| Some(chunk(read.page.page, *column)));
                // The header is not examined.
                let header = PageHeader {
                    format_version: 0,
                    kind: PageKind::Heap,
                    table_id: 1,
                    segment: SEGMENT.segment,
                    page: read.page.page,
                    schema_version: 1,
                    row_count: 1,
                    header_length: 0,
                    block_count: 1,
                    chunks: Vec::new(),
                };
                pages.push(PageColumns { chunks: chunks.collect(), header: Arc::new(header) });
            }
            Ok(pages)
        }
        .boxed()
    }

    fn read_overflow(
        &self,
        _: SegmentRef,
        _: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>> {
        panic!("no test has long values")
    }
}

/// Reads a morsel and checks its pages; then requests made ahead can run.
async fn check(pages: &ReadAheadPages, number: u32, columns: &[ColumnRef]) {
    let came = pages.read(read(number, columns)).await.unwrap();
    let expected: Vec<_> = columns.iter().map(|column| Some(chunk(number, *column))).collect();
    assert_eq!((came.len(), &came[0].chunks), (1, &expected), "morsel {number}");
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn each_morsel_is_asked_for_once_and_before_it_is_wanted() {
    let source = Source::new(true);
    let pages = source.ahead(20, 1 << 20);
    check(&pages, 0, &[A]).await;
    assert_eq!(source.asked(), [0], "one read says nothing of the next");
    check(&pages, 1, &[A]).await;
    assert!(source.asked().len() > 3, "{:?}", source.asked());
    for number in 2..20 {
        check(&pages, number, &[A]).await;
    }
    let mut asked = source.asked();
    asked.sort_unstable();
    assert_eq!(asked, (0..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn pages_that_are_there_at_once_are_not_read_ahead() {
    let source = Source::new(false);
    let pages = source.ahead(20, 1 << 20);
    for number in 0..10 {
        check(&pages, number, &[A]).await;
    }
    assert_eq!(source.asked(), (0..10).collect::<Vec<_>>());
}

#[tokio::test]
async fn other_columns_than_were_expected_are_fetched_besides() {
    let source = Source::new(true);
    let pages = source.ahead(30, 1 << 20);
    check(&pages, 0, &[A]).await;
    check(&pages, 1, &[A]).await;
    // A scan that begins to find matches wants more columns; one that ceases wants fewer.
    for number in 2..8 {
        check(&pages, number, &[A, B]).await;
    }
    for number in 8..20 {
        check(&pages, number, &[B]).await;
    }
    for number in 20..30 {
        check(&pages, number, &[B, A]).await;
    }
}

#[tokio::test]
async fn no_more_is_ahead_than_its_share_of_the_memory() {
    let source = Source::new(true);
    // Room for three morsels of 1000 bytes.
    let pages = source.ahead(40, 8 * 3 * CHUNK_BYTES);
    for number in 0..5 {
        check(&pages, number, &[A]).await;
        assert!(source.asked().iter().all(|asked| *asked <= number + 3), "{:?}", source.asked());
    }
    assert!(source.asked().contains(&7));
    let none = Source::new(true);
    let pages = none.ahead(40, 8);
    for number in 0..5 {
        check(&pages, number, &[A]).await;
    }
    assert_eq!(none.asked(), (0..5).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_input_that_is_read_again_is_read_ahead_again() {
    let source = Source::new(true);
    let pages = source.ahead(200, 1 << 20);
    for _ in 0..2 {
        for number in 0..200 {
            check(&pages, number, &[A]).await;
        }
    }
    assert_eq!(source.asked().len(), 400);
}

#[tokio::test]
async fn partitions_take_morsels_out_of_order_and_miss_none() {
    let source = Source::new(true);
    let pages = source.ahead(60, 1 << 20);
    for pair in 0..30 {
        check(&pages, 2 * pair + 1, &[A]).await;
        check(&pages, 2 * pair, &[A]).await;
    }
    let asked: std::collections::BTreeSet<u32> = source.asked().into_iter().collect();
    assert_eq!(asked.len(), 60);
    assert!(source.asked().len() <= 62, "{:?}", source.asked());
}

#[tokio::test]
async fn a_failure_ahead_is_the_failure_of_the_read_that_wanted_it() {
    /// Fails from its third page on.
    #[derive(Debug)]
    struct Failing(Arc<Source>);
    impl PageSource for Failing {
        fn read(
            &self,
            reads: Vec<PageRead>,
        ) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
            if reads.iter().any(|read| read.page.page > 2) {
                let error = StoreError::Source(Arc::new(std::io::Error::other("gone")));
                return futures::future::ready(Err(error)).boxed();
            }
            self.0.read(reads)
        }
        fn read_overflow(
            &self,
            segment: SegmentRef,
            pages: Vec<PageRef>,
        ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>> {
            self.0.read_overflow(segment, pages)
        }
    }
    let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
    let source: Arc<dyn PageSource> = Arc::new(Failing(Source::new(true)));
    let pages = ReadAheadPages::new(source, [(morsels(9).as_slice(), None, None)], &pool);
    for number in 0..3 {
        check(&pages, number, &[A]).await;
    }
    let error = pages.read(read(3, &[A])).await.unwrap_err();
    assert!(error.to_string().contains("gone"), "{error}");
    drop(pages);
    assert_eq!(pool.reserved(), 0);
}
