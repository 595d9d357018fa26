//! A query in; [`Error::Unsupported`] for each clause that DataFusion would ignore silently.
//!
//! The parser reads the clauses of many dialects, and DataFusion's planner skips those that it does not know: it
//! matches a table with `..` and never sees its TABLESAMPLE. [`refuse_in_query`] walks the whole tree, subqueries
//! included, and names the first such clause.
//!
//! Deliberately absent: what DataFusion refuses itself (FETCH, TOP, PIVOT, LATERAL VIEW), and hints that change no row
//! (`AS MATERIALIZED`, `/*+ ... */`).
//!
//! Source: DataFusion 55.2, `sql/src/{query,select,cte,relation,expr}`, read against the parser's `ast`.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use cleave_catalog::error::{Error, Fault, Result};
use datafusion::execution::SessionStateDefaults;
use datafusion::sql::sqlparser::ast::{self, Spanned, Visitor};

use super::first_words;
use super::recursive::refuse_recursion;
use crate::dialect::query_names::{column_parts, item_name};
use crate::dialect::{AGGREGATES, is_byte_order, similar_pattern};
use crate::statement::names::{fold, name_and_alias, position_of};
use crate::visiting::visit;

/// Refuses what the crate reads in a query and DataFusion would ignore or misread.
pub fn refuse_in_query(query: &ast::Query) -> Result<()> {
    match visit(query, &mut Refuse) {
        ControlFlow::Continue(()) => Ok(()),
        // Taking the span of a long chain would recurse once per operator.
        ControlFlow::Break(error)
            if matches!(
                *error,
                Error::Invalid { fault: Fault::TooComplex | Fault::TooManyColumns, .. }
            ) =>
        {
            Err(*error)
        }
        ControlFlow::Break(error) => Err(error.at(position_of(query.span().start))),
    }
}

pub(super) type Flow = ControlFlow<Box<Error>>;

struct Refuse;

