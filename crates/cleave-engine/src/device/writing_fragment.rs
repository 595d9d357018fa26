//! Fragments that write into the space of a claim or lock rows: an execute request in, the device's answer rows out.
//!
//! A request that may be extended gets more space as it fills what it has
//! ([`space_extension`](super::space_extension)).
//!
//! The run goes on in a task of its own, as writes do, and holds the [`Claim`] for as long as it may write, and its job
//! for as long as it may lock: the space has no other use, and the job's number no other owner, before the device has
//! reported that the run has stopped. A caller that gives up waiting stops the run. Where the device does not answer
//! any more, the space stays unusable until the database is next opened: a write may still arrive.
//!
//! Of a mirror one copy runs the fragment; what that has written is copied to the others before the run counts as
//! ended.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use cleave_catalog::error::Result;
use cleave_fragment::command::slot::batch_bytes;
use cleave_fragment::command::{Command, CommandHeader, Execute, Request};
use cleave_fragment::link::LinkError;
use cleave_media::{BLOCK_SIZE, Extent};
use tokio::sync::oneshot;

use super::run_witness::RunWitness;
use super::shared_locks::LockingJob;
use super::space_extension::{GivenSpace, extend_space};
use super::{Claim, Device};

/// Bytes of a fragment's answer besides its pages: the filter over the keys of a run.
const BYTES_BESIDE: u64 = 64 << 20;

/// What became of a fragment that writes, and the extents that it had, extensions included.
pub(crate) struct WrittenFragment {
    pub(crate) outcome: Written,
    pub(crate) space: Vec<Extent>,
    /// It has not confirmed that it has stopped.
    pub(crate) may_write: bool,
}

/// The outcome of a fragment that writes.
pub(crate) enum Written {
    /// With all its rows.
    Rows(Vec<RecordBatch>),
    /// Not at all, or with an error, which came over a link that may be of no more use.
    Failed(LinkError),
    /// It was stopped: rows of a query, or beside its report, take more memory than they may.
    TooMuch,
}

/// What the rows of a fragment are.
#[derive(Debug, Clone, Copy)]
enum Rows {
    /// They report written pages; beside these come rows that may take so many bytes, if any do.
    OfPages { returned_bytes_max: Option<u64> },
    /// They are those of a query, which may take so many bytes.
    OfQuery { bytes_max: u64 },
}

/// The rows of a fragment: they are kept until all are there.
#[derive(Default)]
struct Kept {
    batches: Vec<RecordBatch>,
    rows: u64,
    bytes: u64,
}

impl Kept {
    /// Keeps `batch`; false: these are more rows than the fragment may return. One that writes to so many blocks
    /// returns a row for each page that fits there, and one behind them; of a page's keys less than the page has.
    fn push(&mut self, batch: RecordBatch, kind: Rows, block_count: u64) -> bool {
        self.rows = self.rows.saturating_add(batch.num_rows() as u64);
        self.bytes = self.bytes.saturating_add(batch_bytes(&batch));
        self.batches.push(batch);
        let of_pages = block_count.saturating_mul(BLOCK_SIZE as u64).saturating_mul(2);
        let of_pages = of_pages.saturating_add(BYTES_BESIDE);
        match kind {
            Rows::OfQuery { bytes_max } => self.bytes <= bytes_max,
            Rows::OfPages { returned_bytes_max: None } => {
                self.rows <= block_count + 1 && self.bytes <= of_pages
            }
            Rows::OfPages { returned_bytes_max: Some(bytes_max) } => {
                self.bytes <= of_pages.saturating_add(bytes_max)
            }
        }
    }
}

impl Claim {
    /// Runs `request`, whose reserved extents are taken and reserved, to its end; where it may be extended, with more
    /// space of the claim as it needs that. What it answers are rows of `schema`, which report pages; beside these may
    /// come rows of `returned_bytes_max` bytes, if any do. A run that locks rows does so for `job`. `witness` is told
    /// how it goes on.
    ///
    /// # Errors
    /// Those of connecting.
    pub(crate) async fn run_fragment(
        self: &Arc<Self>,
        request: Execute,
        (schema, returned_bytes_max): (SchemaRef, Option<u64>),
        job: Option<Arc<LockingJob>>,
        witness: Option<Arc<dyn RunWitness>>,
    ) -> Result<WrittenFragment> {
        let rows = (schema, Rows::OfPages { returned_bytes_max });
        self.run_owned((request, job), rows, witness).await
    }

    /// Runs `request`, a query that writes nothing and locks its rows for `job`, to its end. Its rows are of `schema`,
    /// and may take `bytes_max` bytes. `witness` is told how it goes on.
    ///
    /// # Errors
    /// Those of connecting.
    pub(crate) async fn run_locking(
        self: &Arc<Self>,
        request: Execute,
        (schema, bytes_max): (SchemaRef, u64),
        job: Arc<LockingJob>,
        witness: Option<Arc<dyn RunWitness>>,
    ) -> Result<Written> {
        let rows = (schema, Rows::OfQuery { bytes_max });
        Ok(self.run_owned((request, Some(job)), rows, witness).await?.outcome)
    }

