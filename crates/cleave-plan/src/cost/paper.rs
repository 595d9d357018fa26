//! The cost strategy `paper`: hybridNDP's equations (1) to (12) over its Tables 1 and 2, sections 3.1 to 3.4.
//!
//! 1. [`HardwareModel`] is Table 2. Where hardware was published, its figures can be given; else they follow from a
//!    profile.
//! 2. [`TableCosts`] are equations (1) to (6) of one table on one side; [`plan_costs`] sums them over a plan, (7) and
//!    (8).
//! 3. [`PlanCosts::target`] is (9) to (12), and [`choose`] takes host, ndp, or the split that lies closest to it.
//!
//! Unit: costs. One page read over the host's flash interface costs 1, as in MySQL; one row evaluated costs
//! [`HardwareModel::row_evaluation`].
//!
//! The paper leaves room in places; each reading is marked `Reading` here and argued in
//! `docs/design/split-and-cost.md`. Deliberately not improved: the model knows no overlap, no buffer pool and no
//! spilling. That is what [`super::makespan`] is for.

use crate::profile::{Figure, Profile};

use super::{Limits, Placement, PlanShape, ScanWork, ShapeNode, Work};

/// Table 2, with what Table 1 calls user and system variables.
#[derive(Debug, Clone, PartialEq)]
pub struct HardwareModel {
    /// `ndp_hwFCF`: pages a second from flash on the device.
    pub flash_device: f64,
    /// `host_hwFCF`: pages a second from flash over the host's interface.
    pub flash_host: f64,
    /// `hwFSW`: weight of flash in (9), where it cancels.
    pub flash_weight: f64,
    /// `hwCME` of the device: how well it copies memory, the host being 1.
    pub copy_device: f64,
    /// `hwCCF`: CPU clock of (device, host). Reading: Table 2 has it, no equation does.
    pub clock: (f64, f64),
    /// `hwCCN`: cores of (device, host); as the clock.
    pub cores: (f64, f64),
    /// `hwMSH`: bytes of the host's memory.
    pub memory_host: f64,
    /// `hwMSS`: bytes of one selection on the device.
    pub memory_selection: f64,
    /// `hwMSJ`: bytes of one join on the device.
    pub memory_join: f64,
    /// `ndp_hwMSW`: weight of memory in (11), where it cancels.
    pub memory_weight: f64,
    /// `hwIPV`, `hwIPL` or what was measured instead.
    pub interconnect: Interconnect,
    /// `usr_rec`: cost of evaluating a row.
    pub row_evaluation: f64,
    /// `tbl_nbs`: bytes of a block.
    pub block_bytes: f64,
    /// Bytes that one command can bring back; a split wants about as many (section 3.3, precondition b).
    pub transfer_bytes: f64,
}

/// What `c_fpcie` is computed from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Interconnect {
    /// PCI Express.
    Pcie {
        /// `hwIPV`: 1 to 5.
        version: u32,
        /// `hwIPL`.
        lanes: u32,
    },
    /// Any other, by its rate.
    Measured {
        /// Bytes a second.
        bytes_per_second: f64,
    },
}

impl Interconnect {
    /// Bytes a second, after line encoding: 8b/10b up to version 2, 128b/130b from 3.
    pub fn bytes_per_second(self) -> f64 {
        match self {
            Self::Measured { bytes_per_second } => bytes_per_second.max(1.0),
            Self::Pcie { version, lanes } => {
                let (transfers, encoding) = match version {
                    0 | 1 => (2.5e9, 0.8),
                    2 => (5e9, 0.8),
                    3 => (8e9, 128.0 / 130.0),
                    4 => (16e9, 128.0 / 130.0),
                    _ => (32e9, 128.0 / 130.0),
                };
                transfers * encoding / 8.0 * f64::from(lanes.max(1))
            }
        }
    }
}

/// MySQL 5.6's cost of evaluating a row, in pages read.
pub const ROW_EVALUATION: f64 = 0.2;
/// Bytes of a block.
pub const BLOCK_BYTES: f64 = 4096.0;
/// Share of [`HardwareModel::transfer_bytes`] that makes a split worth a command. Reading: "close to the maximum".
const TRANSFER_SHARE: f64 = 0.5;

