//! What all connections of a process share: the runtime that statements run on, and how threads of Python wait for it.
//!
//! 1. [`wait`] hands work to the runtime. The calling thread gives Python's lock back, and takes it every
//!    [`LOOK`] to see whether Ctrl-C was pressed; then the work is told to stop.
//! 2. [`Own`] holds what belongs to the process. In a fork, which has none of the threads, it is neither used nor
//!    dropped: dropping it could wait for a thread that does not exist.
//!
//! Invariant: the runtime is made once, when it is first needed, and lives as long as the process.

use std::hint::black_box;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cleave_media::clock::Stopwatch;
use futures::future::BoxFuture;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, RwLock};

use crate::databases::Databases;
use crate::errors;

/// How often a waiting thread looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);
/// How long a statement that was stopped is waited for.
const STOPPING: Duration = Duration::from_secs(10);
/// The block that [`reuse_freed_memory`] frees.
const LEARNT_BYTES: usize = 31 << 20;
/// Stack of the threads that parse and plan, as in the program: unused stack takes no memory.
const STACK_BYTES: usize = 32 << 20;

static PROCESS: OnceLock<Process> = OnceLock::new();

/// What all connections of a process share.
pub(crate) struct Process {
    /// Number of the process that made it.
    id: u32,
    runtime: Runtime,
    /// The databases that are open.
    pub(crate) databases: Databases,
    /// Read-locked by each connection that closes in the background.
    closing: Arc<RwLock<()>>,
}

/// Units of its input that a statement has begun, and all that are known.
pub(crate) type Count = Arc<dyn Fn() -> (u64, u64) + Send + Sync>;

/// Tells Python's code how far a statement is.
pub(crate) struct Tick<'py> {
    /// `tick(seconds, begun, all)`.
    pub(crate) call: Bound<'py, PyAny>,
    pub(crate) count: Option<Count>,
}

/// What belongs to the process that made it.
pub(crate) struct Own<T> {
    process: u32,
    /// None only while it is dropped.
    value: Option<T>,
}

/// The process; its runtime is made now if there is none.
///
/// # Errors
/// In a fork of a process that has used it; where there are no threads.
pub(crate) fn process(py: Python<'_>) -> PyResult<&'static Process> {
    if let Some(process) = PROCESS.get() {
        return match process.id == std::process::id() {
            true => Ok(process),
            false => Err(forked(py)),
        };
    }
    reuse_freed_memory();
    let mut builder = Builder::new_multi_thread();
    let built = builder.thread_stack_size(STACK_BYTES).thread_name("cleave").enable_all().build();
    let runtime = built.map_err(|error| {
        errors::made(py, "53000", &format!("no threads to run on: {error}"), None)
    })?;
    let (databases, closing) = (Databases::default(), Arc::new(RwLock::new(())));
    let process = Process { id: std::process::id(), runtime, databases, closing };
    // If another thread has made one meanwhile, this one ends.
    Ok(PROCESS.get_or_init(|| process))
}

/// Has the C library's allocator use memory again that rows and pages have freed. By itself it returns more than
/// 128 KiB to the system at once, and the next result then waits for the kernel to clear every page of it. The
/// allocator of glibc learns from the largest block that is freed, up to 32 MiB; for others this does nothing. No page
/// of the block is touched.
fn reuse_freed_memory() {
    drop(black_box(Vec::<u8>::with_capacity(LEARNT_BYTES)));
}

/// The process, if it was made here.
fn own_process() -> Option<&'static Process> {
    PROCESS.get().filter(|process| process.id == std::process::id())
}

/// The databases that this process has open.
pub(crate) fn databases() -> Option<&'static Databases> {
    own_process().map(|process| &process.databases)
}

/// The lock of the connections that close in the background, if there may be any.
pub(crate) fn closing() -> Option<Arc<RwLock<()>>> {
    own_process().map(|process| Arc::clone(&process.closing))
}

