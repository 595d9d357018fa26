//! Failover: a device that keeps a log replica in, a database in a new folder out.
//!
//! 1. The replica is looked for and read, which changes nothing: where it is torn, damaged, stale or another
//!    database's, all stays as it is. The other devices that its manifest names are looked at too: where one of them
//!    shows that the database went on without this replica, the host that has them keeps them. The result lists the
//!    devices that answered and those that did not ([`Witnesses`]).
//! 2. The device is claimed in a higher epoch. From here on its previous host can acknowledge nothing.
//! 3. The replica is read again, since that host may have gone on until then; the devices that its manifest names are
//!    claimed.
//! 4. Files, manifest and log are written into the folder, which is marked incomplete until it is whole; then it is
//!    opened as after a crash.
//!
//! Tables of the lost host's own device are lost with it, unless its media can be served again: the manifest names it
//! as an offline device ([`LOST_DEVICE`]), so those tables are [blocked](cleave_catalog::catalog::blocked), or their
//! readers get an error that names them, and all others work.
//!
//! Invariant: nothing is written into a folder that holds anything else; an interrupted failover can be begun again
//! there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cleave_catalog::catalog::manifest;
use cleave_catalog::catalog::manifest::{MANIFEST_FORMAT, segment_of_file};
use cleave_catalog::catalog::{DeviceEntry, DeviceId, DeviceKind, proto};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::storage_error::StorageError;
use cleave_catalog::value::text::moment;
use cleave_engine::device;
use cleave_engine::device::Device;
use cleave_engine::log::{Committed, directory_of};
use cleave_engine::storage_engine;
use cleave_engine::storage_engine::log_keeper::LogKeeper;
use cleave_engine::storage_engine::{Engine, OpenOptions, SPILLS};
use cleave_fragment::command::{Identity, LOOKING_EPOCH, Ownership};
use cleave_fragment::waiting;
use cleave_media::files;
use cleave_txn::wal::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, segment_path};
use cleave_txn::{LogReader, Lsn, Record};
use prost::Message;

use super::found::{self, Found};
use super::given_up;
use super::layout::{Stamp, whole};
use super::{INCARNATION_WAIT, MANIFEST, SEGMENTS};
use crate::backup::{
    MARK, STATISTICS, USERS, embedded_entry, finish, only_for_owner, prepare_place, sync_folder,
};

/// The name of the lost host's own device from then on, where tables lie on it.
pub const LOST_DEVICE: &str = "lost";

/// From where a database is failed over.
#[derive(Debug, Clone)]
pub struct FailoverSource {
    /// The way to a device that keeps a log replica.
    pub way: DeviceKind,
    /// Whether to accept a replica that may lack commits: the database was opened after its last write.
    pub accepts_stale: bool,
}

/// How long another device is looked through for a newer replica.
const LOOKING_WAIT: Duration = Duration::from_secs(30);

/// What was failed over.
#[derive(Debug, Clone)]
pub struct FailedOver {
    /// When the replica was written last.
    pub at: String,
    /// The last commit.
    pub commit: u64,
    /// The epoch from which the database goes on.
    pub epoch: u64,
    /// Tables of the lost host's own device.
    pub lost: Vec<String>,
    /// The address at which that device's media must be served for these tables to come back.
    pub lost_socket: PathBuf,
    /// Devices that do not answer, by name.
    pub offline: Vec<String>,
    /// The devices that could tell whether the replica was given up; None: none was asked, since a stale one is
    /// accepted.
    pub witnesses: Option<Witnesses>,
}

/// The other devices that the manifest of a replica names. A device that was online when the replica was given up, or
/// later while the host ran, knows of that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Witnesses {
    /// Names of those that know nothing against it.
    pub asked: Vec<String>,
    /// Names of those that gave no answer.
    pub silent: Vec<String>,
}

