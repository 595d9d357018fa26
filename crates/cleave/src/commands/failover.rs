//! `cleave failover`: continues a database whose host is lost in a new folder, from the log replica that a device
//! keeps.
//!
//! The result goes to standard output. Exit codes: 0 done, 1 the command line is wrong, 2 the failover failed.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use cleave_host::log_replica::{FailedOver, FailoverSource, Witnesses};
use cleave_host::replication::fail_over;

use super::device::WayOptions;
use crate::arguments::Place;
use crate::failure::Failure;
use crate::open::{self, Create};

/// `cleave failover …`.
#[derive(Debug, Clone, Args)]
pub(crate) struct FailoverOptions {
    /// The folder of the continued database: empty or missing
    #[arg(value_name = "DATABASE")]
    database: PathBuf,
    #[command(flatten)]
    way: WayOptions,
    /// Also accept a replica that may lack commits: the database was opened later, or another replica is newer
    #[arg(long)]
    stale: bool,
}

/// Runs `cleave failover …`.
pub(crate) async fn run(options: &FailoverOptions, place: &Place) -> Result<(), Failure> {
    let from = FailoverSource { way: options.way.way()?, accepts_stale: options.stale };
    let open = open::open_options(Create::Never, place.memory());
    let taken = Box::pin(fail_over(&options.database, &from, &open)).await;
    let FailedOver { at, commit, epoch, lost, lost_socket, offline, witnesses } =
        taken.map_err(Failure::Open)?;
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "failed over: the database is now in {}: up to commit {commit}, from a replica written \
         last at {at}; it goes on in epoch {epoch}",
        options.database.display()
    )?;
    if let Some(doubt) = witnesses.and_then(|witnesses| doubt(&witnesses, &at)) {
        writeln!(out, "{doubt}")?;
    }
    if !lost.is_empty() {
        writeln!(
            out,
            "tables that lay, whole or in part, on the lost host's own device cannot be used: {}; drop them, or \
                serve that \
             host's device-0.media by `cleaved --media FILE --local {}`",
            lost.join(", "),
            lost_socket.display()
        )?;
    }
    for name in offline {
        writeln!(out, "device \"{name}\" does not answer; what lies there waits for it")?;
    }
    Ok(())
}

/// The remaining doubt about a replica that was last written `at`; None if all other devices were asked.
fn doubt(witnesses: &Witnesses, at: &str) -> Option<String> {
    let whoever = match witnesses.silent.as_slice() {
        [] if witnesses.asked.is_empty() => {
            "the database has no other device that could say".to_owned()
        }
        [] => return None,
        silent => format!("no answer came from \"{}\", which might say", silent.join("\", \"")),
    };
    Some(format!(
        "{whoever} whether the old host gave that replica up while its device was offline (by setting or resetting \
            log_replica); if it did, \
         what it committed after {at} is not here"
    ))
}
