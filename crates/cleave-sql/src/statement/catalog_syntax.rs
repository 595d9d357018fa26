//! Queries of PostgreSQL's catalog: rewrites syntax in them that DataFusion lacks.
//!
//! [`lower`] leaves every query alone that does not name the catalog. In the others:
//!
//! 1. `pg_class` is `pg_catalog.pg_class`, `pg_catalog.format_type(…)` is `format_type(…)`, `OPERATOR(pg_catalog.~)` is
//!    `~`; there is one collation.
//! 2. `'t'::regclass` is the number of a table, `x::regclass` the name of the table with that number; `oid` is bigint;
//!    `name` and `"char"` are text.
//! 3. `x = ANY (ARRAY[a, b])` is `x IN (a, b)`.
//! 4. `c.tableoid` is the number of the table of `c`; `'{1,2}'::oid[]` is `ARRAY[1, 2]`; a selected vector of numbers
//!    is written like one.
//! 5. A SELECT from a table that never has rows becomes an empty result; as a value it is NULL, under EXISTS false.
//! 6. A scalar subquery that finds at most one row becomes an aggregate `max` over its rows, which DataFusion can turn
//!    into a join.
//!
//! 5 and 6 are applied to subqueries of the catalog alone. 5 holds for inner joins without aggregates, and keeps the
//! names of columns, which are text then. 6 would hide that a subquery finds several rows; clients look up by the
//! catalog's own keys, so this does not occur.

use std::ops::ControlFlow;

use cleave_store::ColumnType;
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, DataType, Expr, Ident, ObjectName, ObjectNamePart, SelectItem, SetExpr,
    Value, Visitor, VisitorMut,
};

use super::type_tree;
use crate::dialect::query_names::item_name;
use crate::statement::catalog_tables::{
    CATALOG_SCHEMA, INFORMATION_SCHEMA, is_always_empty, is_catalog_table,
};
use crate::statement::names::fold;

mod function_numbers;
mod functions;
mod lists;
mod outer_rows;
mod shown;
mod table_numbers;

use crate::visiting::{visit, visit_expressions_mut, visit_mut};
use lists::{
    is_vector, list_empty_texts, list_of_numbers, one, part_of, show_vectors, spaced, subscripts,
};
use shown::{names_shown, show_names};
use table_numbers::lower_table_numbers;

/// Rewrites the catalog syntax in `query`.
pub fn lower(query: &mut ast::Query) {
    if visit(query, &mut Mentions).is_continue() {
        return;
    }
    type_tree::lower(query);
    let names = names_of(&query.body);
    let shown = names_shown(&query.body);
    if empty_selects(&mut query.body) && matches!(*query.body, SetExpr::Select(_)) {
        // It names columns that are gone, and an empty result needs no order.
        query.order_by = None;
        query.limit_clause = None;
    }
    let flow: ControlFlow<()> = visit_mut(query, &mut Lower);
    debug_assert!(flow.is_continue(), "nothing stops the visit");
    show_vectors(&mut query.body);
    show_names(&mut query.body, &shown);
    keep_names(&mut query.body, &names);
}

/// The column names of a result.
fn names_of(body: &SetExpr) -> Vec<Option<String>> {
    match body {
        SetExpr::Select(select) => select.projection.iter().map(item_name).collect(),
        SetExpr::SetOperation { left, .. } => names_of(left),
        SetExpr::Query(query) => names_of(&query.body),
        _ => Vec::new(),
    }
}

/// Restores the column names of a result.
fn keep_names(body: &mut SetExpr, names: &[Option<String>]) {
    match body {
        SetExpr::Select(select) => {
            for (item, name) in select.projection.iter_mut().zip(names) {
                if let (SelectItem::UnnamedExpr(expression), Some(name)) = (&mut *item, name)
                    && item_name(&SelectItem::UnnamedExpr(expression.clone())).as_ref()
                        != Some(name)
                {
                    let expr = std::mem::replace(expression, null());
                    let alias = Ident::with_quote('"', name.as_str());
                    *item = SelectItem::ExprWithAlias { expr, alias };
                }
            }
        }
        SetExpr::SetOperation { left, .. } => keep_names(left, names),
        SetExpr::Query(query) => keep_names(&mut query.body, names),
        _ => {}
    }
}