/// Makes a database in `directory`, which is empty or does not exist, of the replica on a device, and fences its old
/// host; `keeper` keeps its log from then on. See the module's description.
///
/// # Errors
/// [`StorageError::LogReplica`] where the device has no usable replica; [`StorageError::BackupPlace`]; those of the
/// device; [`Error::Io`].
pub async fn fail_over(
    directory: &Path,
    from: &FailoverSource,
    options: &OpenOptions,
    keeper: Arc<dyn LogKeeper>,
) -> Result<FailedOver> {
    let taking = Taking::begin(directory, from, options).await?;
    taking.claim().await?;
    let found = taking.search().await?;
    let manifest = taking.manifest(&found).await?;
    let taken = taking.write(&found, manifest).await?;
    finish(directory)?;
    // The folder's lock.
    drop(taking);
    let database = Engine::open(directory, options.clone(), keeper).await?;
    let (commit, epoch) = {
        let live = database.live();
        (live.state.commit + live.number, live.state.epoch)
    };
    let offline = database.devices().into_iter().filter(|device| !device.is_connected());
    let offline = offline.map(|device| device.name().to_owned());
    let offline = offline.filter(|name| taken.lost.is_empty() || name != LOST_DEVICE).collect();
    Ok(FailedOver { commit, epoch, offline, ..taken })
}

/// A failover under way.
struct Taking<'a> {
    directory: &'a Path,
    from: &'a FailoverSource,
    options: &'a OpenOptions,
    /// The device that has the replica, as the database calls it.
    entry: DeviceEntry,
    identity: Identity,
    owner: Ownership,
    /// Its owner when this failover claims it.
    claimed: Ownership,
    looking: Device,
    witnesses: Option<Witnesses>,
    _lock: std::fs::File,
}

impl<'a> Taking<'a> {
    async fn begin(
        directory: &'a Path,
        from: &'a FailoverSource,
        options: &'a OpenOptions,
    ) -> Result<Self> {
        let mut entry = DeviceEntry {
            id: DeviceId(u32::MAX),
            name: "with the replica".to_owned(),
            identity: [0; 16],
            kind: from.way.clone(),
        };
        let (_, identity) = device::identify(&entry, directory, &options.embedded).await?;
        entry.identity = identity.device;
        let Some(owner) = identity.owner else {
            return refused(&entry, "it is no database's, and has no log replica");
        };
        let looking = looking(&entry, owner.database, directory, options)?;
        let found = found::search(&looking, owner.database, identity.block_count).await?;
        let manifest = manifest_of(&looking, &found).await?;
        let named = manifest.devices.iter().find(|device| device.identity == entry.identity);
        let Some(named) = named else {
            return refused(&entry, "the manifest that the replica has does not name the device");
        };
        (entry.id, entry.name) = (DeviceId(named.id), named.name.clone());
        if manifest::exists(directory) && !directory.join(MARK).exists() {
            let is_same = manifest::read_sound(directory)
                .is_ok_and(|(state, _)| state.database.0.as_slice() == owner.database);
            let reason = match is_same {
                true => {
                    "it holds a database, which is not written over, and which is this one; if a failover into it \
                        was interrupted, that \
                     was at its very end, and it is to be opened"
                }
                false => "it holds a database, which is not written over",
            };
            let (path, reason) = (directory.to_owned(), reason.to_owned());
            return Err(StorageError::BackupPlace { path, reason }.into());
        }
        prepare_place(directory, is_ours)?;
        let lock = storage_engine::lock(directory).await?;
        let mark = directory.join(MARK);
        files::write_durably(&mark, b"").map_err(|error| Error::io("write", &mark, error))?;
        sync_folder(directory)?;
        let epoch = owner.epoch.max(found.stamp.epoch).max(manifest.epoch).saturating_add(1);
        let claimed = Ownership {
            database: owner.database,
            epoch,
            incarnation: storage_engine::draw_incarnation()?,
        };
        let looking = self::looking(&entry, owner.database, directory, options)?;
        let mut taking = Self {
            directory,
            from,
            options,
            entry,
            identity,
            owner,
            claimed,
            looking,
            witnesses: None,
            _lock: lock,
        };
        Box::pin(taking.judge(found, manifest)).await?;
        Ok(taking)
    }