/// The error of a fork.
pub(crate) fn forked(py: Python<'_>) -> PyErr {
    let message = "this process was forked from one that uses Cleave, and has none of its threads";
    let hint = "start processes with multiprocessing's method \"spawn\" or \"forkserver\"";
    errors::made(py, errors::UNUSABLE, message, Some(hint))
}

/// What `work` gives. Ctrl-C notifies `stop`. `tick` is called about every [`LOOK`].
///
/// # Errors
/// `KeyboardInterrupt` and what else signal handlers raise; those of [`process`]; what `tick` raises.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    stop: &Notify,
    tick: Option<&Tick<'_>>,
    work: BoxFuture<'static, T>,
) -> PyResult<T> {
    let process = process(py)?;
    let (give, mut take) = mpsc::sync_channel(1);
    drop(process.runtime.spawn(async move { give.send(work.await).is_ok() }));
    let stopwatch = Stopwatch::start();
    loop {
        let (back, got) = py.detach(move || {
            let got = take.recv_timeout(LOOK);
            (take, got)
        });
        take = back;
        match got {
            Ok(done) => return Ok(done),
            Err(RecvTimeoutError::Disconnected) => {
                let message = "a statement broke off by a defect; standard error says where";
                return Err(errors::made(py, errors::INTERNAL, message, None));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let told = match tick {
            Some(Tick { call, count }) => {
                let (begun, all) = count.as_ref().map_or((0, 0), |count| count());
                call.call1((stopwatch.elapsed().as_secs_f64(), begun, all)).map(drop)
            }
            None => Ok(()),
        };
        if let Err(interrupt) = py.check_signals().and(told) {
            stop.notify_one();
            // Its outcome is not told. What it holds may end tasks.
            let outcome = py.detach(move || take.recv_timeout(STOPPING));
            let _runtime = process.runtime.enter();
            drop(outcome);
            return Err(interrupt);
        }
    }
}

/// As [`wait`] for a caller who may be any thread, with or without Python's lock, and who cannot take an exception.
/// After Ctrl-C, Python raises `KeyboardInterrupt` once its code runs again.
///
/// # Errors
/// The exception's text; none waits where Python is at its end.
pub(crate) fn wait_anywhere<T: Send + 'static>(
    stop: &Notify,
    work: BoxFuture<'static, T>,
) -> Result<T, String> {
    let waited = Python::try_attach(|py| {
        wait(py, stop, None, work).map_err(|error| {
            if error.is_instance_of::<PyKeyboardInterrupt>(py) {
                // Where it cannot, the text says so.
                drop(py.import("_thread").and_then(|thread| thread.call_method0("interrupt_main")));
                return "interrupted by Ctrl-C".to_owned();
            }
            match error.value(py).str() {
                Ok(text) => text.to_string(),
                Err(_) => "interrupted".to_owned(),
            }
        })
    });
    waited.unwrap_or_else(|| Err("the interpreter ends".to_owned()))
}

/// Has the runtime do `work`, which nobody waits for except [`Process::closing`].
pub(crate) fn in_background(work: BoxFuture<'static, ()>) {
    let Some(process) = own_process() else { return };
    let Ok(closing) = Arc::clone(&process.closing).try_read_owned() else { return };
    drop(process.runtime.spawn(async move {
        work.await;
        drop(closing);
    }));
}

impl<T> Own<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: std::process::id(), value: Some(value) }
    }

    /// The value.
    ///
    /// # Errors
    /// In a fork.
    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<&T> {
        self.here().ok_or_else(|| forked(py))
    }

    /// The value; None: this is a fork.
    pub(crate) fn here(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.process == std::process::id())
    }

    /// The value, if this is no fork.
    pub(crate) fn take(&mut self) -> Option<T> {
        match self.process == std::process::id() {
            true => self.value.take(),
            false => None,
        }
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        let Some(value) = self.value.take() else { return };
        if self.process == std::process::id() {
            // What it holds may end tasks.
            let _runtime = own_process().map(|process| process.runtime.enter());
            drop(value);
        } else {
            let _never_dropped = Box::leak(Box::new(value));
        }
    }
}
