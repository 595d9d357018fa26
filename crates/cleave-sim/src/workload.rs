//! Statements by the seed, each with what it does to the model or what it gives.

use std::fmt::Write as _;
use std::path::Path;

use cleave_media::SplitMix64;

use crate::model::{Effect, Index, Key, Model, Query, Row, Table};
use crate::world::index;

/// Names of the devices that tables are put on: one, or divided over both.
pub const DEVICES: [&str; 3] = ["embedded", "far", "embedded, far"];

/// Every way to reach the same rows: what a session sets before it asks.
pub const WAYS: [&[(&str, &str)]; 7] = [
    &[("stack", "blk")],
    &[("stack", "native")],
    &[("stack", "ndp"), ("split", "h0")],
    &[("stack", "ndp"), ("split", "h1")],
    &[("stack", "ndp"), ("split", "h1+")],
    &[("stack", "ndp"), ("split", "ndp")],
    &[("stack", "ndp"), ("split", "auto")],
];

const WORDS: [&str; 5] =
    ["amber", "birch", "cedar", "dune", "a rather longer note, so that pages differ"];

/// Whether what `settings` ask for may be refused: not every plan ends on one device, and not every plan joins.
pub fn may_be_refused<V: AsRef<str>>(settings: &[(&str, V)]) -> bool {
    let is_strict = |split: &str| ["ndp", "h1", "h1+"].contains(&split);
    settings.iter().any(|(name, value)| *name == "split" && is_strict(value.as_ref()))
}

