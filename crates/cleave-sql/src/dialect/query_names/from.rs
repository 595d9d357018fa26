//! The columns that FROM offers, in PostgreSQL's order.

use cleave_catalog::error::{Error, Fault, Result};
use cleave_catalog::identifiers::shown_name;
use datafusion::sql::sqlparser::ast::{
    self, Expr, Ident, SelectItem, SetExpr, TableAlias, TableFactor,
};

use super::{Column, Role, Walk, merged};
use crate::statement::names::fold;
use crate::statement::parse::parse_query;

/// Functions of FROM with one column, which is named after them.
const OF_ONE_COLUMN: [&str; 5] =
    ["generate_series", "unnest", "regexp_matches", "regexp_split_to_table", "string_to_table"];

/// A column that FROM offers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Offered {
    /// Its name.
    pub(super) name: String,
    /// The expression that gives it.
    pub(super) expr: Expr,
}

/// A table of FROM by its name or alias.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    pub(super) called: String,
    /// Its columns; None: unknown.
    pub(super) offered: Option<Vec<Offered>>,
    /// The columns of its primary key, if it is a table that has one.
    pub(super) key: Vec<String>,
    /// Whether an outer join may have no row of it.
    pub(super) may_miss: bool,
}

/// A table of FROM, or several that are joined.
#[derive(Debug, Clone, Default)]
pub(super) struct FromItem {
    /// The expansion of `*`; None: unknown.
    pub(super) offered: Option<Vec<Offered>>,
    /// The tables.
    pub(super) leaves: Vec<Leaf>,
    /// Columns that joins merge, and that DataFusion cannot resolve by their names alone.
    pub(super) merged: Vec<Offered>,
    /// Whether DataFusion has its columns in another order.
    pub(super) is_reordered: bool,
}

impl Leaf {
    /// Whether it has a column of that name; None: unknown.
    pub(super) fn has(&self, name: &str) -> Option<bool> {
        Some(self.offered.as_ref()?.iter().any(|column| column.name == name))
    }
}

impl Offered {
    /// As a column of a list with `*`.
    pub(super) fn as_column(&self) -> Column {
        let engine = match &self.expr {
            Expr::CompoundIdentifier(parts) => parts.last().map(|name| name.value.clone()),
            _ => None,
        };
        Column { engine: engine.unwrap_or_else(|| self.name.clone()), name: self.name.clone() }
    }

    /// As the items that replace `*` in a list.
    pub(super) fn as_item(&self) -> SelectItem {
        let expr = self.expr.clone();
        match &self.expr {
            Expr::CompoundIdentifier(parts)
                if parts.last().is_some_and(|part| part.value == self.name) =>
            {
                SelectItem::UnnamedExpr(expr)
            }
            _ => SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', &self.name) },
        }
    }
}

impl Walk<'_> {
    /// Names the columns of the queries in FROM, and rewrites USING where DataFusion could not resolve it.
    pub(super) fn from(&mut self, from: &mut [ast::TableWithJoins]) -> Result<Vec<FromItem>> {
        from.iter_mut().map(|joined| self.joined(joined)).collect()
    }

    fn joined(&mut self, joined: &mut ast::TableWithJoins) -> Result<FromItem> {
        let mut left = self.factor(&mut joined.relation)?;
        for join in &mut joined.joins {
            let mut right = self.factor(&mut join.relation)?;
            merged::note_missing(&mut left, &join.join_operator, &mut right);
            left = self.join(left, &mut join.join_operator, right)?;
        }
        Ok(left)
    }

    fn factor(&mut self, factor: &mut TableFactor) -> Result<FromItem> {
        if let TableFactor::NestedJoin { table_with_joins, alias } = factor {
            if alias.is_none() {
                return self.joined(table_with_joins);
            }
            // Its columns are those of one table then.
            if let Some(derived) = derived(table_with_joins, alias.as_ref()) {
                *factor = derived;
            }
        }
        match factor {
            TableFactor::Table { name, alias, args: None, .. } => self.table(name, alias),
            TableFactor::Table { name, alias, .. } | TableFactor::Function { name, alias, .. } => {
                let function = name.0.last().and_then(|name| name.as_ident()).map(fold);
                Ok(function.map_or_else(FromItem::default, |name| of_function(&name, alias)))
            }
            TableFactor::UNNEST { alias, array_exprs, with_offset: false, .. }
                if array_exprs.len() == 1 =>
            {
                Ok(of_function("unnest", alias))
            }
            TableFactor::Derived { subquery, alias, .. } => {
                let columns = self.query(subquery, Role::Table)?;
                let Some(alias) = alias else { return Ok(FromItem::default()) };
                let columns = listed(alias, columns)?;
                Ok(leaf(&fold(&alias.name), columns))
            }
            _ => Ok(FromItem::default()),
        }
    }

    fn table(
        &self,
        name: &mut ast::ObjectName,
        alias: &mut Option<TableAlias>,
    ) -> Result<FromItem> {
        let Some(own) = name.0.last().and_then(|name| name.as_ident()).cloned() else {
            return Ok(FromItem::default());
        };
        let cte = match name.0.as_slice() {
            [_] => self.ctes.iter().rev().find(|cte| cte.name == fold(&own)),
            _ => None,
        };
        let mut key = Vec::new();
        let columns = match cte {
            Some(cte) => {
                if cte.engine != cte.name {
                    let engine = Ident { span: own.span, ..Ident::with_quote('"', &cte.engine) };
                    *name = ast::ObjectName::from(vec![engine]);
                    alias.get_or_insert_with(|| called(own.clone()));
                }
                cte.columns.clone()
            }
            None => {
                if name.0.len() > 1 {
                    // DataFusion takes `t.*` of `public.t` for that of another table.
                    alias.get_or_insert_with(|| called(own.clone()));
                }
                key = self.tables.primary_key(name);
                let columns = self.tables.columns(name);
                columns.map(|names| names.into_iter().map(Column::plain).collect())
            }
        };
        let mut table = match alias {
            Some(alias) => {
                if !alias.columns.is_empty() {
                    // They have other names.
                    key.clear();
                }
                let columns = listed(alias, columns)?;
                leaf(&fold(&alias.name), columns)
            }
            None => leaf(&fold(&own), columns),
        };
        table.leaves.iter_mut().for_each(|leaf| leaf.key = key.clone());
        Ok(table)
    }
}

