//! Frames: damage is noticed, a newer version is named.

use proptest::prelude::{any, proptest};
use proptest::{prop_assert, prop_assert_eq};

use super::{FRAME_HEADER_BYTES, Format, FrameError};

const FORMAT: Format = Format { magic: *b"CLV-TEST", name: "test frame", versions: 2..=3 };

proptest! {
    #[test]
    fn payload_comes_back(payload in any::<Vec<u8>>(), tail in any::<Vec<u8>>()) {
        let mut frame = FORMAT.seal(&payload);
        frame.extend_from_slice(&tail);
        prop_assert_eq!(FORMAT.open(&frame).unwrap(), (3, payload.as_slice()));
    }

    #[test]
    fn any_flipped_bit_is_noticed(payload in any::<Vec<u8>>(), at in any::<usize>(), bit in 0u8..8) {
        let mut frame = FORMAT.seal(&payload);
        let at = at % frame.len();
        frame[at] ^= 1 << bit;
        prop_assert!(FORMAT.open(&frame).is_err());
    }

    #[test]
    fn any_truncation_is_named(payload in any::<Vec<u8>>(), at in any::<usize>()) {
        let frame = FORMAT.seal(&payload);
        let cut = &frame[..at % frame.len()];
        let truncated = matches!(FORMAT.open(cut), Err(FrameError::Truncated { .. }));
        prop_assert!(truncated);
    }
}

#[test]
fn newer_and_older_versions_are_named() {
    for version in [1, 4] {
        let other = Format { versions: version..=version, ..FORMAT };
        assert_eq!(
            FORMAT.open(&other.seal(b"payload")).unwrap_err(),
            FrameError::Version { name: "test frame", found: version, oldest: 2, newest: 3 }
        );
    }
}

#[test]
fn another_format_is_named() {
    let other = Format { magic: *b"CLV-ELSE", ..FORMAT };
    let refused = FORMAT.open(&other.seal(b"payload")).unwrap_err();
    assert_eq!(refused, FrameError::NotThisFormat { name: "test frame" });
    assert_eq!(FORMAT.open(b"id").unwrap_err(), FrameError::NotThisFormat { name: "test frame" });
    assert_eq!(FORMAT.seal(b"").len(), FRAME_HEADER_BYTES);
}
