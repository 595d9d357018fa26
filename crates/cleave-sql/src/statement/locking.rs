//! `SELECT … FOR UPDATE` and similar clauses: a query with locking clauses in; out, the tables whose rows it locks, and
//! the query that identifies these rows.
//!
//! ```text
//!  SELECT a FROM t, u WHERE t.k = u.k ORDER BY b LIMIT 1 FOR UPDATE OF t SKIP LOCKED
//!    ─▶ SELECT a, t.VID0, t.PLACE0 FROM (SELECT a, b, k, VID AS VID0, 0 AS PLACE0 FROM target of t, tablet 0
//!                                        UNION ALL SELECT …, 1 AS PLACE0 FROM target of t, tablet 1 …) AS t, u
//!       WHERE t.k = u.k ORDER BY b LIMIT (number of rows to look at)
//! ```
//!
//! A row is identified by its tablet and its VID there; [`target_name`] is the name by which a query reads the rows of
//! one tablet with their VIDs.
//!
//! Source: PostgreSQL's manual, "The Locking Clause".

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::{Error, Fault, NameKind, Position, Result};
use cleave_txn::LockMode;
use datafusion::execution::SessionStateDefaults;
use datafusion::sql::sqlparser::ast::{self, Spanned, Visitor};

use super::locked_parts::is_rows;
use super::modify::{TARGET, VID, over_target};
use super::names::{fold, position_of, table_name};
use super::parameters::{Parameters, place_of};
use super::parse::refuse_in_query;
use crate::visiting::visit;

/// Prefix of the names of added columns.
pub const HIDDEN: char = '\u{1}';

/// A query that locks rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Locking {
    /// The query, without its locking clauses.
    pub query: Box<ast::Query>,
    /// The locking clauses, as written.
    pub clauses: Vec<LockingClause>,
}

/// One locking clause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockingClause {
    /// The lock mode of its rows.
    pub mode: LockMode,
    /// The tables, as the query names them; empty: all.
    pub of: Vec<String>,
    /// What to do with a row that another transaction has locked.
    pub wait: WaitPolicy,
}

/// What to do with a row that another transaction has locked; of two clauses the greater counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum WaitPolicy {
    /// Wait.
    #[default]
    Wait,
    /// SKIP LOCKED: leave the row out.
    Skip,
    /// NOWAIT: fail.
    Fail,
}

/// A table whose rows are locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedTable {
    /// Its name.
    pub table: String,
    /// Its name in the query.
    pub alias: ast::Ident,
    /// The lock mode of its rows.
    pub mode: LockMode,
    /// What to do with a row that another transaction has locked.
    pub wait: WaitPolicy,
}

/// LIMIT and OFFSET.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowWindow {
    /// Rows that are skipped.
    pub offset: usize,
    /// Maximum number of rows after these; None: all.
    pub limit: Option<usize>,
}

/// The name by which a query reads the rows of `table` in the tablet at `place`, with their VIDs.
#[must_use]
pub fn target_name(table: &str, place: usize) -> String {
    format!("{TARGET}{HIDDEN}{place}{HIDDEN}{table}")
}

/// Table and place of a [`target_name`].
#[must_use]
pub fn target_of(name: &str) -> Option<(&str, usize)> {
    let rest = name.strip_prefix(TARGET)?.strip_prefix(HIDDEN)?;
    let (place, table) = rest.split_once(HIDDEN)?;
    Some((table, place.parse().ok()?))
}

impl RowWindow {
    /// All rows.
    pub const ALL: Self = Self { offset: 0, limit: None };
}

impl Locking {
    /// The text of the first clause.
    #[must_use]
    pub fn name(&self) -> String {
        let mode = self.clauses.first().map_or(LockMode::ForUpdate, |clause| clause.mode);
        format!("SELECT ... {mode}")
    }

