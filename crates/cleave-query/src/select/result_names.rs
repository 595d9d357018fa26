//! Names of a result's columns, as PostgreSQL gives them.
//!
//! DataFusion names a column without an alias by its expression (`count(*)`, `Int64(1)`) and refuses two of one name.
//! PostgreSQL names it by its kind (`count`, `?column?`) and allows equal names. So:
//!
//! 1. [`ResultNames::take`] names the columns of the queries within the query ([`name_columns`]), notes the names of
//!    the outermost list, and gives the second column of a name in it a hidden alias, so that DataFusion takes the
//!    list;
//! 2. [`ResultNames::apply`] puts the noted names on the result.
//!
//! Source: PostgreSQL's documentation, "Select Lists"; its rule for unnamed columns.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{self, Expr, SelectItem, SetExpr};

use cleave_catalog::error::Result;
use cleave_catalog::identifiers::shown_name;
use cleave_sql::dialect::is_star;
use cleave_sql::dialect::query_names::{
    KnownTables, NoTables, UNNAMED, column_parts, expression_name, item_name, name_columns,
};
use cleave_sql::statement::names::fold;

/// The names of a result's columns, as far as the statement's text tells them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResultNames {
    /// Of the columns before the first `*`.
    first: Vec<String>,
    /// Of those after the last `*`.
    last: Vec<String>,
}

impl ResultNames {
    /// The names of the columns of `query`, which reads `tables`; `query` is then one that DataFusion takes.
    ///
    /// # Errors
    /// Those of [`name_columns`].
    pub fn take(query: &mut ast::Query, tables: &dyn KnownTables) -> Result<Self> {
        let known = name_columns(query, tables)?;
        let names = take_set(&mut query.body, false);
        hide_sorted(query);
        Ok(match known {
            Some(columns) => {
                let first = columns.into_iter().map(|column| column.name).collect();
                Self { first, last: Vec::new() }
            }
            None => names,
        })
    }

    /// As [`Self::take`], of a query of whose tables nothing is known.
    ///
    /// # Errors
    /// Those of [`name_columns`].
    pub fn take_alone(query: &mut ast::Query) -> Result<Self> {
        Self::take(query, &NoTables)
    }

    /// `schema` with these names.
    pub fn apply(&self, schema: &SchemaRef) -> SchemaRef {
        let count = schema.fields().len();
        let behind = count.saturating_sub(self.last.len());
        let fields = schema.fields().iter().enumerate().map(|(place, field)| {
            let after = place.checked_sub(behind).and_then(|place| self.last.get(place));
            // DataFusion's word that a column has no NULL is an estimate: a batch may know better.
            let field = Field::clone(field).with_nullable(true);
            match self.first.get(place).or(after) {
                Some(name) => field.with_name(name.as_str()),
                None => {
                    let shown = match shown_name(field.name()) {
                        // The items of a list that has no name, between two stars.
                        name if name.starts_with("UNNEST(") => "unnest".to_owned(),
                        name => name.to_owned(),
                    };
                    field.with_name(shown)
                }
            }
        });
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }
}

