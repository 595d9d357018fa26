//! Join orders that a device could prefer: the search for the least work and the costs of reading, joining and crossing
//! in; trees worth a prediction out.
//!
//! The order with the least work counts rows, wherever they are joined. Where a device can run the first joins, another
//! order may be better: one whose first joins all lie on one device and leave few bytes to cross, although they join
//! more rows.
//!
//! 1. The pairs of parts that [`Search`] has weighed are weighed again, and each part keeps *two* trees: the best one
//!    with its rows on the host, and the best one with its rows on a device. The site is a property of a part, as a
//!    sort order is (after Selinger and Adiba, "Access Path Selection in Distributed Database Management Systems",
//!    1980, and Kossmann, "The State of the Art in Distributed Query Processing", ACM Computing Surveys 2000).
//! 2. The host may join rows of a device by letting them cross. Of the rows that a join looks up, only those cross
//!    whose keys the other input has, since it hands the keys down.
//! 3. Work that both sides do at the same time is not a sum. So the device's seconds count in full, in part and hardly
//!    ([`DEVICE_SHARES`]), and each time the best tree of either site and the next best pairs at the root are taken.
//!
//! These are sums of seconds, too rough to choose by: [`super::predict_order`] prices the resulting trees.
//!
//! Pure: ties go to the tree that was found first.

use std::collections::HashMap;

use super::enumerate::{JoinTree, Search, bits};
use super::graph::LeafSet;
use crate::cost::{Limits, ShapeNode};
use crate::profile::{Figure, Profile, SideProfile};

/// Shares of the device's seconds that count: the host may work beside it, and then it costs less.
const DEVICE_SHARES: [f64; 3] = [1.0, 0.25, 0.02];
/// Pairs of parts at the root, beside the best, whose trees are taken.
const NEXT_BEST_COUNT: usize = 3;

/// What reading a leaf costs.
#[derive(Debug, Clone, PartialEq)]
pub struct LeafCost {
    /// Its scan, without keys that joins hand down.
    pub scan: ShapeNode,
    /// Seconds until the host has read its rows, whose pages cross the link.
    pub host_s: f64,
    /// Seconds of a device that reads them where they lie; `None`: none can.
    pub device_s: Option<f64>,
    /// The only device on which it lies; `None`: of several, each would have to join its part with all of the other
    /// input.
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
pub(super) struct SiteCosts {
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
    pub(super) fn of(profile: &Profile, limits: &Limits) -> Self {
        let cores = |side: &SideProfile, used: u32| f64::from(used).min(side.cores_together);
        let host_cores = cores(&profile.host, limits.host_threads).max(f64::MIN_POSITIVE);
        let device_cores = cores(&profile.device, limits.device_partitions).max(f64::MIN_POSITIVE);
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

/// Bytes of rows: of each leaf what is carried to the end, and of each class its key while there is something left to
/// join by it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RowBytes {
    /// By leaf, what is no key.
    pub(super) carried: Vec<f64>,
    /// By class, its leaves and a key.
    pub(super) keys: Vec<(LeafSet, f64)>,
}

impl RowBytes {
    /// Of the join of some leaves.
    pub(super) fn of(&self, leaves: LeafSet) -> f64 {
        let carried: f64 = bits(leaves).filter_map(|leaf| self.carried.get(leaf)).sum();
        let is_open = |class: &&(LeafSet, f64)| class.0 & leaves != 0 && class.0 & !leaves != 0;
        let keys: f64 = self.keys.iter().filter(is_open).map(|(_, bytes)| bytes).sum();
        (carried + keys).max(1.0)
    }
}

/// Orders other than the one with the least work, each once.
pub(super) fn orders_by_site(
    search: &Search,
    leaves: &[Option<LeafCost>],
    row_bytes: &RowBytes,
    costs: &SiteCosts,
) -> Vec<JoinTree> {
    let cheapest = search.cheapest();
    let mut orders: Vec<JoinTree> = Vec::new();
    for device_share in DEVICE_SHARES {
        let costs = costs.with_device(device_share);
        let mut weighing =
            Weighing { search, leaves, device_share, row_bytes, costs, best: HashMap::new() };
        weighing.weigh_all();
        for tree in weighing.found() {
            if Some(&tree) != cheapest.as_ref() && !orders.contains(&tree) {
                orders.push(tree);
            }
        }
    }
    orders
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
    /// The build and the probe input, and where each is joined; nothing for a unit.
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
    /// By leaf; `None`: it is no table, and costs the same in every order.
    leaves: &'a [Option<LeafCost>],
    device_share: f64,
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
            let set = one | other;
            let made = match self.best.get(&set) {
                Some(known) => (known.rows, known.row_bytes),
                None => {
                    let leaves = self.search.leaves_of(set);
                    (self.search.row_count(set), self.row_bytes.of(leaves))
                }
            };
            let Some(joined) = self.joined(*one, *other, made) else { continue };
            self.best
                .entry(set)
                .and_modify(|known| known.take_better(&joined))
                .or_insert(Part { set, ..joined });
        }
    }

    /// The best trees of all units, by site, and of the next best pairs at the root.
    fn found(&self) -> Vec<JoinTree> {
        let all = self.search.all();
        let Some(whole) = self.best.get(&all) else { return Vec::new() };
        let mut pairs: Vec<Part> = self
            .search
            .weighed()
            .iter()
            .filter(|(one, other)| one | other == all)
            .filter_map(|(one, other)| self.joined(*one, *other, (whole.rows, whole.row_bytes)))
            .collect();
        pairs.sort_by(|a, b| a.host.seconds.total_cmp(&b.host.seconds));
        let next_best = pairs.iter().skip(1).take(NEXT_BEST_COUNT).map(|pair| pair.host);
        let best = std::iter::once(whole.host).chain(whole.device);
        best.chain(next_best).filter_map(|way| self.tree_of(all, way)).collect()
    }

    /// The join of two parts, the smaller of which builds.
    fn joined(&self, one: LeafSet, other: LeafSet, made: (f64, f64)) -> Option<Part> {
        let (a, b) = (self.best.get(&one)?, self.best.get(&other)?);
        let (build, probe) = if b.rows < a.rows { (b, a) } else { (a, b) };
        Some(join(build, probe, made, &self.costs))
    }

    fn tree(&self, set: LeafSet, site: Site) -> Option<JoinTree> {
        let part = self.best.get(&set)?;
        let way = match site {
            Site::Host => part.host,
            Site::Device => part.device?,
        };
        self.tree_of(set, way)
    }

    fn tree_of(&self, set: LeafSet, way: Way) -> Option<JoinTree> {
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
                let cost = self.leaves.get(*leaf).and_then(Option::as_ref);
                let device_s = cost.and_then(|cost| cost.device_s);
                let set = 1 << leaf;
                let way = |seconds| Way { seconds, inputs: None };
                Part {
                    set,
                    rows: self.search.graph().row_count(set),
                    row_bytes: self.row_bytes.of(set),
                    host: way(cost.map_or(0.0, |cost| cost.host_s)),
                    device: device_s.map(|seconds| way(seconds * self.device_share)),
                    place: cost.and_then(|cost| cost.device),
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
