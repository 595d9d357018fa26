//! The cost strategy `makespan`: predicts when a split is done, with host, link and device as a pipeline.
//!
//! 1. [`predict`] walks the plan as it runs: the host pulls, a join first reads all of its first input, then its second
//!    streams.
//! 2. Operators through which rows stream together are one [`Stream`]: the work of host, link and device for it.
//!    [`Walk::close`] turns it into time: the three overlap, slot by slot, as far as the slots reach.
//! 3. A fragment ([`Walk::fragment`]) starts when its first row is asked for. What stops its stream (a build side, an
//!    aggregate, a sort) is done before its first slot, and no other side works meanwhile.
//! 4. Where the host takes morsels of a fragment ([`sharing`]), both work on its stream at their own pace, and finish
//!    it at the same time.
//! 5. A fragment that needs more memory than the device gives is refused: the cost is the attempt, and then all of it
//!    on the host.
//! 6. The host makes what is broadcast to a fragment and sends it to each of its devices before it begins
//!    ([`Walk::send`]).
//! 7. Several devices work on their parts of a scan at the same time: the largest part counts. They share one link.
//!
//! ```text
//!  device  ░build░▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
//!  link           ▒▒  ▒▒  ▒▒  ▒▒ ▒▒          one column of ▒ is one slot: it passes one after the other,
//!  host             ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒       and the slowest sets the pace
//! ```
//!
//! 8. A recursion runs its second input once a round ([`Stream::rounds`]). Rounds follow one another, and nothing of a
//!    fragment leaves before the last. The host reads the pages of a round from its buffer pool again, the device from
//!    its media.
//!
//! Invariants: no predicted time falls where a round trip, a byte or a row takes longer; no side is busy for longer
//! than the statement takes. Deliberately absent: anything that a profile does not say, and chance.

use crate::profile::Profile;

use super::slots::{Crossing, SLOTS_AT_WORK};
use super::work::{Seconds, held_bytes, input, is_breaker, is_join};
use super::{Limits, Placement, PlanShape, Prediction, ScanWork, ShapeNode, Sharing, Work};

/// Requests for pages that the host has on their way.
const REQUESTS_AHEAD: f64 = 4.0;
/// Seconds of a device's core for each fragment, beside its rows: decoding, starting, reporting, the network's part.
/// Without limits a fragment takes 0.8 to 2 ms of the device's process beside its operators (`docs/benchmarks.md`).
const FRAGMENT_CORE_S: f64 = 0.0012;
/// The same for each of its scans, which is opened and has a morsel list of its own.
const SCAN_CORE_S: f64 = 0.0006;
/// Pages for each own partition of a run that is long enough for others to help it, and those that each partition reads
/// at a time; as devices have it.
const PAGES_TO_LEND: f64 = 4.0;
const PAGES_AHEAD: f64 = 2.0;
/// Others are taken to do no more of a run than this.
const LENT_SHARE_MAX: f64 = 0.8;
/// Least share of its cores that a device has for a fragment, however many others run.
const LOAD_SHARE_MIN: f64 = 0.05;

/// What `placement` of `shape` takes on the hardware of `profile`, within `limits`.
pub fn predict(
    shape: &PlanShape,
    placement: &Placement,
    profile: &Profile,
    limits: &Limits,
) -> Prediction {
    let prediction = Walk::new(shape, Some(placement), profile, limits).run();
    let available = limits.device_memory_bytes as f64;
    let needed = prediction.device_memory_bytes;
    if needed <= available {
        return prediction;
    }
    let host = Walk::new(shape, None, profile, limits).run();
    refused(prediction, host, available / needed)
}

/// The time of each side alone for the fragment whose root is the node at `place`.
pub fn sharing(
    shape: &PlanShape,
    place: usize,
    profile: &Profile,
    limits: &Limits,
) -> Option<Sharing> {
    sides(shape, place, profile, limits).map(|(sharing, _)| sharing)
}

/// As [`sharing`], of a fragment that the host would run as a whole; None where it lacks the memory.
pub fn recall(
    shape: &PlanShape,
    place: usize,
    profile: &Profile,
    limits: &Limits,
) -> Option<Sharing> {
    let (sharing, alone) = sides(shape, place, profile, limits)?;
    (alone.fixed_bytes <= limits.host_memory_bytes as f64).then_some(sharing)
}

