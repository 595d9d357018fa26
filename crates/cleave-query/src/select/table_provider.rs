//! Cleave's tables as DataFusion's planner sees them: names, columns, and scans that name a morsel input.

use cleave_fragment::walk::Walk;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use cleave_catalog::catalog::TableState;
use cleave_catalog::catalog::view::{MadeOf, ViewState};
use cleave_fragment::TableScanExec;
use cleave_fragment::operators::table_scan_exec::{References, TableScan};
use cleave_fragment::row_places::reference_field;
use cleave_plan::cardinality::{LeafKey, selectivity_of_all};
use cleave_sql::dialect::balanced_conjunction;
use cleave_sql::statement::catalog_tables::{CATALOG_SCHEMA, INFORMATION_SCHEMA};
use cleave_sql::statement::files::shown_call;
use cleave_sql::statement::locking::target_of;
use cleave_sql::statement::modify::{TARGET, VID};
use cleave_store::{AbsentValues, ColumnRef, Projection, TableSchema};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, SchemaProvider, Session, TableProvider,
};
use datafusion::common::stats::Precision;
use datafusion::common::{DFSchema, Statistics};
use datafusion::datasource::MemTable;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use futures::future::BoxFuture;

use super::own_tables::{self, OwnTables};
use super::pg_catalog::CatalogTables;
use super::planned_input::PlannedInput;
use super::statement_context::StatementContext;
use super::{ALL_VIDS, SampledPages, index_choice, sequence_rows, tablet_choice, views};
use crate::outside_tables::check_columns;
pub(super) use cleave_catalog::identifiers::CATALOG;
pub(super) use cleave_sql::statement::names::SCHEMA;

/// One table of one statement's catalog version.
pub(super) struct CleaveTable {
    table: Arc<TableState>,
    /// Its columns; of a target, VIDs behind them, and of sampled pages, references to rows.
    arrow: SchemaRef,
    /// The place of the only tablet whose rows are meant.
    tablet: Option<usize>,
    context: Arc<StatementContext>,
}

impl CleaveTable {
    /// `table` within the statement of `context`.
    pub(super) fn new(table: Arc<TableState>, context: Arc<StatementContext>) -> Self {
        let arrow = match context.sampled(table.schema.table_id) {
            Some(_) => followed_by(&table.schema.arrow(), reference_field()),
            None => table.schema.arrow(),
        };
        Self { arrow, table, tablet: None, context }
    }

    /// The rows of `table` in the tablet at `tablet`, with their VIDs.
    fn target(table: Arc<TableState>, tablet: usize, context: Arc<StatementContext>) -> Self {
        let vid = Field::new(VID, DataType::UInt64, false);
        let arrow = followed_by(&table.schema.arrow(), vid);
        Self { arrow, table, tablet: Some(tablet), context }
    }

    /// `table`, whose rows are those of a stage, with columns as `arrow` describes them.
    pub(super) fn of_stage(
        table: Arc<TableState>,
        arrow: SchemaRef,
        context: Arc<StatementContext>,
    ) -> Self {
        Self { table, arrow, tablet: None, context }
    }

    /// The same within the statement of `context`, which reads the same catalog version.
    pub(super) fn within(&self, context: &Arc<StatementContext>) -> Self {
        let (arrow, table) = (Arc::clone(&self.arrow), Arc::clone(&self.table));
        Self { arrow, table, tablet: self.tablet, context: Arc::clone(context) }
    }

    /// Its name, where all of its rows are meant, and its own columns alone.
    pub(super) fn plain_name(&self) -> Option<&str> {
        let is_whole = self.tablet.is_none() && self.sampled().is_none();
        is_whole.then_some(self.table.schema.name.as_str())
    }

    /// The pages that are meant, if not all.
    fn sampled(&self) -> Option<&Arc<SampledPages>> {
        self.context.sampled(self.table.schema.table_id).filter(|_| self.tablet.is_none())
    }

    /// The table.
    pub(super) fn table_state(&self) -> &TableState {
        &self.table
    }

