//! The names of devices in what devices say of each other: they know their ids, and users know their names.

use std::sync::Arc;

use cleave_engine::device::Device;

/// `lines` with the names of `devices` in the place of their ids.
pub(super) fn named(
    lines: Vec<(String, String)>,
    devices: &[Arc<Device>],
) -> Vec<(String, String)> {
    let ids = devices.iter().map(|device| {
        let id: String = device.entry().identity.iter().map(|byte| format!("{byte:02x}")).collect();
        (id, format!("\"{}\"", device.name()))
    });
    let ids: Vec<(String, String)> = ids.collect();
    let named = |text: String| {
        ids.iter().fold(text, |text, (id, name)| match text.contains(id) {
            true => text.replace(id, name),
            false => text,
        })
    };
    lines.into_iter().map(|(title, text)| (title, named(text))).collect()
}
