//! The host's answers to the planner while it places cuts: devices, their builds, and what is in the buffer pool.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cleave_catalog::catalog::division::Division;
use cleave_catalog::catalog::{DeviceId, DeviceKind};
use cleave_catalog::error::Error;
use cleave_engine::device::Device;
use cleave_fragment::command::message::{CAPABILITY_FRAGMENTS, ENCODED_SLOT_BYTES_MAX};
use cleave_fragment::link::AttachMode;
use cleave_fragment::{DenseAggregateExec, TableScanExec, build_id};
use cleave_plan::TableFacts;
use cleave_plan::cardinality::{distinct_values_max, estimate_rows};
use cleave_plan::cost::slots::SLOT_BYTES_AUTO;
use cleave_plan::cost::{AskedColumn, Conditions, CostStrategy, Limits, ScanWork, SlotSize};
use cleave_plan::profile::{LinkProfile, Origin, Profile};
use cleave_plan::split::{
    CutContext, CutWeight, FragmentPlan, FragmentScan, ScanDivision, ScanShare, TabletHomes, When,
    row_bytes, type_bytes,
};
use cleave_store::ColumnRef;
use datafusion::arrow::datatypes::DataType;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use futures::future::join_all;

use super::planned_input::PlannedInput;
use super::prescribed;
use super::statement_context::{StatementContext, StatementInput};
use crate::cooperative::fragment_exec::{FragmentExec, FragmentPart};
use crate::planner;

mod known_pages;

/// Share of its rows that a scan is taken to keep once the keys of the join above are known, where nothing tells how
/// many there are.
const KEYS_KEEP: f64 = 0.25;
/// A statement that reads at least so many bytes is worth the half second that measuring a device takes, once.
const MEASURED_FROM_BYTES: u64 = 256 << 10;
/// Where slots have no set size, the ring takes at most this part of what the device has for fragments.
const RING_SHARE: u64 = 8;
/// Groups that an aggregate with keys is taken to make, at most, where nothing tells how many there are.
const GROUP_COUNT: f64 = 10_000.0;

/// An engine of a storage node, and what it has to do.
pub(super) struct Engine {
    pub(super) device: Arc<Device>,
    pub(super) cores: u32,
    /// Morsels that its runs had not begun when the statement was planned.
    pub(super) queue: u64,
}

/// The host's answers for one statement.
pub(super) struct HostCuts {
    context: Arc<StatementContext>,
    devices: BTreeMap<DeviceId, DeviceFacts>,
    /// Where the statement names the devices that run fragments: those that take the pages of a device.
    takers: BTreeMap<DeviceId, Vec<DeviceId>>,
    limits: Limits,
    profile: Profile,
    fragment_count: AtomicUsize,
}

/// The part of each scan of a fragment, by the number of its input.
type PartInputs = Vec<(u32, StatementInput)>;

/// The facts about a device before any fragment is sent to it.
struct DeviceFacts {
    device: Arc<Device>,
    mode: AttachMode,
    refusal: Option<String>,
    /// The name of its node, if it has one.
    node: String,
    cores: u32,
    fragment_memory_bytes: u64,
    /// Morsels that its runs have not begun; 0 where nobody wants to know.
    queue: u64,
}

