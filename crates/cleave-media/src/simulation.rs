//! The interface by which a simulator replaces a thread's time, randomness, waiting and files.
//!
//! [`enter`] installs a [`World`]. From then on [`crate::SystemClock`], [`crate::random_bytes`] and [`crate::files`]
//! call it, on this thread and until the guard is dropped. Crates with a runtime check [`is_active`]: they then run on
//! this one thread the work for which they would start threads, and wait for time by [`wake_at`].
//!
//! Invariant: a thread without a world is not affected, and pays for one read of a thread-local cell.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use crate::files::Files;

/// The environment of a simulated thread.
pub trait World {
    /// Time since the world began; never goes back.
    fn now(&self) -> Duration;

    /// Microseconds since 1970-01-01T00:00:00Z.
    fn wall(&self) -> i64;

    /// Fills `bytes` from the seed.
    fn fill_random(&self, bytes: &mut [u8]);

    /// Wakes `waker` once it is `at`.
    fn wake_at(&self, at: Duration, waker: Waker);

    /// The files of the host.
    fn files(&self) -> &dyn Files;

    /// Called when the program begins the step `name` of a protocol; has no effect by default.
    ///
    /// # Errors
    /// An error with which the step is to fail, if the program can fail there.
    fn step(&self, _name: &'static str) -> std::io::Result<()> {
        Ok(())
    }
}

thread_local! {
    static WORLD: RefCell<Option<Rc<dyn World>>> = const { RefCell::new(None) };
}

/// Lets `world` own this thread until the guard is dropped.
#[must_use]
pub fn enter(world: Rc<dyn World>) -> Entered {
    Entered { before: WORLD.replace(Some(world)) }
}

/// Whether a simulator owns this thread.
#[must_use]
pub fn is_active() -> bool {
    WORLD.with_borrow(Option::is_some)
}

/// Wakes `waker` once it is `at` in the world that owns this thread; at once where none does.
pub fn wake_at(at: Duration, waker: Waker) {
    match current() {
        Some(world) => world.wake_at(at, waker),
        None => waker.wake(),
    }
}

/// Tells the world that owns this thread, if any, that the step `name` of a protocol begins.
///
/// # Errors
/// The error that the world injects.
pub fn step(name: &'static str) -> std::io::Result<()> {
    current().map_or(Ok(()), |world| world.step(name))
}

/// The world that owns this thread.
pub(crate) fn current() -> Option<Rc<dyn World>> {
    WORLD.with_borrow(Option::clone)
}

/// Gives the thread back when dropped.
pub struct Entered {
    before: Option<Rc<dyn World>>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        WORLD.set(self.before.take());
    }
}

impl fmt::Debug for Entered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entered")
    }
}

#[cfg(test)]
mod tests;
