//! Alignment: of a buffer, its copy, and the bytes it becomes.

use std::sync::Arc;

use super::{AlignedBuffer, SPARE_BYTES_MAX, SpareBuffers, size_class};
use crate::BLOCK_SIZE;

#[test]
fn every_form_is_aligned_and_equal() {
    for length in [1, 63, BLOCK_SIZE, BLOCK_SIZE + 1, 5 * BLOCK_SIZE] {
        let mut buffer = AlignedBuffer::zeroed(length);
        assert!(buffer.iter().all(|byte| *byte == 0));
        if let Some(last) = buffer.last_mut() {
            *last = 7;
        }
        let copy = buffer.clone();
        assert_eq!(copy, buffer);
        assert_eq!(copy.as_ptr().align_offset(BLOCK_SIZE), 0);
        let address = buffer.as_ptr();
        let bytes = buffer.into_bytes();
        assert_eq!(bytes.as_ptr(), address, "sharing must not copy");
        assert_eq!(bytes.as_ptr().align_offset(BLOCK_SIZE), 0);
        assert_eq!(&bytes[..], &copy[..]);
    }
}

#[test]
fn an_empty_buffer_is_fine() {
    let buffer = AlignedBuffer::zeroed(0);
    assert!(buffer.is_empty());
    assert!(buffer.into_bytes().is_empty());
}

#[test]
fn a_dropped_buffer_is_filled_again() {
    let spare = Arc::new(SpareBuffers::default());
    let first = spare.take(5 * BLOCK_SIZE);
    let address = first.as_ptr();
    // Kept by every sharer, until the last one drops it.
    let bytes = first.into_bytes();
    assert_ne!(spare.take(5 * BLOCK_SIZE).as_ptr(), address);
    drop(bytes);
    let again: Vec<AlignedBuffer> = (0..2).map(|_| spare.take(5 * BLOCK_SIZE)).collect();
    assert!(again.iter().any(|buffer| buffer.as_ptr() == address));
    for buffer in &again {
        assert_eq!(buffer.as_ptr().align_offset(BLOCK_SIZE), 0);
        assert_eq!(buffer.len(), 5 * BLOCK_SIZE);
    }
}

#[test]
fn what_waits_is_bounded_and_wastes_little() {
    let spare = Arc::new(SpareBuffers::default());
    for blocks in [1, 7, 100, 1000, 3000] {
        drop((0..3).map(|_| spare.take(blocks * BLOCK_SIZE)).collect::<Vec<_>>());
        assert!(spare.0.lock().unwrap().bytes <= SPARE_BYTES_MAX);
    }
    for length in (BLOCK_SIZE..4096 * BLOCK_SIZE).step_by(3 * BLOCK_SIZE) {
        let size = size_class(length);
        assert!(
            size >= length && size - length <= (length / 8).max(BLOCK_SIZE),
            "{length}: {size}"
        );
    }
}
