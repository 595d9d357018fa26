//! Every interleaving of a few writers, some that block and some that await, and of the log's own thread: all finish,
//! and none before its record is durable.

use std::collections::HashSet;

use super::*;

/// The state of a writer. Each step is one that the mutex makes indivisible.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum At {
    /// Before it appends, with so many more to append.
    Append { left: u8 },
    /// About to check whether its record is durable.
    Look { left: u8, end: Lsn },
    /// On a condition variable.
    Asleep { left: u8, end: Lsn, odd: bool },
    /// Leads, outside of the mutex.
    Leads { left: u8, end: Lsn },
    /// Pending, with a waker.
    Pending { left: u8, end: Lsn },
    /// Done; whether with an error.
    Done { failed: bool },
}

/// The state of the log's own thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Thread {
    Looks,
    Asleep,
    Leads,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    progress: Progress,
    /// The end of the appended records.
    end: Lsn,
    /// Syncs until one fails.
    fuse: u8,
    writers: Vec<(bool, At)>,
    thread: Thread,
}

impl World {
    fn new(blocking: usize, awaiting: usize, records: u8, fuse: u8) -> Self {
        let kinds = [vec![false; blocking], vec![true; awaiting]].concat();
        let writers = kinds.into_iter().map(|awaits| (awaits, At::Append { left: records }));
        Self {
            progress: Progress::new(Lsn(0)),
            end: Lsn(0),
            fuse,
            writers: writers.collect(),
            thread: Thread::Looks,
        }
    }

    /// The states after one step of any thread.
    fn steps(&self) -> Vec<Self> {
        let mut after = Vec::new();
        for index in 0..self.writers.len() {
            let (awaits, at) = self.writers[index].clone();
            let mut world = self.clone();
            match at {
                At::Append { left } => {
                    world.end.0 += 1;
                    world.writers[index].1 = At::Look { left: left - 1, end: world.end };
                    after.push(world);
                }
                At::Look { left, end } => {
                    let next = world.progress.next(end);
                    world.writers[index].1 = match next {
                        Next::Durable if left > 0 => At::Append { left },
                        Next::Durable => At::Done { failed: false },
                        Next::Failed(_) => At::Done { failed: true },
                        Next::Lead | Next::Wait { .. } if awaits => {
                            if world.progress.want(end) && world.thread == Thread::Asleep {
                                world.thread = Thread::Looks;
                            }
                            At::Pending { left, end }
                        }
                        Next::Lead => {
                            world.progress.begin(world.end);
                            At::Leads { left, end }
                        }
                        Next::Wait { turn } => At::Asleep { left, end, odd: turn % 2 == 1 },
                    };
                    after.push(world);
                }
                At::Leads { left, end } => {
                    world.writers[index].1 = At::Look { left, end };
                    after.extend(world.finished());
                }
                At::Asleep { .. } | At::Pending { .. } | At::Done { .. } => {}
            }
        }
        let mut world = self.clone();
        match self.thread {
            Thread::Looks if world.progress.is_asked() => {
                world.progress.begin(world.end);
                world.thread = Thread::Leads;
                after.push(world);
            }
            Thread::Looks => {
                world.thread = Thread::Asleep;
                after.push(world);
            }
            Thread::Leads => {
                world.thread = Thread::Looks;
                after.extend(world.finished());
            }
            Thread::Asleep => {}
        }
        after
    }

    /// The states after a sync: one for each thread that may be woken.
    fn finished(mut self) -> Vec<Self> {
        let fails = self.fuse == 1;
        self.fuse = self.fuse.saturating_sub(1);
        let outcome = if fails { Err("failed".to_owned()) } else { Ok(()) };
        let wake = self.progress.finish(outcome);
        if wake.thread && self.thread == Thread::Asleep {
            self.thread = Thread::Looks;
        }
        let mut ones = Vec::new();
        for (index, (_, at)) in self.writers.iter_mut().enumerate() {
            match *at {
                At::Asleep { left, end, odd } => {
                    if odd == (wake.ended % 2 == 1) || wake.all_of_next {
                        *at = At::Look { left, end };
                    } else {
                        ones.push((index, At::Look { left, end }));
                    }
                }
                At::Pending { left, end } if fails || end <= self.progress.durable() => {
                    *at = At::Look { left, end };
                }
                _ => {}
            }
        }
        if ones.is_empty() {
            return vec![self];
        }
        let woken = ones.into_iter().map(|(index, at)| {
            let mut world = self.clone();
            world.writers[index].1 = at;
            world
        });
        woken.collect()
    }
}

fn explore(first: World) -> usize {
    let fails = first.fuse > 0;
    let mut seen = HashSet::from([first.clone()]);
    let mut ahead = vec![first];
    while let Some(world) = ahead.pop() {
        let leaders = world.writers.iter().filter(|(_, at)| matches!(at, At::Leads { .. })).count();
        assert!(leaders + usize::from(world.thread == Thread::Leads) <= 1, "{world:?}");
        let steps = world.steps();
        if steps.is_empty() {
            for (_, at) in &world.writers {
                assert!(matches!(at, At::Done { failed } if fails || !failed), "stuck: {world:?}");
            }
        }
        for step in steps {
            if seen.insert(step.clone()) {
                ahead.push(step);
            }
        }
    }
    seen.len()
}

#[test]
fn all_interleavings_come_to_an_end() {
    let mut count = 0;
    for (blocking, awaiting, records) in [(3, 0, 2), (4, 0, 1), (2, 1, 2), (1, 2, 2), (2, 2, 1)] {
        for fuse in 0..3 {
            count += explore(World::new(blocking, awaiting, records, fuse));
        }
    }
    assert!(count > 1000, "only {count} worlds were looked at");
}
