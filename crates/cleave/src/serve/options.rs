//! The options of `cleave serve`, checked.
//!
//! 1. [`ServeOptions::check`] tells what can be told from the options alone; so does `cleave config check`, whoever
//!    runs it.
//! 2. [`ServeOptions::check_files`] reads the files that they name, as the user who serves.
//! 3. [`check`] has the rule for addresses, once they are known.
//!
//! Invariants: the first two come before a database is opened or made. A URL may have a password: its option has no
//! parser, whose message would repeat it.
//!
//! Source: `docs/reference/server.md`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use cleave_device::process_log::{LogFormat, LogLevel};
use cleave_fragment::link::DeviceIdentity;
use cleave_media::files;
use cleave_traces::{Collector, CollectorError};

use super::users::Users;
use crate::arguments::bytes;
use crate::failure::Failure;

/// Names of the files of a self-made certificate, in the database's folder.
const CERTIFICATE: &str = "server.crt";
const KEY: &str = "server.key";
/// Where the console is unless `--console` says it.
const CONSOLE: &str = "127.0.0.1:8642";
/// Sessions that are reserved for superusers, as in PostgreSQL.
const RESERVED_COUNT: u32 = 3;

/// `cleave serve …`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeOptions {
    /// A file with options, as `cleave config sample` shows; the command line wins
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The address to listen on; port 0 takes any free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:5432", value_parser = host_and_port)]
    listen: String,
    /// The address of health, readiness and metrics over HTTP; with TLS unless it is this machine's
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    http: Option<String>,
    /// Make the database if it is not there
    #[arg(long)]
    pub(crate) create: bool,
    /// The address of the console, a web page; with TLS unless it is this machine's
    #[arg(
        long,
        value_name = "HOST:PORT",
        num_args = 0..=1,
        default_missing_value = CONSOLE,
        value_parser = host_and_port
    )]
    console: Option<String>,
    /// The users file, instead of `users` in the database's folder
    #[arg(long, value_name = "FILE")]
    pub(crate) users: Option<PathBuf>,
    /// The server's certificate (PEM), with its chain
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Use TLS with a self-signed certificate, made once as `server.crt` in the database's folder
    #[arg(long, conflicts_with_all = ["tls_cert", "tls_key"])]
    tls_self_made: bool,
    /// Ask nobody on this machine for a password; only if no other machine can reach the server
    #[arg(long)]
    pub(crate) trust: bool,
    /// Most sessions at a time
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 1000,
        value_parser = clap::value_parser!(u32).range(1..=100_000)
    )]
    connections: u32,
    /// Sessions reserved for superusers [default: 3, or all but one where there are fewer]
    #[arg(long, value_name = "COUNT")]
    superuser_reserved_connections: Option<u32>,
    /// Longest message of a client, as in 64MB
    #[arg(long, value_name = "BYTES", default_value = "64MB", value_parser = message_limit)]
    message_limit: u64,
    /// Seconds in which a client must authenticate
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    authentication_timeout: u32,
    /// Seconds after which an idle session is ended; 0: never
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    idle_timeout: u32,
    /// Seconds for which statements may go on after the server is told to end
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    grace: u32,
    /// Statements that the table cleave.statements tells apart; 0: it is empty
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 1000,
        value_parser = clap::value_parser!(u32).range(..=100_000)
    )]
    pub(crate) statement_statistics_max: u32,
    /// Lines of the log, on standard error: text or json
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = LogFormat::named)]
    pub(crate) log_format: LogFormat,
    /// Which events the log has: error, warn, info or debug
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = LogLevel::named)]
    pub(crate) log_level: LogLevel,
    /// Log statements that take as many milliseconds, without their constants; 0: all
    #[arg(long, value_name = "MILLISECONDS")]
    pub(crate) log_min_duration_statement: Option<u32>,
    /// Log slow statements that read or change rows with their constants
    #[arg(long, requires = "log_min_duration_statement")]
    pub(crate) log_statement_constants: bool,
    /// Send traces to this collector, by OpenTelemetry's protocol; over http on this machine alone
    #[arg(long, value_name = "URL")]
    traces: Option<String>,
    /// The certificate (PEM) of the collector, or of the authority that signed it, for https
    #[arg(long, value_name = "FILE", requires = "traces")]
    traces_ca: Option<PathBuf>,
    /// Statements that are traced a second at most, besides those whose clients send a traceparent; 0: no limit
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub(crate) traces_per_second: u32,
    /// The share of statements that are traced, from 0 to 1; a client that sends a traceparent decides itself
    #[arg(long, value_name = "SHARE", default_value = "1", value_parser = share)]
    pub(crate) traces_sample: f64,
    /// Let clients COPY from and to files of this machine, with the rights of this process
    #[arg(long)]
    allow_files: bool,
    /// A file to write the port to, once the server accepts connections, then those of --http and --console
    #[arg(long, value_name = "FILE")]
    pub(crate) port_file: Option<PathBuf>,
}