    /// The tables of `state` whose rows are locked, in the order of FROM.
    ///
    /// # Errors
    /// [`Error::UnknownName`] for a missing table; [`Error::Unsupported`] for a subquery, and for the nullable side of
    /// an outer join.
    pub fn tables(&self, state: &CatalogState) -> Result<Vec<LockedTable>> {
        let mut found = Vec::new();
        let ast::SetExpr::Select(select) = self.query.body.as_ref() else { return Ok(found) };
        let mut items = Vec::new();
        for from in &select.from {
            collect(from, false, &mut items);
        }
        let with = self.query.with.iter().flat_map(|with| &with.cte_tables);
        let with: BTreeSet<String> = with.map(|cte| fold(&cte.alias.name)).collect();
        for clause in &self.clauses {
            for name in &clause.of {
                if !items.iter().any(|item| item.alias.as_ref().map(fold).as_ref() == Some(name)) {
                    return Err(Error::UnknownName {
                        kind: NameKind::Relation,
                        name: name.clone(),
                        of: Some(format!("the FROM clause, which {} names", clause.mode)),
                        suggestion: None,
                        position: None,
                    });
                }
            }
        }
        for item in items {
            let alias = item.alias.as_ref().map(fold);
            let named = |clause: &&LockingClause| {
                alias.as_ref().is_some_and(|alias| clause.of.contains(alias))
            };
            let is_named = self.clauses.iter().any(|clause| named(&clause));
            let applies = |clause: &&LockingClause| clause.of.is_empty() || named(clause);
            let clauses: Vec<&LockingClause> = self.clauses.iter().filter(applies).collect();
            let Some(mode) = clauses.iter().map(|clause| clause.mode).max() else { continue };
            let wait = clauses.iter().map(|clause| clause.wait).max().unwrap_or_default();
            let refused = |what: &str| {
                Err(Error::unsupported(format!("SELECT ... {mode} {what}")).at(item.position))
            };
            let (name, alias) = match (item.factor, item.alias) {
                (ast::TableFactor::Table { name, args: None, .. }, Some(alias)) => (name, alias),
                (ast::TableFactor::Derived { .. }, _) => {
                    return refused("of a subquery in FROM (lock its tables there)");
                }
                _ if is_named => return refused("of anything but a table"),
                _ => continue,
            };
            let is_with = name.0.len() == 1 && with.contains(&fold(&alias_of(name)));
            if is_with && is_named {
                return refused("of a WITH query");
            }
            let Ok(table) = table_name(name) else { continue };
            if is_with
                || is_rows(&table)
                || (name.0.len() > 1 && state.table(&table).is_none() && !is_named)
            {
                continue;
            }
            if item.is_nullable {
                return refused("of the nullable side of an outer join");
            }
            state.find_writable_table(&table).map_err(|error| error.at(item.position))?;
            found.push(LockedTable { table, alias, mode, wait });
        }
        Ok(found)
    }

    /// The query for the first `row_count` rows, with the tablet and VID of each underlying row of `tables` appended.
    ///
    /// # Errors
    /// What a query cannot have.
    pub fn row_query(
        &self,
        state: &CatalogState,
        tables: &[LockedTable],
        row_count: Option<usize>,
    ) -> Result<Box<ast::Query>> {
        let mut query = self.query.clone();
        query.limit_clause = row_count.map(|count| ast::LimitClause::LimitOffset {
            limit: Some(ast::Expr::value(ast::Value::Number(count.to_string(), false))),
            offset: None,
            limit_by: Vec::new(),
        });
        let strange = || Error::unsupported("this query with a locking clause");
        let ast::SetExpr::Select(select) = query.body.as_mut() else { return Err(strange()) };
        for (number, locked) in tables.iter().enumerate() {
            let table = state.find_writable_table(&locked.table)?;
            for from in &mut select.from {
                put(from, locked, &|| rows_of(table, number))?;
            }
            let is_shown = |item: &ast::SelectItem| match item {
                ast::SelectItem::Wildcard(_) => true,
                ast::SelectItem::QualifiedWildcard(
                    ast::SelectItemQualifiedWildcardKind::ObjectName(name),
                    _,
                ) => fold(&alias_of(name)) == fold(&locked.alias),
                _ => false,
            };
            if select.projection.iter().any(is_shown) {
                continue;
            }
            for name in hidden_names(number) {
                let alias = ast::Ident::with_quote('"', name);
                let parts = vec![locked.alias.clone(), alias.clone()];
                let expr = ast::Expr::CompoundIdentifier(parts);
                select.projection.push(ast::SelectItem::ExprWithAlias { expr, alias });
            }
        }
        refuse_in_query(&query)?;
        Ok(query)
    }

