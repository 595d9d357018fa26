//! Identity columns: their options in any order, and the actions of ALTER TABLE for them, which the crate does not
//! know.
//!
//! Options of CREATE TABLE are put in the order in which the crate reads them; it refuses unknown and repeated ones. An
//! ALTER TABLE whose first action is about an identity is read here, and has no others.

use cleave_catalog::error::{Error, Position, Result};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::definitions::Define;
use super::tokens::{is_word, solid_from};
use super::{Reader, Statement};
use crate::statement::alter::{Action, AlterTable};
use crate::statement::names::{fold, table_name};
use crate::statement::sequence::SequenceOptions;

/// Words with which an option begins, in the order of the crate.
const OPTIONS: [&str; 6] = ["increment", "minvalue", "maxvalue", "start", "cache", "cycle"];

/// Puts the options in parentheses behind IDENTITY in the order of [`OPTIONS`].
pub(super) fn order_options(tokens: &mut [TokenWithSpan]) {
    let mut first = 0;
    while let Some(at) = tokens.iter().skip(first).position(|token| is_word(token, "identity")) {
        first += at + 1;
        let mut solid = solid_from(tokens, first);
        let Some((open, _)) = solid.next().filter(|(_, token)| token.token == Token::LParen) else {
            continue;
        };
        let Some((close, _)) = solid.find(|(_, token)| token.token == Token::RParen) else { break };
        drop(solid);
        let Some(inner) = tokens.get_mut(open + 1..close) else { break };
        let mut options: Vec<(usize, Vec<TokenWithSpan>)> = Vec::new();
        let mut is_no = false;
        for token in inner.iter() {
            let rank = OPTIONS.iter().position(|word| is_word(token, word));
            match (rank, options.last_mut()) {
                (Some(rank), Some((known, option))) if is_no => {
                    *known = rank;
                    option.push(token.clone());
                    is_no = false;
                }
                (Some(rank), _) => options.push((rank, vec![token.clone()])),
                (None, _) if is_word(token, "no") => {
                    options.push((OPTIONS.len(), vec![token.clone()]));
                    is_no = true;
                }
                (None, Some((_, option))) => option.push(token.clone()),
                (None, None) => options.push((0, vec![token.clone()])),
            }
        }
        options.sort_by_key(|(rank, _)| *rank);
        let ordered = options.into_iter().flat_map(|(_, option)| option);
        // White space between two options now stands behind the first, and so may be at the end.
        inner.iter_mut().zip(ordered).for_each(|(place, token)| *place = token);
        first = close;
    }
}

impl Reader<'_> {
    /// ALTER TABLE whose first action is about an identity, if it is one.
    pub(super) fn alter_identity(&mut self) -> Result<Option<Statement>> {
        if !self.is_alter_identity() {
            return Ok(None);
        }
        let (if_exists, table, position) = self.altered_table()?;
        let mut actions = Vec::new();
        loop {
            if !self.take("alter") {
                return Err(Error::unsupported(
                    "ALTER TABLE of an identity, and something else, in one",
                ));
            }
            let _ = self.take("column");
            let column = self.parser.parse_identifier().map_err(|error| self.syntax(error))?;
            actions.push(self.identity_action(fold(&column))?);
            if !self.parser.consume_token(&Token::Comma) {
                break;
            }
        }
        let alter = AlterTable { table, if_exists, is_materialized: false, actions, position };
        Ok(Some(Statement::Define(Box::new(Define::AlterTable(alter)))))
    }

    /// For ALTER TABLE: where the word behind the table's name stands.
    pub(super) fn behind_altered_table(&self) -> Option<usize> {
        if self.word_at(0) != "alter" || self.word_at(1) != "table" {
            return None;
        }
        let is = |place: usize, word: &str| self.word_at(place) == word;
        let mut place = 2;
        if is(place, "if") && is(place + 1, "exists") {
            place += 2;
        }
        place += usize::from(is(place, "only"));
        while self.parser.peek_nth_token(place + 1).token == Token::Period {
            place += 2;
        }
        Some(place + 1)
    }

    /// The words in front of the actions of ALTER TABLE: whether the table need not be there, its name, and where that
    /// stands.
    pub(super) fn altered_table(&mut self) -> Result<(bool, String, Option<Position>)> {
        (0..2).for_each(|_| self.parser.advance_token());
        let if_exists = self.if_exists()?;
        let _ = self.take("only");
        let (table, position) = self.table()?;
        Ok((if_exists, table, position))
    }

    fn is_alter_identity(&self) -> bool {
        let Some(mut place) = self.behind_altered_table() else { return false };
        let is = |place: usize, word: &str| self.word_at(place) == word;
        if !is(place, "alter") {
            return false;
        }
        place += 1 + usize::from(is(place + 1, "column"));
        let words = (self.word_at(place + 1), self.word_at(place + 2));
        match (words.0.as_str(), words.1.as_str()) {
            ("add", "generated") | ("drop", "identity") | ("restart", _) => true,
            ("set", word) => {
                OPTIONS.contains(&word) || matches!(word, "generated" | "no" | "restart")
            }
            _ => false,
        }
    }

    fn identity_action(&mut self, column: String) -> Result<Action> {
        if self.take("drop") {
            self.must_take("identity")?;
            let if_exists = self.if_exists()?;
            return Ok(Action::DropIdentity { column, if_exists });
        }
        if self.take("add") {
            self.must_take("generated")?;
            let is_always = self.always()?;
            self.must_take("as")?;
            self.must_take("identity")?;
            let (mut options, mut name) = (SequenceOptions::default(), None);
            if self.parser.consume_token(&Token::LParen) {
                while !self.parser.consume_token(&Token::RParen) {
                    if self.take("sequence") {
                        self.must_take("name")?;
                        let given = self.parser.parse_object_name(false);
                        name = Some(table_name(&given.map_err(|error| self.syntax(error))?)?);
                        continue;
                    }
                    self.identity_option(&mut options)?;
                }
            }
            return Ok(Action::AddIdentity { column, is_always, options: Box::new(options), name });
        }
        let (mut options, mut is_always) = (SequenceOptions::default(), None);
        loop {
            if self.word_at(0) == "restart" {
                self.identity_option(&mut options)?;
            } else if self.take("set") {
                match self.take("generated") {
                    true => is_always = Some(self.always()?),
                    false => self.identity_option(&mut options)?,
                }
            } else {
                break;
            }
        }
        Ok(Action::SetIdentity { column, is_always, options: Box::new(options) })
    }

    fn identity_option(&mut self, options: &mut SequenceOptions) -> Result<()> {
        if matches!(self.word_at(0).as_str(), "as" | "owned") {
            return Err(self.expected("an option of an identity"));
        }
        self.sequence_option(options)
    }

    fn always(&mut self) -> Result<bool> {
        if self.take("always") {
            return Ok(true);
        }
        self.must_take("by")?;
        self.must_take("default")?;
        Ok(false)
    }
}
