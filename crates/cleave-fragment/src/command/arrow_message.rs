//! Checks Arrow IPC messages from a peer or from media before Arrow's reader allocates anything for them.
//!
//! Arrow's reader checks values: offsets, texts, keys of dictionaries, counts of NULLs. It trusts a message about
//! memory: it allocates the size that a compressed buffer claims, believes row counts that no buffer bounds, copies an
//! unaligned buffer as often as the message names it, and expands a schema whose parts the message shares. So:
//!
//! 1. [`parse`] reads the metadata, which may not expand to much more than its bytes.
//! 2. [`check_batch`] goes through the columns of a batch as the reader will. Nothing is compressed. Buffers lie inside
//!    the body, one behind the other, aligned, with the bytes that the declared lengths need, and nothing is left over.
//! 3. [`check_rows`] looks at the decoded rows: values that several rows share are not counted by their bytes.
//!
//! Invariant: a batch that passes takes memory in proportion to the bytes of its message, and so do duplicates of its
//! rows.
//!
//! Source: <https://arrow.apache.org/docs/format/Columnar.html>, "Serialization and Interprocess Communication".

#![deny(clippy::indexing_slicing)]

use arrow::array::{Array, ArrayRef, AsArray, make_array};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use arrow::ipc::{Message, MetadataVersion, RecordBatch as IpcBatch, root_as_message_with_opts};
use arrow::record_batch::RecordBatch;
use flatbuffers::VerifierOptions;

/// Most rows of a batch, and values of any list in it, that no buffer bounds: batches without columns, and columns of
/// NULLs alone. Writers of batches keep to it.
pub const BARE_ROW_COUNT_MAX: usize = 1 << 20;
/// Most bytes of the values of a dictionary's rows, each counted for every row that has it.
const REPEATED_BYTES_MAX: u64 = 64 << 20;
/// Least bits of a row, where buffers bound the rows.
const ROWS_PER_BYTE: u64 = 8;
/// Alignment of buffers: the format recommends 64 and requires 8.
const ALIGNMENT: u64 = 8;
/// How many bytes metadata may expand to if parts of it are shared: for each of its own bytes, and besides.
const APPARENT_BYTES_FACTOR: usize = 8;
const APPARENT_BYTES_BESIDE: usize = 64 << 10;

/// Reads the metadata of a message.
///
/// # Errors
/// [`ArrowError::IpcError`] for a malformed message, or one that expands too much.
pub fn parse(metadata: &[u8]) -> Result<Message<'_>, ArrowError> {
    let expanded = metadata.len().saturating_mul(APPARENT_BYTES_FACTOR);
    let options = VerifierOptions {
        max_apparent_size: expanded.saturating_add(APPARENT_BYTES_BESIDE),
        ..VerifierOptions::default()
    };
    let message = root_as_message_with_opts(&options, metadata);
    let message = message.map_err(|error| malformed(&error.to_string()))?;
    match message.version() {
        MetadataVersion::V5 => Ok(message),
        other => Err(malformed(&format!("a message of format version {other:?}"))),
    }
}

/// Checks a batch with columns of `types` against its body of `body_bytes`; returns the number of its rows.
///
/// # Errors
/// [`ArrowError::IpcError`] for a batch that no writer of this build writes.
pub fn check_batch<'t>(
    batch: &IpcBatch<'_>,
    types: impl IntoIterator<Item = &'t DataType>,
    body_bytes: usize,
) -> Result<u64, ArrowError> {
    if batch.compression().is_some() {
        return Err(malformed("a compressed batch, which no build writes"));
    }
    let nodes = batch.nodes().map(|nodes| nodes.iter());
    let nodes = nodes.into_iter().flatten().map(|node| (node.length(), node.null_count()));
    let buffers = batch.buffers().map(|buffers| buffers.iter());
    let buffers = buffers.into_iter().flatten().map(|buffer| (buffer.offset(), buffer.length()));
    let row_count = unsigned(batch.length(), "row count")?;
    let mut walk = Walk {
        nodes: Box::new(nodes),
        buffers: Box::new(buffers),
        variadic: Box::new(batch.variadicBufferCounts().into_iter().flatten()),
        body_bytes: body_bytes as u64,
        end: 0,
        bytes: 0,
        longest: row_count,
    };
    for data_type in types {
        walk.column(data_type, Some(row_count))?;
    }
    walk.finish()?;
    Ok(row_count)
}

