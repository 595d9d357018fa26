//! Definitions other than CREATE and DROP, and TRUNCATE, which replaces a table by one without rows.
//!
//! VIDs of a truncated table continue: a snapshot that still has the old rows must not confuse them with new ones.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use cleave_catalog::catalog::{TableState, TabletState};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::index::TabletIndex;
use cleave_catalog::settings::Settings;
use cleave_query::cooperative::inserting::InsertFragments;
use cleave_query::select;
use cleave_query::select::{ColumnOrigin, Measured, QueryRequest, RunningQuery};
use cleave_sql::dialect::{sql_type, whole_type_name};
use cleave_sql::statement::conform::Conform;
use cleave_sql::statement::parse::{CreateTableAs, Define, Truncate};
use cleave_sql::statement::placement::{DeviceShare, Placement, placement};
use cleave_sql::statement::{CreateTable, Parameters};
use cleave_store::{Column, ColumnType, TableSchema, VersionMap};
use datafusion::sql::sqlparser::ast;
use futures::StreamExt;
use futures::stream;

use super::definitions::Definition;
use super::foreign_key_rules::check_truncate;
use super::update_fragment::placement::figures;
use super::{
    Outcome, Session, alter, definitions, foreign_key_rules, indexes, insert_fragment, locking,
    materialized, output, sequences, tablet_moves, views,
};

/// Runs a statement that replaces a definition.
pub(super) async fn run(session: &mut Session, define: Define) -> Result<Outcome> {
    match define {
        Define::Truncate(tables) => truncate(session, &tables).await,
        Define::CreateTableAs(create) => {
            Box::pin(create_table_as(session, *create, &Parameters::default())).await
        }
        Define::CreateView(create) => views::create_view(session, *create).await,
        Define::DropView { if_exists, names, cascade } => {
            views::drop_views(session, if_exists, &names, cascade).await
        }
        Define::CreateMaterialized(create) => {
            Box::pin(materialized::create(session, *create)).await
        }
        Define::Refresh(refresh) => Box::pin(materialized::refresh(session, &refresh)).await,
        Define::DropMaterialized { if_exists, names, cascade } => {
            materialized::drop(session, if_exists, &names, cascade).await
        }
        Define::AlterTable(alter) => Box::pin(alter::alter_table(session, alter)).await,
        Define::PlaceTablets(place) => Box::pin(tablet_moves::run(session, place)).await,
        Define::RenameIndex { from, to } => alter::rename_index(session, &from, &to).await,
    }
}

/// Runs CREATE TABLE AS with values for the parameters of its query.
pub(super) async fn create_table_as(
    session: &mut Session,
    create: CreateTableAs,
    parameters: &Parameters,
) -> Result<Outcome> {
    locking::wait_for_tables(session, &create.query).await?;
    let view = session.view().await?;
    let asked = QueryRequest { query: &create.query, parameters, view: Some(&view) };
    let settings = session.shared_settings();
    let (filling, columns) = Filling::begin(session, &settings, asked).await?;
    let mut create = CreateTable {
        if_not_exists: create.if_not_exists,
        temporary: create.temporary,
        ..table_of_rows(create.table, columns, &create.options)?
    };
    filling.place(&settings, &mut create.placement)?;
    let Some((definition, schema)) = indexes::new_table(session, create).await? else {
        return Ok(Outcome::done("CREATE TABLE AS"));
    };
    let filled = filling.run(session, &settings, definition, (&schema, asked));
    let (definition, count) = filled.await?;
    definitions::end_definition(session, definition).await?;
    Ok(Outcome::done(format!("SELECT {count}")))
}

/// The table `name` for the rows of a query, without keys and other rules.
///
/// # Errors
/// [`Error::Invalid`] for columns or options that no table has.
pub(super) fn table_of_rows(
    name: String,
    columns: Vec<Column>,
    options: &ast::CreateTableOptions,
) -> Result<CreateTable> {
    let schema = TableSchema { table_id: 0, version: 1, name, columns, primary_key: Vec::new() };
    schema.validate()?;
    Ok(CreateTable {
        if_not_exists: false,
        placement: placement(options, &schema)?,
        schema,
        primary_key_name: None,
        unique: Vec::new(),
        checks: Vec::new(),
        sequences: Vec::new(),
        foreign_keys: Vec::new(),
        temporary: None,
    })
}

