//! Constraints of a table beyond types, NOT NULL and keys: checks, foreign keys, and identity columns.
//!
//! Rules are kept as SQL text beside the schema and the indexes, because pages and devices need none of them. Their
//! compiled form is cached with the rules for as long as a catalog version refers to them.
//!
//! Invariant: names of constraints are unique within a table, including those of its indexes, and so are their ids.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use super::compiled_checks::CompiledChecks;
use super::{CatalogState, TableState, proto};

/// The rules of one table.
#[derive(Debug, Clone, Default)]
pub struct TableRules {
    /// CHECK, ordered by name; evaluated in this order.
    pub checks: Vec<Check>,
    /// Ids of the columns that are GENERATED ALWAYS AS IDENTITY.
    pub always: Vec<u32>,
    /// FOREIGN KEY, in the order of their names.
    pub foreign_keys: Vec<ForeignKey>,
    /// The checks, once they were compiled.
    pub compiled: Compiled,
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

/// FOREIGN KEY (columns) REFERENCES target (target_columns).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignKey {
    /// Number among the table's rules.
    pub id: u32,
    /// Name.
    pub name: String,
    /// Ids of its columns.
    pub columns: Vec<u32>,
    /// Id of the table that it refers to, which may be its own.
    pub target: u32,
    /// Ids of that table's columns, in the same order.
    pub target_columns: Vec<u32>,
    /// Id of that table's unique index over them.
    pub index: u32,
    /// The action on its rows if a row that they refer to is deleted.
    pub on_delete: KeyAction,
    /// The action on its rows if the key that they refer to changes.
    pub on_update: KeyAction,
    /// Ids of the columns that ON DELETE SET NULL or SET DEFAULT changes; none: all.
    pub set_columns: Vec<u32>,
    /// MATCH FULL: all of its columns are NULL, or none is.
    pub match_full: bool,
    /// When it is checked.
    pub timing: Timing,
    /// Whether older rows were not checked when it was added.
    pub not_valid: bool,
}

/// When a constraint is checked, unless SET CONSTRAINTS says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Timing {
    /// At the end of each statement, always.
    #[default]
    NotDeferrable,
    /// At the end of each statement.
    Immediate,
    /// At the end of the transaction.
    Deferred,
}

impl Timing {
    /// All, in the order of their numbers in a manifest.
    const ALL: [Self; 3] = [Self::NotDeferrable, Self::Immediate, Self::Deferred];

    /// Whether SET CONSTRAINTS may change it.
    #[must_use]
    pub fn is_deferrable(self) -> bool {
        self != Self::NotDeferrable
    }
}

/// The action on rows whose key is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum KeyAction {
    /// The statement fails, if such rows exist at its end.
    #[default]
    NoAction,
    /// The statement fails at once.
    Restrict,
    /// They are deleted, or get the new key.
    Cascade,
    /// Their key becomes NULL.
    SetNull,
    /// Their key becomes its default.
    SetDefault,
}

impl KeyAction {
    /// All, in the order of their numbers in a manifest.
    const ALL: [Self; 5] =
        [Self::NoAction, Self::Restrict, Self::Cascade, Self::SetNull, Self::SetDefault];

    /// Its SQL text.
    #[must_use]
    pub fn sql_name(self) -> &'static str {
        match self {
            Self::NoAction => "NO ACTION",
            Self::Restrict => "RESTRICT",
            Self::Cascade => "CASCADE",
            Self::SetNull => "SET NULL",
            Self::SetDefault => "SET DEFAULT",
        }
    }

    /// Its letter in `pg_constraint`.
    #[must_use]
    pub fn letter(self) -> &'static str {
        match self {
            Self::NoAction => "a",
            Self::Restrict => "r",
            Self::Cascade => "c",
            Self::SetNull => "n",
            Self::SetDefault => "d",
        }
    }
}

impl CatalogState {
    /// The foreign keys that refer to the table with this id, each with its table.
    pub fn references_to(
        &self,
        table: u32,
    ) -> impl Iterator<Item = (&Arc<TableState>, &ForeignKey)> {
        let keys = self
            .tables()
            .flat_map(|from| from.rules.foreign_keys.iter().map(move |key| (from, key)));
        keys.filter(move |(_, key)| key.target == table)
    }

