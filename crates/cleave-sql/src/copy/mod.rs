//! COPY's formats: files and streams to Arrow batches and back.
//!
//! ```text
//! COPY FROM   bytes ─▶ RecordSplitter ─▶ Chunk ─▶ ChunkParser ─▶ RecordBatch (typed by the table's schema)
//!             file  ─▶ ParquetReader ──────────────────────────▶ RecordBatch
//! COPY TO     RecordBatch ─▶ CsvWriter | ParquetWriter ─▶ bytes
//! ```
//!
//! 1. [`options`] describes a file's format; [`columns`] maps its columns to those of the table.
//! 2. [`record_splitter`] cuts a stream into chunks of whole records, the only step that must run in order.
//! 3. [`csv_reader`] makes typed columns of a chunk; chunks are independent, so threads may share them. [`csv_types`]
//!    infers the columns of a file and their types, of which no value may lose a part ([`kept`]).
//! 4. [`binary`] reads and writes PostgreSQL's binary format.
//! 5. [`parquet`] reads and writes Parquet, [`csv_writer`] writes CSV and PostgreSQL's text format.
//! 6. [`memory`] limits the memory of reading, as shares of the memory of queries. [`compressed`]: gzip and Zstandard.
//!    [`value_forms`]: dates and numbers as the options describe them.
//!
//! Everything here is sync: bytes come from a `Read` and go to a `Write`.

pub mod binary;
pub mod columns;
pub mod compressed;
pub mod csv_reader;
pub mod csv_types;
pub mod csv_writer;
pub mod database_files;
mod fields;
pub mod file_list;
mod kept;
pub mod memory;
pub mod options;
pub mod parquet;
pub mod record_splitter;
pub mod value_forms;

pub use binary::{BinaryCopyWriter, BinaryReader};
pub use columns::InputColumns;
pub use compressed::{Compression, TextInput, TextOutput};
pub use csv_reader::{ChunkParser, CsvReader};
pub use csv_types::CsvTypes;
pub use csv_types::by_name::{CsvLayout, CsvUnion};
pub use csv_writer::CsvWriter;
pub use memory::InputMemory;
pub use options::{CopyFormat, CsvOptions, Header, ParquetCompression};
pub use parquet::{ParquetReader, ParquetWriter};
pub use record_splitter::{Chunk, RecordSplitter};
pub use value_forms::{TimePattern, ValueForms};
