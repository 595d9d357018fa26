//! Tests of which runs a compaction takes.

use super::{MERGE_RUNS_MIN, RUNS_MAX, tier};

#[test]
fn a_large_run_is_left_alone() {
    assert_eq!(tier(&[1_000_000, 10, 10, 10, 10, 10, 10, 10, 10]), (1..9).collect::<Vec<_>>());
}

#[test]
fn equal_runs_are_all_merged() {
    assert_eq!(tier(&[5; RUNS_MAX + 1]).len(), RUNS_MAX + 1);
}

#[test]
fn at_least_some_are_merged() {
    let sizes: Vec<u64> = (0..9).map(|place| 10_u64.pow(place)).collect();
    assert_eq!(tier(&sizes), (0..MERGE_RUNS_MIN).collect::<Vec<_>>());
}

#[test]
fn a_key_is_written_again_a_logarithmic_number_of_times() {
    // 10,000 flushes of 100 keys each.
    let (mut runs, mut written) = (Vec::new(), 0_u64);
    for _ in 0..10_000 {
        runs.push(100);
        if runs.len() > RUNS_MAX {
            let chosen = tier(&runs);
            let sum: u64 = chosen.iter().map(|place| runs[*place]).sum();
            written += sum;
            let mut place = 0..;
            runs.retain(|_| !chosen.contains(&place.next().unwrap()));
            runs.push(sum);
        }
        assert!(runs.len() <= RUNS_MAX, "{runs:?}");
    }
    assert!(written <= 14 * 10_000 * 100, "{written} keys written for 1,000,000");
}
