//! A query between its planning and its run, as the queries of a batch are: what it shares with the others decides when
//! it runs ([`cleave_plan::batch`]).

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use cleave_catalog::catalog::view::MadeOf;
use cleave_catalog::catalog::{CatalogState, DeviceId};
use cleave_catalog::error::Result;
use cleave_catalog::settings::Settings;
use cleave_fragment::TableScanExec;
use cleave_plan::batch::BatchQuery;
use cleave_plan::split::row_bytes;
use cleave_sql::statement::names::fold;
use cleave_sql::statement::parse::parse_query;
use cleave_sql::visiting::visit_relations;
use cleave_store::ColumnRef;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::sqlparser::ast;

use super::statement_function::called;
use super::{
    PlannedQuery, Purpose, QueryRequest, RunningQuery, advisory_functions, backend_functions, plan,
    result_functions, sequence_functions,
};
use crate::cooperative::fragment_exec::FragmentExec;
use crate::query_engine::QueryEngine;
use crate::query_log::{OpenRecord, RunsAgain};

/// Bytes of a plan, about, without its lists of pages.
const PLAN_BYTES: usize = 64 << 10;
/// The same of a page: it is listed for its scan, and for the part on its device.
const PAGE_BYTES: usize = 64;

/// A planned query with its record in the query log.
pub struct LoggedQuery {
    planned: Box<PlannedQuery>,
    record: Option<OpenRecord>,
}

impl LoggedQuery {
    /// Plans a query, which is entered in the query log as `text`, whatever becomes of it.
    ///
    /// # Errors
    /// Those of planning it.
    pub async fn plan(
        database: &Arc<QueryEngine>,
        settings: &Settings,
        asked: QueryRequest<'_>,
        text: &str,
    ) -> Result<Self> {
        let mut record = database.query_log().begin(settings, text);
        match Box::pin(plan(database, settings, asked, Purpose::Statement)).await {
            Ok(mut planned) => {
                if let Some(record) = &mut record {
                    record.planned(&planned);
                }
                if let Some(to_hold) = &mut planned.to_hold {
                    to_hold.note_text(text);
                }
                if let Some(staging) = &mut planned.staging {
                    staging.note_text(text);
                }
                Ok(Self { planned: Box::new(planned), record })
            }
            Err(error) => {
                if let Some(record) = record {
                    record.fail(error.sqlstate());
                }
                Err(error)
            }
        }
    }

    /// Starts it, as one of `company` queries of a batch that run at once.
    ///
    /// # Errors
    /// Those of starting it.
    pub async fn run(self, company: u32) -> Result<RunningQuery> {
        let Self { planned, record } = self;
        planned.context.set_company(company);
        match Box::pin((*planned).run(false)).await {
            Ok(mut running) => {
                running.record = record;
                Ok(running)
            }
            Err(error) => {
                if let Some(record) = record {
                    record.fail(error.sqlstate());
                }
                Err(error)
            }
        }
    }

    /// What is told if it is given up, to begin anew later; None: the query log does not have it.
    pub fn runs_again(&mut self) -> Option<RunsAgain> {
        self.record.as_mut().map(OpenRecord::runs_again)
    }

    /// What decides its place in a batch: the columns of its scans, the devices with their pages, and those that
    /// run its fragments.
    #[must_use]
    pub fn about(&self) -> BatchQuery {
        let mut about = BatchQuery::default();
        for context in self.planned.contexts() {
            for input in context.inputs() {
                about.devices.extend(input.input.devices().into_iter().map(|device| device.0));
            }
        }
        self.each_plan(|plan| note_columns(plan, &mut about));
        about
    }

    /// Bytes that it holds until it runs, about.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let contexts = self.planned.contexts();
        let inputs = contexts.iter().flat_map(|context| context.inputs());
        let pages = inputs.map(|input| input.input.pages_left()).sum::<usize>();
        PLAN_BYTES + pages.saturating_mul(PAGE_BYTES)
    }

    /// Bytes that are expected of its rows.
    #[must_use]
    pub fn expected_bytes(&self) -> f64 {
        self.planned.row_estimate() * row_bytes(&self.planned.cuts.plan.schema())
    }

    /// Bytes that its fragments ask of a device, among `company` queries that run at once.
    #[must_use]
    pub fn memory_asked(&self, company: u32) -> u64 {
        let mut asked = 0;
        self.each_plan(|plan| asked += asked_of_devices(plan, company));
        asked
    }

    /// Calls `of` with its plan and those of its queries of WITH.
    fn each_plan(&self, mut of: impl FnMut(&Arc<dyn ExecutionPlan>)) {
        of(&self.planned.cuts.plan);
        for rows in &self.planned.with {
            rows.with_query(|query| of(&query.cuts.plan));
        }
    }
}

