//! Foreign key syntax that the parser crate does not read: SET CONSTRAINTS, and the columns of ON DELETE SET NULL and
//! SET DEFAULT, which are taken out of a script's tokens and given to the foreign key before them.
//!
//! Source: PostgreSQL's manual, "SET CONSTRAINTS" and "CREATE TABLE".

use cleave_catalog::error::{Error, Result};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan};

use super::tokens::{is_word, solid_from};
use super::{Define, Reader, Statement, is_before};
use crate::statement::alter::Action;
use crate::statement::ddl::GivenForeignKey;
use crate::statement::names::{fold, position_of, table_name};

/// SET CONSTRAINTS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetConstraints {
    /// Their names; none: ALL.
    pub names: Vec<String>,
    /// DEFERRED, and not IMMEDIATE.
    pub deferred: bool,
}

impl Reader<'_> {
    /// { ALL | name [, ...] } { DEFERRED | IMMEDIATE }, behind SET CONSTRAINTS.
    pub(super) fn set_constraints(&mut self) -> Result<Statement> {
        let mut names = Vec::new();
        if !self.take("all") {
            let read = |parser: &mut Parser<'_>| parser.parse_object_name(false);
            let read = self.parser.parse_comma_separated(read);
            for name in read.map_err(|error| self.syntax(error))? {
                names.push(table_name(&name)?);
            }
        }
        let deferred = self.take("deferred");
        if !deferred && !self.take("immediate") {
            return Err(self.expected("DEFERRED or IMMEDIATE"));
        }
        Ok(Statement::SetConstraints(SetConstraints { names, deferred }))
    }
}

/// Takes `(a, b)` behind ON DELETE SET { NULL | DEFAULT } out of a script, and returns where each stood.
pub(super) fn take_set_columns(tokens: &mut Vec<TokenWithSpan>) -> Vec<(Location, Vec<String>)> {
    let mut found = Vec::new();
    let mut first = 0;
    while let Some(at) = tokens.iter().skip(first).position(|token| is_word(token, "delete")) {
        let at = first + at;
        first = at + 1;
        let mut solid = solid_from(tokens, first);
        let Some((_, set)) = solid.next().filter(|(_, token)| is_word(token, "set")) else {
            continue;
        };
        let place = set.span.start;
        let value = solid.next();
        if !value.is_some_and(|(_, value)| is_word(value, "null") || is_word(value, "default")) {
            continue;
        }
        let Some((open, _)) = solid.next().filter(|(_, token)| token.token == Token::LParen) else {
            continue;
        };
        let mut columns = Vec::new();
        let close = loop {
            let Some((_, Token::Word(name))) = solid.next().map(|(at, token)| (at, &token.token))
            else {
                break None;
            };
            columns.push(fold(&name.clone().into_ident(set.span)));
            match solid.next() {
                Some((_, token)) if token.token == Token::Comma => {}
                Some((close, token)) if token.token == Token::RParen => break Some(close),
                _ => break None,
            }
        };
        if let Some(close) = close {
            found.push((place, columns));
            drop(solid);
            tokens.drain(open..=close);
        }
    }
    found
}

/// Gives `statement`, which ends before `end`, its own ones of `found`.
///
/// # Errors
/// [`Error::Syntax`] where it cannot have any.
pub(super) fn give_set_columns(
    found: &mut Vec<(Location, Vec<String>)>,
    end: Option<Location>,
    statement: &mut Statement,
) -> Result<()> {
    let own = match end {
        Some(end) => found.partition_point(|(place, _)| is_before(*place, end)),
        None => found.len(),
    };
    for (place, columns) in found.drain(..own) {
        let position = position_of(place);
        let before = |key: &&mut GivenForeignKey| {
            key.position.map(|known| (known.line, known.column))
                < position.map(|known| (known.line, known.column))
        };
        let keys = foreign_keys(statement).into_iter().filter(before);
        match keys.max_by_key(|key| key.position.map(|known| (known.line, known.column))) {
            Some(key) => key.set_columns = columns,
            None => {
                return Err(Error::Syntax {
                    message:
                        "a list of columns after ON DELETE SET is allowed in a foreign key only"
                            .to_owned(),
                    near: Some("SET".to_owned()),
                    position,
                });
            }
        }
    }
    Ok(())
}

fn foreign_keys(statement: &mut Statement) -> Vec<&mut GivenForeignKey> {
    match statement {
        Statement::CreateTable(create) => create.foreign_keys.iter_mut().collect(),
        Statement::Define(define) => match &mut **define {
            Define::AlterTable(alter) => alter
                .actions
                .iter_mut()
                .filter_map(|action| match action {
                    Action::AddForeignKey(key) => Some(key),
                    _ => None,
                })
                .collect(),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}
