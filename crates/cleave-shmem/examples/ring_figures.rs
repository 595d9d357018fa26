//! Measures the ring: round trip against bare shared memory, bandwidth against memcpy.
//!
//! `cargo run --release -p cleave-shmem --example ring_figures`. Two threads, each on a core of its own, cost the
//! caches the same as two processes. Each figure is the median of 9.

#![expect(clippy::disallowed_methods, reason = "a stopwatch is what it is")]

use std::hint::{black_box, spin_loop};
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::BufMut;
use cleave_shmem::{Consumer, Producer, Region, RingPair, Side};

const ROUNDS: u64 = 200_000;
const MESSAGE_BYTES: usize = 64;
const BULK_BYTES: usize = 256 << 20;
const REPEATS: usize = 9;

/// A counter on cache lines of its own.
#[repr(align(128))]
struct Line(AtomicU64);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = io::stdout();
    let bare = median(|| Ok(bare_round_trip()))?;
    writeln!(out, "bare shared memory, round trip    {:>8.0} ns", nanos(bare))?;
    let ring = median(ring_round_trip)?;
    let ratio = nanos(ring) / nanos(bare);
    writeln!(
        out,
        "ring, round trip of {MESSAGE_BYTES} bytes     {:>8.0} ns = {ratio:.2}x",
        nanos(ring)
    )?;
    let mut source = vec![1_u8; BULK_BYTES];
    source.iter_mut().enumerate().for_each(|(i, byte)| *byte = i.to_le_bytes()[1]);
    let mut target = vec![2_u8; BULK_BYTES];
    let copy = median(|| {
        let since = Instant::now();
        black_box(&mut target).copy_from_slice(black_box(&source));
        Ok(since.elapsed())
    })?;
    writeln!(out, "memcpy                            {:>8.2} GB/s", rate(copy))?;
    for ring_bytes in [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20] {
        let time = median(|| ring_bulk(ring_bytes, &source, &mut target))?;
        assert!(target == source, "what came is not what was sent");
        let share = rate(time) / rate(copy);
        let kib = ring_bytes >> 10;
        writeln!(
            out,
            "ring of {kib:>5} KiB                  {:>8.2} GB/s = {share:.2}x",
            rate(time)
        )?;
    }
    Ok(())
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn median(mut measure: impl FnMut() -> Outcome<Duration>) -> Outcome<Duration> {
    let mut times = (0..REPEATS).map(|_| measure()).collect::<Outcome<Vec<_>>>()?;
    times.sort_unstable();
    Ok(times.get(REPEATS / 2).copied().unwrap_or_default())
}

fn nanos(total: Duration) -> f64 {
    total.as_secs_f64() * 1e9 / ROUNDS as f64
}

fn rate(time: Duration) -> f64 {
    BULK_BYTES as f64 / time.as_secs_f64() / 1e9
}

/// One thread writes a number, the other answers with it.
fn bare_round_trip() -> Duration {
    let (question, answer) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                while question.0.load(Ordering::Acquire) != round {
                    spin_loop();
                }
                answer.0.store(round, Ordering::Release);
            }
        });
        let since = Instant::now();
        for round in 1..=ROUNDS {
            question.0.store(round, Ordering::Release);
            while answer.0.load(Ordering::Acquire) != round {
                spin_loop();
            }
        }
        since.elapsed()
    })
}

/// Both sides of a region that is mapped twice.
fn both_sides(ring_bytes: usize) -> Outcome<[(Producer, Consumer); 2]> {
    let maker = RingPair::create(ring_bytes)?;
    let file = maker.region().descriptor().ok_or("no descriptor")?.try_clone_to_owned()?;
    let guest = RingPair::open(Region::open(file, maker.region().bytes())?)?;
    Ok([maker.ends(Side::Maker)?, guest.ends(Side::Guest)?])
}

fn ring_round_trip() -> Outcome<Duration> {
    let [(mut ask, mut answered), (mut answer, mut asked)] = both_sides(1 << 20)?;
    let send = |producer: &mut Producer, message: &[u8]| {
        assert_eq!(producer.write(message).map(|moved| moved.bytes), Ok(MESSAGE_BYTES));
    };
    let receive = |consumer: &mut Consumer| {
        let mut message = [0_u8; MESSAGE_BYTES];
        let mut room = &mut message[..];
        while room.has_remaining_mut() {
            match consumer.read(&mut room) {
                Ok(moved) if moved.bytes == 0 => spin_loop(),
                outcome => assert!(outcome.is_ok()),
            }
        }
        message
    };
    Ok(std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..ROUNDS {
                let message = receive(&mut asked);
                send(&mut answer, &message);
            }
        });
        let since = Instant::now();
        for round in 0..ROUNDS {
            send(&mut ask, &[round.to_le_bytes()[0]; MESSAGE_BYTES]);
            assert_eq!(receive(&mut answered)[0], round.to_le_bytes()[0]);
        }
        since.elapsed()
    }))
}

fn ring_bulk(ring_bytes: usize, source: &[u8], target: &mut [u8]) -> Outcome<Duration> {
    let [(mut producer, _from_guest), (_to_maker, mut consumer)] = both_sides(ring_bytes)?;
    Ok(std::thread::scope(|scope| {
        let since = Instant::now();
        scope.spawn(move || {
            let mut left = source;
            while !left.is_empty() {
                match producer.write(left) {
                    Ok(moved) if moved.bytes == 0 => spin_loop(),
                    Ok(moved) => left = &left[moved.bytes..],
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let mut room = target;
        while room.has_remaining_mut() {
            match consumer.read(&mut room) {
                Ok(moved) if moved.bytes == 0 => spin_loop(),
                outcome => assert!(outcome.is_ok()),
            }
        }
        since.elapsed()
    }))
}