/// Stops at the first mention of the catalog.
struct Mentions;

impl Visitor for Mentions {
    type Break = ();

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        stop_if(
            catalog_table(relation).is_some()
                || is_own(relation)
                || functions::table_of(relation).is_some(),
        )
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        stop_if(match expression {
            Expr::Function(function) => {
                is_own(&function.name)
                    || takes_text(function)
                    || shown::writer_of(expression).is_some()
            }
            Expr::Cast { data_type, .. } => catalog_type(data_type).is_some(),
            Expr::Collate { collation, .. } => is_own(collation),
            Expr::BinaryOp { op: BinaryOperator::PGCustomBinaryOperator(_), .. } => true,
            _ => false,
        })
    }
}

fn stop_if(found: bool) -> ControlFlow<()> {
    if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

struct Lower;

impl VisitorMut for Lower {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut ast::TableFactor) -> ControlFlow<()> {
        functions::read_table(factor);
        if let ast::TableFactor::Table { name, args: Some(_), .. } = factor {
            strip_schema(name);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<()> {
        if let ([_], Some(table)) = (relation.0.as_slice(), catalog_table(relation)) {
            *relation = ObjectName::from(vec![Ident::new(CATALOG_SCHEMA), Ident::new(table)]);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut ast::Select) -> ControlFlow<()> {
        functions::name_tables(select);
        lower_table_numbers(select);
        // DataFusion knows EXISTS as a condition only.
        for item in &mut select.projection {
            let flow: ControlFlow<()> = visit_expressions_mut(item, |expression| {
                if let Expr::Exists { subquery, negated } = expression
                    && let Some(counted) = counted(subquery, *negated)
                {
                    *expression = counted;
                }
                ControlFlow::Continue(())
            });
            debug_assert!(flow.is_continue(), "nothing stops the visit");
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        let replaced = match expression {
            Expr::Subquery(query) => value_of(query),
            Expr::Exists { subquery, negated } => {
                let is_empty = plain_select(subquery).is_some_and(reads_nothing);
                is_empty.then(|| Expr::value(Value::Boolean(*negated)))
            }
            Expr::Function(function) => array_of(function),
            Expr::AnyOp { left, compare_op, right, .. } => any_of_rows(left, compare_op, right),
            Expr::CompoundFieldAccess { root, access_chain } => part_of(root, access_chain),
            _ => None,
        };
        if let Some(replaced) = replaced {
            *expression = replaced;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        let taken = std::mem::replace(expression, null());
        *expression = match taken {
            Expr::Collate { expr, collation } if is_own(&collation) => *expr,
            Expr::Function(mut function) => {
                strip_schema(&mut function.name);
                if takes_text(&function) {
                    let texts =
                        arguments(&function).into_iter().map(|argument| cast("text", argument));
                    call(&function.name.to_string(), texts.collect())
                } else {
                    subscripts(function)
                }
            }
            Expr::BinaryOp { left, op, right } => {
                function_numbers::compared(*left, operator(op), *right)
            }
            Expr::AnyOp { left, compare_op, right, is_some } => {
                match (operator(compare_op), items(&right)) {
                    (BinaryOperator::Eq, Some(list)) => {
                        Expr::InList { expr: left, list, negated: false }
                    }
                    (compare_op, _) => Expr::AnyOp { left, compare_op, right, is_some },
                }
            }
            Expr::AllOp { left, compare_op, right } => {
                match (operator(compare_op), items(&right)) {
                    (BinaryOperator::NotEq, Some(list)) => {
                        Expr::InList { expr: left, list, negated: true }
                    }
                    (compare_op, _) => Expr::AllOp { left, compare_op, right },
                }
            }
            Expr::Cast { kind, expr, data_type, array, format } => match catalog_type(&data_type) {
                Some(name) if name == "name" && shown::writer_of(&expr).is_some() => {
                    shown::written(*expr)
                }
                Some(name) => cast(&name, *expr),
                None => match list_of_numbers(&expr, &data_type) {
                    Some(list) => list,
                    // `'t'::regclass::text`.
                    None if is_text(&data_type) && shown::writer_of(&expr).is_some() => {
                        shown::written(*expr)
                    }
                    None if is_text(&data_type) && is_vector(&expr) => spaced(*expr),
                    None => Expr::Cast { kind, expr, data_type, array, format },
                },
            },
            Expr::Case { operand, mut conditions, mut else_result, case_token, end_token } => {
                let results = conditions.iter_mut().map(|when| &mut when.result);
                list_empty_texts(results.chain(else_result.as_deref_mut()).collect());
                Expr::Case { operand, conditions, else_result, case_token, end_token }
            }
            other => other,
        };
        ControlFlow::Continue(())
    }
}

/// The table of PostgreSQL's catalog that a name means, if the name has no schema or that one.
fn catalog_table(name: &ObjectName) -> Option<String> {
    let parts: Vec<String> = name.0.iter().filter_map(ObjectNamePart::as_ident).map(fold).collect();
    match parts.as_slice() {
        [table] => is_catalog_table(table).then(|| table.clone()),
        [.., schema, table] if schema == CATALOG_SCHEMA => Some(table.clone()),
        _ => None,
    }
}

/// Whether a name is of a schema that every database has.
fn is_own(name: &ObjectName) -> bool {
    let schema = name.0.len().checked_sub(2).and_then(|place| name.0.get(place)?.as_ident());
    schema
        .is_some_and(|schema| [CATALOG_SCHEMA, INFORMATION_SCHEMA].contains(&fold(schema).as_str()))
}

fn strip_schema(name: &mut ObjectName) {
    if is_own(name) {
        name.0.drain(..name.0.len() - 1);
    }
}

/// Whether a function takes a parameter whose type only the function's name tells.
fn takes_text(function: &ast::Function) -> bool {
    let names = ["to_regclass", "to_regtype", "current_setting", "quote_ident"];
    let name = function.name.0.last().and_then(ObjectNamePart::as_ident).map(fold);
    name.is_some_and(|name| names.contains(&name.as_str()))
        && arguments(function).iter().any(is_parameter)
}

fn is_parameter(expression: &Expr) -> bool {
    let Expr::Value(value) = expression else { return false };
    matches!(value.value, Value::Placeholder(_))
}

/// `EXISTS (…)` as a comparison of a count; None: it is rewritten later.
fn counted(query: &ast::Query, negated: bool) -> Option<Expr> {
    let select = plain_select(query)?;
    let is_plain = reads_catalog(select) && !reads_nothing(select) && !has_aggregate(select);
    if !is_plain || query.limit_clause.is_some() {
        return None;
    }
    let mut query = query.clone();
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    select.projection = vec![SelectItem::UnnamedExpr(call("count", vec![one()]))];
    Some(Expr::BinaryOp {
        left: Box::new(Expr::Subquery(Box::new(query))),
        op: if negated { BinaryOperator::Lt } else { BinaryOperator::GtEq },
        right: Box::new(one()),
    })
}

/// The name of a type that only the catalog has, or that has a schema.
fn catalog_type(data_type: &DataType) -> Option<String> {
    match data_type {
        DataType::Regclass => Some("regclass".to_owned()),
        DataType::Custom(name, _) => {
            let last = fold(name.0.last()?.as_ident()?);
            let is_known = matches!(
                last.as_str(),
                "oid"
                    | "name"
                    | "char"
                    | "regclass"
                    | "regtype"
                    | "regproc"
                    | "regprocedure"
                    | "regnamespace"
                    | "regrole"
                    | "xid"
                    | "cid"
                    | "int2vector"
                    | "oidvector"
            );
            (is_own(name) || (name.0.len() == 1 && is_known)).then_some(last)
        }
        _ => None,
    }
}

/// The type of parameters that are cast to a type of the catalog: number or text.
pub(crate) fn type_of_catalog(data_type: &DataType) -> Option<ColumnType> {
    Some(match catalog_type(data_type)?.as_str() {
        "oid" | "xid" | "cid" | "int8" => ColumnType::BigInt,
        "int2" => ColumnType::SmallInt,
        "int4" => ColumnType::Int,
        "bool" => ColumnType::Boolean,
        "name" | "text" | "char" => ColumnType::Text,
        _ => return None,
    })
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Text | DataType::Varchar(_) | DataType::CharacterVarying(_))
}

/// `expression` as a value of the named type.
fn cast(name: &str, expression: Expr) -> Expr {
    let to = |data_type: DataType, expression: Expr| Expr::Cast {
        kind: ast::CastKind::Cast,
        expr: Box::new(expression),
        data_type,
        array: false,
        format: None,
    };
    let named = |expression: Expr| match is_parameter(&expression) {
        true => to(DataType::Text, expression),
        false => expression,
    };
    let data_type = match name {
        "regclass" if is_constant(&expression) => {
            return call("cleave_relation", vec![named(expression)]);
        }
        "regclass" => return call("cleave_relation_name", vec![expression]),
        "regtype" if is_constant(&expression) => {
            return call("cleave_type", vec![named(expression)]);
        }
        "regtype" => return call("format_type", vec![expression, null()]),
        "regrole" => return call("pg_get_userbyid", vec![expression]),
        "regproc" | "regprocedure" => {
            return call("cleave_function_name", vec![named(expression)]);
        }
        "regnamespace" if is_constant(&expression) => {
            return call("cleave_schema", vec![named(expression)]);
        }
        "regnamespace" => return call("cleave_schema_name", vec![expression]),
        "oid" | "xid" | "cid" | "xid8" => {
            let number = number_of(&expression);
            return number.unwrap_or_else(|| to(DataType::BigInt(None), expression));
        }
        // One character, or the byte of three octal digits behind a backslash.
        "char" if octal_of(&expression).is_some_and(|byte| byte < 0x80) => {
            let letter = octal_of(&expression).map(char::from).filter(|letter| *letter != '\0');
            let text = letter.map(String::from).unwrap_or_default();
            return to(DataType::Text, Expr::value(Value::SingleQuotedString(text)));
        }
        "char" => {
            let places = [one(), one()];
            return call("substr", [named(expression)].into_iter().chain(places).collect());
        }
        "int2" => DataType::SmallInt(None),
        "int4" | "cardinal_number" => DataType::Int(None),
        "int8" => DataType::BigInt(None),
        "bool" => DataType::Boolean,
        "float4" => DataType::Real,
        "float8" => DataType::DoublePrecision,
        "numeric" => DataType::Numeric(ast::ExactNumberInfo::None),
        "date" => DataType::Date,
        "timestamp" => DataType::Timestamp(None, ast::TimezoneInfo::None),
        "timestamptz" => DataType::Timestamp(None, ast::TimezoneInfo::WithTimeZone),
        "bytea" => DataType::Bytea,
        "uuid" => DataType::Uuid,
        _ => DataType::Text,
    };
    to(data_type, expression)
}

/// The byte that a literal such as `'\101'` writes.
fn octal_of(expression: &Expr) -> Option<u8> {
    let Expr::Value(value) = expression else { return None };
    let Value::SingleQuotedString(text) = &value.value else { return None };
    let digits = text.strip_prefix('\\').filter(|digits| digits.len() == 3)?;
    u8::from_str_radix(digits, 8).ok()
}

/// Whether an expression is a name, rather than a number.
fn is_constant(expression: &Expr) -> bool {
    match expression {
        Expr::Value(value) => {
            matches!(value.value, Value::SingleQuotedString(_) | Value::Placeholder(_))
        }
        Expr::Cast { expr, .. } | Expr::Nested(expr) => is_constant(expr),
        _ => false,
    }
}

/// The number behind a name of a table or type; None: the expression is no such name.
fn number_of(expression: &Expr) -> Option<Expr> {
    if function_numbers::is_function(expression) {
        return Some(function_numbers::numbered(expression.clone()));
    }
    let Expr::Function(function) = expression else { return None };
    match function.name.to_string().as_str() {
        "cleave_relation" | "cleave_type" | "cleave_schema" => Some(expression.clone()),
        // Of a number, or of a name that only the rows tell.
        "cleave_relation_name" => Some(call("cleave_relation", arguments(function))),
        "format_type" => {
            let of = arguments(function).into_iter().next();
            Some(call("cleave_type", of.into_iter().collect()))
        }
        "cleave_schema_name" => arguments(function).into_iter().next(),
        "cleave_function_name" => Some(call("cleave_function", arguments(function))),
        "cleave_function" => Some(expression.clone()),
        _ => None,
    }
}

fn operator(operator: BinaryOperator) -> BinaryOperator {
    use BinaryOperator as Op;
    let Op::PGCustomBinaryOperator(parts) = &operator else { return operator };
    match parts.last().map(String::as_str) {
        Some("=") => Op::Eq,
        Some("<>" | "!=") => Op::NotEq,
        Some("<") => Op::Lt,
        Some("<=") => Op::LtEq,
        Some(">") => Op::Gt,
        Some(">=") => Op::GtEq,
        Some("~") => Op::PGRegexMatch,
        Some("~*") => Op::PGRegexIMatch,
        Some("!~") => Op::PGRegexNotMatch,
        Some("!~*") => Op::PGRegexNotIMatch,
        Some("~~") => Op::PGLikeMatch,
        Some("~~*") => Op::PGILikeMatch,
        Some("!~~") => Op::PGNotLikeMatch,
        Some("!~~*") => Op::PGNotILikeMatch,
        Some("||") => Op::StringConcat,
        Some("+") => Op::Plus,
        Some("-") => Op::Minus,
        _ => operator,
    }
}

/// The items of an array literal.
fn items(list: &Expr) -> Option<Vec<Expr>> {
    match list {
        Expr::Nested(inner) => items(inner),
        Expr::Array(array) => Some(array.elem.clone()).filter(|items| !items.is_empty()),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => {
                let inner = text.strip_prefix('{')?.strip_suffix('}')?;
                let item =
                    |text: &str| Expr::value(Value::SingleQuotedString(text.trim().to_owned()));
                Some(inner.split(',').map(item).collect())
            }
            _ => None,
        },
        _ => None,
    }
}

/// `x IN (SELECT …)` for `x = ANY (ARRAY(SELECT …))`.
fn any_of_rows(left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<Expr> {
    let mut list = right;
    while let Expr::Nested(inner) = list {
        list = inner;
    }
    let Expr::Function(function) = list else { return None };
    let ast::FunctionArguments::Subquery(query) = &function.args else { return None };
    let is_array = function.name.to_string().eq_ignore_ascii_case("array");
    let is_equal = operator(op.clone()) == BinaryOperator::Eq;
    let mut subquery = query.clone();
    outer_rows::key_recursion(&mut subquery);
    (is_array && is_equal).then(|| Expr::InSubquery {
        expr: Box::new(left.clone()),
        subquery,
        negated: false,
    })
}

/// The value of `ARRAY(SELECT …)`; None: the function is another.
fn array_of(function: &ast::Function) -> Option<Expr> {
    let ast::FunctionArguments::Subquery(query) = &function.args else { return None };
    if !function.name.to_string().eq_ignore_ascii_case("array") {
        return None;
    }
    let mut query = query.clone();
    let order = outer_rows::lower_array(&mut query);
    // One row of expressions is no matter of the catalog.
    let select = plain_select(&query).filter(|select| !select.from.is_empty())?;
    let of_function = select
        .from
        .iter()
        .any(|from| matches!(&from.relation, ast::TableFactor::Table { args: Some(_), .. }));
    // Lists of options and the like, which are always empty here.
    if of_function || reads_nothing(select) {
        let text = ast::ArrayElemTypeDef::SquareBracket(Box::new(DataType::Text), None);
        return Some(Expr::Cast {
            kind: ast::CastKind::Cast,
            expr: Box::new(null()),
            data_type: DataType::Array(text),
            array: false,
            format: None,
        });
    }
    query.order_by = None;
    let is_list = wrap(&mut query, "array_agg", order);
    is_list.then(|| call("list_or_empty", vec![Expr::Subquery(query)]))
}

/// The replacement of a scalar subquery; None: it stays, or becomes the greatest of its rows.
fn value_of(query: &mut Box<ast::Query>) -> Option<Expr> {
    let select = plain_select(query)?;
    if reads_nothing(select) || makes_json(select) {
        return Some(nothing(select));
    }
    if let Some(default) = default_of(select) {
        return Some(default);
    }
    let has_few = query.limit_clause.is_some() || query.order_by.is_some();
    if reads_catalog(select) && !has_few && !has_aggregate(select) {
        wrap(query, "max", Vec::new());
    }
    None
}

/// Puts an aggregate around the single column of a query. False: it has another number of columns.
fn wrap(query: &mut ast::Query, aggregate: &str, order: Vec<ast::OrderByExpr>) -> bool {
    let SetExpr::Select(select) = query.body.as_mut() else { return false };
    match select.projection.as_mut_slice() {
        [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] => {
            let inner = std::mem::replace(expr, null());
            *expr = call(aggregate, vec![inner]);
            if let Expr::Function(function) = expr
                && let ast::FunctionArguments::List(list) = &mut function.args
                && !order.is_empty()
            {
                list.clauses.push(ast::FunctionArgumentClause::OrderBy(order));
            }
            true
        }
        _ => false,
    }
}

/// The default of a column, from a subquery that looks it up in `pg_attrdef` by table and column.
fn default_of(select: &ast::Select) -> Option<Expr> {
    let [from] = select.from.as_slice() else { return None };
    let ast::TableFactor::Table { name, .. } = &from.relation else { return None };
    if !from.joins.is_empty() || catalog_table(name)? != "pg_attrdef" {
        return None;
    }
    let mut conditions = Vec::new();
    conjuncts(select.selection.as_ref()?, &mut conditions);
    let equal_to = |wanted: &str| {
        conditions.iter().find_map(|condition| match condition {
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
                let is_wanted = |side: &Expr| {
                    matches!(side, Expr::CompoundIdentifier(parts)
                        if parts.last().is_some_and(|last| fold(last) == wanted))
                };
                match (is_wanted(left), is_wanted(right)) {
                    (true, false) => Some(Expr::clone(right)),
                    (false, true) => Some(Expr::clone(left)),
                    _ => None,
                }
            }
            _ => None,
        })
    };
    Some(call("cleave_default", vec![equal_to("adrelid")?, equal_to("adnum")?]))
}

fn conjuncts<'a>(expression: &'a Expr, found: &mut Vec<&'a Expr>) {
    match expression {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            conjuncts(left, found);
            conjuncts(right, found);
        }
        Expr::Nested(inner) => conjuncts(inner, found),
        other => found.push(other),
    }
}

/// The SELECT that a query is, where it is one.
fn plain_select(query: &ast::Query) -> Option<&ast::Select> {
    match query.body.as_ref() {
        SetExpr::Select(select) => Some(select),
        SetExpr::Query(query) => plain_select(query),
        _ => None,
    }
}

/// Whether a SELECT reads the catalog: these rewrites do not apply to subqueries of tables.
fn reads_catalog(select: &ast::Select) -> bool {
    let is_catalog = |factor: &ast::TableFactor| match factor {
        ast::TableFactor::Table { name, .. } => catalog_table(name).is_some() || is_own(name),
        _ => false,
    };
    select.from.iter().any(|from| {
        is_catalog(&from.relation) || from.joins.iter().any(|join| is_catalog(&join.relation))
    })
}

/// Whether a SELECT makes JSON, which DataFusion cannot: clients use it for the options of an identity column.
fn makes_json(select: &ast::Select) -> bool {
    select.projection.iter().any(|item| {
        matches!(item, SelectItem::UnnamedExpr(Expr::Function(function))
            | SelectItem::ExprWithAlias { expr: Expr::Function(function), .. }
            if function.name.to_string().eq_ignore_ascii_case("json_build_object"))
    })
}

/// Whether a SELECT gives no row because it reads a table that is always empty.
fn reads_nothing(select: &ast::Select) -> bool {
    use ast::JoinOperator as Op;
    let is_empty = |factor: &ast::TableFactor| match factor {
        ast::TableFactor::Table { name, args: None, .. } => {
            catalog_table(name).is_some_and(|table| is_always_empty(&table))
        }
        _ => false,
    };
    let is_nothing = |from: &ast::TableWithJoins| {
        let keeps_left = |op: &Op| {
            matches!(
                op,
                Op::Join(_) | Op::Inner(_) | Op::CrossJoin(_) | Op::Left(_) | Op::LeftOuter(_)
            )
        };
        let is_inner = |op: &Op| matches!(op, Op::Join(_) | Op::Inner(_) | Op::CrossJoin(_));
        let joins = &from.joins;
        joins.iter().all(|join| keeps_left(&join.join_operator))
            && (is_empty(&from.relation)
                || joins
                    .iter()
                    .any(|join| is_inner(&join.join_operator) && is_empty(&join.relation)))
    };
    select.from.iter().any(is_nothing) && !has_aggregate(select)
}

fn has_aggregate(select: &ast::Select) -> bool {
    /// Depth of enclosing subqueries: their columns are not ours.
    struct Aggregates(usize);
    impl Visitor for Aggregates {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
            self.0 += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
            self.0 -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
            const NAMES: [&str; 10] = [
                "count",
                "sum",
                "min",
                "max",
                "avg",
                "array_agg",
                "string_agg",
                "bool_and",
                "bool_or",
                "json_agg",
            ];
            let Expr::Function(function) = expression else { return ControlFlow::Continue(()) };
            let name = function.name.0.last().and_then(ObjectNamePart::as_ident).map(fold);
            stop_if(self.0 == 0 && name.is_some_and(|name| NAMES.contains(&name.as_str())))
        }
    }
    let is_grouped = match &select.group_by {
        ast::GroupByExpr::All(_) => true,
        ast::GroupByExpr::Expressions(expressions, _) => !expressions.is_empty(),
    };
    is_grouped || visit(&select.projection, &mut Aggregates(0)).is_break()
}

