//! Parquet files as tables: their columns from the first file's metadata, and their rows by row groups.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use cleave_catalog::error::{Error, Result};
use cleave_catalog::tasks;
use cleave_sql::copy::InputMemory;
use cleave_sql::copy::parquet::file::{BATCH_ROWS_MAX, GroupBounds, ParquetFile, ParquetRows};
use cleave_sql::copy::parquet::{cast_allowed, cast_column, column_type_of_file};
use cleave_store::Column;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::error::DataFusionError;
use futures::TryStreamExt;
use futures::stream::{self, BoxStream, StreamExt};

use super::shown;

/// Rows that are read on another thread before they are handed over: batches are small, so that what is made of one
/// stays near the processor, and each step to a thread costs as much as many rows.
const STEP_ROWS: usize = 65_536;
/// The same in bytes.
const STEP_BYTES: usize = 8 << 20;

/// Files with the same columns.
#[derive(Debug)]
pub(super) struct ParquetFiles {
    files: Vec<OneFile>,
    columns: Vec<FileColumn>,
    memory: InputMemory,
}

#[derive(Debug)]
struct OneFile {
    file: ParquetFile,
    /// For each column, its place in the file.
    roots: Vec<usize>,
}

#[derive(Debug)]
struct FileColumn {
    name: String,
    /// Its SQL type; None: it has none, and is read as it is.
    sql: Option<Column>,
    held: DataType,
}

/// A row group of one of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group {
    file: usize,
    group: usize,
    rows: usize,
}

impl ParquetFiles {
    pub(super) fn open(paths: &[PathBuf], memory: InputMemory) -> Result<Self> {
        let mut files: Vec<OneFile> = Vec::with_capacity(paths.len());
        let mut columns: Vec<FileColumn> = Vec::new();
        for path in paths {
            let file = ParquetFile::open(path)?;
            if files.is_empty() {
                let fields = file.fields().iter().zip(1_u32..);
                columns = fields.map(|(field, id)| FileColumn::of(field, id)).collect();
            }
            let roots = columns.iter().map(|column| column.root_in(&file));
            let roots = roots.collect::<Result<Vec<_>>>()?;
            files.push(OneFile { file, roots });
        }
        Ok(Self { files, columns, memory })
    }

    pub(super) fn fields(&self) -> Vec<Field> {
        let columns = self.columns.iter();
        columns.map(|own| Field::new(&own.name, own.data_type(), true)).collect()
    }

    pub(super) fn row_count(&self) -> usize {
        // As the scan counts them.
        let rows = self.files.iter().flat_map(|one| one.file.group_rows());
        rows.fold(0, usize::saturating_add)
    }

    /// All row groups, file by file.
    pub(super) fn groups(&self) -> Vec<Group> {
        let files = self.files.iter().enumerate();
        let groups = files.flat_map(|(file, one)| {
            one.file.group_rows().enumerate().map(move |(group, rows)| Group { file, group, rows })
        });
        groups.collect()
    }

    /// The bounds of the column `name` in the row groups of each file, and the type in which it is read.
    pub(super) fn bounds(&self, name: &str) -> Option<(Vec<GroupBounds>, DataType)> {
        let place = self.columns.iter().position(|column| column.name == name)?;
        let of_file = |one: &OneFile| one.file.bounds(*one.roots.get(place)?);
        let bounds = self.files.iter().map(of_file).collect::<Option<Vec<_>>>()?;
        Some((bounds, self.columns.get(place)?.data_type()))
    }

    /// The columns at `places`, which are those of `schema`, in the rows of `groups`, in batches of at most
    /// `batch_rows`.
    pub(super) fn batches(
        self: &Arc<Self>,
        places: &[usize],
        schema: SchemaRef,
        (groups, batch_rows): (&[Group], usize),
    ) -> BoxStream<'static, datafusion::error::Result<RecordBatch>> {
        let reading = Reading {
            files: Arc::clone(self),
            places: places.to_vec(),
            schema,
            batch_rows: batch_rows.clamp(1, BATCH_ROWS_MAX),
            left: groups.iter().copied().collect(),
            open: None,
        };
        let batches = stream::try_unfold(reading, |mut reading| async move {
            let taken = tasks::blocking(move || {
                let next = reading.next_batches();
                (reading, next)
            });
            let (reading, next) = tasks::joined(taken.await)?;
            Ok::<_, Error>(next?.map(|batches| (batches, reading)))
        });
        let batches = batches.map_ok(|own| stream::iter(own.into_iter().map(Ok::<_, Error>)));
        batches.try_flatten().map_err(DataFusionError::from).boxed()
    }
}

