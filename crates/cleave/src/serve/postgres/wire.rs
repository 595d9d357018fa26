//! The byte stream of a connection: reads whole messages, and buffers answers until they are sent.
//!
//! Invariants: a message longer than the limit is never buffered, and memory is allocated only for bytes that have
//! arrived; that of a long message grows with it, and is [charged](Wire::charge) to the session before it is allocated.
//! If that is refused, the message is passed over, and the session goes on. An idle connection keeps buffers of a few
//! kilobytes; reads and writes can be cancelled at any point and resumed.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use cleave_host::Kept;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::complaint::Complaint;

/// Longest message of an unauthenticated client: that of PostgreSQL's longest startup packet.
pub(crate) const STRANGER_BYTES_MAX: usize = 10_000;
/// Bytes of one read.
const READ_BYTES: usize = 8 << 10;
/// Answers beyond this are sent before more are added.
pub(crate) const SEND_BYTES: usize = 64 << 10;
/// Bytes that an empty buffer may keep.
const KEPT_BYTES: usize = 16 << 10;
/// Bytes that may be buffered while a statement runs. A message of as many bytes is not charged.
const AHEAD_BYTES_MAX: usize = 256 << 10;

/// A plain or encrypted stream.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Why no message could be read.
#[derive(Debug)]
pub(crate) enum WireError {
    /// The client or the network is gone.
    Lost,
    /// The bytes are not a message: nothing after it can be decoded.
    Framing(Complaint),
    /// There was no memory for a message of this kind. It was passed over, and others may follow.
    Refused(u8, Complaint),
}

/// A message that is passed over.
struct Refused {
    kind: u8,
    /// Bytes of it that are still to come, or in the buffer.
    left: usize,
    complaint: Complaint,
}

impl From<io::Error> for WireError {
    fn from(_error: io::Error) -> Self {
        Self::Lost
    }
}

/// A connection.
pub(crate) struct Wire {
    stream: Box<dyn Stream>,
    input: BytesMut,
    /// Bytes to be sent.
    pub(crate) output: BytesMut,
    /// None if the client is not yet authenticated.
    message_bytes_max: Option<usize>,
    /// What the session keeps for `input` and the last message; None before there is a session.
    kept: Option<Kept>,
    /// Bytes of the last message.
    taken: usize,
    refused: Option<Box<Refused>>,
}

impl Wire {
    /// Over `stream`, to an unauthenticated client.
    pub(crate) fn new(stream: Box<dyn Stream>) -> Self {
        let (input, output) = (BytesMut::new(), BytesMut::new());
        let (message_bytes_max, kept, refused) = (None, None, None);
        Self { stream, input, output, message_bytes_max, kept, taken: 0, refused }
    }

    /// Charges messages to `kept` from now on.
    pub(crate) fn charge(&mut self, kept: Kept) {
        self.kept = Some(kept);
    }

    /// Accepts messages of up to `message_bytes_max` from now on, because the client is authenticated.
    pub(crate) fn trust(&mut self, message_bytes_max: usize) {
        self.message_bytes_max = Some(message_bytes_max);
    }

    /// The stream, if no more bytes were read than requested.
    pub(crate) fn into_stream(self) -> Option<Box<dyn Stream>> {
        self.input.is_empty().then_some(self.stream)
    }

    /// The body of a first message, which has no kind.
    pub(crate) async fn opening(&mut self) -> Result<Bytes, WireError> {
        loop {
            if let Some(length) = self.length_at(0) {
                if !(8..=STRANGER_BYTES_MAX).contains(&length) {
                    return Err(WireError::Framing(Complaint::fatal(
                        "08P01",
                        format!("invalid length of startup packet: {length}"),
                    )));
                }
                if self.input.len() >= length {
                    let mut message = self.input.split_to(length);
                    message.advance(4);
                    return Ok(message.freeze());
                }
            }
            self.fill().await?;
        }
    }

    /// The kind and body of the next message.
    pub(crate) async fn message(&mut self) -> Result<(u8, Bytes), WireError> {
        loop {
            if let Some(message) = self.buffered()? {
                return Ok(message);
            }
            self.fill().await?;
        }
    }

