//! Names with a schema in a session that has temporary objects: before a statement runs, decides which object of a name
//! it means (see [`cleave_sql::statement::parse::exact_names`]), for the time of the statement.

use std::sync::Arc;

use cleave_catalog::error::{Error, Result};
use cleave_sql::statement::parse::{ExactNames, exact_names, may_need_exact_names};
use cleave_sql::statement::{ParsedStatement, Statement, parse_script_in};
use datafusion::sql::sqlparser::ast;

use super::Session;

impl Session {
    /// Decides what the names of `parsed` mean, and returns the statement with the names to look up.
    ///
    /// # Errors
    /// [`Fault::TableDefinition`](cleave_catalog::error::Fault::TableDefinition) for a temporary object in `public`.
    pub(super) fn with_exact_names(&mut self, parsed: ParsedStatement) -> Result<ParsedStatement> {
        match self.decide_names(&parsed.text)? {
            Some(text) => {
                let ParsedStatement { position, hints, .. } = parsed;
                Ok(ParsedStatement { position, hints, ..self.read_again(&text)? })
            }
            None => Ok(parsed),
        }
    }

    /// As [`Session::with_exact_names`], of a query with its text.
    ///
    /// # Errors
    /// Those of [`Session::with_exact_names`].
    pub(super) fn query_with_exact_names(
        &mut self,
        query: Box<ast::Query>,
        text: &mut String,
    ) -> Result<Box<ast::Query>> {
        let Some(own) = self.decide_names(text)? else { return Ok(query) };
        let read = self.read_again(&own)?;
        *text = read.text;
        match read.statement {
            Statement::Query(query) => Ok(query),
            _ => Err(not_here()),
        }
    }

    /// The statement that `text` is.
    fn read_again(&self, text: &str) -> Result<ParsedStatement> {
        let mut read = parse_script_in(text, Some(&self.settings.client.database))?;
        let one = read.pop().filter(|_| read.is_empty());
        one.ok_or_else(not_here)
    }

    /// Decides what the names of the statement `text` mean; returns the text to read in its place, if it is another.
    ///
    /// # Errors
    /// As [`Session::with_exact_names`].
    pub(super) fn decide_names(&mut self, text: &str) -> Result<Option<String>> {
        let defined = self.defined();
        if !may_need_exact_names(text, defined.has_any_temporary()) {
            self.forget_names();
            return Ok(None);
        }
        let mut exact = exact_names(text, &|name| defined.has_temporary(name))?;
        let text = exact.text.take();
        let is_plain = exact == ExactNames::default() && text.is_none();
        self.set_exact((!is_plain).then(|| Arc::new(exact)));
        Ok(text)
    }

    /// Ends what [`Session::decide_names`] has decided.
    pub(super) fn forget_names(&mut self) {
        if self.defined().is_exact() || self.temporary.is_exact() {
            self.set_exact(None);
        }
    }

    fn set_exact(&mut self, exact: Option<Arc<ExactNames>>) {
        if let Some(block) = &mut self.block {
            block.define_names(exact.clone());
        }
        self.temporary.set_exact(exact);
    }
}

fn not_here() -> Error {
    Error::unsupported("names of both schemas in this statement")
}
