//! A join in parentheses that begins with a subquery: tokens in, tokens that the parser crate reads once.
//!
//! At `FROM ((SELECT …) a JOIN b …)` the crate first takes the outer parentheses for a query's, reads the subquery,
//! finds a name where they should close, and begins again with a join. A nested one is read four times, and one `n`
//! deep 2ⁿ times. The token behind the subquery's parenthesis decides. LATERAL in front of the subquery tells the
//! crate, and the subquery's name carries a mark by which [`lower_joined`] removes LATERAL again.
//!
//! ```text
//!  FROM ((SELECT 1) a JOIN b ON c) ─▶ FROM (LATERAL (SELECT 1) "␁join a" JOIN b ON c) ─▶ the tree of the original text
//!  FROM ((SELECT 1) UNION SELECT 2) a      a query in its parentheses: unchanged
//! ```

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{TableFactor, VisitorMut};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use super::tokens::is_solid;
use crate::statement::locking::HIDDEN;
use crate::visiting::{Visited, visit_mut};

/// Prefix of the name of a subquery that got its LATERAL here; users cannot write [`HIDDEN`].
fn mark() -> String {
    format!("{HIDDEN}join ")
}

/// Marks such joins; returns whether there is one.
pub(super) fn mark_joined(tokens: Vec<TokenWithSpan>) -> (Vec<TokenWithSpan>, bool) {
    let joined = joined_subqueries(&tokens);
    if joined.is_empty() {
        return (tokens, false);
    }
    let mut additions: Vec<(usize, Addition)> = Vec::with_capacity(joined.len() * 2);
    for Joined { open, name } in joined {
        additions.push((open, Addition::Lateral));
        additions.push(name);
    }
    additions.sort_by_key(|(place, _)| *place);
    let mut additions = additions.into_iter().peekable();
    let mut marked = Vec::with_capacity(tokens.len() + additions.len());
    for (place, mut token) in tokens.into_iter().enumerate() {
        let span = token.span;
        while let Some((_, addition)) = additions.next_if(|(own, _)| *own == place) {
            let word = |value: &str, keyword| {
                let quote_style = (keyword == Keyword::NoKeyword).then_some('"');
                let token = Token::Word(Word { value: value.to_owned(), quote_style, keyword });
                TokenWithSpan { token, span }
            };
            match addition {
                Addition::Lateral => marked.push(word("LATERAL", Keyword::LATERAL)),
                Addition::Name => marked.push(word(&mark(), Keyword::NoKeyword)),
                Addition::Mark => {
                    if let Token::Word(name) = &mut token.token {
                        name.value.insert_str(0, &mark());
                        name.keyword = Keyword::NoKeyword;
                    }
                }
            }
        }
        marked.push(token);
    }
    (marked, true)
}

/// Removes the marks from the parsed tree.
pub(super) fn lower_joined(part: &mut impl Visited) {
    let flow = visit_mut(part, &mut Lower);
    debug_assert!(flow.is_continue(), "nothing stops the visit");
}

struct Lower;

impl VisitorMut for Lower {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { lateral, alias: own_alias, .. } = factor
            && let Some(alias) = own_alias
            && let Some(name) = alias.name.value.strip_prefix(&mark())
        {
            *lateral = false;
            match name.to_owned() {
                name if name.is_empty() => *own_alias = None,
                name => alias.name.value = name,
            }
        }
        ControlFlow::Continue(())
    }
}

/// An insertion before a token, or into it.
#[derive(Clone, Copy)]
enum Addition {
    Lateral,
    /// A name, where the subquery has none.
    Name,
    /// The mark in the name that the token is.
    Mark,
}

/// A subquery with which a join in parentheses begins.
struct Joined {
    /// Its parenthesis.
    open: usize,
    name: (usize, Addition),
}

