//! Decodes the messages of a client: the bytes of one message in, a [`Frontend`] out.
//!
//! ```text
//!  first:        | length: i32 | code: i32 | … |        startup, cancel, TLS wanted
//!  all others:   | kind: u8 | length: i32 | body |      the length counts itself, not the kind
//! ```
//!
//! Invariant: no message of a client causes a panic or takes memory beyond the message itself: every number is checked
//! against the bytes that are there.
//!
//! Source: PostgreSQL's manual, "Message Formats".

use bytes::Bytes;

/// The code of a cancel request, in the place of the protocol version.
const CANCEL: u32 = 80_877_102;
/// The code of a request for TLS.
const TLS: u32 = 80_877_103;
/// The code of a request for GSS encryption.
const GSS: u32 = 80_877_104;

/// A body that does not match its kind: a defect of the client's library.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    /// It ends too early, is too long, or has an impossible number.
    #[error("invalid message format: {0}")]
    Body(&'static str),
    /// Text that is not UTF-8.
    #[error("invalid byte sequence for encoding \"UTF8\" in {0}")]
    Encoding(&'static str),
}

/// The first message of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Opening {
    /// It wants a session.
    Startup {
        /// Minor version of protocol 3.
        minor: u16,
        /// Names and values, as `user`.
        parameters: Vec<(String, String)>,
    },
    /// It wants another connection's statement to stop.
    Cancel {
        /// Which connection.
        backend: i32,
        /// Its secret.
        secret: i32,
    },
    /// It wants TLS.
    Tls,
    /// It wants GSS encryption.
    Gss,
    /// It uses a protocol that this server does not know.
    Unknown {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
}

/// A message within a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frontend {
    /// One text with any number of statements.
    Query(String),
    /// Prepare a statement.
    Parse {
        /// Its name.
        name: String,
        /// Its text.
        sql: String,
        /// The types of its first parameters, 0 if to be inferred.
        types: Vec<u32>,
    },
    /// Create a portal from a statement and values.
    Bind(Bind),
    /// Describe a statement or portal.
    Describe(Target),
    /// Run a portal.
    Execute {
        /// The portal.
        portal: String,
        /// The most rows to return; 0 means all.
        row_count_max: u32,
    },
    /// Close a statement or portal.
    Close(Target),
    /// Send the buffered answers.
    Flush,
    /// The end of a series.
    Sync,
    /// The client disconnects.
    Terminate,
    /// A piece of COPY FROM STDIN.
    CopyData(Bytes),
    /// The end of it.
    CopyDone,
    /// The client aborts it, with the reason.
    CopyFail(String),
    /// A password, or a step of SASL.
    Password(Bytes),
    /// A call of a function by number, which is not served.
    FunctionCall,
}

/// The values of a portal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bind {
    /// The portal's name.
    pub(crate) portal: String,
    /// The statement's name.
    pub(crate) statement: String,
    /// Formats of the values: none, one for all, or one each.
    pub(crate) formats: Vec<Format>,
    /// The values; None is NULL.
    pub(crate) values: Vec<Option<Bytes>>,
    /// Formats of the result's columns: none, one for all, or one each.
    pub(crate) results: Vec<Format>,
}

/// The target of Describe and Close.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// A prepared statement.
    Statement(String),
    /// A portal.
    Portal(String),
}

/// The format of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Format {
    /// Text.
    #[default]
    Text,
    /// Binary.
    Binary,
}

/// The format at `place`; `formats` has none, one for all, or one each.
pub(crate) fn format_at(formats: &[Format], place: usize) -> Format {
    match formats {
        [] => Format::Text,
        [one] => *one,
        each => each.get(place).copied().unwrap_or_default(),
    }
}

/// Decodes a first message, without its length.
pub(crate) fn opening(body: &Bytes) -> Result<Opening, Malformed> {
    let mut body = Body { rest: body.clone() };
    let code = body.u32()?;
    match code {
        CANCEL => Ok(Opening::Cancel { backend: body.i32()?, secret: body.i32()? }),
        TLS => Ok(Opening::Tls),
        GSS => Ok(Opening::Gss),
        _ => {
            let [high, low] =
                [code >> 16, code & 0xffff].map(|half| u16::try_from(half).unwrap_or(0));
            if high != 3 {
                return Ok(Opening::Unknown { major: high, minor: low });
            }
            let mut parameters = Vec::new();
            loop {
                let name = body.text("the startup message")?;
                if name.is_empty() {
                    return Ok(Opening::Startup { minor: low, parameters });
                }
                parameters.push((name, body.text("the startup message")?));
            }
        }
    }
}

