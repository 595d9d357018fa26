//! How far a run is that a device makes alone: it is asked while the host waits for its rows.
//!
//! The host has nothing to count itself before rows come, and of a fragment that writes none do. So it asks now and
//! then how far the [run](OngoingRun) is, which counts. The end of the run counts what is missing.
//!
//! Invariants: at most one question is under way, and rows do not wait for it.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, OnceLock};

use cleave_fragment::waiting;
use cleave_media::Stopwatch;
use futures::FutureExt;
use futures::future::{BoxFuture, Either, join_all, select};

use super::ongoing_run::{OngoingRun, PAUSE};

/// A run that is followed.
pub(super) struct Followed {
    /// Empty until it has begun.
    run: Arc<OnceLock<OngoingRun>>,
    /// Since it was asked last, or is waited for.
    asked: Stopwatch,
    asking: Option<BoxFuture<'static, ()>>,
}

impl Followed {
    /// Of `run`, which is put there when it begins.
    pub(super) fn new(run: Arc<OnceLock<OngoingRun>>) -> Self {
        Self { run, asked: Stopwatch::start(), asking: None }
    }

    /// Of a run that has begun.
    pub(super) fn of_begun(run: OngoingRun) -> Self {
        Self::new(Arc::new(OnceLock::from(run)))
    }

    /// What `rows` gives; meanwhile the device is asked. Cancel-safe if `rows` is.
    pub(super) async fn beside<T>(&mut self, rows: impl Future<Output = T>) -> T {
        // Rows may be ready each time, and answers are looked at all the same.
        match select(pin!(self.ask()), pin!(rows)).await {
            Either::Left((never, _)) => match never {},
            Either::Right((rows, _)) => rows,
        }
    }

    /// The same of several runs, if there are any.
    pub(super) async fn all_beside<T>(all: Vec<&mut Self>, rows: impl Future<Output = T>) -> T {
        let asking = join_all(all.into_iter().map(Self::ask));
        let asking = async {
            // It ends only if there is none.
            asking.await;
            pending::<Infallible>().await
        };
        match select(pin!(asking), pin!(rows)).await {
            Either::Left((never, _)) => match never {},
            Either::Right((rows, _)) => rows,
        }
    }

    /// Another run over the same morsels replaces the one before.
    pub(super) fn begins_again(&mut self) {
        self.asking = None;
    }

    /// The run has ended, with `kept` morsels done.
    pub(super) fn ended(&self, kept: u32) {
        if let Some(run) = self.run.get() {
            run.ended(kept);
        }
    }

    /// Asks without an end; another call goes on where one was dropped.
    async fn ask(&mut self) -> Infallible {
        loop {
            if let Some(asking) = &mut self.asking {
                asking.await;
                self.asking = None;
            }
            if self.run.get().is_some_and(OngoingRun::is_over) {
                pending::<()>().await;
            }
            waiting::sleep(PAUSE.saturating_sub(self.asked.elapsed())).await;
            self.asked = Stopwatch::start();
            let run = self.run.get().cloned();
            self.asking = run.map(|run| async move { run.ask().await }.boxed());
        }
    }
}
