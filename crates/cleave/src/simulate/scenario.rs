//! What is simulated: devices, links and a host with their paces, a statement's morsels and where they lie.
//!
//! Times are nanoseconds of virtual time. What a morsel takes follows from the seed, its device and its place alone, so
//! that it is the same whoever works on it, and whenever.

use std::time::Duration;

use cleave_host::device::profile::{Figure, Profile};
use cleave_media::SplitMix64;
use cleave_plan::cost::makespan::{predict, sharing, slot_bytes};
use cleave_plan::cost::{
    Conditions, Limits, Placement as Cuts, PlanShape, ScanWork, ShapeNode, Sharing, SlotSize, Work,
};

/// Nanoseconds of a second.
pub(super) const SECOND_NS: u64 = 1_000_000_000;
/// Bytes of a value on pages and in slots, as of the columns of particles.
const VALUE_BYTES: f64 = 4.0;
/// Morsels of the scan that is priced by a profile: so many that what a run costs once does not count.
const PRICED_MORSELS: f64 = 1000.0;

/// Who takes morsels of a device beside itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Stealing {
    /// Nobody
    Off,
    /// Idle devices of its node
    Node,
    /// The idle host
    Host,
    /// Both
    On,
}

impl Stealing {
    pub(super) fn is_by_node(self) -> bool {
        matches!(self, Self::Node | Self::On)
    }

    pub(super) fn is_by_host(self) -> bool {
        matches!(self, Self::Host | Self::On)
    }
}

/// How a table's morsels are divided over devices.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Placement {
    /// All devices have as many.
    Even,
    /// The n-th device has one n-th of what the first one has.
    Zipf,
    /// In proportion to these weights, which are repeated where there are more devices.
    Weights(Vec<f64>),
}

/// Statements that are the queries of one batch: each filters by one column of one table, both at random.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Batch {
    pub(super) columns: u32,
    /// Tables, each on the devices whose number has the same rest.
    pub(super) tables: u32,
    /// Queries of a group.
    pub(super) size_max: usize,
    /// What each further query of a group adds to the time of a morsel, as a share.
    pub(super) each_more: f64,
}

/// The host's side.
#[derive(Debug, Clone)]
pub(super) struct HostCosts {
    pub(super) cores: u32,
    /// Of a core: a morsel that it takes, without its way over the link.
    pub(super) morsel_ns: u64,
    /// Of a core: beginning a run.
    pub(super) run_ns: u64,
    /// Of a core: sending a message, or taking one in.
    pub(super) message_ns: u64,
    /// Bytes of slots that a core takes in.
    pub(super) decode_rate: u64,
}

/// See the [module](self).
#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) devices: usize,
    /// Devices of a node: one process with one link.
    pub(super) per_node: usize,
    /// Of each device.
    pub(super) cores: u32,
    /// Morsels of a device, in the mean.
    pub(super) morsels: u32,
    pub(super) placement: Placement,
    /// Of a device's core: a morsel, in the mean.
    pub(super) morsel_ns: u64,
    /// Morsels take longer or shorter by up to this share.
    pub(super) noise: f64,
    /// Of a device's core: a run, before its first morsel.
    pub(super) start_ns: u64,
    /// Devices that take so many times as long.
    pub(super) slow: Vec<(usize, f64)>,
    /// Rows that a morsel gives.
    pub(super) result_bytes: u64,
    /// Pages of a morsel, where the host reads them.
    pub(super) page_bytes: u64,
    pub(super) slot_bytes: u64,
    pub(super) slot_count: u32,
    /// Bytes a second of a node's link, and of the host's own, in each direction.
    pub(super) node_rate: u64,
    pub(super) host_rate: u64,
    pub(super) round_trip_ns: u64,
    pub(super) host: HostCosts,
    pub(super) stealing: Stealing,
    /// Statements, of which so many run side by side.
    pub(super) statements: u32,
    pub(super) at_once: u32,
    pub(super) batch: Option<Batch>,
    /// The node of this device is lost at that time.
    pub(super) lost: Option<(usize, u64)>,
    /// Pages of each device lie on a device of the next node too.
    pub(super) mirrored: bool,
    pub(super) seed: u64,
}

