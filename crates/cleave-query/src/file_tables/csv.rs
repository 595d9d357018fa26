//! Text files as tables: their columns from a sample, and their rows chunk by chunk.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cleave_catalog::error::{Error, Result};
use cleave_catalog::tasks;
use cleave_sql::copy::{
    Chunk, ChunkParser, Compression, CsvTypes, InputMemory, RecordSplitter, TextInput,
};
use cleave_sql::statement::files::CsvCall;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Field, SchemaRef};
use datafusion::error::DataFusionError;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::{Watch, shown};

/// Files whose first rows are looked at.
const SAMPLED_FILES: usize = 16;
/// Bytes that a value is taken to have in a file.
const VALUE_BYTES: u64 = 8;
/// How much smaller compressed text is taken to be.
const COMPRESSED_SHARE: u64 = 4;
/// First bytes of a Parquet file.
const PARQUET: &[u8; 4] = b"PAR1";

/// Files with the same columns.
#[derive(Debug)]
pub(super) struct CsvFiles {
    types: CsvTypes,
    skip: u64,
    paths: Vec<PathBuf>,
    memory: InputMemory,
    bytes: u64,
    watch: Watch,
}

impl CsvFiles {
    pub(super) fn open(
        call: &CsvCall,
        paths: Vec<PathBuf>,
        memory: InputMemory,
        watch: Watch,
    ) -> Result<Self> {
        let mut bytes = 0_u64;
        for path in &paths {
            let length = std::fs::metadata(path).map_err(|error| Error::io("open", path, error))?;
            let is_compressed = Compression::of_name(path).is_some();
            let share = if is_compressed { COMPRESSED_SHARE } else { 1 };
            bytes = bytes.saturating_add(length.len().saturating_mul(share));
        }
        let sampled = paths.iter().take(SAMPLED_FILES);
        let inputs = sampled.map(|path| -> Result<(String, TextInput)> {
            check_text(path)?;
            Ok((shown(path), opened(path, watch)?))
        });
        let types = CsvTypes::find(call, inputs, memory)?;
        Ok(Self { types, skip: call.skip, paths, memory, bytes, watch })
    }

    pub(super) fn fields(&self) -> Vec<Field> {
        let columns = self.types.columns.iter();
        columns.map(|own| Field::new(&own.name, own.column_type.arrow(), true)).collect()
    }

    /// Rows that are expected, by the size of the files.
    pub(super) fn row_estimate(&self) -> usize {
        let row_bytes = (self.types.columns.len() as u64).saturating_mul(VALUE_BYTES).max(1);
        usize::try_from(self.bytes / row_bytes).unwrap_or(usize::MAX)
    }

    /// The columns at `places`, which are those of `schema`, of all rows in their order and in batches of at most
    /// `batch_rows`; `threads` parse at once.
    pub(super) fn batches(
        self: &Arc<Self>,
        places: &[usize],
        schema: SchemaRef,
        (threads, batch_rows): (usize, usize),
    ) -> BoxStream<'static, datafusion::error::Result<RecordBatch>> {
        let mut wanted = places.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let order: Vec<usize> =
            places.iter().filter_map(|place| wanted.binary_search(place).ok()).collect();
        let reading = Reading {
            files: Arc::clone(self),
            wanted: Arc::new(wanted),
            left: (0..self.paths.len()).collect(),
            open: None,
        };
        let chunks = stream::try_unfold(reading, |mut reading| async move {
            let taken = tasks::blocking(move || {
                let next = reading.next_chunk();
                (reading, next)
            });
            let (reading, next) = tasks::joined(taken.await)?;
            Ok::<_, Error>(next?.map(|next| (next, reading)))
        });
        let files = Arc::clone(self);
        let order = Arc::new(order);
        let batches = chunks.map(move |next| {
            let (files, order, schema) =
                (Arc::clone(&files), Arc::clone(&order), Arc::clone(&schema));
            async move {
                let (parser, chunk) = next?;
                let parsed =
                    tasks::blocking(move || parsed(&parser, &chunk, &order, (&schema, batch_rows)));
                tasks::joined(parsed.await)?.map_err(|error| files.types.explained(error))
            }
        });
        // One more than parse at once: while the next chunk is read and cut, none of them waits for it.
        let batches = batches.buffered(threads.max(1).saturating_add(1));
        let batches =
            batches.map_ok(|batches| stream::iter(batches.into_iter().map(Ok::<_, Error>)));
        batches.try_flatten().map_err(DataFusionError::from).boxed()
    }
}

