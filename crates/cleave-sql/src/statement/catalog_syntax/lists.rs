//! Lists in the catalog's queries: `'{1,2}'::oid[]`, and the vectors of numbers that PostgreSQL shows without braces.

use datafusion::sql::sqlparser::ast::{
    self, Array, BinaryOperator, DataType, Expr, SelectItem, SetExpr, Value,
};

use super::{arguments, call, cast, catalog_type, is_own, is_parameter, null};
use crate::dialect::query_names::item_name;
use crate::statement::names::fold;

/// Columns of vectors of numbers.
const VECTORS: [&str; 6] =
    ["indclass", "indcollation", "indkey", "indoption", "proargtypes", "stxkeys"];

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
            *expression = spaced(std::mem::replace(expression, null()));
        }
    }
}

/// A vector as text.
pub(super) fn spaced(vector: Expr) -> Expr {
    let blank = Expr::value(Value::SingleQuotedString(" ".to_owned()));
    call("array_to_string", vec![vector, blank])
}

/// Whether `expression` is a column of a vector of numbers, which is counted from 0.
pub(super) fn is_vector(expression: &Expr) -> bool {
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

/// `generate_subscripts(list, 1)`, and the ends of a list; those of a vector are counted from 0. And
/// `_pg_expandarray(list)`, which has rows of an item and its number, and here only the item.
pub(super) fn subscripts(function: ast::Function) -> Expr {
    match function.name.to_string().to_lowercase().as_str() {
        "generate_subscripts" => {
            let given = arguments(&function);
            let is_vector = given.first().is_some_and(is_vector);
            let places = if is_vector { "cleave_subscripts" } else { "cleave_numbers" };
            call("unnest", vec![call(places, given)])
        }
        "array_lower" | "array_upper" if arguments(&function).first().is_some_and(is_vector) => {
            // No call that would be lowered again in a view.
            let is_upper = function.name.to_string().eq_ignore_ascii_case("array_upper");
            let vector = arguments(&function).into_iter().take(1).collect();
            let left = Box::new(call("cardinality", vector));
            let op = if is_upper { BinaryOperator::Minus } else { BinaryOperator::Modulo };
            Expr::Nested(Box::new(Expr::BinaryOp { left, op, right: Box::new(one()) }))
        }
        "_pg_expandarray" => call("unnest", arguments(&function)),
        _ => Expr::Function(function),
    }
}

/// `(_pg_expandarray(list)).n`, `(keys).x` and `indoption[0]`, as JDBC writes them.
pub(super) fn part_of(root: &Expr, access: &[ast::AccessExpr]) -> Option<Expr> {
    let last_name = |expression: &Expr| match expression {
        Expr::Identifier(name) => Some(fold(name)),
        Expr::CompoundIdentifier(parts) => parts.last().map(fold),
        _ => None,
    };
    match (root, access) {
        (Expr::Nested(inner), [ast::AccessExpr::Dot(Expr::Identifier(field))]) => {
            match (inner.as_ref(), fold(field).as_str()) {
                (Expr::Function(function), "n") if is_own(&function.name) => {
                    let numbers = call("cleave_numbers", arguments(function));
                    Some(call("unnest", vec![numbers]))
                }
                (Expr::Identifier(_) | Expr::CompoundIdentifier(_), "x") => {
                    Some(inner.as_ref().clone())
                }
                _ => None,
            }
        }
        (_, [before @ .., ast::AccessExpr::Subscript(ast::Subscript::Index { index })]) => {
            let named = match root {
                Expr::Nested(inner) => inner.as_ref(),
                named => named,
            };
            let mut parts = match named {
                Expr::Identifier(name) => vec![name.clone()],
                Expr::CompoundIdentifier(parts) => parts.clone(),
                _ => return None,
            };
            for access in before {
                let ast::AccessExpr::Dot(Expr::Identifier(name)) = access else { return None };
                parts.push(name.clone());
            }
            let column = match parts.as_slice() {
                [name] => Expr::Identifier(name.clone()),
                _ => Expr::CompoundIdentifier(parts),
            };
            match last_name(&column)? {
                name if name.ends_with("indoption") && name != "indoption" => {
                    Some(call("array_element", vec![column, after(index)]))
                }
                // A `name` is a list of characters, from 0.
                name if name == "typname" => {
                    Some(call("substr", vec![column, after(index), one()]))
                }
                // So is a vector.
                _ if is_vector(&column) => Some(call("array_element", vec![column, after(index)])),
                _ => None,
            }
        }
        _ => None,
    }
}

/// `1`.
pub(super) fn one() -> Expr {
    Expr::value(Value::Number("1".to_owned(), false))
}

/// `place + 1`.
fn after(place: &Expr) -> Expr {
    let (left, right) = (Box::new(Expr::Nested(Box::new(place.clone()))), Box::new(one()));
    Expr::BinaryOp { left, op: BinaryOperator::Plus, right }
}
