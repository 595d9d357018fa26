//! A world owns its thread until it is left.

use std::cell::Cell;
use std::path::Path;

use super::*;
use crate::{Clock, SystemClock, files, random_bytes, thread_cpu_time};

struct Fixed {
    filled: Cell<u8>,
}

impl World for Fixed {
    fn now(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn wall(&self) -> i64 {
        7
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.filled.set(self.filled.get() + 1);
        bytes.fill(self.filled.get());
    }

    fn wake_at(&self, _at: Duration, _waker: Waker) {}

    fn files(&self) -> &dyn Files {
        self
    }
}

impl Files for Fixed {
    fn write_durably(&self, _path: &Path, _bytes: &[u8]) -> std::io::Result<()> {
        Err(std::io::Error::other("no disk in this world"))
    }

    fn rename(&self, _from: &Path, _to: &Path) -> std::io::Result<()> {
        Ok(())
    }

    fn remove(&self, _path: &Path) -> std::io::Result<()> {
        Ok(())
    }

    fn create_directories(&self, _path: &Path) -> std::io::Result<()> {
        Ok(())
    }

    fn sync_directory(&self, _path: &Path) -> std::io::Result<()> {
        Ok(())
    }

    fn create(&self, _path: &Path) -> std::io::Result<Box<dyn files::FileWriter>> {
        Err(std::io::Error::other("no disk in this world"))
    }

    fn open(&self, _path: &Path) -> std::io::Result<Box<dyn files::FileWriter>> {
        Err(std::io::Error::other("no disk in this world"))
    }
}

#[test]
fn a_world_owns_time_randomness_and_files_until_it_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    assert!(!is_active());
    let entered = enter(Rc::new(Fixed { filled: Cell::new(0) }));
    assert!(is_active());
    assert_eq!(SystemClock.now(), Duration::from_secs(5));
    assert_eq!(SystemClock.wall(), 7);
    assert_eq!(thread_cpu_time(), Duration::ZERO);
    assert_eq!(random_bytes::<3>().unwrap(), [1, 1, 1]);
    assert_eq!(random_bytes::<2>().unwrap(), [2, 2]);
    assert!(files::write_durably(&path, b"x").is_err());
    drop(entered);
    assert!(!is_active());
    assert!(SystemClock.wall() > 7);
    files::write_durably(&path, b"x").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"x");
}