/// What follows from a measured profile, for a scan that filters by one column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scan {
    /// Rows of a morsel.
    pub(super) rows: u32,
    /// Columns of the result.
    pub(super) columns: u32,
    /// Rows that it keeps, as a share.
    pub(super) selectivity: f64,
}

/// What `scan` takes by a profile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Priced {
    pub(super) device_morsel_ns: u64,
    pub(super) host_morsel_ns: u64,
    pub(super) result_bytes: u64,
    pub(super) page_bytes: u64,
    pub(super) slot_bytes: u64,
}

impl Scan {
    /// Prices a morsel by the cost model that statements are planned with; None where the model has none.
    pub(super) fn price(&self, profile: &Profile, slot_count: u32) -> Option<Priced> {
        let (columns, rows) = (f64::from(self.columns), f64::from(self.rows) * PRICED_MORSELS);
        let kept = rows * self.selectivity;
        let scan = ScanWork {
            table: "scan".to_owned(),
            rows,
            rows_matched: kept,
            rows_kept: kept,
            filter_columns: 1.0,
            output_columns: columns,
            pages: PRICED_MORSELS,
            chunk_bytes: rows * VALUE_BYTES * (1.0 + columns),
            conditions: Conditions { comparisons: 1.0, ..Conditions::default() },
            ..ScanWork::default()
        };
        let page_bytes = scan.chunk_bytes / PRICED_MORSELS;
        let row_bytes = columns * VALUE_BYTES;
        let node = ShapeNode {
            work: Work::Scan(scan),
            inputs: Vec::new(),
            rows: kept,
            row_bytes,
            may_share: true,
            is_broadcast: false,
        };
        let shape = PlanShape { nodes: vec![node] };
        // One partition: that several share what a device has is counted below.
        let limits = Limits {
            device_memory_bytes: 1 << 30,
            host_memory_bytes: 1 << 32,
            device_load: 0.0,
            slot_size: SlotSize::Auto { bytes_max: 1 << 20 },
            slot_count,
            device_partitions: 1,
            host_threads: profile.host.cores,
            shares_work: false,
            lent_share: 0.0,
            broadcast_bytes: 0,
            cut_share_max: 1.0,
        };
        let alone = sharing(&shape, 0, profile, &limits)?;
        let device = &profile.device;
        let share = (f64::from(device.cores.max(1)) / device.cores_together).max(1.0);
        let host = predict(&shape, &Cuts::default(), profile, &limits);
        Some(Priced {
            device_morsel_ns: nanoseconds(alone.device_s / PRICED_MORSELS * share),
            host_morsel_ns: nanoseconds(host.host_cpu / PRICED_MORSELS),
            result_bytes: whole(kept * row_bytes / PRICED_MORSELS),
            page_bytes: whole(page_bytes),
            slot_bytes: u64::from(slot_bytes(&shape, 0, profile, &limits)),
        })
    }
}

impl HostCosts {
    /// The bytes of slots that a core of the host takes in each second, by `profile`.
    pub(super) fn decode_rate_of(profile: &Profile) -> u64 {
        whole(profile.host.rate(Figure::SlotDecode)).max(1)
    }
}

impl Scenario {
    /// The nodes.
    pub(super) fn nodes(&self) -> usize {
        self.devices.div_ceil(self.per_node)
    }

