//! Names of a result's columns, as PostgreSQL gives them.
//!
//! The engine names a column without an alias by its expression (`count(*)`, `Int64(1)`) and refuses two of
//! one name. PostgreSQL names it by what it is (`count`, `?column?`) and takes any number of a name. So:
//!
//! 1. [`ResultNames::take`] notes the names and gives the second column of a name a hidden alias, so that
//!    the engine takes the list;
//! 2. [`ResultNames::apply`] puts the noted names on the result.
//!
//! Only the outermost list is touched: below it, names are the engine's.
//!
//! Source: PostgreSQL's documentation, "Select Lists"; its rule for unnamed columns.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{self, Expr, SelectItem, SetExpr};

use crate::statement::names::fold;

/// What a column is called that nothing names.
const UNNAMED: &str = "?column?";

/// The names of a result's columns, as far as the statement's text tells them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResultNames {
    /// Of the columns before the first `*`.
    first: Vec<String>,
    /// Of those after the last `*`.
    last: Vec<String>,
}

impl ResultNames {
    /// The names of `query`'s columns; `query` is then one that the engine takes.
    pub(crate) fn take(query: &mut ast::Query) -> Self {
        take_set(&mut query.body, false)
    }

    /// `schema` with these names.
    pub(crate) fn apply(&self, schema: &SchemaRef) -> SchemaRef {
        let count = schema.fields().len();
        let behind = count.saturating_sub(self.last.len());
        let fields = schema.fields().iter().enumerate().map(|(place, field)| {
            let after = place.checked_sub(behind).and_then(|place| self.last.get(place));
            // The engine's word that a column has no NULL is an estimate: a batch may know better.
            let field = Field::clone(field).with_nullable(true);
            match self.first.get(place).or(after) {
                Some(name) => field.with_name(name.as_str()),
                None => field,
            }
        });
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }
}

/// The leftmost SELECT names the columns of a set operation.
fn take_set(body: &mut SetExpr, in_set: bool) -> ResultNames {
    match body {
        SetExpr::Select(select) => take_list(&mut select.projection, in_set),
        SetExpr::Query(query) => ResultNames::take(query),
        SetExpr::SetOperation { left, right, .. } => {
            let names = take_set(left, true);
            drop(take_set(right, true));
            names
        }
        _ => ResultNames::default(),
    }
}

/// The ORDER BY of a set operation speaks of the names of its first list, which must then stay.
fn take_list(items: &mut [SelectItem], in_set: bool) -> ResultNames {
    let is_star = |item: &SelectItem| {
        matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
    };
    let names: Vec<Option<String>> = items.iter().map(item_name).collect();
    let has_star = items.iter().any(is_star);
    for place in 0..items.len() {
        let (before, rest) = items.split_at_mut(place);
        let Some(item) = rest.first_mut() else { break };
        let hide = match item {
            SelectItem::UnnamedExpr(expression) if has_star => {
                !in_set && column_parts(expression).is_some()
            }
            _ => before.iter().any(|earlier| clash(earlier, item)),
        };
        if hide {
            hide_name(item, place);
        }
    }
    let known = |names: &mut dyn Iterator<Item = &Option<String>>| -> Vec<String> {
        names.map_while(Clone::clone).collect()
    };
    let first = known(&mut names.iter());
    let mut last = known(&mut names.iter().rev());
    last.reverse();
    ResultNames { first, last }
}

/// Whether the engine would refuse both in one list.
fn clash(one: &SelectItem, other: &SelectItem) -> bool {
    match (one, other) {
        (SelectItem::UnnamedExpr(one), SelectItem::UnnamedExpr(other)) => {
            match (column_parts(one), column_parts(other)) {
                (Some((table, column)), Some((other_table, other_column))) => {
                    column == other_column
                        && (table.is_none() || other_table.is_none() || table == other_table)
                }
                // The engine leaves casts out of names: what has one name here may have one there.
                _ => engine_name(one) == engine_name(other),
            }
        }
        (SelectItem::ExprWithAlias { alias, .. }, SelectItem::UnnamedExpr(expression))
        | (SelectItem::UnnamedExpr(expression), SelectItem::ExprWithAlias { alias, .. }) => {
            column_parts(expression).is_some_and(|(_, column)| column == fold(alias))
        }
        (
            SelectItem::ExprWithAlias { alias: one, .. },
            SelectItem::ExprWithAlias { alias: other, .. },
        ) => fold(one) == fold(other),
        _ => false,
    }
}

/// What has one name for the engine, where it is said otherwise before it is planned.
fn engine_name(expression: &Expr) -> String {
    let name = expression_name(expression);
    match name.as_str() {
        "every" => "bool_and".to_owned(),
        "variance" => "var_samp".to_owned(),
        "transaction_timestamp" => "now".to_owned(),
        "mod" => UNNAMED.to_owned(),
        _ => name,
    }
}

