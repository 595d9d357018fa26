//! The names in a statement: tables, calls of sequence functions, and words that may be columns.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use cleave_store::TableSchema;
use datafusion::sql::sqlparser::ast::{self, Visitor};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;

use cleave_query::select::is_for_everybody;
use cleave_sql::statement::names::{fold, table_name};
use cleave_sql::statement::parse::tokenize;
use cleave_sql::visiting::{Visited, visit};

/// The names in a statement.
#[derive(Default)]
pub(in crate::session) struct Named {
    pub(in crate::session) relations: Vec<ast::ObjectName>,
    pub(super) calls: Vec<Call>,
    /// Columns have aliases.
    pub(super) renames: bool,
}

/// A call of a function of sequences.
pub(super) struct Call {
    pub(super) function: &'static str,
    /// The sequence, as written; None: it is no constant.
    pub(super) sequence: Option<String>,
}

impl Visitor for Named {
    type Break = ();

    fn pre_visit_relation(&mut self, name: &ast::ObjectName) -> ControlFlow<()> {
        self.relations.push(name.clone());
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        self.note_tables(&query.body);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &ast::TableFactor) -> ControlFlow<()> {
        if let ast::TableFactor::Table { alias: Some(alias), .. } = factor {
            self.renames |= !alias.columns.is_empty();
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<()> {
        if let ast::Expr::Function(function) = expression
            && let Some(ast::ObjectNamePart::Identifier(name)) = function.name.0.last()
        {
            let name = fold(name);
            let known = ["nextval", "currval", "setval"].into_iter().find(|known| *known == name);
            self.calls.extend(known.map(|known| Call {
                function: known,
                sequence: first_argument(function).and_then(constant),
            }));
        }
        ControlFlow::Continue(())
    }
}

impl Named {
    /// Records the table of `TABLE t`, which the visitor passes by.
    pub(in crate::session) fn note_tables(&mut self, body: &ast::SetExpr) {
        match body {
            ast::SetExpr::Table(table) => {
                // Whether it was quoted is unknown here.
                for quote in [None, Some('"')] {
                    let parts = [&table.schema_name, &table.table_name].into_iter().flatten();
                    let parts = parts.map(|part| match quote {
                        Some(quote) => ast::Ident::with_quote(quote, part.as_str()),
                        None => ast::Ident::new(part.as_str()),
                    });
                    self.relations.push(parts.collect::<Vec<_>>().into());
                }
                self.renames = true;
            }
            ast::SetExpr::SetOperation { left, right, .. } => {
                self.note_tables(left);
                self.note_tables(right);
            }
            _ => {}
        }
    }
}

fn first_argument(function: &ast::Function) -> Option<&ast::Expr> {
    let ast::FunctionArguments::List(list) = &function.args else { return None };
    match list.args.first()? {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(argument)) => Some(argument),
        _ => None,
    }
}

/// The text of `'name'`, also as `'name'::regclass`, or what that becomes. Any other function or type may make another
/// name of it.
fn constant(expression: &ast::Expr) -> Option<String> {
    use ast::DataType;
    match expression {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        ast::Expr::Cast { expr, data_type: DataType::Regclass | DataType::Text, .. } => {
            constant(expr)
        }
        ast::Expr::Nested(inner) => constant(inner),
        ast::Expr::Function(function) => {
            let [ast::ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else {
                return None;
            };
            let is_number = ["cleave_relation", "to_regclass"].contains(&fold(name).as_str());
            first_argument(function).filter(|_| is_number).and_then(constant)
        }
        _ => None,
    }
}

/// Notes a part of a statement.
pub(super) fn note<T: Visited + Shown>(part: &T, named: &mut Named, text: &mut String) {
    let _: ControlFlow<()> = visit(part, named);
    part.show(text);
}

/// Nodes that can be written as SQL again.
pub(super) trait Shown {
    fn show(&self, text: &mut String);
}

impl Shown for Option<ast::Expr> {
    fn show(&self, text: &mut String) {
        if let Some(expression) = self {
            *text = format!("{text} ; {expression}");
        }
    }
}

impl Shown for Option<ast::With> {
    fn show(&self, text: &mut String) {
        if let Some(with) = self {
            *text = format!("{text} ; {with}");
        }
    }
}

impl Shown for Option<Box<ast::Expr>> {
    fn show(&self, text: &mut String) {
        if let Some(expression) = self {
            *text = format!("{text} ; {expression}");
        }
    }
}

impl Shown for Vec<ast::SelectItem> {
    fn show(&self, text: &mut String) {
        for item in self {
            *text = format!("{text} , {item}");
        }
    }
}

impl Shown for Vec<ast::TableWithJoins> {
    fn show(&self, text: &mut String) {
        for table in self {
            *text = format!("{text} ; {table}");
        }
    }
}

/// The words of a statement.
pub(super) struct Words {
    words: BTreeSet<String>,
    /// It may use any column.
    all: bool,
}

impl Words {
    pub(super) fn of(text: &str, renames: bool) -> Self {
        let mut found = Self { words: BTreeSet::new(), all: renames };
        let Ok(tokens) = tokenize(&PostgreSqlDialect {}, text) else {
            return Self { all: true, ..found };
        };
        let tokens = tokens.iter().map(|token| &token.token);
        let tokens: Vec<&Token> =
            tokens.filter(|token| !matches!(token, Token::Whitespace(_))).collect();
        for (place, token) in tokens.iter().enumerate() {
            let before = place.checked_sub(1).and_then(|place| tokens.get(place).copied());
            match token {
                Token::Word(word) => {
                    let is_bare = word.quote_style.is_none();
                    found.all |=
                        is_bare && [Keyword::NATURAL, Keyword::TABLE].contains(&word.keyword);
                    found.words.insert(match word.quote_style {
                        None => word.value.to_ascii_lowercase(),
                        Some(_) => word.value.clone(),
                    });
                }
                Token::Mul => {
                    found.all |= !is_product(before, tokens.get(place + 1).copied());
                }
                _ => {}
            }
        }
        found
    }

    /// The columns of a table that may be among the words.
    pub(super) fn used(&self, schema: &TableSchema) -> Vec<u32> {
        let used =
            schema.columns.iter().filter(|column| self.all || self.words.contains(&column.name));
        used.map(|column| column.id).collect()
    }
}

/// Whether a star is a product or that of `count(*)`, and stands for no columns.
fn is_product(before: Option<&Token>, after: Option<&Token>) -> bool {
    match (before, after) {
        (Some(Token::LParen), Some(Token::RParen)) => true,
        (Some(Token::Word(word)), Some(after)) if word.keyword == Keyword::NoKeyword => {
            is_operand(after)
        }
        (Some(Token::Number(..) | Token::Placeholder(_)), Some(after)) => is_operand(after),
        _ => false,
    }
}

fn is_operand(token: &Token) -> bool {
    match token {
        Token::Number(..) | Token::LParen | Token::Placeholder(_) => true,
        Token::Word(word) => word.keyword == Keyword::NoKeyword,
        _ => false,
    }
}
/// The tables of a query itself, as it calls them, with their names.
pub(super) fn top_tables(query: &ast::Query) -> Vec<(String, String)> {
    let ast::SetExpr::Select(select) = query.body.as_ref() else { return Vec::new() };
    let factors = select.from.iter().flat_map(|from| {
        std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation))
    });
    let tables = factors.filter_map(|factor| match factor {
        ast::TableFactor::Table { name, alias, .. } => {
            let table = table_name(name).ok()?;
            let called = alias.as_ref().map_or_else(|| table.clone(), |alias| fold(&alias.name));
            Some((called, table))
        }
        _ => None,
    });
    tables.collect()
}

