//! The stream under a connection: TCP, and TLS over it if the server has it or the address asks for it; or a Unix
//! socket.
//!
//! What is trusted depends on `sslmode`, as in libpq: with `prefer` and `require` any certificate, which keeps out who
//! listens, but not who stands between; with `verify-full` a certificate of the given file, or one that was signed by
//! it and carries the host's name. With a file of certificates, `require` verifies too. TLS 1.2 and 1.3, by rustls with
//! ring.
//!
//! [`open_blocking`] has the same over TCP with a socket that blocks its thread.

use std::io;
use std::net::ToSocketAddrs;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    StreamOwned,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use crate::address::{Address, Tls};
use crate::blocking_stream::{Blocking, Haste, Hurried, left_until};
use crate::error::ClientError;

/// Asks the server whether it speaks TLS.
const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// A stream of bytes in both directions.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Any stream.
pub(crate) type Stream = Box<dyn Duplex>;

/// Opens a stream to the server.
pub(crate) async fn open(address: &Address) -> Result<Stream, ClientError> {
    if let Some(path) = address.socket() {
        let stream = UnixStream::connect(path).await;
        return Ok(Box::new(stream.map_err(|source| unreachable(address, source))?));
    }
    let stream = TcpStream::connect((address.host(), address.port())).await;
    let mut stream = stream.map_err(|source| unreachable(address, source))?;
    // If the system refuses, small messages are slower.
    drop(stream.set_nodelay(true));
    if !speaks_tls(address, &mut stream).await? {
        return Ok(Box::new(stream));
    }
    let connector = TlsConnector::from(config(address)?);
    match connector.connect(server_name(address)?, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(failed(address, &error.to_string())),
    }
}

/// Opens a stream that blocks its thread. Until the [`Haste`] ends, it fails once the server has taken longer than it
/// has until it is ready.
pub(crate) async fn open_blocking(address: &Address) -> Result<(Stream, Haste), ClientError> {
    let refused = |source| unreachable(address, source);
    if address.socket().is_some() {
        return Err(refused(io::ErrorKind::Unsupported.into()));
    }
    let deadline = Instant::now() + address.patience();
    let socket = reached(address, deadline).map_err(refused)?;
    drop(socket.set_nodelay(true));
    let (mut socket, haste) = Hurried::until(deadline, socket).map_err(refused)?;
    let has_tls = speaks_tls(address, &mut Blocking::new(&mut socket)).await?;
    if !has_tls {
        let stream: Stream = Box::new(Blocking::new(socket));
        return Ok((stream, haste));
    }
    let mut session = ClientConnection::new(config(address)?, server_name(address)?)
        .map_err(|error| failed(address, &error.to_string()))?;
    session.complete_io(&mut socket).map_err(|error| failed(address, &error.to_string()))?;
    let stream: Stream = Box::new(Blocking::new(StreamOwned::new(session, socket)));
    Ok((stream, haste))
}

/// A connection to the first address of the host that answers.
fn reached(address: &Address, deadline: Instant) -> io::Result<std::net::TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for place in (address.host(), address.port()).to_socket_addrs()? {
        let connected = left_until(deadline)
            .and_then(|left| std::net::TcpStream::connect_timeout(&place, left));
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Asks for TLS as the address says; returns whether it is spoken from now on.
async fn speaks_tls<S: Duplex>(address: &Address, stream: &mut S) -> Result<bool, ClientError> {
    if address.tls() == Tls::Disable {
        return Ok(false);
    }
    let refused = |source| unreachable(address, source);
    stream.write_all(&TLS_REQUEST).await.map_err(refused)?;
    let mut answer = [0];
    stream.read_exact(&mut answer).await.map_err(refused)?;
    match answer {
        [b'S'] => Ok(true),
        [b'N'] if address.tls() == Tls::Prefer => Ok(false),
        [b'N'] => Err(failed(address, "the server has none, but sslmode asks for it")),
        _ => Err(ClientError::Protocol("an answer to the request for TLS that is none".to_owned())),
    }
}

fn server_name(address: &Address) -> Result<ServerName<'static>, ClientError> {
    ServerName::try_from(address.host().to_owned())
        .map_err(|_| failed(address, "the host's name is none that a certificate may have"))
}

fn unreachable(address: &Address, source: io::Error) -> ClientError {
    ClientError::Unreachable { place: address.place(), source }
}

fn failed(address: &Address, detail: &str) -> ClientError {
    ClientError::Tls { host: address.host().to_owned(), detail: detail.to_owned() }
}

fn config(address: &Address) -> Result<Arc<ClientConfig>, ClientError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = match address.roots() {
        Some(file) => Verifier::of_file(file, &provider)?,
        None => Verifier { pinned: Vec::new(), chains: None, provider: Arc::clone(&provider) },
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(address, &error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Trusts the certificates of a file and what they have signed, or any certificate if there is no file. Signatures of
/// the handshake are always checked.
#[derive(Debug)]
struct Verifier {
    pinned: Vec<CertificateDer<'static>>,
    /// None trusts any.
    chains: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn of_file(file: &Path, provider: &Arc<CryptoProvider>) -> Result<Self, ClientError> {
        let wrong = |why: String| ClientError::Usage(format!("{}: {why}", file.display()));
        let pem = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
        let pinned: Vec<_> = CertificateDer::pem_slice_iter(&pem)
            .collect::<Result<_, _>>()
            .map_err(|error| wrong(error.to_string()))?;
        let mut roots = RootCertStore::empty();
        for certificate in &pinned {
            roots.add(certificate.clone()).map_err(|error| wrong(error.to_string()))?;
        }
        if pinned.is_empty() {
            return Err(wrong("it holds no certificate".to_owned()));
        }
        let chains =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
                .build()
                .map_err(|error| wrong(error.to_string()))?;
        Ok(Self { pinned, chains: Some(chains), provider: Arc::clone(provider) })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let is_pinned = self.pinned.iter().any(|pinned| pinned.as_ref() == end_entity.as_ref());
        match &self.chains {
            Some(chains) if !is_pinned => chains.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            ),
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