/// The remaining parts of a batch, in the order in which the reader takes them.
struct Walk<'m> {
    /// Length and number of NULLs.
    nodes: Box<dyn Iterator<Item = (i64, i64)> + 'm>,
    /// Offset and length.
    buffers: Box<dyn Iterator<Item = (i64, i64)> + 'm>,
    variadic: Box<dyn Iterator<Item = i64> + 'm>,
    body_bytes: u64,
    /// The end of the last buffer.
    end: u64,
    /// Bytes of all buffers so far.
    bytes: u64,
    /// The length of the longest array so far.
    longest: u64,
}

impl Walk<'_> {
    /// Checks an array of `data_type`, with `expected` values if that is known; returns the number of its values.
    fn column(&mut self, data_type: &DataType, expected: Option<u64>) -> Result<u64, ArrowError> {
        let (length, null_count) =
            self.nodes.next().ok_or_else(|| malformed("a batch with too few columns"))?;
        let length = unsigned(length, "length")?;
        let null_count = unsigned(null_count, "number of NULLs")?;
        if expected.is_some_and(|expected| expected != length) {
            return Err(malformed("a column that is not as long as its batch"));
        }
        if null_count > length {
            return Err(malformed("a column with more NULLs than values"));
        }
        self.longest = self.longest.max(length);
        if *data_type == DataType::Null {
            return Ok(length);
        }
        // The validity bitmap; the reader skips the buffer if no value is NULL.
        self.buffer(if null_count > 0 { length.div_ceil(8) } else { 0 })?;
        match data_type {
            DataType::Boolean => self.buffer(length.div_ceil(8))?,
            DataType::Utf8 | DataType::Binary => {
                self.offsets(length, 4)?;
                self.buffer(0)?;
            }
            DataType::LargeUtf8 | DataType::LargeBinary => {
                self.offsets(length, 8)?;
                self.buffer(0)?;
            }
            DataType::Utf8View | DataType::BinaryView => {
                let count = self.variadic.next();
                let count = count.and_then(|count| u64::try_from(count).ok());
                let count = count.ok_or_else(|| malformed("views without their buffers"))?;
                self.fixed(length, 16)?;
                // Ends where there are no more buffers.
                (0..count).try_for_each(|_| self.buffer(0))?;
            }
            DataType::FixedSizeBinary(width) => {
                let width = u64::try_from(*width);
                self.fixed(length, width.map_err(|_| malformed("values of a negative width"))?)?;
            }
            DataType::List(item) | DataType::Map(item, _) => {
                self.offsets(length, 4)?;
                self.column(item.data_type(), None)?;
            }
            DataType::LargeList(item) => {
                self.offsets(length, 8)?;
                self.column(item.data_type(), None)?;
            }
            DataType::FixedSizeList(item, size) => {
                let size =
                    u64::try_from(*size).map_err(|_| malformed("lists of a negative size"))?;
                self.column(item.data_type(), Some(length.saturating_mul(size)))?;
            }
            DataType::Struct(fields) => {
                for field in fields {
                    self.column(field.data_type(), Some(length))?;
                }
            }
            DataType::Dictionary(key, _) => self.fixed(length, width_of(key)?)?,
            other => self.fixed(length, width_of(other)?)?,
        }
        Ok(length)
    }

    /// Checks a buffer of `length` values of `width` bytes each.
    fn fixed(&mut self, length: u64, width: u64) -> Result<(), ArrowError> {
        self.buffer(length.saturating_mul(width))
    }

    /// Checks the offsets of `length` values; no values may have none.
    fn offsets(&mut self, length: u64, width: u64) -> Result<(), ArrowError> {
        let count = if length == 0 { 0 } else { length.saturating_add(1) };
        self.fixed(count, width)
    }

    /// Checks that the next buffer has `byte_count_min` bytes, inside of the body and behind the one before.
    fn buffer(&mut self, byte_count_min: u64) -> Result<(), ArrowError> {
        let (offset, length) =
            self.buffers.next().ok_or_else(|| malformed("a batch with too few buffers"))?;
        let offset = unsigned(offset, "offset")?;
        let length = unsigned(length, "buffer length")?;
        let end = offset.saturating_add(length);
        if end > self.body_bytes {
            return Err(malformed("a batch with a buffer beyond its end"));
        }
        if length < byte_count_min {
            return Err(malformed("a batch with a buffer too short for its rows"));
        }
        if length > 0 {
            if offset < self.end || !offset.is_multiple_of(ALIGNMENT) {
                return Err(malformed("a batch whose buffers do not lie one behind the other"));
            }
            self.end = end;
            self.bytes = self.bytes.saturating_add(length);
        }
        Ok(())
    }

    /// Checks that nothing is left over, and that no array is longer than its buffers allow.
    fn finish(mut self) -> Result<(), ArrowError> {
        let is_left = self.nodes.next().is_some() || self.buffers.next().is_some();
        if is_left || self.variadic.next().is_some() {
            return Err(malformed("a batch with more columns or buffers than its schema"));
        }
        let longest = self.bytes.saturating_mul(ROWS_PER_BYTE).max(BARE_ROW_COUNT_MAX as u64);
        if self.longest > longest {
            let rows = self.longest;
            return Err(malformed(&format!("a batch of {rows} rows, where at most {longest} fit")));
        }
        Ok(())
    }
}

