//! Transaction modes of BEGIN and SET TRANSACTION: tokens in, [`Modes`] out.
//!
//! Source: PostgreSQL's manual, "SET TRANSACTION".

use cleave_catalog::error::{Error, Result};
use cleave_catalog::settings::Isolation;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Reader, Statement};

/// The modes in a statement; None: the setting decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Modes {
    /// ISOLATION LEVEL.
    pub isolation: Option<Isolation>,
    /// READ ONLY, READ WRITE.
    pub read_only: Option<bool>,
    /// DEFERRABLE, NOT DEFERRABLE.
    pub deferrable: Option<bool>,
}

impl Reader<'_> {
    /// BEGIN [WORK | TRANSACTION] [modes], START TRANSACTION [modes].
    pub(super) fn begin(&mut self) -> Result<Statement> {
        let starts = self.take("start");
        if !starts {
            self.parser.advance_token();
        }
        let is_named = self.take("transaction") || (!starts && self.take("work"));
        if starts && !is_named {
            return Err(self.expected("TRANSACTION"));
        }
        self.modes().map(Statement::Begin)
    }

    /// Modes, behind SET TRANSACTION.
    pub(super) fn set_transaction(&mut self) -> Result<Statement> {
        if self.take("snapshot") {
            return Err(Error::unsupported("SET TRANSACTION SNAPSHOT"));
        }
        self.some_modes().map(Statement::SetTransaction)
    }

    /// AS TRANSACTION modes, behind SET SESSION CHARACTERISTICS.
    pub(super) fn set_characteristics(&mut self) -> Result<Statement> {
        if !self.take("as") || !self.take("transaction") {
            return Err(self.expected("AS TRANSACTION"));
        }
        self.some_modes().map(Statement::SetCharacteristics)
    }

    fn some_modes(&mut self) -> Result<Modes> {
        match self.modes()? {
            modes if modes == Modes::default() => Err(self.expected("a mode of transactions")),
            modes => Ok(modes),
        }
    }

    /// `ISOLATION LEVEL … | READ ONLY | READ WRITE | [NOT] DEFERRABLE`, with commas between them or without.
    fn modes(&mut self) -> Result<Modes> {
        let mut modes = Modes::default();
        loop {
            if self.take("isolation") {
                modes.isolation = Some(self.isolation_level()?);
            } else if self.take("read") {
                modes.read_only = Some(self.take("only"));
                if modes.read_only == Some(false) && !self.take("write") {
                    return Err(self.expected("ONLY or WRITE"));
                }
            } else if self.take("deferrable") {
                modes.deferrable = Some(true);
            } else if self.take("not") {
                if !self.take("deferrable") {
                    return Err(self.expected("DEFERRABLE"));
                }
                modes.deferrable = Some(false);
            } else {
                return Ok(modes);
            }
            let has_comma = self.parser.consume_token(&Token::Comma);
            let is_over = matches!(self.parser.peek_token().token, Token::EOF | Token::SemiColon);
            if has_comma && is_over {
                return Err(self.expected("a mode of transactions"));
            }
        }
    }

    fn isolation_level(&mut self) -> Result<Isolation> {
        if !self.take("level") {
            return Err(self.expected("LEVEL"));
        }
        if self.take("serializable") {
            return Ok(Isolation::Serializable);
        }
        let (reads, repeats) = (self.take("read"), self.take("repeatable"));
        // READ UNCOMMITTED is READ COMMITTED, as in PostgreSQL.
        if reads && (self.take("committed") || self.take("uncommitted")) {
            return Ok(Isolation::ReadCommitted);
        }
        if repeats && self.take("read") {
            return Ok(Isolation::RepeatableRead);
        }
        Err(self.expected("READ COMMITTED, REPEATABLE READ or SERIALIZABLE"))
    }
}
