//! WITH RECURSIVE: refuses each reference of a query to itself that PostgreSQL refuses, with its error.
//!
//! A recursive query has the form `first UNION [ALL] again`. `again` reads the rows of the previous round at one place:
//! as a table of FROM, not on the nullable side of an outer join, not in a subquery of an expression, and under no
//! aggregate.
//!
//! Source: PostgreSQL's `checkWellFormedRecursion` and `parseCheckAggregates`.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use cleave_catalog::error::{Error, Fault};
use datafusion::sql::sqlparser::ast::{self, Spanned, Visitor};

use super::refuse::Flow;
use crate::dialect::AGGREGATES;
use crate::statement::names::{fold, position_of};
use crate::visiting::{Visited, visit};

/// Refuses invalid self-references in the queries of `with`.
pub(super) fn refuse_recursion(with: &ast::With) -> Flow {
    refuse_mutual(with)?;
    with.cte_tables.iter().try_for_each(|cte| {
        let name = fold(&cte.alias.name);
        if !names(&name, cte.query.as_ref()) {
            return ControlFlow::Continue(());
        }
        let ast::SetExpr::SetOperation { op: ast::SetOperator::Union, left, right, .. } =
            cte.query.body.as_ref()
        else {
            let what = "does not have the form non-recursive-term UNION [ALL] recursive-term";
            return broken(format!("recursive query \"{name}\" {what}"), &cte.alias.name);
        };
        let mut walk = Walk { name: &name, count: 0 };
        walk.set(left, Some("within its non-recursive term"))?;
        walk.set(right, None)
    })
}

/// Refuses mutual recursion: a query that reads a later one that reads the first.
fn refuse_mutual(with: &ast::With) -> Flow {
    let own: Vec<String> = with.cte_tables.iter().map(|cte| fold(&cte.alias.name)).collect();
    let reads: Vec<Vec<usize>> = with
        .cte_tables
        .iter()
        .map(|cte| (0..own.len()).filter(|place| names(&own[*place], &cte.query)).collect())
        .collect();
    for (place, cte) in with.cte_tables.iter().enumerate() {
        let mut reached: BTreeSet<usize> = BTreeSet::new();
        let others = |of: usize| reads[of].iter().copied().filter(move |other| *other != of);
        let mut left: Vec<usize> = others(place).collect();
        while let Some(next) = left.pop() {
            if next == place {
                let what = "mutual recursion between WITH items";
                let position = position_of(cte.alias.name.span.start);
                return ControlFlow::Break(Box::new(Error::unsupported(what).at(position)));
            }
            if reached.insert(next) {
                left.extend(others(next));
            }
        }
    }
    ControlFlow::Continue(())
}

fn broken(message: String, place: &ast::Ident) -> Flow {
    let position = position_of(place.span.start);
    let fault = Fault::Recursion;
    ControlFlow::Break(Box::new(Error::Invalid { message, fault, position }))
}

/// Whether `part` reads from the query `name`.
fn names(name: &str, part: &impl Visited) -> bool {
    visit(part, &mut Find { name, hidden: 0 }).is_break()
}

/// Finds a table of that name that no inner WITH hides.
struct Find<'a> {
    name: &'a str,
    /// Number of enclosing queries that have another query of that name.
    hidden: usize,
}

fn hides(name: &str, query: &ast::Query) -> bool {
    let with = query.with.iter().flat_map(|with| &with.cte_tables);
    with.into_iter().any(|cte| fold(&cte.alias.name) == name)
}

impl Visitor for Find<'_> {
    type Break = ast::Ident;

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<ast::Ident> {
        self.hidden += usize::from(hides(self.name, query));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &ast::Query) -> ControlFlow<ast::Ident> {
        self.hidden -= usize::from(hides(self.name, query));
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ast::ObjectName) -> ControlFlow<ast::Ident> {
        match own_name(self.name, relation) {
            Some(place) if self.hidden == 0 => ControlFlow::Break(place.clone()),
            _ => ControlFlow::Continue(()),
        }
    }
}

fn own_name<'a>(name: &str, relation: &'a ast::ObjectName) -> Option<&'a ast::Ident> {
    match relation.0.as_slice() {
        [ast::ObjectNamePart::Identifier(own)] if fold(own) == name => Some(own),
        _ => None,
    }
}

/// Where the query may be named once.
struct Walk<'a> {
    name: &'a str,
    count: usize,
}

/// Why it may not be named there; None: it may.
type Within = Option<&'static str>;

