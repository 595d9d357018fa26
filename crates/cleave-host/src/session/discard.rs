//! DISCARD: resets a session, as connection poolers want before they give it to another client.
//!
//! Source: PostgreSQL's manual, "DISCARD".

use cleave_catalog::error::{Error, Fault, Result};
use cleave_fragment::Stop;
use cleave_sql::statement::parse::{Discard, Scope};

use super::roles::set_session_role;
use super::{Outcome, Session, block, set};

/// Runs DISCARD, whose command tag is `tag`.
pub(super) fn run(session: &mut Session, what: Discard, tag: &'static str) -> Result<Outcome> {
    let sequences = &session.settings.client.sequences;
    match what {
        Discard::Plans => {}
        Discard::Sequences => sequences.forget(),
        Discard::Temporary => block::discard_temporary(session),
        Discard::All => {
            if !block::is_alone(session) {
                let message = format!("{tag} cannot run inside a transaction block");
                let fault = Fault::ActiveTransaction;
                return Err(Error::Invalid { message, fault, position: None });
            }
            sequences.forget();
            block::discard_temporary(session);
            session.settings.client.advisory.unlock_all(&Stop::default())?;
            set_session_role(session, None, Scope::Session)?;
            set::reset_all(session)?;
            session.deallocate(None)?;
            session.cursors.clear();
        }
    }
    Ok(Outcome::done(tag))
}
