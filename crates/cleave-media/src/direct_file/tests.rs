//! Files only: lost media, and reads without io_uring. The suite over all media is in `media/tests.rs`.

use super::*;

#[test]
fn reads_at_once_give_what_single_reads_give() {
    let directory = tempfile::tempdir().unwrap();
    let mut media = DirectFile::open(&directory.path().join("media"), OpenMode::Create).unwrap();
    media.grow_to(100).unwrap();
    let data: Vec<u8> = (0..100 * BLOCK_SIZE).map(|at| u8::try_from(at % 241).unwrap()).collect();
    media.write(BlockAddress(0), &data).unwrap();
    let extents: Vec<Extent> =
        (0..70).map(|start| Extent { start: BlockAddress(start), block_count: 3 }).collect();
    let granted = media.read_many(&extents).unwrap();
    // As on a system that grants no ring.
    media.rings = None;
    assert!(!media.reads_at_once());
    assert_eq!(media.read_many(&extents).unwrap(), granted);
    assert_eq!(media.bytes_read(), 2 * 70 * 3 * BLOCK_SIZE as u64);
}

#[test]
fn a_file_cut_off_names_the_extent_that_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let media = DirectFile::open(&directory.path().join("media"), OpenMode::Create).unwrap();
    media.grow_to(8).unwrap();
    File::options().write(true).open(media.path()).unwrap().set_len(2 * 4096).unwrap();
    let extents = [0, 4, 1].map(|start| Extent { start: BlockAddress(start), block_count: 1 });
    let error = media.read_many(&extents).unwrap_err();
    assert!(matches!(error, MediaError::Io { extent, .. } if extent == extents[1]), "{error}");
}

#[test]
fn media_whose_identity_is_left_is_missed_and_not_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("media");
    let beside = MediaIdentity::path_beside(&path);
    // An interrupted creation left an empty identity.
    std::fs::write(&beside, "").unwrap();
    let media = DirectFile::open_or_create(&path, &beside).unwrap();
    let identity = MediaIdentity::of_media(&media, &beside).unwrap();
    drop(media);
    drop(DirectFile::open_or_create(&path, &beside).unwrap());
    std::fs::remove_file(&path).unwrap();
    let error = DirectFile::open_or_create(&path, &beside).unwrap_err();
    assert!(matches!(error, MediaError::Missing { .. }), "{error}");
    assert!(!path.exists());
    assert_eq!(MediaIdentity::of_file(&beside).unwrap().bytes, identity.bytes);
}

#[test]
fn after_a_sync_that_failed_none_succeeds_until_the_media_is_opened_anew() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("media");
    let mut media = DirectFile::open(&path, OpenMode::Create).unwrap();
    media.grow_to(8).unwrap();
    media.write(BlockAddress(0), &[1; BLOCK_SIZE]).unwrap();
    media.sync().unwrap();
    // A pipe, which cannot be synced, replaces the file while the first of two writers syncs.
    let (pipe, _other_end) = io::pipe().unwrap();
    let pipe = File::from(std::os::fd::OwnedFd::from(pipe));
    let file = std::mem::replace(&mut media.file, pipe);
    let error = media.sync().unwrap_err();
    assert!(matches!(error, MediaError::Sync { .. }), "{error}");
    media.file = file;
    let message = media.sync().unwrap_err().to_string();
    assert!(
        message.contains(&path.display().to_string()) && message.contains("started"),
        "{message}"
    );
    drop(media);
    // A child that another test is starting has the file, and its lock, until it executes its program.
    let anew = loop {
        match DirectFile::open(&path, OpenMode::Existing) {
            Err(MediaError::Locked { .. }) => std::thread::yield_now(),
            opened => break opened,
        }
    };
    anew.unwrap().sync().unwrap();
}

#[test]
fn errors_name_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("media");
    let media = DirectFile::open(&path, OpenMode::Create).unwrap();
    media.grow_to(8).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    let one = Extent { start: BlockAddress(0), block_count: 1 };
    for error in [media.read(one).unwrap_err(), media.grow_to(u64::MAX / 8192).unwrap_err()] {
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}
