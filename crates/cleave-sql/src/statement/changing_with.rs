//! Data-modifying queries of WITH: a statement in; out, these queries as statements of their own, and the statement
//! over the rows that they return.
//!
//! ```text
//!  WITH gone AS (DELETE FROM t WHERE a < 5 RETURNING *) INSERT INTO u SELECT * FROM gone
//!    ─▶ part 0: DELETE FROM t WHERE a < 5 RETURNING *                          (run first, since it is named)
//!       WITH gone AS (SELECT * FROM part0) INSERT INTO u SELECT * FROM gone
//! ```
//!
//! 1. Each query that changes or locks rows is a part, and so is a query that several of these statements name: it runs
//!    once for all of them. Other queries go into the WITH of the one statement that names them.
//! 2. Parts that the statement needs run before it, the others after it, the last one first, as in PostgreSQL.
//! 3. Their rows are tables of the statements that name them ([`GivenRows`](super::locked_parts::GivenRows)).
//!
//! Only the outermost WITH may have such queries. Source: PostgreSQL's manual, "Data-Modifying Statements in WITH".

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use cleave_catalog::error::{Error, Fault, Result};
use datafusion::sql::sqlparser::ast::{self, Visitor};

use super::locked_parts::part_name;
use super::modify::has_changes;
use super::names::fold;
use super::parameters::place_of;
use super::parse::{Statement, parse_query};
use crate::visiting::{Visited, visit, visit_relations};

/// A statement with data-modifying queries in WITH.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangingWith {
    /// The queries that run by themselves.
    pub parts: Vec<Part>,
    /// The statement over their rows.
    pub main: Part,
    /// Which parts run before it, in their order.
    pub before: Vec<usize>,
    /// Which parts run after it.
    pub after: Vec<usize>,
}

/// A statement that is a part of another one.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The statement.
    pub statement: Statement,
    /// The parameters in it, from 0.
    pub parameters: BTreeSet<usize>,
}

/// A query of WITH.
struct Listed {
    name: String,
    cte: ast::Cte,
    /// The earlier queries that it names, and itself if it is recursive.
    needs: BTreeSet<usize>,
    is_recursive: bool,
    /// Its number among the parts; None: it is no part.
    part: Option<usize>,
}

/// The parts of a parsed statement, typed by `typed`. None: its WITH changes no rows.
///
/// # Errors
/// Those of `typed`; [`Error::Unsupported`] for what PostgreSQL refuses, too.
pub(super) fn taken(
    statement: &mut ast::Statement,
    typed: impl Fn(ast::Statement) -> Result<Statement>,
) -> Result<Option<ChangingWith>> {
    let ast::Statement::Query(query) = statement else { return Ok(None) };
    let changes = |with: &&mut ast::With| with.cte_tables.iter().any(|cte| has_changes(&cte.query));
    let Some(with) = query.with.as_mut().filter(changes) else { return Ok(None) };
    let with = ast::With { cte_tables: std::mem::take(&mut with.cte_tables), ..with.clone() };
    query.with = None;
    let mut listed = listed(&with)?;
    let names: Vec<String> = listed.iter().map(|one| one.name.clone()).collect();
    let needed = named_in(&**query, &names);
    number_parts(&mut listed, &needed);
    let mut parts = Vec::new();
    for place in 0..listed.len() {
        let Some(one) = listed.get(place).filter(|one| one.part.is_some()) else { continue };
        let mut own = (*one.cte.query).clone();
        let mut around = one.needs.clone();
        if one.is_recursive {
            own =
                *parse_query(format!("SELECT * FROM {}", ast::Ident::with_quote('"', &one.name)))?;
            around.insert(place);
        }
        let around = with_of(&with, &listed, &around, Some(place))?;
        put_around(&mut own, around)?;
        parts.push(part(own, &typed)?);
    }
    let around = with_of(&with, &listed, &needed, None)?;
    put_around(query, around)?;
    let main = part((**query).clone(), &typed)?;
    if !matches!(main.statement, Statement::Query(_) | Statement::Insert(_) | Statement::Modify(_))
    {
        return Err(Error::unsupported("a locking clause beside WITH that changes rows"));
    }
    let mut order = Order { listed: &listed, done: BTreeSet::new(), parts: Vec::new() };
    order.add(&needed);
    let before = std::mem::take(&mut order.parts);
    for place in (0..listed.len()).rev() {
        if listed.get(place).is_some_and(|one| one.part.is_some()) {
            order.add(&BTreeSet::from([place]));
        }
    }
    let after = order.parts;
    Ok(Some(ChangingWith { parts, main, before, after }))
}

