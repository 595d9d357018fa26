//! Finds partial results that an engine of each storage node may merge before they cross the host's link: a fragment of
//! the host's plan in, a gather of its rows out.
//!
//! ```text
//!   AggregateExec(Final)         host
//!     GatherExec                 host: what comes of the nodes
//!       AggregateExec(PartialReduce)   one engine of each node: states of all engines there, merged to states
//!         PeerRowsExec
//!           FragmentExec         devices: AggregateExec(Partial), each over its own pages
//! ```
//!
//! Invariant: what is above the fragment merges its rows anyway, and cannot tell whether they were merged before:
//! states of groups, or the best rows of each device.

use std::cmp::Reverse;
use std::sync::Arc;

use cleave_catalog::settings::When;
use cleave_fragment::command::peers::OUTPUTS_MAX;
use cleave_fragment::{PeerRowsExec, check_device_operator};
use cleave_plan::split::{CutDecision, row_bytes};
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::sorts::sort::SortExec;

use super::{BEGIN_S, MARGIN, Placing, partial_of, unsendable};
use crate::cooperative::exchanges::ExchangeExec;
use crate::cooperative::fragment_exec::FragmentExec;
use crate::cooperative::gathering::{Gatherer, pages_at};
use crate::select::host_cuts::Engine;

impl Placing<'_> {
    /// The gather of the rows of `plan`, if it is a fragment whose rows are merged on nodes of several engines.
    pub(super) fn gather(
        &mut self,
        plan: &Arc<dyn ExecutionPlan>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let setting = self.context.settings().gather;
        let fragment = plan.downcast_ref::<FragmentExec>().filter(|_| setting != When::Never);
        let Some(fragment) = fragment else { return Ok(None) };
        if unsendable(&plan.schema()).is_some() {
            return Ok(None);
        }
        let Some(gatherers) = self.gatherers(fragment) else { return Ok(None) };
        let input = self.input_count;
        let rows: Arc<dyn ExecutionPlan> = Arc::new(PeerRowsExec::new(input, plan.schema()));
        let leaf = rows.name().to_owned();
        let Some(merging) = merging(fragment.device_plan(), rows)? else { return Ok(None) };
        if check_device_operator(&*merging).is_some() || merging.schema() != plan.schema() {
            return Ok(None);
        }
        let (gathered_s, sent_s) = self.gather_seconds(fragment, plan, gatherers.len());
        if setting == When::WherePays && gathered_s * MARGIN >= sent_s {
            return Ok(None);
        }
        self.saved_s += (sent_s - gathered_s).max(0.0);
        self.decisions.push(CutDecision {
            table: fragment.tables(),
            device_operators: vec![leaf, merging.name().to_owned()],
            reason: "partial results are merged on their node".to_owned(),
        });
        self.input_count += 1;
        Ok(Some(Arc::new(ExchangeExec::gathering(
            self.host.next_number(),
            (merging, input),
            gatherers,
            Arc::clone(plan),
            Arc::clone(self.context),
        ))))
    }

    /// The engine of each node that has least to do, for each of its cores: for others, then for `fragment`. None: a
    /// device is of no node, or no node has several.
    fn gatherers(&self, fragment: &FragmentExec) -> Option<Vec<Gatherer>> {
        let nodes = self.host.by_node(&fragment.computers()?)?;
        let is_sound = nodes.len() <= OUTPUTS_MAX as usize;
        if !is_sound || nodes.values().all(|engines| engines.len() < 2) {
            return None;
        }
        let gatherers = nodes.into_iter().map(|(node, engines)| {
            let busy = |engine: &&Engine| {
                let cores = engine.cores.max(1);
                let pages = pages_at(fragment, &engine.device);
                (engine.queue / u64::from(cores), pages / cores as usize, Reverse(cores))
            };
            let device = Arc::clone(&engines.iter().min_by_key(busy)?.device);
            let engines = engines.iter().map(|engine| engine.device.id()).collect();
            Some(Gatherer { node, device, engines })
        });
        gatherers.collect()
    }

    /// Seconds that the host's link takes for the rows of `plan`, the `fragment`, if nodes merge them first, and if
    /// they do not: it carries what is left of each node, or of each device. Within a node nothing crosses a link.
    /// Zeros: there is no link, or nothing was priced.
    fn gather_seconds(
        &self,
        fragment: &FragmentExec,
        plan: &Arc<dyn ExecutionPlan>,
        node_count: usize,
    ) -> (f64, f64) {
        let devices = fragment.computers().unwrap_or_default().len() as f64;
        let estimates = fragment.row_estimate().zip(self.rows_sent(fragment, devices));
        let Some((rows, sent)) = estimates.filter(|_| !self.host.has_no_link()) else {
            return (0.0, 0.0);
        };
        let nodes = node_count as f64;
        let gathered = (rows * nodes).min(sent);
        let second = self.host.link_bytes_per_second() / row_bytes(&plan.schema()).max(1.0);
        (gathered / second + BEGIN_S * nodes, sent / second)
    }
}

/// What merges `rows`, those that devices make by `plan`, to rows of the same kind; None: nothing does.
fn merging(
    plan: &Arc<dyn ExecutionPlan>,
    rows: Arc<dyn ExecutionPlan>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(partial) = partial_of(plan) {
        if partial.limit_options().is_some() {
            return Ok(None);
        }
        let functions = partial.aggr_expr().to_vec();
        let filters = vec![None; functions.len()];
        return Ok(Some(Arc::new(AggregateExec::try_new(
            AggregateMode::PartialReduce,
            partial.group_expr().as_final(),
            functions,
            filters,
            rows,
            partial.input_schema(),
        )?)));
    }
    let top = plan.downcast_ref::<SortExec>().filter(|sort| sort.fetch().is_some());
    Ok(top.map(|sort| {
        let merged = SortExec::new(sort.expr().clone(), rows).with_fetch(sort.fetch());
        Arc::new(merged) as Arc<dyn ExecutionPlan>
    }))
}
