//! Plans over whole small tables that statements share: a query without its constants in, planned once; out, its rows
//! for any constants.
//!
//! ```text
//!  SELECT a.x, count(*) FROM a JOIN b ON … WHERE b.v < $1 GROUP BY a.x ─▶ plan over slots, a function for $1
//!     rows of a and of b in memory, the value of $1 ─▶ plan ─▶ rows
//! ```
//!
//! 1. [`ShapePlan::of`] plans the query by the usual rules over [slots](super::kept). A parameter is a call of a
//!    function without arguments, which has no value until the plan runs: so no rule computes it, and each takes it for
//!    what it is, one value for all rows. That holds for either side of an outer join, which a column does not.
//! 2. [`SmallTables`] keeps the rows of small tables of one catalog version.
//! 3. [`ShapePlan::run`] sets the values and runs the plan.
//!
//! Invariant: its result is that of the planned query. What tells types or names stays in the query as it is written,
//! and the columns of its plan are compared with those of the statement.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cleave_catalog::catalog::TableState;
use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::Settings;
use cleave_fragment::result_memory::ResultMemory;
use cleave_sql::statement::Parameters;
use cleave_sql::statement::catalog_syntax::call;
use cleave_sql::statement::parameters::{Parameter, place_of};
use cleave_sql::visiting::visit_mut;
use cleave_store::TableSchema;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result as EngineResult;
use datafusion::execution::{FunctionRegistry, TaskContext};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast;
use futures::StreamExt;

use super::kept::{Filled, SlotExec, Step, TablePlace, collect_scans, slot_catalog, steps_over};
use super::running::{apply_schema, loops_here};
use super::{ReadView, StatementContext, describe, lowered, plan_query, small_query, table_query};
use crate::planner::{self, InnerJoins};
use crate::query_engine::QueryEngine;

/// Rows that a result has at most; a plan that is run for one statement gives more without holding them.
const RESULT_ROWS_MAX: usize = 10_000;
/// Bytes of these.
const RESULT_BYTES_MAX: usize = 16 << 20;
/// Bytes of texts in a batch, about.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Bytes of the rows of one table that are kept.
const TABLE_BYTES_MAX: usize = 1 << 20;
/// Tables whose rows are kept.
const TABLE_COUNT_MAX: usize = 16;
/// Prefix of the name of the function that is a parameter, before its place.
const PARAMETER: &str = "cleave_parameter_";

/// See the module's description.
pub struct ShapePlan {
    values: Arc<Values>,
    tables: Vec<ShapeTable>,
    how: How,
    schema: SchemaRef,
    memory: Arc<ResultMemory>,
}

/// A table of such a plan.
struct ShapeTable {
    /// The table as it was.
    schema: Arc<TableSchema>,
    slot: Arc<TablePlace>,
    /// The columns that the plan reads.
    read: (Vec<usize>, SchemaRef),
}

enum How {
    /// Over the rows of the only table, or over one row without columns.
    Steps(tokio::sync::Mutex<Vec<Step>>),
    Plan {
        plan: tokio::sync::Mutex<Arc<dyn ExecutionPlan>>,
        task: Arc<TaskContext>,
    },
}

/// The values of parameters, while the plan runs.
#[derive(Debug, Default)]
struct Values(Mutex<Vec<ScalarValue>>);

impl ShapePlan {
    /// Plans `query`, which is `original` with parameters of `given` in the places of some of its constants, and reads
    /// `tables` of `view`; None: it cannot be planned so.
    pub async fn of(
        (database, settings, view): (&Arc<QueryEngine>, &Settings, &ReadView),
        (query, original): (&ast::Query, &ast::Query),
        tables: &[Arc<TableSchema>],
        given: &Parameters,
    ) -> Option<Self> {
        // It is planned here, on the client's thread.
        if !small_query::is_small(query, &view.state) {
            return None;
        }
        let made = Box::pin(Self::made((database, settings, view), query, tables, given));
        // What is wrong with the statement, its own plan says.
        let made = made.await.ok()??;
        let view = Some(view);
        let described = describe(database, settings, view, original, Vec::new()).await.ok()?;
        let types = |schema: &SchemaRef| {
            let fields = schema.fields().iter();
            fields.map(|own| (own.name().clone(), own.data_type().clone())).collect::<Vec<_>>()
        };
        (types(&described.schema) == types(&made.schema)).then_some(made)
    }

