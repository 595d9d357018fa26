//! Messages of the protocol, in both directions, and what a connection still owes.
//!
//! Input is read into a buffer, and taken from it message by message; output is gathered in a buffer and sent from it.
//! So a future that is dropped at an await leaves whole messages behind, and the connection goes on.
//!
//! Invariants: memory grows with the bytes that have come, not with the length that a message claims, and up to a
//! limit. After a broken message the connection is not used again. [`Connection::owed`] counts the ReadyForQuery
//! messages that are still to come; [`Connection::settle`] skips up to the last of them.
#![expect(clippy::big_endian_bytes, reason = "the protocol's numbers are in network order")]

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWrite};

use crate::error::{ClientError, ServerError};
use crate::transport::Stream;

/// Bytes that are asked for at a time.
const READ_BYTES: usize = 64 << 10;
/// Bytes that are read while others are sent, at most.
const AHEAD_BYTES_MAX: usize = 64 << 20;
/// Longest message before the log-in.
const GREETING_BYTES_MAX: usize = 64 << 10;
/// Longest message after it.
const MESSAGE_BYTES_MAX: usize = 1 << 30;
/// Notices that wait to be taken; the oldest ones give way.
const NOTICES_MAX: usize = 1000;
/// Settings that a server may report.
const SETTINGS_MAX: usize = 256;

/// A message of the server: its kind and its body.
pub(crate) type Message = (u8, Bytes);

/// The state of a connection's transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionStatus {
    /// There is no transaction block.
    Idle,
    /// Within a block.
    Active,
    /// Within a block that has failed: it takes nothing but its end.
    Failed,
}

/// What is read of a connection from elsewhere, while a result is read.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    status: AtomicU8,
    said: Mutex<Said>,
}

/// What the server has said of its own accord.
#[derive(Debug, Default)]
struct Said {
    notices: VecDeque<ServerError>,
    settings: BTreeMap<String, String>,
}

impl Shared {
    pub(crate) fn status(&self) -> TransactionStatus {
        match self.status.load(Ordering::Relaxed) {
            b'T' => TransactionStatus::Active,
            b'E' => TransactionStatus::Failed,
            _ => TransactionStatus::Idle,
        }
    }

    pub(crate) fn take_notices(&self) -> Vec<ServerError> {
        std::mem::take(&mut self.said().notices).into()
    }

