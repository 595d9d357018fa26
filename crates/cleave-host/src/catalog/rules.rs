//! What a table asks of its rows beyond types, NOT NULL and keys: checks, and columns that make their own values.
//!
//! Rules are kept as SQL text beside the schema and the indexes, not in them: pages and devices need none of them. What is
//! made of the text is kept with the rules for as long as a state holds them.
//!
//! Invariant: names of constraints are unique within a table, those of its indexes included, and so are their ids.

use std::sync::{Arc, OnceLock};

use super::proto;
use crate::write::checks::CompiledChecks;

/// The rules of one table.
#[derive(Debug, Clone, Default)]
pub struct TableRules {
    /// CHECK, in the order of their names, which is that in which they are asked.
    pub checks: Vec<Check>,
    /// Ids of the columns that are GENERATED ALWAYS AS IDENTITY.
    pub always: Vec<u32>,
    /// What is asked of each row, once it was compiled.
    pub(crate) compiled: Compiled,
}

/// CHECK (expression).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Number among the table's rules.
    pub id: u32,
    /// Name.
    pub name: String,
    /// SQL text of the expression.
    pub expression: String,
    /// Ids of the columns that it names.
    pub columns: Vec<u32>,
}

/// What a table's checks were compiled to; a copy of the rules begins without, since it may be changed.
#[derive(Debug, Default)]
pub(crate) struct Compiled(pub(crate) OnceLock<Arc<CompiledChecks>>);

impl Clone for Compiled {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl TableRules {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.checks.is_empty() && self.always.is_empty()
    }

    /// An id for one more rule.
    #[must_use]
    pub fn next_id(&self) -> u32 {
        self.checks.iter().map(|check| check.id + 1).max().unwrap_or(0)
    }

    /// Whether a rule has this name.
    #[must_use]
    pub fn is_name_taken(&self, name: &str) -> bool {
        self.checks.iter().any(|check| check.name == name)
    }

    pub(super) fn encode(&self) -> Option<proto::TableRules> {
        if self.is_empty() {
            return None;
        }
        let check = |check: &Check| proto::Check {
            id: check.id,
            name: check.name.clone(),
            expression: check.expression.clone(),
            columns: check.columns.clone(),
        };
        let checks = self.checks.iter().map(check).collect();
        Some(proto::TableRules { checks, always: self.always.clone() })
    }

    pub(super) fn decode(rules: Option<&proto::TableRules>) -> Self {
        let Some(rules) = rules else { return Self::default() };
        let check = |check: &proto::Check| Check {
            id: check.id,
            name: check.name.clone(),
            expression: check.expression.clone(),
            columns: check.columns.clone(),
        };
        Self {
            checks: rules.checks.iter().map(check).collect(),
            always: rules.always.clone(),
            compiled: Compiled::default(),
        }
    }
}