impl HostCuts {
    /// Connects every device that the statement reads or names, and, if splits are to be priced, gets its profile.
    pub(super) async fn new(
        context: Arc<StatementContext>,
        prices_splits: bool,
    ) -> Result<Self, Error> {
        let mut devices = BTreeMap::new();
        for input in context.inputs() {
            for id in input.input.devices() {
                if let Entry::Vacant(unknown) = devices.entry(id) {
                    unknown.insert(DeviceFacts::of(context.database().attached(id)?).await?);
                }
            }
        }
        let mut takers = BTreeMap::new();
        if !devices.is_empty() {
            let named = prescribed::named(&context)?;
            for device in &named {
                if let Entry::Vacant(unknown) = devices.entry(device.id()) {
                    unknown.insert(DeviceFacts::of(Arc::clone(device)).await?);
                }
            }
            let named: Vec<DeviceId> = named.iter().map(|device| device.id()).collect();
            let nodes = devices.iter().map(|(id, facts)| (*id, facts.node.as_str())).collect();
            let mirrors = devices.iter().filter(|(_, facts)| facts.device.is_mirror());
            let copies = mirrors.map(|(id, facts)| {
                let current = facts.device.readers().into_iter().map(|copy| copy.id());
                (*id, current.collect::<Vec<_>>())
            });
            takers = prescribed::takers(&named, &nodes, &copies.collect());
        }
        if context.settings().gather != When::Never && devices.len() > 1 {
            let asked: Vec<_> = devices.values_mut().map(DeviceFacts::ask_queue).collect();
            join_all(asked).await;
        }
        let compute: BTreeSet<DeviceId> = takers.values().flatten().copied().collect();
        let computes = |id: &DeviceId| compute.is_empty() || compute.contains(id);
        let of_fragments = || devices.iter().filter(|entry| computes(entry.0));
        let far = of_fragments().find(|(_, facts)| facts.mode != AttachMode::Embedded);
        let far = far.map(|(id, _)| *id);
        let limits = limits(&context, of_fragments().map(|(_, facts)| facts));
        let profile = match far {
            Some(id) if prices_splits => profile(&context, id).await?,
            // Nothing is measured for a split that is forced.
            Some(id) => {
                let known = context.database().known_profile(id).await?;
                known.map_or_else(Profile::assumed, |known| Profile::clone(&known))
            }
            None => Profile { link: LinkProfile::embedded(), ..Profile::assumed() },
        };
        let fragment_count = AtomicUsize::new(0);
        Ok(Self { context, devices, takers, limits, profile, fragment_count })
    }

    /// The origin of the statement's figures: measured only if those of both sides and of the link were.
    pub(super) fn profile_origin(&self) -> Origin {
        let Profile { host, device, link } = &self.profile;
        let mut origins = vec![host.origin, device.origin];
        if !link.is_embedded {
            origins.push(link.origin);
        }
        origins.into_iter().find(|origin| *origin != Origin::Measured).unwrap_or(Origin::Measured)
    }

    /// `input` by the devices that run fragments over it, of which there is at least one.
    fn divided(&self, input: &PlannedInput) -> Vec<(DeviceId, PlannedInput)> {
        let homes = input.devices();
        if self.takers.is_empty() {
            return homes.into_iter().map(|id| (id, input.on_device(id))).collect();
        }
        let takers = homes.iter().filter_map(|home| self.takers.get(home)).flatten();
        let takers: BTreeSet<DeviceId> = takers.copied().collect();
        let parts = takers.into_iter().map(|id| (id, input.taken_by(id, &self.takers)));
        let mut parts: Vec<_> = parts.collect();
        // There may be fewer pages than devices that take them in turns.
        match parts.iter().any(|(_, part)| part.pages_left() > 0) {
            true => parts.retain(|(_, part)| part.pages_left() > 0),
            false => parts.truncate(1),
        }
        parts
    }

    /// The parts of the input of `scan`, each with the device that runs fragments over it.
    fn parts_of(&self, scan: &TableScanExec) -> Result<Vec<(&DeviceFacts, StatementInput)>> {
        let whole = self.context.input(scan.scan().input)?;
        let all_rows = whole.input.rows_left() as f64;
        let share = |(id, input): (DeviceId, PlannedInput)| {
            let row_estimate = match input.rows_left() as f64 {
                rows if rows < all_rows => whole.row_estimate * rows / all_rows,
                _ => whole.row_estimate,
            };
            let facts = self.devices.get(&id)?;
            Some((facts, StatementInput { input: Arc::new(input), row_estimate }))
        };
        Ok(self.divided(&whole.input).into_iter().filter_map(share).collect())
    }

