//! Chooses the order of inner joins and the cuts, one after the other or together: an optimised plan in, a plan with
//! its cuts out.
//!
//! 1. [`reorder_joins`] finds the order with the least work; [`Planning::physical`] makes a physical plan of it;
//!    [`place_cuts`] finds the split that is predicted to be done first.
//! 2. With `join_order_with_split`, other orders that a device could prefer are priced ([`Reordered::others`]), by the
//!    costs of the first plan's scans on either side. The most promising becomes a physical plan with cuts of its own,
//!    and is taken where it is clearly sooner than the first.
//! 3. [`exchanges`] are placed in what was chosen. With `exchange = on`, the split whose joins are all above the cuts
//!    is tried with exchanges, too, and taken where it is clearly sooner with them.
//!
//! Orders are compared where splits are: under `split = auto` with the strategy `makespan`, behind a link. The
//! published equations (`paper`) take the order as it comes.

use std::sync::Arc;

use cleave_catalog::error::{Error, NameKind, Result};
use cleave_catalog::settings::{JoinMethod, JoinOrder, Settings, When};
use cleave_fragment::DenseAggregateExec;
use cleave_plan::cardinality::LeafKey;
use cleave_plan::cost::CostStrategy;
use cleave_plan::join_order::{Ordered, Others, Reordered, reorder_joins};
use cleave_plan::profile::Origin;
use cleave_plan::split::{
    CutContext, PlaceCutsError, PlacedCuts, PricedSplit, SPLIT_JOINS_MAX, Split, leaf_costs,
    place_cuts,
};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{Optimizer, OptimizerRule};
use datafusion::physical_plan::ExecutionPlan;

use super::host_cuts::HostCuts;
use super::planned_input::page_order::order_pages;
use super::statement_context::StatementContext;
use super::{constant_row, exchanges, index_offers, join_method};
use crate::planner;

/// Another order must be predicted to take at most this share of the time: it was chosen for its cuts, and joins more
/// rows.
const SOONER_SHARE: f64 = 0.9;

/// A plan with its cuts, and what it was chosen from.
pub(super) struct Divided {
    pub(super) cuts: PlacedCuts,
    /// The origin of the figures by which splits were priced.
    pub(super) profile: Origin,
    pub(super) orders: ComparedOrders,
}

/// The orders of joins that were compared; none where they were not.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ComparedOrders {
    /// Those that became plans: the one with the least work, then others.
    pub planned: Vec<PricedOrder>,
    /// How many were looked at.
    pub looked_at: usize,
}

/// An order of joins with the split that is best for it.
#[derive(Debug, Clone, PartialEq)]
pub struct PricedOrder {
    /// Its trees of joins, in words: of each join what builds, then what probes.
    pub order: String,
    /// The split.
    pub split: Split,
    /// Seconds until the last row is there, as predicted.
    pub finish_s: f64,
    /// Whether it was chosen.
    pub is_chosen: bool,
}

/// The common planning context of all orders of one statement.
pub(super) struct Planning<'a> {
    pub(super) state: &'a SessionState,
    pub(super) settings: &'a Settings,
    pub(super) context: &'a Arc<StatementContext>,
    pub(super) split: Split,
    /// Every split is priced, also where one is forced.
    pub(super) price_all: bool,
    /// Whether it is all of the statement.
    pub(super) queries: Queries,
}

/// The queries that a statement is planned as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queries {
    /// The statement itself.
    One,
    /// Also those of WITH that run by themselves. A forced split that names joins means those of each, as far as a
    /// device can run so many; one of complete groups is `h0` where there are none.
    Several,
}

