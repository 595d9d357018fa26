//! Keeps a join from copying long values: the inputs of a join in, the same rows out, whose lists are copied a piece of
//! a batch at a time.
//!
//! A join copies the columns of a row for each of its matches, and a batch of its rows has 8,192 copies of one list. So
//! the columns of lists that the join only passes on go through it as numbers of rows:
//!
//! ```text
//!            Unpacked: n, list                 copies so many rows at once as PIECE_BYTES hold
//!              join: n, number of a list
//!   Packed: list ─▶ number of it     n
//! ```
//!
//! Texts of a side that is seen to have one row are passed on likewise.
//!
//! Invariant: no reader of plans sees the operators; columns of keys and of conditions stay as they are.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, RecordBatch, RecordBatchOptions, UInt32Array,
};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type};
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{JoinSide, Result, internal_err};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::utils::collect_columns;
use datafusion_physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion_physical_plan::aggregates::AggregateExec;
use datafusion_physical_plan::execution_plan::replace_children_if_necessary;
use datafusion_physical_plan::joins::utils::JoinFilter;
use datafusion_physical_plan::joins::{HashJoinExec, NestedLoopJoinExec};
use datafusion_physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::unnest::UnnestExec;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::{StreamExt, TryStreamExt, stream};

use crate::operators::in_pieces_exec::{PIECE_BYTES, value_bytes};

/// `join`, of whose sides it passes long values on as numbers.
///
/// # Errors
/// DataFusion's, when it rebuilds the plan.
pub(super) fn packed(join: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let [left, right] = join.children()[..] else { return Ok(join) };
    let sides = [(left, JoinSide::Left), (right, JoinSide::Right)];
    let columns = sides.map(|(input, side)| passed_on(&*join, input, side));
    if columns.iter().all(Vec::is_empty) {
        return Ok(join);
    }
    let inputs = [left, right].into_iter().zip(columns);
    let inputs = inputs.map(|(input, columns)| Packed::over(input, columns)).collect();
    let schema = join.schema();
    let join = replace_children_if_necessary(join, inputs)?;
    Ok(Arc::new(Unpacked { properties: properties_of(&join, schema), join }))
}

/// Whether the values of a column are long enough not to be copied.
fn is_long(kind: &DataType, of_one_row: bool) -> bool {
    matches!(kind, DataType::List(_)) || of_one_row && matches!(kind, DataType::Utf8)
}

/// The long columns of a side that the join neither compares nor computes with.
fn passed_on(
    join: &dyn ExecutionPlan,
    input: &Arc<dyn ExecutionPlan>,
    side: JoinSide,
) -> Vec<usize> {
    let schema = input.schema();
    let long = |of_one_row| {
        let fields = schema.fields().iter().enumerate();
        let long = fields.filter(move |(_, field)| is_long(field.data_type(), of_one_row));
        long.map(|(place, _)| place).collect::<Vec<_>>()
    };
    if long(true).is_empty() {
        return Vec::new();
    }
    let mut used = BTreeSet::new();
    let filter = if let Some(join) = join.downcast_ref::<HashJoinExec>() {
        for (left, right) in join.on() {
            let key: &Arc<dyn PhysicalExpr> = if side == JoinSide::Left { left } else { right };
            used.extend(collect_columns(key).iter().map(|column| column.index()));
        }
        join.filter()
    } else if let Some(join) = join.downcast_ref::<NestedLoopJoinExec>() {
        join.filter()
    } else {
        return Vec::new();
    };
    let of_filter = filter.map(JoinFilter::column_indices).into_iter().flatten();
    used.extend(of_filter.filter(|one| one.side == side).map(|one| one.index));
    long(has_one_row(&**input)).into_iter().filter(|place| !used.contains(place)).collect()
}

/// Whether a plan is seen to have one row at most: it adds up all rows, or reads none.
fn has_one_row(plan: &dyn ExecutionPlan) -> bool {
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return aggregate.group_expr().is_empty();
    }
    match plan.children()[..] {
        [input] if !plan.is::<UnnestExec>() => has_one_row(&**input),
        _ => plan.is::<PlaceholderRowExec>(),
    }
}

/// The properties of `input` with the columns of `schema`, of which nothing is known.
fn properties_of(input: &Arc<dyn ExecutionPlan>, schema: SchemaRef) -> Arc<PlanProperties> {
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(schema),
        input.output_partitioning().clone(),
        input.pipeline_behavior(),
        input.boundedness(),
    ))
}

/// The rows of its input with numbers in some columns.
#[derive(Debug)]
struct Packed {
    input: Arc<dyn ExecutionPlan>,
    columns: Vec<usize>,
    properties: Arc<PlanProperties>,
}

