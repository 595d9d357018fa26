//! COPY: files and the client's streams to rows and back.
//!
//! ```text
//!  file ─▶ (thread) RecordSplitter ─▶ (threads) ChunkParser, in order ─▶ insert
//!  rows ─▶ (thread) CsvWriter or ParquetWriter ─▶ new file, which takes the place of the old one at the end
//! ```
//!
//! Files are read and written on threads of the runtime's blocking pool; a statement that is dropped
//! closes their channels, which ends them. [Compressed](cleave_sql::copy::compressed) ones pass through a decoder or an
//! encoder, piece by piece.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use cleave_catalog::catalog::CatalogState;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::Settings;
use cleave_catalog::tasks;
use cleave_engine::storage_engine::part_notes::PartNote;
use cleave_fragment::progress::Progress;
use cleave_media::ReplacedFile;
use cleave_query::file_tables;
use cleave_query::planner;
use cleave_query::select;
use cleave_query::select::QueryRequest;
use cleave_sql::copy::database_files::check_of_no_database;
use cleave_sql::copy::file_list::files_of;
use cleave_sql::copy::{
    BinaryCopyWriter, BinaryReader, ChunkParser, Compression, CopyFormat, CsvOptions, CsvWriter,
    InputColumns, ParquetReader, ParquetWriter, RecordSplitter, TextInput, TextOutput,
};
use cleave_sql::statement::files::FileCall;
use cleave_sql::statement::{Copy, CopyEnd, CopySource, Parameters};
use cleave_store::TableSchema;
use datafusion::common::runtime::SpawnedTask;
use datafusion::sql::sqlparser::ast;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::sync::mpsc;

use super::{Outcome, Session, insert, locking};
use crate::database::Database;

/// Chunks or batches that wait for the next stage.
const WAITING: usize = 4;

/// Where COPY … STDIN reads and COPY … STDOUT writes. Without them such a COPY is refused.
#[derive(Default)]
pub struct ClientStreams {
    /// The stream that is STDIN for one COPY.
    pub input: Option<Box<dyn Read + Send>>,
    /// The stream that is STDOUT.
    pub output: Option<Box<dyn Write + Send>>,
}

impl fmt::Debug for ClientStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientStreams")
            .field("input", &self.input.is_some())
            .field("output", &self.output.is_some())
            .finish()
    }
}

/// Runs COPY.
pub(super) async fn run(session: &mut Session, copy: Copy) -> Result<Outcome> {
    let (Copy::From { end, .. } | Copy::To { end, .. }) = &copy;
    if let CopyEnd::File(path) = end {
        let catalog = session.database.catalog();
        let client = &session.settings().client;
        file_tables::check_may(client, &catalog.rights, "COPY of a file of the server")?;
        let (path, own) = (path.clone(), session.database.directory().to_owned());
        step(move || check_of_no_database(&path, &own)).await?;
    }
    let count = match copy {
        Copy::From { table, columns, end, format } => {
            copy_from(session, &table, &columns, end, format).await?
        }
        Copy::To { source, end, format } => copy_to(session, source, end, format).await?,
    };
    Ok(Outcome::Done { tag: format!("COPY {count}") })
}