    /// LIMIT and OFFSET.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for what is neither a number nor a parameter; [`Error::Invalid`] for one below zero.
    pub fn window(&self, parameters: &Parameters) -> Result<RowWindow> {
        let count = |expression: &ast::Expr, fault: Fault| -> Result<Option<usize>> {
            let text = match (place_of(expression)?, expression) {
                (Some(place), _) => match parameters.get(place)?.text() {
                    None => return Ok(None),
                    Some(text) => text.to_owned(),
                },
                (None, ast::Expr::Value(value)) => match &value.value {
                    ast::Value::Null => return Ok(None),
                    ast::Value::Number(digits, _) => digits.clone(),
                    _ => String::new(),
                },
                _ => String::new(),
            };
            match text.parse::<usize>() {
                Ok(count) => Ok(Some(count)),
                Err(_) if text.starts_with('-') => Err(Error::Invalid {
                    message: format!(
                        "{} must not be negative",
                        if fault == Fault::Limit { "LIMIT" } else { "OFFSET" }
                    ),
                    fault,
                    position: None,
                }),
                Err(_) => Err(Error::unsupported(
                    "LIMIT or OFFSET that is neither a number nor a parameter, with FOR UPDATE",
                )),
            }
        };
        match &self.query.limit_clause {
            None => Ok(RowWindow { offset: 0, limit: None }),
            Some(ast::LimitClause::LimitOffset { limit, offset, limit_by })
                if limit_by.is_empty() =>
            {
                let limit = limit.as_ref().map_or(Ok(None), |limit| count(limit, Fault::Limit))?;
                let offset = offset
                    .as_ref()
                    .map_or(Ok(None), |offset| count(&offset.value, Fault::Offset))?;
                Ok(RowWindow { offset: offset.unwrap_or(0), limit })
            }
            Some(_) => Err(Error::unsupported("this LIMIT with FOR UPDATE")),
        }
    }
}

/// The names of the columns that identify the rows of the table `number`: VID and place of the tablet.
#[must_use]
pub fn hidden_names(number: usize) -> [String; 2] {
    [format!("{HIDDEN}vid{number}"), format!("{HIDDEN}place{number}")]
}

/// One table of FROM.
struct FromItem<'a> {
    factor: &'a ast::TableFactor,
    /// Its name in the query.
    alias: Option<ast::Ident>,
    is_nullable: bool,
    position: Option<Position>,
}

/// The last part of a name.
fn alias_of(name: &ast::ObjectName) -> ast::Ident {
    let last = name.0.last().and_then(ast::ObjectNamePart::as_ident);
    last.cloned().unwrap_or_else(|| ast::Ident::new(""))
}

fn called(factor: &ast::TableFactor) -> Option<ast::Ident> {
    match factor {
        ast::TableFactor::Table { name, alias, .. } => {
            Some(alias.as_ref().map_or_else(|| alias_of(name), |alias| alias.name.clone()))
        }
        ast::TableFactor::Derived { alias, .. } => alias.as_ref().map(|alias| alias.name.clone()),
        _ => None,
    }
}

fn collect<'a>(from: &'a ast::TableWithJoins, is_nullable: bool, found: &mut Vec<FromItem<'a>>) {
    use ast::JoinOperator as Join;
    let first = found.len();
    collect_one(&from.relation, is_nullable, found);
    for join in &from.joins {
        let (left, right) = match join.join_operator {
            Join::Left(_) | Join::LeftOuter(_) => (false, true),
            Join::Right(_) | Join::RightOuter(_) => (true, false),
            Join::FullOuter(_) => (true, true),
            _ => (false, false),
        };
        if left {
            found.iter_mut().skip(first).for_each(|item| item.is_nullable = true);
        }
        collect_one(&join.relation, is_nullable || right, found);
    }
}

