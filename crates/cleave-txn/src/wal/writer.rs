//! Appends to the log, and makes one sync for all that wait (group commit).
//!
//! 1. [`Wal::append`] copies the record into memory and gives it its place. Space for it is allocated on the media
//!    first, or it is refused ([`LogError::Full`]): a record with a place can be written.
//! 2. [`Wal::wait_durable`]: the first waiter *leads*: it writes and syncs all records appended by then. Later ones
//!    wait for the next sync, which one of them leads. A thread waits at most for the sync under way and the one after
//!    it, and never for a timer. [`Wal::durable`] is the same to `await`: a thread of the log leads for tasks, which
//!    must not block.
//! 3. A segment that is full is synced before the header of the next is written: see [`super::segment`].
//!
//! ```text
//!  append ─▶ pending chunks ──leader takes all──▶ mark + records ──write, sync──▶ durable ─▶ wake all of this
//!               ▲ (memory)                                                        turn, and one of the next
//!               └── appended while the sync is under way: the next turn
//! ```
//!
//! Invariant: one leader at a time. `durable` never passes a byte that was not synced; after a failed write or sync it
//! stands still, and all operations fail. Places are given in the order of calls.
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

/// Unwritten bytes in memory above which an append writes first.
const PENDING_BYTES_MAX: u64 = 8 << 20;
/// How far ahead a segment is filled with zeros: at first, and at most at once.
const RESERVE_BYTES_FIRST: u64 = 64 << 10;
const RESERVE_BYTES_STEP: u64 = 1 << 20;

/// Options of a log.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Bytes of a segment, for new segments.
    pub segment_bytes: u32,
    /// Segments kept for reuse instead of new ones: writing to allocated blocks saves the file system's journal.
    pub spare_segment_count: usize,
    /// Bytes reserved for [`Wal::append_urgent`]; 0: none.
    pub reserve_bytes: u32,
    /// Folder to which segments are copied before they are removed or reused, for point-in-time recovery.
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

/// The place of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Its first byte; for a split record, that of its last piece.
    pub at: Lsn,
    /// Its end, to wait for.
    pub end: Lsn,
}

/// Counters of a log since it was opened.
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
    /// Leads for tasks that `await`; started by the first.
    thread: Mutex<Option<JoinHandle<()>>>,
}

pub(crate) struct Shared {
    pub(crate) directory: PathBuf,
    pub(crate) options: LogOptions,
    identity: [u8; 16],
    seed: Seed,
    state: Mutex<WriterInner>,
    /// Threads that wait for the sync of an even turn, and of an odd one.
    turns: [Condvar; 2],
    /// The log's own thread.
    asked: Condvar,
}

pub(crate) struct WriterInner {
    /// Appended and not yet taken by a leader; each of one segment.
    pending: Vec<Chunk>,
    pending_bytes: u64,
    tail: Tail,
    progress: Progress,
    /// Transactions with parts and no end yet: the place of the first part, and their bytes.
    open: BTreeMap<TransactionId, (Lsn, u64)>,
    /// Whether the log has its record of being opened; the first append writes it, so that opening needs no space.
    has_opened: bool,
    /// Wakers of tasks that `await`, by number.
    wakers: BTreeMap<u64, (Lsn, Waker)>,
    waker_number: u64,
    /// Threads that block for the sync of an even turn, and of an odd one: a wake-up is a system call, which is saved
    /// if there are none.
    blocked: [usize; 2],
    is_closing: bool,
    pub(crate) figures: LogFigures,
    pub(crate) spares: Spares,
    pub(crate) reserve: Reserve,
    /// See [`LogOptions::archive`].
    pub(crate) archive: Option<PathBuf>,
    /// The archive has everything before it.
    pub(crate) archived_end: Lsn,
}

/// The place of the next record.
#[derive(Clone)]
struct Tail {
    file: Arc<SegmentFile>,
    header: SegmentHeader,
    position: Lsn,
    /// Allocated bytes of the file: writing there needs no space.
    reserved: u64,
    /// Whether the segment's header is not written yet.
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
    /// The header to write first, once all before is durable.
    begins: Option<SegmentHeader>,
}