    async fn run_owned(
        self: &Arc<Self>,
        (request, job): (Execute, Option<Arc<LockingJob>>),
        rows: (SchemaRef, Rows),
        witness: Option<Arc<dyn RunWitness>>,
    ) -> Result<WrittenFragment> {
        let space = GivenSpace::new(request.reserved.clone());
        let given = space.clone();
        let claim = Arc::clone(self);
        let (done, ended) = oneshot::channel();
        let (wanted, given_up) = oneshot::channel::<()>();
        let under_way = self.enter_write();
        let run = async move {
            let (outcome, may_write, device) =
                claim.run_to_its_end((request, job), rows, &given, (given_up, witness)).await;
            if let Some(device) = &device {
                claim.note_written_on(device.id(), &given.extents());
            }
            if matches!(outcome, Ok(Written::Rows(_))) {
                claim.complete_copies().await;
            }
            // Not reached by a task that dies, or that a runtime which ends drops: that run stays unfinished.
            claim.finish_write(may_write);
            // First: a caller that sees the fragment finished finds the space free.
            drop(claim);
            drop(under_way);
            // The receiver is gone where the statement was cancelled.
            drop(done.send((outcome, may_write)));
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "a run that may write must stand still before its space is used again, so giving up the \
                      statement must not cancel this task; the claim that it holds is what owns it"
        )]
        drop(tokio::spawn(run));
        let (outcome, may_write) = ended.await.unwrap_or_else(|_| {
            let lost = LinkError::Lost {
                address: self.device.entry.address(),
                detail: "the program is shutting down".to_owned(),
            };
            (Ok(Written::Failed(lost)), true)
        });
        drop(wanted);
        Ok(WrittenFragment { outcome: outcome?, space: space.extents(), may_write })
    }

    /// The outcome, whether the run may still write, and the device that it runs on, if it was sent there.
    async fn run_to_its_end(
        self: &Arc<Self>,
        (request, job): (Execute, Option<Arc<LockingJob>>),
        (schema, kind): (SchemaRef, Rows),
        space: &GivenSpace,
        (mut given_up, witness): (oneshot::Receiver<()>, Option<Arc<dyn RunWitness>>),
    ) -> (Result<Written>, bool, Option<Arc<Device>>) {
        let run = request.header;
        let (device, link) = match self.device.linked().await {
            Ok(linked) => linked,
            Err(error) => return (Err(error), false, None),
        };
        let _busy = device.busy();
        let executed = match &job {
            Some(job) => link.execute_locking(request, Arc::clone(job.hosted())).await,
            None => link.execute(request).await,
        };
        // Its locks are released one by one only if nothing may lock for it any more.
        let has_stopped = || job.iter().for_each(|job| job.hosted().run_has_stopped());
        let mut stream = match executed {
            Ok(stream) => stream,
            Err(error) => {
                // A run that the device refused, or that was never sent, does not exist.
                let is_told = error.device_error().is_some();
                let is_told = is_told || matches!(error, LinkError::TooLarge { .. });
                let may_write = !is_told && !self.stopped(&device, run).await;
                if !may_write {
                    has_stopped();
                }
                device.note_run_failure(&error);
                device.forget_if_useless(&link, &error).await;
                return (Ok(Written::Failed(error)), may_write, Some(device));
            }
        };
        let witness = witness.as_deref();
        if let Some(witness) = witness {
            witness.begins(run, &self.device, &link);
        }
        let mut kept = Kept::default();
        let mut extending = extend_space(self, &link, run, &stream, (space, u64::MAX));
        let (mut has_ended, mut is_too_much) = (false, false);
        let other_rows = stream.expect_rows(schema).err();
        let failure = loop {
            if other_rows.is_some() {
                break other_rows;
            }
            if let Some(witness) = witness {
                witness.waits();
            }
            let next = tokio::select! {
                biased;
                next = stream.next() => {
                    // The device's own error comes when the run has stopped.
                    has_ended = next.as_ref().is_err_and(|error| error.device_error().is_some());
                    next
                }
                error = &mut extending => Err(error),
                // Only its end is waited for: nothing is sent.
                _ = &mut given_up => break None,
            };
            if let Some(witness) = witness {
                witness.came(stream.slot_bytes());
                if let Some(report) = stream.report() {
                    witness.ended(report, stream.waited());
                }
            }
            match next {
                Ok(Some(batch)) => {
                    if !kept.push(batch, kind, space.block_count()) {
                        is_too_much = !matches!(kind, Rows::OfPages { returned_bytes_max: None });
                        break (!is_too_much).then(|| self.too_much());
                    }
                }
                Ok(None) => return (Ok(Written::Rows(kept.batches)), false, Some(device)),
                Err(error) => break Some(error),
            }
        };
        drop(extending);
        // The stream is held until then: its end releases the run, and a run that is gone cannot be waited for.
        let may_write = !has_ended && !self.stopped(&device, run).await;
        if !may_write {
            has_stopped();
        }
        drop(stream);
        let outcome = match failure {
            _ if is_too_much => Written::TooMuch,
            // Nobody waits for it.
            None => Written::Rows(Vec::new()),
            Some(error) => {
                device.note_run_failure(&error);
                device.forget_if_useless(&link, &error).await;
                Written::Failed(error)
            }
        };
        (Ok(outcome), may_write, Some(device))
    }

    fn too_much(&self) -> LinkError {
        LinkError::Protocol {
            device: self.device.entry.address(),
            detail: "it says more of what it wrote than fits into what was reserved".to_owned(),
        }
    }

    /// Stops `run` on `device`; returns whether that has confirmed that the run has stopped.
    pub(super) async fn stopped(&self, device: &Device, run: CommandHeader) -> bool {
        // Once more over a new connection, where the present one is lost.
        for _ in 0..2 {
            let Ok(link) = device.link().await else { return false };
            let header = CommandHeader { run: run.run, ..self.device.header() };
            match link.call(Command::new(header, Request::Cancel)).await {
                Ok(_) => return true,
                Err(error) => device.forget_if_useless(&link, &error).await,
            }
        }
        false
    }
}
