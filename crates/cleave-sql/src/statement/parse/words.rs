//! Words of PostgreSQL that the parser crate does not read: `TABLE t` is `SELECT * FROM t`, `current_role` and
//! `current_schema` are functions without parentheses, ABORT is ROLLBACK, and an UNLOGGED table is logged. Tokens in,
//! tokens that it reads out.
//!
//! Source: PostgreSQL's manual, "SELECT", "System Information Functions", "ABORT".

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};

/// The tokens before a token, in its statement.
#[derive(Debug, Default)]
struct Before {
    /// The statement's first word.
    first: Option<Keyword>,
    /// The last word or sign.
    last: Option<Token>,
    depth: usize,
    /// A query has begun outside of parentheses.
    has_query: bool,
    /// It is REASSIGN OWNED, which is no keyword of the crate.
    is_reassign: bool,
}

/// Rewrites what the crate does not read.
pub(super) fn lower_words(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_concerned = |token: &TokenWithSpan| {
        matches!(
            keyword(&token.token),
            Keyword::TABLE
                | Keyword::CURRENT_ROLE
                | Keyword::CURRENT_SCHEMA
                | Keyword::ABORT
                | Keyword::UNLOGGED
        )
    };
    if !tokens.iter().any(is_concerned) {
        return tokens;
    }
    let mut lowered = Vec::with_capacity(tokens.len() + 4);
    let mut before = Before::default();
    for (place, token) in tokens.iter().enumerate() {
        if matches!(token.token, Token::Whitespace(_)) {
            lowered.push(token.clone());
            continue;
        }
        let next = tokens.iter().skip(place + 1);
        let next =
            next.map(|token| &token.token).find(|next| !matches!(next, Token::Whitespace(_)));
        let put = |added: Token, lowered: &mut Vec<TokenWithSpan>| {
            lowered.push(TokenWithSpan { token: added, span: token.span });
        };
        match keyword(&token.token) {
            Keyword::TABLE if before.takes_query() && matches!(next, Some(Token::Word(_))) => {
                put(word("SELECT", Keyword::SELECT), &mut lowered);
                put(Token::Mul, &mut lowered);
                put(word("FROM", Keyword::FROM), &mut lowered);
                before.note(&word("SELECT", Keyword::SELECT));
                before.note(&word("FROM", Keyword::FROM));
                continue;
            }
            Keyword::CURRENT_ROLE | Keyword::CURRENT_SCHEMA
                if before.takes_value() && next != Some(&Token::LParen) =>
            {
                lowered.push(token.clone());
                put(Token::LParen, &mut lowered);
                put(Token::RParen, &mut lowered);
            }
            Keyword::UNLOGGED
                if before.first == Some(Keyword::CREATE)
                    && before
                        .last
                        .as_ref()
                        .is_some_and(|last| keyword(last) == Keyword::CREATE)
                    && next.is_some_and(|next| keyword(next) == Keyword::TABLE) =>
            {
                continue;
            }
            Keyword::ABORT if before.first.is_none() => {
                put(word("ROLLBACK", Keyword::ROLLBACK), &mut lowered);
            }
            _ => lowered.push(token.clone()),
        }
        before.note(&token.token);
    }
    lowered
}

