//! SET, RESET and SHOW: tokens in, statements out.
//!
//! Source: PostgreSQL's manual, "SET", "RESET", "SHOW".

use cleave_catalog::error::Result;
use cleave_catalog::settings::{SearchPath, check_length};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Reader, Statement};

/// How long a SET holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Until it is set again.
    Session,
    /// To the end of the transaction: SET LOCAL.
    Transaction,
}

impl Reader<'_> {
    /// SET [SESSION | LOCAL] name { TO | = } { value [, ...] | DEFAULT }, SET TIME ZONE value, SET NAMES value, SET
    /// SCHEMA value; SET TRANSACTION and the like.
    pub(super) fn set(&mut self) -> Result<Statement> {
        self.parser.advance_token();
        if self.take("transaction") {
            return self.set_transaction();
        }
        if self.take("constraints") {
            return self.set_constraints();
        }
        let scope = match self.take("local") {
            true => Scope::Transaction,
            false => Scope::Session,
        };
        // SESSION may also begin SESSION CHARACTERISTICS.
        if scope == Scope::Session && self.take("session") && self.take("characteristics") {
            return self.set_characteristics();
        }
        if self.take("time") {
            if !self.take("zone") {
                return Err(self.expected("ZONE"));
            }
            return self.set_zone(scope);
        }
        if self.take("names") {
            return self.set_to("client_encoding".into(), scope);
        }
        if self.take("schema") {
            return self.set_to("search_path".into(), scope);
        }
        let name = self.setting_name()?;
        if !self.parser.consume_token(&Token::Eq) && !self.take("to") {
            return Err(self.expected("= or TO"));
        }
        self.set_to(name, scope)
    }

    /// SET TIME ZONE { value | LOCAL | DEFAULT | INTERVAL 'offset' [HOUR TO MINUTE] }.
    fn set_zone(&mut self, scope: Scope) -> Result<Statement> {
        let name = "TimeZone".to_owned();
        if self.take("local") {
            return Ok(Statement::Set { name, value: None, scope });
        }
        if !self.take("interval") {
            return self.set_to(name, scope);
        }
        let offset = self.string("an offset from UTC in single quotes")?;
        if self.take("hour") {
            self.must_take("to")?;
            self.must_take("minute")?;
        }
        let is_zero = !offset.is_empty() && offset.chars().all(|one| "+-0:".contains(one));
        let value = Some(if is_zero { "UTC".to_owned() } else { offset });
        Ok(Statement::Set { name, value, scope })
    }

    fn set_to(&mut self, name: String, scope: Scope) -> Result<Statement> {
        let value = match name.eq_ignore_ascii_case("search_path") {
            true => self.path_value()?,
            false => self.setting_value()?,
        };
        Ok(Statement::Set { name, value, scope })
    }

    /// A list of schemas: each is a name whatever is in its string.
    fn path_value(&mut self) -> Result<Option<String>> {
        if self.take("default") {
            return Ok(None);
        }
        let (mut names, mut byte_count) = (Vec::new(), 0);
        loop {
            names.push(match self.parser.peek_token().token {
                Token::Word(word) if word.quote_style.is_none() => {
                    self.parser.advance_token();
                    word.value.to_ascii_lowercase()
                }
                _ => self.option_value()?,
            });
            byte_count += names.last().map_or(0, String::len) + ", ".len();
            check_length(byte_count)?;
            if !self.parser.consume_token(&Token::Comma) {
                return Ok(Some(SearchPath::listed(&names)));
            }
        }
    }

    pub(super) fn reset(&mut self) -> Result<Statement> {
        self.parser.advance_token();
        if self.take("all") {
            return Ok(Statement::ResetAll);
        }
        Ok(Statement::Set { name: self.setting_name()?, value: None, scope: Scope::Session })
    }

    pub(super) fn show(&mut self) -> Result<Statement> {
        self.parser.advance_token();
        if self.take("all") {
            return Ok(Statement::ShowAll);
        }
        if self.take("tables") {
            return Ok(Statement::ShowTables);
        }
        if self.take("statistics") {
            let table = if self.take("for") { Some(self.table()?.0) } else { None };
            return Ok(Statement::ShowStatistics { table });
        }
        if self.take("time") {
            if !self.take("zone") {
                return Err(self.expected("ZONE"));
            }
            return Ok(Statement::Show { name: "TimeZone".into() });
        }
        if self.take("transaction") {
            return match self.take("isolation") && self.take("level") {
                true => Ok(Statement::Show { name: "transaction_isolation".into() }),
                false => Err(self.expected("ISOLATION LEVEL")),
            };
        }
        Ok(Statement::Show { name: self.setting_name()? })
    }

    pub(super) fn setting_name(&mut self) -> Result<String> {
        let Token::Word(word) = self.parser.peek_token().token else {
            return Err(self.expected("the name of a setting"));
        };
        self.parser.advance_token();
        let mut name = word.value;
        while self.parser.consume_token(&Token::Period) {
            let Token::Word(word) = self.parser.peek_token().token else {
                return Err(self.expected("the name of a setting"));
            };
            self.parser.advance_token();
            name = format!("{name}.{}", word.value);
        }
        Ok(name)
    }

    /// One value, or several joined by commas as `DateStyle` has them. `64 MB` needs quotes, `64MB` does not.
    pub(super) fn setting_value(&mut self) -> Result<Option<String>> {
        if self.take("default") {
            return Ok(None);
        }
        let mut value = String::new();
        loop {
            let sign = if self.parser.consume_token(&Token::Minus) { "-" } else { "" };
            value.push_str(sign);
            let number = matches!(self.parser.peek_token().token, Token::Number(..));
            value.push_str(&self.option_value()?);
            check_length(value.len())?;
            // The tokenizer reads 64MB as the number 64 and the word MB.
            if let Token::Word(unit) = self.parser.peek_token().token
                && number
            {
                self.parser.advance_token();
                value.push_str(&unit.value);
            }
            if !self.parser.consume_token(&Token::Comma) {
                return Ok(Some(value));
            }
            value.push_str(", ");
        }
    }
}
