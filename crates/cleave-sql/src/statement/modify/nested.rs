//! Finds subqueries in statements.

use crate::visiting::visit;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast;

use super::Modify;

/// Whether there are subqueries in what RETURNING lists.
pub fn returns_nested(items: &[ast::SelectItem]) -> bool {
    items.iter().any(|item| visit(item, &mut Queries { around: 0, own: 0 }).is_break())
}

/// Breaks at the first query that has `own` around it.
struct Queries {
    around: usize,
    own: usize,
}

impl ast::Visitor for Queries {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
        self.around += 1;
        if self.around > self.own { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Whether there is a query within `query`.
pub fn has_nested(query: &ast::Query) -> bool {
    visit(query, &mut Queries { around: 0, own: 1 }).is_break()
}

/// Whether there are subqueries in SET or WHERE.
pub fn has_subqueries(modify: &Modify) -> bool {
    let values = modify.assignments().iter().filter_map(|set| set.value.as_ref());
    let mut values = values.chain(&modify.selection);
    values.any(|value| visit(value, &mut Queries { around: 0, own: 0 }).is_break())
}
