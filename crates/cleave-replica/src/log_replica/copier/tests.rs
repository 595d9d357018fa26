//! A replica that is found counts only where its space is.

use super::*;

fn extent(start: u64, block_count: u32) -> Extent {
    Extent { start: BlockAddress(start), block_count }
}

/// Space in two parts that touch, and in one elsewhere.
fn asked() -> LogReplica {
    LogReplica {
        device: 1,
        id: [7; 16],
        arenas: vec![extent(1024, 200), extent(1224, 300), extent(5000, 10)],
        is_ended: false,
        gives_up: None,
    }
}

/// What is found with the ring there, and files of so many bytes at these blocks.
fn found(ring: Extent, files: &[(&str, u64, u64)]) -> Found {
    let place = |start, bytes| Place { start, bytes, checksum: 0 };
    let files =
        files.iter().map(|(name, start, bytes)| ((*name).to_owned(), place(*start, *bytes)));
    let stamp = Stamp {
        id: vec![7; 16],
        ring_start: ring.start.0,
        ring_blocks: ring.block_count,
        ..Stamp::default()
    };
    Found { stamp, slot: 5, sequence_max: 9, files: files.collect() }
}

#[test]
fn files_outside_of_the_space_are_written_again() {
    let mut shipped = Shipped::nothing(&[7; 16]);
    let files = [
        ("manifest", 1300, BLOCK),
        ("users", 5009, BLOCK),
        // A table may have the second block, all of it, or what lies between two parts of the space.
        ("segments/1", 5009, 2 * BLOCK),
        ("segments/2", 9000, BLOCK),
        ("segments/3", 1223, 2 * BLOCK),
    ];
    shipped.take(found(extent(1153, 50), &files), &asked());
    assert!(!shipped.is_astray);
    assert_eq!((shipped.slot, shipped.sequence_max), (5, 9));
    let kept: Vec<&str> = shipped.files.keys().map(String::as_str).collect();
    assert_eq!(kept, ["manifest", "users"]);
    assert_eq!(shipped.attempted, [extent(5009, 2), extent(9000, 1), extent(1223, 2)]);
    // And what of them lies within is not written over before a newer stamp is there.
    let mut room = shipped.room(&asked());
    let taken: Vec<Extent> = std::iter::from_fn(|| room.take(1)).collect();
    let is_free = |block: u64| taken.iter().any(|taken| taken.contains(extent(block, 1)));
    assert!(is_free(1222) && is_free(5008), "{taken:?}");
    for used in [1024, 1024 + u64::from(ANCHOR_BLOCKS) - 1, 1153, 1202, 1223, 1224, 1300, 5009] {
        assert!(!is_free(used), "block {used}");
    }
}

#[test]
fn a_ring_outside_of_the_space_has_no_log_of_this_host() {
    for (ring, is_astray) in [
        (extent(1153, 71), false),
        (extent(1224, 300), false),
        (extent(1153, 72), true),
        (extent(1000, 30), true),
        (extent(5000, 11), true),
        (extent(9000, 5), true),
    ] {
        let mut shipped = Shipped::nothing(&[7; 16]);
        shipped.take(found(ring, &[]), &asked());
        assert_eq!(shipped.is_astray, is_astray, "{ring}");
        // A replica that was found to differ stays so.
        shipped.is_astray = true;
        shipped.take(found(extent(1153, 71), &[]), &asked());
        assert!(shipped.is_astray);
    }
}
