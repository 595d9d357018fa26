//! Ends the threads of a runtime whose last holder must not wait for them, because it is asynchronous.
//!
//! Invariant: every thread is joined, none is detached. `Runtime::shutdown_background` detaches threads that are about
//! to end, and glibc (2.36, for one) reads a thread's descriptor after it has detached it: if the thread has ended by
//! then, and its stack is unmapped, the process dies of SIGSEGV
//! (<https://sourceware.org/bugzilla/show_bug.cgi?id=19951>).

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::runtime::Runtime;

/// Threads that wait for the threads of a runtime.
static ENDING: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

/// Drops `runtime` on a thread of its own: its tasks end at their next await, its blocking work when it is done.
pub fn end_in_background(runtime: Runtime) {
    let runtime = Arc::new(Mutex::new(Some(runtime)));
    let take = |runtime: &Mutex<Option<Runtime>>| {
        runtime.lock().unwrap_or_else(PoisonError::into_inner).take()
    };
    let theirs = Arc::clone(&runtime);
    let thread = std::thread::Builder::new().name("cleave-ending".to_owned());
    match thread.spawn(move || drop(take(&theirs))) {
        Ok(thread) => {
            let mut ending = ENDING.lock().unwrap_or_else(PoisonError::into_inner);
            for ended in ending.extract_if(.., |thread| thread.is_finished()) {
                // A panic of a runtime's drop was printed, and concerns nobody here.
                drop(ended.join());
            }
            ending.push(thread);
        }
        // The system has no thread left: the rare crash is better than to wait here.
        Err(_) => {
            if let Some(runtime) = take(&runtime) {
                #[expect(clippy::disallowed_methods, reason = "nothing else is left to do")]
                runtime.shutdown_background();
            }
        }
    }
}
