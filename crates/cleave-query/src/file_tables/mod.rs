//! Files as tables: `SELECT … FROM read_csv('a.csv')`, `FROM 'films.parquet'`.
//!
//! ```text
//!  relation "\x01file read_csv('a.csv')" ─▶ open ─▶ FileTable (columns, files) ─▶ FileScanExec ─▶ batches
//! ```
//!
//! 1. Who may name files, [`check_may`] says: it is one check for COPY and for queries.
//! 2. [`open`] reads what tells the columns: a sample of [text](csv), or the metadata of [Parquet files](parquet).
//! 3. A scan reads the columns that are asked for. Text is cut into chunks one after the other and parsed on all cores,
//!    and rows keep the order of the file; row groups of Parquet are divided among the partitions, those that
//!    [cannot have](pruning) a row that is asked for left out. Of what is read, [comparisons](crate::conditions) leave
//!    out rows, of Parquet [before it is cast](held), and there [other columns](late) are read where rows are left.
//!
//! The readers are those of COPY, so values, errors and limits of memory are the same.
//!
//! Invariants: a file is read by the host alone, and no plan over one is cached. All reads happen on threads that may
//! block.

mod csv;
mod held;
mod late;
mod page_pruning;
mod parquet;
mod pruning;
mod scan;

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cleave_catalog::catalog::rights::Rights;
use cleave_catalog::error::{Error, Fault, Result, RoleFault};
use cleave_catalog::settings::Client;
use cleave_sql::copy::InputMemory;
use cleave_sql::copy::database_files::check_of_no_database;
use cleave_sql::copy::file_list::files_of;
use cleave_sql::statement::files::{FileCall, FileFormat, shown_call};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::error::Result as EngineResult;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use futures::future::{BoxFuture, ready};

use csv::CsvFiles;
use parquet::ParquetFiles;
pub(crate) use scan::FileScanExec;
use scan::Source;

use crate::conditions::{self, Conditions};

/// Checks that `client` may read and write files of this machine: only superusers may, and at a server only if it was
/// started so. `what` names the statement.
///
/// # Errors
/// [`RoleFault::Rights`].
pub fn check_may(client: &Client, rights: &Rights, what: &str) -> Result<()> {
    let refused = |message: String| {
        Err(Error::Invalid { message, fault: Fault::Role(RoleFault::Rights), position: None })
    };
    if !client.serves_files {
        return refused(format!(
            "{what} is not allowed here: start the server with --allow-files; COPY FROM STDIN and TO STDOUT need none"
        ));
    }
    match client.acting.role {
        Some(role) if !rights.is_superuser(role) => {
            refused(format!("must be superuser to run {what}: use STDIN or STDOUT"))
        }
        _ => Ok(()),
    }
}

/// The table that the relation `name` of files stands for. It reads files, but none of a database; `own` is the folder
/// of the one that asks.
///
/// # Errors
/// Those of reading them, and that of `watch`.
pub(crate) fn open(
    name: &str,
    own: &Path,
    memory: InputMemory,
    watch: Watch,
) -> Result<Arc<dyn TableProvider>> {
    let shown = shown_call(name).unwrap_or(name);
    let Some(call) = FileCall::of_relation(name) else {
        return Err(Error::unsupported(format!("the relation {shown}, which is no file,")));
    };
    let call = call?;
    let paths = files_of(&call.names)?;
    for path in &paths {
        watch()?;
        check_of_no_database(path, own)?;
    }
    let table = guarded(shown, || FileTable::open((&call, shown), paths, memory, watch))?;
    Ok(Arc::new(table))
}

/// Fails once nobody waits any more for the plan that files are read for.
pub(crate) type Watch = fn() -> datafusion::error::Result<()>;

/// Files that are read together.
struct FileTable {
    /// The call in the statement.
    call: String,
    schema: SchemaRef,
    source: Source,
}

