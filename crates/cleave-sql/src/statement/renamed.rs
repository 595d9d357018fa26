//! The query of a view after a table, or a column of it, has another name: it goes on to read the old names.
//!
//! ```text
//!  SELECT a, b FROM t WHERE b > 5      and b becomes c
//!    ─▶  SELECT a, b FROM (SELECT "a", "c" AS "b" FROM "t") AS "t" WHERE b > 5
//! ```
//!
//! The references in the query stay as they are, so none of them has to be resolved.

use std::ops::ControlFlow;

use cleave_catalog::error::Result;
use datafusion::sql::sqlparser::ast::{
    self, Ident, Query, TableAlias, TableFactor, Visitor, VisitorMut,
};

use super::files::text_of;
use super::names::{SCHEMA, fold, in_quotes};
use super::parse::parse_query;
use crate::visiting::{visit, visit_mut};

/// A table under its new names.
#[derive(Debug, Clone, Copy)]
pub struct Renamed<'a> {
    /// Its name before.
    pub table: &'a str,
    /// Its name now.
    pub to: &'a str,
    /// All of its columns: the name now and the name before.
    pub columns: &'a [(String, String)],
}

impl Renamed<'_> {
    /// `query`, which reads the table by its old names; None: another meaning of the name in it hides the table.
    ///
    /// # Errors
    /// Those of parsing `query`.
    pub fn read_by(&self, query: &str) -> Result<Option<String>> {
        let mut query = parse_query(query.to_owned())?;
        if visit(&*query, &mut Hidden(self.table)).is_break() {
            return Ok(None);
        }
        let columns = self.columns.iter().map(|(now, before)| match now == before {
            true => in_quotes(now),
            false => format!("{} AS {}", in_quotes(now), in_quotes(before)),
        });
        let columns: Vec<_> = columns.collect();
        let rows = format!("SELECT {} FROM {}", columns.join(", "), in_quotes(self.to));
        let rows = parse_query(rows)?;
        let flow = visit_mut(&mut *query, &mut Tables { table: self.table, rows });
        debug_assert!(flow.is_continue(), "nothing stops the visit");
        Ok(Some(text_of(&query)))
    }
}

/// Finds a query of WITH with the name of the table.
struct Hidden<'a>(&'a str);

impl Visitor for Hidden<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let with = query.with.iter().flat_map(|with| &with.cte_tables);
        match with.into_iter().any(|cte| fold(&cte.alias.name) == self.0) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Puts `rows` in the place of the table.
struct Tables<'a> {
    table: &'a str,
    rows: Box<Query>,
}

impl Tables<'_> {
    fn is_named_by(&self, name: &ast::ObjectName) -> bool {
        let parts: Vec<_> = name.0.iter().filter_map(|part| part.as_ident()).map(fold).collect();
        match parts.as_slice() {
            [table] => table == self.table,
            [.., schema, table] => schema == SCHEMA && table == self.table,
            [] => false,
        }
    }
}

impl VisitorMut for Tables<'_> {
    type Break = ();

    // Afterwards: the table within the rows is visited no more.
    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let TableFactor::Table { name, alias, args: None, .. } = factor else {
            return ControlFlow::Continue(());
        };
        if self.is_named_by(name) {
            let own = || TableAlias {
                explicit: true,
                name: Ident::with_quote('"', self.table),
                columns: Vec::new(),
                at: None,
            };
            let alias = Some(alias.take().unwrap_or_else(own));
            let subquery = self.rows.clone();
            *factor = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_reads_the_old_names() {
        let columns = [("a", "a"), ("c", "b")].map(|(now, old)| (now.to_owned(), old.to_owned()));
        let renamed = Renamed { table: "t", to: "u", columns: &columns };
        let read = |query: &str| renamed.read_by(query).unwrap();
        let rows = r#"(SELECT "a", "c" AS "b" FROM "u")"#;
        assert_eq!(
            read("SELECT b FROM public.t, x WHERE EXISTS (SELECT 1 FROM T AS y)").unwrap(),
            format!(r#"SELECT b FROM {rows} AS "t", x WHERE EXISTS (SELECT 1 FROM {rows} AS y)"#)
        );
        assert_eq!(read("WITH t AS (SELECT 1 AS b) SELECT b FROM t"), None);
    }
}