    /// Each device's morsels.
    pub(super) fn morsels_by_device(&self) -> Vec<u32> {
        let weight = |device: usize| match &self.placement {
            Placement::Even => 1.0,
            Placement::Zipf => 1.0 / (device + 1) as f64,
            Placement::Weights(weights) => {
                weights.get(device % weights.len().max(1)).copied().unwrap_or(1.0)
            }
        };
        let weights: Vec<f64> = (0..self.devices).map(weight).collect();
        let sum: f64 = weights.iter().sum();
        let total = u64::from(self.morsels) * self.devices as u64;
        let share = |weight: &f64| total as f64 * weight / sum.max(f64::MIN_POSITIVE);
        let mut counts: Vec<u64> = weights.iter().map(|weight| whole(share(weight))).collect();
        // Those that lost most by rounding down get what is left.
        let mut by_rest: Vec<usize> = (0..self.devices).collect();
        let rest = |device: usize| weights.get(device).map(share).unwrap_or_default().fract();
        by_rest.sort_by(|a, b| rest(*b).total_cmp(&rest(*a)).then(a.cmp(b)));
        let left = total.saturating_sub(counts.iter().sum());
        for device in by_rest.into_iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
            if let Some(count) = counts.get_mut(device) {
                *count += 1;
            }
        }
        counts.into_iter().map(|count| u32::try_from(count).unwrap_or(u32::MAX)).collect()
    }

    /// How many times as long as others `device` takes.
    pub(super) fn slowness(&self, device: usize) -> f64 {
        let own = self.slow.iter().filter(|(slow, _)| *slow == device);
        own.map(|(_, times)| *times).product()
    }

    /// How much longer or shorter than in the mean the morsel of `device` at `place` takes.
    pub(super) fn weight(&self, device: usize, place: u32) -> f64 {
        let at = ((device as u64) << 32) | u64::from(place);
        let random = SplitMix64::new(self.seed ^ at.wrapping_mul(0x9e37_79b9_7f4a_7c15)).next_u64();
        // The upper 53 bits, from -1 to 1.
        let even = (random >> 11) as f64 / (1_u64 << 52) as f64 - 1.0;
        1.0 + self.noise * even
    }

    /// The other device that has the pages of `device`, on another node.
    pub(super) fn copy_of(&self, device: usize) -> Option<usize> {
        let copy = (device + self.per_node) % self.devices.max(1);
        (self.mirrored && copy / self.per_node != device / self.per_node).then_some(copy)
    }

    /// What a morsel takes for so many queries, against one.
    pub(super) fn of_members(&self, count: usize) -> f64 {
        let each_more = self.batch.as_ref().map_or(0.0, |batch| batch.each_more);
        1.0 + each_more * count.saturating_sub(1) as f64
    }

    /// What each side is predicted to take for a statement over so many morsels of each device, of which each takes
    /// `factor` times the usual time: by the mean, and the device that has most of them.
    pub(super) fn sharing(&self, morsels: &[u32], factor: f64) -> Sharing {
        let total: f64 = morsels.iter().map(|count| f64::from(*count)).sum();
        let most = f64::from(morsels.iter().copied().max().unwrap_or(0));
        let link_s = |bytes: u64| total * bytes as f64 / self.host_rate.max(1) as f64;
        let host_s = total * factor * seconds(self.host.morsel_ns);
        let host_s = host_s / f64::from(self.host.cores.max(1));
        let pages_link_s = link_s(self.page_bytes);
        Sharing {
            host_before_s: 0.0,
            host_s: host_s.max(pages_link_s),
            device_before_s: 0.0,
            device_s: most * factor * seconds(self.morsel_ns) / f64::from(self.cores.max(1)),
            rows_link_s: link_s(self.result_bytes),
            pages_link_s,
            morsels: total,
        }
    }

    /// Core time for all morsels of `device`, of which it has so many, in units of the mean.
    pub(super) fn work(&self, device: usize, morsels: u32) -> f64 {
        (0..morsels).map(|place| self.weight(device, place)).sum()
    }

    /// The least time for so much work: all devices' cores are at work from begin to end, at their own pace.
    pub(super) fn ideal_ns(&self, work: f64) -> u64 {
        let pace = |device| f64::from(self.cores) / self.slowness(device);
        let pace: f64 = (0..self.devices).map(pace).sum();
        whole(work * self.morsel_ns as f64 / pace.max(f64::MIN_POSITIVE))
    }
}

/// `ns` so many times.
pub(super) fn times(ns: u64, factor: f64) -> u64 {
    whole((ns as f64 * factor).round())
}

pub(super) fn seconds(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64()
}

pub(super) fn nanoseconds(seconds: f64) -> u64 {
    whole((seconds * SECOND_NS as f64).round())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
pub(super) fn whole(count: f64) -> u64 {
    count as u64
}
