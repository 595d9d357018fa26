//! The link to a device on another machine: frames over TCP, with TLS and a token.
//!
//! All commands and runs of a link share one connection, told apart by their request numbers. The
//! connection's tasks run on a thread of their own, because on the host's workers a link starves.
//! A connection that breaks fails everything under way with [`LinkError::Lost`]; the next use opens a
//! new one, and releases the runs that were abandoned with the old.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::runtime::{Builder, Handle, Runtime};

use super::attempts::{Attempt, Attempts};
use super::link::{
    AcceptedRun, AttachMode, EndGuard, Link, LinkError, RunControl, RunStream, SlotForm,
    SlotSender, Traffic,
};
use super::remote_connection::{Connection, Dial, HANDSHAKE_LIMIT};
use super::tls::{Token, client_config};
use super::token_bucket::RateCap;
use crate::command::message::TRANSFER_BYTES_MAX;
use crate::command::proto::{encode_command, encode_execute};
use crate::command::wire::{FRAME_BYTES_MAX, Frame, WireError};
use crate::command::{Command, CommandHeader, Execute, ReadItem, Reply, Request};

/// Where a device listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RemoteAddress {
    /// Name or address of the machine.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for RemoteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Text that is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not HOST:PORT, as in storage1:7432 or [::1]:7432")]
pub struct AddressError {
    /// The text.
    pub text: String,
}

