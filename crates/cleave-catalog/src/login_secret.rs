//! The secret from which the answers to log-ins under unknown names are made.

use std::collections::BTreeMap;
use std::fmt;

use crate::password::{ITERATION_COUNT, Verifier, hmac_sha256, sha256};

/// Seed of the salts for unknown names: 32 random bytes, never changed.
#[derive(Clone, PartialEq, Eq)]
pub struct LoginSecret([u8; 32]);

impl LoginSecret {
    /// A new secret.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn draw() -> Result<Self, cleave_media::MediaError> {
        cleave_media::random_bytes().map(Self)
    }

    /// A stored secret; None if `bytes` are not 32.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Its bytes, to be stored.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A plausible verifier for the unknown user `name`: always the same salt, and as many rounds as real passwords
    /// have. `counts` says how many passwords have each number of rounds.
    #[must_use]
    pub fn verifier_of_nobody(&self, name: &str, counts: &BTreeMap<u32, u64>) -> Verifier {
        let salt = hmac_sha256(&self.0, name.as_bytes());
        let draw = hmac_sha256(&self.0, &salt);
        let key = sha256(&draw);
        let draw = draw.iter().take(8).fold(0, |number, byte| number << 8 | u128::from(*byte));
        // Each number as often as real passwords have it, and stable for a name while the shares stay about the same.
        let all: u64 = counts.values().sum();
        let mut left = (draw * u128::from(all)) >> 64;
        let mut iteration_count = ITERATION_COUNT;
        for (count, users) in counts {
            iteration_count = *count;
            match left.checked_sub(u128::from(*users)) {
                Some(rest) => left = rest,
                None => break,
            }
        }
        let salt = salt.iter().take(crate::password::SALT_BYTES).copied().collect();
        Verifier { iteration_count, salt, stored_key: key, server_key: key }
    }
}

impl fmt::Debug for LoginSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LoginSecret(…)")
    }
}