/// The columns behind `alias`, whose list may name fewer than there are: the others keep their names.
pub(super) fn listed(
    alias: &mut TableAlias,
    columns: Option<Vec<Column>>,
) -> Result<Option<Vec<Column>>> {
    if alias.columns.is_empty() {
        return Ok(columns);
    }
    let count = alias.columns.len();
    if let Some(known) = columns.as_ref().map(Vec::len).filter(|known| *known < count) {
        return Err(Error::Invalid {
            message: format!(
                "table \"{}\" has {known} columns available but {count} columns specified",
                fold(&alias.name)
            ),
            fault: Fault::ColumnAliases,
            position: None,
        });
    }
    let behind = columns.as_deref().and_then(|columns| columns.get(count..)).unwrap_or_default();
    let named = alias.columns.iter().map(|column| Column::plain(fold(&column.name)));
    let all: Vec<Column> = named.chain(behind.iter().cloned()).collect();
    for column in behind {
        let name = Ident::with_quote('"', &column.engine);
        alias.columns.push(ast::TableAliasColumnDef { name, data_type: None });
    }
    Ok(Some(all))
}

/// A table with this name.
fn leaf(table: &str, columns: Option<Vec<Column>>) -> FromItem {
    let offered = columns.map(|columns| {
        let offered = columns.into_iter().map(|column| {
            let parts = [table, column.engine.as_str()].map(|part| Ident::with_quote('"', part));
            let name = shown_name(&column.name).to_owned();
            Offered { name, expr: Expr::CompoundIdentifier(parts.into()) }
        });
        offered.collect::<Vec<_>>()
    });
    let (called, key) = (table.to_owned(), Vec::new());
    let leaves = vec![Leaf { called, offered: offered.clone(), key, may_miss: false }];
    FromItem { offered, leaves, ..FromItem::default() }
}

fn of_function(name: &str, alias: &Option<TableAlias>) -> FromItem {
    let table = alias.as_ref().map_or_else(|| name.to_owned(), |alias| fold(&alias.name));
    let columns = match alias.as_ref().map(|alias| alias.columns.as_slice()) {
        Some(columns @ [_, ..]) => columns.iter().map(|column| fold(&column.name)).collect(),
        _ if OF_ONE_COLUMN.contains(&name) => vec![table.clone()],
        _ => return leaf(&table, None),
    };
    leaf(&table, Some(columns.into_iter().map(Column::plain).collect()))
}

fn called(name: Ident) -> TableAlias {
    TableAlias { explicit: true, name, columns: Vec::new(), at: None }
}

/// `(SELECT * FROM joined) AS alias`.
fn derived(joined: &ast::TableWithJoins, alias: Option<&TableAlias>) -> Option<TableFactor> {
    let mut query = parse_query("SELECT * FROM t".to_owned()).ok()?;
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    select.from = vec![joined.clone()];
    let alias = alias.cloned();
    Some(TableFactor::Derived { lateral: false, subquery: query, alias, sample: None })
}
