//! Passwords: the verifier that a server stores, with which it can check a password without knowing it.
//!
//! ```text
//!  SCRAM-SHA-256$4096:<salt>$<stored key>:<server key>        base64 between the signs
//! ```
//!
//! Invariant: a password is never kept, shown or logged.
//!
//! Source: RFC 5802, section 3; PostgreSQL's `pg_authid.rolpassword`.

use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac, pbkdf2};

/// Rounds of hashing: PostgreSQL's default.
pub(crate) const ITERATION_COUNT: u32 = 4096;
/// Longest password.
pub const PASSWORD_BYTES_MAX: usize = 1024;
/// Bytes of a generated salt.
pub(crate) const SALT_BYTES: usize = 16;

/// An unusable password.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    /// Another password is needed.
    #[error("a password has 1 to {PASSWORD_BYTES_MAX} printable ASCII characters")]
    Letters,
    /// The system gives no random bytes.
    #[error("no random bytes: {0}")]
    Random(String),
}

/// The verifier of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    /// Rounds of hashing.
    pub iteration_count: u32,
    /// The salt.
    pub salt: Vec<u8>,
    /// Authenticates the client.
    pub stored_key: [u8; 32],
    /// Authenticates the server to the client.
    pub server_key: [u8; 32],
}

impl Verifier {
    /// The verifier of `password`, with a new salt.
    ///
    /// # Errors
    /// Any [`PasswordError`].
    pub fn new(password: &str) -> Result<Self, PasswordError> {
        let salt = cleave_media::random_bytes::<SALT_BYTES>()
            .map_err(|error| PasswordError::Random(error.to_string()))?;
        Self::with_salt(password, &salt, ITERATION_COUNT)
    }

    fn with_salt(password: &str, salt: &[u8], iteration_count: u32) -> Result<Self, PasswordError> {
        let is_plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
        let fits = (1..=PASSWORD_BYTES_MAX).contains(&password.len());
        // Non-ASCII text would have to be normalised as the client does it.
        let (Some(rounds), true) =
            (NonZeroU32::new(iteration_count), fits && password.bytes().all(is_plain))
        else {
            return Err(PasswordError::Letters);
        };
        let mut salted = [0; 32];
        let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
        pbkdf2::derive(algorithm, rounds, salt, password.as_bytes(), &mut salted);
        let client_key = hmac_sha256(&salted, b"Client Key");
        Ok(Self {
            iteration_count,
            salt: salt.to_vec(),
            stored_key: sha256(&client_key),
            server_key: hmac_sha256(&salted, b"Server Key"),
        })
    }

    /// Whether `password` is its password. Takes as long for any other one that a user can have.
    #[must_use]
    pub fn is_of(&self, password: &str) -> bool {
        let made = Self::with_salt(password, &self.salt, self.iteration_count);
        made.is_ok_and(|made| is_equal(&made.stored_key, &self.stored_key))
    }

    /// Reads what [`Verifier::text`] or PostgreSQL wrote; None if it is invalid.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (cost, keys) = text.strip_prefix("SCRAM-SHA-256$")?.split_once('$')?;
        let (count, salt) = cost.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        let key = |text: &str| <[u8; 32]>::try_from(STANDARD.decode(text).ok()?).ok();
        Some(Self {
            iteration_count: count.parse().ok().filter(|count| (1..=1_000_000).contains(count))?,
            salt: STANDARD.decode(salt).ok().filter(|salt| !salt.is_empty())?,
            stored_key: key(stored)?,
            server_key: key(server)?,
        })
    }

    /// The stored form.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { iteration_count, salt, stored_key, server_key } = self;
        let [salt, stored, server] =
            [salt.as_slice(), stored_key, server_key].map(|bytes| STANDARD.encode(bytes));
        format!("SCRAM-SHA-256${iteration_count}:{salt}${stored}:{server}")
    }
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Verifier(…)")
    }
}

/// HMAC-SHA-256.
#[must_use]
pub fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

/// SHA-256.
#[must_use]
pub fn sha256(message: &[u8]) -> [u8; 32] {
    let hash = digest::digest(&digest::SHA256, message);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(hash.as_ref());
    bytes
}

/// Compares two keys in constant time.
#[must_use]
pub fn is_equal(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let difference =
        one.iter().zip(other).fold(0, |sum, (a, b)| std::hint::black_box(sum | (a ^ b)));
    std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_standard() {
        // RFC 7677, section 3: user "user", password "pencil".
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = Verifier::with_salt("pencil", &salt, 4096).unwrap();
        let text = verifier.text();
        assert!(
            text.ends_with(
                "$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=\
                 :wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
            ),
            "{text}"
        );
        assert!(verifier.is_of("pencil"));
        for other in ["crayon", "", "ä"] {
            assert!(!verifier.is_of(other), "{other}");
        }
    }
}
