//! The text of a statement in; out, the names of tables and other objects that it uses without a schema.
//!
//! Statements are otherwise bound as if `public` were always searched. This module is used if a session's `search_path`
//! leaves `public` out. It parses the text again, which costs other sessions nothing. Names of WITH and of functions do
//! not count. Statements that the parser crate does not read name nothing here.

use std::ops::ControlFlow;

use cleave_catalog::error::{NameKind, Position};
use cleave_catalog::identifiers::{has_schema, unqualified};
use datafusion::sql::sqlparser::ast::{self, ObjectName, Statement, TableFactor, Visitor};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Location, Token};

use super::Cursor;
use super::dialect::read_text;
use super::tokens::{is_solid, is_word, tokenize};
use crate::statement::names::{fold, position_of};
use crate::visiting::visit;

/// The names without a schema in a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithoutSchema {
    /// It creates an object with such a name.
    pub creates: bool,
    /// The objects of a DROP … IF EXISTS.
    pub drops_if_exists: Option<&'static str>,
    /// Other names, with their positions.
    pub names: Vec<(NameKind, String, Option<Position>)>,
}

/// Those of `text`.
pub fn names_without_schema(text: &str) -> WithoutSchema {
    let mut found = Bare {
        found: WithoutSchema { creates: false, drops_if_exists: None, names: Vec::new() },
        with: Vec::new(),
        passed: Vec::new(),
    };
    if note_listed(text, &mut found) {
        return found.found;
    }
    if let Ok(statement) = read_text(text, |parser| parser.parse_statement()) {
        let flow: ControlFlow<()> = visit(&statement, &mut found);
        debug_assert!(flow.is_continue(), "nothing stops the visit");
    }
    found.found
}

/// Records the tables of `COPY t …` and `LOCK TABLE t, …`, which the parser crate does not read. False: the statement
/// is another.
fn note_listed(text: &str, found: &mut Bare) -> bool {
    let first = text.trim_start().get(..4).unwrap_or_default();
    if !["copy", "lock"].into_iter().any(|word| first.eq_ignore_ascii_case(word)) {
        return false;
    }
    let Ok(mut tokens) = tokenize(&PostgreSqlDialect {}, text) else { return false };
    tokens.retain(is_solid);
    let mut left = tokens.iter().peekable();
    let is_lock = match left.next() {
        Some(word) if is_word(word, "lock") => true,
        Some(word) if is_word(word, "copy") => false,
        _ => return false,
    };
    loop {
        while left
            .next_if(|token| ["table", "only"].iter().any(|word| is_word(token, word)))
            .is_some()
        {}
        let mut parts = Vec::new();
        while let Some(token) = left.next_if(|token| matches!(token.token, Token::Word(_))) {
            if let Token::Word(word) = &token.token {
                let mut name = word.to_ident(token.span);
                name.span = token.span;
                parts.push(name);
            }
            if left.next_if(|token| token.token == Token::Period).is_none() {
                break;
            }
        }
        if parts.is_empty() {
            // COPY of a query.
            return is_lock;
        }
        found.note(NameKind::Relation, &ObjectName::from(parts));
        let _ = left.next_if(|token| token.token == Token::Mul);
        if !is_lock || left.next_if(|token| token.token == Token::Comma).is_none() {
            return true;
        }
    }
}

/// `query` with `public` in front of the tables that it names without a schema.
pub fn with_schema(query: &str) -> String {
    let names = names_without_schema(query).names;
    let names = names.into_iter().filter(|(kind, ..)| *kind != NameKind::Sequence);
    let mut places: Vec<Position> = names.filter_map(|(.., place)| place).collect();
    places.sort_by_key(|place| (place.line, place.column));
    let (mut text, mut begin) = (String::with_capacity(query.len()), 0);
    let mut cursor = Cursor::new(query);
    for Position { line, column } in places {
        let end = cursor.offset_of(Location { line: line.into(), column: column.into() });
        text.push_str(query.get(begin..end).unwrap_or_default());
        text.push_str("public.");
        begin = end;
    }
    text + query.get(begin..).unwrap_or_default()
}

/// The sequence that a call of `nextval` and its like names without a schema, and where.
fn named_sequence(expression: &ast::Expr) -> Option<(String, Option<Position>)> {
    let ast::Expr::Function(function) = expression else { return None };
    let called = fold(function.name.0.last()?.as_ident()?);
    if !["nextval", "currval", "setval"].contains(&called.as_str()) {
        return None;
    }
    let ast::FunctionArguments::List(list) = &function.args else { return None };
    let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(mut argument)) =
        list.args.first()?.clone()
    else {
        return None;
    };
    while let ast::Expr::Cast { expr, .. } | ast::Expr::Nested(expr) = argument {
        argument = *expr;
    }
    let ast::Expr::Value(value) = &argument else { return None };
    let ast::Value::SingleQuotedString(written) = &value.value else { return None };
    let is_number = written.parse::<i64>().is_ok();
    if is_number || has_schema(written) {
        return None;
    }
    Some((unqualified(written)?, position_of(value.span.start)))
}