/// The time of each side, and what the host needs to run the fragment alone.
fn sides(
    shape: &PlanShape,
    place: usize,
    profile: &Profile,
    limits: &Limits,
) -> Option<(Sharing, Alone)> {
    let node = shape.nodes.get(place)?;
    let walk = Walk::new(shape, None, profile, limits);
    let mut inside = Inside::default();
    walk.open_inside(place, node, &mut inside);
    let alone = walk.alone(place, node);
    Some((walk.sharing(node, &inside, &alone), alone))
}

/// Bytes of a slot for the rows of the fragment whose root is the node at `place`.
pub fn slot_bytes(shape: &PlanShape, place: usize, profile: &Profile, limits: &Limits) -> u32 {
    let Some(node) = shape.nodes.get(place) else { return limits.slot_size.usual() };
    let walk = Walk::new(shape, None, profile, limits);
    let mut inside = Inside::default();
    walk.open_inside(place, node, &mut inside);
    walk.slot_bytes(node, &inside)
}

/// A fragment run that is refused for its memory after `share` of its work before its first row.
fn refused(attempt: Prediction, host: Prediction, share: f64) -> Prediction {
    let tried_s = attempt.device_busy.min(attempt.finish) * share;
    let why = format!(
        "a fragment needs about {} of device memory, and has {}",
        bytes(attempt.device_memory_bytes),
        bytes(attempt.device_memory_bytes * share),
    );
    Prediction {
        finish: host.finish + tried_s,
        first_result: host.first_result + tried_s,
        device_busy: host.device_busy + tried_s,
        host_wait: host.host_wait + tried_s,
        device_memory_bytes: attempt.device_memory_bytes,
        fits: false,
        why: Some(why),
        ..host
    }
}

fn bytes(count: f64) -> String {
    if count < 10e6 { format!("{:.0} kB", count / 1e3) } else { format!("{:.0} MB", count / 1e6) }
}

/// The cost of rows that stream together, before the stream is closed.
#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    /// Before the first row: only the device works, or a message crosses the link.
    before_s: f64,
    /// Of one host core.
    host_s: f64,
    /// Of the device, until its last row, at the pace of its partitions.
    device_s: f64,
    /// Of one device core.
    device_core_s: f64,
    /// Of the device's media, for pages that the host reads.
    media_s: f64,
    /// Bytes that cross.
    link_bytes: f64,
    /// Requests for pages.
    requests: f64,
    /// Pages that the host decodes, whether or not they cross.
    pages: f64,
    /// Slots of fragments.
    slots: f64,
}

impl Stream {
    /// Both, of inputs that stream at the same time.
    fn and(self, other: Self) -> Self {
        Self {
            before_s: self.before_s.max(other.before_s),
            host_s: self.host_s + other.host_s,
            device_s: self.device_s + other.device_s,
            device_core_s: self.device_core_s + other.device_core_s,
            media_s: self.media_s + other.media_s,
            link_bytes: self.link_bytes + other.link_bytes,
            requests: self.requests + other.requests,
            pages: self.pages + other.pages,
            slots: self.slots + other.slots,
        }
    }

    /// The same so many times, one after the other; pages are on the host from the second time on.
    fn rounds(self, count: f64) -> Self {
        Self {
            before_s: self.before_s * count,
            host_s: self.host_s * count,
            device_s: self.device_s * count,
            device_core_s: self.device_core_s * count,
            media_s: self.media_s,
            // Rows of fragments cross in each round.
            link_bytes: self.link_bytes * if self.slots > 0.0 { count } else { 1.0 },
            requests: self.requests,
            pages: self.pages * count,
            slots: self.slots * count,
        }
    }

    /// A stream of which only a share is asked for.
    fn cut_short(self, share: f64) -> Self {
        Self {
            before_s: self.before_s,
            host_s: self.host_s * share,
            device_s: self.device_s * share,
            device_core_s: self.device_core_s * share,
            media_s: self.media_s * share,
            link_bytes: self.link_bytes * share,
            requests: self.requests * share,
            pages: self.pages * share,
            slots: self.slots * share,
        }
    }
}

