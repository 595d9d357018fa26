//! Comparisons of rows of several values, rewritten to comparisons of their values. DataFusion would compare them as
//! structures, where NULL equals NULL.
//!
//! ```text
//!  (a, b) = (c, d)         ─▶ a = c AND b = d
//!  (a, b) < (c, d)         ─▶ a < c OR a = c AND b < d
//!  (a, b) IN ((c, d), …)   ─▶ (a, b) = (c, d) OR …          of many rows: a IN (c, …) AND b IN (d, …) AND (…)
//!  (a, b) IS NULL          ─▶ a IS NULL AND b IS NULL        IS NOT NULL: none of them is NULL
//! ```
//!
//! Source: PostgreSQL's documentation, "Row and Array Comparisons".

use datafusion::sql::sqlparser::ast::{self, BinaryOperator as Op, Expr};

/// In a longer list, each value is first looked up among those of its place, in one step. That leaves few rows to
/// compare, and an index or the bounds of a page can be used.
const COMPARED_MAX: usize = 64;

/// Rewrites `expression`, if it is such a comparison.
pub(super) fn lower_row_comparison(expression: &mut Expr) {
    let lowered = match expression {
        Expr::BinaryOp { left, op, right } => match (row_values(left), row_values(right)) {
            (Some(left), Some(right)) if left.len() == right.len() => compared(&left, op, &right),
            _ => None,
        },
        Expr::InList { expr, list, negated } => {
            row_values(expr).and_then(|row| listed(&row, list, *negated))
        }
        Expr::IsNull(row) => row_values(row).and_then(|row| all(row, Expr::IsNull)),
        Expr::IsNotNull(row) => row_values(row).and_then(|row| all(row, Expr::IsNotNull)),
        _ => None,
    };
    if let Some(lowered) = lowered {
        *expression = nested(lowered);
    }
}

/// The values of a row of several.
pub(super) fn row_values(row: &Expr) -> Option<Vec<Expr>> {
    match row {
        Expr::Tuple(values) if values.len() > 1 => Some(values.clone()),
        Expr::Nested(inner) => row_values(inner),
        Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("row") => {
            let ast::FunctionArguments::List(list) = &function.args else { return None };
            let values = list.args.iter().map(|argument| match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(value)) => Some(value.clone()),
                _ => None,
            });
            values.collect::<Option<Vec<_>>>().filter(|values| values.len() > 1)
        }
        _ => None,
    }
}

/// `left op right`, each in parentheses.
pub(super) fn binary(left: Expr, op: Op, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(nested(left)), op, right: Box::new(nested(right)) }
}

pub(super) fn nested(expression: Expr) -> Expr {
    match expression {
        Expr::Nested(_) | Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_) => {
            expression
        }
        other => Expr::Nested(Box::new(other)),
    }
}

fn compared(left: &[Expr], op: &Op, right: &[Expr]) -> Option<Expr> {
    let pairs = left.iter().zip(right);
    let each = |op: Op| {
        pairs.clone().map(move |(left, right)| binary(left.clone(), op.clone(), right.clone()))
    };
    match op {
        Op::Eq => each(Op::Eq).reduce(|left, right| binary(left, Op::And, right)),
        Op::NotEq => each(Op::NotEq).reduce(|left, right| binary(left, Op::Or, right)),
        Op::Lt | Op::LtEq | Op::Gt | Op::GtEq => {
            // The comparison before the last values decides only by inequality.
            let strict = match op {
                Op::Lt | Op::LtEq => Op::Lt,
                _ => Op::Gt,
            };
            let mut pairs = pairs.rev();
            let (left, right) = pairs.next()?;
            let last = binary(left.clone(), op.clone(), right.clone());
            Some(pairs.fold(last, |rest, (left, right)| {
                let equal = binary(left.clone(), Op::Eq, right.clone());
                let before = binary(left.clone(), strict.clone(), right.clone());
                binary(before, Op::Or, binary(equal, Op::And, rest))
            }))
        }
        _ => None,
    }
}

fn listed(row: &[Expr], list: &[Expr], negated: bool) -> Option<Expr> {
    let others =
        list.iter().map(|other| row_values(other).filter(|other| other.len() == row.len()));
    let others: Vec<Vec<Expr>> = others.collect::<Option<_>>()?;
    let equal = others.iter().map(|other| compared(row, &Op::Eq, other));
    let mut any = of_halves(equal.collect::<Option<_>>()?)?;
    if others.len() > COMPARED_MAX {
        // If a comparison of rows is true or NULL, the comparison of each pair of values is the same or true.
        for (place, value) in row.iter().enumerate().rev() {
            let list = others.iter().filter_map(|other| other.get(place).cloned()).collect();
            let expr = Box::new(nested(value.clone()));
            any = binary(Expr::InList { expr, list, negated: false }, Op::And, any);
        }
    }
    Some(match negated {
        true => Expr::UnaryOp { op: ast::UnaryOperator::Not, expr: Box::new(nested(any)) },
        false => any,
    })
}

/// Whether any of `terms` holds, as a balanced tree: its readers recurse once per level.
fn of_halves(mut terms: Vec<Expr>) -> Option<Expr> {
    while terms.len() > 1 {
        let mut next = Vec::with_capacity(terms.len().div_ceil(2));
        let mut rest = terms.into_iter();
        while let Some(left) = rest.next() {
            next.push(match rest.next() {
                Some(right) => binary(left, Op::Or, right),
                None => left,
            });
        }
        terms = next;
    }
    terms.pop()
}

fn all(row: Vec<Expr>, test: impl Fn(Box<Expr>) -> Expr) -> Option<Expr> {
    let tests = row.into_iter().map(|value| test(Box::new(nested(value))));
    tests.reduce(|left, right| binary(left, Op::And, right))
}