impl FromStr for RemoteAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError { text: text.to_owned() };
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bare {
            Some(bare) => bare,
            None if host.contains(':') => return Err(wrong()),
            None => host,
        };
        let port = port.parse().map_err(|_| wrong())?;
        if host.is_empty() {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

/// A link over TCP.
#[derive(Debug)]
pub struct RemoteLink {
    shared: Arc<Shared>,
    /// Taken when the link is dropped.
    runtime: Option<Runtime>,
}

#[derive(Debug)]
struct Shared {
    dial: Dial,
    commands: AtomicU64,
    attempts: Attempts,
    /// Held while a connection is opened, so that only one is.
    opening: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    connection: Option<Arc<Connection>>,
    /// Runs whose streams ended while the device could not be told.
    abandoned: Vec<CommandHeader>,
}

impl RemoteLink {
    /// A link that connects when it is first used.
    ///
    /// `ca_pem` pins the device's certificate, or the authority that signed it; without one the
    /// device must be on this machine. `rate_cap` is in bytes a second, in each direction.
    pub fn new(
        address: RemoteAddress,
        token: Token,
        ca_pem: Option<&[u8]>,
        rate_cap: Option<u64>,
    ) -> Result<Arc<Self>, LinkError> {
        let tls = ca_pem.map(client_config).transpose()?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("cleave-link")
            .enable_all()
            .build()
            .map_err(|source| LinkError::Connect { address: address.to_string(), source })?;
        let dial = Dial {
            address,
            token,
            tls,
            cap: rate_cap.map(RateCap::new),
            bytes: Arc::default(),
            handshake_limit: HANDSHAKE_LIMIT,
        };
        let shared = Arc::new(Shared {
            dial,
            commands: AtomicU64::new(0),
            attempts: Attempts::default(),
            opening: tokio::sync::Mutex::new(()),
            state: Mutex::default(),
        });
        Ok(Arc::new(Self { shared, runtime: Some(runtime) }))
    }

    /// A link that has connected; the arguments are those of [`RemoteLink::new`].
    pub async fn connect(
        address: RemoteAddress,
        token: Token,
        ca_pem: Option<&[u8]>,
        rate_cap: Option<u64>,
    ) -> Result<Arc<Self>, LinkError> {
        let link = Self::new(address, token, ca_pem, rate_cap)?;
        link.connection().await?;
        Ok(link)
    }

    async fn connection(&self) -> Result<Arc<Connection>, LinkError> {
        if let Some(connection) = self.shared.alive() {
            return Ok(connection);
        }
        let _opening = self.shared.opening.lock().await;
        if let Some(connection) = self.shared.alive() {
            return Ok(connection);
        }
        let closed =
            || LinkError::Lost { address: self.device(), detail: "the link was closed".to_owned() };
        let handle: &Handle = self.runtime.as_ref().map(Runtime::handle).ok_or_else(closed)?;
        // On the link's own runtime: its sockets belong there.
        let opening = handle.spawn(Connection::open(self.shared.dial.clone()));
        let connection = opening.await.map_err(|_| closed())??;
        self.shared.adopt(&connection);
        Ok(connection)
    }

    fn check_size(&self, frame: &Frame, what: &str) -> Result<(), LinkError> {
        match frame.length() {
            Ok(_) => Ok(()),
            Err(WireError::TooLong { length }) => Err(LinkError::TooLarge {
                what: what.to_owned(),
                bytes: length,
                bytes_max: u64::from(FRAME_BYTES_MAX),
            }),
            Err(error) => {
                Err(LinkError::Protocol { device: self.device(), detail: error.to_string() })
            }
        }
    }
}

impl Shared {
    fn alive(&self) -> Option<Arc<Connection>> {
        self.lock().connection.as_ref().filter(|connection| !connection.is_dead()).map(Arc::clone)
    }

    /// Makes `connection` the current one and releases what was abandoned before it.
    fn adopt(&self, connection: &Arc<Connection>) {
        let abandoned = {
            let mut state = self.lock();
            state.connection = Some(Arc::clone(connection));
            std::mem::take(&mut state.abandoned)
        };
        for header in abandoned {
            connection.post(encode_command(0, Command::new(header, Request::Release)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Link for RemoteLink {
    async fn call(&self, command: Command) -> Result<Reply, LinkError> {
        check_transfer(&command.request)?;
        let frame = encode_command(self.shared.attempts.next_number(), command);
        self.check_size(&frame, "a command")?;
        let connection = self.connection().await?;
        self.shared.commands.fetch_add(1, Ordering::Relaxed);
        connection.call(frame).await
    }

    async fn execute(&self, request: Execute) -> Result<RunStream, LinkError> {
        let (header, first_slot, slot_count) =
            (request.header, request.first_slot, request.slot_count);
        self.shared.lock().abandoned.retain(|abandoned| !abandoned.is_same_run(&header));
        let mut frame = encode_execute(0, request);
        self.check_size(&frame, "a fragment with its morsels")?;
        let connection = self.connection().await?;
        let attempt = self.shared.attempts.begin(&header);
        frame.request = attempt.number;
        self.shared.commands.fetch_add(1, Ordering::Relaxed);
        let (slots, events) = SlotSender::channel(SlotForm::Encoded);
        let control = Arc::new(RemoteControl {
            shared: Arc::clone(&self.shared),
            connection: Arc::clone(&connection),
            header,
            attempt,
        });
        // A caller that goes away before the run is accepted ends it, as dropping the stream does.
        let mut end_guard = EndGuard(Some(Arc::clone(&control) as Arc<dyn RunControl>));
        let accepted = connection.execute(frame, slots).await;
        if let Err(LinkError::Device { .. }) = &accepted {
            // Refused: there is nothing of this attempt to end.
            end_guard.0 = None;
            self.shared.attempts.withdraw(&header, attempt);
        }
        let schema = accepted?;
        end_guard.0 = None;
        Ok(RunStream::new(AcceptedRun {
            device: self.device(),
            schema,
            events,
            control,
            first_slot,
            slot_count,
            received: None,
        }))
    }

    fn traffic(&self) -> Traffic {
        self.shared.dial.bytes.traffic(&self.shared.commands)
    }

    fn mode(&self) -> AttachMode {
        AttachMode::Remote
    }

    fn device(&self) -> String {
        self.shared.dial.address.to_string()
    }
}

impl Drop for RemoteLink {
    fn drop(&mut self) {
        if let Some(connection) = self.shared.lock().connection.take() {
            connection.fail("the link was closed");
        }
        if let Some(runtime) = self.runtime.take() {
            // Dropping a runtime waits, which an async caller may not do.
            runtime.shutdown_background();
        }
    }
}

/// Refuses what the device would: before it crosses the link.
fn check_transfer(request: &Request) -> Result<(), LinkError> {
    let (what, bytes) = match request {
        Request::Write(items) => {
            ("a write", items.iter().map(|item| item.payload.bytes.len() as u64).sum::<u64>())
        }
        Request::Read(items) => {
            let blocks = items.iter().map(|item| match item {
                ReadItem::Blocks(extent) => extent.bytes() as u64,
                // The page may be larger than what is read of it; the device looks.
                ReadItem::Columns { .. } => 0,
            });
            ("a read", blocks.fold(0, u64::saturating_add))
        }
        _ => return Ok(()),
    };
    if bytes > TRANSFER_BYTES_MAX {
        let what = what.to_owned();
        return Err(LinkError::TooLarge { what, bytes, bytes_max: TRANSFER_BYTES_MAX });
    }
    Ok(())
}

#[derive(Debug)]
struct RemoteControl {
    shared: Arc<Shared>,
    connection: Arc<Connection>,
    header: CommandHeader,
    attempt: Attempt,
}

impl RunControl for RemoteControl {
    fn consumed(&self, slots: u64) {
        let command = Command::new(self.header, Request::Fetch { consumed: slots });
        self.connection.post(encode_command(0, command));
    }

    fn end(&self) {
        self.connection.forget(self.attempt.number);
        if !self.shared.attempts.end(&self.header, self.attempt) {
            return;
        }
        let release = encode_command(0, Command::new(self.header, Request::Release));
        if !self.connection.post(release) {
            self.shared.lock().abandoned.push(self.header);
        }
    }
}

#[cfg(test)]
mod tests;
