//! The threads that serve clients: assigns each connection to the one thread that will poll it.
//!
//! Each thread has one client as long as there are threads enough, and then a few: the thread with the fewest takes the
//! next. The system wakes it when its client speaks, and it handles the message by itself; a scheduler that moves tasks
//! between threads would wake a second one for each message. Rows are computed by other threads, so a client with a
//! large query does not delay those on the same thread.
//!
//! Source: `docs/design/server-and-security.md`.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Most threads: with more clients they are shared.
const THREAD_COUNT_MAX: usize = 64;

/// The threads. Dropping it ends them, and with them what they serve.
#[derive(Debug, Default)]
pub(super) struct Front {
    threads: Mutex<Vec<Thread>>,
}

/// A thread that runs the tasks given to it, and watches their sockets and timers, until it is dropped.
#[derive(Debug)]
pub(super) struct Thread {
    handle: Handle,
    clients: Arc<AtomicUsize>,
    /// Ends it when it is dropped.
    _end: oneshot::Sender<()>,
}

/// A client's place with a thread, freed when dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    handle: Handle,
    clients: Arc<AtomicUsize>,
}

impl Front {
    /// A place with the thread that has the fewest clients, or with a new one.
    ///
    /// # Errors
    /// If the system gives no first thread.
    pub(super) fn seat(&self) -> io::Result<Seat> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let count = |thread: &Thread| thread.clients.load(Ordering::Relaxed);
        let least = threads.iter().min_by_key(|thread| count(thread));
        let has_room = threads.len() < THREAD_COUNT_MAX;
        if least.is_none_or(|thread| count(thread) > 0 && has_room) {
            match Thread::start() {
                Ok(thread) => threads.push(thread),
                // The existing threads serve it too.
                Err(error) if threads.is_empty() => return Err(error),
                Err(_) => {}
            }
        }
        let least = threads.iter().min_by_key(|thread| count(thread));
        least.map(Thread::seat).ok_or_else(|| io::Error::other("there is no thread"))
    }
}

impl Thread {
    /// # Errors
    /// If the system gives none.
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .thread_stack_size(crate::STACK_BYTES)
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("cleave-front".to_owned());
        thread.stack_size(crate::STACK_BYTES).spawn(move || {
            // An error means that the other end was dropped.
            drop(runtime.block_on(ended));
            drop(runtime);
        })?;
        Ok(Self { handle, clients: Arc::default(), _end: end })
    }

    /// The handle to give it tasks.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    fn seat(&self) -> Seat {
        self.clients.fetch_add(1, Ordering::Relaxed);
        Seat { handle: self.handle.clone(), clients: Arc::clone(&self.clients) }
    }
}

impl Seat {
    /// The thread.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// How many clients the thread has.
    pub(crate) fn clients(&self) -> &Arc<AtomicUsize> {
        &self.clients
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_a_thread_of_its_own_while_there_are_enough_and_a_thread_that_is_free_is_used_again()
     {
        let front = Front::default();
        let seats: Vec<Seat> = (0..THREAD_COUNT_MAX).map(|_| front.seat().unwrap()).collect();
        assert!(seats.iter().all(|seat| seat.clients().load(Ordering::Relaxed) == 1));
        let more = front.seat().unwrap();
        assert_eq!(more.clients().load(Ordering::Relaxed), 2, "shared from here on");
        drop(seats);
        drop(more);
        let again: Vec<Seat> = (0..THREAD_COUNT_MAX).map(|_| front.seat().unwrap()).collect();
        assert_eq!(front.threads.lock().unwrap().len(), THREAD_COUNT_MAX);
        assert!(again.iter().all(|seat| seat.clients().load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn a_seat_runs_what_is_given_to_its_thread() {
        let front = Front::default();
        let seat = front.seat().unwrap();
        let named = seat.handle().spawn(async { std::thread::current().name().map(str::to_owned) });
        let name = futures::executor::block_on(named).unwrap();
        assert_eq!(name.as_deref(), Some("cleave-front"));
    }
}