impl Packed {
    fn over(input: &Arc<dyn ExecutionPlan>, columns: Vec<usize>) -> Arc<dyn ExecutionPlan> {
        if columns.is_empty() {
            return Arc::clone(input);
        }
        let own = input.schema();
        let fields =
            own.fields().iter().enumerate().map(|(place, field)| match columns.contains(&place) {
                true => {
                    let kind = numbered(field.data_type());
                    Arc::new(Field::clone(field).with_data_type(kind))
                }
                false => Arc::clone(field),
            });
        let schema = Schema::new_with_metadata(fields.collect::<Vec<_>>(), own.metadata().clone());
        let properties = properties_of(input, Arc::new(schema));
        Arc::new(Self { input: Arc::clone(input), columns, properties })
    }
}

fn numbered(kind: &DataType) -> DataType {
    DataType::Dictionary(Box::new(DataType::UInt32), Box::new(kind.clone()))
}

/// A column as the numbers of its rows.
fn numbers_of(column: &ArrayRef) -> Result<ArrayRef> {
    let numbers = (0..u32::try_from(column.len()).unwrap_or(u32::MAX))
        .map(|row| column.is_valid(row as usize).then_some(row));
    let numbers: UInt32Array = numbers.collect();
    Ok(Arc::new(DictionaryArray::try_new(numbers, Arc::clone(column))?))
}

impl DisplayAs for Packed {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed: {:?}", self.columns)
    }
}

impl ExecutionPlan for Packed {
    fn name(&self) -> &'static str {
        "Packed"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match children.as_slice() {
            [input] => Ok(Self::over(input, self.columns.clone())),
            _ => internal_err!("rows of one input are packed, not of {}", children.len()),
        }
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = self.input.execute(partition, task)?;
        let (schema, columns) = (self.schema(), self.columns.clone());
        let own = Arc::clone(&schema);
        let rows = rows.map(move |batch| {
            let batch = batch?;
            let mut packed = batch.columns().to_vec();
            for place in &columns {
                if let Some(column) = packed.get_mut(*place) {
                    *column = numbers_of(column)?;
                }
            }
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            Ok(RecordBatch::try_new_with_options(Arc::clone(&own), packed, &options)?)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// The rows of a join, with the values of numbered columns.
#[derive(Debug)]
struct Unpacked {
    join: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl DisplayAs for Unpacked {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unpacked")
    }
}

impl ExecutionPlan for Unpacked {
    fn name(&self) -> &'static str {
        "Unpacked"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.join]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match children.as_slice() {
            [join] => Ok(Arc::new(Self {
                properties: properties_of(join, self.schema()),
                join: Arc::clone(join),
            })),
            _ => internal_err!("rows of one join are unpacked, not of {}", children.len()),
        }
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = self.join.execute(partition, task)?;
        let schema = self.schema();
        let own = Arc::clone(&schema);
        let rows = rows
            .map_ok(move |batch| {
                let own = Arc::clone(&own);
                let pieces =
                    stream::unfold(0, move |from| std::future::ready(piece_of(&batch, from, &own)));
                pieces.boxed()
            })
            .try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    fn metrics(&self) -> Option<datafusion_physical_plan::metrics::MetricsSet> {
        self.join.metrics()
    }
}

type Piece = (Result<RecordBatch>, usize);

/// The rows of `batch` from the row `from` on whose values fit a piece, and the row behind them; None: there are none.
fn piece_of(batch: &RecordBatch, from: usize, schema: &SchemaRef) -> Option<Piece> {
    if from >= batch.num_rows() {
        return None;
    }
    let packed = batch.columns().iter().zip(schema.fields());
    let packed = packed.filter(|(column, field)| column.data_type() != field.data_type());
    let packed: Vec<_> = packed.map(|(column, _)| column.as_dictionary::<UInt32Type>()).collect();
    let bytes_of = |row: usize| {
        let bytes = packed.iter().filter(|column| column.keys().is_valid(row));
        bytes.map(|column| value_bytes(column.values(), column.keys().value(row) as usize)).sum()
    };
    let (mut end, mut bytes): (usize, u64) = (from, 0);
    while end < batch.num_rows() {
        bytes = bytes.saturating_add(bytes_of(end));
        if end > from && bytes > PIECE_BYTES {
            break;
        }
        end += 1;
    }
    Some((unpacked(&batch.slice(from, end - from), schema), end))
}

fn unpacked(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| {
        if column.data_type() == field.data_type() {
            return Ok(Arc::clone(column));
        }
        let numbers = column.as_dictionary::<UInt32Type>();
        Ok(take(numbers.values(), numbers.keys(), None)?)
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}
