//! One suite over every kind of media, then the particulars of each.

use std::path::Path;

use crate::{
    AlignedBuffer, BLOCK_SIZE, BlockAddress, DirectFile, Extent, FaultyMedia, Media, MediaError,
    Memory, OpenMode,
};

fn extent(start: u64, block_count: u32) -> Extent {
    Extent { start: BlockAddress(start), block_count }
}

fn pattern(block_count: usize, salt: u8) -> Vec<u8> {
    (0..block_count * BLOCK_SIZE)
        .map(|at| u8::try_from((at / 7) % 251).unwrap().wrapping_add(salt))
        .collect()
}

fn file(directory: &Path) -> DirectFile {
    DirectFile::open(&directory.join("media"), OpenMode::Create).unwrap()
}

/// What every media must do.
fn suite(media: &dyn Media) {
    assert_eq!(media.block_count(), 0);
    assert!(matches!(media.read(extent(0, 1)), Err(MediaError::OutOfRange { .. })));
    media.grow_to(600).unwrap();
    media.grow_to(10).unwrap();
    assert_eq!(media.block_count(), 600, "media never shrinks");
    assert!(media.read(extent(598, 2)).unwrap().iter().all(|byte| *byte == 0));

    // Across the boundary of a piece, and from an address that is not aligned.
    let data = pattern(300, 3);
    let mut shifted = vec![0; data.len() + 1];
    shifted[1..].copy_from_slice(&data);
    media.write(BlockAddress(200), &shifted[1..]).unwrap();
    media.write(BlockAddress(0), &AlignedBuffer::copy_of(&data[..BLOCK_SIZE])).unwrap();
    media.sync().unwrap();
    assert_eq!(&media.read(extent(200, 300)).unwrap()[..], &data[..]);
    assert_eq!(&media.read(extent(0, 1)).unwrap()[..], &data[..BLOCK_SIZE]);
    assert!(media.read(extent(1, 199)).unwrap().iter().all(|byte| *byte == 0));
    assert_eq!(media.bytes_written(), 301 * BLOCK_SIZE as u64);
    assert_eq!(media.bytes_read(), 502 * BLOCK_SIZE as u64);

    assert!(matches!(
        media.write(BlockAddress(0), &data[..BLOCK_SIZE + 1]),
        Err(MediaError::NotWholeBlocks { length }) if length == BLOCK_SIZE + 1
    ));
    assert!(matches!(
        media.write(BlockAddress(599), &data[..2 * BLOCK_SIZE]),
        Err(MediaError::OutOfRange { block_count: 600, .. })
    ));
    assert!(matches!(media.read(extent(u64::MAX, 1)), Err(MediaError::OutOfRange { .. })));
    assert_eq!(&media.read(extent(499, 1)).unwrap()[..], &data[299 * BLOCK_SIZE..]);

    let before = media.bytes_read();
    let extents: Vec<Extent> = (0..80).map(|at| extent(200 + at * 3, 2)).collect();
    for (extent, buffer) in extents.iter().zip(media.read_many(&extents).unwrap()) {
        let at = usize::try_from(extent.start.0 - 200).unwrap() * BLOCK_SIZE;
        assert_eq!(buffer[..], data[at..at + 2 * BLOCK_SIZE]);
    }
    assert_eq!(media.bytes_read(), before + 160 * BLOCK_SIZE as u64);
    assert!(media.read_many(&[]).unwrap().is_empty());
    let beyond = media.read_many(&[extent(0, 1), extent(599, 2)]);
    assert!(matches!(beyond, Err(MediaError::OutOfRange { block_count: 600, .. })));
}

#[test]
fn memory_passes_the_suite() {
    suite(&Memory::new());
}

#[test]
fn faulty_media_without_faults_passes_the_suite() {
    suite(&FaultyMedia::new());
}

#[test]
fn a_direct_file_passes_the_suite_and_keeps_its_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let media = file(directory.path());
    suite(&media);
    let path = media.path().to_path_buf();
    drop(media);
    let again = DirectFile::open(&path, OpenMode::Existing).unwrap();
    assert_eq!(again.block_count(), 600);
    assert_eq!(&again.read(extent(200, 300)).unwrap()[..], &pattern(300, 3)[..]);
}

