//! Failed log-ins: a count of all, and a line of the log for each of a few a second.
//!
//! ```text
//!  greet, http::login ─▶ note ─┬─▶ the count              (/metrics)
//!                              ├─▶ a line                  the first of a second
//!                              └─▶ left out ─▶ look_after: "… failed log-ins more", a second later
//! ```
//!
//! Invariants: a line names the user as the client wrote him, cut to the length of a name, the client's address and the
//! listener, and no password, proof or token. Whatever clients try, the memory is that of a few numbers, and a second
//! has [`LINES_MAX`] lines and one.
//!
//! Source: `docs/reference/server.md`.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cleave_media::Stopwatch;
use tokio::sync::Notify;

use super::Server;

/// Lines of a second.
const LINES_MAX: u32 = 10;
/// The time for these.
const SECOND: Duration = Duration::from_secs(1);
/// Bytes of a user's name that a line shows.
const NAME_BYTES_MAX: usize = 63;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct FailedLogins {
    count: AtomicU64,
    lines: Mutex<Lines>,
    has_left_out: Notify,
}

#[derive(Debug, Default)]
struct Lines {
    /// Since the first line of this second.
    began: Option<Stopwatch>,
    /// Lines since then.
    written: u32,
    /// Log-ins without a line, of which the log does not yet say how many they are.
    left_out: u64,
}

impl FailedLogins {
    /// Notes that a client at `from` was not let in as `user` at this listener.
    pub(crate) fn note(&self, listener: &str, user: &str, from: Option<IpAddr>) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let has_line = self.lines().take();
        if !has_line {
            self.has_left_out.notify_one();
            return;
        }
        let user = user.get(..user.floor_char_boundary(NAME_BYTES_MAX)).unwrap_or_default();
        let address = from.map(|from| from.to_string()).unwrap_or_default();
        let address = address.as_str();
        tracing::warn!(target: "cleave", user, address, listener, "failed log-in");
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Logs how many had no line, if some had none.
    pub(super) fn tell_left_out(&self) {
        let left_out = std::mem::take(&mut self.lines().left_out);
        if left_out > 0 {
            tracing::warn!(target: "cleave", left_out, "failed log-ins more");
        }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    /// Whether one more log-in has a line.
    fn take(&mut self) -> bool {
        if self.began.as_ref().is_none_or(|began| began.elapsed() >= SECOND) {
            self.began = Some(Stopwatch::start());
            self.written = 0;
        }
        let has_room = self.written < LINES_MAX;
        match has_room {
            true => self.written += 1,
            false => self.left_out += 1,
        }
        has_room
    }
}

/// Logs how many had no line, a second after the first of them.
pub(super) async fn look_after(server: Arc<Server>) {
    loop {
        server.failed_logins.has_left_out.notified().await;
        tokio::time::sleep(SECOND).await;
        server.failed_logins.tell_left_out();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_has_a_few_lines_and_is_counted() {
        let logins = FailedLogins::default();
        for _ in 0..1000 {
            logins.note("postgres", &"ü".repeat(1000), None);
        }
        assert_eq!(logins.count(), 1000);
        let lines = logins.lines();
        assert!(lines.left_out > 0 && lines.written <= LINES_MAX, "{lines:?}");
        // A longer pause gives the next one a line.
        drop(lines);
        logins.lines().began = None;
        assert!(logins.lines().take());
        logins.tell_left_out();
        assert_eq!(logins.lines().left_out, 0);
    }
}
