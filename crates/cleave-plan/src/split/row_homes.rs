//! Which device a row lies on by its values: an operator and what is known of its inputs in, the columns that decide
//! out.
//!
//! ```text
//!   AggregateExec: Final, by (a.id, v)     by a.id: each group is whole on one device
//!     AggregateExec: Partial               by a.id
//!       HashJoinExec: a.id = b.id          by a.id and by b.id, which are equal: equal keys meet on one device
//!         TableScanExec: a                 hash (id) on d0, d1, d0, d1
//!         TableScanExec: b                 hash (id) on d0, d1, d0, d1
//! ```
//!
//! A table that is divided by a hash or by ranges of columns has all rows with equal values there, also with NULL, in
//! one tablet ([`TabletKey`](cleave_store::TabletKey)), and a tablet lies on one device with its rows in the delta and
//! those of the transaction. The columns are followed upwards through operators that hand them on.
//!
//! Invariant: where [`RowHomes`] are known of an operator that runs on each device over that device's part of its
//! scans, the rows of all devices together are those of the operator over all parts. Each row is made on the device
//! that the values of these columns say. What needs all rows for another reason (a sort, a limit, an aggregate by other
//! columns) has none.

use std::collections::BTreeSet;
use std::sync::Arc;

use cleave_fragment::functions::pack_key;
use cleave_fragment::{DenseAggregateExec, TableScanExec};
use datafusion_common::JoinType;
use datafusion_common::arrow::datatypes::DataType;
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::aggregates::AggregateExec;
use datafusion_physical_plan::filter::FilterExec;
use datafusion_physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion_physical_plan::projection::ProjectionExec;

use super::CutContext;
use super::numbered_plan::{is_exchange, is_stateless};

/// How values decide on the device of a row. Of two tables with the same, rows with equal keys lie on the same device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TabletHomes {
    /// The keys of the bounds between ranges; None: by hash.
    pub bounds: Option<Vec<Vec<u8>>>,
    /// The types of the key's columns.
    pub types: Vec<DataType>,
    /// The device of each tablet, by its number.
    pub devices: Vec<u32>,
}

/// The division of a scanned table by values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanDivision {
    /// For each column of the key, its places in what the scan returns.
    pub columns: Vec<Vec<usize>>,
    /// How they decide.
    pub homes: TabletHomes,
}

/// The columns whose values say on which device a row is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowHomes {
    homes: Arc<TabletHomes>,
    /// For each column of the key, what tells it.
    key: Vec<KeyColumn>,
}

/// A column of a key, among the columns of an operator. There is at least one that tells it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct KeyColumn {
    /// Places of those that are equal to it.
    equal: BTreeSet<usize>,
    /// Places of those that it follows from.
    told_by: BTreeSet<usize>,
}

impl KeyColumn {
    fn is_told(&self) -> bool {
        !self.equal.is_empty() || !self.told_by.is_empty()
    }

    fn is_told_by(&self, place: usize) -> bool {
        self.equal.contains(&place) || self.told_by.contains(&place)
    }
}

