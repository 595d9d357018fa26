//! Statements on materialized views: tokens in, a [`Define`] out.
//!
//! The parser's crate reads CREATE, as far as the query; it knows neither `WITH [NO] DATA` nor REFRESH.
//!
//! Source: PostgreSQL's manual, "CREATE MATERIALIZED VIEW" and the pages beside it.

use cleave_catalog::error::{Error, Result};
use datafusion::sql::sqlparser::ast;

use super::{Define, Reader, Statement, refuse_in_query};
use crate::statement::alter::{Action, AlterTable};
use crate::statement::catalog_syntax;
use crate::statement::names::{fold, table_name};
use crate::statement::roles::RoleStatement;

/// `CREATE MATERIALIZED VIEW [IF NOT EXISTS] name [(column, …)] [WITH (…)] AS query [WITH [NO] DATA]`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateMaterialized {
    /// The view.
    pub name: String,
    /// A relation of the name that exists is no error, and stays.
    pub if_not_exists: bool,
    /// The names of its first columns, if listed.
    pub columns: Vec<String>,
    /// Its devices and tablets.
    pub options: ast::CreateTableOptions,
    /// Its query.
    pub query: Box<ast::Query>,
    /// Not WITH NO DATA.
    pub is_populated: bool,
}

/// `REFRESH MATERIALIZED VIEW [CONCURRENTLY] name [WITH [NO] DATA]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refresh {
    /// The view.
    pub name: String,
    /// CONCURRENTLY.
    pub concurrently: bool,
    /// Not WITH NO DATA.
    pub is_populated: bool,
}

impl Reader<'_> {
    /// Whether the next words are `word MATERIALIZED VIEW`.
    pub(super) fn is_of_materialized(&self) -> bool {
        self.word_at(1) == "materialized" && self.word_at(2) == "view"
    }

    /// A statement on a materialized view, which begins with `word`.
    pub(super) fn materialized(&mut self, word: &str) -> Result<Statement> {
        let define = match word {
            "create" => Define::CreateMaterialized(Box::new(self.create_materialized()?)),
            "refresh" => {
                self.skip_words();
                let concurrently = self.take("concurrently");
                let (name, _) = self.table()?;
                let is_populated = self.with_data()?;
                Define::Refresh(Refresh { name, concurrently, is_populated })
            }
            "drop" => {
                self.skip_words();
                let if_exists = self.if_exists()?;
                let names = self.parser.parse_comma_separated(|one| one.parse_object_name(false));
                let names = names.map_err(|error| self.syntax(error))?;
                let names = names.iter().map(table_name).collect::<Result<_>>()?;
                let cascade = self.cascade();
                Define::DropMaterialized { if_exists, names, cascade }
            }
            _ => return self.alter_materialized(),
        };
        Ok(Statement::Define(Box::new(define)))
    }

    fn skip_words(&mut self) {
        for _ in 0..3 {
            self.parser.advance_token();
        }
    }

    /// [WITH [NO] DATA]: whether there are to be rows.
    fn with_data(&mut self) -> Result<bool> {
        if !self.take("with") {
            return Ok(true);
        }
        let has_rows = !self.take("no");
        self.must_take("data")?;
        Ok(has_rows)
    }

    fn create_materialized(&mut self) -> Result<CreateMaterialized> {
        let read = self.parser.parse_statement().map_err(|error| self.syntax(error))?;
        let ast::Statement::CreateView(view) = self.lowered(read)? else {
            return Err(self.expected("CREATE MATERIALIZED VIEW"));
        };
        let is_populated = self.with_data()?;
        let is_typed = |column: &ast::ViewColumnDef| column.data_type.is_some();
        if view.columns.iter().any(is_typed) || !view.cluster_by.is_empty() {
            return Err(Error::unsupported("this clause of CREATE MATERIALIZED VIEW"));
        }
        let mut query = view.query;
        catalog_syntax::lower(&mut query);
        refuse_in_query(&query)?;
        Ok(CreateMaterialized {
            name: table_name(&view.name)?,
            if_not_exists: view.if_not_exists,
            columns: view.columns.iter().map(|column| fold(&column.name)).collect(),
            options: view.options,
            query,
            is_populated,
        })
    }

    /// ALTER MATERIALIZED VIEW [IF EXISTS] name { RENAME [COLUMN] … TO … | OWNER TO … | MOVE TABLET … | REBALANCE | SET
    /// (rebalance …) }.
    fn alter_materialized(&mut self) -> Result<Statement> {
        self.skip_words();
        let if_exists = self.if_exists()?;
        let (table, position) = self.table()?;
        if self.take("owner") {
            self.must_take("to")?;
            let (name, to) = (table, self.role_name()?);
            let owner = RoleStatement::Owner { kind: "MATERIALIZED VIEW", if_exists, name, to };
            return Ok(Statement::Role(Box::new(owner)));
        }
        if self.moves_tablets(0) {
            return self.place_tablets((if_exists, table, position), true);
        }
        if !self.take("rename") {
            return Err(Error::unsupported("this form of ALTER MATERIALIZED VIEW"));
        }
        let action = if self.take("to") {
            Action::RenameTable { to: self.identifier()? }
        } else {
            let _ = self.take("column");
            let from = self.identifier()?;
            self.must_take("to")?;
            Action::RenameColumn { from, to: self.identifier()? }
        };
        let actions = vec![action];
        let alter = AlterTable { table, if_exists, is_materialized: true, actions, position };
        Ok(Statement::Define(Box::new(Define::AlterTable(alter))))
    }

    fn identifier(&mut self) -> Result<String> {
        let name = self.parser.parse_identifier().map_err(|error| self.syntax(error))?;
        Ok(fold(&name))
    }
}
