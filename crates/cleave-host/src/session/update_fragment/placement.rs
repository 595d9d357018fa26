//! Where the rows of an UPDATE or DELETE change: the choice of `update_placement = auto`, and what EXPLAIN says of it.
//!
//! The choice compares the [predicted costs](cleave_query::cooperative::update_cost) of the ways of Update NDP, section
//! 8 (S1, S2, S3). Finding the rows is part of all. S2 is looked at where it may be the best: if no fragment can find
//! the rows, or the device is outside of the host's process, and so finds them at another price.

use cleave_catalog::catalog::TableState;
use cleave_catalog::error::Result;
use cleave_catalog::settings::{UpdateLocking, UpdatePlacement};
use cleave_fragment::link::AttachMode;
use cleave_query::cooperative::changing::ChangingQuery;
use cleave_query::cooperative::update_cost::UpdateCost;
use cleave_query::select::{ExplainedChange, ReadView, about_bytes};
use cleave_sql::statement::Parameters;
use cleave_sql::statement::modify::{Action, Modify};

use super::found_rows::{self, Candidate};
use super::{Asked, Settled, changed_places, is_small, planned, rows_to_lock};
use crate::session::Session;

/// The predicted costs of a statement, and the choice.
#[derive(Debug, Clone, Copy)]
pub(in crate::session) struct Placement {
    pub(in crate::session) rows: f64,
    pub(in crate::session) cost: UpdateCost,
    pub(in crate::session) asked: UpdatePlacement,
    /// Whether fragments can find the rows themselves.
    pub(in crate::session) by_pages: bool,
    /// Whether it was seen that fragments can be sent the rows.
    pub(in crate::session) by_keys: bool,
}

/// A way to change rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::session) enum Way {
    /// S1: the host finds rows and changes them row by row.
    Rows,
    /// S2: the host finds rows, and fragments that are sent these change their pages.
    Keys,
    /// S3: fragments find the rows and change their pages.
    Pages,
}

impl Placement {
    /// That of a statement that fragments may run: `queries`, or, where they are sent rows, `known`.
    ///
    /// # Errors
    /// Those of a device that is not attached.
    pub(super) async fn of(
        session: &Session,
        queries: Option<&[ChangingQuery]>,
        known: Option<&[Candidate]>,
    ) -> Result<Self> {
        let asked = session.in_force().update_placement;
        let (by_pages, by_keys) = (queries.is_some(), known.is_some());
        let mut all = Self { rows: 0.0, cost: UpdateCost::default(), asked, by_pages, by_keys };
        let (mut sent, mut later_s) = (UpdateCost::default(), 0.0);
        for candidate in known.unwrap_or_default() {
            all.rows += candidate.finding.rows;
            later_s += candidate.finding.later_s;
            sent = sent.and(candidate.known.cost(&candidate.finding).await?);
        }
        let Some(queries) = queries else { return Ok(Self { cost: sent, ..all }) };
        all.rows = 0.0;
        for query in queries {
            all.rows += query.row_estimate();
            all.cost = all.cost.and(query.cost().await?);
        }
        // The host's query for the rows is part of the two other ways.
        all.cost.by_pages_s += later_s;
        (all.cost.by_keys_s, all.cost.sent_bytes) = (sent.by_keys_s, sent.sent_bytes);
        Ok(all)
    }

    /// The way that is taken.
    pub(in crate::session) fn way(&self) -> Way {
        let UpdateCost { by_rows_s, by_pages_s, by_keys_s, .. } = self.cost;
        match self.asked {
            UpdatePlacement::Host => Way::Rows,
            UpdatePlacement::Device => {
                if self.by_pages {
                    Way::Pages
                } else {
                    Way::Rows
                }
            }
            UpdatePlacement::Keys => {
                if self.by_keys {
                    Way::Keys
                } else {
                    Way::Rows
                }
            }
            UpdatePlacement::Auto => {
                let pages = (Way::Pages, by_pages_s, self.by_pages);
                let keys = (Way::Keys, by_keys_s, self.by_keys);
                let mut best = (Way::Rows, by_rows_s);
                for (way, seconds, is_there) in [pages, keys] {
                    if is_there && seconds < best.1 {
                        best = (way, seconds);
                    }
                }
                best.0
            }
        }
    }

    /// Whether fragments find rows and write pages.
    pub(in crate::session) fn is_by_pages(&self) -> bool {
        self.way() == Way::Pages
    }

