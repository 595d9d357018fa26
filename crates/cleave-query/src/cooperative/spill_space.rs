//! Spill space on a device for fragments that outgrow their memory there.
//!
//! 1. [`DeviceRun::begin`] sends a fragment without any: most need none, and none is taken for them.
//! 2. Where the device answers, before the first row, that its memory does not suffice, [`DeviceRun`] takes space on
//!    the device and sends the fragment once more, as another run that names it. Its operators spill there
//!    ([`GraceExec`]). At first the space is a few times what the fragment reads; where that is full the run gets more
//!    and goes on, up to all that `device_spill` allows.
//! 3. Where that does not help either, the first error is returned, and the host runs the fragment.
//!
//! Invariant: the space belongs to this run alone, and is free again as soon as the device has reported that the run
//! has stopped, however it ends ([`ClaimedRun`]). Nothing durable names it, so that it is free after a crash.

use std::sync::Arc;
use std::time::Duration;

use cleave_fragment::GraceExec;
use cleave_fragment::command::{CommandHeader, DeviceError, DeviceErrorCause, Execute, RunReport};
use cleave_fragment::link::{Link, LinkError, RunStream};
use cleave_media::BLOCK_SIZE;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::physical_plan::ExecutionPlan;

use cleave_engine::device::{Claim, ClaimedRun, Device};

use super::followed::Followed;
use super::ongoing_run::OngoingRun;
use super::peers::PeerGrants;

/// Blocks that are asked for at first, for each that the fragment reads: pages are compressed, spilled rows are not.
const BLOCKS_FOR_ONE: u64 = 4;
/// And beyond those.
const BLOCKS_BESIDE: u64 = 256;

/// A run on a device, with space there if it needs any.
pub(crate) struct DeviceRun {
    device: Arc<Device>,
    link: Arc<dyn Link>,
    header: CommandHeader,
    /// Of the rows that must come.
    schema: SchemaRef,
    run: Run,
    /// How it may be begun again, until its first row is there.
    again: Option<Again>,
    /// What other devices let it have, as long as it runs.
    _grants: PeerGrants,
    /// How far it is, once others are to know.
    ongoing: Option<OngoingRun>,
    /// Asks for that, if nobody else counts what it has begun.
    followed: Option<Box<Followed>>,
    waited: Duration,
}

enum Run {
    Plain(Box<RunStream>),
    WithSpace(ClaimedRun),
    /// Ended, and not replaced yet.
    Over,
}

struct Again {
    request: Execute,
    /// Blocks that a run may have.
    block_count_max: u64,
    /// The outcome of the run without space.
    failure: Option<DeviceError>,
}

impl DeviceRun {
    /// Begins `request`, which carries `plan` and shows `grants`, with at most `spill_bytes` of space.
    ///
    /// # Errors
    /// Those of the link and the device.
    pub(crate) async fn begin(
        device: &Arc<Device>,
        link: &Arc<dyn Link>,
        (request, grants): (Execute, PeerGrants),
        (plan, spill_bytes): (&Arc<dyn ExecutionPlan>, u64),
    ) -> Result<Self, LinkError> {
        let block_count_max = spill_bytes / BLOCK_SIZE as u64;
        let helps = block_count_max > 0 && GraceExec::helps(plan);
        let again =
            helps.then(|| Again { request: request.clone(), block_count_max, failure: None });
        let (device, link) = (Arc::clone(device), Arc::clone(link));
        let (header, schema) = (request.header, plan.schema());
        let mut begun = Self {
            device,
            link,
            header,
            schema,
            run: Run::Over,
            again,
            _grants: grants,
            ongoing: None,
            followed: None,
            waited: Duration::ZERO,
        };
        match begun.link.execute(request).await {
            Ok(mut stream) => {
                stream.expect_rows(Arc::clone(&begun.schema))?;
                begun.run = Run::Plain(Box::new(stream));
            }
            Err(error) => begun.begin_again(error).await?,
        }
        Ok(begun)
    }

    /// Which run it is; another one after [`DeviceRun::begin_again`].
    pub(crate) fn header(&self) -> CommandHeader {
        self.header
    }

    /// Notes that `ongoing` is this run; `counts`: what it has begun is counted by that.
    pub(super) fn follow(&mut self, ongoing: OngoingRun, counts: bool) {
        self.followed = counts.then(|| Box::new(Followed::of_begun(ongoing.clone())));
        self.ongoing = Some(ongoing);
    }

    /// How far it is, if that can be asked.
    pub(super) fn ongoing(&self) -> Option<&OngoingRun> {
        self.ongoing.as_ref()
    }

    /// Whether it has space to put rows aside.
    pub(crate) fn has_space(&self) -> bool {
        matches!(self.run, Run::WithSpace(_))
    }

