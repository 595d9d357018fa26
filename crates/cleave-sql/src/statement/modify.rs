//! UPDATE and DELETE: a parsed statement in, the query for its target rows out.
//!
//! ```text
//!  UPDATE t SET b = b + u.n FROM u WHERE t.a = u.a     t (a, b, c)
//!    ─▶ SELECT t.VID, t.a, t.b + u.n, t.c FROM target AS t, u WHERE t.a = u.a
//!  DELETE FROM t USING u WHERE t.a = u.a
//!    ─▶ SELECT t.VID, t.a, t.b, t.c FROM target AS t, u WHERE t.a = u.a
//! ```
//!
//! So a statement that changes rows is planned, cut and run like any query. [`TARGET`] names the table itself, with the
//! additional column [`VID`]; the statement resolves the name and the tablet (`Target`). A row that occurs twice is
//! changed once, by the first of its matches (rule 22).

mod beside;
mod nested;
mod row_values;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use arrow::array::RecordBatch;
use cleave_catalog::error::{Error, Fault, Position, Result};
use cleave_store::TableSchema;
use datafusion::sql::sqlparser::ast::{self, Spanned, Visitor};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::names::{fold, position_of, table_name};
use super::parse::{Statement, is_default, refuse_in_query, refuse_in_returning};
use crate::visiting::visit;
pub use beside::Beside;
pub use nested::{has_nested, has_subqueries, returns_nested};
pub use row_values::RowValue;
pub use row_values::{row_count, with_row_values};
use row_values::{row_items, row_of};

/// The name by which a query reads the target rows.
pub const TARGET: &str = "\u{1}target";

/// The column of the target that has the rows' VIDs.
pub const VID: &str = "\u{1}vid";

/// UPDATE or DELETE.
#[derive(Debug, Clone, PartialEq)]
pub struct Modify {
    /// The table.
    pub table: String,
    /// Its name in the statement.
    pub alias: Option<ast::Ident>,
    /// The change of its rows.
    pub action: Action,
    /// WITH.
    pub with: Option<ast::With>,
    /// FROM of UPDATE, USING of DELETE.
    pub from: Vec<ast::TableWithJoins>,
    /// WHERE.
    pub selection: Option<ast::Expr>,
    /// RETURNING; empty: none.
    pub returning: Vec<ast::SelectItem>,
    /// Where the table's name stands.
    pub position: Option<Position>,
}

/// The change of rows.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// DELETE.
    Delete,
    /// UPDATE.
    Update(Vec<Assignment>),
}

/// One column = value of SET.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// The column.
    pub column: String,
    /// The value, or the query for a row that contains it; None: DEFAULT.
    pub value: Option<ast::Expr>,
    /// Which value of a row it is; None: the value itself.
    pub of_row: Option<RowValue>,
    /// Where the column's name stands.
    pub position: Option<Position>,
}

