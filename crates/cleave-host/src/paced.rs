//! Work in the background at a pace: a future that rests after each piece of its work, so that statements of users get
//! most of the processor.
//!
//! A piece is what the future does between two points where it yields. What it has spawned is not slowed down.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use cleave_media::clock::Stopwatch;
use tokio::time::{Sleep, sleep};

/// Times that a piece took for which the future rests behind it: it works for a quarter of the time.
const REST: u32 = 3;
/// Shorter pieces are not work: the future has waited for something.
const PIECE_MIN: Duration = Duration::from_micros(200);

/// See the module's description.
pub(crate) struct Paced<F> {
    work: Pin<Box<F>>,
    rest: Option<Pin<Box<Sleep>>>,
}

impl<F: Future> Paced<F> {
    /// `work` at a pace.
    pub(crate) fn new(work: F) -> Self {
        Self { work: Box::pin(work), rest: None }
    }
}

impl<F: Future> Future for Paced<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        loop {
            if let Some(rest) = &mut self.rest {
                if rest.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                self.rest = None;
            }
            let stopwatch = Stopwatch::start();
            let polled = self.work.as_mut().poll(context);
            let piece = stopwatch.elapsed();
            if polled.is_ready() || piece < PIECE_MIN {
                return polled;
            }
            // Polled at once, which has it wake this task; the work may have woken it already.
            self.rest = Some(Box::pin(sleep(piece * REST)));
        }
    }
}

impl<F> fmt::Debug for Paced<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paced").field("rests", &self.rest.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    //! How long paced work takes.

    use super::*;

    #[tokio::test]
    async fn work_takes_a_quarter_of_the_time_and_its_result_comes_at_once() {
        let stopwatch = Stopwatch::start();
        let mut worked = Duration::ZERO;
        let work = async {
            for _ in 0..5 {
                let piece = Stopwatch::start();
                while piece.elapsed() < Duration::from_millis(2) {
                    std::hint::spin_loop();
                }
                worked += piece.elapsed();
                tokio::task::yield_now().await;
            }
            7
        };
        assert_eq!(Paced::new(work).await, 7);
        // Behind each yield but not behind the end.
        assert!(stopwatch.elapsed() >= worked * (1 + REST), "{:?}", stopwatch.elapsed());
    }
}
