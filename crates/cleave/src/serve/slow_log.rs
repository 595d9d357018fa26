//! The log of slow statements: each that has taken as long as the server was told, when it ends.
//!
//! Invariant: a statement is logged without its constants, unless the server was told otherwise, and then only those of
//! statements over rows: no password and no token is ever logged.

use std::time::Duration;

use cleave_host::statements::{SlowStatement, SlowStatements, StatementEnd};

/// Logs statements that take `least` or longer; those over rows with their constants, if that `has_constants`.
pub(super) fn slow_statements(least: Duration, has_constants: bool) -> SlowStatements {
    SlowStatements { least, has_values: has_constants, tell: Box::new(log) }
}

fn log(slow: &SlowStatement<'_>) {
    let (outcome, sqlstate) = match slow.end {
        StatementEnd::Done => ("done", "00000"),
        StatementEnd::Failed(sqlstate) => ("failed", sqlstate),
        StatementEnd::Dropped => ("dropped", "57014"),
    };
    tracing::info!(
        target: "cleave",
        duration_ms = slow.elapsed.as_secs_f64() * 1e3,
        rows = slow.rows,
        split = slow.cost.split.as_deref().unwrap_or("none"),
        link_bytes = slow.cost.link_bytes,
        device_cpu_ms = slow.cost.device_cpu_ms,
        user = slow.user,
        pid = slow.backend,
        outcome,
        sqlstate,
        statement = slow.text,
        "slow statement"
    );
}