impl Walk<'_> {
    fn refuse(&self, place: &ast::Ident, why: &str) -> Flow {
        let name = self.name;
        broken(format!("recursive reference to query \"{name}\" must not appear {why}"), place)
    }

    fn query(&mut self, query: &ast::Query, within: Within) -> Flow {
        if hides(self.name, query) {
            return ControlFlow::Continue(());
        }
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.query(&cte.query, within)?;
        }
        self.set(&query.body, within)?;
        self.expressions(&query.order_by)?;
        self.expressions(&query.limit_clause)
    }

    fn set(&mut self, set: &ast::SetExpr, within: Within) -> Flow {
        match set {
            ast::SetExpr::Select(select) => self.select(select, within),
            ast::SetExpr::Query(query) => self.query(query, within),
            ast::SetExpr::SetOperation { op, set_quantifier, left, right } => {
                let is_all = matches!(set_quantifier, ast::SetQuantifier::All);
                let (of_left, of_right) = match op {
                    ast::SetOperator::Except | ast::SetOperator::Minus => {
                        (is_all.then_some("within EXCEPT"), Some("within EXCEPT"))
                    }
                    ast::SetOperator::Intersect => {
                        (is_all.then_some("within INTERSECT"), is_all.then_some("within INTERSECT"))
                    }
                    ast::SetOperator::Union => (None, None),
                };
                self.set(left, within.or(of_left))?;
                self.set(right, within.or(of_right))
            }
            other => self.expressions(other),
        }
    }

    fn select(&mut self, select: &ast::Select, within: Within) -> Flow {
        let before = self.count;
        select.from.iter().try_for_each(|tables| self.tables(tables, within))?;
        if self.count > before && select.from.iter().any(|tables| is_beside(self.name, tables)) {
            refuse_aggregate(&select.projection)?;
            refuse_aggregate(&select.having)?;
        }
        self.expressions(&select.distinct)?;
        self.expressions(&select.projection)?;
        self.expressions(&select.selection)?;
        self.expressions(&select.group_by)?;
        self.expressions(&select.having)?;
        self.expressions(&select.named_window)
    }

    fn tables(&mut self, tables: &ast::TableWithJoins, within: Within) -> Flow {
        let misses_left = |join: &ast::Join| {
            use ast::JoinOperator as Join;
            matches!(join.join_operator, Join::Right(_) | Join::RightOuter(_) | Join::FullOuter(_))
        };
        let misses_right = |join: &ast::Join| {
            use ast::JoinOperator as Join;
            matches!(join.join_operator, Join::Left(_) | Join::LeftOuter(_) | Join::FullOuter(_))
        };
        let outer = |is_outer: bool| {
            if is_outer { within.or(Some("within an outer join")) } else { within }
        };
        self.factor(&tables.relation, outer(tables.joins.iter().any(misses_left)))?;
        for (place, join) in tables.joins.iter().enumerate() {
            let is_outer =
                misses_right(join) || tables.joins.iter().skip(place + 1).any(misses_left);
            self.factor(&join.relation, outer(is_outer))?;
            self.expressions(&join.join_operator)?;
        }
        ControlFlow::Continue(())
    }

    fn factor(&mut self, factor: &ast::TableFactor, within: Within) -> Flow {
        match factor {
            ast::TableFactor::Table { name, .. } => match (own_name(self.name, name), within) {
                (None, _) => ControlFlow::Continue(()),
                (Some(place), Some(why)) => self.refuse(place, why),
                (Some(place), None) => {
                    self.count += 1;
                    match self.count {
                        1 => ControlFlow::Continue(()),
                        _ => self.refuse(place, "more than once"),
                    }
                }
            },
            ast::TableFactor::Derived { subquery, .. } => self.query(subquery, within),
            ast::TableFactor::NestedJoin { table_with_joins, .. } => {
                self.tables(table_with_joins, within)
            }
            other => self.expressions(other),
        }
    }

    /// In expressions tables occur in subqueries.
    fn expressions(&self, part: &impl Visited) -> Flow {
        match visit(part, &mut Find { name: self.name, hidden: 0 }) {
            ControlFlow::Break(place) => self.refuse(&place, "within a subquery"),
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
        }
    }
}

/// Whether the query itself is among `tables`, outside of subqueries.
fn is_beside(name: &str, tables: &ast::TableWithJoins) -> bool {
    let relations = tables.joins.iter().map(|join| &join.relation);
    std::iter::once(&tables.relation).chain(relations).any(|factor| match factor {
        ast::TableFactor::Table { name: own, .. } => own_name(name, own).is_some(),
        ast::TableFactor::NestedJoin { table_with_joins, .. } => is_beside(name, table_with_joins),
        _ => false,
    })
}

fn refuse_aggregate(part: &impl Visited) -> Flow {
    visit(part, &mut RefuseAggregate { depth: 0 })
}

struct RefuseAggregate {
    /// How many subqueries stand around.
    depth: usize,
}

impl Visitor for RefuseAggregate {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, _query: &ast::Query) -> Flow {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &ast::Query) -> Flow {
        self.depth = self.depth.saturating_sub(1);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &ast::Expr) -> Flow {
        let ast::Expr::Function(function) = expression else { return ControlFlow::Continue(()) };
        match function.name.0.as_slice() {
            [ast::ObjectNamePart::Identifier(name)]
                if self.depth == 0
                    && function.over.is_none()
                    && AGGREGATES.contains(&fold(name)) =>
            {
                let what =
                    "aggregate functions are not allowed in a recursive query's recursive term";
                ControlFlow::Break(Box::new(Error::Invalid {
                    message: what.to_owned(),
                    fault: Fault::Recursion,
                    position: position_of(function.span().start),
                }))
            }
            _ => ControlFlow::Continue(()),
        }
    }
}