    /// Refuses the replica `found` with this `manifest` where it is damaged, and, unless a stale one is accepted, where
    /// the database went on without it.
    async fn judge(&mut self, mut found: Found, mut manifest: proto::Manifest) -> Result<()> {
        let last = loop {
            match self.check(&found, &manifest).await {
                Ok(last) => break last,
                Err(error) => {
                    let newer = self.search().await?;
                    if newer.stamp.sequence == found.stamp.sequence {
                        return Err(error);
                    }
                    // Its host went on meanwhile, and has overwritten what it needs no more.
                    manifest = manifest_of(&self.looking, &newer).await?;
                    found = newer;
                }
            }
        };
        if !self.from.accepts_stale {
            let outlived = match self.is_used_since(&found)? {
                true => Err(format!(
                    "the database was opened since, in epoch {}: what was committed then may not be in it; use the \
                        folder of that host \
                     if there is one, or else say --stale",
                    self.owner.epoch
                )),
                false => Box::pin(self.ask_others(&found, &manifest)).await?,
            };
            match outlived {
                Ok(witnesses) => self.witnesses = Some(witnesses),
                Err(reason) => {
                    let reach = reach(&found.stamp, last);
                    return refused(&self.entry, &format!("{reach}, and {reason}"));
                }
            }
        }
        Ok(())
    }

    /// Whether the device of the replica `found` was claimed after it by an incarnation other than this failover.
    fn is_used_since(&self, found: &Found) -> Result<bool> {
        let is_newer = self.owner.epoch > found.stamp.epoch;
        Ok(is_newer
            && !device::knows_incarnation(self.directory, self.entry.id, self.owner.incarnation)?)
    }

    /// Reads all that a host needs of the replica `found` with this `manifest`, before it is taken from its host;
    /// returns the last commit, and when it was made, if the log says so. The log is in the folder then, as after an
    /// interrupted failover.
    ///
    /// # Errors
    /// What is damaged; those of the device; [`Error::Io`].
    async fn check(&self, found: &Found, manifest: &proto::Manifest) -> Result<(u64, Option<i64>)> {
        for (name, _) in found.files.iter().filter(|(name, _)| is_wanted(name)) {
            self.file(found, name).await?;
        }
        self.write_log(found).await?;
        let unread = |error| self.fault(&format!("its log replica is damaged: {error}"));
        let place = Lsn(found.stamp.log_start);
        let mut reader = LogReader::open(&directory_of(self.directory), place).map_err(unread)?;
        let mut last = (manifest.commit, None);
        while let Some(record) = reader.next_record().map_err(unread)? {
            if let Record::Commit { payload, .. } = record.record
                && let Ok(committed) = Committed::decode(payload.as_slice())
                && committed.commit > last.0
            {
                last = (committed.commit, Some(committed.time_us));
            }
        }
        Ok(last)
    }

    /// The bytes of the file `name`; None: it is lost, and not needed.
    ///
    /// # Errors
    /// What is damaged; those of the device.
    async fn file(&self, found: &Found, name: &str) -> Result<Option<Vec<u8>>> {
        let bytes = match found.files.get(name) {
            Some(place) => found::file(&self.looking, place).await?,
            None => None,
        };
        if bytes.is_none() && !name.starts_with(STATISTICS) {
            return Err(self.fault(&format!("its replica of \"{name}\" is damaged")));
        }
        Ok(bytes)
    }