/// The rows of a query on their way to a table that has none, and is the transaction's own: written by fragments where
/// that is cheaper, else loaded.
pub(super) struct Filling {
    by_fragments: Option<InsertFragments>,
    running: Option<RunningQuery>,
}

impl Filling {
    /// Of a new table, and the table's columns.
    ///
    /// # Errors
    /// Those of the query; [`Error::Unsupported`] for a type that no column has.
    pub(super) async fn begin(
        session: &Session,
        settings: &Settings,
        asked: QueryRequest<'_>,
    ) -> Result<(Self, Vec<Column>)> {
        let planned = Self::plan(session, settings, asked).await?;
        if let Some(fragments) = &planned.by_fragments {
            let columns = fragments.table().columns.clone();
            return Ok((planned, columns));
        }
        let running = run_query(session, settings, asked).await?;
        let columns = columns_of(&running.schema())?;
        Ok((Self { by_fragments: None, running: Some(running) }, columns))
    }

    /// Of a new table that gets its rows later, if it does: nothing runs yet.
    ///
    /// # Errors
    /// Those of planning.
    pub(super) async fn plan(
        session: &Session,
        settings: &Settings,
        asked: QueryRequest<'_>,
    ) -> Result<Self> {
        let by_fragments = insert_fragment::of_new_table(session, settings, asked).await?;
        Ok(Self { by_fragments, running: None })
    }

    /// Puts a new table where `settings` have the rows of the statement, whose `placement` this is; where neither says
    /// anything, on the devices that make its rows, if there are several, so that the rows stay there.
    ///
    /// # Errors
    /// As [`output::place`].
    pub(super) fn place(&self, settings: &Settings, placement: &mut Placement) -> Result<()> {
        let makers = self
            .by_fragments
            .as_ref()
            .map(|all| DeviceShare::of_all(all.devices().map(|device| device.name().to_owned())));
        if output::place(settings, makers.as_deref(), placement)? {
            return Ok(());
        }
        let Some(makers) = makers else { return Ok(()) };
        let usual = Settings::default();
        let is_free = *placement == Placement::default()
            && settings.default_device == usual.default_device
            && settings.default_tablets == usual.default_tablets;
        if is_free && makers.len() > 1 {
            placement.devices = makers;
        }
        Ok(())
    }

