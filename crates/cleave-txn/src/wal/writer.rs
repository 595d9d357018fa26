//! Appending to the log, and one sync for all that wait.
//!
//! 1. [`Wal::append`] takes a copy of the record into memory and gives it its place. Room for it is already made on the
//!    media, or it is refused ([`LogError::Full`]): what has a place can be written.
//! 2. [`Wal::wait_durable`]: the first who waits *leads*: it writes and syncs all that was appended by then. Who comes
//!    meanwhile waits for the next sync, which one of them leads. Nobody waits longer than for the sync under way and
//!    the one after it, and nothing waits for time to pass. [`Wal::durable`] is the same to `await`: a thread of the
//!    log's own leads for those who must not block.
//! 3. A segment that is full is synced before the header of the next is written: see [`super::segment`].
//!
//! ```text
//!  append ─▶ pending chunks ──leader takes all──▶ mark + records ──write, sync──▶ durable ─▶ wake all of this turn,
//!               ▲ (memory)                                                                  and one of the next
//!               └── appended while the sync is under way: the next turn
//! ```
//!
//! Invariant: one leader at a time. `durable` never passes a byte that was not synced; after a write or sync that
//! failed it stands still, and all fails. Places are given in the order of calls.
//! Source: rules 25 and 27.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;

use cleave_media::files::{self, FileWriter};
use cleave_media::{Clock, SystemClock, random_bytes, simulation};

use super::LogError;
use super::progress::{Next, Progress};
use super::reader::{LogReader, TRANSACTION_BYTES_MAX};
use super::record::{
    Kind, Lsn, MARK_BYTES, PAYLOAD_BYTES_MAX, Record, Seed, encode, mark, record_bytes,
};
use super::reserve::Reserve;
use super::retention::Spares;
use super::segment::{
    CAPACITY_MAX, CAPACITY_MIN, SEGMENT_HEADER_BYTES, SegmentHeader, list_segments, segment_path,
};
use crate::transaction::TransactionId;

/// Bytes in memory that are not written yet, above which whoever appends writes first.
const PENDING_BYTES_MAX: u64 = 8 << 20;
/// How far ahead a segment is filled with zeros: at first, and at most at once.
const RESERVE_BYTES_FIRST: u64 = 64 << 10;
const RESERVE_BYTES_STEP: u64 = 1 << 20;

/// How a log is kept.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Bytes of a segment, for segments made from now on.
    pub segment_bytes: u32,
    /// Segments kept to be used again, instead of new ones: writing where blocks exist spares the file system's
    /// journal.
    pub spare_segment_count: usize,
    /// Bytes put aside for [`Wal::append_urgent`]; 0: none.
    pub reserve_bytes: u32,
    /// Where segments are copied to before they are removed or used again, for recovery to a point in time.
    pub archive: Option<PathBuf>,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 16 << 20,
            spare_segment_count: 2,
            reserve_bytes: 256 << 10,
            archive: None,
        }
    }
}

/// Where a record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Its first byte; of a record that was divided, of its last piece.
    pub at: Lsn,
    /// The place behind it, to wait for.
    pub end: Lsn,
}

/// What a log has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogFigures {
    /// Records appended, pieces and marks not counted.
    pub record_count: u64,
    /// Bytes written, without zeros.
    pub bytes_written: u64,
    /// Syncs made to make records durable.
    pub sync_count: u64,
}

/// The log, open for appending. See the module's description.
pub struct Wal {
    pub(crate) shared: Arc<Shared>,
    /// Leads for those who `await`; started by the first.
    thread: Mutex<Option<JoinHandle<()>>>,
}

pub(crate) struct Shared {
    pub(crate) directory: PathBuf,
    pub(crate) options: LogOptions,
    identity: [u8; 16],
    seed: Seed,
    state: Mutex<State>,
    /// Those who wait for the sync of an even turn, and of an odd one.
    turns: [Condvar; 2],
    /// The log's own thread.
    asked: Condvar,
}

