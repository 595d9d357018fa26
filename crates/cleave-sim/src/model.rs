//! The model of the tables: the expected rows by id, and the result of each query of the workload.
//!
//! Invariant: the model is so simple that it can be verified by reading: maps, filters and sorts.

use std::collections::{BTreeMap, BTreeSet};

/// One row, without its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// A small number that many rows share.
    pub v: i64,
    /// A word, or none.
    pub note: Option<String>,
}

/// One table. Ids are unique, even without a constraint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// The name of the index of its primary key, the id; None if it has none.
    pub key: Option<String>,
    /// Its other indexes, by name.
    pub indexes: BTreeMap<String, Index>,
    /// The table whose ids its `v` refers to, if there is a foreign key.
    pub parent: Option<Parent>,
    /// The devices that it lies on, as the setting names them.
    pub devices: &'static str,
    /// Whether it may have several tablets.
    pub is_divided: bool,
    /// Columns after those of a [`Row`], with the default that all rows have there.
    pub extra: Vec<(String, i64)>,
    /// Its rows.
    pub rows: BTreeMap<i64, Row>,
}

/// A foreign key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// The referenced table.
    pub table: String,
    /// Whether deletes cascade to its rows; if not, they are refused.
    pub cascades: bool,
}

/// An index of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Index {
    /// Its key.
    pub key: Key,
    /// Whether no two rows may have the same key.
    pub unique: bool,
    /// Whether it belongs to a constraint, and is dropped only with its table.
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
    /// As in a statement.
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
    /// The unique keys of its rows.
    pub fn unique_keys(&self) -> impl Iterator<Item = Key> {
        let indexes = self.indexes.values().filter(|index| index.unique).map(|index| index.key);
        self.key.is_some().then_some(Key::Id).into_iter().chain(indexes)
    }

    /// Whether its rows and `more` have distinct values of `key`.
    #[must_use]
    pub fn differ_in(&self, key: Key, more: &[(i64, Row)]) -> bool {
        let rows = self.rows.iter().chain(more.iter().map(|(id, row)| (id, row)));
        let mut seen = BTreeSet::new();
        rows.filter_map(|(id, row)| key.of(*id, row)).all(|key| seen.insert(key))
    }
}

/// A materialized view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Materialized {
    /// The table of its query.
    pub table: String,
    /// Whether it has a row for each `v`, instead of those from [`VIEW_FROM`] on.
    pub is_grouped: bool,
    /// Its rows as of the last refresh, values joined by commas.
    pub rows: Vec<String>,
}

impl Materialized {
    /// Its query.
    #[must_use]
    pub fn sql(&self) -> String {
        let table = &self.table;
        match self.is_grouped {
            true => format!("SELECT v, count(*) AS n, sum(id) AS ids FROM {table} GROUP BY v"),
            false => format!("SELECT id, v FROM {table} WHERE v >= {VIEW_FROM}"),
        }
    }

    /// The rows of its query, in the order of the first column.
    fn rows_of(&self, table: &Table) -> Vec<String> {
        if !self.is_grouped {
            let rows = table.rows.iter().filter(|(_, row)| row.v >= VIEW_FROM);
            return rows.map(|(id, row)| format!("{id},{}", row.v)).collect();
        }
        let mut groups: BTreeMap<i64, (usize, i64)> = BTreeMap::new();
        for (id, row) in &table.rows {
            let (count, sum) = groups.entry(row.v).or_default();
            (*count, *sum) = (*count + 1, *sum + id);
        }
        groups.into_iter().map(|(v, (count, sum))| format!("{v},{count},{sum}")).collect()
    }
}

/// The expected content of the database.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Model {
    /// Tables by name.
    pub tables: BTreeMap<String, Table>,
    /// The table of each view.
    pub views: BTreeMap<String, String>,
    /// Materialized views by name.
    pub materialized: BTreeMap<String, Materialized>,
    /// The last number of each sequence that was reported to a client.
    pub sequences: BTreeMap<String, i64>,
}

/// The effect of a statement on the tables.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Makes an empty table.
    Create(String, Table),
    /// Removes a table.
    Drop(String),
    /// Adds rows, replacing those with the same ids.
    Put(String, Vec<(i64, Row)>),
    /// Deletes the rows with these ids, and those that cascade.
    Delete(String, Vec<i64>),
    /// Deletes all rows, and those of all referencing tables.
    Truncate(String),
    /// Adds a column, with the default that all rows have there.
    AddColumn(String, String, i64),
    /// Removes an added column.
    DropColumn(String, String),
    /// Renames a table.
    Rename(String, String),
    /// Makes a view of a table.
    CreateView(String, String),
    /// Removes a view.
    DropView(String),
    /// Makes a materialized view, with the rows of its query.
    CreateMaterialized(String, Materialized),
    /// Brings the rows of a materialized view up to date.
    Refresh(String),
    /// Removes a materialized view.
    DropMaterialized(String),
    /// Makes a sequence.
    CreateSequence(String),
    /// Removes a sequence.
    DropSequence(String),
    /// Makes an index of a table.
    CreateIndex(String, String, Index),
    /// Removes an index of a table.
    DropIndex(String, String),
    /// All of these, one after the other, or none.
    All(Vec<Effect>),
}