impl Modify {
    /// `UPDATE` or `DELETE`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.action {
            Action::Delete => "DELETE",
            Action::Update(_) => "UPDATE",
        }
    }

    /// The query for the rows of the table that `schema` describes: VIDs, then all columns with their new values,
    /// except those whose values are in the rows after them, then the columns of other tables in RETURNING.
    ///
    /// # Errors
    /// [`Error::UnknownName`] for a column that the table does not have; what a query cannot have.
    pub fn query(&self, schema: &TableSchema) -> Result<Box<ast::Query>> {
        self.query_of(schema, None)
    }

    /// Whether it reads no other rows than those that it may change.
    #[must_use]
    pub fn is_of_its_rows_alone(&self) -> bool {
        struct OnQueries;
        impl Visitor for OnQueries {
            type Break = ();

            fn pre_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
                ControlFlow::Break(())
            }
        }
        let values = self.assignments().iter().filter_map(|assignment| assignment.value.as_ref());
        let is_plain = |expr: &ast::Expr| visit(expr, &mut OnQueries).is_continue();
        self.with.is_none()
            && self.from.is_empty()
            && values.chain(&self.selection).all(is_plain)
            && self.assignments().iter().all(|assignment| assignment.of_row.is_none())
    }

    /// The same for a DELETE that needs only these columns of the table, by their places; None: all.
    ///
    /// # Errors
    /// As [`Modify::query`].
    pub fn query_of(
        &self,
        schema: &TableSchema,
        needed: Option<&BTreeSet<usize>>,
    ) -> Result<Box<ast::Query>> {
        let mut items = assigned_items(schema, &self.target_name(), self.assignments())?;
        if let Some(needed) = needed {
            let mut place = 0;
            items.retain(|_| {
                place += 1;
                // The VID comes first.
                place == 1 || needed.contains(&(place - 2))
            });
        }
        items.extend(row_items(self.assignments()));
        items.extend(Beside::of(self, schema)?.items());
        let mut query = self.over_target(items, self.from.clone(), self.selection.clone())?;
        query.with.clone_from(&self.with);
        refuse_in_query(&query)?;
        Ok(query)
    }

    /// The query of the RETURNING list, over rows of the table alone.
    ///
    /// # Errors
    /// What a query cannot have.
    pub fn returning_query(&self) -> Result<Box<ast::Query>> {
        let query = self.over_target(self.returning.clone(), Vec::new(), None)?;
        refuse_in_query(&query)?;
        Ok(query)
    }

    /// The query of the RETURNING list over `rows` of the table that `schema` describes, and the rows that it reads;
    /// `beside` are the columns of other tables that [`Modify::query`] lists.
    ///
    /// # Errors
    /// What a query cannot have.
    pub fn returned(
        &self,
        schema: &TableSchema,
        rows: &RecordBatch,
        beside: Option<&RecordBatch>,
    ) -> Result<(Box<ast::Query>, RecordBatch)> {
        match beside {
            Some(beside) => Beside::returned(self, schema, rows, beside),
            None => Ok((self.returning_query()?, rows.clone())),
        }
    }

    /// The places of the columns of `schema`, its table, that RETURNING names; None: they are not known to be fewer
    /// than all.
    #[must_use]
    pub fn returned_columns(&self, schema: &TableSchema) -> Option<BTreeSet<usize>> {
        struct Named<'a>(&'a TableSchema, BTreeSet<usize>);
        impl Visitor for Named<'_> {
            type Break = ();

            fn pre_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
                ControlFlow::Break(())
            }

            fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<()> {
                let (name, is_alone) = match expression {
                    ast::Expr::Identifier(name) => (name, true),
                    ast::Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                        [_, name] => (name, false),
                        _ => return ControlFlow::Break(()),
                    },
                    ast::Expr::CompoundFieldAccess { .. } => return ControlFlow::Break(()),
                    _ => return ControlFlow::Continue(()),
                };
                match self.0.column_index(&fold(name)) {
                    Some(place) => self.1.extend([place]),
                    // It may be the whole row; with a table it is another one's column.
                    None if is_alone => return ControlFlow::Break(()),
                    None => {}
                }
                ControlFlow::Continue(())
            }
        }
        let mut named = Named(schema, BTreeSet::new());
        for item in &self.returning {
            let (ast::SelectItem::UnnamedExpr(expr) | ast::SelectItem::ExprWithAlias { expr, .. }) =
                item
            else {
                return None;
            };
            if visit(expr, &mut named).is_break() {
                return None;
            }
        }
        Some(named.1)
    }

    /// Whether RETURNING may name columns of other tables.
    #[must_use]
    pub fn returns_beside(&self) -> bool {
        !self.from.is_empty() && !self.returning.is_empty()
    }

    /// The places of the columns of `schema` whose new values the row itself has all that is needed for: no query and
    /// no other table.
    #[must_use]
    pub fn values_of_row(&self, schema: &TableSchema) -> BTreeSet<usize> {
        struct OnOthers {
            are_alone: bool,
        }
        impl Visitor for OnOthers {
            type Break = ();

            fn pre_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
                ControlFlow::Break(())
            }

            fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<()> {
                use ast::Expr::{CompoundFieldAccess, CompoundIdentifier, Identifier};
                let is_name = matches!(
                    expression,
                    Identifier(_) | CompoundIdentifier(_) | CompoundFieldAccess { .. }
                );
                match is_name && !self.are_alone {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            }
        }
        let are_alone = self.from.is_empty();
        let is_of_row = |assignment: &&Assignment| {
            let value = assignment.value.as_ref();
            assignment.of_row.is_none()
                && value.is_none_or(|value| visit(value, &mut OnOthers { are_alone }).is_continue())
        };
        let of_row = self.assignments().iter().filter(is_of_row);
        of_row.filter_map(|assignment| schema.column_index(&assignment.column)).collect()
    }

    /// The statement over rows that have been found: all rows, of which it changes the columns of `schema` at `places`.
    #[must_use]
    pub fn of_found_rows(&self, schema: &TableSchema, places: &BTreeSet<usize>) -> Self {
        let is_kept = |assignment: &&Assignment| {
            let place = schema.column_index(&assignment.column);
            place.is_some_and(|place| places.contains(&place))
        };
        let action = match &self.action {
            Action::Delete => Action::Delete,
            Action::Update(all) => Action::Update(all.iter().filter(is_kept).cloned().collect()),
        };
        let (from, returning) = (Vec::new(), Vec::new());
        Self { action, from, returning, with: None, selection: None, ..self.clone() }
    }

    /// SET; empty: DELETE.
    #[must_use]
    pub fn assignments(&self) -> &[Assignment] {
        match &self.action {
            Action::Update(assignments) => assignments,
            Action::Delete => &[],
        }
    }

    /// The statement's name for the table.
    pub fn target_name(&self) -> ast::Ident {
        let own = || ast::Ident::with_quote('"', self.table.as_str());
        self.alias.clone().unwrap_or_else(own)
    }

    /// `SELECT items FROM target AS name, from … WHERE selection`.
    fn over_target(
        &self,
        items: Vec<ast::SelectItem>,
        from: Vec<ast::TableWithJoins>,
        selection: Option<ast::Expr>,
    ) -> Result<Box<ast::Query>> {
        over_target(&self.target_name(), items, from, selection)
    }
}