impl Wal {
    /// Makes a new log in `directory`, which is made if it is missing; an existing log there is removed. The first
    /// record will lie behind `start`.
    ///
    /// # Errors
    /// Errors of making the files.
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

    /// Continues the log that `reader` has read, behind its last record; records that the reader has not returned yet
    /// are skipped.
    ///
    /// The last group of records is rewritten, with zeros behind it to the end of the file. If a sync of the process
    /// before had failed, the system has these bytes in its cache, takes them for stored, and a sync alone would not
    /// store them: after a loss of power the log would have a hole, with records behind it that prove that there was
    /// something. Earlier groups are proven by the mark of the last one.
    ///
    /// # Errors
    /// Errors of [`LogReader::next_record`], and of preparing the file.
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
        // Leftovers of a crash behind the end would verify if a record ended just before them.
        if let Some(behind) = bytes.get_mut(end..) {
            behind.fill(0);
        }
        writer
            .write_at(unproven as u64, bytes.get(unproven..).unwrap_or_default())
            .and_then(|()| writer.sync())
            .map_err(LogError::io("write", &path))?;
        // The name of the newest segment may not be durable either.
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
        let state = WriterInner {
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

    /// [`Wal::append`] for records that free space, or say that it was freed: on a full disk it uses the reserved space
    /// ([`LogOptions::reserve_bytes`]).
    ///
    /// # Errors
    /// As [`Wal::append`].
    pub fn append_urgent(&self, record: Record<&[u8]>) -> Result<Appended, LogError> {
        self.put(record.kind(), record.transaction(), record.payload(), true)
    }

    /// Appends a part of a transaction's changes before it commits, so that a large one need not be kept in memory: the
    /// reader returns its parts and the commit's payload as one, or nothing.
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

    /// Makes the parts of a transaction void. Not needed for one without parts, nor for one that a crash ends.
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

    /// Waits until everything before `end` is durable; leads the sync itself if no other thread does.
    ///
    /// # Errors
    /// [`LogError::Failed`]: whether it is durable is not known until the log is read again.
    pub fn wait_durable(&self, end: Lsn) -> Result<(), LogError> {
        self.shared.wait_durable(end)
    }

    /// [`Wal::wait_durable`] for tasks, which must not block; dropping it is harmless. In a simulation it syncs when
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

    /// The end of everything appended.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.shared.state().tail.position
    }

    /// Everything before it is durable.
    #[must_use]
    pub fn durable_end(&self) -> Lsn {
        self.shared.state().progress.durable()
    }

    /// The place where recovery must start to read, for a checkpoint of everything that is committed *before* this
    /// call: the end, or the first part of a transaction that is not committed yet. Wait until it is durable before a
    /// manifest names it.
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

    /// The log's counters.
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
        // Remaining waiters lead for themselves.
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
    pub(crate) fn state(&self) -> MutexGuard<'_, WriterInner> {
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

    /// Writes and syncs all pending records.
    fn lead<'a>(&'a self, mut state: MutexGuard<'a, WriterInner>) -> MutexGuard<'a, WriterInner> {
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

    /// Writes chunks in order; all earlier bytes are durable before the first chunk of a segment.
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

    /// The main function of the log's own thread.
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

impl WriterInner {
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

    /// The places of the first piece, and of the last.
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

    /// Bytes of the mark that the next record needs before it: none if records of its segment are pending.
    fn mark_bytes(&self) -> u64 {
        let last = self.pending.last().map(|chunk| chunk.start);
        if last == Some(self.tail.header.start) { 0 } else { MARK_BYTES as u64 }
    }

    /// Starts a new segment.
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
    /// Allocates so many more bytes on the media.
    fn reserve(&mut self, byte_count: u64) -> Result<(), LogError> {
        let needed = self.position.0 - self.header.start.0 + byte_count;
        if needed <= self.reserved {
            return Ok(());
        }
        let step = self.reserved.clamp(RESERVE_BYTES_FIRST, RESERVE_BYTES_STEP);
        let ahead = (self.reserved + step).max(needed).min(u64::from(self.header.capacity));
        if self.fill(ahead).is_err() {
            // There may be room for this one.
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
    /// The number of its waker.
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
