//! Measures what this device can do in a second: its cores by [`measure`], and its own media here.
//!
//! 1. One measurement runs at a time ([`Kept`]): requests that arrive meanwhile get its result, which is kept.
//! 2. Cores are measured on the fragment threads, where fragments would feel the same quota.
//! 3. Media are read in the extents that the host names as a sample, and written in the scratch space that it has
//!    reserved for that. Without either the figure is left out, and a remark says so.
//!
//! Invariant: only reserved blocks are written, while the command holds its place in the epoch: a later incarnation is
//! answered when the last of these writes is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cleave_fragment::command::{CommandHeader, DeviceError, DeviceErrorCause, Reply};
use cleave_fragment::profile::{Figure, SideProfile, measure};
use cleave_fragment::waiting::spawn_blocking_on;
use cleave_media::{BLOCK_SIZE, BlockAddress, Extent, Media, MediaError, Stopwatch, simulation};
use tokio::sync::Mutex;

use super::ownership::Entry;
use super::{Runtime, refused};
use crate::device_error::of_media;

/// Time for each way to use the media; the first operation is made however long it takes.
const SLICE: Duration = Duration::from_millis(20);
/// Most blocks that a scratch space may have, extents of a sample, and pieces of them that are read in order.
const SCRATCH_BLOCKS_MAX: u32 = 4096;
const SAMPLE_EXTENTS_MAX: usize = 64;
const SAMPLE_PIECES_MAX: usize = 1024;
/// Blocks of one piece that is read or written sequentially, and pieces under way.
const PIECE_BLOCKS: u32 = 256;
const PIECES_AT_ONCE: usize = 4;
/// Single blocks that are read at once, or written before a sync.
const SINGLE_BLOCKS: usize = 16;

/// The last measurement.
#[derive(Debug, Default)]
pub(super) struct Kept {
    profile: Mutex<Option<SideProfile>>,
    /// Completed measurements.
    count: AtomicU64,
}

impl Runtime {
    /// Answers a profile command. See the [module](self).
    pub(super) async fn profile(
        &self,
        header: &CommandHeader,
        again: bool,
        sample: Vec<Extent>,
        scratch: Option<Extent>,
    ) -> Result<Reply, DeviceError> {
        let entry = match scratch {
            None => self.enter_to_read(header).await?,
            Some(scratch) => self.enter_to_overwrite(header, scratch).await?,
        };
        // Waiting for another measurement must not hold up a claim.
        drop(entry);
        if sample.len() > SAMPLE_EXTENTS_MAX {
            return Err(refused(format!("a sample of more than {SAMPLE_EXTENTS_MAX} extents")));
        }
        let count = self.profiled.count.load(Ordering::Acquire);
        let mut kept = self.profiled.profile.lock().await;
        let is_new = self.profiled.count.load(Ordering::Acquire) != count;
        let writes = Figure::MediaWriteSequential;
        if let Some(profile) = &*kept
            && (!again || is_new)
            && (scratch.is_none() || profile.figure(writes).is_some())
        {
            return Ok(Reply::Profile(Box::new(profile.clone())));
        }
        let profile = self.measured(header, sample, scratch).await?;
        *kept = Some(profile.clone());
        self.profiled.count.fetch_add(1, Ordering::Release);
        Ok(Reply::Profile(Box::new(profile)))
    }

    async fn measured(
        &self,
        header: &CommandHeader,
        sample: Vec<Extent>,
        scratch: Option<Extent>,
    ) -> Result<SideProfile, DeviceError> {
        let threads = &self.threads.fragments.handle;
        let memory_bytes = self.admission.total_bytes();
        let mut side = measure(threads, self.options.cores.max(1), memory_bytes).await;
        if simulation::is_active() {
            return Ok(side);
        }
        let entry = match scratch {
            None => None,
            Some(scratch) => Some(self.enter_to_overwrite(header, scratch).await?),
        };
        let media = Arc::clone(&self.media);
        let measuring = spawn_blocking_on(threads, move || {
            if let Some(scratch) = scratch {
                measure_writes(&*media, scratch, &mut side).map_err(|error| of_media(&error))?;
            } else {
                side.remarks.push("media, writes: no space was reserved for it".to_owned());
            }
            // Held until here, so that an epoch ends only after its writes.
            drop(entry);
            let sample = if sample.is_empty() { scratch.into_iter().collect() } else { sample };
            measure_reads(&*media, &sample, &mut side).map_err(|error| of_media(&error))?;
            Ok(side)
        });
        measuring.await.unwrap_or_else(|error| {
            let message = format!("the device failed internally: {error}");
            Err(DeviceError::new(DeviceErrorCause::Io, message))
        })
    }

