//! Tables from outside the database: the program of a session hands them to it, and its statements name them.
//!
//! ```text
//!  name ─▶ row of a subquery, sequence, view, table, system table ─▶ none ─▶ OutsideTables ─▶ TableProvider
//! ```
//!
//! Such a table is looked up last, once a statement, and lies on no device: its scan runs on the host, also where it is
//! joined with tables of the database, whose scans are cut as ever. It may leave rows out by the conditions of its
//! query ([`supported_filters`], [`with_fewer_rows`]), as scans of files do.
//!
//! Invariants: what depends on such a table is not cached, neither a plan nor a result, and nothing in the catalog
//! refers to one. A view names none, so no statement reads one by a view of another session.

mod outside_scan_exec;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use cleave_catalog::error::{Error, Result};
use cleave_catalog::outside::Outside;
use cleave_catalog::settings::Settings;
use cleave_sql::statement::locking::HIDDEN;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;

use crate::conditions::{self, Conditions};
pub(crate) use outside_scan_exec::OutsideScanExec;

/// Tables that a program offers to the statements of its session.
pub trait OutsideTables: Debug + Send + Sync {
    /// The table `name`, as the statement writes it: in lower case unless it is quoted. None: there is none.
    ///
    /// A statement asks at most once for a name, but also for names of WITH.
    fn table(&self, name: &str) -> Option<Arc<dyn TableProvider>>;
}

/// By which of `filters` a scan of such a table can leave rows out: what `supports_filters_pushdown` answers.
#[must_use]
pub fn supported_filters(filters: &[&Expr]) -> Vec<TableProviderFilterPushDown> {
    conditions::supported(filters)
}

/// The rows of `scan`, which reads such a table and has no input, for which `filters` may hold. The operator above
/// looks at all of `filters` again.
///
/// # Errors
/// DataFusion's.
pub fn with_fewer_rows(
    session: &dyn Session,
    filters: &[Expr],
    scan: Arc<dyn ExecutionPlan>,
) -> PlanResult<Arc<dyn ExecutionPlan>> {
    let conditions = Conditions::of(session, filters, &scan.schema())?;
    Ok(match conditions.is_empty() {
        true => scan,
        false => Arc::new(OutsideScanExec::new(scan, conditions)),
    })
}

/// Refuses the table `name` from outside the database if a column has a name that only the database gives: it would be
/// taken for the version of a row, or the like.
///
/// # Errors
/// [`Error::Unsupported`].
pub(crate) fn check_columns(name: &str, table: &dyn TableProvider) -> Result<()> {
    let schema = table.schema();
    match schema.fields().iter().find(|field| field.name().contains(HIDDEN)) {
        Some(field) => {
            let column = field.name().escape_debug();
            Err(Error::unsupported(format!("the column \"{column}\" of {name}")))
        }
        None => Ok(()),
    }
}

/// What the settings of a session hold.
#[derive(Debug)]
struct Offered(Arc<dyn OutsideTables>);

/// `tables` in the form in which a session's settings hold them.
#[must_use]
pub fn offered(tables: Option<Arc<dyn OutsideTables>>) -> Outside {
    tables.map_or_else(Outside::default, |tables| Outside::of(Offered(tables)))
}

/// The tables that one statement has asked for, by name; None: there is no such table.
#[derive(Debug, Default)]
pub(crate) struct AskedTables {
    offered: Mutex<BTreeMap<String, Option<Arc<dyn TableProvider>>>>,
    files: Mutex<BTreeMap<String, Arc<dyn TableProvider>>>,
}

impl AskedTables {
    /// The table `name` that a statement under `settings` may read.
    pub(crate) fn table(&self, settings: &Settings, name: &str) -> Option<Arc<dyn TableProvider>> {
        let Offered(tables) = settings.client.outside.get::<Offered>()?;
        let asked = || self.offered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = asked().get(name) {
            return known.clone();
        }
        // Without the lock: it is code of the program.
        let found = tables.table(name);
        asked().entry(name.to_owned()).or_insert(found).clone()
    }

    /// The files behind the relation `name`, which `open` opens.
    ///
    /// # Errors
    /// Those of `open`.
    pub(crate) fn files(
        &self,
        name: &str,
        open: impl FnOnce() -> Result<Arc<dyn TableProvider>>,
    ) -> Result<Arc<dyn TableProvider>> {
        let asked = || self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = asked().get(name) {
            return Ok(Arc::clone(known));
        }
        let opened = open()?;
        Ok(Arc::clone(asked().entry(name.to_owned()).or_insert(opened)))
    }
}