impl Frontend {
    /// Decodes a message of this kind; None if the kind is unknown.
    pub(crate) fn read(kind: u8, body: Bytes) -> Result<Option<Self>, Malformed> {
        let mut body = Body { rest: body };
        let message = match kind {
            b'Q' => Self::Query(body.text("the query")?),
            b'P' => Self::Parse {
                name: body.text("a statement's name")?,
                sql: body.text("the query")?,
                types: body.list(Body::u32)?,
            },
            b'B' => Self::Bind(Bind {
                portal: body.text("a portal's name")?,
                statement: body.text("a statement's name")?,
                formats: body.list(Body::format)?,
                values: body.list(Body::value)?,
                results: body.list(Body::format)?,
            }),
            b'D' => Self::Describe(body.target()?),
            b'E' => {
                Self::Execute { portal: body.text("a portal's name")?, row_count_max: body.u32()? }
            }
            b'C' => Self::Close(body.target()?),
            b'H' => Self::Flush,
            b'S' => Self::Sync,
            b'X' => Self::Terminate,
            b'd' => return Ok(Some(Self::CopyData(body.rest))),
            b'c' => Self::CopyDone,
            b'f' => Self::CopyFail(body.text("CopyFail")?),
            b'p' => return Ok(Some(Self::Password(body.rest))),
            b'F' => return Ok(Some(Self::FunctionCall)),
            _ => return Ok(None),
        };
        if !body.rest.is_empty() {
            return Err(Malformed::Body("it is longer than its content"));
        }
        Ok(Some(message))
    }
}

/// The rest of a message.
struct Body {
    rest: Bytes,
}

impl Body {
    fn take(&mut self, count: usize) -> Result<Bytes, Malformed> {
        if count > self.rest.len() {
            return Err(Malformed::Body("it ends before its content"));
        }
        Ok(self.rest.split_to(count))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let bytes = self.take(N)?;
        bytes.as_ref().try_into().map_err(|_| Malformed::Body("it ends before its content"))
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(network_u16)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(network_u32)
    }

    fn i32(&mut self) -> Result<i32, Malformed> {
        self.u32().map(u32::cast_signed)
    }

    /// Text up to the zero byte that ends it.
    fn text(&mut self, what: &'static str) -> Result<String, Malformed> {
        let end = self.rest.iter().position(|byte| *byte == 0);
        let end = end.ok_or(Malformed::Body("text without its end"))?;
        let text = self.take(end)?;
        self.take(1)?;
        String::from_utf8(text.to_vec()).map_err(|_| Malformed::Encoding(what))
    }

    /// As many items as the number before them says. Memory is allocated as they come.
    fn list<T>(
        &mut self,
        item: impl Fn(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.u16()?;
        (0..count).map(|_| item(self)).collect()
    }

    fn format(&mut self) -> Result<Format, Malformed> {
        match self.u16()? {
            0 => Ok(Format::Text),
            1 => Ok(Format::Binary),
            _ => Err(Malformed::Body("a format that is neither text nor binary")),
        }
    }

    fn value(&mut self) -> Result<Option<Bytes>, Malformed> {
        match self.i32()? {
            -1 => Ok(None),
            length => match usize::try_from(length) {
                Ok(length) => self.take(length).map(Some),
                Err(_) => Err(Malformed::Body("a value of negative length")),
            },
        }
    }

    fn target(&mut self) -> Result<Target, Malformed> {
        match self.array()? {
            [b'S'] => self.text("a statement's name").map(Target::Statement),
            [b'P'] => self.text("a portal's name").map(Target::Portal),
            _ => Err(Malformed::Body("neither a statement nor a portal")),
        }
    }
}

#[expect(clippy::big_endian_bytes, reason = "the protocol's numbers are in network order")]
pub(crate) fn network_u16(bytes: [u8; 2]) -> u16 {
    u16::from_be_bytes(bytes)
}

#[expect(clippy::big_endian_bytes, reason = "the protocol's numbers are in network order")]
pub(crate) fn network_u32(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests;
