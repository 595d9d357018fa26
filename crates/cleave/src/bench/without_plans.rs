//! Tests that transactional statements run without the planner and without flushing the delta, by the database's
//! counters: the statements of each workload, of pgbench and of sysbench.

use std::collections::BTreeSet;
use std::sync::Arc;

use cleave_host::Database;
use cleave_host::activity::Act;
use tempfile::{TempDir, tempdir};
use tokio::runtime::Runtime;

use super::client::embedded::Embedded;
use super::client::{Client, ClientError, CsvPieces, Rows, Value};
use super::workloads::Workload;
use super::workloads::linkbench::LinkBench;
use super::workloads::tpcc::Tpcc;
use super::workloads::ycsb::{Mix, Ycsb};
use crate::arguments::MemoryBudgets;
use crate::generate::random::{Draw, mix};
use crate::open::{Create, open_directory};

/// A client that notes which statements make a plan or flush the delta.
struct Watched {
    client: Embedded,
    database: Arc<Database>,
    planned: BTreeSet<String>,
}

impl Watched {
    fn watch(
        &mut self,
        statement: &str,
        run: impl FnOnce(&mut Embedded) -> Result<Rows, ClientError>,
    ) -> Result<Rows, ClientError> {
        let counted = |database: &Database| {
            let activity = database.activity();
            (activity.count(Act::Plan), activity.count(Act::Flush))
        };
        let before = counted(&self.database);
        let rows = run(&mut self.client)?;
        if counted(&self.database) != before {
            self.planned.insert(statement.to_owned());
        }
        Ok(rows)
    }
}

impl Client for Watched {
    fn run(&mut self, sql: &str) -> Result<Rows, ClientError> {
        self.watch(sql, |client| client.run(sql))
    }

    fn prepare(&mut self, name: &str, sql: &str) -> Result<(), ClientError> {
        self.client.prepare(name, sql)
    }

    fn execute(&mut self, name: &str, values: &[Value]) -> Result<Rows, ClientError> {
        self.watch(name, |client| client.execute(name, values))
    }

    fn load(&mut self, table: &str, rows: CsvPieces) -> Result<(), ClientError> {
        self.client.load(table, rows)
    }
}

/// A new database, and a client of it.
fn watched() -> (TempDir, Runtime, Watched) {
    let directory = tempdir().unwrap();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.thread_stack_size(crate::STACK_BYTES).enable_all().build().unwrap();
    let opening = open_directory(directory.path(), Create::IfAbsent, MemoryBudgets::default());
    let database = runtime.block_on(opening).unwrap();
    let client = Embedded::new(database.session(), runtime.handle().clone());
    (directory, runtime, Watched { client, database, planned: BTreeSet::new() })
}

/// The result of `run` on a thread on which statements may be planned.
fn planning<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(crate::STACK_BYTES);
        let ran = thread.spawn_scoped(scope, run).unwrap().join();
        ran.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The statements that still make plans after each of a workload's operations has run several times.
