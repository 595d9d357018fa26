//! Snapshots and commit numbers.

use super::Snapshot;

#[test]
fn commits_up_to_the_snapshot_are_seen_and_an_open_run_never() {
    let seen = |snapshot, commit| Snapshot { commit: snapshot }.sees(commit);
    assert!(seen(5, 1) && seen(5, 5) && !seen(5, 6));
    assert!(!seen(5, 0) && !Snapshot::OF_STATE.sees(0));
}
