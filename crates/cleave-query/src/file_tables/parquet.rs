//! Parquet files as tables: their columns from the first file's metadata, or from that of all, and their rows by row
//! groups.
//!
//! The metadata of all files is in memory while a statement reads them. Files whose metadata takes more than the pages
//! that a reader may hold are refused.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use cleave_catalog::error::{Error, Result};
use cleave_catalog::tasks;
use cleave_sql::copy::InputMemory;
use cleave_sql::copy::parquet::file::{BATCH_ROWS_MAX, GroupBounds, ParquetFile, ParquetRows};
use cleave_sql::copy::parquet::{cast_allowed, cast_column, column_type_of_file};
use cleave_store::schema::COLUMN_COUNT_MAX;
use cleave_store::{Column, ColumnType};
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::DataFusionError;
use futures::TryStreamExt;
use futures::stream::{self, BoxStream, StreamExt};

use super::held::rows_of;
use super::late::{Asked, Late, Worth};
use super::{Watch, shown};
use crate::conditions::Conditions;

/// Rows that are read on another thread before they are handed over: batches are small, so that what is made of one
/// stays near the processor, and each step to a thread costs as much as many rows. The rows of two steps are in memory:
/// those that are used, and those that are read meanwhile.
const STEP_ROWS: usize = 32_768;
/// The same in bytes.
const STEP_BYTES: usize = 4 << 20;
/// Most digits of a `numeric`.
const DIGITS_MAX: u8 = 38;

/// Files that are read together.
#[derive(Debug)]
pub(super) struct ParquetFiles {
    files: Vec<OneFile>,
    columns: Vec<FileColumn>,
    memory: InputMemory,
}

#[derive(Debug)]
struct OneFile {
    file: ParquetFile,
    /// For each column, its place in the file; None: it has no such column.
    roots: Vec<Option<usize>>,
}

#[derive(Debug)]
struct FileColumn {
    name: String,
    /// Its SQL type; None: it has none, and is read as it is.
    sql: Option<Column>,
    held: DataType,
    /// The file that it was first found in.
    file: String,
}

/// A row group of one of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group {
    file: usize,
    group: usize,
    rows: usize,
}

