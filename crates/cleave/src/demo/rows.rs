//! Whether two results hold the same rows, whichever side computed them.
//!
//! Everything agrees byte for byte, except that floats agree within 1e-9 relative, since sums are formed in
//! another order on either side. Rows without ORDER BY are compared as a multiset.

use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};

/// How far floats may differ, relative to the larger.
const TOLERANCE: f64 = 1e-9;

/// The rows of one result, in an order in which equal results are equal.
#[derive(Debug, Clone)]
pub(crate) struct Rows(Vec<Vec<Cell>>);

#[derive(Debug, Clone, PartialEq)]
enum Cell {
    Null,
    Float(f64),
    Text(String),
}

impl Rows {
    /// Takes rows as they are if `is_ordered`, sorted otherwise.
    pub(crate) fn new(batches: &[RecordBatch], is_ordered: bool) -> Result<Rows, ArrowError> {
        let mut rows = Vec::new();
        for batch in batches {
            let columns: Vec<Vec<Cell>> = batch
                .columns()
                .iter()
                .map(|column| cells(column.as_ref()))
                .collect::<Result<_, _>>()?;
            let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
            for _ in 0..batch.num_rows() {
                rows.push(columns.iter_mut().filter_map(Iterator::next).collect());
            }
        }
        if !is_ordered {
            rows.sort_by_cached_key(|row: &Vec<Cell>| {
                row.iter().map(Cell::key).collect::<Vec<_>>()
            });
        }
        Ok(Rows(rows))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// What differs first, in words; nothing if the rows agree.
    pub(crate) fn difference(&self, other: &Rows) -> Option<String> {
        if self.count() != other.count() {
            return Some(format!("{} rows and {} rows", self.count(), other.count()));
        }
        let same = |(mine, theirs): (&Vec<Cell>, &Vec<Cell>)| {
            mine.len() == theirs.len() && mine.iter().zip(theirs).all(|(a, b)| a.agrees(b))
        };
        let place = self.0.iter().zip(&other.0).position(|pair| !same(pair))?;
        Some(format!("row {}: {:?} and {:?}", place + 1, self.0.get(place), other.0.get(place)))
    }
}

impl Cell {
    fn agrees(&self, other: &Cell) -> bool {
        match (self, other) {
            (Cell::Float(a), Cell::Float(b)) => {
                a.to_bits() == b.to_bits()
                    || (a - b).abs() <= TOLERANCE * a.abs().max(b.abs())
                    || (a.is_nan() && b.is_nan())
            }
            _ => self == other,
        }
    }

    /// Floats that differ by a rounding error get the same key nearly always; where they do not, two rows
    /// may stand in another order, and the difference is reported: loud, not wrong.
    fn key(&self) -> String {
        match self {
            Cell::Null => String::new(),
            Cell::Float(value) => format!("{value:.6e}"),
            Cell::Text(text) => format!("={text}"),
        }
    }
}

fn cells(array: &dyn Array) -> Result<Vec<Cell>, ArrowError> {
    if array.data_type().is_floating() {
        let wide = cast(array, &DataType::Float64)?;
        let floats = wide.as_primitive::<Float64Type>();
        return Ok(floats.iter().map(|value| value.map_or(Cell::Null, Cell::Float)).collect());
    }
    let options = FormatOptions::new();
    let formatter = ArrayFormatter::try_new(array, &options)?;
    (0..array.len())
        .map(|row| {
            if array.is_null(row) {
                Ok(Cell::Null)
            } else {
                formatter.value(row).try_to_string().map(Cell::Text)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
