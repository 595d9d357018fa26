//! Streams of Arrow by the C stream interface, which Python's libraries hand over in capsules: a capsule in, batches
//! out, and the reverse.
//!
//! 1. [`Stream::of_capsule`] moves a stream out of its capsule, so that nobody else reads it.
//! 2. [`Stream::next`] takes the next batch. What the producer says of it is validated before anything reads it: the
//!    lengths and offsets of buffers, text as UTF-8. How long a buffer really is, C does not tell.
//! 3. [`stream_capsule`] and [`schema_capsule`] give batches and columns away, in the types that libraries have.
//!
//! This is the only file of the crate with unsafe code: it calls functions of C that the producer points at. What no
//! program can check is that a capsule with the right name holds such a struct, and that the struct's pointers lead to
//! what it says; the interface asks it of every producer, and Python's libraries rely on it among each other.
//!
//! Source: Apache Arrow, "The Arrow C stream interface" and "The Arrow PyCapsule Interface".

#![expect(unsafe_code, reason = "the C stream interface consists of pointers to functions")]

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions, StructArray};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type};
use arrow::ffi_stream::FFI_ArrowArrayStream;
use arrow::record_batch::RecordBatchReader;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};

use crate::errors::panic_text;
use crate::plain_types::{cast_batch, library_schema};

/// Names of the capsules, which the interface prescribes.
const STREAM: &CStr = c"arrow_array_stream";
const SCHEMA: &CStr = c"arrow_schema";
/// Bytes of a value in a buffer, of all types but those of a width of their own.
const VALUE_BYTES_MAX: i64 = 32;

/// A stream that a producer gave. See the module's description.
#[derive(Debug)]
pub(crate) struct Stream {
    stream: FFI_ArrowArrayStream,
    schema: SchemaRef,
}

impl Stream {
    /// Takes the stream of a capsule.
    ///
    /// # Errors
    /// What is no such capsule, what was taken before, and what the producer says.
    pub(crate) fn of_capsule(capsule: &Bound<'_, PyAny>) -> Result<Self, ArrowError> {
        let pointer = pointer_of(capsule, STREAM)?;
        // SAFETY: A capsule of this name holds such a struct for as long as it lives (see above), and `capsule` is
        // borrowed. Its destructor reads the struct with Python's lock, which this thread has.
        let mut stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.cast()) };
        if stream.release.is_none() {
            return Err(fault("the stream was read before"));
        }
        let Some(get_schema) = stream.get_schema else {
            return Err(fault("the stream does not tell its columns"));
        };
        let mut schema = FFI_ArrowSchema::empty();
        // SAFETY: The stream is not released, so its function may be called with it; both structs live on this stack.
        let code = unsafe { get_schema(&raw mut stream, &raw mut schema) };
        if code != 0 {
            return Err(last_error(&mut stream, code));
        }
        let schema = within(|| Schema::try_from(&schema))?;
        Ok(Self { stream, schema: Arc::new(schema) })
    }

    /// Its columns.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next batch; None: there is none. Not to be called after an error.
    ///
    /// # Errors
    /// What the producer says, and what is no valid batch of the stream's columns.
    pub(crate) fn next(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let Some(get_next) = self.stream.get_next else {
            return Err(fault("the stream gives no batches"));
        };
        let mut array = FFI_ArrowArray::empty();
        // SAFETY: The stream is not released before it is dropped, and this is its only reader; both structs live
        // during the call.
        let code = unsafe { get_next(&raw mut self.stream, &raw mut array) };
        if code != 0 {
            return Err(last_error(&mut self.stream, code));
        }
        if array.is_released() {
            return Ok(None);
        }
        let columns = DataType::Struct(self.schema.fields().clone());
        let options = RecordBatchOptions::new();
        within(|| {
            check_counts(&array, &columns)?;
            // SAFETY: The producer gave the array as one of these columns. Nothing reads its values before the
            // validation below.
            let data = unsafe { from_ffi_and_data_type(array, columns) }?;
            data.validate_full()?;
            let options = options.with_row_count(Some(data.len()));
            let (_, columns, _) = StructArray::from(data).into_parts();
            RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
        })
        .map(Some)
    }
}

/// The columns that a capsule describes.
///
/// # Errors
/// What is no such capsule, and types that Arrow does not know.
pub(crate) fn schema_of_capsule(capsule: &Bound<'_, PyAny>) -> Result<SchemaRef, ArrowError> {
    let pointer = pointer_of(capsule, SCHEMA)?;
    // SAFETY: A capsule of this name holds such a struct for as long as it lives (see above); `capsule` is borrowed.
    let schema = unsafe { FFI_ArrowSchema::from_raw(pointer.cast()) };
    if schema.release.is_none() {
        return Err(fault("the columns were read before"));
    }
    within(|| Schema::try_from(&schema)).map(Arc::new)
}

