//! Functions made for one statement: which of them a query calls, and when two are equal.
//!
//! Such a function answers from the context of one statement: its name alone does not identify it.

use cleave_sql::visiting::visit;
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::logical_expr::{Signature, TypeSignature, Volatility};
use datafusion::sql::sqlparser::ast::{self, Visitor};

use cleave_sql::statement::names::fold;

/// A function of one statement. Two are the same that have a name and a context in common.
#[derive(Debug)]
pub(super) struct StatementFunction<C, K = ()> {
    pub(super) name: &'static str,
    pub(super) signature: Signature,
    pub(super) context: Arc<C>,
    /// What else is known by its name.
    pub(super) kind: K,
}

impl<C, K> StatementFunction<C, K> {
    /// A function of any arguments, which it judges itself. It is never immutable: [plans with it](super::optimised)
    /// are one statement's.
    pub(super) fn new(
        name: &'static str,
        volatility: Volatility,
        context: &Arc<C>,
        kind: K,
    ) -> Self {
        debug_assert_ne!(volatility, Volatility::Immutable, "{name}");
        let signature =
            Signature::one_of(vec![TypeSignature::Nullary, TypeSignature::VariadicAny], volatility);
        Self { name, signature, context: Arc::clone(context), kind }
    }
}

impl<C, K> PartialEq for StatementFunction<C, K> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.context, &other.context)
    }
}

impl<C, K> Eq for StatementFunction<C, K> {}

impl<C, K> Hash for StatementFunction<C, K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// The functions that a query calls, of those that `known` finds by their names.
pub(super) fn called(
    query: &ast::Query,
    known: impl Fn(&str) -> Option<&'static str>,
) -> Vec<&'static str> {
    let mut called = Called { known, found: Vec::new() };
    let flow = visit(query, &mut called);
    debug_assert!(flow.is_continue(), "nothing stops the visit");
    called.found
}

/// Finds calls.
struct Called<F> {
    known: F,
    found: Vec<&'static str>,
}

impl<F: Fn(&str) -> Option<&'static str>> Visitor for Called<F> {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<()> {
        use ast::ObjectNamePart::Identifier;
        let ast::Expr::Function(function) = expression else { return ControlFlow::Continue(()) };
        let known = match function.name.0.as_slice() {
            [Identifier(name)] => (self.known)(&fold(name)),
            [Identifier(schema), Identifier(name)] => {
                (self.known)(&format!("{}.{}", fold(schema), fold(name)))
            }
            _ => None,
        };
        self.found.extend(known.filter(|known| !self.found.contains(known)));
        ControlFlow::Continue(())
    }
}
