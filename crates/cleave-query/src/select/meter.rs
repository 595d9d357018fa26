//! What a query costs: totals of the process, its links and its devices when it began, and what they have become.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cleave_catalog::error::Result;
use cleave_engine::buffer_pool::PoolStatus;
use cleave_fragment::link::AttachMode;
use cleave_media::clock::{Stopwatch, process_cpu_time};

use super::PlannedQuery;
use super::prescribed;
use super::statement_context::StatementContext;
use crate::cooperative::figures::QueryFigures;

/// Totals when a query began.
pub(super) struct Meter {
    stopwatch: Stopwatch,
    process_cpu: Duration,
    traffic_received: u64,
    traffic_sent: u64,
    pool: PoolStatus,
    pub(super) media_bytes: Option<u64>,
    /// Time for the query to begin, and then in which rows were asked for.
    pub(super) asked: Duration,
}

impl Meter {
    pub(super) async fn start(
        contexts: &[Arc<StatementContext>],
        measure_media: bool,
    ) -> Result<Self> {
        let media_bytes = if measure_media { Some(media_bytes(contexts).await?) } else { None };
        let (traffic_received, traffic_sent) = traffic(contexts);
        Ok(Self {
            stopwatch: Stopwatch::start(),
            process_cpu: process_cpu_time(),
            traffic_received,
            traffic_sent,
            pool: contexts
                .first()
                .map(|context| context.database().buffer_pool().status())
                .unwrap_or_default(),
            media_bytes,
            asked: Duration::ZERO,
        })
    }

    /// All until now was for the query alone: its stages have run, and no row was asked for.
    pub(super) fn begun(&mut self) {
        self.asked = self.stopwatch.elapsed();
    }

    /// The totals that need no request to a device.
    pub(super) fn read(&self, query: &PlannedQuery, rows: u64) -> QueryFigures {
        let elapsed = self.stopwatch.elapsed();
        let process_cpu = process_cpu_time().saturating_sub(self.process_cpu);
        let (context, contexts) = (&query.context, query.contexts());
        let (received, sent) = traffic(&contexts);
        let of_all = contexts.iter().flat_map(|context| context.figures().fragments());
        let fragments: Vec<_> = of_all.collect();
        let reports = || fragments.iter().filter_map(|fragment| fragment.report.as_ref());
        let by_others = fragments.iter().flat_map(|fragment| &fragment.done_by_others);
        let device_cpu = reports().map(|report| report.cpu).sum::<Duration>()
            + by_others.map(|done| done.cpu).sum::<Duration>();
        let embedded_cpu: Duration = fragments
            .iter()
            .filter(|fragment| is_embedded(context, &fragment.device))
            .filter_map(|fragment| fragment.report.as_ref())
            .map(|report| report.cpu)
            .sum();
        let taken = fragments.iter().filter(|fragment| !fragment.is_for_devices);
        let taken = taken.filter_map(|fragment| fragment.report.as_ref());
        let slot_bytes: u64 = taken.map(|report| report.slot_bytes).sum();
        let fragment_media: u64 = reports().map(|report| report.media_bytes).sum();
        let pool = context.database().buffer_pool().status().since(&self.pool);
        QueryFigures {
            elapsed,
            asked: self.asked,
            planning: query.planning,
            rows,
            media_bytes: fragment_media,
            has_link: has_link(&contexts),
            link_bytes_received: received.saturating_sub(self.traffic_received),
            link_bytes_sent: sent.saturating_sub(self.traffic_sent),
            host_bytes: slot_bytes + pool.loaded_bytes,
            pool,
            host_cpu: process_cpu.saturating_sub(embedded_cpu),
            device_cpu,
            host_waited: fragments.iter().map(|fragment| fragment.waited).sum(),
            device_stalled: reports().map(|report| report.stall).sum(),
            fragments,
        }
    }
}

fn is_embedded(context: &StatementContext, device: &str) -> bool {
    context
        .state()
        .device_named(device)
        .is_some_and(|entry| entry.kind == cleave_catalog::catalog::DeviceKind::Embedded)
}

fn statement_devices(
    contexts: &[Arc<StatementContext>],
) -> Result<Vec<Arc<cleave_engine::device::Device>>> {
    let Some(context) = contexts.first() else { return Ok(Vec::new()) };
    let inputs = contexts.iter().flat_map(|context| context.inputs());
    let mut ids: BTreeSet<_> = inputs.flat_map(|input| input.input.devices()).collect();
    if !ids.is_empty() {
        ids.extend(prescribed::named(context)?.iter().map(|device| device.id()));
    }
    ids.into_iter().map(|id| context.database().attached(id)).collect()
}

/// Whether a device of the statement is behind a link, and not in this process.
pub(super) fn has_link(contexts: &[Arc<StatementContext>]) -> bool {
    let devices = statement_devices(contexts).unwrap_or_default();
    devices.iter().any(|device| device.mode() != AttachMode::Embedded)
}

/// Bytes that came and went so far over the links of the statements' devices.
fn traffic(contexts: &[Arc<StatementContext>]) -> (u64, u64) {
    let mut totals = (0, 0);
    // A catalog version never names a device that is not attached.
    for device in statement_devices(contexts).unwrap_or_default() {
        let traffic = device.traffic();
        totals.0 += traffic.received_bytes;
        totals.1 += traffic.sent_bytes;
    }
    totals
}

pub(super) async fn media_bytes(contexts: &[Arc<StatementContext>]) -> Result<u64> {
    let mut total = 0;
    for device in statement_devices(contexts)? {
        let reply =
            device.call("tell its status", cleave_fragment::command::Request::Status).await?;
        if let cleave_fragment::command::Reply::Status(status) = reply {
            total += status.media_bytes_read;
        }
    }
    Ok(total)
}
