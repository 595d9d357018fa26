//! The link to a device in the same process: nothing is encoded, nothing crosses a wire.
//!
//! Commands go straight to the [`DeviceService`], which answers on threads of its own; batches are handed over
//! unchanged. A rate cap, if one is set, counts the bytes of payloads and of rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use cleave_shmem::LockError;
use tokio::runtime::Handle;

use super::attempts::{Attempt, Attempts};
use super::fragment_span;
use super::link::{
    AcceptedRun, AttachMode, DeviceService, EndGuard, Link, LinkError, RunControl, RunStream,
    SlotForm, SlotSender, SpaceNeeds, Traffic,
};
use super::metered::ByteCounters;
use super::token_bucket::RateCap;
use crate::command::{
    Command, CommandHeader, DeviceError, DeviceErrorCause, Execute, ReadPayload, Reply, Request,
};
use crate::row_locks::HostedJob;

/// A link within one process.
#[derive(Debug)]
pub struct EmbeddedLink {
    device: Arc<dyn DeviceService>,
    rate_cap: Option<Arc<RateCap>>,
    bytes: Arc<ByteCounters>,
    commands: AtomicU64,
    attempts: Arc<Attempts>,
}

impl EmbeddedLink {
    /// A link to `device`, limited to `rate_cap` bytes a second in each direction if given.
    pub fn new(device: Arc<dyn DeviceService>, rate_cap: Option<u64>) -> Arc<Self> {
        Arc::new(Self {
            device,
            rate_cap: rate_cap.map(RateCap::new),
            bytes: Arc::default(),
            commands: AtomicU64::new(0),
            attempts: Arc::default(),
        })
    }

    async fn sent(&self, bytes: u64) {
        self.commands.fetch_add(1, Ordering::Relaxed);
        self.bytes.sent.fetch_add(bytes, Ordering::Relaxed);
        if let Some(cap) = &self.rate_cap {
            cap.send(bytes).await;
        }
    }

    async fn received(&self, bytes: u64) {
        self.bytes.received.fetch_add(bytes, Ordering::Relaxed);
        if let Some(cap) = &self.rate_cap {
            cap.receive(bytes).await;
        }
    }
}

fn no_locks(error: LockError) -> LinkError {
    failed(DeviceError::new(DeviceErrorCause::Refused, error.to_string()))
}

fn failed(source: DeviceError) -> LinkError {
    LinkError::Device { device: EMBEDDED.to_owned(), source }
}

const EMBEDDED: &str = "embedded";

#[async_trait]
impl Link for EmbeddedLink {
    async fn call(&self, command: Command) -> Result<Reply, LinkError> {
        let payload_bytes = match &command.request {
            Request::Write(items) => items.iter().map(|item| item.payload.bytes.len() as u64).sum(),
            _ => 0,
        };
        self.sent(payload_bytes).await;
        let reply = self.device.call(command).await.map_err(failed)?;
        if let Reply::Read(payloads) = &reply {
            let bytes = payloads.iter().map(ReadPayload::byte_count).sum::<usize>();
            self.received(bytes as u64).await;
        }
        Ok(reply)
    }

    async fn execute(&self, request: Execute) -> Result<RunStream, LinkError> {
        self.begin(request, None).await
    }

    async fn execute_locking(
        &self,
        request: Execute,
        job: Arc<HostedJob>,
    ) -> Result<RunStream, LinkError> {
        self.begin(request, Some(job)).await
    }

    fn traffic(&self) -> Traffic {
        self.bytes.traffic(&self.commands)
    }

    fn mode(&self) -> AttachMode {
        AttachMode::Embedded
    }

    fn device(&self) -> String {
        EMBEDDED.to_owned()
    }
}

impl EmbeddedLink {
    async fn begin(
        &self,
        mut request: Execute,
        job: Option<Arc<HostedJob>>,
    ) -> Result<RunStream, LinkError> {
        let span = fragment_span::begin(&mut request, || EMBEDDED.to_owned());
        fragment_span::begun(span, self.begin_run(request, job).await)
    }

    async fn begin_run(
        &self,
        mut request: Execute,
        job: Option<Arc<HostedJob>>,
    ) -> Result<RunStream, LinkError> {
        request.locks =
            job.as_ref().map(|job| job.run_locks(true)).transpose().map_err(no_locks)?;
        self.sent(request.fragment.len() as u64).await;
        let header = request.header;
        let first_slot = request.first_slot;
        let (slot_count, slot_bytes) = (request.slot_count, request.slot_bytes);
        if let Some(job) = &job {
            let device = Arc::downgrade(&self.device);
            let pump = job.connect(Arc::new(move |say| {
                if let Some(device) = device.upgrade() {
                    device.steer(Command::new(header, Request::Locks(say)));
                }
            }));
            let _detached = Handle::current().spawn(pump);
        }
        let (slots, events) = SlotSender::channel(SlotForm::Batches);
        let needs = SpaceNeeds::of(&request);
        let table = job.as_ref().map(|job| Arc::clone(job.device()));
        let began = job.clone();
        let slots = slots.locking(job).sharing(table.as_ref()).extending(needs.clone());
        let control = Arc::new(EmbeddedControl {
            device: Arc::clone(&self.device),
            header,
            attempts: Arc::clone(&self.attempts),
            attempt: self.attempts.begin(&header, request.attached_output()),
        });
        let attempt = control.attempt;
        let mut end_guard = EndGuard(Some(Arc::clone(&control) as Arc<dyn RunControl>));
        let starting = began.as_deref().map(HostedJob::starts);
        let accepted = self.device.execute(request, slots).await;
        end_guard.0 = None;
        if let (Err(_), Some(starting)) = (&accepted, starting) {
            starting.was_refused();
        }
        let is_nobodys = accepted.is_err() && self.attempts.withdraw(&header, attempt);
        if is_nobodys && attempt.output.is_none() {
            self.device.steer(Command::new(header, Request::Release));
        }
        let schema = accepted.map_err(failed)?;
        Ok(RunStream::new(AcceptedRun {
            device: EMBEDDED.to_owned(),
            schema,
            events,
            control,
            first_slot,
            slot_count,
            slot_bytes,
            is_attached: attempt.output.is_some(),
            received: Some((Arc::clone(&self.bytes), self.rate_cap.clone())),
            needs,
        }))
    }
}

#[derive(Debug)]
struct EmbeddedControl {
    device: Arc<dyn DeviceService>,
    header: CommandHeader,
    attempts: Arc<Attempts>,
    attempt: Attempt,
}

impl RunControl for EmbeddedControl {
    fn consumed(&self, slots: u64) {
        // Reads of a replaced stream grant no credit to its successor.
        if !self.attempts.speaks(&self.header, self.attempt) {
            return;
        }
        let output = self.attempt.output.unwrap_or_default();
        let fetch = Request::Fetch { consumed: slots, output };
        self.device.steer(Command::new(self.header, fetch));
    }

    fn end(&self) {
        let controlled = self.attempts.end(&self.header, self.attempt);
        // Who has attached may come again, and the run belongs to its host.
        if controlled && self.attempt.output.is_none() {
            self.device.steer(Command::new(self.header, Request::Release));
        }
    }
}