    pub(crate) fn setting(&self, name: &str) -> Option<String> {
        self.said().settings.get(name).cloned()
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection to a server.
pub(crate) struct Connection {
    stream: Stream,
    input: BytesMut,
    output: BytesMut,
    message_bytes_max: usize,
    /// ReadyForQuery messages that are still to come.
    owed: usize,
    /// Whether there are messages that no Sync follows yet.
    is_within_series: bool,
    /// Whether the server waits for rows of a COPY.
    copies_in: bool,
    is_broken: bool,
    /// Whether the stream blocks this thread.
    is_blocking: bool,
    shared: Arc<Shared>,
}

impl Connection {
    pub(crate) fn new(stream: Stream, shared: Arc<Shared>) -> Self {
        Self {
            stream,
            input: BytesMut::new(),
            output: BytesMut::new(),
            message_bytes_max: GREETING_BYTES_MAX,
            owed: 0,
            is_within_series: false,
            copies_in: false,
            is_broken: false,
            is_blocking: false,
            shared,
        }
    }

    /// The server will say that it is ready without being asked.
    pub(crate) fn expect_ready(&mut self) {
        self.owed += 1;
    }

    /// Takes long messages from now on: the server has authenticated the user.
    pub(crate) fn trust(&mut self) {
        self.message_bytes_max = MESSAGE_BYTES_MAX;
    }

    /// Its stream blocks: no message is looked for before it must come.
    pub(crate) fn set_blocking(&mut self) {
        self.is_blocking = true;
    }

    /// Whether its stream blocks, so that nothing is read while something is sent.
    pub(crate) fn is_blocking(&self) -> bool {
        self.is_blocking
    }

    /// Whether it is of no more use.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    // ---- output ----------------------------------------------------------------------------------

    /// Appends a message without a kind.
    pub(crate) fn put_opening(&mut self, body: &[u8]) {
        let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
        self.output.put_u32(length);
        self.output.put_slice(body);
    }

    /// Appends a message.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for one that is longer than the protocol has.
    pub(crate) fn put(
        &mut self,
        kind: u8,
        body: impl FnOnce(&mut BytesMut),
    ) -> Result<(), ClientError> {
        let start = self.output.len();
        self.output.put_u8(kind);
        self.output.put_u32(0);
        body(&mut self.output);
        let length = i32::try_from(self.output.len() - start - 1);
        let place = self.output.get_mut(start + 1..start + 5);
        let (Ok(length), Some(place)) = (length, place) else {
            self.output.truncate(start);
            let message = "a statement with its values takes more than 2 GB".to_owned();
            return Err(ClientError::Usage(message));
        };
        place.copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    /// Appends the end of a series of messages; the server answers with ReadyForQuery.
    pub(crate) fn put_sync(&mut self) {
        self.output.put_slice(&[b'S', 0, 0, 0, 4]);
        self.is_within_series = false;
        self.owed += 1;
    }

    /// Begins a series of messages whose answers are read before its end.
    pub(crate) fn begin_series(&mut self) {
        self.is_within_series = true;
    }

    /// Asks for the answers so far of a series that goes on.
    pub(crate) fn put_flush(&mut self) {
        self.output.put_slice(&[b'H', 0, 0, 0, 4]);
    }

    /// Appends a Query; the server answers with ReadyForQuery.
    pub(crate) fn put_query(&mut self, sql: &str) -> Result<(), ClientError> {
        self.put(b'Q', |body| put_text(body, sql))?;
        self.owed += 1;
        Ok(())
    }

    /// Appends the failure of a COPY to the server.
    pub(crate) fn put_copy_fail(&mut self, why: &str) -> Result<(), ClientError> {
        self.copies_in = false;
        let why = why.replace('\0', " ");
        self.put(b'f', |body| put_text(body, &why))
    }

    /// Appends the end of the rows of a COPY.
    pub(crate) fn put_copy_done(&mut self) {
        self.copies_in = false;
        self.output.put_slice(&[b'c', 0, 0, 0, 4]);
    }

    /// Sends what was appended. While the server takes none of it, what has come is read: it may wait for that itself.
    pub(crate) async fn flush(&mut self) -> Result<(), ClientError> {
        let sent = poll_fn(|context| self.poll_sent(context)).await;
        sent.map_err(|why| self.lost(&why))
    }

    fn poll_sent(&mut self, context: &mut Context<'_>) -> Poll<Result<(), String>> {
        loop {
            let stream = Pin::new(&mut self.stream);
            let sent = match self.output.is_empty() {
                true => stream.poll_flush(context).map_ok(|()| None),
                false => stream.poll_write(context, &self.output).map_ok(Some),
            };
            match sent {
                Poll::Ready(Ok(None)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(Some(0))) => {
                    return Poll::Ready(Err("the server takes no more bytes".to_owned()));
                }
                Poll::Ready(Ok(Some(count))) => {
                    self.output.advance(count);
                    continue;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.to_string())),
                Poll::Pending if self.input.len() >= AHEAD_BYTES_MAX => return Poll::Pending,
                Poll::Pending => {}
            }
            self.input.reserve(READ_BYTES);
            match pin!(self.stream.read_buf(&mut self.input)).poll(context) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err("the server closed it".to_owned())),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.to_string())),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    // ---- input -----------------------------------------------------------------------------------

    /// The next message of an answer.
    pub(crate) async fn next(&mut self) -> Result<Message, ClientError> {
        loop {
            if let Some(message) = self.at_hand()? {
                return Ok(message);
            }
            self.fill().await?;
        }
    }

    /// The next message of an answer, if it has come by now; of a stream that blocks, if it has been read.
    pub(crate) fn next_now(&mut self) -> Result<Option<Message>, ClientError> {
        if !self.is_blocking
            && let Some(filled) = self.fill().now_or_never()
        {
            filled?;
        }
        self.at_hand()
    }

    /// The next message of an answer that has been read; notices and settings are noted.
    fn at_hand(&mut self) -> Result<Option<Message>, ClientError> {
        while let Some((kind, body)) = self.framed()? {
            match kind {
                b'N' => {
                    let mut said = self.shared.said();
                    if said.notices.len() >= NOTICES_MAX {
                        said.notices.pop_front();
                    }
                    said.notices.push_back(ServerError::read(&body));
                }
                b'S' => self.note_setting(&body),
                // A notification, which nothing here listens for.
                b'A' => {}
                b'Z' => {
                    let status = match *body {
                        [status @ (b'I' | b'T' | b'E')] => status,
                        _ => return Err(self.broken("ReadyForQuery without a state")),
                    };
                    self.shared.status.store(status, Ordering::Relaxed);
                    self.copies_in = false;
                    self.owed = match self.owed.checked_sub(1) {
                        Some(owed) => owed,
                        None => return Err(self.broken("ReadyForQuery that nothing asked for")),
                    };
                    return Ok(Some((kind, body)));
                }
                b'E' => {
                    self.copies_in = false;
                    return Ok(Some((kind, body)));
                }
                b'G' => {
                    self.copies_in = true;
                    return Ok(Some((kind, body)));
                }
                _ => return Ok(Some((kind, body))),
            }
        }
        Ok(None)
    }

    fn note_setting(&mut self, body: &[u8]) {
        let mut reader = Reader::new(body);
        let (Some(name), Some(value)) = (reader.text(), reader.text()) else { return };
        let mut said = self.shared.said();
        if said.settings.len() < SETTINGS_MAX || said.settings.contains_key(name) {
            said.settings.insert(name.to_owned(), value.to_owned());
        }
    }

    /// The next message, if all of it has been read.
    fn framed(&mut self) -> Result<Option<Message>, ClientError> {
        let Some((&[kind, a, b, c, d], _)) = self.input.split_first_chunk::<5>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        let Some(body) = length.checked_sub(4) else {
            return Err(self.broken("a message that is shorter than its length"));
        };
        if body > self.message_bytes_max {
            return Err(self.broken("a message that is too long"));
        }
        if self.input.len() < body + 5 {
            return Ok(None);
        }
        self.input.advance(5);
        Ok(Some((kind, self.input.split_to(body).freeze())))
    }

    /// Reads more bytes.
    async fn fill(&mut self) -> Result<(), ClientError> {
        if self.is_broken {
            return Err(self.lost("it was closed after an error"));
        }
        self.input.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.input).await {
            Ok(0) => Err(self.lost("the server closed it")),
            Ok(_) => Ok(()),
            Err(error) => Err(self.lost(&error.to_string())),
        }
    }

