//! The rows of a run that were given out already, so that a run which is lost midway is made again without them.
//!
//! ```text
//!  device ═ row row row ╳ lost        given out: {row: 1, row: 2}
//!  host, all of it again: row row row row row ─▶ without those ─▶ row row
//! ```
//!
//! The input of a fragment is a snapshot, so its rows are the same ones when it is made again, in another order. Each
//! row that was given out is counted by a hash of 128 bits; of equal rows any may stand for another. So the host, or
//! another copy of a mirror, makes all rows again, and as many of each are left out as were given.
//!
//! Partial states differ from run to run, so rows of them are [held](super::held_rows) until the run has ended, where
//! there are few. Which rows a limit keeps differs too. Where it is the last that a fragment does, the rows that were
//! given and those that another run gives beside them are all rows of its input, and enough; whoever takes them keeps
//! as many as it allows.
//!
//! Deliberately absent: fragments that hand on rows while they run, above operators whose rows differ (a sum of floats,
//! a window, a limit of an input, an `OFFSET`) or with functions of floats whose last digits differ from machine to
//! machine; runs that have given [`ROWS_MAX`] rows; the embedded device, which is lost only with the process. These end
//! the statement.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use cleave_fragment::DenseAggregateExec;
use cleave_fragment::walk::Walk;
use datafusion::arrow::array::{Array, BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::hash_utils::{RandomState, combine_hashes, create_hashes};
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use rustc_hash::FxBuildHasher;

/// Most rows that are remembered: with the table of their hashes, 10 MB.
const ROWS_MAX: usize = 1 << 18;

/// Functions of floats with one value on all machines. The others are those of the system's library, of which a device
/// may have another one than the host.
const EXACT_FUNCTIONS: [&str; 10] =
    ["abs", "ceil", "coalesce", "floor", "greatest", "least", "nullif", "round", "sqrt", "trunc"];

/// Two of them make a hash of 128 bits.
const SEEDS: [u64; 2] = [11, 29];
/// Stands for a NULL. DataFusion leaves NULLs out of hashes, so that `(1, NULL, 7)` and `(1, 7, NULL)` have one.
const NULL_HASH: u64 = 0x9e37_79b9_7f4a_7c15;

/// See the module's description.
#[derive(Debug, Clone, Default)]
pub(super) struct GivenRows {
    /// How often each row was given, by its hash.
    counts: HashMap<[u64; 2], u32, FxBuildHasher>,
    row_count: usize,
    hashes: [Vec<u64>; 2],
    /// Of the values of one column.
    column_hashes: Vec<u64>,
    /// Not all are known.
    is_lost: bool,
}

impl GivenRows {
    /// For a run of `plan`; None: it has other rows when it is made again.
    pub(super) fn of_run(plan: &dyn ExecutionPlan) -> Option<Self> {
        has_same_rows(plan).then(Self::default)
    }

    /// Notes that the rows of `batch` are given out.
    pub(super) fn note(&mut self, batch: &RecordBatch) {
        self.row_count += batch.num_rows();
        let has_hashes = || batch.columns().iter().all(|column| has_hash(column.data_type()));
        self.is_lost |= self.row_count > ROWS_MAX || !has_hashes() || self.hash(batch).is_err();
        if self.is_lost {
            self.counts = HashMap::default();
            return;
        }
        for hash in hashes(&self.hashes) {
            *self.counts.entry(hash).or_default() += 1;
        }
    }

    /// How many rows were given out; None: not all of them are known.
    pub(super) fn known_count(&self) -> Option<usize> {
        (!self.is_lost).then_some(self.row_count)
    }

    /// `rows`, those of the same run made again, without those that were given out.
    pub(super) fn left_of(mut self, rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let schema = rows.schema();
        let left = rows.map(move |batch| batch.and_then(|batch| self.left_of_batch(&batch)));
        Box::pin(RecordBatchStreamAdapter::new(schema, left))
    }

    /// The same of one batch of them.
    ///
    /// # Errors
    /// None that a row can cause.
    pub(super) fn left_of_batch(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        self.hash(batch)?;
        let Self { counts, hashes: own, .. } = self;
        let is_left = hashes(own).map(|hash| match counts.get_mut(&hash) {
            Some(count) if *count > 0 => {
                *count -= 1;
                false
            }
            _ => true,
        });
        let is_left = BooleanArray::from(is_left.collect::<Vec<bool>>());
        Ok(filter_record_batch(batch, &is_left)?)
    }

    fn hash(&mut self, batch: &RecordBatch) -> Result<()> {
        let Self { hashes, column_hashes: own, .. } = self;
        for (hashes, seed) in hashes.iter_mut().zip(SEEDS) {
            hashes.clear();
            hashes.resize(batch.num_rows(), 0);
            for column in batch.columns() {
                own.clear();
                own.resize(batch.num_rows(), 0);
                create_hashes([column], &RandomState::with_seed(seed), own)?;
                let nulls = column.logical_nulls();
                for (row, (hash, value)) in hashes.iter_mut().zip(own.iter()).enumerate() {
                    let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
                    *hash = combine_hashes(*hash, if is_null { NULL_HASH } else { *value });
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for GivenRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows, which are left out", self.row_count)
    }
}

/// Whether different values of `data_type` have different hashes. NULLs within structures have none, and neither has a
/// list without elements.
fn has_hash(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            !item.data_type().is_nested()
        }
        other => !other.is_nested(),
    }
}

fn hashes([one, other]: &[Vec<u64>; 2]) -> impl Iterator<Item = [u64; 2]> {
    one.iter().zip(other).map(|(one, other)| [*one, *other])
}

/// Whether `plan` has the same rows each time, in whatever order its input comes: its aggregates are complete, and
/// exact, and only its root limits them, if anything does.
pub(super) fn has_same_rows(plan: &dyn ExecutionPlan) -> bool {
    has_same(plan, false, Above::Nothing)
}

/// What stands above a part of a plan.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Above {
    /// It is the root.
    Nothing,
    /// Limits, and what treats each row alone.
    Limits,
    /// What may make other rows of other ones.
    Others,
}

/// The same of a part of a plan. `is_merged`: an aggregate makes one of the partial states that it gives.
fn has_same(plan: &dyn ExecutionPlan, is_merged: bool, above: Above) -> bool {
    let limit = plan.downcast_ref::<GlobalLimitExec>();
    let skips = limit.is_some_and(|limit| limit.skip() > 0);
    let projection = plan.downcast_ref::<ProjectionExec>();
    let mut made = projection.into_iter().flat_map(|projection| projection.expr());
    if skips
        || above == Above::Others && plan.fetch().is_some()
        || made.any(|made| has_inexact_call(&made.expr))
    {
        return false;
    }
    let is_limit = limit.is_some() || plan.is::<LocalLimitExec>();
    let above_input = match above {
        Above::Nothing | Above::Limits if is_limit => Above::Limits,
        Above::Limits if projection.is_some() => Above::Limits,
        Above::Nothing | Above::Limits | Above::Others => Above::Others,
    };
    let is_merged_below = match plan.downcast_ref::<AggregateExec>() {
        Some(aggregate) => {
            let is_partial =
                matches!(aggregate.mode(), AggregateMode::Partial | AggregateMode::PartialReduce);
            if is_partial && !is_merged || !is_exact(aggregate) {
                return false;
            }
            true
        }
        None if plan.is::<DenseAggregateExec>() => is_merged,
        None => {
            let name = plan.name();
            if ["Aggregate", "Recursion", "Window"].iter().any(|kind| name.contains(kind)) {
                return false;
            }
            is_merged && ["Coalesce", "Repartition"].iter().any(|kind| name.starts_with(kind))
        }
    };
    plan.children().into_iter().all(|input| has_same(&**input, is_merged_below, above_input))
}

/// Whether `expr` calls a function of floats that is not [exact](EXACT_FUNCTIONS).
fn has_inexact_call(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let found = expr.exists(|part| {
        let call = part.downcast_ref::<ScalarFunctionExpr>();
        Ok(call.is_some_and(|call| {
            call.return_type().is_floating() && !EXACT_FUNCTIONS.contains(&call.fun().name())
        }))
    });
    found.unwrap_or(true)
}

/// Whether neither the groups of `aggregate` nor what it makes of them depends on the order of its input.
fn is_exact(aggregate: &AggregateExec) -> bool {
    let is_exact =
        |function: &str| matches!(function, "count" | "exact_sum" | "max" | "min" | "sum");
    let schema = aggregate.schema();
    let mut types = schema.fields().iter().map(|field| field.data_type());
    aggregate.aggr_expr().iter().all(|made| is_exact(made.fun().name()))
        && types.all(|data_type| !data_type.is_floating() && !data_type.is_nested())
}

#[cfg(test)]
mod tests {
    //! Rows that are made again in another order and in other batches, equal ones among them.

    use datafusion::arrow::array::{ArrayRef, Int32Array};
    use datafusion::arrow::datatypes::{Field, Schema};
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::joins::CrossJoinExec;
    use futures::{TryStreamExt, stream};

    use super::*;

    fn batch(values: &[Option<i32>]) -> RecordBatch {
        let schema = Schema::new(vec![Field::new("v", DataType::Int32, true)]);
        let values = Arc::new(Int32Array::from(values.to_vec()));
        RecordBatch::try_new(Arc::new(schema), vec![values]).unwrap()
    }

    #[tokio::test]
    async fn each_row_comes_as_often_as_it_is_there() {
        let mut given = GivenRows::default();
        given.note(&batch(&[Some(1), None, Some(2)]));
        given.note(&batch(&[Some(2)]));
        assert_eq!(given.known_count(), Some(4));
        let again = [batch(&[Some(2), Some(2), Some(2), None]), batch(&[Some(3), None, Some(1)])];
        let schema = again[0].schema();
        let again = stream::iter(again.map(Ok));
        let left = given.left_of(Box::pin(RecordBatchStreamAdapter::new(schema, again)));
        let left: Vec<RecordBatch> = left.try_collect().await.unwrap();
        assert_eq!(left, [batch(&[Some(2)]), batch(&[Some(3), None])]);
    }

    #[tokio::test]
    async fn rows_are_told_apart_by_where_they_are_null() {
        let rows = |rows: &[[Option<i32>; 3]]| {
            let column = |place: usize| {
                let values = rows.iter().map(|row| row[place]).collect::<Int32Array>();
                (format!("c{place}"), Arc::new(values) as ArrayRef)
            };
            RecordBatch::try_from_iter_with_nullable((0..3).map(|place| {
                let (name, values) = column(place);
                (name, values, true)
            }))
            .unwrap()
        };
        let (one, other) = ([Some(1), None, Some(7)], [Some(1), Some(7), None]);
        let mut given = GivenRows::default();
        given.note(&rows(&[one]));
        let again = rows(&[other, one, [None, Some(1), Some(7)], [None, None, None]]);
        let schema = again.schema();
        let again = stream::iter([Ok(again)]);
        let left = given.left_of(Box::pin(RecordBatchStreamAdapter::new(schema, again)));
        let left: Vec<RecordBatch> = left.try_collect().await.unwrap();
        assert_eq!(left, [rows(&[other, [None, Some(1), Some(7)], [None, None, None]])]);
    }

    #[test]
    fn more_rows_than_are_remembered_are_lost() {
        let mut given = GivenRows::default();
        let rows = batch(&vec![Some(1); ROWS_MAX]);
        given.note(&rows);
        assert_eq!(given.known_count(), Some(ROWS_MAX));
        given.note(&rows.slice(0, 1));
        assert_eq!(given.known_count(), None);
    }

    #[test]
    fn what_a_limit_keeps_differs_unless_it_is_the_last() {
        type Plan = Arc<dyn ExecutionPlan>;
        let all = || Arc::new(EmptyExec::new(batch(&[]).schema())) as Plan;
        let limited = |input: Plan, skip: usize| -> Plan {
            Arc::new(GlobalLimitExec::new(input, skip, Some(5)))
        };
        let joined = |one: Plan, other: Plan| Arc::new(CrossJoinExec::new(one, other)) as Plan;
        for same in [
            all(),
            limited(all(), 0),
            limited(Arc::new(LocalLimitExec::new(all(), 5)), 0),
            limited(joined(all(), all()), 0),
        ] {
            assert!(has_same_rows(&*same), "{same:?}");
        }
        for other in [
            limited(all(), 1),
            joined(limited(all(), 0), all()),
            joined(all(), Arc::new(LocalLimitExec::new(all(), 5))),
            limited(joined(limited(all(), 0), all()), 0),
        ] {
            assert!(!has_same_rows(&*other), "{other:?}");
        }
    }
}
