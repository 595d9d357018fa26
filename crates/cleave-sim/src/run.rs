//! Runs one seed: statements, faults and crashes in a world of their own, compared with the model after each.
//!
//! 1. A database is made, and the remote device attached, without faults; in some seeds two, and a mirror of them
//!    ([`machines`]).
//! 2. Each step runs one statement under the faults that the seed drew, perhaps with an event beside it: a power
//!    failure of the host at its n-th change of media and files, a kill of the host or of a remote machine at a given
//!    time, broken connections, a remote machine that hangs, or a disk that is full from here on.
//! 3. An acknowledged statement counts. A failed one has no effect, unless the host died or the database stopped
//!    meanwhile: then the next check shows whether it is there, whole or not at all.
//! 4. [`run_seed_cut_at`] has a single fault: a power failure at a given change of the host's media or files.
//!    [`run_seed_failing_at`] has a single fault of the link, at one command.
//! 5. [`run_seed_failing_over`] has a log replica on the remote device, and loses the host with its folder now and then
//!    ([`failovers`]).
//!    [`run_seed_between_devices`] has two machines that read each other's pages and take each other's rows
//!    ([`between_devices`]).
//! 6. After each crash, now and then, and at the end, faults pause, everything is started again, and every table is
//!    read in every [way](WAYS). Then no device has a run or memory that nobody waits for.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use cleave_device::Runtime;
use cleave_fragment::link::{DeviceService, RemoteAddress, simulate_network};
use cleave_fragment::waiting::{sleep, timeout};
use cleave_host::activity::Act;
use cleave_host::check::CheckOptions;
use cleave_host::{
    Database, EmbeddedFactory, Error, OpenOptions, Outcome, Session, SnapshotKind, StorageError,
    TransactionStatus,
};
use cleave_media::{Media, SplitMix64};
use cleave_txn::LogError;
use futures::future::{Either, select};

use self::compared::{differing, rows_of, shape_of};
use self::machines::Layout;
use self::said::Said;
use crate::executor;
use crate::machine::{Machine, runtime_options};
use crate::media::SimMedia;
use crate::model::{Effect, Model, Query};
use crate::workload::{DEVICES, Kind, MIRRORED, PEERS, Step, WAYS, Workload, may_be_refused};
use crate::world::{self, Disk, LinkFault, PeersServed, Rates, SimWorld};

mod backups;
mod between_devices;
mod compared;
mod failovers;
mod machines;
mod said;

/// Stack of the thread on which everything runs: operators walk expressions by recursion.
const STACK_BYTES: usize = 64 << 20;
/// Most simulated time of one statement, whatever happens.
const STATEMENT_LIMIT: Duration = Duration::from_secs(300);
/// After this long, no message is under way any more.
const CALM: Duration = Duration::from_secs(10);
const NEAR: [u8; 16] = [0x4e; 16];

/// A run without findings.
#[derive(Debug)]
pub struct Report {
    /// The trace: all events, in order.
    pub trace: Vec<String>,
    /// Statements that were acknowledged, and that failed.
    pub statements: (u32, u32),
    /// Crashes of the host.
    pub crashes: u32,
    /// Changes of the host's media and files by its statements.
    pub changes: u64,
    /// Commands to the remote device.
    pub commands: u64,
    /// Statements of the kind of the first word that fragments have made changes for.
    pub by_fragments: BTreeMap<String, u32>,
    /// Copies of a mirror that lacked pages when the run looked.
    pub stale_copies: u32,
    /// What devices have had from each other in its statements.
    pub between_devices: PeersServed,
}