    /// As [`RunStream::next`]. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<Option<RecordBatch>, LinkError> {
        let run = &mut self.run;
        let next = async move {
            match run {
                Run::Plain(stream) => stream.next().await,
                Run::WithSpace(run) => run.next().await,
                Run::Over => Ok(None),
            }
        };
        let batch = match &mut self.followed {
            Some(followed) => followed.beside(next).await?,
            None => next.await?,
        };
        self.again = None;
        if let (None, Some(ongoing), Some(report)) = (&batch, &self.ongoing, self.run.report()) {
            ongoing.ended(report.kept);
        }
        Ok(batch)
    }

    /// As [`RunStream::report`].
    pub(crate) fn report(&self) -> Option<&RunReport> {
        self.run.report()
    }

    /// Time that the host has waited for slots, of all runs.
    pub(crate) fn waited(&self) -> Duration {
        self.waited
            + match &self.run {
                Run::Plain(stream) => stream.waited(),
                Run::WithSpace(run) => run.waited(),
                Run::Over => Duration::ZERO,
            }
    }

    /// Bytes of the present run's slots that were handed out.
    pub(crate) fn slot_bytes(&self) -> u64 {
        match &self.run {
            Run::Plain(stream) => stream.slot_bytes(),
            Run::WithSpace(run) => run.slot_bytes(),
            Run::Over => 0,
        }
    }

    /// Begins a run with space over the same morsels, in the place of one without that ended with `error`.
    ///
    /// # Errors
    /// `error`, where space would not help or rows were given out, or why there is no such run.
    pub(crate) async fn begin_again(&mut self, mut error: LinkError) -> Result<(), LinkError> {
        loop {
            let Some(again) = &mut self.again else { return Err(error) };
            let Some(failure) = error.device_error().cloned() else { return Err(error) };
            match (failure.cause, &again.failure) {
                (DeviceErrorCause::OutOfMemory, None) => {}
                // Full, and it gets no more; or a device that has lost its reservations, as after a restart.
                (DeviceErrorCause::OutOfReserved | DeviceErrorCause::NotReserved, Some(first)) => {
                    return Err(as_before(error, first, &failure));
                }
                _ => return Err(error),
            }
            again.failure = Some(failure.clone());
            let block_count_max = again.block_count_max;
            let block_count = first_blocks(&again.request, block_count_max);
            let mut request = again.request.clone();
            // The old run's memory on the device is released before as much is asked for.
            self.waited = self.waited();
            self.run = Run::Over;
            let claim = Arc::new(Claim::new(Arc::clone(&self.device)));
            let Ok(extent) = claim.acquire(block_count).await else {
                // A device that is full, or lost: the host runs the fragment, and reports what fails.
                return Err(as_before(error, &failure, &failure));
            };
            request.header = self.device.next_run();
            request.reserved = vec![extent];
            request.extensible = true;
            self.header = request.header;
            if let Some(ongoing) = &self.ongoing {
                ongoing.begins_again(self.header);
            }
            if let Some(followed) = &mut self.followed {
                followed.begins_again();
            }
            let (link, schema) = (&self.link, &self.schema);
            match ClaimedRun::begin(claim, link, request, schema, block_count_max).await {
                Ok(run) => {
                    self.run = Run::WithSpace(run);
                    return Ok(());
                }
                Err(failed) => error = failed,
            }
        }
    }
}

impl Run {
    fn report(&self) -> Option<&RunReport> {
        match self {
            Self::Plain(stream) => stream.report(),
            Self::WithSpace(run) => run.report(),
            Self::Over => None,
        }
    }
}

/// The error for a run whose space was full: that of the run without any, which the host answers by running it itself.
fn as_before(error: LinkError, first: &DeviceError, then: &DeviceError) -> LinkError {
    let LinkError::Device { device, .. } = error else { return error };
    if first == then {
        return LinkError::Device { device, source: first.clone() };
    }
    let message = format!("{first}; with space to put rows aside, {then}");
    LinkError::Device { device, source: DeviceError::new(first.cause, message) }
}

/// Blocks that a run of `request` has at first, of at most `block_count_max`.
fn first_blocks(request: &Execute, block_count_max: u64) -> u32 {
    let pages = request.inputs.iter().flat_map(|(_, morsels)| morsels);
    let pages = pages.flat_map(|morsel| &morsel.pages);
    let read: u64 = pages.map(|place| u64::from(place.page.extent.block_count)).sum();
    let first = read.saturating_mul(BLOCKS_FOR_ONE).saturating_add(BLOCKS_BESIDE);
    u32::try_from(first.min(block_count_max)).unwrap_or(u32::MAX)
}
