//! A record survives encoding or is refused; a torn write leaves the previous one.

use proptest::prelude::*;

use super::*;

fn owner(epoch: u64) -> Ownership {
    Ownership { database: [3; 16], epoch, incarnation: 77 }
}

#[test]
fn what_was_recorded_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let identity = directory.path().join("nas.media.id");
    let record = OwnerRecord::beside_identity(&identity);
    assert_eq!(record.read().unwrap(), None);
    for epoch in [1, 2, u64::MAX] {
        record.replace(Some(owner(epoch))).unwrap();
        let found = OwnerRecord::beside_identity(&identity).read().unwrap();
        assert_eq!(found, Some(owner(epoch)));
    }
    record.replace(None).unwrap();
    record.replace(None).unwrap();
    assert_eq!(OwnerRecord::beside_identity(&identity).read().unwrap(), None);
}

#[test]
fn a_write_that_was_torn_leaves_the_record_before() {
    let directory = tempfile::tempdir().unwrap();
    let identity = directory.path().join("nas.media.id");
    let record = OwnerRecord::beside_identity(&identity);
    record.replace(Some(owner(5))).unwrap();
    let whole = encode(owner(6));
    for length in 0..whole.len() {
        fs::write(directory.path().join("nas.media.id.owner.new"), &whole[..length]).unwrap();
        assert_eq!(record.read().unwrap(), Some(owner(5)));
    }
    record.replace(Some(owner(6))).unwrap();
    assert_eq!(record.read().unwrap(), Some(owner(6)));
}

/// The temporary file of the new record is a link to the device that is always full.
#[test]
fn a_record_is_replaced_where_no_room_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let record = OwnerRecord::beside_identity(&directory.path().join("nas.media.id"));
    record.replace(Some(owner(5))).unwrap();
    let new = directory.path().join("nas.media.id.owner.new");
    std::os::unix::fs::symlink("/dev/full", &new).unwrap();
    record.replace(Some(owner(6))).unwrap();
    assert_eq!(record.read().unwrap(), Some(owner(6)));
}

#[test]
fn a_record_cut_short_or_changed_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let record = OwnerRecord::beside_identity(&directory.path().join("nas.media.id"));
    let path = directory.path().join("nas.media.id.owner");
    let whole = encode(owner(6));
    let refused = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let error = record.read().unwrap_err();
        assert!(matches!(error, OwnerRecordError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains("nas.media.id.owner"), "{error}");
    };
    for length in 0..whole.len() {
        refused(&whole[..length]);
    }
    for place in 0..whole.len() {
        let mut changed = whole.clone();
        changed[place] ^= 1;
        refused(&changed);
    }
    refused(&FORMAT.seal(&[0; 33]));
    refused(&FORMAT.seal(&[]));
}

#[test]
fn a_record_of_the_process_is_shared_by_its_clones() {
    let record = OwnerRecord::in_process();
    let clone = record.clone();
    record.replace(Some(owner(1))).unwrap();
    assert_eq!(clone.read().unwrap(), Some(owner(1)));
}

proptest! {
    #[test]
    fn every_record_survives_the_way_to_bytes_and_back(
        database: [u8; 16],
        epoch: u64,
        incarnation: u64,
    ) {
        let owner = Ownership { database, epoch, incarnation };
        prop_assert_eq!(decode(&encode(owner)).unwrap(), owner);
    }

    #[test]
    fn garbage_is_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(decode(&bytes).is_err());
    }
}
