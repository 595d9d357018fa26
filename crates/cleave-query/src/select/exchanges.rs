//! Finds joins and groups of the host's plan whose rows may go from device to device: a plan with its cuts in, the same
//! plan out, with an [`ExchangeExec`] for each of them and for what follows it that devices can do.
//!
//! ```text
//!   AggregateExec(Final)                    host
//!     RepartitionExec                       host
//!       AggregateExec(Partial)  ┐
//!         HashJoinExec          │ becomes   ExchangeExec: the same operators on each device, over rows that devices
//!           FragmentExec        │           send to each other by a hash of the join's keys
//!           FragmentExec        ┘
//!
//!   SortExec(TopK)                          host, and on each device
//!     FilterExec                ┐
//!       AggregateExec(Final)    │ becomes   ExchangeExec: complete groups of each device, over partial ones that
//!         RepartitionExec       │           devices send to each other by a hash of the groups' keys
//!           FragmentExec        ┘
//! ```
//!
//! Invariant: rows with equal keys meet on one device, so that the join may be one for which this is enough: no join
//! that must know whether the other side has any NULL. Both sides of a key have one type, as equal values of different
//! types have different hashes. Groups are completed where all of their rows meet: over partial groups that are divided
//! by all of their keys, or over a join all of whose keys are among theirs.
//!
//! Partial results that come to the host all the same may be merged on the nodes of their devices: [`gathers`].
//!
//! Exchanges are placed once the cuts are. What they save is taken from the time that was predicted of the split, so
//! that it can be compared with others: [`is_clearly_sooner`].

use std::sync::Arc;

use cleave_catalog::settings::When;
use cleave_engine::device::Device;
use cleave_fragment::broadcast::unsendable;
use cleave_fragment::command::peers::{OUTPUTS_MAX, Outputs};
use cleave_fragment::{CollectKeysExec, DenseAggregateExec, PeerRowsExec, check_device_operator};
use cleave_plan::cardinality::estimate_rows_with;
use cleave_plan::cost::Prediction;
use cleave_plan::split::{CutDecision, PlacedCuts, is_exchange, row_bytes};
use datafusion::common::JoinType;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};

use super::host_cuts::HostCuts;
use super::statement_context::StatementContext;
use crate::cooperative::exchanges::{ExchangeExec, ExchangedSide};
use crate::cooperative::fragment_exec::FragmentExec;

mod gathers;

/// Rows by way of the host must be predicted to take so many times as long: the estimates of rows are rough.
const MARGIN: f64 = 1.5;
/// Seconds that an exchange takes for each of its devices, to let it in at the others and to begin its runs.
const BEGIN_S: f64 = 0.004;

/// `cuts` with exchanges where the statement's settings ask for them, and the time predicted of them.
pub(super) fn place(
    cuts: PlacedCuts,
    context: &Arc<StatementContext>,
    host: &HostCuts,
) -> Result<PlacedCuts> {
    let settings = context.settings();
    if settings.exchange == When::Never && settings.gather == When::Never {
        return Ok(cuts);
    }
    let PlacedCuts { plan, decisions, mut priced } = cuts;
    let mut placing = Placing { context, host, decisions, input_count: 0, saved_s: 0.0 };
    let plan = placing.place(plan, true)?;
    for chosen in priced.iter_mut().filter(|priced| priced.is_chosen) {
        chosen.prediction.finish = finish_without(placing.saved_s, &chosen.prediction);
    }
    Ok(PlacedCuts { plan, decisions: placing.decisions, priced })
}

/// When the last row is there, if links carry for so much less time than predicted: what devices do takes as long.
fn finish_without(saved_s: f64, predicted: &Prediction) -> f64 {
    (predicted.finish - saved_s).max(predicted.device_busy).min(predicted.finish)
}

