//! Broadcast rows: the host sends the build side of a join below a cut to every device that runs the fragment, if that
//! side is not stored with the streamed side.
//!
//! 1. The host runs the build side and keeps its rows as [`BroadcastRows`], also for its own part of the fragment.
//! 2. [`BroadcastRows::encode`] encodes them once, in the format of slots: Arrow IPC in pieces, each with its checksum.
//!    The [`Broadcast`] travels with the command that begins the run, so that a repeated command needs no other.
//! 3. [`BroadcastRows::decode`] decodes them on the device. The run's memory is charged before anything is allocated.
//! 4. [`BroadcastExec`](crate::BroadcastExec) emits them, on either side.
//!
//! Invariant: decoding gives all rows sent, with exactly the columns that the leaf names, or an error.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatchOptions;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use datafusion_common::{DataFusionError, Result};
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

use crate::codec::has_sound_width;
use crate::command::Payload;
use crate::command::slot::{SlotDecoder, batch_bytes, decode_schema, encode_batch, encode_schema};

/// Most bytes of broadcast rows of one run: with plan and pages they are one command.
pub const BROADCAST_BYTES_MAX: u64 = 24 << 20;
/// Bytes that a piece should have.
const PIECE_BYTES: u64 = 1 << 20;
/// Most rows of a piece. Rows without columns, or of NULLs, have no bytes that would bound them.
const PIECE_ROW_COUNT_MAX: usize = 1 << 16;
/// Approximate bytes of memory that a piece takes besides its rows.
const PIECE_BYTES_BESIDE: usize = 1 << 10;

/// Encoded broadcast rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broadcast {
    /// The number by which leaves name it.
    pub input: u32,
    /// Columns, as [`encode_schema`] writes them.
    pub schema: Bytes,
    /// Rows, one batch a piece, as [`encode_batch`] writes them.
    pub pieces: Vec<Payload>,
}

impl Broadcast {
    /// Bytes of its rows.
    pub fn byte_count(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes.len() as u64).sum()
    }
}

/// Broadcast rows in the memory of the side that runs the fragment.
#[derive(Debug)]
pub struct BroadcastRows {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    /// The memory that they are charged to.
    _memory: Option<MemoryReservation>,
}

/// Broadcast rows by the number that leaves name.
pub type BroadcastInputs = BTreeMap<u32, Arc<BroadcastRows>>;

impl BroadcastRows {
    /// The rows of `batches`, whose columns are those of `schema`; they keep `memory` reserved for their lifetime.
    pub fn new(
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
        memory: Option<MemoryReservation>,
    ) -> Self {
        Self { schema, batches, _memory: memory }
    }

    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The rows.
    pub fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// Number of rows.
    pub fn row_count(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Encodes the rows, under the number `input`.
    ///
    /// # Errors
    /// Arrow's, for batches with other columns.
    pub fn encode(&self, input: u32) -> Result<Broadcast, ArrowError> {
        let mut pieces = Vec::new();
        let mut gathered: Vec<RecordBatch> = Vec::new();
        let (mut bytes, mut rows) = (0, 0);
        let mut finish = |gathered: &mut Vec<RecordBatch>| {
            let piece = concat_batches(&self.schema, gathered.iter())?;
            gathered.clear();
            pieces.push(Payload::new(encode_batch(&piece)?.into()));
            Ok::<_, ArrowError>(())
        };
        let slices = self.batches.iter().flat_map(|batch| {
            let starts = (0..batch.num_rows()).step_by(PIECE_ROW_COUNT_MAX);
            starts
                .map(|start| batch.slice(start, PIECE_ROW_COUNT_MAX.min(batch.num_rows() - start)))
        });
        for slice in slices {
            if bytes >= PIECE_BYTES || rows + slice.num_rows() > PIECE_ROW_COUNT_MAX {
                finish(&mut gathered)?;
                (bytes, rows) = (0, 0);
            }
            bytes += batch_bytes(&slice);
            rows += slice.num_rows();
            gathered.push(slice);
        }
        if !gathered.is_empty() {
            finish(&mut gathered)?;
        }
        Ok(Broadcast { input, schema: encode_schema(&self.schema)?.into(), pieces })
    }

    /// Decodes the rows that [`BroadcastRows::encode`] wrote, charged to `memory`. The caller has compared checksums.
    ///
    /// # Errors
    /// For malformed bytes, and where they do not fit.
    pub fn decode(sent: &Broadcast, memory: &Arc<dyn MemoryPool>) -> Result<Self> {
        let bad = |what: String| {
            DataFusionError::Plan(format!("the rows of broadcast {}: {what}", sent.input))
        };
        let schema = decode_schema(sent.schema.clone()).map_err(|error| bad(error.to_string()))?;
        if let Some(reason) = unsendable(&schema) {
            return Err(bad(reason));
        }
        let bytes = usize::try_from(sent.byte_count()).unwrap_or(usize::MAX);
        let beside = sent.pieces.len().saturating_mul(PIECE_BYTES_BESIDE);
        let reservation = MemoryConsumer::new("rows that were broadcast").register(memory);
        reservation.try_grow(bytes.saturating_add(beside))?;
        let decoder = SlotDecoder::new(&schema);
        let batches = sent.pieces.iter().map(|piece| {
            let batch = decoder.decode(piece.bytes.clone());
            let batch = batch.map_err(|error| bad(error.to_string()))?;
            if batch.num_rows() > PIECE_ROW_COUNT_MAX {
                let rows = batch.num_rows();
                return Err(bad(format!(
                    "a piece has {rows} rows, and may have {PIECE_ROW_COUNT_MAX}"
                )));
            }
            // Which checks types, lengths and NULLs against the schema.
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let columns = batch.columns().to_vec();
            RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)
                .map_err(|error| bad(error.to_string()))
        });
        let batches = batches.collect::<Result<_>>()?;
        Ok(Self { schema, batches, _memory: Some(reservation) })
    }
}

/// Broadcasts by their numbers, each of which may come once, charged to `memory`.
///
/// # Errors
/// Those of [`BroadcastRows::decode`].
pub fn broadcast_inputs(
    sent: &[Broadcast],
    memory: &Arc<dyn MemoryPool>,
) -> Result<BroadcastInputs> {
    let mut inputs = BroadcastInputs::new();
    for broadcast in sent {
        let rows = Arc::new(BroadcastRows::decode(broadcast, memory)?);
        if inputs.insert(broadcast.input, rows).is_some() {
            let input = broadcast.input;
            return Err(DataFusionError::Plan(format!("broadcast {input} is given twice")));
        }
    }
    Ok(inputs)
}

/// Why rows of `schema` are not sent to a device; None if they may be.
pub fn unsendable(schema: &SchemaRef) -> Option<String> {
    let field = schema.fields().iter().find(|field| !has_sound_width(field.data_type()))?;
    Some(format!(
        "column \"{}\" has type {}, which no device takes",
        field.name(),
        field.data_type()
    ))
}

#[cfg(test)]
mod tests;
