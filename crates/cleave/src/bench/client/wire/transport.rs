//! The transport of a connection: plain TCP, or TLS if a certificate is named that the server's must descend from.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConnection, StreamOwned};

/// See the [module](self).
pub(super) enum Transport {
    Plain(TcpStream),
    Encrypted(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Transport {
    /// Asks the server for TLS, and begins it.
    pub(super) fn encrypt(
        mut stream: TcpStream,
        host: &str,
        certificate: &Path,
    ) -> Result<Self, String> {
        let io = |error: std::io::Error| format!("TLS with {host}: {error}");
        let pem = std::fs::read(certificate)
            .map_err(|error| format!("{}: {error}", certificate.display()))?;
        let config = cleave_fragment::link::tls::client_config(&pem)
            .map_err(|error| format!("{}: {error}", certificate.display()))?;
        // SSLRequest.
        stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).map_err(io)?;
        let mut answer = [0];
        stream.read_exact(&mut answer).map_err(io)?;
        if answer != *b"S" {
            return Err(format!("{host} has no TLS: leave sslrootcert out, or turn it on there"));
        }
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| format!("{host} is no name of a machine: {error}"))?;
        let connection = ClientConnection::new(Arc::clone(&config), name)
            .map_err(|error| format!("TLS with {host}: {error}"))?;
        Ok(Self::Encrypted(Box::new(StreamOwned::new(connection, stream))))
    }
}

impl Read for Transport {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Encrypted(stream) => stream.read(buffer),
        }
    }
}

impl Write for Transport {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Encrypted(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Encrypted(stream) => stream.flush(),
        }
    }
}