/// Whether `other` is predicted to be done clearly sooner than `cuts`.
pub(super) fn is_clearly_sooner(other: &PlacedCuts, cuts: &PlacedCuts) -> bool {
    let finish = |cuts: &PlacedCuts| {
        let chosen = cuts.priced.iter().find(|priced| priced.is_chosen)?;
        chosen.prediction.fits.then_some(chosen.prediction.finish)
    };
    match (finish(other), finish(cuts)) {
        (Some(other), Some(own)) => other * MARGIN < own,
        _ => false,
    }
}

struct Placing<'a> {
    context: &'a Arc<StatementContext>,
    host: &'a HostCuts,
    decisions: Vec<CutDecision>,
    /// Inputs of consumers so far.
    input_count: u32,
    /// Seconds that links are expected to carry less, because of all exchanges so far.
    saved_s: f64,
}

/// What may be made by exchange: a join or groups, and what may follow it on the devices.
struct Exchangeable {
    /// What each device runs.
    plan: Arc<dyn ExecutionPlan>,
    /// Of a join both, of groups the one that has the partial ones.
    sides: Vec<ExchangedSide>,
    /// One for each side.
    fragments: Vec<Arc<dyn ExecutionPlan>>,
    /// Names of the operators, from the leaves upwards.
    operators: Vec<String>,
    devices: Vec<Arc<Device>>,
    made: Made,
}

/// What the devices make of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    /// Rows of the result, each on one device.
    Rows,
    /// Partial groups, of which each device may have all.
    PartialGroups,
}

