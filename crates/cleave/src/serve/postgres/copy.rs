//! COPY over the wire: passes CopyData messages to the COPY that reads them, and a COPY's output to CopyData messages.
//!
//! ```text
//!  client ─ CopyData ─▶ this task ─ channel ─▶ ClientInput ─▶ the COPY's threads
//!  client ◀─ CopyData ─ this task ◀─ channel ─ ClientOutput ◀─ the COPY's threads
//! ```
//!
//! Invariant: at most [`WAITING`] pieces wait in either direction. A message to a client is one record, as client
//! libraries expect.

use std::future::Future;
use std::io::{self, Read, Write};

use bytes::{Buf, Bytes, BytesMut};
use cleave_host::commitment::unless;
use cleave_host::copy::CopyFormat;
use cleave_host::statement::parse::DeviceStatement;
use cleave_host::statement::{Copy, CopyEnd, CopySource, ParsedStatement, Statement};
use cleave_host::{ClientStreams, Session, Started};
use tokio::sync::{mpsc, oneshot};

use super::complaint::Complaint;
use super::interrupt::{Stop, Watch};
use super::message::{Format, Frontend};
use super::reply;
use super::wire::{SEND_BYTES, Wire};

/// Pieces that wait for the next stage.
const WAITING: usize = 8;
/// Bytes that are gathered before they are passed on.
const PIECE_BYTES: usize = 32 << 10;

/// The direction of a COPY over the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the client.
    In(Cut),
    /// To the client.
    Out(Cut),
}

/// How records end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// At line breaks.
    Lines,
    /// At line breaks outside this quote.
    QuotedLines(u8),
    /// By their lengths.
    Binary,
}

impl Cut {
    fn of(format: &CopyFormat) -> Self {
        match format {
            CopyFormat::Csv(options) => Self::QuotedLines(options.quote),
            CopyFormat::Text(_) | CopyFormat::Parquet(_) => Self::Lines,
            CopyFormat::Binary => Self::Binary,
        }
    }

    fn format(self) -> Format {
        if self == Self::Binary { Format::Binary } else { Format::Text }
    }
}

/// The direction of a COPY of the client's streams; None for another statement, or a COPY from or to a file.
pub(crate) fn direction(statement: &Statement) -> Option<Direction> {
    let Statement::Copy(copy) = statement else { return None };
    match copy.as_ref() {
        Copy::From { end: CopyEnd::Client, format, .. } => Some(Direction::In(Cut::of(format))),
        Copy::To { end: CopyEnd::Client, format, .. } => Some(Direction::Out(Cut::of(format))),
        _ => None,
    }
}

/// Whether a statement reads or writes a file on the server's machine.
pub(crate) fn is_of_a_file(statement: &Statement) -> bool {
    match statement {
        Statement::System(_) => true,
        // It reads a token and a certificate, or a backup and a log.
        Statement::Device(statement) => {
            matches!(**statement, DeviceStatement::Create { .. } | DeviceStatement::Rebuild { .. })
        }
        Statement::Copy(copy) => match copy.as_ref() {
            Copy::From { end, .. } | Copy::To { end, .. } => matches!(end, CopyEnd::File(_)),
        },
        _ => false,
    }
}

/// How many columns a COPY has, for its first message; 0 if not known.
pub(crate) async fn column_count(session: &mut Session, parsed: &ParsedStatement) -> usize {
    let Statement::Copy(copy) = &parsed.statement else { return 0 };
    let (table, columns) = match copy.as_ref() {
        Copy::From { table, columns, .. } => (table, columns),
        Copy::To { source: CopySource::Table { name, columns }, .. } => (name, columns),
        Copy::To { source: CopySource::Query(query), .. } => {
            let statement = Statement::Query(query.clone());
            let query = ParsedStatement { statement, ..parsed.clone() };
            let columns = session.columns(&query).await.ok().flatten();
            return columns.map_or(0, |columns| columns.fields().len());
        }
    };
    if !columns.is_empty() {
        return columns.len();
    }
    let state = session.database().catalog();
    state.table(table).map_or(0, |table| table.schema.columns.len())
}

/// Runs COPY FROM STDIN.
pub(crate) async fn copy_in(
    wire: &mut Wire,
    session: &mut Session,
    watch: &mut Watch,
    (parsed, cut): (ParsedStatement, Cut),
    sql: &str,
) -> Result<Started, Stop> {
    let column_count = column_count(session, &parsed).await;
    let (give, pieces) = mpsc::channel(WAITING);
    let (want, wanted) = oneshot::channel();
    let input = ClientInput { pieces, piece: Bytes::new(), want: Some(want) };
    session.set_client_streams(ClientStreams { input: Some(Box::new(input)), output: None });
    let work = watch.entered(session.start(parsed));
    // A commit that has begun is not interrupted.
    let taken =
        unless(take_in(wire, work, (give, wanted), (column_count, cut), sql), watch.ended());
    taken.await.unwrap_or_else(|complaint| Err(Stop::Failed(complaint)))
}

