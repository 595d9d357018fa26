//! Finds joins of the host's plan whose rows may go from device to device: a plan with its cuts in, the same plan out,
//! with an [`ExchangeExec`] for each such join and for what follows it that devices can do.
//!
//! ```text
//!   AggregateExec(Final)                    host
//!     RepartitionExec                       host
//!       AggregateExec(Partial)  ┐
//!         HashJoinExec          │ becomes   ExchangeExec: the same operators on each device, over rows that devices
//!           FragmentExec        │           send to each other by a hash of the join's keys
//!           FragmentExec        ┘
//! ```
//!
//! Invariant: rows with equal keys meet on one device, so that the join may be one for which this is enough: no join
//! that must know whether the other side has any NULL. Both sides of a key have one type, as equal values of different
//! types have different hashes.

use std::sync::Arc;

use cleave_catalog::settings::When;
use cleave_engine::device::Device;
use cleave_fragment::broadcast::unsendable;
use cleave_fragment::command::peers::OUTPUTS_MAX;
use cleave_fragment::{CollectKeysExec, PeerRowsExec, check_device_operator};
use cleave_plan::cardinality::estimate_rows_with;
use cleave_plan::split::{CutDecision, PlacedCuts, row_bytes};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::JoinType;
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};

use super::host_cuts::HostCuts;
use super::statement_context::StatementContext;
use crate::cooperative::exchanges::{ExchangeExec, ExchangedSide};
use crate::cooperative::fragment_exec::FragmentExec;

/// Rows by way of the host must be predicted to take so many times as long: the estimates of rows are rough.
const MARGIN: f64 = 1.5;
/// Seconds that an exchange takes for each of its devices, to let it in at the others and to begin its runs.
const BEGIN_S: f64 = 0.004;

/// `cuts` with exchanges where the statement's settings ask for them.
pub(super) fn place(
    cuts: PlacedCuts,
    context: &Arc<StatementContext>,
    host: &HostCuts,
) -> Result<PlacedCuts> {
    if context.settings().exchange == When::Never {
        return Ok(cuts);
    }
    let PlacedCuts { plan, decisions, priced } = cuts;
    let mut placing = Placing { context, host, decisions, input_count: 0 };
    let plan = placing.place(plan)?;
    Ok(PlacedCuts { plan, decisions: placing.decisions, priced })
}

struct Placing<'a> {
    context: &'a Arc<StatementContext>,
    host: &'a HostCuts,
    decisions: Vec<CutDecision>,
    /// Inputs of consumers so far.
    input_count: u32,
}

/// A join that may be made by exchange, and what may follow it on the devices.
struct Exchangeable {
    /// What each device runs.
    plan: Arc<dyn ExecutionPlan>,
    sides: [ExchangedSide; 2],
    fragments: [Arc<dyn ExecutionPlan>; 2],
    /// Names of the operators, from the leaves upwards.
    operators: Vec<String>,
    devices: Vec<Arc<Device>>,
    is_aggregated: bool,
}

