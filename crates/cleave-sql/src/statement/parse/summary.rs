//! DESCRIBE and SUMMARIZE of a query, a table or a file: tokens in, a query out.

use cleave_catalog::error::{Error, Result};
use datafusion::sql::sqlparser::ast::{self, SetExpr};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Reader, Statement, parse_query, typed};

/// DESCRIBE or SUMMARIZE.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Whose columns are told.
    pub query: Box<ast::Query>,
    /// SUMMARIZE: with figures of their values.
    pub with_figures: bool,
}

impl Reader<'_> {
    /// DESCRIBE or SUMMARIZE, and a query or an item of FROM.
    pub(super) fn summary(&mut self, with_figures: bool) -> Result<Statement> {
        self.parser.advance_token();
        let is_query = match self.parser.peek_token().token {
            Token::LParen => true,
            Token::Word(word) => matches!(
                word.keyword,
                Keyword::SELECT | Keyword::WITH | Keyword::VALUES | Keyword::TABLE
            ),
            _ => false,
        };
        let query = match is_query {
            true => self.parser.parse_query().map_err(|error| self.syntax(error))?,
            false => self.whole_table()?,
        };
        match typed(ast::Statement::Query(self.lowered(query)?))? {
            Statement::Query(query) => {
                Ok(Statement::Summary(Box::new(Summary { query, with_figures })))
            }
            _ => Err(Error::unsupported(match with_figures {
                true => "SUMMARIZE of a query that changes or locks rows",
                false => "DESCRIBE of a query that changes or locks rows",
            })),
        }
    }

    /// `SELECT * FROM item`.
    fn whole_table(&mut self) -> Result<Box<ast::Query>> {
        let relation = self.parser.parse_table_factor().map_err(|error| self.syntax(error))?;
        let mut query = parse_query("SELECT * FROM item".to_owned())?;
        if let SetExpr::Select(select) = query.body.as_mut() {
            select.from = vec![ast::TableWithJoins { relation, joins: Vec::new() }];
        }
        Ok(query)
    }
}