    /// Of the table that `schema` describes.
    ///
    /// # Errors
    /// Those of planning.
    pub(super) async fn begin_in(
        session: &Session,
        settings: &Settings,
        (schema, asked): (&TableSchema, QueryRequest<'_>),
    ) -> Result<Self> {
        let types = |columns: &[Column]| -> Vec<_> {
            columns.iter().map(|column| column.column_type.arrow()).collect()
        };
        let Self { by_fragments, running } = Self::plan(session, settings, asked).await?;
        let fit = |all: &InsertFragments| types(&all.table().columns) == types(&schema.columns);
        Ok(Self { by_fragments: by_fragments.filter(fit), running })
    }

    /// `definition` with the rows in the table that `schema` describes, and their number.
    ///
    /// # Errors
    /// Those of the query; [`Error::DuplicateKey`]; those of the device.
    pub(super) async fn run(
        self,
        session: &Session,
        settings: &Arc<Settings>,
        mut definition: Definition,
        (schema, asked): (&Arc<TableSchema>, QueryRequest<'_>),
    ) -> Result<(Definition, u64)> {
        if let Some(fragments) = &self.by_fragments {
            let rows = (schema, fragments);
            let filled = insert_fragment::fill(session, settings, &mut definition, rows);
            if let Some(inserted) = Box::pin(filled).await? {
                if let Some(measuring) = &session.measuring {
                    let what = format!("Rows of {}", schema.name);
                    let shown = insert_fragment::shown_of_new(&what, fragments)?;
                    let count = fragments.devices().count();
                    measuring.put_change(shown, figures(inserted.count, count));
                }
                return Ok((definition, inserted.count));
            }
        }
        let running = match self.running {
            Some(running) => running,
            None => run_query(session, settings, asked).await?,
        };
        let (count, now_us) = (schema.columns.len(), session.moment().now_us);
        let fitted = Conform::by_position(schema, &[], count, now_us)?;
        let source = (running, fitted, session.measuring.clone());
        let rows = stream::try_unfold(source, |(mut running, fitted, measuring)| async move {
            let Some(batch) = running.next().await? else {
                if let Some(measuring) = &measuring {
                    measuring.put(Measured::of(&mut running).await?);
                }
                return Ok(None);
            };
            let rows = fitted.rows(&batch)?;
            Ok(Some((rows, (running, fitted, measuring))))
        });
        let checks = Arc::clone(session.database.queries());
        Box::pin(definition.load(checks, settings, schema, (Vec::new(), rows.boxed()))).await
    }
}

/// Runs the query of `asked`, with figures if EXPLAIN ANALYZE shows them.
async fn run_query(
    session: &Session,
    settings: &Settings,
    asked: QueryRequest<'_>,
) -> Result<RunningQuery> {
    match session.measuring {
        Some(_) => Box::pin(select::run_measured(&session.database, settings, asked)).await,
        None => Box::pin(select::run_query(&session.database, settings, asked)).await,
    }
}

async fn truncate(session: &mut Session, truncate: &Truncate) -> Result<Outcome> {
    let tables = match truncate.cascade {
        true => foreign_key_rules::all_referring(&session.names(), &truncate.tables),
        false => truncate.tables.clone(),
    };
    let mut definition = definitions::begin_definition(session, "TRUNCATE", &tables, &[]).await?;
    let next = &definition.edit.next;
    let ids = tables.iter().filter_map(|name| Some(next.table(name)?.schema.table_id));
    check_truncate(next, &ids.collect())?;
    for name in &tables {
        let emptied = emptied(definition.edit.next.find_writable_table(name)?);
        let table_id = emptied.schema.table_id;
        definition.edit.put_table(emptied);
        if truncate.restart_identity {
            sequences::restart_sequences_of(session, &mut definition, table_id)?;
        }
    }
    definitions::end_definition(session, definition).await?;
    Ok(Outcome::done("TRUNCATE TABLE"))
}

/// The columns of a table that holds the rows of a query.
///
/// # Errors
/// [`Error::Unsupported`] for a type that no column has.
pub(super) fn columns_of(schema: &Schema) -> Result<Vec<Column>> {
    let column = |(field, id): (&Arc<Field>, u32)| {
        let told = ColumnOrigin::of(field).and_then(ColumnOrigin::text_type);
        let column_type = match field.data_type() {
            // As in PostgreSQL, NULL is text where nothing tells its type.
            DataType::Null => Some(told.unwrap_or(ColumnType::Text)),
            own => told.or_else(|| sql_type(own)),
        };
        let column_type = column_type.ok_or_else(|| no_column(field))?;
        Ok(Column {
            id,
            name: field.name().clone(),
            column_type,
            not_null: false,
            default: None,
            absent: None,
        })
    };
    schema.fields().iter().zip(1..).map(column).collect()
}

/// The refusal of a column of a query of whose type no column of a table is.
fn no_column(field: &Field) -> Error {
    let hint = match field.data_type() {
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => {
            "leave it out, or cast it to text"
        }
        _ => "leave it out, or take parts of it",
    };
    Error::Unsupported {
        what: format!("column \"{}\" of type {}", field.name(), whole_type_name(field.data_type())),
        hint: Some(hint.to_owned()),
        position: None,
    }
}

/// `table` without rows.
pub(super) fn emptied(table: &TableState) -> TableState {
    let tablet = |tablet: &Arc<TabletState>| {
        let indexes = tablet.indexes.iter();
        let indexes = indexes.map(|index| TabletIndex::empty(Arc::clone(index.shape())));
        Arc::new(TabletState {
            heap: Vec::new(),
            rewrites: Default::default(),
            version_map: Arc::new(VersionMap::new()),
            indexes: indexes.map(Arc::new).collect(),
            ..TabletState::clone(tablet)
        })
    };
    let tablets = table.tablets.iter().map(tablet).collect();
    TableState { tablets, ..TableState::clone(table) }
}
