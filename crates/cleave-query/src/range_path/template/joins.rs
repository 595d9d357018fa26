//! Templates of joins on the range path: rows of the first table by a range of keys, those of each other one by an
//! index, for the values of the rows before.
//!
//! ```text
//!  SELECT o.day, i.* FROM orders AS o JOIN item AS i ON i.order_id = o.id WHERE o.id = $1 AND i.price > $2
//!    ─▶ orders by its key, item by an index on (order_id): rows side by side
//!    ─▶ SELECT "0 day" AS "day", "1 order_id" AS "order_id", … FROM rows
//!       WHERE "1 order_id" = "0 id" AND "0 id" = $1 AND "1 price" > $2
//! ```
//!
//! 1. [`of`] begins with the table whose keys WHERE bounds most, and adds one table after the other that can be looked
//!    up by the rows so far: where one cannot, it begins with the next best.
//! 2. The query is rewritten over a single table in memory, which has the columns of all tables under names of their
//!    own.
//!
//! All conditions stay in that query, but for those of LEFT JOIN: the look-up must be exactly its ON condition, or the
//! query is planned.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use cleave_catalog::index::IndexShape;
use cleave_sql::dialect::query_names::item_name;
use cleave_sql::statement::key_predicate::{Condition, OneTable, conjuncts, constant};
use cleave_sql::statement::modify::{TARGET, VID, over_target};
use cleave_sql::statement::names::fold;
use cleave_sql::statement::parameters::any_of;
use cleave_store::{ColumnType, IndexKey};
use datafusion::sql::sqlparser::ast;

use super::super::joined::{Joined, KeySource};
use super::super::sources::{Source, Sources};
use super::{Kept, Match, Operand, RangeTemplate, Worth, counts, plain};
use cleave_sql::visiting::visit_mut;

/// The template of `query`, which is over `sources`; None: it needs a plan.
pub(super) fn of(
    query: &ast::Query,
    sources: &Sources<'_>,
    types: &[ColumnType],
) -> Option<RangeTemplate> {
    let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
    plain(query)?;
    let mut conjuncts: Vec<&ast::Expr> = conjuncts(select.selection.as_ref()).collect();
    let inner = sources.all().iter().filter(|source| !source.is_outer);
    conjuncts.extend(inner.flat_map(|source| source.on.iter().copied()));
    let (limit, offset) = counts(query.limit_clause.as_ref())?;
    let mut firsts: Vec<(Worth, usize, Arc<IndexShape>, Match)> = Vec::new();
    for (place, source) in sources.all().iter().enumerate().filter(|(_, own)| !own.is_outer) {
        let conditions: Vec<Option<Condition<'_>>> =
            conjuncts.iter().map(|whole| source.one.condition(whole)).collect();
        let best = Match::best(source.one.table, (conditions.as_slice(), None), types);
        if let Some((worth, shape, found)) = best.filter(|(.., found)| !found.parts.is_empty()) {
            firsts.push((worth, place, shape, found));
        }
    }
    firsts.sort_by(|(one, ..), (other, ..)| other.cmp(one));
    let is_list = |whole: &ast::Expr| any_of(whole).is_some();
    for (_, place, shape, Match { parts, used, .. }) in firsts {
        let mut lists = conjuncts.iter().enumerate().filter(|(_, whole)| is_list(whole));
        if !lists.all(|(list, _)| used.contains(&list)) {
            continue;
        }
        let Some(joined) = others(sources, place, &conjuncts, types) else { continue };
        let left = conjuncts.iter().filter(|whole| !is_list(whole)).copied();
        let kept = one_table(query, sources, left)?;
        let first = sources.all().get(place)?;
        return Some(RangeTemplate {
            schema: Arc::clone(&first.one.table.schema),
            indexes: first.one.table.indexes.clone(),
            shape,
            parts,
            backward: false,
            stops: false,
            is_exact: false,
            limit,
            offset,
            query: kept,
            slot: TARGET.to_owned(),
            columns: columns(sources),
            kept: Kept::default(),
            first: first.first,
            joined,
        });
    }
    None
}

/// How the tables but that at `first` are looked up, one after the other; None: one of them cannot be.
fn others(
    sources: &Sources<'_>,
    first: usize,
    conjuncts: &[&ast::Expr],
    types: &[ColumnType],
) -> Option<Vec<Joined>> {
    let mut there = vec![first];
    let mut joined = Vec::new();
    while there.len() < sources.all().len() {
        let mut next: Option<((bool, usize), usize, Joined)> = None;
        for (place, source) in sources.all().iter().enumerate() {
            if there.contains(&place) {
                continue;
            }
            let conditions = if source.is_outer { source.on.as_slice() } else { conjuncts };
            let Some((worth, own)) = look_up(sources, place, &there, conditions, types) else {
                continue;
            };
            // The table with the fewest rows, as far as is known.
            if next.as_ref().is_none_or(|(known, ..)| *known < worth) {
                next = Some((worth, place, own));
            }
        }
        let (_, place, own) = next?;
        there.push(place);
        joined.push(own);
    }
    Some(joined)
}

