//! Damage is reported as damage, whichever stored structure has it.

use super::*;

#[test]
fn stored_bytes_that_make_no_sense_are_corrupt() {
    let malformed = FrameError::Malformed { name: "version map", reason: "a run twice".into() };
    assert_eq!(of_store(&malformed.into()).cause, DeviceErrorCause::Corrupt);
    let newer = FrameError::Version { name: "index run", found: 9, oldest: 1, newest: 1 };
    assert_eq!(of_store(&newer.into()).cause, DeviceErrorCause::Unsupported);
}