/// What a fragment has done before its stream, and what is yet to stream.
#[derive(Debug, Clone, Copy, Default)]
struct Inside {
    /// Until here: builds, aggregates, sorts.
    done_s: f64,
    done_core_s: f64,
    /// Of one core, of the stream that is open.
    core_s: f64,
    /// Of the media, of that stream.
    media_s: f64,
    /// Pages of its scans: partitions share them.
    pages: f64,
    held_bytes: f64,
    /// Of `done_s`, until the last build side was taken in.
    built_s: f64,
    /// Of that stream, the share of the device that has most of it; 0: all.
    share_beside: f64,
}

/// A fragment's operators on the host.
struct Alone {
    built_s: f64,
    finish_s: f64,
    cpu_s: f64,
    link_bytes: f64,
    /// Most bytes that its operators hold at once and cannot write to media.
    fixed_bytes: f64,
}

/// The plan as it runs.
struct Walk<'a> {
    shape: &'a PlanShape,
    /// None: all on the host.
    placement: Option<&'a Placement>,
    /// Broadcast rows are there already.
    has_broadcasts: bool,
    profile: &'a Profile,
    limits: &'a Limits,
    host: Seconds,
    device: Seconds,
    host_cores: f64,
    device_cores: f64,
    partitions: f64,
    clock_s: f64,
    /// When the last build side of the host was taken in.
    built_s: f64,
    /// Bytes that the host's operators hold now, and of those that cannot spill.
    held_bytes: f64,
    fixed_bytes_peak: f64,
    /// Most bytes that are broadcast at once.
    sent_bytes_peak: f64,
    so_far: Prediction,
}

impl<'a> Walk<'a> {
    fn new(
        shape: &'a PlanShape,
        placement: Option<&'a Placement>,
        profile: &'a Profile,
        limits: &'a Limits,
    ) -> Self {
        let free = (1.0 - limits.device_load).clamp(LOAD_SHARE_MIN, 1.0);
        let threads = f64::from(limits.host_threads.max(1));
        Self {
            shape,
            placement,
            has_broadcasts: false,
            profile,
            limits,
            host: Seconds::of(&profile.host),
            device: Seconds::of(&profile.device),
            host_cores: threads.min(profile.host.cores_together).max(LOAD_SHARE_MIN),
            device_cores: (profile.device.cores_together * free).max(LOAD_SHARE_MIN),
            partitions: f64::from(limits.device_partitions.max(1)),
            clock_s: 0.0,
            built_s: 0.0,
            held_bytes: 0.0,
            fixed_bytes_peak: 0.0,
            sent_bytes_peak: 0.0,
            so_far: Prediction::default(),
        }
    }

    fn run(mut self) -> Prediction {
        let (Some(root), is_on_device) = (self.shape.nodes.first(), self.is_on_device(0)) else {
            return Prediction { fits: true, ..Prediction::default() };
        };
        let stream = if is_on_device { self.fragment(0, root) } else { self.open(0, root) };
        let first_piece_s = self.close(&stream);
        self.so_far.first_result = first_piece_s;
        self.so_far.finish = self.clock_s;
        self.so_far.fits = true;
        if self.sent_bytes_peak > self.limits.broadcast_bytes as f64 {
            self.so_far.fits = false;
            self.so_far.why = Some(format!(
                "rows to broadcast have about {}, and may have {}",
                bytes(self.sent_bytes_peak),
                bytes(self.limits.broadcast_bytes as f64),
            ));
        }
        let available = self.limits.host_memory_bytes as f64;
        if self.fixed_bytes_peak > available {
            self.so_far.fits = false;
            self.so_far.why = Some(format!(
                "joins on the host hold about {}, and have {}",
                bytes(self.fixed_bytes_peak),
                bytes(available),
            ));
        }
        self.so_far
    }

    fn is_on_device(&self, place: usize) -> bool {
        self.placement.is_some_and(|placement| placement.is_on_device(place))
    }