impl HardwareModel {
    /// Table 2 from what was measured.
    pub fn of(profile: &Profile, limits: &Limits) -> Self {
        let (host, device) = (&profile.host, &profile.device);
        let media = device.rate(Figure::MediaReadSequential);
        let link = profile.link.bytes_per_second.min(1e12);
        let memory = limits.device_memory_bytes as f64;
        Self {
            flash_device: media / BLOCK_BYTES,
            flash_host: media.min(link) / BLOCK_BYTES,
            flash_weight: 1.0,
            copy_device: device.rate(Figure::Copy) / host.rate(Figure::Copy),
            clock: (device.rate(Figure::Arithmetic), host.rate(Figure::Arithmetic)),
            cores: (device.cores_together, host.cores_together),
            memory_host: (limits.host_memory_bytes as f64).max(1.0),
            // Of 400 MB, the paper's device gives each selection 17 MB and each join 7 MB (section 5).
            memory_selection: memory * 17.0 / 400.0,
            memory_join: memory * 7.0 / 400.0,
            memory_weight: 1.0,
            interconnect: Interconnect::Measured { bytes_per_second: link },
            row_evaluation: ROW_EVALUATION,
            block_bytes: BLOCK_BYTES,
            transfer_bytes: f64::from(limits.slot_size.usual()) * f64::from(limits.slot_count),
        }
    }

    /// `c_fpcie`: cost of bringing one block to the host. Reading: in the unit of pages read by the host.
    fn transfer_of_block(&self) -> f64 {
        self.flash_host * self.block_bytes / self.interconnect.bytes_per_second()
    }
}

/// One side of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// All pages cross, then rows are evaluated.
    Host,
    /// Rows are evaluated, and what is left of them crosses.
    Device,
}

/// Equations (1) to (6) of one table.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TableCosts {
    /// (2).
    pub scan: f64,
    /// (3).
    pub cpu: f64,
    /// (4).
    pub transfer: f64,
}

impl TableCosts {
    /// The costs of a table on `side`.
    pub fn of(table: &TableVariables, side: Side, hardware: &HardwareModel) -> Self {
        // (2). Reading: tbl_sea is MySQL's scan_time, a cost of 1 for each page; calc_frt the same pages at the side's
        // flash clock.
        let flash = match side {
            Side::Host => 1.0,
            Side::Device => hardware.flash_host / hardware.flash_device,
        };
        let scan = table.access + table.pages * flash;
        // (3). Reading: calc_pcf norms node_pbn with the bytes and the fields of the table ("each is normed"), and with
        // how well the side copies.
        let copies = match side {
            Side::Host => 1.0,
            Side::Device => hardware.copy_device,
        };
        let fields = table.projected_fields / table.fields.max(1.0);
        let factor = fields / table.row_bytes.max(1.0) / copies;
        let rows = table.rows * table.selectivity;
        let cpu = rows * hardware.row_evaluation * table.projected_bytes * factor;
        // (4) with (5) and (6). Reading: the text has (5) for the host and (6) for the device, and that the latter may
        // be lower; as printed it is the other way round, so they are swapped: whole rows cross to the host, projected
        // ones from the device.
        let row_bytes = match side {
            Side::Host => table.row_bytes,
            Side::Device => table.projected_bytes,
        };
        let bytes = table.selectivity * table.rows * row_bytes;
        let transfer = bytes * hardware.transfer_of_block() / hardware.block_bytes;
        Self { scan, cpu, transfer }
    }

    /// (1).
    pub fn total(&self) -> f64 {
        self.scan + self.cpu + self.transfer
    }
}