impl FileColumn {
    fn of(field: &Field, id: u32) -> Self {
        let (name, held) = (field.name().clone(), field.data_type().clone());
        let sql = column_type_of_file(&held).map(|column_type| Column {
            id,
            name: name.clone(),
            column_type,
            not_null: false,
            default: None,
            absent: None,
        });
        Self { name, sql, held }
    }

    fn data_type(&self) -> DataType {
        self.sql.as_ref().map_or_else(|| self.held.clone(), |column| column.column_type.arrow())
    }

    /// The place of the column in `file`.
    fn root_in(&self, file: &ParquetFile) -> Result<usize> {
        let wrong = |message: String| Error::InputSchema { file: shown(file.path()), message };
        let fields = file.fields();
        let exact = fields.iter().position(|field| *field.name() == self.name);
        let place = exact.or_else(|| {
            fields.iter().position(|field| field.name().eq_ignore_ascii_case(&self.name))
        });
        let field = place.and_then(|place| Some((place, fields.get(place)?)));
        let Some((place, field)) = field else {
            return Err(wrong(format!(
                "it has no column \"{}\", which the first file has; files that are read together have the same columns",
                self.name
            )));
        };
        let fits = match &self.sql {
            Some(column) => cast_allowed(field.data_type(), &column.column_type),
            None => *field.data_type() == self.held,
        };
        match fits {
            true => Ok(place),
            false => Err(wrong(format!(
                "column \"{}\" holds {}, and that of the first file {}",
                self.name,
                field.data_type(),
                self.held
            ))),
        }
    }
}

/// The row groups as far as they are read.
struct Reading {
    files: Arc<ParquetFiles>,
    places: Vec<usize>,
    schema: SchemaRef,
    batch_rows: usize,
    /// Those that are not begun.
    left: VecDeque<Group>,
    open: Option<ParquetRows>,
}

impl Reading {
    /// The next batches, as many as one step to another thread is worth; None at the end.
    fn next_batches(&mut self) -> Result<Option<Vec<RecordBatch>>> {
        let (mut batches, mut rows, mut bytes) = (Vec::new(), 0_usize, 0_usize);
        while rows < STEP_ROWS
            && bytes < STEP_BYTES
            && let Some(batch) = self.next_batch()?
        {
            rows = rows.saturating_add(batch.num_rows());
            bytes = bytes.saturating_add(batch.get_array_memory_size());
            batches.push(batch);
        }
        Ok((!batches.is_empty()).then_some(batches))
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.places.is_empty() {
            // Only their number is asked for. What is above may make a value for each.
            while let Some(group) = self.left.front_mut() {
                let row_count = group.rows.min(self.batch_rows);
                group.rows -= row_count;
                if row_count > 0 {
                    return self.batch(Vec::new(), row_count).map(Some);
                }
                self.left.pop_front();
            }
            return Ok(None);
        }
        loop {
            if let Some(rows) = &mut self.open {
                if let Some((values, row_count)) = rows.next_columns()? {
                    return self.batch(values, row_count).map(Some);
                }
                self.open = None;
            }
            let Some(first) = self.left.pop_front() else { return Ok(None) };
            let mut groups = vec![first.group];
            while let Some(next) = self.left.front().filter(|next| next.file == first.file) {
                groups.push(next.group);
                self.left.pop_front();
            }
            let files = &*self.files;
            let Some(one) = files.files.get(first.file) else { return Ok(None) };
            let roots = self.places.iter().filter_map(|place| one.roots.get(*place).copied());
            let roots = roots.collect::<Vec<_>>();
            let columns = one.file.columns(&roots, &groups, files.memory)?;
            self.open = Some(one.file.rows(columns.of_rows(self.batch_rows), groups)?);
        }
    }

    fn batch(&self, values: Vec<ArrayRef>, row_count: usize) -> Result<RecordBatch> {
        let columns = self.places.iter().filter_map(|place| self.files.columns.get(*place));
        let columns = columns.zip(&values).map(|(column, values)| match &column.sql {
            Some(sql) => cast_column(values, sql),
            None => Ok(Arc::clone(values)),
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

impl Group {
    /// Its rows.
    pub(super) fn rows(self) -> usize {
        self.rows
    }
}
