//! The name of a table as a value, its whole row, where only that matters which of its columns are NULL, or whether
//! there is a row at all:
//!
//! ```text
//!  y IS NULL                        ─▶ (y.a, y.b) IS NULL
//!  count(y), count(y.*)             ─▶ count(1)
//!  … FROM x LEFT JOIN y ON …        ─▶ count(y."row⟨y⟩") FROM x LEFT JOIN (SELECT *, true AS "row⟨y⟩" FROM y) y ON …
//!  count(DISTINCT y)                ─▶ count(DISTINCT (y.a, y.b))
//! ```

use datafusion::sql::sqlparser::ast::{
    self, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, SelectItem, SetExpr,
    TableFactor, TableWithJoins,
};

use super::Walk;
use super::from::{FromItem, Leaf};
use super::outer_calls::Scope;
use crate::statement::names::{fold, name_and_alias};
use crate::statement::parse::parse_query;

impl Walk<'_> {
    /// Rewrites `expression` if it asks for a whole row.
    pub(super) fn of_whole_row(&mut self, expression: &mut Expr) {
        match expression {
            Expr::IsNull(row) | Expr::IsNotNull(row) => {
                if let Some((_, leaf)) = self.whole_row(row)
                    && let Some(values) = row_of(leaf)
                {
                    **row = values;
                }
            }
            Expr::Function(function) if is_count(function) => {
                let FunctionArguments::List(list) = &function.args else { return };
                let is_distinct =
                    list.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct);
                let [FunctionArg::Unnamed(argument)] = list.args.as_slice() else { return };
                let found = match argument {
                    FunctionArgExpr::Expr(row) => self.whole_row(row),
                    FunctionArgExpr::QualifiedWildcard(name) => match name.0.as_slice() {
                        [.., table] => {
                            table.as_ident().and_then(|table| self.leaf_of(&fold(table)))
                        }
                        [] => None,
                    },
                    _ => None,
                };
                let Some((level, leaf)) = found else { return };
                let is_there = match leaf.may_miss {
                    true => {
                        let parts = [leaf.called.clone(), mark(&leaf.called)];
                        let parts = parts.map(|part| Ident::with_quote('"', part));
                        Expr::CompoundIdentifier(parts.into())
                    }
                    false => Expr::value(ast::Value::Boolean(true)),
                };
                let value = match is_distinct {
                    false => is_there.clone(),
                    true => {
                        let Some(values) = row_of(leaf) else { return };
                        // A row of NULLs is one, too.
                        let values = match values {
                            Expr::Tuple(values) => values,
                            value => vec![value],
                        };
                        let row = values.into_iter().chain([is_there.clone()]).collect();
                        Expr::Case {
                            case_token: ast::helpers::attached_token::AttachedToken::empty(),
                            end_token: ast::helpers::attached_token::AttachedToken::empty(),
                            operand: None,
                            conditions: vec![ast::CaseWhen {
                                condition: is_there.clone(),
                                result: Expr::Tuple(row),
                            }],
                            else_result: None,
                        }
                    }
                };
                if leaf.may_miss {
                    self.marked.push((level, leaf.called.clone()));
                }
                if let FunctionArguments::List(list) = &mut function.args {
                    list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(value))];
                }
            }
            _ => {}
        }
    }

    /// The level and the table whose whole row `expression` means: no table has such a column.
    fn whole_row(&self, expression: &Expr) -> Option<(usize, &Leaf)> {
        let name = match expression {
            Expr::Identifier(name) => fold(name),
            Expr::Nested(inner) => return self.whole_row(inner),
            Expr::QualifiedWildcard(name, _) => {
                let [.., table] = name.0.as_slice() else { return None };
                return self.leaf_of(&fold(table.as_ident()?));
            }
            _ => return None,
        };
        for scope in self.scopes.iter().rev() {
            let Scope::Tables(leaves) = scope else { return None };
            for leaf in leaves {
                if leaf.has(&name)? {
                    return None;
                }
            }
            if leaves.iter().any(|leaf| leaf.called == name) {
                break;
            }
        }
        self.leaf_of(&name)
    }

    /// The nearest table of that name, and its query's level.
    fn leaf_of(&self, name: &str) -> Option<(usize, &Leaf)> {
        for (place, scope) in self.scopes.iter().enumerate().rev() {
            let Scope::Tables(leaves) = scope else { return None };
            if let Some(leaf) = leaves.iter().find(|leaf| leaf.called == name) {
                return Some((place + 1, leaf));
            }
        }
        None
    }

    /// Gives the tables of `select` that were asked for it a column that is there in each of their rows.
    pub(super) fn mark_rows(&mut self, select: &mut ast::Select, from: &mut [FromItem]) {
        let level = self.scopes.len();
        if self.marked.iter().all(|(own, _)| *own != level) {
            return;
        }
        let (own, others) = self.marked.drain(..).partition::<Vec<_>, _>(|(own, _)| *own == level);
        self.marked = others;
        let names: Vec<String> = own.into_iter().map(|(_, name)| name).collect();
        select.from.iter_mut().for_each(|joined| mark_in(joined, &names));
        // `*` has none of these columns.
        from.iter_mut().for_each(|item| item.is_reordered = true);
    }
}

fn is_count(function: &ast::Function) -> bool {
    let name = function.name.0.last().and_then(|name| name.as_ident()).map(fold);
    name.as_deref() == Some("count")
}

/// The columns of a table; None: unknown.
fn row_of(leaf: &Leaf) -> Option<Expr> {
    let columns: Vec<Expr> =
        leaf.offered.as_ref()?.iter().map(|column| column.expr.clone()).collect();
    match <[Expr; 1]>::try_from(columns) {
        Ok([only]) => Some(only),
        Err(columns) if columns.is_empty() => None,
        Err(columns) => Some(Expr::Tuple(columns)),
    }
}

fn mark(table: &str) -> String {
    format!("row⟨{table}⟩")
}

fn mark_in(joined: &mut TableWithJoins, names: &[String]) {
    let joins = joined.joins.iter_mut().map(|join| &mut join.relation);
    for factor in std::iter::once(&mut joined.relation).chain(joins) {
        if let TableFactor::NestedJoin { table_with_joins, alias: None } = factor {
            mark_in(table_with_joins, names);
            continue;
        }
        let called = match name_and_alias(factor) {
            Some((_, Some(alias))) => Some(alias.name.clone()),
            Some((Some(name), None)) => name.0.last().and_then(|name| name.as_ident()).cloned(),
            _ => None,
        };
        if let Some(called) = called.filter(|called| names.contains(&fold(called)))
            && let Some(marked) = marked(factor, called)
        {
            *factor = marked;
        }
    }
}

/// `(SELECT *, true AS mark FROM factor) AS called`.
fn marked(factor: &TableFactor, called: Ident) -> Option<TableFactor> {
    let mut query = parse_query("SELECT *, true AS x FROM t".to_owned()).ok()?;
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    if let Some(SelectItem::ExprWithAlias { alias, .. }) = select.projection.last_mut() {
        *alias = Ident::with_quote('"', mark(&fold(&called)));
    }
    select.from.first_mut()?.relation = factor.clone();
    let lateral = matches!(factor, TableFactor::Derived { lateral: true, .. });
    let alias = ast::TableAlias { explicit: true, name: called, columns: Vec::new(), at: None };
    Some(TableFactor::Derived { lateral, subquery: query, alias: Some(alias), sample: None })
}
