//! The remote machines of a run: one, or two of which a mirror has its copies, or whose devices reach each other.
//!
//! 1. A seed with a mirror has the devices `far` and `other`, and `m`, the mirror of both. Tables lie on it, alone or
//!    beside other devices. Commands, replies, media and disks of each machine fail by themselves, and an event happens
//!    to one machine, or to both.
//! 2. Statements resynchronise the mirror now and then, under faults as all others.
//! 3. When the run [looks](Simulation::look), what was acknowledged is there as the copies are, also if one of them is
//!    stale. Then, half the time, stale copies are made current; at the end of the run they are, and a check reads each
//!    page on each copy.

use std::sync::{Arc, PoisonError};

use cleave_fragment::command::{Command, CommandHeader, Reply, Request};
use cleave_fragment::link::{DeviceService, Link, LinkError, RemoteAddress};
use cleave_fragment::waiting::{sleep, timeout};
use cleave_host::{DeviceEntry, RemoteDevice};

use super::{CALM, Found, STATEMENT_LIMIT, Simulation};
use crate::link::SimLink;
use crate::machine::Machine;
use crate::model::Effect;
use crate::workload::{Kind, Step};
use crate::world;

const RESYNC: &str = "ALTER DEVICE m RESYNC";
/// How often that is tried without faults: a copy that has just come back still ends what it did before.
const TRIES: u32 = 3;

/// Which machines a run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// One.
    One,
    /// Two, with the copies of a mirror.
    Mirror,
    /// Two that read each other's pages and take each other's rows.
    Peers,
}

/// The running machines of a run.
pub(super) fn started(layout: Layout) -> Vec<Arc<Machine>> {
    let other = (layout != Layout::One).then(Machine::start_other);
    std::iter::once(Machine::start()).chain(other).collect()
}

/// The way to the machine `name`, for a database.
pub(super) fn way_to(name: &str) -> RemoteDevice {
    let host = name.to_owned();
    RemoteDevice { host, port: 1, token_file: None, ca_pem: None, rate_cap: None }
}

/// A link to the one of `machines` at `address`.
///
/// # Errors
/// As [`SimLink::dial`].
pub(super) fn dial(
    machines: &[Arc<Machine>],
    address: &RemoteAddress,
) -> Result<Arc<dyn Link>, LinkError> {
    let machine = machines.iter().find(|machine| machine.name() == address.host);
    SimLink::dial(machine.expect("a host knows the machines of its run"))
}

impl Simulation {
    /// Attaches the machines, and makes the mirror of two.
    pub(super) async fn attach_machines(&mut self) -> Found<()> {
        let database = Arc::clone(self.session()?.database());
        for machine in &self.machines {
            let attaching = database.add_device(machine.name(), way_to(machine.name()));
            Box::pin(attaching).await.map_err(|error| format!("no device: {error}"))?;
        }
        if self.has_mirror() {
            self.asked("CREATE DEVICE m WITH (mirrors = 'far, other')").await?;
        }
        Ok(())
    }

    /// Whether two machines have the copies of a mirror.
    pub(super) fn has_mirror(&self) -> bool {
        self.layout == Layout::Mirror
    }

    /// One of the machines.
    pub(super) fn a_machine(&mut self) -> Arc<Machine> {
        let count = self.machines.len();
        // The only one is not drawn.
        let place = if count > 1 { world::index(&mut self.random, count) } else { 0 };
        Arc::clone(&self.machines[place])
    }

    /// One of the machines, or all of them at once.
    pub(super) fn some_machines(&mut self) -> Vec<Arc<Machine>> {
        if self.machines.len() > 1 && self.random.below(4) == 0 {
            return self.machines.clone();
        }
        vec![self.a_machine()]
    }

    /// A statement that resynchronises the mirror, if its turn has come.
    pub(super) fn resynchronisation(&mut self) -> Option<Step> {
        let is_due = self.has_mirror() && self.random.below(8) == 0;
        let nothing = Kind::Change(Effect::All(Vec::new()));
        is_due.then(|| Step { settings: Vec::new(), sql: RESYNC.to_owned(), kind: nothing })
    }

