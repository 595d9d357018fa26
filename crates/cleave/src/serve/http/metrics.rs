//! `/metrics`: the server's figures, read when they are asked for.
//!
//! 1. [`metrics`] asks the devices, for a short time, and then adds one family after the other: the process, its
//!    sessions, what the database counts, and [`devices`].
//! 2. The figures themselves are kept by those whose work they count: the tables of the schema `cleave` show most of
//!    them as well.
//!
//! Invariants: labels have few values, whatever statements run: states, kinds and devices, never texts, tables or
//! users. Units are in the names. What a device does not tell has no sample.

mod devices;
mod statements;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use cleave_host::device::health;
use cleave_host::{Database, TransactionStatus};
use cleave_media::clock::process_cpu_time;

use super::HttpState;
use super::exposition::{CONTENT_TYPE, Exposition, Kind};
use super::health::DEVICE_TIME_MAX;

/// Answers with all figures.
pub(super) async fn metrics(State(state): State<HttpState>) -> Response {
    let database = &state.server.database;
    let asked = health::asked_within(database.storage(), DEVICE_TIME_MAX).await;
    let mut exposition = Exposition::default();
    process(&mut exposition);
    sessions(&mut exposition, &state);
    statements::statements(&mut exposition, database);
    log(&mut exposition, database);
    pool(&mut exposition, database);
    work(&mut exposition, database);
    tables(&mut exposition, database);
    devices::devices(&mut exposition, database, &asked);
    if let Some(traces) = &state.server.traces {
        let help = "Spans of traces that could not be sent.";
        let lost = traces.lost_count();
        exposition.one("cleave_trace_spans_lost_total", Kind::Counter, help, lost);
    }
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
    let help = "Log-ins that were refused, at all listeners.";
    let failed = state.server.failed_logins.count();
    exposition.one("cleave_logins_failed_total", Kind::Counter, help, failed);
}

fn log(exposition: &mut Exposition, database: &Database) {
    let help = "Whether statements may write; 0 once the database has stopped.";
    let may_write = u8::from(database.may_write());
    exposition.one("cleave_writable", Kind::Gauge, help, may_write);
    let Some(log) = database.log() else { return };
    let figures = log.figures();
    let help = "Records appended to the log.";
    exposition.one("cleave_log_records_total", Kind::Counter, help, figures.record_count);
    let help = "Bytes written to the log.";
    exposition.one("cleave_log_written_bytes_total", Kind::Counter, help, figures.bytes_written);
    let help = "Syncs of the log.";
    exposition.one("cleave_log_syncs_total", Kind::Counter, help, figures.sync_count);
    let help = "Commits in the log since the last checkpoint.";
    let behind = database.logged_count();
    exposition.one("cleave_log_commits_since_checkpoint", Kind::Gauge, help, behind);
}

fn pool(exposition: &mut Exposition, database: &Database) {
    let pool = database.buffer_pool().status();
    let help = "Look-ups in the buffer pool, by whether it had the part of a page.";
    let mut family = exposition.family("cleave_buffer_pool_lookups_total", Kind::Counter, help);
    family.sample(&[("found", "yes")], pool.hits);
    family.sample(&[("found", "no")], pool.misses);
    let help = "Bytes of the parts that the buffer pool had.";
    exposition.one("cleave_buffer_pool_hit_bytes_total", Kind::Counter, help, pool.hit_bytes);
    let help = "Bytes put into the buffer pool.";
    exposition.one("cleave_buffer_pool_loaded_bytes_total", Kind::Counter, help, pool.loaded_bytes);
    let help = "Parts evicted from the buffer pool.";
    exposition.one("cleave_buffer_pool_evictions_total", Kind::Counter, help, pool.evictions);
    let help = "Bytes that the buffer pool has.";
    exposition.one("cleave_buffer_pool_bytes", Kind::Gauge, help, pool.bytes);
    let help = "Bytes that the buffer pool may have.";
    exposition.one("cleave_buffer_pool_max_bytes", Kind::Gauge, help, pool.budget_bytes);
}

fn work(exposition: &mut Exposition, database: &Database) {
    let help = "What statements have done, as in the table cleave.activity.";
    let mut family = exposition.family("cleave_activity_total", Kind::Counter, help);
    for (what, count) in database.activity().counts() {
        family.sample(&[("what", what)], count);
    }
    let locks = database.locks().figures();
    let help = "Requests for locks that had to wait.";
    exposition.one("cleave_lock_waits_total", Kind::Counter, help, locks.waits);
    let help = "Statements that failed because they closed a deadlock cycle.";
    exposition.one("cleave_deadlocks_total", Kind::Counter, help, locks.deadlocks);
    let [held, sets] = database.held_results();
    let help = "Results that are held, by the place of their rows.";
    let mut family = exposition.family("cleave_held_results", Kind::Gauge, help);
    family.sample(&[("place", "host")], held.0);
    family.sample(&[("place", "devices")], sets.0);
    let help = "Bytes of results that are held, by the place of their rows.";
    let mut family = exposition.family("cleave_held_results_bytes", Kind::Gauge, help);
    family.sample(&[("place", "host")], held.1);
    family.sample(&[("place", "devices")], sets.1);
    let history = database.filter_history().figures();
    let help = "Questions to the host's filter history, by whether it had the answer.";
    let mut family = exposition.family("cleave_filter_history_lookups_total", Kind::Counter, help);
    family.sample(&[("found", "yes")], history.hits);
    family.sample(&[("found", "no")], history.misses);
    let help = "Bytes of the host's filter history.";
    exposition.one("cleave_filter_history_bytes", Kind::Gauge, help, history.bytes);
}

/// Sums over all tables: one may make any number of them.
fn tables(exposition: &mut Exposition, database: &Database) {
    let state = database.catalog();
    let (mut count, mut live, mut dead) = (0_u64, 0_u64, 0_u64);
    let (mut vacuums, mut analyses) = ([0_u64; 2], [0_u64; 2]);
    for table in state.tables() {
        let id = table.schema.table_id;
        count += 1;
        live = live.saturating_add(table.row_count());
        dead += table.tablets.iter().map(|tablet| tablet.dead_row_count()).sum::<u64>();
        let (done, seen) = (database.vacuums.of(id), database.analyses.of(id));
        vacuums = [vacuums[0] + done.by_statement.0, vacuums[1] + done.by_itself.0];
        analyses = [analyses[0] + seen.by_statement.0, analyses[1] + seen.by_itself.0];
    }
    exposition.one("cleave_tables", Kind::Gauge, "Tables.", count);
    let help = "Rows of all tables, as of the last flush of each.";
    exposition.one("cleave_table_rows", Kind::Gauge, help, live);
    let help = "Row versions of all tables that VACUUM would remove.";
    exposition.one("cleave_table_dead_rows", Kind::Gauge, help, dead);
    for (name, help, [by_statement, by_itself]) in [
        ("cleave_vacuums_total", "Vacuums of the present tables, by who began them.", vacuums),
        ("cleave_analyzes_total", "Analyses of the present tables, by who began them.", analyses),
    ] {
        let mut family = exposition.family(name, Kind::Counter, help);
        family.sample(&[("by", "statement")], by_statement);
        family.sample(&[("by", "server")], by_itself);
    }
}
