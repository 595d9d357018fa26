//! Statements about the database as a whole: ALTER SYSTEM, BACKUP.

use std::path::PathBuf;

use cleave_catalog::error::Result;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Reader, Statement};

/// A statement about the database as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SystemStatement {
    /// ALTER SYSTEM SET name = value, ALTER SYSTEM RESET name.
    Alter {
        /// The setting.
        name: String,
        /// Its value; None: the default.
        value: Option<String>,
    },
    /// BACKUP TO 'directory'.
    Backup {
        /// The folder.
        target: PathBuf,
    },
}

impl Reader<'_> {
    /// BACKUP TO 'directory', or CHECKPOINT, as `word` says.
    pub(super) fn backup_or_checkpoint(&mut self, word: &str) -> Result<Statement> {
        self.parser.advance_token();
        if word == "checkpoint" {
            return Ok(Statement::Checkpoint);
        }
        if !self.take("to") {
            return Err(self.expected("TO"));
        }
        let target = self.string("the name of a folder, in quotes")?.into();
        Ok(Statement::System(SystemStatement::Backup { target }))
    }

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
            let name = self.setting_name()?;
            return Ok(Statement::System(SystemStatement::Alter { name, value: None }));
        }
        if !self.take("set") {
            return Err(self.expected("SET or RESET"));
        }
        let name = self.setting_name()?;
        if !self.parser.consume_token(&Token::Eq) && !self.take("to") {
            return Err(self.expected("= or TO"));
        }
        let value = self.setting_value()?;
        Ok(Statement::System(SystemStatement::Alter { name, value }))
    }
}
