//! Names of the columns of subqueries, as PostgreSQL gives them.
//!
//! DataFusion names a column without an alias by its expression (`count(*)`, `Int64(1)`), refuses two of one name in a
//! list, and merges columns of USING on the left side alone. [`name_columns`] walks a query from the inside out and
//! writes names down where DataFusion has others:
//!
//! ```text
//!  (SELECT count(*) FROM t) x                 ─▶ (SELECT count(*) AS count FROM t) x
//!  (SELECT a.id, b.id FROM a, b) x            ─▶ (SELECT a.id AS "id⟨1⟩", b.id AS "id⟨2⟩" …) x
//!                                                in which id is ambiguous
//!  (SELECT 1, 2) x (a)                        ─▶ (SELECT 1 AS …, 2 AS …) x (a, "?column?⟨2⟩")
//!  WITH c … (WITH c … SELECT … FROM c)        ─▶ WITH c … (WITH "c⟨1⟩" … SELECT … FROM "c⟨1⟩" AS c)
//!  SELECT *, id FROM a FULL JOIN b USING (id) ─▶ SELECT coalesce(a.id, b.id) AS id, a.x, b.y, …
//!                                                FROM a FULL JOIN b ON a.id = b.id
//! ```
//!
//! 1. [`figured`] gives PostgreSQL's name for an expression;
//! 2. [`from`] gives the columns that FROM offers, and rewrites USING and NATURAL ([`merged`]);
//! 3. this file names the select lists;
//! 4. [`grouped`] adds to GROUP BY the columns that depend on it;
//! 5. [`outer_calls`] puts aggregates into the query that they belong to;
//! 6. [`whole_rows`] writes out the name of a table as a value.
//!
//! Columns of tables come from the statement's catalog ([`KnownTables`]). If they are unknown, as for most functions in
//! FROM, a query stays as it is.
//!
//! Source: PostgreSQL, `parser/parse_target.c`, `parser/parse_clause.c` (`transformFromClauseItem`).

use std::ops::ControlFlow;

use cleave_catalog::error::{Error, Result};
use datafusion::sql::sqlparser::ast::{self, Expr, Ident, SelectItem, SetExpr, VisitorMut};

use crate::statement::names::fold;

mod figured;
mod from;
mod grouped;
mod merged;
mod outer_calls;
mod whole_rows;

use crate::visiting::{Visited, visit_expressions, visit_mut};
pub use figured::{UNNAMED, column_parts, expression_name, item_name};
use from::{FromItem, Offered};
use outer_calls::{OuterCall, Scope};

/// The known columns of tables that a query may name.
pub trait KnownTables {
    /// The names of the columns of `table`; None: unknown.
    fn columns(&self, table: &ast::ObjectName) -> Option<Vec<String>>;

    /// The columns of the primary key of `table`; none: it has none, or is no table.
    fn primary_key(&self, _table: &ast::ObjectName) -> Vec<String> {
        Vec::new()
    }
}

/// Knows no table.
pub struct NoTables;

impl KnownTables for NoTables {
    fn columns(&self, _table: &ast::ObjectName) -> Option<Vec<String>> {
        None
    }
}

/// A column of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// DataFusion's name for it.
    engine: String,
}

/// Names the columns of the queries within `query`, and returns those of its own result, as far as they are known.
///
/// # Errors
/// [`Error::Unsupported`] for a RIGHT or FULL JOIN with USING of unknown columns.
pub fn name_columns(
    query: &mut ast::Query,
    tables: &dyn KnownTables,
) -> Result<Option<Vec<Column>>> {
    let mut walk = Walk {
        tables,
        ctes: Vec::new(),
        merged: Vec::new(),
        scopes: Vec::new(),
        outer_calls: Vec::new(),
        marked: Vec::new(),
        renamed: 0,
    };
    walk.query(query, Role::Result)
}

/// The use of a query's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The result of the statement, which is named later.
    Result,
    /// Columns of a table of FROM or WITH, which are referenced by name.
    Table,
    /// A value, or a side of a set operation other than the first: its names are unused.
    Value,
}

/// A query of WITH.
struct Cte {
    name: String,
    /// DataFusion's name for it.
    engine: String,
    columns: Option<Vec<Column>>,
}