/// The queries of `with`, before parts are chosen.
fn listed(with: &ast::With) -> Result<Vec<Listed>> {
    let names: Vec<String> = with.cte_tables.iter().map(|cte| fold(&cte.alias.name)).collect();
    let mut listed: Vec<Listed> = Vec::with_capacity(names.len());
    for (place, (cte, name)) in with.cte_tables.iter().zip(&names).enumerate() {
        if listed.iter().any(|known| known.name == *name) {
            return Err(Error::Invalid {
                message: format!("WITH query name \"{name}\" specified more than once"),
                fault: Fault::DuplicateAlias,
                position: None,
            });
        }
        let mut needs = named_in(&*cte.query, &names);
        let later = needs.split_off(&place);
        let is_recursive = with.recursive && later.contains(&place);
        if with.recursive && later.iter().any(|later| *later > place)
            || is_recursive && has_changes(&cte.query)
        {
            let what =
                "WITH RECURSIVE that changes rows, where a query names itself or a later one,";
            return Err(Error::unsupported(what));
        }
        listed.push(Listed {
            name: name.clone(),
            cte: cte.clone(),
            needs,
            is_recursive,
            part: None,
        });
    }
    Ok(listed)
}

/// Decides which of the queries are parts; `needed` are those that the statement itself names.
fn number_parts(listed: &mut [Listed], needed: &BTreeSet<usize>) {
    // The statement comes behind all of them.
    let main = listed.len();
    let mut users: Vec<BTreeSet<usize>> = listed.iter().map(|_| BTreeSet::new()).collect();
    let mut is_part = vec![false; main];
    let uses = |users: &mut Vec<BTreeSet<usize>>, needs: &BTreeSet<usize>, by: &BTreeSet<usize>| {
        for need in needs {
            if let Some(users) = users.get_mut(*need) {
                users.extend(by);
            }
        }
    };
    uses(&mut users, needed, &BTreeSet::from([main]));
    for (place, one) in listed.iter().enumerate().rev() {
        let by = users.get(place).cloned().unwrap_or_default();
        let runs = has_changes(&one.cte.query)
            || by.len() > 1
            || !by.is_empty() && has_locks(&one.cte.query);
        if let Some(flag) = is_part.get_mut(place) {
            *flag = runs;
        }
        let by = if runs { BTreeSet::from([place]) } else { by };
        uses(&mut users, &one.needs, &by);
    }
    let parts = listed.iter_mut().zip(is_part).filter(|(_, is_part)| *is_part);
    for (number, (one, _)) in parts.enumerate() {
        one.part = Some(number);
    }
}

/// WITH for a statement that names `needed`: rows of parts, and other queries with those that they name. `own`: it is
/// the main statement.
fn with_of(
    with: &ast::With,
    listed: &[Listed],
    needed: &BTreeSet<usize>,
    own: Option<usize>,
) -> Result<Option<ast::With>> {
    let mut all = BTreeSet::new();
    let mut open: Vec<usize> = needed.iter().copied().collect();
    while let Some(place) = open.pop() {
        if let Some(one) = listed.get(place)
            && all.insert(place)
            && one.part.is_none()
        {
            open.extend(&one.needs);
        }
    }
    let mut cte_tables = Vec::with_capacity(all.len());
    for (place, one) in listed.iter().enumerate().filter(|(place, _)| all.contains(place)) {
        let mut cte = one.cte.clone();
        if let Some(number) = one.part.filter(|_| own != Some(place)) {
            if has_changes(&cte.query) && !returns(&cte.query) {
                let name = &one.name;
                let what = format!("WITH query \"{name}\" without a RETURNING clause in FROM");
                return Err(Error::unsupported(what));
            }
            let rows = ast::Ident::with_quote('"', part_name(number));
            cte.query = parse_query(format!("SELECT * FROM {rows}"))?;
        }
        cte_tables.push(cte);
    }
    Ok((!cte_tables.is_empty()).then(|| ast::With { cte_tables, ..with.clone() }))
}