    async fn made(
        (database, settings, view): (&Arc<QueryEngine>, &Settings, &ReadView),
        query: &ast::Query,
        tables: &[Arc<TableSchema>],
        given: &Parameters,
    ) -> Result<Option<Self>> {
        let context = StatementContext::new(Arc::clone(database), view.clone(), settings.clone());
        let (query, names) =
            lowered(query.clone(), &context, |query| match visit_mut(query, &mut Calls) {
                ControlFlow::Break(error) => Err(*error),
                ControlFlow::Continue(()) => Ok(()),
            })?;
        let slots: Vec<_> = tables.iter().map(|table| TablePlace::of(table.arrow())).collect();
        let named = tables.iter().zip(&slots);
        let catalog = slot_catalog(named.map(|(table, slot)| (table.name.as_str(), slot)))?;
        let asked = (settings, &database.last_states);
        let mut state = planner::statement_state(
            asked,
            InnerJoins::AsWritten,
            1,
            database.query_runtime(),
            catalog,
        );
        // Dynamic filters of one execution must not apply to the next.
        let options = state.config_mut().options_mut();
        options.set("datafusion.optimizer.enable_dynamic_filter_pushdown", "false")?;
        let values = Arc::new(Values::default());
        for (place, own) in given.values().iter().map(Parameter::array_type).enumerate() {
            let function = ParameterFunction::new(place, own, &values);
            state.register_udf(Arc::new(ScalarUDF::new_from_impl(function)))?;
        }
        let statement = ast::Statement::Query(Box::new(query));
        let statement = EngineStatement::Statement(Box::new(statement));
        let logical = state.statement_to_plan(statement).await?;
        let pool = &database.query_runtime().memory_pool;
        let planning = ResultMemory::of_planning(pool);
        let logical = planning.within(|| state.optimize(&logical))?;
        let plan = state.query_planner().create_physical_plan(&logical, &state).await?;
        if loops_here(&*plan) {
            return Ok(None);
        }
        let mut scans = Vec::new();
        collect_scans(&plan, &mut scans);
        let mut read = Vec::with_capacity(tables.len());
        for (schema, slot) in tables.iter().zip(slots) {
            let mut own = scans.iter().filter(|scan| Arc::ptr_eq(&scan.slot, &slot));
            let (Some(scan), None) = (own.next(), own.next()) else { return Ok(None) };
            let columns = (scan.columns.clone(), Arc::new(slot.schema.project(&scan.columns)?));
            read.push(ShapeTable { schema: Arc::clone(schema), slot, read: columns });
        }
        let schema = names.apply(&plan.schema());
        let steps =
            steps_over(&plan, &|leaf| leaf.is::<SlotExec>() || leaf.is::<PlaceholderRowExec>());
        let how = match steps {
            Some(steps) => How::Steps(tokio::sync::Mutex::new(steps)),
            None => How::Plan {
                plan: tokio::sync::Mutex::new(plan),
                task: Arc::new(planner::task_of(&state, state.config().clone())),
            },
        };
        Ok(Some(Self { values, tables: read, how, schema, memory: ResultMemory::of(pool) }))
    }

    /// Its tables, as they were, and the places of the columns that it reads of them.
    pub fn tables(&self) -> impl Iterator<Item = (&Arc<TableSchema>, &[usize])> {
        self.tables.iter().map(|table| (&table.schema, table.read.0.as_slice()))
    }

    /// The rows for these values, where its tables have the rows `inputs`; None: there are too many, or they are too
    /// large.
    ///
    /// # Errors
    /// Those of the query's expressions.
    pub async fn run(
        &self,
        parameters: &Parameters,
        inputs: Vec<SmallRows>,
    ) -> Result<Option<RecordBatch>> {
        let longest = inputs.iter().fold(0_usize, |sum, rows| sum.saturating_add(rows.longest));
        let given = (0..parameters.values().len()).map(|place| {
            let array = parameters.get(place)?.array();
            let array = array.map_err(|source| Error::Parameter {
                number: place + 1,
                source: Box::new(source),
            })?;
            Ok(ScalarValue::try_from_array(&array, 0)?)
        });
        let given = given.collect::<Result<Vec<_>>>()?;
        let inputs = self
            .tables
            .iter()
            .zip(inputs)
            .map(|(table, own)| with_schema(&table.read.1, &own.rows));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let rows = match &self.how {
            How::Steps(steps) => {
                let steps = steps.lock().await;
                self.values.set(given);
                let mut rows = match inputs.into_iter().next() {
                    Some(rows) => rows,
                    None => with_schema_of(&Arc::new(Schema::empty()), Vec::new(), 1)?,
                };
                for step in steps.iter() {
                    rows = self.memory.within(|| step.apply(rows))?;
                }
                rows
            }
            How::Plan { plan, task } => {
                let plan = plan.lock().await;
                self.values.set(given);
                // What runs is a copy: its joins keep the rows that they are built from.
                let running = reset_plan_states(Arc::clone(&plan))?;
                let _filled = Filled::with(self.tables.iter().map(|table| &table.slot), inputs);
                let mut stream =
                    self.memory.within(|| execute_stream(running, task_for(task, longest)))?;
                let (mut batches, mut count, mut bytes) = (Vec::new(), 0, 0_usize);
                while let Some(batch) = self.memory.over(stream.next()).await {
                    let batch = batch?;
                    count += batch.num_rows();
                    bytes = bytes.saturating_add(batch.get_array_memory_size());
                    if count > RESULT_ROWS_MAX || bytes > RESULT_BYTES_MAX {
                        return Ok(None);
                    }
                    batches.push(batch);
                }
                concat_batches(&plan.schema(), &batches)?
            }
        };
        apply_schema(&rows, &self.schema).map(Some)
    }
}