/// The state of open parentheses.
struct Open {
    place: usize,
    /// They are in a place where a table may be.
    is_table: bool,
    /// They are the first token in the enclosing ones.
    is_first: bool,
    /// Whether they contain a query; None before their first token, and while that is a parenthesis.
    is_query: Option<bool>,
}

fn joined_subqueries(tokens: &[TokenWithSpan]) -> Vec<Joined> {
    let mut solid = tokens.iter().enumerate().filter(|(_, token)| is_solid(token)).peekable();
    let (mut open, mut found): (Vec<Open>, Vec<Joined>) = (Vec::new(), Vec::new());
    let mut before: Option<&Token> = None;
    while let Some((place, token)) = solid.next() {
        match &token.token {
            Token::LParen => {
                let is_table = matches!(before, Some(Token::LParen | Token::Comma))
                    || matches!(
                        before.map(keyword),
                        Some(Keyword::FROM | Keyword::JOIN | Keyword::USING)
                    );
                let is_first = matches!(before, Some(Token::LParen));
                open.push(Open { place, is_table, is_first, is_query: None });
            }
            Token::RParen => {
                let next = solid.peek().map(|(place, token)| (*place, &token.token));
                if let Some(closed) = open.pop()
                    && let Some(around) = open.last_mut().filter(|_| closed.is_first)
                {
                    let is_query = closed.is_query == Some(true);
                    let name = next.and_then(|(place, next)| table_name_at(place, next));
                    around.is_query = Some(is_query && name.is_none());
                    if is_query
                        && around.is_table
                        && let Some(place) = name
                    {
                        found.push(Joined { open: closed.place, name: name_at(tokens, place) });
                    }
                }
            }
            Token::SemiColon => open.clear(),
            other => {
                if let Some(around) = open.last_mut() {
                    around.is_query.get_or_insert(matches!(
                        keyword(other),
                        Keyword::SELECT | Keyword::WITH | Keyword::VALUES | Keyword::TABLE
                    ));
                }
            }
        }
        before = Some(&token.token);
    }
    found
}

/// `place` if the token there, behind a subquery, shows that it is a table: no operator, and nothing that continues a
/// query.
fn table_name_at(place: usize, token: &Token) -> Option<usize> {
    use Keyword as K;
    let Token::Word(word) = token else { return None };
    if word.quote_style.is_some() {
        return Some(place);
    }
    let goes_on = word.value.eq_ignore_ascii_case("isnull")
        || matches!(
            word.keyword,
            K::UNION
                | K::INTERSECT
                | K::EXCEPT
                | K::ORDER
                | K::LIMIT
                | K::OFFSET
                | K::FETCH
                | K::FOR
                | K::AND
                | K::OR
                | K::IS
                | K::IN
                | K::NOT
                | K::LIKE
                | K::ILIKE
                | K::SIMILAR
                | K::BETWEEN
                | K::COLLATE
                | K::AT
                | K::NOTNULL
                | K::OVERLAPS
                | K::OPERATOR
        );
    (!goes_on).then_some(place)
}

/// How to mark the table whose name, AS or JOIN is at `place`.
fn name_at(tokens: &[TokenWithSpan], place: usize) -> (usize, Addition) {
    let mut place = place;
    let mut solid = tokens.iter().enumerate().skip(place).filter(|(_, token)| is_solid(token));
    if let Some((_, first)) = solid.next()
        && keyword(&first.token) == Keyword::AS
        && let Some((second, _)) = solid.next()
    {
        place = second;
    }
    let is_join = tokens.get(place).is_none_or(|token| {
        matches!(
            keyword(&token.token),
            Keyword::JOIN
                | Keyword::CROSS
                | Keyword::NATURAL
                | Keyword::INNER
                | Keyword::LEFT
                | Keyword::RIGHT
                | Keyword::FULL
        )
    });
    (place, if is_join { Addition::Name } else { Addition::Mark })
}

fn keyword(token: &Token) -> Keyword {
    match token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    }
}
