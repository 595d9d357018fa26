//! Generates statements from the seed, each with its effect on the model or its result.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use cleave_media::SplitMix64;

use crate::model::{Effect, Index, Key, Materialized, Model, Parent, Query, Row, Table, VIEW_FROM};
use crate::world::index;

/// Devices of tables: one, or divided over both.
pub const DEVICES: &[&str] = &["embedded", "far", "embedded, far"];

/// The same where `m` is a mirror, of which `far` has a copy.
pub const MIRRORED: &[&str] = &["m", "embedded, m", "far, m"];

/// Where two machines reach each other.
pub const PEERS: &[&str] = &["far", "other", "far, other", "other, embedded"];

/// Settings with which devices read pages of each other or take rows of each other: the same queries must give the same
/// rows.
pub const PEER_WAYS: [&[(&str, &str)]; 5] = [
    &[BY_DEVICES, ("split", "auto"), SHIPPED, ALONE, ("compute_on", "far"), ("exchange", "off")],
    &[BY_DEVICES, ("split", "auto"), FLUSHED, ALONE, ("compute_on", "other"), ("exchange", "off")],
    &[BY_DEVICES, ("split", "h0"), FLUSHED, ALONE, ("compute_on", ""), EXCHANGED],
    &[BY_DEVICES, ("split", "h0"), SHIPPED, ALONE, ("compute_on", "far, other"), EXCHANGED],
    &[BY_DEVICES, ("split", "auto"), FLUSHED, STAGED, ("compute_on", "far, other"), EXCHANGED],
];

const BY_DEVICES: (&str, &str) = ("stack", "ndp");
const EXCHANGED: (&str, &str) = ("exchange", "always");

/// What takes both back.
pub const NO_DEVICES: [(&str, &str); 2] = [("compute_on", ""), ("exchange", "off")];

/// All combinations of settings under which the same query must give the same rows.
pub const WAYS: [&[(&str, &str)]; 7] = [
    &[("stack", "blk"), SHIPPED, ALONE],
    &[("stack", "native"), FLUSHED, ALONE],
    &[("stack", "ndp"), ("split", "h0"), SHIPPED, STAGED, NOTED],
    &[("stack", "ndp"), ("split", "h1"), SHIPPED, ALONE],
    &[("stack", "ndp"), ("split", "h1+"), FLUSHED, ALONE],
    &[("stack", "ndp"), ("split", "ndp"), SHIPPED, ALONE, NOTED],
    &[("stack", "ndp"), ("split", "auto"), FLUSHED, STAGED, REUSED, ON_DEVICES, NOTED],
];

/// Queries of WITH are written to devices, or not, and used again. What the host holds of other results depends on how
/// long they took, which is no virtual time.
const STAGED: (&str, &str) = ("stages", "always");
const ALONE: (&str, &str) = ("stages", "off");
const REUSED: (&str, &str) = ("result_reuse", "on");
const ON_DEVICES: (&str, &str) = ("result_cache_bytes", "0");

/// What conditions are true for is noted at once, and used by the ways that follow.
const NOTED: (&str, &str) = ("filter_history", "always");

/// Groups of one partition come in the same order each time, those of several threads do not.
const IN_ORDER: (&str, &str) = ("threads", "1");

/// The delta is shipped with a query, or flushed first.
const SHIPPED: (&str, &str) = ("shipped_delta_bytes", "1MB");
const FLUSHED: (&str, &str) = ("shipped_delta_bytes", "0");

/// How statements change rows: by update fragments that lock in each way, or row by row.
const UPDATES: [[(&str, &str); 2]; 4] = [
    [("update_placement", "device"), ("update_locking", "shared")],
    [("update_placement", "device"), ("update_locking", "table")],
    [("update_placement", "device"), ("update_locking", "optimistic")],
    [("update_placement", "host"), ("update_locking", "shared")],
];

/// Rows of a statement that takes the last ones of a table.
const SELECTED_MAX: usize = 60;
/// Ids up to which it may take all.
const ALL_IDS_MAX: i64 = 2_000;

/// What lets fragments of all kinds run: they read pages of devices.
const BY_FRAGMENTS: [(&str, &str); 4] =
    [("stack", "ndp"), ("split", "auto"), FLUSHED, ("update_placement", "device")];

const WORDS: [&str; 5] =
    ["amber", "birch", "cedar", "dune", "a rather longer note, so that pages differ"];