    /// The devices that run `fragment`, those of what streams first, each with its part of every scan in their order.
    fn parts_below(&self, fragment: &FragmentPlan) -> Result<Vec<(&DeviceFacts, PartInputs)>> {
        let mut of_scans = Vec::with_capacity(fragment.scans.len());
        for FragmentScan { scan, .. } in &fragment.scans {
            of_scans.push((scan, self.parts_of(scan)?));
        }
        let mut devices: Vec<&DeviceFacts> = Vec::new();
        for (facts, _) in of_scans.iter().rev().flat_map(|(_, parts)| parts) {
            if devices.iter().all(|known| !Arc::ptr_eq(&known.device, &facts.device)) {
                devices.push(*facts);
            }
        }
        let parts = devices.into_iter().map(|facts| {
            let inputs = of_scans.iter().map(|(scan, parts)| {
                let mut own = parts.iter();
                let own = own.find(|(other, _)| Arc::ptr_eq(&other.device, &facts.device));
                let input = match own {
                    Some((_, input)) => input.clone(),
                    None => self.without_pages(scan, facts)?,
                };
                Ok((scan.scan().input, input))
            });
            Ok((facts, inputs.collect::<Result<PartInputs>>()?))
        });
        parts.collect()
    }

    /// The part of the input of `scan` on a device that has none of its pages, but some of another table whose rows are
    /// joined where they meet. The pages of `scan` may all lie on one other device, with all that they are joined with
    /// there; then no rows come of them here.
    fn without_pages(&self, scan: &TableScanExec, facts: &DeviceFacts) -> Result<StatementInput> {
        if self.division(scan).is_none() && self.parts_of(scan)?.len() > 1 {
            return Err(held_by_none());
        }
        let whole = self.context.input(scan.scan().input)?;
        let input = Arc::new(whole.input.on_device(facts.device.id()));
        Ok(StatementInput { input, row_estimate: 0.0 })
    }
}

/// The fault of a fragment over tables of which no device has a part.
fn held_by_none() -> DataFusionError {
    DataFusionError::Internal("a fragment over tables that no one device holds".to_owned())
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
        let (cores, fragment_memory_bytes) = (identity.cores, identity.fragment_memory_bytes);
        let node = identity.node.clone();
        Ok(Self { device, mode, refusal, node, cores, fragment_memory_bytes, queue: 0 })
    }

    /// Asks an engine of a node how much it has to do.
    async fn ask_queue(&mut self) {
        if !self.node.is_empty() && self.is_one() {
            // One that does not answer is found out when it is to run something.
            self.queue = self.device.status().await.map_or(0, |status| status.queue);
        }
    }

    /// Whether it is one device on another machine, and not a mirror of several.
    fn is_one(&self) -> bool {
        matches!(self.device.entry().kind, DeviceKind::Remote(_))
    }
}

impl CutContext for HostCuts {
    fn pages_only(&self) -> Option<String> {
        self.context.settings().pages_only().map(str::to_owned)
    }

    fn rows_only(&self) -> bool {
        self.context.settings().sends_rows_alone()
    }

    fn is_prescribed(&self) -> bool {
        self.context.settings().is_prescribed()
    }

    fn shares(&self, scan: &TableScanExec) -> Vec<ScanShare> {
        let parts = match self.parts_of(scan) {
            Ok(parts) => parts,
            Err(error) => return vec![nowhere(error.to_string())],
        };
        let shares: Vec<ScanShare> = parts
            .into_iter()
            .map(|(facts, part)| ScanShare {
                device: facts.device.name().to_owned(),
                refusal: facts
                    .refusal
                    .clone()
                    .or_else(|| too_long_for_a_slot(facts, scan, &part.input)),
            })
            .collect();
        if shares.is_empty() { vec![nowhere("it has no device".to_owned())] } else { shares }
    }

    fn division(&self, scan: &TableScanExec) -> Option<ScanDivision> {
        // Devices that a statement names take the pages of others in turns.
        if !self.takers.is_empty() {
            return None;
        }
        let planned = self.context.input(scan.scan().input).ok()?;
        let table = &planned.input.table;
        let devices: Vec<u32> = table.tablets.iter().map(|tablet| tablet.device.0).collect();
        // Where one device has all rows, values need not tell.
        if devices.iter().all(|device| Some(device) == devices.first()) {
            return None;
        }
        let key = table.division.columns();
        let types = key
            .iter()
            .map(|id| table.schema.column_by_id(*id).map(|column| column.column_type.arrow()));
        let bounds = match &table.division {
            Division::LoadOrder | Division::RoundRobin => return None,
            Division::Hash(_) => None,
            Division::Range(_, bounds) => Some(bounds.keys().to_vec()),
        };
        let places = |id: &u32| {
            let columns = scan.scan().output.columns.iter().enumerate();
            let own = columns.filter(|(_, column)| **column == ColumnRef::User(*id));
            own.map(|(place, _)| place).collect()
        };
        let homes = TabletHomes { bounds, types: types.collect::<Option<_>>()?, devices };
        Some(ScanDivision { columns: key.iter().map(places).collect(), homes })
    }