/// `task` with few enough rows a batch that their texts, of at most `longest` bytes a row, are no large ones.
fn task_for(task: &Arc<TaskContext>, longest: usize) -> Arc<TaskContext> {
    let most = BATCH_BYTES_MAX.checked_div(longest).unwrap_or(usize::MAX).max(1);
    if most >= task.session_config().batch_size() {
        return Arc::clone(task);
    }
    Arc::new(planner::with_batch_rows(task, most))
}

impl fmt::Debug for ShapePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShapePlan").field("schema", &self.schema).finish_non_exhaustive()
    }
}

/// The columns of `rows` under the names of `schema`.
fn with_schema(schema: &SchemaRef, rows: &RecordBatch) -> Result<RecordBatch> {
    with_schema_of(schema, rows.columns().to_vec(), rows.num_rows())
}

fn with_schema_of(
    schema: &SchemaRef,
    columns: Vec<Arc<dyn Array>>,
    count: usize,
) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

impl Values {
    fn set(&self, values: Vec<ScalarValue>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = values;
    }

    fn get(&self, place: usize) -> Option<ScalarValue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(place).cloned()
    }
}

/// Puts calls in the places of parameters.
struct Calls;

impl ast::VisitorMut for Calls {
    type Break = Box<Error>;

    fn pre_visit_expr(&mut self, expression: &mut ast::Expr) -> ControlFlow<Self::Break> {
        match place_of(expression) {
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some(place)) => {
                *expression = call(&format!("{PARAMETER}{place}"), Vec::new());
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

/// A parameter.
#[derive(Debug)]
struct ParameterFunction {
    place: usize,
    name: String,
    own: DataType,
    signature: Signature,
    values: Arc<Values>,
}

impl ParameterFunction {
    fn new(place: usize, own: DataType, values: &Arc<Values>) -> Self {
        // Immutable, as a constant is: conditions with it move as others do.
        let signature = Signature::nullary(Volatility::Immutable);
        let name = format!("{PARAMETER}{place}");
        Self { place, name, own, signature, values: Arc::clone(values) }
    }
}

impl PartialEq for ParameterFunction {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place && Arc::ptr_eq(&self.values, &other.values)
    }
}

impl Eq for ParameterFunction {}

impl Hash for ParameterFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.place.hash(state);
    }
}

impl ScalarUDFImpl for ParameterFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> EngineResult<DataType> {
        Ok(self.own.clone())
    }

    fn invoke_with_args(&self, _arguments: ScalarFunctionArgs) -> EngineResult<ColumnarValue> {
        match self.values.get(self.place) {
            Some(value) => Ok(ColumnarValue::Scalar(value)),
            // Rules that compute constants leave it.
            None => exec_err!("a parameter without a value"),
        }
    }
}

/// Rows of small tables of the last catalog version that statements read them in. See the module's description.
///
/// Rows are read once a table was asked for twice in one version: one that changes between statements is not kept.
#[derive(Debug, Default)]
pub struct SmallTables(Mutex<VecDeque<SmallTable>>);

#[derive(Debug)]
struct SmallTable {
    /// The table in one catalog version, which this does not keep.
    state: Weak<TableState>,
    table_id: u32,
    columns: Vec<usize>,
    rows: Rows,
}

