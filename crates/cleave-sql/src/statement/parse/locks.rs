//! LOCK TABLE, and locking clauses that the parser crate does not read: tokens in, tokens that it reads or
//! [`LockTable`] out.
//!
//! Source: PostgreSQL's manual, "The Locking Clause" and "LOCK".

use cleave_catalog::error::{Position, Result};
use cleave_txn::LockMode;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use super::tokens::{is_solid, solid_from};
use super::{Reader, Statement};
use crate::statement::locking::locking_names;
use crate::statement::names::fold;

/// LOCK TABLE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockTable {
    /// The tables, and where their names stand.
    pub tables: Vec<(String, Option<Position>)>,
    /// IN … MODE.
    pub mode: LockMode,
    /// NOWAIT.
    pub nowait: bool,
}

/// Writes `FOR [NO KEY] UPDATE | [KEY] SHARE [OF a, b]` as the parser crate reads it: without KEY, and with one name
/// behind OF that encodes all of it.
pub(super) fn lower_locking_clauses(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_lock = |token: &TokenWithSpan| {
        let keyword = keyword(&token.token);
        keyword == Keyword::UPDATE || keyword == Keyword::SHARE
    };
    let is_for = |token: &TokenWithSpan| keyword(&token.token) == Keyword::FOR;
    if !tokens.iter().any(is_for) || !tokens.iter().any(is_lock) {
        return tokens;
    }
    let mut lowered = Vec::with_capacity(tokens.len() + 4);
    let mut rest = tokens.as_slice();
    let mut depth = 0_usize;
    // Clauses that stand before the LIMIT of their query, with the depth of its parentheses.
    let mut held: Vec<(usize, Vec<TokenWithSpan>)> = Vec::new();
    while let Some((first, behind)) = rest.split_first() {
        let ends_query = matches!(first.token, Token::RParen | Token::SemiColon | Token::EOF)
            || matches!(keyword(&first.token), Keyword::ON | Keyword::RETURNING);
        if ends_query && let Some((_, mut clauses)) = held.pop_if(|(own, _)| *own >= depth) {
            lowered.append(&mut clauses);
        }
        match first.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        match clause(rest) {
            Some((mut clause, length)) => {
                let (mut clauses, length) =
                    (Vec::new(), length + wait_length(rest, length, &mut clause));
                clauses.append(&mut clause);
                rest = rest.get(length..).unwrap_or_default();
                let next = solid_from(rest, 0).next().map(|(_, token)| keyword(&token.token));
                let is_before =
                    matches!(next, Some(Keyword::LIMIT | Keyword::OFFSET | Keyword::FETCH));
                match held.last_mut() {
                    Some((own, clauses_held)) if *own == depth => clauses_held.append(&mut clauses),
                    _ if is_before || next == Some(Keyword::FOR) && is_before_count(rest) => {
                        held.push((depth, clauses));
                    }
                    _ => {
                        if ends_in_list(&lowered) {
                            lowered.extend(limit_all(first));
                        }
                        lowered.append(&mut clauses);
                    }
                }
            }
            None => {
                lowered.push(first.clone());
                rest = behind;
            }
        }
    }
    for (_, mut clauses) in held {
        lowered.append(&mut clauses);
    }
    lowered
}

/// Appends NOWAIT or SKIP LOCKED behind a clause of `length` tokens to it, and gives their number.
fn wait_length(tokens: &[TokenWithSpan], length: usize, clause: &mut Vec<TokenWithSpan>) -> usize {
    let mut words = solid_from(tokens, length);
    let (Some((first, word)), second) = (words.next(), words.next()) else { return 0 };
    let last = match (keyword(&word.token), second) {
        (Keyword::NOWAIT, _) => first,
        (Keyword::SKIP, Some((second, locked))) if keyword(&locked.token) == Keyword::LOCKED => {
            second
        }
        _ => return 0,
    };
    clause.extend(tokens.get(length..=last).unwrap_or_default().iter().cloned());
    last + 1 - length
}

/// Whether further clauses with which `tokens` begin stand before a LIMIT.
fn is_before_count(tokens: &[TokenWithSpan]) -> bool {
    let mut rest = tokens;
    while let Some((place, _)) = solid_from(rest, 0).next() {
        rest = rest.get(place..).unwrap_or_default();
        let Some((mut found, length)) = clause(rest) else {
            let next = rest.first().map(|token| keyword(&token.token));
            return matches!(next, Some(Keyword::LIMIT | Keyword::OFFSET | Keyword::FETCH));
        };
        let length = length + wait_length(rest, length, &mut found);
        rest = rest.get(length..).unwrap_or_default();
    }
    false
}