    fn distinct_count(&self, scan: &TableScanExec, column: &str) -> Option<f64> {
        self.context.distinct_count(&scan.scan().table, column)
    }

    fn asked(&self, scan: &TableScanExec, column: &str) -> AskedColumn {
        self.context.asked(&scan.scan().table, column)
    }

    fn weights(&self, fragment: &FragmentPlan) -> Vec<CutWeight> {
        let Some(scan) = fragment.scans.last() else { return Vec::new() };
        let parts = self.parts_below(fragment).unwrap_or_default();
        parts.iter().map(|(facts, inputs)| self.weight(fragment, scan, facts, inputs)).collect()
    }

    fn key_filters(&self) -> When {
        self.context.settings().key_filters
    }

    fn late_materialisation(&self) -> When {
        self.context.settings().late_materialisation
    }

    fn scan_work(&self, scan: &TableScanExec) -> ScanWork {
        let named = scan.scan();
        let Ok(planned) = self.context.input(named.input) else { return ScanWork::default() };
        let input = &planned.input;
        let (chunk_bytes, held_bytes) = self.chunk_bytes(scan, input, planned.row_estimate);
        let parts = self.divided(input);
        let most = parts.iter().map(|(_, part)| part.pages_left()).max().unwrap_or(0);
        let share_beside = 1.0 - most as f64 / input.pages_left().max(1) as f64;
        let known = self.known_pages(named, &planned, &parts);
        ScanWork {
            table: named.table.clone(),
            rows: input.rows_left() as f64 * input.share_read(),
            rows_matched: planned.row_estimate,
            rows_kept: planned.row_estimate,
            filter_columns: named.filter.columns.len() as f64,
            output_columns: named.output.columns.len() as f64,
            pages: input.pages_left() as f64 * input.share_read(),
            chunk_bytes,
            held_bytes,
            conditions: Conditions::default(),
            looked_up: input.index.as_ref().map_or(0.0, |(index, _)| index.entry_count as f64),
            devices_beside: parts.len().saturating_sub(1) as f64,
            share_beside: if most > 0 { share_beside } else { 0.0 },
            known_on_host: self.priced(&known.on_host, named, &planned, chunk_bytes),
            known_on_device: self.priced(&known.on_device, named, &planned, chunk_bytes),
        }
    }

    fn rows(&self, plan: &Arc<dyn ExecutionPlan>) -> Vec<f64> {
        estimate_rows(plan, &self.context.estimates())
    }

    fn profile(&self) -> Profile {
        self.profile.clone()
    }

    fn shares_host(&self) -> bool {
        // A device that is named runs fragments, wherever it is.
        !self.is_prescribed()
            && self.devices.values().all(|facts| facts.mode == AttachMode::Embedded)
    }

    fn cost_strategy(&self) -> CostStrategy {
        self.context.settings().cost_strategy
    }

    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn fragment_exec(&self, fragment: FragmentPlan) -> Result<Arc<dyn ExecutionPlan>> {
        let parts = self.parts_below(&fragment)?.into_iter().enumerate();
        let parts = parts.map(|(place, (facts, inputs))| FragmentPart {
            device: Arc::clone(&facts.device),
            inputs,
            on_device: fragment.on_device.get(place).copied().unwrap_or(false),
        });
        let parts: Vec<FragmentPart> = parts.collect();
        if parts.is_empty() {
            return Err(held_by_none());
        }
        let number = self.next_number();
        let context = Arc::clone(&self.context);
        Ok(Arc::new(FragmentExec::new(number, fragment, parts, context)))
    }
}

