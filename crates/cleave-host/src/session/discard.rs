//! DISCARD: a session forgets what its client has made of it, as poolers of connections want before they give it to
//! another.
//!
//! Source: PostgreSQL's manual, "DISCARD".

use cleave_fragment::Stop;

use super::{Outcome, Session};
use crate::error::{Error, Fault, Result};
use crate::statement::parse::{Discard, Scope};

impl Session {
    /// Runs DISCARD.
    pub(super) fn discard(&mut self, what: Discard) -> Result<Outcome> {
        let sequences = &self.settings.client.sequences;
        match what {
            Discard::Plans => Ok(Outcome::done("DISCARD PLANS")),
            Discard::Sequences => {
                sequences.forget();
                Ok(Outcome::done("DISCARD SEQUENCES"))
            }
            Discard::Temporary => {
                self.discard_temporary();
                Ok(Outcome::done("DISCARD TEMP"))
            }
            Discard::All => {
                if !self.is_alone() {
                    let message = "DISCARD ALL cannot run inside a transaction block".to_owned();
                    let fault = Fault::ActiveTransaction;
                    return Err(Error::Invalid { message, fault, position: None });
                }
                sequences.forget();
                self.discard_temporary();
                self.settings.client.advisory.unlock_all(&Stop::default())?;
                self.set_session_role(None, Scope::Session)?;
                self.reset_all()?;
                self.deallocate(None)?;
                self.cursors.clear();
                Ok(Outcome::done("DISCARD ALL"))
            }
        }
    }
}
