//! Records: replaced on a full disk too, and whole after a loss of power.

use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::ForgetfulFiles;
use crate::simulation::{World, enter};

fn padded(record: &[u8]) -> Vec<u8> {
    let mut bytes = record.to_vec();
    bytes.resize(record.len().next_multiple_of(SECTOR_BYTES), 0);
    bytes
}

/// A link to the always full device lies where the new record is written first.
#[test]
fn a_record_is_replaced_where_no_room_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("record");
    let new = directory.path().join("record.new");
    let fill = || std::os::unix::fs::symlink("/dev/full", &new).unwrap();
    let kind = |record: &[u8]| replace_record(&path, record).map_err(|error| error.kind());
    fill();
    assert_eq!(kind(b"one"), Err(io::ErrorKind::StorageFull));
    assert!(!path.exists() && !new.is_symlink());
    assert_eq!(kind(b"one"), Ok(()));
    assert_eq!(fs::read(&path).unwrap(), padded(b"one"));
    fill();
    assert_eq!(kind(b"second"), Ok(()));
    assert_eq!(fs::read(&path).unwrap(), padded(b"second"));
    assert!(!new.is_symlink());
    // Two sectors might be torn.
    fill();
    assert_eq!(kind(&[7; SECTOR_BYTES + 1]), Err(io::ErrorKind::StorageFull));
    assert_eq!(fs::read(&path).unwrap(), padded(b"second"));
    assert_eq!(kind(&[7; SECTOR_BYTES + 1]), Ok(()));
    assert_eq!(fs::read(&path).unwrap(), padded(&[7; SECTOR_BYTES + 1]));
}

/// Files that lose unsynced writes, on a disk without room for new ones.
struct Full(ForgetfulFiles);

impl World for Full {
    fn now(&self) -> Duration {
        Duration::ZERO
    }
    fn wall(&self) -> i64 {
        0
    }
    fn fill_random(&self, _bytes: &mut [u8]) {}
    fn wake_at(&self, _at: Duration, _waker: Waker) {}
    fn files(&self) -> &dyn Files {
        self
    }
}

impl Files for Full {
    fn write_durably(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if path.extension().is_some_and(|extension| extension == "new") {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.write_durably(path, bytes)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }
    fn create_directories(&self, path: &Path) -> io::Result<()> {
        self.0.create_directories(path)
    }
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.0.sync_directory(path)
    }
    fn create(&self, path: &Path) -> io::Result<Box<dyn FileWriter>> {
        self.0.create(path)
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn FileWriter>> {
        self.0.open(path)
    }
}

proptest! {
    /// Acknowledged records survive a loss of power, also those written in place.
    #[test]
    fn a_record_that_was_written_in_place_is_durable(
        first in prop::collection::vec(any::<u8>(), 1..SECTOR_BYTES),
        second in prop::collection::vec(any::<u8>(), 1..SECTOR_BYTES),
        dice in any::<u64>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        let files = ForgetfulFiles::new();
        let _entered = enter(Rc::new(Full(files.clone())));
        files.write_durably(&path, &first).unwrap();
        files.sync_directory(directory.path()).unwrap();
        replace_record(&path, &second).unwrap();
        files.lose_power(|below| dice % below, |_| {}).unwrap();
        prop_assert_eq!(fs::read(&path).unwrap(), padded(&second));
    }
}
