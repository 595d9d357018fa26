//! Cursors: DECLARE starts a query, FETCH gives some of its rows, MOVE skips some, CLOSE ends it.
//!
//! ```text
//!  DECLARE ─▶ ResultRows ─▶ CursorRows ─┬─ FETCH 100 ─▶ ResultRows of at most 100
//!                                       └─ FETCH ALL ─▶ ResultRows of the rest, as they come
//! ```
//!
//! The rows are those of the snapshot at DECLARE, whatever the transaction does afterwards. A cursor ends with its
//! transaction, or, WITH HOLD, with its session. Rolling back its transaction or savepoint removes it.
//!
//! WITH HOLD, a device behind a link writes many rows as a result set, from DECLARE on ([`DeferredQuery`]): FETCH waits
//! for it. Then neither a run nor the snapshot lives as long as the session.
//!
//! Invariant: a cursor holds in memory only what its query makes ahead and the rest of one batch. What it takes besides
//! is part of what its session [keeps](super::kept).
//!
//! Source: PostgreSQL's manual, "DECLARE", "FETCH".

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use cleave_catalog::error::{Error, Fault, NameKind, Result};
use cleave_catalog::session_objects::{SessionObjects, ShownCursor};
use cleave_query::select::{DeferredQuery, QueryRequest};
use cleave_sql::statement::Parameters;
use cleave_sql::statement::parse::{Declare, Fetch};
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use super::kept::Kept;
use super::started::ResultRows;
use super::{Outcome, Session, Started, block, started};

/// Cursors that a session may keep: each is a running query.
const CURSOR_COUNT_MAX: usize = 1000;

/// Memory of a query that has begun, with its plan, and is kept for later rows: about 90 kB were measured for a short
/// one.
pub const BEGUN_QUERY_BYTES: usize = 96 << 10;

/// The cursors of a session, by name.
pub(super) struct Cursors {
    by_name: BTreeMap<String, Cursor>,
    shown: SessionObjects,
}

struct Cursor {
    schema: SchemaRef,
    rows: Arc<Mutex<CursorRows>>,
    is_held: bool,
    /// Its transaction has committed.
    is_flushed: bool,
    /// Savepoints that existed when it was declared.
    depth: usize,
    _memory: Kept,
}

/// The rows that a cursor has not given yet.
pub(super) struct CursorRows {
    rows: ResultRows,
    /// The rest of the last batch.
    rest: Option<RecordBatch>,
}

impl CursorRows {
    /// The next rows, of which `left` (None: any number) are still wanted; None where there are no more. Cancel-safe.
    pub(super) async fn next(&mut self, left: &mut Option<u64>) -> Result<Option<RecordBatch>> {
        if *left == Some(0) {
            return Ok(None);
        }
        let batch = match self.rest.take() {
            Some(rest) => rest,
            None => match self.rows.next().await? {
                Some(batch) => batch,
                None => return Ok(None),
            },
        };
        let room = left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
        let count = batch.num_rows().min(room);
        if count < batch.num_rows() {
            self.rest = Some(batch.slice(count, batch.num_rows() - count));
        }
        if let Some(left) = left {
            *left -= count as u64;
        }
        Ok(Some(batch.slice(0, count)))
    }
}

impl Cursors {
    /// Of a session whose catalog shows `shown`.
    pub(super) fn of(shown: SessionObjects) -> Self {
        Self { by_name: BTreeMap::new(), shown }
    }

    fn retain(&mut self, is_left: impl Fn(&Cursor) -> bool) {
        let count = self.by_name.len();
        self.by_name.retain(|_, cursor| is_left(cursor));
        if self.by_name.len() < count {
            self.shown.keep_cursors(|name| self.by_name.contains_key(name));
        }
    }

    /// Applies the end of a transaction to the cursors.
    pub(super) fn end_transaction(&mut self, is_committed: bool) {
        self.retain(|cursor| cursor.is_flushed || (cursor.is_held && is_committed));
        for cursor in self.by_name.values_mut() {
            (cursor.is_flushed, cursor.depth) = (true, 0);
        }
    }

    /// Applies ROLLBACK TO the savepoint at `place`.
    pub(super) fn undo_to(&mut self, place: usize) {
        self.retain(|cursor| cursor.is_flushed || cursor.depth <= place);
    }

    /// Applies RELEASE: cursors declared since the savepoint at `place` belong to the level before it.
    pub(super) fn release(&mut self, place: usize) {
        for cursor in self.by_name.values_mut() {
            cursor.depth = cursor.depth.min(place);
        }
    }

