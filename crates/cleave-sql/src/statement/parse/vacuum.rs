//! VACUUM: its options, and the tables that it names.
//!
//! `FULL` rewrites every segment with a dead row, plain `VACUUM` those with enough of them; both let readers and
//! writers run. PostgreSQL's other options concern pages that are changed in place. They have no counterpart here and
//! are accepted without effect.
//!
//! Source: PostgreSQL's manual, "VACUUM".

use cleave_catalog::error::Result;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Analyze, Reader, Statement};

/// VACUUM.
#[derive(Debug, Clone, PartialEq)]
pub struct Vacuum {
    /// FULL: a segment is rewritten if it has any dead row.
    pub full: bool,
    /// SKIP_LOCKED: tables that another transaction has locked are left out.
    pub skip_locked: bool,
    /// ANALYZE: the tables are analysed, too.
    pub analyzes: bool,
    /// The tables, and VERBOSE.
    pub analyze: Analyze,
}

impl Reader<'_> {
    /// VACUUM [FULL] [FREEZE] [VERBOSE] [ANALYZE] [table, …], or its options in parentheses.
    pub(super) fn vacuum(&mut self) -> Result<Statement> {
        self.parser.advance_token();
        let (mut full, mut skip_locked, mut analyzes, mut verbose) = (false, false, false, false);
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
                    "full" => full = self.switch()?,
                    "skip_locked" => skip_locked = self.switch()?,
                    // Effort options, which have no meaning here.
                    "freeze"
                    | "truncate"
                    | "process_toast"
                    | "process_main"
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
            full = self.take("full");
            let _ = self.take("freeze");
            verbose = self.take("verbose");
            analyzes = self.take("analyze") || self.take("analyse");
        }
        let tables = self.analyzed_tables()?;
        let analyze = Analyze { verbose, tables };
        Ok(Statement::Vacuum(Vacuum { full, skip_locked, analyzes, analyze }))
    }
}
