//! Divides rows by a hash of their keys.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::buffer::NullBuffer;
use arrow::compute::take_record_batch;
use arrow::datatypes::DataType;
use datafusion_common::hash_utils::{RandomState, create_hashes};
use datafusion_common::{DataFusionError, Result};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr_common::utils::evaluate_expressions_to_arrays;

use crate::command::slot::compact;

/// Differs from the seeds of DataFusion's tables, so that the rows of one part are spread over all of a table.
const SEED: u64 = 0x636c_6561_7665_0026;

/// The keys by which rows are divided.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    pub(super) expressions: Vec<Arc<dyn PhysicalExpr>>,
    /// Rows with a NULL among their keys match nothing, and are spread over all parts round-robin.
    pub(super) nulls_match_nothing: bool,
}

/// The least and the greatest hash of rows, if there are any.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Hashes(Option<(u64, u64)>);

impl Hashes {
    pub(super) fn add(&mut self, others: Self) {
        self.0 = match (self.0, others.0) {
            (Some((least, most)), Some((other_least, other_most))) => {
                Some((least.min(other_least), most.max(other_most)))
            }
            (own, others) => own.or(others),
        };
    }

    /// Whether the rows have at most one key, which no hash divides.
    pub(super) fn are_of_one_key(self) -> bool {
        self.0.is_none_or(|(least, most)| least == most)
    }
}

/// Divides the batches of one input.
pub(super) struct Divider {
    keys: Keys,
    /// Those of each part.
    hashes_of: Vec<Hashes>,
    random_state: RandomState,
    hashes: Vec<u64>,
    null_count: usize,
}

impl Divider {
    /// Divides into `count` parts; each `depth` divides differently.
    pub(super) fn new(keys: Keys, count: usize, depth: u64) -> Self {
        let random_state = RandomState::with_seed(SEED.wrapping_add(depth));
        let hashes_of = vec![Hashes::default(); count.max(1)];
        Self { keys, hashes_of, random_state, hashes: Vec::new(), null_count: 0 }
    }

    /// The hashes of each part so far.
    pub(super) fn hashes(self) -> Vec<Hashes> {
        self.hashes_of
    }

    /// The rows of `batch`, by part.
    pub(super) fn divide(&mut self, batch: &RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
        let keys = evaluate_expressions_to_arrays(&self.keys.expressions, batch)?;
        self.hashes.clear();
        self.hashes.resize(batch.num_rows(), 0);
        create_hashes(&keys, &self.random_state, &mut self.hashes)?;
        let nulls = if self.keys.nulls_match_nothing { nulls_of(&keys) } else { None };
        let count = self.hashes_of.len();
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); count];
        for (row, hash) in (0u32..).zip(&self.hashes) {
            let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(row as usize));
            let (part, own) = if is_null {
                self.null_count = self.null_count.wrapping_add(1);
                (self.null_count % count, Hashes(Some((u64::MIN, u64::MAX))))
            } else {
                (part_of(*hash, count), Hashes(Some((*hash, *hash))))
            };
            if let (Some(rows), Some(of)) = (rows.get_mut(part), self.hashes_of.get_mut(part)) {
                rows.push(row);
                of.add(own);
            }
        }
        let parts = rows.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty());
        parts
            .map(|(part, rows)| {
                let rows = take_record_batch(batch, &UInt32Array::from(rows))?;
                Ok((part, without_the_rest(rows)?))
            })
            .collect()
    }
}

/// By the upper bits if few parts distinguish all hashes.
fn part_of(hash: u64, count: usize) -> usize {
    let part = (u128::from(hash) * count as u128) >> 64;
    usize::try_from(part).unwrap_or_default()
}

fn nulls_of(keys: &[ArrayRef]) -> Option<NullBuffer> {
    let nulls = keys.iter().map(|key| key.logical_nulls());
    nulls.fold(None, |all, key| NullBuffer::union(all.as_ref(), key.as_ref()))
}

/// Rows that wait to be written must not keep the rest of their batch in memory.
pub(super) fn without_the_rest(batch: RecordBatch) -> Result<RecordBatch> {
    let has_views = batch
        .schema_ref()
        .fields()
        .iter()
        .any(|field| matches!(field.data_type(), DataType::Utf8View | DataType::BinaryView));
    if has_views { compact(&batch).map_err(DataFusionError::from) } else { Ok(batch) }
}