/// A capsule with a stream of what `reader` gives.
pub(crate) fn stream_capsule<'py>(
    py: Python<'py>,
    reader: Box<dyn RecordBatchReader + Send>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = library_schema(&reader.schema());
    let reader = Box::new(ForLibraries { reader, schema });
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(reader), STREAM)
}

/// Batches in the types that libraries have.
struct ForLibraries {
    reader: Box<dyn RecordBatchReader + Send>,
    schema: SchemaRef,
}

impl Iterator for ForLibraries {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.reader.next()?;
        Some(batch.and_then(|batch| cast_batch(&batch, &self.schema)))
    }
}

impl RecordBatchReader for ForLibraries {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// A capsule with a description of these columns.
///
/// # Errors
/// A type that C cannot be told of.
pub(crate) fn schema_capsule<'py>(
    py: Python<'py>,
    schema: &Schema,
) -> PyResult<Result<Bound<'py, PyCapsule>, ArrowError>> {
    match FFI_ArrowSchema::try_from(&*library_schema(schema)) {
        Ok(schema) => PyCapsule::new_with_value(py, schema, SCHEMA).map(Ok),
        Err(error) => Ok(Err(error)),
    }
}

/// The pointer in a capsule of this name.
fn pointer_of(
    capsule: &Bound<'_, PyAny>,
    name: &'static CStr,
) -> Result<*mut std::ffi::c_void, ArrowError> {
    let capsule = capsule.cast::<PyCapsule>();
    let pointer = capsule.ok().and_then(|capsule| capsule.pointer_checked(Some(name)).ok());
    let pointer = pointer.ok_or_else(|| {
        fault(&format!("the object gives no capsule \"{}\"", name.to_string_lossy()))
    })?;
    Ok(pointer.as_ptr())
}

/// Checks what is computed with before the array is validated: no count is negative, and no buffer has more bytes than
/// can be addressed.
fn check_counts(array: &FFI_ArrowArray, data_type: &DataType) -> Result<(), ArrowError> {
    let bytes = match data_type {
        DataType::FixedSizeBinary(width) => i64::from(*width),
        _ => VALUE_BYTES_MAX,
    };
    let counts = [array.length, array.offset, array.n_buffers, array.n_children, bytes];
    let places = array.length.checked_add(array.offset).and_then(|places| places.checked_add(1));
    let bits = places.and_then(|places| places.checked_mul(bytes)?.checked_mul(8));
    let has_lengths = match data_type {
        // Validity, views, and last the lengths of those between.
        DataType::Utf8View | DataType::BinaryView => {
            array.n_buffers >= 3
                && (array.n_buffers == 3 || !array.buffer(array.num_buffers() - 1).is_null())
        }
        _ => true,
    };
    if counts.iter().any(|count| *count < 0) || bits.is_none() || !has_lengths {
        return Err(fault(&format!("an array of type {data_type} has counts that cannot be")));
    }
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => check_counts(array.child(0), item.data_type()),
        DataType::RunEndEncoded(ends, values) => {
            check_counts(array.child(0), ends.data_type())?;
            check_counts(array.child(1), values.data_type())
        }
        DataType::Struct(fields) => {
            let mut fields = fields.iter().enumerate();
            fields
                .try_for_each(|(place, field)| check_counts(array.child(place), field.data_type()))
        }
        DataType::Dictionary(_, values) => match array.dictionary() {
            Some(dictionary) => check_counts(dictionary, values),
            None => Err(fault("a dictionary has no values")),
        },
        // The others have no arrays below them; SQL has no unions.
        _ => Ok(()),
    }
}

/// What a stream says about its failure with `code`.
fn last_error(stream: &mut FFI_ArrowArrayStream, code: i32) -> ArrowError {
    let said = stream.get_last_error.and_then(|get_last_error| {
        // SAFETY: The stream is not released, so its function may be called with it.
        let text = unsafe { get_last_error(&raw mut *stream) };
        if text.is_null() {
            return None;
        }
        // SAFETY: A text that ends with a zero byte and lives until the next call.
        let text = unsafe { CStr::from_ptr(text) };
        Some(text.to_string_lossy().into_owned())
    });
    fault(&said.unwrap_or_else(|| format!("the stream failed with code {code}")))
}

/// What `read` gives; a panic is an error: Arrow's library checks some of what it reads by assertions.
fn within<T>(read: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, ArrowError> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(outcome) => outcome,
        Err(panic) => Err(fault(&format!("no valid Arrow data: {}", panic_text(&*panic)))),
    }
}

fn fault(message: &str) -> ArrowError {
    ArrowError::CDataInterface(message.to_owned())
}
