//! Statements by the seed, each with what it does to the model or what it gives.

use std::fmt::Write as _;
use std::path::Path;

use cleave_media::SplitMix64;

use crate::model::{Effect, Model, Query, Row, Table};
use crate::world::index;

/// Names of the devices that tables are put on.
pub const DEVICES: [&str; 2] = ["embedded", "far"];

/// Every way to reach the same rows: what a session sets before it asks.
pub const WAYS: [&[(&str, &str)]; 5] = [
    &[("stack", "blk")],
    &[("stack", "native")],
    &[("stack", "ndp"), ("split", "h0")],
    &[("stack", "ndp"), ("split", "ndp")],
    &[("stack", "ndp"), ("split", "auto")],
];

const WORDS: [&str; 5] =
    ["amber", "birch", "cedar", "dune", "a rather longer note, so that pages differ"];

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
    /// It fails, because a key is there already, and changes nothing.
    Duplicate,
    /// It gives rows.
    Query(Query),
}

/// Draws statements.
#[derive(Debug)]
pub struct Workload {
    random: SplitMix64,
    next_table: u32,
    next_id: i64,
}

impl Workload {
    /// The statements that `seed` names.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            random: SplitMix64::new(seed.wrapping_mul(0x1234_5678_9abc_def1)),
            next_table: 0,
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
            12..50 => self.insert(model, name),
            50..65 => self.copy(name, directory),
            _ => self.query(model, &tables, name),
        }
    }

    fn create(&mut self) -> Step {
        let name = format!("t{}", self.next_table);
        self.next_table += 1;
        let has_key = self.random.below(2) == 0;
        let key = if has_key { " PRIMARY KEY" } else { "" };
        let device = DEVICES[index(&mut self.random, DEVICES.len())];
        Step {
            settings: vec![("default_device", device.to_owned())],
            sql: format!("CREATE TABLE {name} (id bigint{key}, v bigint NOT NULL, note text)"),
            kind: Kind::Change(Effect::Create(name, Table { has_key, ..Table::default() })),
        }
    }

    fn insert(&mut self, model: &Model, name: String) -> Step {
        let count = 1 + index(&mut self.random, 6);
        let mut rows = self.rows(count);
        let table = &model.tables[&name];
        let mut kind = Kind::Change(Effect::Insert(name.clone(), rows.clone()));
        if table.has_key && !table.rows.is_empty() && self.random.below(6) == 0 {
            let at = index(&mut self.random, table.rows.len());
            let taken = table.rows.keys().nth(at).copied().unwrap_or_default();
            let place = index(&mut self.random, rows.len());
            rows[place].0 = taken;
            kind = Kind::Duplicate;
        }
        let mut sql = format!("INSERT INTO {name} VALUES ");
        for (number, (id, row)) in rows.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            let note =
                row.note.as_ref().map_or_else(|| "NULL".to_owned(), |note| format!("'{note}'"));
            write!(sql, "{comma}({id}, {}, {note})", row.v).expect("text grows");
        }
        Step { settings: Vec::new(), sql, kind }
    }

    fn copy(&mut self, name: String, directory: &Path) -> Step {
        let count = 1 + index(&mut self.random, 300);
        let rows = self.rows(count);
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
            kind: Kind::Change(Effect::Insert(name, rows)),
        }
    }

    fn query(&mut self, model: &Model, tables: &[&String], name: String) -> Step {
        let ids = self.next_id.unsigned_abs();
        let id = i64::try_from(self.random.below(ids)).unwrap_or(0);
        let query = match self.random.below(7) {
            0 => Query::All(name),
            1 => Query::Filter(name, 7, 3),
            2 => Query::Figures(name, id),
            3 => Query::Groups(name),
            4 => Query::Top(name, 1 + index(&mut self.random, 10)),
            5 => Query::Point(name, id),
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
        Step { settings, sql: query.sql(), kind: Kind::Query(query) }
    }

    fn rows(&mut self, count: usize) -> Vec<(i64, Row)> {
        let mut row = |_| {
            let id = self.next_id;
            self.next_id += 1 + i64::from(self.random.below(10) == 0);
            let word = self.random.below(1 + WORDS.len() as u64);
            let note = usize::try_from(word).ok().and_then(|word| WORDS.get(word));
            let v = i64::try_from(self.random.below(60)).unwrap_or(0);
            (id, Row { v, note: note.map(|word| (*word).to_owned()) })
        };
        (0..count).map(&mut row).collect()
    }
}