/// Puts WITH around a query; names of the query's own WITH take precedence.
fn put_around(query: &mut ast::Query, around: Option<ast::With>) -> Result<()> {
    if let Some(own) = &query.with
        && own.cte_tables.iter().any(|cte| has_changes(&cte.query))
    {
        return Err(Error::unsupported("WITH that changes rows in WITH"));
    }
    let Some(mut around) = around else { return Ok(()) };
    if let Some(own) = query.with.take() {
        let is_own = |cte: &ast::Cte| {
            own.cte_tables.iter().any(|own| fold(&own.alias.name) == fold(&cte.alias.name))
        };
        around.cte_tables.retain(|cte| !is_own(cte));
        around.recursive |= own.recursive;
        around.cte_tables.extend(own.cte_tables);
    }
    query.with = Some(around);
    Ok(())
}

fn part(query: ast::Query, typed: &impl Fn(ast::Statement) -> Result<Statement>) -> Result<Part> {
    let parameters = parameters_of(&query)?;
    let statement = typed(ast::Statement::Query(Box::new(query)))?;
    Ok(Part { statement, parameters })
}

/// Parts in the order in which they run.
struct Order<'a> {
    listed: &'a [Listed],
    done: BTreeSet<usize>,
    parts: Vec<usize>,
}

impl Order<'_> {
    /// Adds `needed`, each behind those that it needs, which stand before it.
    fn add(&mut self, needed: &BTreeSet<usize>) {
        let mut all = BTreeSet::new();
        let mut open: Vec<usize> = needed.iter().copied().collect();
        while let Some(place) = open.pop() {
            if let Some(one) = self.listed.get(place)
                && !self.done.contains(&place)
                && all.insert(place)
            {
                open.extend(&one.needs);
            }
        }
        for place in all {
            self.done.insert(place);
            self.parts.extend(self.listed.get(place).and_then(|one| one.part));
        }
    }
}

/// Which of `names` are names of tables in `part`.
fn named_in(part: &impl Visited, names: &[String]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let _: ControlFlow<()> = visit_relations(part, |name| {
        if let [ast::ObjectNamePart::Identifier(name)] = name.0.as_slice() {
            let name = fold(name);
            found.extend(names.iter().position(|known| *known == name));
        }
        ControlFlow::Continue(())
    });
    found
}

/// Whether rows are locked in `query`.
fn has_locks(query: &ast::Query) -> bool {
    struct Locks;
    impl Visitor for Locks {
        type Break = ();

        fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
            match query.locks.is_empty() {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        }
    }
    visit(query, &mut Locks).is_break()
}

/// Whether a data-modifying query returns rows.
fn returns(query: &ast::Query) -> bool {
    use ast::SetExpr as Body;
    let (Body::Insert(statement) | Body::Update(statement) | Body::Delete(statement)) =
        &*query.body
    else {
        return true;
    };
    match statement {
        ast::Statement::Insert(insert) => insert.returning.is_some(),
        ast::Statement::Update(update) => update.returning.is_some(),
        ast::Statement::Delete(delete) => delete.returning.is_some(),
        _ => false,
    }
}

/// The parameters in `query`, from 0.
fn parameters_of(query: &ast::Query) -> Result<BTreeSet<usize>> {
    struct Places(BTreeSet<usize>);
    impl Visitor for Places {
        type Break = Box<Error>;

        fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<Box<Error>> {
            match place_of(expression) {
                Ok(place) => {
                    self.0.extend(place);
                    ControlFlow::Continue(())
                }
                Err(error) => ControlFlow::Break(Box::new(error)),
            }
        }
    }
    let mut places = Places(BTreeSet::new());
    match visit(query, &mut places) {
        ControlFlow::Continue(()) => Ok(places.0),
        ControlFlow::Break(error) => Err(*error),
    }
}