    /// The ways with their costs, as EXPLAIN shows them; `what` are the pages that fragments write, and `locks` what
    /// they lock.
    pub(in crate::session) fn ways(&self, what: &str, locks: &str) -> Vec<(String, String)> {
        let taken = self.way();
        let mark = |way: Way| if way == taken { "; chosen" } else { "" };
        let cost = &self.cost;
        let pages = format!("{what} {:.0} pages with {}", cost.pages, about_bytes(cost.page_bytes));
        let by_rows = format!(
            "{:.1} ms beside finding {:.0} rows, {} over the link{}",
            cost.by_rows_s * 1e3,
            self.rows,
            about_bytes(cost.link_bytes),
            mark(Way::Rows)
        );
        let mut lines = vec![("host, by rows".to_owned(), by_rows)];
        if self.by_keys {
            let by_keys = format!(
                "{:.1} ms beside finding them, {} sent, {pages}{}",
                cost.by_keys_s * 1e3,
                about_bytes(cost.sent_bytes),
                mark(Way::Keys)
            );
            lines.push(("host finds, device by pages".to_owned(), by_keys));
        }
        let by_pages = match self.by_pages {
            true => format!("{:.1} ms, {pages}{}", cost.by_pages_s * 1e3, mark(Way::Pages)),
            false => "cannot find the rows".to_owned(),
        };
        lines.push(("device, by pages".to_owned(), by_pages));
        if taken != Way::Rows {
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
    let asked = Asked { modify, parameters, places: &places };
    let candidates = Candidates::of(session, view, (table, &vids_below), asked, true).await?;
    let Some(mut candidates) = candidates else { return Ok(None) };
    shown(session, table, modify, &mut candidates).map(Some)
}

/// The ways of a statement by fragments, and the choice.
pub(super) struct Candidates {
    /// Fragments that find the rows.
    pub(super) queries: Option<Vec<ChangingQuery>>,
    /// Those that are sent them, one for each tablet.
    pub(super) known: Option<Vec<Candidate>>,
    pub(super) placement: Placement,
}

impl Candidates {
    /// Those of the statement `asked`, which reads `view` of `table` on the pages that begin below `vids_below`. None:
    /// there are none. With `all`, also ways are looked at that cannot be taken, for EXPLAIN.
    ///
    /// # Errors
    /// Those of a device that is not attached.
    pub(super) async fn of(
        session: &Session,
        view: &ReadView,
        (table, vids_below): (&TableState, &[u64]),
        asked: Asked<'_>,
        all: bool,
    ) -> Result<Option<Self>> {
        let setting = session.in_force().update_placement;
        let read = (table, vids_below);
        let queries = match setting {
            UpdatePlacement::Keys if !all => None,
            _ => Box::pin(planned(session, view, read, asked)).await?,
        };
        let may_pay = match setting {
            UpdatePlacement::Keys => true,
            UpdatePlacement::Auto => queries.is_none() || is_apart(session, table),
            UpdatePlacement::Host | UpdatePlacement::Device => false,
        };
        let known = match all || may_pay {
            true => Box::pin(found_rows::candidates(session, view, read, asked)).await?,
            false => None,
        };
        if queries.is_none() && known.is_none() {
            return Ok(None);
        }
        let mut placement = Placement::of(session, queries.as_deref(), known.as_deref()).await?;
        // More are refused once they have been found.
        let is_sent = placement.cost.sent_bytes <= session.in_force().broadcast_bytes as f64;
        placement.by_keys &= is_sent || setting == UpdatePlacement::Keys;
        Ok(Some(Self { queries, known, placement }))
    }
}

/// Whether a device of the table is outside of the host's process, so that it finds rows at another price.
fn is_apart(session: &Session, table: &TableState) -> bool {
    let mut devices = table.tablets.iter().map(|tablet| session.database.attached(tablet.device));
    devices.any(|device| device.is_ok_and(|device| device.mode() != AttachMode::Embedded))
}

/// The same of ways that are planned.
///
/// # Errors
/// Those of making their fragments.
pub(super) fn shown(
    session: &Session,
    table: &TableState,
    modify: &Modify,
    candidates: &mut Candidates,
) -> Result<ExplainedChange> {
    let locking = session.in_force().update_locking;
    let placement = candidates.placement;
    let to_lock = |place, query: &ChangingQuery| {
        let locks = locking == UpdateLocking::Shared && query.is_on_device();
        locks.then(|| rows_to_lock(session, table, place))
    };
    let mut fragments = Vec::new();
    match placement.way() {
        Way::Rows => {}
        Way::Pages => {
            for (place, query) in candidates.queries.iter().flatten().enumerate() {
                fragments.push((query.shown(to_lock(place, query))?, query.estimates()));
            }
        }
        Way::Keys => {
            for (place, candidate) in candidates.known.take().into_iter().flatten().enumerate() {
                let Some(query) = candidate.shown(place, &table.schema)? else { continue };
                fragments.push((query.shown(to_lock(place, &query))?, query.estimates()));
            }
        }
    }
    let verb = match modify.action {
        Action::Delete => "Delete",
        Action::Update(_) => "Update",
    };
    let what = format!("{verb} of {} by fragments", table.schema.name);
    Ok(ExplainedChange { what, fragments, placement: placement.lines(locking) })
}

/// The figures of a run, for EXPLAIN ANALYZE.
pub(in crate::session) fn figures(count: u64, fragments: usize) -> Vec<(String, String)> {
    let line = |name: &str, value: String| (name.to_owned(), value);
    vec![line("rows", count.to_string()), line("fragments", fragments.to_string())]
}
