//! `/metrics`: the server's figures, read when they are asked for.
//!
//! Invariant: labels have few values, whatever statements run: states, kinds and devices, never texts, tables or users.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use cleave_host::TransactionStatus;
use cleave_media::clock::process_cpu_time;

use super::HttpState;
use super::exposition::{CONTENT_TYPE, Exposition, Kind};

/// Answers with all figures.
pub(super) async fn metrics(State(state): State<HttpState>) -> Response {
    let mut exposition = Exposition::default();
    process(&mut exposition);
    sessions(&mut exposition, &state);
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], exposition.into_text()).into_response()
}

fn process(exposition: &mut Exposition) {
    let version = env!("CARGO_PKG_VERSION");
    let help = "The version of this program; always 1.";
    exposition.family("cleave_build_info", Kind::Gauge, help).sample(&[("version", version)], 1);
    let help = "Processor time of this process, in seconds.";
    let seconds = process_cpu_time().as_secs_f64();
    exposition.one("cleave_process_cpu_seconds_total", Kind::Counter, help, seconds);
    if let Some(bytes) = resident_bytes() {
        let help = "Memory of this process that is not swapped out.";
        exposition.one("cleave_process_resident_memory_bytes", Kind::Gauge, help, bytes);
    }
}

/// What the system says of this process's memory; None where it does not say it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes = kilobytes.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    kilobytes.checked_mul(1024)
}

fn sessions(exposition: &mut Exposition, state: &HttpState) {
    let seen = state.server.database.backends().seen();
    let help = "Sessions of PostgreSQL's protocol, by what they do.";
    let mut family = exposition.family("cleave_sessions", Kind::Gauge, help);
    for (name, rests) in [
        ("active", None),
        ("idle", Some(TransactionStatus::Idle)),
        ("idle in transaction", Some(TransactionStatus::Open)),
        ("idle in transaction (aborted)", Some(TransactionStatus::Failed)),
    ] {
        let count = seen.iter().filter(|session| session.doing.rests == rests).count();
        family.sample(&[("state", name)], count);
    }
    let help = "Sessions that the server takes at a time.";
    let limit = state.server.limits.session_count_max;
    exposition.one("cleave_sessions_max", Kind::Gauge, help, limit);
}
