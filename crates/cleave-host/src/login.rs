//! Logins: what a server reads from the catalog before it admits a client.
//!
//! A database begins without passwords. From the first password on, of a role or of a user of the server, the catalog
//! has a [`LoginSecret`], and every client has to prove a password. Every manifest, backup and log replica contains the
//! secret, and no statement removes it: dropping the last password or the last role does not reopen the server.

use std::collections::BTreeMap;
use std::sync::Arc;

use cleave_catalog::error::Result;
use cleave_catalog::password::Verifier;
use cleave_media::{Clock, SystemClock};
use futures::future::BoxFuture;

use crate::database::Database;
pub use cleave_catalog::login_secret::LoginSecret;

/// What the catalog says about a role that a client wants to connect as.
#[derive(Debug, Clone)]
pub struct Login {
    /// The verifier of its password; None: it has no password.
    pub verifier: Option<Verifier>,
    /// Its password has expired: none is accepted.
    pub has_expired: bool,
    /// Limit on its connections; None: no limit.
    pub connection_count_max: Option<usize>,
    /// It is a superuser.
    pub is_superuser: bool,
    /// The settings that its sessions begin with.
    pub settings: BTreeMap<String, String>,
}

impl Database {
    /// The role called `user`; None: there is none.
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
            settings: role.settings.clone(),
        })
    }

    /// Whether any role that may connect has a password.
    #[must_use]
    pub fn has_passwords(&self) -> bool {
        self.catalog().rights.has_passwords()
    }

    /// The login secret, present from the first password on: see the module's description.
    #[must_use]
    pub fn login_secret(&self) -> Option<LoginSecret> {
        self.catalog().rights.login_secret().cloned()
    }

    /// The number of passwords of roles for each number of hash iterations.
    #[must_use]
    pub fn iteration_counts(&self) -> BTreeMap<u32, u64> {
        let mut counts = BTreeMap::new();
        for verifier in self.catalog().rights.roles().filter_map(|role| role.verifier.as_ref()) {
            *counts.entry(verifier.iteration_count).or_default() += 1;
        }
        counts
    }

    /// Records permanently that passwords are asked for. The server calls it if it has users of its own.
    ///
    /// # Errors
    /// Those of a commit.
    pub fn ask_for_passwords(self: &Arc<Self>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            match self.login_secret() {
                Some(_) => Ok(()),
                None => self.session().ask_for_passwords().await,
            }
        })
    }
}

#[cfg(test)]
mod tests;
