//! The role whose rights a session has, and the roles to which it can return.
//!
//! ```text
//!  who connected ── SET SESSION AUTHORIZATION ──▶ session_user ── SET ROLE ──▶ current_user
//! ```
//!
//! None in place of a role: a superuser that the catalog does not know, as in the shell, and superusers of a server's
//! user file.

use crate::settings::Client;

/// See the module's description.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Acting {
    /// The role whose rights count.
    pub role: Option<u32>,
    /// Its name, if SET ROLE has chosen it.
    pub current: Option<String>,
    /// The role of the session user.
    pub session_role: Option<u32>,
    /// The user who connected, if SET SESSION AUTHORIZATION has chosen another.
    pub connected: Option<(String, Option<u32>)>,
}

/// The name of the first role when another user asks.
const FIRST_NAME: &str = "cleave";

impl Client {
    /// `current_user`.
    #[must_use]
    pub fn current_user(&self) -> &str {
        self.acting.current.as_deref().unwrap_or(&self.user)
    }

    /// The user who connected, and its role.
    pub fn connected(&self) -> (&str, Option<u32>) {
        match &self.acting.connected {
            Some((name, role)) => (name, *role),
            None => (&self.user, self.acting.session_role),
        }
    }

    /// The name of the role that every database begins with.
    pub fn first_name(&self) -> &str {
        match self.connected() {
            (name, None) => name,
            _ => FIRST_NAME,
        }
    }
}