impl Placing<'_> {
    fn place(&mut self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(exchange) = self.exchange(&plan)? {
            return Ok(exchange);
        }
        // What is broadcast to a fragment is a plan of the host's too.
        let inputs: Vec<Arc<dyn ExecutionPlan>> =
            plan.children().into_iter().map(Arc::clone).collect();
        if inputs.is_empty() {
            return Ok(plan);
        }
        let inputs: Vec<Arc<dyn ExecutionPlan>> =
            inputs.into_iter().map(|input| self.place(input)).collect::<Result<_>>()?;
        replace_children_if_necessary(plan, inputs)
    }

    /// The exchange that makes the rows of `plan`; None: it is none, or does not pay.
    fn exchange(
        &mut self,
        plan: &Arc<dyn ExecutionPlan>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        // What is above relies on how rows are divided among partitions.
        if is_exchange(plan) || matches!(plan.output_partitioning(), Partitioning::Hash(..)) {
            return Ok(None);
        }
        let Some(found) = self.exchangeable(plan)? else { return Ok(None) };
        let pays = match self.context.settings().exchange {
            When::Never => false,
            When::WherePays => self.pays(plan, &found),
            When::Always => true,
        };
        if !pays || found.plan.schema() != plan.schema() {
            return Ok(None);
        }
        let tables = found.fragments.iter().filter_map(|node| node.downcast_ref::<FragmentExec>());
        let tables: Vec<String> = tables.map(FragmentExec::tables).collect();
        self.decisions.push(CutDecision {
            table: tables.join(", "),
            device_operators: found.operators,
            reason: "rows go from device to device".to_owned(),
        });
        self.input_count += 2;
        Ok(Some(Arc::new(ExchangeExec::new(
            self.host.next_number(),
            found.plan,
            found.sides,
            &found.devices,
            Arc::clone(plan),
            Arc::clone(self.context),
        ))))
    }

    fn exchangeable(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Exchangeable>> {
        if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            return self.join(join);
        }
        let aggregate = plan.downcast_ref::<AggregateExec>();
        let is_partial = aggregate.is_some_and(|aggregate| {
            *aggregate.mode() == AggregateMode::Partial && aggregate.limit_options().is_none()
        });
        let is_plain = plan.is::<ProjectionExec>() || plan.is::<FilterExec>();
        let passes = is_exchange(plan);
        if !(is_partial || is_plain || passes) || plan.fetch().is_some() {
            return Ok(None);
        }
        let Some(input) = plan.children().into_iter().next() else { return Ok(None) };
        let found = self.exchangeable(input)?;
        let Some(mut found) = found.filter(|found| !found.is_aggregated) else { return Ok(None) };
        if passes {
            return Ok(Some(found));
        }
        found.plan = replace_children_if_necessary(Arc::clone(plan), vec![found.plan])?;
        if check_device_operator(found.plan.as_ref()).is_some() {
            return Ok(None);
        }
        found.operators.push(plan.name().to_owned());
        found.is_aggregated = is_partial;
        Ok(Some(found))
    }

    /// The join alone.
    fn join(&self, join: &HashJoinExec) -> Result<Option<Exchangeable>> {
        let is_of_keys = matches!(
            join.join_type(),
            JoinType::Inner
                | JoinType::Left
                | JoinType::Right
                | JoinType::Full
                | JoinType::LeftSemi
                | JoinType::LeftAnti
                | JoinType::RightSemi
                | JoinType::RightAnti
        );
        if !is_of_keys || join.null_aware || join.fetch().is_some() {
            return Ok(None);
        }
        let (Some(left), Some(right)) = (fragment(join.left()), fragment(join.right())) else {
            return Ok(None);
        };
        let Some((left_columns, right_columns)) = key_columns(join) else { return Ok(None) };
        let mut devices: Vec<Arc<Device>> = Vec::new();
        for node in [left, right] {
            let computers = node.downcast_ref::<FragmentExec>().and_then(FragmentExec::computers);
            let Some(computers) = computers else { return Ok(None) };
            for device in computers {
                if devices.iter().all(|known| known.id() != device.id()) {
                    devices.push(device);
                }
            }
        }
        let is_sound = 2..=OUTPUTS_MAX as usize;
        if !is_sound.contains(&devices.len()) || !self.host.reach_each_other(&devices) {
            return Ok(None);
        }
        if [left, right].iter().any(|node| unsendable(&node.schema()).is_some()) {
            return Ok(None);
        }
        let [first, second] = [self.input_count, self.input_count + 1];
        let rows = |input, node: &Arc<dyn ExecutionPlan>| {
            Arc::new(PeerRowsExec::new(input, node.schema())) as Arc<dyn ExecutionPlan>
        };
        let plan = join
            .builder()
            .with_new_children(vec![rows(first, left), rows(second, right)])?
            .with_partition_mode(PartitionMode::CollectLeft)
            .reset_state()
            .build_exec()?;
        if check_device_operator(plan.as_ref()).is_some() {
            return Ok(None);
        }
        Ok(Some(Exchangeable {
            operators: vec!["PeerRowsExec".to_owned(), plan.name().to_owned()],
            plan,
            sides: [
                ExchangedSide { input: first, columns: left_columns },
                ExchangedSide { input: second, columns: right_columns },
            ],
            fragments: [Arc::clone(left), Arc::clone(right)],
            devices,
            is_aggregated: false,
        }))
    }

    /// Whether the rows of `plan` are expected clearly sooner by exchange. The host's link carries all rows of both
    /// sides, or only those of the result; links between devices carry them side by side, but for the share that stays
    /// where it is made. The work of joining is left out: it is divided among the devices.
    fn pays(&self, plan: &Arc<dyn ExecutionPlan>, found: &Exchangeable) -> bool {
        if self.host.has_no_link() {
            return false;
        }
        let below = |node: &Arc<dyn ExecutionPlan>| {
            Some(Arc::clone(node.downcast_ref::<FragmentExec>()?.device_plan()))
        };
        let rows = |plan| {
            let known = self.context.estimates();
            estimate_rows_with(plan, &known, &below).first().copied().unwrap_or(f64::INFINITY)
        };
        let mut bytes = 0.0;
        for node in &found.fragments {
            let node = node.downcast_ref::<FragmentExec>();
            let Some(rows) = node.and_then(FragmentExec::row_estimate) else { return false };
            bytes += rows * node.map_or(0.0, |node| row_bytes(&node.schema()));
        }
        let count = found.devices.len() as f64;
        // Each device may have all groups.
        let times = if found.is_aggregated { count } else { 1.0 };
        let result_bytes = rows(plan) * row_bytes(&plan.schema()) * times;
        let rate = self.host.link_bytes_per_second();
        let moved_bytes = bytes * (count - 1.0) / count;
        let by_exchange = moved_bytes / (count * rate) + result_bytes / rate + BEGIN_S * count;
        by_exchange * MARGIN < bytes / rate
    }
}

