//! EXPLAIN and its options: tokens in, a statement out.

use cleave_catalog::error::{Error, Result};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Define, ExplainFormat, Reader, Statement};
use crate::statement::names::position_of;

/// Options that show or hide a part of PostgreSQL's plans. Ours show what they have.
const SHOWN_ANYWAY: [&str; 6] = ["costs", "buffers", "timing", "summary", "settings", "wal"];

impl Reader<'_> {
    /// EXPLAIN [ANALYZE] [VERBOSE] statement, EXPLAIN (option [value], ...) statement.
    pub(super) fn explain(&mut self) -> Result<Statement> {
        self.parser.advance_token();
        let (mut analyze, mut verbose, mut format) = (false, false, ExplainFormat::Text);
        let options = self.parser.peek_token().token == Token::LParen
            && matches!(self.parser.peek_nth_token(1).token, Token::Word(word)
                if !matches!(word.keyword, Keyword::SELECT | Keyword::WITH | Keyword::VALUES | Keyword::TABLE));
        if options {
            self.parser.advance_token();
            loop {
                if self.take("analyze") {
                    analyze = self.switch()?;
                } else if self.take("verbose") {
                    verbose = self.switch()?;
                } else if self.take("format") {
                    format = self.explain_format()?;
                } else if SHOWN_ANYWAY.iter().any(|option| self.take(option)) {
                    self.switch()?;
                } else {
                    return Err(self.expected("ANALYZE, VERBOSE or FORMAT"));
                }
                if self.parser.consume_token(&Token::RParen) {
                    break;
                }
                if !self.parser.consume_token(&Token::Comma) {
                    return Err(self.expected("a comma or a closing parenthesis"));
                }
            }
        } else {
            analyze = self.take("analyze");
            verbose = self.take("verbose");
            if self.take("format") {
                format = self.explain_format()?;
            }
        }
        if verbose && format == ExplainFormat::Text {
            format = ExplainFormat::Verbose;
        }
        let position = position_of(self.parser.peek_token().span.start);
        let unsupported = || Error::Unsupported {
            what: "EXPLAIN of this statement".into(),
            hint: Some(
                "it explains queries, INSERT, UPDATE, DELETE, EXECUTE, REFRESH and CREATE TABLE AS"
                    .into(),
            ),
            position,
        };
        // Checked before reading: each EXPLAIN would recurse once more, and no depth is counted here.
        if self.take("explain") {
            return Err(unsupported());
        }
        match self.statement()? {
            Statement::Define(define)
                if matches!(*define, Define::CreateTableAs(_) | Define::CreateMaterialized(_))
                    || (matches!(*define, Define::Refresh(_)) && !analyze) =>
            {
                let statement = Box::new(Statement::Define(define));
                Ok(Statement::Explain { analyze, format, statement })
            }
            statement @ (Statement::Query(_)
            | Statement::Locking(_)
            | Statement::LockedParts(_)
            | Statement::ChangingWith(_)
            | Statement::Insert(_)
            | Statement::Modify(_)
            | Statement::Execute(_)) => {
                let statement = Box::new(statement);
                Ok(Statement::Explain { analyze, format, statement })
            }
            _ => Err(unsupported()),
        }
    }

    fn explain_format(&mut self) -> Result<ExplainFormat> {
        if self.take("text") || self.take("tree") || self.take("indent") {
            Ok(ExplainFormat::Text)
        } else if self.take("json") {
            Ok(ExplainFormat::Json)
        } else if self.take("fragment") {
            Ok(ExplainFormat::Fragment)
        } else {
            Err(self.expected("TEXT, JSON or FRAGMENT"))
        }
    }
}
