//! `cleave generate`: computes the tables of a well-known benchmark, into files or into a database.
//!
//! 1. A [`Generator`] lists its tables and computes any part of one without the others.
//! 2. [`parts_in_order`] computes parts on all cores, a few ahead of the consumer, and hands them out in the table's
//!    order, so that memory stays constant and the result is always the same.
//! 3. They go to CSV files beside a `schema.sql`, or straight into a database ([`load`]).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use clap::{Args, ValueEnum};
use cleave_host::{Error, Session};
use futures::Stream;
use futures::stream::{self, StreamExt};

use super::progress::{Progress, Unit};
use crate::arguments::Place;
use crate::failure::Failure;
use crate::generate::{
    GenerateError, Imdb, PARTICLES_DEFAULT, PARTICLES_MAX, Particles, TableSpec, Tpch, csv,
};
use crate::open::{self, Create};

/// The default seed.
pub(crate) const SEED_DEFAULT: u64 = 42;

/// `cleave generate …`.
#[derive(Debug, Clone, Args)]
pub(crate) struct GenerateOptions {
    /// The database to generate
    #[arg(value_enum)]
    benchmark: Benchmark,
    /// Its size: imdb at 1 has 74 million rows, tpch at 1 has 8.7 million (1 GB of text) and starts at 0.01
    #[arg(long, required_if_eq_any = [("benchmark", "imdb"), ("benchmark", "tpch")])]
    scale: Option<f64>,
    /// The number of particles; a million by default
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=PARTICLES_MAX))]
    rows: Option<u64>,
    /// The seed: others give other rows of the same kind (not of tpch)
    #[arg(long, default_value_t = SEED_DEFAULT)]
    seed: u64,
    /// Write schema.sql and a CSV file for each table into this folder; without it, load into --db
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Benchmark {
    /// Resembles the Internet Movie Database, with the schema of the Join Order Benchmark
    Imdb,
    /// TPC-H
    Tpch,
    /// Particles of a plasma simulation, as VPIC stores them: one table of places, momenta and energies
    Particles,
}

/// A generated database.
pub(crate) trait Generator: Send + Sync + 'static {
    /// The statements that create its tables.
    fn schema_sql(&self) -> &'static str;
    /// Its tables, in an order that suits foreign keys.
    fn tables(&self) -> Vec<TableSpec>;
    /// How many parts a table has.
    fn part_count(&self, table: &str) -> usize;
    /// The rows of one part, in order.
    fn part(&self, table: &str, part: usize) -> Vec<RecordBatch>;
}

impl Generator for Imdb {
    fn schema_sql(&self) -> &'static str {
        Imdb::schema_sql()
    }

    fn tables(&self) -> Vec<TableSpec> {
        Imdb::tables(self)
    }

    fn part_count(&self, table: &str) -> usize {
        self.parts(table)
    }

    fn part(&self, table: &str, part: usize) -> Vec<RecordBatch> {
        Imdb::part(self, table, part).collect()
    }
}

impl Generator for Tpch {
    fn schema_sql(&self) -> &'static str {
        Tpch::schema_sql()
    }

    fn tables(&self) -> Vec<TableSpec> {
        Tpch::tables(self)
    }

    fn part_count(&self, table: &str) -> usize {
        self.parts(table)
    }

    fn part(&self, table: &str, part: usize) -> Vec<RecordBatch> {
        Tpch::part(self, table, part).collect()
    }
}

impl Generator for Particles {
    fn schema_sql(&self) -> &'static str {
        Particles::schema_sql()
    }

    fn tables(&self) -> Vec<TableSpec> {
        Particles::tables(self)
    }

    fn part_count(&self, table: &str) -> usize {
        self.parts(table)
    }

    fn part(&self, table: &str, part: usize) -> Vec<RecordBatch> {
        Particles::part(self, table, part).collect()
    }
}

/// Runs `cleave generate …`.
pub(crate) async fn run(options: &GenerateOptions, place: &Place) -> Result<(), Failure> {
    let generator = generator(options)?;
    if let Some(folder) = &options.out {
        return write_files(&generator, folder).await;
    }
    if place.directory.is_none() {
        let message = "where to? --out DIR writes CSV files, --db DIR loads a database";
        return Err(Failure::Usage(message.to_owned()));
    }
    let (database, mut session) = open::open(place, Create::IfAbsent).await?;
    let before = database.changes();
    load(&mut session, &generator, Report::Progress).await?;
    super::analyze_filled(&database, &before).await;
    Ok(())
}

