//! The link to a device on another machine: frames over TCP, with TLS and a token.
//!
//! [`ConnectedLink`] implements it; this module holds the device's address and how to connect to it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::connected_link::{AbandonedRuns, ConnectedLink};
use super::dial::{Dial, Way};
use super::link::LinkError;
use super::tls::{Token, client_config};
use crate::command::PeerAddress;

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

/// A malformed address.
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

impl ConnectedLink {
    /// A link over TCP that connects on first use.
    ///
    /// `ca_pem` pins the device's certificate, or the authority that signed it; without one the device must be on this
    /// machine. `rate_cap` is in bytes a second, in each direction. `abandoned` is the list of runs that earlier links
    /// to the same device abandoned.
    ///
    /// # Errors
    /// [`LinkError::Credentials`] for a malformed certificate; [`LinkError::Connect`] if the system gives no thread.
    pub fn remote(
        address: RemoteAddress,
        token: Token,
        ca_pem: Option<&[u8]>,
        rate_cap: Option<u64>,
        abandoned: AbandonedRuns,
    ) -> Result<Arc<Self>, LinkError> {
        let tls = ca_pem.map(client_config).transpose()?;
        let dial = Dial::new(Way::Tcp { address, token, tls }, rate_cap);
        Ok(Arc::new(Self::new(dial, abandoned)?))
    }

    /// A link from a device to another one, which shows a grant in place of a token. Its connection's tasks run on
    /// `threads`, whose runtime drives sockets and time.
    ///
    /// # Errors
    /// [`LinkError::Credentials`] for a malformed certificate.
    pub fn to_peer(address: &PeerAddress, threads: Handle) -> Result<Arc<Self>, LinkError> {
        let token = Token::new(&address.credential(), "a grant")?;
        let tls = address.ca_pem.as_ref().map(|pem| client_config(pem.as_bytes())).transpose()?;
        let at = RemoteAddress { host: address.host.clone(), port: address.port };
        let dial = Dial::new(Way::Tcp { address: at, token, tls }, None);
        Ok(Arc::new(Self::on(dial, AbandonedRuns::default(), threads)))
    }
}

#[cfg(test)]
mod tests;
