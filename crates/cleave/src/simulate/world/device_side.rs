//! What devices do: they start runs, take morsels of them, lend cores to siblings, fill slots and wait for credit.

use cleave_fragment::Lease;
use cleave_fragment::queues::Loan;

use super::super::scenario::times;
use super::{Down, Event, Partition, Piece, Up, World};

/// Morsels that a partition has taken at a time: it reads one while it decodes the other.
const HELD_MAX: usize = 2;
/// Loans that a run asks for at most.
const LOANS_MAX: usize = 8;
/// A run asks for loans where it has at least so many morsels for each partition of its own.
const MORSELS_FOR_LOANS: usize = 4;

impl World<'_> {
    /// A message of the host about a run has come to its device.
    pub(super) fn hear(&mut self, run: usize, down: Down) {
        let device = self.runs[run].device;
        match down {
            Down::Execute => {
                self.devices[device].ready.push_back(Piece::Start { run });
                self.dispatch(device);
            }
            Down::Credit => self.credit(run),
            Down::Revoke { keep } => {
                self.runs[run].lease.keep(keep);
                let ring = &self.runs[run].ring;
                let stalls_ns = ring.stalls_since.map_or(0, |since| self.now - since);
                let (lease, stall_ns) = (self.runs[run].lease, ring.stall_ns + stalls_ns);
                self.answer(run, Up::Kept { lease, stall_ns });
            }
            // The media give pages as fast as the node's link takes them.
            Down::Read { attempt, place } => self.answer(run, Up::Pages { attempt, place }),
            Down::Cancel => self.cancel(run),
        }
    }

    /// A core of `device` is done with a piece.
    pub(super) fn done(&mut self, device: usize, piece: Piece, ns: u64) {
        self.devices[device].free_cores += 1;
        let busy_ns = &mut self.devices[device].busy_ns;
        *busy_ns = busy_ns.saturating_add(ns);
        match piece {
            Piece::Start { run } => self.start(run),
            Piece::Morsel { run, partition } => {
                let of_run = &mut self.runs[run];
                let of_partition = &mut of_run.partitions[partition];
                let place = of_partition.held.pop_front();
                of_partition.gathered += self.scenario.result_bytes * of_run.queries;
                let is_lent = device != of_run.device;
                if let Some(place) = place
                    && let Some(times) = of_run.ran.get_mut(place as usize)
                {
                    *times = times.saturating_add(1);
                    match is_lent {
                        true => self.figures.by_node += 1,
                        false => self.figures.by_own += 1,
                    }
                }
                self.offer(run, partition);
            }
        }
        self.dispatch(device);
    }

    /// Grants loans of a node's idle cores, and ends those for which no morsel is left.
    pub(super) fn lend(&mut self, node: usize) {
        loop {
            let waiting = &self.nodes[node].waiting;
            let useless = waiting.iter().position(|(_, run, _)| self.left(*run) == 0);
            let Some(place) = useless else { break };
            let (_, run, partition) = self.nodes[node].waiting.remove(place);
            self.advance(run, partition);
        }
        while !self.nodes[node].waiting.is_empty() {
            let waiting = &self.nodes[node].waiting;
            let loans: Vec<Loan> = waiting.iter().map(|(loan, ..)| *loan).collect();
            let first = node * self.scenario.per_node;
            let own = self.devices.iter().skip(first).take(self.scenario.per_node);
            let queues: Vec<u64> = own.map(|device| self.queue(&device.runs)).collect();
            let granted = self.decide(|world| world.nodes[node].engines.grant(&loans, &queues));
            let Some(place) = granted else { break };
            let (_, run, partition) = self.nodes[node].waiting.remove(place);
            self.runs[run].partitions[partition].is_granted = true;
            self.advance(run, partition);
        }
    }

    /// Morsels of a run that nobody has begun.
    fn left(&self, run: usize) -> u64 {
        let Lease { begun, kept } = self.runs[run].lease;
        u64::from(kept.saturating_sub(begun))
    }

    /// The morsels left of these runs, as far as they ask for loans.
    fn queue(&self, runs: &[usize]) -> u64 {
        let lends = |run: &&usize| {
            self.runs[**run].partitions.iter().any(|partition| partition.loan.is_some())
        };
        runs.iter().filter(lends).map(|run| self.left(*run)).sum()
    }

    /// The run begins: its partitions take their first morsels, and those of loans wait.
    fn start(&mut self, run: usize) {
        let device = self.runs[run].device;
        let (node, number) = (self.devices[device].node, self.devices[device].number);
        let morsels = self.runs[run].lease.kept;
        let own = self.scenario.cores.min(morsels).max(1) as usize;
        let has_many = morsels as usize >= MORSELS_FOR_LOANS * own;
        let loans_max = (morsels as usize / HELD_MAX).saturating_sub(own).min(LOANS_MAX);
        let helpers = match self.scenario.stealing.is_by_node() && has_many {
            true => self.nodes[node].engines.helpers(number, loans_max, |_| true),
            false => Vec::new(),
        };
        let loans = helpers.into_iter().map(|helper| Loan { helper, engine: number });
        let lent = loans.map(|loan| Partition { loan: Some(loan), ..Partition::default() });
        let partitions: Vec<Partition> =
            (0..own).map(|_| Partition::default()).chain(lent).collect();
        self.runs[run].working = partitions.len();
        self.runs[run].partitions = partitions;
        self.devices[device].runs.push(run);
        self.answer(run, Up::Accepted);
        for partition in 0..self.runs[run].partitions.len() {
            match self.runs[run].partitions[partition].loan {
                Some(loan) => self.nodes[node].waiting.push((loan, run, partition)),
                None => self.nodes[node].engines.begin(number),
            }
        }
        for partition in 0..own {
            self.advance(run, partition);
        }
    }

    /// A partition takes what it may, and works, waits or ends.
    fn advance(&mut self, run: usize, partition: usize) {
        let device = self.runs[run].device;
        let node = self.devices[device].node;
        let loan = self.runs[run].partitions[partition].loan;
        while self.runs[run].partitions[partition].held.len() < HELD_MAX && self.left(run) > 0 {
            if let Some(loan) = loan {
                if !self.runs[run].partitions[partition].is_granted {
                    break;
                }
                let goes_on = self.decide(|world| world.nodes[node].engines.goes_on(loan));
                self.runs[run].partitions[partition].is_granted = goes_on;
                if !goes_on {
                    break;
                }
            }
            let lease = &mut self.runs[run].lease;
            let taken = lease.take(lease.begun);
            self.runs[run].partitions[partition].held.extend(taken);
        }
        let of_partition = &self.runs[run].partitions[partition];
        if !of_partition.held.is_empty() {
            // What was begun on a core that is lent no more is done on the run's own.
            let helper = loan.filter(|_| of_partition.is_granted).map(|loan| loan.helper);
            let works_on = helper.map_or(device, |helper| self.device_of(node, helper));
            self.devices[works_on].ready.push_back(Piece::Morsel { run, partition });
            self.dispatch(works_on);
        } else if let (Some(loan), true) = (loan, self.left(run) > 0) {
            self.nodes[node].waiting.push((loan, run, partition));
        } else if of_partition.gathered > 0 {
            self.offer(run, partition);
        } else {
            self.rests(run, partition);
            self.partition_ends(run);
        }
    }

    /// Puts what a partition has gathered into slots: whole ones, and the rest where it has no morsel left. It waits
    /// where there is no credit.
    fn offer(&mut self, run: usize, partition: usize) {
        if self.runs[run].is_cancelled {
            self.runs[run].partitions[partition].gathered = 0;
        }
        loop {
            let of_partition = &self.runs[run].partitions[partition];
            let is_last = of_partition.held.is_empty() && self.left(run) == 0;
            let bytes = of_partition.gathered.min(self.scenario.slot_bytes);
            if bytes == 0 || bytes < self.scenario.slot_bytes && !is_last {
                break;
            }
            let ring = &mut self.runs[run].ring;
            if ring.outstanding >= self.scenario.slot_count {
                ring.waiting.push_back(partition);
                ring.stalls_since.get_or_insert(self.now);
                self.rests(run, partition);
                return;
            }
            self.fill_slot(run, partition, bytes);
        }
        self.advance(run, partition);
    }

    fn fill_slot(&mut self, run: usize, partition: usize, bytes: u64) {
        let ring = &mut self.runs[run].ring;
        ring.outstanding += 1;
        ring.sent += 1;
        self.runs[run].partitions[partition].gathered -= bytes;
        self.answer(run, Up::Slot { bytes });
    }

    /// The host has consumed a slot: a partition that waits goes on.
    fn credit(&mut self, run: usize) {
        let ring = &mut self.runs[run].ring;
        ring.outstanding = ring.outstanding.saturating_sub(1);
        let Some(partition) = ring.waiting.pop_front() else { return };
        if ring.waiting.is_empty()
            && let Some(since) = ring.stalls_since.take()
        {
            ring.stall_ns += self.now - since;
        }
        self.works_again(run, partition);
        self.offer(run, partition);
    }

    /// A partition does not work any more, or waits for credit.
    fn rests(&mut self, run: usize, partition: usize) {
        let of_device = &self.devices[self.runs[run].device];
        let engines = &mut self.nodes[of_device.node].engines;
        let of_partition = &mut self.runs[run].partitions[partition];
        match of_partition.loan {
            None => engines.rest(of_device.number),
            Some(loan) if of_partition.is_granted => {
                of_partition.is_granted = false;
                engines.end(loan);
            }
            Some(_) => {}
        }
    }

    /// A partition that waited for credit goes on. A loan has to be granted anew.
    fn works_again(&mut self, run: usize, partition: usize) {
        let of_device = &self.devices[self.runs[run].device];
        if self.runs[run].partitions[partition].loan.is_none() {
            self.nodes[of_device.node].engines.begin(of_device.number);
        }
    }

    fn partition_ends(&mut self, run: usize) {
        let of_run = &mut self.runs[run];
        of_run.working = of_run.working.saturating_sub(1);
        if of_run.working == 0 {
            let (device, kept) = (of_run.device, of_run.lease.kept);
            self.devices[device].runs.retain(|other| *other != run);
            self.answer(run, Up::Report { kept });
        }
    }

    /// Nobody wants the run's rows: it ends with the morsels that it has taken.
    fn cancel(&mut self, run: usize) {
        let of_run = &mut self.runs[run];
        of_run.is_cancelled = true;
        of_run.lease.keep(0);
        for partition in std::mem::take(&mut of_run.ring.waiting) {
            self.works_again(run, partition);
            self.offer(run, partition);
        }
    }

    /// Hands pieces to idle cores of a device.
    fn dispatch(&mut self, device: usize) {
        while self.devices[device].free_cores > 0
            && let Some(piece) = self.devices[device].ready.pop_front()
        {
            let takes = match piece {
                Piece::Start { .. } => self.scenario.start_ns,
                Piece::Morsel { run, partition } => {
                    let of_run = &self.runs[run];
                    let place = of_run.partitions[partition].held.front().copied();
                    let weight = self.scenario.weight(of_run.home, place.unwrap_or_default());
                    times(self.scenario.morsel_ns, weight * of_run.factor)
                }
            };
            let ns = times(takes, self.devices[device].slowness);
            self.devices[device].free_cores -= 1;
            self.after(self.now, ns, Event::Done { device, piece, ns });
        }
    }

    /// The device of this number in a node.
    fn device_of(&self, node: usize, number: usize) -> usize {
        node * self.scenario.per_node + number
    }
}