/// One statement and what must come of it.
#[derive(Debug, Clone)]
pub struct Step {
    /// Settings to make before it.
    pub settings: Vec<(&'static str, String)>,
    /// Its text.
    pub sql: String,
    /// What it is.
    pub kind: Kind,
}

/// See [`Step`].
#[derive(Debug, Clone)]
pub enum Kind {
    /// It changes the tables, if it succeeds.
    Change(Effect),
    /// It fails, because two rows have a key that only one may have, and changes nothing.
    Duplicate,
    /// It gives rows.
    Query(Query),
}

/// Draws statements.
#[derive(Debug)]
pub struct Workload {
    random: SplitMix64,
    next_table: u32,
    next_index: u32,
    next_id: i64,
}

impl Workload {
    /// The statements that `seed` names.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            random: SplitMix64::new(seed.wrapping_mul(0x1234_5678_9abc_def1)),
            next_table: 0,
            next_index: 0,
            next_id: 1,
        }
    }

    /// The next statement over the tables of `model`; files for COPY are written to `directory`.
    ///
    /// # Panics
    /// Where such a file cannot be written.
    pub fn next(&mut self, model: &Model, directory: &Path) -> Step {
        let tables: Vec<&String> = model.tables.keys().collect();
        let choice = self.random.below(100);
        if tables.is_empty() || (choice < 8 && tables.len() < 5) {
            return self.create();
        }
        let name = tables[index(&mut self.random, tables.len())].clone();
        match choice {
            8..12 => Step {
                settings: Vec::new(),
                sql: format!("DROP TABLE {name}"),
                kind: Kind::Change(Effect::Drop(name)),
            },
            12..19 => self.index(&model.tables[&name], name),
            19..52 => self.insert(&model.tables[&name], name),
            52..66 => self.copy(&model.tables[&name], name, directory),
            _ => self.query(model, &tables, name),
        }
    }

    fn create(&mut self) -> Step {
        let name = format!("t{}", self.next_table);
        self.next_table += 1;
        let has_key = self.random.below(2) == 0;
        let key = if has_key { " PRIMARY KEY" } else { "" };
        let mut table = Table { has_key, ..Table::default() };
        let mut unique = "";
        if self.random.below(5) == 0 {
            unique = " UNIQUE";
            let index = Index { key: Key::V, unique: true, constraint: true };
            table.indexes.insert(format!("{name}_v_key"), index);
        }
        let device = DEVICES[index(&mut self.random, DEVICES.len())];
        Step {
            settings: vec![
                ("default_device", device.to_owned()),
                // Every second table is divided, those without a key in load order.
                (
                    "default_tablets",
                    ["0", "3"][usize::from(self.next_table.is_multiple_of(2))].to_owned(),
                ),
            ],
            sql: format!(
                "CREATE TABLE {name} (id bigint{key}, v bigint NOT NULL{unique}, note text)"
            ),
            kind: Kind::Change(Effect::Create(name, table)),
        }
    }

    /// Makes an index, or removes one.
    fn index(&mut self, table: &Table, name: String) -> Step {
        let own: Vec<_> = table.indexes.iter().filter(|(_, index)| !index.constraint).collect();
        if !own.is_empty() && (own.len() > 2 || self.random.below(3) == 0) {
            let dropped = own[index(&mut self.random, own.len())].0.clone();
            let sql = format!("DROP INDEX {dropped}");
            let kind = Kind::Change(Effect::DropIndex(name, dropped));
            return Step { settings: Vec::new(), sql, kind };
        }
        let keys = [Key::Id, Key::V, Key::Note, Key::VAndId];
        let key = keys[index(&mut self.random, keys.len())];
        let unique = self.random.below(3) == 0;
        let index_name = format!("i{}", self.next_index);
        self.next_index += 1;
        let word = if unique { " UNIQUE" } else { "" };
        let sql = format!("CREATE{word} INDEX {index_name} ON {name} ({})", key.columns());
        let kind = if unique && !table.differ_in(key, &[]) {
            Kind::Duplicate
        } else {
            let index = Index { key, unique, constraint: false };
            Kind::Change(Effect::CreateIndex(name, index_name, index))
        };
        Step { settings: Vec::new(), sql, kind }
    }

    fn insert(&mut self, table: &Table, name: String) -> Step {
        let count = 1 + index(&mut self.random, 6);
        let mut rows = self.rows(table, count);
        let has_key = table.unique_keys().any(|key| key == Key::Id);
        if has_key && !table.rows.is_empty() && self.random.below(6) == 0 {
            let at = index(&mut self.random, table.rows.len());
            let taken = table.rows.keys().nth(at).copied().unwrap_or_default();
            let place = index(&mut self.random, rows.len());
            rows[place].0 = taken;
        }
        let kind = added(table, name.clone(), &rows);
        let mut sql = format!("INSERT INTO {name} VALUES ");
        for (number, (id, row)) in rows.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            let note =
                row.note.as_ref().map_or_else(|| "NULL".to_owned(), |note| format!("'{note}'"));
            write!(sql, "{comma}({id}, {}, {note})", row.v).expect("text grows");
        }
        Step { settings: Vec::new(), sql, kind }
    }

    fn copy(&mut self, table: &Table, name: String, directory: &Path) -> Step {
        let count = 1 + index(&mut self.random, 300);
        let rows = self.rows(table, count);
        let mut text = String::new();
        for (id, row) in &rows {
            let note = row.note.as_ref().map_or_else(String::new, |note| format!("\"{note}\""));
            writeln!(text, "{id},{},{note}", row.v).expect("text grows");
        }
        let path = directory.join("rows.csv");
        std::fs::write(&path, text).expect("the run's folder can be written");
        Step {
            settings: Vec::new(),
            sql: format!("COPY {name} FROM '{}' (FORMAT csv)", path.display()),
            kind: added(table, name, &rows),
        }
    }

    fn query(&mut self, model: &Model, tables: &[&String], name: String) -> Step {
        let ids = self.next_id.unsigned_abs();
        let id = i64::try_from(self.random.below(ids)).unwrap_or(0);
        let v = i64::try_from(self.random.below(60)).unwrap_or(0);
        let query = match self.random.below(10) {
            0 => Query::All(name),
            1 => Query::Filter(name, 7, 3),
            2 => Query::Figures(name, id),
            3 => Query::Groups(name),
            4 => Query::Top(name, 1 + index(&mut self.random, 10)),
            5 => Query::Point(name, id),
            6 => Query::Equal(name, v),
            7 => Query::Word(name, WORDS[index(&mut self.random, WORDS.len())].to_owned()),
            8 => Query::Range(name, v, v + 5),
            _ => {
                // Its inner side has every id once only if it says so or nothing else went in; all of ours do.
                let other = tables[index(&mut self.random, tables.len())].clone();
                Query::Join(name, other)
            }
        };
        debug_assert!(!model.tables.is_empty());
        let way = WAYS[index(&mut self.random, WAYS.len())];
        let mut settings: Vec<_> =
            way.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let mut choose = |name, values: &[&str]| {
            let value = values[index(&mut self.random, values.len())];
            settings.push((name, value.to_owned()));
        };
        choose("batch_size", &["1", "10", "1000", "8192"]);
        choose("slot_bytes", &["4096", "65536"]);
        choose("slot_count", &["1", "2", "16"]);
        choose("threads", &["1", "2"]);
        choose("index_scan", &["on", "always", "off"]);
        choose("stealing", &["on", "always", "off"]);
        choose("key_filters", &["on", "always", "off"]);
        choose("late_columns", &["on", "always", "off"]);
        Step { settings, sql: query.sql(), kind: Kind::Query(query) }
    }

    fn rows(&mut self, table: &Table, count: usize) -> Vec<(i64, Row)> {
        // Where `v` may occur once only, most statements keep to that.
        let differs = table.unique_keys().any(|key| key == Key::V) && self.random.below(6) > 0;
        let mut row = |_| {
            let id = self.next_id;
            self.next_id += 1 + i64::from(self.random.below(10) == 0);
            let word = self.random.below(1 + WORDS.len() as u64);
            let note = usize::try_from(word).ok().and_then(|word| WORDS.get(word));
            let v = i64::try_from(self.random.below(60)).unwrap_or(0);
            let v = if differs { 100 + id } else { v };
            (id, Row { v, note: note.map(|word| (*word).to_owned()) })
        };
        (0..count).map(&mut row).collect()
    }
}

/// What comes of adding `rows` to `table`.
fn added(table: &Table, name: String, rows: &[(i64, Row)]) -> Kind {
    if table.unique_keys().all(|key| table.differ_in(key, rows)) {
        Kind::Change(Effect::Insert(name, rows.to_vec()))
    } else {
        Kind::Duplicate
    }
}