impl RowHomes {
    /// Those of `plan`, whose inputs have `inputs`. `meets`: it is a join, both of whose inputs are each device's own.
    pub(super) fn of(
        plan: &Arc<dyn ExecutionPlan>,
        inputs: &[Option<&Self>],
        meets: bool,
        context: &dyn CutContext,
    ) -> Option<Self> {
        if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
            return Self::of_scan(scan, context);
        }
        if let [collected, streamed] = inputs {
            return Self::of_join(plan.as_ref(), *collected, *streamed, meets);
        }
        let [Some(input)] = inputs else { return None };
        if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
            return input.of_aggregate(aggregate);
        }
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            return input.of_projection(projection);
        }
        if let Some(filter) = plan.downcast_ref::<FilterExec>() {
            let kept = filter.projection().as_deref();
            return input
                .moved(|place| kept_places(kept, place))
                .filter(|_| plan.fetch().is_none());
        }
        let is_plain = is_exchange(plan.as_ref()) || is_stateless(plan.as_ref());
        let hands_on = is_plain && plan.fetch().is_none() || plan.is::<DenseAggregateExec>();
        hands_on.then(|| (*input).clone())
    }

    fn of_scan(scan: &TableScanExec, context: &dyn CutContext) -> Option<Self> {
        if scan.scan().fetch.is_some() {
            return None;
        }
        let ScanDivision { columns, homes } = context.division(scan)?;
        let key = columns.into_iter().map(|places| KeyColumn {
            equal: places.into_iter().collect(),
            told_by: BTreeSet::new(),
        });
        Self { homes: Arc::new(homes), key: key.collect() }.if_told()
    }

    fn if_told(self) -> Option<Self> {
        let is_told = !self.key.is_empty() && self.key.iter().all(KeyColumn::is_told);
        is_told.then_some(self)
    }

    /// The same where the column at a place goes to those that `to` gives.
    fn moved(&self, to: impl Fn(usize) -> Vec<usize>) -> Option<Self> {
        let all = |places: &BTreeSet<usize>| places.iter().flat_map(|place| to(*place)).collect();
        let key = self
            .key
            .iter()
            .map(|own| KeyColumn { equal: all(&own.equal), told_by: all(&own.told_by) });
        Self { homes: Arc::clone(&self.homes), key: key.collect() }.if_told()
    }

    fn of_projection(&self, projection: &ProjectionExec) -> Option<Self> {
        self.moved(|place| {
            let is_it = |expr: &Arc<dyn PhysicalExpr>| {
                expr.downcast_ref::<Column>().is_some_and(|column| column.index() == place)
            };
            let made = projection.expr().iter().enumerate();
            made.filter(|(_, made)| is_it(&made.expr)).map(|(to, _)| to).collect()
        })
    }

    /// Of groups, where all rows of each lie on one device. The columns by which they are made come first.
    fn of_aggregate(&self, aggregate: &AggregateExec) -> Option<Self> {
        let groups = aggregate.group_expr();
        // DataFusion's top-k of groups does not run on a device.
        let is_top = aggregate.limit_options().is_some()
            && !aggregate.is_unordered_unfiltered_group_by_distinct();
        if groups.has_grouping_set() || is_top {
            return None;
        }
        let mut key: Vec<KeyColumn> = Vec::with_capacity(self.key.len());
        for own in &self.key {
            let mut found = KeyColumn::default();
            for (place, (expr, _)) in groups.expr().iter().enumerate() {
                match expr.downcast_ref::<Column>() {
                    Some(column) if own.equal.contains(&column.index()) => {
                        found.equal.insert(place);
                    }
                    Some(column) if own.told_by.contains(&column.index()) => {
                        found.told_by.insert(place);
                    }
                    Some(_) => {}
                    None if packed(expr).iter().any(|column| own.is_told_by(*column)) => {
                        found.told_by.insert(place);
                    }
                    None => {}
                }
            }
            key.push(found);
        }
        Self { homes: Arc::clone(&self.homes), key }.if_told()
    }

    /// Of a join, whose collected rows are all those that any device streams, unless it `meets`.
    fn of_join(
        join: &dyn ExecutionPlan,
        collected: Option<&Self>,
        streamed: Option<&Self>,
        meets: bool,
    ) -> Option<Self> {
        if join.fetch().is_some() {
            return None;
        }
        let (join_type, kept) = if let Some(join) = join.downcast_ref::<HashJoinExec>() {
            (*join.join_type(), join.projection.as_deref())
        } else if let Some(join) = join.downcast_ref::<NestedLoopJoinExec>() {
            (*join.join_type(), join.projection().as_deref())
        } else if join.is::<CrossJoinExec>() {
            (JoinType::Inner, None)
        } else {
            return None;
        };
        let first = *join.children().first()?;
        let width = first.schema().fields().len();
        let homes = match join_type {
            JoinType::Inner => {
                let mut homes = streamed?.moved(|place| vec![place + width])?;
                for (one, other) in pairs_of(join) {
                    let own = homes.key.iter_mut();
                    own.filter(|own| own.equal.contains(&(other + width))).for_each(|own| {
                        own.equal.insert(one);
                    });
                }
                homes
            }
            JoinType::Right => streamed?.moved(|place| vec![place + width])?,
            JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => streamed?.clone(),
            // Columns of the other side are NULL where there was no match.
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti if meets => collected?.clone(),
            JoinType::Left
            | JoinType::LeftSemi
            | JoinType::LeftAnti
            | JoinType::LeftMark
            | JoinType::Full => return None,
        };
        homes.moved(|place| kept_places(kept, place))
    }
}

/// Whether rows that `join` joins lie on the same device, where `collected` and `streamed` are known of its inputs, so
/// that each device may join its own rows.
pub(super) fn meet(
    join: &dyn ExecutionPlan,
    collected: Option<&RowHomes>,
    streamed: Option<&RowHomes>,
) -> bool {
    let Some(hash_join) = join.downcast_ref::<HashJoinExec>() else { return false };
    // NOT IN must know of NULLs on other devices.
    let is_of_keys = !hash_join.null_aware
        && join.fetch().is_none()
        && matches!(
            hash_join.join_type(),
            JoinType::Inner
                | JoinType::Left
                | JoinType::Right
                | JoinType::Full
                | JoinType::LeftSemi
                | JoinType::LeftAnti
                | JoinType::RightSemi
                | JoinType::RightAnti
        );
    let (Some(collected), Some(streamed), true) = (collected, streamed, is_of_keys) else {
        return false;
    };
    let pairs = pairs_of(join);
    let is_joined = |(one, other): (&KeyColumn, &KeyColumn)| {
        let mut pairs = pairs.iter();
        pairs.any(|(left, right)| one.equal.contains(left) && other.equal.contains(right))
    };
    collected.homes == streamed.homes && collected.key.iter().zip(&streamed.key).all(is_joined)
}

/// The places of the columns of one type that `join` takes to be equal: of its first input, and of its second.
fn pairs_of(join: &dyn ExecutionPlan) -> Vec<(usize, usize)> {
    let Some(join) = join.downcast_ref::<HashJoinExec>() else { return Vec::new() };
    let (left, right) = (join.left().schema(), join.right().schema());
    let pairs = join.on().iter().filter_map(|(one, other)| {
        let (one, other) = (one.downcast_ref::<Column>()?, other.downcast_ref::<Column>()?);
        let (one, other) = (one.index(), other.index());
        let of_left = left.fields().get(one)?.data_type();
        let of_right = right.fields().get(other)?.data_type();
        (of_left == of_right).then_some((one, other))
    });
    pairs.collect()
}

/// The places of the columns that the group key `expr` has packed into one value; none if it is no such key.
fn packed(expr: &Arc<dyn PhysicalExpr>) -> Vec<usize> {
    let function = expr.downcast_ref::<ScalarFunctionExpr>();
    let Some(function) = function.filter(|own| own.fun().name() == pack_key().name()) else {
        return Vec::new();
    };
    let columns = function.args().iter().filter_map(|part| part.downcast_ref::<Column>());
    columns.map(Column::index).collect()
}

/// Where the column at `place` is among those that are `kept`; None: all are.
fn kept_places(kept: Option<&[usize]>, place: usize) -> Vec<usize> {
    match kept {
        None => vec![place],
        Some(kept) => {
            let kept = kept.iter().enumerate();
            kept.filter(|(_, from)| **from == place).map(|(to, _)| to).collect()
        }
    }
}
