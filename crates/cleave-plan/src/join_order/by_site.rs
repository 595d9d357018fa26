//! Orders that a device could prefer: what was searched for the least work, and what reading, joining and crossing cost, in; trees
//! that are expected to be done sooner out.
//!
//! The order with the least work counts rows, wherever they are joined. Where a device can run the first joins, another order
//! may be better: one whose first joins all lie on one device and leave few bytes to cross, although they join more rows.
//!
//! 1. The pairs of parts that [`Search`] has weighed are weighed again, and each part keeps *two* trees: the best one whose rows
//!    are there on the host, and the best one whose rows are there on a device. The site is a property of a part, as a sort order is (after
//!    Selinger and Adiba, "Access Path Selection in Distributed Database Management Systems", 1980, and Kossmann, "The State of the Art
//!    in Distributed Query Processing", ACM Computing Surveys 2000).
//! 2. The host may join what a device has by letting its rows cross. Of the rows that a join looks up, only those cross whose keys the
//!    other input has, since it hands them down.
//! 3. What both sides do at the same time is not a sum. So the device's seconds count once in full and once by
//!    [`BESIDE_SHARE`], and the trees of both are offered.
//!
//! These are seconds added up, which is too rough to choose by: the cuts of each order that is offered are priced by the cost
//! model over its own physical plan. Here it is only found out which orders are worth that.
//!
//! Pure: ties go to what was found first.

use std::collections::HashMap;

use super::enumerate::{JoinTree, Search, bits};
use super::graph::LeafSet;
use crate::cost::Limits;
use crate::profile::{Figure, Profile, SideProfile};

/// Most orders that are offered beside the one with the least work: each costs a physical plan.
pub const OTHERS_MAX: usize = 3;
/// Share of the device's seconds that count where the host works beside it.
const BESIDE_SHARE: f64 = 0.25;

/// What reading a leaf costs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LeafCost {
    /// Seconds until the host has read its rows, whose pages cross the link.
    pub host_s: f64,
    /// Seconds of a device that reads them where they lie; `None`: none can.
    pub device_s: Option<f64>,
    /// The only device on which it lies; `None`: of several, each would have to join its part with all of the other input.
    pub device: Option<usize>,
}

/// Seconds of one side for what it joins.
#[derive(Debug, Clone, Copy, PartialEq)]
struct JoinCost {
    build_row_s: f64,
    probe_row_s: f64,
    byte_s: f64,
}

/// What joining costs on either side, and crossing from one to the other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SiteCosts {
    host: JoinCost,
    device: JoinCost,
    /// Seconds of the link for a byte.
    link_byte_s: f64,
    /// Seconds of both sides for a byte that crosses.
    slot_byte_s: f64,
    /// Seconds until the first row has crossed.
    cut_s: f64,
}

impl SiteCosts {
    /// By the figures of both sides and of the link, and what of them a statement may use.
    pub fn of(profile: &Profile, limits: &Limits) -> Self {
        let cores = |side: &SideProfile, used: u32| f64::from(used).min(side.cores_together);
        let host_cores = cores(&profile.host, limits.host_threads).max(f64::MIN_POSITIVE);
        let device_cores = cores(&profile.device, limits.device_copies).max(f64::MIN_POSITIVE);
        let join = |side: &SideProfile, cores: f64| {
            let unit = |figure| 1.0 / side.rate(figure) / cores;
            JoinCost {
                build_row_s: unit(Figure::JoinBuild),
                probe_row_s: unit(Figure::JoinProbe),
                byte_s: unit(Figure::Copy),
            }
        };
        let encode_s = 1.0 / profile.device.rate(Figure::SlotEncode) / device_cores;
        let decode_s = 1.0 / profile.host.rate(Figure::SlotDecode) / host_cores;
        Self {
            host: join(&profile.host, host_cores),
            device: join(&profile.device, device_cores),
            link_byte_s: 1.0 / profile.link.bytes_per_second.max(1.0),
            slot_byte_s: encode_s + decode_s,
            cut_s: profile.link.round_trip_s,
        }
    }

    /// The same with the seconds of the device's joins times `share`.
    fn with_device(self, share: f64) -> Self {
        let JoinCost { build_row_s, probe_row_s, byte_s } = self.device;
        let device = JoinCost {
            build_row_s: build_row_s * share,
            probe_row_s: probe_row_s * share,
            byte_s: byte_s * share,
        };
        Self { device, ..self }
    }
}