    /// Admits a command of the owner with `header`, to overwrite blocks that it has reserved.
    async fn enter_to_overwrite(
        &self,
        header: &CommandHeader,
        scratch: Extent,
    ) -> Result<Entry, DeviceError> {
        let entry = self.enter(header).await?;
        let is_reserved = |owner: &super::Owner| owner.lock_reservations().contains(scratch);
        if scratch.block_count == 0 || !entry.as_ref().is_some_and(is_reserved) {
            let message = format!("{scratch} were not reserved in this epoch");
            return Err(DeviceError::new(DeviceErrorCause::NotReserved, message));
        }
        if scratch.block_count > SCRATCH_BLOCKS_MAX {
            return Err(refused(format!(
                "a scratch space of more than {SCRATCH_BLOCKS_MAX} blocks"
            )));
        }
        Ok(entry)
    }
}

/// Pseudo-random numbers, the same everywhere.
struct Places(u64);

impl Places {
    /// The next one below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end.max(1)
    }

    /// A block of one of `extents`.
    fn block(&mut self, extents: &[Extent]) -> Extent {
        let index = self.below(extents.len() as u64);
        let place = usize::try_from(index).ok().and_then(|index| extents.get(index));
        let extent = place.copied().unwrap_or(Extent { start: BlockAddress(0), block_count: 1 });
        let offset = self.below(u64::from(extent.block_count));
        Extent { start: BlockAddress(extent.start.0 + offset), block_count: 1 }
    }
}

/// Repeats `work`, which returns its amount, for a slice of time; returns units a second.
fn rate(mut work: impl FnMut() -> Result<f64, MediaError>) -> Result<f64, MediaError> {
    let watch = Stopwatch::start();
    let mut units = 0.0;
    loop {
        units += work()?;
        let elapsed = watch.elapsed();
        if elapsed >= SLICE {
            return Ok(units / elapsed.as_secs_f64());
        }
    }
}

fn measure_reads(
    media: &dyn Media,
    sample: &[Extent],
    side: &mut SideProfile,
) -> Result<(), MediaError> {
    let pieces: Vec<Extent> =
        sample.iter().flat_map(|extent| pieces(*extent)).take(SAMPLE_PIECES_MAX).collect();
    if pieces.is_empty() {
        side.remarks.push("media, reads: nothing is stored there yet".to_owned());
        return Ok(());
    }
    let mut rounds = pieces.chunks(PIECES_AT_ONCE).cycle();
    let in_order = rate(|| {
        let read = media.read_many(rounds.next().unwrap_or_default())?;
        Ok(read.iter().map(|buffer| buffer.len() as f64).sum())
    })?;
    side.set(Figure::MediaReadSequential, in_order);
    let mut places = Places(1);
    let at_random = rate(|| {
        let blocks: Vec<_> = (0..SINGLE_BLOCKS).map(|_| places.block(sample)).collect();
        Ok(media.read_many(&blocks)?.len() as f64)
    })?;
    side.set(Figure::MediaReadRandom, at_random);
    Ok(())
}

fn measure_writes(
    media: &dyn Media,
    scratch: Extent,
    side: &mut SideProfile,
) -> Result<(), MediaError> {
    let bytes = vec![0xA5; PIECE_BLOCKS as usize * BLOCK_SIZE];
    let some = |blocks: u32| bytes.get(..blocks as usize * BLOCK_SIZE).unwrap_or_default();
    let in_order = rate(|| {
        for piece in pieces(scratch) {
            media.write(piece.start, some(piece.block_count))?;
        }
        media.sync()?;
        Ok(scratch.bytes() as f64)
    })?;
    side.set(Figure::MediaWriteSequential, in_order);
    let mut places = Places(1);
    let at_random = rate(|| {
        for _ in 0..SINGLE_BLOCKS {
            media.write(places.block(&[scratch]).start, some(1))?;
        }
        media.sync()?;
        Ok(SINGLE_BLOCKS as f64)
    })?;
    side.set(Figure::MediaWriteRandom, at_random);
    Ok(())
}

/// `extent` in pieces that are read or written at once.
fn pieces(extent: Extent) -> impl Iterator<Item = Extent> {
    (0..extent.block_count).step_by(PIECE_BLOCKS as usize).map(move |offset| Extent {
        start: BlockAddress(extent.start.0 + u64::from(offset)),
        block_count: PIECE_BLOCKS.min(extent.block_count - offset),
    })
}
