//! Rows that the host finds and fragments change (S2 of Update NDP): a statement in, fragments that are sent VIDs and
//! new values out.
//!
//! ```text
//!  UPDATE t SET a = o.n, b = b + 1 FROM other o WHERE …
//!    the host finds    SELECT t.vid, o.n FROM target t, other o WHERE …      once for each tablet, planned as ever
//!    the device makes  SELECT t.vid, t.a, t.b + 1 FROM target t              of the rows that are sent
//! ```
//!
//! A value that needs nothing but its row is made where the row is; if the device cannot make it, and of all values
//! that read other tables, the host sends it with the VID ([`cleave_query::cooperative::found_rows`]). The host's
//! values are those of their columns when they are sent. Rows that are more than may be sent, and a value that is
//! refused, send the statement back to the rows, where it fails with the error that names them, or succeeds.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, FieldRef, Schema};
use cleave_catalog::catalog::TableState;
use cleave_catalog::error::Result;
use cleave_fragment::ChangedColumns;
use cleave_query::cooperative::changing::{ChangingQuery, CheckedRows};
use cleave_query::cooperative::found_rows::{Finding, FoundRows, KnownRows};
use cleave_query::select::{QueryRequest, ReadView, Target};
use cleave_sql::statement::assigned::check_set;
use cleave_sql::statement::conform::converted;
use cleave_store::{Projection, TableSchema};

use super::returned_rows::returned_columns;
use super::{Asked, checked_rows, constants};
use crate::session::Session;

/// The fragment of one tablet without its rows, and the query that finds these.
pub(super) struct Candidate {
    pub(super) known: KnownRows,
    pub(super) finding: Finding,
    /// The places in the table of the columns whose new values the host has, behind the VID.
    places: BTreeSet<usize>,
    /// The places of these columns in the query of the fragment.
    in_fragment: BTreeSet<usize>,
    checked: CheckedRows,
}

impl Candidate {
    /// The fragment of the tablet at `place` of the table with `schema`, over no rows, for EXPLAIN. None: it cannot be
    /// made.
    ///
    /// # Errors
    /// Those of making it.
    pub(super) fn shown(self, place: usize, schema: &TableSchema) -> Result<Option<ChangingQuery>> {
        let none = RecordBatch::new_empty(Arc::clone(&self.finding.schema));
        let Ok(none) = stored(schema, &self.places, &none) else { return Ok(None) };
        self.known.with((place, FoundRows::none(none.schema())), &self.in_fragment, &self.checked)
    }

    /// The same over the rows that it finds for `asked`. None: they cannot be sent.
    ///
    /// # Errors
    /// Those of the statement's query.
    async fn found(
        self,
        session: &Session,
        (place, schema): (usize, &TableSchema),
        asked: Asked<'_>,
    ) -> Result<Option<ChangingQuery>> {
        let given = Arc::clone(&self.finding.schema);
        let type_of = |place: usize| {
            let at = self.places.iter().position(|own| *own == place)?;
            Some(given.fields().get(at + 1)?.data_type())
        };
        if check_set(schema, asked.modify.assignments(), type_of).is_err() {
            return Ok(None);
        }
        let mut running = self.finding.query.run(false).await?;
        let stored = |batch: &RecordBatch| stored(schema, &self.places, batch);
        let (database, bytes_max) =
            (session.database.queries(), session.in_force().broadcast_bytes);
        match FoundRows::gather(&mut running, database, stored, bytes_max).await? {
            Some(found) => self.known.with((place, found), &self.in_fragment, &self.checked),
            None => Ok(None),
        }
    }
}