    /// Ends all.
    pub(super) fn clear(&mut self) {
        self.retain(|_| false);
    }

    /// Runs FETCH up to its rows, MOVE to its end.
    pub(super) async fn fetch(&self, fetch: &Fetch) -> Result<Started> {
        let cursor = self.find(&fetch.name)?;
        let (schema, rows) = (Arc::clone(&cursor.schema), Arc::clone(&cursor.rows));
        let mut rows = ResultRows::of_cursor(schema, rows, fetch.row_count);
        if !fetch.is_move {
            return Ok(Started::Rows(rows));
        }
        let mut passed = 0;
        while let Some(batch) = rows.next().await? {
            passed += batch.num_rows();
        }
        Ok(Started::Done { tag: format!("MOVE {passed}") })
    }

    /// Runs CLOSE; None: of all.
    pub(super) fn close(&mut self, name: Option<&str>) -> Result<()> {
        let Some(name) = name else {
            self.clear();
            return Ok(());
        };
        self.find(name)?;
        self.by_name.remove(name);
        self.shown.keep_cursors(|shown| shown != name);
        Ok(())
    }

    /// The columns of the cursor `name`.
    pub(super) fn columns(&self, name: &str) -> Result<SchemaRef> {
        self.find(name).map(|cursor| Arc::clone(&cursor.schema))
    }

    fn find(&self, name: &str) -> Result<&Cursor> {
        let names = || self.by_name.keys().map(String::as_str);
        self.by_name.get(name).ok_or_else(|| Error::unknown(NameKind::Cursor, name, names()))
    }
}

impl Session {
    /// The columns of the cursor `name`; None: there is none.
    #[must_use]
    pub fn cursor_columns(&self, name: &str) -> Option<SchemaRef> {
        self.cursors.find(name).ok().map(|cursor| Arc::clone(&cursor.schema))
    }

    /// Lets the threads of `runtime` compute the rows of cursors, as [`ResultRows::on`] does for others.
    pub fn compute_on(&mut self, runtime: Handle) {
        self.runtime = Some(runtime);
    }
}

/// Runs DECLARE.
pub(super) async fn declare(
    session: &mut Session,
    declare: &Declare,
    parameters: &Parameters,
    text: &str,
) -> Result<Outcome> {
    let Declare { name, is_held, query } = declare;
    let depth = block::savepoint_count(session.block.as_ref());
    if session.cursors.by_name.contains_key(name) {
        return Err(Error::NameTaken { kind: NameKind::Cursor, name: name.clone() });
    }
    if session.cursors.by_name.len() >= CURSOR_COUNT_MAX {
        return Err(Error::Invalid {
            message: format!(
                "a session keeps at most {CURSOR_COUNT_MAX} cursors; CLOSE those that are done"
            ),
            fault: Fault::TooLong,
            position: None,
        });
    }
    let memory = session.kept.keep("cursors", BEGUN_QUERY_BYTES.saturating_add(text.len()))?;
    let view = session.view().await?;
    let asked = QueryRequest { query, parameters, view: Some(&view) };
    let (database, settings) = (session.database.queries(), session.in_force());
    let deferred = match is_held {
        true => DeferredQuery::plan(database, settings, (asked, &view), (name, text)).await?,
        false => None,
    };
    let rows = match (deferred, &session.runtime) {
        (Some(query), runtime) => {
            let runtime = runtime.clone().unwrap_or_else(Handle::current);
            ResultRows::deferred(query, &runtime)
        }
        (None, runtime) => {
            let started = started::started(&session.database, settings, asked, text).await?;
            let Started::Rows(rows) = started else {
                return Err(Error::unsupported("a cursor for a statement that returns no rows"));
            };
            match runtime {
                Some(runtime) => rows.on(runtime),
                None => rows,
            }
        }
    };
    let cursor = Cursor {
        schema: rows.schema(),
        rows: Arc::new(Mutex::new(CursorRows { rows, rest: None })),
        is_held: *is_held,
        is_flushed: depth.is_none(),
        depth: depth.unwrap_or(0),
        _memory: memory,
    };
    session.cursors.by_name.insert(name.clone(), cursor);
    let made_us = session.moment().now_us;
    let shown = ShownCursor { text: text.to_owned(), made_us, is_held: *is_held };
    session.cursors.shown.put_cursor(name, shown);
    Ok(Outcome::done("DECLARE CURSOR"))
}