/// Bytes of rows: of each leaf what is carried to the end, and of each class its key while there is something left to join by it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RowBytes {
    /// By leaf, what is no key.
    pub(super) carried: Vec<f64>,
    /// By class, its leaves and a key.
    pub(super) keys: Vec<(LeafSet, f64)>,
}

impl RowBytes {
    /// Of the join of some leaves.
    fn of(&self, leaves: LeafSet) -> f64 {
        let carried: f64 = bits(leaves).filter_map(|leaf| self.carried.get(leaf)).sum();
        let is_open = |class: &&(LeafSet, f64)| class.0 & leaves != 0 && class.0 & !leaves != 0;
        let keys: f64 = self.keys.iter().filter(is_open).map(|(_, bytes)| bytes).sum();
        (carried + keys).max(1.0)
    }
}

/// An order that may be done sooner than the one with the least work.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Offer {
    pub(super) tree: JoinTree,
    /// Its seconds as a share of those of the order with the least work.
    pub(super) share: f64,
}

/// The orders that are expected to take at most `share_max` of the time of the one with the least work, the most promising first: at
/// most [`OTHERS_MAX`].
pub(super) fn orders_by_site(
    search: &Search,
    leaves: &[LeafCost],
    row_bytes: &RowBytes,
    costs: &SiteCosts,
    share_max: f64,
) -> Vec<Offer> {
    let Some(cheapest) = search.cheapest() else { return Vec::new() };
    let mut offers: Vec<Offer> = Vec::new();
    for share in [1.0, BESIDE_SHARE] {
        let costs = costs.with_device(share);
        let leaves: Vec<LeafCost> = leaves
            .iter()
            .map(|leaf| LeafCost { device_s: leaf.device_s.map(|s| s * share), ..*leaf })
            .collect();
        let mut weighing = Weighing { search, leaves, row_bytes, costs, best: HashMap::new() };
        let of_cheapest = weighing.along(&cheapest).delivered_s(&costs);
        weighing.weigh_all();
        for (tree, seconds) in weighing.found() {
            let share = seconds / of_cheapest;
            let is_new = tree != cheapest && !offers.iter().any(|known| known.tree == tree);
            if share <= share_max && is_new {
                offers.push(Offer { tree, share });
            }
        }
    }
    offers.sort_by(|a, b| a.share.total_cmp(&b.share));
    offers.truncate(OTHERS_MAX);
    offers
}

/// Where the rows of a part are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Site {
    Host,
    Device,
}

/// The cheapest way that was found to have a part's rows at a site.
#[derive(Debug, Clone, Copy)]
struct Way {
    seconds: f64,
    /// What builds and what probes, and where each is joined; nothing for a unit.
    inputs: Option<[(LeafSet, Site); 2]>,
}

/// A part, on either side.
#[derive(Debug, Clone, Copy)]
struct Part {
    set: LeafSet,
    rows: f64,
    /// Bytes of a row.
    row_bytes: f64,
    host: Way,
    device: Option<Way>,
    /// The only device that has all of it.
    place: Option<usize>,
}

impl Part {
    /// Seconds until `rows` of those that the device has are on the host.
    fn crossed_s(&self, rows: f64, costs: &SiteCosts) -> Option<f64> {
        let bytes = rows * self.row_bytes;
        let device_s = self.device?.seconds;
        Some(device_s.max(bytes * costs.link_byte_s) + bytes * costs.slot_byte_s + costs.cut_s)
    }

    /// Seconds until all rows are on the host, joined wherever that is better.
    fn delivered_s(&self, costs: &SiteCosts) -> f64 {
        self.crossed_s(self.rows, costs).unwrap_or(f64::INFINITY).min(self.host.seconds)
    }

    /// Keeps what `other`, the same rows, has that is better.
    fn take_better(&mut self, other: &Self) {
        if other.host.seconds < self.host.seconds {
            self.host = other.host;
        }
        if let Some(way) = other.device
            && self.device.is_none_or(|own| way.seconds < own.seconds)
        {
            self.device = Some(way);
        }
    }
}

struct Weighing<'a> {
    search: &'a Search,
    /// By leaf.
    leaves: Vec<LeafCost>,
    row_bytes: &'a RowBytes,
    costs: SiteCosts,
    best: HashMap<LeafSet, Part>,
}

