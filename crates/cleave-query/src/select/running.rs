//! A query that runs: the host's half of its plan, and the fragments below its cuts.
//!
//! Invariant: a query whose [stages](super::stages) cannot be read runs again without them, as long as it has given no
//! row.

use std::sync::Arc;

use cleave_catalog::activity::Act;
use cleave_catalog::error::{Error, Result};
use cleave_fragment::{OwnThreads, RepeatedStates, Start, StopOnDrop, loops, stoppable_joins};
use cleave_media::clock::Stopwatch;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result as EngineResult;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::common::spawn_buffered;
use datafusion::physical_plan::joins::NestedLoopJoinExec;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt;

use super::meter::{Meter, media_bytes};
use super::origins;
use super::reuse::{HeldResults, Passing, ReusedExec};
use super::stages::is_of_pages;
use super::{PlannedQuery, page_filter};
use crate::cooperative::figures::QueryFigures;
use crate::cooperative::fragment_exec::FragmentExec;
use crate::cooperative::running_queries::Listed;
use crate::planner;
use crate::query_log::{OpenRecord, QueryEnd};

/// Batches that a query makes ahead where it runs in a task of its own.
const AHEAD: usize = 2;

/// A query that runs. Dropping it stops it on both sides.
pub struct RunningQuery {
    query: PlannedQuery,
    stream: SendableRecordBatchStream,
    /// One, and another if it has begun again.
    stops: Vec<StopOnDrop>,
    schema: SchemaRef,
    meter: Meter,
    row_count: u64,
    /// The open record of the query log, until the query ends.
    pub(super) record: Option<OpenRecord>,
    /// Its rows, as far as they have passed, where they may be used again.
    passing: Option<Box<Passing>>,
    /// Its place among the running queries, if it is of a session that has a number.
    listed: Option<Listed>,
}

impl PlannedQuery {
    /// Starts the query. With `measure_media` the devices are asked for their totals before and after.
    pub async fn run(mut self, measure_media: bool) -> Result<RunningQuery> {
        let mut meter = Meter::start(&self.contexts(), measure_media).await?;
        if let Some(staging) = self.staging.take() {
            self = Box::pin(staging.run(self)).await?;
        }
        page_filter::apply(&mut self.page_filters, &self.context).await;
        let fragment_context = self.context.host_fragment_context()?;
        let config = self.state.config().clone().with_extension(fragment_context);
        let config = config.with_extension(Arc::new(RepeatedStates));
        let config = config.with_extension(Arc::new(OwnThreads));
        let config = self.context.with_batches_of_long_values(config);
        let task = Arc::new(planner::task_of(&self.state, config));
        planner::give_way();
        // A fragment starts at once, to run beside what the host does.
        let start = match has_fragment(&*self.cuts.plan) {
            true => Start::AtOnce,
            false => Start::WhenPolled,
        };
        // After the cuts: what is planned, shown and encoded is without it.
        self.cuts.plan = stoppable_joins(&self.cuts.plan, self.context.stop(), start)?;
        let memory = Arc::clone(self.context.memory());
        let stream = memory.within(|| -> EngineResult<_> {
            let stream = execute_stream(Arc::clone(&self.cuts.plan), task)?;
            Ok(match loops_here(&*self.cuts.plan) {
                // The reader of its rows must hear of a cancellation.
                true => spawn_buffered(stream, AHEAD),
                false => stream,
            })
        })?;
        let schema = self.names.apply(&stream.schema());
        let stops = vec![self.context.stop().into()];
        if self.cuts.plan.is::<ReusedExec>() {
            self.context.database().activity().note(Act::ReusedResult);
        }
        let passing = HeldResults::passing(&mut self);
        let (row_count, record) = (0, None);
        let listed = self.listed();
        let query = self;
        meter.begun();
        Ok(RunningQuery { query, stream, stops, schema, meter, row_count, record, passing, listed })
    }

    /// Lists it among the running queries.
    fn listed(&self) -> Option<Listed> {
        let database = self.context.database();
        let backend = self.context.settings().client.backend;
        let text = database.backends().query_of(backend)?;
        let of_parts = self.with.iter().map(|rows| Arc::clone(rows.context().figures()));
        let figures = (Arc::clone(self.context.figures()), of_parts.collect());
        Some(database.running_queries().enter(backend, (text, self.split_taken()), figures))
    }
}

impl RunningQuery {
    /// Columns of the result, each with a note of [where it comes from](super::ColumnOrigin).
    pub fn described_schema(&self) -> SchemaRef {
        origins::noted(&self.schema, &self.query.origins)
    }