/// The fragments of `asked`, which are `candidates`, with the rows that the host finds for them. None: one cannot be
/// made, or there are too many rows.
///
/// # Errors
/// Those of the statement's query.
pub(super) async fn queries(
    session: &Session,
    schema: &TableSchema,
    asked: Asked<'_>,
    candidates: Vec<Candidate>,
) -> Result<Option<Vec<ChangingQuery>>> {
    let mut queries = Vec::with_capacity(candidates.len());
    for (place, candidate) in candidates.into_iter().enumerate() {
        match Box::pin(candidate.found(session, (place, schema), asked)).await? {
            Some(query) => queries.push(query),
            None => return Ok(None),
        }
    }
    Ok(Some(queries))
}

/// `batch` of the host's query, with the new values of the columns at `places` as they are stored.
fn stored(
    schema: &TableSchema,
    places: &BTreeSet<usize>,
    batch: &RecordBatch,
) -> Result<RecordBatch> {
    let given = batch.schema();
    let mut fields: Vec<FieldRef> = given.fields().iter().cloned().collect();
    let mut columns = batch.columns().to_vec();
    for (at, place) in places.iter().enumerate() {
        let column = schema.columns.get(*place);
        if let (Some(column), Some(array), Some(field)) =
            (column, columns.get_mut(at + 1), fields.get_mut(at + 1))
        {
            *array = converted(column, array)?;
            *field = Arc::new(Field::new(&column.name, array.data_type().clone(), true));
        }
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

/// The fragments of `asked` without their rows, one for each tablet, with the queries that find these. None: one cannot
/// be made; what cannot be planned fails when the statement makes its rows.
///
/// # Errors
/// Internal ones only.
pub(super) async fn candidates(
    session: &Session,
    view: &ReadView,
    (table, vids_below): (&TableState, &[u64]),
    asked: Asked<'_>,
) -> Result<Option<Vec<Candidate>>> {
    let Asked { modify, parameters, places } = asked;
    let schema = &table.schema;
    let Some(constants) = constants(session, table, modify)? else { return Ok(None) };
    let given: BTreeSet<usize> = constants.keys().copied().collect();
    let of_row: BTreeSet<usize> = modify.values_of_row(schema).union(&given).copied().collect();
    let returned = returned_columns(schema, modify);
    let (needed, checked) = checked_rows(session, table, (places, constants, returned)).await?;
    let indices: Vec<usize> = places.iter().copied().collect();
    let columns = Projection::of_table(schema, &indices);
    let (database, settings) = (session.database.queries(), session.in_force());
    let mut all = Vec::with_capacity(table.tablets.len());
    for tablet in 0..table.tablets.len() {
        let vids = 0..vids_below.get(tablet).copied().unwrap_or(u64::MAX);
        let target = Some(Target { table: modify.table.clone(), tablet, vids });
        let view = ReadView { target, ..view.clone() };
        // What is read has been noted when the host finds the rows.
        let again = ReadView { reads: None, ..view.clone() };
        let mut made = None;
        for by_device in [&of_row, &given] {
            let query = modify.of_found_rows(schema, by_device).query_of(schema, Some(&needed))?;
            let request = QueryRequest { query: &query, parameters, view: Some(&again) };
            let changed =
                |input| ChangedColumns { input, columns: columns.clone(), returned: None };
            let count = schema.columns.len();
            let changed = (changed, &checked);
            let known = Box::pin(KnownRows::plan(database, settings, request, count, changed));
            if let Some(known) = known.await? {
                let own: BTreeSet<usize> = places.difference(by_device).copied().collect();
                made = Some((known, own));
                break;
            }
        }
        let Some((known, own)) = made else { return Ok(None) };
        let in_fragment = |place: &usize| needed.range(..place).count() + 1;
        let query = modify.query_of(schema, Some(&own))?;
        let request = QueryRequest { query: &query, parameters, view: Some(&view) };
        let finding = Box::pin(Finding::plan(database, settings, request)).await;
        let Some(finding) = finding else { return Ok(None) };
        let in_fragment = own.iter().map(in_fragment).collect();
        let checked = checked.clone();
        all.push(Candidate { known, finding, places: own, in_fragment, checked });
    }
    Ok(Some(all))
}
