//! DISCARD, and statements that poolers of connections send and that have nothing to do here.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Reader, Statement};
use crate::error::Result;

impl Reader<'_> {
    /// DISCARD ALL, which poolers of connections send.
    pub(super) fn discard(&mut self) -> Result<Statement> {
        self.parser.advance_token();
        match self.take("all") {
            true => Ok(Statement::DiscardAll),
            false => Err(self.expected("ALL")),
        }
    }

    /// A statement of one name or star that has nothing to do here.
    pub(super) fn nothing(&mut self, tag: &'static str) -> Result<Statement> {
        self.parser.advance_token();
        if !self.parser.consume_token(&Token::Mul) {
            self.setting_name()?;
        }
        Ok(Statement::Nothing { tag })
    }
}
