//! The profile of a device as this host sees it: measured when it is first needed, and kept.
//!
//! ```text
//!  DIR/device-<id>.profile   a frame (cleave_store::Format) with the magic "CLVPROFL" around a message:
//!                            key · host's figures · device's figures · link's figures
//! ```
//!
//! 1. [`Engine::profile`] returns the profile in memory; else that of the file, if its key matches this device, build,
//!    address and start of this machine; else it measures.
//! 2. The device measures itself ([`Request::Profile`]), in pages that the catalog names and in space that a [`Claim`]
//!    holds meanwhile; the host measures its own cores with the same kernels; the link is measured from here.
//!
//! Profiles are no part of a commit: a file that is lost or damaged is measured again. In a simulation nothing is
//! measured, asked or written.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use cleave_catalog::catalog::{DeviceId, DeviceKind};
use cleave_catalog::error::Result;
use cleave_fragment::command::{Identity, ReadItem, Reply, Request};
use cleave_fragment::link::AttachMode;
use cleave_fragment::profile::measure;
use cleave_media::{BLOCK_SIZE, Extent, Stopwatch, files, simulation};
pub use cleave_plan::profile::{
    Accelerator, Figure, LinkProfile, Origin, PUBLISHED, Profile, SideProfile,
};
use cleave_store::Format;
use datafusion_common::utils::get_available_parallelism;
use datafusion_execution::memory_pool::MemoryLimit;
use futures::FutureExt;
use futures::future::try_join_all;
use prost::Message;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use super::{Claim, Device};
use crate::storage_engine::Engine;

/// The frame; its newest version is what this build writes.
pub const FORMAT: Format = Format { magic: *b"CLVPROFL", name: "profile", versions: 1..=1 };

/// Blocks that the device may overwrite to measure its media.
const SCRATCH_BLOCKS: u32 = 1024;
/// Extents in which it reads.
const SAMPLE_EXTENTS: usize = 64;
/// Round trips of the shortest command, and of each size.
const ROUND_TRIPS: usize = 9;
const HANDSHAKES: usize = 3;
/// Blocks of an answer: 4 KiB, 64 KiB, 1 MiB.
const HANDSHAKE_BLOCKS: [u32; 3] = [1, 16, 256];
/// Answers under way while the rate is measured, and the time for that.
const ANSWERS_AT_ONCE: usize = 4;
const RATE_S: f64 = 0.06;

/// The profile of a side; locked while it is measured.
pub type Known<T> = Mutex<Option<T>>;

#[derive(Clone, PartialEq, Message)]
struct Stored {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(bytes = "vec", tag = "2")]
    host: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    device: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    link: Vec<u8>,
}

impl Engine {
    /// The profile of this host, the device `id` and the link between them; measured where it is not known, or `again`,
    /// which takes about half a second. Of a mirror it is that of the copy that is read.
    ///
    /// # Errors
    /// Those of [`Device::call`].
    pub async fn profile(&self, id: DeviceId, again: bool) -> Result<Arc<Profile>> {
        let device = self.attached(id)?;
        device.ask(|device| self.profile_of(device, again).boxed()).await
    }

    /// The same of `device`, which is no mirror.
    async fn profile_of(&self, device: Arc<Device>, again: bool) -> Result<Arc<Profile>> {
        let known = self.known_profile_of(Arc::clone(&device)).await?;
        if let Some(profile) = known.filter(|_| !again) {
            return Ok(profile);
        }
        let mut known = device.profile.lock().await;
        // Another statement may have measured meanwhile.
        if let Some(profile) = known.as_ref().filter(|_| !again) {
            return Ok(Arc::clone(profile));
        }
        let profile = self.measure(&device, again).await?;
        let key = key_of(&device, device.identity().await?.as_ref());
        // Where it cannot be written, it is measured again next time.
        drop(write(&self.profile_path(device.id()), &key, &profile));
        let profile = Arc::new(of_mode(profile, device.mode()));
        *known = Some(Arc::clone(&profile));
        Ok(profile)
    }

    /// The known profile of the device `id`, without measuring. In a simulation, the assumed one.
    ///
    /// # Errors
    /// As [`Engine::profile`].
    pub async fn known_profile(&self, id: DeviceId) -> Result<Option<Arc<Profile>>> {
        let device = self.attached(id)?;
        device.ask(|device| self.known_profile_of(device).boxed()).await
    }

