//! SET and RESET: transactional settings. They stay if the transaction commits, and are restored if it, or a savepoint
//! of it, is rolled back.
//!
//! ```text
//!            ┌─ settings: what holds now ───────────── SET, SET LOCAL
//!  a block ──┼─ lasting:  what holds after the block ─ SET; none: the same
//!            └─ before:   what held at BEGIN, and at each savepoint followed by a SET
//! ```
//!
//! Nothing is copied before the first SET of a block, or of a savepoint. The role that the session acts as is part of
//! the settings. All copies share the session's advisory locks and sequence values.
//!
//! Source: PostgreSQL's manual, "SET".

use cleave_catalog::activity::Act;
use cleave_catalog::error::Result;
use cleave_catalog::settings::Settings;
use cleave_catalog::settings::transaction::MODES;
use cleave_sql::statement::parse::Scope;

use super::block::modes;
use super::{Outcome, Session};

/// What a block has set. See the module's description.
#[derive(Debug, Default)]
pub(super) struct BlockSettings {
    lasting: Option<Box<Settings>>,
    before: Vec<Before>,
}

/// The settings before a SET.
#[derive(Debug)]
struct Before {
    /// The number of savepoints at that time.
    depth: usize,
    settings: Settings,
    lasting: Option<Box<Settings>>,
}

impl BlockSettings {
    /// The settings when the block began, or had its savepoint at `place`; None: the present ones.
    fn undo_to(&mut self, depth: usize) -> Option<Settings> {
        let first = self.before.partition_point(|before| before.depth < depth);
        let before = self.before.drain(first..).next()?;
        self.lasting = before.lasting;
        Some(before.settings)
    }

    /// RELEASE: makes what was set since the savepoint at `place` part of the level before it.
    pub(super) fn release(&mut self, place: usize) {
        let first = self.before.partition_point(|before| before.depth < place);
        self.before.truncate(first + 1);
        if let Some(before) = self.before.get_mut(first) {
            before.depth = place;
        }
    }
}

impl Session {
    /// Changes settings. SET LOCAL outside of a block has no effect; the caller may warn of it.
    pub(super) fn change_settings(
        &mut self,
        scope: Scope,
        change: impl Fn(&mut Settings) -> Result<()>,
    ) -> Result<()> {
        self.settings_version += 1;
        let Some(block) = &mut self.block else {
            return match scope {
                Scope::Session => change(&mut self.settings),
                // An invalid value is refused all the same.
                Scope::Transaction => change(&mut self.settings.clone()),
            };
        };
        let depth = block.savepoint_count();
        let undo = &mut block.settings;
        if undo.before.last().is_none_or(|before| before.depth < depth) {
            let (settings, lasting) = (self.settings.clone(), undo.lasting.clone());
            undo.before.push(Before { depth, settings, lasting });
        }
        match (scope, &mut undo.lasting) {
            (Scope::Session, Some(lasting)) => change(lasting)?,
            (Scope::Session, None) => {}
            (Scope::Transaction, Some(_)) => {}
            (Scope::Transaction, lasting) => *lasting = Some(Box::new(self.settings.clone())),
        }
        change(&mut self.settings)
    }

    /// How often settings were changed: clients are told of some of them.
    #[must_use]
    pub fn settings_version(&self) -> u64 {
        self.settings_version
    }
}

/// Restores the settings of the savepoint that is now the block's last one.
pub(super) fn undo_settings_to_savepoint(session: &mut Session) {
    if let Some(block) = &mut session.block {
        let depth = block.savepoint_count();
        let settings = block.settings.undo_to(depth);
        put_settings(session, settings);
    }
}

/// The settings after the end of a block.
pub(super) fn end_block_settings(
    session: &mut Session,
    mut block: BlockSettings,
    is_committed: bool,
) {
    if !is_committed {
        session.database.activity().note(Act::Rollback);
    }
    let settings = match is_committed {
        true => block.lasting.map(|lasting| *lasting),
        false => block.undo_to(0),
    };
    put_settings(session, settings);
    session.settings.transaction = None;
}

fn put_settings(session: &mut Session, settings: Option<Settings>) {
    let Some(mut settings) = settings else { return };
    settings.custom.keep_names_of(&session.settings.custom);
    session.settings = Settings { transaction: session.settings.transaction, ..settings };
    session.settings_version += 1;
}

/// Runs SET and RESET of one setting; None: its default.
pub(super) fn set_one(
    session: &mut Session,
    name: &str,
    value: Option<&str>,
    scope: Scope,
) -> Result<Outcome> {
    if let Some(name) = MODES.into_iter().find(|mode| mode.eq_ignore_ascii_case(name)) {
        return modes::set_mode(session, name, value);
    }
    session.change_settings(scope, |settings| match value {
        Some(value) => settings.set(name, value),
        None => settings.reset(name),
    })?;
    Ok(Outcome::done(if value.is_some() { "SET" } else { "RESET" }))
}

/// Runs RESET ALL.
pub(super) fn reset_all(session: &mut Session) -> Result<()> {
    session.change_settings(Scope::Session, |settings| {
        settings.reset_all();
        Ok(())
    })
}