pub(crate) struct State {
    /// Appended and not yet taken by a leader; each of one segment.
    pending: Vec<Chunk>,
    pending_bytes: u64,
    tail: Tail,
    progress: Progress,
    /// Transactions with parts and no end yet: where the first lies, and their bytes.
    open: BTreeMap<TransactionId, (Lsn, u64)>,
    /// Whether the log says that it was opened; the first record says it before, so that incarnation needs no space.
    has_opened: bool,
    /// Those who `await`, by a number of their own.
    wakers: BTreeMap<u64, (Lsn, Waker)>,
    waker_number: u64,
    /// Who blocks for the sync of an even turn, and of an odd one: nobody is woken, which asks the system, who is not
    /// there.
    blocked: [usize; 2],
    is_closing: bool,
    pub(crate) figures: LogFigures,
    pub(crate) spares: Spares,
    pub(crate) reserve: Reserve,
    /// See [`LogOptions::archive`].
    pub(crate) archive: Option<PathBuf>,
    /// Everything before it is in the archive.
    pub(crate) archived_end: Lsn,
}

/// Where the next record goes.
#[derive(Clone)]
struct Tail {
    file: Arc<SegmentFile>,
    header: SegmentHeader,
    position: Lsn,
    /// Bytes of the file that exist, so that writing there needs no space.
    reserved: u64,
    /// Whether the segment's header is still to be written.
    is_new: bool,
}

#[derive(Debug)]
struct SegmentFile {
    path: PathBuf,
    writer: Box<dyn FileWriter>,
}

struct Chunk {
    file: Arc<SegmentFile>,
    start: Lsn,
    at: Lsn,
    /// Room for the mark, then records.
    bytes: Vec<u8>,
    /// The header to write before, once all before is durable.
    begins: Option<SegmentHeader>,
}

impl Wal {
    /// Makes a new log in `directory`, which is made if it is not there; whatever log lies there is removed. The first
    /// record will lie behind `start`.
    ///
    /// # Errors
    /// What making the files says.
    pub fn create(directory: &Path, start: Lsn, options: LogOptions) -> Result<Self, LogError> {
        files::create_directories(directory).map_err(LogError::io("create", directory))?;
        for old in list_segments(directory)? {
            let path = segment_path(directory, old);
            files::remove(&path).map_err(LogError::io("remove", &path))?;
        }
        let identity = random_bytes().map_err(|error| LogError::Io {
            action: "draw the identity of",
            path: directory.to_owned(),
            source: io::Error::other(error),
        })?;
        let header = SegmentHeader {
            capacity: capacity(&options),
            identity,
            start,
            continues_from: start,
            made_at: SystemClock.wall(),
        };
        let path = segment_path(directory, start);
        let writer = files::create(&path).map_err(LogError::io("create", &path))?;
        let encoded = header.encode();
        writer
            .write_at(0, &encoded)
            .and_then(|()| writer.sync())
            .map_err(LogError::io("write", &path))?;
        files::sync_directory(directory).map_err(LogError::io("sync", directory))?;
        let tail = Tail {
            file: Arc::new(SegmentFile { path, writer }),
            header,
            position: Lsn(start.0 + SEGMENT_HEADER_BYTES as u64),
            reserved: encoded.len() as u64,
            is_new: false,
        };
        Self::begin(directory, tail, options, true)
    }

