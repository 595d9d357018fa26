//! Identities: drawn once, found ever after, and never guessed from a file with other contents.

use std::fs;

use super::{MediaIdentity, from_hex};
use crate::{DirectFile, MediaError};

#[test]
fn an_identity_is_drawn_once_and_found_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = MediaIdentity::path_beside(&directory.path().join("media"));
    assert_eq!(path, directory.path().join("media.id"));
    // A file as a process leaves it that was killed while it wrote.
    fs::write(directory.path().join("media.id.new"), "0123").unwrap();
    let drawn = MediaIdentity::of_file(&path).unwrap();
    assert!(drawn.is_new);
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{drawn}\n"));
    let found = MediaIdentity::of_file(&path).unwrap();
    assert_eq!((found.bytes, found.is_new), (drawn.bytes, false));
    let names: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "nothing else is left: {names:?}");
}

#[test]
fn an_empty_file_is_no_identity_yet() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("id");
    fs::write(&path, "").unwrap();
    let drawn = MediaIdentity::of_file(&path).unwrap();
    assert!(drawn.is_new);
    assert_eq!(MediaIdentity::of_file(&path).unwrap().bytes, drawn.bytes);
}

#[test]
fn a_file_that_holds_something_else_is_refused_and_left() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("id");
    fs::write(&path, "12345").unwrap();
    let error = MediaIdentity::of_file(&path).unwrap_err();
    assert!(matches!(error, MediaError::Identity { .. }), "{error}");
    assert!(error.to_string().contains("32 hexadecimal digits"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "12345");
}

#[test]
fn identities_are_32_digits() {
    assert_eq!(from_hex("000102030405060708090a0b0c0d0eFF").unwrap()[13..], [13, 14, 255]);
    for text in ["", "00", "000102030405060708090a0b0c0d0e0", "g00102030405060708090a0b0c0d0e0f"] {
        assert_eq!(from_hex(text), None, "{text}");
    }
}

#[test]
fn an_identity_that_cannot_be_read_is_not_taken_for_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("id");
    assert_eq!(MediaIdentity::kept(&path).unwrap(), None);
    fs::write(&path, "\n").unwrap();
    assert_eq!(MediaIdentity::kept(&path).unwrap(), None);
    let media = directory.path().join("media");
    let refused = || match DirectFile::open_or_create(&media, &path) {
        Err(error) => matches!(error, MediaError::Identity { .. }) && !media.exists(),
        Ok(_) => false,
    };
    for damaged in [&b"12345"[..], &[0xff; 33]] {
        fs::write(&path, damaged).unwrap();
        assert!(refused(), "{damaged:?}");
    }
    fs::remove_file(&path).unwrap();
    // It exists, and reading fails.
    fs::create_dir(&path).unwrap();
    assert!(refused());
}