impl Placing<'_> {
    /// `is_free`: nothing above relies on how the rows of `plan` are divided among partitions.
    fn place(
        &mut self,
        plan: Arc<dyn ExecutionPlan>,
        is_free: bool,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let exchange = match self.context.settings().exchange {
            When::Never => None,
            When::WherePays | When::Always => self.exchange(&plan, is_free)?,
        };
        let replaced = match exchange {
            Some(exchange) => Some(exchange),
            None => self.gather(&plan)?,
        };
        if let Some(replaced) = replaced {
            return Ok(replaced);
        }
        // What is broadcast to a fragment is a plan of the host's too.
        let inputs: Vec<Arc<dyn ExecutionPlan>> =
            plan.children().into_iter().map(Arc::clone).collect();
        if inputs.is_empty() {
            return Ok(plan);
        }
        let is_free = frees_input(&plan, is_free);
        let inputs: Vec<Arc<dyn ExecutionPlan>> =
            inputs.into_iter().map(|input| self.place(input, is_free)).collect::<Result<_>>()?;
        replace_children_if_necessary(plan, inputs)
    }

    /// The exchange that makes the rows of `plan`; None: it is none, or does not pay.
    fn exchange(
        &mut self,
        plan: &Arc<dyn ExecutionPlan>,
        is_free: bool,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        // The best rows of each device are among the best of all, which the host finds.
        let top = plan.downcast_ref::<SortExec>().filter(|sort| sort.fetch().is_some());
        let replaced = top.map_or(plan, SortExec::input);
        let is_divided = matches!(replaced.output_partitioning(), Partitioning::Hash(..));
        if only_moves_rows(plan) || is_divided && !is_free {
            return Ok(None);
        }
        let Some(mut found) = self.exchangeable(replaced)? else { return Ok(None) };
        if found.plan.schema() != replaced.schema() {
            return Ok(None);
        }
        if let Some(top) = top {
            if found.made != Made::Rows {
                return Ok(None);
            }
            let sort = SortExec::new(top.expr().clone(), found.plan)
                .with_fetch(top.fetch())
                .with_preserve_partitioning(true);
            found.plan = Arc::new(sort);
            if check_device_operator(found.plan.as_ref()).is_some() {
                return Ok(None);
            }
            found.operators.push(found.plan.name().to_owned());
        }
        let (traffic, rate) = (self.traffic(plan, &found), self.host.link_bytes_per_second());
        let pays = traffic.is_some_and(|traffic| traffic.is_sooner_by_exchange(rate));
        if self.context.settings().exchange == When::WherePays && !pays {
            return Ok(None);
        }
        self.saved_s += traffic.map_or(0.0, |traffic| traffic.saved_s(rate));
        let tables = found.fragments.iter().filter_map(|node| node.downcast_ref::<FragmentExec>());
        let tables: Vec<String> = tables.map(FragmentExec::tables).collect();
        self.decisions.push(CutDecision {
            table: tables.join(", "),
            device_operators: found.operators,
            reason: "rows go from device to device".to_owned(),
        });
        self.input_count += u32::try_from(found.sides.len()).unwrap_or(u32::MAX);
        let exchange: Arc<dyn ExecutionPlan> = Arc::new(ExchangeExec::new(
            self.host.next_number(),
            found.plan,
            found.sides,
            &found.devices,
            Arc::clone(replaced),
            Arc::clone(self.context),
        ));
        Ok(Some(match top {
            Some(_) => replace_children_if_necessary(Arc::clone(plan), vec![exchange])?,
            None => exchange,
        }))
    }

    fn exchangeable(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Exchangeable>> {
        if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            return self.join(join);
        }
        let aggregate = plan.downcast_ref::<AggregateExec>();
        if let Some(aggregate) = aggregate.filter(|aggregate| is_final(aggregate)) {
            return self.groups(aggregate);
        }
        let is_partial = aggregate.is_some_and(|aggregate| {
            *aggregate.mode() == AggregateMode::Partial && aggregate.limit_options().is_none()
        });
        let is_plain = plan.is::<ProjectionExec>() || plan.is::<FilterExec>();
        let passes = only_moves_rows(plan);
        if !(is_partial || is_plain || passes) || plan.fetch().is_some() {
            return Ok(None);
        }
        let Some(input) = plan.children().into_iter().next() else { return Ok(None) };
        let Some(mut found) = self.exchangeable(input)? else { return Ok(None) };
        if passes {
            return Ok(Some(found));
        }
        if found.made != Made::Rows {
            return Ok(None);
        }
        found.plan = replace_children_if_necessary(Arc::clone(plan), vec![found.plan])?;
        if is_partial {
            found.made = Made::PartialGroups;
        }
        Ok(found.with_top())
    }

    /// The groups that `aggregate` completes, where it has keys.
    fn groups(&self, aggregate: &AggregateExec) -> Result<Option<Exchangeable>> {
        if aggregate.limit_options().is_some() || aggregate.group_expr().is_empty() {
            return Ok(None);
        }
        let found = match fragment(aggregate.input()) {
            Some(partial) => self.partial_groups(aggregate, partial)?,
            None => {
                let found = self.exchangeable(aggregate.input())?;
                found.filter(|found| has_whole_groups(&found.plan))
            }
        };
        let Some(mut found) = found else { return Ok(None) };
        // One partition of a device has all that comes there.
        found.plan = Arc::new(AggregateExec::try_new(
            AggregateMode::Final,
            aggregate.group_expr().clone(),
            aggregate.aggr_expr().to_vec(),
            aggregate.filter_expr().to_vec(),
            found.plan,
            aggregate.input_schema(),
        )?);
        found.made = Made::Rows;
        Ok(found.with_top())
    }

    /// The rows of `partial`, groups that `aggregate` completes, divided by all of their keys.
    fn partial_groups(
        &self,
        aggregate: &AggregateExec,
        partial: &Arc<dyn ExecutionPlan>,
    ) -> Result<Option<Exchangeable>> {
        let schema = partial.schema();
        let keys = aggregate.group_expr().input_exprs();
        let columns = keys.iter().map(|key| {
            let place = key.downcast_ref::<Column>()?.index();
            let can_be_hashed = Outputs::may_divide_by(schema.fields().get(place)?.data_type());
            u32::try_from(place).ok().filter(|_| can_be_hashed)
        });
        let Some(columns) = columns.collect::<Option<Vec<u32>>>() else { return Ok(None) };
        let Some(devices) = self.devices_of(&[partial]) else { return Ok(None) };
        let input = self.input_count;
        let plan = Arc::new(PeerRowsExec::new(input, schema));
        Ok(Some(Exchangeable {
            operators: vec![plan.name().to_owned()],
            plan,
            sides: vec![ExchangedSide { input, columns }],
            fragments: vec![Arc::clone(partial)],
            devices,
            made: Made::PartialGroups,
        }))
    }

    /// The devices that run the `fragments`, which may send each other all of their rows.
    fn devices_of(&self, fragments: &[&Arc<dyn ExecutionPlan>]) -> Option<Vec<Arc<Device>>> {
        let mut devices: Vec<Arc<Device>> = Vec::new();
        for node in fragments {
            for device in node.downcast_ref::<FragmentExec>()?.computers()? {
                if devices.iter().all(|known| known.id() != device.id()) {
                    devices.push(device);
                }
            }
        }
        let is_sound = 2..=OUTPUTS_MAX as usize;
        let may_meet = is_sound.contains(&devices.len()) && self.host.reach_each_other(&devices);
        let are_sendable = fragments.iter().all(|node| unsendable(&node.schema()).is_none());
        (may_meet && are_sendable).then_some(devices)
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
        let Some(devices) = self.devices_of(&[left, right]) else { return Ok(None) };
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
        let found = Exchangeable {
            operators: vec!["PeerRowsExec".to_owned()],
            plan,
            sides: vec![
                ExchangedSide { input: first, columns: left_columns },
                ExchangedSide { input: second, columns: right_columns },
            ],
            fragments: vec![Arc::clone(left), Arc::clone(right)],
            devices,
            made: Made::Rows,
        };
        Ok(found.with_top())
    }

    /// What would cross links for the rows of `plan`; None: there are none, or nothing was priced.
    fn traffic(&self, plan: &Arc<dyn ExecutionPlan>, found: &Exchangeable) -> Option<Traffic> {
        if self.host.has_no_link() {
            return None;
        }
        let device_count = found.devices.len() as f64;
        let mut sent_bytes = 0.0;
        for node in &found.fragments {
            let fragment = node.downcast_ref::<FragmentExec>()?;
            let rows = self.rows_sent(fragment, device_count)?;
            sent_bytes += rows * row_bytes(&node.schema());
        }
        let is_of_each = found.made == Made::PartialGroups || found.plan.fetch().is_some();
        let times = if is_of_each { device_count } else { 1.0 };
        let result_bytes = self.rows(plan) * row_bytes(&plan.schema()) * times;
        Some(Traffic { sent_bytes, result_bytes, device_count })
    }

    /// Rows expected of all runs of `fragment`, on so many devices; None: it was not priced.
    fn rows_sent(&self, fragment: &FragmentExec, device_count: f64) -> Option<f64> {
        let rows = fragment.row_estimate()?;
        let plan = fragment.device_plan();
        Some(match partial_of(plan) {
            // Each device has those groups that its own rows are of.
            Some(partial) => (rows * device_count).min(self.rows(partial.input())).max(rows),
            None if plan.fetch().is_some() => rows * device_count,
            None => rows,
        })
    }

    /// Rows expected of `plan`.
    fn rows(&self, plan: &Arc<dyn ExecutionPlan>) -> f64 {
        let below = |node: &Arc<dyn ExecutionPlan>| {
            Some(Arc::clone(node.downcast_ref::<FragmentExec>()?.device_plan()))
        };
        let known = self.context.estimates();
        estimate_rows_with(plan, &known, &below).first().copied().unwrap_or(f64::INFINITY)
    }
}