impl Before {
    fn note(&mut self, token: &Token) {
        match token {
            Token::SemiColon => {
                *self = Self::default();
                return;
            }
            Token::LParen => self.depth += 1,
            Token::RParen => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        let keyword = keyword(token);
        if self.first.is_none() {
            self.first = Some(keyword);
            self.is_reassign = matches!(token, Token::Word(word)
                if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("reassign"));
        }
        self.has_query |= self.depth == 0 && keyword == Keyword::SELECT;
        self.last = Some(token.clone());
    }

    /// Whether a query may begin here.
    fn takes_query(&self) -> bool {
        let (Some(first), Some(last)) = (self.first, &self.last) else { return true };
        match (first, keyword(last)) {
            (
                _,
                Keyword::UNION
                | Keyword::INTERSECT
                | Keyword::EXCEPT
                | Keyword::ALL
                | Keyword::DISTINCT,
            ) => true,
            (Keyword::EXPLAIN, Keyword::EXPLAIN | Keyword::ANALYZE | Keyword::VERBOSE) => true,
            (Keyword::CREATE | Keyword::PREPARE, Keyword::AS) => !self.has_query && self.depth == 0,
            (Keyword::DECLARE, Keyword::FOR) => true,
            (Keyword::INSERT, Keyword::INTO) => false,
            (Keyword::INSERT, _) if matches!(last, Token::Word(_)) => {
                !self.has_query && self.depth == 0
            }
            _ => match last {
                Token::LParen => true,
                Token::RParen => {
                    let firsts = [Keyword::INSERT, Keyword::EXPLAIN, Keyword::WITH];
                    firsts.contains(&first) && !self.has_query && self.depth == 0
                }
                _ => false,
            },
        }
    }

    /// Whether a value may stand here, and not the name of a role or a column.
    fn takes_value(&self) -> bool {
        let Some(first) = self.first else { return false };
        let names_roles = self.is_reassign
            || matches!(
                first,
                Keyword::GRANT
                    | Keyword::REVOKE
                    | Keyword::SET
                    | Keyword::RESET
                    | Keyword::DROP
                    | Keyword::COMMENT
            );
        let last = self.last.as_ref();
        let is_name = last.is_some_and(|last| {
            *last == Token::Period
                || matches!(keyword(last), Keyword::TO | Keyword::AS | Keyword::ROLE | Keyword::FOR)
        });
        !names_roles && !is_name
    }
}

fn keyword(token: &Token) -> Keyword {
    match token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

fn word(value: &str, keyword: Keyword) -> Token {
    Token::Word(Word { value: value.to_owned(), quote_style: None, keyword })
}

#[cfg(test)]
mod tests {
    use crate::statement::parse::{Statement, parse_script};

    #[test]
    fn words_are_read_where_they_mean_something() {
        let same = |short: &str, long: &str| {
            let read = |sql: &str| parse_script(sql).unwrap().remove(0).statement;
            let (short, long) = (read(short), read(long));
            let text = |statement: Statement| match statement {
                Statement::Query(query) => query.to_string(),
                Statement::Insert(insert) => insert.source.unwrap().to_string(),
                other => panic!("{other:?}"),
            };
            assert_eq!(text(short), text(long));
        };
        same("TABLE t", "SELECT * FROM t");
        same("TABLE t ORDER BY a LIMIT 1", "SELECT * FROM t ORDER BY a LIMIT 1");
        same("(TABLE t) UNION ALL TABLE u", "(SELECT * FROM t) UNION ALL SELECT * FROM u");
        same("WITH x AS (TABLE t) TABLE x", "WITH x AS (SELECT * FROM t) SELECT * FROM x");
        same("SELECT (TABLE t) FROM u", "SELECT (SELECT * FROM t) FROM u");
        same("INSERT INTO u TABLE t", "INSERT INTO u SELECT * FROM t");
        same("INSERT INTO u (a) TABLE t", "INSERT INTO u (a) SELECT * FROM t");
        same("SELECT current_role, 1", "SELECT current_role(), 1");
        same("SELECT current_schema FROM t", "SELECT current_schema() FROM t");
        same("SELECT current_schema()", "SELECT current_schema()");
        for other in [
            "CREATE TABLE t (a int)",
            "CREATE TABLE t AS TABLE u",
            "CREATE VIEW v AS TABLE u",
            "EXPLAIN TABLE t",
            "EXPLAIN (ANALYZE) TABLE t",
            "DECLARE c CURSOR FOR TABLE t",
            "PREPARE p AS TABLE t",
            "GRANT SELECT ON TABLE t TO CURRENT_ROLE",
            "ALTER TABLE t OWNER TO CURRENT_ROLE",
            "SET ROLE NONE",
            "LOCK TABLE t",
            "TRUNCATE TABLE t",
        ] {
            assert!(parse_script(other).is_ok(), "{other}: {:?}", parse_script(other));
        }
        assert_eq!(
            parse_script("ABORT").unwrap()[0].statement,
            Statement::Rollback { chain: false }
        );
        assert_eq!(
            parse_script("ABORT WORK").unwrap()[0].statement,
            Statement::Rollback { chain: false }
        );
    }
}
