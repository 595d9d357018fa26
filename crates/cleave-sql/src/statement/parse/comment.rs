//! COMMENT ON: tokens in, a [`CommentOn`] out.
//!
//! Source: PostgreSQL's manual, "COMMENT".

use cleave_catalog::error::{Error, Position, Result};
use datafusion::sql::sqlparser::ast::{ObjectName, ObjectNamePart};

use super::{Reader, Statement};
use crate::statement::names::{fold, position_of, table_name};

/// COMMENT ON something IS text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommentOn {
    /// The object.
    pub subject: CommentSubject,
    /// Where the object is named.
    pub position: Option<Position>,
    /// The comment; None: it is removed.
    pub text: Option<String>,
}

/// The object of COMMENT ON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommentSubject {
    /// A table, view, index or sequence: the word, and its name.
    Relation(&'static str, String),
    /// A column: of what, and its name.
    Column(String, String),
    /// A constraint: of which table, and its name.
    Constraint(String, String),
    /// A database.
    Database(String),
    /// A role.
    Role(String),
    /// The schema `public`.
    Schema,
}

impl Reader<'_> {
    /// COMMENT ON kind name IS { 'text' | NULL }.
    pub(super) fn comment(&mut self) -> Result<Statement> {
        self.parser.advance_token();
        if !self.take("on") {
            return Err(self.expected("ON"));
        }
        let kinds = ["table", "view", "index", "sequence", "column", "constraint", "database"];
        let others = ["role", "user", "schema"];
        let kind = match self.take("materialized") {
            true => {
                self.must_take("view")?;
                Some("materialized view")
            }
            false => kinds.into_iter().chain(others).find(|kind| self.take(kind)),
        };
        let position = position_of(self.parser.peek_token().span.start);
        let Some(kind) = kind else {
            let word = self.parser.peek_token().token.to_string().to_uppercase();
            return Err(Error::unsupported(format!("COMMENT ON {word}")).at(position));
        };
        let name = self.parser.parse_object_name(false).map_err(|error| self.syntax(error))?;
        let last = |name: &ObjectName| {
            let last = name.0.last().and_then(ObjectNamePart::as_ident);
            last.map(fold).unwrap_or_default()
        };
        let subject = match kind {
            "column" => {
                let column = last(&name);
                let mut of = name;
                of.0.pop();
                if of.0.is_empty() {
                    return Err(self.expected("the name of a table before that of its column"));
                }
                CommentSubject::Column(table_name(&of)?, column)
            }
            "constraint" => {
                if !self.take("on") {
                    return Err(self.expected("ON"));
                }
                let of = self.parser.parse_object_name(false);
                let of = of.map_err(|error| self.syntax(error))?;
                CommentSubject::Constraint(table_name(&of)?, last(&name))
            }
            "database" => CommentSubject::Database(last(&name)),
            "role" | "user" => CommentSubject::Role(last(&name)),
            "schema" => match last(&name).as_str() {
                "public" => CommentSubject::Schema,
                other => {
                    let message = format!("COMMENT ON SCHEMA {other}");
                    return Err(Error::unsupported(message).at(position));
                }
            },
            relation => CommentSubject::Relation(relation, table_name(&name)?),
        };
        if !self.take("is") {
            return Err(self.expected("IS"));
        }
        let text = match self.take("null") {
            true => None,
            // An empty text is none, as in PostgreSQL.
            false => Some(self.string("a string, or NULL")?).filter(|text| !text.is_empty()),
        };
        Ok(Statement::Comment(Box::new(CommentOn { subject, position, text })))
    }
}
