//! Locking clauses in subqueries: a statement in; out, the subqueries that lock rows, and the statement over the rows
//! that they give.
//!
//! ```text
//!  DELETE FROM q WHERE id = (SELECT id FROM q ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
//!    ─▶ part 0: SELECT id FROM q ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED     (run first, with its locking clause)
//!       DELETE FROM q WHERE id = (SELECT * FROM rows0)  ─▶  … WHERE id = 7      (once its rows are known)
//! ```
//!
//! 1. `taken` replaces each such subquery by the name of a table, inner ones first; the queries of WITH that it can
//!    name come with it.
//! 2. [`GivenRows`] holds the rows of parts that have run, by these names: they are tables of the statement. Where a
//!    single value or a list is wanted, `put_values` writes it as constants, so that rows are looked up by it.
//!
//! Deliberately absent: correlated locking subqueries, which would run once for each row of the outer query; they are
//! refused.
//!
//! Source: PostgreSQL's manual, "The Locking Clause".

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::RecordBatch;
use cleave_catalog::error::{Error, Fault, Result};
use cleave_catalog::value::value_text;
use datafusion::sql::sqlparser::ast::{self, Expr, Visitor, VisitorMut};

use super::locking::{HIDDEN, Locking, locking};
use super::names::{called_in, fold};
use super::parameters::{Parameter, parameter_type};
use super::parse::{Statement, parse_query};
use crate::dialect::sql_type;
use crate::visiting::{Visited, visit, visit_mut, visit_relations};

/// The second part of the reserved names, behind the sign that no name begins with.
const ROWS: &str = "rows";
const PART: &str = "part";

/// Maximum length of a list that is written as constants; a longer one stays a table.
const LIST_MAX: usize = 1000;

/// A statement with locking clauses in subqueries.
#[derive(Debug, Clone, PartialEq)]
pub struct LockedParts {
    /// The subqueries, in the order of execution.
    pub parts: Vec<Locking>,
    /// The statement over their rows.
    pub statement: Box<Statement>,
    /// The statement as written, without the locking clauses.
    pub plain: Box<Statement>,
    /// The tables that it reads or changes, by their own names.
    pub tables: BTreeSet<String>,
}

/// The names that a locking subquery cannot use.
pub const NAMES_OTHERS: &str =
    "a locking clause in a subquery that names columns of the query around it";

/// The results of subqueries, and parts of WITH, that have run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GivenRows {
    locked: Vec<Arc<RecordBatch>>,
    parts: BTreeMap<usize, Arc<RecordBatch>>,
}

// Rows are compared as stored, so that each equals itself.
impl Eq for GivenRows {}

impl GivenRows {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.locked.is_empty() && self.parts.is_empty()
    }

    /// Adds those of the next subquery.
    pub fn push(&mut self, rows: RecordBatch) {
        self.locked.push(Arc::new(rows));
    }

    /// Adds those of a part of WITH.
    pub fn put_part(&mut self, number: usize, rows: RecordBatch) {
        self.parts.insert(number, Arc::new(rows));
    }

    /// The rows behind `name` in a statement.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<RecordBatch>> {
        match number_of(name, PART) {
            Some(number) => self.parts.get(&number),
            None => self.locked.get(number_of(name, ROWS)?),
        }
    }
}

/// The name for the rows of the part of this number.
fn rows_name(number: usize) -> String {
    format!("{HIDDEN}{ROWS}{number}")
}

/// The name for the rows of the part of WITH of this number.
pub fn part_name(number: usize) -> String {
    format!("{HIDDEN}{PART}{number}")
}

/// The number of a part's rows.
fn number_of(name: &str, kind: &str) -> Option<usize> {
    name.strip_prefix(HIDDEN)?.strip_prefix(kind)?.parse().ok()
}

/// Whether `name` stands for the rows of a part.
#[must_use]
pub(super) fn is_rows(name: &str) -> bool {
    number_of(name, ROWS).or_else(|| number_of(name, PART)).is_some()
}