/// How the table at `place` is looked up for rows of the tables `there`; and whether by a whole unique key, and how
/// many columns of a key.
fn look_up(
    sources: &Sources<'_>,
    place: usize,
    there: &[usize],
    conditions: &[&ast::Expr],
    types: &[ColumnType],
) -> Option<((bool, usize), Joined)> {
    let source = sources.all().get(place)?;
    let mut equal: Vec<(usize, usize, KeySource)> = Vec::new();
    for (number, whole) in conditions.iter().enumerate() {
        let ast::Expr::BinaryOp { left, op: ast::BinaryOperator::Eq, right } = whole else {
            continue;
        };
        for (own, other) in [(left, right), (right, left)] {
            let Some((_, column)) = sources.resolve(own).filter(|(table, _)| *table == place)
            else {
                continue;
            };
            let column_type = source.one.table.schema.columns.get(column)?.column_type;
            let key = match sources.resolve(other) {
                Some((table, column)) if there.contains(&table) => {
                    let table = sources.all().get(table)?;
                    let other_type = table.one.table.schema.columns.get(column)?.column_type;
                    let is_same = is_compared_as(column_type, other_type);
                    is_same.then_some(KeySource::Column(table.first + column))
                }
                Some(_) => None,
                None => constant(other)
                    .and_then(|value| Operand::of(&value, column_type, types))
                    .map(KeySource::Constant),
            };
            equal.extend(key.map(|key| (column, number, key)));
        }
    }
    let mut best: Option<((bool, usize), Arc<IndexShape>)> = None;
    for definition in &source.one.table.indexes {
        let shape = source.one.table.tablets.first()?.index(definition.id)?.shape();
        let is_given = |column: &&usize| equal.iter().any(|(own, ..)| own == *column);
        let count = shape.columns.iter().take_while(is_given).count();
        let worth = (shape.definition.unique && count == shape.columns.len(), count);
        if count > 0 && best.as_ref().is_none_or(|(known, _)| *known < worth) {
            best = Some((worth, Arc::clone(shape)));
        }
    }
    let ((is_only, count), shape) = best?;
    let (mut keys, mut used) = (Vec::with_capacity(count), Vec::new());
    for column in shape.columns.iter().take(count) {
        let at = equal.iter().position(|(own, ..)| own == column)?;
        let (_, number, key) = equal.swap_remove(at);
        keys.push(key);
        used.push(number);
    }
    // Without a join condition to the tables so far, only a single row is few enough.
    let is_tied = keys.iter().any(|key| matches!(key, KeySource::Column(_)));
    if !is_tied && !is_only {
        return None;
    }
    // The whole ON of an outer join must be in the look-up: a row that fails it does not match.
    if source.is_outer && !(0..conditions.len()).all(|number| used.contains(&number)) {
        return None;
    }
    let columns = shape.key.columns().get(..count)?.to_vec();
    let key = IndexKey::new(columns, shape.definition.unique).ok()?;
    let Source { one: OneTable { table, .. }, is_outer, first, .. } = source;
    let (schema, indexes) = (Arc::clone(&table.schema), table.indexes.clone());
    let (first, is_outer) = (*first, *is_outer);
    let joined = Joined { schema, indexes, shape, key, keys, first, is_outer, is_only };
    Some(((is_only, count), joined))
}

/// Whether values of the two columns are equal exactly where their key bytes are, once cast to the key column's type.
fn is_compared_as(key: ColumnType, other: ColumnType) -> bool {
    use ColumnType as Type;
    let is_whole = |own| matches!(own, Type::SmallInt | Type::Int | Type::BigInt);
    match key {
        Type::SmallInt | Type::Int | Type::BigInt => is_whole(other),
        Type::Real | Type::Double | Type::Interval => false,
        key => key.arrow() == other.arrow(),
    }
}

/// The columns of all tables, then the numbers of rows.
fn columns(sources: &Sources<'_>) -> Arc<Schema> {
    let mut fields = Vec::with_capacity(sources.width() + 1);
    for (place, source) in sources.all().iter().enumerate() {
        fields.extend(source.one.table.schema.columns.iter().map(|column| {
            let own = column.arrow();
            let may_be_null = own.is_nullable() || source.is_outer;
            own.with_name(own_name(place, &column.name)).with_nullable(may_be_null)
        }));
    }
    fields.push(Field::new(VID, DataType::UInt64, false));
    Arc::new(Schema::new(fields))
}

/// The name of a column of the table at `place` among those of all tables.
fn own_name(place: usize, column: &str) -> String {
    format!("\u{1}{place} {column}")
}

