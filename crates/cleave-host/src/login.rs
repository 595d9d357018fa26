//! What a server asks of the catalog before it lets someone in.
//!
//! A database begins without passwords. From the first one on, of a role or of a user of the server, the catalog has a
//! [`LoginSecret`], and whoever connects has to prove a password. The secret goes into every root, backup and copy, and
//! no statement takes it away: neither the last password's end nor the last role's opens the server again.

use std::collections::BTreeMap;
use std::sync::Arc;

use cleave_catalog::error::Result;
use cleave_catalog::password::Verifier;
use cleave_media::{Clock, SystemClock};

use crate::database::Database;
pub use cleave_catalog::login_secret::LoginSecret;

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
