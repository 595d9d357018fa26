//! EXPLAIN of a query whose rows are for something else, without running it.

use std::sync::Arc;

use cleave_catalog::error::Result;
use cleave_catalog::settings::Settings;

use super::{Measured, QueryRequest, Tail, plan_shown, planned_plans, query_nodes};
use crate::query_engine::QueryEngine;

impl Measured {
    /// The plan of a query that does not run, to be [shown](Self::shown) below what its rows are for.
    ///
    /// # Errors
    /// Those of planning.
    pub async fn unrun(
        database: &Arc<QueryEngine>,
        settings: &Settings,
        asked: QueryRequest<'_>,
    ) -> Result<Self> {
        let planned = plan_shown(database, settings, asked).await?;
        let (nodes, tail) = (query_nodes(&planned, false), Tail::of(&planned, None));
        let plans = planned_plans(&planned, Arc::clone(&planned.cuts.plan));
        Ok(Self { nodes, tail, plans, is_whole: false, spent: None })
    }
}
