//! PostgreSQL's name for a select list column without an alias.
//!
//! Source: PostgreSQL, `parser/parse_target.c`, `FigureColnameInternal`.

use datafusion::sql::sqlparser::ast::{self, Expr, SelectItem, SetExpr};

use crate::statement::names::fold;

/// The name of a column that has no better one.
pub const UNNAMED: &str = "?column?";

/// Table and name of a plain column.
pub fn column_parts(expression: &Expr) -> Option<(Option<String>, String)> {
    match expression {
        Expr::Identifier(name) => Some((None, fold(name))),
        Expr::CompoundIdentifier(parts) => match parts.as_slice() {
            [.., table, name] => Some((Some(fold(table)), fold(name))),
            _ => None,
        },
        Expr::Nested(inner) => column_parts(inner),
        _ => None,
    }
}

/// PostgreSQL's name for a result column; None: it is several.
pub fn item_name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expression) => Some(expression_name(expression)),
        SelectItem::ExprWithAlias { alias, .. } => Some(fold(alias)),
        _ => None,
    }
}

/// PostgreSQL's name for the column of `expression`.
pub fn expression_name(expression: &Expr) -> String {
    best_name(expression).map_or_else(|| UNNAMED.to_owned(), |(name, _)| name)
}

/// The name of an expression, and whether it is preferred to that of a cast around it.
fn best_name(expression: &Expr) -> Option<(String, bool)> {
    let good = |name: &str| Some((name.to_owned(), true));
    match expression {
        Expr::Identifier(name) => Some((fold(name), true)),
        Expr::CompoundIdentifier(parts) => Some((fold(parts.last()?), true)),
        Expr::Function(function) => {
            let name = function.name.0.last()?.as_ident()?;
            Some((fold(name), true))
        }
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => best_name(inner),
        Expr::Cast { expr, data_type, .. } => match best_name(expr) {
            Some((name, true)) => Some((name, true)),
            _ => Some((type_name(data_type), false)),
        },
        Expr::TypedString(typed) => Some((type_name(&typed.data_type), false)),
        Expr::Interval(_) => Some(("interval".to_owned(), false)),
        Expr::Case { else_result, .. } => {
            match else_result.as_ref().and_then(|result| best_name(result)) {
                Some((name, true)) => Some((name, true)),
                _ => Some(("case".to_owned(), false)),
            }
        }
        Expr::AtTimeZone { .. } => good("timezone"),
        Expr::Extract { .. } => good("extract"),
        Expr::Ceil { .. } => good("ceil"),
        Expr::Floor { .. } => good("floor"),
        Expr::Position { .. } => good("position"),
        Expr::Substring { .. } => good("substring"),
        Expr::Overlay { .. } => good("overlay"),
        Expr::Trim { trim_where, .. } => good(match trim_where {
            Some(ast::TrimWhereField::Leading) => "ltrim",
            Some(ast::TrimWhereField::Trailing) => "rtrim",
            _ => "btrim",
        }),
        Expr::CompoundFieldAccess { root, .. } => best_name(root),
        Expr::Exists { .. } => good("exists"),
        Expr::Array(_) => good("array"),
        Expr::Tuple(_) => good("row"),
        Expr::Subquery(query) => first_name(&query.body),
        _ => None,
    }
}

/// The name of a query's first column.
fn first_name(body: &SetExpr) -> Option<(String, bool)> {
    match body {
        SetExpr::Select(select) => Some((item_name(select.projection.first()?)?, true)),
        SetExpr::Query(query) => first_name(&query.body),
        SetExpr::SetOperation { left, .. } => first_name(left),
        SetExpr::Values(_) => Some(("column1".to_owned(), true)),
        _ => None,
    }
}

/// PostgreSQL's own name of a type.
fn type_name(data_type: &ast::DataType) -> String {
    use ast::DataType as Type;
    let name = match data_type {
        Type::SmallInt(_) | Type::Int2(_) => "int2",
        Type::Int(_) | Type::Integer(_) | Type::Int4(_) => "int4",
        Type::BigInt(_) | Type::Int8(_) => "int8",
        Type::Real | Type::Float4 => "float4",
        Type::Double(_) | Type::DoublePrecision | Type::Float8 | Type::Float(_) => "float8",
        Type::Numeric(_) | Type::Decimal(_) | Type::Dec(_) => "numeric",
        Type::Boolean | Type::Bool => "bool",
        Type::Varchar(_) | Type::CharacterVarying(_) | Type::CharVarying(_) => "varchar",
        Type::Char(_) | Type::Character(_) => "bpchar",
        Type::Timestamp(_, zone) => match zone {
            ast::TimezoneInfo::WithTimeZone | ast::TimezoneInfo::Tz => "timestamptz",
            _ => "timestamp",
        },
        other => {
            let text = other.to_string().to_lowercase();
            return text.split(['(', ' ']).next().unwrap_or_default().to_owned();
        }
    };
    name.to_owned()
}
