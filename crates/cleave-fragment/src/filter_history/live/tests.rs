//! What a scan still wants of others; that waits end with the claim, or make it void; how long a scan waits.

use arrow::datatypes::{DataType, Field, Schema};
use cleave_media::{BlockAddress, Extent};
use cleave_store::{PageRef, SegmentId, SegmentRef};
use datafusion_expr::Operator;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{BinaryExpr, Column, lit};
use futures::executor::block_on;

use super::*;
use crate::filter_history::{Formula, HistoryMode};
use crate::morsel::{Morsel, MorselList, MorselPage};

const SEGMENT: SegmentRef =
    SegmentRef { table_id: 1, segment: SegmentId(5), schema_version: 1, commit: 1 };

fn page(number: u32) -> PageRef {
    let extent = Extent { start: BlockAddress(u64::from(number) * 8), block_count: 8 };
    PageRef { page: number, extent, row_count: 10, checksum: number }
}

fn key(number: u32) -> PageKey {
    PageKey::of(&SEGMENT, &page(number)).unwrap()
}

/// Morsels of two pages, from page 0.
fn morsels(count: u32) -> Arc<dyn MorselSource> {
    let morsel_page = |number| MorselPage {
        page: page(number),
        vid_first: u64::from(number) * 10,
        gaps: Default::default(),
        overflow: Vec::new(),
        dead: Default::default(),
    };
    MorselList::new((0..count).map(|number| Morsel {
        number,
        segment: SEGMENT,
        pages: vec![morsel_page(number * 2), morsel_page(number * 2 + 1)],
    }))
}

/// The columns `columns` of the table, each an integer.
fn projection(columns: &[u32]) -> Projection {
    let fields: Vec<Field> = columns
        .iter()
        .map(|column| Field::new(format!("c{column}"), DataType::Int32, true))
        .collect();
    let columns = columns.iter().map(|column| ColumnRef::User(*column)).collect();
    Projection::new(Arc::new(Schema::new(fields)), columns)
}

/// A scan under way of a run of its own, which compares the first of `columns` with `constant`.
fn begin(
    history: &Arc<FilterHistory>,
    columns: &[u32],
    constant: i32,
    morsels: &Arc<dyn MorselSource>,
) -> (HistoryUse, Arc<LiveScan>) {
    let used = HistoryUse::new(history, HistoryMode::On);
    let of = projection(columns);
    let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("c", 0));
    let expr: Arc<dyn PhysicalExpr> =
        Arc::new(BinaryExpr::new(column, Operator::Lt, lit(constant)));
    let mut formula = Formula::of(&expr, 1, &of).unwrap();
    used.sighted(&mut formula);
    let leaves = formula.leaves().into_iter().cloned().collect();
    let scan = used.asks((1, 3), leaves, &of, morsels);
    (used, scan)
}

#[test]
fn a_scan_wants_the_pages_of_its_list_that_it_has_not_begun() {
    let history = Arc::new(FilterHistory::new(1 << 20));
    let listed = morsels(3);
    let (used, scan) = begin(&history, &[1], 5, &listed);
    let wanted = || (0..8).filter(|number| scan.wants(&key(*number))).collect::<Vec<_>>();
    assert_eq!(wanted(), [0, 1, 2, 3, 4, 5]);
    scan.begins(1);
    assert_eq!(wanted(), [0, 1, 4, 5]);
    // Another partition is the same scan.
    let other = used.asks((1, 3), Vec::new(), &projection(&[1]), &listed);
    assert!(Arc::ptr_eq(&scan, &other));
    let (beside, second) = begin(&history, &[1], 6, &morsels(1));
    let live = history.live();
    assert!(live.beside(&second).iter().all(|found| Arc::ptr_eq(found, &scan)));
    assert_eq!((live.beside(&second).len(), live.beside(&scan).len()), (1, 1));
    // Its list is gone, and it wants nothing.
    assert!(!second.wants(&key(0)));
    drop(used);
    assert!(live.beside(&second).is_empty());
    drop(beside);
    let (_used, third) = begin(&history, &[1], 5, &listed);
    let (_other, fourth) = begin(&history, &[1], 5, &listed);
    assert_eq!(live.beside(&fourth).len(), 1);
    history.clear();
    assert!(live.beside(&third).is_empty());
}

#[test]
fn others_work_for_a_scan_that_stands_still_on_so_many_pages() {
    let history = Arc::new(FilterHistory::new(1 << 20));
    let listed = morsels(3);
    let (_one, still) = begin(&history, &[1], 5, &listed);
    let (_two, other) = begin(&history, &[1], 6, &listed);
    let is_seen = || !history.live().beside(&other).is_empty();
    for _ in 0..AHEAD_MAX {
        assert!(is_seen());
        still.is_served();
    }
    assert!(!is_seen());
    still.begins(0);
    assert!(is_seen());
}

fn held(turn: Turn) -> Held {
    match turn {
        Turn::Wait(held) => held,
        other => panic!("{other:?}"),
    }
}

#[test]
fn those_that_wait_go_on_when_the_claim_ends() {
    let history = Arc::new(FilterHistory::new(1 << 20));
    let listed = morsels(3);
    let (_one, first) = begin(&history, &[1, 2], 5, &listed);
    let (_two, second) = begin(&history, &[2], 6, &listed);
    let (_three, third) = begin(&history, &[9], 7, &listed);
    let turn = |scan| LiveScans::turn(&history, key(0), scan);
    let own = turn(&first);
    assert!(matches!(own, Turn::Own(_)));
    // Its column is evaluated by the first, and that of the third is not; nor does a run wait for itself.
    let (mut waits, again) = (held(turn(&second)), held(turn(&second)));
    assert!(matches!(turn(&third), Turn::Beside));
    assert!(matches!(turn(&first), Turn::Beside));
    assert!(waits.ended.try_recv().is_err());
    drop(own);
    assert!(block_on(waits.ended).is_err() && block_on(again.ended).is_err());

    // One that nobody waits for any longer holds up no other, and ends no other's.
    let lost = turn(&first);
    let waits = held(turn(&second));
    history.live().end_claim(&key(0), waits.number);
    let own = turn(&second);
    assert!(matches!(own, Turn::Own(_)));
    drop(lost);
    assert!(matches!(turn(&second), Turn::Beside), "it has its claim yet");
    drop(own);
    assert!(matches!(turn(&second), Turn::Own(_)));
}

#[test]
fn a_scan_waits_as_long_as_it_takes_itself_and_not_often_in_vain() {
    let millis = Duration::from_millis;
    let mut patience = Patience::default();
    assert_eq!(patience.limit(), Some(WAIT_UNMEASURED));
    patience.has_read(millis(40));
    assert_eq!(patience.limit(), Some(millis(40)));
    patience.has_read(millis(80));
    assert_eq!(patience.limit(), Some(millis(50)));
    (0..40).for_each(|_| patience.has_read(millis(900)));
    assert_eq!(patience.limit(), Some(WAIT_MAX));
    (0..40).for_each(|_| patience.has_read(Duration::ZERO));
    assert_eq!(patience.limit(), Some(WAIT_MIN));
    for is_answered in [false, false, true, false] {
        patience.has_waited(is_answered);
        assert!(patience.limit().is_some());
    }
    patience.has_waited(false);
    assert_eq!(patience.limit(), None);
}
