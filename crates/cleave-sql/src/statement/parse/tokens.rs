//! The tokens of a script, and checks and rewrites of them before the parser crate reads them: operators are cut as
//! PostgreSQL cuts them, and clauses that the crate does not know are taken out, or replaced.

use cleave_catalog::error::{Error, Fault, Result};
use cleave_catalog::identifiers::CATALOG;
use datafusion::sql::sqlparser::ast::Ident;
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::{
    Location, Span, Token, TokenWithSpan, Tokenizer, TokenizerError, Whitespace,
};

use crate::statement::catalog_tables::{CATALOG_SCHEMA, INFORMATION_SCHEMA};
use crate::statement::locking::HIDDEN;
use crate::statement::names::{SCHEMA, fold, position_of};

/// Characters of operators that are not the standard's.
const MARKS: [char; 10] = ['~', '!', '@', '#', '%', '^', '&', '|', '`', '?'];

/// The tokens of `text`. The crate takes all characters of operators that stand side by side for one operator; here
/// `a>-5` has `>` and `-`, as in PostgreSQL.
///
/// # Errors
/// The crate's, such as of a string that does not end.
pub fn tokenize(dialect: &dyn Dialect, text: &str) -> Result<Vec<TokenWithSpan>, TokenizerError> {
    let tokens = Tokenizer::new(dialect, text).tokenize_with_location()?;
    if !tokens.iter().any(|token| signs_behind(&token.token).is_some()) {
        return Ok(tokens);
    }
    let mut cut = Vec::with_capacity(tokens.len() + 1);
    for token in tokens {
        match signs_behind(&token.token) {
            Some((operator, signs)) => push_cut(&mut cut, dialect, operator, signs, token.span),
            None => cut.push(token),
        }
    }
    Ok(cut)
}

/// An operator and the signs of its right operand, if the crate took both for one operator. By PostgreSQL's rule an
/// operator of several characters ends in a sign only if it has one of [`MARKS`]. `%-` and `||-` are no operators here,
/// and are cut too.
fn signs_behind(token: &Token) -> Option<(&str, &str)> {
    let Token::CustomBinaryOperator(text) = token else { return None };
    let operator = match text.trim_end_matches(['+', '-']) {
        "" => text.get(..1)?,
        operator => operator,
    };
    // A comment ends an operator in PostgreSQL.
    let has_comment = text.contains("--") || text.contains("/*");
    let is_whole = operator.contains(MARKS) && !["%", "||"].contains(&operator);
    let signs = text.get(operator.len()..).filter(|signs| !signs.is_empty())?;
    (!has_comment && !is_whole).then_some((operator, signs))
}

/// Appends `operator` and `signs`, which stand at `span`, as tokens of their own.
fn push_cut(
    tokens: &mut Vec<TokenWithSpan>,
    dialect: &dyn Dialect,
    operator: &str,
    signs: &str,
    span: Span,
) {
    let mut own = Tokenizer::new(dialect, operator).tokenize().unwrap_or_default();
    let own = match (own.pop(), own.is_empty()) {
        (Some(token), true) => token,
        _ => Token::CustomBinaryOperator(operator.to_owned()),
    };
    let mut start = span.start;
    let mut push = |token: Token, characters: usize| {
        let column = start.column + u64::try_from(characters).unwrap_or_default();
        let end = Location { column, ..start };
        tokens.push(TokenWithSpan::new(token, Span::new(start, end)));
        start = end;
    };
    push(own, operator.chars().count());
    for sign in signs.chars() {
        push(if sign == '-' { Token::Minus } else { Token::Plus }, 1);
    }
}

/// Refuses names with the sign that marks internal names in plans, such as that of the target rows of a statement: a
/// user who could write them would bypass privileges.
///
/// # Errors
/// [`Error::Invalid`].
pub(super) fn refuse_hidden(tokens: &[TokenWithSpan]) -> Result<()> {
    for token in tokens {
        if let Token::Word(word) = &token.token
            && word.value.contains(HIDDEN)
        {
            return Err(Error::Invalid {
                message: "a name cannot contain the control character U+0001".to_owned(),
                fault: Fault::Statement,
                position: position_of(token.span.start),
            });
        }
    }
    Ok(())
}

/// What stands behind a literal.
#[derive(Clone, Copy)]
enum Between {
    Blanks,
    Newline,
    /// A comment in `/* */`, over which nothing is joined.
    Comment,
}