/// Limits of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Sessions at a time.
    pub(crate) session_count_max: usize,
    /// Those reserved for superusers.
    pub(crate) reserved_count: usize,
    /// Bytes of one message.
    pub(crate) message_bytes_max: usize,
    /// From the first byte to a session.
    pub(crate) authentication: Duration,
    /// Between statements; None for unlimited.
    pub(crate) idle: Option<Duration>,
    /// From the signal to end until statements are stopped.
    pub(crate) grace: Duration,
    /// Whether COPY may name files.
    pub(crate) serves_files: bool,
}

impl ServeOptions {
    /// Checks what can be told from the options alone.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.limits().map_err(Failure::Usage)?;
        if let Some(url) = &self.traces {
            // What the certificate's file has is another question.
            let unread = self.traces_ca.as_ref().map(|_| b"".as_slice());
            match Collector::known_by(url, unread) {
                Ok(_) | Err(CollectorError::Certificate(_)) => {}
                Err(error) => return Err(Failure::Usage(format!("--traces: {error}"))),
            }
        }
        let has_tls = self.tls_cert.is_some() || self.tls_self_made;
        let given = [Some(&self.listen), self.http.as_ref(), self.console.as_ref()];
        // A name may have another address once the server starts, and users may be in the database.
        for address in
            given.into_iter().flatten().filter_map(|given| given.parse::<SocketAddr>().ok())
        {
            check(address, has_tls, true, self.trust).map_err(Failure::Usage)?;
        }
        Ok(())
    }

    /// Checks the files that the options name. Another user than the one who serves may not be allowed to read them.
    pub(crate) fn check_files(&self) -> Result<(), Failure> {
        if let Some(named) = &self.users {
            if !named.exists() {
                let named = named.display();
                return Err(Failure::Usage(format!(
                    "there is no file {named}: make it by `cleave user add NAME --users {named}`"
                )));
            }
            Users::read(named).map_err(|error| Failure::Usage(error.to_string()))?;
        }
        self.given_identity()?;
        self.collector().map(drop)
    }

    /// Where to listen.
    pub(crate) async fn address(&self) -> Result<SocketAddr, Failure> {
        address_of("--listen", &self.listen).await
    }

    /// Where to listen for HTTP, if it is to.
    pub(crate) async fn http_address(&self) -> Result<Option<SocketAddr>, Failure> {
        match &self.http {
            Some(http) => address_of("--http", http).await.map(Some),
            None => Ok(None),
        }
    }

    /// Where to serve the console, if it is to.
    pub(crate) async fn console_address(&self) -> Result<Option<SocketAddr>, Failure> {
        match &self.console {
            Some(console) => address_of("--console", console).await.map(Some),
            None => Ok(None),
        }
    }

    /// Where traces go, if they are to.
    pub(crate) fn collector(&self) -> Result<Option<Collector>, Failure> {
        let collector =
            self.traces.as_ref().map(|url| Collector::at(url, self.traces_ca.as_deref()));
        let collector = collector.transpose();
        collector.map_err(|error| Failure::Usage(format!("--traces: {error}")))
    }

    /// The certificate and its key, if there is to be TLS.
    pub(crate) fn identity(&self, folder: &Path) -> Result<Option<DeviceIdentity>, Failure> {
        if !self.tls_self_made {
            return self.given_identity();
        }
        let (certificate, key) = (folder.join(CERTIFICATE), folder.join(KEY));
        if !certificate.exists() || !key.exists() {
            make_certificate(&certificate, &key)?;
        }
        identity_of(&certificate, &key).map(Some)
    }

    /// The certificate and the key that the options name.
    fn given_identity(&self) -> Result<Option<DeviceIdentity>, Failure> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => identity_of(certificate, key).map(Some),
            _ => Ok(None),
        }
    }

    /// The limits.
    pub(crate) fn limits(&self) -> Result<Limits, String> {
        let reserved = self.superuser_reserved_connections;
        let reserved = reserved.unwrap_or_else(|| RESERVED_COUNT.min(self.connections - 1));
        if reserved >= self.connections {
            return Err(format!(
                "--superuser-reserved-connections ({reserved}) must be less than --connections ({})",
                self.connections
            ));
        }
        let seconds = |seconds: u32| Duration::from_secs(u64::from(seconds));
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(Limits {
            session_count_max: count(u64::from(self.connections)),
            reserved_count: count(u64::from(reserved)),
            message_bytes_max: count(self.message_limit),
            authentication: seconds(self.authentication_timeout),
            idle: (self.idle_timeout > 0).then(|| seconds(self.idle_timeout)),
            grace: seconds(self.grace),
            serves_files: self.allow_files,
        })
    }
}