    /// The inputs of a node, without those that do not come after it.
    fn inputs(&self, place: usize, node: &'a ShapeNode) -> impl Iterator<Item = usize> + use<'a> {
        node.inputs.iter().copied().filter(move |input| *input > place)
    }

    /// The stream into a node of the host from its input at `place`.
    fn input(&mut self, place: usize) -> Stream {
        let Some(node) = self.shape.nodes.get(place) else { return Stream::default() };
        if self.is_on_device(place) { self.fragment(place, node) } else { self.open(place, node) }
    }

    /// Runs all that stops the stream which leaves a node of the host.
    fn open(&mut self, place: usize, node: &'a ShapeNode) -> Stream {
        if let Work::Scan(scan) = &node.work {
            return self.read(scan, node.row_bytes);
        }
        let held = held_bytes(self.shape, node, 1.0);
        let mut inputs = self.inputs(place, node);
        if is_join(&node.work) {
            let is_there = |first: &usize| self.has_broadcasts && self.is_broadcast(*first);
            let mut build = match inputs.next().filter(|first| !is_there(first)) {
                Some(first) => self.input(first),
                None => Stream::default(),
            };
            if let Some(first) = input(self.shape, node, 0) {
                build.host_s += self.host.build(node, first);
            }
            self.close(&build);
            self.built_s = self.clock_s;
            self.held_bytes += held;
            self.fixed_bytes_peak = self.fixed_bytes_peak.max(self.held_bytes);
        }
        let mut stream = Stream::default();
        for (number, input) in inputs.enumerate() {
            stream = stream.and(match node.work {
                Work::Recursion { rounds, .. } if number > 0 => self.rounds_of(input, rounds),
                _ => self.input(input),
            });
        }
        if let Work::Pass = node.work {
            stream = stream.cut_short(self.asked_for(node));
        }
        stream.host_s += self.host.stream(self.shape, node);
        if is_breaker(&node.work) {
            self.close(&stream);
            self.spill(held);
            return Stream { host_s: self.host.emit(node), ..Stream::default() };
        }
        stream
    }

    /// The stream of the recursive term at `place`, in so many rounds. What its joins collect is collected in each,
    /// from the buffer pool after the first.
    fn rounds_of(&mut self, place: usize, rounds: f64) -> Stream {
        let cpu_before = self.so_far.host_cpu;
        let stream = self.input(place);
        let again_cpu = (self.so_far.host_cpu - cpu_before) * (rounds - 1.0).max(0.0);
        let again_s = again_cpu / self.host_cores;
        self.clock_s += again_s;
        self.so_far.host_cpu += again_cpu;
        self.so_far.host_busy += again_s;
        stream.rounds(rounds)
    }

    /// The share of its inputs' rows that a node hands on: a limit asks for no more.
    fn asked_for(&self, node: &ShapeNode) -> f64 {
        let inputs = node.inputs.iter().filter_map(|input| self.shape.nodes.get(*input));
        let rows: f64 = inputs.map(|input| input.rows).sum();
        if rows > 0.0 { (node.rows / rows).clamp(0.0, 1.0) } else { 1.0 }
    }

    /// A scan on the host: chunks that it does not hold come over the link.
    fn read(&self, scan: &ScanWork, row_bytes: f64) -> Stream {
        let scan = scan.with(&scan.known_on_host);
        let scan = &*scan;
        let share = absent(scan);
        let pages = scan.pages.max(scan.looked_up.min(scan.rows));
        let bytes = scan.chunk_bytes * share;
        Stream {
            host_s: self.host.scan(scan, row_bytes),
            media_s: self.media(scan) * share * (1.0 - scan.share_beside),
            link_bytes: if self.profile.link.is_embedded { 0.0 } else { bytes },
            requests: pages * share,
            pages,
            ..Stream::default()
        }
    }

    /// Seconds that the device's media take to give all of a scan.
    fn media(&self, scan: &ScanWork) -> f64 {
        scan.chunk_bytes * self.device.media_byte + scan.looked_up * self.device.media_block
    }

    /// A fragment whose root is the node at `place`: all that stops its stream is before its first row.
    fn fragment(&mut self, place: usize, node: &'a ShapeNode) -> Stream {
        self.send(place, node);
        let mut inside = Inside::default();
        self.open_inside(place, node, &mut inside);
        if !self.profile.link.is_embedded {
            inside.done_s += FRAGMENT_CORE_S / self.device_cores.min(1.0);
            inside.done_core_s += FRAGMENT_CORE_S;
        }
        let peak = &mut self.so_far.device_memory_bytes;
        *peak = peak.max(inside.held_bytes);
        self.so_far.device_busy += inside.done_s;
        let link = &self.profile.link;
        let bytes = node.rows * node.row_bytes;
        if link.is_embedded {
            let device_s = self.streamed(&inside);
            let slots = slots_of(bytes, self.limits.slot_size.usual());
            let (before_s, device_core_s) = (inside.done_s, inside.core_s);
            return Stream { before_s, device_s, device_core_s, slots, ..Stream::default() };
        }
        let slots = slots_of(bytes, self.slot_bytes(node, &inside));
        inside.core_s += bytes * self.device.slot_encode;
        let device_s = self.streamed(&inside);
        let mut stream = Stream {
            before_s: link.round_trip_s + inside.done_s,
            host_s: bytes * self.host.slot_decode,
            device_s,
            device_core_s: inside.core_s,
            link_bytes: bytes,
            slots,
            ..Stream::default()
        };
        if self.limits.shares_work && node.may_share {
            let alone = self.alone(place, node);
            let share = self.sharing(node, &inside, &alone).host_share();
            let left = 1.0 - share;
            let shared_s = inside.done_s - inside.built_s;
            // Pipeline breakers on the device are done sooner; the host does the stream among its other work.
            let streams = device_s / (device_s + shared_s).max(f64::MIN_POSITIVE);
            stream.before_s = link.round_trip_s + inside.built_s + shared_s * left;
            stream.host_s = stream.host_s * left + alone.cpu_s * share * streams;
            stream.device_s *= left;
            stream.device_core_s *= left;
            stream.link_bytes = bytes * left + alone.link_bytes * share;
            self.so_far.host_cpu += alone.cpu_s * share * (1.0 - streams);
            self.so_far.device_busy -= shared_s * share;
        }
        stream
    }

    /// Bytes of a slot for the rows that leave `node`, the root of a fragment that has done what `inside` says.
    fn slot_bytes(&self, node: &ShapeNode, inside: &Inside) -> u32 {
        let (link, bytes) = (&self.profile.link, node.rows * node.row_bytes);
        let crossing = Crossing {
            bytes,
            device_s: self.streamed(inside) + bytes * self.device.slot_encode / self.partitions,
            link_s: bytes / link.bytes_per_second.max(1.0),
            host_s: bytes * self.host.slot_decode,
        };
        self.limits.slot_size.of(&crossing, link, self.limits.slot_count)
    }

    /// Makes what is broadcast to the fragment whose root is the node at `place`, and sends it.
    fn send(&mut self, place: usize, node: &'a ShapeNode) {
        let device_count = 1.0 + streamed_scan(self.shape, node).map_or(0.0, |s| s.devices_beside);
        let mut pending = vec![(place, node)];
        while let Some((place, node)) = pending.pop() {
            for input in self.inputs(place, node) {
                let Some(input_node) = self.shape.nodes.get(input) else { continue };
                if !input_node.is_broadcast {
                    pending.push((input, input_node));
                    continue;
                }
                let bytes = input_node.rows * input_node.row_bytes;
                let mut made = self.input(input);
                made.host_s += bytes * self.host.slot_encode;
                self.close(&made);
                self.sent_bytes_peak = self.sent_bytes_peak.max(bytes);
                if !self.profile.link.is_embedded {
                    let link_bytes = bytes * device_count;
                    self.close(&Stream { link_bytes, ..Stream::default() });
                }
            }
        }
    }

    fn is_broadcast(&self, place: usize) -> bool {
        self.shape.nodes.get(place).is_some_and(|node| node.is_broadcast)
    }

    /// The operators of a fragment, all of them on the host.
    fn alone(&self, place: usize, node: &'a ShapeNode) -> Alone {
        let mut walk = Walk::new(self.shape, None, self.profile, self.limits);
        walk.has_broadcasts = true;
        let stream = walk.open(place, node);
        walk.close(&stream);
        Alone {
            built_s: walk.built_s,
            finish_s: walk.clock_s,
            cpu_s: walk.so_far.host_cpu,
            link_bytes: walk.so_far.link_bytes,
            fixed_bytes: walk.fixed_bytes_peak,
        }
    }

    fn sharing(&self, node: &ShapeNode, inside: &Inside, alone: &Alone) -> Sharing {
        let link_s = |bytes: f64| bytes / self.profile.link.bytes_per_second.max(1.0);
        Sharing {
            rows_link_s: link_s(node.rows * node.row_bytes),
            pages_link_s: link_s(alone.link_bytes),
            morsels: streamed_pages(self.shape, node),
            host_before_s: alone.built_s,
            host_s: alone.finish_s - alone.built_s,
            device_before_s: inside.built_s,
            device_s: inside.done_s - inside.built_s + self.streamed(inside),
        }
    }

    /// The same as [`Walk::open`] inside a fragment.
    fn open_inside(&self, place: usize, node: &'a ShapeNode, inside: &mut Inside) {
        if let Work::Scan(scan) = &node.work {
            inside.pages += scan.pages.max(1.0);
            let scan = scan.with(&scan.known_on_device);
            let scan = &*scan;
            inside.core_s += self.device.scan(scan, node.row_bytes);
            if !self.profile.link.is_embedded {
                inside.done_s += SCAN_CORE_S / self.device_cores.min(1.0);
                inside.done_core_s += SCAN_CORE_S;
            }
            // An embedded device reads through the host's pool.
            let share = if self.profile.link.is_embedded { absent(scan) } else { 1.0 };
            inside.media_s += self.media(scan) * share;
            inside.share_beside = scan.share_beside;
            return;
        }
        let mut inputs = self.inputs(place, node);
        let mut share_collected = 1.0;
        if is_join(&node.work) {
            let mut build = Inside::default();
            if let Some(first) = inputs.next()
                && let Some(first_node) = self.shape.nodes.get(first)
            {
                if first_node.is_broadcast {
                    let bytes = first_node.rows * first_node.row_bytes;
                    build.core_s += bytes * self.device.slot_decode;
                    build.held_bytes += bytes;
                } else {
                    self.open_inside(first, first_node, &mut build);
                }
                build.core_s += self.device.build(node, first_node);
            }
            // A build side runs as one partition.
            let build_s = (build.core_s / self.device_cores.min(1.0)).max(build.media_s);
            // Of rows that meet on several devices, each collects its own.
            let build_s = build_s * (1.0 - build.share_beside);
            share_collected = 1.0 - build.share_beside;
            inside.done_s += build.done_s + build_s;
            inside.built_s = inside.done_s;
            inside.done_core_s += build.done_core_s + build.core_s;
            inside.held_bytes += build.held_bytes;
        }
        inside.held_bytes += held_bytes(self.shape, node, self.partitions) * share_collected;
        let before = (inside.core_s, inside.media_s);
        for (number, input) in inputs.enumerate() {
            let Some(input_node) = self.shape.nodes.get(input) else { continue };
            match node.work {
                Work::Recursion { rounds, .. } => {
                    self.rounds_inside((input, input_node), number, rounds, inside);
                }
                _ => self.open_inside(input, input_node, inside),
            }
        }
        if let Work::Pass = node.work {
            let share = self.asked_for(node);
            inside.core_s = before.0 + (inside.core_s - before.0) * share;
            inside.media_s = before.1 + (inside.media_s - before.1) * share;
        }
        inside.core_s += self.device.stream(self.shape, node);
        if is_breaker(&node.work) {
            inside.done_s += self.streamed(inside);
            inside.done_core_s += inside.core_s;
            inside.core_s = self.device.emit(node);
            inside.media_s = 0.0;
        }
    }

    /// A term of a recursion inside a fragment: the static term, which the host may send, or so many rounds of the
    /// other one. Both are done before the fragment's first row, by one partition.
    fn rounds_inside(
        &self,
        (place, node): (usize, &'a ShapeNode),
        number: usize,
        rounds: f64,
        inside: &mut Inside,
    ) {
        let mut term = Inside::default();
        if node.is_broadcast {
            let bytes = node.rows * node.row_bytes;
            term.core_s += bytes * self.device.slot_decode;
            term.held_bytes += bytes;
        } else {
            self.open_inside(place, node, &mut term);
        }
        let times = if number > 0 { rounds } else { 1.0 };
        let term_s = term.done_s + (term.core_s / self.device_cores.min(1.0)).max(term.media_s);
        inside.done_s += term_s * times;
        inside.done_core_s += (term.done_core_s + term.core_s) * times;
        inside.held_bytes += term.held_bytes;
        inside.built_s = inside.done_s;
    }

    /// Seconds of a fragment's open stream: partitions share the pages, cores of other engines help with many of them,
    /// and the media feed them.
    fn streamed(&self, inside: &Inside) -> f64 {
        let own = self.partitions.min(inside.pages.max(1.0)).min(self.device_cores);
        let lent = self.limits.lent_share.clamp(0.0, LENT_SHARE_MAX);
        let is_helped = inside.pages >= self.partitions * PAGES_TO_LEND;
        let at_once = match is_helped && lent > 0.0 {
            true => (own / (1.0 - lent)).min(inside.pages / PAGES_AHEAD).max(own),
            false => own,
        };
        (inside.core_s / at_once).max(inside.media_s) * (1.0 - inside.share_beside)
    }

    /// Ends a stream and advances the clock. Returns when its first piece was through.
    fn close(&mut self, stream: &Stream) -> f64 {
        let link = &self.profile.link;
        let host_s = stream.host_s / self.host_cores;
        let crossing_s = stream.link_bytes / link.bytes_per_second.max(1.0);
        let asking_s = stream.requests * link.round_trip_s / REQUESTS_AHEAD;
        let link_s = crossing_s.max(asking_s);
        let device_s = stream.device_s.max(stream.media_s);
        let pieces = (stream.slots + stream.pages).max(1.0);
        let passing_s = host_s + link_s + device_s;
        let slowest_s = host_s.max(link_s).max(device_s);
        // A slot comes back as a credit: with few of them, each waits for the ones before.
        let pace_s = if stream.slots > 0.0 {
            let at_work = (f64::from(self.limits.slot_count) * SLOTS_AT_WORK).max(1.0);
            (slowest_s / pieces).max((passing_s / pieces + link.round_trip_s) / at_work)
        } else {
            slowest_s / pieces
        };
        let first_s = passing_s / pieces + if link_s > 0.0 { link.round_trip_s } else { 0.0 };
        let mut streaming_s = first_s + (pieces - 1.0) * pace_s;
        if link.is_embedded {
            // Both sides share the same cores.
            let core_s = (stream.host_s + stream.device_core_s) / self.host_cores;
            streaming_s = streaming_s.max(core_s);
        }
        let elapsed_s = stream.before_s + streaming_s;
        let first_at_s = self.clock_s + stream.before_s + first_s;
        self.clock_s += elapsed_s;
        let total = &mut self.so_far;
        total.host_busy += host_s;
        total.host_cpu += stream.host_s;
        total.link_busy += link_s;
        total.device_busy += device_s;
        total.link_bytes += stream.link_bytes;
        total.host_wait += (elapsed_s - host_s).max(0.0);
        if stream.slots > 0.0 {
            // It need not wait for slots that were free when it ended.
            let ahead_s = f64::from(self.limits.slot_count).min(pieces) * pace_s;
            total.device_stall += (streaming_s - device_s - ahead_s).max(0.0);
        }
        first_at_s
    }

    /// A breaker of the host that holds more than there is room for writes it to media and reads it again.
    fn spill(&mut self, held: f64) {
        let room = (self.limits.host_memory_bytes as f64 - self.held_bytes).max(0.0);
        let spilled = if held > room { held } else { 0.0 };
        let spilling_s = spilled * (self.host.media_write + self.host.media_byte);
        self.clock_s += spilling_s;
        self.so_far.host_busy += spilling_s;
    }
}

/// Pages of the scan that streams through a node.
fn streamed_pages(shape: &PlanShape, node: &ShapeNode) -> f64 {
    streamed_scan(shape, node).map_or(0.0, |scan| scan.pages)
}

/// The scan that streams through a node.
fn streamed_scan<'a>(shape: &'a PlanShape, node: &'a ShapeNode) -> Option<&'a ScanWork> {
    let mut node = node;
    for _ in &shape.nodes {
        if let Work::Scan(scan) = &node.work {
            return Some(scan);
        }
        node = input(shape, node, node.inputs.len().saturating_sub(1))?;
    }
    None
}

/// Share of a scan's chunks that the host does not hold.
fn absent(scan: &ScanWork) -> f64 {
    if scan.chunk_bytes > 0.0 { (1.0 - scan.held_bytes / scan.chunk_bytes).max(0.0) } else { 1.0 }
}

/// Slots that so many bytes take.
fn slots_of(bytes: f64, slot_bytes: u32) -> f64 {
    (bytes / f64::from(slot_bytes.max(1))).max(1.0)
}

#[cfg(test)]
mod tests;
