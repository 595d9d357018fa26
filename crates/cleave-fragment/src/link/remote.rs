//! The link to a device on another machine: frames over TCP, with TLS and a token.
//!
//! What it does is [`ConnectedLink`]; here is where the device is and how to connect to it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use async_trait::async_trait;

use super::connected_link::{AbandonedRuns, ConnectedLink};
use super::dial::{Dial, Way};
use super::link::{AttachMode, Link, LinkError, RunStream, Traffic};
use super::tls::{Token, client_config};
use crate::command::{Command, Execute, Reply};

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
pub struct RemoteLink(ConnectedLink);

impl RemoteLink {
    /// A link that connects when it is first used.
    ///
    /// `ca_pem` pins the device's certificate, or the authority that signed it; without one the
    /// device must be on this machine. `rate_cap` is in bytes a second, in each direction. `abandoned` is
    /// what earlier links to the same device left behind.
    pub fn new(
        address: RemoteAddress,
        token: Token,
        ca_pem: Option<&[u8]>,
        rate_cap: Option<u64>,
        abandoned: AbandonedRuns,
    ) -> Result<Arc<Self>, LinkError> {
        let tls = ca_pem.map(client_config).transpose()?;
        let dial = Dial::new(Way::Tcp { address, token, tls }, rate_cap);
        Ok(Arc::new(Self(ConnectedLink::new(dial, abandoned)?)))
    }

    /// A link that has connected, the first to its device; the arguments are those of
    /// [`RemoteLink::new`].
    pub async fn connect(
        address: RemoteAddress,
        token: Token,
        ca_pem: Option<&[u8]>,
        rate_cap: Option<u64>,
    ) -> Result<Arc<Self>, LinkError> {
        Self::reconnect(address, token, ca_pem, rate_cap, AbandonedRuns::default()).await
    }

    /// A link that has connected, and released what the links before it abandoned; the arguments are
    /// those of [`RemoteLink::new`].
    pub async fn reconnect(
        address: RemoteAddress,
        token: Token,
        ca_pem: Option<&[u8]>,
        rate_cap: Option<u64>,
        abandoned: AbandonedRuns,
    ) -> Result<Arc<Self>, LinkError> {
        let link = Self::new(address, token, ca_pem, rate_cap, abandoned)?;
        link.0.open().await?;
        Ok(link)
    }
}

#[async_trait]
impl Link for RemoteLink {
    async fn call(&self, command: Command) -> Result<Reply, LinkError> {
        self.0.call(command).await
    }

    async fn execute(&self, request: Execute) -> Result<RunStream, LinkError> {
        self.0.execute(request).await
    }

    fn traffic(&self) -> Traffic {
        self.0.traffic()
    }

    fn mode(&self) -> AttachMode {
        self.0.mode()
    }

    fn device(&self) -> String {
        self.0.device()
    }
}

#[cfg(test)]
mod tests;