/// Replaces SELECTs that give no row by ones that need no table. True: there was one.
fn empty_selects(body: &mut SetExpr) -> bool {
    let is_text = reads_nothing_at_all(body);
    empty_typed(body, is_text)
}

/// Whether all SELECTs of a query give no row.
fn reads_nothing_at_all(body: &SetExpr) -> bool {
    match body {
        SetExpr::Select(select) => reads_nothing(select),
        SetExpr::SetOperation { left, right, .. } => {
            reads_nothing_at_all(left) && reads_nothing_at_all(right)
        }
        _ => false,
    }
}

/// The same; `is_text`: their columns are text, rather than of the type of another SELECT of a UNION.
fn empty_typed(body: &mut SetExpr, is_text: bool) -> bool {
    match body {
        SetExpr::Select(select) => {
            let names: Option<Vec<String>> = select.projection.iter().map(item_name).collect();
            let Some(names) = names.filter(|_| reads_nothing(select)) else { return false };
            let nothing = nothing(select);
            let projection = names.into_iter().map(|name| SelectItem::ExprWithAlias {
                expr: if is_text { cast("text", null()) } else { null() },
                alias: Ident::with_quote('"', name),
            });
            select.projection = projection.collect();
            select.from.clear();
            select.distinct = None;
            select.having = None;
            select.selection = Some(Expr::BinaryOp {
                left: Box::new(Expr::value(Value::Boolean(false))),
                op: BinaryOperator::And,
                right: Box::new(Expr::IsNotNull(Box::new(nothing))),
            });
            true
        }
        SetExpr::SetOperation { left, right, .. } => {
            let left = empty_typed(left, is_text);
            empty_typed(right, is_text) || left
        }
        _ => false,
    }
}