/// Passes what the client sends to `work`, which is the COPY, from when it is wanted.
async fn take_in(
    wire: &mut Wire,
    mut work: impl Future<Output = cleave_host::Result<Started>> + Unpin,
    (give, mut wanted): (mpsc::Sender<Bytes>, oneshot::Receiver<()>),
    (column_count, cut): (usize, Cut),
    sql: &str,
) -> Result<Started, Stop> {
    let mut give = Some(give);
    let mut waiting: Option<Bytes> = None;
    let mut has_begun = false;
    loop {
        let event = tokio::select! {
            biased;
            done = &mut work => {
                return done.map_err(|error| Stop::Failed(Complaint::of(&error, sql)));
            }
            asked = &mut wanted, if !has_begun => Event::Wanted(asked.is_ok()),
            room = room(give.clone()), if waiting.is_some() => Event::Room(room),
            message = wire.message(), if has_begun && waiting.is_none() && give.is_some() => {
                Event::Message(message?)
            }
        };
        match event {
            Event::Wanted(is_read) => {
                has_begun = true;
                if is_read {
                    reply::copy_begins(&mut wire.output, b'G', column_count, cut.format());
                    wire.flush().await?;
                } else {
                    // Nothing will read it.
                    give = None;
                }
            }
            Event::Room(room) => match (room, waiting.take()) {
                (Some(room), Some(piece)) => drop(room.send(piece)),
                // Nothing reads any more: the COPY is about to report why.
                _ => give = None,
            },
            Event::Message((kind, body)) => {
                match Frontend::read(kind, body).map_err(Complaint::from)? {
                    Some(Frontend::CopyData(piece)) => waiting = Some(piece),
                    Some(Frontend::CopyDone) => give = None,
                    Some(Frontend::CopyFail(why)) => {
                        let message = format!("COPY from stdin failed: {why}");
                        return Err(Complaint::error("57014", message).into());
                    }
                    Some(Frontend::Flush | Frontend::Sync) => {}
                    _ => {
                        let message = "unexpected message during COPY from stdin";
                        return Err(Complaint::error("08P01", message).into());
                    }
                }
            }
        }
    }
}

/// The events that COPY FROM STDIN waits for.
enum Event {
    /// The rows are wanted; false if they never will be.
    Wanted(bool),
    /// There is room for a piece; None if there never will be.
    Room(Option<mpsc::OwnedPermit<Bytes>>),
    /// The client's next message.
    Message((u8, Bytes)),
}

async fn room(give: Option<mpsc::Sender<Bytes>>) -> Option<mpsc::OwnedPermit<Bytes>> {
    give?.reserve_owned().await.ok()
}

/// Runs COPY TO STDOUT; the caller sends the end.
pub(crate) async fn copy_out(
    wire: &mut Wire,
    session: &mut Session,
    watch: &mut Watch,
    (parsed, cut): (ParsedStatement, Cut),
    sql: &str,
) -> Result<Started, Stop> {
    let column_count = column_count(session, &parsed).await;
    let (give, mut pieces) = mpsc::channel(WAITING);
    let output = ClientOutput { give, piece: Vec::new() };
    session.set_client_streams(ClientStreams { input: None, output: Some(Box::new(output)) });
    let mut records = Records::new(cut);
    let mut has_begun = false;
    let started = {
        let mut work = watch.entered(session.start(parsed));
        loop {
            tokio::select! {
                biased;
                Some(piece) = pieces.recv() => {
                    if !std::mem::replace(&mut has_begun, true) {
                        reply::copy_begins(&mut wire.output, b'H', column_count, cut.format());
                    }
                    records.send(&mut wire.output, &piece);
                    if wire.output.len() > SEND_BYTES {
                        watch.flush(wire).await?;
                    }
                }
                done = &mut work => {
                    break done.map_err(|error| Stop::Failed(Complaint::of(&error, sql)))?;
                }
                complaint = watch.ended() => return Err(Stop::Failed(complaint)),
                () = wire.closed() => return Err(Stop::Lost),
            }
        }
    };
    if !has_begun {
        reply::copy_begins(&mut wire.output, b'H', column_count, cut.format());
    }
    while let Ok(piece) = pieces.try_recv() {
        records.send(&mut wire.output, &piece);
    }
    records.end(&mut wire.output);
    reply::bare(&mut wire.output, b'c');
    session.set_client_streams(ClientStreams::default());
    Ok(started)
}