    /// Goes on with the log that `reader` has read, behind its last record; what the reader has not given yet is passed
    /// over.
    ///
    /// The last group of records is written again, and zeros behind it to the end of the file. Where a sync of the
    /// process before had failed, the system has these bytes in its cache, takes them for stored, and would store
    /// nothing of them with a sync alone: after a loss of power the log would have a hole, with records behind it that
    /// prove that there was something. Earlier groups are proven by the mark of the last one.
    ///
    /// # Errors
    /// Those of [`LogReader::next_record`], and what preparing the file says.
    pub fn resume(mut reader: LogReader, options: LogOptions) -> Result<Self, LogError> {
        while reader.next_record()?.is_some() {}
        let (directory, header) = (reader.directory().to_owned(), reader.segment.header);
        for start in list_segments(&directory)?.into_iter().filter(|start| *start > header.start) {
            let path = segment_path(&directory, start);
            files::remove(&path).map_err(LogError::io("remove", &path))?;
        }
        let path = segment_path(&directory, header.start);
        let writer = files::open(&path).map_err(LogError::io("open", &path))?;
        let (unproven, position) = (reader.unproven_offset(), reader.position);
        let end = usize::try_from(position.0 - header.start.0).unwrap_or(usize::MAX);
        let bytes = &mut reader.segment.bytes;
        // What a crash left behind the end would verify where a record ends just before it.
        if let Some(behind) = bytes.get_mut(end..) {
            behind.fill(0);
        }
        writer
            .write_at(unproven as u64, bytes.get(unproven..).unwrap_or_default())
            .and_then(|()| writer.sync())
            .map_err(LogError::io("write", &path))?;
        // The name of a segment that was begun last may not be durable either.
        files::sync_directory(&directory).map_err(LogError::io("sync", &directory))?;
        let tail = Tail {
            file: Arc::new(SegmentFile { path, writer }),
            header,
            position,
            reserved: bytes.len() as u64,
            is_new: false,
        };
        Self::begin(&directory, tail, options, false)
    }

    fn begin(
        directory: &Path,
        tail: Tail,
        options: LogOptions,
        has_opened: bool,
    ) -> Result<Self, LogError> {
        let identity = tail.header.identity;
        let state = State {
            pending: Vec::new(),
            pending_bytes: 0,
            progress: Progress::new(tail.position),
            tail,
            open: BTreeMap::new(),
            has_opened,
            wakers: BTreeMap::new(),
            waker_number: 0,
            blocked: [0; 2],
            is_closing: false,
            figures: LogFigures::default(),
            spares: Spares::find(directory)?,
            reserve: Reserve::find(directory, &options),
            archive: options.archive.clone(),
            archived_end: Lsn(0),
        };
        let shared = Shared {
            directory: directory.to_owned(),
            options,
            identity,
            seed: Seed::new(&identity),
            state: Mutex::new(state),
            turns: [Condvar::new(), Condvar::new()],
            asked: Condvar::new(),
        };
        Ok(Self { shared: Arc::new(shared), thread: Mutex::new(None) })
    }

    /// Appends a record; it is durable once [`Wal::wait_durable`] of its end says so. The parts of the transaction
    /// ([`Wal::append_part`]) become part of its commit.
    ///
    /// # Errors
    /// [`LogError::Full`] and [`LogError::TooLarge`]: nothing was appended. [`LogError::Failed`].
    pub fn append(&self, record: Record<&[u8]>) -> Result<Appended, LogError> {
        self.put(record.kind(), record.transaction(), record.payload(), false)
    }

    /// [`Wal::append`] for what makes room, or records that it was made: on a full disk it takes the space that was put
    /// aside ([`LogOptions::reserve_bytes`]).
    ///
    /// # Errors
    /// As [`Wal::append`].
    pub fn append_urgent(&self, record: Record<&[u8]>) -> Result<Appended, LogError> {
        self.put(record.kind(), record.transaction(), record.payload(), true)
    }

    /// Appends some of what a transaction does before it commits, so that a large one need not be kept in memory:
    /// the reader gives its parts and the commit's payload as one, or nothing.
    ///
    /// # Errors
    /// As [`Wal::append`].
    pub fn append_part(
        &self,
        transaction: TransactionId,
        payload: &[u8],
    ) -> Result<Appended, LogError> {
        self.put(Kind::Part, transaction, payload, false)
    }