/// Whether `settings` may be refused: not every plan can end on one device, not every plan joins, and devices that are
/// named do not run everything.
pub fn may_be_refused<V: AsRef<str>>(settings: &[(&str, V)]) -> bool {
    settings.iter().any(|(name, value)| match *name {
        "split" => ["ndp", "h1", "h1+"].contains(&value.as_ref()),
        "compute_on" => !value.as_ref().is_empty(),
        _ => false,
    })
}

/// One statement and its expected outcome.
#[derive(Debug, Clone)]
pub struct Step {
    /// Settings to set before it.
    pub settings: Vec<(&'static str, String)>,
    /// Its text.
    pub sql: String,
    /// The expected outcome.
    pub kind: Kind,
}

/// See [`Step`].
#[derive(Debug, Clone)]
pub enum Kind {
    /// It changes the tables, if it succeeds.
    Change(Effect),
    /// It fails with a key violation: two rows have the same unique key, or a row refers to one that is not there; it
    /// changes nothing.
    Violation,
    /// It returns rows.
    Query(Query),
    /// It returns the next number of a sequence.
    Next(String),
    /// It takes a backup into a folder.
    Backup(PathBuf),
}

impl Step {
    fn of(sql: String, kind: Kind) -> Self {
        Self { settings: Vec::new(), sql, kind }
    }
}

/// Draws the statements.
#[derive(Debug)]
pub struct Workload {
    random: SplitMix64,
    /// Of its own, so that the statements of a seed stay as they are.
    of_updates: SplitMix64,
    /// Which changes take the place of others, so that fragments of each kind run.
    of_fragments: SplitMix64,
    /// What becomes of materialized views.
    of_views: SplitMix64,
    /// Which queries join, and which devices compute, where devices reach each other.
    of_peers: Option<SplitMix64>,
    /// Whether the statement is one that fragments are to run.
    is_for_fragments: bool,
    devices: &'static [&'static str],
    next_table: u32,
    next_index: u32,
    /// Number of the next column, view, sequence or backup.
    next_other: u32,
    next_id: i64,
}

