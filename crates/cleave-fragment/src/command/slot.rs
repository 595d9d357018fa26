//! Encodes batches as slot payloads and back: Arrow IPC messages, one record batch a slot.
//!
//! The schema crosses once, when the run is accepted. Dictionaries cross in every slot again, so that a slot is
//! decodable without its neighbours. Batches are compacted before they are encoded: a view array or a slice otherwise
//! carries all of the page that it was cut from.
//!
//! Slots, pieces of broadcasts, rows in the log and spilled rows are all decoded by [`SlotDecoder`], which checks every
//! message first ([`arrow_message`](super::arrow_message)).

use std::collections::HashMap;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, GenericListArray, OffsetSizeTrait, StructArray};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::reader::{read_dictionary, read_record_batch};
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions, write_message};
use arrow::record_batch::RecordBatch;
use bytes::Bytes;

use super::arrow_message::{check_batch, check_rows, malformed, parse};

/// Bytes of `batch`'s rows, without the rest of their buffers.
pub fn batch_bytes(batch: &RecordBatch) -> u64 {
    batch.columns().iter().map(column_bytes).sum()
}

fn column_bytes(column: &ArrayRef) -> u64 {
    let own = |bytes: usize| bytes as u64;
    match column.data_type() {
        // The values of views lie in shared buffers; count what the views refer to.
        DataType::Utf8View => own(view_bytes(column.as_string_view().lengths(), column.len())),
        DataType::BinaryView => own(view_bytes(column.as_binary_view().lengths(), column.len())),
        // So do those of lists.
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            let from = list.value_offsets().first().copied().unwrap_or(0);
            let to = list.value_offsets().last().copied().unwrap_or(0);
            let range = usize::try_from(from).ok().zip(usize::try_from(to - from).ok());
            let values = range.map(|(from, length)| list.values().slice(from, length));
            own(column.len() * 4) + values.map_or(0, |values| column_bytes(&values))
        }
        DataType::Struct(_) => column.as_struct().columns().iter().map(column_bytes).sum(),
        _ => own(column
            .to_data()
            .get_slice_memory_size()
            .unwrap_or_else(|_| column.get_buffer_memory_size())),
    }
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
    let mut rest = Buffer::from(bytes);
    let metadata = take_metadata(&mut rest)?;
    let schema = parse(&metadata)?.header_as_schema();
    match schema {
        Some(schema) if rest.is_empty() => guarded(|| Ok(Arc::new(fb_to_schema(schema)))),
        _ => Err(malformed("not one schema message")),
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

/// The same rows without the rest of their buffers. Slices of other types than views are cut by the encoder itself.
///
/// # Errors
/// Arrow's, for a batch that is not sound.
pub fn compact(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().map(compact_column).collect::<Result<_, _>>()?;
    let options =
        arrow::record_batch::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options)
}

fn compact_column(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    Ok(match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        DataType::List(item) => Arc::new(compact_list(column.as_list::<i32>(), item)?),
        DataType::LargeList(item) => Arc::new(compact_list(column.as_list::<i64>(), item)?),
        DataType::Struct(fields) if !fields.is_empty() => {
            let whole = column.as_struct();
            let columns = whole.columns().iter().map(compact_column).collect::<Result<_, _>>()?;
            Arc::new(StructArray::try_new(fields.clone(), columns, whole.nulls().cloned())?)
        }
        _ => Arc::clone(column),
    })
}

fn compact_list<O: OffsetSizeTrait>(
    list: &GenericListArray<O>,
    item: &FieldRef,
) -> Result<GenericListArray<O>, ArrowError> {
    let values = compact_column(list.values())?;
    let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
    GenericListArray::try_new(Arc::clone(item), offsets, values, nulls)
}

/// Reads slots of one schema.
#[derive(Debug)]
pub struct SlotDecoder {
    /// The schema as decoded from a message, with the ids of its dictionaries; or why it cannot be.
    schema: Result<SchemaRef, String>,
}