impl Model {
    /// The tables that refer to `parent`, and whether deletes cascade to them.
    pub fn children(&self, parent: &str) -> impl Iterator<Item = (&String, bool)> {
        self.tables.iter().filter_map(move |(name, table)| {
            let named = table.parent.as_ref().filter(|known| known.table == parent)?;
            Some((name, named.cascades))
        })
    }

    /// The rows deleted with those of `name` that have these `ids`, including these; None if others restrict it.
    #[must_use]
    pub fn gone_with(&self, name: &str, ids: &[i64]) -> Option<Vec<(String, Vec<i64>)>> {
        let table = self.tables.get(name)?;
        let ids: BTreeSet<i64> =
            ids.iter().copied().filter(|id| table.rows.contains_key(id)).collect();
        let mut gone = vec![(name.to_owned(), ids.iter().copied().collect())];
        for (child, cascades) in self.children(name) {
            let named = self.tables[child].rows.iter().filter(|(_, row)| ids.contains(&row.v));
            let named: Vec<i64> = named.map(|(id, _)| *id).collect();
            if !named.is_empty() {
                if !cascades {
                    return None;
                }
                gone.extend(self.gone_with(child, &named)?);
            }
        }
        Some(gone)
    }

    /// `name` and all tables that refer to it, directly or not.
    fn family(&self, name: &str) -> Vec<String> {
        let mut family = vec![name.to_owned()];
        for (child, _) in self.children(name) {
            family.extend(self.family(child));
        }
        family
    }

    /// Whether all of `rows` refer to rows of the table's parent.
    #[must_use]
    pub fn has_parents(&self, table: &Table, rows: &[(i64, Row)]) -> bool {
        let Some(parent) = &table.parent else { return true };
        let Some(parent) = self.tables.get(&parent.table) else { return true };
        rows.iter().all(|(_, row)| parent.rows.contains_key(&row.v))
    }

    /// The tables after `effect`.
    #[must_use]
    pub fn after(&self, effect: &Effect) -> Self {
        let mut next = self.clone();
        next.apply(effect);
        next
    }

