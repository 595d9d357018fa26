//! Queries of WITH that run once, however often they are used: a query in, the same with marks out, by which the binder
//! recognises them.
//!
//! ```text
//!  WITH x AS (SELECT a FROM t) SELECT … FROM x JOIN x AS y …
//!    ─▶ WITH x AS (SELECT * FROM (SELECT a FROM t) AS mark) SELECT … FROM x JOIN x AS y …
//! ```
//!
//! As in PostgreSQL 12 and later, a query of WITH runs by itself, and its rows are kept, if it is used more than once,
//! has volatile functions, or says `MATERIALIZED`. With `NOT MATERIALIZED`, or used once, it is inlined. Whether a
//! function is volatile, and whether a query is correlated, is known only when it is bound; [`Mark`] lists what to
//! check then.
//!
//! Uses are counted by name. A table, or a query of an inner WITH, that has the same name is counted too. Then a query
//! is run by itself that need not be, which gives the same rows.
//!
//! Source: PostgreSQL's manual, "WITH Queries", "Common Table Expression Materialization".

use std::collections::HashMap;
use std::ops::ControlFlow;

use cleave_catalog::error::Result;
use datafusion::sql::sqlparser::ast;

use super::names::fold;
use super::parse::parse_query;
use crate::visiting::{visit, visit_mut};

/// Prefix of the name of a mark, which is reserved.
const MARK: &str = "\u{1}with";

/// Volatile functions.
const VOLATILE: [&str; 8] = [
    "clock_timestamp",
    "gen_random_uuid",
    "lastval",
    "nextval",
    "random",
    "setval",
    "timeofday",
    "uuid",
];

/// What to check of a query of WITH when it is bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Its name.
    pub name: String,
    /// It runs by itself only if it has volatile functions.
    pub if_volatile: bool,
    /// It may name columns of an outer query.
    pub may_refer: bool,
}

impl Mark {
    /// The mark that `alias` is.
    pub fn of(alias: &ast::TableAlias) -> Option<Self> {
        let rest = alias.name.value.strip_prefix(MARK)?;
        let (flags, name) = rest.split_at_checked(2)?;
        let name = name.to_owned();
        Some(Self { name, if_volatile: flags.contains('v'), may_refer: flags.contains('r') })
    }

    fn alias(&self) -> ast::Ident {
        let volatile = if self.if_volatile { 'v' } else { '-' };
        let refers = if self.may_refer { 'r' } else { '-' };
        ast::Ident::with_quote('"', format!("{MARK}{volatile}{refers}{}", self.name))
    }
}