    /// The statistics of a scan for DataFusion's planner, with about `row_estimate` rows.
    fn statistics(&self, scan: &TableScan, row_estimate: f64) -> Statistics {
        let mut statistics = Statistics::new_unknown(&scan.schema());
        statistics.num_rows = Precision::Inexact(rows_as_count(row_estimate));
        let columns = scan.output.columns.iter().zip(&mut statistics.column_statistics);
        for (column, statistics) in columns {
            let ColumnRef::User(id) = column else { continue };
            let Some(column) = self.table.schema.column_by_id(*id) else { continue };
            if let Some(distinct) = self.context.distinct_values(&self.table, column) {
                let distinct = distinct.min(row_estimate).max(1.0);
                statistics.distinct_count = Precision::Inexact(rows_as_count(distinct));
            }
            let known = self.context.statistics(&self.table);
            if let Some(known) = known.as_ref().and_then(|known| known.columns.get(id)) {
                let nulls = rows_as_count(known.null_fraction * row_estimate);
                statistics.null_count = Precision::Inexact(nulls);
            }
        }
        statistics
    }

    /// The pages that `filters` leave, which are `predicate` over the columns of `filter`.
    async fn left_by(
        &self,
        filters: &[Expr],
        filter: &Projection,
        predicate: &Arc<dyn PhysicalExpr>,
    ) -> Result<PlannedInput> {
        // The cached pages are of the whole table.
        let is_kept = self.plain_name().is_some();
        if let Some(left) = self.context.left_before(&self.table, filters).filter(|_| is_kept) {
            return Ok(left);
        }
        let input = tablet_choice::choose(filters, self.all_pages())?.pruned(filter, predicate)?;
        let input = Box::pin(index_choice::choose(&self.context, filters, input)).await?;
        if is_kept {
            self.context.keep_left(filters, &input);
        }
        Ok(input)
    }

    /// The pages of the table, or of the tablet that is wanted.
    fn all_pages(&self) -> PlannedInput {
        let mut input = PlannedInput::new(Arc::clone(&self.table));
        if let Some(sampled) = self.sampled() {
            return input.at_places(&sampled.places, sampled.first_rows);
        }
        let vids = self.context.target().map(|target| &target.vids);
        if self.tablet.is_some()
            && let Some(vids) = vids.filter(|vids| **vids != ALL_VIDS)
        {
            input = input.with_first_vids(vids);
        }
        match self.tablet.filter(|_| self.table.tablets.len() > 1) {
            Some(tablet) => input.in_tablets(&BTreeSet::from([tablet])),
            None => input,
        }
    }

    fn projection(&self, indices: impl IntoIterator<Item = usize>) -> Result<Projection> {
        projection(&self.table.schema, &self.arrow, indices)
    }

    /// [`Self::planned_scan`] as a future that is known to be [`Send`]. The compiler proves that here, once; where
    /// lifetimes have bounds, as in the trait's function, it caches nothing and takes ten seconds.
    fn boxed_scan<'f>(
        &'f self,
        session: &'f dyn Session,
        columns: Option<&'f Vec<usize>>,
        filters: &'f [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>> {
        Box::pin(self.planned_scan(session, columns, filters, limit))
    }

    async fn planned_scan(
        &self,
        session: &dyn Session,
        columns: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all: Vec<usize> = (0..self.arrow.fields().len()).collect();
        // To describe it, or to define something over it, needs no rows.
        self.table.check_populated()?;
        self.context.note_read(&self.table, filters)?;
        let mut wanted = columns.unwrap_or(&all).as_slice();
        let mut references = References::None;
        if let Some((last, others)) = wanted.split_last()
            && self.sampled().is_some()
            && *last == self.table.schema.columns.len()
        {
            (wanted, references) = (others, References::Rows);
        }
        let output = self.projection(wanted.iter().copied())?;
        let filter_columns: BTreeSet<usize> = filters
            .iter()
            .flat_map(Expr::column_refs)
            .filter_map(|column| self.arrow.index_of(&column.name).ok())
            .collect();
        let filter = self.projection(filter_columns)?;
        let predicate = balanced_conjunction(filters.iter().cloned())
            .map(|predicate| {
                let schema = DFSchema::try_from(Arc::clone(&filter.schema))?;
                session.create_physical_expr(predicate, &schema)
            })
            .transpose()?;
        let input = match &predicate {
            Some(predicate) => self.left_by(filters, &filter, predicate).await?,
            None => self.all_pages(),
        };
        let key = LeafKey::new(&self.table.schema.name, filters);
        let known = self.context.expected_of(&key);
        let estimate = known.unwrap_or_else(|| {
            let base = self.table.row_count() as f64;
            base * selectivity_of_all(filters, &self.table.schema.name, base, &*self.context)
        });
        let estimate = estimate.min(input.row_count_max() as f64).max(1.0);
        let input = self.context.add_input(input, estimate);
        self.context.expect(|estimates| estimates.expect_scan(input, key, estimate));
        let scan = TableScan {
            table: self.table.schema.name.clone(),
            table_id: self.table.schema.table_id,
            output,
            filter,
            predicate,
            input,
            fetch: limit,
            references,
        };
        let statistics = self.statistics(&scan, estimate);
        let partitions = session.config().target_partitions();
        Ok(Arc::new(TableScanExec::new(scan, partitions).with_statistics(statistics)))
    }
}