fn hide_name(item: &mut SelectItem, place: usize) {
    if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
        let alias = ast::Ident::with_quote('"', format!("column {place}, named later"));
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
    }
}

/// Table and name of a plain column.
fn column_parts(expression: &Expr) -> Option<(Option<String>, String)> {
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

/// What PostgreSQL calls a column of a result; None: it is several.
pub(crate) fn item_name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expression) => Some(expression_name(expression)),
        SelectItem::ExprWithAlias { alias, .. } => Some(fold(alias)),
        _ => None,
    }
}

fn expression_name(expression: &Expr) -> String {
    best_name(expression).map_or_else(|| UNNAMED.to_owned(), |(name, _)| name)
}

/// The name that an expression has, and whether it is better than that of a cast around it.
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
        Expr::Exists { .. } => good("exists"),
        Expr::Array(_) => good("array"),
        Expr::Tuple(_) => good("row"),
        Expr::Subquery(query) => {
            let SetExpr::Select(select) = query.body.as_ref() else { return None };
            match select.projection.first()? {
                SelectItem::UnnamedExpr(expression) => Some((expression_name(expression), true)),
                item => Some((item_name(item)?, true)),
            }
        }
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

#[cfg(test)]
mod tests {
    //! Names of lists, and lists that the engine would refuse.

    use datafusion::arrow::datatypes::DataType as ArrowType;

    use super::*;
    use crate::statement::{Statement, parse_script};

    fn take(sql: &str) -> (ResultNames, String) {
        let parsed = parse_script(sql).unwrap().remove(0).statement;
        let Statement::Query(mut query) = parsed else { panic!("{sql} is no query") };
        let names = ResultNames::take(&mut query);
        (names, query.to_string())
    }

    #[test]
    fn unnamed_columns_are_named_as_postgresql_names_them() {
        for (expression, expected) in [
            ("count(*)", "count"),
            ("MAX(t.x)", "max"),
            ("1 + 1", "?column?"),
            ("-x", "?column?"),
            ("'a'", "?column?"),
            ("(t.\"Year\")", "Year"),
            ("x::text", "x"),
            ("'1'::int", "int4"),
            ("CAST(1 + 1 AS double precision)", "float8"),
            ("date '2020-01-01'", "date"),
            ("interval '1 day'", "interval"),
            ("CASE WHEN x THEN 1 END", "case"),
            ("CASE WHEN x THEN 1 ELSE y END", "y"),
            ("EXTRACT(year FROM d)", "extract"),
            ("substring(s FROM 1 FOR 2)", "substring"),
            ("trim(s)", "btrim"),
            ("(SELECT max(y) FROM u)", "max"),
            ("EXISTS (SELECT 1)", "exists"),
            ("x IN (1, 2)", "?column?"),
            ("1 AS One", "one"),
        ] {
            let (names, _) = take(&format!("SELECT {expression} FROM t"));
            assert_eq!(names.first, [expected], "{expression}");
        }
    }

    #[test]
    fn second_of_a_name_is_hidden_from_the_engine_and_shown_to_the_user() {
        let (names, query) = take("SELECT a, t.a, 1, 1, b FROM t");
        assert_eq!(names.first, ["a", "a", "?column?", "?column?", "b"]);
        let expected = "SELECT a, t.a AS \"column 1, named later\", 1, 1 AS \"column 3, named later\", b FROM t";
        assert_eq!(query, expected);
    }

    #[test]
    fn columns_of_two_tables_are_left_alone() {
        let (_, query) = take("SELECT a.id, b.id FROM a, b ORDER BY b.id");
        assert_eq!(query, "SELECT a.id, b.id FROM a, b ORDER BY b.id");
    }

    #[test]
    fn stars_leave_the_names_around_them_in_place() {
        let (names, _) = take("SELECT count(*), t.*, 1 FROM t");
        assert_eq!(
            (names.first.as_slice(), names.last.as_slice()),
            (&["count".into()][..], &["?column?".into()][..])
        );
        let column = |name: &str| Field::new(name, ArrowType::Int32, true);
        let schema = Arc::new(Schema::new(vec![
            column("count(*)"),
            column("a"),
            column("b"),
            column("Int64(1)"),
        ]));
        let named = names.apply(&schema);
        let named: Vec<&str> = named.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(named, ["count", "a", "b", "?column?"]);
    }

    #[test]
    fn leftmost_select_names_a_union() {
        let (names, query) = take("SELECT 1, 1 UNION ALL SELECT a, a FROM t");
        assert_eq!(names.first, ["?column?", "?column?"]);
        assert!(query.contains("a AS \"column 1"), "{query}");
    }
}
