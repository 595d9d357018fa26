//! What a server asks of a role before it lets someone in.

use cleave_media::{Clock, SystemClock};

use crate::database::Database;
use crate::password::Verifier;

/// What the catalog says of a role that someone wants to connect as.
#[derive(Debug, Clone)]
pub struct Login {
    /// What its password is checked by; None: it has none that counts.
    pub verifier: Option<Verifier>,
    /// It has a password, whose time is over.
    pub has_expired: bool,
    /// Most connections at a time; None: as many as there are.
    pub connection_count_max: Option<usize>,
}

impl Database {
    /// What is known of the role called `user`; None: there is none.
    #[must_use]
    pub fn login(&self, user: &str) -> Option<Login> {
        let state = self.catalog();
        let role = state.rights.role_named(user)?;
        let now = SystemClock.wall();
        let has_expired = role.valid_until_us.is_some_and(|until| until < now);
        Some(Login {
            verifier: role.verifier.clone().filter(|_| !has_expired),
            has_expired: has_expired && role.verifier.is_some(),
            connection_count_max: usize::try_from(role.connection_limit).ok(),
        })
    }

    /// Whether there is a role that may connect and has a password.
    #[must_use]
    pub fn has_passwords(&self) -> bool {
        self.catalog().rights.has_passwords()
    }
}
