//! Text files as tables: their columns from a sample, and their rows chunk by chunk.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cleave_catalog::error::{Error, Result};
use cleave_catalog::tasks;
use cleave_sql::copy::{
    Chunk, ChunkParser, Compression, CsvLayout, CsvTypes, CsvUnion, InputMemory, RecordSplitter,
    TextInput,
};
use cleave_sql::statement::files::CsvCall;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::datatypes::{Field, SchemaRef};
use datafusion::error::DataFusionError;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::{Watch, shown};
use crate::conditions::Conditions;

/// Files whose first rows are looked at.
const SAMPLED_FILES: usize = 16;
/// Bytes that a value is taken to have in a file.
const VALUE_BYTES: u64 = 8;
/// How much smaller compressed text is taken to be.
const COMPRESSED_SHARE: u64 = 4;
/// Most bytes of text that are parsed at once: what is read, cut, checked and parsed one after the other stays near the
/// processor meanwhile.
const CHUNK_BYTES: usize = 1 << 20;
/// Chunks that are parsed or wait for it, as a multiple of the threads that parse: none of these waits while the next
/// chunk is read.
const CHUNKS_OF_THREAD: usize = 2;
/// First bytes of a Parquet file.
const PARQUET: &[u8; 4] = b"PAR1";

/// Files that are read together.
#[derive(Debug)]
pub(super) struct CsvFiles {
    /// The columns of all of them.
    types: CsvTypes,
    layouts: Vec<Arc<CsvLayout>>,
    /// The layout of each file, None for one that is empty; without: the first is that of all.
    of_path: Option<Vec<Option<usize>>>,
    skip: u64,
    paths: Vec<PathBuf>,
    memory: InputMemory,
    bytes: u64,
    watch: Watch,
}

impl CsvFiles {
    pub(super) fn open(
        (call, by_name): (&CsvCall, bool),
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
        let input = |path: &PathBuf| -> Result<(String, TextInput)> {
            check_text(path)?;
            Ok((shown(path), opened(path, watch)?))
        };
        let (types, layouts, of_path) = match by_name {
            true => {
                let union = CsvUnion::find(call, paths.iter().map(input), memory)?;
                let layouts = union.layouts.into_iter().map(Arc::new).collect();
                (union.types, layouts, Some(union.of_file))
            }
            false => {
                let sampled = paths.iter().take(SAMPLED_FILES);
                let types = CsvTypes::find(call, sampled.map(input), memory)?;
                let layout = Arc::new(CsvLayout::of_all(types.clone()));
                (types, vec![layout], None)
            }
        };
        Ok(Self { types, layouts, of_path, skip: call.skip, paths, memory, bytes, watch })
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

    /// The columns at `places`, which are those of `schema`, of the rows for which `conditions` may hold, in their
    /// order and in batches of at most `batch_rows`; `threads` parse at once.
    pub(super) fn batches(
        self: &Arc<Self>,
        places: &[usize],
        schema: SchemaRef,
        threads: usize,
        (batch_rows, conditions): (usize, &Conditions),
    ) -> BoxStream<'static, datafusion::error::Result<RecordBatch>> {
        let reading = Reading {
            files: Arc::clone(self),
            places: places.to_vec(),
            left: (0..self.paths.len()).collect(),
            open: None,
        };
        let pieces = stream::try_unfold(reading, |mut reading| async move {
            let taken = tasks::blocking(move || {
                let next = reading.next_piece();
                (reading, next)
            });
            let (reading, next) = tasks::joined(taken.await)?;
            Ok::<_, Error>(next?.map(|next| (next, reading)))
        });
        let conditions = conditions.clone();
        let batches = pieces.map(move |next| {
            let (schema, conditions) = (Arc::clone(&schema), conditions.clone());
            async move {
                let piece = next?;
                let layout = Arc::clone(&piece.layout);
                let parsed =
                    tasks::blocking(move || parsed(&piece, &schema, (batch_rows, &conditions)));
                tasks::joined(parsed.await)?.map_err(|error| layout.types.explained(error))
            }
        });
        let batches = batches.buffered(threads.max(1).saturating_mul(CHUNKS_OF_THREAD));
        let batches =
            batches.map_ok(|batches| stream::iter(batches.into_iter().map(Ok::<_, Error>)));
        batches.try_flatten().map_err(DataFusionError::from).boxed()
    }
}