    /// Asks the other devices that `manifest` names whether the database went on without the replica `found`; returns
    /// the reason, or the devices asked. A silent device is no reason: the replica may be all that is left.
    async fn ask_others(
        &self,
        found: &Found,
        manifest: &proto::Manifest,
    ) -> Result<std::result::Result<Witnesses, String>> {
        let mut witnesses = Witnesses::default();
        for device in manifest.devices.iter().filter(|device| device.id != self.entry.id.0) {
            let Some(entry) = manifest::device_entry(device) else { continue };
            if matches!(entry.kind, DeviceKind::Embedded | DeviceKind::Mirror(_)) {
                continue;
            }
            let other = looking(&entry, self.owner.database, self.directory, self.options)?;
            let identity = waiting::timeout(INCARNATION_WAIT, Box::pin(other.identity())).await;
            let Some(Ok(identity)) = identity else {
                // Of an earlier host, whose media are not served.
                if entry.name != LOST_DEVICE {
                    witnesses.silent.push(entry.name);
                }
                continue;
            };
            // A device of another database by now, or of none, has nothing of this one.
            let Some(owner) = identity.owner else { continue };
            let against = self.against(found, (&entry, &other), (owner, identity.block_count));
            match waiting::timeout(LOOKING_WAIT, Box::pin(against)).await {
                Some(Ok(Some(reason))) => return Ok(Err(reason)),
                Some(Ok(None)) => witnesses.asked.push(entry.name),
                Some(Err(_)) | None => witnesses.silent.push(entry.name),
            }
        }
        Ok(Ok(witnesses))
    }

    /// What `other`, of so many blocks and owned by `owner`, says against the replica `found`; None: nothing.
    ///
    /// # Errors
    /// Those of the device.
    async fn against(
        &self,
        found: &Found,
        (entry, other): (&DeviceEntry, &Device),
        (owner, block_count): (Ownership, u64),
    ) -> Result<Option<String>> {
        let named = format!("device \"{}\" at {}", entry.name, entry.address());
        if let Some(newer) = self.newer_copy(found, other, block_count).await? {
            return Ok(Some(format!(
                "{named} has one that was written without it at {} in epoch {}: what was committed then may not be \
                    in this one; take \
                 over from that device, or else say --stale",
                moment(newer.stamp.time_us),
                newer.stamp.epoch
            )));
        }
        if given_up::is_told(other, self.owner.database, block_count, &found.stamp).await? {
            return Ok(Some(format!(
                "was given up, as {named} was told: what was committed then is not in the replica; use the folder of \
                    that host if \
                 there is one, or else say --stale"
            )));
        }
        let is_used = owner.epoch > found.stamp.epoch
            && !device::knows_incarnation(self.directory, entry.id, owner.incarnation)?;
        Ok(is_used.then(|| {
            format!(
                "the database was opened since, without this device: {named} is used in epoch {}; what was committed \
                    then may not \
                 be in the replica; use the folder of that host if there is one, or else say --stale",
                owner.epoch
            )
        }))
    }

    /// The replica on `other`, of so many blocks, if it is newer than `found` and may have acknowledged commits that
    /// this lacks.
    ///
    /// # Errors
    /// Those of the device.
    async fn newer_copy(
        &self,
        found: &Found,
        other: &Device,
        block_count: u64,
    ) -> Result<Option<Found>> {
        let age = |stamp: &Stamp| (stamp.epoch, stamp.generation, stamp.log_end);
        let newest = found::newest(other, self.owner.database, block_count).await?;
        let Some(newest) = newest.filter(|newest| age(&newest.stamp) > age(&found.stamp)) else {
            return Ok(None);
        };
        // Of one incarnation, which required both to the end: nothing was acknowledged that either of them lacks.
        let upkeep = manifest_of(other, &newest).await?.upkeep.unwrap_or_default();
        let mut replicas = upkeep.log_replicas.iter();
        let is_asked = replicas.any(|replica| replica.id == found.stamp.id && !replica.is_ended);
        let is_beside = is_asked && newest.stamp.incarnation == found.stamp.incarnation;
        Ok((!is_beside).then_some(newest))
    }

    /// Claims the device, so that its previous host can acknowledge nothing any more.
    async fn claim(&self) -> Result<()> {
        self.claim_device(&self.entry, self.owner.incarnation).await
    }

    async fn claim_device(&self, entry: &DeviceEntry, after: u64) -> Result<()> {
        device::note_incarnation(self.directory, entry.id, after)?;
        let embedded = Arc::clone(&self.options.embedded);
        let device = Device::new(entry.clone(), self.claimed, Vec::new(), self.directory, embedded);
        let device = device.map_err(|error| damaged(self.directory, error.to_string()))?;
        device.link().await.map(drop)
    }

