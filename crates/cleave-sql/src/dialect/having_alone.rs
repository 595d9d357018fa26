//! HAVING without groups and aggregates: one row or none, whatever FROM has.
//!
//! `GROUP BY ()` is HAVING that always holds.
//!
//! `SELECT 42 FROM t WHERE … HAVING c` is `SELECT 42 WHERE c`: PostgreSQL reads no table for it either.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion::execution::SessionStateDefaults;
use datafusion::sql::sqlparser::ast::{self, Expr, Visitor};

use crate::statement::names::fold;
use crate::visiting::visit;

/// Rewrites `select`.
pub(super) fn lower_having_alone(select: &mut ast::Select) {
    one_group(select);
    let has_groups =
        !matches!(&select.group_by, ast::GroupByExpr::Expressions(keys, _) if keys.is_empty());
    if select.having.is_none() || has_groups {
        return;
    }
    let mut asks = AsksRows { depth: 0 };
    let is_star = |item: &ast::SelectItem| {
        !matches!(item, ast::SelectItem::UnnamedExpr(_) | ast::SelectItem::ExprWithAlias { .. })
    };
    let asks = select.projection.iter().any(is_star)
        || visit(&select.projection, &mut asks).is_break()
        || visit(&select.having, &mut asks).is_break();
    if !asks {
        select.from.clear();
        select.selection = select.having.take();
    }
}

/// `()`, or grouping sets of which there is one, `()`.
fn is_empty(key: &Expr) -> bool {
    match key {
        Expr::Tuple(parts) => parts.is_empty(),
        Expr::GroupingSets(sets) => match sets.as_slice() {
            [set] => set.iter().all(is_empty),
            _ => false,
        },
        _ => false,
    }
}

/// `GROUP BY ()` makes one group of all rows, as an aggregate or HAVING does without it.
fn one_group(select: &mut ast::Select) {
    let ast::GroupByExpr::Expressions(keys, _) = &mut select.group_by else { return };
    let count = keys.len();
    keys.retain(|key| !is_empty(key));
    if keys.is_empty() && count > 0 && select.having.is_none() {
        select.having = Some(Expr::value(ast::Value::Boolean(true)));
    }
}

/// Names of aggregates.
pub static AGGREGATES: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let ours = cleave_fragment::functions::aggregate();
    let mut names: BTreeSet<String> = ["every", "variance", "mode"].map(str::to_owned).into();
    for function in SessionStateDefaults::default_aggregate_functions().iter().chain(&ours) {
        names.insert(function.name().to_owned());
        names.extend(function.aliases().iter().cloned());
    }
    names
});

/// Stops at an aggregate or a column outside of subqueries.
struct AsksRows {
    depth: usize,
}

impl Visitor for AsksRows {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
        self.depth = self.depth.saturating_sub(1);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        let asks = match expression {
            _ if self.depth > 0 => false,
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => true,
            Expr::Function(function) => {
                let name = function.name.0.last().and_then(|name| name.as_ident()).map(fold);
                name.is_none_or(|name| AGGREGATES.contains(&name))
            }
            _ => false,
        };
        if asks { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
