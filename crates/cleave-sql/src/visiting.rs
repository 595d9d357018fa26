//! Walks over syntax trees whose code is compiled once, whatever the visitor.
//!
//! The parser's derived `visit` is generic over the visitor and calls itself for all of the tree's types. So the code
//! of the whole walk is compiled anew for each type of visitor: that took five and a half minutes of this crate's
//! release build. Here the walk is compiled for one visitor, which passes each call on through a pointer:
//!
//! ```text
//!  visit(part, visitor) ─▶ part.visit(Passing(Holding { visitor })) ─▶ visitor.pre_visit_expr(…)
//!                          compiled once        keeps what breaks
//! ```
//!
//! Invariant: nothing in the project calls the parser's `visit`, `visit_expressions` and `visit_relations` themselves.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, Query, Select, Statement, TableFactor, ValueWithSpan, Visit, VisitMut,
    Visitor, VisitorMut,
};

/// Visits `part`, as the parser's `part.visit(visitor)` does.
///
/// # Errors
/// What the visitor breaks with.
pub fn visit<V: Visitor>(part: &(impl Visit + ?Sized), visitor: &mut V) -> ControlFlow<V::Break> {
    let mut holding = Holding { visitor, broken: None };
    let _: ControlFlow<()> = part.visit(&mut Passing(&mut holding));
    holding.broken.map_or(ControlFlow::Continue(()), ControlFlow::Break)
}

/// Visits `part` and may change it, as the parser's `part.visit(visitor)` does.
///
/// # Errors
/// What the visitor breaks with.
pub fn visit_mut<V: VisitorMut>(
    part: &mut (impl VisitMut + ?Sized),
    visitor: &mut V,
) -> ControlFlow<V::Break> {
    let mut holding = Holding { visitor, broken: None };
    let _: ControlFlow<()> = part.visit(&mut PassingMut(&mut holding));
    holding.broken.map_or(ControlFlow::Continue(()), ControlFlow::Break)
}

/// Calls `on` for every expression of `part`, an outer one before those in it.
///
/// # Errors
/// What `on` breaks with.
pub fn visit_expressions<B>(
    part: &(impl Visit + ?Sized),
    on: impl FnMut(&Expr) -> ControlFlow<B>,
) -> ControlFlow<B> {
    visit(part, &mut OnExpressions(on))
}

/// Calls `on` for every expression of `part`, those in one before it, as the parser does.
///
/// # Errors
/// What `on` breaks with.
pub fn visit_expressions_mut<B>(
    part: &mut (impl VisitMut + ?Sized),
    on: impl FnMut(&mut Expr) -> ControlFlow<B>,
) -> ControlFlow<B> {
    visit_mut(part, &mut OnExpressions(on))
}

/// Calls `on` for every query of `part`, those in one before it. Nothing stops the visit.
pub fn visit_queries_mut(part: &mut (impl VisitMut + ?Sized), on: impl FnMut(&mut Query)) {
    let flow = visit_mut(part, &mut OnQueries(on));
    debug_assert!(flow.is_continue(), "nothing stops the visit");
}

/// Calls `on` for every name of a relation in `part`.
///
/// # Errors
/// What `on` breaks with.
pub fn visit_relations<B>(
    part: &(impl Visit + ?Sized),
    on: impl FnMut(&ObjectName) -> ControlFlow<B>,
) -> ControlFlow<B> {
    visit(part, &mut OnRelations(on))
}

struct OnExpressions<F>(F);

impl<B, F: FnMut(&Expr) -> ControlFlow<B>> Visitor for OnExpressions<F> {
    type Break = B;

    fn pre_visit_expr(&mut self, part: &Expr) -> ControlFlow<B> {
        self.0(part)
    }
}

impl<B, F: FnMut(&mut Expr) -> ControlFlow<B>> VisitorMut for OnExpressions<F> {
    type Break = B;

    fn post_visit_expr(&mut self, part: &mut Expr) -> ControlFlow<B> {
        self.0(part)
    }
}

struct OnQueries<F>(F);

impl<F: FnMut(&mut Query)> VisitorMut for OnQueries<F> {
    type Break = ();

    fn post_visit_query(&mut self, part: &mut Query) -> ControlFlow<()> {
        self.0(part);
        ControlFlow::Continue(())
    }
}

struct OnRelations<F>(F);

impl<B, F: FnMut(&ObjectName) -> ControlFlow<B>> Visitor for OnRelations<F> {
    type Break = B;

    fn pre_visit_relation(&mut self, part: &ObjectName) -> ControlFlow<B> {
        self.0(part)
    }
}

/// A visitor, and what it broke with.
struct Holding<'a, V, B> {
    visitor: &'a mut V,
    broken: Option<B>,
}

impl<V, B> Holding<'_, V, B> {
    fn keep(&mut self, flow: ControlFlow<B>) -> ControlFlow<()> {
        match flow {
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
            ControlFlow::Break(broken) => {
                self.broken = Some(broken);
                ControlFlow::Break(())
            }
        }
    }
}

