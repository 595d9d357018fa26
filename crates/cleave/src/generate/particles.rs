//! Generates particles of a plasma in the form that VPIC's simulations store: the table from which CORD's experiments
//! select those with much kinetic energy.
//!
//! 1. A particle lies somewhere in the box `[0, 1)³`; all places are equally likely.
//! 2. It is cold, or one of the few hot ones. Its momentum, of one unit of mass and in units of the speed of light, has
//!    three normal parts, which are larger if it is hot: two Maxwell distributions.
//! 3. Its kinetic energy is √(1 + u²) − 1, where u² is the sum of the squares of these parts as they are stored.
//!
//! ```text
//! (seed, id) ──▶ Draw ──┬──▶ x, y, z
//!                       └──▶ cold or hot ──▶ ux, uy, uz ──▶ ke
//! ```
//!
//! Which share of the rows `ke > c` selects follows from the two distributions; `docs/operations.md` lists some. No row
//! depends on another one, so zone maps exclude pages only where fewer rows are selected than there are pages.

use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::TableSpec;
use super::random::{Draw, mix};

/// The particles of one seed; cheap to clone and to share between threads.
#[derive(Clone, Debug)]
pub(crate) struct Particles {
    rows: u64,
    seed: u64,
    schema: SchemaRef,
}

/// The default number of particles.
pub(crate) const PARTICLES_DEFAULT: u64 = 1_000_000;
/// A trillion, as the largest simulations have.
pub(crate) const PARTICLES_MAX: u64 = 1_000_000_000_000;

const TABLE: &str = "particles";
/// The columns behind `id`.
const MEASURES: [&str; 7] = ["x", "y", "z", "ux", "uy", "uz", "ke"];
/// The share of hot particles: such that `ke > 0.2` selects 2.5 % of the rows, as in CORD's experiments.
const HOT_SHARE: f64 = 0.04;
/// The standard deviation of each part of a cold particle's momentum.
const COLD_SPREAD: f64 = 0.1;
/// The same of a hot one.
const HOT_SPREAD: f64 = 0.5;
/// Rows of a batch, and of a part.
const BATCH_ROWS: u64 = 65_536;
const PART_ROWS: u64 = 3 * BATCH_ROWS;

impl Particles {
    /// The table with `rows` rows.
    pub(crate) fn new(rows: u64, seed: u64) -> Self {
        let id = Field::new("id", DataType::Int64, false);
        let measures = MEASURES.map(|name| Field::new(name, DataType::Float32, false));
        let fields: Vec<Field> = std::iter::once(id).chain(measures).collect();
        Self { rows, seed, schema: Arc::new(Schema::new(fields)) }
    }

    /// The one table.
    pub(crate) fn tables(&self) -> Vec<TableSpec> {
        vec![TableSpec { name: TABLE, schema: Arc::clone(&self.schema), rows: self.rows }]
    }

    /// The statement that creates the table.
    pub(crate) fn schema_sql() -> &'static str {
        include_str!("particles.sql")
    }

    /// How many independent parts `table` has; none if there is no such table.
    pub(crate) fn parts(&self, table: &str) -> usize {
        if table != TABLE {
            return 0;
        }
        usize::try_from(self.rows.div_ceil(PART_ROWS)).unwrap_or(usize::MAX)
    }

    /// One part of `table`, ids ascending over the parts. Empty if there is no such table or part.
    pub(crate) fn part(
        &self,
        table: &str,
        part: usize,
    ) -> Box<dyn Iterator<Item = RecordBatch> + Send> {
        if part >= self.parts(table) {
            return Box::new(std::iter::empty());
        }
        let before = u64::try_from(part).unwrap_or(u64::MAX).saturating_mul(PART_ROWS);
        let last = before.saturating_add(PART_ROWS).min(self.rows);
        let particles = self.clone();
        let mut next = before + 1;
        Box::new(std::iter::from_fn(move || {
            let end = last.min(next + BATCH_ROWS - 1);
            let ids = next..=end;
            next = end + 1;
            (!ids.is_empty()).then(|| particles.batch(ids))
        }))
    }

    /// The rows with these ids.
    fn batch(&self, ids: RangeInclusive<u64>) -> RecordBatch {
        let mut keys = Vec::new();
        let mut measures: [Vec<f32>; MEASURES.len()] = Default::default();
        for id in ids {
            keys.push(i64::try_from(id).unwrap_or(i64::MAX));
            for (column, measure) in measures.iter_mut().zip(particle(self.seed, id)) {
                column.push(measure);
            }
        }
        let keys: ArrayRef = Arc::new(Int64Array::from(keys));
        let measures = measures.map(|column| Arc::new(Float32Array::from(column)) as ArrayRef);
        let columns = std::iter::once(keys).chain(measures).collect();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        assert!(batch.is_ok(), "generated columns do not fit their schema: {batch:?}");
        batch.unwrap_or_else(|_| RecordBatch::new_empty(Arc::clone(&self.schema)))
    }
}

/// What the row with `id` has in the columns [`MEASURES`].
fn particle(seed: u64, id: u64) -> [f32; MEASURES.len()] {
    let mut draw = Draw::new(mix(seed, id), 1);
    let [x, y, z]: [f32; 3] = std::array::from_fn(|_| coordinate(&mut draw));
    let spread = if draw.chance(HOT_SHARE) { HOT_SPREAD } else { COLD_SPREAD };
    let momentum: [f32; 3] = std::array::from_fn(|_| single(spread * draw.normal()));
    let [ux, uy, uz] = momentum;
    [x, y, z, ux, uy, uz, kinetic_energy(momentum)]
}

/// A number in `[0, 1)`, of as many bits as a `real` has: a longer one might be rounded up to 1.
fn coordinate(draw: &mut Draw) -> f32 {
    const SCALE: f32 = 1.0 / (1u32 << 24) as f32;
    (draw.bits() >> 40) as f32 * SCALE
}

/// √(1 + u²) − 1, written so that little is lost where u is small.
fn kinetic_energy(momentum: [f32; 3]) -> f32 {
    let square: f64 = momentum.into_iter().map(|part| f64::from(part).powi(2)).sum();
    single(square / ((1.0 + square).sqrt() + 1.0))
}

/// The nearest number of single precision.
#[expect(clippy::cast_possible_truncation, reason = "rounding is what is asked for")]
fn single(x: f64) -> f32 {
    x as f32
}

#[cfg(test)]
mod tests;
