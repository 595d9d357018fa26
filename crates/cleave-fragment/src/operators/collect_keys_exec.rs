//! Collects the keys of a join's build side on their way into the join: rows in, the same rows out, and their keys in
//! a [`KeySink`].
//!
//! It stands below the build side of a join whose keys may have to cross a link as a Bloom filter ([`CollectedKeys`],
//! on the host alone), and of one whose filter [we fill](crate::operators::filled_filter): DataFusion's hash table can
//! only be probed, and its hashes differ between machines. The join has read its build side to the end when it asks the
//! probe side for the first row, which is when a fragment there is sent.
//!
//! Invariant: rows pass unchanged, whatever becomes of the keys; keys count only if all of them came.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{Result, Statistics, internal_err};
use datafusion_execution::memory_pool::MemoryConsumer;
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion_physical_plan::statistics::StatisticsArgs;
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::{StreamExt, stream};

use crate::expressions::key_filter::CollectedKeys;
use crate::expressions::key_sink::{KeyCollector, KeySink};

/// See the [module](self).
#[derive(Debug)]
pub struct CollectKeysExec {
    input: Arc<dyn ExecutionPlan>,
    /// The parts of a key, over the input.
    keys: Vec<Arc<dyn PhysicalExpr>>,
    sink: Arc<dyn KeySink>,
    metrics: ExecutionPlanMetricsSet,
}

impl CollectKeysExec {
    /// Collects `keys` of the rows of `input`, which has one partition, in `collected`.
    ///
    /// # Errors
    /// For an input of several partitions, none of which would have all keys.
    pub fn new(
        input: Arc<dyn ExecutionPlan>,
        keys: Vec<Arc<dyn PhysicalExpr>>,
        collected: Arc<CollectedKeys>,
    ) -> Result<Self> {
        Self::into_sink(input, keys, collected)
    }

    /// Gives `keys` of the rows of `input`, which has one partition, to `sink`.
    pub(crate) fn into_sink(
        input: Arc<dyn ExecutionPlan>,
        keys: Vec<Arc<dyn PhysicalExpr>>,
        sink: Arc<dyn KeySink>,
    ) -> Result<Self> {
        if input.output_partitioning().partition_count() != 1 {
            return internal_err!("keys are collected of one partition");
        }
        Ok(Self { input, keys, sink, metrics: ExecutionPlanMetricsSet::new() })
    }
}

impl DisplayAs for CollectKeysExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<String> = self.keys.iter().map(ToString::to_string).collect();
        write!(f, "CollectKeysExec: [{}]", keys.join(", "))
    }
}

impl ExecutionPlan for CollectKeysExec {
    fn name(&self) -> &'static str {
        "CollectKeysExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let mut recursion = TreeNodeRecursion::Continue;
        for key in &self.keys {
            recursion = visit(key)?;
            if recursion == TreeNodeRecursion::Stop {
                break;
            }
        }
        Ok(recursion)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let [input] = children.as_slice() else {
            return internal_err!("keys are collected of one input, not {}", children.len());
        };
        let (keys, sink) = (self.keys.clone(), Arc::clone(&self.sink));
        Ok(Arc::new(Self::into_sink(Arc::clone(input), keys, sink)?))
    }

    /// The sink must not keep those of other rows.
    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        self.sink.end();
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let memory = MemoryConsumer::new(self.name()).register(task.memory_pool());
        let collecting = Collecting {
            rows: self.input.execute(partition, Arc::clone(&task))?,
            keys: self.keys.clone(),
            collector: Arc::clone(&self.sink).collector(memory),
            baseline: BaselineMetrics::new(&self.metrics, partition),
        };
        let rows = stream::unfold(collecting, |mut collecting| async move {
            let batch = collecting.rows.next().await;
            collecting.see(batch.as_ref());
            batch.map(|batch| (batch, collecting))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        match inputs {
            [input] => Ok(Arc::clone(input)),
            _ => internal_err!("keys are collected of one input, not {}", inputs.len()),
        }
    }
}

struct Collecting {
    rows: SendableRecordBatchStream,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    /// None if the keys are given up.
    collector: Option<Box<dyn KeyCollector>>,
    baseline: BaselineMetrics,
}

impl Collecting {
    /// Records the next batch; None is the end.
    fn see(&mut self, batch: Option<&Result<RecordBatch>>) {
        let _timer = self.baseline.elapsed_compute().timer();
        match batch {
            Some(Ok(batch)) => {
                self.baseline.record_output(batch.num_rows());
                let taken = self.collector.as_mut().is_some_and(|collector| {
                    keys_of(&self.keys, batch).is_ok_and(|keys| collector.add(&keys))
                });
                if !taken {
                    self.collector = None;
                }
            }
            // An error ends the join, and so the keys.
            Some(Err(_)) => self.collector = None,
            None => {
                if let Some(collector) = self.collector.take() {
                    collector.finish();
                }
            }
        }
    }
}

fn keys_of(keys: &[Arc<dyn PhysicalExpr>], batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
    keys.iter().map(|key| key.evaluate(batch)?.into_array(batch.num_rows())).collect()
}

#[cfg(test)]
mod tests;