/// Joins literals in quotes with a newline between them, as the standard has it: the parser crate would take the second
/// for the name of the first.
///
/// # Errors
/// The place of a literal behind another one on its line, of one with escapes that would be those of the first, and of
/// one with a character that no text has.
pub(super) fn join_literals(tokens: &mut [TokenWithSpan]) -> Result<(), Span> {
    let is_literal = |token: &Token| {
        matches!(
            token,
            Token::SingleQuotedString(_)
                | Token::EscapedStringLiteral(_)
                | Token::UnicodeStringLiteral(_)
                | Token::NationalStringLiteral(_)
                | Token::HexStringLiteral(_)
        )
    };
    // The last literal, and what has followed.
    let mut last: Option<(usize, Between)> = None;
    let mut joined: Vec<(usize, usize)> = Vec::new();
    for (place, token) in tokens.iter().enumerate() {
        last = match (&token.token, last) {
            (Token::Whitespace(space), Some((first, so_far))) => {
                let between = match (space, so_far) {
                    (Whitespace::MultiLineComment(_), _) | (_, Between::Comment) => {
                        Between::Comment
                    }
                    (Whitespace::Newline, _) => Between::Newline,
                    (Whitespace::SingleLineComment { comment, .. }, _)
                        if comment.ends_with('\n') =>
                    {
                        Between::Newline
                    }
                    (_, so_far) => so_far,
                };
                Some((first, between))
            }
            (Token::SingleQuotedString(text), Some((first, Between::Newline))) => {
                // Its escapes would be those of the first one.
                let is_escaped = matches!(
                    tokens.get(first).map(|token| &token.token),
                    Some(Token::EscapedStringLiteral(_) | Token::UnicodeStringLiteral(_))
                );
                if is_escaped && text.contains('\\') {
                    return Err(token.span);
                }
                joined.push((first, place));
                Some((first, Between::Blanks))
            }
            (Token::SingleQuotedString(_), Some(_)) => return Err(token.span),
            (literal, _) => is_literal(literal).then_some((place, Between::Blanks)),
        };
    }
    // Behind its place, each is white space: what is read by place stays where it is.
    for (first, place) in joined {
        let Some(token) = tokens.get_mut(place) else { continue };
        let space = Token::Whitespace(Whitespace::Newline);
        let Token::SingleQuotedString(more) = std::mem::replace(&mut token.token, space) else {
            continue;
        };
        if let Some(
            Token::SingleQuotedString(text)
            | Token::EscapedStringLiteral(text)
            | Token::UnicodeStringLiteral(text)
            | Token::NationalStringLiteral(text)
            | Token::HexStringLiteral(text),
        ) = tokens.get_mut(first).map(|token| &mut token.token)
        {
            text.push_str(&more);
        }
    }
    // Its escapes are read already.
    for token in tokens {
        if let Token::UnicodeStringLiteral(text) = &mut token.token {
            if text.contains('\0') {
                return Err(token.span);
            }
            token.token = Token::SingleQuotedString(std::mem::take(text));
        }
    }
    Ok(())
}

/// Takes the database out of `database.schema.name`, as dbt writes every table. None: whatever it is called, as in the
/// text of a view, which may have come from a database with another name.
///
/// # Errors
/// [`Error::Unsupported`] for another database.
pub(super) fn take_database(tokens: &mut [TokenWithSpan], database: Option<&str>) -> Result<()> {
    let is_schema = |name: &str| [SCHEMA, CATALOG_SCHEMA, INFORMATION_SCHEMA].contains(&name);
    let name_at = |tokens: &[TokenWithSpan], place: usize| match &tokens.get(place)?.token {
        Token::Word(word) => {
            let quote_style = word.quote_style;
            Some(fold(&Ident { value: word.value.clone(), quote_style, span: Span::empty() }))
        }
        _ => None,
    };
    if !tokens.iter().any(|token| token.token == Token::Period) {
        return Ok(());
    }
    let solid: Vec<usize> = solid_from(tokens, 0).map(|(place, _)| place).collect();
    let mut is_after_point = false;
    for around in solid.windows(5) {
        let [first, point, schema, second, name] = *around else { continue };
        let is_point =
            |place: usize| tokens.get(place).is_some_and(|token| token.token == Token::Period);
        let is_inner = std::mem::replace(&mut is_after_point, is_point(first));
        if is_inner || !is_point(point) || !is_point(second) || is_point(first) {
            continue;
        }
        let (Some(before), Some(schema), Some(name)) =
            (name_at(tokens, first), name_at(tokens, schema), name_at(tokens, name))
        else {
            continue;
        };
        if !is_schema(&schema) || is_schema(&before) || before == CATALOG {
            continue;
        }
        if database.is_some_and(|database| database != before) {
            let what = format!("a table of another database ({before}.{schema}.{name})");
            let place = tokens.get(first).and_then(|token| position_of(token.span.start));
            return Err(Error::unsupported(what).at(place));
        }
        for place in [first, point] {
            if let Some(token) = tokens.get_mut(place) {
                token.token = Token::Whitespace(Whitespace::Space);
            }
        }
    }
    Ok(())
}

/// Whether `token` is `word`, not in quotes.
pub(super) fn is_word(token: &TokenWithSpan, word: &str) -> bool {
    matches!(&token.token, Token::Word(found)
        if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
}

/// Whether `token` is more than white space or a comment.
pub(super) fn is_solid(token: &TokenWithSpan) -> bool {
    !matches!(token.token, Token::Whitespace(_))
}

/// Those of `tokens` from the place `first` on that are [solid](is_solid), with their places.
pub(super) fn solid_from(
    tokens: &[TokenWithSpan],
    first: usize,
) -> impl Iterator<Item = (usize, &TokenWithSpan)> {
    tokens.iter().enumerate().skip(first).filter(|(_, token)| is_solid(token))
}
