//! The tables of FROM, where FROM has only tables, joined by `,`, JOIN or LEFT JOIN: their aliases, and which column a
//! name means.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast;

use cleave_catalog::catalog::CatalogState;
use cleave_sql::statement::key_predicate::{OneTable, conjuncts};
use cleave_sql::statement::names::fold;
use cleave_sql::visiting::visit;

/// Most tables of a statement on the range path.
const TABLES_MAX: usize = 5;

/// The tables of FROM, in their order.
pub struct Sources<'a> {
    all: Vec<Source<'a>>,
}

/// One of them.
pub struct Source<'a> {
    /// The table, and what its columns may be qualified with.
    pub one: OneTable<'a>,
    /// What ON says.
    pub(super) on: Vec<&'a ast::Expr>,
    /// Rows of the tables before it stay where it has none.
    pub(super) is_outer: bool,
    /// Place of its first column among those of all.
    pub(super) first: usize,
}

impl<'a> Sources<'a> {
    /// The tables of `from` on `state`; None: something else is among them, or in their conditions.
    pub fn of(from: &'a [ast::TableWithJoins], state: &'a CatalogState) -> Option<Self> {
        let mut sources = Self { all: Vec::new() };
        for item in from {
            let begin = sources.all.len();
            sources.add(&item.relation, state, (None, false))?;
            for join in &item.joins {
                use ast::JoinOperator as Join;
                let (constraint, is_outer) = match &join.join_operator {
                    Join::Join(own) | Join::Inner(own) => (own, false),
                    Join::Left(own) | Join::LeftOuter(own) => (own, true),
                    Join::CrossJoin(ast::JoinConstraint::None) if !join.global => {
                        sources.add(&join.relation, state, (None, false))?;
                        continue;
                    }
                    _ => return None,
                };
                let ast::JoinConstraint::On(on) = constraint else { return None };
                if join.global {
                    return None;
                }
                sources.add(&join.relation, state, (Some(on), is_outer))?;
                // It may name columns of the tables joined here, and no others.
                if !sources.tables_in(on)?.iter().all(|place| *place >= begin) {
                    return None;
                }
            }
        }
        Some(sources)
    }

    fn add(
        &mut self,
        relation: &ast::TableFactor,
        state: &'a CatalogState,
        (on, is_outer): (Option<&'a ast::Expr>, bool),
    ) -> Option<()> {
        let one = OneTable::of_factor(relation, state)?;
        let is_new = self.all.iter().all(|known| known.one.qualifier != one.qualifier);
        if !is_new || self.all.len() == TABLES_MAX {
            return None;
        }
        let (on, first) = (conjuncts(on).collect(), self.width());
        self.all.push(Source { one, on, is_outer, first });
        Some(())
    }

    /// All of them, in the order of the statement.
    pub fn all(&self) -> &[Source<'a>] {
        &self.all
    }

    /// How many columns they have.
    pub(super) fn width(&self) -> usize {
        self.all.last().map_or(0, |last| last.first + last.one.schema().columns.len())
    }

    /// The table and its column that `expression` names; None: none, or several.
    pub fn resolve(&self, expression: &ast::Expr) -> Option<(usize, usize)> {
        let found = self
            .all
            .iter()
            .enumerate()
            .filter_map(|(place, source)| Some((place, source.one.column(expression)?)));
        let mut found = found.take(2);
        let only = found.next()?;
        found.next().is_none().then_some(only)
    }

    /// Whether one of them, or several, have the column that `expression` names.
    pub(super) fn has(&self, expression: &ast::Expr) -> bool {
        self.all.iter().any(|source| source.one.column(expression).is_some())
    }

    /// The places of the tables whose columns `condition` names; None: it has a name that is no column.
    pub(super) fn tables_in(&self, condition: &ast::Expr) -> Option<Vec<usize>> {
        struct Names<'a> {
            sources: &'a Sources<'a>,
            places: Vec<usize>,
        }
        impl ast::Visitor for Names<'_> {
            type Break = ();

            fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<()> {
                if let ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_) = expression {
                    match self.sources.resolve(expression) {
                        Some((place, _)) => self.places.push(place),
                        None => return ControlFlow::Break(()),
                    }
                }
                ControlFlow::Continue(())
            }
        }
        let mut names = Names { sources: self, places: Vec::new() };
        let flow: ControlFlow<()> = visit(condition, &mut names);
        flow.is_continue().then_some(names.places)
    }

    /// The table that `name` qualifies columns of.
    pub(super) fn qualified(&self, name: &ast::Ident) -> Option<&Source<'a>> {
        let name = fold(name);
        self.all.iter().find(|source| source.one.qualifier == name)
    }
}