impl<V: Visitor> Visitor for Holding<'_, V, V::Break> {
    type Break = ();

    fn pre_visit_query(&mut self, part: &Query) -> ControlFlow<()> {
        let flow = self.visitor.pre_visit_query(part);
        self.keep(flow)
    }

    fn post_visit_query(&mut self, part: &Query) -> ControlFlow<()> {
        let flow = self.visitor.post_visit_query(part);
        self.keep(flow)
    }

    fn pre_visit_select(&mut self, part: &Select) -> ControlFlow<()> {
        let flow = self.visitor.pre_visit_select(part);
        self.keep(flow)
    }

    fn post_visit_select(&mut self, part: &Select) -> ControlFlow<()> {
        let flow = self.visitor.post_visit_select(part);
        self.keep(flow)
    }

    fn pre_visit_relation(&mut self, part: &ObjectName) -> ControlFlow<()> {
        let flow = self.visitor.pre_visit_relation(part);
        self.keep(flow)
    }

    fn post_visit_relation(&mut self, part: &ObjectName) -> ControlFlow<()> {
        let flow = self.visitor.post_visit_relation(part);
        self.keep(flow)
    }

    fn pre_visit_table_factor(&mut self, part: &TableFactor) -> ControlFlow<()> {
        let flow = self.visitor.pre_visit_table_factor(part);
        self.keep(flow)
    }

    fn post_visit_table_factor(&mut self, part: &TableFactor) -> ControlFlow<()> {
        let flow = self.visitor.post_visit_table_factor(part);
        self.keep(flow)
    }

    fn pre_visit_expr(&mut self, part: &Expr) -> ControlFlow<()> {
        let flow = self.visitor.pre_visit_expr(part);
        self.keep(flow)
    }

    fn post_visit_expr(&mut self, part: &Expr) -> ControlFlow<()> {
        let flow = self.visitor.post_visit_expr(part);
        self.keep(flow)
    }

    fn pre_visit_statement(&mut self, part: &Statement) -> ControlFlow<()> {
        let flow = self.visitor.pre_visit_statement(part);
        self.keep(flow)
    }

    fn post_visit_statement(&mut self, part: &Statement) -> ControlFlow<()> {
        let flow = self.visitor.post_visit_statement(part);
        self.keep(flow)
    }

    fn pre_visit_value(&mut self, part: &ValueWithSpan) -> ControlFlow<()> {
        let flow = self.visitor.pre_visit_value(part);
        self.keep(flow)
    }

    fn post_visit_value(&mut self, part: &ValueWithSpan) -> ControlFlow<()> {
        let flow = self.visitor.post_visit_value(part);
        self.keep(flow)
    }
}

impl<V: VisitorMut> VisitorMut for Holding<'_, V, V::Break> {
    type Break = ();

    fn pre_visit_query(&mut self, part: &mut Query) -> ControlFlow<()> {
        let flow = self.visitor.pre_visit_query(part);
        self.keep(flow)
    }

    fn post_visit_query(&mut self, part: &mut Query) -> ControlFlow<()> {
        let flow = self.visitor.post_visit_query(part);
        self.keep(flow)
    }

    fn pre_visit_select(&mut self, part: &mut Select) -> ControlFlow<()> {
        let flow = self.visitor.pre_visit_select(part);
        self.keep(flow)
    }

    fn post_visit_select(&mut self, part: &mut Select) -> ControlFlow<()> {
        let flow = self.visitor.post_visit_select(part);
        self.keep(flow)
    }

    fn pre_visit_relation(&mut self, part: &mut ObjectName) -> ControlFlow<()> {
        let flow = self.visitor.pre_visit_relation(part);
        self.keep(flow)
    }

    fn post_visit_relation(&mut self, part: &mut ObjectName) -> ControlFlow<()> {
        let flow = self.visitor.post_visit_relation(part);
        self.keep(flow)
    }

    fn pre_visit_table_factor(&mut self, part: &mut TableFactor) -> ControlFlow<()> {
        let flow = self.visitor.pre_visit_table_factor(part);
        self.keep(flow)
    }

    fn post_visit_table_factor(&mut self, part: &mut TableFactor) -> ControlFlow<()> {
        let flow = self.visitor.post_visit_table_factor(part);
        self.keep(flow)
    }

    fn pre_visit_expr(&mut self, part: &mut Expr) -> ControlFlow<()> {
        let flow = self.visitor.pre_visit_expr(part);
        self.keep(flow)
    }

    fn post_visit_expr(&mut self, part: &mut Expr) -> ControlFlow<()> {
        let flow = self.visitor.post_visit_expr(part);
        self.keep(flow)
    }

    fn pre_visit_statement(&mut self, part: &mut Statement) -> ControlFlow<()> {
        let flow = self.visitor.pre_visit_statement(part);
        self.keep(flow)
    }

    fn post_visit_statement(&mut self, part: &mut Statement) -> ControlFlow<()> {
        let flow = self.visitor.post_visit_statement(part);
        self.keep(flow)
    }

    fn pre_visit_value(&mut self, part: &mut ValueWithSpan) -> ControlFlow<()> {
        let flow = self.visitor.pre_visit_value(part);
        self.keep(flow)
    }

    fn post_visit_value(&mut self, part: &mut ValueWithSpan) -> ControlFlow<()> {
        let flow = self.visitor.post_visit_value(part);
        self.keep(flow)
    }
}