    /// Whether a part of an earlier answer is still to come.
    pub(crate) fn owes(&self) -> bool {
        self.owed > 0 && !self.is_broken
    }

    /// Skips what is left of earlier answers. Cancel-safe.
    pub(crate) async fn settle(&mut self) -> Result<(), ClientError> {
        if self.is_broken {
            return Err(self.lost("it was closed after an error"));
        }
        if self.copies_in {
            self.put_copy_fail("the client gave it up")?;
        }
        if self.is_within_series {
            // A portal that is not there: its statements are undone, and do not commit with the end of the series.
            self.put(b'E', |body| {
                put_text(body, "given up");
                body.put_u32(0);
            })?;
            self.put_sync();
        }
        // What a dropped future had not sent yet.
        self.flush().await?;
        while self.owed > 0 {
            if let (b'E', body) = self.next().await? {
                // Nobody asks for it any more, unless the connection ends with it.
                let error = self.refused(&body);
                if self.is_broken {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    // ---- errors ----------------------------------------------------------------------------------

    /// The error that the server reports.
    pub(crate) fn refused(&mut self, body: &[u8]) -> ClientError {
        let error = ServerError::read(body);
        self.is_broken |= error.is_fatal();
        ClientError::Server(Box::new(error))
    }

    /// The error that the server reports of a statement, after the rest of its answer has been skipped.
    pub(crate) async fn refusal(&mut self, body: &[u8]) -> ClientError {
        let error = self.refused(body);
        if self.is_broken {
            return error;
        }
        match self.settle().await {
            Ok(()) => error,
            Err(lost) => lost,
        }
    }

    /// Ends a COPY from or to this client that was run as any other statement.
    pub(crate) async fn refuse_copy(&mut self, kind: u8) -> ClientError {
        let statement = match kind {
            b'G' => "COPY FROM STDIN",
            _ => "COPY TO STDOUT",
        };
        // Skips its rows, or tells the server that none will come.
        match self.settle().await {
            Ok(()) => ClientError::CopyWithoutStream(statement),
            Err(lost) => lost,
        }
    }

    /// A breach of the protocol, after which the connection is not used.
    pub(crate) fn broken(&mut self, what: &str) -> ClientError {
        self.is_broken = true;
        ClientError::Protocol(what.to_owned())
    }

    /// A message that has no place in an answer.
    pub(crate) fn unexpected(&mut self, kind: u8) -> ClientError {
        self.broken(&format!("a message of kind '{}' where there is none", kind.escape_ascii()))
    }

    fn lost(&mut self, why: &str) -> ClientError {
        self.is_broken = true;
        ClientError::Lost(why.to_owned())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.is_broken {
            self.output.put_slice(&[b'X', 0, 0, 0, 4]);
            // A server that does not take it at once sees the end of the stream.
            drop(self.flush().now_or_never());
        }
    }
}

/// Appends a text and the zero that ends it.
pub(crate) fn put_text(body: &mut BytesMut, text: &str) {
    body.put_slice(text.as_bytes());
    body.put_u8(0);
}

/// Reads the parts of a message; None where the message is too short.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// All that is left.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*bytes)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    /// The bytes up to the next zero, which is skipped.
    pub(crate) fn until_zero(&mut self) -> Option<&'a [u8]> {
        let length = self.0.iter().position(|byte| *byte == 0)?;
        let bytes = self.bytes(length)?;
        self.byte()?;
        Some(bytes)
    }

    /// A text up to the next zero.
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.until_zero()?).ok()
    }

