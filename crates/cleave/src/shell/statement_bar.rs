//! The bar of a statement that takes long: how much of its input was begun, and the time that is left if it goes on so.
//!
//! It is on standard error, and only if that is a terminal. It goes before anything else is shown.

use std::io::{self, IsTerminal};
use std::time::Duration;

use cleave_fragment::progress::Progress;
use cleave_media::clock::Stopwatch;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Time after which a statement gets a bar.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time from one look at the progress to the next.
pub(super) const PAUSE: Duration = Duration::from_millis(200);
/// Characters of the bar.
const WIDTH: usize = 30;
const WIDTH_OF_SHARE: u128 = 30;

/// The bar of one statement; dropping it removes it.
pub(super) struct StatementBar {
    /// None while the statement has not taken long.
    bar: Option<ProgressBar>,
    progress: Progress,
    stopwatch: Stopwatch,
}

impl StatementBar {
    /// A bar of a statement that begins now; None where nobody would see it.
    pub(super) fn new(progress: Progress, stopwatch: Stopwatch) -> Option<StatementBar> {
        io::stderr().is_terminal().then(|| StatementBar { bar: None, progress, stopwatch })
    }

    /// Shows how far the statement is, if it takes long.
    pub(super) fn show(&mut self) {
        let elapsed = self.stopwatch.elapsed();
        if elapsed >= PATIENCE {
            let message = message(elapsed, self.progress.read());
            self.bar.get_or_insert_with(new_bar).set_message(message);
        }
    }
}

impl Drop for StatementBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn new_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{msg}") {
        bar.set_style(style);
    }
    bar
}

fn message(elapsed: Duration, (done, total): (u64, u64)) -> String {
    let seconds = elapsed.as_secs();
    if total == 0 {
        return format!("{seconds} s");
    }
    if done >= total {
        // Rows may be sorted or joined after all were read.
        return format!("input read, {seconds} s");
    }
    let (done, total) = (u128::from(done), u128::from(total));
    let share = |of: u128| usize::try_from(of * done / total).unwrap_or(0);
    let filled = share(WIDTH_OF_SHARE).min(WIDTH);
    let bar = format!("{}{}", "█".repeat(filled), "░".repeat(WIDTH - filled));
    // What is begun last is not done.
    let left = elapsed.as_millis() * (total - done);
    let left = match left.checked_div(done) {
        Some(milliseconds) => format!(", {} s left", milliseconds.div_ceil(1000)),
        None => String::new(),
    };
    format!("{bar} {:3} %  {seconds} s{left}", share(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_share_that_is_done() {
        let shown = |seconds, progress| message(Duration::from_secs(seconds), progress);
        assert_eq!(shown(3, (0, 0)), "3 s");
        let half = format!("{}{}", "█".repeat(15), "░".repeat(15));
        assert_eq!(shown(4, (5, 10)), format!("{half}  50 %  4 s, 4 s left"));
        assert!(shown(4, (0, 10)).ends_with("░   0 %  4 s"), "nothing is known yet");
        assert_eq!(shown(4, (10, 10)), "input read, 4 s");
        assert!(shown(10, (u64::MAX / 2, u64::MAX)).ends_with(" 49 %  10 s, 10 s left"));
    }
}