impl ParquetFiles {
    /// Opens `paths`; `by_name`: columns that one lacks are NULL in its rows.
    ///
    /// # Errors
    /// Those of reading them, and that of `watch`.
    pub(super) fn open(
        paths: &[PathBuf],
        by_name: bool,
        memory: InputMemory,
        watch: Watch,
    ) -> Result<Self> {
        let mut files: Vec<OneFile> = Vec::with_capacity(paths.len());
        let (mut columns, mut bytes): (Vec<FileColumn>, u64) = (Vec::new(), 0);
        for path in paths {
            watch()?;
            let file = ParquetFile::open(path, memory)?;
            bytes = bytes.saturating_add(file.memory_bytes());
            if bytes > memory.pages_bytes {
                return Err(too_much_metadata(files.len() + 1, memory));
            }
            let roots = if by_name || files.is_empty() {
                add_columns(&mut columns, &file)?
            } else {
                let roots = columns.iter().map(|column| column.root_in(&file).map(Some));
                roots.collect::<Result<Vec<_>>>()?
            };
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

    /// Whether the file `file` has the column at `place`.
    fn has(&self, file: usize, place: usize) -> bool {
        let root = self.files.get(file).and_then(|one| one.roots.get(place).copied().flatten());
        root.is_some()
    }

    /// The bounds of the column `name` in the row groups of each file, and the type in which it is read.
    pub(super) fn bounds(&self, name: &str) -> Option<(Vec<GroupBounds>, DataType)> {
        let place = self.columns.iter().position(|column| column.name == name)?;
        let of_file = |one: &OneFile| one.file.bounds(one.roots.get(place).copied()??);
        let bounds = self.files.iter().map(of_file).collect::<Option<Vec<_>>>()?;
        Some((bounds, self.columns.get(place)?.data_type()))
    }

    /// The columns at `places`, which are those of `schema`, in the rows of `groups` for which `conditions` may hold,
    /// in batches of at most `batch_rows`.
    pub(super) fn batches(
        self: &Arc<Self>,
        places: &[usize],
        schema: SchemaRef,
        groups: &[Group],
        (batch_rows, conditions): (usize, &Conditions),
    ) -> BoxStream<'static, datafusion::error::Result<RecordBatch>> {
        let reading = Reading {
            files: Arc::clone(self),
            places: places.to_vec(),
            schema,
            batch_rows: batch_rows.clamp(1, BATCH_ROWS_MAX),
            conditions: conditions.clone(),
            left: groups.iter().copied().collect(),
            open: None,
            worth: Worth::default(),
        };
        let batches = stream::try_unfold(Step::Idle(Box::new(reading)), |step| async move {
            let (reading, next) = tasks::joined(step.begun().await)?;
            // While these are used, the next ones are read.
            Ok::<_, Error>(next?.map(|batches| (batches, Step::Begun(begun(reading)))))
        });
        let batches = batches.map_ok(|own| stream::iter(own.into_iter().map(Ok::<_, Error>)));
        batches.try_flatten().map_err(DataFusionError::from).boxed()
    }
}

/// Adds the columns of `file` that are not among `columns`; those that are get a type that fits it too. Returns the
/// place in the file of each column, as far as there are columns now.
fn add_columns(columns: &mut Vec<FileColumn>, file: &ParquetFile) -> Result<Vec<Option<usize>>> {
    let fields = file.fields();
    let has = |name: &str| fields.iter().any(|field| field.name() == name);
    let mut roots: Vec<Option<usize>> = vec![None; columns.len()];
    for (root, field) in fields.iter().enumerate() {
        let is_free = |place: usize| roots.get(place).is_none_or(Option::is_none);
        let exact = columns.iter().position(|known| known.name == *field.name());
        let exact = exact.filter(|place| is_free(*place));
        let is_alike = |known: &str| known.eq_ignore_ascii_case(field.name()) && !has(known);
        let alike = || {
            let mut all = columns.iter().enumerate();
            all.find(|(place, known)| is_alike(&known.name) && is_free(*place))
        };
        let place = exact.or_else(|| alike().map(|(place, _)| place)).unwrap_or(columns.len());
        if let Some(known) = columns.get_mut(place) {
            known.widen(field, file)?;
        } else {
            if columns.len() == COLUMN_COUNT_MAX && !columns.iter().all(|own| own.is_of(file)) {
                return Err(Error::InputSchema {
                    file: shown(file.path()),
                    message: format!(
                        "files that are read together have more than {COLUMN_COUNT_MAX} columns by now"
                    ),
                });
            }
            let id = u32::try_from(place + 1).unwrap_or(u32::MAX);
            columns.push(FileColumn::of(field, id, file));
            roots.push(None);
        }
        if let Some(of_column) = roots.get_mut(place) {
            *of_column = Some(root);
        }
    }
    Ok(roots)
}

fn too_much_metadata(count: usize, memory: InputMemory) -> Error {
    Error::from(DataFusionError::ResourcesExhausted(format!(
        "the metadata of the first {count} files takes more than the {} bytes that are allowed: half of \
         --query-memory; allow more, or read fewer files at once",
        memory.pages_bytes
    )))
}

impl FileColumn {
    fn of(field: &Field, id: u32, file: &ParquetFile) -> Self {
        let (name, held) = (field.name().clone(), field.data_type().clone());
        let sql = column_type_of_file(&held).map(|column_type| Column {
            id,
            name: name.clone(),
            column_type,
            not_null: false,
            default: None,
            absent: None,
        });
        Self { name, sql, held, file: shown(file.path()) }
    }

    fn data_type(&self) -> DataType {
        self.sql.as_ref().map_or_else(|| self.held.clone(), |column| column.column_type.arrow())
    }

    /// Whether it was first found in `file`.
    fn is_of(&self, file: &ParquetFile) -> bool {
        self.file == shown(file.path())
    }

