//! Routes new rows to tablets: batches in, parts of them with the place of their tablet out.
//!
//! By hash, each row goes to the tablet of its values. In load order, whole stretches of rows go to the tablet with the
//! fewest, so that tablets grow alike, and rows that came together lie together: a stretch of a load is a bulk page.

use arrow::array::RecordBatch;
use cleave_fragment::STRETCH_ROWS;
use cleave_store::TabletKey;

use cleave_catalog::catalog::TableState;
use cleave_catalog::error::Result;

/// Divides the rows of one statement. See the module's description.
#[derive(Debug)]
pub(crate) struct Router {
    /// Rows that each tablet was ever given, those of this statement too.
    given: Vec<u64>,
    /// `None`: load order.
    key: Option<TabletKey>,
    /// In load order: the current tablet, and how many rows it is still to get.
    turn: Option<(usize, usize)>,
}

impl Router {
    /// A router to the tablets of `table`.
    ///
    /// # Errors
    /// A tablet key that the table does not have.
    pub(crate) fn new(table: &TableState) -> Result<Self> {
        let key = match table.tablets.len() {
            0 | 1 => None,
            _ => table.division.tablet_key(&table.schema)?,
        };
        // In this format version rows are only added.
        let given = table.tablets.iter().map(|tablet| tablet.inserted_count()).collect();
        Ok(Self { given, key, turn: None })
    }

    /// The parts of `rows`, which have all columns of the table, each with the place of its tablet. Rows of one tablet
    /// stay in their order.
    ///
    /// # Errors
    /// For rows of another table.
    pub(crate) fn route(&mut self, rows: RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
        let parts = match &self.key {
            None if self.given.len() <= 1 => vec![(0, rows)],
            None => self.in_load_order(&rows, STRETCH_ROWS),
            Some(key) => key.divide(&rows, self.given.len())?,
        };
        Ok(self.counted(parts))
    }

    /// As [`Router::route`], of all rows of a small statement: in load order they go to one tablet.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn route_all(&mut self, rows: RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
        let parts = match &self.key {
            None => vec![(self.emptiest(), rows)],
            Some(key) => key.divide(&rows, self.given.len())?,
        };
        Ok(self.counted(parts))
    }

    fn counted(&mut self, parts: Vec<(usize, RecordBatch)>) -> Vec<(usize, RecordBatch)> {
        for (place, rows) in &parts {
            if let Some(given) = self.given.get_mut(*place) {
                *given = given.saturating_add(rows.num_rows() as u64);
            }
        }
        parts
    }

    /// The tablet that was given the fewest rows, the first of several.
    fn emptiest(&self) -> usize {
        let places = self.given.iter().enumerate();
        places.min_by_key(|(_, given)| **given).map_or(0, |(place, _)| place)
    }

    fn in_load_order(&mut self, rows: &RecordBatch, stretch: usize) -> Vec<(usize, RecordBatch)> {
        let mut parts: Vec<(usize, RecordBatch)> = Vec::new();
        let mut from = 0;
        while from < rows.num_rows() {
            let (place, left) = match self.turn.filter(|(_, left)| *left > 0) {
                Some(turn) => turn,
                // Parts of this very batch are not counted yet.
                None => (self.emptiest_after(&parts), stretch),
            };
            let count = left.min(rows.num_rows() - from);
            parts.push((place, rows.slice(from, count)));
            self.turn = Some((place, left - count));
            from += count;
        }
        parts
    }

    fn emptiest_after(&self, parts: &[(usize, RecordBatch)]) -> usize {
        let more = |place: usize| {
            let own = parts.iter().filter(|(part, _)| *part == place);
            own.map(|(_, rows)| rows.num_rows() as u64).sum::<u64>()
        };
        let places = self.given.iter().enumerate();
        places.min_by_key(|(place, given)| **given + more(*place)).map_or(0, |(place, _)| place)
    }
}

#[cfg(test)]
mod tests;