fn collect_one<'a>(factor: &'a ast::TableFactor, is_nullable: bool, found: &mut Vec<FromItem<'a>>) {
    if let ast::TableFactor::NestedJoin { table_with_joins, .. } = factor {
        return collect(table_with_joins, is_nullable, found);
    }
    let position = position_of(factor.span().start);
    found.push(FromItem { factor, alias: called(factor), is_nullable, position });
}

/// Replaces the tables `locked` by their rows with VIDs.
fn put(
    from: &mut ast::TableWithJoins,
    locked: &LockedTable,
    rows: &dyn Fn() -> Result<Box<ast::Query>>,
) -> Result<()> {
    let joined = from.joins.iter_mut().map(|join| &mut join.relation);
    for factor in std::iter::once(&mut from.relation).chain(joined) {
        if let ast::TableFactor::NestedJoin { table_with_joins, .. } = factor {
            put(table_with_joins, locked, rows)?;
            continue;
        }
        let is_it = called(factor).is_some_and(|alias| fold(&alias) == fold(&locked.alias));
        let ast::TableFactor::Table { alias, .. } = factor else { continue };
        if !is_it {
            continue;
        }
        let mut alias = alias.take().unwrap_or_else(|| ast::TableAlias {
            explicit: true,
            name: locked.alias.clone(),
            columns: Vec::new(),
            at: None,
        });
        if !alias.columns.is_empty() {
            let what = "a locking clause on a table whose columns have other names";
            alias.columns.clear();
            return Err(Error::unsupported(what));
        }
        *factor = ast::TableFactor::Derived {
            lateral: false,
            subquery: rows()?,
            alias: Some(alias),
            sample: None,
        };
    }
    Ok(())
}

/// The rows of `table`, the one of this number, with tablet and VID.
fn rows_of(table: &TableState, number: usize) -> Result<Box<ast::Query>> {
    let own = ast::Ident::with_quote('"', "t");
    let column = |name: &str| {
        ast::Expr::CompoundIdentifier(vec![own.clone(), ast::Ident::with_quote('"', name)])
    };
    let [vid, place] = hidden_names(number);
    let named = |expr: ast::Expr, name: &str| {
        let alias = ast::Ident::with_quote('"', name);
        ast::SelectItem::ExprWithAlias { expr, alias }
    };
    let mut all: Option<Box<ast::Query>> = None;
    for number in 0..table.tablets.len() {
        let columns = table.schema.columns.iter();
        let mut items: Vec<ast::SelectItem> =
            columns.map(|known| ast::SelectItem::UnnamedExpr(column(&known.name))).collect();
        items.push(named(column(VID), &vid));
        let number_here = ast::Expr::value(ast::Value::Number(number.to_string(), false));
        items.push(named(number_here, &place));
        let mut query = over_target(&own, items, Vec::new(), None)?;
        if let ast::SetExpr::Select(select) = query.body.as_mut()
            && let Some(ast::TableFactor::Table { name, .. }) =
                select.from.first_mut().map(|table| &mut table.relation)
        {
            let target = target_name(&table.schema.name, number);
            *name = ast::ObjectName::from(vec![ast::Ident::with_quote('"', target)]);
        }
        all = Some(match all {
            None => query,
            Some(mut before) => {
                before.body = Box::new(ast::SetExpr::SetOperation {
                    op: ast::SetOperator::Union,
                    set_quantifier: ast::SetQuantifier::All,
                    left: before.body,
                    right: query.body,
                });
                before
            }
        });
    }
    all.ok_or_else(|| Error::unsupported("a table without tablets"))
}

