//! BATCH BEGIN and BATCH END: statements of a script in, batches out, each with the queries between the two.
//!
//! The queries move into the first statement, which runs them all. In its place each leaves one that gives its rows, so
//! that a script has as many outcomes as statements, in their order.

use cleave_catalog::error::{Error, Fault, Position, Result};

use super::{ParsedStatement, Reader, Statement};

impl Reader<'_> {
    /// BATCH BEGIN or BATCH END, without its queries.
    pub(super) fn batch(&mut self) -> Result<Statement> {
        self.parser.advance_token();
        match (self.take("begin"), self.take("end")) {
            (true, false) => Ok(Statement::Batch(Vec::new())),
            (false, true) => Ok(Statement::BatchEnd),
            _ => Err(self.expected("BEGIN or END")),
        }
    }
}

/// `statements`, with the queries of each batch in its first one.
///
/// # Errors
/// [`Fault::Statement`] for a batch without an end, an end without a batch, and anything but queries between them.
pub(super) fn gathered(mut statements: Vec<ParsedStatement>) -> Result<Vec<ParsedStatement>> {
    let mut begun: Option<(usize, Position)> = None;
    let mut queries = Vec::new();
    for place in 0..statements.len() {
        let Some(next) = statements.get_mut(place) else { break };
        let position = next.position;
        let begins = matches!(next.statement, Statement::Batch(_));
        let ends = matches!(next.statement, Statement::BatchEnd);
        let is_query = matches!(next.statement, Statement::Query(_));
        match begun {
            None if ends => return Err(misplaced("BATCH END without BATCH BEGIN", position)),
            None => begun = begins.then_some((place, position)),
            Some((first, _)) if ends => {
                begun = None;
                let gathered = Statement::Batch(std::mem::take(&mut queries));
                if let Some(first) = statements.get_mut(first) {
                    first.statement = gathered;
                }
            }
            Some(_) if is_query => {
                let (statement, text, hints) = (Statement::Batched, String::new(), Vec::new());
                let given = ParsedStatement { statement, text, position, hints };
                queries.push(std::mem::replace(next, given));
            }
            Some(_) => {
                let message =
                    "between BATCH BEGIN and BATCH END are only queries, without locking clauses";
                return Err(misplaced(message, position));
            }
        }
    }
    match begun {
        Some((_, position)) => {
            let message = "BATCH BEGIN without BATCH END in the same script";
            Err(misplaced(message, position))
        }
        None => Ok(statements),
    }
}

fn misplaced(message: &str, position: Position) -> Error {
    let (message, position) = (message.to_owned(), Some(position));
    Error::Invalid { message, fault: Fault::Statement, position }
}

#[cfg(test)]
mod tests {
    //! Which scripts have a batch, and what is refused of others.

    use crate::statement::parse::{Statement, parse_script};

    #[test]
    fn queries_move_into_their_batch_and_are_answered_in_their_places() {
        let script =
            "SELECT 0; BATCH BEGIN; SELECT 1; /*+ split(host) */ VALUES (2); batch end; SELECT 3;
                      Batch Begin; BATCH END";
        let parsed = parse_script(script).unwrap();
        let texts: Vec<&str> = parsed.iter().map(|parsed| parsed.text.as_str()).collect();
        let expected = [
            "SELECT 0",
            "BATCH BEGIN",
            "",
            "",
            "batch end",
            "SELECT 3",
            "Batch Begin",
            "BATCH END",
        ];
        assert_eq!(texts, expected);
        let Statement::Batch(queries) = &parsed[1].statement else { panic!("{parsed:?}") };
        let texts: Vec<&str> = queries.iter().map(|query| query.text.as_str()).collect();
        assert_eq!(texts, ["SELECT 1", "VALUES (2)"]);
        assert_eq!((queries[0].hints.len(), queries[1].hints.len()), (0, 1));
        let places = [(2, Statement::Batched), (3, Statement::Batched), (4, Statement::BatchEnd)];
        for (place, statement) in places {
            assert_eq!(parsed[place].statement, statement);
            assert!(parsed[place].hints.is_empty());
        }
        assert_eq!(parsed[6].statement, Statement::Batch(Vec::new()));
    }

    #[test]
    fn other_statements_and_ends_are_refused_where_they_stand() {
        for (script, message, column) in [
            ("BATCH BEGIN; SELECT 1", "BATCH BEGIN without BATCH END in the same script", 1),
            ("SELECT 1; BATCH END", "BATCH END without BATCH BEGIN", 11),
            ("BATCH BEGIN; BATCH BEGIN; BATCH END; BATCH END", "are only queries", 14),
            ("BATCH BEGIN; DELETE FROM t; BATCH END", "are only queries", 14),
            (
                "BATCH BEGIN; SELECT 1; SELECT a FROM t FOR UPDATE; BATCH END",
                "are only queries",
                24,
            ),
            ("BATCH BEGIN; EXPLAIN SELECT 1; BATCH END", "are only queries", 14),
            ("BATCH", "expected BEGIN or END", 6),
            ("BATCH COMMIT", "expected BEGIN or END", 7),
        ] {
            let error = parse_script(script).unwrap_err();
            assert_eq!(error.sqlstate(), "42601", "{script}");
            assert!(error.to_string().contains(message), "{script}: {error}");
            assert_eq!(error.position().unwrap().column, column, "{script}: {error}");
        }
    }
}