    /// Whether the table has or is the target of a foreign key.
    pub fn is_in_references(&self, table: &TableState) -> bool {
        let all = || {
            let keys = self.tables().flat_map(|from| &from.rules.foreign_keys);
            keys.map(|key| key.target).collect()
        };
        !table.rules.foreign_keys.is_empty()
            || self.referenced.0.get_or_init(all).contains(&table.schema.table_id)
    }

    /// The table with this id.
    pub fn table_by_id(&self, table: u32) -> Option<&Arc<TableState>> {
        self.tables().find(|known| known.schema.table_id == table)
    }
}

fn number<T: PartialEq>(all: &[T], one: T) -> u32 {
    let place = all.iter().position(|known| *known == one);
    place.and_then(|place| u32::try_from(place).ok()).unwrap_or(0)
}

fn numbered<T: Copy + Default>(all: &[T], number: u32) -> T {
    let place = usize::try_from(number).unwrap_or(usize::MAX);
    all.get(place).copied().unwrap_or_default()
}

/// Ids of the tables that foreign keys refer to, computed on demand; a clone begins without, since its catalog may be
/// changed.
#[derive(Debug, Default)]
pub struct Referenced(OnceLock<BTreeSet<u32>>);

impl Clone for Referenced {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// The compiled checks of a table; a clone begins without, since its rules may be changed.
#[derive(Debug, Default)]
pub struct Compiled(pub OnceLock<Arc<CompiledChecks>>);

impl Clone for Compiled {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl TableRules {
    /// Whether there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.checks.is_empty() && self.always.is_empty() && self.foreign_keys.is_empty()
    }

    /// An id for a new rule.
    #[must_use]
    pub fn next_id(&self) -> u32 {
        let keys = self.foreign_keys.iter().map(|key| key.id + 1);
        self.checks.iter().map(|check| check.id + 1).chain(keys).max().unwrap_or(0)
    }

    /// Whether a rule has this name.
    #[must_use]
    pub fn is_name_taken(&self, name: &str) -> bool {
        self.checks.iter().any(|check| check.name == name)
            || self.foreign_keys.iter().any(|key| key.name == name)
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
        let key = |key: &ForeignKey| proto::ForeignKey {
            id: key.id,
            name: key.name.clone(),
            columns: key.columns.clone(),
            target: key.target,
            target_columns: key.target_columns.clone(),
            index: key.index,
            on_delete: number(&KeyAction::ALL, key.on_delete),
            on_update: number(&KeyAction::ALL, key.on_update),
            set_columns: key.set_columns.clone(),
            match_full: key.match_full,
            timing: number(&Timing::ALL, key.timing),
            not_valid: key.not_valid,
        };
        let foreign_keys = self.foreign_keys.iter().map(key).collect();
        Some(proto::TableRules { checks, always: self.always.clone(), foreign_keys })
    }

    pub(super) fn decode(rules: Option<&proto::TableRules>) -> Self {
        let Some(rules) = rules else { return Self::default() };
        let check = |check: &proto::Check| Check {
            id: check.id,
            name: check.name.clone(),
            expression: check.expression.clone(),
            columns: check.columns.clone(),
        };
        let foreign_key = |key: &proto::ForeignKey| ForeignKey {
            id: key.id,
            name: key.name.clone(),
            columns: key.columns.clone(),
            target: key.target,
            target_columns: key.target_columns.clone(),
            index: key.index,
            on_delete: numbered(&KeyAction::ALL, key.on_delete),
            on_update: numbered(&KeyAction::ALL, key.on_update),
            set_columns: key.set_columns.clone(),
            match_full: key.match_full,
            timing: numbered(&Timing::ALL, key.timing),
            not_valid: key.not_valid,
        };
        Self {
            checks: rules.checks.iter().map(check).collect(),
            always: rules.always.clone(),
            foreign_keys: rules.foreign_keys.iter().map(foreign_key).collect(),
            compiled: Compiled::default(),
        }
    }
}