    /// Makes the parts of a transaction void. Not needed for one that has none, nor for one that a crash ends.
    ///
    /// # Errors
    /// As [`Wal::append`]; the parts are void all the same once the log is opened anew.
    pub fn abort(&self, transaction: TransactionId) -> Result<(), LogError> {
        let has_parts = self.shared.state().open.contains_key(&transaction);
        if has_parts {
            self.put(Kind::Abort, transaction, &[], false)?;
        }
        Ok(())
    }

    /// Waits until everything before `end` is durable; leads the sync itself where nobody does.
    ///
    /// # Errors
    /// [`LogError::Failed`]: whether it is durable is not known until the log is read again.
    pub fn wait_durable(&self, end: Lsn) -> Result<(), LogError> {
        self.shared.wait_durable(end)
    }

    /// [`Wal::wait_durable`] for those who must not block; dropping it is harmless. In a simulation it syncs when
    /// polled.
    #[must_use]
    pub fn durable(&self, end: Lsn) -> Durable {
        let is_led = simulation::is_active() || self.start_thread().is_err();
        Durable { shared: Arc::clone(&self.shared), end, number: None, is_led }
    }

    /// Makes everything appended so far durable.
    ///
    /// # Errors
    /// As [`Wal::wait_durable`].
    pub fn flush(&self) -> Result<(), LogError> {
        self.wait_durable(self.end())
    }

    /// The place behind everything appended.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.shared.state().tail.position
    }

    /// Everything before it is durable.
    #[must_use]
    pub fn durable_end(&self) -> Lsn {
        self.shared.state().progress.durable()
    }

    /// Where recovery must begin to read, for a checkpoint of everything that is committed *before* this call: the end,
    /// or the first part of a transaction that is not committed yet. Wait until it is durable before a manifest names
    /// it.
    #[must_use]
    pub fn resume_from(&self) -> Lsn {
        let state = self.shared.state();
        let parts = state.open.values().map(|(first, _)| *first);
        parts.fold(state.tail.position, Lsn::min)
    }

    /// Whether a write or sync failed: nothing more will be durable.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.shared.state().progress.failure().is_some()
    }

    /// The log's identity.
    #[must_use]
    pub fn identity(&self) -> [u8; 16] {
        self.shared.identity
    }

    /// What the log has done.
    #[must_use]
    pub fn figures(&self) -> LogFigures {
        self.shared.state().figures
    }

    fn put(
        &self,
        kind: Kind,
        transaction: TransactionId,
        payload: &[u8],
        is_urgent: bool,
    ) -> Result<Appended, LogError> {
        let piece_bytes = piece_bytes(&self.shared.options);
        let pieces: Vec<(&[u8], u32)> = if payload.len() <= piece_bytes {
            vec![(payload, crc32c::crc32c(payload))]
        } else {
            payload.chunks(piece_bytes).map(|piece| (piece, crc32c::crc32c(piece))).collect()
        };
        let mut state = self.shared.state();
        if state.pending_bytes > PENDING_BYTES_MAX {
            let end = state.tail.position;
            drop(state);
            self.shared.wait_durable(end)?;
            state = self.shared.state();
        }
        if let Some(reason) = state.progress.failure() {
            return Err(LogError::Failed { reason: reason.to_owned() });
        }
        match state.put(&self.shared, kind, transaction, &pieces) {
            Err(LogError::Full { .. }) if is_urgent && state.reserve.release() => {
                state.put(&self.shared, kind, transaction, &pieces)
            }
            outcome => outcome,
        }
    }

    /// Starts the log's own thread, if it does not run.
    fn start_thread(&self) -> io::Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name("cleave-log".to_owned());
            *thread = Some(builder.spawn(move || shared.lead_for_others())?);
        }
        Ok(())
    }
}

impl Drop for Wal {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.is_closing = true;
        // Who still waits leads for itself.
        let waiting = std::mem::take(&mut state.wakers);
        drop(state);
        self.shared.asked.notify_all();
        waiting.into_values().for_each(|(_, waker)| waker.wake());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            drop(thread.join());
        }
    }
}