impl Exchangeable {
    /// It, if a device can run the operator at the top of its plan, which has come last.
    fn with_top(mut self) -> Option<Self> {
        self.operators.push(self.plan.name().to_owned());
        check_device_operator(self.plan.as_ref()).is_none().then_some(self)
    }
}

/// What would cross links. The host's link carries all rows of both sides, or all partial groups of all devices, or
/// only those of the result; links between devices carry them side by side, but for the share that stays where it is
/// made. The work of joining and grouping is left out: it is divided among the devices.
#[derive(Debug, Clone, Copy)]
struct Traffic {
    /// Bytes of what devices send: to the host, or to each other.
    sent_bytes: f64,
    /// Bytes of what devices make of it, which go to the host.
    result_bytes: f64,
    device_count: f64,
}

impl Traffic {
    /// Seconds from device to device, and by way of the host, over links of `rate` bytes in a second.
    fn seconds(self, rate: f64) -> (f64, f64) {
        let Self { sent_bytes, result_bytes, device_count } = self;
        let moved_bytes = sent_bytes * (device_count - 1.0) / device_count;
        let begin_s = BEGIN_S * device_count;
        let by_exchange = moved_bytes / (device_count * rate) + result_bytes / rate + begin_s;
        (by_exchange, sent_bytes / rate)
    }

