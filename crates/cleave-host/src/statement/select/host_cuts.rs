//! What the planner asks of the host when it places cuts: devices, their builds, and what is held already.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cleave_fragment::command::message::{CAPABILITY_FRAGMENTS, ENCODED_SLOT_BYTES_MAX};
use cleave_fragment::link::AttachMode;
use cleave_fragment::{TableScanExec, build_id};
use cleave_plan::split::{CutContext, CutWeight, FragmentPlan};
use cleave_store::ColumnRef;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

use super::planned_input::PlannedInput;
use super::statement_context::StatementContext;
use crate::catalog::DeviceId;
use crate::cooperative::fragment_exec::FragmentExec;
use crate::device::Device;
use crate::error::Error;

/// Bytes that a text value is taken to have.
const TEXT_BYTES: f64 = 24.0;
/// Share of its rows that a scan is taken to keep once the keys of the join above are known.
const KEYS_KEEP: f64 = 0.25;
/// Groups that an aggregate with keys is taken to make, at most.
const GROUP_COUNT: f64 = 10_000.0;

/// The host's answers for one statement.
pub(super) struct HostCuts {
    context: Arc<StatementContext>,
    devices: BTreeMap<DeviceId, DeviceFacts>,
    fragment_count: AtomicUsize,
}

/// What is known of a device before any fragment is sent to it.
struct DeviceFacts {
    device: Arc<Device>,
    mode: AttachMode,
    refusal: Option<String>,
}

impl HostCuts {
    /// Asks every device that the statement reads who it is.
    pub(super) async fn new(context: Arc<StatementContext>) -> Result<Self, Error> {
        let mut devices = BTreeMap::new();
        for input in context.inputs() {
            for id in &input.input.devices {
                if !devices.contains_key(id) {
                    devices.insert(*id, DeviceFacts::of(context.database().attached(*id)?).await?);
                }
            }
        }
        Ok(Self { context, devices, fragment_count: AtomicUsize::new(0) })
    }

    fn facts(&self, input: &PlannedInput) -> Option<&DeviceFacts> {
        input.devices.iter().next().and_then(|id| self.devices.get(id))
    }
}

impl DeviceFacts {
    async fn of(device: Arc<Device>) -> Result<Self, Error> {
        let identity = device.identity().await?;
        let mode = device.link().await?.mode();
        let ours = build_id();
        let refusal = if !identity.capabilities.iter().any(|c| c == CAPABILITY_FRAGMENTS) {
            Some(format!("device \"{}\" serves pages only", device.name()))
        } else if identity.build != ours {
            Some(format!(
                "device \"{}\" is another build ({}) than this host ({ours}) and serves pages only",
                device.name(),
                identity.build
            ))
        } else {
            None
        };
        Ok(Self { device, mode, refusal })
    }
}

impl CutContext for HostCuts {
    fn pages_only(&self) -> Option<String> {
        self.context.settings().pages_only().map(str::to_owned)
    }

    fn refusal(&self, scan: &TableScanExec) -> Option<String> {
        let input = match self.context.input(scan.scan().input) {
            Ok(input) => input.input,
            Err(error) => return Some(error.to_string()),
        };
        if input.devices.len() > 1 {
            return Some(format!("its tablets lie on {} devices", input.devices.len()));
        }
        match self.facts(&input) {
            Some(facts) => {
                facts.refusal.clone().or_else(|| too_long_for_a_slot(facts, scan, &input))
            }
            None => Some("it has no device".to_owned()),
        }
    }

