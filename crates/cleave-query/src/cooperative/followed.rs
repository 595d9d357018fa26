//! How far a run is that a device makes alone: the device's answers in, progress out.
//!
//! The host has nothing to count itself before rows come, and of a fragment that writes none do. So it asks now and
//! then, as [`stealing`](super::stealing) does: a device that is told to keep more morsels than there are answers how
//! many it has begun. The end of the run counts what is missing.
//!
//! Invariants: a device counts for no more morsels than it was given, and what was counted stays, whatever it answers.
//! At most one question is under way, rows do not wait for it, and one that is lost with its link is the last. A device
//! that knows nothing of the run yet, or of no input that streams, is asked again.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use cleave_engine::device::Device;
use cleave_fragment::command::{Command, CommandHeader, Reply, Request};
use cleave_fragment::link::Link;
use cleave_fragment::progress::Progress;
use cleave_fragment::waiting;
use cleave_media::Stopwatch;
use futures::FutureExt;
use futures::future::{BoxFuture, Either, join_all, select};

/// Time from one question to the next: a person sees no more, and a device is not kept busy by it.
const PAUSE: Duration = Duration::from_millis(500);

/// A run that is followed.
pub(super) struct Followed {
    device: Arc<Device>,
    link: Arc<dyn Link>,
    run: CommandHeader,
    /// The input that streams through it.
    input: u32,
    counted: Counted,
    /// Since it was asked last, or began.
    asked: Stopwatch,
    asking: Option<BoxFuture<'static, Answer>>,
    /// Nothing more is asked.
    is_deaf: bool,
}

/// What became of a question.
enum Answer {
    Begun(u32),
    Unknown,
    Lost,
}

/// What was counted of the morsels of one run.
struct Counted {
    progress: Progress,
    morsel_count: u32,
    /// None: it is not known yet that there are any.
    begun: Option<u32>,
}

impl Followed {
    /// Of `run` on `device`, which has so many morsels of the input that streams; `progress` counts them.
    pub(super) fn new(
        device: Arc<Device>,
        link: Arc<dyn Link>,
        run: CommandHeader,
        (input, morsel_count): (u32, usize),
        progress: Progress,
    ) -> Self {
        let morsel_count = u32::try_from(morsel_count).unwrap_or(u32::MAX);
        let counted = Counted { progress, morsel_count, begun: None };
        let asked = Stopwatch::start();
        Self { device, link, run, input, counted, asked, asking: None, is_deaf: false }
    }

    /// Another run over the same morsels replaces the one before.
    pub(super) fn follow(&mut self, run: CommandHeader) {
        self.run = run;
        self.asking = None;
        self.is_deaf = false;
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
            std::future::pending::<Infallible>().await
        };
        match select(pin!(asking), pin!(rows)).await {
            Either::Left((never, _)) => match never {},
            Either::Right((rows, _)) => rows,
        }
    }

    /// The run has ended, with `kept` morsels done.
    pub(super) fn ended(&mut self, kept: u32) {
        self.counted.hear(kept);
        self.is_deaf = true;
    }

    /// Asks without an end; another call goes on where one was dropped.
    async fn ask(&mut self) -> Infallible {
        loop {
            if self.is_deaf {
                std::future::pending::<()>().await;
            }
            match &mut self.asking {
                Some(asking) => {
                    let answer = asking.await;
                    self.asking = None;
                    match answer {
                        Answer::Begun(begun) => self.counted.hear(begun),
                        Answer::Unknown => {}
                        Answer::Lost => self.is_deaf = true,
                    }
                }
                None => {
                    waiting::sleep(PAUSE.saturating_sub(self.asked.elapsed())).await;
                    self.asked = Stopwatch::start();
                    self.asking = Some(self.question());
                }
            }
        }
    }

    /// Asks how many morsels the device has begun.
    fn question(&self) -> BoxFuture<'static, Answer> {
        let header = CommandHeader { run: self.run.run, ..self.device.header() };
        let request = Request::Revoke { input: self.input, keep: u32::MAX };
        let link = Arc::clone(&self.link);
        async move {
            match link.call(Command::new(header, request)).await {
                Ok(Reply::Kept(kept)) => Answer::Begun(kept.lease.begun),
                Err(error) if error.device_error().is_some() => Answer::Unknown,
                Ok(_) | Err(_) => Answer::Lost,
            }
        }
        .boxed()
    }
}

impl Counted {
    /// The device says that it has begun so many.
    fn hear(&mut self, begun: u32) {
        let before = self.begun.unwrap_or_else(|| {
            self.progress.expect(u64::from(self.morsel_count));
            0
        });
        let begun = begun.min(self.morsel_count).max(before);
        self.progress.advance(u64::from(begun - before));
        self.begun = Some(begun);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_answer_of_a_device_makes_progress_go_back_or_beyond_all() {
        let progress = Progress::default();
        let mut counted = Counted { progress: progress.clone(), morsel_count: 10, begun: None };
        assert_eq!(progress.read(), (0, 0));
        for (said, shown) in [(0, 0), (4, 4), (1, 4), (4, 4), (9, 9), (u32::MAX, 10), (0, 10)] {
            counted.hear(said);
            assert_eq!(progress.read(), (shown, 10), "after {said}");
        }
        // Beside another run of the same statement.
        let mut other = Counted { progress: progress.clone(), morsel_count: 30, begun: None };
        other.hear(u32::MAX);
        counted.hear(u32::MAX);
        assert_eq!(progress.read(), (40, 40));
    }
}
