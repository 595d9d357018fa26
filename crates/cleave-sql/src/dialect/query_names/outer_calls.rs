//! Aggregates in a subquery that belong to a query around it: of their columns the nearest is that query's. The call
//! goes there, where DataFusion sees it, and a subquery of it alone stays in its place, which
//! [`OuterAggregates`](crate::dialect::OuterAggregates) replaces by its value:
//!
//! ```text
//!  SELECT (SELECT sum(x.i) FROM y) FROM x
//!    ─▶ SELECT first_of((SELECT (SELECT sum(x.i) AS "outer⟨1⟩") FROM y), sum(x.i), 'outer⟨1⟩') FROM x
//! ```
//!
//! Source: PostgreSQL, `parser/parse_agg.c`, `check_agg_arguments`.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, Expr, Ident, SelectItem, SetExpr, Visitor};

use super::Walk;
use super::from::Leaf;
use crate::dialect::functions::FIRST_OF;
use crate::dialect::having_alone::AGGREGATES;
use crate::dialect::outer_aggregates::OUTER;
use crate::dialect::outer_tables::note_tables;
use crate::statement::catalog_syntax::call;
use crate::statement::names::fold;
use crate::statement::parse::parse_query;
use crate::visiting::visit;

/// What the names within a query may mean.
pub(super) enum Scope {
    /// The tables of its FROM.
    Tables(Vec<Leaf>),
    /// Its FROM, while it is read: names may mean tables beside.
    From,
}

/// An aggregate of an outer query.
pub(super) struct OuterCall {
    /// The number of queries around its own.
    level: usize,
    name: String,
    call: Expr,
}

impl Walk<'_> {
    /// Puts a subquery in place of `expression`, an aggregate, if it belongs to an outer query.
    pub(super) fn leave_outer(&mut self, expression: &mut Expr) {
        let Some(level) = self.outer_level(expression) else { return };
        let Ok(mut query) = parse_query("SELECT 1".to_owned()) else { return };
        let SetExpr::Select(select) = query.body.as_mut() else { return };
        self.renamed += 1;
        let name = format!("{OUTER}⟨{}⟩", self.renamed);
        let alias = Ident::with_quote('"', &name);
        select.projection = vec![SelectItem::ExprWithAlias { expr: expression.clone(), alias }];
        let call = std::mem::replace(expression, Expr::Subquery(query));
        self.outer_calls.push(OuterCall { level, name, call });
    }

    /// Puts the aggregates of this query that stand within `expression`, a subquery, beside it.
    pub(super) fn take_outer(&mut self, expression: &mut Expr) {
        let level = self.scopes.len();
        if self.outer_calls.iter().all(|outer| outer.level != level) {
            return;
        }
        let subquery = std::mem::replace(expression, Expr::value(ast::Value::Null));
        let mut args = vec![subquery];
        let (own, others) =
            self.outer_calls.drain(..).partition::<Vec<_>, _>(|outer| outer.level == level);
        self.outer_calls = others;
        for outer in own {
            args.push(outer.call);
            args.push(Expr::value(ast::Value::SingleQuotedString(outer.name)));
        }
        *expression = call(FIRST_OF, args);
    }

    /// The level of the query that `expression` belongs to, if it is an aggregate of an outer one.
    fn outer_level(&self, expression: &Expr) -> Option<usize> {
        let Expr::Function(function) = expression else { return None };
        let name = fold(function.name.0.last()?.as_ident()?);
        if self.scopes.len() < 2 || function.over.is_some() || !AGGREGATES.contains(&name) {
            return None;
        }
        let mut named = Named { within: Vec::new(), names: Vec::new() };
        let _: ControlFlow<()> = visit(expression, &mut named);
        let mut nearest = 0;
        for (table, column) in &named.names {
            nearest = nearest.max(self.level_of(table.as_deref(), column)?);
        }
        (nearest > 0 && nearest < self.scopes.len()).then_some(nearest)
    }

    /// The level of the query whose column this is; None: unknown.
    fn level_of(&self, table: Option<&str>, column: &str) -> Option<usize> {
        for (place, scope) in self.scopes.iter().enumerate().rev() {
            let Scope::Tables(leaves) = scope else { return None };
            for leaf in leaves {
                let is_here = match table {
                    Some(table) => leaf.called == table,
                    None => leaf.has(column)?,
                };
                if is_here {
                    return Some(place + 1);
                }
            }
        }
        None
    }
}

/// The columns that an aggregate names, each with its table. Those of queries within are their own, unless they have a
/// table from outside.
struct Named {
    within: Vec<BTreeSet<String>>,
    names: Vec<(Option<String>, String)>,
}

impl Visitor for Named {
    type Break = ();

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        let mut tables = BTreeSet::new();
        note_tables(&query.body, &mut tables);
        self.within.push(tables);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
        self.within.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        match expression {
            Expr::Identifier(name) if self.within.is_empty() => {
                self.names.push((None, fold(name)));
            }
            Expr::CompoundIdentifier(parts) => {
                if let [.., table, column] = parts.as_slice() {
                    let table = fold(table);
                    if self.within.iter().all(|own| !own.contains(&table)) {
                        self.names.push((Some(table), fold(column)));
                    }
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
