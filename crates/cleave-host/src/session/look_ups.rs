//! The point path: look-ups by key that wait for nothing and run without parsing their text again.

use cleave_catalog::activity::Act;
use cleave_catalog::error::Result;
use cleave_catalog::settings::When;
use cleave_engine::delta::Live;
use cleave_query::point_path;
use cleave_query::point_path::{PointQuery, Sight};

use super::block::Block;
use super::{Outcome, Session, rights, serializable};

/// The outcome of a point query that was seen before. None also on an error: the query then takes the normal path,
/// whose error has a position.
pub(super) async fn look_up(session: &Session, sql: &str) -> Option<(PointQuery, Outcome)> {
    let live = live_for_look_up(session)?;
    let query = session.point_queries.seen(sql, &live.state)?;
    if !rights::may_read(&session.settings, session.defined(), &live.state, query.table_id()) {
        return None;
    }
    let outcome = Box::pin(run_point_query(session, live, &query)).await.ok()?;
    session.harden_seen().await.ok()?;
    Some((query, outcome?))
}

/// What a look-up by key reads on this path: it waits for nothing, and nothing is recorded about it.
pub(super) fn live_for_look_up(session: &Session) -> Option<Live> {
    let settings = session.in_force();
    // At level SERIALIZABLE reads are recorded.
    if settings.index_scan == When::Never
        || !settings.as_of.is_empty()
        || !settings.search_path.has_public()
        || (session.block.is_none() && serializable::is_serializable_alone(&session.settings))
        || session.database.readers_held_back()
        || has_given_up(session)
        // Others may have committed versions of the same pages.
        || session.defined().has_versions()
    {
        return None;
    }
    let mut live = session.database.live();
    session.note_state(&live.state);
    live.state = session.defined().over(&session.database, live.state);
    Some(live)
}

/// Whether an abandoned statement has left something that the next one removes as it begins.
fn has_given_up(session: &Session) -> bool {
    session.returns_alone
        || session.defined().is_exact()
        || session.parts.is_some()
        || session.hinted.is_some()
        || session.statement_locks.is_some()
        || session.statement_tracked.is_some()
        || session.block.as_ref().is_some_and(Block::is_own)
}

/// The outcome of a look-up that waits neither for pages nor for the log.
pub(super) fn look_up_at_hand(
    session: &Session,
    live: Live,
    query: &PointQuery,
) -> Option<Outcome> {
    serializable::note_look_up(session.tracked(), query).ok()?;
    let sight = Sight::new(live, session.own_changes(query.table_id()));
    let stack = session.in_force().stack;
    let rows = point_path::run_at_hand(&session.database, &sight, query, stack).ok()??;
    session.note_seen(sight.log_end());
    if !session.database.is_hardened(session.seen_log()) {
        return None;
    }
    session.database.activity().note(Act::LookUp);
    Some(Outcome::Rows { schema: rows.schema(), batches: vec![rows] })
}

pub(super) async fn run_point_query(
    session: &Session,
    live: Live,
    query: &PointQuery,
) -> Result<Option<Outcome>> {
    serializable::note_look_up(session.tracked(), query)?;
    let sight = Sight::new(live, session.own_changes(query.table_id()));
    let rows = point_path::run(&session.database, &sight, query, session.in_force().stack).await?;
    session.note_seen(sight.log_end());
    if rows.is_some() {
        session.database.activity().note(Act::LookUp);
    }
    Ok(rows.map(|batch| Outcome::Rows { schema: batch.schema(), batches: vec![batch] }))
}