/// The generator that the options ask for.
fn generator(options: &GenerateOptions) -> Result<Arc<dyn Generator>, Failure> {
    let wrong = |error: GenerateError| Failure::Usage(error.to_string());
    Ok(match (options.benchmark, options.scale, options.rows) {
        (Benchmark::Imdb, Some(scale), None) => {
            Arc::new(Imdb::new(scale, options.seed).map_err(wrong)?)
        }
        (Benchmark::Tpch, Some(scale), None) => Arc::new(Tpch::new(scale).map_err(wrong)?),
        (Benchmark::Particles, None, rows) => {
            Arc::new(Particles::new(rows.unwrap_or(PARTICLES_DEFAULT), options.seed))
        }
        _ => {
            let message = "--scale goes with imdb and tpch, --rows with particles";
            return Err(Failure::Usage(message.to_owned()));
        }
    })
}

/// Whether loading reports progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// A bar for each table, and a line when it is loaded.
    Progress,
    /// Nothing.
    Nothing,
}

/// Creates the generator's tables and loads them, one after the other; returns the number of rows.
pub(crate) async fn load(
    session: &mut Session,
    generator: &Arc<dyn Generator>,
    report: Report,
) -> Result<u64, Failure> {
    session.run(generator.schema_sql()).await.map_err(Failure::Sql)?;
    let mut total = 0;
    for table in generator.tables() {
        let progress = (report == Report::Progress)
            .then(|| Progress::start(table.name, Some(table.rows), Unit::Rows));
        let batches = parts_in_order(generator, &table, |batches| batches)
            .map(|part| part.map(|batches| stream::iter(batches).map(Ok)))
            .flat_map(|part| match part {
                Ok(batches) => batches.left_stream(),
                Err(error) => stream::iter([Err(error)]).right_stream(),
            })
            .boxed();
        let show = |row_count| {
            if let Some(progress) = &progress {
                progress.set(row_count);
            }
        };
        let row_count =
            session.load(table.name, batches, Some(&show)).await.map_err(Failure::Sql)?;
        total += row_count;
        if let Some(progress) = progress {
            progress.finish(row_count);
        }
    }
    Ok(total)
}

async fn write_files(generator: &Arc<dyn Generator>, folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(Failure::file(folder))?;
    let schema = folder.join("schema.sql");
    std::fs::write(&schema, generator.schema_sql()).map_err(Failure::file(&schema))?;
    for table in generator.tables() {
        let progress = Progress::start(table.name, Some(table.rows), Unit::Rows);
        let path = folder.join(table.name).with_extension("csv");
        let mut file = BufWriter::new(File::create(&path).map_err(Failure::file(&path))?);
        let mut parts = parts_in_order(generator, &table, |batches| text(&batches)).boxed();
        let mut row_count = 0;
        while let Some(part) = parts.next().await {
            let (text, part_rows) = part.map_err(Failure::Sql)?.map_err(Failure::file(&path))?;
            file.write_all(&text).map_err(Failure::file(&path))?;
            row_count += part_rows;
            progress.set(row_count);
        }
        file.flush().map_err(Failure::file(&path))?;
        progress.finish(row_count);
    }
    Ok(())
}

/// The CSV of one part, and its number of rows.
fn text(batches: &[RecordBatch]) -> std::io::Result<(Vec<u8>, u64)> {
    let mut text = Vec::new();
    let mut row_count = 0;
    for batch in batches {
        csv::write_csv(batch, &mut text)?;
        row_count += u64::try_from(batch.num_rows()).unwrap_or(u64::MAX);
    }
    Ok((text, row_count))
}

/// The parts of a table in order, each computed and processed by `finish` on another thread.
fn parts_in_order<T: Send + 'static>(
    generator: &Arc<dyn Generator>,
    table: &TableSpec,
    finish: impl Fn(Vec<RecordBatch>) -> T + Send + Sync + 'static,
) -> impl Stream<Item = Result<T, Error>> + Send + 'static {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let part_count = generator.part_count(table.name);
    let (generator, table) = (Arc::clone(generator), Arc::new(table.clone()));
    let finish = Arc::new(finish);
    stream::iter(0..part_count)
        .map(move |part| {
            let (generator, table) = (Arc::clone(&generator), Arc::clone(&table));
            let finish = Arc::clone(&finish);
            super::blocking(move || {
                let batches = generator.part(table.name, part);
                debug_assert!(batches.iter().all(|batch| batch.schema() == table.schema));
                Ok(finish(batches))
            })
        })
        .buffered(threads + 1)
}
