//! A scan with a filter history emits the rows of one without, whatever scans came before it and whichever rows are
//! dead by now; and does not read what it need not.

use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::BooleanArray;
use bytes::Bytes;
use cleave_store::{DeadRows, PageColumns, PageRead, PageRef, PageSource, StoreError};
use datafusion_physical_expr::expressions::{IsNotNullExpr, IsNullExpr, NotExpr};
use futures::future::BoxFuture;

use super::*;
use crate::filter_history::{FilterHistory, HistoryMode};

/// A condition over `k`, whose type is `k`, and `n`; `seed` chooses it.
pub(super) fn condition(table: &Stored, seed: u64, depth: u32) -> Arc<dyn PhysicalExpr> {
    let part = |shift: u32, of: u64| (seed >> shift) % of;
    let next =
        |salt: u64| seed.wrapping_add(salt).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    if depth > 0 && part(60, 3) > 0 {
        let left = condition(table, next(1), depth - 1);
        return match part(50, 4) {
            0 => Arc::new(NotExpr::new(left)),
            1 => both(left, Operator::Or, condition(table, next(2), depth - 1)),
            _ => both(left, Operator::And, condition(table, next(2), depth - 1)),
        };
    }
    let (name, index) = if part(40, 4) == 0 { ("n", 1) } else { ("k", 0) };
    let operand = column(name, index);
    // Few constants, so that conditions imply one another.
    let constant = |salt: u64| {
        let row = (next(salt) % 9) as usize * 37 % table.batch.num_rows();
        ScalarValue::try_from_array(table.batch.column(index), row).unwrap()
    };
    match part(30, 9) {
        0 => Arc::new(IsNullExpr::new(operand)),
        1 => Arc::new(IsNotNullExpr::new(operand)),
        2 => {
            let list = (0..3).map(|salt| lit(constant(salt))).collect();
            let schema = table.batch.schema();
            Arc::new(InListExpr::try_new(operand, list, part(20, 2) == 0, &schema).unwrap())
        }
        which => {
            use Operator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
            let operators = [Lt, LtEq, Gt, GtEq, Eq, NotEq];
            let operator = operators[usize::try_from(which).unwrap() - 3];
            match part(10, 2) {
                0 => both(operand, operator, lit(constant(7))),
                _ => both(lit(constant(7)), operator, operand),
            }
        }
    }
}

proptest! {
    #[test]
    fn rows_are_those_of_a_scan_without_a_history(
        type_index in 0..TYPES.len(),
        shape in 0..SHAPES.len(),
        random in prop::collection::vec(any::<i64>(), 1..2200),
        null_odds in prop::sample::select(vec![0_usize, 2, 40]),
        bulk in any::<bool>(),
        seeds in prop::collection::vec(0..40_u64, 1..12),
        dead in prop::collection::vec(prop::sample::select(vec![0_usize, 0, 2, 9]), 1..5),
        mode in prop::sample::select(vec![HistoryMode::On, HistoryMode::Always]),
        bytes in prop::sample::select(vec![1_u64 << 20, 3000]),
        own_first in any::<bool>(),
    ) {
        let wide = shaped(shape, &random, null_odds);
        let class =
            if bulk { PageClass::BULK } else { PageClass { chunk_alignment: 64, ..PageClass::BULK } };
        let mut table = stored(&TYPES[type_index], &wide, class);
        let history = Arc::new(FilterHistory::new(bytes));
        for (round, seed) in seeds.iter().enumerate() {
            // Other rows are dead in each round.
            let every = dead[round % dead.len()];
            let mut left = Vec::new();
            for page in table.morsels.iter_mut().flat_map(|morsel| &mut morsel.pages) {
                let row_count = page.page.row_count as usize;
                let is_dead = |slot: &usize| every > 0 && (slot + round).is_multiple_of(every);
                let slots: Vec<usize> = (0..row_count).filter(is_dead).collect();
                page.dead = DeadRows::of_slots(slots.iter().copied(), row_count);
                left.extend((0..row_count).map(|slot| slots.binary_search(&slot).is_err()));
            }
            let there = filter_record_batch(&table.batch, &BooleanArray::from(left)).unwrap();
            let seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d);
            let predicate = condition(&table, seed, 3);
            let expected = filtered(&there, &[Arc::clone(&predicate)]);
            let predicate = Some(predicate);
            let used = HistoryUse::new(&history, mode);
            let (scan, expected) = match own_first {
                true => {
                    let bound = both(column("n", 1), Operator::Lt, lit(5));
                    (scan_below(&table, predicate, &[Arc::clone(&bound)]), filtered(&expected, &[bound]))
                }
                false => (TableScanExec::new(scan(&table, predicate), 1), expected),
            };
            let pages = Arc::new(MediaPages::new(Arc::clone(&table.media) as Arc<dyn Media>));
            let snapshot = if round % 2 == 0 { Snapshot::OF_STATE } else { Snapshot { commit: 1 } };
            let found = rows_with_history(pages, &table, &scan, snapshot, Some(used)).unwrap();
            prop_assert_eq!(found, expected);
        }
        proptest::prop_assert!(history.figures().bytes <= bytes);
    }
}

