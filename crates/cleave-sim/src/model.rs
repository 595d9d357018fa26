//! What the tables must hold: rows by id, and what each query of the workload gives over them.
//!
//! Invariant: the model is so simple that it is right by reading it: maps, filters and sorts.

use std::collections::{BTreeMap, BTreeSet};

/// One row, but for its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// A small number, of which many rows have the same.
    pub v: i64,
    /// A word, or none.
    pub note: Option<String>,
}

/// One table. Ids are unique, whether or not the table says so.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// Whether the id is its primary key.
    pub has_key: bool,
    /// Its other indexes, by name.
    pub indexes: BTreeMap<String, Index>,
    /// Its rows.
    pub rows: BTreeMap<i64, Row>,
}

/// An index of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Index {
    /// What it is over.
    pub key: Key,
    /// Whether no two rows may have the same key.
    pub unique: bool,
    /// Whether it is a constraint's, and goes with its table only.
    pub constraint: bool,
}

/// Columns of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// `id`.
    Id,
    /// `v`.
    V,
    /// `note`; rows without one have no key.
    Note,
    /// `v, id`.
    VAndId,
}

impl Key {
    /// As a statement has it.
    #[must_use]
    pub fn columns(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::V => "v",
            Self::Note => "note",
            Self::VAndId => "v, id",
        }
    }

    fn of(self, id: i64, row: &Row) -> Option<String> {
        match self {
            Self::Id => Some(id.to_string()),
            Self::V => Some(row.v.to_string()),
            Self::Note => row.note.clone(),
            Self::VAndId => Some(format!("{},{id}", row.v)),
        }
    }
}

impl Table {
    /// What its rows must differ in.
    pub fn unique_keys(&self) -> impl Iterator<Item = Key> {
        let indexes = self.indexes.values().filter(|index| index.unique).map(|index| index.key);
        self.has_key.then_some(Key::Id).into_iter().chain(indexes)
    }

    /// Whether its rows and `more` differ in `key`.
    #[must_use]
    pub fn differ_in(&self, key: Key, more: &[(i64, Row)]) -> bool {
        let rows = self.rows.iter().chain(more.iter().map(|(id, row)| (id, row)));
        let mut seen = BTreeSet::new();
        rows.filter_map(|(id, row)| key.of(*id, row)).all(|key| seen.insert(key))
    }
}

/// All tables, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Model {
    /// See above.
    pub tables: BTreeMap<String, Table>,
}

/// What a statement does to the tables.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Makes an empty table.
    Create(String, Table),
    /// Removes a table.
    Drop(String),
    /// Adds rows.
    Insert(String, Vec<(i64, Row)>),
    /// Makes an index of a table.
    CreateIndex(String, String, Index),
    /// Removes an index of a table.
    DropIndex(String, String),
}

impl Model {
    /// The tables after `effect`.
    #[must_use]
    pub fn after(&self, effect: &Effect) -> Self {
        let mut next = self.clone();
        match effect {
            Effect::Create(name, table) => {
                next.tables.insert(name.clone(), table.clone());
            }
            Effect::Drop(name) => {
                next.tables.remove(name);
            }
            Effect::Insert(name, rows) => {
                if let Some(table) = next.tables.get_mut(name) {
                    table.rows.extend(rows.iter().cloned());
                }
            }
            Effect::CreateIndex(name, index_name, index) => {
                if let Some(table) = next.tables.get_mut(name) {
                    table.indexes.insert(index_name.clone(), *index);
                }
            }
            Effect::DropIndex(name, index_name) => {
                if let Some(table) = next.tables.get_mut(name) {
                    table.indexes.remove(index_name);
                }
            }
        }
        next
    }
}

/// A query over one or two tables.
#[derive(Debug, Clone)]
pub enum Query {
    /// Every row.
    All(String),
    /// The rows whose `v` leaves a rest.
    Filter(String, i64, i64),
    /// Figures over the rows above an id.
    Figures(String, i64),
    /// How often each note occurs.
    Groups(String),
    /// The rows with the largest `v`.
    Top(String, usize),
    /// One row.
    Point(String, i64),
    /// The rows with one `v`, in any order.
    Equal(String, i64),
    /// The rows with one note, in any order.
    Word(String, String),
    /// The rows whose `v` lies in a range.
    Range(String, i64, i64),
    /// The rows of one table with those of another whose id is their `v`.
    Join(String, String),
}