/// Records of a file, and how they are read.
struct Piece {
    chunk: Chunk,
    parser: Arc<ChunkParser>,
    /// For each column that is asked for, its place in what the parser makes; None: the file has no such column.
    order: Arc<Vec<Option<usize>>>,
    layout: Arc<CsvLayout>,
}

/// The rows of a piece for which `conditions` may hold. They have the columns of `schema`, in batches of at most so
/// many rows, and of one at least.
fn parsed(
    piece: &Piece,
    schema: &SchemaRef,
    (batch_rows, conditions): (usize, &Conditions),
) -> Result<Vec<RecordBatch>> {
    let Piece { chunk, parser, order, .. } = piece;
    let mut batches = Vec::with_capacity(chunk.ends.len().div_ceil(batch_rows.max(1)));
    parser.each_rows_of(chunk, batch_rows, |columns, row_count| {
        if row_count > 0 {
            let fields = order.iter().zip(schema.fields());
            let columns = fields.filter_map(|(place, field)| match place {
                Some(place) => columns.get(*place).map(Arc::clone),
                None => Some(new_null_array(field.data_type(), row_count)),
            });
            let options = RecordBatchOptions::new().with_row_count(Some(row_count));
            let columns = columns.collect();
            let schema = Arc::clone(schema);
            let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
            batches.extend(Some(conditions.left_of(batch)?).filter(|left| left.num_rows() > 0));
        }
        Ok(())
    })?;
    Ok(batches)
}

/// The files as far as they are read.
struct Reading {
    files: Arc<CsvFiles>,
    /// The columns that are asked for.
    places: Vec<usize>,
    /// The places of the files that are not begun.
    left: VecDeque<usize>,
    open: Option<OpenFile>,
}

struct OpenFile {
    name: String,
    splitter: RecordSplitter<TextInput>,
    parser: Arc<ChunkParser>,
    order: Arc<Vec<Option<usize>>>,
    layout: Arc<CsvLayout>,
}

impl Reading {
    /// The next records.
    fn next_piece(&mut self) -> Result<Option<Piece>> {
        loop {
            if let Some(open) = &mut self.open {
                if let Some(chunk) = open.splitter.next_chunk()? {
                    open.layout.types.check_header(&open.name, &chunk)?;
                    let (parser, order) = (Arc::clone(&open.parser), Arc::clone(&open.order));
                    let layout = Arc::clone(&open.layout);
                    return Ok(Some(Piece { chunk, parser, order, layout }));
                }
                self.open = None;
            }
            let Some(number) = self.left.pop_front() else { return Ok(None) };
            self.open = self.opened(number)?;
        }
    }

    /// The file `number`; None: it is empty.
    fn opened(&self, number: usize) -> Result<Option<OpenFile>> {
        let CsvFiles { layouts, of_path, skip, paths, memory, watch, .. } = &*self.files;
        let layout = match of_path {
            Some(of_path) => of_path.get(number).copied().flatten(),
            None => Some(0),
        };
        let layout = layout.and_then(|layout| layouts.get(layout));
        let (Some(path), Some(layout)) = (paths.get(number), layout) else { return Ok(None) };
        let own = self.places.iter().map(|place| layout.places.get(*place).copied().flatten());
        let own: Vec<Option<usize>> = own.collect();
        let mut wanted: Vec<usize> = own.iter().copied().flatten().collect();
        wanted.sort_unstable();
        wanted.dedup();
        let place_of = |own: Option<usize>| own.and_then(|own| wanted.binary_search(&own).ok());
        let order = own.into_iter().map(place_of).collect();
        let (name, types) = (shown(path), &layout.types);
        let memory = InputMemory { chunk_bytes: memory.chunk_bytes.min(CHUNK_BYTES), ..*memory };
        let splitter = RecordSplitter::new(opened(path, *watch)?, &name, &types.options, memory);
        let parser = types.parser(&name)?;
        Ok(Some(OpenFile {
            name,
            splitter: splitter.behind_lines(*skip),
            parser: Arc::new(parser.of_columns(&wanted)),
            order: Arc::new(order),
            layout: Arc::clone(layout),
        }))
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