impl Planning<'_> {
    /// Orders the joins of `plan`, and places its cuts.
    pub(super) async fn divide(&self, plan: LogicalPlan) -> Result<Divided> {
        let Some(reordered) = self.reordered(&plan)? else {
            let (plan, cuts) = self.physical(plan).await?;
            return self.divided(plan, &cuts);
        };
        if !reordered.keeps_joins {
            return self.divide_ordered(reordered).await;
        }
        // Where the search has chosen no build sides, the sizes of inputs do.
        let mut state = self.state.clone();
        state.config_mut().options_mut().optimizer.join_reordering = true;
        let planning = Planning { state: &state, ..*self };
        planning.divide_ordered(reordered).await
    }

    async fn divide_ordered(&self, reordered: Reordered) -> Result<Divided> {
        let Ordered { plan, estimates, orders } = reordered.cheapest.clone();
        self.context.expect(|known| known.extend(estimates));
        let (plan, cuts) = match orders.is_empty() {
            true => self.physical(plan).await?,
            false => self.physical_of_order(plan).await?,
        };
        let mut best = self.divided(Arc::clone(&plan), &cuts)?;
        if !self.compares_orders(&reordered, &cuts) {
            return Ok(best);
        }
        let mut priced: Vec<PricedOrder> = best.priced_order(&orders).into_iter().collect();
        let mut chosen = 0;
        let others = self.others(&reordered, &plan, &cuts)?;
        for other in others.orders {
            let held = self.context.take_inputs();
            self.context.expect(|known| known.extend(other.estimates));
            let (plan, cuts) = self.physical_of_order(other.plan).await?;
            let divided = self.divided(plan, &cuts)?;
            let order = divided.priced_order(&other.orders);
            let is_taken = match (&order, priced.get(chosen)) {
                (Some(order), Some(best)) => {
                    self.is_forced() || order.finish_s < SOONER_SHARE * best.finish_s
                }
                _ => false,
            };
            if is_taken {
                (best, chosen) = (divided, priced.len());
            } else {
                self.context.put_inputs(held);
            }
            priced.extend(order);
        }
        if let Some(order) = priced.get_mut(chosen) {
            order.is_chosen = true;
        }
        let orders = ComparedOrders { planned: priced, looked_at: others.looked_at };
        Ok(Divided { orders, ..best })
    }

    /// `plan` with its inner joins in the order that the settings want; None: as it is.
    fn reordered(&self, plan: &LogicalPlan) -> Result<Option<Reordered>> {
        let leading: &[String] = match &self.settings.join_order {
            JoinOrder::Written => return Ok(None),
            JoinOrder::Auto => &[],
            JoinOrder::Leading(names) => names,
        };
        planner::give_way();
        let reordered = reorder_joins(plan.clone(), leading, self.context.as_ref())?;
        // A statement without joins has no order.
        let names = &reordered.names;
        let unknown = leading.iter().find(|name| !names.is_empty() && !names.contains(*name));
        if let Some(unknown) = unknown {
            let known: Vec<&str> = names.iter().map(String::as_str).collect();
            let of = format!("what join_order can order here ({})", known.join(", "));
            return Err(Error::unknown(NameKind::Relation, unknown, known).within(of));
        }
        Ok(Some(reordered))
    }

    /// Whether another order may be taken for its cuts.
    fn compares_orders(&self, reordered: &Reordered, cuts: &HostCuts) -> bool {
        self.settings.join_order_with_split != When::Never
            && self.settings.join_order == JoinOrder::Auto
            && self.split == Split::Auto
            && self.settings.cost_strategy == CostStrategy::Makespan
            && cuts.pages_only().is_none()
            && !cuts.shares_host()
            && reordered.has_orders()
    }

    /// Whether another order is taken wherever there is one.
    fn is_forced(&self) -> bool {
        self.settings.join_order_with_split == When::Always
    }

    /// The orders to compare with the one of `plan`.
    fn others(
        &self,
        reordered: &Reordered,
        plan: &Arc<dyn ExecutionPlan>,
        cuts: &HostCuts,
    ) -> Result<Others> {
        let leaves = leaf_costs(plan, &self.context.estimates(), cuts);
        let (profile, limits) = (cuts.profile(), cuts.limits());
        let share_max = if self.is_forced() { f64::INFINITY } else { SOONER_SHARE };
        let leaf = |key: &LeafKey| leaves.get(key).cloned();
        Ok(reordered.others(leaf, (&profile, &limits), share_max)?)
    }

    /// As [`Self::physical`], of a plan whose joins were put in order: they need their conditions lowered and their
    /// columns filtered by an index again.
    async fn physical_of_order(
        &self,
        plan: LogicalPlan,
    ) -> Result<(Arc<dyn ExecutionPlan>, HostCuts)> {
        let rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> =
            vec![Arc::new(PushDownFilter::new()), Arc::new(OptimizeProjections::new())];
        let plan = Optimizer::with_rules(rules).optimize(plan, self.state, |_, _| {})?;
        self.physical(plan).await
    }

    /// The physical plan of `plan`, and what places its cuts.
    async fn physical(&self, plan: LogicalPlan) -> Result<(Arc<dyn ExecutionPlan>, HostCuts)> {
        let &Self { state, settings, context, .. } = self;
        if let Some(plan) = constant_row::physical(state, &plan)? {
            let cuts = HostCuts::new(Arc::clone(context), false).await?;
            return Ok((plan, cuts));
        }
        let plan = match settings.join_method {
            JoinMethod::NestedLoop => join_method::as_nested_loops(plan)?,
            JoinMethod::Auto | JoinMethod::Hash => plan,
        };
        let plan = state.query_planner().create_physical_plan(&plan, state).await?;
        planner::give_way();
        if settings.join_method == JoinMethod::Hash {
            join_method::check_hashed(&plan)?;
        }
        let plan = if settings.dense_aggregates {
            DenseAggregateExec::wherever_it_helps(plan)?
        } else {
            plan
        };
        index_offers::offer_indexes(&plan, context)?;
        order_pages(&plan, context)?;
        let prices_splits = self.price_all || self.split == Split::Auto;
        let cuts = HostCuts::new(Arc::clone(context), prices_splits).await?;
        Ok((plan, cuts))
    }

    /// Places the cuts of `plan`.
    fn divided(&self, plan: Arc<dyn ExecutionPlan>, cuts: &HostCuts) -> Result<Divided> {
        planner::give_way();
        let profile = cuts.profile_origin();
        let mut split = self.split;
        let placed = loop {
            let placed = place_cuts(Arc::clone(&plan), split, self.price_all, cuts);
            match (&placed, split) {
                (
                    Err(PlaceCutsError::Forced { .. }),
                    Split::Hybrid { joins: joins @ 1..=SPLIT_JOINS_MAX, leaves },
                ) if self.queries == Queries::Several => {
                    split = Split::Hybrid { joins: joins - 1, leaves };
                }
                (Err(PlaceCutsError::Forced { .. }), Split::Complete { joins })
                    if self.queries == Queries::Several =>
                {
                    split = match joins {
                        0 => Split::H0,
                        joins => Split::Complete { joins: joins - 1 },
                    };
                }
                _ => break placed,
            }
        };
        let choice = placed.map_err(|error| match error {
            PlaceCutsError::Forced { split: Split::Auto, operator, reason } => {
                let asked = &self.settings.compute_on;
                Error::unsupported(format!(
                    "compute_on \"{asked}\" cannot run this statement: {operator}: {reason}"
                ))
            }
            PlaceCutsError::Forced { .. } => Error::unsupported(error.to_string()),
            PlaceCutsError::Plan(error) => Error::from(error),
        })?;
        let own = exchanges::place(choice, self.context, cuts)?;
        let cuts = self.by_exchange(plan, &own, cuts)?.unwrap_or(own);
        Ok(Divided { cuts, profile, orders: ComparedOrders::default() })
    }

    /// The split of `plan` that leaves all joins to the host, by exchanges in place of these; None: it is not clearly
    /// sooner than `own`, the split that was chosen without a thought of exchanges.
    fn by_exchange(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        own: &PlacedCuts,
        cuts: &HostCuts,
    ) -> Result<Option<PlacedCuts>> {
        let by_cost = self.settings.exchange == When::WherePays
            && self.split == Split::Auto
            && self.settings.cost_strategy == CostStrategy::Makespan;
        let is_other = |priced: &PricedSplit| priced.split == Split::H0 && !priced.is_chosen;
        if !by_cost || cuts.pages_only().is_some() || !own.priced.iter().any(is_other) {
            return Ok(None);
        }
        // What cannot be had is no alternative.
        let Ok(mut other) = place_cuts(plan, Split::H0, true, cuts) else { return Ok(None) };
        for decision in &mut other.decisions {
            "sooner if devices exchange rows".clone_into(&mut decision.reason);
        }
        let other = exchanges::place(other, self.context, cuts)?;
        Ok(Some(other).filter(|other| exchanges::is_clearly_sooner(other, own)))
    }
}

impl Divided {
    /// The order of its joins, with what was predicted of its split.
    fn priced_order(&self, orders: &[String]) -> Option<PricedOrder> {
        let split = self.cuts.priced.iter().find(|split| split.is_chosen)?;
        let finish_s = split.prediction.finish;
        let order = orders.join("; ");
        Some(PricedOrder { order, split: split.split, finish_s, is_chosen: false })
    }
}
