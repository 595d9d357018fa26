//! `cleave load`: loads files into one table, all rows or none, with progress.
//!
//! ```text
//!  file ─▶ RecordSplitter ─▶ chunks ─▶ ChunkParser × threads ─▶ batches in order ─▶ Session::load
//!          (one thread)                (the runtime's)
//! ```
//!
//! The same reader and the same load as COPY, with a progress bar for users at a terminal. Some pages of the table are
//! analysed at the end, so that the first query is planned with statistics.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::record_batch::RecordBatch;
use clap::{Args, ValueEnum};
use cleave_host::Error;
use cleave_host::copy::{
    BinaryReader, Chunk, ChunkParser, Compression, CopyFormat, CsvOptions, Header, InputColumns,
    InputMemory, ParquetCompression, ParquetReader, RecordSplitter, TextInput,
};
use cleave_media::{Clock, SystemClock};
use cleave_store::TableSchema;
use futures::stream::{self, BoxStream, StreamExt};

use super::progress::{Progress, Unit};
use crate::arguments::Place;
use crate::failure::Failure;
use crate::open::{self, Create};

/// `cleave load …`.
#[derive(Debug, Clone, Args)]
pub(crate) struct LoadOptions {
    /// The table, which must exist
    table: String,
    /// The files; all of them are loaded, or none
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The files' columns in order, as in id,title; by default all of the table's
    #[arg(long, value_delimiter = ',')]
    columns: Vec<String>,
    /// The files' format; by default from the name: .parquet, .tsv and .txt (PostgreSQL's text format), else CSV; all
    /// but Parquet may be compressed by gzip or zstd
    #[arg(long, value_enum)]
    format: Option<FileFormat>,
    /// The first record of each file names the columns
    #[arg(long)]
    header: bool,
    /// The character between two values
    #[arg(long, value_name = "CHAR", value_parser = ascii)]
    delimiter: Option<u8>,
    /// The character around a value
    #[arg(long, value_name = "CHAR", value_parser = ascii)]
    quote: Option<u8>,
    /// The character before a quote inside quotes; the IMDb dump has a backslash
    #[arg(long, value_name = "CHAR", value_parser = ascii)]
    escape: Option<u8>,
    /// The unquoted value that means NULL, as in \N
    #[arg(long, value_name = "TEXT")]
    null: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FileFormat {
    /// CSV as PostgreSQL writes it with FORMAT csv
    Csv,
    /// PostgreSQL's text format: tabs, \N, backslash escapes
    Text,
    /// Apache Parquet
    Parquet,
}

/// Chunks of one file that wait for a thread to parse them.
const CHUNKS_WAITING_MAX: usize = 4;

type Batches = BoxStream<'static, Result<RecordBatch, Error>>;

/// Runs `cleave load …`.
pub(crate) async fn run(options: &LoadOptions, place: &Place) -> Result<(), Failure> {
    let mut total_bytes = 0;
    for path in &options.files {
        // Opened, so that a file without permission is found before anything is loaded.
        let file = File::open(path).map_err(Failure::file(path))?;
        total_bytes += file.metadata().map_err(Failure::file(path))?.len();
    }
    let (database, mut session) = open::open(place, Create::Never).await?;
    let (catalog, before) = (database.catalog(), database.changes());
    let table = catalog.find_writable_table(&options.table).map_err(Failure::Sql)?;
    let columns = Columns {
        table: &table.schema,
        listed: &options.columns,
        now_us: SystemClock.wall(),
        memory: database.input_memory(),
    };

    let progress = Progress::start(&options.table, Some(total_bytes), Unit::Bytes);
    let bytes_read = Arc::new(AtomicU64::new(0));
    let mut files = Vec::new();
    for path in &options.files {
        let format = options.format_of(path)?;
        files.push(batches(path, format, &columns, Arc::clone(&bytes_read))?);
    }
    let batches = stream::iter(files).flatten().boxed();
    let show = |row_count: u64| {
        progress.set(bytes_read.load(Ordering::Relaxed));
        progress.set_rows(row_count);
    };
    let row_count =
        session.load(&options.table, batches, Some(&show)).await.map_err(Failure::Sql)?;
    progress.finish(row_count);
    super::analyze_filled(&database, &before).await;
    Ok(())
}

impl LoadOptions {
    fn format_of(&self, path: &Path) -> Result<CopyFormat, Failure> {
        let inner = match Compression::of_name(path) {
            Some(_) => Path::new(path.file_stem().unwrap_or_default()),
            None => path,
        };
        let extension = inner.extension().unwrap_or_default().to_ascii_lowercase();
        let format = self.format.unwrap_or_else(|| match extension.to_str() {
            Some("parquet") => FileFormat::Parquet,
            Some("tsv" | "txt") => FileFormat::Text,
            _ => FileFormat::Csv,
        });
        let defaults = match format {
            FileFormat::Parquet => return Ok(CopyFormat::Parquet(ParquetCompression::default())),
            FileFormat::Csv => CsvOptions::csv(),
            FileFormat::Text => CsvOptions::text(),
        };
        let options = CsvOptions {
            delimiter: self.delimiter.unwrap_or(defaults.delimiter),
            // As in PostgreSQL, a quote without an escape is its own escape.
            escape: self.escape.or(self.quote).unwrap_or(defaults.escape),
            quote: self.quote.unwrap_or(defaults.quote),
            null: self.null.clone().unwrap_or(defaults.null),
            header: if self.header { Header::Skip } else { Header::None },
            ..defaults
        };
        let checked = options.check().map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(if format == FileFormat::Csv {
            CopyFormat::Csv(checked)
        } else {
            CopyFormat::Text(checked)
        })
    }
}

/// The rows of one file, read when they are asked for.
fn batches(
    path: &Path,
    format: CopyFormat,
    columns: &Columns<'_>,
    bytes_read: Arc<AtomicU64>,
) -> Result<Batches, Failure> {
    let file = File::open(path).map_err(Failure::file(path))?;
    let name = path.display().to_string();
    let Columns { table, listed, now_us, memory } = *columns;
    match format {
        CopyFormat::Csv(options) | CopyFormat::Text(options) => {
            let columns = InputColumns::new(table, listed, now_us).map_err(Failure::Sql)?;
            let input = TextInput::new(Counted { file, bytes_read }, &name);
            let splitter = RecordSplitter::new(input, &name, &options, memory);
            let parser = ChunkParser::new(&name, columns, options).map_err(Failure::Sql)?;
            Ok(parsed(splitter, parser))
        }
        CopyFormat::Binary => {
            let columns = InputColumns::new(table, listed, now_us).map_err(Failure::Sql)?;
            let input = TextInput::new(Counted { file, bytes_read }, &name);
            let input = BufReader::new(input);
            Ok(off_thread(BinaryReader::new(input, &name, columns, memory)).boxed())
        }
        CopyFormat::Parquet(_) => {
            let length = file.metadata().map_err(Failure::file(path))?.len();
            let reader =
                ParquetReader::open(path, table, listed, now_us, memory).map_err(Failure::Sql)?;
            // The Parquet reader seeks in the file, so the whole file counts when it is done.
            let at_end = std::iter::from_fn(move || {
                bytes_read.fetch_add(length, Ordering::Relaxed);
                None
            });
            Ok(off_thread(reader.chain(at_end)).boxed())
        }
    }
}

/// The table's columns in the files, the start time of the load for defaults that need it, and the reader's memory.
struct Columns<'a> {
    table: &'a TableSchema,
    listed: &'a [String],
    now_us: i64,
    memory: InputMemory,
}