impl Visitor for Refuse {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &ast::Query) -> Flow {
        refuse_long_union(&query.body)?;
        if let ast::SetExpr::Values(values) = &*query.body {
            values.rows.iter().try_for_each(|row| refuse_long_list(row.len()))?;
        }
        if let Some(lock) = query.locks.first() {
            return refuse(format!("SELECT ... FOR {}", lock.lock_type), query);
        }
        if let Some(clause) = &query.for_clause {
            return refuse(format!("SELECT ... {clause}"), query);
        }
        let clauses = [
            (query.settings.is_some(), "SELECT ... SETTINGS"),
            (query.format_clause.is_some(), "SELECT ... FORMAT"),
        ];
        refuse_first(&clauses, query)?;
        refuse_twice(query)?;
        refuse_ambiguous_order(query)?;
        if let Some(with) = &query.with {
            refuse_second_query(with)?;
        }
        if let Some(with) = query.with.as_ref().filter(|with| with.recursive) {
            for cte in &with.cte_tables {
                refuse_in_recursive(&cte.query)?;
            }
            refuse_recursion(with)?;
        }
        refuse_in_body(&query.body)
    }

    fn pre_visit_select(&mut self, select: &ast::Select) -> Flow {
        let (ast::GroupByExpr::All(group_modifiers)
        | ast::GroupByExpr::Expressions(_, group_modifiers)) = &select.group_by;
        let clauses = [
            (select.into.is_some(), "SELECT ... INTO"),
            (!select.connect_by.is_empty(), "CONNECT BY"),
            (!group_modifiers.is_empty(), "GROUP BY with GROUPING SETS that no comma precedes"),
            (select.prewhere.is_some(), "PREWHERE"),
            (select.exclude.is_some(), "SELECT ... EXCLUDE"),
            (select.select_modifiers.is_some(), "SELECT with MySQL's modifiers"),
            (select.value_table_mode.is_some(), "SELECT AS VALUE"),
        ];
        refuse_first(&clauses, select)?;
        refuse_long_list(select.projection.len())?;
        select.projection.iter().try_for_each(refuse_literal_name)?;
        refuse_distinct_places(select)?;
        if let Some(ast::Distinct::On(keys)) = &select.distinct {
            let projection = &select.projection;
            keys.iter()
                .try_for_each(|key| refuse_ambiguous("DISTINCT ON", key, projection, false))?;
        }
        let mut names = Vec::new();
        select.from.iter().try_for_each(|joined| refuse_second(joined, &mut names))?;
        select.from.iter().try_for_each(refuse_in_joins)
    }

    fn pre_visit_table_factor(&mut self, factor: &ast::TableFactor) -> Flow {
        use ast::TableFactor as Factor;
        let (clause, alias) = match factor {
            Factor::Table {
                name,
                alias,
                args,
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_hints,
            } => {
                if args.is_some() && name.0.len() > 1 {
                    return refuse(format!("a function of a schema in FROM ({name})"), factor);
                }
                let settings = args.as_ref().is_some_and(|args| args.settings.is_some());
                let clauses = [
                    (sample.is_some(), "TABLESAMPLE"),
                    (*with_ordinality, "WITH ORDINALITY"),
                    (!with_hints.is_empty(), "a table WITH (hints)"),
                    (version.is_some(), "a former version of a table"),
                    (!partitions.is_empty(), "a table's PARTITION"),
                    (!index_hints.is_empty(), "a table's USE, IGNORE or FORCE INDEX"),
                    (json_path.is_some(), "a path into a table"),
                    (settings, "a function's SETTINGS"),
                ];
                refuse_first(&clauses, factor)?;
                return refuse_in_alias(alias.as_ref(), factor);
            }
            Factor::Derived { alias, sample, .. } => ((sample.is_some(), "TABLESAMPLE"), alias),
            Factor::Function { alias, with_ordinality, .. }
            | Factor::UNNEST { alias, with_ordinality, .. } => {
                ((*with_ordinality, "WITH ORDINALITY"), alias)
            }
            Factor::NestedJoin { table_with_joins, alias } => {
                refuse_in_joins(table_with_joins)?;
                return refuse_in_alias(alias.as_ref(), factor);
            }
            // DataFusion knows no other kind of table, and reports an error.
            _ => return ControlFlow::Continue(()),
        };
        refuse_first(&[clause], factor)?;
        refuse_in_alias(alias.as_ref(), factor)
    }

    fn pre_visit_expr(&mut self, expression: &ast::Expr) -> Flow {
        match expression {
            ast::Expr::Function(function) => refuse_in_function(function),
            // DataFusion's patterns are regular expressions, which are made of literals.
            ast::Expr::SimilarTo { pattern, escape_char, .. }
                if similar_pattern(pattern, escape_char.as_ref()).is_none() =>
            {
                refuse("SIMILAR TO a pattern that is no literal", expression)
            }
            ast::Expr::BinaryOp { .. } => refuse_long_chain(expression),
            ast::Expr::Collate { collation, .. } if !is_byte_order(collation) => {
                refuse(format!("COLLATE {collation}"), expression)
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Refuses aggregates and window functions in RETURNING, outside of subqueries.
///
/// # Errors
/// 42803 and 42P20.
pub fn refuse_in_returning(items: &[ast::SelectItem]) -> Result<()> {
    match visit(items, &mut InReturning { depth: 0 }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct InReturning {
    depth: usize,
}

impl Visitor for InReturning {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, _query: &ast::Query) -> Flow {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &ast::Query) -> Flow {
        self.depth = self.depth.saturating_sub(1);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &ast::Expr) -> Flow {
        let ast::Expr::Function(function) = expression else { return ControlFlow::Continue(()) };
        let name = function.name.0.last().and_then(|name| name.as_ident()).map(fold);
        let (what, fault) = match name {
            _ if self.depth > 0 => return ControlFlow::Continue(()),
            _ if function.over.is_some() => ("window", Fault::Window),
            Some(name) if AGGREGATES.contains(&name) => ("aggregate", Fault::Grouping),
            _ => return ControlFlow::Continue(()),
        };
        ControlFlow::Break(Box::new(Error::Invalid {
            message: format!("{what} functions are not allowed in RETURNING"),
            fault,
            position: position_of(function.span().start),
        }))
    }
}

/// Refuses names in ORDER BY that several columns of the result have.
fn refuse_ambiguous_order(query: &ast::Query) -> Flow {
    let Some(ast::OrderBy { kind: ast::OrderByKind::Expressions(keys), .. }) = &query.order_by
    else {
        return ControlFlow::Continue(());
    };
    let (mut body, mut is_set) = (query.body.as_ref(), false);
    let select = loop {
        match body {
            ast::SetExpr::Select(select) => break select,
            ast::SetExpr::SetOperation { left, .. } => (body, is_set) = (left, true),
            ast::SetExpr::Query(inner) => body = inner.body.as_ref(),
            _ => return ControlFlow::Continue(()),
        }
    };
    let items = &select.projection;
    keys.iter().try_for_each(|key| refuse_ambiguous("ORDER BY", &key.expr, items, is_set))
}

/// Refuses `key`, if it is a name that different items have; of a set operation, several.
fn refuse_ambiguous(
    clause: &str,
    key: &ast::Expr,
    items: &[ast::SelectItem],
    is_set: bool,
) -> Flow {
    let ast::Expr::Identifier(ident) = key else { return ControlFlow::Continue(()) };
    let name = fold(ident);
    let expression = |item: &ast::SelectItem| match item {
        ast::SelectItem::UnnamedExpr(expr) | ast::SelectItem::ExprWithAlias { expr, .. } => {
            Some(expr.clone())
        }
        _ => None,
    };
    let named = items.iter().filter(|item| item_name(item).as_ref() == Some(&name));
    let mut named = named.filter_map(expression);
    let Some(first) = named.next() else { return ControlFlow::Continue(()) };
    // A column may be named with its table and without.
    let is_same = |other: &ast::Expr| match (column_parts(&first), column_parts(other)) {
        (Some((one, first)), Some((table, other))) => {
            first == other && (one.is_none() || table.is_none() || one == table)
        }
        _ => first == *other,
    };
    if named.all(|other| !is_set && is_same(&other)) {
        return ControlFlow::Continue(());
    }
    ControlFlow::Break(Box::new(Error::Invalid {
        message: format!("{clause} \"{name}\" is ambiguous"),
        fault: Fault::AmbiguousColumn,
        position: position_of(ident.span.start),
    }))
}

/// Refuses clauses around a query in parentheses that has them itself.
fn refuse_twice(query: &ast::Query) -> Flow {
    let clauses_of = |query: &ast::Query| {
        let (has_limit, has_offset) = match &query.limit_clause {
            Some(ast::LimitClause::LimitOffset { limit, offset, .. }) => {
                (limit.is_some(), offset.is_some())
            }
            Some(ast::LimitClause::OffsetCommaLimit { .. }) => (true, true),
            None => (false, false),
        };
        [
            (query.order_by.is_some(), "ORDER BY"),
            (has_limit || query.fetch.is_some(), "LIMIT"),
            (has_offset, "OFFSET"),
            (query.with.is_some(), "WITH"),
        ]
    };
    let own = clauses_of(query);
    let mut around = query;
    while let ast::SetExpr::Query(inner) = around.body.as_ref() {
        let twice = own.into_iter().zip(clauses_of(inner)).find(|(own, inner)| own.0 && inner.0);
        if let Some(((_, clause), _)) = twice {
            return ControlFlow::Break(Box::new(Error::Syntax {
                message: format!("multiple {clause} clauses not allowed"),
                near: None,
                position: position_of(query.span().start),
            }));
        }
        around = inner;
    }
    ControlFlow::Continue(())
}

/// Refuses `SELECT a 'b'`: the parser crate takes a literal for a name.
fn refuse_literal_name(item: &ast::SelectItem) -> Flow {
    match item {
        ast::SelectItem::ExprWithAlias { alias, .. } => refuse_literal(alias),
        _ => ControlFlow::Continue(()),
    }
}

fn refuse_literal(alias: &ast::Ident) -> Flow {
    if alias.quote_style != Some('\'') {
        return ControlFlow::Continue(());
    }
    ControlFlow::Break(Box::new(Error::Syntax {
        message: "a literal is no name".to_owned(),
        near: Some(alias.to_string()),
        position: position_of(alias.span.start),
    }))
}

fn refuse(what: impl Into<String>, place: &impl Spanned) -> Flow {
    ControlFlow::Break(Box::new(Error::unsupported(what).at(position_of(place.span().start))))
}

/// Refuses the first clause of a list that is present.
fn refuse_first(clauses: &[(bool, &str)], place: &impl Spanned) -> Flow {
    match clauses.iter().find(|(present, _)| *present) {
        Some((_, clause)) => refuse(*clause, place),
        None => ControlFlow::Continue(()),
    }
}

fn refuse_in_body(body: &ast::SetExpr) -> Flow {
    match body {
        ast::SetExpr::Insert(statement)
        | ast::SetExpr::Update(statement)
        | ast::SetExpr::Delete(statement)
        | ast::SetExpr::Merge(statement) => {
            refuse(format!("{} in or after WITH", first_words(statement)), body)
        }
        ast::SetExpr::SetOperation { left, right, .. } => {
            refuse_in_body(left)?;
            refuse_in_body(right)
        }
        _ => ControlFlow::Continue(()),
    }
}

/// For a UNION under WITH RECURSIVE DataFusion plans the two sides, and nothing around them.
fn refuse_in_recursive(query: &ast::Query) -> Flow {
    let is_union = matches!(
        query.body.as_ref(),
        ast::SetExpr::SetOperation { op: ast::SetOperator::Union, .. }
    );
    if !is_union {
        return ControlFlow::Continue(());
    }
    let clauses = [
        (query.with.is_some(), "WITH in a recursive query"),
        (query.order_by.is_some(), "ORDER BY in a recursive query"),
        (query.limit_clause.is_some(), "LIMIT or OFFSET in a recursive query"),
        (query.fetch.is_some(), "FETCH in a recursive query"),
    ];
    refuse_first(&clauses, query)
}

/// Refuses DISTINCT ON a place that the select list does not have.
fn refuse_distinct_places(select: &ast::Select) -> Flow {
    use ast::SelectItem::{QualifiedWildcard, Wildcard};
    let Some(ast::Distinct::On(keys)) = &select.distinct else {
        return ControlFlow::Continue(());
    };
    let has_star =
        select.projection.iter().any(|item| matches!(item, Wildcard(_) | QualifiedWildcard(..)));
    let is_beyond = |key: &&ast::Expr| match key {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Number(place, _) => place
                .parse::<usize>()
                .is_ok_and(|place| place == 0 || place > select.projection.len() && !has_star),
            _ => false,
        },
        _ => false,
    };
    match keys.iter().find(is_beyond) {
        Some(place) => ControlFlow::Break(Box::new(Error::Invalid {
            message: format!("DISTINCT ON position {place} is not in select list"),
            fault: Fault::ColumnAliases,
            position: position_of(place.span().start),
        })),
        None => ControlFlow::Continue(()),
    }
}

fn refuse_in_joins(tables: &ast::TableWithJoins) -> Flow {
    for join in &tables.joins {
        if join.global {
            return refuse("GLOBAL JOIN", &join.relation);
        }
    }
    ControlFlow::Continue(())
}

/// Refuses a name that an earlier query of WITH has.
fn refuse_second_query(with: &ast::With) -> Flow {
    let mut names = BTreeSet::new();
    for cte in &with.cte_tables {
        let name = fold(&cte.alias.name);
        if !names.insert(name.clone()) {
            return ControlFlow::Break(Box::new(Error::Invalid {
                message: format!("WITH query name \"{name}\" specified more than once"),
                fault: Fault::DuplicateAlias,
                position: position_of(cte.span().start),
            }));
        }
    }
    ControlFlow::Continue(())
}

/// The name of a table of FROM, and its schema if it has no alias.
type Called = (String, Option<String>);

/// Refuses a name that an earlier table has, as PostgreSQL does.
fn refuse_second(joined: &ast::TableWithJoins, names: &mut Vec<Called>) -> Flow {
    refuse_second_of(&joined.relation, names)?;
    joined.joins.iter().try_for_each(|join| refuse_second_of(&join.relation, names))
}

fn refuse_second_of(factor: &ast::TableFactor, names: &mut Vec<Called>) -> Flow {
    if let ast::TableFactor::NestedJoin { table_with_joins, alias: None } = factor {
        return refuse_second(table_with_joins, names);
    }
    let Some((name, alias)) = name_and_alias(factor) else { return ControlFlow::Continue(()) };
    let folded = |part: Option<&ast::ObjectNamePart>| part?.as_ident().map(fold);
    let called = match (alias, name) {
        (Some(alias), _) => (fold(&alias.name), None),
        (None, Some(name)) => {
            let mut parts = name.0.iter().rev();
            let Some(own) = folded(parts.next()) else { return ControlFlow::Continue(()) };
            let schema = folded(parts.next()).unwrap_or_else(|| "public".to_owned());
            (own, Some(schema))
        }
        (None, None) => return ControlFlow::Continue(()),
    };
    // Tables of two schemas may have one name.
    let is_second = |(known, schema): &Called| {
        *known == called.0 && (schema.is_none() || called.1.is_none() || *schema == called.1)
    };
    if names.iter().any(is_second) {
        return ControlFlow::Break(Box::new(Error::Invalid {
            message: format!("table name \"{}\" specified more than once", called.0),
            fault: Fault::DuplicateAlias,
            position: position_of(factor.span().start),
        }));
    }
    names.push(called);
    ControlFlow::Continue(())
}

/// Maximum length of a chain of operators, and of parts of a UNION: DataFusion recurses once for each.
const CHAIN_LENGTH_MAX: usize = 2000;

/// A chain of operators leans to the left; this walk does not recurse.
fn refuse_long_chain(expression: &ast::Expr) -> Flow {
    let (mut length, mut next) = (0, expression);
    while let ast::Expr::BinaryOp { left, .. } = next {
        length += 1;
        next = left;
    }
    refuse_length(length, "operators in a row")
}

fn refuse_long_union(body: &ast::SetExpr) -> Flow {
    let (mut length, mut next) = (0, body);
    while let ast::SetExpr::SetOperation { left, .. } = next {
        length += 1;
        next = left;
    }
    refuse_length(length, "set operations in a row")
}

/// PostgreSQL's `MaxTupleAttributeNumber`.
const TARGETS_MAX: usize = 1664;

fn refuse_long_list(targets: usize) -> Flow {
    if targets <= TARGETS_MAX {
        return ControlFlow::Continue(());
    }
    ControlFlow::Break(Box::new(Error::Invalid {
        message: format!("target lists can have at most {TARGETS_MAX} entries"),
        fault: Fault::TooManyColumns,
        position: None,
    }))
}

fn refuse_length(length: usize, what: &str) -> Flow {
    if length <= CHAIN_LENGTH_MAX {
        return ControlFlow::Continue(());
    }
    ControlFlow::Break(Box::new(Error::Invalid {
        message: format!("the statement has {length} {what}, more than {CHAIN_LENGTH_MAX}"),
        fault: Fault::TooComplex,
        position: None,
    }))
}

fn refuse_in_alias(alias: Option<&ast::TableAlias>, place: &ast::TableFactor) -> Flow {
    let Some(alias) = alias else { return ControlFlow::Continue(()) };
    refuse_literal(&alias.name)?;
    let has_types = alias.columns.iter().any(|column| column.data_type.is_some());
    let clauses = [
        (has_types, "an alias that gives its columns types"),
        (alias.at.is_some(), "an alias with AT"),
    ];
    refuse_first(&clauses, place)
}

/// The names of scalar functions: DataFusion ignores clauses that only an aggregate or a window function can have.
static SCALAR_FUNCTIONS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let functions = SessionStateDefaults::default_scalar_functions();
    let mut names: BTreeSet<String> =
        ["unnest", "unnest_outer"].into_iter().map(str::to_owned).collect();
    for function in &functions {
        names.insert(function.name().to_owned());
        names.extend(function.aliases().iter().cloned());
    }
    names
});

/// Whether it is `ARRAY(subquery)` of one column, whose sort keys can be further columns.
fn is_list_of_rows(function: &ast::Function, query: &ast::Query) -> bool {
    let is_array = matches!(
        function.name.0.as_slice(),
        [ast::ObjectNamePart::Identifier(name)] if fold(name) == "array"
    );
    let is_one_column = match query.body.as_ref() {
        ast::SetExpr::Select(select) => {
            matches!(
                select.projection.as_slice(),
                [ast::SelectItem::UnnamedExpr(_) | ast::SelectItem::ExprWithAlias { .. }]
            ) || query.order_by.is_none()
        }
        _ => query.order_by.is_none(),
    };
    is_array && is_one_column
}

fn refuse_in_function(function: &ast::Function) -> Flow {
    let arguments = match &function.args {
        ast::FunctionArguments::List(arguments) => Some(arguments),
        ast::FunctionArguments::Subquery(query) if is_list_of_rows(function, query) => None,
        ast::FunctionArguments::Subquery(_) => {
            return refuse(format!("{}(subquery)", function.name), function);
        }
        ast::FunctionArguments::None => None,
    };
    if function.parameters != ast::FunctionArguments::None {
        return refuse(format!("{} with two lists of arguments", function.name), function);
    }
    let is_distinct = arguments.is_some_and(|arguments| {
        arguments.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct)
    });
    let written = arguments.map(|arguments| arguments.clauses.as_slice()).unwrap_or_default();
    let is_ordered =
        written.iter().any(|clause| matches!(clause, ast::FunctionArgumentClause::OrderBy(_)));
    let treats_nulls = written
        .iter()
        .any(|clause| matches!(clause, ast::FunctionArgumentClause::IgnoreOrRespectNulls(_)));
    let clauses = [
        (is_distinct, "DISTINCT"),
        (is_ordered, "ORDER BY"),
        (treats_nulls || function.null_treatment.is_some(), "IGNORE or RESPECT NULLS"),
        (!function.within_group.is_empty(), "WITHIN GROUP"),
        (function.filter.is_some(), "FILTER"),
        (function.over.is_some(), "OVER"),
    ];
    let clause = clauses.into_iter().find(|(present, _)| *present);
    match (clause, function.name.0.as_slice()) {
        (Some((_, clause)), [ast::ObjectNamePart::Identifier(name)])
            if SCALAR_FUNCTIONS.contains(&fold(name)) =>
        {
            refuse(format!("{clause} with {name}, which is no aggregate,"), function)
        }
        _ => ControlFlow::Continue(()),
    }
}
