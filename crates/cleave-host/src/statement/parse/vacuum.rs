//! VACUUM: what of it has something to do today.
//!
//! Ended rows are removed by compaction, which commits begin by themselves, so `VACUUM ANALYZE` is ANALYZE, and plain `VACUUM` has
//! nothing to do. `FULL`, which would rewrite the table, is refused.
//!
//! Source: PostgreSQL's manual, "VACUUM".

use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Analyze, Reader, Statement};
use crate::error::{Error, Result};

impl Reader<'_> {
    /// VACUUM [FULL] [FREEZE] [VERBOSE] [ANALYZE] [table, …], or its options in parentheses.
    pub(super) fn vacuum(&mut self) -> Result<Statement> {
        self.parser.advance_token();
        let (mut analyzes, mut verbose) = (false, false);
        if self.parser.consume_token(&Token::LParen) {
            loop {
                let Token::Word(word) = self.parser.peek_token().token else {
                    return Err(self.expected("an option of VACUUM"));
                };
                self.parser.advance_token();
                let name = word.value.to_ascii_lowercase();
                match name.as_str() {
                    "analyze" | "analyse" => analyzes = self.switch()?,
                    "verbose" => verbose = self.switch()?,
                    "full" => {
                        if self.switch()? {
                            return Err(full());
                        }
                    }
                    // How hard to look for what there is not.
                    "freeze"
                    | "skip_locked"
                    | "truncate"
                    | "process_toast"
                    | "disable_page_skipping" => {
                        self.switch()?;
                    }
                    "index_cleanup" | "parallel" => {
                        self.option_value()?;
                    }
                    _ => {
                        self.parser.prev_token();
                        return Err(self.expected("ANALYZE, VERBOSE, FREEZE or FULL"));
                    }
                }
                if self.parser.consume_token(&Token::RParen) {
                    break;
                }
                if !self.parser.consume_token(&Token::Comma) {
                    return Err(self.expected("a comma or a closing parenthesis"));
                }
            }
        } else {
            if self.take("full") {
                return Err(full());
            }
            let _ = self.take("freeze");
            verbose = self.take("verbose");
            analyzes = self.take("analyze") || self.take("analyse");
        }
        let tables = self.analyzed_tables()?;
        Ok(Statement::Vacuum { analyzes, analyze: Analyze { verbose, tables } })
    }
}

fn full() -> Error {
    Error::unsupported("VACUUM FULL")
}