impl fmt::Debug for Wal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Wal");
        debug.field("directory", &self.shared.directory).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_durable(&self, end: Lsn) -> Result<(), LogError> {
        let mut state = self.state();
        let end = end.min(state.tail.position);
        loop {
            state = match state.progress.next(end) {
                Next::Durable => return Ok(()),
                Next::Failed(reason) => return Err(LogError::Failed { reason }),
                Next::Lead => self.lead(state),
                Next::Wait { turn } => {
                    *state.blocked(turn) += 1;
                    state = self.turn(turn).wait(state).unwrap_or_else(PoisonError::into_inner);
                    *state.blocked(turn) -= 1;
                    state
                }
            };
        }
    }

    fn turn(&self, turn: u64) -> &Condvar {
        let [even, odd] = &self.turns;
        if turn.is_multiple_of(2) { even } else { odd }
    }

    /// Writes and syncs all that is pending.
    fn lead<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let end = state.tail.position;
        state.progress.begin(end);
        state.pending_bytes = 0;
        let chunks = std::mem::take(&mut state.pending);
        let durable = state.progress.durable();
        drop(state);

        let outcome = self.write(chunks, durable);

        let mut state = self.state();
        if let Ok(done) = &outcome {
            state.figures.bytes_written += done.bytes_written;
            state.figures.sync_count += done.sync_count;
        }
        let outcome = outcome.map(drop).map_err(|error| error.to_string());
        let wake = state.progress.finish(outcome);
        let (durable, failed) = (state.progress.durable(), state.progress.failure().is_some());
        let ready = state.wakers.extract_if(.., |_, (end, _)| failed || *end <= durable);
        let ready: Vec<Waker> = ready.map(|(_, (_, waker))| waker).collect();
        if *state.blocked(wake.ended) > 0 {
            self.turn(wake.ended).notify_all();
        }
        if *state.blocked(wake.next) > 0 {
            if wake.all_of_next {
                self.turn(wake.next).notify_all();
            } else {
                self.turn(wake.next).notify_one();
            }
        }
        if wake.thread {
            self.asked.notify_one();
        }
        ready.into_iter().for_each(Waker::wake);
        state
    }

    /// Writes chunks in order; before the first of a segment all that came before is durable.
    fn write(&self, chunks: Vec<Chunk>, mut durable: Lsn) -> Result<LogFigures, LogError> {
        let mut done = LogFigures::default();
        for mut chunk in chunks {
            let io = |action| LogError::io(action, &chunk.file.path);
            if let Some(header) = chunk.begins {
                let header = header.encode();
                chunk.file.writer.write_at(0, &header).map_err(io("write"))?;
                done.bytes_written += header.len() as u64;
            }
            let mark = mark(self.seed, chunk.at, durable);
            if let Some(room) = chunk.bytes.first_chunk_mut::<MARK_BYTES>() {
                room.copy_from_slice(&mark);
            }
            let offset = chunk.at.0 - chunk.start.0;
            chunk.file.writer.write_at(offset, &chunk.bytes).map_err(io("write"))?;
            chunk.file.writer.sync().map_err(io("sync"))?;
            if chunk.begins.is_some() {
                let directory = &self.directory;
                files::sync_directory(directory).map_err(LogError::io("sync", directory))?;
            }
            done.bytes_written += chunk.bytes.len() as u64;
            done.sync_count += 1;
            durable = Lsn(chunk.at.0 + chunk.bytes.len() as u64);
        }
        Ok(done)
    }

    /// What the log's own thread does.
    fn lead_for_others(&self) {
        let mut state = self.state();
        while !state.is_closing {
            state = if state.progress.is_asked() {
                self.lead(state)
            } else {
                self.asked.wait(state).unwrap_or_else(PoisonError::into_inner)
            };
        }
    }
}

