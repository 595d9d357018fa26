//! Routes new rows to tablets: batches in, parts of them with the place of their tablet out.
//!
//! By hash and by range, each row goes to the tablet of its values. In load order, whole stretches of rows go to the
//! tablet with the fewest, so that tablets grow alike, and rows that came together lie together: a stretch of a load is
//! a bulk page. Round robin, the rows of each statement go to all tablets in equal shares.

use arrow::array::RecordBatch;
use cleave_fragment::STRETCH_ROWS;
use cleave_media::random_bytes;
use cleave_store::{EqualShares, TabletKey};

use cleave_catalog::catalog::TableState;
use cleave_catalog::catalog::division::Division;
use cleave_catalog::error::Result;

/// Divides the rows of one statement. See the module's description.
#[derive(Debug)]
pub(crate) struct Router {
    /// Rows that each tablet was ever given, those of this statement too.
    given: Vec<u64>,
    way: Way,
}

/// How a tablet is chosen.
#[derive(Debug)]
enum Way {
    /// The current tablet, and how many rows it is still to get.
    LoadOrder(Option<(usize, usize)>),
    RoundRobin(EqualShares),
    Values(TabletKey),
}

impl Router {
    /// A router to the tablets of `table`.
    ///
    /// # Errors
    /// A tablet key that the table does not have.
    pub(crate) fn new(table: &TableState) -> Result<Self> {
        // In this format version rows are only added.
        let given: Vec<u64> = table.tablets.iter().map(|tablet| tablet.inserted_count()).collect();
        let key = match given.len() {
            0 | 1 => None,
            _ => table.division.tablet_key(&table.schema)?,
        };
        let way = match key {
            Some(key) => Way::Values(key),
            None if table.division == Division::RoundRobin && !given.is_empty() => {
                Way::RoundRobin(EqualShares::new(from_anywhere(given.len())))
            }
            None => Way::LoadOrder(None),
        };
        Ok(Self { given, way })
    }

    /// The parts of `rows`, which have all columns of the table, each with the place of its tablet. Rows of one tablet
    /// stay in their order.
    ///
    /// # Errors
    /// For rows of another table.
    pub(crate) fn route(&mut self, rows: RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
        let parts = match &mut self.way {
            Way::LoadOrder(_) if self.given.len() <= 1 => vec![(0, rows)],
            Way::LoadOrder(turn) => in_load_order(&self.given, turn, &rows, STRETCH_ROWS),
            Way::RoundRobin(shares) => shares.divide(&rows),
            Way::Values(key) => key.divide(&rows, self.given.len())?,
        };
        Ok(self.counted(parts))
    }

    /// As [`Router::route`], of all rows of a small statement: in load order they go to one tablet.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn route_all(&mut self, rows: RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
        match &self.way {
            Way::LoadOrder(_) => {
                let parts = vec![(emptiest_after(&self.given, &[]), rows)];
                Ok(self.counted(parts))
            }
            Way::RoundRobin(_) | Way::Values(_) => self.route(rows),
        }
    }

    fn counted(&mut self, parts: Vec<(usize, RecordBatch)>) -> Vec<(usize, RecordBatch)> {
        for (place, rows) in &parts {
            if let Some(given) = self.given.get_mut(*place) {
                *given = given.saturating_add(rows.num_rows() as u64);
            }
        }
        parts
    }
}

/// The places of `count` tablets in turn, from any of them on: so that statements of few rows do not all begin with the
/// same. Rows of the delta are not counted yet, so that numbers of rows would not tell.
fn from_anywhere(count: usize) -> Vec<usize> {
    // Without randomness the first will do.
    let random = u64::from_le_bytes(random_bytes().unwrap_or_default());
    let first = usize::try_from(random % count.max(1) as u64).unwrap_or_default();
    (0..count).cycle().skip(first).take(count).collect()
}

/// Stretches of `rows` for the tablets that were `given` the fewest rows. `turn` is the current tablet, and how many
/// rows it is still to get.
fn in_load_order(
    given: &[u64],
    turn: &mut Option<(usize, usize)>,
    rows: &RecordBatch,
    stretch: usize,
) -> Vec<(usize, RecordBatch)> {
    let mut parts: Vec<(usize, RecordBatch)> = Vec::new();
    let mut from = 0;
    while from < rows.num_rows() {
        let (place, left) = match turn.filter(|(_, left)| *left > 0) {
            Some(turn) => turn,
            // Parts of this very batch are not counted yet.
            None => (emptiest_after(given, &parts), stretch),
        };
        let count = left.min(rows.num_rows() - from);
        parts.push((place, rows.slice(from, count)));
        *turn = Some((place, left - count));
        from += count;
    }
    parts
}

/// The tablet with the fewest rows, of those that were `given` and those of `parts`; the first of several.
fn emptiest_after(given: &[u64], parts: &[(usize, RecordBatch)]) -> usize {
    let more = |place: usize| {
        let own = parts.iter().filter(|(part, _)| *part == place);
        own.map(|(_, rows)| rows.num_rows() as u64).sum::<u64>()
    };
    let places = given.iter().enumerate();
    places.min_by_key(|(place, given)| **given + more(*place)).map_or(0, |(place, _)| place)
}

#[cfg(test)]
mod tests;
