//! Files in FROM ([`files`](crate::statement::files)): finds statements that may name one, and gives each the name of
//! its call.

use std::ops::ControlFlow;

use cleave_catalog::error::{Error, Result};
use datafusion::sql::sqlparser::ast::{TableFactor, VisitorMut};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::tokens::{is_solid, is_word};
use crate::statement::files::name_file;
use crate::visiting::{Visited, visit_mut};

/// Statements about an item of FROM.
const SUMMARIES: [&str; 3] = ["describe", "desc", "summarize"];

/// Whether a statement with these tokens may read files: it calls one of the functions, or has a text behind FROM, JOIN
/// or a comma.
pub(super) fn are_named(tokens: &[TokenWithSpan]) -> bool {
    let mut before: Option<&TokenWithSpan> = None;
    for token in tokens.iter().filter(|token| is_solid(token)) {
        if is_word(token, "read_csv") || is_word(token, "read_parquet") {
            return true;
        }
        if let Token::SingleQuotedString(text) = &token.token {
            let may_be_table = before.is_some_and(|before| match &before.token {
                Token::Word(word) => {
                    matches!(word.keyword, Keyword::FROM | Keyword::JOIN | Keyword::USING)
                        || SUMMARIES.iter().any(|summary| is_word(before, summary))
                }
                // Many of these are values, which are no names of files for want of a point.
                Token::Comma | Token::LParen => text.contains('.'),
                _ => false,
            });
            if may_be_table {
                return true;
            }
        }
        before = Some(token);
    }
    false
}

/// Names the files in `part`.
///
/// # Errors
/// Those of [`name_file`].
pub(super) fn name_files(part: &mut impl Visited) -> Result<()> {
    match visit_mut(part, &mut Names) {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Names;

impl VisitorMut for Names {
    type Break = Box<Error>;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Box<Error>> {
        match name_file(factor) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}