/// Takes the subqueries with locking clauses out of a parsed statement; returns them, and the statement before. None:
/// it has none.
///
/// # Errors
/// As [`locking`].
pub(super) fn taken(
    statement: &mut ast::Statement,
) -> Result<Option<(ast::Statement, Vec<Locking>)>> {
    let is_query = match statement {
        ast::Statement::Query(_) => true,
        ast::Statement::Insert(_) | ast::Statement::Update(_) | ast::Statement::Delete(_) => false,
        _ => return Ok(None),
    };
    // The locking clause of the query itself does not belong to a part.
    let outermost = usize::from(is_query);
    if visit(statement, &mut Find { outermost, depth: 0 }).is_continue() {
        return Ok(None);
    }
    let before = statement.clone();
    let called = called_in(statement);
    let mut take = Take { outermost, called, around: Vec::new(), parts: Vec::new() };
    match visit_mut(statement, &mut take) {
        ControlFlow::Continue(()) => Ok(Some((before, take.parts))),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// The tables that `statement` and its queries name, by their own names.
pub(super) fn tables_of(statement: &ast::Statement) -> BTreeSet<String> {
    let mut tables = BTreeSet::new();
    let _: ControlFlow<()> = visit_relations(statement, |name| {
        tables.extend(name.0.last().and_then(|part| part.as_ident()).map(fold));
        ControlFlow::Continue(())
    });
    tables
}

/// Removes the locking clauses of subqueries from a parsed statement.
pub(super) fn strip(statement: &mut ast::Statement) {
    let outermost = usize::from(matches!(statement, ast::Statement::Query(_)));
    let _: ControlFlow<()> = visit_mut(statement, &mut Strip { outermost, depth: 0 });
}

/// Stops at a locking clause nested in more than that many queries.
struct Find {
    outermost: usize,
    depth: usize,
}

impl Visitor for Find {
    type Break = ();

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        if self.depth >= self.outermost && !query.locks.is_empty() {
            return ControlFlow::Break(());
        }
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
        self.depth = self.depth.saturating_sub(1);
        ControlFlow::Continue(())
    }
}

struct Strip {
    outermost: usize,
    depth: usize,
}

impl VisitorMut for Strip {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
        if self.depth >= self.outermost {
            query.locks.clear();
        }
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut ast::Query) -> ControlFlow<()> {
        self.depth = self.depth.saturating_sub(1);
        ControlFlow::Continue(())
    }
}

/// A query around the visited one, and the queries of its WITH visited so far.
struct Around {
    with: Option<ast::With>,
    done: usize,
}

struct Take {
    outermost: usize,
    /// The table names in the statement and its queries.
    called: BTreeSet<String>,
    around: Vec<Around>,
    parts: Vec<Locking>,
}

impl Take {
    /// Whether `part` names columns of tables of the outer statement.
    fn names_others(&self, part: &ast::Query) -> bool {
        struct Names<'a>(&'a dyn Fn(&str) -> bool);
        impl Visitor for Names<'_> {
            type Break = ();

            fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
                match expression {
                    Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                        [.., table, _] if (self.0)(&fold(table)) => ControlFlow::Break(()),
                        _ => ControlFlow::Continue(()),
                    },
                    _ => ControlFlow::Continue(()),
                }
            }
        }
        let own = called_in(part);
        let is_other = |table: &str| !own.contains(table) && self.called.contains(table);
        visit(part, &mut Names(&is_other)).is_break()
    }

    /// WITH of all enclosing queries, as far as they come before; the innermost of a name counts.
    fn with_around(&self, own: Option<ast::With>) -> Option<ast::With> {
        let mut all = own;
        for Around { with, done } in self.around.iter().rev() {
            let Some(with) = with else { continue };
            let known =
                all.get_or_insert_with(|| ast::With { cte_tables: Vec::new(), ..with.clone() });
            known.recursive |= with.recursive;
            let names: Vec<_> = known.cte_tables.iter().map(|cte| cte.alias.name.clone()).collect();
            let outer = with.cte_tables.iter().take(*done);
            let outer = outer.filter(|cte| !names.contains(&cte.alias.name)).cloned();
            known.cte_tables.splice(0..0, outer.collect::<Vec<_>>());
        }
        all.filter(|with| !with.cte_tables.is_empty())
    }
}

