//! Heads as bytes; and whole devices, over loop devices if the user may make one.

use std::path::PathBuf;
use std::process::Command;

use super::*;
use crate::{BlockAddress, DirectFile, Extent, Media, OpenMode};

#[test]
fn a_head_is_read_as_it_was_written_and_not_otherwise() {
    let mut block = head([9; 16]);
    assert_eq!(read_head(&block), Some((VERSION, [9; 16])));
    for bit in 0..HEAD_BYTES * 8 {
        block[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(read_head(&block), None, "bit {bit}");
        block[bit / 8] ^= 1 << (bit % 8);
    }
    assert_eq!(read_head(&[]), None);
    assert_eq!(recognise(&block[..8]), "a damaged head of Cleave's");
}

#[test]
fn a_record_stays_beside_the_identity() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(3 * BLOCK_SIZE as u64).unwrap();
    file.write_all_at(&[7; BLOCK_SIZE], BLOCK_SIZE as u64).unwrap();
    // As version 1 wrote it.
    let mut bytes = [MAGIC.as_slice(), &1_u32.to_le_bytes(), &[9; 16]].concat();
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    file.write_all_at(&bytes, 0).unwrap();
    assert_eq!(read_record(&file).unwrap(), [0; 512]);
    for record in [vec![5; 60], vec![6; 512], vec![8; 10], Vec::new()] {
        write_record(&file, [9; 16], &record).unwrap();
        let found = read_record(&file).unwrap();
        assert_eq!(found[..record.len()], record);
        assert_eq!(found[record.len()..], vec![0; 512 - record.len()]);
        let mut block = vec![0; 2 * BLOCK_SIZE];
        file.read_exact_at(&mut block, 0).unwrap();
        assert_eq!(read_head(&block), Some((VERSION, [9; 16])));
        // No other sector says anything.
        let rest = [&block[HEAD_BYTES..512], &block[1024..BLOCK_SIZE]].concat();
        assert!(rest.iter().all(|byte| *byte == 0));
        assert_eq!(block[BLOCK_SIZE..], [7; BLOCK_SIZE]);
    }
    let error = write_record(&file, [9; 16], &[1; 513]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(read_record(&file).unwrap(), [0; 512]);
}

/// A loop device over a file, while it lives.
struct Loop {
    device: PathBuf,
    _file: tempfile::NamedTempFile,
}

impl Loop {
    /// `None`, with a message, if this user may not make one.
    fn new(block_count: u64) -> Option<Self> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(block_count * BLOCK_SIZE as u64).unwrap();
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file.path()).output();
        match made {
            Ok(output) if output.status.success() => {
                let device = String::from_utf8(output.stdout).unwrap();
                Some(Self { device: device.trim().into(), _file: file })
            }
            other => {
                eprintln!("skipped: no loop device can be made here: {other:?}");
                None
            }
        }
    }
}

/// Opens a device that was just closed. A process that another test starts has copies of our descriptors, and of the
/// lock, until it executes its own program.
fn opened_again(path: &Path) -> DirectFile {
    for _ in 0..500 {
        match DirectFile::open(path, OpenMode::Existing) {
            Err(MediaError::Locked { .. }) => {
                std::thread::park_timeout(std::time::Duration::from_millis(10));
            }
            opened => return opened.unwrap(),
        }
    }
    panic!("{} stays locked", path.display());
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("--detach").arg(&self.device).status();
        assert!(detached.is_ok_and(|status| status.success()), "{}", self.device.display());
    }
}

#[test]
fn a_blank_device_becomes_media_and_is_known_again() {
    let Some(block_device) = Loop::new(1000) else { return };
    let path = &block_device.device;
    let media = DirectFile::open(path, OpenMode::Existing).unwrap();
    let identity = media.head().unwrap();
    assert!(identity.is_new);
    assert_eq!(media.block_count(), 999);
    let data: Vec<u8> = (0..999 * BLOCK_SIZE).map(|at| u8::try_from(at % 253).unwrap()).collect();
    media.write(BlockAddress(0), &data).unwrap();
    media.sync().unwrap();
    assert!(matches!(media.grow_to(1000), Err(MediaError::Full { block_count: 1000, .. })));
    media.grow_to(999).unwrap();
    assert!(matches!(
        media.write(BlockAddress(998), &data[..2 * BLOCK_SIZE]),
        Err(MediaError::OutOfRange { .. })
    ));
    assert_eq!(media.head_record().unwrap().unwrap(), [0; 512]);
    media.replace_head_record(&[5; 60]).unwrap();
    drop(media);
    let again = opened_again(path);
    assert_eq!(again.head().unwrap(), MediaIdentity { is_new: false, ..identity });
    assert_eq!(again.head_record().unwrap().unwrap()[..61], [&[5; 60][..], &[0]].concat());
    let extents = [0, 500, 998].map(|start| Extent { start: BlockAddress(start), block_count: 1 });
    for (extent, buffer) in extents.iter().zip(again.read_many(&extents).unwrap()) {
        let at = usize::try_from(extent.start.0).unwrap() * BLOCK_SIZE;
        assert_eq!(buffer[..], data[at..at + BLOCK_SIZE]);
        assert_eq!(again.read(*extent).unwrap()[..], data[at..at + BLOCK_SIZE]);
    }
    let held = DirectFile::open(path, OpenMode::Existing);
    assert!(matches!(held, Err(MediaError::Locked { .. })), "{held:?}");
}

#[test]
fn a_device_that_holds_something_else_is_left_alone() {
    let Some(block_device) = Loop::new(4096) else { return };
    let path = &block_device.device;
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(path).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no mkfs.ext4 here");
        return;
    }
    let before = std::fs::read(path).unwrap();
    let error = DirectFile::open(path, OpenMode::Existing).unwrap_err();
    assert!(matches!(error, MediaError::Foreign { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("ext4") && message.contains("--overwrite-media"), "{message}");
    assert!(std::fs::read(path).unwrap() == before, "not a byte was changed");

    let media = DirectFile::open(path, OpenMode::Overwrite).unwrap();
    assert!(media.head().unwrap().is_new);
    drop(media);
    let media = opened_again(path);
    assert!(!media.head().unwrap().is_new);
}

#[test]
fn a_device_that_ends_with_something_else_is_left_alone() {
    let Some(block_device) = Loop::new(1000) else { return };
    let path = &block_device.device;
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(&[1; 512], 1000 * BLOCK_SIZE as u64 - 512).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let error = DirectFile::open(path, OpenMode::Existing).unwrap_err();
    assert!(matches!(error, MediaError::Foreign { .. }), "{error}");

    // After an overwrite, none of the old signatures is left at either end.
    let media = DirectFile::open(path, OpenMode::Overwrite).unwrap();
    assert!(media.head().unwrap().is_new);
    drop(media);
    let bytes = std::fs::read(path).unwrap();
    let margin = MARGIN_BLOCKS * BLOCK_SIZE;
    assert!(read_head(&bytes).is_some());
    assert!(bytes[HEAD_BYTES..margin].iter().all(|byte| *byte == 0));
    assert!(bytes[bytes.len() - margin..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_device_that_is_too_small_is_refused() {
    let Some(block_device) = Loop::new(100) else { return };
    let error = DirectFile::open(&block_device.device, OpenMode::Overwrite).unwrap_err();
    assert!(error.to_string().contains("too few"), "{error}");
}