    /// A value with its length before it; Some(None) is NULL.
    pub(crate) fn sized(&mut self) -> Option<Option<&'a [u8]>> {
        match self.i32()? {
            -1 => Some(None),
            length => self.bytes(usize::try_from(length).ok()?).map(Some),
        }
    }
}

impl ServerError {
    /// Reads the fields of an ErrorResponse or a NoticeResponse; unknown ones are skipped.
    pub(crate) fn read(body: &[u8]) -> Self {
        let mut error = Self { sqlstate: "XX000".to_owned(), ..Self::default() };
        let mut reader = Reader::new(body);
        while let Some(kind) = reader.byte().filter(|kind| *kind != 0) {
            let Some(value) = reader.until_zero() else { break };
            let value = String::from_utf8_lossy(value).into_owned();
            match kind {
                // Not translated, where the server sends it; it comes after the translated one.
                b'S' | b'V' => error.severity = value,
                b'C' => error.sqlstate = value,
                b'M' => error.message = value,
                b'D' => error.detail = Some(value),
                b'H' => error.hint = Some(value),
                b'P' => error.position = value.parse().ok(),
                b'W' => error.context = Some(value),
                b's' => error.schema = Some(value),
                b't' => error.table = Some(value),
                b'c' => error.column = Some(value),
                b'n' => error.constraint = Some(value),
                _ => {}
            }
        }
        error
    }
}
