//! Batches as slot payloads and back: Arrow IPC messages, one record batch a slot.
//!
//! The schema crosses once, with the acceptance of the run. Dictionaries, where there are any, cross
//! in every slot again, so that a slot is decodable without its neighbours. What is encoded is
//! compacted first: a view array or a slice otherwise carries all of the page that it was cut from.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions, write_message};
use arrow::record_batch::RecordBatch;
use bytes::Bytes;

/// Bytes of `batch`'s rows, leaving out what its buffers hold beyond them.
pub fn batch_bytes(batch: &RecordBatch) -> u64 {
    batch.columns().iter().map(|column| column_bytes(column)).sum()
}

fn column_bytes(column: &ArrayRef) -> u64 {
    let bytes = match column.data_type() {
        // The values of views lie in buffers that are shared; count what the views refer to.
        DataType::Utf8View => view_bytes(column.as_string_view().lengths(), column.len()),
        DataType::BinaryView => view_bytes(column.as_binary_view().lengths(), column.len()),
        _ => column
            .to_data()
            .get_slice_memory_size()
            .unwrap_or_else(|_| column.get_buffer_memory_size()),
    };
    bytes as u64
}

fn view_bytes(lengths: impl Iterator<Item = u32>, count: usize) -> usize {
    const INLINE_MAX: u32 = 12;
    let outside: u64 = lengths.filter(|length| *length > INLINE_MAX).map(u64::from).sum();
    count * 16 + usize::try_from(outside).unwrap_or(usize::MAX)
}

/// The schema as one Arrow IPC message.
pub fn encode_schema(schema: &Schema) -> Result<Vec<u8>, ArrowError> {
    let options = IpcWriteOptions::default();
    let mut tracker = DictionaryTracker::new(false);
    let message = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
        schema,
        &mut tracker,
        &options,
    );
    let mut bytes = Vec::new();
    write_message(&mut bytes, message, &options)?;
    Ok(bytes)
}

/// The schema that [`encode_schema`] wrote.
pub fn decode_schema(bytes: Bytes) -> Result<SchemaRef, ArrowError> {
    // The decoder looks at a message without a body only when something follows it.
    const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
    let mut message = Vec::from(bytes);
    message.extend_from_slice(&END_OF_STREAM);
    let mut decoder = StreamDecoder::new();
    let mut buffer = Buffer::from_vec(message);
    let batch = decoder.decode(&mut buffer)?;
    match (batch, decoder.schema()) {
        (None, Some(schema)) if buffer.is_empty() => Ok(schema),
        _ => Err(ArrowError::IpcError("not one schema message".to_owned())),
    }
}

/// `batch` as Arrow IPC messages: its dictionaries, if any, then itself.
pub fn encode_batch(batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let options = IpcWriteOptions::default();
    let compact = compact(batch)?;
    // The tracker has to learn the schema's dictionary ids before it can write one.
    let mut tracker = DictionaryTracker::new(false);
    let generator = IpcDataGenerator::default();
    let _schema = generator.schema_to_bytes_with_dictionary_tracker(
        &compact.schema(),
        &mut tracker,
        &options,
    );
    let (dictionaries, message) =
        generator.encode(&compact, &mut tracker, &options, &mut Default::default())?;
    let mut bytes = Vec::new();
    for dictionary in dictionaries {
        write_message(&mut bytes, dictionary, &options)?;
    }
    write_message(&mut bytes, message, &options)?;
    Ok(bytes)
}

/// The same rows without what their buffers hold beyond them. Slices of other types than views are
/// cut by the encoder itself.
fn compact(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let columns = batch
        .columns()
        .iter()
        .map(|column| match column.data_type() {
            DataType::Utf8View => Arc::new(column.as_string_view().gc()) as ArrayRef,
            DataType::BinaryView => Arc::new(column.as_binary_view().gc()) as ArrayRef,
            _ => Arc::clone(column),
        })
        .collect();
    let options =
        arrow::record_batch::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options)
}

/// Reads slots of one schema.
#[derive(Debug)]
pub struct SlotDecoder {
    decoder: StreamDecoder,
    /// The schema message that the decoder has yet to see, or why there is none.
    schema: Option<Result<Vec<u8>, ArrowError>>,
}

impl SlotDecoder {
    /// A decoder of slots whose rows have `schema`.
    pub fn new(schema: &Schema) -> Self {
        Self { decoder: StreamDecoder::new(), schema: Some(encode_schema(schema)) }
    }

    /// The batch that [`encode_batch`] wrote as `bytes`. The buffers of the batch share them.
    pub fn decode(&mut self, bytes: Bytes) -> Result<RecordBatch, ArrowError> {
        if let Some(schema) = self.schema.take() {
            self.decoder.decode(&mut Buffer::from_vec(schema?))?;
        }
        let mut buffer = Buffer::from(bytes);
        let mut found = None;
        while !buffer.is_empty() {
            if let Some(batch) = self.decoder.decode(&mut buffer)?
                && found.replace(batch).is_some()
            {
                return Err(ArrowError::IpcError("more than one batch in a slot".to_owned()));
            }
        }
        found.ok_or_else(|| ArrowError::IpcError("no batch in a slot".to_owned()))
    }
}

#[cfg(test)]
mod tests;
