//! The figures of devices: how each is reached, what it does and what lies on it.

use std::sync::Arc;

use cleave_fragment::command::{DeviceStatus, RunState};
use cleave_host::device::{FaultCounts, lock_figures};
use cleave_host::{Database, Device, Result};
use cleave_media::BLOCK_SIZE;

use super::super::exposition::{Exposition, Kind};

/// A device that was asked for its status, and what it told.
type Asked = (Arc<Device>, Result<DeviceStatus>);
/// A figure of a device that has told its status.
type OfStatus = fn(&DeviceStatus) -> u64;

/// Name, kind and meaning of what devices tell of themselves.
const TOLD: [(&str, Kind, &str, OfStatus); 8] = [
    (
        "cleave_device_queued_morsels",
        Kind::Gauge,
        "Morsels that the device's fragments have not begun.",
        |told| told.queue,
    ),
    (
        "cleave_device_fragment_memory_bytes",
        Kind::Gauge,
        "Memory for the device's fragments.",
        |told| told.fragment_memory_bytes,
    ),
    (
        "cleave_device_fragment_memory_free_bytes",
        Kind::Gauge,
        "Memory for the device's fragments that none has.",
        |told| told.fragment_memory_bytes_free,
    ),
    ("cleave_device_size_bytes", Kind::Gauge, "Size of the device's media.", |told| {
        bytes(told.block_count)
    }),
    (
        "cleave_device_media_read_bytes_total",
        Kind::Counter,
        "Bytes that the device has read from its media since it started.",
        |told| told.media_bytes_read,
    ),
    (
        "cleave_device_media_written_bytes_total",
        Kind::Counter,
        "Bytes that the device has written to its media since it started.",
        |told| told.media_bytes_written,
    ),
    (
        "cleave_device_filter_history_hits_total",
        Kind::Counter,
        "Questions that the device's filter history has answered.",
        |told| told.history.hits,
    ),
    (
        "cleave_device_filter_history_misses_total",
        Kind::Counter,
        "Questions that the device's filter history could not answer.",
        |told| told.history.misses,
    ),
];

/// Adds the figures of all devices, of which `asked` were asked.
pub(super) fn devices(exposition: &mut Exposition, database: &Database, asked: &[Asked]) {
    let help = "Whether the device answers.";
    let mut family = exposition.family("cleave_device_up", Kind::Gauge, help);
    for (device, told) in asked {
        let mode = device.mode().to_string();
        family
            .sample(&[("device", device.name()), ("kind", mode.as_str())], u8::from(told.is_ok()));
    }
    runs(exposition, asked);
    for (name, kind, help, of) in TOLD {
        let mut family = exposition.family(name, kind, help);
        for (device, told) in asked {
            if let Ok(told) = told {
                family.sample(&[("device", device.name())], of(told));
            }
        }
    }
    space(exposition, database);
    links(exposition, asked);
    faults(exposition, database);
    mirrors(exposition, database);
    locks(exposition, database);
}

fn runs(exposition: &mut Exposition, asked: &[Asked]) {
    let help = "Fragments on the device that have not come to their end, by state.";
    let mut family = exposition.family("cleave_device_fragments", Kind::Gauge, help);
    for (device, told) in asked {
        let Ok(told) = told else { continue };
        for state in [RunState::Queued, RunState::Running, RunState::Stalled] {
            let count = told.runs.iter().filter(|run| run.state == state).count();
            let state = state.to_string();
            family.sample(&[("device", device.name()), ("state", state.as_str())], count);
        }
    }
}

fn space(exposition: &mut Exposition, database: &Database) {
    let devices = database.devices();
    let help = "Bytes on the device that the database uses.";
    let mut family = exposition.family("cleave_device_used_bytes", Kind::Gauge, help);
    for device in &devices {
        family.sample(&[("device", device.name())], bytes(device.space().used_blocks));
    }
    let help = "Bytes of them that wait for their last reader.";
    let mut family = exposition.family("cleave_device_retired_bytes", Kind::Gauge, help);
    for device in &devices {
        family.sample(&[("device", device.name())], bytes(device.space().retired_blocks));
    }
}

