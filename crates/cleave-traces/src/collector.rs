//! Where traces go: an address in, what it takes to reach it out.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use cleave_fragment::link::TlsFileError;
use cleave_fragment::link::tls::client_config;
use http::uri::{InvalidUri, PathAndQuery};
use http::{HeaderValue, Uri};
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

/// Collectors listen here.
const PORT: u16 = 4318;
/// And take traces here.
const PATH: &str = "/v1/traces";

/// Why an address is none of a collector. Correct it, or the certificate's file.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// It is no address.
    #[error("traces go to http://HOST:PORT or https://HOST:PORT, not to `{0}`")]
    Address(String),
    /// What is sent could be read on the way.
    #[error("`{0}` is not on this machine: traces go there by https alone, with --traces-ca FILE")]
    Plain(String),
    /// Nobody would know who answers.
    #[error(
        "`{0}` needs --traces-ca FILE, a certificate that it is known by: its own, or its authority's"
    )]
    Unknown(String),
    /// A certificate that would not be used.
    #[error("--traces-ca is for https, and `{0}` is http")]
    Unused(String),
    /// The certificate's file cannot be used.
    #[error(transparent)]
    Certificate(#[from] TlsFileError),
}

/// A collector's address, checked. What is shown of it has no secret.
#[derive(Clone)]
pub struct Collector {
    url: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// What a request asks for.
    pub(crate) path: Uri,
    /// Whom it is for.
    pub(crate) authority: HeaderValue,
    pub(crate) tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Collector {
    /// The collector at `url`, known by the certificate in the file `ca` if that is https.
    ///
    /// # Errors
    /// What is wrong with either.
    pub fn at(url: &str, ca: Option<&Path>) -> Result<Self, CollectorError> {
        let pem = |path: &Path| {
            std::fs::read(path).map_err(|source| TlsFileError::Read {
                what: "a certificate",
                path: path.to_owned(),
                source,
            })
        };
        Self::known_by(url, ca.map(pem).transpose()?.as_deref())
    }

    /// The same, by the certificate `pem`.
    ///
    /// # Errors
    /// As [`Collector::at`].
    pub fn known_by(url: &str, pem: Option<&[u8]>) -> Result<Self, CollectorError> {
        let wrong = || CollectorError::Address(shown(url));
        let uri: Uri = url.parse().map_err(|_: InvalidUri| wrong())?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(wrong());
        };
        // A user and a password would stand in the clear, here and in the log.
        if authority.as_str().contains('@') {
            return Err(wrong());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let is_near = match host.parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => host.eq_ignore_ascii_case("localhost"),
        };
        let port = match authority.as_str().strip_prefix(authority.host()) {
            Some("") => PORT,
            // What is no port, or too large for one, must not stand for another.
            _ => authority.port_u16().ok_or_else(wrong)?,
        };
        let authority = format!("{}:{port}", authority.host());
        let tls = match (scheme, pem) {
            ("http", None) if is_near => None,
            ("http", None) => return Err(CollectorError::Plain(shown(url))),
            ("http", Some(_)) => return Err(CollectorError::Unused(shown(url))),
            ("https", None) => return Err(CollectorError::Unknown(shown(url))),
            ("https", Some(pem)) => {
                let name = ServerName::try_from(host.clone()).map_err(|_| wrong())?;
                Some((TlsConnector::from(client_config(pem)?), name))
            }
            _ => return Err(wrong()),
        };
        let path = match uri.path_and_query().map_or("/", PathAndQuery::as_str) {
            "/" => PATH,
            path => path,
        };
        Ok(Self {
            url: format!("{scheme}://{authority}{}", path.split('?').next().unwrap_or_default()),
            port,
            path: path.parse().map_err(|_: InvalidUri| wrong())?,
            authority: HeaderValue::from_str(&authority).map_err(|_| wrong())?,
            host,
            tls,
        })
    }

    /// Its address, without a query.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Collector").field(&self.url).finish()
    }
}

/// `url` without what may let somebody in: a user and password, and a query.
fn shown(url: &str) -> String {
    let url = url.split_once('?').map_or(url, |(before, _)| before);
    let Some((before, rest)) = url.rsplit_once('@') else { return url.to_owned() };
    let scheme = before.split_once("://").map(|(scheme, _)| scheme);
    match scheme.filter(|scheme| !scheme.contains('@')) {
        Some(scheme) => format!("{scheme}://…@{rest}"),
        None => format!("…@{rest}"),
    }
}
