//! ALTER SYSTEM.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Reader, Statement};
use crate::error::Result;

impl Reader<'_> {
    /// Whether the next words are ALTER SYSTEM.
    pub(super) fn is_alter_system(&self) -> bool {
        matches!(self.parser.peek_nth_token(1).token, Token::Word(word)
            if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("system"))
    }

    /// ALTER SYSTEM SET name { TO | = } value, ALTER SYSTEM RESET name.
    pub(super) fn alter_system(&mut self) -> Result<Statement> {
        self.parser.advance_token();
        self.parser.advance_token();
        if self.take("reset") {
            return Ok(Statement::AlterSystem { name: self.setting_name()?, value: None });
        }
        if !self.take("set") {
            return Err(self.expected("SET or RESET"));
        }
        let name = self.setting_name()?;
        if !self.parser.consume_token(&Token::Eq) && !self.take("to") {
            return Err(self.expected("= or TO"));
        }
        Ok(Statement::AlterSystem { name, value: self.setting_value()? })
    }
}