/// The resources of both sides for the statement: of several devices, the least.
fn limits<'a>(
    context: &StatementContext,
    devices: impl Iterator<Item = &'a DeviceFacts> + Clone,
) -> Limits {
    let settings = context.settings();
    let memory = devices.clone().map(|facts| facts.fragment_memory_bytes).min().unwrap_or(0);
    let slot_size = match settings.slot_bytes {
        Some(bytes) => SlotSize::Fixed(bytes),
        None => {
            let (least, most) = SLOT_BYTES_AUTO.into_inner();
            let room = memory / RING_SHARE / u64::from(settings.slot_count.max(1));
            let bytes_max = u32::try_from(room).unwrap_or(most).clamp(least, most);
            SlotSize::Auto { bytes_max }
        }
    };
    let slot_bytes_max = match slot_size {
        SlotSize::Fixed(bytes) | SlotSize::Auto { bytes_max: bytes } => bytes,
    };
    let ring_bytes = u64::from(settings.slot_count) * u64::from(slot_bytes_max);
    let room = memory.saturating_sub(ring_bytes);
    let shares_work = settings.stealing != When::Never;
    let mut each = devices.clone();
    // Several may be engines of one node, which then help each other only where one of them is done.
    let lent_share = match (each.next(), each.next()) {
        (Some(only), None) if shares_work => context.database().lent_cores.share(only.device.id()),
        _ => 0.0,
    };
    Limits {
        device_memory_bytes: settings.device_memory_bytes.min(room),
        host_memory_bytes: context.database().query_memory_max() as u64,
        device_load: 0.0,
        slot_size,
        slot_count: settings.slot_count,
        device_partitions: devices.map(|facts| facts.cores).min().unwrap_or(1),
        host_threads: u32::try_from(planner::host_partitions(settings)).unwrap_or(u32::MAX),
        shares_work,
        lent_share,
        broadcast_bytes: settings.broadcast_bytes,
        cut_share_max: context.split_margin().share_max,
    }
}

/// The figures of host, the device `id` and the link between them. They are measured where the statement reads enough
/// for the choice to matter; else what is not known is assumed.
async fn profile(context: &StatementContext, id: DeviceId) -> Result<Profile, Error> {
    let database = context.database();
    let bytes: u64 = context.inputs().iter().map(|input| input.input.bytes_left()).sum();
    let known = if bytes >= MEASURED_FROM_BYTES {
        Some(database.profile(id, false).await?)
    } else {
        database.known_profile(id).await?
    };
    Ok(known.map_or_else(Profile::assumed, |known| Profile::clone(&known)))
}

/// The share of a scan that cannot be cut.
fn nowhere(reason: String) -> ScanShare {
    ScanShare { device: String::new(), refusal: Some(reason) }
}

impl HostCuts {
    /// Bytes of the chunks that `scan` reads of the pages of `input`, of whose rows its predicate leaves `rows_kept`,
    /// and of these bytes, those in the buffer pool.
    fn chunk_bytes(
        &self,
        scan: &TableScanExec,
        input: &PlannedInput,
        rows_kept: f64,
    ) -> (f64, f64) {
        let scan = scan.scan();
        let filtered = &scan.filter.columns;
        let is_late = |column: &&ColumnRef| !filtered.contains(column);
        let late: Vec<ColumnRef> = scan.output.columns.iter().filter(is_late).copied().collect();
        let pages_left = input.pages_left().max(1) as f64;
        // Columns without conditions are read only where a row is left.
        let read_late = match scan.predicate {
            Some(_) => 1.0 - (-rows_kept / (pages_left * input.share_read()).max(1.0)).exp(),
            None => 1.0,
        };
        let filtered_bytes = self.column_bytes(input, filtered);
        let late_bytes = self.column_bytes(input, &late);
        let columns: Vec<ColumnRef> = filtered.iter().chain(&late).copied().collect();
        let (mut chunk_bytes, mut held_bytes) = (0.0, 0.0);
        let pool = self.context.database().buffer_pool();
        for (device, entry) in input.entries() {
            let of_page = |(by_row, by_byte): (f64, f64)| {
                let page = &entry.page;
                by_row * f64::from(page.row_count) + by_byte * page.extent.bytes() as f64
            };
            let bytes = of_page(filtered_bytes) + of_page(late_bytes) * read_late;
            let bytes = bytes * input.share_read();
            chunk_bytes += bytes;
            if !columns.is_empty() {
                let held = pool.held_count(device, &entry.page, &columns);
                held_bytes += bytes * held as f64 / columns.len() as f64;
            }
        }
        (chunk_bytes, held_bytes)
    }