struct Bare {
    found: WithoutSchema,
    /// Names of the queries of WITH around the place of the visit.
    with: Vec<Vec<String>>,
    /// Names that are not tables: functions in FROM, and created objects.
    passed: Vec<ObjectName>,
}

impl Bare {
    fn creates(&mut self, name: &ObjectName, is_temporary: bool) {
        self.found.creates |= name.0.len() == 1 && !is_temporary;
        self.passed.push(name.clone());
    }

    fn note(&mut self, kind: NameKind, name: &ObjectName) {
        // A name in single quotes is one of a file.
        if let [ast::ObjectNamePart::Identifier(own)] = name.0.as_slice()
            && own.quote_style != Some('\'')
        {
            self.found.names.push((kind, fold(own), position_of(own.span.start)));
        }
    }
}

impl Visitor for Bare {
    type Break = ();

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<()> {
        match statement {
            Statement::CreateTable(create) => self.creates(&create.name, create.temporary),
            Statement::CreateView(create) => self.creates(&create.name, create.temporary),
            Statement::CreateSequence { name, temporary, .. } => self.creates(name, *temporary),
            Statement::Drop { object_type, if_exists, names, .. } => {
                let (kind, tag) = match object_type {
                    ast::ObjectType::Table => (NameKind::Table, "DROP TABLE"),
                    ast::ObjectType::View => (NameKind::View, "DROP VIEW"),
                    ast::ObjectType::Sequence => (NameKind::Sequence, "DROP SEQUENCE"),
                    ast::ObjectType::Index => (NameKind::Index, "DROP INDEX"),
                    _ => return ControlFlow::Continue(()),
                };
                self.found.drops_if_exists = if_exists.then_some(tag);
                for name in names {
                    self.note(kind, name);
                    self.passed.push(name.clone());
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<()> {
        if let Some((name, position)) = named_sequence(expression) {
            self.found.names.push((NameKind::Sequence, name, position));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        self.with.push(tables.map(|table| fold(&table.alias.name)).collect());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
        self.with.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } =
            factor
        {
            self.passed.push(name.clone());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<()> {
        let is_of_with = name.0.last().and_then(|part| part.as_ident()).is_some_and(|own| {
            let own = fold(own);
            self.with.iter().flatten().any(|name| *name == own)
        });
        // Equal names may stand in several places: each was passed once.
        match self.passed.iter().position(|passed| passed == name) {
            Some(place) => {
                self.passed.swap_remove(place);
            }
            None if is_of_with => {}
            None => self.note(NameKind::Relation, name),
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::names_without_schema;

    #[test]
    fn tables_are_named_and_nothing_else() {
        let names = |sql: &str| {
            let found = names_without_schema(sql);
            let names: Vec<String> = found.names.into_iter().map(|(_, name, _)| name).collect();
            (found.creates, names.join(" "))
        };
        for (sql, creates, expected) in [
            ("SELECT a FROM t, public.u JOIN V ON true", false, "t v"),
            ("WITH w AS (SELECT 1) SELECT * FROM w, t", false, "t"),
            ("SELECT * FROM generate_series(1, 2) g, unnest(ARRAY[1]) u", false, ""),
            (
                "SELECT (SELECT max(a) FROM t) FROM public.u WHERE EXISTS (SELECT 1 FROM \"W\")",
                false,
                "t W",
            ),
            ("INSERT INTO t SELECT * FROM u", false, "t u"),
            ("UPDATE t SET a = 1 FROM u", false, "t u"),
            ("DELETE FROM t USING u", false, "t u"),
            ("CREATE TABLE t (a int)", true, ""),
            ("CREATE TABLE public.t (a int)", false, ""),
            ("CREATE TEMP TABLE t AS SELECT * FROM u", false, "u"),
            ("CREATE VIEW v AS SELECT * FROM t", true, "t"),
            ("CREATE SEQUENCE s", true, ""),
            ("CREATE INDEX i ON t (a)", false, "t"),
            ("DROP TABLE t, public.u", false, "t"),
            ("ALTER TABLE t ADD COLUMN a int", false, "t"),
            ("TRUNCATE t", false, "t"),
            ("EXPLAIN SELECT * FROM t", false, "t"),
            ("PREPARE p AS SELECT * FROM t", false, "t"),
            ("SELECT 1", false, ""),
            ("COPY t (a, b) FROM STDIN", false, "t"),
            ("COPY public.t TO STDOUT (FORMAT csv)", false, ""),
            ("COPY (SELECT * FROM t) TO STDOUT", false, "t"),
            ("LOCK TABLE t, ONLY public.u, \"V\" * IN SHARE MODE", false, "t V"),
            (
                "SELECT nextval('s'), setval('public.s', 3), currval('\"S\"'::regclass)",
                false,
                "s S",
            ),
        ] {
            assert_eq!(names(sql), (creates, expected.to_owned()), "{sql}");
        }
    }
}