/// The rows of a chunk: its columns in `order`, in batches of at most so many rows, and of one at least.
fn parsed(
    parser: &ChunkParser,
    chunk: &Chunk,
    order: &[usize],
    (schema, batch_rows): (&SchemaRef, usize),
) -> Result<Vec<RecordBatch>> {
    let mut batches = Vec::with_capacity(chunk.ends.len().div_ceil(batch_rows.max(1)));
    parser.each_rows_of(chunk, batch_rows, |columns, row_count| {
        if row_count > 0 {
            let columns = order.iter().filter_map(|place| columns.get(*place).map(Arc::clone));
            let options = RecordBatchOptions::new().with_row_count(Some(row_count));
            let columns = columns.collect();
            let schema = Arc::clone(schema);
            batches.push(RecordBatch::try_new_with_options(schema, columns, &options)?);
        }
        Ok(())
    })?;
    Ok(batches)
}

/// The files as far as they are read.
struct Reading {
    files: Arc<CsvFiles>,
    wanted: Arc<Vec<usize>>,
    /// The places of the files that are not begun.
    left: VecDeque<usize>,
    open: Option<OpenFile>,
}

struct OpenFile {
    name: String,
    splitter: RecordSplitter<TextInput>,
    parser: Arc<ChunkParser>,
}

impl Reading {
    /// The next records, and what parses them.
    fn next_chunk(&mut self) -> Result<Option<(Arc<ChunkParser>, Chunk)>> {
        loop {
            if let Some(open) = &mut self.open {
                if let Some(chunk) = open.splitter.next_chunk()? {
                    self.files.types.check_header(&open.name, &chunk)?;
                    return Ok(Some((Arc::clone(&open.parser), chunk)));
                }
                self.open = None;
            }
            let Some(path) = self.left.pop_front().and_then(|place| self.files.paths.get(place))
            else {
                return Ok(None);
            };
            let CsvFiles { types, skip, memory, watch, .. } = &*self.files;
            let name = shown(path);
            let splitter =
                RecordSplitter::new(opened(path, *watch)?, &name, &types.options, *memory);
            let parser = ChunkParser::new(&name, types.input_columns()?, types.options.clone())?;
            let parser = Arc::new(parser.of_columns(&self.wanted));
            self.open = Some(OpenFile { name, splitter: splitter.behind_lines(*skip), parser });
        }
    }
}

fn opened(path: &Path, watch: Watch) -> Result<TextInput> {
    let file = File::open(path).map_err(|error| Error::io("open", path, error))?;
    Ok(TextInput::new(Watched(file, watch), &shown(path)))
}

/// A file of which no more is read once nobody waits for the plan: the sample may be all of it.
struct Watched(File, Watch);

impl Read for Watched {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        (self.1)().map_err(io::Error::other)?;
        self.0.read(bytes)
    }
}

/// Refuses a Parquet file, which would be a text with strange signs.
fn check_text(path: &Path) -> Result<()> {
    let mut first = [0; PARQUET.len()];
    let mut file = File::open(path).map_err(|error| Error::io("open", path, error))?;
    let is_parquet = file.read_exact(&mut first).is_ok() && first == *PARQUET;
    match is_parquet {
        true => Err(Error::InputSchema {
            file: shown(path),
            message: "it is a Parquet file, which read_parquet reads".to_owned(),
        }),
        false => Ok(()),
    }
}