/// The fragment whose rows `plan` has, however these are divided among partitions.
fn fragment(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    if plan.is::<FragmentExec>() {
        return Some(plan);
    }
    let passes = (is_exchange(plan) || plan.is::<CollectKeysExec>()) && plan.fetch().is_none();
    let input = plan.children().into_iter().next();
    input.filter(|_| passes).and_then(fragment)
}

/// Whether `plan` hands on the rows of its input as they are.
fn is_exchange(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.name() == "CoalesceBatchesExec"
}

/// Places of the key columns of both sides of `join`; None: a key is no plain column, or has no hash that is equal on
/// both sides.
fn key_columns(join: &HashJoinExec) -> Option<(Vec<u32>, Vec<u32>)> {
    let place = |key: &Column| u32::try_from(key.index()).ok();
    let (left, right) = (join.left().schema(), join.right().schema());
    let pairs = join.on().iter().map(|(one, other)| {
        let (one, other) = (one.downcast_ref::<Column>()?, other.downcast_ref::<Column>()?);
        let of_left = left.fields().get(one.index())?.data_type();
        let of_right = right.fields().get(other.index())?.data_type();
        let can_be_hashed = of_left == of_right && has_hash(of_left);
        can_be_hashed.then_some((place(one)?, place(other)?))
    });
    let pairs: Option<Vec<(u32, u32)>> = pairs.collect();
    pairs.filter(|pairs| !pairs.is_empty()).map(|pairs| pairs.into_iter().unzip())
}

/// Whether devices divide rows by values of `data_type`.
fn has_hash(data_type: &DataType) -> bool {
    !data_type.is_nested() && !matches!(data_type, DataType::RunEndEncoded(..) | DataType::Float16)
}