/// Table 1 of one table.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TableVariables {
    /// Rows of the table. Reading: Table 1's `tbl_ren` are those that match, and (4) to (6) multiply it by the
    /// selectivity once more; here `tbl_ren` is `rows` times `selectivity` in all of them.
    pub rows: f64,
    /// `calc_sel`, 0 to 1.
    pub selectivity: f64,
    /// Pages to be read.
    pub pages: f64,
    /// `tbl_sea`.
    pub access: f64,
    /// `tbl_pfn`.
    pub projected_fields: f64,
    /// `tbl_tfn`.
    pub fields: f64,
    /// `tbl_pbn` of a row.
    pub projected_bytes: f64,
    /// `tbl_tbn` of a row. Reading: of the table, but (6) multiplies it by rows.
    pub row_bytes: f64,
}

impl TableVariables {
    /// Those of a scan: what it reads is the whole of its table.
    fn of(scan: &ScanWork, node: &ShapeNode, hardware: &HardwareModel) -> Self {
        let rows = scan.rows.max(1.0);
        let pages = (scan.chunk_bytes / hardware.block_bytes).ceil().max(1.0);
        // A column that is both looked at and put out is counted twice: which they are is not known.
        let fields = (scan.filter_columns + scan.output_columns).max(1.0);
        Self {
            rows,
            selectivity: (node.rows / rows).clamp(0.0, 1.0),
            pages,
            access: pages,
            projected_fields: scan.output_columns.max(1.0),
            fields,
            projected_bytes: node.row_bytes,
            row_bytes: (scan.chunk_bytes / rows).max(node.row_bytes),
        }
    }
}

/// The results of (1) to (12) for a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanCosts {
    /// `c_node` of H0, H1, …, Hn, in order.
    pub nodes: Vec<f64>,
    /// `c_total` of all on the host.
    pub host: f64,
    /// `c_total` of all on the device.
    pub ndp: f64,
    /// `split_cpu`, in per cent: (9).
    pub split_cpu: f64,
    /// `split_mem`, in per cent: (11).
    pub split_memory: f64,
    /// `c_target`: (12).
    pub target: f64,
    /// Tables in the plan.
    pub tables: usize,
    /// Bytes that the whole plan brings from flash.
    pub read_bytes: f64,
}

/// The choices of the paper's model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// All on the host.
    Host,
    /// The split of this place among the given ones.
    Split(usize),
    /// All on the device.
    Ndp,
}

/// The costs of a plan whose splits H0 to Hn are `splits`, in this order.
pub fn plan_costs(shape: &PlanShape, splits: &[Placement], hardware: &HardwareModel) -> PlanCosts {
    let nodes = splits.iter().map(|split| node_cost(shape, split, hardware)).collect();
    let host = total(shape, Side::Host, hardware);
    let ndp = total(shape, Side::Device, hardware);
    let scans = || shape.nodes.iter().filter_map(|node| as_scan(node));
    let tables = scans().count();
    // (9). Reading: the text calls it the ratio of the CPUs, the equation has the flash clocks; it is computed as
    // printed. The weights cancel, in (11) too.
    let split_cpu = 100.0 * (hardware.flash_device * hardware.flash_weight)
        / (hardware.flash_host * hardware.flash_weight);
    // (10). Reading: N is the number of tables, N - 1 that of joins.
    let device_bytes = tables as f64 * hardware.memory_selection
        + (tables as f64 - 1.0).max(0.0) * hardware.memory_join;
    // (11).
    let split_memory = 100.0 * (device_bytes * hardware.memory_weight)
        / (hardware.memory_host * hardware.memory_weight);
    // (12). Reading: c_total is that of the plan that would be split, which runs on the device.
    let target = ndp * (split_cpu + split_memory) / (2.0 * 100.0);
    let read_bytes = scans().map(|scan| scan.chunk_bytes).sum();
    PlanCosts { nodes, host, ndp, split_cpu, split_memory, target, tables, read_bytes }
}

/// The choice of the model.
///
/// Reading: host and ndp are compared first, by their totals; a plan that is better left on the host is not split. Of
/// at least two tables, and where there is enough to bring back, the split whose `c_node` lies closest to `c_target` is
/// taken, the smaller one of two.
pub fn choose(costs: &PlanCosts, hardware: &HardwareModel) -> Choice {
    if costs.host <= costs.ndp {
        return Choice::Host;
    }
    let is_enough = costs.read_bytes >= hardware.transfer_bytes * TRANSFER_SHARE;
    if costs.tables < 2 || !is_enough {
        return Choice::Ndp;
    }
    let distance = |node: f64| (node - costs.target).abs();
    let closest = costs
        .nodes
        .iter()
        .enumerate()
        .min_by(|(_, a), (_, b)| distance(**a).total_cmp(&distance(**b)));
    closest.map_or(Choice::Ndp, |(place, _)| Choice::Split(place))
}