    /// The replica as it is now.
    async fn search(&self) -> Result<Found> {
        let block_count = self.looking.block_count().await?.max(self.identity.block_count);
        found::search(&self.looking, self.owner.database, block_count).await
    }

    /// The manifest of the replica, as it is to be in the new folder, with all devices that answer claimed.
    async fn manifest(&self, found: &Found) -> Result<proto::Manifest> {
        let mut manifest = manifest_of(&self.looking, found).await?;
        manifest.epoch = manifest.epoch.max(self.claimed.epoch);
        let way = proto_way(&self.from.way);
        for device in &mut manifest.devices {
            if device.id == self.entry.id.0 {
                (device.remote, device.local) = way.clone();
            }
        }
        let mut epoch = manifest.epoch;
        for device in manifest.devices.iter().filter(|device| device.id != self.entry.id.0) {
            let Some(entry) = manifest::device_entry(device) else { continue };
            if matches!(entry.kind, DeviceKind::Embedded | DeviceKind::Mirror(_)) {
                continue;
            }
            self.restore_incarnations(found, entry.id).await?;
            let claiming = async {
                let (_, identity) =
                    device::identify(&entry, self.directory, &self.options.embedded).await?;
                let is_ours = identity.device == entry.identity;
                let owner =
                    identity.owner.filter(|owner| is_ours && owner.database == self.owner.database);
                let Some(owner) = owner else { return Ok::<_, Error>(0) };
                // If it was claimed later than the one with the replica, the incarnation that follows claims it.
                drop(self.claim_device(&entry, owner.incarnation).await);
                Ok(owner.epoch)
            };
            // What does not answer is claimed when it is needed.
            let claimed = waiting::timeout(INCARNATION_WAIT, Box::pin(claiming)).await;
            epoch = epoch.max(claimed.and_then(Result::ok).unwrap_or_default());
        }
        manifest.epoch = epoch;
        if let Some(upkeep) = &mut manifest.upkeep {
            upkeep.failover_epoch = epoch;
        }
        Ok(manifest)
    }

    /// Notes the incarnations that device `id` may have been claimed in.
    async fn restore_incarnations(&self, found: &Found, id: DeviceId) -> Result<()> {
        let name = format!("device-{id}.incarnations");
        if let Some(place) = found.files.get(&name)
            && let Some(bytes) = found::file(&self.looking, place).await?
            && !self.directory.join(&name).exists()
        {
            let path = self.directory.join(&name);
            files::write_durably(&path, &bytes)
                .map_err(|error| Error::io("write", &path, error))?;
        }
        device::note_incarnation(self.directory, id, found.stamp.incarnation)
    }

    /// Writes all into the folder.
    async fn write(&self, found: &Found, mut manifest: proto::Manifest) -> Result<FailedOver> {
        let directory = self.directory;
        manifest::create_directories(directory)?;
        let lost_socket = std::path::absolute(directory.join("lost.sock"))
            .map_err(|error| Error::io("find", directory, error))?;
        let embedded = embedded_entry(directory, &self.options.embedded).await?;
        let lost = give_up_own_device(&mut manifest, &embedded, &lost_socket);
        // The archive's log ends with the old host's.
        if let Some(upkeep) = &mut manifest.upkeep {
            upkeep.archive_directory = None;
            // Its own device is another one.
            upkeep.kept.retain(|kept| kept.device != DeviceId::EMBEDDED.0);
        }
        for (name, _) in found.files.iter().filter(|(name, _)| is_wanted(name)) {
            let Some(bytes) = self.file(found, name).await? else { continue };
            let path = directory.join(name);
            if name.starts_with(STATISTICS) {
                let folder = directory.join(STATISTICS);
                files::create_directories(&folder)
                    .map_err(|error| Error::io("create", &folder, error))?;
            }
            files::write_durably(&path, &bytes)
                .map_err(|error| Error::io("write", &path, error))?;
            if name == USERS {
                only_for_owner(&path, 0o600)?;
            }
        }
        manifest::sync_segments(directory)?;
        self.write_log(found).await?;
        manifest::replace_message(directory, &manifest)?;
        Ok(FailedOver {
            at: moment(found.stamp.time_us),
            commit: 0,
            epoch: 0,
            lost,
            lost_socket,
            offline: Vec::new(),
            witnesses: self.witnesses.clone(),
        })
    }