struct Walk<'a> {
    tables: &'a dyn KnownTables,
    /// Those that can be named, the nearest last.
    ctes: Vec<Cte>,
    /// Columns that joins of the outer queries merge.
    merged: Vec<Vec<Offered>>,
    /// What names mean, of the outermost query first.
    scopes: Vec<Scope>,
    /// Aggregates that belong to outer queries.
    outer_calls: Vec<OuterCall>,
    /// Tables whose rows need a column that tells whether they are there, with the levels of their queries.
    marked: Vec<(usize, String)>,
    /// Number of renamed queries of WITH, and of aggregates of outer queries.
    renamed: usize,
}

/// The context of a select list.
struct Around<'a> {
    order_by: &'a mut Option<ast::OrderBy>,
    role: Role,
    /// It is the first of a set operation.
    in_set: bool,
}

impl Walk<'_> {
    /// Names the columns of `query`.
    fn query(&mut self, query: &mut ast::Query, role: Role) -> Result<Option<Vec<Column>>> {
        let outside = self.ctes.len();
        if let Some(with) = &mut query.with {
            for cte in &mut with.cte_tables {
                self.cte(cte, with.recursive)?;
            }
        }
        let ast::Query { body, order_by, limit_clause, .. } = query;
        let around = Around { order_by: &mut *order_by, role, in_set: false };
        let columns = self.body(body, around)?;
        if !matches!(body.as_ref(), SetExpr::Select(_)) {
            self.in_expressions(order_by, &[])?;
        }
        self.in_expressions(limit_clause, &[])?;
        self.ctes.truncate(outside);
        Ok(columns)
    }

    fn cte(&mut self, cte: &mut ast::Cte, is_recursive: bool) -> Result<()> {
        let name = fold(&cte.alias.name);
        let mut engine = name.clone();
        if self.ctes.iter().any(|known| known.name == name) {
            self.renamed += 1;
            engine = format!("{name}⟨{}⟩", self.renamed);
            let span = cte.alias.name.span;
            cte.alias.name = Ident { span, ..Ident::with_quote('"', &engine) };
        }
        let own = |columns| Cte { name: name.clone(), engine: engine.clone(), columns };
        if is_recursive {
            let listed = cte.alias.columns.iter().map(|column| fold(&column.name));
            let listed: Vec<Column> = listed.map(Column::plain).collect();
            self.ctes.push(own(Some(listed).filter(|listed| !listed.is_empty())));
        }
        let columns = self.query(&mut cte.query, Role::Table)?;
        if is_recursive {
            self.ctes.pop();
        }
        let columns = from::listed(&mut cte.alias, columns)?;
        self.ctes.push(own(columns));
        Ok(())
    }

    fn body(&mut self, body: &mut SetExpr, around: Around<'_>) -> Result<Option<Vec<Column>>> {
        match body {
            SetExpr::Select(select) => self.select(select, around),
            SetExpr::Query(query) => self.query(query, around.role),
            SetExpr::SetOperation { left, right, .. } => {
                let columns = self.body(left, Around { in_set: true, ..around })?;
                let mut none = None;
                let beside = Around { order_by: &mut none, role: Role::Value, in_set: true };
                self.body(right, beside)?;
                Ok(columns)
            }
            SetExpr::Values(values) => {
                let count = values.rows.iter().map(|row| row.len()).max().unwrap_or_default();
                self.scopes.push(Scope::Tables(Vec::new()));
                self.in_expressions(values, &[])?;
                self.scopes.pop();
                let names = (1..=count).map(|number| format!("column{number}"));
                Ok(Some(names.map(Column::plain).collect()))
            }
            _ => Ok(None),
        }
    }

    fn select(
        &mut self,
        select: &mut ast::Select,
        Around { order_by, role, in_set }: Around<'_>,
    ) -> Result<Option<Vec<Column>>> {
        self.scopes.push(Scope::From);
        let mut from = self.from(&mut select.from)?;
        if let Some(scope) = self.scopes.last_mut() {
            let leaves = from.iter().flat_map(|item| item.leaves.iter().cloned());
            *scope = Scope::Tables(leaves.collect());
        }
        let merged = self.merged_here(&from);
        for item in &mut select.projection {
            match item {
                SelectItem::UnnamedExpr(expr) => {
                    let name = expression_name(expr);
                    // What only names a column stays as it is.
                    let is_name = matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
                    if is_name && merged.is_empty() {
                        continue;
                    }
                    let before = expr.clone();
                    self.in_expressions(expr, &merged)?;
                    let is_other = !merged.is_empty() || expression_name(expr) != name;
                    if is_other && *expr != before {
                        let (expr, alias) = (expr.clone(), Ident::with_quote('"', name));
                        *item = SelectItem::ExprWithAlias { expr, alias };
                    }
                }
                other => self.in_expressions(other, &merged)?,
            }
        }
        let aliases: Vec<String> = select.projection.iter().filter_map(item_name).collect();
        self.in_expressions(&mut select.selection, &merged)?;
        self.in_expressions(&mut select.group_by, &merged)?;
        self.in_expressions(&mut select.having, &merged)?;
        self.in_expressions(&mut select.named_window, &merged)?;
        self.in_expressions(&mut select.distinct, &merged)?;
        // A name in ORDER BY is first a column of the result.
        let not_shown = merged.iter().filter(|column| !aliases.contains(&column.name));
        let not_shown: Vec<Offered> = not_shown.cloned().collect();
        self.in_expressions(order_by, &not_shown)?;
        self.mark_rows(select, &mut from);
        self.scopes.pop();
        grouped::group_by_dependent(select, order_by.as_ref(), &from);
        Ok(name_list(select, &from, order_by.as_ref(), (role, in_set)))
    }

    /// The merged columns of FROM, and of outer queries if no table of FROM has a column of that name.
    fn merged_here(&self, from: &[FromItem]) -> Vec<Offered> {
        let mut merged: Vec<Offered> = Vec::new();
        let own = from.iter().flat_map(|item| item.merged.iter());
        merged.extend(own.cloned());
        let is_known = from.iter().all(|item| item.offered.is_some());
        if is_known {
            let offers = |name: &str| {
                let mut offered = from.iter().flat_map(|item| item.offered.iter().flatten());
                offered.any(|own| own.name == name)
            };
            for column in self.merged.iter().rev().flatten() {
                if !offers(&column.name) && merged.iter().all(|own| own.name != column.name) {
                    merged.push(column.clone());
                }
            }
        }
        merged
    }

    /// Names the columns of the queries within expressions, which refer to `merged` columns by their names alone.
    fn in_expressions(&mut self, part: &mut impl Visited, merged: &[Offered]) -> Result<()> {
        self.merged.push(merged.to_vec());
        let mut visit = InExpressions { walk: self, merged, depth: 0 };
        let flow = visit_mut(part, &mut visit);
        self.merged.pop();
        match flow {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(*error),
        }
    }
}

