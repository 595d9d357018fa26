//! CREATE and ALTER SEQUENCE, whose options come in any order, and OVERRIDING of INSERT, which the crate does not know.

use cleave_catalog::error::{Error, Result};
use cleave_store::ColumnType;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan};

use super::tokens::{is_word, solid_from};
use super::{Insert, Reader, Statement, is_before};
use crate::statement::ddl::column_type;
use crate::statement::names::{fold, position_of, table_name};
use crate::statement::sequence::{SequenceOptions, SequenceStatement};

/// OVERRIDING: whether a row's value or the identity column's own counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overriding {
    /// The row's, also where the column is GENERATED ALWAYS.
    System,
    /// The column's.
    User,
}

impl Reader<'_> {
    /// A statement on sequences, if it is one.
    pub(super) fn sequence_statement(&mut self) -> Result<Option<Statement>> {
        let position = position_of(self.parser.peek_token().span.start);
        let creates = self.take("create");
        if !creates && !self.take("alter") {
            return Ok(None);
        }
        if !self.take("sequence") {
            self.parser.prev_token();
            return Ok(None);
        }
        let exists = self.take("if");
        if exists && (creates && !self.take("not") || !self.take("exists")) {
            return Err(self.expected("EXISTS"));
        }
        let name = self.parser.parse_object_name(false).map_err(|error| self.syntax(error))?;
        let name = table_name(&name)?;
        if !creates && self.take("rename") {
            self.must_take("to")?;
            let to = self.parser.parse_identifier().map_err(|error| self.syntax(error))?;
            let rename = SequenceStatement::Rename { if_exists: exists, name, to: fold(&to) };
            return Ok(Some(Statement::Sequence(Box::new(rename))));
        }
        let mut options = SequenceOptions { position, ..SequenceOptions::default() };
        while !matches!(self.parser.peek_token().token, Token::EOF | Token::SemiColon) {
            self.sequence_option(&mut options)?;
        }
        let statement = match creates {
            true if options.restart.is_some() => {
                return Err(Error::unsupported("RESTART of CREATE SEQUENCE").at(position));
            }
            true => SequenceStatement::Create { if_not_exists: exists, name, options },
            false => SequenceStatement::Alter { if_exists: exists, name, options },
        };
        Ok(Some(Statement::Sequence(Box::new(statement))))
    }

    pub(super) fn sequence_option(&mut self, options: &mut SequenceOptions) -> Result<()> {
        if self.take("as") {
            let data_type = self.parser.parse_data_type().map_err(|error| self.syntax(error))?;
            let data_type = column_type(&data_type)?;
            if !matches!(data_type, ColumnType::SmallInt | ColumnType::Int | ColumnType::BigInt) {
                let message = "sequence type must be smallint, integer, or bigint".to_owned();
                return Err(options.refused(message));
            }
            options.data_type = Some(data_type);
        } else if self.take("increment") {
            let _ = self.take("by");
            options.increment = Some(self.signed_number()?);
        } else if self.take("minvalue") {
            options.min = Some(Some(self.signed_number()?));
        } else if self.take("maxvalue") {
            options.max = Some(Some(self.signed_number()?));
        } else if self.take("no") {
            if self.take("minvalue") {
                options.min = Some(None);
            } else if self.take("maxvalue") {
                options.max = Some(None);
            } else if self.take("cycle") {
                options.cycle = Some(false);
            } else {
                return Err(self.expected("MINVALUE, MAXVALUE or CYCLE"));
            }
        } else if self.take("start") {
            let _ = self.take("with");
            options.start = Some(self.signed_number()?);
        } else if self.take("restart") {
            let says = self.take("with")
                || matches!(self.parser.peek_token().token, Token::Number(..) | Token::Minus);
            options.restart = Some(if says { Some(self.signed_number()?) } else { None });
        } else if self.take("cache") {
            options.cache = Some(self.signed_number()?);
        } else if self.take("cycle") {
            options.cycle = Some(true);
        } else if self.take("owned") {
            if !self.take("by") {
                return Err(self.expected("BY"));
            }
            if self.take("none") {
                options.owner = Some(None);
                return Ok(());
            }
            let mut name =
                self.parser.parse_object_name(false).map_err(|error| self.syntax(error))?;
            let column = name.0.pop().and_then(|part| part.as_ident().map(fold));
            let (Some(column), false) = (column, name.0.is_empty()) else {
                let message = "invalid OWNED BY option: specify OWNED BY table.column".to_owned();
                return Err(options.refused(message));
            };
            options.owner = Some(Some((table_name(&name)?, column)));
        } else {
            return Err(self.expected("an option of a sequence"));
        }
        Ok(())
    }

    fn signed_number(&mut self) -> Result<i64> {
        let is_negative = self.parser.consume_token(&Token::Minus);
        if !is_negative {
            let _ = self.parser.consume_token(&Token::Plus);
        }
        let Token::Number(digits, _) = self.parser.peek_token().token else {
            return Err(self.expected("a number"));
        };
        let text = if is_negative { format!("-{digits}") } else { digits };
        match text.parse() {
            Ok(number) => {
                self.parser.advance_token();
                Ok(number)
            }
            Err(_) => Err(self.expected("a number of 64 bits")),
        }
    }
}

/// Takes OVERRIDING { SYSTEM | USER } VALUE out of a script, and returns where each stood.
pub(super) fn take_overriding(tokens: &mut Vec<TokenWithSpan>) -> Vec<(Location, Overriding)> {
    let mut found = Vec::new();
    let mut first = 0;
    while let Some(at) = tokens.iter().skip(first).position(|token| is_word(token, "overriding")) {
        let at = first + at;
        first = at + 1;
        let mut solid = solid_from(tokens, at + 1);
        let (Some((_, which)), Some((end, value))) = (solid.next(), solid.next()) else { break };
        let overriding =
            match (is_word(which, "system"), is_word(which, "user"), is_word(value, "value")) {
                (true, _, true) => Overriding::System,
                (_, true, true) => Overriding::User,
                _ => continue,
            };
        let Some(place) = tokens.get(at).map(|token| token.span.start) else { break };
        found.push((place, overriding));
        drop(solid);
        tokens.drain(at..=end);
    }
    found
}

/// Gives `statement`, which ends before `end`, its own one of `found`.
///
/// # Errors
/// [`Error::Syntax`] where it cannot have any.
pub(super) fn give_overriding(
    found: &mut Vec<(Location, Overriding)>,
    end: Option<Location>,
    statement: &mut Statement,
) -> Result<()> {
    let own = match end {
        Some(end) => found.partition_point(|(place, _)| is_before(*place, end)),
        None => found.len(),
    };
    for (place, overriding) in found.drain(..own) {
        match inserted(statement) {
            Some(insert) if insert.overriding.is_none() => insert.overriding = Some(overriding),
            _ => {
                return Err(Error::Syntax {
                    message: "OVERRIDING is part of INSERT, once".to_owned(),
                    near: Some("OVERRIDING".to_owned()),
                    position: position_of(place),
                });
            }
        }
    }
    Ok(())
}

fn inserted(statement: &mut Statement) -> Option<&mut Insert> {
    match statement {
        Statement::Insert(insert) => Some(insert),
        Statement::Prepare(prepare) => inserted(&mut prepare.statement),
        Statement::Explain { statement, .. } => inserted(statement),
        _ => None,
    }
}