/// `columns` with `last` behind them.
fn followed_by(columns: &SchemaRef, last: Field) -> SchemaRef {
    let fields = columns.fields().iter().cloned().chain([Arc::new(last)]);
    Arc::new(Schema::new(fields.collect::<Vec<FieldRef>>()))
}

/// The columns at `indices` of a table, with their ids.
fn projection(
    schema: &TableSchema,
    arrow: &SchemaRef,
    indices: impl IntoIterator<Item = usize>,
) -> Result<Projection> {
    let indices: Vec<usize> = indices.into_iter().collect();
    let column = |index: &usize| match schema.columns.get(*index) {
        Some(column) => ColumnRef::User(column.id),
        None => ColumnRef::Vid,
    };
    let columns = indices.iter().map(column).collect();
    let (schema, absent) = (Arc::new(arrow.project(&indices)?), AbsentValues::of_table(schema));
    Ok(Projection { schema, columns, absent })
}

impl fmt::Debug for CleaveTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CleaveTable({})", self.table.schema.name)
    }
}

impl TableProvider for CleaveTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.arrow)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// Everything that gives the same answer each time is the scan's: it runs wherever the scan does.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(filters
            .iter()
            .map(|filter| {
                if filter.is_volatile() || has_subquery(filter) {
                    TableProviderFilterPushDown::Unsupported
                } else {
                    TableProviderFilterPushDown::Exact
                }
            })
            .collect())
    }

    fn scan<'a, 's, 'c, 'e, 'f>(
        &'a self,
        session: &'s dyn Session,
        columns: Option<&'c Vec<usize>>,
        filters: &'e [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>>
    where
        'a: 'f,
        's: 'f,
        'c: 'f,
        'e: 'f,
    {
        self.boxed_scan(session, columns, filters, limit)
    }
}

fn has_subquery(expr: &Expr) -> bool {
    expr.exists(|node| Ok(is_subquery(node))).unwrap_or(true)
}

/// Whether `node` by itself is a query within an expression, or a column of the query around it.
pub(super) fn is_subquery(node: &Expr) -> bool {
    matches!(
        node,
        Expr::ScalarSubquery(_)
            | Expr::InSubquery(_)
            | Expr::Exists(_)
            | Expr::SetComparison(_)
            | Expr::OuterReferenceColumn(..)
    )
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate, saturating"
)]
pub(super) fn rows_as_count(rows: f64) -> usize {
    rows.max(0.0) as usize
}

/// The catalog of one statement: the tables of the version it began with.
#[derive(Debug)]
pub(super) struct StatementCatalog {
    context: Arc<StatementContext>,
    /// The view whose query is bound, if one's is.
    view: Option<Arc<ViewState>>,
}

impl StatementCatalog {
    pub(super) fn new(context: Arc<StatementContext>) -> Arc<Self> {
        Arc::new(Self { context, view: None })
    }

    /// The same for the query of a view, which names what the view was made of.
    pub(super) fn of_view(context: Arc<StatementContext>, view: Arc<ViewState>) -> Arc<Self> {
        Arc::new(Self { context, view: Some(view) })
    }

