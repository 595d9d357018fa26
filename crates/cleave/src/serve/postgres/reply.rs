//! Encodes messages to a client at the end of a buffer.
//!
//! Source: PostgreSQL's manual, "Message Formats".

use bytes::{BufMut, BytesMut};

use cleave_host::select::ColumnOrigin;

use super::complaint::Complaint;
use super::message::Format;
use super::types::WireType;

/// Whether the session is in a transaction block, as in ReadyForQuery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockState {
    /// Not in a block.
    Idle,
    /// In a block.
    Open,
    /// In a failed block.
    Failed,
}

/// A column of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    /// Its name.
    pub(crate) name: String,
    /// Its type.
    pub(crate) wire_type: WireType,
    /// The format of its values.
    pub(crate) format: Format,
    /// The column of a table that it is.
    pub(crate) origin: Option<ColumnOrigin>,
}

/// Appends a message of `kind`, whose body `write` appends.
pub(crate) fn message(out: &mut BytesMut, kind: u8, write: impl FnOnce(&mut BytesMut)) {
    out.put_u8(kind);
    sized(out, write);
}

/// A length that includes itself, and the bytes that `write` appends.
fn sized(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_u32(0);
    write(out);
    let length = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
    if let Some(mut place) = out.get_mut(start..start + 4) {
        place.put_u32(length);
    }
}

fn text(out: &mut BytesMut, text: &str) {
    // A zero byte would end it early.
    for piece in text.as_bytes().split(|byte| *byte == 0) {
        out.put_slice(piece);
    }
    out.put_u8(0);
}

/// Authentication: `code`, and its data.
pub(crate) fn authentication(out: &mut BytesMut, code: u32, carried: &[u8]) {
    message(out, b'R', |out| {
        out.put_u32(code);
        out.put_slice(carried);
    });
}

/// The value of a reported setting.
pub(crate) fn parameter_status(out: &mut BytesMut, name: &str, value: &str) {
    message(out, b'S', |out| {
        text(out, name);
        text(out, value);
    });
}

/// The key for cancelling this connection's statements.
pub(crate) fn backend_key(out: &mut BytesMut, backend: i32, secret: i32) {
    message(out, b'K', |out| {
        out.put_i32(backend);
        out.put_i32(secret);
    });
}

/// The protocol version used, and the client's options that are unknown.
pub(crate) fn negotiate_version(out: &mut BytesMut, minor: u32, unknown: &[&str]) {
    message(out, b'v', |out| {
        out.put_u32(3 << 16 | minor);
        out.put_u32(u32::try_from(unknown.len()).unwrap_or(0));
        for option in unknown {
            text(out, option);
        }
    });
}

/// Ready for the next statement.
pub(crate) fn ready(out: &mut BytesMut, state: BlockState) {
    message(out, b'Z', |out| {
        out.put_u8(match state {
            BlockState::Idle => b'I',
            BlockState::Open => b'T',
            BlockState::Failed => b'E',
        });
    });
}

/// A message without a body: ParseComplete `1`, BindComplete `2`, CloseComplete `3`, NoData `n`,
/// PortalSuspended `s`, EmptyQueryResponse `I`, CopyDone `c`.
pub(crate) fn bare(out: &mut BytesMut, kind: u8) {
    message(out, kind, |_| {});
}

/// Completion of a statement.
pub(crate) fn complete(out: &mut BytesMut, tag: &str) {
    message(out, b'C', |out| text(out, tag));
}

/// An error.
pub(crate) fn error(out: &mut BytesMut, complaint: &Complaint) {
    message(out, b'E', |out| fields(out, complaint));
}

/// A notice.
pub(crate) fn notice(out: &mut BytesMut, complaint: &Complaint) {
    message(out, b'N', |out| fields(out, complaint));
}

fn fields(out: &mut BytesMut, complaint: &Complaint) {
    let severity = complaint.severity.name();
    let position = complaint.about.position.map(|position| position.to_string());
    let fields = [
        (b'S', Some(severity)),
        (b'V', Some(severity)),
        (b'C', Some(complaint.sqlstate.as_str())),
        (b'M', Some(complaint.message.as_str())),
        (b'D', complaint.detail.as_deref()),
        (b'H', complaint.hint.as_deref()),
        (b'P', position.as_deref()),
        (b'W', complaint.about.context.as_deref()),
        (b't', complaint.about.table.as_deref()),
        (b'c', complaint.about.column.as_deref()),
        (b'n', complaint.about.constraint.as_deref()),
    ];
    for (kind, value) in fields {
        if let Some(value) = value {
            out.put_u8(kind);
            text(out, value);
        }
    }
    out.put_u8(0);
}

/// The types of a statement's parameters.
pub(crate) fn parameter_description(out: &mut BytesMut, oids: &[u32]) {
    message(out, b't', |out| {
        out.put_u16(u16::try_from(oids.len()).unwrap_or(u16::MAX));
        for oid in oids {
            out.put_u32(*oid);
        }
    });
}

/// The columns of the rows that follow.
pub(crate) fn row_description(out: &mut BytesMut, columns: &[Column]) {
    message(out, b'T', |out| {
        out.put_u16(u16::try_from(columns.len()).unwrap_or(u16::MAX));
        for column in columns {
            text(out, &column.name);
            let origin = column.origin;
            out.put_u32(origin.map_or(0, |origin| origin.table));
            out.put_i16(origin.map_or(0, |origin| origin.column));
            // Texts with a length are texts on the wire.
            let told = origin.filter(|origin| matches!(origin.type_oid, 1042 | 1043));
            out.put_u32(told.map_or(column.wire_type.oid(), |origin| origin.type_oid));
            out.put_i16(column.wire_type.size());
            out.put_i32(origin.map_or(-1, |origin| origin.modifier));
            out.put_u16(u16::from(column.format == Format::Binary));
        }
    });
}

/// The beginning of COPY: `G` from the client, `H` to it.
pub(crate) fn copy_begins(out: &mut BytesMut, kind: u8, column_count: usize, format: Format) {
    let is_binary = format == Format::Binary;
    message(out, kind, |out| {
        out.put_u8(u8::from(is_binary));
        let count = u16::try_from(column_count).unwrap_or(0);
        out.put_u16(count);
        for _ in 0..count {
            out.put_u16(u16::from(is_binary));
        }
    });
}

/// A piece of COPY TO STDOUT.
pub(crate) fn copy_data(out: &mut BytesMut, piece: &[u8]) {
    message(out, b'd', |out| out.put_slice(piece));
}