    /// Writes the log into the folder.
    async fn write_log(&self, found: &Found) -> Result<()> {
        let log = found::log(&self.looking, &found.stamp).await?;
        write_log(self.directory, &found.stamp, &log).map_err(|reason| self.fault(&reason))?
    }

    fn fault(&self, reason: &str) -> Error {
        super::fault(&self.looking, reason)
    }
}

/// The device, opened only to look at what `database` has there.
fn looking(
    entry: &DeviceEntry,
    database: [u8; 16],
    directory: &Path,
    options: &OpenOptions,
) -> Result<Device> {
    let looking = Ownership { database, epoch: LOOKING_EPOCH, incarnation: 0 };
    let embedded = Arc::clone(&options.embedded);
    Device::new(entry.clone(), looking, Vec::new(), directory, embedded)
        .map_err(|error| damaged(directory, error.to_string()))
}

fn refused<T>(entry: &DeviceEntry, reason: &str) -> Result<T> {
    let (device, address) = (entry.name.clone(), entry.address());
    Err(StorageError::LogReplica { device, address, reason: reason.to_owned() }.into())
}

fn damaged(directory: &Path, reason: String) -> Error {
    StorageError::Damaged { path: directory.to_owned(), reason }.into()
}

/// The manifest that a replica has.
async fn manifest_of(device: &Device, found: &Found) -> Result<proto::Manifest> {
    let place = found.files.get(MANIFEST);
    let bytes = match place {
        Some(place) => found::file(device, place).await?,
        None => None,
    };
    let fault = |reason: &str| super::fault(device, reason);
    let bytes = bytes.ok_or_else(|| fault("its replica of the manifest is damaged"))?;
    let (_, message) = MANIFEST_FORMAT
        .open(&bytes)
        .map_err(|error| fault(&format!("its replica of the manifest cannot be read: {error}")))?;
    proto::Manifest::decode(message)
        .map_err(|error| fault(&format!("its replica of the manifest cannot be read: {error}")))
}

/// Gives the tables of the own device, which is lost, to one that is offline; their names. The database gets the own
/// device `embedded`.
fn give_up_own_device(
    manifest: &mut proto::Manifest,
    embedded: &DeviceEntry,
    lost_socket: &Path,
) -> Vec<String> {
    let own = DeviceId::EMBEDDED.0;
    let lost_id = manifest.next_device;
    let mut lost = BTreeSet::new();
    for table in &mut manifest.tables {
        let here = table.tablets.iter_mut().filter(|tablet| tablet.device == own);
        for tablet in here {
            tablet.device = lost_id;
            let schema = cleave_store::TableSchema::decode(&table.schema);
            lost.insert(schema.map_or_else(|_| "?".to_owned(), |schema| schema.name));
        }
    }
    let names: BTreeSet<String> =
        manifest.devices.iter().map(|device| device.name.clone()).collect();
    let mut gone = None;
    for device in manifest.devices.iter_mut().filter(|device| device.id == own) {
        let identity = std::mem::replace(&mut device.identity, embedded.identity.to_vec());
        gone = Some(identity);
    }
    if let Some(identity) = gone.filter(|_| !lost.is_empty()) {
        let mut name = LOST_DEVICE.to_owned();
        while names.contains(&name) {
            name.push('_');
        }
        let socket = lost_socket.to_string_lossy().into_owned();
        manifest.devices.push(proto::Device {
            id: lost_id,
            name,
            identity,
            remote: None,
            local: Some(proto::Local { socket, rate_cap: None }),
            mirror: None,
        });
        manifest.next_device += 1;
    }
    lost.into_iter().collect()
}