    /// The same with columns as `schema` calls them.
    pub(super) fn called(mut self, schema: &SchemaRef) -> Self {
        self.schema = Arc::clone(schema);
        self
    }

    /// Columns of the result.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The next rows, `None` after the last.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let stopwatch = Stopwatch::start();
        let rows = self.next_rows().await;
        self.meter.asked += stopwatch.elapsed();
        rows
    }

    async fn next_rows(&mut self) -> Result<Option<RecordBatch>> {
        let memory = Arc::clone(self.query.context.memory());
        let batch = match memory.over(self.stream.next()).await {
            Some(Ok(batch)) => batch,
            Some(Err(error)) => {
                let error = Error::from(error);
                if self.begins_again(&error).await? {
                    return Box::pin(self.next_rows()).await;
                }
                self.enter(QueryEnd::Failed(error.sqlstate().to_owned()));
                return Err(error);
            }
            None => {
                self.enter(QueryEnd::Done);
                self.listed = None;
                if let Some(passed) = self.passing.take() {
                    self.query.context.database().results.hold(*passed, &self.query);
                }
                return Ok(None);
            }
        };
        self.passing = self.passing.take().and_then(|passing| passing.with(&batch));
        self.row_count += batch.num_rows() as u64;
        if let Some(listed) = &self.listed {
            listed.gave(batch.num_rows());
        }
        apply_schema(&batch, &self.schema).map(Some)
    }

    /// Whether it runs from now on without its stages: `error` says that pages of theirs cannot be read, and no row was
    /// given.
    async fn begins_again(&mut self, error: &Error) -> Result<bool> {
        if !is_of_pages(error) {
            return Ok(false);
        }
        let sets = &self.query.context.database().result_sets;
        self.query.stages.iter().for_each(|stage| sets.forget(&stage.set));
        let unstaged = self.query.unstaged.take().filter(|_| self.row_count == 0);
        let Some(unstaged) = unstaged else { return Ok(false) };
        let mut again = Box::pin(unstaged.run(self.meter.media_bytes.is_some())).await?;
        std::mem::swap(&mut self.stream, &mut again.stream);
        // The same that stops this one.
        self.stops.append(&mut again.stops);
        std::mem::swap(&mut self.meter, &mut again.meter);
        std::mem::swap(&mut self.query, &mut again.query);
        self.listed = again.listed.take();
        Ok(true)
    }

    /// All rows that are left, and what the query cost.
    pub async fn collect(mut self) -> Result<(SchemaRef, Vec<RecordBatch>, QueryFigures)> {
        let schema = self.schema();
        let mut batches = Vec::new();
        while let Some(batch) = self.next().await? {
            batches.push(batch);
        }
        let figures = self.figures().await?;
        Ok((schema, batches, figures))
    }

    /// The cost of the query until now.
    pub async fn figures(&mut self) -> Result<QueryFigures> {
        let figures = self.meter.read(&self.query, self.row_count);
        let Some(before) = self.meter.media_bytes else { return Ok(figures) };
        let media_bytes = media_bytes(&self.query.contexts()).await?.saturating_sub(before);
        Ok(QueryFigures { media_bytes, ..figures })
    }

    /// Enters the query in the log, once.
    fn enter(&mut self, end: QueryEnd) {
        if let Some(record) = self.record.take() {
            record.end(&self.meter.read(&self.query, self.row_count), end);
        }
    }

    /// The plan that runs, its nodes with their metrics.
    pub fn plan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.query.cuts.plan
    }

    /// The query as it was planned.
    pub fn planned(&self) -> &PlannedQuery {
        &self.query
    }
}

impl Drop for RunningQuery {
    fn drop(&mut self) {
        self.enter(QueryEnd::Dropped);
    }
}

/// Whether a part of `plan` may run on a device.
pub(super) fn has_fragment(plan: &dyn ExecutionPlan) -> bool {
    plan.is::<FragmentExec>() || plan.children().into_iter().any(|input| has_fragment(&**input))
}

/// Whether a join of `plan`, or of what the host may run of its fragments, looks at all pairs of rows.
pub(super) fn loops_here(plan: &dyn ExecutionPlan) -> bool {
    let in_fragment =
        plan.downcast_ref::<FragmentExec>().is_some_and(|cut| loops(&**cut.device_plan()));
    in_fragment
        || plan.is::<NestedLoopJoinExec>()
        || plan.children().into_iter().any(|input| loops_here(&**input))
}

/// `batch` with the names of `schema`.
pub(super) fn apply_schema(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch.columns().to_vec();
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}