impl SlotDecoder {
    /// A decoder of slots whose rows have `schema`.
    pub fn new(schema: &Schema) -> Self {
        let schema = encode_schema(schema).and_then(|bytes| decode_schema(bytes.into()));
        Self { schema: schema.map_err(|error| error.to_string()) }
    }

    /// The batch that [`encode_batch`] wrote as `bytes`. The buffers of the batch share them.
    pub fn decode(&self, bytes: Bytes) -> Result<RecordBatch, ArrowError> {
        guarded(|| self.decode_messages(bytes))
    }

    fn decode_messages(&self, bytes: Bytes) -> Result<RecordBatch, ArrowError> {
        let schema = self.schema.as_ref().map_err(|error| malformed(error))?;
        let mut rest = Buffer::from(bytes);
        let mut dictionaries = HashMap::new();
        loop {
            let metadata = take_metadata(&mut rest)?;
            let message = parse(&metadata)?;
            let body = take(&mut rest, usize::try_from(message.bodyLength()).ok())?;
            let version = message.version();
            if let Some(dictionary) = message.header_as_dictionary_batch() {
                if dictionary.isDelta() || dictionaries.contains_key(&dictionary.id()) {
                    return Err(malformed("a dictionary that comes in parts, or twice"));
                }
                let values = dictionary.data().zip(dictionary_type(schema, dictionary.id()));
                let (values, value_type) =
                    values.ok_or_else(|| malformed("a dictionary that no column has"))?;
                check_batch(&values, iter::once(value_type), body.len())?;
                read_dictionary(&body, dictionary, schema, &mut dictionaries, &version)?;
            } else if let Some(batch) = message.header_as_record_batch() {
                let types = schema.fields().iter().map(|field| field.data_type());
                check_batch(&batch, types, body.len())?;
                if !rest.is_empty() {
                    return Err(malformed("more than one batch in a slot"));
                }
                let schema = Arc::clone(schema);
                let read = read_record_batch(&body, batch, schema, &dictionaries, None, &version)?;
                check_rows(&read)?;
                return Ok(read);
            } else {
                return Err(malformed("a message in a slot that is no batch"));
            }
        }
    }
}

/// The type of the values of the dictionary `id`: that of the first column with it, which the reader uses.
fn dictionary_type(schema: &Schema, id: i64) -> Option<&DataType> {
    #[expect(
        deprecated,
        reason = "the reader finds dictionaries by their ids, and has no other way yet"
    )]
    let fields = schema.fields_with_dict_id(id);
    match fields.first()?.data_type() {
        DataType::Dictionary(_, values) => Some(values),
        _ => None,
    }
}

/// Arrow's reader panics at some messages that no writer makes, such as integers of 17 bits. A peer that sends one must
/// end only its own run.
fn guarded<T>(decode: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, ArrowError> {
    // Half-done results of a decoder are dropped unseen.
    catch_unwind(AssertUnwindSafe(decode))
        .unwrap_or_else(|_| Err(malformed("a message that Arrow's reader cannot take")))
}

/// Splits the first `length` bytes off `rest`.
fn take(rest: &mut Buffer, length: Option<usize>) -> Result<Buffer, ArrowError> {
    let length = length
        .filter(|length| *length <= rest.len())
        .ok_or_else(|| malformed("a message that is cut off"))?;
    let taken = rest.slice_with_length(0, length);
    rest.advance(length);
    Ok(taken)
}

/// Splits the metadata of the next message off `rest`: a marker, a length, a flatbuffer.
fn take_metadata(rest: &mut Buffer) -> Result<Buffer, ArrowError> {
    const MARKER: [u8; 4] = [0xff; 4];
    if take(rest, Some(4))?.as_slice() != MARKER {
        return Err(malformed("a message without its marker"));
    }
    let length = take(rest, Some(4))?;
    let length = length.as_slice().first_chunk().map(|bytes| i32::from_le_bytes(*bytes));
    take(rest, length.and_then(|length| usize::try_from(length).ok()))
}

#[cfg(test)]
mod tests;
