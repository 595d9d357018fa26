//! DISCARD, and statements of connection poolers that have no effect here.

use cleave_catalog::error::Result;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Reader, Statement};

/// What DISCARD resets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discard {
    /// All of the session's state.
    All,
    /// Cached plans, which depend on no catalog version here, and so stay.
    Plans,
    /// The last numbers drawn from sequences.
    Sequences,
    /// Its temporary tables, views and sequences.
    Temporary,
}

impl Reader<'_> {
    /// DISCARD, which poolers of connections send.
    pub(super) fn discard(&mut self) -> Result<Statement> {
        self.parser.advance_token();
        let words = [
            ("all", Discard::All),
            ("plans", Discard::Plans),
            ("sequences", Discard::Sequences),
            ("temp", Discard::Temporary),
            ("temporary", Discard::Temporary),
        ];
        let said = words.into_iter().find(|(word, _)| self.take(word));
        let said = said.ok_or_else(|| self.expected("ALL, PLANS, SEQUENCES or TEMP"))?;
        Ok(Statement::Discard(said.1))
    }

    /// A statement of one name or star that has no effect here.
    pub(super) fn nothing(&mut self, tag: &'static str) -> Result<Statement> {
        self.parser.advance_token();
        if !self.parser.consume_token(&Token::Mul) {
            self.setting_name()?;
        }
        Ok(Statement::Nothing { tag })
    }
}