/// NULL that keeps the parameters of `select`: a client sends values for them.
fn nothing(select: &ast::Select) -> Expr {
    struct Parameters {
        found: Vec<Expr>,
        is_cast: bool,
    }
    impl Visitor for Parameters {
        type Break = ();

        fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
            match expression {
                Expr::Cast { expr, .. } if is_parameter(expr) => {
                    self.found.push(expression.clone());
                    self.is_cast = true;
                }
                other if is_parameter(other) && !std::mem::take(&mut self.is_cast) => {
                    self.found.push(cast("text", other.clone()));
                }
                _ => {}
            }
            ControlFlow::Continue(())
        }
    }
    let mut parameters = Parameters { found: Vec::new(), is_cast: false };
    let flow = visit(select, &mut parameters);
    debug_assert!(flow.is_continue(), "nothing stops the visit");
    match parameters.found.as_slice() {
        // Of any type.
        [] => null(),
        _ => call("cleave_nothing", parameters.found),
    }
}

fn null() -> Expr {
    Expr::value(Value::Null)
}

fn arguments(function: &ast::Function) -> Vec<Expr> {
    let ast::FunctionArguments::List(list) = &function.args else { return Vec::new() };
    let expressions = list.args.iter().filter_map(|argument| match argument {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expression)) => {
            Some(expression.clone())
        }
        _ => None,
    });
    expressions.collect()
}

