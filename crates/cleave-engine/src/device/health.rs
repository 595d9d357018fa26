//! How the devices are at this moment: the table `cleave.devices`, one row a device.
//!
//! 1. [`batch`] asks all devices side by side for their status. It waits for each as long as statements on its tables
//!    would (`--device-timeout`), so one that hangs neither fails the statement nor holds it up for longer.
//! 2. A device that does not answer has a row all the same: with the reason, with what the host knows of it, and NULL
//!    for what only the device could tell.
//! 3. A mirror has a row of its own, with its copies and which of them lack pages, and NULL for what these tell in
//!    theirs.
//!
//! Invariant: nothing is measured for it, and figures that are assumed are not shown. Of the way to a device only the
//! address is told; deliberately absent are its token and its certificate.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use cleave_catalog::catalog::DeviceId;
use cleave_catalog::error::Result;
use cleave_fragment::command::message::CAPABILITY_FRAGMENTS;
use cleave_fragment::command::{DeviceStatus, Identity, RunState};
use cleave_fragment::link::{AttachMode, Traffic};
use cleave_fragment::{build_id, waiting};
use cleave_media::BLOCK_SIZE;
use futures::future::join_all;

use super::profile::{Figure, LinkProfile, Origin, Profile};
use super::{Device, FaultCounts, SpaceStatus};
use crate::storage_engine::Engine;

/// Name of the table.
pub const TABLE: &str = "devices";

/// One row.
struct Health {
    name: String,
    mode: AttachMode,
    address: String,
    /// Of a mirror, the names of its copies, and whether each lacks pages.
    copies: Option<Vec<(String, bool)>>,
    space: SpaceStatus,
    /// Since the host connected; None: it is not connected.
    traffic: Option<Traffic>,
    /// What went wrong with it so far.
    faults: FaultCounts,
    /// It has not answered an earlier command in time, and has not yet.
    owes_answer: bool,
    /// What the device has told, or why it has not.
    told: Result<Told>,
}

/// What a device tells, and what is known of one that does.
struct Told {
    status: DeviceStatus,
    identity: Arc<Identity>,
    profile: Option<Arc<Profile>>,
}

/// The table's rows.
///
/// # Errors
/// None that a statement or a device can cause.
pub async fn batch(engine: &Engine) -> Result<RecordBatch> {
    let devices = engine.devices();
    let asked: Vec<_> = devices.iter().map(|device| Health::of(engine, device)).collect();
    as_batch(&join_all(asked).await)
}

/// The names of all devices with what each tells of itself, or why it has not. A mirror has no state of its own.
pub async fn statuses(engine: &Engine) -> Vec<(String, Result<DeviceStatus>)> {
    let devices = engine.devices();
    let asked = devices.iter().filter(|device| !device.is_mirror()).map(async |device| {
        let told = within_patience(device, device.status()).await;
        (device.name().to_owned(), told)
    });
    join_all(asked).await
}

/// All devices with what each tells of itself within `patience`, or why it has not. A mirror has no state of its own.
pub async fn asked_within(
    engine: &Engine,
    patience: Duration,
) -> Vec<(Arc<Device>, Result<DeviceStatus>)> {
    let devices = engine.devices();
    let asked = devices.iter().filter(|device| !device.is_mirror()).map(async |device| {
        let patience = patience.min(device.wait_left());
        let told = within(device, patience, device.status()).await;
        (Arc::clone(device), told)
    });
    join_all(asked).await
}

/// By what `asked` tells, how many of the devices that tables lie on cannot be read, and how many there are.
#[must_use]
pub fn unread(engine: &Engine, asked: &[(Arc<Device>, Result<DeviceStatus>)]) -> (usize, usize) {
    let state = engine.catalog();
    let used: BTreeSet<DeviceId> = state.tables().flat_map(|table| table.devices()).collect();
    let answers = |device: &Device| {
        asked.iter().any(|(other, told)| other.id() == device.id() && told.is_ok())
    };
    let can_be_read = |device: &Device| match device.is_mirror() {
        true => device.copies().iter().any(|(copy, is_stale)| !is_stale && answers(copy)),
        false => answers(device),
    };
    let is_lost = |id: &&DeviceId| engine.device(**id).is_none_or(|device| !can_be_read(&device));
    (used.iter().filter(is_lost).count(), used.len())
}

