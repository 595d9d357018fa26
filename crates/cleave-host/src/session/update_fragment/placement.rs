//! Where the rows of an UPDATE or DELETE change: the choice of `update_placement = auto`, and what EXPLAIN says of it.
//!
//! The choice compares the [predicted costs](cleave_query::cooperative::update_cost) of both ways. Finding the rows is
//! part of both.

use cleave_catalog::catalog::TableState;
use cleave_catalog::error::Result;
use cleave_catalog::settings::{UpdateLocking, UpdatePlacement, bytes_text};
use cleave_query::cooperative::changing::ChangingQuery;
use cleave_query::cooperative::update_cost::UpdateCost;
use cleave_query::select::{ExplainedChange, ReadView};
use cleave_sql::statement::Parameters;
use cleave_sql::statement::modify::{Action, Modify};

use super::{Settled, changed_places, is_small, planned, rows_to_lock};
use crate::session::Session;

/// The predicted costs of a statement, and the choice.
#[derive(Debug, Clone, Copy)]
pub(in crate::session) struct Placement {
    pub(in crate::session) rows: f64,
    pub(in crate::session) cost: UpdateCost,
    pub(in crate::session) asked: UpdatePlacement,
}

impl Placement {
    /// That of a statement whose fragments are `queries`.
    ///
    /// # Errors
    /// Those of a device that is not attached.
    pub(super) async fn of(session: &Session, queries: &[ChangingQuery]) -> Result<Self> {
        let asked = session.in_force().update_placement;
        let mut all = Self { rows: 0.0, cost: UpdateCost::default(), asked };
        for query in queries {
            all.rows += query.row_estimate();
            all.cost = all.cost.and(query.cost().await?);
        }
        Ok(all)
    }

    /// Whether fragments write pages.
    pub(in crate::session) fn is_by_pages(&self) -> bool {
        match self.asked {
            UpdatePlacement::Host => false,
            UpdatePlacement::Device => true,
            UpdatePlacement::Auto => self.cost.is_by_pages(),
        }
    }

    /// The ways with their costs, as EXPLAIN shows them; `what` are the pages that fragments write, and `locks` what
    /// they lock.
    pub(in crate::session) fn ways(&self, what: &str, locks: &str) -> Vec<(String, String)> {
        let mark = |is_taken: bool| if is_taken { "; chosen" } else { "" };
        let bytes = |count: f64| bytes_text(whole(count));
        let is_by_pages = self.is_by_pages();
        let by_rows = format!(
            "{:.1} ms beside finding {:.0} rows, {} over the link{}",
            self.cost.by_rows_s * 1e3,
            self.rows,
            bytes(self.cost.link_bytes),
            mark(!is_by_pages)
        );
        let by_pages = format!(
            "{:.1} ms, {what} {:.0} pages with {}{}",
            self.cost.by_pages_s * 1e3,
            self.cost.pages,
            bytes(self.cost.page_bytes),
            mark(is_by_pages)
        );
        let mut lines = vec![("host, by rows".to_owned(), by_rows)];
        lines.push(("device, by pages".to_owned(), by_pages));
        if is_by_pages {
            lines.push(("fragments lock".to_owned(), locks.to_owned()));
        }
        lines
    }

    fn lines(&self, locking: UpdateLocking) -> Vec<(String, String)> {
        let locks = match locking {
            UpdateLocking::Shared => "each row, in the lock table shared with the device",
            UpdateLocking::Table => "the table",
            UpdateLocking::Optimistic => "each row, once the fragment has ended",
        };
        self.ways("versions of", locks)
    }
}

/// Whether fragments may be the way in which `modify` changes rows.
pub(in crate::session) fn is_considered(session: &Session, modify: &Modify) -> bool {
    let names = session.names();
    let Some(table) = names.table(&modify.table) else { return false };
    session.in_force().update_placement != UpdatePlacement::Host
        && !is_small(session, table)
        && changed_places(session, table, modify).is_some()
}

/// How `modify` changes rows of `table`, which is as `view` has it, for EXPLAIN; None: it can do so by rows alone.
///
/// # Errors
/// Those of planning.
pub(in crate::session) async fn explained(
    session: &Session,
    view: &ReadView,
    table: &TableState,
    (modify, parameters): (&Modify, &Parameters),
) -> Result<Option<ExplainedChange>> {
    let Some(places) = changed_places(session, table, modify) else { return Ok(None) };
    if is_small(session, table) {
        return Ok(None);
    }
    let vids_below = match view.state.shipped.is_empty() {
        true => Vec::new(),
        false => match Settled::of(session, view, table) {
            Some(settled) if modify.is_of_its_rows_alone() => settled.vids_below,
            _ => return Ok(None),
        },
    };
    let asked = (modify, parameters, &places);
    let Some(queries) = Box::pin(planned(session, view, (table, &vids_below), asked)).await? else {
        return Ok(None);
    };
    let placement = Placement::of(session, &queries).await?;
    shown(session, table, modify, (&queries, &placement)).map(Some)
}

/// The same of fragments that are planned.
///
/// # Errors
/// Those of making them.
pub(super) fn shown(
    session: &Session,
    table: &TableState,
    modify: &Modify,
    (queries, placement): (&[ChangingQuery], &Placement),
) -> Result<ExplainedChange> {
    let locking = session.in_force().update_locking;
    let mut fragments = Vec::new();
    for (place, query) in queries.iter().enumerate().filter(|_| placement.is_by_pages()) {
        let locks = locking == UpdateLocking::Shared && query.is_on_device();
        let to_lock = locks.then(|| rows_to_lock(session, table, place));
        fragments.push((query.shown(to_lock)?, query.estimates()));
    }
    let verb = match modify.action {
        Action::Delete => "Delete",
        Action::Update(_) => "Update",
    };
    let what = format!("{verb} of {} by fragments", table.schema.name);
    Ok(ExplainedChange { what, fragments, placement: placement.lines(locking) })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn whole(count: f64) -> u64 {
    count as u64
}

/// The figures of a run, for EXPLAIN ANALYZE.
pub(in crate::session) fn figures(count: u64, fragments: usize) -> Vec<(String, String)> {
    let line = |name: &str, value: String| (name.to_owned(), value);
    vec![line("rows", count.to_string()), line("fragments", fragments.to_string())]
}