/// The select list of the query for the rows of `target` with `assignments` applied: VIDs, then all columns.
///
/// # Errors
/// [`Error::UnknownName`] for a column that the table does not have.
pub fn assigned_items(
    schema: &TableSchema,
    target: &ast::Ident,
    assignments: &[Assignment],
) -> Result<Vec<ast::SelectItem>> {
    let column = |name: &str| {
        let parts = [target.clone(), ast::Ident::with_quote('"', name)];
        ast::SelectItem::UnnamedExpr(ast::Expr::CompoundIdentifier(parts.to_vec()))
    };
    let mut items = vec![column(VID)];
    items.extend(schema.columns.iter().map(|known| column(&known.name)));
    for assignment in assignments {
        let place = schema.column_index(&assignment.column).ok_or_else(|| {
            let columns = schema.columns.iter().map(|column| column.name.as_str());
            Error::unknown_column(&schema.name, &assignment.column, columns).at(assignment.position)
        })?;
        let null = || ast::Expr::value(ast::Value::Null);
        let own = assignment.value.clone().filter(|_| assignment.of_row.is_none());
        let value = own.unwrap_or_else(null);
        if let Some(item) = items.get_mut(place + 1) {
            *item = ast::SelectItem::UnnamedExpr(value);
        }
    }
    Ok(items)
}

/// `SELECT items FROM target AS name, from … WHERE selection`.
///
/// # Errors
/// Internal ones only.
pub fn over_target(
    name: &ast::Ident,
    items: Vec<ast::SelectItem>,
    from: Vec<ast::TableWithJoins>,
    selection: Option<ast::Expr>,
) -> Result<Box<ast::Query>> {
    let text = format!("SELECT 1 FROM \"{TARGET}\" AS \"t\"");
    let parsed = Parser::new(&PostgreSqlDialect {}).try_with_sql(&text);
    let parsed = parsed.and_then(|mut parser| parser.parse_query());
    let strange = || Error::unsupported("this statement");
    let mut query = parsed.map_err(|_| strange())?;
    let ast::SetExpr::Select(select) = query.body.as_mut() else { return Err(strange()) };
    if let Some(ast::TableFactor::Table { alias: Some(alias), .. }) =
        select.from.first_mut().map(|table| &mut table.relation)
    {
        alias.name = name.clone();
    }
    select.projection = items;
    select.from.extend(from);
    select.selection = selection;
    Ok(query)
}

/// A parsed UPDATE.
///
/// # Errors
/// [`Error::Unsupported`] for clauses of other dialects; [`Error::Invalid`] for a column that is assigned twice.
pub fn update(update: ast::Update) -> Result<Modify> {
    let clauses = [
        (update.or.is_some(), "UPDATE OR ..."),
        (update.output.is_some(), "UPDATE ... OUTPUT"),
        (!update.order_by.is_empty(), "UPDATE ... ORDER BY"),
        (update.limit.is_some(), "UPDATE ... LIMIT"),
        (!update.table.joins.is_empty(), "UPDATE of a join"),
    ];
    refuse_clauses(&clauses)?;
    let from = match update.from {
        None => Vec::new(),
        Some(ast::UpdateTableFromKind::AfterSet(from)) => from,
        Some(ast::UpdateTableFromKind::BeforeSet(_)) => {
            return Err(Error::unsupported("UPDATE FROM ... SET"));
        }
    };
    let (table, alias, position) = named_table(&update.table.relation, "UPDATE")?;
    let returning = update.returning.unwrap_or_default();
    refuse_in_returning(&returning)?;
    Ok(Modify {
        table,
        alias,
        action: Action::Update(assignments(update.assignments)?),
        with: None,
        from,
        selection: update.selection,
        returning,
        position,
    })
}

