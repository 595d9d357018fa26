//! `'t'::regclass` in a select list: the result shows the name, as the session has to write it, while expressions use
//! the number.

use datafusion::sql::sqlparser::ast::{Expr, SelectItem, SetExpr};

use super::{call, catalog_type, null};

/// The columns of a query that show names of objects: the functions that write them.
pub(super) fn names_shown(body: &SetExpr) -> Vec<Option<&'static str>> {
    match body {
        SetExpr::Select(select) => select.projection.iter().map(writes).collect(),
        SetExpr::Query(query) => names_shown(&query.body),
        _ => Vec::new(),
    }
}

fn writes(item: &SelectItem) -> Option<&'static str> {
    let (SelectItem::UnnamedExpr(expression) | SelectItem::ExprWithAlias { expr: expression, .. }) =
        item
    else {
        return None;
    };
    let Expr::Cast { data_type, .. } = expression else { return None };
    match catalog_type(data_type)?.as_str() {
        "regclass" => Some("cleave_relation_name"),
        "regtype" => Some("format_type"),
        "regnamespace" => Some("cleave_schema_name"),
        _ => None,
    }
}

/// Writes the names of columns that are still numbers.
pub(super) fn show_names(body: &mut SetExpr, shown: &[Option<&'static str>]) {
    let select = match body {
        SetExpr::Select(select) => select,
        SetExpr::Query(query) => return show_names(&mut query.body, shown),
        _ => return,
    };
    for (item, writes) in select.projection.iter_mut().zip(shown) {
        let (SelectItem::UnnamedExpr(expression)
        | SelectItem::ExprWithAlias { expr: expression, .. }) = item
        else {
            continue;
        };
        let Some(writes) = writes.filter(|_| is_number(expression)) else { continue };
        let number = std::mem::replace(expression, null());
        let mut arguments = vec![number];
        arguments.extend((writes == "format_type").then(null));
        *expression = call(writes, arguments);
    }
}

fn is_number(expression: &Expr) -> bool {
    let Expr::Function(function) = expression else { return false };
    let name = function.name.to_string();
    ["cleave_relation", "cleave_type", "cleave_schema"].contains(&name.as_str())
}