fn keyword(token: &Token) -> Keyword {
    match token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

/// Whether `tokens` end in the list of a SELECT without FROM: there the parser crate takes FOR for a name.
fn ends_in_list(tokens: &[TokenWithSpan]) -> bool {
    let mut depth = 0_usize;
    let mut spoken = tokens.iter().rev().filter(|token| is_solid(token));
    while let Some(token) = spoken.next() {
        match (&token.token, keyword(&token.token)) {
            (Token::RParen, _) => depth += 1,
            (Token::LParen, _) if depth == 0 => return false,
            (Token::LParen, _) => depth -= 1,
            (Token::SemiColon, _) => return false,
            _ if depth > 0 => {}
            (_, Keyword::SELECT) => return true,
            // IS DISTINCT FROM
            (_, Keyword::FROM) => {
                let before = spoken.next().map(|token| keyword(&token.token));
                if before != Some(Keyword::DISTINCT) {
                    return false;
                }
            }
            (
                _,
                Keyword::WHERE
                | Keyword::GROUP
                | Keyword::HAVING
                | Keyword::ORDER
                | Keyword::LIMIT
                | Keyword::OFFSET
                | Keyword::FETCH
                | Keyword::VALUES,
            ) => return false,
            _ => {}
        }
    }
    false
}

/// `LIMIT ALL`, which has no effect and ends the list, at `place`.
fn limit_all(place: &TokenWithSpan) -> [TokenWithSpan; 2] {
    [("LIMIT", Keyword::LIMIT), ("ALL", Keyword::ALL)].map(|(value, keyword)| {
        let token = Token::Word(Word { value: value.to_owned(), quote_style: None, keyword });
        TokenWithSpan { token, span: place.span }
    })
}

/// The clause with which `tokens` begin, rewritten, and the number of its tokens.
fn clause(tokens: &[TokenWithSpan]) -> Option<(Vec<TokenWithSpan>, usize)> {
    // Only a few tokens are examined: for a list of names, as many as it has.
    let mut words = solid_from(tokens, 0).peekable();
    let (_, word) = words.next()?;
    if keyword(&word.token) != Keyword::FOR {
        return None;
    }
    let mut lowered = vec![word.clone()];
    let mut next = words.next()?;
    let mut is_weak = false;
    if keyword(&next.1.token) == Keyword::NO {
        next = words.next()?;
        if keyword(&next.1.token) != Keyword::KEY {
            return None;
        }
        next = words.next()?;
        is_weak = true;
        if keyword(&next.1.token) != Keyword::UPDATE {
            return None;
        }
    } else if keyword(&next.1.token) == Keyword::KEY {
        next = words.next()?;
        is_weak = true;
        if keyword(&next.1.token) != Keyword::SHARE {
            return None;
        }
    }
    if !matches!(keyword(&next.1.token), Keyword::UPDATE | Keyword::SHARE) {
        return None;
    }
    let (mut last, strength) = next;
    lowered.push(strength.clone());
    let mut of = Vec::new();
    if words.peek().is_some_and(|(_, token)| keyword(&token.token) == Keyword::OF) {
        words.next();
        loop {
            let (place, name) = words.next()?;
            let Token::Word(word) = &name.token else { return None };
            last = place;
            of.push(fold(&ast::Ident {
                value: word.value.clone(),
                quote_style: word.quote_style,
                span: name.span,
            }));
            if words.next_if(|(_, token)| token.token == Token::Comma).is_none() {
                break;
            }
        }
    }
    if is_weak || !of.is_empty() {
        let word = |value: String, quote_style, keyword| {
            let token = Token::Word(Word { value, quote_style, keyword });
            TokenWithSpan { token, span: strength.span }
        };
        lowered.push(word("OF".to_owned(), None, Keyword::OF));
        lowered.push(word(locking_names(is_weak, &of), Some('"'), Keyword::NoKeyword));
    }
    Some((lowered, last + 1))
}

impl Reader<'_> {
    /// LOCK [TABLE] [ONLY] name [*] [, …] [IN mode MODE] [NOWAIT].
    pub(super) fn lock(&mut self) -> Result<Statement> {
        self.parser.advance_token();
        let _ = self.take("table");
        let mut tables = Vec::new();
        loop {
            let _ = self.take("only");
            tables.push(self.table()?);
            let _ = self.parser.consume_token(&Token::Mul);
            if !self.parser.consume_token(&Token::Comma) {
                break;
            }
        }
        let mode = if self.take("in") { self.lock_mode()? } else { LockMode::AccessExclusive };
        let nowait = self.take("nowait");
        Ok(Statement::LockTable(LockTable { tables, mode, nowait }))
    }

    /// The name of a mode, and MODE.
    fn lock_mode(&mut self) -> Result<LockMode> {
        let mut words = Vec::new();
        while !self.take("mode") {
            let known = ["access", "row", "share", "update", "exclusive"];
            let Some(word) = known.into_iter().find(|word| self.take(word)) else {
                return Err(self.expected("a lock mode and MODE"));
            };
            words.push(word.to_uppercase());
        }
        let name = words.join(" ");
        let modes = LockMode::ALL.into_iter().filter(|mode| mode.is_for_tables());
        let found = modes.into_iter().find(|mode| mode.to_string() == name);
        found.ok_or_else(|| self.expected("one of PostgreSQL's eight lock modes"))
    }
}