/// The reader of COPY FROM STDIN.
struct ClientInput {
    pieces: mpsc::Receiver<Bytes>,
    piece: Bytes,
    /// Sent at the first read: the client may begin.
    want: Option<oneshot::Sender<()>>,
}

impl Read for ClientInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(want) = self.want.take() {
            // If nobody waits for it, the next line finds the channel closed.
            let _ = want.send(());
        }
        while self.piece.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.piece.len());
        let (Some(to), Some(from)) = (buffer.get_mut(..count), self.piece.get(..count)) else {
            return Ok(0);
        };
        to.copy_from_slice(from);
        self.piece.advance(count);
        Ok(count)
    }
}

/// The writer of COPY TO STDOUT.
struct ClientOutput {
    give: mpsc::Sender<Bytes>,
    piece: Vec<u8>,
}

impl Write for ClientOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = Bytes::from(std::mem::take(&mut self.piece));
        self.give.blocking_send(piece).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Divides the output of COPY into records.
struct Records {
    cut: Cut,
    is_quoted: bool,
    /// Bytes of `rest` that were scanned.
    scanned: usize,
    rest: BytesMut,
    is_first: bool,
}

impl Records {
    fn new(cut: Cut) -> Self {
        Self { cut, is_quoted: false, scanned: 0, rest: BytesMut::new(), is_first: true }
    }

    /// Appends a message for each record that `piece` ends.
    fn send(&mut self, out: &mut BytesMut, piece: &[u8]) {
        self.rest.extend_from_slice(piece);
        let quote = match self.cut {
            Cut::Lines => None,
            Cut::QuotedLines(quote) => Some(quote),
            Cut::Binary => {
                while let Some(length) = binary_record(&self.rest, self.is_first) {
                    reply::copy_data(out, &self.rest.split_to(length));
                    self.is_first = false;
                }
                return;
            }
        };
        while let Some(byte) = self.rest.get(self.scanned).copied() {
            self.scanned += 1;
            if Some(byte) == quote {
                // A quote within a value is doubled, or escaped by a quote: it opens again at once.
                self.is_quoted = !self.is_quoted;
            } else if byte == b'\n' && !self.is_quoted {
                reply::copy_data(out, &self.rest.split_to(self.scanned));
                self.scanned = 0;
            }
        }
    }

    /// Appends the rest.
    fn end(&mut self, out: &mut BytesMut) {
        if !self.rest.is_empty() {
            reply::copy_data(out, &self.rest);
        }
    }
}

/// The length of the first record in `bytes`, including the header for the first one; None if its end has not come.
fn binary_record(bytes: &[u8], is_first: bool) -> Option<usize> {
    // Signature, flags, and a length that is 0 here.
    let mut place = if is_first { 19 } else { 0 };
    let count = bytes.get(place..place + 2)?.get_i16();
    place += 2;
    for _ in 0..count {
        let length = bytes.get(place..place + 4)?.get_i32();
        place += 4 + usize::try_from(length).unwrap_or(0);
    }
    (place <= bytes.len()).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(cut: Cut, pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut records = Records::new(cut);
        let mut out = BytesMut::new();
        for piece in pieces {
            records.send(&mut out, piece);
        }
        records.end(&mut out);
        let mut found = Vec::new();
        while !out.is_empty() {
            out.advance(1);
            let length = usize::try_from(out.get_u32()).unwrap() - 4;
            found.push(out.split_to(length).to_vec());
        }
        found
    }

    #[test]
    fn a_message_is_a_record() {
        assert_eq!(messages(Cut::Lines, &[b"a\tb\nc", b"\td\n"]), [&b"a\tb\n"[..], b"c\td\n"]);
        let quoted: &[&[u8]] = &[b"1,\"a\n\"\"", b"b\"\n2,c\n"];
        assert_eq!(messages(Cut::QuotedLines(b'"'), quoted), [&b"1,\"a\n\"\"b\"\n"[..], b"2,c\n"]);
        let head = [b'h'; 19];
        let first = [&head[..], b"\0\x02\0\0\0\x01\n\xff\xff\xff\xff"].concat();
        let whole = [&first[..], b"\0\x01\0\0\0\x02ab", b"\xff\xff"].concat();
        for size in [1, 7, 100] {
            let pieces: Vec<&[u8]> = whole.chunks(size).collect();
            let expected = [&first[..], b"\0\x01\0\0\0\x02ab", b"\xff\xff"];
            assert_eq!(messages(Cut::Binary, &pieces), expected);
        }
    }
}