/// Bytes of a value of a type that has a fixed number of them.
fn width_of(data_type: &DataType) -> Result<u64, ArrowError> {
    let refused =
        || malformed(&format!("a column of type {data_type}, which does not cross a link"));
    data_type.primitive_width().map(|width| width as u64).ok_or_else(refused)
}

/// Checks that a copy of the rows of `batch` is not much larger than its bytes.
///
/// # Errors
/// [`ArrowError::IpcError`] if they share values.
pub fn check_rows(batch: &RecordBatch) -> Result<(), ArrowError> {
    batch.columns().iter().try_for_each(check_values)
}

fn check_values(array: &ArrayRef) -> Result<(), ArrowError> {
    match array.data_type() {
        DataType::Utf8View => {
            let views = array.as_string_view();
            check_views(views.lengths(), views.data_buffers())
        }
        DataType::BinaryView => {
            let views = array.as_binary_view();
            check_views(views.lengths(), views.data_buffers())
        }
        DataType::Dictionary(..) => check_repeated(array),
        DataType::Struct(_) => array.as_struct().columns().iter().try_for_each(check_values),
        DataType::List(_) => check_values(array.as_list::<i32>().values()),
        DataType::LargeList(_) => check_values(array.as_list::<i64>().values()),
        DataType::FixedSizeList(..) => check_values(array.as_fixed_size_list().values()),
        DataType::Map(..) => array.as_map().entries().columns().iter().try_for_each(check_values),
        _ => Ok(()),
    }
}

/// The encoder writes the bytes of every view separately.
fn check_views(
    lengths: impl Iterator<Item = u32>,
    buffers: &[arrow::buffer::Buffer],
) -> Result<(), ArrowError> {
    const INLINE_MAX: u32 = 12;
    let referred: u64 = lengths.filter(|length| *length > INLINE_MAX).map(u64::from).sum();
    let held: u64 = buffers.iter().map(|buffer| buffer.len() as u64).sum();
    if referred > held { Err(malformed("views that share their bytes")) } else { Ok(()) }
}

fn check_repeated(array: &ArrayRef) -> Result<(), ArrowError> {
    let dictionary =
        array.as_any_dictionary_opt().ok_or_else(|| malformed("a dictionary of another kind"))?;
    let values = dictionary.values();
    check_values(values)?;
    // Sizes of single values would take an array for each; the longest bounds them all.
    let longest = (0..values.len())
        .map(|place| make_array(values.to_data().slice(place, 1)))
        .map(|value| value.to_data().get_slice_memory_size().unwrap_or(usize::MAX))
        .max();
    let bytes = (longest.unwrap_or(0) as u64).saturating_mul(array.len() as u64);
    if bytes > REPEATED_BYTES_MAX {
        return Err(malformed(&format!(
            "a dictionary whose rows take up to {bytes} bytes, where at most {REPEATED_BYTES_MAX} are allowed"
        )));
    }
    Ok(())
}

fn unsigned(number: i64, what: &str) -> Result<u64, ArrowError> {
    u64::try_from(number).map_err(|_| malformed(&format!("a batch with a negative {what}")))
}

pub(crate) fn malformed(what: &str) -> ArrowError {
    ArrowError::IpcError(what.to_owned())
}

#[cfg(test)]
pub(crate) mod tests;
