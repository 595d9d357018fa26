//! `--traces`: a span for each statement and each fragment, sent to a collector.

use std::sync::Arc;

use cleave_fragment::trace::SpanSink;
use cleave_host::Database;
use cleave_host::statements;
use cleave_traces::{Collector, Traces};

use crate::failure::Failure;

/// Traces this `share` of the statements of `database`, of this name, and so many a second at most, to `collector` from
/// now on.
pub(super) fn begin(
    collector: Collector,
    (share, per_second_max): (f64, u32),
    database: &Database,
    name: &str,
) -> Result<Arc<Traces>, Failure> {
    let url = collector.url().to_owned();
    let tell = |line: &str| tracing::warn!(target: "cleave", "{line}");
    let named = [("cleave.database", name.to_owned())];
    let traces = Traces::begin(collector, "cleave", named, Box::new(tell))
        .map_err(|error| Failure::Device(error.to_string()))?;
    let sink = Arc::clone(&traces) as Arc<dyn SpanSink>;
    // Nobody else traces them.
    database.statements().trace(statements::Traces::new(sink, share, per_second_max));
    tracing::info!(target: "cleave", "traces go to {url}");
    Ok(traces)
}
