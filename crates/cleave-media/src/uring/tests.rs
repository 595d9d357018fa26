//! Reads through a ring equal single reads, for all lengths, at the end of a file and from several threads. If the
//! system grants no ring the tests are skipped, with a message.

use std::os::unix::fs::FileExt;

use super::*;

fn rings() -> Option<Rings> {
    let rings = Rings::of_system();
    if rings.is_none() {
        eprintln!("skipped: the system grants no io_uring");
    }
    rings
}

/// A file of so many blocks, each with bytes of its own.
fn file(block_count: usize) -> File {
    let file = tempfile::tempfile().unwrap();
    for block in 0..block_count {
        let bytes = vec![u8::try_from(block % 251).unwrap(); BLOCK_SIZE];
        file.write_all_at(&bytes, (block * BLOCK_SIZE) as u64).unwrap();
    }
    file
}

fn place(block: usize, block_count: usize) -> ReadPlace {
    ReadPlace { offset: (block * BLOCK_SIZE) as u64, length: block_count * BLOCK_SIZE }
}

#[test]
fn more_reads_than_the_queue_holds_come_back_in_order() {
    let Some(rings) = rings() else { return };
    let file = file(600);
    let places: Vec<ReadPlace> =
        (0..500).map(|at| place((at * 37) % 590, 1 + at % 9)).chain([place(3, 0)]).collect();
    let buffers = rings.read(&file, &places, &Arc::default()).unwrap().unwrap();
    assert_eq!(buffers.len(), places.len());
    for (place, buffer) in places.iter().zip(&buffers) {
        let mut expected = vec![0; place.length];
        file.read_exact_at(&mut expected, place.offset).unwrap();
        assert_eq!(buffer[..], expected[..]);
    }
    assert_eq!(rings.lock().made_count, 1, "one caller, one ring");
}

#[test]
fn a_read_behind_the_end_is_named_and_the_ring_goes_on() {
    let Some(rings) = rings() else { return };
    let file = file(10);
    for places in [vec![place(0, 2), place(8, 4), place(2, 1)], vec![place(0, 1), place(20, 1)]] {
        let failure = rings.read(&file, &places, &Arc::default()).unwrap().unwrap_err();
        assert_eq!(failure.place, 1);
        assert_eq!(failure.source.kind(), io::ErrorKind::UnexpectedEof);
        assert!(rings.read(&file, &[place(0, 3), place(4, 3)], &Arc::default()).unwrap().is_ok());
    }
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let Some(rings) = rings() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("write-only");
    let file = File::options().create_new(true).write(true).open(path).unwrap();
    let failure =
        rings.read(&file, &[place(0, 1), place(1, 1)], &Arc::default()).unwrap().unwrap_err();
    assert_eq!(failure.source.raw_os_error(), Some(Errno::BADF.raw_os_error()));
}

#[test]
fn many_callers_share_a_bounded_number_of_rings() {
    let Some(rings) = rings() else { return };
    let file = file(300);
    std::thread::scope(|scope| {
        for caller in 0..2 * RING_COUNT_MAX {
            let (rings, file) = (&rings, &file);
            scope.spawn(move || {
                for round in 0..20 {
                    let places: Vec<ReadPlace> =
                        (0..40).map(|at| place((caller * 7 + round + at * 5) % 299, 1)).collect();
                    // `None`: all rings are busy, and the caller reads on its own.
                    let Some(buffers) = rings.read(file, &places, &Arc::default()) else {
                        continue;
                    };
                    for (place, buffer) in places.iter().zip(buffers.unwrap()) {
                        let block = usize::try_from(place.offset).unwrap() / BLOCK_SIZE;
                        assert!(buffer.iter().all(|byte| usize::from(*byte) == block % 251));
                    }
                }
            });
        }
    });
    let state = rings.lock();
    assert!(state.made_count <= RING_COUNT_MAX && state.idle.len() == state.made_count);
}

#[test]
fn a_ring_that_is_lost_makes_room_for_another() {
    let Some(rings) = rings() else { return };
    let file = file(4);
    let places = [place(0, 1), place(2, 1)];
    for _ in 0..2 * RING_COUNT_MAX {
        let mut batch = Batch::new(
            rings.take().expect("there is always a ring"),
            &file,
            &places,
            &Arc::default(),
        );
        batch.is_lost = true;
        assert!(rings.take_back(batch).is_none());
    }
    assert_eq!(rings.read(&file, &places, &Arc::default()).unwrap().unwrap().len(), 2);
    assert_eq!(rings.lock().made_count, 1);
}