async fn copy_from(
    session: &mut Session,
    table: &str,
    columns: &[String],
    end: CopyEnd,
    format: CopyFormat,
) -> Result<u64> {
    session.check_may_write("COPY FROM")?;
    let schema = locking::lock_for_writing(session, table).await?;
    let moment = session.moment();
    let memory = session.database.input_memory();
    let batches = match (format, end) {
        (CopyFormat::Csv(options) | CopyFormat::Text(options), end) => {
            let progress = session.progress();
            let opened = open_input(streams(&mut session.client), end, progress);
            let (input, name) = opened.await?;
            let input_columns = InputColumns::new(&schema, columns, moment.later())?;
            records(&session.database, session.in_force(), input, &name, input_columns, options)?
        }
        (CopyFormat::Binary, end) => {
            let progress = session.progress();
            let opened = open_input(streams(&mut session.client), end, progress);
            let (input, name) = opened.await?;
            let input_columns = InputColumns::new(&schema, columns, moment.later())?;
            let reader = BinaryReader::new(BufReader::new(input), &name, input_columns, memory);
            produced(move || Ok(reader), BinaryReader::next_batch)
        }
        (CopyFormat::Parquet(_), CopyEnd::File(path)) => {
            let (columns, later) = (columns.to_vec(), moment.later());
            let schema: Arc<TableSchema> = Arc::clone(&schema);
            let open = move || ParquetReader::open(&path, &schema, &columns, later, memory);
            produced(open, ParquetReader::next_batch)
        }
        (CopyFormat::Parquet(_), CopyEnd::Client) => {
            return Err(Error::Unsupported {
                what: "COPY FROM STDIN of Parquet".to_owned(),
                hint: Some("its index is at its end; copy from a file".to_owned()),
                position: None,
            });
        }
    };
    // Chunks are read side by side; numbers go by the file's order.
    let (table, columns) = (Arc::clone(&schema), columns.to_vec());
    let batches = batches.map(move |batch| moment.fill(&table, &columns, batch?)).boxed();
    Box::pin(insert::put_rows(session, &schema, batches)).await
}

fn streams(client: &mut Mutex<ClientStreams>) -> &mut ClientStreams {
    client.get_mut().unwrap_or_else(PoisonError::into_inner)
}

/// Opens what COPY reads. A pipe opens when somebody writes into it.
async fn open_input(
    client: &mut ClientStreams,
    end: CopyEnd,
    progress: Progress,
) -> Result<(TextInput, String)> {
    match end {
        CopyEnd::File(path) => {
            let name = path.display().to_string();
            let open = move || File::open(&path).map_err(|error| Error::io("open", &path, error));
            let file = step(open).await?;
            Ok((TextInput::new(CountedFile::new(file, progress), &name), name))
        }
        CopyEnd::Client => match client.input.take() {
            Some(input) => Ok((TextInput::of_client(input), "STDIN".to_owned())),
            None => Err(no_client("COPY FROM STDIN")),
        },
    }
}

/// A file whose bytes count as progress.
pub struct CountedFile {
    file: File,
    /// Until the first of them is read.
    length: Option<u64>,
    progress: Progress,
}

impl CountedFile {
    /// `file`, all of which is to be read.
    pub fn new(file: File, progress: Progress) -> Self {
        // A pipe has no length, and its progress is not known.
        let length = file.metadata().ok().map(|known| known.len());
        Self { file, length, progress }
    }
}

impl Read for CountedFile {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if let Some(length) = self.length.take() {
            self.progress.expect(length);
        }
        let count = self.file.read(bytes)?;
        self.progress.advance(u64::try_from(count).unwrap_or(0));
        Ok(count)
    }
}

impl fmt::Debug for CountedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountedFile").finish_non_exhaustive()
    }
}

/// The rows of a text file, parsed on several threads, in the file's order.
fn records(
    database: &Arc<Database>,
    settings: &Settings,
    input: TextInput,
    name: &str,
    columns: InputColumns,
    options: CsvOptions,
) -> Result<BoxStream<'static, Result<RecordBatch>>> {
    let splitter = RecordSplitter::new(input, name, &options, database.input_memory());
    let parser = Arc::new(ChunkParser::new(name, columns, options)?);
    let chunks = produced(move || Ok(splitter), RecordSplitter::next_chunk);
    let batches = chunks
        .map(move |chunk| {
            let parser = Arc::clone(&parser);
            async move {
                let chunk = chunk?;
                tasks::joined(tasks::blocking(move || parser.parse(&chunk)).await)?
            }
        })
        .buffered(planner::host_partitions(settings));
    Ok(batches.boxed())
}