impl Column {
    fn plain(name: String) -> Self {
        Self { engine: name.clone(), name }
    }
}

struct InExpressions<'a, 'b> {
    walk: &'a mut Walk<'b>,
    merged: &'a [Offered],
    /// Number of queries in between.
    depth: usize,
}

impl VisitorMut for InExpressions<'_, '_> {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<Box<Error>> {
        if self.depth == 0
            && let Err(error) = self.walk.query(query, Role::Value)
        {
            return ControlFlow::Break(Box::new(error));
        }
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut ast::Query) -> ControlFlow<Box<Error>> {
        self.depth = self.depth.saturating_sub(1);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Box<Error>> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        match expression {
            Expr::Identifier(name) if !self.merged.is_empty() => {
                let name = fold(name);
                if let Some(column) = self.merged.iter().find(|column| column.name == name) {
                    *expression = column.expr.clone();
                }
            }
            Expr::Subquery(_)
            | Expr::Exists { .. }
            | Expr::InSubquery { .. }
            | Expr::AnyOp { .. }
            | Expr::AllOp { .. } => self.walk.take_outer(expression),
            Expr::IsNull(_) | Expr::IsNotNull(_) => self.walk.of_whole_row(expression),
            // ARRAY (SELECT …)
            Expr::Function(ast::Function { args: ast::FunctionArguments::Subquery(_), .. }) => {
                self.walk.take_outer(expression);
            }
            Expr::Function(_) => {
                self.walk.of_whole_row(expression);
                self.walk.leave_outer(expression);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Names the select list of `select`.
fn name_list(
    select: &mut ast::Select,
    from: &[FromItem],
    order_by: Option<&ast::OrderBy>,
    (role, in_set): (Role, bool),
) -> Option<Vec<Column>> {
    let is_table = role == Role::Table;
    let is_reordered = from.iter().any(|item| item.is_reordered);
    let all = expanded(&select.projection, from);
    let has_star = select.projection.iter().any(|item| item_name(item).is_none());
    if let Some(all) = all
        && has_star
        && (is_reordered || (is_table && has_second(&all)))
    {
        select.projection = all;
    }
    let names: Vec<Option<Vec<Column>>> =
        select.projection.iter().map(|item| columns_of(item, from)).collect();
    let asked = asked_names(select, order_by);
    let known: Vec<&str> =
        names.iter().flatten().flatten().map(|column| column.name.as_str()).collect();
    let is_second = |name: &str| known.iter().filter(|known| **known == name).count() > 1;
    let mut place = 0_usize;
    let mut columns = Some(Vec::new());
    for (item, own) in select.projection.iter_mut().zip(&names) {
        place += 1;
        let (Some([own]), true) = (own.as_deref(), item_name(item).is_some()) else {
            columns = columns.zip(own.clone()).map(|(before, own)| [before, own].concat());
            continue;
        };
        let mut own = own.clone();
        if is_table && is_second(&own.name) {
            own.engine = format!("{}⟨{place}⟩", own.name);
            give_name(item, &own.engine);
        } else if let SelectItem::UnnamedExpr(expression) = item
            && (is_table || asked.is_for(&own.name) || (in_set && role != Role::Value))
            && !is_second(&own.name)
            && column_parts(expression).is_none_or(|(_, engine)| engine != own.name)
        {
            own.engine.clone_from(&own.name);
            give_name(item, &own.engine);
        }
        if let Some(columns) = &mut columns {
            columns.push(own);
        }
    }
    columns
}

/// Gives the column that `item` is this name.
fn give_name(item: &mut SelectItem, name: &str) {
    if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
        let expr = std::mem::replace(expr, Expr::value(ast::Value::Null));
        *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name) };
    }
}

/// The columns of `item`; None: unknown.
fn columns_of(item: &SelectItem, from: &[FromItem]) -> Option<Vec<Column>> {
    if let Some(name) = item_name(item) {
        return Some(vec![Column::plain(name)]);
    }
    let offered = star(item, from)?;
    Some(offered.into_iter().map(|column| column.as_column()).collect())
}

/// The expansion of a `*`; None: unknown.
fn star(item: &SelectItem, from: &[FromItem]) -> Option<Vec<Offered>> {
    let (options, table) = match item {
        SelectItem::Wildcard(options) => (options, None),
        SelectItem::QualifiedWildcard(
            ast::SelectItemQualifiedWildcardKind::ObjectName(name),
            options,
        ) => (options, Some(fold(name.0.last()?.as_ident()?))),
        _ => return None,
    };
    if *options != ast::WildcardAdditionalOptions::default() {
        return None;
    }
    match table {
        None => {
            let offered = from.iter().map(|item| item.offered.clone());
            Some(offered.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
        }
        Some(table) => {
            let mut leaves = from.iter().flat_map(|item| item.leaves.iter());
            leaves.find(|leaf| leaf.called == table)?.offered.clone()
        }
    }
}

/// A list without `*`; None: the expansion of one is unknown.
fn expanded(items: &[SelectItem], from: &[FromItem]) -> Option<Vec<SelectItem>> {
    let mut all = Vec::with_capacity(items.len());
    for item in items {
        if item_name(item).is_some() {
            all.push(item.clone());
            continue;
        }
        all.extend(star(item, from)?.into_iter().map(|column| column.as_item()));
    }
    Some(all)
}

fn has_second(items: &[SelectItem]) -> bool {
    let mut names: Vec<Option<String>> = items.iter().map(item_name).collect();
    names.sort();
    names.windows(2).any(|pair| matches!(pair, [one, other] if one == other))
}

/// The names used in GROUP BY and ORDER BY.
struct AskedNames {
    /// By themselves.
    alone: Vec<String>,
    /// Within an expression, where they are columns of FROM.
    within: Vec<String>,
}

impl AskedNames {
    fn is_for(&self, name: &str) -> bool {
        self.alone.iter().any(|asked| asked == name)
            && !self.within.iter().any(|asked| asked == name)
    }
}

fn asked_names(select: &ast::Select, order_by: Option<&ast::OrderBy>) -> AskedNames {
    let mut asked = AskedNames { alone: Vec::new(), within: Vec::new() };
    let mut note = |expression: &Expr| match expression {
        Expr::Identifier(name) => asked.alone.push(fold(name)),
        other => {
            let _: ControlFlow<()> = visit_expressions(other, |part| {
                if let Expr::Identifier(name) = part {
                    asked.within.push(fold(name));
                }
                ControlFlow::Continue(())
            });
        }
    };
    if let ast::GroupByExpr::Expressions(keys, _) = &select.group_by {
        keys.iter().for_each(&mut note);
    }
    if let Some(ast::OrderBy { kind: ast::OrderByKind::Expressions(keys), .. }) = order_by {
        keys.iter().for_each(|key| note(&key.expr));
    }
    asked
}

#[cfg(test)]
mod tests;