fn proto_way(way: &DeviceKind) -> (Option<proto::Remote>, Option<proto::Local>) {
    let entry =
        DeviceEntry { id: DeviceId(0), name: String::new(), identity: [0; 16], kind: way.clone() };
    let message = manifest::device_message(&entry);
    (message.remote, message.local)
}

/// Writes the files of the log that `stamp` has, of which `log` begins with the block of its first place. The first one
/// begins just before that place: what was before it is in the manifest.
fn write_log(
    directory: &Path,
    stamp: &Stamp,
    log: &[u8],
) -> std::result::Result<Result<()>, String> {
    let first = SegmentHeader::decode(&stamp.segment_header, Lsn(stamp.segment_start))
        .map_err(|_| "its log replica has no header".to_owned())?;
    let begins = whole(stamp.log_start);
    let bytes = |from: u64, to: u64| {
        let place =
            |place: u64| usize::try_from(place.saturating_sub(begins)).unwrap_or(usize::MAX);
        log.get(place(from)..place(to)).unwrap_or_default()
    };
    let header = SEGMENT_HEADER_BYTES as u64;
    let start = stamp.log_start.saturating_sub(header);
    if start < stamp.segment_start || stamp.log_start > first.end().0 {
        return Err("its log replica does not begin where its manifest says".to_owned());
    }
    let mut segments: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let capacity = u32::try_from(first.end().0 - start).unwrap_or(first.capacity);
    let own = SegmentHeader { capacity, start: Lsn(start), continues_from: Lsn(start), ..first };
    let mut content = own.encode();
    content.extend_from_slice(bytes(stamp.log_start, first.end().0.min(stamp.log_end)));
    segments.insert(start, content);
    let mut next = first.end();
    while next.0 < stamp.log_end {
        let found = bytes(next.0, (next.0 + header).min(stamp.log_end));
        let Ok(header) = SegmentHeader::decode(found, next) else { break };
        let end = header.end();
        segments.insert(next.0, bytes(next.0, end.0.min(stamp.log_end)).to_vec());
        next = end;
    }
    Ok(write_segments(&directory_of(directory), segments))
}

fn write_segments(folder: &Path, segments: BTreeMap<u64, Vec<u8>>) -> Result<()> {
    files::create_directories(folder).map_err(|error| Error::io("create", folder, error))?;
    for start in cleave_txn::wal::segment::list_segments(folder)? {
        let path = segment_path(folder, start);
        files::remove(&path).map_err(|error| Error::io("remove", &path, error))?;
    }
    for (start, bytes) in segments {
        let path = segment_path(folder, Lsn(start));
        files::write_durably(&path, &bytes).map_err(|error| Error::io("write", &path, error))?;
    }
    sync_folder(folder)
}

/// Whether a new folder gets the file of this name that a replica has.
fn is_wanted(name: &str) -> bool {
    let within = |folder: &str| name.strip_prefix(folder).and_then(|name| name.strip_prefix('/'));
    let is_segment = within(SEGMENTS).is_some_and(|name| segment_of_file(name).is_some());
    let is_statistics = within(STATISTICS).is_some_and(|number| number.parse::<u32>().is_ok());
    name == USERS || is_segment || is_statistics
}

/// How far the replica with this stamp, with this `last` commit, goes, in words, for the person who decides whether to
/// accept it.
fn reach(stamp: &Stamp, last: (u64, Option<i64>)) -> String {
    let (commit, time_us) = last;
    let of = time_us.map(|time_us| format!(" of {}", moment(time_us))).unwrap_or_default();
    format!(
        "its log replica was written last at {} in epoch {}, goes up to commit {commit}{of}",
        moment(stamp.time_us),
        stamp.epoch
    )
}

/// Whether a failover that was interrupted leaves a file of this name.
fn is_ours(name: &str) -> bool {
    let kept =
        [MARK, "lock", "log", "manifest", "manifest.new", SEGMENTS, SPILLS, STATISTICS, USERS];
    name.starts_with("device-") || kept.contains(&name)
}
