//! Walks over syntax trees whose code is compiled once, whatever the visitor.
//!
//! The parser's derived `visit` is generic over the visitor and calls itself for all of the tree's types. So the code
//! of the whole walk is compiled anew for each type of visitor: that took five and a half minutes of this crate's
//! release build. Here the walk is compiled for one visitor, which passes each call on through a pointer:
//!
//! ```text
//!  visit(part, visitor) ─▶ part.pass(Holding { visitor }) ─▶ part.visit(Passing(…)) ─▶ visitor.pre_visit_expr(…)
//!                                    keeps what breaks       compiled once, here
//! ```
//!
//! [`Visited`] are the types whose code this crate has; a generic function would be compiled in each crate that calls
//! it.
//!
//! Invariant: nothing in the project calls the parser's `visit`, `visit_expressions` and `visit_relations` themselves.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Assignment, Distinct, Expr, Function, GroupByExpr, JoinOperator, LimitClause,
    NamedWindowDefinition, ObjectName, OrderBy, OrderByExpr, Query, Select, SelectItem, SetExpr,
    Statement, TableFactor, TableWithJoins, ValueWithSpan, Values, Visit, VisitMut, Visitor,
    VisitorMut, With,
};

/// Visits `part`, as the parser's `part.visit(visitor)` does.
///
/// # Errors
/// What the visitor breaks with.
pub fn visit<V: Visitor>(part: &(impl Visited + ?Sized), visitor: &mut V) -> ControlFlow<V::Break> {
    let mut holding = Holding { visitor, broken: None };
    let _: ControlFlow<()> = part.pass(&mut holding);
    holding.broken.map_or(ControlFlow::Continue(()), ControlFlow::Break)
}

/// Visits `part` and may change it, as the parser's `part.visit(visitor)` does.
///
/// # Errors
/// What the visitor breaks with.
pub fn visit_mut<V: VisitorMut>(
    part: &mut (impl Visited + ?Sized),
    visitor: &mut V,
) -> ControlFlow<V::Break> {
    let mut holding = Holding { visitor, broken: None };
    let _: ControlFlow<()> = part.pass_mut(&mut holding);
    holding.broken.map_or(ControlFlow::Continue(()), ControlFlow::Break)
}

/// Calls `on` for every expression of `part`, an outer one before those in it.
///
/// # Errors
/// What `on` breaks with.
pub fn visit_expressions<B>(
    part: &(impl Visited + ?Sized),
    on: impl FnMut(&Expr) -> ControlFlow<B>,
) -> ControlFlow<B> {
    visit(part, &mut OnExpressions(on))
}

/// Calls `on` for every expression of `part`, those in one before it, as the parser does.
///
/// # Errors
/// What `on` breaks with.
pub fn visit_expressions_mut<B>(
    part: &mut (impl Visited + ?Sized),
    on: impl FnMut(&mut Expr) -> ControlFlow<B>,
) -> ControlFlow<B> {
    visit_mut(part, &mut OnExpressions(on))
}

/// Calls `on` for every query of `part`, those in one before it. Nothing stops the visit.
pub fn visit_queries_mut(part: &mut (impl Visited + ?Sized), on: impl FnMut(&mut Query)) {
    let flow = visit_mut(part, &mut OnQueries(on));
    debug_assert!(flow.is_continue(), "nothing stops the visit");
}

/// Calls `on` for every name of a relation in `part`.
///
/// # Errors
/// What `on` breaks with.
pub fn visit_relations<B>(
    part: &(impl Visited + ?Sized),
    on: impl FnMut(&ObjectName) -> ControlFlow<B>,
) -> ControlFlow<B> {
    visit(part, &mut OnRelations(on))
}

/// A part of a syntax tree that this crate has the walk of.
pub trait Visited {
    /// Visits this part; what breaks the visit is the visitor's to keep.
    fn pass(&self, visitor: &mut dyn Visitor<Break = ()>) -> ControlFlow<()>;

    /// The same, and may change it.
    fn pass_mut(&mut self, visitor: &mut dyn VisitorMut<Break = ()>) -> ControlFlow<()>;
}

/// The walks of types of the parser.
macro_rules! visited {
    ($($part:ty),* $(,)?) => {
        $(impl Visited for $part {
            fn pass(&self, visitor: &mut dyn Visitor<Break = ()>) -> ControlFlow<()> {
                Visit::visit(self, &mut Passing(visitor))
            }

            fn pass_mut(&mut self, visitor: &mut dyn VisitorMut<Break = ()>) -> ControlFlow<()> {
                VisitMut::visit(self, &mut PassingMut(visitor))
            }
        })*
    };
}

visited!(
    Assignment,
    Distinct,
    Expr,
    Function,
    GroupByExpr,
    JoinOperator,
    LimitClause,
    NamedWindowDefinition,
    OrderBy,
    OrderByExpr,
    Query,
    Select,
    SelectItem,
    SetExpr,
    Statement,
    TableFactor,
    TableWithJoins,
    Values,
    With,
);

impl<P: Visited> Visited for [P] {
    fn pass(&self, visitor: &mut dyn Visitor<Break = ()>) -> ControlFlow<()> {
        self.iter().try_for_each(|part| part.pass(visitor))
    }

    fn pass_mut(&mut self, visitor: &mut dyn VisitorMut<Break = ()>) -> ControlFlow<()> {
        self.iter_mut().try_for_each(|part| part.pass_mut(visitor))
    }
}

impl<P: Visited> Visited for Vec<P> {
    fn pass(&self, visitor: &mut dyn Visitor<Break = ()>) -> ControlFlow<()> {
        self.as_slice().pass(visitor)
    }

    fn pass_mut(&mut self, visitor: &mut dyn VisitorMut<Break = ()>) -> ControlFlow<()> {
        self.as_mut_slice().pass_mut(visitor)
    }
}

impl<P: Visited> Visited for Option<P> {
    fn pass(&self, visitor: &mut dyn Visitor<Break = ()>) -> ControlFlow<()> {
        self.as_slice().pass(visitor)
    }

    fn pass_mut(&mut self, visitor: &mut dyn VisitorMut<Break = ()>) -> ControlFlow<()> {
        self.as_mut_slice().pass_mut(visitor)
    }
}

impl<P: Visited + ?Sized> Visited for Box<P> {
    fn pass(&self, visitor: &mut dyn Visitor<Break = ()>) -> ControlFlow<()> {
        (**self).pass(visitor)
    }

    fn pass_mut(&mut self, visitor: &mut dyn VisitorMut<Break = ()>) -> ControlFlow<()> {
        (**self).pass_mut(visitor)
    }
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
