//! Walks along chains, sound and damaged.

use super::{ChainStep, ChainWalk, VersionHeader};
use crate::error::StoreError;
use crate::ids::{RecId, SegmentId};
use crate::version::Snapshot;

fn at(slot: u16) -> RecId {
    RecId::new(SegmentId(1), 0, slot).unwrap()
}

fn header(commit: u64, predecessor: Option<u16>, tombstone: bool) -> VersionHeader {
    VersionHeader { commit, predecessor: predecessor.map(at), tombstone }
}

/// Walks `chain` (newest first; slot = position) to its end for a snapshot.
fn walk(chain: &[VersionHeader], commit: u64) -> Result<ChainStep, StoreError> {
    let mut walk = ChainWalk::new(Snapshot { commit }, at(0));
    loop {
        let step = walk.step(chain[usize::from(walk.at().slot())])?;
        if !matches!(step, ChainStep::Older(_)) {
            return Ok(step);
        }
    }
}

#[test]
fn each_snapshot_sees_its_version() {
    let chain = [
        header(0, Some(1), false),
        header(9, Some(2), true),
        header(6, Some(3), false),
        header(6, Some(4), false),
        header(2, None, false),
    ];
    let seen = |commit| walk(&chain, commit).unwrap();
    assert_eq!(seen(1), ChainStep::NoRow);
    assert_eq!(seen(2), ChainStep::Seen(at(4)));
    assert_eq!(seen(5), ChainStep::Seen(at(4)));
    assert_eq!(seen(6), ChainStep::Seen(at(2)));
    assert_eq!(seen(8), ChainStep::Seen(at(2)));
    assert_eq!(seen(9), ChainStep::NoRow);
    assert_eq!(seen(u64::MAX), ChainStep::NoRow);
}

#[test]
fn a_ring_is_an_error() {
    let ring = [header(9, Some(1), false), header(9, Some(0), false)];
    assert!(matches!(walk(&ring, 3), Err(StoreError::Frame { .. })));
    let own = [header(9, Some(0), false)];
    assert!(matches!(walk(&own, 3), Err(StoreError::Frame { .. })));
}

#[test]
fn commits_that_rise_with_age_are_an_error() {
    let chain = [header(5, Some(1), false), header(6, None, false)];
    assert!(matches!(walk(&chain, 3), Err(StoreError::Frame { .. })));
    let committed_then_open = [header(5, Some(1), false), header(0, None, false)];
    assert!(matches!(walk(&committed_then_open, 3), Err(StoreError::Frame { .. })));
}