#[test]
fn a_file_system_without_direct_io_is_used_aloud() {
    let shared_memory = Path::new("/dev/shm");
    let Ok(directory) = tempfile::tempdir_in(shared_memory) else {
        return;
    };
    suite(&file(directory.path()));
}

#[test]
fn a_second_opener_is_told_that_the_media_is_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let first = file(directory.path());
    let second = DirectFile::open(first.path(), OpenMode::Existing);
    assert!(matches!(second, Err(MediaError::Locked { path }) if path == first.path()));
}

#[test]
fn missing_and_existing_files_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("media");
    assert!(matches!(
        DirectFile::open(&path, OpenMode::Existing),
        Err(MediaError::Open { source, .. }) if source.kind() == std::io::ErrorKind::NotFound
    ));
    drop(file(directory.path()));
    assert!(matches!(
        DirectFile::open(&path, OpenMode::Create),
        Err(MediaError::Open { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists
    ));
}

#[test]
fn a_torn_tail_of_a_file_is_not_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("media");
    std::fs::write(&path, vec![1; 2 * BLOCK_SIZE + 100]).unwrap();
    let media = DirectFile::open(&path, OpenMode::Existing).unwrap();
    assert_eq!(media.block_count(), 2);
    assert!(matches!(media.read(extent(2, 1)), Err(MediaError::OutOfRange { .. })));
    media.grow_to(4).unwrap();
    assert_eq!(media.block_count(), 4);
    assert!(media.read(extent(3, 1)).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn a_file_cut_off_while_open_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let media = file(directory.path());
    media.grow_to(8).unwrap();
    std::fs::OpenOptions::new().write(true).open(media.path()).unwrap().set_len(4096).unwrap();
    assert!(matches!(media.read(extent(4, 2)), Err(MediaError::Io { operation: "read", .. })));
}

#[test]
fn a_crash_keeps_what_was_synced_and_some_of_the_rest() {
    let media = FaultyMedia::new();
    media.grow_to(64).unwrap();
    media.write(BlockAddress(0), &pattern(32, 1)).unwrap();
    media.sync().unwrap();
    media.write(BlockAddress(16), &pattern(32, 2)).unwrap();
    let after = media.crash(7).unwrap();
    assert_eq!(&after.read(extent(0, 16)).unwrap()[..], &pattern(16, 1)[..]);
    let mut kept = 0;
    for block in 0..32_u64 {
        let at = usize::try_from(block).unwrap() * BLOCK_SIZE;
        let new = &pattern(32, 2)[at..at + BLOCK_SIZE];
        kept += usize::from(&after.read(extent(16 + block, 1)).unwrap()[..] == new);
    }
    assert!(kept > 0 && kept < 32, "{kept} of 32 unsynced blocks kept");
    let same = media.crash(7).unwrap();
    assert_eq!(same.read(extent(0, 64)).unwrap(), after.read(extent(0, 64)).unwrap());
    assert_eq!(&media.read(extent(16, 32)).unwrap()[..], &pattern(32, 2)[..]);
}

#[test]
fn a_fuse_fails_everything_after_it() {
    let media = FaultyMedia::new();
    media.grow_to(4).unwrap();
    media.fail_after(1);
    media.write(BlockAddress(0), &pattern(1, 1)).unwrap();
    assert!(matches!(media.sync(), Err(MediaError::Injected { operation: "sync" })));
    assert!(matches!(media.grow_to(9), Err(MediaError::Injected { operation: "grow" })));
    media.mend();
    media.sync().unwrap();
}

#[test]
fn a_flipped_bit_is_live_and_durable() {
    let media = FaultyMedia::new();
    media.grow_to(2).unwrap();
    media.flip_bit(4097, 3).unwrap();
    assert_eq!(media.read(extent(1, 1)).unwrap()[1], 8);
    assert_eq!(media.crash(0).unwrap().read(extent(1, 1)).unwrap()[1], 8);
}