impl Workload {
    /// The statements of `seed`, over tables on `devices`, which reach each other if `has_peers`.
    #[must_use]
    pub fn new(seed: u64, devices: &'static [&'static str], has_peers: bool) -> Self {
        let of_peers = SplitMix64::new(seed.wrapping_mul(0x3456_789a_bcde_f12f));
        Self {
            devices,
            of_peers: has_peers.then_some(of_peers),
            random: SplitMix64::new(seed.wrapping_mul(0x1234_5678_9abc_def1)),
            of_updates: SplitMix64::new(seed.wrapping_mul(0x9abc_def1_1234_5679)),
            of_fragments: SplitMix64::new(seed.wrapping_mul(0x5679_1234_9abc_def1)),
            of_views: SplitMix64::new(seed.wrapping_mul(0x2345_6791_abcd_ef13)),
            is_for_fragments: false,
            next_table: 0,
            next_index: 0,
            next_other: 0,
            next_id: 1,
        }
    }

    /// The next statement over the tables of `model`; files for COPY are written to `directory`.
    ///
    /// # Panics
    /// If such a file cannot be written.
    pub fn next(&mut self, model: &Model, directory: &Path) -> Step {
        let choice = self.random.below(100);
        if choice >= 62 && !model.tables.is_empty() {
            let tables: Vec<&String> = model.tables.keys().collect();
            let name = tables[index(&mut self.random, tables.len())].clone();
            return self.query(model, &tables, name);
        }
        let mut step = match choice {
            0..22 => self.block(model, directory),
            22..26 => self.sequence(model),
            26..28 => {
                let place = directory.join(format!("backup{}", self.number()));
                let sql = format!("BACKUP TO '{}'", place.display());
                Step::of(sql, Kind::Backup(place))
            }
            28..30 => Step::of("CHECKPOINT".to_owned(), Kind::Change(Effect::All(Vec::new()))),
            _ => self.change(model, directory),
        };
        // A statement that reads rows to change them runs in any way that takes every plan.
        let ways: Vec<_> = WAYS.iter().filter(|way| !may_be_refused(way)).collect();
        let way = ways[index(&mut self.random, ways.len())];
        step.settings.extend(way.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let updates = UPDATES[index(&mut self.of_updates, UPDATES.len())];
        step.settings.extend(updates.map(|(name, value)| (name, value.to_owned())));
        if std::mem::take(&mut self.is_for_fragments) {
            step.settings.extend(BY_FRAGMENTS.map(|(name, value)| (name, value.to_owned())));
        }
        if let Some(random) = &mut self.of_peers {
            let computers = ["", "", "", "far", "other", "far, other"];
            let computers = computers[index(random, computers.len())];
            let settings = NO_DEVICES.map(|(name, value)| (name, value.to_owned()));
            step.settings.extend(settings);
            step.settings.push(("compute_on", computers.to_owned()));
        }
        step
    }

    /// Locks many rows of a table where a fragment can do so, if there is one.
    pub fn lock_many(&mut self, model: &Model) -> Option<Step> {
        let tables = model.tables.iter().filter(|(name, table)| {
            // No fragment locks rows of a mirror.
            let is_one = !table.is_divided && table.devices != "m";
            is_one && model.children(name).next().is_none() && !table.rows.is_empty()
        });
        let (name, _) = tables.max_by_key(|(_, table)| table.rows.len())?;
        let mut step = self.lock(name);
        let settings = BY_FRAGMENTS.into_iter().chain(UPDATES[0]).chain(NO_DEVICES);
        step.settings.extend(settings.map(|(name, value)| (name, value.to_owned())));
        Some(step)
    }

    /// A statement that changes tables.
    fn change(&mut self, model: &Model, directory: &Path) -> Step {
        let tables: Vec<&String> = model.tables.keys().collect();
        let choice = self.random.below(100);
        if tables.is_empty() || (choice < 14 && tables.len() < 5) {
            return self.create(model);
        }
        let name = tables[index(&mut self.random, tables.len())].clone();
        if self.of_views.below(6) == 0 {
            return self.materialized(model, name);
        }
        let table = &model.tables[&name];
        if self.of_fragments.below(4) == 0 {
            self.is_for_fragments |= self.of_fragments.below(4) > 0;
            return match self.of_fragments.below(8) {
                0 => self.create_as(table, name),
                1..4 => self.insert_selected(model, name),
                4..6 => self.replace(model, name),
                6 => self.move_ids(model, name),
                _ => self.lock(&name),
            };
        }
        match choice {
            14..18 => {
                Step::of(format!("DROP TABLE {name} CASCADE"), Kind::Change(Effect::Drop(name)))
            }
            18..28 => self.index(table, name),
            28..34 => self.alter(model, name),
            34..38 => self.view(model, name),
            38..41 => {
                let cascade = if model.children(&name).next().is_some() { " CASCADE" } else { "" };
                Step::of(format!("TRUNCATE {name}{cascade}"), Kind::Change(Effect::Truncate(name)))
            }
            41..55 => self.copy(model, name, directory),
            55..70 => self.update(model, name),
            70..78 => self.delete(model, name),
            _ => self.insert(model, name),
        }
    }

    /// Several changes as one, some of them rolled back; or all rolled back.
    fn block(&mut self, model: &Model, directory: &Path) -> Step {
        let mut inner = model.clone();
        let (mut sql, mut settings) = ("BEGIN".to_owned(), Vec::new());
        let mut effects = Vec::new();
        for _ in 0..1 + self.random.below(5) {
            let step = self.change(&inner, directory);
            let Kind::Change(effect) = step.kind else { continue };
            if self.random.below(5) == 0 {
                // The next may be of the same name again.
                write!(sql, "; SAVEPOINT s; {}; ROLLBACK TO s", step.sql).expect("text grows");
            } else {
                inner = inner.after(&effect);
                effects.push(effect);
                write!(sql, "; {}", step.sql).expect("text grows");
            }
            if self.random.below(8) == 0 {
                sql.push_str("; CREATE TEMP TABLE own (a int); INSERT INTO own VALUES (1), (2)");
                sql.push_str("; UPDATE own SET a = 3 WHERE a = 1; DROP TABLE own");
            }
            settings.extend(step.settings);
        }
        if self.random.below(6) == 0 {
            effects.clear();
            sql.push_str("; ROLLBACK");
        } else {
            sql.push_str("; COMMIT");
        }
        Step { settings, sql, kind: Kind::Change(Effect::All(effects)) }
    }

    fn sequence(&mut self, model: &Model) -> Step {
        let choice = self.random.below(8);
        match model.sequences.keys().next() {
            Some(name) if choice == 0 => Step::of(
                format!("DROP SEQUENCE {name}"),
                Kind::Change(Effect::DropSequence(name.clone())),
            ),
            Some(name) => Step::of(format!("SELECT nextval('{name}')"), Kind::Next(name.clone())),
            None => {
                let name = format!("s{}", self.number());
                let sql = format!("CREATE SEQUENCE {name}");
                Step::of(sql, Kind::Change(Effect::CreateSequence(name)))
            }
        }
    }

    fn alter(&mut self, model: &Model, name: String) -> Step {
        let has_views = model.views.values().any(|table| *table == name);
        let number = self.number();
        match (model.tables[&name].extra.first(), self.random.below(3)) {
            (Some((column, _)), 0) if !has_views => {
                let sql = format!("ALTER TABLE {name} DROP COLUMN {column}");
                Step::of(sql, Kind::Change(Effect::DropColumn(name, column.clone())))
            }
            (_, 1) if !has_views => {
                let new = format!("r{number}");
                let sql = format!("ALTER TABLE {name} RENAME TO {new}");
                Step::of(sql, Kind::Change(Effect::Rename(name, new)))
            }
            _ => {
                let column = format!("c{number}");
                let sql = format!("ALTER TABLE {name} ADD COLUMN {column} int DEFAULT {number}");
                Step::of(sql, Kind::Change(Effect::AddColumn(name, column, i64::from(number))))
            }
        }
    }

    fn view(&mut self, model: &Model, name: String) -> Step {
        match model.views.keys().next() {
            Some(view) if self.random.below(2) == 0 => {
                Step::of(format!("DROP VIEW {view}"), Kind::Change(Effect::DropView(view.clone())))
            }
            _ => {
                let view = format!("w{}", self.number());
                let sql = format!(
                    "CREATE VIEW {view} AS SELECT id, v FROM {name} WHERE v >= {VIEW_FROM}"
                );
                Step::of(sql, Kind::Change(Effect::CreateView(view, name)))
            }
        }
    }

    /// Makes, refreshes or drops a materialized view.
    fn materialized(&mut self, model: &Model, table: String) -> Step {
        let views: Vec<&String> = model.materialized.keys().collect();
        if views.is_empty() || (views.len() < 3 && self.of_views.below(5) == 0) {
            let view = format!("m{}", self.number());
            let is_grouped = self.of_views.below(3) > 0;
            let materialized = Materialized { table, is_grouped, rows: Vec::new() };
            let sql = format!("CREATE MATERIALIZED VIEW {view} AS {}", materialized.sql());
            let devices = self.devices[index(&mut self.of_views, self.devices.len())];
            let effect = Effect::CreateMaterialized(view, materialized);
            let mut step = Step::of(sql, Kind::Change(effect));
            step.settings.push(("default_device", devices.to_owned()));
            step.settings.push((IN_ORDER.0, IN_ORDER.1.to_owned()));
            return step;
        }
        let view = views[index(&mut self.of_views, views.len())].clone();
        if self.of_views.below(8) == 0 {
            let sql = format!("DROP MATERIALIZED VIEW {view}");
            return Step::of(sql, Kind::Change(Effect::DropMaterialized(view)));
        }
        // What is expected to be faster depends on how long the last refreshes took, which is no virtual time.
        let method = if self.of_views.below(4) > 0 { "changes" } else { "all" };
        let sql = format!("REFRESH MATERIALIZED VIEW {view}");
        let mut step = Step::of(sql, Kind::Change(Effect::Refresh(view)));
        step.settings.push(("refresh_method", method.to_owned()));
        step.settings.push((IN_ORDER.0, IN_ORDER.1.to_owned()));
        step
    }

    /// Changes one row by its id, or many by a condition.
    fn update(&mut self, model: &Model, name: String) -> Step {
        let table = &model.tables[&name];
        let keys: Vec<Key> = table.unique_keys().collect();
        let v = self.some_v(model, table);
        if keys.contains(&Key::V) || keys.contains(&Key::VAndId) || self.random.below(3) == 0 {
            // Many rows, none of whose keys change except perhaps that of notes.
            let word = WORDS[index(&mut self.random, WORDS.len())];
            let rest = v.rem_euclid(4);
            let changed = table.rows.iter().filter(|(id, _)| *id % 4 == rest);
            let changed = changed
                .map(|(id, row)| (*id, Row { note: Some(format!("{word} {id}")), ..row.clone() }));
            let sql = format!("UPDATE {name} SET note = '{word} ' || id WHERE id % 4 = {rest}");
            return Step::of(sql, Kind::Change(Effect::Put(name, changed.collect())));
        }
        let id = self.some_id(table);
        let changed = table.rows.get(&id).map(|row| (id, Row { v, ..row.clone() }));
        let changed: Vec<_> = changed.into_iter().collect();
        let sql = format!("UPDATE {name} SET v = {v} WHERE id = {id}");
        // An unchanged value is not checked.
        let stays = changed.iter().all(|(id, row)| table.rows[id].v == row.v);
        let kind = match stays || model.has_parents(table, &changed) {
            true => Kind::Change(Effect::Put(name, changed)),
            false => Kind::Violation,
        };
        Step::of(sql, kind)
    }

    /// Some rows of `table`, or all, as a condition has them.
    fn selected(&mut self, table: &Table) -> (Vec<(i64, Row)>, String) {
        let ids: Vec<i64> = table.rows.keys().copied().collect();
        let (from, modulus) = match self.of_fragments.below(3) {
            // Ids go on behind those that are there, so all rows are taken while there are few.
            0 if self.next_id < ALL_IDS_MAX => (i64::MIN, 1),
            0 | 1 => (ids.iter().rev().nth(SELECTED_MAX).copied().unwrap_or(i64::MIN), 1),
            _ => (ids.iter().rev().nth(SELECTED_MAX).copied().unwrap_or(i64::MIN), 3),
        };
        let rows = table.rows.iter().filter(|(id, row)| **id >= from && row.v % modulus == 0);
        let rows = rows.map(|(id, row)| (*id, row.clone())).collect();
        (rows, format!("id >= {from} AND v % {modulus} = 0"))
    }

    /// What leads from the ids of `rows` to ids that no row has had.
    fn new_ids(&mut self, rows: &[(i64, Row)]) -> i64 {
        let (Some((first, _)), Some((last, _))) = (rows.first(), rows.last()) else { return 0 };
        let beyond = self.next_id - first;
        self.next_id = last + beyond + 1;
        beyond
    }

    /// A table of the rows of another one.
    fn create_as(&mut self, table: &Table, name: String) -> Step {
        let (rows, condition) = self.selected(table);
        let new = format!("t{}", self.next_table);
        self.next_table += 1;
        // Mostly where the rows are, so that none of them has to move.
        let (devices, tablets) = match self.of_fragments.below(4) {
            0 => (self.devices[index(&mut self.of_fragments, self.devices.len())], "3"),
            _ => (table.devices, "0"),
        };
        let is_divided = tablets != "0" || devices.contains(',');
        let rows = rows.into_iter().collect();
        let table = Table { rows, devices, is_divided, ..Table::default() };
        Step {
            settings: vec![
                ("default_device", devices.to_owned()),
                ("default_tablets", tablets.to_owned()),
            ],
            sql: format!("CREATE TABLE {new} AS SELECT id, v, note FROM {name} WHERE {condition}"),
            kind: Kind::Change(Effect::Create(new, table)),
        }
    }

    /// Inserts the rows of any table once more.
    fn insert_selected(&mut self, model: &Model, name: String) -> Step {
        let target = &model.tables[&name];
        let is_near = |table: &Table| table.devices == target.devices && !table.is_divided;
        let wants_near = self.of_fragments.below(4) > 0;
        let sources = model.tables.iter().filter(|(_, table)| !wants_near || is_near(table));
        let sources: Vec<_> = sources.collect();
        if sources.is_empty() {
            return self.insert(model, name);
        }
        let (source, table) = sources[index(&mut self.of_fragments, sources.len())];
        let (mut rows, condition) = self.selected(table);
        let beyond = self.new_ids(&rows);
        rows.iter_mut().for_each(|(id, _)| *id += beyond);
        let sql = format!(
            "INSERT INTO {name} (id, v, note) SELECT id + {beyond}, v, note FROM {source} WHERE {condition}"
        );
        Step::of(sql, added(model, name, &rows))
    }

    /// Changes `v` of many rows, which may be the key of indexes.
    fn replace(&mut self, model: &Model, name: String) -> Step {
        let table = &model.tables[&name];
        if table.parent.is_some() {
            return self.update(model, name);
        }
        let (mut rows, condition) = self.selected(table);
        // In whatever order rows change, no two of them meet.
        let most = table.rows.values().map(|row| row.v).max().unwrap_or(0);
        let least = rows.iter().map(|(_, row)| row.v).min().unwrap_or(0);
        let beyond = most - least + 1;
        rows.iter_mut().for_each(|(_, row)| row.v += beyond);
        let sql = format!("UPDATE {name} SET v = v + {beyond} WHERE {condition}");
        Step::of(sql, Kind::Change(Effect::Put(name, rows)))
    }

    /// Changes the ids of many rows.
    fn move_ids(&mut self, model: &Model, name: String) -> Step {
        if model.children(&name).next().is_some() {
            return self.update(model, name);
        }
        let (rows, condition) = self.selected(&model.tables[&name]);
        let beyond = self.new_ids(&rows);
        let gone = rows.iter().map(|(id, _)| *id).collect();
        let moved = rows.into_iter().map(|(id, row)| (id + beyond, row)).collect();
        let sql = format!("UPDATE {name} SET id = id + {beyond} WHERE {condition}");
        let effects = vec![Effect::Delete(name.clone(), gone), Effect::Put(name, moved)];
        Step::of(sql, Kind::Change(Effect::All(effects)))
    }

    /// Locks many rows.
    fn lock(&mut self, name: &str) -> Step {
        let rest = self.of_fragments.below(4);
        let sql = format!("SELECT id, v FROM {name} WHERE id % 4 = {rest} FOR UPDATE");
        Step::of(sql, Kind::Change(Effect::All(Vec::new())))
    }

    fn delete(&mut self, model: &Model, name: String) -> Step {
        let table = &model.tables[&name];
        let (ids, condition) = match self.random.below(3) {
            0 => {
                let rest = i64::try_from(self.random.below(3)).unwrap_or(0);
                let ids = table.rows.iter().filter(|(_, row)| row.v % 3 == rest);
                (ids.map(|(id, _)| *id).collect(), format!("v % 3 = {rest}"))
            }
            _ => {
                let id = self.some_id(table);
                (vec![id], format!("id = {id}"))
            }
        };
        let kind = match model.gone_with(&name, &ids) {
            Some(_) => Kind::Change(Effect::Delete(name.clone(), ids)),
            None => Kind::Violation,
        };
        Step::of(format!("DELETE FROM {name} WHERE {condition}"), kind)
    }

    /// A `v` for a row, mostly a valid one.
    fn some_v(&mut self, model: &Model, table: &Table) -> i64 {
        match self.random.below(30) {
            0 => i64::try_from(self.random.below(60)).unwrap_or(0),
            _ => self.right_v(model, table),
        }
    }

    /// A valid `v` for a row: an id of its parent, if it has a parent with rows.
    fn right_v(&mut self, model: &Model, table: &Table) -> i64 {
        let parent = table.parent.as_ref().and_then(|parent| model.tables.get(&parent.table));
        match parent.filter(|parent| !parent.rows.is_empty()) {
            Some(parent) => {
                let at = index(&mut self.random, parent.rows.len());
                parent.rows.keys().nth(at).copied().unwrap_or_default()
            }
            None => i64::try_from(self.random.below(60)).unwrap_or(0),
        }
    }

    /// An id, mostly of an existing row.
    fn some_id(&mut self, table: &Table) -> i64 {
        if table.rows.is_empty() || self.random.below(8) == 0 {
            return -1;
        }
        let at = index(&mut self.random, table.rows.len());
        table.rows.keys().nth(at).copied().unwrap_or_default()
    }

    fn number(&mut self) -> u32 {
        self.next_other += 1;
        self.next_other
    }

    fn create(&mut self, model: &Model) -> Step {
        let name = format!("t{}", self.next_table);
        self.next_table += 1;
        let has_key = self.random.below(3) > 0;
        let key = if has_key { " PRIMARY KEY" } else { "" };
        let index_name = has_key.then(|| format!("{name}_pkey"));
        let devices = self.devices[index(&mut self.random, self.devices.len())];
        // Every second table is partitioned; those without a key are in load order.
        let tablets = ["0", "3"][usize::from(self.next_table.is_multiple_of(2))];
        let is_divided = tablets != "0" || devices.contains(',');
        let mut table = Table { key: index_name, devices, is_divided, ..Table::default() };
        let mut unique = "";
        if self.random.below(5) == 0 {
            unique = " UNIQUE";
            let index = Index { key: Key::V, unique: true, constraint: true };
            table.indexes.insert(format!("{name}_v_key"), index);
        }
        let with_key = model.tables.iter().filter(|(_, table)| table.key.is_some());
        let parents: Vec<&String> = with_key.map(|(name, _)| name).collect();
        let mut references = String::new();
        if !parents.is_empty() && self.random.below(3) == 0 {
            let parent = parents[index(&mut self.random, parents.len())].clone();
            let cascades = self.random.below(3) > 0;
            let rule = if cascades { " ON DELETE CASCADE" } else { "" };
            references = format!(" REFERENCES {parent}{rule}");
            table.parent = Some(Parent { table: parent, cascades });
        }
        Step {
            settings: vec![
                ("default_device", devices.to_owned()),
                ("default_tablets", tablets.to_owned()),
            ],
            sql: format!(
                "CREATE TABLE {name} (id bigint{key}, v bigint NOT NULL{unique}{references}, note text)"
            ),
            kind: Kind::Change(Effect::Create(name, table)),
        }
    }

    /// Creates an index, or drops one.
    fn index(&mut self, table: &Table, name: String) -> Step {
        let own: Vec<_> = table.indexes.iter().filter(|(_, index)| !index.constraint).collect();
        if !own.is_empty() && (own.len() > 2 || self.random.below(3) == 0) {
            let dropped = own[index(&mut self.random, own.len())].0.clone();
            let sql = format!("DROP INDEX {dropped}");
            let kind = Kind::Change(Effect::DropIndex(name, dropped));
            return Step::of(sql, kind);
        }
        let keys = [Key::Id, Key::V, Key::Note, Key::VAndId];
        let key = keys[index(&mut self.random, keys.len())];
        let unique = self.random.below(3) == 0;
        let index_name = format!("i{}", self.next_index);
        self.next_index += 1;
        let word = if unique { " UNIQUE" } else { "" };
        let sql = format!("CREATE{word} INDEX {index_name} ON {name} ({})", key.columns());
        let kind = if unique && !table.differ_in(key, &[]) {
            Kind::Violation
        } else {
            let index = Index { key, unique, constraint: false };
            Kind::Change(Effect::CreateIndex(name, index_name, index))
        };
        Step::of(sql, kind)
    }

    fn insert(&mut self, model: &Model, name: String) -> Step {
        let table = &model.tables[&name];
        let count = 1 + index(&mut self.random, 6);
        let mut rows = self.rows(model, table, count);
        let has_key = table.unique_keys().any(|key| key == Key::Id);
        if has_key && !table.rows.is_empty() && self.random.below(6) == 0 {
            let at = index(&mut self.random, table.rows.len());
            let taken = table.rows.keys().nth(at).copied().unwrap_or_default();
            let place = index(&mut self.random, rows.len());
            rows[place].0 = taken;
        }
        // With ON CONFLICT, existing rows are found by the id alone.
        let upserts = table.unique_keys().eq([Key::Id])
            && model.has_parents(table, &rows)
            && self.random.below(3) == 0;
        let (kind, conflict) = match self.random.below(2) {
            0 if upserts => {
                let change = Effect::Put(name.clone(), rows.clone());
                let set = "v = excluded.v, note = excluded.note";
                (Kind::Change(change), format!(" ON CONFLICT (id) DO UPDATE SET {set}"))
            }
            _ if upserts => {
                let new = rows.iter().filter(|(id, _)| !table.rows.contains_key(id));
                let change = Effect::Put(name.clone(), new.cloned().collect());
                (Kind::Change(change), " ON CONFLICT DO NOTHING".to_owned())
            }
            _ => (added(model, name.clone(), &rows), String::new()),
        };
        let mut sql = format!("INSERT INTO {name} (id, v, note) VALUES ");
        for (number, (id, row)) in rows.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            let note =
                row.note.as_ref().map_or_else(|| "NULL".to_owned(), |note| format!("'{note}'"));
            write!(sql, "{comma}({id}, {}, {note})", row.v).expect("text grows");
        }
        sql.push_str(&conflict);
        Step::of(sql, kind)
    }

    fn copy(&mut self, model: &Model, name: String, directory: &Path) -> Step {
        let count = 1 + index(&mut self.random, 300);
        let rows = self.rows(model, &model.tables[&name], count);
        let mut text = String::new();
        for (id, row) in &rows {
            let note = row.note.as_ref().map_or_else(String::new, |note| format!("\"{note}\""));
            writeln!(text, "{id},{},{note}", row.v).expect("text grows");
        }
        // A block may have several.
        let path = directory.join(format!("rows{}.csv", self.number()));
        std::fs::write(&path, text).expect("the run's folder can be written");
        Step {
            settings: Vec::new(),
            sql: format!("COPY {name} (id, v, note) FROM '{}' (FORMAT csv)", path.display()),
            kind: added(model, name, &rows),
        }
    }

    fn query(&mut self, model: &Model, tables: &[&String], name: String) -> Step {
        let ids = self.next_id.unsigned_abs();
        let id = i64::try_from(self.random.below(ids)).unwrap_or(0);
        let v = i64::try_from(self.random.below(60)).unwrap_or(0);
        let query = match self.random.below(10) {
            0 => Query::All(name),
            1 => Query::Filter(name, 7, 3),
            2 if !model.views.is_empty() => {
                let at = index(&mut self.random, model.views.len());
                Query::View(model.views.keys().nth(at).cloned().unwrap_or_default())
            }
            2 => Query::Figures(name, id),
            3 => Query::Groups(name),
            4 => Query::Top(name, 1 + index(&mut self.random, 10)),
            5 => Query::Point(name, id),
            6 => Query::Equal(name, v),
            7 => Query::Word(name, WORDS[index(&mut self.random, WORDS.len())].to_owned()),
            8 => Query::Range(name, v, v + 5),
            _ => {
                // The inner side's ids must be unique, by a constraint or as inserted; all of ours are.
                let other = tables[index(&mut self.random, tables.len())].clone();
                Query::Join(name, other)
            }
        };
        debug_assert!(!model.tables.is_empty());
        let query = match model.materialized.keys().next() {
            Some(view) if self.of_views.below(8) == 0 => Query::Materialized(view.clone()),
            _ => query,
        };
        let joins = self.of_peers.as_mut().is_some_and(|random| random.below(2) == 0);
        let query = match &mut self.of_peers {
            Some(random) if joins => {
                let mut table = || tables[index(random, tables.len())].clone();
                let (one, other) = (table(), table());
                match random.below(3) {
                    0 => Query::Join(one, other),
                    1 => Query::LeftJoin(one, other),
                    _ => Query::JoinGroups(one, other),
                }
            }
            _ => query,
        };
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
        choose("late_materialisation", &["on", "always", "off"]);
        if let Some(random) = &mut self.of_peers {
            let way: &[(&str, &str)] = match random.below(4) {
                0 => &NO_DEVICES,
                _ => PEER_WAYS[index(random, PEER_WAYS.len())],
            };
            settings.extend(way.iter().map(|(name, value)| (*name, (*value).to_owned())));
        }
        Step { settings, sql: query.sql(), kind: Kind::Query(query) }
    }

    fn rows(&mut self, model: &Model, table: &Table, count: usize) -> Vec<(i64, Row)> {
        // If `v` must be unique, most statements keep to that.
        let differs = table.parent.is_none()
            && table.unique_keys().any(|key| key == Key::V)
            && self.random.below(6) > 0;
        let wrong = table.parent.is_some() && self.random.below(8) == 0;
        let mut row = |_| {
            let id = self.next_id;
            self.next_id += 1 + i64::from(self.random.below(10) == 0);
            let word = self.random.below(1 + WORDS.len() as u64);
            let note = usize::try_from(word).ok().and_then(|word| WORDS.get(word));
            let v = match (differs, wrong) {
                (true, _) => 100 + id,
                (false, true) => i64::try_from(self.random.below(60)).unwrap_or(0),
                (false, false) => self.right_v(model, table),
            };
            (id, Row { v, note: note.map(|word| (*word).to_owned()) })
        };
        (0..count).map(&mut row).collect()
    }
}

/// The outcome of adding `rows` to a table.
fn added(model: &Model, name: String, rows: &[(i64, Row)]) -> Kind {
    let table = &model.tables[&name];
    if model.has_parents(table, rows) && table.unique_keys().all(|key| table.differ_in(key, rows)) {
        Kind::Change(Effect::Put(name, rows.to_vec()))
    } else {
        Kind::Violation
    }
}