    /// The next message, if all of it has arrived. The one before is not in use any more.
    pub(crate) fn buffered(&mut self) -> Result<Option<(u8, Bytes)>, WireError> {
        if std::mem::take(&mut self.taken) > 0 {
            // To keep fewer bytes is never refused.
            drop(self.recharge(self.input.capacity()));
        }
        if self.refused.is_some() {
            return self.pass_over().map(|()| None);
        }
        let (Some(kind), Some(length)) = (self.input.first().copied(), self.length_at(1)) else {
            return Ok(None);
        };
        if length < 4 {
            let message = format!("invalid message length: {length}");
            return Err(WireError::Framing(Complaint::fatal("08P01", message)));
        }
        // Checked before memory is allocated.
        match self.message_bytes_max {
            None if length > STRANGER_BYTES_MAX => {
                let message = format!("invalid message length: {length}");
                return Err(WireError::Framing(Complaint::fatal("08P01", message)));
            }
            Some(limit) if length > limit => {
                let message = format!("a message of {length} bytes is longer than {limit}");
                let complaint = Complaint::fatal("54000", message);
                return Err(WireError::Framing(
                    complaint.hint("the server's --message-limit allows more"),
                ));
            }
            _ => {}
        }
        if self.input.len() <= length {
            return Ok(None);
        }
        let mut message = self.input.split_to(length + 1);
        message.advance(5);
        let body = message.freeze();
        self.taken = length;
        if self.input.is_empty() && self.input.capacity() > KEPT_BYTES {
            self.input = BytesMut::new();
        }
        Ok(Some((kind, body)))
    }

    /// The kind of the next message, the rest of which may not have arrived.
    pub(crate) async fn kind(&mut self) -> Result<u8, WireError> {
        loop {
            if let Some(kind) = self.input.first() {
                return Ok(*kind);
            }
            self.fill().await?;
        }
    }

    /// Whether the next byte that has arrived begins a message of this kind.
    pub(crate) fn is_next(&self, kind: u8) -> bool {
        self.input.first() == Some(&kind)
    }

    /// Waits until the client is gone, or has sent so much that it must wait itself. Meanwhile its messages are
    /// buffered.
    pub(crate) async fn closed(&mut self) {
        while self.input.len() < AHEAD_BYTES_MAX {
            if self.fill().await.is_err() {
                return;
            }
        }
        std::future::pending().await
    }

    /// Sends all answers.
    pub(crate) async fn flush(&mut self) -> Result<(), WireError> {
        while !self.output.is_empty() {
            if self.stream.write_buf(&mut self.output).await? == 0 {
                return Err(WireError::Lost);
            }
        }
        self.stream.flush().await?;
        if self.output.capacity() > KEPT_BYTES {
            self.output = BytesMut::new();
        }
        Ok(())
    }

    /// Closes the connection after sending everything.
    pub(crate) async fn close(&mut self) {
        if self.flush().await.is_ok() {
            drop(self.stream.shutdown().await);
        }
    }

    async fn fill(&mut self) -> Result<(), WireError> {
        self.make_room();
        match self.stream.read_buf(&mut self.input).await? {
            0 => Err(WireError::Lost),
            _ => Ok(()),
        }
    }

    /// Makes room for more bytes: as many again as there are. If a long message may not have them, it is passed over.
    fn make_room(&mut self) {
        let held = self.input.len();
        if self.input.capacity() - held >= READ_BYTES {
            return;
        }
        let mut more = held.max(READ_BYTES);
        // Only the beginning of one message is as long.
        if held >= AHEAD_BYTES_MAX
            && let Err(complaint) = self.recharge(held + more)
        {
            let kind = self.input.first().copied().unwrap_or_default();
            let length = self.length_at(1).unwrap_or_default();
            let left = (length + 1).saturating_sub(held);
            self.refused = Some(Box::new(Refused { kind, left, complaint }));
            self.input = BytesMut::new();
            drop(self.recharge(0));
            more = READ_BYTES;
        }
        self.input.reserve(more);
    }

    /// Keeps so many bytes for the input, and those of the last message.
    fn recharge(&mut self, capacity: usize) -> Result<(), Complaint> {
        let bytes = capacity.saturating_add(self.taken);
        let bytes = if bytes > AHEAD_BYTES_MAX { bytes } else { 0 };
        let kept = self.kept.as_mut().map_or(Ok(()), |kept| kept.set(bytes));
        kept.map_err(|error| Complaint::of(&error, ""))
    }

    /// Passes over what has come of a message that was refused.
    fn pass_over(&mut self) -> Result<(), WireError> {
        let Some(mut refused) = self.refused.take() else { return Ok(()) };
        let passed = refused.left.min(self.input.len());
        self.input.advance(passed);
        refused.left -= passed;
        if refused.left == 0 {
            return Err(WireError::Refused(refused.kind, refused.complaint));
        }
        self.refused = Some(refused);
        Ok(())
    }

