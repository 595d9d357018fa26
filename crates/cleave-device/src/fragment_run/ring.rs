//! The ring of one output of a run: slots that were made and not consumed, and who listens to them.
//!
//! ```text
//!   consumed            sent             next_number
//!      ├─── outstanding ──┼──── waiting ─────┤
//!      │  the listener's limits              │
//!      └──────── the ring's limits ──────────┘
//! ```
//!
//! A listener that comes late, or allows less than the ring, gets slots as far as its own limits, and the next ones
//! as it consumes them. The end follows the last slot; an error does not wait for that.
//!
//! Invariants: slot numbers have no gaps. Rows that are offered to a closed ring are dropped, and take no credit.

use std::collections::VecDeque;

use cleave_fragment::command::message::RunEvent;
use cleave_fragment::command::{DeviceError, RunReport, Slot, SlotPayload};
use cleave_fragment::link::SlotSender;

/// How many slots may be outstanding, and how many bytes they may have before none is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) slots: u64,
    pub(super) bytes: u64,
}

impl Limits {
    /// Those of a listener that takes what the ring has.
    pub(super) const NONE: Self = Self { slots: u64::MAX, bytes: u64::MAX };

    /// Whether another slot may be outstanding beside `slots` of `bytes`. If there are none it may have any size, so
    /// that a large one can be sent at all.
    fn admit(self, slots: u64, bytes: u64) -> bool {
        slots < self.slots && (slots == 0 || bytes < self.bytes)
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Ring {
    limits: Limits,
    /// Slots that were made and not consumed, in order, each with its bytes.
    slots: VecDeque<(Slot, u64)>,
    /// The sum of their bytes.
    held_bytes: u64,
    next_number: u64,
    consumed: u64,
    rows: u64,
    slot_bytes: u64,
    listener: Option<Listener>,
    is_closed: bool,
}

#[derive(Debug)]
struct Listener {
    sink: SlotSender,
    limits: Limits,
    /// Slots below this one were sent.
    sent: u64,
    /// Bytes of the outstanding ones.
    sent_bytes: u64,
    /// Whether it knows the end.
    is_told: bool,
}

impl Ring {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            slots: VecDeque::new(),
            held_bytes: 0,
            next_number: 0,
            consumed: 0,
            rows: 0,
            slot_bytes: 0,
            listener: None,
            is_closed: false,
        }
    }

    /// Slots that were made.
    pub(super) fn made(&self) -> u64 {
        self.next_number
    }

    /// Slots that were consumed.
    pub(super) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Rows in the slots that were made, and bytes of these.
    pub(super) fn size(&self) -> (u64, u64) {
        (self.rows, self.slot_bytes)
    }

    /// Whether its listener wanted no more.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether another slot may be added.
    pub(super) fn has_room(&self) -> bool {
        self.is_closed || self.limits.admit(self.next_number - self.consumed, self.held_bytes)
    }

    pub(super) fn push(&mut self, row_count: u64, bytes: u64, payload: SlotPayload) {
        if self.is_closed {
            return;
        }
        let slot = Slot { number: self.next_number, row_count, payload };
        self.next_number += 1;
        self.rows += row_count;
        self.slot_bytes += bytes;
        self.held_bytes = self.held_bytes.saturating_add(bytes);
        self.slots.push_back((slot, bytes));
        self.send(None);
    }

    /// The listener has consumed the slots below `total`. Returns whether it had not said so before.
    pub(super) fn consume(
        &mut self,
        total: u64,
        outcome: Option<&Result<RunReport, DeviceError>>,
    ) -> bool {
        let total = total.min(self.next_number);
        if total <= self.consumed {
            return false;
        }
        self.consumed = total;
        while self.slots.front().is_some_and(|(slot, _)| slot.number < total) {
            let Some((slot, bytes)) = self.slots.pop_front() else { break };
            self.held_bytes = self.held_bytes.saturating_sub(bytes);
            if let Some(listener) = &mut self.listener
                && slot.number < listener.sent
            {
                listener.sent_bytes = listener.sent_bytes.saturating_sub(bytes);
            }
        }
        if let Some(listener) = &mut self.listener {
            listener.sent = listener.sent.max(total);
        }
        self.send(outcome);
        true
    }

    /// The listener wants no more.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.listener = None;
        self.consumed = self.next_number;
        self.clear();
    }

    /// Drops its slots.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.held_bytes = 0;
    }

    /// Why nobody can listen from `first_slot` on, if so.
    pub(super) fn why_not_from(&self, first_slot: u64) -> Option<String> {
        let consumed = self.consumed;
        if first_slot < consumed {
            return Some(format!(
                "cannot repeat slot {first_slot}: those below {consumed} were consumed"
            ));
        }
        (first_slot > self.next_number).then(|| format!("has not made slot {first_slot} yet"))
    }

    /// Replaces the listener by `sink`, which gets the slots from `first_slot` on, within `limits`, and the end if
    /// there is one. Returns the listener before.
    pub(super) fn attach(
        &mut self,
        (sink, limits): (SlotSender, Limits),
        first_slot: u64,
        outcome: Option<&Result<RunReport, DeviceError>>,
    ) -> Option<SlotSender> {
        // Naming a slot is saying that those before came.
        let before = self.listener.take();
        self.consume(first_slot, None);
        let listener = Listener { sink, limits, sent: first_slot, sent_bytes: 0, is_told: false };
        self.listener = Some(listener);
        self.send(outcome);
        before.map(|listener| listener.sink)
    }

    /// Sends what the listener may have by now, and with the last slot the `outcome` of the run, if it has one.
    pub(super) fn send(&mut self, outcome: Option<&Result<RunReport, DeviceError>>) {
        let Some(listener) = &mut self.listener else { return };
        let behind = usize::try_from(listener.sent.saturating_sub(self.consumed));
        for (slot, bytes) in self.slots.iter().skip(behind.unwrap_or(usize::MAX)) {
            if !listener.limits.admit(listener.sent - self.consumed, listener.sent_bytes) {
                break;
            }
            listener.sink.send(RunEvent::Slot(slot.clone()));
            listener.sent = slot.number + 1;
            listener.sent_bytes = listener.sent_bytes.saturating_add(*bytes);
        }
        let event = match outcome {
            Some(Ok(report)) if listener.sent == self.next_number => {
                let (rows, slots, slot_bytes) = (self.rows, self.next_number, self.slot_bytes);
                let report = RunReport { rows, slots, slot_bytes, ..report.clone() };
                RunEvent::Finished(Box::new(report))
            }
            Some(Err(error)) => RunEvent::Failed(error.clone()),
            _ => return,
        };
        if !std::mem::replace(&mut listener.is_told, true) {
            listener.sink.send(event);
        }
    }
}
