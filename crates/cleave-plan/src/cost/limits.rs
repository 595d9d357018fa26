//! The resources that a statement may use on both sides, and the prediction made for it.

use super::SlotSize;

/// What a statement may use.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Bytes that the operators of one fragment may hold.
    pub device_memory_bytes: u64,
    /// Bytes that the host's operators may hold.
    pub host_memory_bytes: u64,
    /// Share of the device's cores that others use, 0 to 1.
    pub device_load: f64,
    /// Bytes of a slot.
    pub slot_size: SlotSize,
    /// Slots that may be outstanding.
    pub slot_count: u32,
    /// Partitions of a fragment's pipeline.
    pub device_partitions: u32,
    /// Threads of the host's half.
    pub host_threads: u32,
    /// The host takes morsels of fragments that may be shared, where it is idle.
    pub shares_work: bool,
    /// Share of the morsels of a long run that other engines of the device's node are expected to take, below 1.
    pub lent_share: f64,
    /// Bytes of rows that the host may send to one run of a fragment; 0: none.
    pub broadcast_bytes: u64,
    /// A split must be predicted to take less than this share of the host's time.
    pub cut_share_max: f64,
}

impl Limits {
    /// Whether how a fragment runs follows from what is predicted of it.
    pub fn asks_of_fragments(&self) -> bool {
        self.shares_work || matches!(self.slot_size, SlotSize::Auto { .. })
    }
}

/// The prediction for one placement; times in seconds from the statement's start.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prediction {
    /// The last row is there.
    pub finish: f64,
    /// The first row is there.
    pub first_result: f64,
    /// The device computes, or reads for us.
    pub device_busy: f64,
    /// The host computes.
    pub host_busy: f64,
    /// CPU seconds of the host, on all its cores together.
    pub host_cpu: f64,
    /// Bytes cross.
    pub link_busy: f64,
    /// The device has rows, and all slots are full.
    pub device_stall: f64,
    /// The host has nothing to do.
    pub host_wait: f64,
    /// Bytes that cross.
    pub link_bytes: f64,
    /// Most bytes that one fragment holds on the device.
    pub device_memory_bytes: f64,
    /// Both sides have the memory for it.
    pub fits: bool,
    /// Where it does not fit: what is missing.
    pub why: Option<String>,
}

/// The time of each side for the same fragment, in seconds: before its stream, which both may share, and for the whole
/// stream.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sharing {
    /// The host, until it has what joins collect.
    pub host_before_s: f64,
    /// The host, for all that streams, pages on their way over the link included.
    pub host_s: f64,
    /// The device, until it has what joins collect.
    pub device_before_s: f64,
    /// The device, for all that streams.
    pub device_s: f64,
    /// The link, for the rows of a device that does all of it.
    pub rows_link_s: f64,
    /// The link, for the pages of a host that does all of it.
    pub pages_link_s: f64,
    /// Morsels in which it streams, none of which is divided.
    pub morsels: f64,
}

impl Sharing {
    /// Share of the stream that the host does where both are to be done with it at the same time, and the link, over
    /// which the rows of one and the pages of the other come, is not what they wait for.
    pub fn host_share(&self) -> f64 {
        let ahead_s = self.device_before_s + self.device_s - self.host_before_s;
        let in_time = ahead_s / (self.device_s + self.host_s);
        let spare_s = (self.device_s - self.rows_link_s).max(0.0);
        let by_link = spare_s / (spare_s + self.pages_link_s);
        let share = if self.pages_link_s > 0.0 { in_time.min(by_link) } else { in_time };
        let taken = (share.clamp(0.0, 1.0) * self.morsels).floor();
        // Not where nothing streams.
        if taken.is_finite() && self.morsels >= 2.0 { taken / self.morsels } else { 0.0 }
    }
}
