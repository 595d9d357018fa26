//! Scans under way at the same time emit the rows of each alone, in whatever order they go on; what one evaluates for
//! another is not read by that one; a scan that does not go on holds up no other.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use arrow::array::BooleanArray;
use bytes::Bytes;
use cleave_store::{DeadRows, PageColumns, PageRead, PageRef, StoreError};
use datafusion_execution::SendableRecordBatchStream;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tokio::runtime::{Builder, Runtime};

use super::history::{Counted, condition};
use super::*;
use crate::filter_history::{FilterHistory, HistoryMode};

/// Reads after a pause, so that a scan is in the middle of a page when another one goes on.
#[derive(Debug)]
struct Pausing(Counted);

impl PageSource for Pausing {
    fn read(&self, reads: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        async move {
            tokio::task::yield_now().await;
            self.0.read(reads).await
        }
        .boxed()
    }

    fn read_overflow(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>> {
        self.0.read_overflow(segment, pages)
    }
}

/// A scan under way.
struct Running {
    stream: SendableRecordBatchStream,
    batches: Vec<RecordBatch>,
    outcome: Option<Result<()>>,
    /// Chunks of `k` that it has read, and pages.
    read: Arc<(AtomicUsize, AtomicUsize)>,
}

impl Running {
    fn begin(
        table: &Stored,
        scan: TableScan,
        history: &Arc<FilterHistory>,
        (mode, read_ahead): (HistoryMode, usize),
    ) -> Self {
        let read = Arc::<(AtomicUsize, AtomicUsize)>::default();
        let pages = MediaPages::new(Arc::clone(&table.media) as Arc<dyn Media>);
        let pages = Arc::new(Pausing(Counted { pages, read: Arc::clone(&read) }));
        let used = Some(HistoryUse::new(history, mode));
        let context = context_over(pages, table, Snapshot::OF_STATE, used);
        let context = FragmentContext { read_ahead, ..context };
        let task = fragment_task_context(Arc::new(context), Arc::default(), &[]).unwrap();
        let stream = TableScanExec::new(scan, 1).execute(0, task).unwrap();
        Self { stream, batches: Vec::new(), outcome: None, read }
    }

    /// Goes on as far as it can without a wait.
    fn poll(&mut self) {
        let mut context = Context::from_waker(futures::task::noop_waker_ref());
        match self.stream.poll_next_unpin(&mut context) {
            Poll::Ready(Some(Ok(batch))) => self.batches.push(batch),
            Poll::Ready(Some(Err(error))) => self.outcome = Some(Err(error)),
            Poll::Ready(None) => self.outcome = Some(Ok(())),
            Poll::Pending => {}
        }
    }

    fn is_over(&self) -> bool {
        self.outcome.is_some()
    }

    fn rows(&self, table: &Stored) -> RecordBatch {
        assert!(matches!(self.outcome, Some(Ok(()))), "{:?}", self.outcome);
        concat_batches(&table.batch.schema(), &self.batches).unwrap()
    }

