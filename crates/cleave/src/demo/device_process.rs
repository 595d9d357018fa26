//! A device beside this program: the program starts itself again as `device-process`, which is `cleaved`.
//!
//! The link is a real one: TCP over loopback, TLS with a certificate made for this run, a random token. The
//! device ends with this program, however that ends: its standard input closes.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cleave_host::RemoteDevice;
use cleave_media::Stopwatch;

use crate::failure::Failure;

/// How long a device may take to come up.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How often it is asked whether it has.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// A running device process; dropping it ends the process.
#[derive(Debug)]
pub(crate) struct DeviceProcess {
    child: Child,
    program: PathBuf,
    files: Files,
    port: u16,
    certificate_pem: String,
}

/// What a device process reads and writes, all in one folder.
#[derive(Debug)]
struct Files {
    media: PathBuf,
    token: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    port: PathBuf,
    log: PathBuf,
}

impl DeviceProcess {
    /// Starts a device whose media, token and certificate lie in `directory`.
    pub(crate) async fn start(directory: &Path) -> Result<DeviceProcess, Failure> {
        let directory = directory.canonicalize().map_err(Failure::file(directory))?;
        let file = |name: &str| directory.join(name);
        let files = Files {
            media: file("pages.media"),
            token: file("token"),
            certificate: file("certificate.pem"),
            key: file("key.pem"),
            port: file("port"),
            log: file("log"),
        };
        let certificate_pem = files.write_credentials()?;
        let program = std::env::current_exe().map_err(Failure::file("this program"))?;
        let log = File::create(&files.log).map_err(Failure::file(&files.log))?;
        let child = Command::new(&program)
            .arg("device-process")
            .args(files.arguments("127.0.0.1:0"))
            .arg("--port-file")
            .arg(&files.port)
            .arg("--until-stdin-closes")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(Failure::file(&program))?;
        let mut process = DeviceProcess { child, program, files, port: 0, certificate_pem };
        process.port = process.wait_for_port().await?;
        Ok(process)
    }

    /// The way to it, over a link of at most `rate_cap` bytes a second.
    pub(crate) fn remote(&self, rate_cap: Option<u64>) -> RemoteDevice {
        RemoteDevice {
            host: "127.0.0.1".to_owned(),
            port: self.port,
            token_file: Some(self.files.token.clone()),
            ca_pem: Some(self.certificate_pem.clone()),
            rate_cap,
        }
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What starts such a device again, at the same address.
    pub(crate) fn command_line(&self) -> String {
        let mut line = format!("{} device-process", self.program.display());
        for argument in self.files.arguments(&format!("127.0.0.1:{}", self.port)) {
            line.push(' ');
            line.push_str(&argument);
        }
        line
    }

    async fn wait_for_port(&mut self) -> Result<u16, Failure> {
        let stopwatch = Stopwatch::start();
        loop {
            if let Ok(text) = std::fs::read_to_string(&self.files.port)
                && let Ok(port) = text.trim().parse()
            {
                return Ok(port);
            }
            let ended = self.child.try_wait().map_err(Failure::file(&self.program))?;
            if let Some(status) = ended {
                return Err(self.no_start(&format!("ended with {status}")));
            }
            if stopwatch.elapsed() > START_LIMIT {
                return Err(self.no_start("does not say where it listens"));
            }
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
        }
    }

    fn no_start(&self, what: &str) -> Failure {
        let log = std::fs::read_to_string(&self.files.log).unwrap_or_default();
        Failure::Device(format!("the device process {what}\n{}", log.trim_end()))
    }
}

impl Drop for DeviceProcess {
    fn drop(&mut self) {
        // What was synced is on the media, so there is nothing to end in order. If it is gone already, good.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Files {
    /// Makes a token, a certificate and its key; returns the certificate.
    fn write_credentials(&self) -> Result<String, Failure> {
        let random = cleave_media::random_bytes::<16>()
            .map_err(|error| Failure::Device(error.to_string()))?;
        let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        write_private(&self.token, &token)?;
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names)
            .map_err(|error| Failure::Device(format!("cannot make a certificate: {error}")))?;
        let certificate = made.cert.pem();
        std::fs::write(&self.certificate, &certificate)
            .map_err(Failure::file(&self.certificate))?;
        write_private(&self.key, &made.signing_key.serialize_pem())?;
        Ok(certificate)
    }

    fn arguments(&self, listen: &str) -> Vec<String> {
        let path = |path: &Path| path.display().to_string();
        let pairs = [
            ("--media", path(&self.media)),
            ("--listen", listen.to_owned()),
            ("--token-file", path(&self.token)),
            ("--tls-cert", path(&self.certificate)),
            ("--tls-key", path(&self.key)),
            // Room for the fragments of a query that scans several tables at once.
            ("--memory", "1GiB".to_owned()),
        ];
        pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }
}

/// Writes a file that only its owner may read.
fn write_private(path: &Path, text: &str) -> Result<(), Failure> {
    use std::os::unix::fs::OpenOptionsExt;
    let write = || -> io::Result<()> {
        let mut file =
            File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        io::Write::write_all(&mut file, text.as_bytes())
    };
    write().map_err(Failure::file(path))
}