impl State {
    fn blocked(&mut self, turn: u64) -> &mut usize {
        let [even, odd] = &mut self.blocked;
        if turn.is_multiple_of(2) { even } else { odd }
    }

    /// Appends the pieces of a record, all of them or none.
    fn put(
        &mut self,
        shared: &Shared,
        kind: Kind,
        transaction: TransactionId,
        pieces: &[(&[u8], u32)],
    ) -> Result<Appended, LogError> {
        let byte_count: u64 = pieces.iter().map(|(piece, _)| piece.len() as u64).sum();
        let open = self.open.get(&transaction).copied();
        let total = open.map_or(0, |(_, bytes)| bytes).saturating_add(byte_count);
        if total > TRANSACTION_BYTES_MAX {
            let byte_count_max = TRANSACTION_BYTES_MAX;
            return Err(LogError::TooLarge { byte_count: total, byte_count_max });
        }
        let before = (self.tail.clone(), self.pending.len(), self.pending_bytes);
        let last_bytes = self.pending.last().map_or(0, |chunk| chunk.bytes.len());
        let (first, appended) = match self.put_pieces(shared, (kind, transaction), pieces) {
            Ok(places) => places,
            Err(error) => {
                let chunk_count;
                (self.tail, chunk_count, self.pending_bytes) = before;
                self.pending.truncate(chunk_count);
                if let Some(chunk) = self.pending.last_mut() {
                    chunk.bytes.truncate(last_bytes);
                }
                return Err(error);
            }
        };
        self.has_opened = true;
        match kind {
            Kind::Part => {
                let first = open.map_or(first, |(first, _)| first);
                self.open.insert(transaction, (first, total));
            }
            Kind::Commit | Kind::Abort => {
                self.open.remove(&transaction);
            }
            Kind::Mark | Kind::Opened | Kind::Checkpoint | Kind::Note => {}
        }
        self.figures.record_count += 1;
        Ok(appended)
    }

    /// Where the first piece lies, and the last.
    fn put_pieces(
        &mut self,
        shared: &Shared,
        (kind, transaction): (Kind, TransactionId),
        pieces: &[(&[u8], u32)],
    ) -> Result<(Lsn, Appended), LogError> {
        if !self.has_opened {
            let payload: &[u8] = &[];
            let what = (Kind::Opened, TransactionId::NONE);
            self.put_piece(shared, what, (payload, crc32c::crc32c(payload)))?;
        }
        let mut first = None;
        let mut appended = Appended { at: self.tail.position, end: self.tail.position };
        for (index, piece) in pieces.iter().enumerate() {
            let kind = if index + 1 < pieces.len() { Kind::Part } else { kind };
            appended = self.put_piece(shared, (kind, transaction), *piece)?;
            first.get_or_insert(appended.at);
        }
        Ok((first.unwrap_or(appended.at), appended))
    }

    fn put_piece(
        &mut self,
        shared: &Shared,
        what: (Kind, TransactionId),
        (payload, checksum): (&[u8], u32),
    ) -> Result<Appended, LogError> {
        let byte_count = record_bytes(payload.len()) as u64;
        if self.tail.position.0 + self.mark_bytes() + byte_count > self.tail.header.end().0 {
            self.begin_segment(shared)?;
        }
        let needed = self.mark_bytes() + byte_count;
        self.tail.reserve(needed)?;
        let is_new_chunk = self.mark_bytes() > 0;
        let tail = &mut self.tail;
        if is_new_chunk {
            self.pending.push(Chunk {
                file: Arc::clone(&tail.file),
                start: tail.header.start,
                at: tail.position,
                bytes: vec![0; MARK_BYTES],
                begins: std::mem::take(&mut tail.is_new).then_some(tail.header),
            });
            tail.position.0 += MARK_BYTES as u64;
        }
        let at = tail.position;
        if let Some(chunk) = self.pending.last_mut() {
            encode(&mut chunk.bytes, shared.seed, at, what, (payload, checksum));
        }
        tail.position.0 += byte_count;
        self.pending_bytes += needed;
        Ok(Appended { at, end: tail.position })
    }