    fn reads_of_k(&self) -> usize {
        self.read.0.load(Relaxed)
    }
}

/// Waits need a clock, which stands still unless something blocks on it.
fn clock() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// Lets all of `scans` go on in turns. None is left out for ever: as the clock stands still, whoever waits for it would
/// do so too.
fn finish(scans: &mut [Running], turns: &[usize]) {
    for (poll, turn) in turns.iter().cycle().take(1_000_000).enumerate() {
        let open: Vec<usize> = (0..scans.len()).filter(|scan| !scans[*scan].is_over()).collect();
        if open.is_empty() {
            return;
        }
        scans[open[(turn + poll / 64) % open.len()]].poll();
    }
    panic!("scans wait for each other");
}

proptest! {
    #[test]
    fn rows_of_scans_beside_each_other_are_those_of_each_alone(
        type_index in 0..TYPES.len(),
        shape in 0..SHAPES.len(),
        random in prop::collection::vec(any::<i64>(), 1..2200),
        null_odds in prop::sample::select(vec![0_usize, 2, 40]),
        bulk in any::<bool>(),
        drawn in prop::collection::vec(
            (0..40_u64, prop::sample::select(vec![0_usize, 0, 2, 9]), any::<bool>()),
            2..6,
        ),
        turns in prop::collection::vec(0..64_usize, 1..60),
        first_turns in prop::collection::vec(0..2_usize, 0..9),
        read_ahead in 1..3_usize,
        bytes in prop::sample::select(vec![1_u64 << 20, 3000, 0]),
    ) {
        let wide = shaped(shape, &random, null_odds);
        let class =
            if bulk { PageClass::BULK } else { PageClass { chunk_alignment: 64, ..PageClass::BULK } };
        let mut table = stored(&TYPES[type_index], &wide, class);
        let history = Arc::new(FilterHistory::new(bytes));
        let clock = clock();
        let _within = clock.enter();
        let (mut scans, mut expected) = (Vec::new(), Vec::new());
        for (round, (seed, every, always)) in drawn.iter().enumerate() {
            // Each has a snapshot of its own, in which other rows are dead.
            let mut left = Vec::new();
            for page in table.morsels.iter_mut().flat_map(|morsel| &mut morsel.pages) {
                let row_count = page.page.row_count as usize;
                let is_dead = |slot: &usize| *every > 0 && (slot + round).is_multiple_of(*every);
                let slots: Vec<usize> = (0..row_count).filter(is_dead).collect();
                page.dead = DeadRows::of_slots(slots.iter().copied(), row_count);
                left.extend((0..row_count).map(|slot| slots.binary_search(&slot).is_err()));
            }
            let there = filter_record_batch(&table.batch, &BooleanArray::from(left)).unwrap();
            let predicate = condition(&table, seed.wrapping_mul(0x5851_f42d_4c95_7f2d), 3);
            expected.push(filtered(&there, &[Arc::clone(&predicate)]));
            let mode = if *always { HistoryMode::Always } else { HistoryMode::On };
            let scan = scan(&table, Some(predicate));
            scans.push(Running::begin(&table, scan, &history, (mode, read_ahead)));
            // Some are under way when the next one begins.
            for turn in &first_turns {
                if let Some(scan) = scans.get_mut(*turn).filter(|scan| !scan.is_over()) {
                    scan.poll();
                }
            }
        }
        finish(&mut scans, &turns);
        for (scan, expected) in scans.iter().zip(expected) {
            prop_assert_eq!(scan.rows(&table), expected);
        }
    }
}

/// Four pages of 700 rows, and a scan of `n` where `k` satisfies a condition.
fn four_pages() -> Stored {
    let wide: Vec<Option<i64>> = (0..2800).map(|row| Some(row % 90)).collect();
    stored(&ColumnType::Int, &wide, PageClass::BULK)
}

fn compared(table: &Stored, operator: Operator, bound: i32) -> (TableScan, RecordBatch) {
    let predicate = both(column("k", 0), operator, lit(bound));
    let found = filtered(&table.batch, &[Arc::clone(&predicate)]).project(&[1]).unwrap();
    let output = Projection::of_table(&table.schema, &[1]);
    (TableScan { output, ..scan(table, Some(predicate)) }, found)
}

fn emitted(scan: &Running, expected: &RecordBatch) {
    assert!(matches!(scan.outcome, Some(Ok(()))), "{:?}", scan.outcome);
    assert_eq!(&concat_batches(&expected.schema(), &scan.batches).unwrap(), expected);
}

#[test]
fn a_column_is_read_once_for_scans_beside_each_other() {
    let table = four_pages();
    let clock = clock();
    let _within = clock.enter();
    let conditions = [(Operator::Gt, 80), (Operator::Lt, 5), (Operator::Eq, 40)];
    for (read_ahead, turns) in [(1, vec![0, 1, 2]), (2, vec![0, 1, 2]), (1, vec![2, 0, 0, 1])] {
        let history = Arc::new(FilterHistory::new(1 << 20));
        let asked = conditions.map(|(operator, bound)| compared(&table, operator, bound));
        let begin = |(scan, _): &(TableScan, RecordBatch)| {
            Running::begin(&table, scan.clone(), &history, (HistoryMode::On, read_ahead))
        };
        let mut scans: Vec<Running> = asked.iter().map(begin).collect();
        finish(&mut scans, &turns);
        for (scan, (_, expected)) in scans.iter().zip(&asked) {
            emitted(scan, expected);
        }
        assert_eq!(scans.iter().map(Running::reads_of_k).sum::<usize>(), 4, "{turns:?}");
        drop(scans);
        // What nobody else asks any longer is noted from the second scan on, as ever.
        let (scan, _) = compared(&table, Operator::Gt, 41);
        let mut alone = [Running::begin(&table, scan, &history, (HistoryMode::On, read_ahead))];
        finish(&mut alone, &[0]);
        assert_eq!(alone[0].reads_of_k(), 4);
    }
    // Without a history, or beside a scan without one, each reads for itself.
    for (bytes, mode) in [(0, HistoryMode::On), (1 << 20, HistoryMode::Off)] {
        let history = Arc::new(FilterHistory::new(bytes));
        let (first, found) = compared(&table, Operator::Gt, 80);
        let (second, _) = compared(&table, Operator::Lt, 5);
        let mut scans = [
            Running::begin(&table, first, &history, (HistoryMode::On, 1)),
            Running::begin(&table, second, &history, (mode, 1)),
        ];
        finish(&mut scans, &[0, 1]);
        emitted(&scans[0], &found);
        assert_eq!(scans.iter().map(Running::reads_of_k).sum::<usize>(), 8, "{bytes}");
    }
}

#[test]
fn a_late_scan_is_answered_where_the_other_one_has_not_been() {
    let table = four_pages();
    let clock = clock();
    let _within = clock.enter();
    let history = Arc::new(FilterHistory::new(1 << 20));
    let (first, first_rows) = compared(&table, Operator::Gt, 80);
    let (second, second_rows) = compared(&table, Operator::Lt, 5);
    let mut scans = vec![Running::begin(&table, first, &history, (HistoryMode::On, 1))];
    while scans[0].reads_of_k() < 2 {
        scans[0].poll();
    }
    scans.push(Running::begin(&table, second, &history, (HistoryMode::On, 1)));
    while !scans[0].is_over() {
        scans[0].poll();
    }
    finish(&mut scans, &[0]);
    emitted(&scans[0], &first_rows);
    emitted(&scans[1], &second_rows);
    // The page that was under way, and those behind it, are answered.
    assert!((1..=2).contains(&scans[1].reads_of_k()), "{}", scans[1].reads_of_k());
    assert_eq!(scans[0].reads_of_k(), 4);
}

#[test]
fn a_scan_that_does_not_go_on_holds_up_no_other() {
    let table = four_pages();
    let clock = clock();
    let history = Arc::new(FilterHistory::new(1 << 20));
    let (first, first_rows) = compared(&table, Operator::Gt, 80);
    let (second, second_rows) = compared(&table, Operator::Lt, 5);
    let mut stalled = Running::begin(&table, first, &history, (HistoryMode::On, 1));
    let mut other = Running::begin(&table, second, &history, (HistoryMode::On, 1));
    {
        let _within = clock.enter();
        stalled.poll();
    }
    assert_eq!((stalled.reads_of_k(), stalled.is_over()), (0, false), "it is about to read");
    clock.block_on(async {
        while let Some(batch) = other.stream.next().await {
            other.batches.push(batch.unwrap());
        }
    });
    other.outcome = Some(Ok(()));
    emitted(&other, &second_rows);
    assert_eq!(other.reads_of_k(), 4);
    // What the other one has evaluated for it on the way is not read again.
    let _within = clock.enter();
    let mut rest = [stalled];
    finish(&mut rest, &[0]);
    emitted(&rest[0], &first_rows);
    assert_eq!(rest[0].reads_of_k(), 1);
}

#[test]
fn a_condition_that_fails_fails_the_scan_that_has_it_alone() {
    let table = four_pages();
    let clock = clock();
    let _within = clock.enter();
    let history = Arc::new(FilterHistory::new(1 << 20));
    let divided = both(lit(10), Operator::Divide, column("k", 0));
    let failing = both(divided, Operator::Gt, lit(1));
    let failing = both(failing, Operator::And, both(column("k", 0), Operator::Lt, lit(50)));
    let (other, found) = compared(&table, Operator::Lt, 5);
    let begin = |scan| Running::begin(&table, scan, &history, (HistoryMode::Always, 1));
    let mut scans = [begin(scan(&table, Some(failing))), begin(other)];
    finish(&mut scans, &[0, 1]);
    assert!(matches!(scans[0].outcome, Some(Err(_))));
    emitted(&scans[1], &found);
}
