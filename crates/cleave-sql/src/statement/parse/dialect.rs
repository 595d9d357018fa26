//! PostgreSQL's dialect, parsed in bounded time.
//!
//! The parser crate tries an alternative and, where it fails, backtracks and tries the next. If `n` such places are
//! nested, they are read 2ⁿ times. With the crate's own dialect of PostgreSQL, `abs(abs(…))` 40 levels deep does not
//! end, because each argument is first read as the name of a named argument. [`BoundedPostgres`] is that dialect with
//! three differences:
//!
//! 1. **The first token decides where it can.** An argument is a named one if an operator follows its first word. CASE,
//!    CAST and NOT begin their expressions and nothing else, even if the rest is wrong.
//! 2. **Attempts are counted.** The remaining cases (`IN ((SELECT …), 2)`, calls with wrong arguments) are not worth a
//!    parser of their own: a text that needs far more attempts than it has tokens is refused.
//! 3. **Operators bind as in PostgreSQL** where the crate takes too much for an operand, or too little: IS DISTINCT
//!    FROM, and `~`, `|/`, `||/` and `@` before their operand.
//!
//! A join in parentheses that begins with a subquery is common, so [`joined_subqueries`] marks it beforehand.
//!
//! Source: sqlparser 0.62, `dialect/postgresql.rs` and each `maybe_parse` of `parser/mod.rs`.

use crate::visiting::Visited;
use std::any::TypeId;
use std::cell::Cell;

use cleave_catalog::error::{Error, Fault};
use datafusion::sql::sqlparser::ast::{CastKind, Expr, Interval, UnaryOperator, Value};
use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::nesting::PARSED_LEVELS_MAX;
use super::tokens::tokenize;
use super::{exclude, joined_subqueries, only, operators, windows};

/// Attempts that any text may begin.
const READINGS_MIN: usize = 20_000;
/// Attempts that a text may begin for each of its bytes.
const READINGS_PER_BYTE: usize = 4;

/// Parses `text`, which stood in a statement before and needs no more than the crate's own dialect, by `read`.
///
/// # Errors
/// The crate's.
pub fn read_text<T: Visited>(
    text: &str,
    read: impl FnOnce(&mut Parser) -> Result<T, ParserError>,
) -> Result<T, ParserError> {
    let dialect = BoundedPostgres::of(text);
    let mut tokens = tokenize(&dialect, text)?;
    exclude::take_exclude(&mut tokens);
    let has_windows = tokens.iter().any(windows::is_concerned);
    let tokens = operators::lower_before_any(only::drop_words(tokens));
    let (tokens, has_joined) = joined_subqueries::mark_joined(tokens);
    let mut parser = Parser::new(&dialect)
        .with_recursion_limit(PARSED_LEVELS_MAX)
        .with_tokens_with_locations(tokens);
    let part = read(&mut parser);
    if dialect.is_spent() {
        return Err(ParserError::RecursionLimitExceeded);
    }
    let mut part = part?;
    if has_joined {
        joined_subqueries::lower_joined(&mut part);
    }
    if has_windows {
        let written = windows::write_out(&mut part);
        written.map_err(|error| ParserError::ParserError(error.to_string()))?;
    }
    Ok(part)
}

/// PostgreSQL's dialect for one text.
#[derive(Debug)]
pub(crate) struct BoundedPostgres {
    readings_left: Cell<usize>,
}

impl BoundedPostgres {
    /// For `text`.
    pub(crate) fn of(text: &str) -> Self {
        let readings = text.len().saturating_mul(READINGS_PER_BYTE).saturating_add(READINGS_MIN);
        Self { readings_left: Cell::new(readings) }
    }

    fn count_one(&self) {
        self.readings_left.set(self.readings_left.get().saturating_sub(1));
    }

    /// Counts one attempt. With none left the text ends here: every further alternative is at its end too.
    fn count(&self, parser: &mut Parser) {
        if self.is_spent() {
            return;
        }
        self.count_one();
        if self.is_spent() {
            let place = parser.get_current_index() + 1;
            *parser = Parser::new(&POSTGRES);
            // The parser may have backtracked.
            (0..place).for_each(|_| parser.advance_token());
        }
    }

    /// Whether the parser stopped because of the number of attempts.
    pub(crate) fn is_spent(&self) -> bool {
        self.readings_left.get() == 0
    }
}

/// `interval(2) '…'`, of which the crate would forget the precision.
fn precise_interval(parser: &mut Parser) -> Option<Expr> {
    let [open, digits, close, text] =
        [1, 2, 3, 4].map(|place| &parser.peek_nth_token_ref(place).token);
    let (Token::LParen, Token::Number(digits, _), Token::RParen) = (open, digits, close) else {
        return None;
    };
    let Token::SingleQuotedString(text) = text else { return None };
    let digits = digits.parse().ok()?;
    let value = Box::new(Expr::value(Value::SingleQuotedString(text.clone())));
    (0..5).for_each(|_| parser.advance_token());
    Some(Expr::Interval(Interval {
        value,
        leading_field: None,
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: Some(digits),
    }))
}

/// A text that [is spent](BoundedPostgres::is_spent).
pub(super) fn too_many_readings() -> Error {
    Error::Invalid {
        message:
            "the statement nests too deep in calls or lists that can be read in more than one way"
                .to_owned(),
        fault: Fault::TooComplex,
        position: None,
    }
}

static POSTGRES: PostgreSqlDialect = PostgreSqlDialect {};