impl Query {
    /// Its text.
    #[must_use]
    pub fn sql(&self) -> String {
        match self {
            Self::All(t) => format!("SELECT id, v, note FROM {t} ORDER BY id"),
            Self::Filter(t, modulus, rest) => {
                format!("SELECT id, note FROM {t} WHERE v % {modulus} = {rest} ORDER BY id")
            }
            Self::Figures(t, above) => {
                format!("SELECT count(*), sum(v), min(id), max(v) FROM {t} WHERE id > {above}")
            }
            Self::Groups(t) => {
                format!("SELECT note, count(*), max(id) FROM {t} GROUP BY note ORDER BY note")
            }
            Self::Top(t, count) => {
                format!("SELECT v, id FROM {t} ORDER BY v DESC, id LIMIT {count}")
            }
            Self::Point(t, id) => format!("SELECT v, note FROM {t} WHERE id = {id}"),
            Self::Equal(t, v) => format!("SELECT id, note FROM {t} WHERE v = {v}"),
            Self::Word(t, word) => format!("SELECT id, v FROM {t} WHERE note = '{word}'"),
            Self::Range(t, from, below) => {
                format!("SELECT v, id FROM {t} WHERE v >= {from} AND v < {below} ORDER BY v, id")
            }
            Self::Join(t, u) => {
                format!("SELECT a.id, b.v FROM {t} a JOIN {u} b ON a.v = b.id ORDER BY a.id")
            }
        }
    }

    /// Whether its rows may come in any order: those of the model are then sorted as text.
    #[must_use]
    pub fn is_unordered(&self) -> bool {
        matches!(self, Self::Equal(..) | Self::Word(..))
    }

    /// Its rows, values joined by commas.
    #[must_use]
    pub fn rows(&self, model: &Model) -> Vec<String> {
        let none = Table::default();
        let table = |name: &String| model.tables.get(name).unwrap_or(&none);
        match self {
            Self::All(t) => {
                let line = |(id, row): (&i64, &Row)| format!("{id},{},{}", row.v, text(&row.note));
                table(t).rows.iter().map(line).collect()
            }
            Self::Filter(t, modulus, rest) => table(t)
                .rows
                .iter()
                .filter(|(_, row)| row.v % modulus == *rest)
                .map(|(id, row)| format!("{id},{}", text(&row.note)))
                .collect(),
            Self::Figures(t, above) => {
                let rows: Vec<_> = table(t).rows.range(above + 1..).collect();
                let sum: i64 = rows.iter().map(|(_, row)| row.v).sum();
                let sum = (!rows.is_empty()).then_some(sum);
                let min = rows.iter().map(|(id, _)| **id).min();
                let max = rows.iter().map(|(_, row)| row.v).max();
                vec![format!("{},{},{},{}", rows.len(), number(sum), number(min), number(max))]
            }
            Self::Groups(t) => {
                // Words first, in their order, and then the rows without one.
                let mut groups: BTreeMap<(bool, String), (usize, i64)> = BTreeMap::new();
                for (id, row) in &table(t).rows {
                    let group = groups.entry((row.note.is_none(), text(&row.note))).or_default();
                    *group = (group.0 + 1, *id);
                }
                let line = |((_, note), (count, max))| format!("{note},{count},{max}");
                groups.into_iter().map(line).collect()
            }
            Self::Top(t, count) => {
                let mut rows: Vec<_> = table(t).rows.iter().map(|(id, row)| (-row.v, id)).collect();
                rows.sort();
                rows.iter().take(*count).map(|(v, id)| format!("{},{id}", -v)).collect()
            }
            Self::Point(t, id) => {
                let row = table(t).rows.get(id);
                row.map(|row| format!("{},{}", row.v, text(&row.note))).into_iter().collect()
            }
            Self::Equal(t, v) => {
                let rows = table(t).rows.iter().filter(|(_, row)| row.v == *v);
                let mut lines: Vec<_> =
                    rows.map(|(id, row)| format!("{id},{}", text(&row.note))).collect();
                lines.sort();
                lines
            }
            Self::Word(t, word) => {
                let rows = table(t).rows.iter().filter(|(_, row)| row.note.as_ref() == Some(word));
                let mut lines: Vec<_> = rows.map(|(id, row)| format!("{id},{}", row.v)).collect();
                lines.sort();
                lines
            }
            Self::Range(t, from, below) => {
                let rows = table(t).rows.iter().filter(|(_, row)| (*from..*below).contains(&row.v));
                let mut rows: Vec<_> = rows.map(|(id, row)| (row.v, id)).collect();
                rows.sort();
                rows.iter().map(|(v, id)| format!("{v},{id}")).collect()
            }
            Self::Join(t, u) => {
                let inner = table(u);
                let outer = table(t).rows.iter();
                let joined = outer.filter_map(|(id, row)| Some((id, inner.rows.get(&row.v)?)));
                joined.map(|(id, row)| format!("{id},{}", row.v)).collect()
            }
        }
    }
}

fn text(note: &Option<String>) -> String {
    note.clone().unwrap_or_else(|| "NULL".to_owned())
}

fn number(value: Option<i64>) -> String {
    value.map_or_else(|| "NULL".to_owned(), |value| value.to_string())
}