    /// Gives it a type that also fits `field`, the column of another file.
    fn widen(&mut self, field: &Field, file: &ParquetFile) -> Result<()> {
        let found = field.data_type();
        if *found == self.held || (*found == DataType::Null && self.sql.is_some()) {
            return Ok(());
        }
        let both = self.sql.as_ref().map(|own| own.column_type).zip(column_type_of_file(found));
        let is_unknown = self.held == DataType::Null;
        let wider = both.and_then(|(own, found)| match is_unknown {
            true => Some(found),
            false => widened(own, found),
        });
        let Some(wider) = wider else {
            return Err(Error::InputSchema {
                file: shown(file.path()),
                message: format!(
                    "column \"{}\" holds {found}, and that of {} {}: no type has the values of both",
                    self.name, self.file, self.held
                ),
            });
        };
        if is_unknown {
            self.held = found.clone();
        }
        if let Some(own) = &mut self.sql {
            own.column_type = wider;
        }
        Ok(())
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
                "it has no column \"{}\", which the first file has; files that are read together have the same \
                 columns, unless union_by_name is true",
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

/// The least type that has all values of two; None: there is none that keeps what they mean.
fn widened(one: ColumnType, other: ColumnType) -> Option<ColumnType> {
    use ColumnType as Type;
    if one == other {
        return Some(one);
    }
    // Digits before the point of whole numbers.
    let whole = |column_type: ColumnType| match column_type {
        Type::SmallInt => Some(5_u8),
        Type::Int => Some(10),
        Type::BigInt => Some(19),
        _ => None,
    };
    let exact = |column_type: ColumnType| match column_type {
        Type::Numeric { precision, scale } => {
            Some((i16::from(precision) - i16::from(scale), scale))
        }
        _ => whole(column_type).map(|digits| (i16::from(digits), 0)),
    };
    let is_real = |column_type: ColumnType| matches!(column_type, Type::Real | Type::Double);
    match (one, other) {
        (one, other) if is_real(one) && is_real(other) => Some(Type::Double),
        (one, other) if is_real(one) || is_real(other) => {
            exact(if is_real(one) { other } else { one }).map(|_| Type::Double)
        }
        (Type::Date, Type::Timestamp) | (Type::Timestamp, Type::Date) => Some(Type::Timestamp),
        (one, other) if whole(one).is_some() && whole(other).is_some() => {
            Some(if whole(one) > whole(other) { one } else { other })
        }
        (one, other) => {
            let ((digits, scale), (other_digits, other_scale)) = (exact(one)?, exact(other)?);
            let scale = scale.max(other_scale);
            let precision = digits.max(other_digits) + i16::from(scale);
            let precision = u8::try_from(precision).ok().filter(|digits| *digits <= DIGITS_MAX)?;
            Some(Type::Numeric { precision, scale })
        }
    }
}

/// A task that reads the next batches.
type NextBatches = SpawnedTask<(Box<Reading>, Result<Option<Vec<RecordBatch>>>)>;

/// Where a scan stands between two steps.
enum Step {
    /// Nobody has asked for rows yet.
    Idle(Box<Reading>),
    /// The next batches are read.
    Begun(NextBatches),
}

impl Step {
    /// The task that reads the next batches.
    fn begun(self) -> NextBatches {
        match self {
            Self::Idle(reading) => begun(reading),
            Self::Begun(task) => task,
        }
    }
}

/// A task that reads the next batches of `reading`, which begins at once.
fn begun(mut reading: Box<Reading>) -> NextBatches {
    tasks::blocking(move || {
        let next = reading.next_batches();
        (reading, next)
    })
}

/// The row groups as far as they are read.
struct Reading {
    files: Arc<ParquetFiles>,
    places: Vec<usize>,
    schema: SchemaRef,
    batch_rows: usize,
    conditions: Conditions,
    /// Those that are not begun.
    left: VecDeque<Group>,
    open: Option<OpenFile>,
    /// Of row groups that were read in two steps.
    worth: Worth,
}

/// A file that is read.
struct OpenFile {
    /// Its number.
    file: usize,
    rows: Rows,
    /// The conditions on columns as the file has them.
    held: Conditions,
    /// The others.
    cast: Conditions,
}

/// Rows of a file.
enum Rows {
    /// Of several row groups, with all columns at once.
    Whole(Box<ParquetRows>),
    /// Of one row group, columns of conditions first.
    Late(Box<Late>),
}

/// Rows of one batch of a file.
struct Left {
    /// Those for which the conditions may hold.
    batch: RecordBatch,
    /// Rows that were read.
    row_count: usize,
    /// The same in bytes.
    bytes: usize,
}

impl Reading {
    /// The next batches, as many as one step to another thread is worth, and maybe none; None at the end.
    fn next_batches(&mut self) -> Result<Option<Vec<RecordBatch>>> {
        let (mut batches, mut rows, mut bytes) = (Vec::new(), 0_usize, 0_usize);
        while rows < STEP_ROWS
            && bytes < STEP_BYTES
            && let Some(left) = self.next_batch()?
        {
            rows = rows.saturating_add(left.row_count);
            bytes = bytes.saturating_add(left.bytes);
            if left.batch.num_rows() > 0 {
                batches.push(left.batch);
            }
        }
        Ok((rows > 0).then_some(batches))
    }

    fn next_batch(&mut self) -> Result<Option<Left>> {
        loop {
            if let Some(open) = &mut self.open {
                let shape = (self.places.as_slice(), &self.schema);
                if let Some(left) = open.next_left(&self.files, shape)? {
                    return Ok(Some(left));
                }
                self.open = None;
            }
            let files = Arc::clone(&self.files);
            let Some(first) = self.left.front_mut() else { return Ok(None) };
            let (file, group, rows) = (first.file, first.group, first.rows);
            let Some(one) = files.files.get(file) else { return Ok(None) };
            let roots = self.places.iter().map(|place| one.roots.get(*place).copied().flatten());
            let roots: Vec<Option<usize>> = roots.collect();
            if roots.iter().all(Option::is_none) {
                // Only their number is asked for. What is above may make a value for each.
                let row_count = rows.min(self.batch_rows);
                first.rows -= row_count;
                if row_count > 0 {
                    let rows = (file, Vec::new(), row_count);
                    let batch = batch(&files, (&self.places, &self.schema), rows)?;
                    let bytes = batch.get_array_memory_size();
                    let batch = self.conditions.left_of(batch)?;
                    return Ok(Some(Left { batch, row_count, bytes }));
                }
                self.left.pop_front();
                continue;
            }
            let (held, cast) = self.conditions.by_form(&one.held(&roots));
            if !held.is_empty() && self.worth.may_pay() {
                let (memory, batch_rows) = (files.memory, self.batch_rows);
                let asked =
                    Asked { file: &one.file, group, rows, roots: &roots, memory, batch_rows };
                if let Some(late) = Late::begun(&asked, &held, &mut self.worth)? {
                    self.left.pop_front();
                    self.open =
                        Some(OpenFile { file, rows: Rows::Late(Box::new(late)), held, cast });
                    // These rows were looked at: a step ends here although none may be left.
                    let batch = RecordBatch::new_empty(Arc::clone(&self.schema));
                    return Ok(Some(Left { batch, row_count: rows, bytes: 0 }));
                }
            }
            let mut groups = Vec::new();
            while let Some(next) = self.left.front().filter(|next| next.file == file) {
                groups.push(next.group);
                self.left.pop_front();
            }
            let roots: Vec<usize> = roots.into_iter().flatten().collect();
            let columns = one.file.columns(&roots, &groups, files.memory)?;
            let rows = one.file.rows(columns.of_rows(self.batch_rows), groups)?;
            self.open = Some(OpenFile { file, rows: Rows::Whole(Box::new(rows)), held, cast });
        }
    }
}

impl OneFile {
    /// The types that the columns at `roots` have.
    fn held(&self, roots: &[Option<usize>]) -> Vec<Option<DataType>> {
        let fields = self.file.fields();
        let held = |root: &Option<usize>| Some(fields.get((*root)?)?.data_type().clone());
        roots.iter().map(held).collect()
    }
}

impl OpenFile {
    /// What is left of the next rows, with the columns at the places of `shape`, which are those of its schema; None at
    /// the end.
    fn next_left(
        &mut self,
        files: &ParquetFiles,
        shape: (&[usize], &SchemaRef),
    ) -> Result<Option<Left>> {
        let bytes_of = |values: &[ArrayRef]| {
            values.iter().map(|own| own.get_array_memory_size()).fold(0, usize::saturating_add)
        };
        let (values, left_count, row_count, bytes) = match &mut self.rows {
            Rows::Whole(rows) => {
                let Some((values, row_count)) = rows.next_columns()? else { return Ok(None) };
                let bytes = bytes_of(&values);
                let (values, left_count) = self.left_of(files, shape.0, (values, row_count))?;
                (values, left_count, row_count, bytes)
            }
            Rows::Late(late) => {
                let Some(own) = late.next_columns()? else { return Ok(None) };
                let bytes = bytes_of(&own.values);
                (own.values, own.left_count, own.row_count, bytes)
            }
        };
        let batch = batch(files, shape, (self.file, values, left_count))?;
        Ok(Some(Left { batch: self.cast.left_of(batch)?, row_count, bytes }))
    }

    /// What the conditions on columns as the file has them leave of `values`, which are those of `places` that it has,
    /// and the number of rows.
    fn left_of(
        &self,
        files: &ParquetFiles,
        places: &[usize],
        (values, row_count): (Vec<ArrayRef>, usize),
    ) -> Result<(Vec<ArrayRef>, usize)> {
        if self.held.is_empty() {
            return Ok((values, row_count));
        }
        let mut each = values.iter().map(Arc::clone);
        let held = places.iter().map(|place| match files.has(self.file, *place) {
            true => each.next(),
            false => None,
        });
        let left = self.held.bits_of_held(held, row_count);
        let left_count = left.true_count();
        match left_count <= row_count / 2 {
            true => Ok((rows_of(&values, &left)?, left_count)),
            false => Ok((values, row_count)),
        }
    }
}

/// `row_count` rows of the file `file` with the columns at `places`, which are those of `schema`: `values` are those
/// that it has.
fn batch(
    files: &ParquetFiles,
    (places, schema): (&[usize], &SchemaRef),
    (file, values, row_count): (usize, Vec<ArrayRef>, usize),
) -> Result<RecordBatch> {
    let mut values = values.iter();
    let mut columns = Vec::with_capacity(places.len());
    for place in places {
        let Some(column) = files.columns.get(*place) else { continue };
        let is_there = files.has(file, *place);
        columns.push(match (is_there.then(|| values.next()).flatten(), &column.sql) {
            (Some(values), Some(sql)) => cast_column(values, sql)?,
            (Some(values), None) => Arc::clone(values),
            (None, _) => new_null_array(&column.data_type(), row_count),
        });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(row_count));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

impl Group {
    /// Its rows.
    pub(super) fn rows(self) -> usize {
        self.rows
    }
}
