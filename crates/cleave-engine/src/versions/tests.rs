//! Of many catalog versions one is kept for each tick.

use cleave_catalog::catalog::upkeep::Upkeep;

use super::*;
use crate::device::testing::fresh;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_state_of_each_tick_is_kept_and_few_others() {
    let (_directory, database) = fresh().await;
    let base = database.catalog();
    let state = |number: u64| {
        let upkeep = Upkeep { version_retention_s: 10, ..Upkeep::default() };
        Arc::new(CatalogState { commit: number, upkeep, ..CatalogState::clone(&base) })
    };
    let tick = tick_us(10_000_000);
    assert_eq!(tick, 10_000);
    let versions = Versions::default();
    // A commit each millisecond and a bit, over half a minute.
    let times: Vec<i64> = (0..30_000).map(|number| 5_000_003 + number * 1003).collect();
    for (time, number) in times.iter().zip(0..) {
        versions.note(&state(number), *time);
    }
    assert!(versions.kept().len() <= 1002, "{}", versions.kept().len());
    let last = times.last().unwrap();
    for back in [0, 1, 999, 10_000, 123_456, 5_000_000, 9_900_000] {
        let time = last - back;
        let at_tick = time / tick * tick;
        let expected = times.iter().rposition(|since| *since <= at_tick).unwrap() as u64;
        assert_eq!(versions.at(time, tick).unwrap().commit, expected, "{back}");
    }
    let oldest = versions.at(last - 11_000_000, tick).unwrap_err().unwrap();
    versions.at(oldest, tick).unwrap();
    assert!(versions.give_up_oldest_kept());
    assert!(versions.at(oldest, tick).is_err());
    while versions.give_up_oldest_kept() {}
    assert_eq!(versions.kept().len(), 1);
    // A clock that jumps back.
    versions.note(&state(77), 1000);
    assert_eq!(versions.kept().back().unwrap().state.commit, 77);
    versions.note(&base, last + 1);
    assert!(versions.kept().is_empty(), "retention is off");
}
