//! Transactions that change many lists by one statement, which an update fragment runs.
//!
//! To the [check](super::check) such a statement is an append to each list that it has changed. Which these are, the
//! transaction asks right afterwards; their number must be what the statement has said. A DELETE and an INSERT of the
//! same lists with one element more are an append to each of them too: nobody sees one without the other.

use std::ops::RangeInclusive;

use cleave_host::{Error, Outcome};
use cleave_media::SplitMix64;

use super::check::Op;
use super::{KEYS, Recorder};
use crate::isolation::LEVELS;
use crate::support::run;

/// Lists that are there from the beginning.
const ALWAYS_THERE: RangeInclusive<u64> = 0..=2;
/// How the fragments of a session lock what they change.
const LOCKING: [&str; 3] = ["shared", "optimistic", "table"];

/// Which statements change many lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bulk {
    Never,
    Updates,
    UpdatesAndDeletes,
    /// Loads alone, beside transactions that change single lists.
    Loads,
}

impl Bulk {
    /// Kinds of actions among which a transaction chooses.
    pub(super) fn kinds(self) -> u64 {
        match self {
            Self::Never | Self::Loads => 12,
            Self::Updates => 15,
            Self::UpdatesAndDeletes => 17,
        }
    }
}

/// Some lists beside each other.
pub(super) fn keys(random: &mut SplitMix64) -> RangeInclusive<u64> {
    let first = random.below(KEYS);
    first..=(first + random.below(KEYS)).min(KEYS - 1)
}

/// The condition of these lists.
fn among(keys: &RangeInclusive<u64>) -> String {
    format!("id BETWEEN {} AND {}", keys.start(), keys.end())
}

/// The number of rows that a statement says it has changed.
fn changed(outcomes: &[Outcome]) -> u64 {
    let [Outcome::Done { tag }] = outcomes else { panic!("{outcomes:?}") };
    tag.rsplit(' ').next().unwrap().parse().unwrap()
}

fn row_of(rows: &[String], key: u64) -> &str {
    let own = rows.iter().find(|row| row.starts_with(&format!("{key},")));
    own.map_or("", String::as_str)
}

impl Recorder {
    /// Makes the session number `number` change many rows by fragments.
    pub(super) async fn change_many(&mut self, bulk: Bulk, (level, number): (usize, u64)) {
        self.bulk = bulk;
        if bulk == Bulk::Never {
            return;
        }
        let locking = LOCKING[usize::try_from(number).unwrap() % LOCKING.len()];
        let level = LEVELS[level].to_lowercase();
        for setting in [
            "update_placement = device".to_owned(),
            format!("update_locking = {locking}"),
            // No fragment reads rows that are on no page, and the snapshot of a block stays what it is.
            "shipped_delta_bytes = 0".to_owned(),
            format!("default_transaction_isolation = '{level}'"),
        ] {
            run(&mut self.session, &format!("SET {setting}")).await;
        }
    }

    /// An UPDATE that appends to each of `keys`: to list k the value that the numbers say.
    fn appending(&mut self, keys: &RangeInclusive<u64>) -> (u64, String) {
        let first = self.next_value + 1;
        self.next_value += KEYS;
        for key in keys.clone() {
            self.ops.push(Op::Append { key, value: first + key, is_kept: true });
        }
        let set = format!("UPDATE list SET elements = elements || ',' || ({first} + id)");
        (first, format!("{set} WHERE {}", among(keys)))
    }

    /// Appends to all of `keys` that are there, in a block.
    pub(super) async fn append_to_many(
        &mut self,
        level: usize,
        keys: RangeInclusive<u64>,
    ) -> Result<(), Error> {
        let mark = self.ops.len();
        let (first, update) = self.appending(&keys);
        let count = changed(&self.session.run(&update).await?);
        let query = format!("SELECT id, elements FROM list WHERE {}", among(&keys));
        let found = self.session_rows(&query).await?;
        self.ops.truncate(mark);
        let mut appended = 0;
        for key in keys {
            let (row, value) = (row_of(&found, key), first + key);
            let is_changed = row.ends_with(&format!(",{value}"));
            if is_changed {
                appended += 1;
                self.ops.push(Op::Append { key, value, is_kept: true });
            }
            // The row may have come after the statement at READ COMMITTED alone, and there may be another one in its
            // place only if somebody deletes.
            let is_certain = ALWAYS_THERE.contains(&key) && self.bulk == Bulk::Updates;
            assert!(is_changed || !is_certain, "{update} leaves out {key}: {row}");
            assert!(is_changed || level == 0 || row.is_empty(), "{update} leaves out {row}");
            self.note_read(key, row);
        }
        assert_eq!(count, appended, "{update}: {found:?}");
        Ok(())
    }

    /// The same by a statement outside of a block.
    pub(super) async fn append_alone(&mut self) -> Result<(), Error> {
        self.ops.clear();
        let (_, update) = self.appending(&ALWAYS_THERE);
        let count = changed(&self.session.run(&update).await?);
        assert_eq!(count, ALWAYS_THERE.count() as u64, "{update}");
        self.end(true);
        Ok(())
    }

    /// Deletes the lists `keys`, and inserts them with one element more.
    pub(super) async fn write_anew(&mut self, keys: RangeInclusive<u64>) -> Result<(), Error> {
        let query = format!("SELECT id, elements FROM list WHERE {} FOR UPDATE", among(&keys));
        let found = self.session_rows(&query).await?;
        let (mut ids, mut rows) = (Vec::new(), Vec::new());
        for key in keys {
            let row = row_of(&found, key);
            let Some((_, elements)) = row.split_once(',') else { continue };
            self.note_read(key, row);
            self.next_value += 1;
            let value = self.next_value;
            self.ops.push(Op::Append { key, value, is_kept: true });
            ids.push(key.to_string());
            rows.push(format!("({key}, '{elements},{value}')"));
        }
        if ids.is_empty() {
            return Ok(());
        }
        let delete = format!("DELETE FROM list WHERE id IN ({})", ids.join(", "));
        let count = changed(&self.session.run(&delete).await?);
        assert_eq!(count, ids.len() as u64, "{delete}: {found:?}");
        self.session.run(&format!("INSERT INTO list VALUES {}", rows.join(", "))).await?;
        Ok(())
    }
}