fn as_scan(node: &ShapeNode) -> Option<&ScanWork> {
    if let Work::Scan(scan) = &node.work { Some(scan) } else { None }
}

fn is_join(node: &ShapeNode) -> bool {
    matches!(node.work, Work::HashJoin | Work::NestedLoopJoin(_))
}

/// `c_node` of a split: what the device does below its cuts, before anything crosses.
///
/// Reading: "starting with the table with the lowest cost", costs are added along the plan's join order, for only its
/// prefixes can be cut; H0, which joins nothing, is the table of the lowest cost.
fn node_cost(shape: &PlanShape, split: &Placement, hardware: &HardwareModel) -> f64 {
    let table = |place: usize| -> Option<f64> {
        let node = shape.nodes.get(place)?;
        let variables = TableVariables::of(as_scan(node)?, node, hardware);
        let costs = TableCosts::of(&variables, Side::Device, hardware);
        Some(costs.scan + costs.cpu)
    };
    let joins =
        |place: &usize| split.is_on_device(*place) && shape.nodes.get(*place).is_some_and(is_join);
    let mut joined = vec![false; shape.nodes.len()];
    let (mut cost, mut has_join) = (0.0, false);
    for place in (0..shape.nodes.len()).filter(joins) {
        has_join = true;
        cost += shape.nodes.get(place).map_or(0.0, |node| join_cost(node, Side::Device, hardware));
        mark_below(shape, place, &mut joined);
    }
    let places = (0..shape.nodes.len()).filter(|place| split.is_on_device(*place));
    if has_join {
        let joined = places.filter(|place| joined.get(*place).copied().unwrap_or(false));
        return cost + joined.filter_map(table).sum::<f64>();
    }
    places.filter_map(table).min_by(f64::total_cmp).unwrap_or(0.0)
}

fn mark_below(shape: &PlanShape, place: usize, marked: &mut [bool]) {
    let Some(mark) = marked.get_mut(place).filter(|mark| !**mark) else { return };
    *mark = true;
    let inputs = shape.nodes.get(place).map(|node| node.inputs.as_slice()).unwrap_or_default();
    inputs
        .iter()
        .filter(|input| **input > place)
        .for_each(|input| mark_below(shape, *input, marked));
}

/// What (8) adds for a node: rows evaluated, and its buffers.
///
/// Reading: `node_brc` is one evaluation for each block of rows that is copied, at the side's efficiency.
fn join_cost(node: &ShapeNode, side: Side, hardware: &HardwareModel) -> f64 {
    let copies = if side == Side::Host { 1.0 } else { hardware.copy_device };
    let blocks = node.rows * node.row_bytes / hardware.block_bytes;
    node.rows * hardware.row_evaluation + blocks * hardware.row_evaluation / copies
}

/// `c_total` of a plan on one side: (8) with (7) at its root. On the host every table is transferred, on the device the
/// result alone.
fn total(shape: &PlanShape, side: Side, hardware: &HardwareModel) -> f64 {
    let mut cost = 0.0;
    for node in &shape.nodes {
        if let Some(scan) = as_scan(node) {
            let costs = TableCosts::of(&TableVariables::of(scan, node, hardware), side, hardware);
            cost += if side == Side::Host { costs.total() } else { costs.scan + costs.cpu };
        } else if is_join(node) {
            cost += join_cost(node, side, hardware);
        }
    }
    let Some(root) = shape.nodes.first().filter(|_| side == Side::Device) else { return cost };
    let blocks = root.rows * root.row_bytes / hardware.block_bytes;
    cost + blocks * hardware.transfer_of_block()
}

#[cfg(test)]
mod tests;