    fn weight(&self, fragment: &FragmentPlan) -> CutWeight {
        let scan = fragment.scan.scan();
        let Ok(statement_input) = self.context.input(scan.input) else {
            return CutWeight {
                result_bytes: 0.0,
                chunk_bytes: 0.0,
                held_bytes: 0.0,
                link_is_free: true,
            };
        };
        let input = &statement_input.input;
        let table = input.table.schema.arrow();
        let mut columns: Vec<ColumnRef> = scan.output.columns.clone();
        columns.extend(scan.filter.columns.iter().filter(|c| !scan.output.columns.contains(c)));
        let share = |columns: &[ColumnRef]| {
            let read: f64 = columns
                .iter()
                .filter_map(|column| match column {
                    ColumnRef::User(id) => input.table.schema.columns.iter().find(|c| c.id == *id),
                    _ => None,
                })
                .map(|column| type_bytes(&column.column_type.arrow()))
                .sum();
            (read / row_bytes(&table)).min(1.0)
        };
        let read_share = share(&columns);
        let (mut chunk_bytes, mut held_bytes) = (0.0, 0.0);
        let pool = self.context.database().buffer_pool();
        for (device, entry) in input.entries() {
            let bytes = entry.page.extent.bytes() as f64 * read_share;
            chunk_bytes += bytes;
            if !columns.is_empty() {
                let held = pool.held_count(device, &entry.page, &columns);
                held_bytes += bytes * held as f64 / columns.len() as f64;
            }
        }
        let link_is_free = self.facts(input).is_none_or(|facts| facts.mode == AttachMode::Embedded);
        let result_bytes = result_rows(fragment, statement_input.row_estimate)
            * row_bytes(&fragment.plan.schema());
        CutWeight { result_bytes, chunk_bytes, held_bytes, link_is_free }
    }

    fn fragment_exec(&self, fragment: FragmentPlan) -> Result<Arc<dyn ExecutionPlan>> {
        let input = self.context.input(fragment.scan.scan().input)?;
        let facts = self.facts(&input.input).ok_or_else(|| {
            DataFusionError::Internal("a fragment over a table without a device".to_owned())
        })?;
        let number = self.fragment_count.fetch_add(1, Ordering::Relaxed) + 1;
        let device = Arc::clone(&facts.device);
        let context = Arc::clone(&self.context);
        Ok(Arc::new(FragmentExec::new(number, fragment, input, device, context)))
    }
}

/// Why a row of `scan` may be larger than a slot, which a remote device would find out in mid-run. A row's
/// long values lie on the overflow pages of its page.
fn too_long_for_a_slot(
    facts: &DeviceFacts,
    scan: &TableScanExec,
    input: &PlannedInput,
) -> Option<String> {
    let is_long = |data_type: &DataType| matches!(data_type, DataType::Utf8 | DataType::Binary);
    let fields = scan.scan().output.schema.fields();
    // In one process batches are handed over as they are.
    if facts.mode == AttachMode::Embedded || !fields.iter().any(|f| is_long(f.data_type())) {
        return None;
    }
    let overflow = input.entries().map(|(_, entry)| {
        entry.overflow.iter().map(|page| page.extent.bytes() as u64).sum::<u64>()
    });
    let bytes = overflow.max().filter(|bytes| *bytes > ENCODED_SLOT_BYTES_MAX)?;
    Some(format!(
        "a page has long values of {bytes} bytes, and a row that crosses the link at most \
         {ENCODED_SLOT_BYTES_MAX}"
    ))
}

/// Rows that are expected to leave `fragment`.
fn result_rows(fragment: &FragmentPlan, scanned: f64) -> f64 {
    let mut rows = scanned;
    if !fragment.dynamic_filters.is_empty() {
        rows *= KEYS_KEEP;
    }
    if let Some(aggregate) = fragment.plan.downcast_ref::<AggregateExec>() {
        rows = if aggregate.group_expr().is_empty() { 1.0 } else { rows.min(GROUP_COUNT) };
    }
    match fragment.fetch.or_else(|| fragment.plan.fetch()) {
        Some(fetch) => rows.min(fetch as f64),
        None => rows,
    }
}

fn row_bytes(schema: &SchemaRef) -> f64 {
    schema.fields().iter().map(|field| type_bytes(field.data_type())).sum::<f64>().max(1.0)
}

fn type_bytes(data_type: &DataType) -> f64 {
    data_type.primitive_width().map_or(TEXT_BYTES, |width| width as f64)
}