    /// The same of `device`, which is no mirror.
    async fn known_profile_of(&self, device: Arc<Device>) -> Result<Option<Arc<Profile>>> {
        if simulation::is_active() {
            return Ok(Some(Arc::new(of_mode(Profile::assumed(), device.mode()))));
        }
        let mut known = device.profile.lock().await;
        self.read_profile(&device, &mut known).await?;
        Ok(known.clone())
    }

    /// The same, if it is no assumed one; `None` also where it cannot be told now: the device does not answer, or is
    /// being measured, which is not waited for.
    pub(super) async fn measured_profile(&self, device: &Device) -> Option<Arc<Profile>> {
        if simulation::is_active() {
            return None;
        }
        if let Some((copy, _)) = device.copies().into_iter().find(|(_, is_stale)| !is_stale) {
            return Box::pin(self.measured_profile(&copy)).await;
        }
        let mut known = device.profile.try_lock().ok()?;
        self.read_profile(device, &mut known).await.ok()?;
        known.clone()
    }

    /// Makes the profile of `device` known, if its file has it.
    ///
    /// # Errors
    /// As [`Device::identity`].
    async fn read_profile(&self, device: &Device, known: &mut Option<Arc<Profile>>) -> Result<()> {
        if known.is_none() {
            let key = key_of(device, device.identity().await?.as_ref());
            let stored = read(&self.profile_path(device.id()), &key);
            *known = stored.map(|profile| Arc::new(of_mode(profile, device.mode())));
        }
        Ok(())
    }

    fn profile_path(&self, id: DeviceId) -> std::path::PathBuf {
        self.directory().join(format!("device-{id}.profile"))
    }

    async fn measure(&self, device: &Arc<Device>, again: bool) -> Result<Profile> {
        let mut sample = self.catalog().extents_present(device.id());
        // The largest ones: a read in order must not end after a block.
        sample.sort_by_key(|extent| (std::cmp::Reverse(extent.block_count), extent.start));
        sample.truncate(SAMPLE_EXTENTS);
        let claim = Arc::new(Claim::new(Arc::clone(device)));
        let scratch = claim.acquire(SCRATCH_BLOCKS).await.ok();
        let request = Request::Profile { again, sample: sample.clone(), scratch };
        let mut side = match claim.call("measure itself", request).await? {
            Reply::Profile(side) => *side,
            other => return Err(device.strange(&other, "profile")),
        };
        // What a device could not measure when a host without space asked first.
        side.remarks.sort();
        side.remarks.dedup();
        if device.mode() == AttachMode::Embedded {
            let host = side.clone();
            return Ok(Profile { host, device: side, link: LinkProfile::embedded() });
        }
        sample.extend(scratch);
        let link = measure_link(device, &sample).await?;
        drop(claim);
        Ok(Profile { host: self.host_profile(again).await, device: side, link })
    }

    /// The figures of this process: measured once, or `again`.
    async fn host_profile(&self, again: bool) -> SideProfile {
        let mut known = self.host_profile.lock().await;
        if let Some(profile) = known.as_ref().filter(|_| !again) {
            return profile.clone();
        }
        let cores = get_available_parallelism();
        let cores = u32::try_from(cores).unwrap_or(u32::MAX);
        let memory_bytes = match self.query_runtime().memory_pool.memory_limit() {
            MemoryLimit::Finite(bytes) => bytes as u64,
            _ => 0,
        };
        let profile = measure(&Handle::current(), cores, memory_bytes).await;
        known.insert(profile).clone()
    }
}

/// A device in this process has no link.
fn of_mode(mut profile: Profile, mode: AttachMode) -> Profile {
    if mode == AttachMode::Embedded {
        profile.link = LinkProfile::embedded();
    }
    profile
}