fn links(exposition: &mut Exposition, asked: &[Asked]) {
    let connected = || asked.iter().map(|(device, _)| device).filter(|one| one.is_connected());
    let help = "Bytes over the link since the host connected, by direction.";
    let mut family = exposition.family("cleave_link_bytes_total", Kind::Counter, help);
    for device in connected() {
        let (name, traffic) = (("device", device.name()), device.traffic());
        family.sample(&[name, ("direction", "to device")], traffic.sent_bytes);
        family.sample(&[name, ("direction", "to host")], traffic.received_bytes);
    }
    let help = "Commands sent over the link since the host connected.";
    let mut family = exposition.family("cleave_link_commands_total", Kind::Counter, help);
    for device in connected() {
        family.sample(&[("device", device.name())], device.traffic().commands);
    }
    let help = "Whether the device has not answered a command in time, and has not yet.";
    let mut family = exposition.family("cleave_device_owes_answer", Kind::Gauge, help);
    for (device, _) in asked {
        family.sample(&[("device", device.name())], u8::from(device.owes_answer()));
    }
}

/// How a count of faults is read.
type OfFaults = fn(&FaultCounts) -> u64;

/// Name and meaning of the counts of faults of a device.
const OF_RUNS: [(&str, &str, OfFaults); 3] = [
    ("cleave_device_fragments_refused_total", "Fragments that the device refused.", |faults| {
        faults.fragments_refused
    }),
    (
        "cleave_device_fragments_lost_total",
        "Fragments that were lost on the device, or on the way.",
        |faults| faults.fragments_lost,
    ),
    (
        "cleave_link_corrupt_total",
        "Messages with rows of the device that failed their checksum.",
        |faults| faults.messages_corrupt,
    ),
];

/// Those of its link: a mirror has none.
const OF_LINKS: [(&str, &str, OfFaults); 2] = [
    ("cleave_link_lost_total", "Connections to the device that broke.", |faults| {
        faults.connections_lost
    }),
    (
        "cleave_link_connects_failed_total",
        "Attempts to connect to the device that failed.",
        |faults| faults.connects_failed,
    ),
];

fn faults(exposition: &mut Exposition, database: &Database) {
    let devices = database.devices();
    for (name, help, of) in OF_RUNS {
        let mut family = exposition.family(name, Kind::Counter, help);
        for device in &devices {
            family.sample(&[("device", device.name())], of(&device.fault_counts()));
        }
    }
    for (name, help, of) in OF_LINKS {
        let mut family = exposition.family(name, Kind::Counter, help);
        for device in devices.iter().filter(|device| !device.is_mirror()) {
            family.sample(&[("device", device.name())], of(&device.fault_counts()));
        }
    }
}

fn mirrors(exposition: &mut Exposition, database: &Database) {
    let devices = database.devices();
    let help = "Copies of the mirror, by whether they lack pages.";
    let mut family = exposition.family("cleave_mirror_copies", Kind::Gauge, help);
    for device in devices.iter().filter(|device| device.is_mirror()) {
        let copies = device.copies();
        let stale = copies.iter().filter(|(_, is_stale)| *is_stale).count();
        let name = ("device", device.name());
        family.sample(&[name, ("state", "current")], copies.len() - stale);
        family.sample(&[name, ("state", "stale")], stale);
    }
}

fn locks(exposition: &mut Exposition, database: &Database) {
    let help = "Waits at the lock table that the device shares with the host, by who waited.";
    let mut family = exposition.family("cleave_device_lock_waits_total", Kind::Counter, help);
    for device in &database.devices() {
        for (side, waits) in lock_figures::waits(device) {
            family.sample(&[("device", device.name()), ("side", side)], waits);
        }
    }
}

fn bytes(block_count: u64) -> u64 {
    block_count.saturating_mul(BLOCK_SIZE as u64)
}