/// The one visitor that the tree's code is compiled for.
struct Passing<'a>(&'a mut dyn Visitor<Break = ()>);

impl Visitor for Passing<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, part: &Query) -> ControlFlow<()> {
        self.0.pre_visit_query(part)
    }

    fn post_visit_query(&mut self, part: &Query) -> ControlFlow<()> {
        self.0.post_visit_query(part)
    }

    fn pre_visit_select(&mut self, part: &Select) -> ControlFlow<()> {
        self.0.pre_visit_select(part)
    }

    fn post_visit_select(&mut self, part: &Select) -> ControlFlow<()> {
        self.0.post_visit_select(part)
    }

    fn pre_visit_relation(&mut self, part: &ObjectName) -> ControlFlow<()> {
        self.0.pre_visit_relation(part)
    }

    fn post_visit_relation(&mut self, part: &ObjectName) -> ControlFlow<()> {
        self.0.post_visit_relation(part)
    }

    fn pre_visit_table_factor(&mut self, part: &TableFactor) -> ControlFlow<()> {
        self.0.pre_visit_table_factor(part)
    }

    fn post_visit_table_factor(&mut self, part: &TableFactor) -> ControlFlow<()> {
        self.0.post_visit_table_factor(part)
    }

    fn pre_visit_expr(&mut self, part: &Expr) -> ControlFlow<()> {
        self.0.pre_visit_expr(part)
    }

    fn post_visit_expr(&mut self, part: &Expr) -> ControlFlow<()> {
        self.0.post_visit_expr(part)
    }

    fn pre_visit_statement(&mut self, part: &Statement) -> ControlFlow<()> {
        self.0.pre_visit_statement(part)
    }

    fn post_visit_statement(&mut self, part: &Statement) -> ControlFlow<()> {
        self.0.post_visit_statement(part)
    }

    fn pre_visit_value(&mut self, part: &ValueWithSpan) -> ControlFlow<()> {
        self.0.pre_visit_value(part)
    }

    fn post_visit_value(&mut self, part: &ValueWithSpan) -> ControlFlow<()> {
        self.0.post_visit_value(part)
    }
}

/// The same, which changes the tree.
struct PassingMut<'a>(&'a mut dyn VisitorMut<Break = ()>);

impl VisitorMut for PassingMut<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, part: &mut Query) -> ControlFlow<()> {
        self.0.pre_visit_query(part)
    }

    fn post_visit_query(&mut self, part: &mut Query) -> ControlFlow<()> {
        self.0.post_visit_query(part)
    }

    fn pre_visit_select(&mut self, part: &mut Select) -> ControlFlow<()> {
        self.0.pre_visit_select(part)
    }

    fn post_visit_select(&mut self, part: &mut Select) -> ControlFlow<()> {
        self.0.post_visit_select(part)
    }

    fn pre_visit_relation(&mut self, part: &mut ObjectName) -> ControlFlow<()> {
        self.0.pre_visit_relation(part)
    }

    fn post_visit_relation(&mut self, part: &mut ObjectName) -> ControlFlow<()> {
        self.0.post_visit_relation(part)
    }

    fn pre_visit_table_factor(&mut self, part: &mut TableFactor) -> ControlFlow<()> {
        self.0.pre_visit_table_factor(part)
    }

    fn post_visit_table_factor(&mut self, part: &mut TableFactor) -> ControlFlow<()> {
        self.0.post_visit_table_factor(part)
    }

    fn pre_visit_expr(&mut self, part: &mut Expr) -> ControlFlow<()> {
        self.0.pre_visit_expr(part)
    }

    fn post_visit_expr(&mut self, part: &mut Expr) -> ControlFlow<()> {
        self.0.post_visit_expr(part)
    }

    fn pre_visit_statement(&mut self, part: &mut Statement) -> ControlFlow<()> {
        self.0.pre_visit_statement(part)
    }

    fn post_visit_statement(&mut self, part: &mut Statement) -> ControlFlow<()> {
        self.0.post_visit_statement(part)
    }

    fn pre_visit_value(&mut self, part: &mut ValueWithSpan) -> ControlFlow<()> {
        self.0.pre_visit_value(part)
    }

    fn post_visit_value(&mut self, part: &mut ValueWithSpan) -> ControlFlow<()> {
        self.0.post_visit_value(part)
    }
}