/// What a run found.
pub struct Failure {
    /// The seed that reproduces it.
    pub seed: u64,
    /// The defect.
    pub finding: String,
    /// The trace until then.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = self.trace.len().saturating_sub(60);
        for line in self.trace.iter().skip(from) {
            writeln!(f, "{line}")?;
        }
        write!(
            f,
            "seed {}: {}\nreplay: CLEAVE_SIM_SEED={} cargo test --workspace --test sim",
            self.seed, self.finding, self.seed
        )
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Runs `seed`.
///
/// # Errors
/// The defect, a panic and a hang included.
///
/// # Panics
/// If the system gives no thread or no folder.
pub fn run_seed(seed: u64) -> Result<Report, Box<Failure>> {
    run_on(seed, false, None)
}

/// Runs `seed` with all tables and a log replica on the remote device; hosts are lost with their folders, and others
/// fail over.
///
/// # Errors
/// As [`run_seed`].
///
/// # Panics
/// As [`run_seed`].
pub fn run_seed_failing_over(seed: u64) -> Result<Report, Box<Failure>> {
    run_on(seed, false, Some(Cut::Hosts))
}

/// Runs `seed` with two remote machines whose devices read each other's pages and take each other's rows.
///
/// # Errors
/// As [`run_seed`].
///
/// # Panics
/// As [`run_seed`].
pub fn run_seed_between_devices(seed: u64) -> Result<Report, Box<Failure>> {
    run_on(seed, false, Some(Cut::Peers))
}

/// Runs `seed` with a single fault: the host's power fails during the change of its media and files with this number;
/// none, if there are fewer ([`Report::changes`]).
///
/// # Errors
/// As [`run_seed`].
///
/// # Panics
/// As [`run_seed`].
pub fn run_seed_cut_at(seed: u64, change: u64) -> Result<Report, Box<Failure>> {
    run_on(seed, false, Some(Cut::Power(change)))
}

/// Runs `seed` with a single fault of the link, at the command to the remote device with this number
/// ([`Report::commands`]).
///
/// # Errors
/// As [`run_seed`].
///
/// # Panics
/// As [`run_seed`].
pub fn run_seed_failing_at(
    seed: u64,
    command: u64,
    fault: LinkFault,
) -> Result<Report, Box<Failure>> {
    run_on(seed, false, Some(Cut::Link(command, fault)))
}

/// The special events of a run.
#[derive(Debug, Clone, Copy)]
enum Cut {
    /// Random events, and hosts that are lost with their folders.
    Hosts,
    /// Random events, also in the network between devices.
    Peers,
    /// The host's power fails at this change.
    Power(u64),
    /// This fault affects the command with this number.
    Link(u64, LinkFault),
}

/// Runs `seed` on media that acknowledge a sync and do nothing: the checks must find that.
///
/// # Errors
/// As [`run_seed`].
///
/// # Panics
/// As [`run_seed`].
pub fn run_seed_on_lying_media(seed: u64) -> Result<Report, Box<Failure>> {
    run_on(seed, true, None)
}

fn run_on(seed: u64, media_lies: bool, cut: Option<Cut>) -> Result<Report, Box<Failure>> {
    let thread = std::thread::Builder::new().name(format!("seed {seed}")).stack_size(STACK_BYTES);
    let running = thread.spawn(move || {
        let directory = tempfile::tempdir().expect("a folder for the run");
        let world = SimWorld::new(seed, directory.path());
        world.set_media_lies(media_lies);
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let run = Simulation::of_seed(seed, cut, directory.path(), &world);
            executor::run(&world, run)
        }));
        let finding = match ran {
            Ok(Ok(Ok(mut report))) => {
                report.trace = world.take_trace();
                return Ok(report);
            }
            Ok(Ok(Err(finding))) => finding,
            Ok(Err(why)) => why.to_owned(),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                format!("panic: {}", text.unwrap_or("without words"))
            }
        };
        Err(Box::new(Failure { seed, finding, trace: world.take_trace() }))
    });
    running.expect("a thread").join().expect("panics are caught")
}

type Found<T> = Result<T, String>;

struct Simulation {
    random: SplitMix64,
    /// The single fault; None for random faults and events.
    cut: Option<Cut>,
    rates: Rates,
    workload: Workload,
    /// The database's folder, and the one of files to copy from.
    place: PathBuf,
    folder: PathBuf,
    near: Arc<SimMedia>,
    machines: Vec<Arc<Machine>>,
    layout: Layout,
    model: Model,
    /// An effect that may or may not have happened.
    uncertain: Option<Effect>,
    open: Option<Session>,
    backups: Vec<backups::Taken>,
    statements: (u32, u32),
    by_fragments: BTreeMap<String, u32>,
    stale_copies: u32,
    crashes: u32,
    /// Events since the last check, which ends all of them.
    events: u32,
    /// The embedded device of the last start.
    near_device: Arc<Mutex<Weak<Runtime>>>,
    /// How many hosts were lost with their folders; None if hosts are never lost.
    lost_hosts: Option<u8>,
}