    /// Whether it is clearly sooner from device to device.
    fn is_sooner_by_exchange(self, rate: f64) -> bool {
        let (by_exchange, by_host) = self.seconds(rate);
        by_exchange * MARGIN < by_host
    }

    /// Seconds that are saved from device to device.
    fn saved_s(self, rate: f64) -> f64 {
        let (by_exchange, by_host) = self.seconds(rate);
        (by_host - by_exchange).max(0.0)
    }
}

/// Whether nothing above the input of `plan` relies on how its rows are divided among partitions, where nothing above
/// `plan` does if `is_free`.
fn frees_input(plan: &Arc<dyn ExecutionPlan>, is_free: bool) -> bool {
    let is_partial = |aggregate: &AggregateExec| *aggregate.mode() == AggregateMode::Partial;
    let keeps = plan.is::<ProjectionExec>()
        || plan.is::<FilterExec>()
        || plan.is::<SortExec>()
        || plan.downcast_ref::<AggregateExec>().is_some_and(is_partial);
    keeps && is_free
        || plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<SortPreservingMergeExec>()
}

/// Whether `aggregate` completes partial groups.
fn is_final(aggregate: &AggregateExec) -> bool {
    matches!(aggregate.mode(), AggregateMode::Final | AggregateMode::FinalPartitioned)
}

/// The partial aggregate that makes the rows of `plan`, if one does.
fn partial_of(plan: &Arc<dyn ExecutionPlan>) -> Option<&AggregateExec> {
    let dense = plan.downcast_ref::<DenseAggregateExec>();
    let top = dense.map_or(plan, DenseAggregateExec::aggregate).downcast_ref::<AggregateExec>();
    top.filter(|aggregate| *aggregate.mode() == AggregateMode::Partial)
}

/// Whether each device has all rows of the groups of `plan`, a partial aggregate over a join by exchange: all keys of
/// the join are among those of the groups.
fn has_whole_groups(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let Some(partial) = partial_of(plan) else { return false };
    // A set of keys leaves some of them out.
    if !partial.group_expr().is_single() {
        return false;
    }
    let keys = partial.group_expr().input_exprs();
    let columns = keys.iter().filter_map(|key| Some(key.downcast_ref::<Column>()?.index()));
    fix_join_keys(columns.collect(), partial.input())
}