/// Counts the chunks that are read of `k`, and the pages.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) pages: MediaPages,
    pub(super) read: Arc<(AtomicUsize, AtomicUsize)>,
}

impl PageSource for Counted {
    fn read(&self, reads: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        let of_k = reads.iter().filter(|read| read.columns.contains(&ColumnRef::User(1)));
        self.read.0.fetch_add(of_k.count(), Ordering::Relaxed);
        self.read.1.fetch_add(reads.len(), Ordering::Relaxed);
        self.pages.read(reads)
    }

    fn read_overflow(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>> {
        self.pages.read_overflow(segment, pages)
    }
}

#[test]
fn pages_and_columns_that_are_known_are_not_read() {
    // Pages of 700 rows: only the second one has values of 900.
    let wide: Vec<Option<i64>> =
        (0..2800).map(|row| Some(row % 90 + i64::from(row == 900) * 900)).collect();
    let table = stored(&ColumnType::Int, &wide, PageClass::BULK);
    let history = Arc::new(FilterHistory::new(1 << 20));
    let count = |predicate: Arc<dyn PhysicalExpr>, mode| {
        let mut scan = scan(&table, Some(predicate));
        scan.output = Projection::of_table(&table.schema, &[1]);
        scan.filter = Projection::of_table(&table.schema, &[0, 1]);
        let read = Arc::<(AtomicUsize, AtomicUsize)>::default();
        let pages = MediaPages::new(Arc::clone(&table.media) as Arc<dyn Media>);
        let pages = Arc::new(Counted { pages, read: Arc::clone(&read) });
        let used = HistoryUse::new(&history, mode);
        let context = context_over(pages, &table, Snapshot::OF_STATE, Some(used));
        let task = fragment_task_context(Arc::new(context), Arc::default(), &[]).unwrap();
        let stream = TableScanExec::new(scan, 1).execute(0, task).unwrap();
        let rows: usize =
            block_on(common::collect(stream)).unwrap().iter().map(RecordBatch::num_rows).sum();
        (rows, read.0.load(Ordering::Relaxed), read.1.load(Ordering::Relaxed))
    };
    let k = || column("k", 0);
    let above = |bound: i32| both(k(), Operator::Gt, lit(bound));
    let on = HistoryMode::On;
    assert_eq!(count(above(100), on), (1, 4, 4), "the first scan, which notes nothing");
    assert_eq!(count(above(100), on), (1, 4, 4), "the second");
    assert_eq!(count(above(100), on), (1, 0, 1));
    assert_eq!(count(both(lit(100), Operator::Lt, k()), on), (1, 0, 1), "the same");
    // What is implied looks at one page only.
    assert_eq!(count(above(500), on), (1, 1, 1));
    let all = count(Arc::new(NotExpr::new(above(100))), on);
    assert_eq!(all, (2799, 0, 4), "its complement");
    let beside = both(column("n", 1), Operator::Eq, lit(4));
    let joint = both(above(100), Operator::And, Arc::clone(&beside));
    assert_eq!(count(joint, on), (1, 1, 1), "a page alone, of which n is asked");
    let either = both(above(100), Operator::Or, beside);
    assert_eq!(count(either, on).0, 400);
    assert_eq!(count(above(100), HistoryMode::Off), (1, 4, 4));
    let figures = history.figures();
    assert!(figures.hits > 0 && figures.entries > 0, "{figures:?}");
    history.clear();
    assert_eq!(count(above(100), on), (1, 4, 4));
    assert_eq!(history.figures().entries, 0);
}
