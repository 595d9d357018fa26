//! FETCH FIRST, which is another syntax of LIMIT, and numbers of rows, which PostgreSQL converts to whole ones.

use crate::visiting::visit_queries_mut;
use datafusion::sql::sqlparser::ast::{self, LimitClause};

/// Replaces FETCH by LIMIT everywhere in `statement`, and converts the constants of LIMIT and OFFSET. PERCENT and
/// WITH TIES stay.
pub(super) fn name_limits(statement: &mut ast::Statement) {
    visit_queries_mut(statement, |query| {
        lower_fetch(query);
        if let Some(clause) = &mut query.limit_clause {
            constants_as_integers(clause);
        }
    });
}

fn lower_fetch(query: &mut ast::Query) {
    if query.fetch.as_ref().is_some_and(|fetch| fetch.percent || fetch.with_ties) {
        return;
    }
    let has_place = match &query.limit_clause {
        None => true,
        Some(LimitClause::LimitOffset { limit, .. }) => limit.is_none(),
        Some(LimitClause::OffsetCommaLimit { .. }) => false,
    };
    let Some(fetch) = query.fetch.take_if(|_| has_place) else {
        return;
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
}

fn constants_as_integers(clause: &mut LimitClause) {
    let LimitClause::LimitOffset { limit, offset, .. } = clause else { return };
    let offset = offset.as_mut().map(|offset| &mut offset.value);
    for count in limit.iter_mut().chain(offset) {
        let ast::Expr::Value(value) = count else { continue };
        let whole = match &value.value {
            ast::Value::Number(text, _) => rounded(text),
            ast::Value::SingleQuotedString(text) => text.trim().parse().ok(),
            _ => None,
        };
        if let Some(whole) = whole {
            value.value = ast::Value::Number(whole.to_string(), false);
        }
    }
}

/// A number with a point, rounded as a numeric is; None: it is whole, or not simply digits.
fn rounded(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.')?;
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) || whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    whole.checked_add(u64::from(fraction.as_bytes().first().is_some_and(|digit| *digit >= b'5')))
}
