//! The device as another device has it that bears a grant of its owner.
//!
//! ```text
//!   hello: peer:<number>:<secret> ─▶ Grants::find ─▶ PeerService ─┬─ identify
//!                                                                ├─ read ─▶ GrantedMedia ─▶ the device's media
//!                                                                └─ attach, fetch ─▶ the runs that it names
//! ```
//!
//! Invariants: a bearer reads no block outside its grant, whatever the headers of pages say that it names: the media
//! that it reads through has no other blocks. It takes rows of the outputs that its grant names, and changes nothing
//! else: a run that it has attached to is ended by the host. All of this holds until the grant ends, also over a
//! connection that stays open.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use cleave_fragment::command::peers::shown_grant;
use cleave_fragment::command::{
    Command, CommandHeader, DeviceError, DeviceErrorCause, Execute, Reply, Request,
};
use cleave_fragment::link::{DeviceService, SlotSender};
use cleave_media::{AlignedBuffer, BLOCK_SIZE, BlockAddress, Extent, Media, MediaError};
use tokio::sync::OwnedSemaphorePermit;

use super::Runtime;
use crate::grants::HeldGrant;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct PeerService {
    device: Arc<Runtime>,
    grant: Arc<HeldGrant>,
    _place: OwnedSemaphorePermit,
}

impl PeerService {
    /// The service for who has `shown` a grant of `device`; None: it is none, or too many have shown it.
    pub(super) fn of(device: &Arc<Runtime>, shown: &[u8]) -> Option<Self> {
        let (number, secret) = shown_grant(shown)?;
        // While the owner changes, no grant is good.
        let owner = device.owner.try_read().ok()?;
        let grant = owner.as_ref()?.lock_grants().find(number, &secret)?;
        let place = grant.take_place()?;
        Some(Self { device: Arc::clone(device), grant, _place: place })
    }

    /// Refuses a command that is not of the grant's owner, or comes too late.
    fn check(&self, header: &CommandHeader) -> Result<(), DeviceError> {
        if self.grant.has_ended() || header.ownership() != self.grant.owner() {
            let message = "the grant that was shown has ended";
            return Err(DeviceError::new(DeviceErrorCause::Unauthenticated, message));
        }
        Ok(())
    }

    fn may_attach(&self, header: &CommandHeader, output: u32) -> bool {
        self.check(header).is_ok() && self.grant.may_attach(header.run, output)
    }
}

#[async_trait]
impl DeviceService for PeerService {
    async fn call(&self, command: Command) -> Result<Reply, DeviceError> {
        let header = command.header;
        match command.request {
            Request::Identify => self.device.call(command).await,
            Request::Read(items) => {
                self.check(&header)?;
                let _entry = self.device.enter(&header).await?;
                let (media, grant) = (Arc::clone(&self.device.media), Arc::clone(&self.grant));
                self.device.read(Arc::new(GrantedMedia { media, grant }), items).await
            }
            Request::Fetch { output, .. } if self.may_attach(&header, output) => {
                self.device.call(command).await
            }
            // A listener that leaves does not end the run.
            Request::Release => {
                self.check(&header)?;
                Ok(Reply::Done)
            }
            _ => {
                self.check(&header)?;
                Err(withheld("this command"))
            }
        }
    }

    async fn execute(&self, request: Execute, slots: SlotSender) -> Result<SchemaRef, DeviceError> {
        let Execute { header, build, output, first_slot, slot_count, slot_bytes, .. } = request;
        self.check(&header)?;
        if !request.attaches || !self.grant.may_attach(header.run, output) {
            return Err(withheld("this run"));
        }
        // Nothing else of the request counts.
        let attaching = Execute::attaching(header, output, (slot_count, slot_bytes));
        self.device.execute(Execute { build, first_slot, ..attaching }, slots).await
    }

    async fn until_over(&self) {
        self.grant.until_over().await;
    }

    fn steer(&self, command: Command) {
        if let Request::Fetch { output, .. } = command.request
            && self.may_attach(&command.header, output)
        {
            self.device.steer(command);
        }
    }
}

fn withheld(what: &str) -> DeviceError {
    let message = format!("the grant that was shown is not good for {what}");
    DeviceError::new(DeviceErrorCause::Refused, message)
}

/// The device's media, as far as a grant goes.
#[derive(Debug)]
struct GrantedMedia {
    media: Arc<dyn Media>,
    grant: Arc<HeldGrant>,
}

impl GrantedMedia {
    fn check(&self, extent: Extent) -> Result<(), MediaError> {
        match self.grant.may_read(extent) {
            true => Ok(()),
            false => Err(MediaError::Withheld { extent }),
        }
    }
}

impl Media for GrantedMedia {
    fn read(&self, extent: Extent) -> Result<AlignedBuffer, MediaError> {
        self.check(extent)?;
        self.media.read(extent)
    }

    fn read_many(&self, extents: &[Extent]) -> Result<Vec<AlignedBuffer>, MediaError> {
        extents.iter().try_for_each(|extent| self.check(*extent))?;
        self.media.read_many(extents)
    }

    fn write(&self, start: BlockAddress, data: &[u8]) -> Result<(), MediaError> {
        let block_count = u32::try_from(data.len() / BLOCK_SIZE).unwrap_or(u32::MAX);
        Err(MediaError::Withheld { extent: Extent { start, block_count } })
    }

    fn sync(&self) -> Result<(), MediaError> {
        Ok(())
    }

    fn block_count(&self) -> u64 {
        self.media.block_count()
    }

    fn grow_to(&self, block_count: u64) -> Result<(), MediaError> {
        let start = BlockAddress(block_count);
        Err(MediaError::Withheld { extent: Extent { start, block_count: 0 } })
    }

    fn bytes_read(&self) -> u64 {
        self.media.bytes_read()
    }

    fn bytes_written(&self) -> u64 {
        0
    }
}