/// Whether rows of `plan`, which lies above a join by exchange, are of one device if they are equal in these columns.
fn fix_join_keys(columns: Vec<usize>, plan: &Arc<dyn ExecutionPlan>) -> bool {
    let through = |projection: Option<&[usize]>| match projection {
        Some(places) => columns.iter().filter_map(|column| places.get(*column).copied()).collect(),
        None => columns.clone(),
    };
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        return fix_join_keys(through(filter.projection().as_deref()), filter.input());
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let made = columns.iter().filter_map(|column| projection.expr().get(*column));
        let kept = made.filter_map(|made| Some(made.expr.downcast_ref::<Column>()?.index()));
        return fix_join_keys(kept.collect(), projection.input());
    }
    let Some(join) = plan.downcast_ref::<HashJoinExec>() else { return false };
    let columns: Vec<usize> = through(join.projection.as_deref());
    let left_count = join.left().schema().fields().len();
    join.on().iter().all(|(left, right)| {
        let place = |key: &Arc<dyn PhysicalExpr>| Some(key.downcast_ref::<Column>()?.index());
        let (Some(left), Some(right)) = (place(left), place(right)) else { return false };
        let (has_left, has_right) =
            (columns.contains(&left), columns.contains(&(left_count + right)));
        match join.join_type() {
            JoinType::Inner => has_left || has_right,
            // Rows without a partner have NULLs for the other side, wherever they are.
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti => has_left,
            JoinType::Right => has_right,
            JoinType::RightSemi | JoinType::RightAnti => columns.contains(&right),
            _ => false,
        }
    })
}

/// The fragment whose rows `plan` has, however these are divided among partitions.
fn fragment(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    if plan.is::<FragmentExec>() {
        return Some(plan);
    }
    let passes = (only_moves_rows(plan) || plan.is::<CollectKeysExec>()) && plan.fetch().is_none();
    let input = plan.children().into_iter().next();
    input.filter(|_| passes).and_then(fragment)
}

/// Whether `plan` hands on the rows of its input as they are, in no order.
fn only_moves_rows(plan: &Arc<dyn ExecutionPlan>) -> bool {
    is_exchange(plan.as_ref()) && !plan.is::<SortPreservingMergeExec>()
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
        let can_be_hashed = of_left == of_right && Outputs::may_divide_by(of_left);
        can_be_hashed.then_some((place(one)?, place(other)?))
    });
    let pairs: Option<Vec<(u32, u32)>> = pairs.collect();
    pairs.filter(|pairs| !pairs.is_empty()).map(|pairs| pairs.into_iter().unzip())
}

#[cfg(test)]
mod tests {
    //! What is worth sending from device to device, and what that is worth.

    use cleave_plan::cost::Prediction;

    use super::{Traffic, finish_without};

    const RATE: f64 = 1e8;

    fn is_sooner(sent_bytes: f64, result_bytes: f64, device_count: f64) -> bool {
        Traffic { sent_bytes, result_bytes, device_count }.is_sooner_by_exchange(RATE)
    }

    #[test]
    fn much_that_becomes_little_is_exchanged() {
        assert!(is_sooner(1e9, 1e6, 2.0));
        assert!(is_sooner(1e9, 1e8, 8.0));
    }

    #[test]
    fn what_is_little_or_stays_much_goes_to_the_host() {
        assert!(!is_sooner(1e4, 1e2, 2.0), "less than the runs take to begin");
        assert!(!is_sooner(1e9, 1e9, 8.0), "all of it comes to the host anyway");
        assert!(!is_sooner(1e6, 1e3, 64.0), "many devices to begin with");
    }

    #[test]
    fn what_devices_do_is_not_saved() {
        let predicted = Prediction { finish: 3.0, device_busy: 1.0, ..Prediction::default() };
        assert!((finish_without(1.5, &predicted) - 1.5).abs() < 1e-9);
        assert!((finish_without(2.5, &predicted) - 1.0).abs() < 1e-9);
        let by_device = Prediction { finish: 3.0, device_busy: 4.0, ..Prediction::default() };
        assert!((finish_without(1.0, &by_device) - 3.0).abs() < 1e-9);
        let traffic = Traffic { sent_bytes: 1e8, result_bytes: 1e7, device_count: 2.0 };
        assert!((traffic.saved_s(1e8) - (1.0 - 0.25 - 0.1 - 0.008)).abs() < 1e-9);
    }
}
