//! As whom a session acts: the role whose rights count, and what it goes back to.
//!
//! ```text
//!  who connected ── SET SESSION AUTHORIZATION ──▶ session_user ── SET ROLE ──▶ current_user
//! ```
//!
//! None in the place of a role: a superuser that the catalog does not know, as the shell is, and superusers of a
//! server's file.

use crate::settings::Client;

/// See the module's description.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Acting {
    /// The role whose rights count.
    pub role: Option<u32>,
    /// What it is called, where SET ROLE has chosen it.
    pub current: Option<String>,
    /// The role of the session's user.
    pub session_role: Option<u32>,
    /// Who connected, where SET SESSION AUTHORIZATION has chosen another.
    pub connected: Option<(String, Option<u32>)>,
}

/// The name of the first role where whoever asks is another.
const FIRST_NAME: &str = "cleave";

impl Client {
    /// `current_user`.
    #[must_use]
    pub fn current_user(&self) -> &str {
        self.acting.current.as_deref().unwrap_or(&self.user)
    }

    /// Who connected, and its role.
    pub fn connected(&self) -> (&str, Option<u32>) {
        match &self.acting.connected {
            Some((name, role)) => (name, *role),
            None => (&self.user, self.acting.session_role),
        }
    }

    /// What the role is called that every database begins with.
    pub fn first_name(&self) -> &str {
        match self.connected() {
            (name, None) => name,
            _ => FIRST_NAME,
        }
    }
}