    /// Bytes of the mark that the next record needs before it: none where records of its segment are pending.
    fn mark_bytes(&self) -> u64 {
        let last = self.pending.last().map(|chunk| chunk.start);
        if last == Some(self.tail.header.start) { 0 } else { MARK_BYTES as u64 }
    }

    /// Goes on in a new segment.
    fn begin_segment(&mut self, shared: &Shared) -> Result<(), LogError> {
        let header = SegmentHeader {
            capacity: capacity(&shared.options),
            identity: shared.identity,
            start: self.tail.header.end(),
            continues_from: self.tail.position,
            made_at: SystemClock.wall(),
        };
        let path = segment_path(&shared.directory, header.start);
        let (writer, reserved) = self.spares.take_as(&path, header.capacity)?;
        self.tail = Tail {
            file: Arc::new(SegmentFile { path, writer }),
            header,
            position: Lsn(header.start.0 + SEGMENT_HEADER_BYTES as u64),
            reserved,
            is_new: true,
        };
        Ok(())
    }
}

impl Tail {
    /// Makes room for so many more bytes on the media.
    fn reserve(&mut self, byte_count: u64) -> Result<(), LogError> {
        let needed = self.position.0 - self.header.start.0 + byte_count;
        if needed <= self.reserved {
            return Ok(());
        }
        let step = self.reserved.clamp(RESERVE_BYTES_FIRST, RESERVE_BYTES_STEP);
        let ahead = (self.reserved + step).max(needed).min(u64::from(self.header.capacity));
        if self.fill(ahead).is_err() {
            // Perhaps there is room for this one.
            self.fill(needed).map_err(|source| match source.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                    LogError::Full { path: self.file.path.clone(), byte_count, source }
                }
                _ => LogError::io("grow", &self.file.path)(source),
            })?;
        }
        Ok(())
    }

    fn fill(&mut self, end: u64) -> io::Result<()> {
        let missing = usize::try_from(end - self.reserved).unwrap_or(0);
        self.file.writer.write_at(self.reserved, &vec![0; missing])?;
        self.reserved = end;
        Ok(())
    }
}

/// Resolves once a place in the log is durable: [`Wal::durable`].
pub struct Durable {
    shared: Arc<Shared>,
    end: Lsn,
    /// Under which its waker is remembered.
    number: Option<u64>,
    /// Whether it syncs itself when polled.
    is_led: bool,
}

impl Future for Durable {
    type Output = Result<(), LogError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.is_led {
            return Poll::Ready(self.shared.wait_durable(self.end));
        }
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        let end = self.end.min(state.tail.position);
        match state.progress.next(end) {
            Next::Durable => return Poll::Ready(Ok(())),
            Next::Failed(reason) => return Poll::Ready(Err(LogError::Failed { reason })),
            Next::Lead | Next::Wait { .. } => {}
        }
        if state.is_closing {
            drop(state);
            return Poll::Ready(self.shared.wait_durable(self.end));
        }
        let number = *self.number.get_or_insert_with(|| {
            state.waker_number += 1;
            state.waker_number
        });
        state.wakers.insert(number, (end, context.waker().clone()));
        if state.progress.want(end) {
            shared.asked.notify_one();
        }
        Poll::Pending
    }
}

impl Drop for Durable {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.shared.state().wakers.remove(&number);
        }
    }
}

impl fmt::Debug for Durable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Durable").field("end", &self.end).finish_non_exhaustive()
    }
}

fn capacity(options: &LogOptions) -> u32 {
    options.segment_bytes.clamp(CAPACITY_MIN, CAPACITY_MAX) & !7
}

/// Payload bytes of one record, so that a segment holds several.
fn piece_bytes(options: &LogOptions) -> usize {
    PAYLOAD_BYTES_MAX.min(capacity(options) as usize / 4)
}
