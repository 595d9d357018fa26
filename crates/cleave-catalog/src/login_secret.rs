//! What the answers to log-ins under names that nobody has are made from.

use std::collections::BTreeMap;
use std::fmt;

use crate::password::{ITERATION_COUNT, Verifier, hmac_sha256, sha256};

/// Of which salts are made for names that nobody has: 32 random bytes, the same for ever.
#[derive(Clone, PartialEq, Eq)]
pub struct LoginSecret([u8; 32]);

impl LoginSecret {
    /// A new one.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn draw() -> Result<Self, cleave_media::MediaError> {
        cleave_media::random_bytes().map(Self)
    }

    /// One that was kept as `bytes`; None: they are not 32.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Its bytes, to be kept.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// What somebody called `name` could have, whom there is not: always the same salt, and as many rounds as real
    /// passwords have. `counts` says how many passwords were hashed how often.
    #[must_use]
    pub fn verifier_of_nobody(&self, name: &str, counts: &BTreeMap<u32, u64>) -> Verifier {
        let salt = hmac_sha256(&self.0, name.as_bytes());
        let draw = hmac_sha256(&self.0, &salt);
        let key = sha256(&draw);
        let draw = draw.iter().take(8).fold(0, |number, byte| number << 8 | u128::from(*byte));
        // Each count as often as real ones have it, and the same for a name while the shares stay about the same.
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