impl Weighing<'_> {
    /// Weighs every pair of parts that the search has weighed.
    fn weigh_all(&mut self) {
        for (place, unit) in self.search.units().iter().enumerate() {
            let part = Part { set: 1 << place, ..self.along(unit) };
            let unit = Way { inputs: None, ..part.host };
            let device = part.device.map(|way| Way { inputs: None, ..way });
            self.best.insert(part.set, Part { host: unit, device, ..part });
        }
        for (one, other) in self.search.weighed() {
            let (Some(a), Some(b)) = (self.best.get(one), self.best.get(other)) else { continue };
            let (build, probe) = if b.rows < a.rows { (b, a) } else { (a, b) };
            let set = one | other;
            let (rows, row_bytes) = match self.best.get(&set) {
                Some(known) => (known.rows, known.row_bytes),
                None => {
                    let leaves = self.search.leaves_of(set);
                    (self.search.row_count(set), self.row_bytes.of(leaves))
                }
            };
            let joined = join(build, probe, (rows, row_bytes), &self.costs);
            self.best
                .entry(set)
                .and_modify(|known| known.take_better(&joined))
                .or_insert(Part { set, ..joined });
        }
    }

    /// The best trees of all units, by site, with their seconds.
    fn found(&self) -> Vec<(JoinTree, f64)> {
        let all = self.search.all();
        let Some(part) = self.best.get(&all) else { return Vec::new() };
        let host = self.tree(all, Site::Host).map(|tree| (tree, part.host.seconds));
        let device = part.crossed_s(part.rows, &self.costs);
        let device = device.and_then(|seconds| Some((self.tree(all, Site::Device)?, seconds)));
        host.into_iter().chain(device).collect()
    }

    fn tree(&self, set: LeafSet, site: Site) -> Option<JoinTree> {
        let part = self.best.get(&set)?;
        let way = match site {
            Site::Host => part.host,
            Site::Device => part.device?,
        };
        let Some([(build, build_site), (probe, probe_site)]) = way.inputs else {
            return self.search.units().get(bits(set).next()?).cloned();
        };
        let (build, probe) = (self.tree(build, build_site)?, self.tree(probe, probe_site)?);
        Some(JoinTree::Join(Box::new(build), Box::new(probe)))
    }

    /// The rows of `tree`, joined as it says, each part wherever it is best. Sets are of leaves here.
    fn along(&self, tree: &JoinTree) -> Part {
        match tree {
            JoinTree::Leaf(leaf) => {
                let cost = self.leaves.get(*leaf).copied().unwrap_or_default();
                let set = 1 << leaf;
                let way = |seconds| Way { seconds, inputs: None };
                Part {
                    set,
                    rows: self.search.graph().row_count(set),
                    row_bytes: self.row_bytes.of(set),
                    host: way(cost.host_s),
                    device: cost.device_s.map(way),
                    place: cost.device,
                }
            }
            JoinTree::Join(build, probe) => {
                let (build, probe) = (self.along(build), self.along(probe));
                let set = build.set | probe.set;
                let made = (self.search.graph().row_count(set), self.row_bytes.of(set));
                join(&build, &probe, made, &self.costs)
            }
        }
    }
}

/// The join of two parts, which has so many rows of so many bytes.
fn join(build: &Part, probe: &Part, (rows, row_bytes): (f64, f64), costs: &SiteCosts) -> Part {
    let seconds = |side: &JoinCost, probed: f64| {
        let bytes = build.rows * build.row_bytes + rows * row_bytes;
        build.rows * side.build_row_s + probed * side.probe_row_s + bytes * side.byte_s
    };
    let crossed = build.crossed_s(build.rows, costs);
    let (built_s, built_at) = sooner(build.host.seconds, crossed);
    // The keys go down before the other input is asked for its rows.
    let kept = probe.rows.min(rows);
    let crossed = probe.crossed_s(kept, costs).map(|s| s + seconds(&costs.host, kept));
    let (probed_s, probed_at) =
        sooner(probe.host.seconds + seconds(&costs.host, probe.rows), crossed);
    let host = Way {
        seconds: built_s + probed_s,
        inputs: Some([(build.set, built_at), (probe.set, probed_at)]),
    };
    let place = build.place.filter(|place| probe.place == Some(*place));
    let device = place.and_then(|_| {
        let inputs = Some([(build.set, Site::Device), (probe.set, Site::Device)]);
        let inputs_s = build.device?.seconds + probe.device?.seconds;
        Some(Way { seconds: inputs_s + seconds(&costs.device, probe.rows), inputs })
    });
    Part { set: build.set | probe.set, rows, row_bytes, host, device, place }
}

/// The better of reading on the host and letting rows cross.
fn sooner(host_s: f64, crossed_s: Option<f64>) -> (f64, Site) {
    match crossed_s {
        Some(crossed_s) if crossed_s < host_s => (crossed_s, Site::Device),
        _ => (host_s, Site::Host),
    }
}

#[cfg(test)]
mod tests;