/// A call of a function.
pub fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let arguments = arguments
        .into_iter()
        .map(|argument| ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(argument)));
    Expr::Function(ast::Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: ast::FunctionArguments::None,
        args: ast::FunctionArguments::List(ast::FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use crate::statement::{Statement, parse_script};

    fn lowered(sql: &str) -> String {
        match parse_script(sql).unwrap().remove(0).statement {
            Statement::Query(query) => query.to_string(),
            other => panic!("{other:?} is no query"),
        }
    }

    #[test]
    fn what_does_not_name_the_catalog_stays() {
        for sql in ["SELECT a FROM t WHERE a = ANY(ARRAY[1, 2])", "SELECT (SELECT b FROM u) FROM t"]
        {
            assert_eq!(lowered(sql), sql);
        }
    }

    #[test]
    fn subqueries_of_tables_stay() {
        let with_a_cast = "SELECT (SELECT b FROM u), EXISTS (SELECT 1 FROM u), 1::oid AS x FROM t";
        let expected =
            "SELECT (SELECT b FROM u), EXISTS (SELECT 1 FROM u), CAST(1 AS BIGINT) AS x FROM t";
        assert_eq!(lowered(with_a_cast), expected);
    }

    #[test]
    fn syntax_of_the_catalog_is_said_otherwise() {
        for (sql, expected) in [
            ("SELECT oid FROM pg_class", "SELECT oid FROM pg_catalog.pg_class"),
            (
                "SELECT 1 FROM pg_class c WHERE c.relname OPERATOR(pg_catalog.~) '^t$' COLLATE pg_catalog.default",
                "SELECT 1 FROM pg_catalog.pg_class c WHERE c.relname ~ '^t$'",
            ),
            ("SELECT 't'::regclass::oid", "SELECT cleave_relation('t') AS \"oid\""),
            ("SELECT 1::pg_catalog.oid AS x", "SELECT CAST(1 AS BIGINT) AS x"),
            (
                "SELECT c.oid::regclass::text FROM pg_class c WHERE c.relkind = ANY (ARRAY['r', 'p'])",
                "SELECT cleave_relation_name(c.oid)::TEXT AS \"oid\" FROM pg_catalog.pg_class c WHERE c.relkind IN \
                    ('r', 'p')",
            ),
            ("SELECT EXISTS (SELECT 1 FROM pg_trigger)", "SELECT false AS \"exists\""),
            (
                "SELECT EXISTS (SELECT 1 FROM pg_class) AS x",
                "SELECT (SELECT count(1) FROM pg_catalog.pg_class) >= 1 AS x",
            ),
            (
                "SELECT (SELECT relname FROM pg_class WHERE oid = 1)",
                "SELECT (SELECT max(relname) FROM pg_catalog.pg_class WHERE oid = 1) AS \"relname\"",
            ),
            (
                "SELECT polname, polcmd AS cmd FROM pg_policy WHERE polrelid = $1 ORDER BY 1",
                "SELECT CAST(NULL AS TEXT) AS \"polname\", CAST(NULL AS TEXT) AS \"cmd\" WHERE false AND \
                 cleave_nothing(CAST($1 AS TEXT)) IS NOT NULL",
            ),
            ("SELECT count(*) FROM pg_policy", "SELECT count(*) FROM pg_catalog.pg_policy"),
        ] {
            assert_eq!(lowered(sql), expected);
        }
    }
}
