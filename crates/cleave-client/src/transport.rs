//! The stream under a connection: TCP, and TLS over it if the server has it or the address asks for it.
//!
//! What is trusted depends on `sslmode`, as in libpq: with `prefer` and `require` any certificate, which keeps out who
//! listens, but not who stands between; with `verify-full` a certificate of the given file, or one that was signed by
//! it and carries the host's name. With a file of certificates, `require` verifies too. TLS 1.2 and 1.3, by rustls with
//! ring.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::address::{Address, Tls};
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
    let unreachable =
        |source: io::Error| ClientError::Unreachable { place: address.place(), source };
    let stream = TcpStream::connect((address.host(), address.port())).await;
    let mut stream = stream.map_err(unreachable)?;
    // If the system refuses, small messages are slower.
    drop(stream.set_nodelay(true));
    if address.tls() == Tls::Disable {
        return Ok(Box::new(stream));
    }
    stream.write_all(&TLS_REQUEST).await.map_err(unreachable)?;
    let mut answer = [0];
    stream.read_exact(&mut answer).await.map_err(unreachable)?;
    match answer {
        [b'S'] => encrypted(address, stream).await,
        [b'N'] if address.tls() == Tls::Prefer => Ok(Box::new(stream)),
        [b'N'] => Err(failed(address, "the server has none, but sslmode asks for it")),
        _ => Err(ClientError::Protocol("an answer to the request for TLS that is none".to_owned())),
    }
}

async fn encrypted(address: &Address, stream: TcpStream) -> Result<Stream, ClientError> {
    let name = ServerName::try_from(address.host().to_owned())
        .map_err(|_| failed(address, "the host's name is none that a certificate may have"))?;
    let connector = TlsConnector::from(config(address)?);
    match connector.connect(name, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(failed(address, &error.to_string())),
    }
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