impl VisitorMut for Take {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<Box<Error>> {
        self.around.push(Around { with: query.with.clone(), done: 0 });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<Box<Error>> {
        self.around.pop();
        if self.around.len() >= self.outermost && !query.locks.is_empty() {
            let rows = format!("SELECT * FROM \"{}\"", rows_name(self.parts.len()));
            let rows = match parse_query(rows) {
                Ok(rows) => *rows,
                Err(error) => return ControlFlow::Break(Box::new(error)),
            };
            let mut part = std::mem::replace(query, rows);
            if self.names_others(&part) {
                return ControlFlow::Break(Box::new(Error::unsupported(NAMES_OTHERS)));
            }
            part.with = self.with_around(part.with.take());
            match locking(Box::new(part)) {
                Ok(part) => self.parts.push(part),
                Err(error) => return ControlFlow::Break(Box::new(error)),
            }
        }
        // The queries of WITH are the first that are visited.
        if let Some(Around { with: Some(with), done }) = self.around.last_mut()
            && let Some(cte) = with.cte_tables.get_mut(*done)
        {
            *cte.query = query.clone();
            *done += 1;
        }
        ControlFlow::Continue(())
    }
}

/// Writes rows as constants where one value or a list of values is wanted. With `bare_numbers` a whole number gets no
/// cast: a condition does not need it.
///
/// # Errors
/// [`Error::Invalid`] for several rows where one value is wanted.
pub fn put_values<T: Visited>(part: &mut T, given: &GivenRows, bare_numbers: bool) -> Result<()> {
    match visit_mut(part, &mut Put { given, bare_numbers }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Put<'a> {
    given: &'a GivenRows,
    bare_numbers: bool,
}

impl Put<'_> {
    fn replace(&self, expression: &mut Expr) -> Result<()> {
        match expression {
            Expr::Subquery(query) => {
                let Some(rows) = self.rows(query) else { return Ok(()) };
                if rows.num_rows() > 1 {
                    return Err(Error::Invalid {
                        message: "more than one row returned by a subquery used as an expression"
                            .to_owned(),
                        fault: Fault::Cardinality,
                        position: None,
                    });
                }
                if let Some(value) = self.value(rows, 0)? {
                    *expression = value;
                }
            }
            Expr::InSubquery { expr, subquery, negated } => {
                let Some(rows) = self.rows(subquery) else { return Ok(()) };
                if !(1..=LIST_MAX).contains(&rows.num_rows()) {
                    return Ok(());
                }
                let list = (0..rows.num_rows()).map(|row| self.value(rows, row));
                let Some(list) = list.collect::<Result<Option<Vec<_>>>>()? else { return Ok(()) };
                let expr = std::mem::replace(expr, Box::new(Expr::value(ast::Value::Null)));
                *expression = Expr::InList { expr, list, negated: *negated };
            }
            _ => {}
        }
        Ok(())
    }

    /// The rows of one column that a query selects without anything else.
    fn rows(&self, query: &ast::Query) -> Option<&RecordBatch> {
        let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
        let [from] = select.from.as_slice() else { return None };
        let ast::TableFactor::Table { name, .. } = &from.relation else { return None };
        let [ast::ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return None };
        self.given.get(&name.value).map(|rows| &**rows).filter(|rows| rows.num_columns() == 1)
    }

    /// A value as a constant; NULL if there is no such row. None: its type cannot be written as one.
    fn value(&self, rows: &RecordBatch, row: usize) -> Result<Option<Expr>> {
        let Some(column) = rows.columns().first() else { return Ok(None) };
        let Some(column_type) = sql_type(column.data_type()) else { return Ok(None) };
        let text = match row < rows.num_rows() {
            true => value_text(&**column, row)?,
            false => None,
        };
        let is_number = |text: &&String| text.bytes().all(|byte| byte.is_ascii_digit());
        if self.bare_numbers
            && column.data_type().is_integer()
            && let Some(number) = text.as_ref().filter(is_number)
        {
            return Ok(Some(Expr::value(ast::Value::Number(number.clone(), false))));
        }
        let value = Parameter::read(parameter_type(column_type), text.as_deref());
        Ok(value.ok().map(|value| value.literal()))
    }
}

impl VisitorMut for Put<'_> {
    type Break = Box<Error>;

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Box<Error>> {
        match self.replace(expression) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}