/// The answers of [`PostgreSqlDialect`] itself; all others are the trait's defaults in both.
macro_rules! as_postgres {
    ($($question:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {
        $(fn $question(&self, $($argument: $kind),*) -> $answer {
            POSTGRES.$question($($argument),*)
        })*
    };
}

impl Dialect for BoundedPostgres {
    /// The crate asks for this by type in many places.
    fn dialect(&self) -> TypeId {
        TypeId::of::<PostgreSqlDialect>()
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        self.count(parser);
        if self.is_spent() {
            // The one error that ends an attempt and most attempts around it.
            return Some(Err(ParserError::RecursionLimitExceeded));
        }
        if let Some(op) = prefix_operator(&parser.peek_token_ref().token) {
            parser.advance_token();
            let operand = parser.parse_subexpr(self.prec_value(Precedence::PgOther));
            return Some(operand.map(|expr| Expr::UnaryOp { op, expr: Box::new(expr) }));
        }
        let Token::Word(word) = &parser.peek_token_ref().token else { return None };
        let keyword = word.keyword;
        let is_called = || parser.peek_nth_token_ref(1).token == Token::LParen;
        match keyword {
            Keyword::INTERVAL if word.quote_style.is_none() => {
                return precise_interval(parser).map(Ok);
            }
            Keyword::CASE | Keyword::NOT => {}
            Keyword::CAST if is_called() => {}
            _ => return None,
        }
        parser.advance_token();
        Some(match keyword {
            Keyword::CASE => parser.parse_case_expr(),
            Keyword::NOT => parser.parse_not(),
            _ => parser.parse_cast_expr(CastKind::Cast),
        })
    }

    /// `a IS DISTINCT FROM b AND c`: the crate would take `b AND c` for the right side.
    fn parse_infix(
        &self,
        parser: &mut Parser,
        expr: &Expr,
        _precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        let is = |place: usize, keyword: Keyword| {
            matches!(&parser.peek_nth_token_ref(place).token, Token::Word(word)
                if word.quote_style.is_none() && word.keyword == keyword)
        };
        if !is(0, Keyword::IS) {
            return None;
        }
        let negated = is(1, Keyword::NOT);
        let first = if negated { 2 } else { 1 };
        if !is(first, Keyword::DISTINCT) || !is(first + 1, Keyword::FROM) {
            return None;
        }
        (0..first + 2).for_each(|_| parser.advance_token());
        let right = parser.parse_subexpr(self.prec_value(Precedence::Is));
        let left = Box::new(expr.clone());
        Some(right.map(|right| match negated {
            true => Expr::IsNotDistinctFrom(left, Box::new(right)),
            false => Expr::IsDistinctFrom(left, Box::new(right)),
        }))
    }

    /// Asked behind each `*`, for which no expression is read.
    fn is_select_item_alias(&self, explicit: bool, kw: &Keyword, parser: &mut Parser) -> bool {
        self.count(parser);
        POSTGRES.is_select_item_alias(explicit, kw, parser)
    }

    /// `SELECT FROM t` has neither; with this it has an expression, at which the count is exhausted.
    fn supports_empty_projections(&self) -> bool {
        self.count_one();
        !self.is_spent()
    }

    /// Otherwise each argument is read as an expression that may turn out to be a name, and then again. A name is a
    /// word or a string, so `json_object('label': value)` is still read.
    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }

    as_postgres! {
        identifier_quote_style(identifier: &str) -> Option<char>;
        is_delimited_identifier_start(character: char) -> bool;
        is_identifier_start(character: char) -> bool;
        is_identifier_part(character: char) -> bool;
        supports_unicode_string_literal() -> bool;
        is_reserved_for_identifier(keyword: Keyword) -> bool;
        is_custom_operator_part(character: char) -> bool;
        get_next_precedence(parser: &Parser) -> Option<Result<u8, ParserError>>;
        supports_filter_during_aggregation() -> bool;
        supports_group_by_expr() -> bool;
        prec_value(precedence: Precedence) -> u8;
        allow_extract_custom() -> bool;
        allow_extract_single_quotes() -> bool;
        supports_create_index_with_clause() -> bool;
        supports_explain_with_utility_options() -> bool;
        supports_listen_notify() -> bool;
        supports_factorial_operator() -> bool;
        supports_bitwise_shift_operators() -> bool;
        supports_comment_on() -> bool;
        supports_load_extension() -> bool;
        supports_named_fn_args_with_colon_operator() -> bool;
        supports_nested_comments() -> bool;
        supports_string_escape_constant() -> bool;
        supports_numeric_literal_underscores() -> bool;
        supports_array_typedef_with_brackets() -> bool;
        supports_geometric_types() -> bool;
        supports_set_names() -> bool;
        supports_alter_column_type_using() -> bool;
        supports_notnull_operator() -> bool;
        supports_interval_options() -> bool;
        supports_insert_table_alias() -> bool;
        supports_create_table_like_parenthesized() -> bool;
        supports_select_wildcard_with_alias() -> bool;
        supports_comma_separated_trim() -> bool;
        supports_xml_expressions() -> bool;
        supports_comment_optimizer_hint() -> bool;
    }
}

/// Operators before their operand that bind weaker than `+`, as all do that PostgreSQL has no rank of its own for.
fn prefix_operator(token: &Token) -> Option<UnaryOperator> {
    Some(match token {
        Token::Tilde => UnaryOperator::BitwiseNot,
        Token::PGSquareRoot => UnaryOperator::PGSquareRoot,
        Token::PGCubeRoot => UnaryOperator::PGCubeRoot,
        Token::AtSign => UnaryOperator::PGAbs,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
