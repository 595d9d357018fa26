//! ALTER TABLE … MOVE TABLET, REBALANCE and SET (rebalance = …): tablets of a table go to other devices. PostgreSQL has
//! no such actions, and a statement has no other action beside them.

use cleave_catalog::catalog::autovacuum::switch;
use cleave_catalog::error::{Position, Result};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::definitions::Define;
use super::{Reader, Statement};

/// ALTER TABLE, or ALTER MATERIALIZED VIEW, that moves tablets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceTablets {
    /// The table.
    pub table: String,
    /// A table that does not exist is no error.
    pub if_exists: bool,
    /// ALTER MATERIALIZED VIEW: it must be one.
    pub is_materialized: bool,
    /// Where the table's name stands.
    pub position: Option<Position>,
    /// Which tablets go where.
    pub placing: Placing,
}

/// Which tablets go where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placing {
    /// MOVE TABLET number, … TO device.
    Move {
        /// The numbers of the tablets.
        tablets: Vec<u32>,
        /// The device.
        to: String,
    },
    /// REBALANCE [TO device, …].
    Rebalance {
        /// The devices; empty: those on which the table lies.
        to: Vec<String>,
    },
    /// SET (rebalance = on | off), or RESET (rebalance): whether they move by themselves.
    ByItself(bool),
}

impl Placing {
    /// Its name in errors.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Move { .. } => "ALTER TABLE ... MOVE TABLET",
            Self::Rebalance { .. } => "ALTER TABLE ... REBALANCE",
            Self::ByItself(_) => "ALTER TABLE ... SET (rebalance)",
        }
    }
}

impl Reader<'_> {
    /// ALTER TABLE that moves tablets, if it is one.
    pub(super) fn alter_tablets(&mut self) -> Result<Option<Statement>> {
        let Some(place) = self.behind_altered_table() else { return Ok(None) };
        if !self.moves_tablets(place) {
            return Ok(None);
        }
        let altered = self.altered_table()?;
        self.place_tablets(altered, false).map(Some)
    }

    /// Whether MOVE TABLET, REBALANCE, SET (rebalance or RESET (rebalance stands `place` tokens ahead.
    pub(super) fn moves_tablets(&self, place: usize) -> bool {
        match self.word_at(place).as_str() {
            "rebalance" => true,
            "move" => self.word_at(place + 1) == "tablet",
            "set" | "reset" => {
                self.parser.peek_nth_token(place + 1).token == Token::LParen
                    && self.word_at(place + 2) == "rebalance"
            }
            _ => false,
        }
    }

    /// What stands behind the name of the table, which need not be there, and whose name stands at `position`; whether
    /// it must be a materialized view.
    pub(super) fn place_tablets(
        &mut self,
        (if_exists, table, position): (bool, String, Option<Position>),
        is_materialized: bool,
    ) -> Result<Statement> {
        let placing = if self.take("rebalance") {
            Placing::Rebalance { to: self.targets()? }
        } else if self.take("set") {
            Placing::ByItself(self.by_itself(true)?)
        } else if self.take("reset") {
            Placing::ByItself(self.by_itself(false)?)
        } else {
            self.must_take("move")?;
            self.must_take("tablet")?;
            let mut tablets = vec![self.tablet_number()?];
            while self.parser.consume_token(&Token::Comma) {
                tablets.push(self.tablet_number()?);
            }
            self.must_take("to")?;
            Placing::Move { tablets, to: self.device_name()? }
        };
        let place = PlaceTablets { table, if_exists, is_materialized, position, placing };
        Ok(Statement::Define(Box::new(Define::PlaceTablets(place))))
    }

    /// `(rebalance)`, or, where it may have a value, `(rebalance = on | off)`: what it is set to.
    fn by_itself(&mut self, may_have_value: bool) -> Result<bool> {
        self.parser.advance_token();
        self.must_take("rebalance")?;
        let mut is_on = may_have_value;
        if may_have_value && self.parser.consume_token(&Token::Eq) {
            let value = match self.parser.peek_token().token {
                Token::Word(word) => word.value,
                Token::Number(text, _) | Token::SingleQuotedString(text) => text,
                _ => String::new(),
            };
            is_on = switch(&value).ok_or_else(|| self.expected("on or off"))?;
            self.parser.advance_token();
        }
        match self.parser.consume_token(&Token::RParen) {
            true => Ok(is_on),
            false => Err(self.expected("a closing parenthesis")),
        }
    }

    fn tablet_number(&mut self) -> Result<u32> {
        let number = match self.parser.peek_token().token {
            Token::Number(digits, _) => digits.parse::<u32>().ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| self.expected("the number of a tablet"))?;
        self.parser.advance_token();
        Ok(number)
    }
}