fn identity_of(certificate: &Path, key: &Path) -> Result<DeviceIdentity, Failure> {
    let identity = DeviceIdentity::from_files(certificate, key);
    identity.map_err(|error| Failure::Usage(error.to_string()))
}

/// The address that `given` stands for.
async fn address_of(option: &str, given: &str) -> Result<SocketAddr, Failure> {
    let found = tokio::net::lookup_host(given).await.map_err(|error| {
        // A name that has no address now may have one later.
        Failure::Open(cleave_host::Error::io("resolve", Path::new(given), error))
    });
    let mut found = found?;
    found.next().ok_or_else(|| Failure::Usage(format!("{option}: `{given}` has no address")))
}

/// Checks the form of an address. What its name stands for is asked for when the server starts.
fn host_and_port(text: &str) -> Result<String, String> {
    let parts = text.rsplit_once(':');
    let is_one = parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    match is_one {
        true => Ok(text.to_owned()),
        false => Err("expected HOST:PORT, as in 127.0.0.1:5432".to_owned()),
    }
}

/// Refuses to listen where other machines can connect, unless there are users and TLS.
pub(crate) fn check(
    address: SocketAddr,
    has_tls: bool,
    has_users: bool,
    trusts: bool,
) -> Result<(), String> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    if trusts {
        return Err(format!(
            "{address} can be reached from other machines: --trust is for 127.0.0.1 alone"
        ));
    }
    if !has_tls {
        return Err(format!(
            "{address} can be reached from other machines: give --tls-cert and --tls-key, or --tls-self-made, or \
                listen on \
             127.0.0.1"
        ));
    }
    if !has_users {
        return Err(format!(
            "{address} can be reached from other machines, and there are no users: make one with `cleave user add \
                NAME`, or \
             listen on 127.0.0.1"
        ));
    }
    Ok(())
}

fn message_limit(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        limit @ 0x4000..=0x4000_0000 => Ok(limit),
        _ => Err("allowed are 16kB to 1GB".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "allowed are numbers from 0 to 1, as in 0.01".to_owned())
}

/// Makes a self-signed certificate: clients encrypt, and may pin it.
fn make_certificate(certificate: &Path, key: &Path) -> Result<(), Failure> {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names)
        .map_err(|error| Failure::Device(format!("cannot make a certificate: {error}")))?;
    // The certificate last, and each atomically: if one is missing, both are made anew.
    write_whole(key, &made.signing_key.serialize_pem()).map_err(Failure::file(key))?;
    write_whole(certificate, &made.cert.pem()).map_err(Failure::file(certificate))
}

fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    let part = files::with_suffix(path, ".part");
    files::write_durably(&part, text.as_bytes())?;
    files::rename(&part, path)?;
    files::sync_parent(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_need_tls_and_users() {
        let near = "127.0.0.1:5432".parse().unwrap();
        let far = "0.0.0.0:5432".parse().unwrap();
        assert_eq!(check(near, false, false, true), Ok(()));
        assert!(check(far, false, true, false).unwrap_err().contains("--tls-cert"));
        assert!(check(far, true, false, false).unwrap_err().contains("cleave user add"));
        assert!(check(far, true, true, true).unwrap_err().contains("--trust"));
        assert_eq!(check(far, true, true, false), Ok(()));
    }
}
