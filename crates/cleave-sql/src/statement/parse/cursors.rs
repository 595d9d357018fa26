//! DECLARE … CURSOR, FETCH, MOVE and CLOSE: tokens in, [`Declare`] and [`Fetch`] out.
//!
//! Deliberately absent: BINARY, and every backward direction (SCROLL, PRIOR, BACKWARD, …): rows are computed as they
//! are fetched, and none is kept.
//!
//! Source: PostgreSQL's manual, "DECLARE", "FETCH", "MOVE", "CLOSE".

use cleave_catalog::error::{Error, Fault, Result};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Reader, Statement, typed};
use crate::statement::names::{fold, position_of};

/// DECLARE name CURSOR FOR query.
#[derive(Debug, Clone, PartialEq)]
pub struct Declare {
    /// Its name.
    pub name: String,
    /// WITH HOLD: it outlives its transaction.
    pub is_held: bool,
    /// The statement that gives its rows.
    pub query: Box<ast::Query>,
}

/// FETCH and MOVE, always forward.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    /// The cursor.
    pub name: String,
    /// Maximum number of rows; None: all that are left.
    pub row_count: Option<u64>,
    /// MOVE: the rows are skipped.
    pub is_move: bool,
}

impl Reader<'_> {
    pub(super) fn declare(&mut self) -> Result<Statement> {
        self.parser.advance_token();
        let name = self.cursor_name()?;
        loop {
            let position = position_of(self.parser.peek_token().span.start);
            if self.take("cursor") {
                break;
            }
            if self.take("no") {
                if !self.take("scroll") {
                    return Err(self.expected("SCROLL"));
                }
            } else if self.take("binary") {
                let hint = "the extended protocol gives rows in binary";
                return Err(Error::Unsupported {
                    what: "DECLARE ... BINARY CURSOR".to_owned(),
                    hint: Some(hint.to_owned()),
                    position,
                });
            } else if self.take("scroll") {
                return Err(Error::Unsupported {
                    what: "DECLARE ... SCROLL CURSOR".to_owned(),
                    hint: Some("a cursor goes forward only; say NO SCROLL".to_owned()),
                    position,
                });
            } else if !self.take("insensitive") && !self.take("asensitive") {
                return Err(self.expected("CURSOR"));
            }
        }
        let is_held = self.take("with");
        if (is_held || self.take("without")) && !self.take("hold") {
            return Err(self.expected("HOLD"));
        }
        if !self.take("for") {
            return Err(self.expected("FOR and a query"));
        }
        let query = self.parser.parse_query().map_err(|error| self.syntax(error))?;
        match typed(ast::Statement::Query(self.lowered(query)?))? {
            Statement::Query(query) => {
                Ok(Statement::Declare(Box::new(Declare { name, is_held, query })))
            }
            Statement::ChangingWith(_) => {
                Err(Error::unsupported("a cursor for a query behind WITH that changes rows"))
            }
            _ => Err(self.expected("a query")),
        }
    }

    /// FETCH or MOVE [direction] [FROM | IN] name.
    pub(super) fn fetch(&mut self, is_move: bool) -> Result<Statement> {
        self.parser.advance_token();
        let position = position_of(self.parser.peek_token().span.start);
        let back = ["prior", "first", "last", "absolute", "relative", "backward"];
        let is_name = matches!(self.parser.peek_nth_token(1).token, Token::EOF | Token::SemiColon);
        let row_count = if is_name {
            Some(1)
        } else if back.into_iter().any(|word| self.take(word)) {
            return Err(only_forward(position));
        } else if self.take("next") {
            Some(1)
        } else if self.take("all") {
            None
        } else if self.take("forward") {
            match self.parser.peek_token().token {
                Token::Number(..) | Token::Minus | Token::Plus => self.row_count()?,
                _ if self.take("all") => None,
                _ => Some(1),
            }
        } else {
            match self.parser.peek_token().token {
                Token::Number(..) | Token::Minus | Token::Plus => self.row_count()?,
                _ => Some(1),
            }
        };
        let _ = self.take("from") || self.take("in");
        Ok(Statement::Fetch(Fetch { name: self.cursor_name()?, row_count, is_move }))
    }

    fn row_count(&mut self) -> Result<Option<u64>> {
        let token = self.parser.peek_token();
        let position = position_of(token.span.start);
        if token.token == Token::Minus {
            return Err(only_forward(position));
        }
        let _ = self.parser.consume_token(&Token::Plus);
        let Token::Number(digits, _) = self.parser.peek_token().token else {
            return Err(self.expected("a number of rows"));
        };
        match digits.parse() {
            // The current row is not kept.
            Ok(0) => Err(only_forward(position)),
            Ok(count) => {
                self.parser.advance_token();
                Ok(Some(count))
            }
            Err(_) => Err(self.expected("a number of rows")),
        }
    }

    /// CLOSE name, CLOSE ALL.
    pub(super) fn close(&mut self) -> Result<Statement> {
        self.parser.advance_token();
        let name = if self.take("all") { None } else { Some(self.cursor_name()?) };
        Ok(Statement::CloseCursor { name })
    }

    fn cursor_name(&mut self) -> Result<String> {
        let Token::Word(_) = self.parser.peek_token().token else {
            return Err(self.expected("the name of a cursor"));
        };
        let name = self.parser.parse_identifier().map_err(|error| self.syntax(error))?;
        Ok(fold(&name))
    }
}

fn only_forward(position: Option<cleave_catalog::error::Position>) -> Error {
    Error::Invalid {
        message: "a cursor can only scan forward: FETCH NEXT, n, ALL or FORWARD".to_owned(),
        fault: Fault::State,
        position,
    }
}
