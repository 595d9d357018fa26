//! FETCH FIRST, which is another syntax of LIMIT.

use std::ops::ControlFlow;

use crate::visiting::visit_mut;
use datafusion::sql::sqlparser::ast::{self, LimitClause, VisitorMut};

/// Replaces it by LIMIT everywhere in `statement`. PERCENT and WITH TIES stay, and are refused.
pub(super) fn name_limits(statement: &mut ast::Statement) {
    let flow = visit_mut(statement, &mut Queries);
    debug_assert!(flow.is_continue(), "nothing stops the visit");
}

struct Queries;

impl VisitorMut for Queries {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
        if query.fetch.as_ref().is_some_and(|fetch| fetch.percent || fetch.with_ties) {
            return ControlFlow::Continue(());
        }
        let has_place = match &query.limit_clause {
            None => true,
            Some(LimitClause::LimitOffset { limit, .. }) => limit.is_none(),
            Some(LimitClause::OffsetCommaLimit { .. }) => false,
        };
        let Some(fetch) = query.fetch.take_if(|_| has_place) else {
            return ControlFlow::Continue(());
        };
        let one = || ast::Expr::value(ast::Value::Number("1".to_owned(), false));
        let count = fetch.quantity.unwrap_or_else(one);
        match &mut query.limit_clause {
            Some(LimitClause::LimitOffset { limit, .. }) => *limit = Some(count),
            clause => {
                let (offset, limit_by) = (None, Vec::new());
                *clause = Some(LimitClause::LimitOffset { limit: Some(count), offset, limit_by });
            }
        }
        ControlFlow::Continue(())
    }
}