/// What `device` tells by `asking` it, within the time that it has.
async fn within_patience<T>(device: &Device, asking: impl Future<Output = Result<T>>) -> Result<T> {
    // A device that owes an answer has had some of its time.
    within(device, device.wait_left(), asking).await
}

async fn within<T>(
    device: &Device,
    patience: Duration,
    asking: impl Future<Output = Result<T>>,
) -> Result<T> {
    let told = waiting::timeout(patience, Box::pin(asking)).await;
    told.unwrap_or_else(|| Err(device.unanswered("tell its status", patience)))
}

impl Health {
    async fn of(engine: &Engine, device: &Device) -> Self {
        let told = within_patience(device, Told::by(engine, device)).await;
        let copies = device.is_mirror().then(|| device.copies());
        let copies = copies.map(|copies| {
            let named =
                copies.into_iter().map(|(copy, is_stale)| (copy.name().to_owned(), is_stale));
            named.collect::<Vec<_>>()
        });
        let is_alone = copies.is_none() && device.is_connected();
        Self {
            name: device.name().to_owned(),
            mode: device.mode(),
            address: device.entry().address(),
            copies,
            space: device.space(),
            traffic: is_alone.then(|| device.traffic()),
            faults: device.fault_counts(),
            owes_answer: device.owes_answer(),
            told,
        }
    }

    /// What went wrong with its link; a mirror has none.
    fn link_faults(&self) -> Option<FaultCounts> {
        self.copies.is_none().then_some(self.faults)
    }

    fn state(&self) -> &'static str {
        match (&self.told, self.owes_answer) {
            (Err(_), _) => "offline",
            (Ok(_), _) if self.stale().next().is_some() => "degraded",
            (Ok(_), true) => "slow",
            (Ok(_), false) => "online",
        }
    }

    /// The copies of a mirror that lack pages.
    fn stale(&self) -> impl Iterator<Item = &str> {
        let copies = self.copies.iter().flatten().filter(|(_, is_stale)| *is_stale);
        copies.map(|(name, _)| name.as_str())
    }

    fn kind(&self) -> String {
        match self.copies {
            Some(_) => "mirror".to_owned(),
            None => self.mode.to_string(),
        }
    }

    /// How it is reached, by a mirror's copies.
    fn address(&self) -> Option<String> {
        match &self.copies {
            Some(copies) => {
                let names: Vec<&str> = copies.iter().map(|(name, _)| name.as_str()).collect();
                Some(names.join(", "))
            }
            None => (self.mode != AttachMode::Embedded).then(|| self.address.clone()),
        }
    }

    /// Why it cannot be used, or not all of it.
    fn error(&self) -> Option<String> {
        let stale: Vec<&str> = self.stale().collect();
        match &self.told {
            Err(error) => Some(error.to_string()),
            Ok(_) if stale.is_empty() => None,
            Ok(_) => Some(format!(
                "of its copies, {} lack pages; ALTER DEVICE \"{}\" RESYNC gives them these",
                stale.join(", "),
                self.name
            )),
        }
    }

    /// What it tells of itself alone: copies do so in rows of their own.
    fn told(&self) -> Option<&Told> {
        self.told.as_ref().ok().filter(|_| self.copies.is_none())
    }

    /// The link's figures, if they were measured.
    fn link(&self) -> Option<&LinkProfile> {
        let link = &self.told()?.profile.as_ref()?.link;
        (link.origin == Origin::Measured).then_some(link)
    }

    /// A figure of the device, if it was measured.
    fn figure(&self, figure: Figure) -> Option<f64> {
        let side = &self.told()?.profile.as_ref()?.device;
        side.figure(figure).filter(|_| side.origin == Origin::Measured)
    }
}

impl Told {
    /// # Errors
    /// As [`Device::call`].
    async fn by(engine: &Engine, device: &Device) -> Result<Self> {
        let (status, identity) = (device.status().await?, device.identity().await?);
        let profile = engine.measured_profile(device).await;
        Ok(Self { status, identity, profile })
    }

    /// What the host can use of what the device offers: fragments go to devices of the same build alone (rule 2).
    fn capabilities(&self) -> String {
        let is_same_build = self.identity.build == build_id();
        let offered = self.identity.capabilities.iter().map(String::as_str);
        let usable = offered.filter(|offered| is_same_build || *offered != CAPABILITY_FRAGMENTS);
        usable.collect::<Vec<_>>().join(", ")
    }

