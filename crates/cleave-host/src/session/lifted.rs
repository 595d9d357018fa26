//! Constants replaced by parameters: statements that differ only in constants share what the session remembers of them.

use std::sync::Arc;

use cleave_store::ColumnType;
use datafusion::sql::sqlparser::ast;

use cleave_sql::statement::Parameter;

/// Maximum number of remembered statements.
const SEEN_MAX: usize = 64;

/// What a session remembers of its statements.
#[derive(Debug)]
pub(super) struct StatementCache<K, V> {
    known: Vec<(K, Arc<V>)>,
}

impl<K, V> Default for StatementCache<K, V> {
    fn default() -> Self {
        Self { known: Vec::new() }
    }
}

impl<K: Clone + PartialEq, V> StatementCache<K, V> {
    /// The entry of `statement` while it is valid (`holds`), or else a newly made one; None: none can be made.
    pub(super) fn get_or_make(
        &mut self,
        statement: &K,
        holds: impl FnOnce(&V) -> bool,
        make: impl FnOnce() -> Option<Arc<V>>,
    ) -> Option<Arc<V>> {
        let place = self.known.iter().position(|(known, _)| known == statement);
        if let Some((_, known)) = place.and_then(|place| self.known.get(place))
            && holds(known)
        {
            return Some(Arc::clone(known));
        }
        if let Some(place) = place {
            self.known.swap_remove(place);
        }
        let made = make()?;
        if self.known.len() >= SEEN_MAX {
            self.known.clear();
        }
        self.known.push((statement.clone(), Arc::clone(&made)));
        Some(made)
    }
}

/// The constants that were replaced by parameters, as they were spelled.
#[derive(Debug, Default)]
pub(super) struct Constants {
    values: Vec<(ColumnType, String)>,
}

impl Constants {
    /// Replaces `expression`, which was `text`, by a parameter.
    pub(super) fn put(&mut self, expression: &mut ast::Expr, own: ColumnType, text: String) {
        self.values.push((own, text));
        let name = format!("${}", self.values.len());
        *expression = ast::Expr::value(ast::Value::Placeholder(name));
    }

    /// Replaces a string; false: `expression` is none.
    pub(super) fn put_string(&mut self, expression: &mut ast::Expr) -> bool {
        let ast::Expr::Value(value) = &*expression else { return false };
        let ast::Value::SingleQuotedString(text) = &value.value else { return false };
        let text = text.clone();
        self.put(expression, ColumnType::Text, text);
        true
    }

    /// Replaces a whole number, also a negative one.
    pub(super) fn put_number(&mut self, expression: &mut ast::Expr) {
        let (sign, number) = match &*expression {
            ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => ("-", &**expr),
            number => ("", number),
        };
        if let Some(digits) = digits(number) {
            let text = format!("{sign}{digits}");
            self.put(expression, ColumnType::BigInt, text);
        }
    }

    /// Their values; None: one of them is invalid for its type.
    pub(super) fn parameters(&self) -> Option<Vec<Parameter>> {
        let read = self.values.iter().map(|(own, text)| Parameter::read(*own, Some(text)));
        read.collect::<Result<_, _>>().ok()
    }
}

/// The digits of a whole number that certainly fits a `bigint`.
pub(super) fn digits(expression: &ast::Expr) -> Option<&str> {
    let ast::Expr::Value(value) = expression else { return None };
    let ast::Value::Number(text, false) = &value.value else { return None };
    (text.len() <= 18 && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}