fn planned_by(workload: &dyn Workload) -> BTreeSet<String> {
    const TURNS: u64 = 6;
    let (_directory, _runtime, mut client) = watched();
    workload.load(&mut client, 5).unwrap();
    workload.prepare(&mut client).unwrap();
    let mut number = 0;
    for _ in 0..2 {
        client.planned.clear();
        for (operation, name) in workload.operations().iter().enumerate() {
            for _ in 0..TURNS {
                number += 1;
                let draw = Draw::new(mix(9, number), 31);
                let done = workload.perform(operation, &mut client, draw, (0, number));
                done.unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        }
    }
    let planned = std::mem::take(&mut client.planned);
    assert_eq!(workload.check(&mut client).unwrap(), Vec::<String>::new());
    planned
}

/// The statements that make plans, among those that `texts` returns for a number.
fn planned_of(tables: &str, texts: impl Fn(u64) -> Vec<String> + Send) -> BTreeSet<String> {
    let (_directory, _runtime, mut client) = watched();
    client.run(tables).unwrap();
    for number in 0..10 {
        if number == 3 {
            client.planned.clear();
        }
        for text in texts(number) {
            client.run(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        }
    }
    client.planned
}

#[test]
fn workloads_of_transactions_make_no_plans() {
    let workloads: [Box<dyn Workload>; 3] = [
        Box::new(Ycsb::new(Mix::A, 0.001, 1)),
        Box::new(LinkBench::new(0.001, 1)),
        Box::new(Tpcc::new(0.01, false)),
    ];
    for workload in workloads {
        let planned = planning(|| planned_by(&*workload));
        assert_eq!(planned, BTreeSet::new(), "{:?}", workload.operations());
    }
}

#[test]
fn pgbench_makes_no_plans() {
    let tables = "CREATE TABLE pgbench_branches (bid int PRIMARY KEY, bbalance int, filler char(88));
         CREATE TABLE pgbench_tellers (tid int PRIMARY KEY, bid int, tbalance int, filler char(84));
         CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84));
         CREATE TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
         INSERT INTO pgbench_branches (bid, bbalance) VALUES (1, 0);
         INSERT INTO pgbench_tellers (tid, bid, tbalance) SELECT t, 1, 0 FROM generate_series(1, 10) AS t(t);
         INSERT INTO pgbench_accounts (aid, bid, abalance) SELECT a, 1, 0 FROM generate_series(1, 1000) AS a(a)";
    let texts = |number: u64| {
        let (account, teller) = (1 + number * 7 % 1000, 1 + number % 10);
        let delta = number.cast_signed() * 31 - 99;
        vec![
            "BEGIN".to_owned(),
            format!(
                "UPDATE pgbench_accounts SET abalance = abalance + {delta} WHERE aid = {account}"
            ),
            format!("SELECT abalance FROM pgbench_accounts WHERE aid = {account}"),
            format!(
                "UPDATE pgbench_tellers SET tbalance = tbalance + {delta} WHERE tid = {teller}"
            ),
            format!("UPDATE pgbench_branches SET bbalance = bbalance + {delta} WHERE bid = 1"),
            format!(
                "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES ({teller}, 1, {account}, {delta}, \
                    CURRENT_TIMESTAMP)"
            ),
            "END".to_owned(),
        ]
    };
    assert_eq!(planning(|| planned_of(tables, texts)), BTreeSet::new());
}

#[test]
fn sysbench_makes_no_plans() {
    let tables = "CREATE TABLE sbtest1 (id int PRIMARY KEY, k int NOT NULL DEFAULT 0, c char(120) NOT NULL DEFAULT \
        '', pad char(60) NOT NULL DEFAULT '');
         CREATE INDEX k_1 ON sbtest1 (k);
         INSERT INTO sbtest1 SELECT i, i % 100, 'c' || i, 'p' FROM generate_series(1, 1000) AS i(i)";
    let texts = |number: u64| {
        let id = 100 + number * 13;
        let last = id + 99;
        vec![
            "BEGIN".to_owned(),
            format!("SELECT c FROM sbtest1 WHERE id={id}"),
            format!("SELECT c FROM sbtest1 WHERE id BETWEEN {id} AND {last}"),
            format!("SELECT SUM(k) FROM sbtest1 WHERE id BETWEEN {id} AND {last}"),
            format!("SELECT c FROM sbtest1 WHERE id BETWEEN {id} AND {last} ORDER BY c"),
            format!("SELECT DISTINCT c FROM sbtest1 WHERE id BETWEEN {id} AND {last} ORDER BY c"),
            format!("UPDATE sbtest1 SET k=k+1 WHERE id={id}"),
            format!("UPDATE sbtest1 SET c='new {number}' WHERE id={id}"),
            format!("DELETE FROM sbtest1 WHERE id={id}"),
            format!("INSERT INTO sbtest1 (id, k, c, pad) VALUES ({id}, 5, 'c', 'pad')"),
            "COMMIT".to_owned(),
        ]
    };
    assert_eq!(planning(|| planned_of(tables, texts)), BTreeSet::new());
}