/// The leftmost SELECT names the columns of a set operation.
fn take_set(body: &mut SetExpr, in_set: bool) -> ResultNames {
    match body {
        SetExpr::Select(select) => take_list(&mut select.projection, in_set),
        SetExpr::Query(query) => take_set(&mut query.body, in_set),
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

/// Whether DataFusion would refuse both in one list.
fn clash(one: &SelectItem, other: &SelectItem) -> bool {
    match (one, other) {
        (SelectItem::UnnamedExpr(one), SelectItem::UnnamedExpr(other)) => {
            match (column_parts(one), column_parts(other)) {
                (Some((table, column)), Some((other_table, other_column))) => {
                    column == other_column
                        && (table.is_none() || other_table.is_none() || table == other_table)
                }
                // DataFusion leaves casts out of names: what has one name here may have one there.
                _ => engine_name(one) == engine_name(other),
            }
        }
        (SelectItem::ExprWithAlias { alias, .. }, SelectItem::UnnamedExpr(expression))
        | (SelectItem::UnnamedExpr(expression), SelectItem::ExprWithAlias { alias, .. }) => {
            // DataFusion names a subquery by its column.
            let is_query = matches!(expression, Expr::Subquery(_));
            column_parts(expression).is_some_and(|(_, column)| column == fold(alias))
                || is_query && engine_name(expression) == fold(alias)
        }
        (
            SelectItem::ExprWithAlias { alias: one, .. },
            SelectItem::ExprWithAlias { alias: other, .. },
        ) => fold(one) == fold(other),
        _ => false,
    }
}

/// DataFusion's name of an expression, which leaves casts out, where the expression is rewritten before planning.
fn engine_name(expression: &Expr) -> String {
    let mut inner = expression;
    while let Expr::Nested(own) | Expr::Cast { expr: own, .. } = inner {
        inner = own;
    }
    // `date '2024-01-01'` is a cast, too.
    if matches!(inner, Expr::TypedString(_)) {
        return UNNAMED.to_owned();
    }
    let name = expression_name(inner);
    match name.as_str() {
        "every" => "bool_and".to_owned(),
        "variance" => "var_samp".to_owned(),
        "transaction_timestamp"
        | "statement_timestamp"
        | "current_timestamp"
        | "localtimestamp"
        | "current_date"
        | "current_time"
        | "localtime" => "now".to_owned(),
        "mod" => UNNAMED.to_owned(),
        "ceiling" => "ceil".to_owned(),
        "position" | "instr" => "strpos".to_owned(),
        "substr" => "substring".to_owned(),
        "char_length" | "length" => "character_length".to_owned(),
        "pow" => "power".to_owned(),
        _ => name,
    }
}

/// Gives columns that ORDER BY names by their place an alias: DataFusion looks for their names below an aggregate.
fn hide_sorted(query: &mut ast::Query) {
    let (SetExpr::Select(select), Some(order)) = (query.body.as_mut(), &query.order_by) else {
        return;
    };
    let ast::OrderByKind::Expressions(keys) = &order.kind else { return };
    if select.distinct.is_some() || select.projection.iter().any(is_star) {
        return;
    }
    for key in keys {
        let Expr::Value(value) = &key.expr else { continue };
        let ast::Value::Number(place, _) = &value.value else { continue };
        let Some(place) = place.parse::<usize>().ok().and_then(|place| place.checked_sub(1)) else {
            continue;
        };
        if let Some(item @ SelectItem::UnnamedExpr(_)) = select.projection.get_mut(place)
            && let SelectItem::UnnamedExpr(expression) = &*item
            && !matches!(expression, Expr::Value(_) | Expr::Wildcard(_))
            && column_parts(expression).is_none()
        {
            hide_name(item, place);
        }
    }
}

fn hide_name(item: &mut SelectItem, place: usize) {
    if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
        let alias = ast::Ident::with_quote('"', format!("column {place}, named later"));
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
    }
}

#[cfg(test)]
mod tests {
    //! Names of select lists, and lists that DataFusion would refuse.

    use datafusion::arrow::datatypes::DataType as ArrowType;

    use super::*;
    use cleave_sql::statement::{Statement, parse_script};

    fn take(sql: &str) -> (ResultNames, String) {
        let parsed = parse_script(sql).unwrap().remove(0).statement;
        let Statement::Query(mut query) = parsed else { panic!("{sql} is no query") };
        let names = ResultNames::take_alone(&mut query).unwrap();
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
    fn subquery_named_as_an_alias_is_hidden() {
        let (names, query) = take("SELECT a AS x, (SELECT 2 AS x) FROM t");
        assert_eq!(names.first, ["x", "x"]);
        assert!(query.ends_with("(SELECT 2 AS x) AS \"column 1, named later\" FROM t"), "{query}");
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
