//! Tests of alignment: of a buffer, its copy, and the bytes it becomes.

use super::AlignedBuffer;
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
