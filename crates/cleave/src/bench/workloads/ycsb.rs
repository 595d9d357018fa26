//! YCSB, workloads A to F: one table of records with a key and ten fields of 100 characters.
//!
//! | | operations | keys |
//! |---|---|---|
//! | A | half reads, half updates | Zipf |
//! | B | 95 % reads, 5 % updates | Zipf |
//! | C | reads | Zipf |
//! | D | 95 % reads, 5 % inserts | the latest |
//! | E | 95 % scans of up to 100 records, 5 % inserts | Zipf |
//! | F | half reads, half read-modify-writes | Zipf |
//!
//! Likely keys lie scattered over the table. A read takes all fields, an update writes one.
//!
//! Source: Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010, §4, table 2.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Turn, Workload, by_share, csv, in_transaction, records, unexpected};
use crate::bench::client::{Client, ClientError};
use crate::bench::random::{Zipf, between, letters};
use crate::generate::random::{Draw, mix};

/// The workload's letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mix {
    A,
    B,
    C,
    D,
    E,
    F,
}

const READ: usize = 0;
const UPDATE: usize = 1;
const INSERT: usize = 2;
const SCAN: usize = 3;
const MODIFY: usize = 4;

const FIELD_CHARACTERS: i64 = 100;
const SCAN_MAX: i64 = 100;

/// YCSB.
#[derive(Debug)]
pub(crate) struct Ycsb {
    mix: Mix,
    /// Loaded records.
    loaded: u64,
    zipf: Zipf,
    clients: u64,
    /// Inserted records, as far as is known.
    inserted: AtomicU64,
}

impl Ycsb {
    pub(crate) fn new(mix: Mix, scale: f64, clients: u16) -> Self {
        let loaded = records(scale);
        let zipf = Zipf::new(loaded, 0.99);
        Self { mix, loaded, zipf, clients: u64::from(clients), inserted: AtomicU64::new(0) }
    }

    /// An existing key.
    fn key(&self, draw: &mut Draw) -> String {
        let drawn = self.zipf.draw(draw);
        if self.mix != Mix::D {
            return key_of(mix(drawn, 3) % self.loaded);
        }
        // Inserted records surely exist only if every client is as far; loaded ones always do.
        match self.inserted.load(Ordering::Acquire).checked_sub(drawn + 1 + self.clients) {
            Some(number) => key_of(self.loaded + number),
            None => key_of(self.loaded - 1 - drawn.min(self.loaded - 1)),
        }
    }
}

/// The key of a record: hashed, so that records of neighbouring numbers are not neighbours in the table.
fn key_of(number: u64) -> String {
    format!("user{:020}", mix(number, 11))
}