/// Marks the queries of WITH in `query` that are to run once, or may be.
///
/// # Errors
/// None that a query can cause.
pub fn mark_shared(query: &mut ast::Query) -> Result<()> {
    let mut marks = Marks { values: 0 };
    match visit_mut(query, &mut marks) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Marks {
    /// Depth of expressions, or lateral tables, around the visited query.
    values: usize,
}

impl ast::VisitorMut for Marks {
    type Break = Box<cleave_catalog::error::Error>;

    fn pre_visit_expr(&mut self, expression: &mut ast::Expr) -> ControlFlow<Self::Break> {
        self.values += usize::from(has_query(expression));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut ast::Expr) -> ControlFlow<Self::Break> {
        self.values -= usize::from(has_query(expression));
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(
        &mut self,
        factor: &mut ast::TableFactor,
    ) -> ControlFlow<Self::Break> {
        self.values += usize::from(is_lateral(factor));
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(
        &mut self,
        factor: &mut ast::TableFactor,
    ) -> ControlFlow<Self::Break> {
        self.values -= usize::from(is_lateral(factor));
        ControlFlow::Continue(())
    }

    // The content has its marks already: what is put around it here is not visited again.
    fn post_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<Self::Break> {
        match self.mark(query) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

impl Marks {
    fn mark(&self, query: &mut ast::Query) -> Result<()> {
        if query.with.is_none() {
            return Ok(());
        }
        let uses = Names::of(query);
        let Some(with) = &mut query.with else { return Ok(()) };
        for cte in &mut with.cte_tables {
            let name = fold(&cte.alias.name);
            let own = Names::of(&cte.query);
            let own_uses = own.tables.get(&name).copied().unwrap_or_default();
            let is_recursive = with.recursive && own_uses > 0;
            let mut count = uses.tables.get(&name).copied().unwrap_or_default();
            if is_recursive {
                count -= own_uses.min(count);
            }
            let if_volatile = match cte.materialized {
                Some(ast::CteAsMaterialized::NotMaterialized) => continue,
                Some(ast::CteAsMaterialized::Materialized) => false,
                None if count > 1 => false,
                None if own.has_volatile => true,
                None => continue,
            };
            let mark = Mark { name, if_volatile, may_refer: self.values > 0 };
            cte.query = match is_recursive {
                true => around(recursive(cte)?, &mark)?,
                false => around(
                    std::mem::replace(&mut cte.query, parse_query("SELECT 1".to_owned())?),
                    &mark,
                )?,
            };
        }
        Ok(())
    }
}

/// `query` below its mark.
fn around(query: Box<ast::Query>, mark: &Mark) -> Result<Box<ast::Query>> {
    let mut around = parse_query("SELECT * FROM (SELECT 1) AS mark".to_owned())?;
    if let ast::SetExpr::Select(select) = around.body.as_mut()
        && let Some(from) = select.from.first_mut()
        && let ast::TableFactor::Derived { subquery, alias: Some(alias), .. } = &mut from.relation
    {
        *subquery = query;
        alias.name = mark.alias();
    }
    Ok(around)
}

/// The recursive query of `cte` with its name and columns, which `cte` no longer has of its own.
fn recursive(cte: &mut ast::Cte) -> Result<Box<ast::Query>> {
    let mut query = parse_query("WITH RECURSIVE own AS (SELECT 1) SELECT * FROM own".to_owned())?;
    if let ast::SetExpr::Select(select) = query.body.as_mut()
        && let Some(from) = select.from.first_mut()
        && let ast::TableFactor::Table { name, .. } = &mut from.relation
    {
        *name = ast::ObjectName::from(vec![cte.alias.name.clone()]);
    }
    if let Some(own) = query.with.as_mut().and_then(|with| with.cte_tables.first_mut()) {
        own.alias = cte.alias.clone();
        std::mem::swap(&mut own.query, &mut cte.query);
    }
    cte.alias.columns.clear();
    Ok(query)
}

/// How often names of tables occur in a query, and whether it calls a volatile function.
#[derive(Debug, Default)]
struct Names {
    tables: HashMap<String, usize>,
    has_volatile: bool,
}

impl Names {
    fn of(query: &ast::Query) -> Self {
        let mut names = Self::default();
        // The visit does not stop.
        let _whole: ControlFlow<()> = visit(query, &mut names);
        names
    }
}

impl ast::Visitor for Names {
    type Break = ();

    fn pre_visit_relation(&mut self, name: &ast::ObjectName) -> ControlFlow<()> {
        if let [part] = name.0.as_slice()
            && let Some(part) = part.as_ident()
        {
            *self.tables.entry(fold(part)).or_default() += 1;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<()> {
        if let ast::Expr::Function(call) = expression
            && let Some(name) = call.name.0.last().and_then(|part| part.as_ident())
        {
            let name = fold(name);
            self.has_volatile |= VOLATILE.contains(&name.as_str())
                || (name.starts_with("pg_") && name.contains("advisory"));
        }
        ControlFlow::Continue(())
    }
}

fn has_query(expression: &ast::Expr) -> bool {
    matches!(
        expression,
        ast::Expr::Subquery(_)
            | ast::Expr::InSubquery { .. }
            | ast::Expr::Exists { .. }
            | ast::Expr::AnyOp { .. }
            | ast::Expr::AllOp { .. }
            | ast::Expr::Function(_)
    )
}

fn is_lateral(factor: &ast::TableFactor) -> bool {
    matches!(factor, ast::TableFactor::Derived { lateral: true, .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(text: &str) -> String {
        let mut query = parse_query(text.to_owned()).unwrap();
        mark_shared(&mut query).unwrap();
        query.to_string().replace('\u{1}', "^")
    }

    #[test]
    fn what_is_used_more_than_once_is_marked() {
        let once = "WITH x AS (SELECT 1) SELECT * FROM x";
        assert_eq!(marked(once), once);
        let twice = marked("WITH x AS (SELECT 1 AS a) SELECT * FROM x JOIN X AS y ON x.a = y.a");
        assert!(twice.contains("(SELECT * FROM (SELECT 1 AS a) AS \"^with--x\")"), "{twice}");
        let kept = "WITH x AS NOT MATERIALIZED (SELECT 1 AS a) SELECT * FROM x CROSS JOIN x AS y";
        assert_eq!(marked(kept), kept);
        assert!(marked("WITH x AS MATERIALIZED (SELECT 1) SELECT * FROM x").contains("^with--x"));
        let volatile = marked("WITH x AS (SELECT random()) SELECT * FROM x");
        assert!(volatile.contains("^withv-x"), "{volatile}");
        let within = marked(
            "SELECT (WITH x AS (SELECT 1 AS a) SELECT count(*) FROM x, x AS y WHERE t.b = x.a) FROM t",
        );
        assert!(within.contains("^with-rx"), "{within}");
    }

    #[test]
    fn a_recursive_one_keeps_its_name_within() {
        let shown = marked(
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 9) \
             SELECT * FROM r, r AS s",
        );
        assert!(shown.starts_with("WITH RECURSIVE r AS (SELECT * FROM (WITH RECURSIVE r (n) AS"));
        assert!(shown.contains("AS \"^with--r\")"), "{shown}");
        let once = "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 9) \
                    SELECT * FROM r";
        assert_eq!(marked(once), once);
    }
}