    fn apply(&mut self, effect: &Effect) {
        let next = self;
        match effect {
            Effect::All(effects) => effects.iter().for_each(|effect| next.apply(effect)),
            Effect::Create(name, table) => {
                next.tables.insert(name.clone(), table.clone());
            }
            Effect::Drop(name) => {
                next.tables.remove(name);
                for table in next.tables.values_mut() {
                    table.parent.take_if(|parent| parent.table == *name);
                }
                next.views.retain(|_, table| table != name);
                next.materialized.retain(|_, view| view.table != *name);
            }
            Effect::Put(name, rows) => {
                if let Some(table) = next.tables.get_mut(name) {
                    table.rows.extend(rows.iter().cloned());
                }
            }
            Effect::Delete(name, ids) => {
                for (name, ids) in next.gone_with(name, ids).unwrap_or_default() {
                    if let Some(table) = next.tables.get_mut(&name) {
                        table.rows.retain(|id, _| !ids.contains(id));
                    }
                }
            }
            Effect::Truncate(name) => {
                for name in next.family(name) {
                    if let Some(table) = next.tables.get_mut(&name) {
                        table.rows.clear();
                    }
                }
            }
            Effect::AddColumn(name, column, default) => {
                if let Some(table) = next.tables.get_mut(name) {
                    table.extra.push((column.clone(), *default));
                }
            }
            Effect::DropColumn(name, column) => {
                if let Some(table) = next.tables.get_mut(name) {
                    table.extra.retain(|(extra, _)| extra != column);
                }
            }
            Effect::Rename(from, to) => {
                if let Some(table) = next.tables.remove(from) {
                    next.tables.insert(to.clone(), table);
                }
                for table in next.tables.values_mut() {
                    if let Some(parent) = table.parent.as_mut().filter(|p| p.table == *from) {
                        parent.table.clone_from(to);
                    }
                }
                for view in next.materialized.values_mut().filter(|view| view.table == *from) {
                    view.table.clone_from(to);
                }
            }
            Effect::CreateView(name, table) => {
                next.views.insert(name.clone(), table.clone());
            }
            Effect::DropView(name) => {
                next.views.remove(name);
            }
            Effect::CreateMaterialized(name, view) => {
                next.materialized.insert(name.clone(), view.clone());
                next.apply(&Effect::Refresh(name.clone()));
            }
            Effect::Refresh(name) => {
                if let Some(view) = next.materialized.get_mut(name)
                    && let Some(table) = next.tables.get(&view.table)
                {
                    view.rows = view.rows_of(table);
                }
            }
            Effect::DropMaterialized(name) => {
                next.materialized.remove(name);
            }
            Effect::CreateSequence(name) => {
                next.sequences.insert(name.clone(), 0);
            }
            Effect::DropSequence(name) => {
                next.sequences.remove(name);
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
    }

    /// Queries for the rows of all views.
    pub fn of_views(&self) -> impl Iterator<Item = Query> {
        let plain = self.views.keys().cloned().map(Query::View);
        plain.chain(self.materialized.keys().cloned().map(Query::Materialized))
    }

    /// The expected catalog, a line for each table, index, view and sequence, sorted.
    #[must_use]
    pub fn shape(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, table) in &self.tables {
            let extra = table.extra.iter().map(|(column, _)| column.as_str());
            let columns: Vec<_> = ["id", "v", "note"].into_iter().chain(extra).collect();
            lines.push(format!("table {name} ({})", columns.join(", ")));
            let indexes = table.indexes.keys().chain(&table.key);
            lines.extend(indexes.map(|index| format!("index {index} of {name}")));
        }
        lines.extend(self.materialized.keys().map(|name| format!("materialized view {name}")));
        lines.extend(self.views.keys().map(|name| format!("view {name}")));
        lines.extend(self.sequences.keys().map(|name| format!("sequence {name}")));
        lines.sort();
        lines
    }
}

/// A query over one or two tables.
#[derive(Debug, Clone)]
pub enum Query {
    /// Every row.
    All(String),
    /// The rows whose `v` has a given remainder.
    Filter(String, i64, i64),
    /// Aggregates over the rows above an id.
    Figures(String, i64),
    /// The count of each note.
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
    /// The rows of one table joined with those of another whose id is their `v`.
    Join(String, String),
    /// The same with those that have none there.
    LeftJoin(String, String),
    /// For each third `v` the rows of one table with those of another that have it too.
    JoinGroups(String, String),
    /// A view: the rows of its table from [`VIEW_FROM`] on.
    View(String),
    /// The rows of a materialized view.
    Materialized(String),
}

/// The least `v` in views.
pub const VIEW_FROM: i64 = 30;

impl Query {
    /// Its text.
    #[must_use]
    pub fn sql(&self) -> String {
        match self {
            Self::All(t) => format!("SELECT * FROM {t} ORDER BY id"),
            Self::View(name) => format!("SELECT * FROM {name} ORDER BY id"),
            Self::Materialized(name) => format!("SELECT * FROM {name} ORDER BY 1"),
            Self::Filter(t, modulus, rest) => {
                format!("SELECT id, note FROM {t} WHERE v % {modulus} = {rest} ORDER BY id")
            }
            Self::Figures(t, above) => {
                format!("SELECT count(*), sum(v), min(id), max(v) FROM {t} WHERE id > {above}")
            }
            Self::Groups(t) => {
                format!(
                    "WITH x AS MATERIALIZED (SELECT id, note FROM {t}) SELECT note, count(*), max(id) FROM x \
                     GROUP BY note ORDER BY note"
                )
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
            Self::LeftJoin(t, u) => {
                format!("SELECT a.id, b.v FROM {t} a LEFT JOIN {u} b ON a.v = b.id ORDER BY a.id")
            }
            Self::JoinGroups(t, u) => {
                format!(
                    "SELECT a.v, count(*), sum(b.id) FROM {t} a JOIN {u} b ON a.v = b.v \
                     WHERE a.v % 3 = 0 GROUP BY a.v ORDER BY a.v"
                )
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
                let extra = table(t).extra.iter().map(|(_, default)| format!(",{default}"));
                let extra: String = extra.collect();
                let line =
                    |(id, row): (&i64, &Row)| format!("{id},{},{}{extra}", row.v, text(&row.note));
                table(t).rows.iter().map(line).collect()
            }
            Self::View(name) => {
                let Some(t) = model.views.get(name) else { return Vec::new() };
                let rows = table(t).rows.iter().filter(|(_, row)| row.v >= VIEW_FROM);
                rows.map(|(id, row)| format!("{id},{}", row.v)).collect()
            }
            Self::Materialized(name) => {
                model.materialized.get(name).map(|view| view.rows.clone()).unwrap_or_default()
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
                // Words first, in order, then the rows without one.
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
            Self::LeftJoin(t, u) => {
                let inner = table(u);
                let of_inner = |row: &Row| inner.rows.get(&row.v).map(|found| found.v);
                let outer = table(t).rows.iter();
                outer.map(|(id, row)| format!("{id},{}", number(of_inner(row)))).collect()
            }
            Self::JoinGroups(t, u) => {
                let mut inner: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
                for (id, row) in &table(u).rows {
                    let (count, ids) = inner.entry(row.v).or_default();
                    (*count, *ids) = (*count + 1, *ids + id);
                }
                let mut groups: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
                for row in table(t).rows.values().filter(|row| row.v % 3 == 0) {
                    let Some((count, ids)) = inner.get(&row.v) else { continue };
                    let group = groups.entry(row.v).or_default();
                    *group = (group.0 + count, group.1 + ids);
                }
                groups.into_iter().map(|(v, (count, ids))| format!("{v},{count},{ids}")).collect()
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