/// The key of a stored profile: what it was measured with, and where.
fn key_of(device: &Device, identity: &Identity) -> String {
    let cores = get_available_parallelism();
    // Differs after each start of the machine, and on every machine; empty where unknown.
    static BOOT: LazyLock<String> = LazyLock::new(|| {
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
    });
    let rate_cap = match &device.entry.kind {
        DeviceKind::Embedded | DeviceKind::Mirror(_) => None,
        DeviceKind::Local(local) => local.rate_cap,
        DeviceKind::Remote(remote) => remote.rate_cap,
    };
    format!(
        "{:032x} {} {} {} {} {:?} host {cores} {}",
        u128::from_le_bytes(identity.device),
        identity.build,
        identity.cores,
        identity.fragment_memory_bytes,
        device.entry.address(),
        rate_cap,
        BOOT.trim(),
    )
}

/// The profile in the file at `path`, if there is one, it is sound, and of `key`.
fn read(path: &Path, key: &str) -> Option<Profile> {
    let (stored, profile) = decode(&std::fs::read(path).ok()?)?;
    (stored.key == key).then_some(profile)
}

/// The profile in the bytes of a file `device-<id>.profile`, wherever it was measured; None if they hold none.
pub fn of_file(bytes: &[u8]) -> Option<Profile> {
    decode(bytes).map(|(_, profile)| profile)
}

fn decode(bytes: &[u8]) -> Option<(Stored, Profile)> {
    let (_, message) = FORMAT.open(bytes).ok()?;
    let stored = Stored::decode(message).ok()?;
    let profile = Profile {
        host: SideProfile::from_bytes(&stored.host).ok()?,
        device: SideProfile::from_bytes(&stored.device).ok()?,
        link: LinkProfile::from_bytes(&stored.link).ok()?,
    };
    Some((stored, profile))
}

fn write(path: &Path, key: &str, profile: &Profile) -> std::io::Result<()> {
    let stored = Stored {
        key: key.to_owned(),
        host: profile.host.to_bytes(),
        device: profile.device.to_bytes(),
        link: profile.link.to_bytes(),
    };
    let new = path.with_extension("profile.new");
    files::write_durably(&new, &FORMAT.seal(&stored.encode_to_vec()))?;
    files::rename(&new, path)
}

/// How long commands and their answers take between here and `device`, which reads them in `extents`.
///
/// # Errors
/// As [`Device::call`].
async fn measure_link(device: &Device, extents: &[Extent]) -> Result<LinkProfile> {
    // Connects, and fills caches.
    device.call("tell its status", Request::Status).await?;
    let round_trip_s = median(ROUND_TRIPS, || timed(device, Request::Status)).await?;
    let mut link = LinkProfile { origin: Origin::Measured, round_trip_s, ..LinkProfile::assumed() };
    let mut largest = None;
    for blocks in HANDSHAKE_BLOCKS {
        let Some(extent) = extents.iter().find(|extent| extent.block_count >= blocks) else {
            continue;
        };
        let extent = Extent { start: extent.start, block_count: blocks };
        let read = || timed(device, Request::Read(vec![ReadItem::Blocks(extent)]));
        let elapsed_s = median(HANDSHAKES, read).await?;
        link.handshakes.push((u64::from(blocks) * BLOCK_SIZE as u64, elapsed_s));
        largest = Some(extent);
        if elapsed_s > RATE_S {
            break;
        }
    }
    let Some(extent) = largest else {
        link.origin = Origin::Assumed;
        return Ok(link);
    };
    let (watch, mut bytes) = (Stopwatch::start(), 0.0);
    while watch.elapsed().as_secs_f64() < RATE_S {
        let reads = (0..ANSWERS_AT_ONCE)
            .map(|_| device.call("read", Request::Read(vec![ReadItem::Blocks(extent)])));
        bytes += try_join_all(reads).await?.len() as f64 * extent.bytes() as f64;
    }
    link.bytes_per_second = bytes / watch.elapsed().as_secs_f64();
    Ok(link)
}

/// Seconds from `request` to its answer.
async fn timed(device: &Device, request: Request) -> Result<f64> {
    let watch = Stopwatch::start();
    device.call("be measured", request).await?;
    Ok(watch.elapsed().as_secs_f64())
}

async fn median<F: Future<Output = Result<f64>>>(
    count: usize,
    mut measure: impl FnMut() -> F,
) -> Result<f64> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        times.push(measure().await?);
    }
    times.sort_by(f64::total_cmp);
    Ok(times.get(count / 2).copied().unwrap_or(0.0))
}