impl FileTable {
    fn open(
        (call, shown): (&FileCall, &str),
        paths: Vec<PathBuf>,
        memory: InputMemory,
        watch: Watch,
    ) -> Result<Self> {
        let (fields, source) = match &call.format {
            FileFormat::Csv(csv) => {
                let files = CsvFiles::open((&**csv, call.by_name), paths, memory, watch)?;
                (files.fields(), Source::Csv(Arc::new(files)))
            }
            FileFormat::Parquet => {
                let files = ParquetFiles::open(&paths, call.by_name, memory, watch)?;
                let fields = named_once(files.fields(), paths.len())?;
                (fields, Source::Parquet(Arc::new(files)))
            }
        };
        Ok(Self { call: shown.to_owned(), schema: Arc::new(Schema::new(fields)), source })
    }

    fn planned_scan(
        &self,
        session: &dyn Session,
        columns: Option<&Vec<usize>>,
        filters: &[Expr],
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let places = columns.unwrap_or(&all).clone();
        let schema = Arc::new(self.schema.project(&places)?);
        let partitions = session.config().target_partitions();
        let call = self.call.as_str();
        let conditions = Conditions::of(session, filters, &schema)?;
        let scan = match &self.source {
            Source::Csv(files) => {
                FileScanExec::of_csv(call, (files, places), schema, partitions, conditions)
            }
            Source::Parquet(files) => {
                let groups = pruning::left_by(session, files, &self.schema, filters)?;
                let parts = (groups, partitions);
                FileScanExec::of_parquet(call, (files, places), schema, parts, conditions)
            }
        };
        Ok(Arc::new(scan))
    }
}

impl fmt::Debug for FileTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileTable({})", self.call)
    }
}

impl TableProvider for FileTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn statistics(&self) -> Option<Statistics> {
        let mut statistics = Statistics::new_unknown(&self.schema);
        statistics.num_rows = match &self.source {
            Source::Csv(files) => Precision::Inexact(files.row_estimate()),
            Source::Parquet(files) => Precision::Exact(files.row_count()),
        };
        Some(statistics)
    }

    /// Some conditions leave out rows, and bounds of row groups may tell that none of theirs is asked for; what is left
    /// is looked at above.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> EngineResult<Vec<TableProviderFilterPushDown>> {
        Ok(conditions::supported(filters))
    }

    fn scan<'a, 's, 'c, 'e, 'f>(
        &'a self,
        session: &'s dyn Session,
        columns: Option<&'c Vec<usize>>,
        filters: &'e [Expr],
        _limit: Option<usize>,
    ) -> BoxFuture<'f, EngineResult<Arc<dyn ExecutionPlan>>>
    where
        'a: 'f,
        's: 'f,
        'c: 'f,
        'e: 'f,
    {
        let planned = guarded(&self.call, || Ok(self.planned_scan(session, columns, filters)));
        Box::pin(ready(planned.unwrap_or_else(|error| Err(error.into()))))
    }
}

/// `fields` of `file_count` Parquet files, each name once: the second `a` of a file is `a_1`. No column that has its
/// name alone gets another one, so none has the bounds of another.
///
/// # Errors
/// [`Error::InputSchema`] if there are several files, whose columns are matched by name.
fn named_once(fields: Vec<Field>, file_count: usize) -> Result<Vec<Field>> {
    let given: BTreeSet<String> = fields.iter().map(|field| field.name().clone()).collect();
    if given.len() == fields.len() {
        return Ok(fields);
    }
    let (mut taken, mut named) = (BTreeSet::new(), Vec::with_capacity(fields.len()));
    for field in fields {
        let own = field.name().clone();
        let (mut name, mut number) = (own.clone(), 1);
        while taken.contains(&name) || (name != own && given.contains(&name)) {
            name = format!("{own}_{number}");
            number += 1;
        }
        if name != own && file_count > 1 {
            return Err(Error::InputSchema {
                file: "read_parquet".to_owned(),
                message: format!(
                    "two columns of one file are called \"{own}\": read that file alone"
                ),
            });
        }
        taken.insert(name.clone());
        named.push(field.with_name(name));
    }
    Ok(named)
}

/// What `step` gives, which plans the reading of files. A panic on one that is damaged is this statement's error, as it
/// is where rows are read, on threads of their own.
fn guarded<T>(call: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
    // Unwinding drops what the step leaves unfinished.
    catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|_| {
        let message = "the file is damaged: reading what it says of itself broke off".to_owned();
        Err(Error::InputSchema { file: call.to_owned(), message })
    })
}

/// How messages name a file.
fn shown(path: &Path) -> String {
    path.display().to_string()
}
