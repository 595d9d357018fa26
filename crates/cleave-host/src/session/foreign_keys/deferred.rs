//! Deferred foreign keys, which are checked at COMMIT, and SET CONSTRAINTS.

use std::collections::BTreeMap;

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::rules::Timing;
use cleave_catalog::error::{Error, Fault, NameKind, Result};
use cleave_sql::statement::parse::SetConstraints;

use super::super::{Outcome, Session};
use super::{KEY_BYTES, OpenKey, OpenKeys, Reference};
use crate::session::block::Block;
use crate::session::foreign_keys;

/// The checks that a block has deferred to its end.
#[derive(Debug, Clone, Default)]
pub(in crate::session) struct Deferred {
    pub(super) open: OpenKeys,
    /// The last SET CONSTRAINTS ALL.
    all: Option<bool>,
    /// SET CONSTRAINTS of single keys since then.
    some: BTreeMap<(u32, u32), bool>,
}

impl Deferred {
    /// Approximate bytes of its keys.
    pub(in crate::session) fn byte_count(&self) -> usize {
        let counts = self.open.0.values().map(|open| open.begun.len() + open.gone.len());
        counts.sum::<usize>().saturating_mul(KEY_BYTES)
    }
}

/// Whether a foreign key is checked at the end of the transaction; outside of a block that is the end of the statement.
pub(super) fn is_deferred(session: &Session, reference: &Reference) -> bool {
    // Until all parts of the statement are done.
    session.view_of_parts().is_some() || is_put_off(session.block.as_ref(), reference)
}

/// Whether it is checked at the end of the transaction.
fn is_put_off(block: Option<&Block>, reference: &Reference) -> bool {
    let timing = reference.key.timing;
    let block = block.filter(|block| !block.is_own());
    let Some(block) = block.filter(|_| timing.is_deferrable()) else { return false };
    let said = block.deferred.some.get(&reference.id()).copied().or(block.deferred.all);
    said.unwrap_or(timing == Timing::Deferred)
}

/// Runs the checks that were deferred until the parts of the statement are done.
pub(in crate::session) async fn ask_now(session: &mut Session) -> Result<()> {
    let Some(block) = &mut session.block else { return Ok(()) };
    for (_, open) in std::mem::take(&mut block.deferred.open).0 {
        match is_put_off(session.block.as_ref(), &open.reference) {
            false => Box::pin(foreign_keys::ask(session, &open)).await?,
            true => {
                if let Some(block) = &mut session.block {
                    block.deferred.open.add(open);
                }
            }
        }
    }
    Ok(())
}

/// Runs the deferred checks, before COMMIT.
pub(in crate::session) async fn ask_deferred(session: &mut Session) -> Result<()> {
    let Some(block) = session.block.as_mut().filter(|block| !block.has_failed()) else {
        return Ok(());
    };
    for (_, open) in std::mem::take(&mut block.deferred.open).0 {
        let reference = as_it_is(&session.names(), &open.reference)?;
        if let Some(reference) = reference {
            Box::pin(foreign_keys::ask(session, &OpenKey { reference, ..open })).await?;
        }
    }
    Ok(())
}

/// A foreign key and its tables as they are now; None: it was dropped.
fn as_it_is(state: &CatalogState, reference: &Reference) -> Result<Option<Reference>> {
    let child = state.table_by_id(reference.child.schema.table_id);
    let parent = state.table_by_id(reference.key.target);
    let Some((child, parent)) = child.zip(parent) else { return Ok(None) };
    let mut keys = child.rules.foreign_keys.iter();
    let key = keys.find(|key| key.id == reference.key.id && key.target == reference.key.target);
    key.map(|key| Reference::new(child, key, parent)).transpose()
}

/// Runs SET CONSTRAINTS, which lasts for the block.
pub(in crate::session) async fn set_constraints(
    session: &mut Session,
    set: &SetConstraints,
) -> Result<Outcome> {
    let state = session.names();
    let mut some = BTreeMap::new();
    for name in &set.names {
        let keys = state.tables().flat_map(|table| {
            let keys = table.rules.foreign_keys.iter().filter(|key| key.name == *name);
            keys.map(|key| (table.schema.table_id, key.id, key.timing))
        });
        let keys: Vec<_> = keys.collect();
        if keys.is_empty() {
            let all = state.tables().flat_map(|table| table.rules.foreign_keys.iter());
            let all = all.map(|key| key.name.as_str());
            return Err(Error::unknown(NameKind::Constraint, name, all));
        }
        for (table, id, timing) in keys {
            if !timing.is_deferrable() {
                return Err(Error::Invalid {
                    message: format!("constraint \"{name}\" is not deferrable"),
                    fault: Fault::ObjectKind,
                    position: None,
                });
            }
            some.insert((table, id), set.deferred);
        }
    }
    // Outside of a block PostgreSQL warns, and does nothing.
    let Some(block) = &mut session.block else { return Ok(Outcome::done("SET CONSTRAINTS")) };
    if set.names.is_empty() {
        block.deferred.all = Some(set.deferred);
        block.deferred.some.clear();
    } else {
        block.deferred.some.extend(some);
    }
    if !set.deferred {
        let open = std::mem::take(&mut block.deferred.open);
        for (_, open) in open.0 {
            if is_deferred(session, &open.reference) {
                if let Some(block) = &mut session.block {
                    block.deferred.open.add(open);
                }
                continue;
            }
            let reference = as_it_is(&session.names(), &open.reference)?;
            if let Some(reference) = reference {
                Box::pin(foreign_keys::ask(session, &OpenKey { reference, ..open })).await?;
            }
        }
    }
    Ok(Outcome::done("SET CONSTRAINTS"))
}
