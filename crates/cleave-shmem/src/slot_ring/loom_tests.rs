//! Explores all interleavings of two sides, up to a bound of forced switches: run with `--cfg loom`.
//!
//! The bell is modelled as a flag under a lock, and a socket's end as one more ring of the bell: the behaviour of the
//! system's primitives, with nothing of the ring in it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::*;

/// The bell of one side.
#[derive(Default)]
struct Bell {
    state: Mutex<Rung>,
    changed: Condvar,
}

#[derive(Default, Clone, Copy)]
struct Rung {
    rung: bool,
    /// The other side is gone: the socket ended.
    hung_up: bool,
}

impl Bell {
    fn ring(&self) {
        self.state.lock().unwrap().rung = true;
        self.changed.notify_one();
    }

    fn hang_up(&self) {
        self.state.lock().unwrap().hung_up = true;
        self.changed.notify_one();
    }

    /// Sleeps until it is rung or the other side is gone; returns whether the latter.
    fn wait(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        while !state.rung && !state.hung_up {
            state = self.changed.wait(state).unwrap();
        }
        state.rung = false;
        state.hung_up
    }
}

/// Two bells, of the writing side and of the reading one.
type Bells = Arc<(Bell, Bell)>;

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

/// Writes all of `bytes`, sleeping if there is no room; false if the reader is gone.
fn write_all(producer: &mut Producer, bells: &Bells, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let moved = producer.write(bytes).unwrap();
        if moved.wake {
            bells.1.ring();
        }
        bytes = &bytes[moved.bytes..];
        if moved.bytes == 0 && producer.prepare_to_sleep().unwrap() && bells.0.wait() {
            return false;
        }
    }
    true
}

/// Reads `count` bytes, or fewer if the writer is gone.
fn read_some(consumer: &mut Consumer, bells: &Bells, count: usize) -> Vec<u8> {
    let mut found = Vec::new();
    let mut hung_up = false;
    while found.len() < count {
        let before = found.len();
        let moved = consumer.read(&mut (&mut found).limit(count - before)).unwrap();
        if moved.wake {
            bells.0.ring();
        }
        if moved.bytes > 0 {
            continue;
        }
        if hung_up {
            break;
        }
        if consumer.prepare_to_sleep().unwrap() {
            hung_up = bells.1.wait();
        }
    }
    found
}

#[test]
fn no_wake_up_is_lost_and_bytes_come_in_order() {
    model(|| {
        let (mut producer, mut consumer) = ends(RingMemory::new(2));
        let bells = Bells::default();
        let theirs = Arc::clone(&bells);
        let writer = thread::spawn(move || {
            assert!(write_all(&mut producer, &theirs, &[1, 2, 3]));
            assert!(write_all(&mut producer, &theirs, &[4]));
        });
        assert_eq!(read_some(&mut consumer, &bells, 4), [1, 2, 3, 4]);
        writer.join().unwrap();
    });
}

#[test]
fn a_producer_is_woken_by_a_quarter_or_by_an_empty_ring() {
    model(|| {
        let (mut producer, mut consumer) = ends(RingMemory::new(8));
        let bells = Bells::default();
        let theirs = Arc::clone(&bells);
        let writer = thread::spawn(move || {
            assert!(write_all(&mut producer, &theirs, &[7; 10]));
        });
        assert_eq!(read_some(&mut consumer, &bells, 1), [7]);
        assert_eq!(read_some(&mut consumer, &bells, 9), [7; 9]);
        writer.join().unwrap();
    });
}

#[test]
fn a_reader_whose_writer_stops_gets_a_prefix_and_the_end() {
    model(|| {
        let (mut producer, mut consumer) = ends(RingMemory::new(2));
        let bells = Bells::default();
        let theirs = Arc::clone(&bells);
        let writer = thread::spawn(move || {
            // Dies with its last bytes written and, possibly, the bell not rung for them.
            write_all(&mut producer, &theirs, &[1, 2]);
            producer.write(&[3]).unwrap();
            theirs.1.hang_up();
        });
        let found = read_some(&mut consumer, &bells, 9);
        assert!(found == [1, 2] || found == [1, 2, 3], "{found:?}");
        writer.join().unwrap();
    });
}

#[test]
fn a_writer_whose_reader_stops_gets_the_end() {
    model(|| {
        let (mut producer, mut consumer) = ends(RingMemory::new(2));
        let bells = Bells::default();
        let theirs = Arc::clone(&bells);
        let reader = thread::spawn(move || {
            assert_eq!(read_some(&mut consumer, &theirs, 1), [1]);
            theirs.0.hang_up();
        });
        assert!(!write_all(&mut producer, &bells, &[1, 2, 3, 4]));
        reader.join().unwrap();
    });
}

#[test]
fn two_rings_carry_a_question_and_its_answer() {
    model(|| {
        let (mut ask, mut asked) = ends(RingMemory::new(2));
        let (mut answer, mut answered) = ends(RingMemory::new(2));
        let (questions, answers) = (Bells::default(), Bells::default());
        let (their_questions, their_answers) = (Arc::clone(&questions), Arc::clone(&answers));
        let server = thread::spawn(move || {
            let question = read_some(&mut asked, &their_questions, 1);
            assert!(write_all(&mut answer, &their_answers, &[question[0] + 1]));
        });
        assert!(write_all(&mut ask, &questions, &[41]));
        assert_eq!(read_some(&mut answered, &answers, 1), [42]);
        server.join().unwrap();
    });
}
