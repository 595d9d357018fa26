//! Authentication of both sides: the host shows a token, the device a certificate.
//!
//! A host pins: it is given, as PEM, the device's certificate or the authority that signed it, and trusts nothing else,
//! the system's authorities included. A certificate that equals a pinned one is trusted whatever names and dates it
//! carries; one signed by a pinned authority must carry the host name. TLS 1.2 and 1.3, by rustls with ring.
//!
//! Invariant: a token is never printed, and compared in constant time.

use std::fmt;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};

/// Least bytes of a token: as many as a random UUID has digits.
pub const TOKEN_BYTES_MIN: usize = 16;
/// Most bytes of a token.
pub const TOKEN_BYTES_MAX: usize = 1024;

/// An unusable token or certificate: correct the named file.
#[derive(Debug, thiserror::Error)]
pub enum TlsFileError {
    /// A file cannot be read.
    #[error("cannot read {what} from {}: {source}", path.display())]
    Read {
        /// The expected content.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A token that is too short, too long, or has odd characters.
    #[error(
        "the token from {origin} must have {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} printable ASCII \
         characters on one line, and has {length} bytes"
    )]
    Token {
        /// Where it was read.
        origin: String,
        /// Its length.
        length: usize,
    },
    /// An environment variable is not set.
    #[error("the environment variable {name}, which should hold the token, is not set")]
    NotSet {
        /// Its name.
        name: String,
    },
    /// No certificate or key where there should be one.
    #[error("no usable {what}: {detail}")]
    Pem {
        /// The expected content.
        what: &'static str,
        /// What is wrong.
        detail: String,
    },
}

/// The secret that a host shows to a device.
#[derive(Clone)]
pub struct Token(Arc<[u8]>);

impl Token {
    /// The token in `text`, trimmed. `origin` names its source in errors.
    pub fn new(text: &str, origin: &str) -> Result<Self, TlsFileError> {
        let token = text.trim();
        let length = token.len();
        let fits = (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&length);
        if !fits || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TlsFileError::Token { origin: origin.to_owned(), length });
        }
        Ok(Self(token.as_bytes().into()))
    }

    /// The token in the file at `path`.
    pub fn from_file(path: &Path) -> Result<Self, TlsFileError> {
        Self::new(&read_secret("a token", path)?, &path.display().to_string())
    }

    /// The token in the environment variable `name`.
    pub fn from_env(name: &str) -> Result<Self, TlsFileError> {
        let text =
            std::env::var(name).map_err(|_| TlsFileError::NotSet { name: name.to_owned() })?;
        Self::new(&text, name)
    }

    /// The bytes, to be sent over a link and nowhere else.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether `shown` is this token, in a time that depends on its length alone.
    pub fn matches(&self, shown: &[u8]) -> bool {
        if shown.len() != self.0.len() {
            return false;
        }
        let difference = self.0.iter().zip(shown).fold(0, |sum, (a, b)| black_box(sum | (a ^ b)));
        black_box(difference) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// A device's certificate and the key that proves it.
pub struct DeviceIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl DeviceIdentity {
    /// Reads certificate (with its chain, if any) and key, both PEM.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, TlsFileError> {
        let chain = certificates(certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| TlsFileError::Pem {
            what: "private key",
            detail: error.to_string(),
        })?;
        Ok(Self { chain, key })
    }

    /// Reads them from files.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, TlsFileError> {
        let certificate = read_text("a certificate", certificate)?;
        Self::from_pem(certificate.as_bytes(), read_secret("a private key", key)?.as_bytes())
    }

    /// The configuration of a listener that shows this identity.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, TlsFileError> {
        ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                let (chain, key) = (self.chain.clone(), self.key.clone_key());
                builder.with_no_client_auth().with_single_cert(chain, key)
            })
            .map(Arc::new)
            .map_err(|error| TlsFileError::Pem {
                what: "certificate and key",
                detail: error.to_string(),
            })
    }
}

impl fmt::Debug for DeviceIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceIdentity({} certificates, key …)", self.chain.len())
    }
}

/// The configuration of a host that trusts the certificates in `pem` and nothing else.
pub fn client_config(pem: &[u8]) -> Result<Arc<ClientConfig>, TlsFileError> {
    let pinned = certificates(pem)?;
    let unusable = |detail: String| TlsFileError::Pem { what: "pinned certificate", detail };
    let mut roots = RootCertStore::empty();
    for certificate in &pinned {
        roots.add(certificate.clone()).map_err(|error| unusable(error.to_string()))?;
    }
    let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(|error| unusable(error.to_string()))?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinnedVerifier { pinned, chains }))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Trusts pinned certificates themselves, and certificates they have signed as webpki does. Signatures of the handshake
/// are always checked: a certificate alone proves nothing.
#[derive(Debug)]
struct PinnedVerifier {
    pinned: Vec<CertificateDer<'static>>,
    chains: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.pinned.iter().any(|pinned| pinned.as_ref() == end_entity.as_ref()) {
            return Ok(ServerCertVerified::assertion());
        }
        self.chains.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let unusable = |detail: String| TlsFileError::Pem { what: "certificate", detail };
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(error.to_string()))?;
    if found.is_empty() {
        return Err(unusable("the PEM holds no CERTIFICATE section".to_owned()));
    }
    Ok(found)
}

/// Reads a secret; a file that others may read is refused.
fn read_secret(what: &'static str, path: &Path) -> Result<String, TlsFileError> {
    let read = cleave_media::private::read_secret(path);
    read.map_err(|source| TlsFileError::Read { what, path: path.to_owned(), source })
}

fn read_text(what: &'static str, path: &Path) -> Result<String, TlsFileError> {
    std::fs::read_to_string(path).map_err(|source| TlsFileError::Read {
        what,
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