    /// The name of the storage node that it is an engine of.
    fn node(&self) -> Option<String> {
        Some(self.identity.node.clone()).filter(|name| !name.is_empty())
    }

    /// Fragments that have not come to their end.
    fn run_count(&self) -> usize {
        let states = self.status.runs.iter().map(|run| run.state);
        let running = states.filter(|state| {
            matches!(state, RunState::Queued | RunState::Running | RunState::Stalled)
        });
        running.count()
    }
}

fn as_batch(devices: &[Health]) -> Result<RecordBatch> {
    let texts = |of: fn(&Health) -> Option<String>| -> ArrayRef {
        Arc::new(devices.iter().map(of).collect::<StringArray>())
    };
    let numbers = |of: fn(&Health) -> Option<u64>| -> ArrayRef {
        let number = |device: &Health| of(device).map(|of| i64::try_from(of).unwrap_or(i64::MAX));
        Arc::new(devices.iter().map(number).collect::<Int64Array>())
    };
    let counts = |of: fn(&Told) -> usize| -> ArrayRef {
        let count = |device: &Health| Some(i32::try_from(of(device.told()?)).unwrap_or(i32::MAX));
        Arc::new(devices.iter().map(count).collect::<Int32Array>())
    };
    let rates = |of: fn(&Health) -> Option<f64>| -> ArrayRef {
        Arc::new(devices.iter().map(of).collect::<Float64Array>())
    };
    let columns = [
        ("name", false, texts(|device| Some(device.name.clone()))),
        ("kind", false, texts(|device| Some(device.kind()))),
        ("address", true, texts(Health::address)),
        ("node", true, texts(|device| device.told().and_then(Told::node))),
        ("state", false, texts(|device| Some(device.state().to_owned()))),
        ("error", true, texts(Health::error)),
        ("cores", true, counts(|told| usize::try_from(told.identity.cores).unwrap_or(usize::MAX))),
        ("memory_bytes", true, numbers(|device| Some(device.told()?.status.fragment_memory_bytes))),
        (
            "free_memory_bytes",
            true,
            numbers(|device| Some(device.told()?.status.fragment_memory_bytes_free)),
        ),
        ("capabilities", true, texts(|device| device.told().map(Told::capabilities))),
        ("runs", true, counts(Told::run_count)),
        ("queue", true, numbers(|device| Some(device.told()?.status.queue))),
        ("used_bytes", false, numbers(|device| Some(bytes(device.space.used_blocks)))),
        ("retired_bytes", false, numbers(|device| Some(bytes(device.space.retired_blocks)))),
        ("media_bytes_read", true, numbers(|device| Some(device.told()?.status.media_bytes_read))),
        (
            "media_bytes_written",
            true,
            numbers(|device| Some(device.told()?.status.media_bytes_written)),
        ),
        ("commands", true, numbers(|device| Some(device.traffic?.commands))),
        ("bytes_sent", true, numbers(|device| Some(device.traffic?.sent_bytes))),
        ("bytes_received", true, numbers(|device| Some(device.traffic?.received_bytes))),
        ("round_trip_ms", true, rates(|device| Some(device.link()?.round_trip_s * 1e3))),
        ("link_bytes_per_second", true, rates(|device| Some(device.link()?.bytes_per_second))),
        (
            "media_read_bytes_per_second",
            true,
            rates(|device| device.figure(Figure::MediaReadSequential)),
        ),
        (
            "media_write_bytes_per_second",
            true,
            rates(|device| device.figure(Figure::MediaWriteSequential)),
        ),
        ("fragments_refused", false, numbers(|device| Some(device.faults.fragments_refused))),
        ("fragments_lost", false, numbers(|device| Some(device.faults.fragments_lost))),
        ("messages_corrupt", false, numbers(|device| Some(device.faults.messages_corrupt))),
        ("connections_lost", true, numbers(|device| Some(device.link_faults()?.connections_lost))),
        ("connects_failed", true, numbers(|device| Some(device.link_faults()?.connects_failed))),
    ];
    let columns = columns.into_iter().map(|(name, nullable, values)| (name, values, nullable));
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}

fn bytes(block_count: u64) -> u64 {
    block_count.saturating_mul(BLOCK_SIZE as u64)
}
