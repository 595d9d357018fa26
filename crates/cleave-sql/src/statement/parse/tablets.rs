//! ALTER TABLE … MOVE TABLET and REBALANCE: tablets of a table go to other devices. PostgreSQL has no such actions, and
//! a statement has no other action beside them.

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
}

impl Placing {
    /// Its name in errors.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Move { .. } => "ALTER TABLE ... MOVE TABLET",
            Self::Rebalance { .. } => "ALTER TABLE ... REBALANCE",
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
        self.place_tablets(altered).map(Some)
    }

    /// Whether MOVE TABLET or REBALANCE stands `place` tokens ahead.
    pub(super) fn moves_tablets(&self, place: usize) -> bool {
        match self.word_at(place).as_str() {
            "rebalance" => true,
            "move" => self.word_at(place + 1) == "tablet",
            _ => false,
        }
    }

    /// What stands behind the name of the table, which need not be there, and whose name stands at `position`.
    pub(super) fn place_tablets(
        &mut self,
        (if_exists, table, position): (bool, String, Option<Position>),
    ) -> Result<Statement> {
        let placing = if self.take("rebalance") {
            Placing::Rebalance { to: self.targets()? }
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
        let place = PlaceTablets { table, if_exists, position, placing };
        Ok(Statement::Define(Box::new(Define::PlaceTablets(place))))
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
