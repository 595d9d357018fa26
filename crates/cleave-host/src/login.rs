//! What a server asks of the catalog before it lets someone in.
//!
//! A database begins without passwords. From the first one on, of a role or of a user of the server, the catalog has a
//! [`LoginSecret`], and whoever connects has to prove a password. The secret goes into every root, backup and copy, and
//! no statement takes it away: neither the last password's end nor the last role's opens the server again.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use cleave_media::{Clock, SystemClock};

use crate::database::Database;
use crate::error::Result;
use crate::password::{ITERATION_COUNT, Verifier, hmac_sha256, sha256};

/// Of which salts are made for names that nobody has: 32 random bytes, the same for ever.
#[derive(Clone, PartialEq, Eq)]
pub struct LoginSecret([u8; 32]);

/// What the catalog says of a role that someone wants to connect as.
#[derive(Debug, Clone)]
pub struct Login {
    /// What its password is checked by; None: it has none.
    pub verifier: Option<Verifier>,
    /// The time of its passwords is over: none counts.
    pub has_expired: bool,
    /// Most connections at a time; None: as many as there are.
    pub connection_count_max: Option<usize>,
    /// It may do everything.
    pub is_superuser: bool,
}

impl LoginSecret {
    /// A new one.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn draw() -> std::result::Result<Self, cleave_media::MediaError> {
        cleave_media::random_bytes().map(Self)
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
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

impl Database {
    /// What is known of the role called `user`; None: there is none.
    #[must_use]
    pub fn login(&self, user: &str) -> Option<Login> {
        let state = self.catalog();
        let role = state.rights.role_named(user)?;
        let now = SystemClock.wall();
        Some(Login {
            verifier: role.verifier.clone(),
            has_expired: role.valid_until_us.is_some_and(|until| until < now),
            connection_count_max: usize::try_from(role.connection_limit).ok(),
            is_superuser: role.superuser,
        })
    }

    /// Whether there is a role that may connect and has a password.
    #[must_use]
    pub fn has_passwords(&self) -> bool {
        self.catalog().rights.has_passwords()
    }

    /// Some from the first password on: see the module's description.
    #[must_use]
    pub fn login_secret(&self) -> Option<LoginSecret> {
        self.catalog().rights.login_secret().cloned()
    }

    /// How many passwords of roles were hashed how often.
    #[must_use]
    pub fn iteration_counts(&self) -> BTreeMap<u32, u64> {
        let mut counts = BTreeMap::new();
        for verifier in self.catalog().rights.roles().filter_map(|role| role.verifier.as_ref()) {
            *counts.entry(verifier.iteration_count).or_default() += 1;
        }
        counts
    }

    /// Notes for ever that passwords are asked for, as the server does where it has users of its own.
    ///
    /// # Errors
    /// Those of a commit.
    pub async fn ask_for_passwords(self: &Arc<Self>) -> Result<()> {
        match self.login_secret() {
            Some(_) => Ok(()),
            None => self.session().ask_for_passwords().await,
        }
    }
}

#[cfg(test)]
mod tests;
