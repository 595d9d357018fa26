//! EXPLAIN of CREATE TABLE AS and CREATE MATERIALIZED VIEW: the plan of the query, below the table that its rows are
//! for. With ANALYZE the statement runs.
//!
//! Without ANALYZE, what could not be made is refused too. Source: PostgreSQL's manual, "EXPLAIN"; as there, a table of
//! the name that exists is an error, or with IF NOT EXISTS leaves nothing to plan.

use cleave_catalog::error::Result;
use cleave_media::clock::Stopwatch;
use cleave_query::select::{self, Measured, QueryRequest, ReadView};
use cleave_sql::statement::parse::{CreateMaterialized, CreateTableAs, Define};
use cleave_sql::statement::placement::DeviceShare;
use cleave_sql::statement::{CreateTable, ExplainFormat, Parameters, Statement, parameters};
use datafusion::sql::sqlparser::ast;

use super::super::{
    Outcome, Session, define, indexes, insert_fragment, materialized, output, views,
};
use super::Measuring;

/// A statement that makes a table of the rows of a query.
pub(super) struct NewTable<'a> {
    creates: Creates<'a>,
    name: &'a str,
    if_not_exists: bool,
    query: &'a ast::Query,
    options: &'a ast::CreateTableOptions,
}

#[derive(Clone, Copy)]
enum Creates<'a> {
    Table(&'a CreateTableAs),
    Materialized(&'a CreateMaterialized),
}

impl<'a> NewTable<'a> {
    /// `statement`, if it is one.
    pub(super) fn of(statement: &'a Statement) -> Option<Self> {
        let Statement::Define(define) = statement else { return None };
        match &**define {
            Define::CreateTableAs(create) => Some(Self {
                creates: Creates::Table(create),
                name: &create.table,
                if_not_exists: create.if_not_exists,
                query: &create.query,
                options: &create.options,
            }),
            Define::CreateMaterialized(create) => Some(Self {
                creates: Creates::Materialized(create),
                name: &create.name,
                if_not_exists: create.if_not_exists,
                query: &create.query,
                options: &create.options,
            }),
            _ => None,
        }
    }

    /// It in few words.
    fn what(&self) -> String {
        match self.creates {
            Creates::Table(_) => format!("Create table {}", self.name),
            Creates::Materialized(_) => format!("Create materialized view {}", self.name),
        }
    }

    /// Whether the table exists, and that is no error.
    fn is_there(&self, session: &Session) -> Result<bool> {
        let state = session.names();
        let is_taken = match self.creates {
            Creates::Table(create) if create.temporary.is_some() => {
                session.defined().has_temporary(self.name)
            }
            _ => state.is_name_taken(self.name),
        };
        match is_taken {
            true if self.if_not_exists && state.has_table_named(self.name) => Ok(true),
            true => Err(indexes::name_taken(self.name)),
            false => Ok(false),
        }
    }

    /// The table, whose columns and options are checked; None: its columns are known when the statement has values for
    /// its parameters.
    async fn table(&self, session: &Session, view: &ReadView) -> Result<Option<CreateTable>> {
        let mut names = Vec::new();
        if let Creates::Materialized(create) = self.creates {
            views::check_no_sequence(self.query, &view.state)?;
            names.clone_from(&create.columns);
        } else if parameters::count(self.query)? > 0 {
            return Ok(None);
        }
        let settings = session.in_force();
        let described =
            select::describe(&session.database, settings, Some(view), self.query, Vec::new());
        let described = Box::pin(described).await?;
        if matches!(self.creates, Creates::Materialized(_)) {
            views::check_none_outside(&described.outside, false)?;
        }
        let mut columns = define::columns_of(&described.schema)?;
        views::rename_columns(self.name, &mut columns, names)?;
        define::table_of_rows(self.name.to_owned(), columns, self.options).map(Some)
    }
}

/// Runs EXPLAIN of `new` with values for the parameters of its query.
pub(super) async fn explain(
    session: &mut Session,
    (new, parameters): (&NewTable<'_>, &Parameters),
    analyze: bool,
    format: ExplainFormat,
) -> Result<Outcome> {
    if new.is_there(session)? {
        let what = format!("{}: it exists", new.what());
        let (schema, batches) = select::explain_look_up(what, None, format)?;
        return Ok(Outcome::Rows { schema, batches });
    }
    if analyze {
        return Box::pin(run(session, (new, parameters), format)).await;
    }
    let view = session.view().await?;
    let table = Box::pin(new.table(session, &view)).await?;
    let settings = session.shared_settings();
    let asked = QueryRequest { query: new.query, parameters, view: Some(&view) };
    let fragments = insert_fragment::of_new_table(session, &settings, asked).await?;
    if let Some(mut table) = table {
        let names = fragments
            .as_ref()
            .map(|all| DeviceShare::of_all(all.devices().map(|device| device.name().to_owned())));
        output::place(&settings, names.as_deref(), &mut table.placement)?;
    }
    let (schema, batches) = match fragments {
        Some(fragments) => insert_fragment::shown_of_new(&new.what(), &fragments)?.shown(format)?,
        None => {
            let planned = Measured::unrun(&session.database, &settings, asked);
            Box::pin(planned).await?.shown(new.what(), None, format)?
        }
    };
    Ok(Outcome::Rows { schema, batches })
}

/// Runs the statement, and shows what it did.
async fn run(
    session: &mut Session,
    (new, parameters): (&NewTable<'_>, &Parameters),
    format: ExplainFormat,
) -> Result<Outcome> {
    let measuring = Measuring::default();
    session.measuring = Some(measuring.clone());
    let stopwatch = Stopwatch::start();
    let outcome = match new.creates {
        Creates::Table(create) => {
            Box::pin(define::create_table_as(session, create.clone(), parameters)).await
        }
        Creates::Materialized(create) => {
            Box::pin(materialized::create(session, create.clone())).await
        }
    };
    session.measuring = None;
    let elapsed = stopwatch.elapsed();
    let count: Option<usize> = match outcome? {
        Outcome::Done { tag } => tag.strip_prefix("SELECT ").and_then(|count| count.parse().ok()),
        Outcome::Rows { .. } => None,
    };
    let what = match count {
        Some(1) => format!("{} of 1 row", new.what()),
        Some(count) => format!("{} of {count} rows", new.what()),
        None => format!("{}: no rows yet", new.what()),
    };
    let (schema, batches) = match measuring.take() {
        Some(measured) => measured.within(elapsed).shown(what, count, format)?,
        None => select::explain_look_up(what, Some((count.unwrap_or(0), elapsed)), format)?,
    };
    Ok(Outcome::Rows { schema, batches })
}