/// Splits on one thread, parses on as many as there are, and keeps the file's order.
fn parsed(splitter: RecordSplitter<TextInput>, parser: ChunkParser) -> Batches {
    let mut splitter = splitter;
    let chunks = off_thread(std::iter::from_fn(move || splitter.next_chunk().transpose()));
    let parser = Arc::new(parser);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    chunks
        .map(move |chunk: Result<Chunk, Error>| {
            let parser = Arc::clone(&parser);
            async move {
                let chunk = chunk?;
                super::blocking(move || parser.parse(&chunk)).await
            }
        })
        .buffered(threads)
        .filter(|batch| {
            let is_empty = batch.as_ref().is_ok_and(|batch| batch.num_rows() == 0);
            futures::future::ready(!is_empty)
        })
        .boxed()
}

/// The items of an iterator, computed on a thread that may wait for files.
fn off_thread<T: Send + 'static>(
    items: impl Iterator<Item = T> + Send + 'static,
) -> impl futures::Stream<Item = T> + Send + 'static {
    let (sender, receiver) = tokio::sync::mpsc::channel(CHUNKS_WAITING_MAX);
    let reading = tokio::task::spawn_blocking(move || {
        for item in items {
            // The load has failed, and the rest is not needed.
            if sender.blocking_send(item).is_err() {
                return;
            }
        }
    });
    stream::unfold((receiver, reading), |(mut receiver, reading)| async move {
        receiver.recv().await.map(|item| (item, (receiver, reading)))
    })
}

/// A file that counts the bytes read.
#[derive(Debug)]
struct Counted {
    file: File,
    bytes_read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.bytes_read.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
        Ok(count)
    }
}

fn ascii(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() => Ok(*byte),
        b"\\t" => Ok(b'\t'),
        _ => Err("expected one ASCII character, or \\t".to_owned()),
    }
}