/// `query` over one table that has the columns of all, with these conditions.
fn one_table<'a>(
    query: &ast::Query,
    sources: &Sources<'_>,
    conditions: impl Iterator<Item = &'a ast::Expr>,
) -> Option<ast::Query> {
    let selection = conditions.cloned().reduce(|one, other| {
        let [left, right] = [one, other].map(|side| Box::new(ast::Expr::Nested(Box::new(side))));
        ast::Expr::BinaryOp { left, op: ast::BinaryOperator::And, right }
    });
    let mut query = query.clone();
    query.limit_clause = None;
    let ast::SetExpr::Select(select) = query.body.as_mut() else { return None };
    let made = over_target(&ast::Ident::new("t"), Vec::new(), Vec::new(), None).ok()?;
    let ast::SetExpr::Select(made) = *made.body else { return None };
    select.from = made.from;
    select.selection = selection;
    let mut names = Names { sources };
    let mut rename = |own: &mut ast::Expr| visit_mut(own, &mut names).is_continue();
    // Each column of the result has its name before its expression has others.
    let mut items = Vec::new();
    for item in expanded(&select.projection, sources)? {
        let alias = ast::Ident::with_quote('"', item_name(&item)?);
        let (ast::SelectItem::UnnamedExpr(mut expr)
        | ast::SelectItem::ExprWithAlias { mut expr, .. }) = item
        else {
            return None;
        };
        if !rename(&mut expr) {
            return None;
        }
        items.push((alias, expr));
    }
    let named = |name: &ast::Ident| {
        let name = fold(name);
        let mut same = items.iter().filter(|(alias, _)| alias.value == name);
        let only = same.next().map(|(_, expr)| expr.clone());
        (only, same.next().is_some())
    };
    let mut others = select.selection.iter_mut().chain(&mut select.having);
    if !others.all(&mut rename) {
        return None;
    }
    if let ast::GroupByExpr::Expressions(by, _) = &mut select.group_by {
        for by in by {
            // A column goes before a name of the list.
            let own = match &*by {
                ast::Expr::Identifier(name) if !sources.has(by) => Some(named(name)),
                _ => None,
            };
            match own {
                Some((Some(own), false)) => *by = own,
                None if rename(by) => {}
                _ => return None,
            }
        }
    }
    if let Some(order) = &mut query.order_by {
        let ast::OrderByKind::Expressions(order) = &mut order.kind else { return None };
        for by in order {
            // A name of the list goes before a column.
            let own = match &by.expr {
                ast::Expr::Identifier(name) => named(name),
                _ => (None, false),
            };
            match own {
                (Some(own), false) => by.expr = own,
                (None, _) if rename(&mut by.expr) => {}
                _ => return None,
            }
        }
    }
    let items = items.into_iter();
    let items = items.map(|(alias, expr)| ast::SelectItem::ExprWithAlias { expr, alias });
    select.projection = items.collect();
    Some(query)
}

/// Gives columns the names that they have among those of all tables; breaks at a name that is no column.
struct Names<'a, 'b> {
    sources: &'a Sources<'b>,
}

impl ast::VisitorMut for Names<'_, '_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &mut ast::Expr) -> ControlFlow<()> {
        if !matches!(expression, ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_)) {
            return ControlFlow::Continue(());
        }
        let found = self.sources.resolve(expression).and_then(|(place, column)| {
            let source = self.sources.all().get(place)?;
            Some(own_name(place, &source.one.table.schema.columns.get(column)?.name))
        });
        let Some(name) = found else { return ControlFlow::Break(()) };
        *expression = ast::Expr::Identifier(ast::Ident::with_quote('"', name));
        ControlFlow::Continue(())
    }
}

/// The list with the columns that `*` and `t.*` stand for.
fn expanded(items: &[ast::SelectItem], sources: &Sources<'_>) -> Option<Vec<ast::SelectItem>> {
    let columns = |source: &Source<'_>| {
        let quoted = |name: &str| ast::Ident::with_quote('"', name);
        let qualifier = quoted(&source.one.qualifier);
        let columns = source.one.table.schema.columns.iter().map(|column| {
            let parts = vec![qualifier.clone(), quoted(&column.name)];
            ast::SelectItem::UnnamedExpr(ast::Expr::CompoundIdentifier(parts))
        });
        columns.collect::<Vec<_>>()
    };
    let mut all = Vec::with_capacity(items.len());
    for item in items {
        match item {
            ast::SelectItem::Wildcard(_) if item.to_string() == "*" => {
                all.extend(sources.all().iter().flat_map(columns));
            }
            ast::SelectItem::QualifiedWildcard(
                ast::SelectItemQualifiedWildcardKind::ObjectName(name),
                _,
            ) if item.to_string() == format!("{name}.*") => {
                let [ast::ObjectNamePart::Identifier(name)] = name.0.as_slice() else {
                    return None;
                };
                all.extend(columns(sources.qualified(name)?));
            }
            ast::SelectItem::UnnamedExpr(_) | ast::SelectItem::ExprWithAlias { .. } => {
                all.push(item.clone());
            }
            _ => return None,
        }
    }
    Some(all)
}
