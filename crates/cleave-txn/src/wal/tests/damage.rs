//! Cuts and flipped bits: the result is a prefix, or an error; confirmed records are never lost silently.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::wal::segment::{SEGMENT_HEADER_BYTES, segment_path};

/// A log of some groups of records, each made durable by one sync.
struct Written {
    folder: tempfile::TempDir,
    start: Lsn,
    /// Number of records up to the end of each group, and the place of that end.
    groups: Vec<(u64, Lsn)>,
}

fn write(group_sizes: &[u64]) -> Written {
    let folder = tempfile::tempdir().unwrap();
    let log = Wal::create(folder.path(), Lsn(0), small()).unwrap();
    let start = log.resume_from();
    let (mut number, mut groups) = (0, Vec::new());
    for size in group_sizes {
        for _ in 0..*size {
            number += 1;
            log.append(commit(number, &payload(number))).unwrap();
        }
        log.flush().unwrap();
        groups.push((number, log.end()));
    }
    Written { folder, start, groups }
}

impl Written {
    fn files(&self) -> Vec<(Lsn, PathBuf)> {
        let starts = list_segments(self.folder.path()).unwrap();
        starts.into_iter().map(|start| (start, segment_path(self.folder.path(), start))).collect()
    }

    fn record_count(&self) -> u64 {
        self.groups.last().unwrap().0
    }

    /// Checks that the records are the first so many.
    fn prefix(&self, records: &[LogRecord]) -> u64 {
        let found = numbers(records);
        assert_eq!(found, (1..=found.len() as u64).collect::<Vec<_>>());
        found.len() as u64
    }

    /// Records of groups that a later group proves, for damage in the group that ends behind `place`.
    fn vouched_before(&self, place: Lsn) -> u64 {
        let groups = self.groups.iter().take_while(|(_, end)| *end <= place);
        groups.last().map_or(0, |(count, _)| *count)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A crash may leave any prefix of the bytes written since the last sync.
    #[test]
    fn any_first_part_of_a_log_gives_a_prefix(
        sizes in prop::collection::vec(1_u64..6, 1..8),
        cut in any::<prop::sample::Index>()
    ) {
        let written = write(&sizes);
        let files = written.files();
        let whole: u64 = files.iter().map(|(_, path)| fs::metadata(path).unwrap().len()).sum();
        let mut left = cut.index(usize::try_from(whole).unwrap()) as u64;
        let mut place = written.start;
        for (start, path) in files {
            let length = fs::metadata(&path).unwrap().len();
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(length.min(left)).unwrap();
            if left > 0 {
                place = Lsn(start.0 + length.min(left));
            }
            left = left.saturating_sub(length);
        }
        match read(written.folder.path(), written.start) {
            Ok(records) => prop_assert!(written.prefix(&records) >= written.vouched_before(place)),
            // Not even the first header is left.
            Err(LogError::Missing { .. }) => prop_assert!(place.0 < SEGMENT_HEADER_BYTES as u64),
            Err(error) => panic!("{error}"),
        }
    }

    /// A flipped bit is an error, unless it lies in the last group, which a crash could have torn.
    #[test]
    fn a_flipped_bit_is_found(sizes in prop::collection::vec(1_u64..6, 1..8), bit in any::<prop::sample::Index>()) {
        let written = write(&sizes);
        let files = written.files();
        let (start, path) = &files[bit.index(files.len())];
        let mut bytes = fs::read(path).unwrap();
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(path, &bytes).unwrap();
        let place = Lsn(start.0 + bit as u64 / 8);
        let last_group = written.groups.len().checked_sub(2).map_or(written.start, |index| written.groups[index].1);
        match read(written.folder.path(), written.start) {
            Ok(records) => {
                let count = written.prefix(&records);
                let is_harmless = count == written.record_count();
                prop_assert!(is_harmless || place >= last_group || *start == files.last().unwrap().0);
                if place >= last_group {
                    prop_assert!(count >= written.vouched_before(last_group));
                }
            }
            Err(LogError::Damaged { path: named, .. }) => {
                prop_assert!(place < last_group);
                // The file before, if the header is damaged.
                let is_header = bit / 8 < SEGMENT_HEADER_BYTES;
                prop_assert!(named == *path || is_header);
            }
            Err(LogError::Missing { .. }) => prop_assert!(*start == Lsn(0) && bit / 8 < SEGMENT_HEADER_BYTES),
            Err(error) => panic!("{error}"),
        }
    }

    /// Random bytes are no records.
    #[test]
    fn noise_is_no_record(bytes in prop::collection::vec(any::<u8>(), 0..200), at in any::<u64>()) {
        let seed = record::Seed::new(&[1; 16]);
        prop_assert_eq!(record::decode(&bytes, seed, Lsn(at)), None);
    }
}

#[test]
fn a_record_verifies_at_its_place_and_in_its_log_only() {
    let seed = record::Seed::new(&[1; 16]);
    let mut bytes = Vec::new();
    let what = (record::Kind::Commit, TransactionId(9));
    record::encode(&mut bytes, seed, Lsn(4096), what, (b"hello", crc32c::crc32c(b"hello")));
    assert_eq!(bytes.len(), 24);
    let decoded = record::decode(&bytes, seed, Lsn(4096)).unwrap();
    assert_eq!((decoded.payload, decoded.transaction), (b"hello".as_slice(), TransactionId(9)));
    assert_eq!(record::decode(&bytes, seed, Lsn(4104)), None);
    assert_eq!(record::decode(&bytes, record::Seed::new(&[2; 16]), Lsn(4096)), None);
    assert_eq!(record::decode(&bytes[..23], seed, Lsn(4096)), None);
}

#[test]
fn a_segment_that_is_gone_is_named() {
    let written = write(&[5; 20]);
    let files = written.files();
    assert!(files.len() > 3);
    fs::remove_file(&files[1].1).unwrap();
    let error = read(written.folder.path(), written.start).unwrap_err();
    assert!(matches!(&error, LogError::Damaged { path, .. } if *path == files[0].1), "{error}");
    fs::remove_file(&files[0].1).unwrap();
    let error = read(written.folder.path(), written.start).unwrap_err();
    assert!(matches!(error, LogError::Missing { at, .. } if at == written.start), "{error}");
}

#[test]
fn a_log_that_ends_before_its_checkpoint_is_damaged() {
    let written = write(&[1, 1]);
    let (first_end, last_end) = (written.groups[0].1, written.groups[1].1);
    let path = &written.files()[0].1;
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(first_end.0).unwrap();
    assert_eq!(read(written.folder.path(), first_end).unwrap(), []);
    let error = read(written.folder.path(), last_end).unwrap_err();
    assert!(matches!(error, LogError::Damaged { at, .. } if at == first_end), "{error}");
}