/// Whether `query`, or a view of `state` that it is made of, calls a function that does something: takes a lock or a
/// number, ends a session. It must be called once, and after those of the queries before.
#[must_use]
pub fn has_effects(query: &ast::Query, state: &CatalogState) -> bool {
    if calls_effects(query) {
        return true;
    }
    let views = names(query).into_iter().filter_map(|name| state.view(&name));
    let (mut left, mut seen) = (views.collect::<Vec<_>>(), BTreeSet::new());
    while let Some(view) = left.pop() {
        if !seen.insert(view.schema.table_id) {
            continue;
        }
        // What cannot be read is refused when it is bound.
        let Ok(query) = parse_query(view.query.clone()) else { continue };
        if calls_effects(&query) {
            return true;
        }
        left.extend(names(&query).into_iter().filter_map(
            |name| match state.made_of(view, &name) {
                Some(MadeOf::View(inner)) => Some(inner),
                Some(MadeOf::Table(_)) | None => None,
            },
        ));
    }
    false
}

/// The names of tables and views in `query`, without their schemas.
fn names(query: &ast::Query) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let _: ControlFlow<()> = visit_relations(query, |name| {
        if let Some(ast::ObjectNamePart::Identifier(name)) = name.0.last() {
            names.insert(fold(name));
        }
        ControlFlow::Continue(())
    });
    names
}

/// Whether `query` itself does.
fn calls_effects(query: &ast::Query) -> bool {
    let known = |name: &str| {
        let name = name.strip_prefix("pg_catalog.").unwrap_or(name);
        let of_locks = advisory_functions::NAMES.into_iter().chain(backend_functions::NAMES);
        let mut all = of_locks.chain(sequence_functions::NAMES).chain(result_functions::NAMES);
        all.find(|known| *known == name)
    };
    !called(query, known).is_empty()
}

/// Bytes for fragments of the one of `devices` that has the least; None: there is none, or one cannot be asked.
pub async fn least_memory(database: &Arc<QueryEngine>, devices: &BTreeSet<u32>) -> Option<u64> {
    let mut least: Option<u64> = None;
    for device in devices {
        let device = database.attached(DeviceId(*device)).ok()?;
        let bytes = device.identity().await.ok()?.fragment_memory_bytes;
        least = Some(least.map_or(bytes, |least| least.min(bytes)));
    }
    least
}

/// Notes the columns of the scans of `plan`, and the devices that run fragments of it.
fn note_columns(plan: &Arc<dyn ExecutionPlan>, about: &mut BatchQuery) {
    if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
        let scan = scan.scan();
        let named = |column: &ColumnRef| match column {
            ColumnRef::User(id) => Some((scan.table_id, *id)),
            ColumnRef::Vid | ColumnRef::Commit => None,
        };
        about.filters.extend(scan.filter.columns.iter().filter_map(named));
        about.outputs.extend(scan.output.columns.iter().filter_map(named));
    }
    if let Some(fragment) = plan.downcast_ref::<FragmentExec>() {
        // Under `compute_on` these are others than those with its pages.
        let devices = fragment.devices().into_iter().flatten();
        about.devices.extend(devices.map(|device| device.0));
        note_columns(fragment.device_plan(), about);
    }
    plan.children().into_iter().for_each(|child| note_columns(child, about));
}

fn asked_of_devices(plan: &Arc<dyn ExecutionPlan>, company: u32) -> u64 {
    let own = plan.downcast_ref::<FragmentExec>().map_or(0, |cut| cut.memory_asked(company));
    let below = plan.children().into_iter().map(|child| asked_of_devices(child, company));
    own + below.sum::<u64>()
}