async fn copy_to(
    session: &mut Session,
    source: CopySource,
    end: CopyEnd,
    format: CopyFormat,
) -> Result<u64> {
    let query = match source {
        CopySource::Query(query) => query,
        CopySource::Table { name, columns } => table_query(&session.names(), &name, &columns)?,
    };
    if let CopyEnd::File(path) = &end {
        let files = select::files_read(&query, &session.names())?;
        check_not_read(&files, path).await?;
    }
    let view = session.view().await?;
    let parameters = &Parameters::default();
    let asked = QueryRequest { query: &query, parameters, view: Some(&view) };
    let mut running =
        Box::pin(select::run_query(&session.database, session.in_force(), asked)).await?;
    let (output, name) = open_output(&session.database, streams(&mut session.client), end).await?;
    let schema = running.schema();
    let (give, take) = mpsc::channel(WAITING);
    let path = PathBuf::from(&name);
    let writer = SpawnedTask::spawn_blocking(move || write(output, &name, &schema, format, take));
    let sent = send_all(&mut running, give).await;
    let (output, written) = tasks::joined(writer.await)?;
    match output {
        // Also after the query or the writer failed: the next COPY needs the stream.
        Output::Client(client) => streams(&mut session.client).output = Some(client),
        // A writer ends well too when the query has failed: it cannot tell.
        Output::File(file, _note) if sent.is_ok() && written.is_ok() => {
            step(move || finish(file).map_err(|error| Error::io("write", &path, error))).await?;
        }
        Output::File(..) => {}
    }
    sent.and(written)
}

/// Gives a file that was written its name.
fn finish(file: BufWriter<ReplacedFile>) -> io::Result<()> {
    file.into_inner().map_err(io::IntoInnerError::into_error)?.finish()
}

/// Refuses to write the file at `path` if a query reads it, by one of the relations `files`: a file that cannot be
/// replaced as a whole would be empty before it is read.
async fn check_not_read(files: &[String], path: &Path) -> Result<()> {
    let calls: Vec<_> = files.iter().filter_map(|name| FileCall::of_relation(name)).collect();
    if calls.is_empty() {
        return Ok(());
    }
    let path = path.to_owned();
    let is_read = step(move || {
        let Ok(written) = path.metadata() else { return Ok(false) };
        let is_it = |read: &PathBuf| {
            read.metadata()
                .is_ok_and(|read| (read.dev(), read.ino()) == (written.dev(), written.ino()))
        };
        for call in calls {
            if files_of(&call?.names)?.iter().any(is_it) {
                return Ok(true);
            }
        }
        Ok(false)
    });
    match is_read.await? {
        true => Err(Error::Unsupported {
            what: "COPY TO a file that its query reads".to_owned(),
            hint: Some("write another file".to_owned()),
            position: None,
        }),
        false => Ok(()),
    }
}

/// Opens what COPY writes. A pipe opens when somebody reads from it.
async fn open_output(
    database: &Arc<Database>,
    client: &mut ClientStreams,
    end: CopyEnd,
) -> Result<(Output, String)> {
    match end {
        CopyEnd::File(path) => {
            let name = path.display().to_string();
            let database = Arc::clone(database);
            let open = move || {
                // The owner alone may read a new file.
                let file = ReplacedFile::create(&path, 0o600);
                let file = file.map_err(|error| Error::io("create", &path, error))?;
                let note = database.storage().note_part(&file);
                Ok((file, note))
            };
            let (file, note) = step(open).await?;
            Ok((Output::File(BufWriter::new(file), note), name))
        }
        CopyEnd::Client => match client.output.take() {
            Some(output) => Ok((Output::Client(output), "STDOUT".to_owned())),
            None => Err(no_client("COPY TO STDOUT")),
        },
    }
}

/// `SELECT columns FROM table`.
fn table_query(state: &CatalogState, table: &str, columns: &[String]) -> Result<Box<ast::Query>> {
    let found = state.find_table(table)?;
    let all = || found.schema.columns.iter().map(|column| column.name.as_str());
    for column in columns {
        if found.schema.column(column).is_none() {
            return Err(Error::unknown_column(table, column, all()));
        }
    }
    let columns: Vec<&str> = if columns.is_empty() {
        all().collect()
    } else {
        columns.iter().map(String::as_str).collect()
    };
    select::table_query(table, &columns, None)
}

/// Where COPY TO writes.
enum Output {
    /// With the note by which the next start removes what a kill leaves of it.
    File(BufWriter<ReplacedFile>, Option<PartNote>),
    Client(Box<dyn Write + Send>),
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file, _) => file.write(bytes),
            Self::Client(client) => client.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(file, _) => file.flush(),
            Self::Client(client) => client.flush(),
        }
    }
}