    /// Asks each device how it is. One of which nothing was read learns only now of the host that runs now.
    pub(super) async fn ask_devices(&mut self) -> Found<()> {
        for device in self.session()?.database().devices() {
            let told = timeout(STATEMENT_LIMIT, Box::pin(device.status())).await;
            let told = told.ok_or_else(|| format!("{} does not answer", device.name()))?;
            told.map_err(|error| format!("without faults, {error}"))?;
        }
        Ok(())
    }

    /// Counts the copies that lack pages, and makes them current half the time, without faults.
    pub(super) async fn look_at_copies(&mut self) -> Found<()> {
        if !self.has_mirror() {
            return Ok(());
        }
        self.ask_devices().await?;
        let stale = self.lacking_copies()?;
        world::log(format_args!("look: of the mirror's copies, {stale:?} lack pages"));
        if stale.len() == self.machines.len() {
            return Err("no copy of the mirror is current".to_owned());
        }
        self.stale_copies += u32::try_from(stale.len()).unwrap_or(u32::MAX);
        if self.random.below(2) == 0 {
            self.make_copies_current().await?;
        }
        Ok(())
    }

    /// Makes all copies of the mirror current, without faults.
    pub(super) async fn make_copies_current(&mut self) -> Found<()> {
        if !self.has_mirror() {
            return Ok(());
        }
        for left in (0..TRIES).rev() {
            let ran = timeout(STATEMENT_LIMIT, self.session()?.run(RESYNC)).await;
            match ran.ok_or_else(|| format!("it hangs: {RESYNC}"))? {
                Ok(_) => break,
                Err(error) if left == 0 => {
                    return Err(format!("{RESYNC}: without faults, {error}"));
                }
                Err(error) => world::log(format_args!("look: {RESYNC}: {error}")),
            }
            sleep(CALM).await;
        }
        let stale = self.lacking_copies()?;
        let is_whole = stale.is_empty();
        if is_whole { Ok(()) } else { Err(format!("{RESYNC} leaves {stale:?} without pages")) }
    }

    /// The names of the copies that lack pages, as the database has it. The newest manifest says no less.
    fn lacking_copies(&mut self) -> Found<Vec<String>> {
        let database = self.session()?.database();
        let mirror = database.device_named("m").map_err(|error| error.to_string())?;
        let state = database.catalog();
        let entry = state.device_named("m").and_then(DeviceEntry::mirror);
        let entry = entry.ok_or("the manifest has no mirror")?;
        let mut stale = Vec::new();
        for (copy, is_stale) in mirror.copies() {
            if entry.is_stale(copy.id()) && !is_stale {
                return Err(format!("{} is read, and stale in the manifest", copy.name()));
            }
            if is_stale {
                stale.push(copy.name().to_owned());
            }
        }
        Ok(stale)
    }

    /// Checks that no device has a run that nobody waits for, memory without a run, a grant, or a link to another one.
    pub(super) async fn check_devices(&self) -> Found<()> {
        let near = self.near_device.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        let far = self.machines.iter().map(|machine| (machine.name(), machine.runtime()));
        for (name, device) in std::iter::once(("near", near)).chain(far) {
            let Some(device) = device else { return Err(format!("{name} does not run")) };
            let asked = Command::new(CommandHeader::default(), Request::Status);
            let Ok(Reply::Status(status)) = device.call(asked).await else {
                return Err(format!("{name} does not say how it is"));
            };
            let (free, all) = (status.fragment_memory_bytes_free, status.fragment_memory_bytes);
            if !status.runs.is_empty() || free != all {
                return Err(format!(
                    "{name}: {free} of {all} bytes are free, runs {:?}",
                    status.runs
                ));
            }
            let held = device.held_for_peers().await;
            if held != (0, 0) {
                let (grants, links) = held;
                return Err(format!("{name} has {grants} grants and {links} links to others"));
            }
        }
        Ok(())
    }
}