/// The schemas in which no user has a table. What of them is [`secret`] is known by its name.
const NOT_OF_TABLES: [&str; 3] = ["pg_catalog", "information_schema", "cleave"];

/// The table that a name may stand for, whatever its qualifier; None: one of a schema in which no user has any.
pub(in crate::session) fn read_name(name: &ast::ObjectName) -> Option<String> {
    if let Ok(table) = table_name(name) {
        return Some(table);
    }
    let parts = name.0.iter().map(|part| part.as_ident().map(fold));
    let parts = parts.collect::<Option<Vec<String>>>()?;
    match parts.as_slice() {
        [.., schema, _] if NOT_OF_TABLES.contains(&schema.as_str()) => None,
        [.., table] => Some(table.clone()),
        [] => None,
    }
}

/// The name of a table that only superusers read: passwords, the statements of others, and where devices are.
pub(super) fn secret(name: &ast::ObjectName) -> Option<String> {
    let parts: Vec<String> = name
        .0
        .iter()
        .filter_map(|part| match part {
            ast::ObjectNamePart::Identifier(part) => Some(fold(part)),
            ast::ObjectNamePart::Function(_) => None,
        })
        .collect();
    match parts.as_slice() {
        [.., schema, table] if schema == "cleave" => {
            (!is_for_everybody(table)).then(|| format!("cleave.{table}"))
        }
        [.., table] if table == "pg_authid" => Some(table.clone()),
        _ => None,
    }
}