impl Workload for Ycsb {
    fn operations(&self) -> &'static [&'static str] {
        &["read", "update", "insert", "scan", "read-modify-write"]
    }

    fn load(&self, client: &mut dyn Client, seed: u64) -> Result<(), ClientError> {
        let fields: Vec<String> = (0..10).map(|field| format!("field{field} text")).collect();
        client.run("DROP TABLE IF EXISTS usertable")?;
        client.run(&format!(
            "CREATE TABLE usertable (ycsb_key varchar(64) PRIMARY KEY, {})",
            fields.join(", ")
        ))?;
        let line = move |number: u64, piece: &mut String| {
            let mut draw = Draw::new(mix(seed, number), 21);
            piece.push_str(&key_of(number));
            for _ in 0..10 {
                piece.push(',');
                piece.push_str(&letters(&mut draw, FIELD_CHARACTERS, FIELD_CHARACTERS));
            }
            piece.push('\n');
        };
        client.load("usertable", csv(self.loaded, line))?;
        client.run("ANALYZE usertable").map(|_| ())
    }

    fn prepare(&self, client: &mut dyn Client) -> Result<(), ClientError> {
        client.prepare("read", "SELECT * FROM usertable WHERE ycsb_key = $1")?;
        for field in 0..10 {
            let sql = format!("UPDATE usertable SET field{field} = $1 WHERE ycsb_key = $2");
            client.prepare(&format!("update{field}"), &sql)?;
        }
        let places: Vec<String> = (1..=11).map(|place| format!("${place}")).collect();
        let sql = format!("INSERT INTO usertable VALUES ({})", places.join(", "));
        client.prepare("insert", &sql)?;
        let scan = "SELECT * FROM usertable WHERE ycsb_key >= $1 ORDER BY ycsb_key LIMIT $2";
        client.prepare("scan", scan)?;
        // Records of an earlier run exist as well.
        let found = client.run("SELECT count(*) FROM usertable")?;
        let found = found.number(0, 0).and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
        self.inserted.fetch_max(found.saturating_sub(self.loaded), Ordering::AcqRel);
        Ok(())
    }

    fn choose(&self, draw: &mut Draw, _: Turn) -> usize {
        let shares = match self.mix {
            Mix::A => [500, 500, 0, 0, 0],
            Mix::B => [950, 50, 0, 0, 0],
            Mix::C => [1000, 0, 0, 0, 0],
            Mix::D => [950, 0, 50, 0, 0],
            Mix::E => [0, 0, 50, 950, 0],
            Mix::F => [500, 0, 0, 0, 500],
        };
        by_share(draw, &shares)
    }

    fn perform(
        &self,
        operation: usize,
        client: &mut dyn Client,
        mut draw: Draw,
        _: Turn,
    ) -> Result<(), ClientError> {
        let update = |client: &mut dyn Client, draw: &mut Draw, key: &str| {
            let name = format!("update{}", draw.below(10));
            let value = letters(draw, FIELD_CHARACTERS, FIELD_CHARACTERS);
            let updated = client.execute(&name, &[value.into(), key.into()])?;
            expect(updated.count() == 1, "an update", key)
        };
        match operation {
            UPDATE => {
                let key = self.key(&mut draw);
                update(client, &mut draw, &key)
            }
            INSERT => {
                let number = self.loaded + self.inserted.fetch_add(1, Ordering::AcqRel);
                let mut values = vec![key_of(number).into()];
                for _ in 0..10 {
                    values.push(letters(&mut draw, FIELD_CHARACTERS, FIELD_CHARACTERS).into());
                }
                client.execute("insert", &values).map(|_| ())
            }
            SCAN => {
                let key = self.key(&mut draw);
                let count = between(&mut draw, 1, SCAN_MAX);
                let found = client.execute("scan", &[key.as_str().into(), count.into()])?;
                expect(found.text(0, 0) == Some(&key), "a scan", &key)
            }
            MODIFY => {
                let key = self.key(&mut draw);
                in_transaction(client, |client| {
                    read(client, &key)?;
                    update(client, &mut draw, &key)
                })
            }
            READ => {
                let key = self.key(&mut draw);
                match read(client, &key) {
                    // The latest record may not be committed yet.
                    Err(ClientError::Connection(_)) if self.mix == Mix::D => Ok(()),
                    found => found,
                }
            }
            _ => Err(unexpected("YCSB has no such operation")),
        }
    }

    fn check(&self, client: &mut dyn Client) -> Result<Vec<String>, ClientError> {
        let found = client.run("SELECT count(*), count(DISTINCT ycsb_key) FROM usertable")?;
        let (count, keys) = (found.number(0, 0), found.number(0, 1));
        let least = i64::try_from(self.loaded).unwrap_or(i64::MAX);
        let holds = count == keys && count.is_some_and(|count| count >= least);
        let fault = || {
            format!("usertable has {count:?} rows with {keys:?} keys, of {least} that were loaded")
        };
        Ok(if holds { Vec::new() } else { vec![fault()] })
    }
}

fn read(client: &mut dyn Client, key: &str) -> Result<(), ClientError> {
    let found = client.execute("read", &[key.into()])?;
    expect(found.len() == 1 && found.text(0, 0) == Some(key), "a read", key)
}

fn expect(holds: bool, what: &str, key: &str) -> Result<(), ClientError> {
    match holds {
        true => Ok(()),
        false => Err(unexpected(format!("{what} of key {key} did not find its record"))),
    }
}
