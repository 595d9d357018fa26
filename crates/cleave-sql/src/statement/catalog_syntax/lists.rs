//! Lists in the catalog's queries: `'{1,2}'::oid[]`, and the vectors of numbers that PostgreSQL shows without braces.

use datafusion::sql::sqlparser::ast::{self, Array, DataType, Expr, SelectItem, SetExpr, Value};

use super::{call, cast, catalog_type, is_parameter, null};
use crate::dialect::query_names::item_name;
use crate::statement::names::fold;

/// Columns of vectors of numbers.
const VECTORS: [&str; 5] = ["indclass", "indcollation", "indkey", "proargtypes", "stxkeys"];

/// The replacement of a cast to a list of numbers of the catalog's types; None: another cast, or of something else than
/// an array literal.
pub(super) fn list_of_numbers(expression: &Expr, data_type: &DataType) -> Option<Expr> {
    let DataType::Array(ast::ArrayElemTypeDef::SquareBracket(item, _)) = data_type else {
        return None;
    };
    let is_numbers = ["oid", "int2", "int4", "int8"].contains(&catalog_type(item)?.as_str());
    if !is_numbers || is_parameter(expression) {
        return None;
    }
    let Expr::Value(value) = expression else {
        // A column of the catalog, which is such a list.
        return matches!(expression, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
            .then(|| expression.clone());
    };
    let Value::SingleQuotedString(text) = &value.value else { return None };
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    if inner.trim().is_empty() {
        return Some(empty_list(DataType::BigInt(None)));
    }
    let item = |item: &str| {
        let number: i64 = item.trim().parse().ok()?;
        Some(cast("int8", Expr::value(Value::Number(number.to_string(), false))))
    };
    let elem: Option<Vec<Expr>> = inner.split(',').map(item).collect();
    Some(Expr::Array(Array { elem: elem?, named: true }))
}

/// Casts the texts `{}` beside a call of `acldefault` to lists.
pub(super) fn list_empty_texts(results: Vec<&mut Expr>) {
    let gives_texts = |expression: &Expr| match expression {
        Expr::Function(function) => function.name.to_string() == "acldefault",
        _ => false,
    };
    if !results.iter().any(|result| gives_texts(result)) {
        return;
    }
    for result in results {
        let is_empty = matches!(result, Expr::Value(value)
            if matches!(&value.value, Value::SingleQuotedString(text) if text == "{}"));
        if is_empty {
            *result = empty_list(DataType::Text);
        }
    }
}

fn empty_list(item: DataType) -> Expr {
    Expr::Cast {
        kind: ast::CastKind::Cast,
        expr: Box::new(Expr::Array(Array { elem: Vec::new(), named: true })),
        data_type: DataType::Array(ast::ArrayElemTypeDef::SquareBracket(Box::new(item), None)),
        array: false,
        format: None,
    }
}

/// Writes selected vectors of numbers as PostgreSQL does: `1 2`.
pub(super) fn show_vectors(body: &mut SetExpr) {
    let SetExpr::Select(select) = body else { return };
    for item in &mut select.projection {
        let is_vector = item_name(item).is_some()
            && match item {
                SelectItem::UnnamedExpr(expression)
                | SelectItem::ExprWithAlias { expr: expression, .. } => is_vector(expression),
                _ => false,
            };
        if let SelectItem::UnnamedExpr(expression)
        | SelectItem::ExprWithAlias { expr: expression, .. } = item
            && is_vector
        {
            let blank = Expr::value(Value::SingleQuotedString(" ".to_owned()));
            let column = std::mem::replace(expression, null());
            *expression = call("array_to_string", vec![column, blank]);
        }
    }
}

fn is_vector(expression: &Expr) -> bool {
    let name = match expression {
        Expr::Identifier(name) => name,
        Expr::CompoundIdentifier(parts) => match parts.last() {
            Some(name) => name,
            None => return false,
        },
        _ => return false,
    };
    VECTORS.contains(&fold(name).as_str())
}