/// A parsed DELETE.
///
/// # Errors
/// [`Error::Unsupported`] for clauses of other dialects.
pub fn delete(delete: ast::Delete) -> Result<Modify> {
    let tables = match delete.from {
        ast::FromTable::WithFromKeyword(tables) => tables,
        ast::FromTable::WithoutKeyword(_) => {
            return Err(Error::unsupported("DELETE without FROM"));
        }
    };
    let [table] = tables.as_slice() else {
        return Err(Error::unsupported("DELETE FROM several tables"));
    };
    let clauses = [
        (!delete.tables.is_empty(), "DELETE of several tables"),
        (delete.output.is_some(), "DELETE ... OUTPUT"),
        (!delete.order_by.is_empty(), "DELETE ... ORDER BY"),
        (delete.limit.is_some(), "DELETE ... LIMIT"),
        (!table.joins.is_empty(), "DELETE FROM a join"),
    ];
    refuse_clauses(&clauses)?;
    let (table, alias, position) = named_table(&table.relation, "DELETE")?;
    let returning = delete.returning.unwrap_or_default();
    refuse_in_returning(&returning)?;
    Ok(Modify {
        table,
        alias,
        action: Action::Delete,
        with: None,
        from: delete.using.unwrap_or_default(),
        selection: delete.selection,
        returning,
        position,
    })
}

/// Whether a parsed query is WITH before a statement that changes rows.
pub(super) fn has_changes(query: &ast::Query) -> bool {
    use ast::SetExpr as Body;
    matches!(*query.body, Body::Insert(_) | Body::Update(_) | Body::Delete(_))
}

/// The statement of such a query, typed by `typed`.
///
/// # Errors
/// Those of `typed`.
pub(super) fn with_changes(
    query: ast::Query,
    typed: impl FnOnce(ast::Statement) -> Result<Statement>,
) -> Result<Statement> {
    let ast::Query { with, body, .. } = query;
    let (ast::SetExpr::Insert(changes)
    | ast::SetExpr::Update(changes)
    | ast::SetExpr::Delete(changes)) = *body
    else {
        return Err(Error::unsupported("this statement after WITH"));
    };
    let mut statement = typed(changes)?;
    match &mut statement {
        Statement::Modify(modify) => modify.with = with,
        Statement::Insert(insert) => {
            if let (Some(source), Some(mut with)) = (&mut insert.source, with) {
                if let Some(own) = source.with.take() {
                    let is_own = |cte: &ast::Cte| {
                        own.cte_tables.iter().any(|own| own.alias.name == cte.alias.name)
                    };
                    with.cte_tables.retain(|cte| !is_own(cte));
                    with.recursive |= own.recursive;
                    with.cte_tables.extend(own.cte_tables);
                }
                source.with = Some(with);
                refuse_in_query(source)?;
            }
        }
        _ => return Err(Error::unsupported("this statement after WITH")),
    }
    Ok(statement)
}

/// The columns and values of SET.
///
/// # Errors
/// [`Error::Invalid`] for a column that is assigned twice, and for lists of different lengths; [`Error::Unsupported`]
/// for a column list assigned from anything but a row or a query.
pub fn assignments(set: Vec<ast::Assignment>) -> Result<Vec<Assignment>> {
    let mut list: Vec<Assignment> = Vec::with_capacity(set.len());
    for assignment in set {
        let values = match assignment.target {
            ast::AssignmentTarget::ColumnName(name) => vec![(name, assignment.value, None)],
            ast::AssignmentTarget::Tuple(names) => {
                row_of(names, assignment.value, row_count(&list))?
            }
        };
        for (name, value, of_row) in values {
            let position = position_of(name.span().start);
            let [ast::ObjectNamePart::Identifier(column)] = name.0.as_slice() else {
                let what = format!("SET of a part of a column ({name})");
                return Err(Error::unsupported(what).at(position));
            };
            let column = fold(column);
            if list.iter().any(|known| known.column == column) {
                return Err(Error::Invalid {
                    message: format!("multiple assignments to same column \"{column}\""),
                    fault: Fault::Statement,
                    position,
                });
            }
            let value = (!is_default(&value)).then_some(value);
            list.push(Assignment { column, value, of_row, position });
        }
    }
    Ok(list)
}

fn refuse_clauses(clauses: &[(bool, &str)]) -> Result<()> {
    match clauses.iter().find(|(present, _)| *present) {
        Some((_, clause)) => Err(Error::unsupported(*clause)),
        None => Ok(()),
    }
}

/// The name of a table, what it is called, and where it stands.
fn named_table(
    factor: &ast::TableFactor,
    statement: &str,
) -> Result<(String, Option<ast::Ident>, Option<Position>)> {
    let position = position_of(factor.span().start);
    let ast::TableFactor::Table { name, alias, args: None, .. } = factor else {
        let what = format!("{statement} of anything but a table");
        return Err(Error::unsupported(what).at(position));
    };
    if alias.as_ref().is_some_and(|alias| !alias.columns.is_empty()) {
        let what = format!("{statement} with names for the table's columns");
        return Err(Error::unsupported(what).at(position));
    }
    let alias = alias.as_ref().map(|alias| alias.name.clone());
    Ok((table_name(name)?, alias, position))
}