    fn again(&self) -> Arc<Self> {
        Arc::new(Self { context: Arc::clone(&self.context), view: self.view.clone() })
    }

    /// [`Self::found`] as a future that is known to be [`Send`], as [`CleaveTable::boxed_scan`].
    fn boxed_table<'f>(
        &'f self,
        name: &'f str,
    ) -> BoxFuture<'f, Result<Option<Arc<dyn TableProvider>>>> {
        Box::pin(self.found(name))
    }

    async fn found(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(view) = &self.view {
            return match self.context.state().made_of(view, name) {
                Some(MadeOf::View(below)) => views::table(&self.context, below).await.map(Some),
                Some(MadeOf::Table(table)) => {
                    let table = CleaveTable::new(Arc::clone(table), Arc::clone(&self.context));
                    Ok(Some(Arc::new(table)))
                }
                None => match self.context.files(name) {
                    Some(files) => {
                        let files = files?;
                        check_columns(shown_call(name).unwrap_or(name), &*files)?;
                        Ok(Some(files))
                    }
                    None => Ok(None),
                },
            };
        }
        if let Some(rows) = self.context.given(name) {
            let table = MemTable::try_new(rows.schema(), vec![vec![(**rows).clone()]])?;
            return Ok(Some(Arc::new(table)));
        }
        let context = || Arc::clone(&self.context);
        let target = self.context.target().filter(|_| name == TARGET);
        let place = target.map(|target| target.tablet);
        let place = place.or_else(|| target_of(name).map(|(_, place)| place));
        if let Some(view) = self.context.state().view(name) {
            return views::table(&self.context, view).await.map(Some);
        }
        if self.context.table(name).is_none() {
            let rows = sequence_rows::table(&self.context, name)?;
            return Ok(rows.or_else(|| self.context.outside_table(name)));
        }
        Ok(self.context.table(name).map(|table| {
            let table = Arc::clone(table);
            let table = match place {
                Some(place) => CleaveTable::target(table, place, context()),
                None => CleaveTable::new(table, context()),
            };
            Arc::new(table) as Arc<dyn TableProvider>
        }))
    }
}

impl CatalogProviderList for StatementCatalog {
    fn register_catalog(
        &self,
        _name: String,
        _catalog: Arc<dyn CatalogProvider>,
    ) -> Option<Arc<dyn CatalogProvider>> {
        None
    }

    fn catalog_names(&self) -> Vec<String> {
        vec![CATALOG.to_owned()]
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        (name == CATALOG).then(|| self.again() as Arc<dyn CatalogProvider>)
    }
}

impl CatalogProvider for StatementCatalog {
    fn schema_names(&self) -> Vec<String> {
        [SCHEMA, own_tables::SCHEMA, CATALOG_SCHEMA, INFORMATION_SCHEMA].map(str::to_owned).into()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let context = Arc::clone(&self.context);
        match name {
            SCHEMA => Some(self.again()),
            own_tables::SCHEMA => Some(OwnTables::new(context)),
            CATALOG_SCHEMA => Some(CatalogTables::new(CATALOG_SCHEMA, context)),
            INFORMATION_SCHEMA => Some(CatalogTables::new(INFORMATION_SCHEMA, context)),
            _ => None,
        }
    }
}

impl SchemaProvider for StatementCatalog {
    fn table_names(&self) -> Vec<String> {
        let state = self.context.state();
        let views = state.views().map(|view| view.schema.name.as_str());
        state.table_names().chain(views).map(str::to_owned).collect()
    }

    fn table<'a, 'n, 'f>(
        &'a self,
        name: &'n str,
    ) -> BoxFuture<'f, Result<Option<Arc<dyn TableProvider>>>>
    where
        'a: 'f,
        'n: 'f,
    {
        self.boxed_table(name)
    }

    fn table_exist(&self, name: &str) -> bool {
        if let Some(view) = &self.view {
            let is_of_database = self.context.state().made_of(view, name).is_some();
            return is_of_database || shown_call(name).is_some();
        }
        self.context.given(name).is_some()
            || self.context.table(name).is_some()
            || self.context.state().view(name).is_some()
            || self.context.state().sequences.contains_key(name)
            || self.context.outside_table(name).is_some()
    }
}