/// Sends all rows of a query to the writer, or those until the writer has stopped.
async fn send_all(
    running: &mut select::RunningQuery,
    give: mpsc::Sender<RecordBatch>,
) -> Result<()> {
    while let Some(batch) = running.next().await? {
        if give.send(batch).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// Writes batches until there are no more. Returns the output and the number of rows.
fn write(
    mut output: Output,
    name: &str,
    schema: &SchemaRef,
    format: CopyFormat,
    batches: mpsc::Receiver<RecordBatch>,
) -> (Output, Result<u64>) {
    let compression = match (&output, &format) {
        (Output::Client(_), _) | (_, CopyFormat::Parquet(_)) => None,
        (Output::File(..), _) => Compression::of_name(Path::new(name)),
    };
    let written = write_to(&mut output, compression, name, |text| {
        write_rows(text, name, schema, format, batches)
    });
    (output, written)
}

/// What `write` writes, in `output`.
fn write_to(
    output: &mut Output,
    compression: Option<Compression>,
    name: &str,
    write: impl FnOnce(&mut TextOutput<&mut Output>) -> Result<u64>,
) -> Result<u64> {
    let unwritten = |error| Error::io("write", Path::new(name), error);
    let mut text = TextOutput::new(&mut *output, compression).map_err(unwritten)?;
    let row_count = write(&mut text)?;
    text.finish().and_then(Write::flush).map_err(unwritten)?;
    Ok(row_count)
}

fn write_rows(
    output: &mut TextOutput<&mut Output>,
    name: &str,
    schema: &SchemaRef,
    format: CopyFormat,
    mut batches: mpsc::Receiver<RecordBatch>,
) -> Result<u64> {
    match format {
        CopyFormat::Csv(options) | CopyFormat::Text(options) => {
            let mut writer = CsvWriter::new(output, name, schema, options)?;
            while let Some(batch) = batches.blocking_recv() {
                writer.write(&batch)?;
            }
            let row_count = writer.rows_written();
            writer.finish()?;
            Ok(row_count)
        }
        CopyFormat::Binary => {
            let mut writer = BinaryCopyWriter::new(output, name);
            while let Some(batch) = batches.blocking_recv() {
                writer.write(&batch)?;
            }
            let row_count = writer.rows_written();
            writer.finish()?;
            Ok(row_count)
        }
        CopyFormat::Parquet(compression) => {
            let mut writer = ParquetWriter::new(output, name, schema, compression)?;
            while let Some(batch) = batches.blocking_recv() {
                writer.write(&batch)?;
            }
            let row_count = writer.rows_written();
            writer.finish()?;
            Ok(row_count)
        }
    }
}

/// The items that `next` takes from what `open` opened, step by step on threads that may block, as a stream that ends
/// with its error. A few items are made ahead.
fn produced<S: Send + 'static, T: Send + 'static>(
    open: impl FnOnce() -> Result<S> + Send + 'static,
    next: impl Fn(&mut S) -> Result<Option<T>> + Clone + Send + 'static,
) -> BoxStream<'static, Result<T>> {
    let (give, take) = mpsc::channel(WAITING);
    let task = SpawnedTask::spawn(async move {
        let mut source = step(open).await?;
        loop {
            let next = next.clone();
            let taken = step(move || {
                let item = next(&mut source)?;
                Ok((source, item))
            });
            let (back, item) = taken.await?;
            source = back;
            let Some(item) = item else { return Ok(()) };
            if give.send(item).await.is_err() {
                // The statement was given up.
                return Ok(());
            }
        }
    });
    stream::unfold((take, Some(task)), |(mut take, mut task)| async move {
        if let Some(item) = take.recv().await {
            return Some((Ok(item), (take, task)));
        }
        // The channel closes when the task ends.
        let ended: Result<()> = tasks::joined(task.take()?.await).flatten();
        ended.err().map(|error| (Err(error), (take, None)))
    })
    .boxed()
}

/// `work` on a thread that may block.
async fn step<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tasks::joined(tasks::blocking(work).await)?
}

fn no_client(what: &str) -> Error {
    Error::Unsupported {
        what: format!("{what} here"),
        hint: Some("there is no client stream; give a file name".to_owned()),
        position: None,
    }
}
