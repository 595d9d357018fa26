//! `cleave device`: attaches a device that runs elsewhere, lists those attached, shows a device's profile, changes its
//! address, and removes one.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use cleave_host::{DeviceKind, LocalDevice, RemoteDevice, storage_engine};

use crate::arguments::{Place, rate};
use crate::failure::Failure;
use crate::open::{self, Create};

mod profile;

/// `cleave device …`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DeviceOptions {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Clone, Subcommand)]
enum Action {
    /// Attach a running `cleaved` under a name
    Add {
        #[command(flatten)]
        options: AddOptions,
        /// Make the database if it is not there
        #[arg(long)]
        create: bool,
    },
    /// List attached devices, and whether they answer
    List,
    /// Show what a device, this host and the link between them can do in a second
    Profile(profile::ProfileOptions),
    /// Change a device's address, token, certificate or rate; the database must not be open
    Change(AddOptions),
    /// Remove a device without tables, so that another database may use it
    Remove {
        /// The device's name in this database
        name: String,
    },
}

#[derive(Debug, Clone, Args)]
struct AddOptions {
    /// The device's name in this database
    name: String,
    #[command(flatten)]
    way: WayOptions,
}

/// How to connect to a device.
#[derive(Debug, Clone, Args)]
pub(crate) struct WayOptions {
    /// Its address, as in storage1:7700 or `[::1]:7700`
    #[arg(long, value_name = "HOST:PORT", value_parser = address, required_unless_present = "local")]
    address: Option<(String, u16)>,
    /// Its Unix socket on this machine, instead of an address
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["address", "token_file", "ca"])]
    local: Option<PathBuf>,
    /// A file with the device's token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The certificate (PEM) from which the device's descends; without it the link has no TLS
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The rate limit of the link in each direction, as in 1gbit
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate_cap: Option<u64>,
}

/// Runs `cleave device …`.
pub(crate) async fn run(options: &DeviceOptions, place: &Place) -> Result<(), Failure> {
    match &options.action {
        Action::Add { options, create } => add(options, *create, place).await,
        Action::List => list(place).await,
        Action::Profile(options) => profile::run(options, place).await,
        Action::Change(options) => change(options, place).await,
        Action::Remove { name } => remove(name, place).await,
    }
}

impl WayOptions {
    /// The device and its address.
    pub(crate) fn way(&self) -> Result<DeviceKind, Failure> {
        match (&self.local, &self.address) {
            (Some(socket), _) => {
                // The database may be opened from another folder next time.
                let socket = std::path::absolute(socket).map_err(Failure::file(socket))?;
                Ok(DeviceKind::Local(LocalDevice { socket, rate_cap: self.rate_cap }))
            }
            (None, Some(address)) => Ok(DeviceKind::Remote(remote(self, address.clone())?)),
            (None, None) => Err(Failure::Usage("--address or --local is needed".to_owned())),
        }
    }
}

async fn add(options: &AddOptions, create: bool, place: &Place) -> Result<(), Failure> {
    let way = options.way.way()?;
    let (database, _session) = open::open_asked(place, create).await?;
    let device = database.add_device(&options.name, way).await.map_err(Failure::Open)?;
    let address = device.entry().address();
    writeln!(std::io::stdout(), "device \"{}\" at {address} is attached", device.name())?;
    Ok(())
}

async fn change(options: &AddOptions, place: &Place) -> Result<(), Failure> {
    let way = options.way.way()?;
    let directory = open::directory(place)?;
    storage_engine::change_device(directory, &options.name, way).await.map_err(Failure::Open)?;
    writeln!(std::io::stdout(), "device \"{}\" is changed", options.name)?;
    Ok(())
}

fn remote(options: &WayOptions, (host, port): (String, u16)) -> Result<RemoteDevice, Failure> {
    let ca_pem = match &options.ca {
        Some(path) => Some(std::fs::read_to_string(path).map_err(Failure::file(path))?),
        None => None,
    };
    // The database may be opened from another folder next time.
    let token_file = match &options.token_file {
        Some(path) => Some(path.canonicalize().map_err(Failure::file(path))?),
        None => None,
    };
    Ok(RemoteDevice { host, port, token_file, ca_pem, rate_cap: options.rate_cap })
}

async fn remove(name: &str, place: &Place) -> Result<(), Failure> {
    let (database, _session) = open::open(place, Create::Never).await?;
    let untold = database.remove_device(name).await.map_err(Failure::Open)?;
    let mut out = std::io::stdout();
    match untold {
        None => writeln!(out, "device \"{name}\" is removed")?,
        Some(error) => writeln!(
            out,
            "device \"{name}\" is removed, and could not be told: {error}; start it with --hand-over \
             before another database attaches it"
        )?,
    }
    Ok(())
}

async fn list(place: &Place) -> Result<(), Failure> {
    let (database, _session) = open::open(place, Create::Never).await?;
    let catalog = database.catalog();
    let mut out = std::io::stdout();
    for device in database.devices() {
        let table_count = catalog.tables_on(device.id()).len();
        let state = match device.identity().await {
            Ok(identity) => format!("answers, {} cores for fragments", identity.cores),
            Err(error) => error.to_string(),
        };
        writeln!(
            out,
            "{} ({}): {table_count} tables, {} MB in use; {state}",
            device.name(),
            device.entry().address(),
            device.space().used_blocks * cleave_media::BLOCK_SIZE as u64 / 1_000_000,
        )?;
    }
    Ok(())
}

fn address(text: &str) -> Result<(String, u16), String> {
    let wrong = || "expected HOST:PORT, as in storage1:7700 or `[::1]:7700`".to_owned();
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    match port.parse() {
        Ok(port) if !host.is_empty() && port > 0 => Ok((host.to_owned(), port)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests;
