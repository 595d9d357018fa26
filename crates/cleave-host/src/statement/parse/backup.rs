//! BACKUP TO 'directory'.

use super::{Reader, Statement};
use crate::error::Result;

impl Reader<'_> {
    /// BACKUP TO 'directory'.
    pub(super) fn backup(&mut self) -> Result<Statement> {
        self.parser.advance_token();
        if !self.take("to") {
            return Err(self.expected("TO"));
        }
        let target = self.string("the name of a folder, in quotes")?;
        Ok(Statement::Backup { target: target.into() })
    }
}
