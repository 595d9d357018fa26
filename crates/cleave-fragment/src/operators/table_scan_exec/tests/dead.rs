//! A scan over pages with dead rows emits the rows of a scan over pages without them.

use arrow::array::BooleanArray;
use cleave_store::DeadRows;

use super::*;

/// How many rows are dead: none, one in so many, all but one in so many, all.
#[derive(Debug, Clone, Copy)]
enum Dead {
    One(usize),
    AllBut(usize),
    All,
}

proptest! {
    #[test]
    fn dead_rows_are_left_out_and_no_others(
        type_index in 0..TYPES.len(),
        shape in 0..SHAPES.len(),
        random in prop::collection::vec(any::<i64>(), 1..2200),
        null_odds in prop::sample::select(vec![0_usize, 2, 40]),
        class in prop::sample::select(vec![
            PageClass::BULK,
            PageClass { chunk_alignment: 64, ..PageClass::BULK },
            PageClass::HOT,
        ]),
        dead in prop::collection::vec(
            prop::sample::select(vec![
                Dead::One(1 << 20),
                Dead::One(10),
                Dead::One(3),
                Dead::AllBut(20),
                Dead::All,
            ]),
            1..6,
        ),
        predicate in prop::sample::select(vec![None, Some(3), Some(7), Some(9)]),
        of_state in any::<bool>(),
    ) {
        let wide = shaped(shape, &random, null_odds);
        let mut table = stored(&TYPES[type_index], &wide, class);
        let mut left = Vec::new();
        for (page, dead) in table.morsels.iter_mut().flat_map(|morsel| &mut morsel.pages).zip(dead.iter().cycle()) {
            let row_count = usize::try_from(page.page.row_count).unwrap();
            // Here and there, and no two pages alike.
            let is_dead = |slot: &usize| {
                let at = (left.len() + slot).wrapping_mul(0x9e37_79b9) >> 7;
                match *dead {
                    Dead::One(of) => at % of == 1,
                    Dead::AllBut(of) => at % of != 1,
                    Dead::All => true,
                }
            };
            let slots: Vec<usize> = (0..row_count).filter(is_dead).collect();
            page.dead = DeadRows::of_slots(slots.iter().copied(), row_count);
            left.extend((0..row_count).map(|slot| slots.binary_search(&slot).is_err()));
        }
        prop_assert_eq!(left.len(), wide.len());
        let there = filter_record_batch(&table.batch, &BooleanArray::from(left)).unwrap();
        let predicate = predicate.map(|below| both(column("n", 1), Operator::Lt, lit(below)));
        let expected = filtered(&there, &predicate.iter().cloned().collect::<Vec<_>>());
        let scan = TableScanExec::new(scan(&table, predicate), 1);
        let snapshot = if of_state { Snapshot::OF_STATE } else { Snapshot { commit: 1 } };
        prop_assert_eq!(rows_of(&table, &scan, snapshot).unwrap(), expected);
    }
}
