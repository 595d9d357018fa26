//! TRUNCATE and ALTER: the crate's tree in, a [`Define`] out.

use cleave_catalog::error::{Error, Result};
use datafusion::sql::sqlparser::ast;

use super::{CreateMaterialized, PlaceTablets, Refresh, refuse_in_query};
use crate::statement::alter::{AlterTable, alter_table};
use crate::statement::catalog_syntax;
use crate::statement::ddl::{OnCommit, on_commit, refuse_clauses};
use crate::statement::names::{fold, table_name};

/// A definition other than CREATE and DROP of tables and indexes.
#[derive(Debug, Clone, PartialEq)]
pub enum Define {
    /// TRUNCATE.
    Truncate(Truncate),
    /// CREATE TABLE … AS, SELECT … INTO.
    CreateTableAs(Box<CreateTableAs>),
    /// CREATE VIEW.
    CreateView(Box<CreateView>),
    /// DROP VIEW.
    DropView {
        /// A view that does not exist is no error.
        if_exists: bool,
        /// The views.
        names: Vec<String>,
        /// CASCADE: views over them are dropped too.
        cascade: bool,
    },
    /// CREATE MATERIALIZED VIEW.
    CreateMaterialized(Box<CreateMaterialized>),
    /// REFRESH MATERIALIZED VIEW.
    Refresh(Refresh),
    /// DROP MATERIALIZED VIEW.
    DropMaterialized {
        /// A view that does not exist is no error.
        if_exists: bool,
        /// The views.
        names: Vec<String>,
        /// CASCADE: views over them are dropped too.
        cascade: bool,
    },
    /// ALTER TABLE.
    AlterTable(AlterTable),
    /// ALTER TABLE … MOVE TABLET, REBALANCE, SET (rebalance).
    PlaceTablets(PlaceTablets),
    /// ALTER INDEX … RENAME TO.
    RenameIndex {
        /// The old name.
        from: String,
        /// The new name.
        to: String,
    },
}

/// `CREATE [TEMP] TABLE name [(column, …)] AS query`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateTableAs {
    /// The table.
    pub table: String,
    /// A table of the name that exists is no error, and stays.
    pub if_not_exists: bool,
    /// For a temporary table: ON COMMIT.
    pub temporary: Option<OnCommit>,
    /// Its devices and tablets.
    pub options: ast::CreateTableOptions,
    /// The query for its columns and rows.
    pub query: Box<ast::Query>,
}

/// `CREATE [OR REPLACE] [TEMP] VIEW name [(column, …)] AS query`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateView {
    /// The view.
    pub name: String,
    /// OR REPLACE: it replaces a view of this name.
    pub or_replace: bool,
    /// TEMP.
    pub is_temporary: bool,
    /// The names of its first columns, if listed.
    pub columns: Vec<String>,
    /// Its query.
    pub query: Box<ast::Query>,
}

/// `TRUNCATE [TABLE] name [, …] [RESTART IDENTITY | CONTINUE IDENTITY] [CASCADE | RESTRICT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Truncate {
    /// The tables.
    pub tables: Vec<String>,
    /// RESTART IDENTITY: sequences of their columns restart.
    pub restart_identity: bool,
    /// CASCADE: tables that refer to them, too.
    pub cascade: bool,
}