impl Simulation {
    async fn of_seed(
        seed: u64,
        cut: Option<Cut>,
        folder: &Path,
        world: &Rc<SimWorld>,
    ) -> Found<Report> {
        let mut random = SplitMix64::new(seed ^ 0x5eed);
        let loses_hosts = matches!(cut, Some(Cut::Hosts));
        let layout = match cut {
            Some(Cut::Hosts) => Layout::One,
            Some(Cut::Peers) => Layout::Peers,
            // A seed of each swept kind, and of those that repeat themselves, has a mirror.
            _ if seed % 4 == 3 && !world.media_lies() => Layout::Mirror,
            _ => Layout::One,
        };
        let cut = cut.filter(|cut| matches!(cut, Cut::Power(_) | Cut::Link(..)));
        let machines = machines::started(layout);
        let _network = simulate_network({
            let machines = machines.clone();
            Rc::new(move |address: &RemoteAddress| machines::dial(&machines, address))
        });
        let devices: &'static [&'static str] = match layout {
            // Data on a host is lost with it.
            Layout::One if loses_hosts => &["far"],
            Layout::One => DEVICES,
            Layout::Mirror => MIRRORED,
            Layout::Peers => PEERS,
        };
        let run = Self {
            rates: Some(Rates::draw(&mut random)).filter(|_| cut.is_none()).unwrap_or_default(),
            random,
            cut: None,
            workload: Workload::new(seed, devices, layout == Layout::Peers),
            place: folder.join("db"),
            folder: folder.to_owned(),
            near: SimMedia::new("near", true),
            machines,
            layout,
            model: Model::default(),
            uncertain: None,
            open: None,
            backups: Vec::new(),
            statements: (0, 0),
            by_fragments: BTreeMap::new(),
            stale_copies: 0,
            crashes: 0,
            events: 0,
            near_device: Arc::default(),
            lost_hosts: loses_hosts.then_some(0),
        };
        Box::pin(run.all(cut, world)).await
    }

    async fn all(mut self, cut: Option<Cut>, world: &Rc<SimWorld>) -> Found<Report> {
        world.log(&format_args!("{:?}", self.rates));
        Box::pin(self.reopen()).await?;
        self.attach_machines().await?;
        if self.lost_hosts.is_some() {
            self.asked("ALTER SYSTEM SET log_replica = 'far'").await?;
        }
        let before = world.change_count();
        let commands_before = world.command_count();
        self.cut = cut.map(|cut| match cut {
            Cut::Hosts | Cut::Peers => cut,
            Cut::Power(change) => Cut::Power(before.saturating_add(change)),
            Cut::Link(command, fault) => {
                world.fail_link_at(commands_before.saturating_add(command), fault);
                cut
            }
        });
        let step_count = 10 + self.random.below(25);
        for _ in 0..step_count {
            world.set_rates(self.rates);
            world.let_link_rest(false);
            if matches!(self.cut, Some(Cut::Link(..))) && self.random.below(10) == 0 {
                // Recovery sends commands, too.
                let with_power = self.random.below(2) == 0;
                Box::pin(self.crash(world, with_power)).await?;
                if self.open.is_none() {
                    Box::pin(self.reopen()).await?;
                }
            }
            if self.lost_hosts.is_some() && self.random.below(8) == 0 {
                Box::pin(self.lose_host(world)).await?;
            }
            let step = match self.resynchronisation() {
                Some(step) => step,
                None => self.workload.next(&self.model, &self.folder),
            };
            Box::pin(self.step(world, &step)).await?;
            let looks_in = if self.cut.is_none() { 4 } else { 12 };
            let may_look = !matches!(self.cut, Some(Cut::Power(_)));
            if may_look && self.random.below(looks_in) == 0 {
                Box::pin(self.look(world)).await?;
            }
        }
        // Few seeds draw one that a fragment runs.
        if let Some(step) = self.workload.lock_many(&self.model) {
            world.set_rates(self.rates);
            world.let_link_rest(false);
            Box::pin(self.step(world, &step)).await?;
        }
        let changes = world.change_count() - before;
        let commands = world.command_count() - commands_before;
        Box::pin(self.look(world)).await?;
        // Acknowledged data is durable, even without an orderly shutdown.
        match self.lost_hosts {
            Some(_) => Box::pin(self.lose_host(world)).await?,
            None => self.crash(world, true).await?,
        }
        Box::pin(self.look(world)).await?;
        Box::pin(self.make_copies_current()).await?;
        Box::pin(self.check()).await?;
        self.close().await;
        Box::pin(self.check_backups(world)).await?;
        let Self { statements, crashes, by_fragments, stale_copies, .. } = self;
        Ok(Report {
            trace: Vec::new(),
            statements,
            crashes,
            changes,
            commands,
            by_fragments,
            stale_copies,
            between_devices: world.peers_served(),
        })
    }

    // ---- one statement -------------------------------------------------------------------------

    async fn step(&mut self, world: &Rc<SimWorld>, step: &Step) -> Found<()> {
        if self.uncertain.is_some() {
            // The model must be certain before the next statement.
            Box::pin(self.look(world)).await?;
        }
        for (name, value) in &step.settings {
            let set = self.session()?.set(name, value);
            set.map_err(|error| format!("SET {name} = {value}: {error}"))?;
        }
        world.log(&format_args!("sql: {:?} {}", step.settings, step.sql));
        let host_dies_after = self.event(world);
        if host_dies_after.is_some() {
            self.events += 1;
        }
        let mut session = self.open.take().ok_or("there is no session")?;
        let fragments_before = fragment_count(&session);
        let outcome = {
            let statement = std::pin::pin!(timeout(STATEMENT_LIMIT, session.run(&step.sql)));
            let death = std::pin::pin!(async {
                match host_dies_after {
                    Some(time) => sleep(time).await,
                    None => std::future::pending().await,
                }
            });
            match select(statement, death).await {
                Either::Left((Some(outcome), _)) => Some(outcome),
                Either::Left((None, _)) => return Err(format!("it hangs: {}", step.sql)),
                Either::Right(_) => None,
            }
        };
        let stopped = matches!(&outcome, Some(Err(error)) if is_stopped(error));
        // It is committed here, and may be lost with the host.
        let is_here_alone =
            matches!(&outcome, Some(Err(error)) if failovers::is_not_replicated(error));
        world.log(&Said(&outcome));
        if fragment_count(&session) > fragments_before {
            let kind = step.sql.split([' ', ';']).next().unwrap_or_default();
            *self.by_fragments.entry(kind.to_owned()).or_default() += 1;
        }
        self.open = Some(session);
        let went_away = outcome.is_none() || !world.host_has_power();
        if !went_away && !stopped {
            Box::pin(self.leave_block()).await?;
        }
        self.judge(step, outcome, went_away || stopped || is_here_alone)?;
        if (went_away || is_here_alone) && self.lost_hosts.is_some() && self.random.below(2) == 0 {
            Box::pin(self.lose_host(world)).await?;
        } else if went_away {
            let with_power = !world.host_has_power() || self.random.below(2) == 0;
            self.crash(world, with_power).await?;
            Box::pin(self.look(world)).await?;
        } else if stopped || (self.near.wants_restart() && self.random.below(2) == 0) {
            self.close().await;
            Box::pin(self.look(world)).await?;
        } else if self.uncertain.is_some() {
            // The next statement is drawn for the present content.
            Box::pin(self.look(world)).await?;
        }
        world.set_host_power(true);
        // Half the time, a device with a failed sync is restarted now, as its operator would after the error.
        if self.random.below(2) == 0 {
            self.machines.iter().for_each(|machine| machine.restart_if_asked());
        }
        Ok(())
    }

    /// Ends the block that a failed statement has left open.
    async fn leave_block(&mut self) -> Found<()> {
        let session = self.session()?;
        if session.transaction_status() == TransactionStatus::Idle {
            return Ok(());
        }
        let left = timeout(STATEMENT_LIMIT, session.run("ROLLBACK")).await;
        let left = left.ok_or("a ROLLBACK hangs")?;
        match left {
            // What the block has seen is not replicated; the block has ended all the same.
            Err(error) if failovers::is_not_replicated(&error) => Ok(()),
            left => left.map(drop).map_err(|error| format!("ROLLBACK: {error}")),
        }
    }

    /// Draws an event beside the next statement. Returns when the host dies, if it does at a time.
    fn event(&mut self, world: &Rc<SimWorld>) -> Option<Duration> {
        match self.cut {
            Some(Cut::Power(cut)) => {
                if let Some(left) = cut.checked_sub(world.change_count()) {
                    world.cut_host_power_after(left);
                    self.events += 1;
                }
                return None;
            }
            Some(Cut::Link(..)) => {
                self.events += 1;
                return None;
            }
            Some(Cut::Hosts | Cut::Peers) | None => {}
        }
        let soon = Duration::from_micros(self.random.below(6000));
        let later = Duration::from_millis(self.random.below(200));
        match self.random.below(100) {
            0..14 => {
                let changes = self.random.below(40);
                world.log(&format_args!("event: the host's power goes after {changes} changes"));
                world.cut_host_power_after(changes);
                self.events += 1;
            }
            14..22 => {
                world.log(&format_args!("event: the host dies in {soon:?}"));
                return Some(soon);
            }
            22..36 => {
                let with_power = self.random.below(2) == 0;
                self.events += 1;
                for machine in self.some_machines() {
                    beside(async move {
                        sleep(soon).await;
                        machine.kill(with_power);
                        sleep(later).await;
                        machine.boot();
                    });
                }
            }
            36..46 => {
                self.events += 1;
                for machine in self.some_machines() {
                    beside(async move {
                        sleep(soon).await;
                        machine.break_connections();
                    });
                }
            }
            46..54 => {
                // Until the next check.
                let is_hosts = self.random.below(3) > 0;
                let disk = if is_hosts { Disk::Host } else { self.a_machine().disk() };
                let scale = 8 + self.random.below(14);
                let bytes = self.random.below(1_u64 << scale);
                world.log(&format_args!("event: {disk:?} has {bytes} bytes left"));
                world.set_room(disk, Some(bytes));
            }
            54..60 => {
                self.events += 1;
                for machine in self.some_machines() {
                    beside(async move {
                        sleep(soon).await;
                        machine.hang(later * 400);
                    });
                }
            }
            60..75 if self.layout == Layout::Peers => self.network_event(soon, later),
            _ => {}
        }
        None
    }

    fn judge(
        &mut self,
        step: &Step,
        outcome: Option<Result<Vec<Outcome>, Error>>,
        is_uncertain: bool,
    ) -> Found<()> {
        match (outcome, &step.kind) {
            (Some(Ok(_)), Kind::Change(effect)) => {
                self.statements.0 += 1;
                self.model = self.model.after(effect);
            }
            (Some(Ok(outcomes)), Kind::Query(query)) => {
                self.statements.0 += 1;
                self.compare(query, &outcomes)?;
            }
            (Some(Ok(outcomes)), Kind::Next(name)) => {
                self.statements.0 += 1;
                self.count(name, &outcomes)?;
            }
            (Some(Ok(_)), Kind::Backup(place)) => {
                self.statements.0 += 1;
                self.backups.push(backups::Taken::new(place, &self.model, true));
            }
            (Some(Ok(_)), Kind::Violation) => {
                return Err(format!("it may not happen, and did: {}", step.sql));
            }
            (failed, kind) => {
                self.statements.1 += 1;
                if let Some(Err(error)) = failed {
                    self.check_error(step, &error)?;
                }
                if let Kind::Backup(place) = kind {
                    self.backups.push(backups::Taken::new(place, &self.model, false));
                }
                if let (Kind::Change(effect), true) = (kind, is_uncertain) {
                    self.uncertain = Some(effect.clone());
                }
            }
        }
        Ok(())
    }

    /// Checks that this statement, or a fault, may cause the error.
    fn check_error(&self, step: &Step, error: &Error) -> Found<()> {
        let code = error.sqlstate();
        let is_expected = match code {
            "23503" | "23505" => matches!(step.kind, Kind::Violation),
            "58030" => self.rates.make_failures() || self.events > 0,
            "0A000" => may_be_refused(&step.settings),
            "53100" => {
                let is_read = matches!(step.kind, Kind::Query(_));
                let is_read = is_read && !failovers::is_not_replicated(error);
                let is_full = !is_read && world::with(SimWorld::is_short_of_room);
                is_full || self.rates.sync_error > 0 || !world::with(SimWorld::host_has_power)
            }
            // A copy of a mirror may lack a result set that the other one, which is lost, has.
            "XX001" => self.rates.read_flip > 0 || self.has_mirror(),
            _ => false,
        };
        if is_expected { Ok(()) } else { Err(format!("{}: {code}: {error}", step.sql)) }
    }

    fn compare(&mut self, query: &Query, outcomes: &[Outcome]) -> Found<()> {
        let mut found = rows_of(outcomes)?;
        if query.is_unordered() {
            found.sort();
        }
        let expected = query.rows(&self.model);
        if found == expected {
            let is_told = |effect: &Effect| query.rows(&self.model.after(effect)) != expected;
            if self.uncertain.as_ref().is_some_and(is_told) {
                world::log("the statement is not there");
                self.uncertain = None;
            }
            return Ok(());
        }
        if let Some(effect) = &self.uncertain {
            let after = self.model.after(effect);
            if found == query.rows(&after) {
                world::log("the statement is there after all");
                self.model = after;
                self.uncertain = None;
                return Ok(());
            }
        }
        Err(differing(query, &expected, &found))
    }

    /// Checks that a sequence never repeats a number that a client has seen.
    fn count(&mut self, name: &str, outcomes: &[Outcome]) -> Found<()> {
        let found = rows_of(outcomes)?;
        let [number] = found.as_slice() else { return Err(format!("{name} gives {found:?}")) };
        let number: i64 = number.parse().map_err(|_| format!("{name} gives {number}"))?;
        let Some(last) = self.model.sequences.get_mut(name) else { return Ok(()) };
        if number <= *last {
            return Err(format!("{name} gives {number} after {last}"));
        }
        *last = number;
        Ok(())
    }

    // ---- checks --------------------------------------------------------------------------------

    /// Checks without faults that everything is there, in every way.
    async fn look(&mut self, world: &Rc<SimWorld>) -> Found<()> {
        world.log(&"look: faults pause");
        world.set_rates(Rates::default());
        world.let_link_rest(true);
        world.set_host_power(true);
        for machine in &self.machines {
            machine.go_on();
            machine.boot();
            machine.restart_if_asked();
        }
        world.heal();
        if self.open.is_none() && world.is_short_of_room() {
            // A full disk does not keep a database from opening.
            Box::pin(self.reopen()).await?;
        }
        Disk::ALL.into_iter().for_each(|disk| world.set_room(disk, None));
        sleep(CALM).await;
        // An event that came only now.
        self.machines.iter().for_each(|machine| machine.go_on());
        world.heal();
        if self.open.is_none() {
            Box::pin(self.reopen()).await?;
        }
        self.settle()?;
        self.name_no_devices()?;
        let names: Vec<String> = self.model.tables.keys().cloned().collect();
        for (number, way) in WAYS.iter().enumerate() {
            for (name, value) in *way {
                self.session()?.set(name, value).map_err(|error| error.to_string())?;
            }
            for name in &names {
                let mut queries = vec![Query::All(name.clone())];
                if number == 2 {
                    queries.push(Query::Groups(name.clone()));
                    queries.push(Query::Figures(name.clone(), 0));
                } else {
                    queries.extend(self.look_ups(name));
                }
                for query in queries {
                    let ran = timeout(STATEMENT_LIMIT, self.session()?.run(&query.sql())).await;
                    let ran = ran.ok_or_else(|| format!("it hangs: {}", query.sql()))?;
                    let is_refused =
                        |error: &Error| error.sqlstate() == "0A000" && may_be_refused(way);
                    if ran.as_ref().is_err_and(is_refused) {
                        continue;
                    }
                    let outcomes = ran.map_err(|error| {
                        format!("{way:?} {}: without faults, {error}", query.sql())
                    })?;
                    self.compare(&query, &outcomes)?;
                }
            }
        }
        for query in self.model.of_views().collect::<Vec<_>>() {
            let outcomes = self.asked(&query.sql()).await?;
            self.compare(&query, &outcomes)?;
        }
        let sequences: Vec<String> = self.model.sequences.keys().cloned().collect();
        for name in sequences {
            let outcomes = self.asked(&format!("SELECT nextval('{name}')")).await?;
            self.count(&name, &outcomes)?;
        }
        // An effect that was not found by now has not happened.
        self.uncertain = None;
        Box::pin(self.look_at_copies()).await?;
        Box::pin(self.look_between_devices()).await?;
        let database = Arc::clone(self.session()?.database());
        let flushed = timeout(STATEMENT_LIMIT, database.snapshot(SnapshotKind::Flushed)).await;
        let flushed =
            flushed.ok_or_else(|| "it hangs: what is committed becomes pages".to_owned())?;
        flushed.map_err(|error| format!("without faults, {error}"))?;
        self.check_space()?;
        self.settle()?;
        sleep(CALM).await;
        self.check_devices().await?;
        self.events = 0;
        world.log(&"look: all is there");
        Ok(())
    }

    /// Look-ups of an existing row by each of its columns: by an index, if there is one.
    fn look_ups(&mut self, name: &str) -> Vec<Query> {
        let Some(table) = self.model.tables.get(name).filter(|table| !table.rows.is_empty()) else {
            return Vec::new();
        };
        let place = world::index(&mut self.random, table.rows.len());
        let Some((id, row)) = table.rows.iter().nth(place) else { return Vec::new() };
        let word = row.note.clone().map(|word| Query::Word(name.to_owned(), word));
        let point = Query::Point(name.to_owned(), *id);
        [Query::Equal(name.to_owned(), row.v), point].into_iter().chain(word).collect()
    }

    /// The result of a statement without faults.
    async fn asked(&mut self, sql: &str) -> Found<Vec<Outcome>> {
        let ran = timeout(STATEMENT_LIMIT, self.session()?.run(sql)).await;
        let ran = ran.ok_or_else(|| format!("it hangs: {sql}"))?;
        ran.map_err(|error| format!("{sql}: without faults, {error}"))
    }

    /// Compares the catalog with the model, which may tell whether an uncertain statement has happened.
    fn settle(&mut self) -> Found<()> {
        let found = shape_of(&self.session()?.database().catalog());
        let expected = self.model.shape();
        let after = self.uncertain.as_ref().map(|effect| self.model.after(effect));
        let is_after = after.as_ref().is_some_and(|after| after.shape() == found);
        match after {
            Some(after) if is_after && found != expected => {
                world::log("the statement is there after all");
                (self.model, self.uncertain) = (after, None);
            }
            Some(_) if !is_after && found == expected => {
                world::log("the statement is not there");
                self.uncertain = None;
            }
            _ if found == expected => {}
            _ => return Err(format!("the catalog has {found:?}, not {expected:?}")),
        }
        Ok(())
    }

    /// Checks that all used space is referenced, waits for a reader, or was in doubt when its link was lost.
    fn check_space(&mut self) -> Found<()> {
        let database = self.session()?.database();
        // What is held goes where space is short.
        database.give_up_versions();
        let catalog = database.catalog();
        for device in database.devices() {
            let extents = catalog.extents(device.id());
            let named: u64 = extents.iter().map(|extent| u64::from(extent.block_count)).sum();
            let space = device.space();
            if space.used_blocks != named + space.retired_blocks + space.doubtful_blocks {
                return Err(format!("{}: {named} blocks are named, {space:?}", device.name()));
            }
        }
        Ok(())
    }

    /// Verifies all pages, maps and index entries, bypassing all caches.
    async fn check(&mut self) -> Found<()> {
        let database = Arc::clone(self.session()?.database());
        let options = CheckOptions { threads: 2, ..CheckOptions::default() };
        let checking = timeout(STATEMENT_LIMIT, Box::pin(database.check(&options))).await;
        let report = checking.ok_or("a check hangs")?.map_err(|error| error.to_string())?;
        match report.findings.kept().first() {
            Some(finding) => Err(format!("a check finds: {finding}")),
            None => Ok(()),
        }
    }

    // ---- opening and closing -------------------------------------------------------------------

    /// The options for opening this host's database.
    fn options(&self) -> OpenOptions {
        let (near, started) = (Arc::clone(&self.near), Arc::clone(&self.near_device));
        let identity = NEAR.map(|byte| byte + self.lost_hosts.unwrap_or_default());
        let embedded: EmbeddedFactory = Arc::new(move |path: &Path| {
            let media = near.attach() as Arc<dyn Media>;
            let runtime =
                Runtime::new(media, runtime_options(identity)).map_err(|error| Error::Io {
                    action: "start",
                    path: path.to_owned(),
                    source: std::io::Error::other(error),
                })?;
            *started.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&runtime);
            Ok(runtime as Arc<dyn DeviceService>)
        });
        OpenOptions::new(embedded).buffer_pool_bytes(1 << 20)
    }

    async fn reopen(&mut self) -> Found<()> {
        let options = self.options().create(self.lost_hosts.is_none_or(|lost| lost == 0));
        let opened = timeout(STATEMENT_LIMIT, Box::pin(Database::open(&self.place, options))).await;
        let database = opened
            .ok_or("incarnation hangs")?
            .map_err(|error| format!("without faults, the database does not open: {error}"))?;
        self.open = Some(database.session());
        Ok(())
    }

    /// Ends the host at once; with its power, unsynced data is lost.
    async fn crash(&mut self, world: &Rc<SimWorld>, with_power: bool) -> Found<()> {
        world.log(&if with_power { "host: loses its power" } else { "host: is killed" });
        self.crashes += 1;
        world.set_host_power(false);
        self.open = None;
        // Messages of the dead host find no receiver.
        sleep(CALM).await;
        if with_power {
            world.host_files().lose_power();
            self.near.lose_power();
        } else {
            self.near.detach();
        }
        world.set_host_power(true);
        if self.random.below(3) == 0 {
            // A recovery may be interrupted and followed by another.
            world.set_rates(Rates::default());
            let changes = self.random.below(12);
            world.log(&format_args!("event: the host's power goes again after {changes} changes"));
            world.cut_host_power_after(changes);
            let opened = Box::pin(self.reopen()).await;
            if world.host_has_power() {
                return opened;
            }
            self.open = None;
            sleep(CALM).await;
            world.host_files().lose_power();
            self.near.lose_power();
            world.set_host_power(true);
        }
        Ok(())
    }

    async fn close(&mut self) {
        world::log("host: closes the database");
        self.open = None;
        sleep(CALM).await;
    }

    fn session(&mut self) -> Found<&mut Session> {
        self.open.as_mut().ok_or_else(|| "there is no session".to_owned())
    }
}

/// Fragments that have changed or locked rows of its database.
fn fragment_count(session: &Session) -> u64 {
    let activity = session.database().activity();
    [Act::UpdateFragment, Act::LockingFragment].into_iter().map(|act| activity.count(act)).sum()
}

/// Whether the database is stopped, so that only its next incarnation tells whether the statement is there.
fn is_stopped(error: &Error) -> bool {
    let Error::Storage(error) = error else { return false };
    matches!(**error, StorageError::Stopped { .. } | StorageError::Log(LogError::Failed { .. }))
}

#[expect(clippy::disallowed_methods, reason = "events of the world belong to no statement")]
fn beside(event: impl Future<Output = ()> + Send + 'static) {
    drop(tokio::spawn(event));
}