#[derive(Debug, Clone)]
enum Rows {
    AskedOnce,
    /// They take too much memory. That holds for further versions of the table, until it has half as many rows: each
    /// would be read in vain.
    Large {
        /// How many they were.
        row_count: u64,
    },
    Here(SmallRows),
}

/// Rows of a small table.
#[derive(Debug, Clone)]
pub struct SmallRows {
    /// The rows.
    pub rows: RecordBatch,
    /// Most bytes that the texts of one of them have, at most.
    longest: usize,
}

impl SmallRows {
    fn new(rows: RecordBatch) -> Self {
        let longest = |column: &ArrayRef| {
            let offsets = match column.data_type() {
                DataType::Utf8 => column.as_string::<i32>().value_offsets(),
                DataType::Binary => column.as_binary::<i32>().value_offsets(),
                _ => return 0,
            };
            let lengths = offsets.windows(2).map(|ends| ends[1].saturating_sub(ends[0]));
            lengths.max().and_then(|length| usize::try_from(length).ok()).unwrap_or(0)
        };
        let longest = rows.columns().iter().map(longest).sum();
        Self { rows, longest }
    }
}

impl SmallTables {
    /// The rows of `table` of `view`, with these of its columns; None: they are not kept.
    ///
    /// # Errors
    /// Those of reading them.
    pub async fn rows(
        &self,
        (database, settings, view): (&Arc<QueryEngine>, &Settings, &ReadView),
        table: &Arc<TableState>,
        columns: &[usize],
    ) -> Result<Option<SmallRows>> {
        match self.known(table, columns) {
            Some(Rows::Here(rows)) => return Ok(Some(rows)),
            Some(Rows::Large { .. }) => return Ok(None),
            None => {
                self.keep(table, columns, Rows::AskedOnce);
                return Ok(None);
            }
            Some(Rows::AskedOnce) => {}
        }
        let all = &table.schema.columns;
        // Rows are counted by a column.
        let named = if columns.is_empty() { &[0] } else { columns };
        let names: Vec<&str> =
            named.iter().filter_map(|place| all.get(*place)).map(|own| own.name.as_str()).collect();
        let query = table_query(&table.schema.name, &names, None)?;
        let parameters = Parameters::default();
        let asked =
            super::QueryRequest { query: &query, parameters: &parameters, view: Some(view) };
        let mut running = Box::pin(plan_query(database, settings, asked)).await?.run(false).await?;
        let (mut batches, mut bytes) = (Vec::new(), 0_usize);
        while let Some(batch) = Box::pin(running.next()).await? {
            bytes = bytes.saturating_add(batch.get_array_memory_size());
            if bytes > TABLE_BYTES_MAX {
                self.keep(table, columns, Rows::Large { row_count: table.row_count() });
                return Ok(None);
            }
            batches.push(batch);
        }
        let rows = concat_batches(&running.schema(), &batches)?;
        let rows = if columns.is_empty() { rows.project(&[])? } else { rows };
        let rows = SmallRows::new(rows);
        self.keep(table, columns, Rows::Here(rows.clone()));
        Ok(Some(rows))
    }

    /// Notes that these columns of `table` are asked for.
    pub fn ask(&self, table: &Arc<TableState>, columns: &[usize]) {
        if self.known(table, columns).is_none() {
            self.keep(table, columns, Rows::AskedOnce);
        }
    }

    fn known(&self, table: &Arc<TableState>, columns: &[usize]) -> Option<Rows> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |own: &&SmallTable| {
            // A weak reference keeps the address from being used again.
            let is_large = match own.rows {
                Rows::Large { row_count } => table.row_count() > row_count / 2,
                _ => false,
            };
            own.columns == columns
                && (std::ptr::eq(own.state.as_ptr(), Arc::as_ptr(table))
                    || is_large && own.table_id == table.schema.table_id)
        };
        kept.iter().find(is_it).map(|own| own.rows.clone())
    }

    fn keep(&self, table: &Arc<TableState>, columns: &[usize], rows: Rows) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = table.schema.table_id;
        let is_old = |own: &SmallTable| {
            let is_large = matches!(own.rows, Rows::Large { .. });
            let is_gone = own.state.strong_count() == 0 && !is_large;
            is_gone || own.table_id == id && own.columns == columns
        };
        kept.retain(|own| !is_old(own));
        kept.truncate(TABLE_COUNT_MAX - 1);
        let (state, columns) = (Arc::downgrade(table), columns.to_vec());
        kept.push_front(SmallTable { state, table_id: id, columns, rows });
    }
}