    /// Bytes that a host's scan with the condition of `scan` reads of pages without a match, and has not yet: later
    /// columns are read only where there is one.
    pub(super) fn spared_bytes(&self, scan: &TableScanExec) -> f64 {
        let Ok(planned) = self.context.input(scan.scan().input) else { return 0.0 };
        let (bytes, held_bytes) = self.chunk_bytes(scan, &planned.input, planned.row_estimate);
        let pages = planned.input.pages_left().max(1) as f64;
        // Of pages whose conditions it knows, it reads no others anyway.
        let asked = 1.0 - self.known_pages(scan.scan(), &planned, &[]).on_host.share;
        (bytes - held_bytes).max(0.0) * asked * (-planned.row_estimate / pages).exp()
    }

    /// The number of the next fragment.
    pub(super) fn next_number(&self) -> usize {
        self.fragment_count.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether each of `devices` may take rows of the others: they are of its node, or it gets to their addresses. A
    /// mirror is no device that others could ask.
    pub(super) fn reach_each_other(&self, devices: &[Arc<Device>]) -> bool {
        let node = |device: &Arc<Device>| {
            self.devices.get(&device.id()).map_or("", |facts| facts.node.as_str())
        };
        let is_reached = |home: &Arc<Device>, by: &Arc<Device>| {
            let are_of_one_node = !node(home).is_empty() && node(home) == node(by);
            home.id() == by.id() || are_of_one_node || home.is_reachable_by(by)
        };
        devices
            .iter()
            .all(|home| !home.is_mirror() && devices.iter().all(|by| is_reached(home, by)))
    }

    /// `devices` by the names of their nodes; None: one is of no node, or is several devices.
    pub(super) fn by_node(&self, devices: &[Arc<Device>]) -> Option<BTreeMap<String, Vec<Engine>>> {
        let mut nodes: BTreeMap<String, Vec<Engine>> = BTreeMap::new();
        for device in devices {
            let facts = self.devices.get(&device.id()).filter(|facts| facts.is_one())?;
            if facts.node.is_empty() {
                return None;
            }
            let (device, cores, queue) = (Arc::clone(device), facts.cores, facts.queue);
            let engine = Engine { device, cores, queue };
            nodes.entry(facts.node.clone()).or_default().push(engine);
        }
        Some(nodes)
    }

    /// Whether all devices are in this process.
    pub(super) fn has_no_link(&self) -> bool {
        self.profile.link.is_embedded
    }

    /// Bytes that the link carries in a second.
    pub(super) fn link_bytes_per_second(&self) -> f64 {
        self.profile.link.bytes_per_second.max(1.0)
    }

    /// Bytes of the chunks of `columns`: for each row, of those whose pages ANALYZE has looked at, and of the others
    /// the share of a page's bytes by their types.
    fn column_bytes(&self, input: &PlannedInput, columns: &[ColumnRef]) -> (f64, f64) {
        let table = &input.table;
        let known = self.context.statistics(table);
        let whole = row_bytes(&table.schema.arrow());
        let (mut by_row, mut by_byte) = (0.0, 0.0);
        for column in columns {
            let ColumnRef::User(id) = column else { continue };
            let statistics = known.as_ref().and_then(|known| known.columns.get(id));
            match statistics.and_then(|column| column.stored) {
                Some(stored) => by_row += stored.row_bytes,
                None => {
                    let column = table.schema.column_by_id(*id);
                    let bytes = column.map_or(0.0, |c| type_bytes(&c.column_type.arrow()));
                    by_byte += bytes / whole;
                }
            }
        }
        (by_row, by_byte)
    }

    /// Share of the rows of `scan` that `part` has.
    fn share_of(&self, scan: &TableScanExec, part: &StatementInput) -> f64 {
        let whole = self.context.input(scan.scan().input).map(|whole| whole.row_estimate);
        match whole {
            Ok(whole) if whole > 0.0 => (part.row_estimate / whole).min(1.0),
            _ => 1.0,
        }
    }

    /// The bytes that would cross the link of one device.
    fn weight(
        &self,
        fragment: &FragmentPlan,
        scan: &FragmentScan,
        facts: &DeviceFacts,
        inputs: &[(u32, StatementInput)],
    ) -> CutWeight {
        let (mut chunk_bytes, mut held_bytes) = (0.0, 0.0);
        for (read, (_, part)) in fragment.scans.iter().zip(inputs) {
            let (all, held) = self.chunk_bytes(&read.scan, &part.input, part.row_estimate);
            chunk_bytes += all;
            held_bytes += held;
        }
        let (share, scanned) = match inputs.last() {
            Some((_, part)) => (self.share_of(&scan.scan, part), part.row_estimate),
            None => (1.0, 0.0),
        };
        let link_is_free = facts.mode == AttachMode::Embedded;
        let joins = !fragment.broadcasts.is_empty() || fragment.scans.len() > 1;
        let rows = match fragment.row_estimate.filter(|_| joins) {
            // Of what streams, each device joins its part.
            Some(rows) => rows * share,
            None => result_rows(fragment, scan, scanned, share),
        };
        let sent_bytes: f64 = fragment.broadcasts.iter().filter_map(|b| b.byte_estimate).sum();
        let result_bytes = rows * row_bytes(&fragment.plan.schema()) + sent_bytes;
        CutWeight { result_bytes, chunk_bytes, held_bytes, link_is_free }
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

/// Rows that are expected to leave `fragment` on a device that has this `share` of what streams, `scanned` rows.
fn result_rows(fragment: &FragmentPlan, scan: &FragmentScan, scanned: f64, share: f64) -> f64 {
    let mut rows = scanned;
    if !scan.dynamic_filters.is_empty() {
        rows *= scan.filters_keep.unwrap_or(KEYS_KEEP);
    }
    if let Some((aggregate, is_complete)) = grouping(&fragment.plan) {
        rows = if aggregate.group_expr().is_empty() {
            1.0
        } else {
            let groups = group_count(aggregate).unwrap_or(GROUP_COUNT);
            // Each device has some of the complete groups, or states of any.
            rows.min(if is_complete { groups * share } else { groups })
        };
    }
    match fragment.fetch.or_else(|| fragment.plan.fetch()) {
        Some(fetch) => rows.min(fetch as f64),
        None => rows,
    }
}

/// The aggregate that reads the rows of which `plan` gives groups, and whether these are complete.
fn grouping(plan: &Arc<dyn ExecutionPlan>) -> Option<(&AggregateExec, bool)> {
    let below = || plan.children().into_iter().next().and_then(grouping);
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return match aggregate.mode() {
            AggregateMode::Partial | AggregateMode::PartialReduce => Some((aggregate, false)),
            AggregateMode::Single | AggregateMode::SinglePartitioned => Some((aggregate, true)),
            AggregateMode::Final | AggregateMode::FinalPartitioned => {
                below().map(|(partial, _)| (partial, true))
            }
        };
    }
    let is_dense = plan.is::<DenseAggregateExec>();
    let hands_on = plan.is::<FilterExec>() || plan.is::<ProjectionExec>() || plan.is::<SortExec>();
    // Rows of a scan, and what is made of them, are no groups.
    (is_dense || hands_on).then(below).flatten()
}

/// Groups that `aggregate` makes, where the distinct counts of the columns of all its keys are known.
fn group_count(aggregate: &AggregateExec) -> Option<f64> {
    let (context, all) = (StatisticsContext::new(), StatisticsArgs::new());
    let input = context.compute(aggregate.input().as_ref(), &all).ok()?;
    let counts = aggregate.group_expr().expr().iter().map(|(key, _)| {
        let of_column = |index: usize| {
            let known = input.column_statistics.get(index)?.distinct_count.get_value()?;
            Some(*known as f64)
        };
        let count = distinct_values_max(key, &of_column)?;
        // What is computed has fewer values than its bound, more often than not.
        let most = if key.is::<Column>() { f64::INFINITY } else { GROUP_COUNT };
        Some(count.min(most) + 1.0)
    });
    counts.product()
}
