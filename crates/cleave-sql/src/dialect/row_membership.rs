//! `(a, b) IN (subquery)`, rewritten to EXISTS, since DataFusion has IN for one column alone.
//!
//! ```text
//!  (a, b) IN (q)  ─▶ CASE WHEN EXISTS (SELECT 1 FROM (q) AS m (v, w) WHERE a = v AND b = w) THEN true
//!                         WHEN EXISTS (SELECT 1 FROM (q) AS m (v, w) WHERE (a = v AND b = w) IS NULL) THEN NULL
//!                         ELSE false END
//! ```
//!
//! `= ANY` and `<> ALL` are IN and NOT IN. In a condition, the planner keeps only the first EXISTS.

use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr, SetExpr};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::row_comparison::{binary, nested, row_values};

/// Reserved names for the subquery's rows and columns.
const MEMBERS: &str = "__member";

/// Rewrites `expression`, if it is one of these.
pub(super) fn lower_row_membership(expression: &mut Expr) {
    if let Expr::InSubquery { subquery, .. } = expression
        && matches!(subquery.body.as_ref(), SetExpr::Values(_))
        && let Some(selected) = selected(subquery)
    {
        **subquery = selected;
    }
    let lowered = match expression {
        Expr::InSubquery { expr, subquery, negated } => contained(expr, subquery, *negated),
        Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => {
            query_of(right).and_then(|subquery| contained(left, subquery, false))
        }
        Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => {
            query_of(right).and_then(|subquery| contained(left, subquery, true))
        }
        _ => None,
    };
    if let Some(lowered) = lowered {
        *expression = lowered;
    }
}

/// `SELECT * FROM (query) AS m`: DataFusion compares with the column of a SELECT, and VALUES are none.
fn selected(query: &ast::Query) -> Option<ast::Query> {
    let text = format!("SELECT * FROM (SELECT 1) AS {MEMBERS}");
    let parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(&text);
    let mut around = parser.ok()?.parse_query().ok()?;
    let SetExpr::Select(select) = around.body.as_mut() else { return None };
    match &mut select.from.first_mut()?.relation {
        ast::TableFactor::Derived { subquery, .. } => **subquery = query.clone(),
        _ => return None,
    }
    Some(*around)
}

fn query_of(right: &Expr) -> Option<&ast::Query> {
    match right {
        Expr::Subquery(query) => Some(query),
        Expr::Nested(inner) => query_of(inner),
        _ => None,
    }
}

fn contained(row: &Expr, subquery: &ast::Query, negated: bool) -> Option<Expr> {
    let values = row_values(row)?;
    let names: Vec<String> = (1..=values.len()).map(|place| format!("{MEMBERS}_{place}")).collect();
    let equal = values.into_iter().zip(&names).map(|(value, name)| {
        binary(value, BinaryOperator::Eq, Expr::Identifier(ast::Ident::new(name)))
    });
    let equal = equal.reduce(|left, right| binary(left, BinaryOperator::And, right));
    let equal = nested(equal?);
    let text = format!("SELECT 1 FROM (SELECT 1) AS {MEMBERS} ({})", names.join(", "));
    let exists = |condition: Expr| {
        let mut query = Parser::new(&PostgreSqlDialect {}).try_with_sql(&text).ok()?;
        let mut query = query.parse_query().ok()?;
        let SetExpr::Select(select) = &mut *query.body else { return None };
        match &mut select.from.first_mut()?.relation {
            ast::TableFactor::Derived { subquery: members, .. } => **members = subquery.clone(),
            _ => return None,
        }
        select.selection = Some(condition);
        Some(Expr::Exists { subquery: query, negated: false })
    };
    let boolean = |value: bool| Expr::value(ast::Value::Boolean(value));
    let unknown = Expr::IsNull(Box::new(equal.clone()));
    let case = Expr::Case {
        case_token: ast::helpers::attached_token::AttachedToken::empty(),
        end_token: ast::helpers::attached_token::AttachedToken::empty(),
        operand: None,
        conditions: vec![
            ast::CaseWhen { condition: exists(equal)?, result: boolean(true) },
            ast::CaseWhen { condition: exists(unknown)?, result: Expr::value(ast::Value::Null) },
        ],
        else_result: Some(Box::new(boolean(false))),
    };
    let case = Expr::Nested(Box::new(case));
    Some(match negated {
        true => Expr::UnaryOp { op: ast::UnaryOperator::Not, expr: Box::new(case) },
        false => case,
    })
}
