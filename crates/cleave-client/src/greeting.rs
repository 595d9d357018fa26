//! Begins a session over a stream to the server: the startup message, and the proof of the password.
//!
//! Invariant: a server that is given a proof must give one in return: it must know the password too.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use crate::address::Address;
use crate::error::ClientError;
use crate::scram::Proof;
use crate::transport::Stream;
use crate::wire::{Connection, Reader, Shared, put_text};

/// Version 3.0.
const PROTOCOL: u32 = 3 << 16;

/// The number and the secret by which a session's statements are cancelled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) backend: u32,
    pub(crate) secret: u32,
}

/// A session that takes statements.
pub(crate) async fn begin(
    stream: Stream,
    address: &Address,
    shared: Arc<Shared>,
) -> Result<(Connection, Key), ClientError> {
    let mut connection = Connection::new(stream, shared);
    let mut startup = BytesMut::new();
    startup.put_u32(PROTOCOL);
    let fixed =
        [("user", address.user()), ("database", address.database()), ("client_encoding", "UTF8")];
    let given = address.settings().iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in fixed.into_iter().chain(given) {
        put_text(&mut startup, name);
        put_text(&mut startup, value);
    }
    startup.put_u8(0);
    connection.put_opening(&startup);
    connection.flush().await?;
    authenticate(&mut connection, address).await?;
    connection.trust();
    // The server says once of its own accord that it is ready.
    connection.expect_ready();
    let mut key = Key::default();
    loop {
        match connection.next().await? {
            (b'Z', _) => return Ok((connection, key)),
            (b'E', body) => return Err(connection.refused(&body)),
            (b'K', body) => {
                let mut reader = Reader::new(&body);
                let (Some(backend), Some(secret)) = (reader.u32(), reader.u32()) else {
                    return Err(connection.broken("a key that is too short"));
                };
                key = Key { backend, secret };
            }
            // It speaks an older version, or knows fewer options.
            (b'v', _) => {}
            (kind, _) => return Err(connection.unexpected(kind)),
        }
    }
}

/// Proves the password, if the server asks for one.
async fn authenticate(connection: &mut Connection, address: &Address) -> Result<(), ClientError> {
    let mut proof: Option<Proof> = None;
    // The proof that the server still owes.
    let mut expected: Option<String> = None;
    loop {
        let body = match connection.next().await? {
            (b'R', body) => body,
            (b'E', body) => return Err(connection.refused(&body)),
            (b'v', _) => continue,
            (kind, _) => return Err(connection.unexpected(kind)),
        };
        let mut reader = Reader::new(&body);
        let Some(method) = reader.u32() else {
            return Err(connection.broken("an authentication without its kind"));
        };
        let rest = String::from_utf8_lossy(reader.rest()).into_owned();
        let told = match (method, &proof) {
            (0, None) => return Ok(()),
            (0, Some(_)) => {
                // It was given a proof, and has given none.
                let is_proven = expected.as_deref() == Some("");
                return if is_proven { Ok(()) } else { Err(impostor()) };
            }
            (10, None) if rest.split('\0').any(|one| one == "SCRAM-SHA-256") => {
                if address.password().is_none() {
                    return Err(address.password_wanted());
                }
                let begun = Proof::begin().map_err(ClientError::Usage)?;
                let first = begun.first();
                proof = Some(begun);
                first_answer(&first)
            }
            (11, Some(begun)) if expected.is_none() => {
                let password = address.password().unwrap_or_default();
                let (last, answer) = begun.last(&rest, password).map_err(ClientError::Protocol)?;
                expected = Some(answer);
                Bytes::from(last)
            }
            (12, Some(_)) => {
                // The proof, and what may follow it.
                let is_right = expected.as_deref().is_some_and(|expected| {
                    !expected.is_empty() && rest.split(',').next() == Some(expected)
                });
                if !is_right {
                    return Err(impostor());
                }
                expected = Some(String::new());
                continue;
            }
            _ => {
                let message = "the server asks for a way to log in that this client does not have: it has \
                    SCRAM-SHA-256";
                return Err(ClientError::Usage(message.to_owned()));
            }
        };
        connection.put(b'p', |body| body.put_slice(&told))?;
        connection.flush().await?;
    }
}

fn first_answer(first: &str) -> Bytes {
    let mut body = BytesMut::new();
    put_text(&mut body, "SCRAM-SHA-256");
    body.put_u32(u32::try_from(first.len()).unwrap_or(u32::MAX));
    body.put_slice(first.as_bytes());
    body.freeze()
}

fn impostor() -> ClientError {
    ClientError::Protocol("it does not know the password itself".to_owned())
}