/// A parsed query with locking clauses.
///
/// # Errors
/// [`Error::Unsupported`] for results whose rows are not single rows of a table: GROUP BY, DISTINCT, UNION, aggregates
/// and the like.
pub fn locking(mut query: Box<ast::Query>) -> Result<Locking> {
    let clauses: Vec<LockingClause> =
        std::mem::take(&mut query.locks).iter().map(clause_of).collect();
    let name = Locking { query: query.clone(), clauses: clauses.clone() }.name();
    let position = position_of(query.span().start);
    let refused = |what: &str| Err(Error::unsupported(format!("{name} {what}")).at(position));
    let select = match query.body.as_ref() {
        ast::SetExpr::Select(select) => select,
        ast::SetExpr::Values(_) => return refused("with VALUES"),
        ast::SetExpr::SetOperation { .. } => return refused("with UNION, INTERSECT or EXCEPT"),
        _ => return refused("of this query"),
    };
    let is_grouped = match &select.group_by {
        ast::GroupByExpr::All(_) => true,
        ast::GroupByExpr::Expressions(list, _) => !list.is_empty(),
    };
    let clause = [
        (is_grouped, "with GROUP BY"),
        (select.distinct.is_some(), "with DISTINCT"),
        (select.having.is_some(), "with HAVING"),
        (query.fetch.is_some(), "with FETCH (write LIMIT)"),
    ];
    if let Some((_, what)) = clause.iter().find(|(present, _)| *present) {
        return refused(what);
    }
    if let ControlFlow::Break(what) = visit(&select.projection, &mut Aggregates { depth: 0 }) {
        return refused(what);
    }
    refuse_in_query(&query)?;
    Ok(Locking { query, clauses })
}

/// Finds constructs that combine several rows into one.
struct Aggregates {
    depth: usize,
}

impl Visitor for Aggregates {
    type Break = &'static str;

    fn pre_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<&'static str> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<&'static str> {
        self.depth = self.depth.saturating_sub(1);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<&'static str> {
        let ast::Expr::Function(function) = expression else { return ControlFlow::Continue(()) };
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        if function.over.is_some() {
            return ControlFlow::Break("with window functions");
        }
        match function.name.0.as_slice() {
            [ast::ObjectNamePart::Identifier(name)] if AGGREGATES.contains(&fold(name)) => {
                ControlFlow::Break("with aggregate functions")
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// The names of functions that combine many rows into one value.
static AGGREGATES: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let mut names = BTreeSet::new();
    for function in &SessionStateDefaults::default_aggregate_functions() {
        names.insert(function.name().to_owned());
        names.extend(function.aliases().iter().cloned());
    }
    names
});

/// The names that [`locking_names`] has written behind OF.
fn clause_of(clause: &ast::LockClause) -> LockingClause {
    let written = clause.of.as_ref().map(|of| alias_of(of).value).unwrap_or_default();
    let mut parts = written.strip_prefix(HIDDEN).unwrap_or_default().split(HIDDEN);
    let is_weak = parts.next() == Some(WEAK);
    let mode = match (clause.lock_type, is_weak) {
        (ast::LockType::Update, false) => LockMode::ForUpdate,
        (ast::LockType::Update, true) => LockMode::ForNoKeyUpdate,
        (ast::LockType::Share, false) => LockMode::ForShare,
        (ast::LockType::Share, true) => LockMode::ForKeyShare,
    };
    let wait = match clause.nonblock {
        None => WaitPolicy::Wait,
        Some(ast::NonBlock::SkipLocked) => WaitPolicy::Skip,
        Some(ast::NonBlock::Nowait) => WaitPolicy::Fail,
    };
    LockingClause { mode, of: parts.map(str::to_owned).collect(), wait }
}

/// Encodes NO KEY UPDATE and KEY SHARE.
const WEAK: &str = "weak";

/// The single name behind OF that encodes what the parser crate does not read: KEY, and several names.
#[must_use]
pub(crate) fn locking_names(is_weak: bool, of: &[String]) -> String {
    let mut written = format!("{HIDDEN}{}", if is_weak { WEAK } else { "" });
    for name in of {
        written.push(HIDDEN);
        written.push_str(name);
    }
    written
}
