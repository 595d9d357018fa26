//! `'t'::regclass` in a select list: the result shows the name, as the session has to write it, while expressions use
//! the number.

use datafusion::sql::sqlparser::ast::{Expr, SelectItem, SetExpr};

use super::{call, catalog_type, null};

/// The columns of a query that show names of objects.
pub(super) fn names_shown(body: &SetExpr) -> Vec<bool> {
    match body {
        SetExpr::Select(select) => select.projection.iter().map(is_shown).collect(),
        SetExpr::Query(query) => names_shown(&query.body),
        _ => Vec::new(),
    }
}

fn is_shown(item: &SelectItem) -> bool {
    let (SelectItem::UnnamedExpr(expression) | SelectItem::ExprWithAlias { expr: expression, .. }) =
        item
    else {
        return false;
    };
    match expression {
        Expr::Cast { data_type, .. } => catalog_type(data_type)
            .is_some_and(|name| ["regclass", "regtype", "regnamespace"].contains(&name.as_str())),
        number => writer_of(number).is_some(),
    }
}

/// Writes the names of columns that are still numbers.
pub(super) fn show_names(body: &mut SetExpr, shown: &[bool]) {
    let select = match body {
        SetExpr::Select(select) => select,
        SetExpr::Query(query) => return show_names(&mut query.body, shown),
        _ => return,
    };
    for (item, is_shown) in select.projection.iter_mut().zip(shown) {
        if let SelectItem::UnnamedExpr(expression)
        | SelectItem::ExprWithAlias { expr: expression, .. } = item
            && *is_shown
        {
            *expression = written(std::mem::replace(expression, null()));
        }
    }
}

/// The name of the object whose number `expression` is, if it is one.
pub(super) fn written(expression: Expr) -> Expr {
    let Some(writer) = writer_of(&expression) else { return expression };
    let mut arguments = vec![expression];
    arguments.extend((writer == "format_type").then(null));
    call(writer, arguments)
}

/// The function that writes the name of the object whose number `expression` is.
pub(super) fn writer_of(expression: &Expr) -> Option<&'static str> {
    let function = match expression {
        Expr::Function(function) => function,
        Expr::Nested(inner) => return writer_of(inner),
        _ => return None,
    };
    Some(match function.name.0.last()?.as_ident()?.value.to_lowercase().as_str() {
        "cleave_relation" | "to_regclass" => "cleave_relation_name",
        "cleave_type" | "to_regtype" => "format_type",
        "cleave_schema" | "to_regnamespace" => "cleave_schema_name",
        _ => return None,
    })
}