    fn length_at(&self, start: usize) -> Option<usize> {
        let mut bytes = self.input.get(start..start + 4)?;
        usize::try_from(bytes.get_u32()).ok()
    }
}

#[cfg(test)]
mod tests {
    use bytes::BufMut;
    use cleave_embedded::embedded_device;
    use cleave_host::{Database, OpenOptions};

    use super::*;

    fn wire(limit: usize) -> (Wire, tokio::io::DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let mut wire = Wire::new(Box::new(ours));
        wire.trust(limit);
        (wire, theirs)
    }

    #[tokio::test]
    async fn strangers_send_short_messages_only_and_no_room_is_made_for_longer_ones() {
        let (ours, mut theirs) = tokio::io::duplex(1 << 16);
        let mut wire = Wire::new(Box::new(ours));
        theirs.write_all(&[b"p\0\0\x27\x10".as_slice(), &[0; 9996]].concat()).await.unwrap();
        assert_eq!(wire.message().await.unwrap().1.len(), 9996);
        theirs.write_all(b"p\0\0\x27\x11").await.unwrap();
        let Err(WireError::Framing(complaint)) = wire.message().await else { panic!("it is read") };
        assert_eq!(complaint.sqlstate, "08P01");
        assert!(wire.input.capacity() <= 3 * STRANGER_BYTES_MAX, "{}", wire.input.capacity());
    }

    #[tokio::test]
    async fn messages_arrive_in_pieces() {
        let (mut wire, mut client) = wire(100);
        client.write_all(b"Q\0\0\0\x06a").await.unwrap();
        assert!(wire.buffered().unwrap().is_none());
        client.write_all(b"\0S\0\0\0\x04").await.unwrap();
        assert_eq!(wire.message().await.unwrap(), (b'Q', Bytes::from_static(b"a\0")));
        assert_eq!(wire.message().await.unwrap(), (b'S', Bytes::new()));
        drop(client);
        assert!(matches!(wire.message().await, Err(WireError::Lost)));
    }

    #[tokio::test]
    async fn a_message_that_finds_no_memory_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let options = OpenOptions::new(embedded_device()).create(true).query_memory_bytes(4 << 20);
        let folder = directory.path().join("db");
        let session = Database::open(&folder, options).await.unwrap().session();
        let (ours, mut client) = tokio::io::duplex(1 << 16);
        let mut wire = Wire::new(Box::new(ours));
        wire.trust(1 << 30);
        wire.charge(session.kept().keep("messages", 0).unwrap());
        let message = |bytes: usize| {
            let mut message = BytesMut::from(&b"Q"[..]);
            message.put_u32(u32::try_from(bytes + 4).unwrap());
            message.put_bytes(b'x', bytes);
            message
        };
        let sent = [message(400_000), message(3 << 20), message(10), message(400_000)].concat();
        let sending = async move { client.write_all(&sent).await.map(|()| client) };
        let reading = async {
            assert_eq!(wire.message().await.unwrap().1.len(), 400_000);
            let Err(WireError::Refused(kind, complaint)) = wire.message().await else {
                panic!("it is read");
            };
            assert_eq!((kind, complaint.sqlstate.as_str()), (b'Q', "53200"));
            assert!(wire.input.capacity() <= AHEAD_BYTES_MAX, "{}", wire.input.capacity());
            assert_eq!(wire.message().await.unwrap().1.len(), 10);
            assert_eq!(wire.message().await.unwrap().1.len(), 400_000);
        };
        tokio::join!(sending, reading).0.unwrap();
        assert!(wire.buffered().unwrap().is_none());
        // All is given back: another one may keep what a session may keep.
        assert!(session.kept().keep("messages", 1 << 20).is_ok());
    }

    #[tokio::test]
    async fn lengths_are_bounded() {
        for bytes in [&b"Q\0\0\0\x03"[..], b"Q\0\0\x01\0", b"Q\xff\xff\xff\xff"] {
            let (mut wire, mut client) = wire(100);
            client.write_all(bytes).await.unwrap();
            assert!(matches!(wire.message().await, Err(WireError::Framing(_))));
        }
        for bytes in [b"GET / HT", b"\0\0\0\x04\0\0\0\0"] {
            let (mut wire, mut client) = wire(100);
            client.write_all(bytes).await.unwrap();
            assert!(matches!(wire.opening().await, Err(WireError::Framing(_))));
        }
    }
}