/// Reads one of these statements; None: it is another one.
///
/// # Errors
/// [`Error::Unsupported`] naming the clause.
pub(super) fn define(statement: &ast::Statement) -> Result<Option<Define>> {
    Ok(Some(match statement {
        ast::Statement::Truncate(statement) => truncate(statement)?,
        ast::Statement::AlterTable(statement) => {
            Define::AlterTable(alter_table(statement.clone())?)
        }
        ast::Statement::CreateTable(create) if create.query.is_some() => {
            let Some(query) = create.query.clone() else { return Ok(None) };
            let bare = ast::CreateTable { query: None, ..create.clone() };
            refuse_clauses(&bare)?;
            if !create.columns.is_empty() || !create.constraints.is_empty() {
                return Err(Error::unsupported("CREATE TABLE ... AS with a list of columns"));
            }
            let table = table_name(&create.name)?;
            let (if_not_exists, temporary) = (create.if_not_exists, on_commit(create));
            let options = create.table_options.clone();
            create_table_as(CreateTableAs { table, if_not_exists, temporary, options, query })?
        }
        ast::Statement::Query(query) => {
            let ast::SetExpr::Select(select) = query.body.as_ref() else { return Ok(None) };
            let Some(into) = &select.into else { return Ok(None) };
            let mut query = query.clone();
            if let ast::SetExpr::Select(select) = query.body.as_mut() {
                select.into = None;
            }
            create_table_as(CreateTableAs {
                table: table_name(&into.name)?,
                if_not_exists: false,
                temporary: into.temporary.then_some(OnCommit::PreserveRows),
                options: ast::CreateTableOptions::None,
                query,
            })?
        }
        ast::Statement::CreateView(view) => create_view(view)?,
        ast::Statement::Drop {
            object_type: ast::ObjectType::View,
            if_exists,
            names,
            cascade,
            temporary: false,
            purge: false,
            table: None,
            ..
        } => Define::DropView {
            if_exists: *if_exists,
            names: names.iter().map(table_name).collect::<Result<_>>()?,
            cascade: *cascade,
        },
        ast::Statement::AlterIndex { name, operation } => {
            let ast::AlterIndexOperation::RenameIndex { index_name } = operation;
            Define::RenameIndex { from: table_name(name)?, to: table_name(index_name)? }
        }
        _ => return Ok(None),
    }))
}

fn create_view(view: &ast::CreateView) -> Result<Define> {
    let clauses = [
        // Otherwise it is read elsewhere.
        (view.materialized, "CREATE OR REPLACE and TEMP with MATERIALIZED VIEW"),
        (view.or_alter || view.secure || view.if_not_exists, "this clause of CREATE VIEW"),
        (!matches!(view.options, ast::CreateTableOptions::None), "CREATE VIEW ... WITH"),
        (!view.cluster_by.is_empty() || view.comment.is_some(), "this clause of CREATE VIEW"),
        (view.with_no_schema_binding || view.copy_grants, "this clause of CREATE VIEW"),
        (view.to.is_some() || view.params.is_some(), "this clause of CREATE VIEW"),
        (
            view.columns
                .iter()
                .any(|column| column.data_type.is_some() || column.options.is_some()),
            "CREATE VIEW with types of columns",
        ),
    ];
    if let Some((_, what)) = clauses.into_iter().find(|(present, _)| *present) {
        return Err(Error::unsupported(what));
    }
    let mut query = view.query.clone();
    catalog_syntax::lower(&mut query);
    refuse_in_query(&query)?;
    Ok(Define::CreateView(Box::new(CreateView {
        name: table_name(&view.name)?,
        or_replace: view.or_replace,
        is_temporary: view.temporary,
        columns: view.columns.iter().map(|column| fold(&column.name)).collect(),
        query,
    })))
}

fn create_table_as(mut create: CreateTableAs) -> Result<Define> {
    catalog_syntax::lower(&mut create.query);
    refuse_in_query(&create.query)?;
    Ok(Define::CreateTableAs(Box::new(create)))
}

/// Reads TRUNCATE.
///
/// # Errors
/// [`Error::Unsupported`] for clauses that PostgreSQL does not have.
fn truncate(statement: &ast::Truncate) -> Result<Define> {
    if statement.partitions.is_some() || statement.if_exists || statement.on_cluster.is_some() {
        return Err(Error::unsupported("TRUNCATE with PARTITION, IF EXISTS or ON CLUSTER"));
    }
    let names = statement.table_names.iter();
    Ok(Define::Truncate(Truncate {
        tables: names.map(|target| table_name(&target.name)).collect::<Result<_>>()?,
        restart_identity: statement.identity == Some(ast::TruncateIdentityOption::Restart),
        cascade: statement.cascade == Some(ast::CascadeOption::Cascade),
    }))
}
