//! LinkBench: a social graph of nodes, typed links between them, and a count of each node's links, under Facebook's
//! mix.
//!
//! | operation | share | |
//! |---|---|---|
//! | get a node's links of a type, newest first | 50.7 % | range |
//! | get a node | 12.9 % | key |
//! | add a link, or change it where it is there | 9.0 % | transaction: link and count |
//! | update a link | 8.0 % | transaction |
//! | update a node | 7.4 % | key |
//! | count a node's links | 4.9 % | key |
//! | delete a link | 3.0 % | transaction: hides it, count |
//! | add a node | 2.6 % | |
//! | delete a node | 1.0 % | key |
//! | get links by key | 0.5 % | key |
//!
//! Counts are maintained in the transaction that changes a link, and checked afterwards, which reveals lost updates.
//! Nodes are chosen by a Zipf distribution, and likelier ones have more links; the original fits its curves to a graph
//! that is not public.
//!
//! Source: Armstrong et al., "LinkBench: a Database Benchmark Based on the Facebook Social Graph", SIGMOD 2013, §4 and
//! table 2.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Turn, Workload, by_share, csv, in_transaction, records, unexpected};
use crate::bench::client::{Client, ClientError, Value};
use crate::bench::random::{Zipf, between, letters};
use crate::generate::random::{Draw, mix};

const GET_LINKS: usize = 0;
const GET_NODE: usize = 1;
const ADD_LINK: usize = 2;
const UPDATE_LINK: usize = 3;
const UPDATE_NODE: usize = 4;
const COUNT_LINKS: usize = 5;
const DELETE_LINK: usize = 6;
const ADD_NODE: usize = 7;
const DELETE_NODE: usize = 8;
const GET_LINK: usize = 9;

/// Shares in thousandths, by operation.
const SHARES: [u32; 10] = [507, 129, 90, 80, 74, 49, 30, 26, 10, 5];

/// Type of all links: the original has one by default.
const LINK_TYPE: i64 = 123_456_789;
/// Most links that a range returns.
const RANGE_MAX: i64 = 10_000;
/// Mean number of links of a node.
const LINKS: u64 = 5;
/// Creation time of the loaded graph.
const MADE_AT: i64 = 1_000_000;

/// LinkBench.
#[derive(Debug)]
pub(crate) struct LinkBench {
    nodes: u64,
    zipf: Zipf,
    clients: u64,
    /// The highest node id before the run.
    last: AtomicU64,
}

impl LinkBench {
    pub(crate) fn new(scale: f64, clients: u16) -> Self {
        let nodes = records(scale);
        Self {
            nodes,
            zipf: Zipf::new(nodes, 0.8),
            clients: u64::from(clients),
            last: AtomicU64::new(nodes),
        }
    }

    /// A loaded node.
    fn node(&self, draw: &mut Draw) -> i64 {
        signed(1 + mix(self.zipf.draw(draw), 5) % self.nodes)
    }

    /// A node, and the target of one of its links, which may not exist.
    fn ends(&self, draw: &mut Draw) -> (i64, i64) {
        let from = self.node(draw);
        let links = u32::try_from(links_of(from.unsigned_abs()) * 5 / 4 + 1).unwrap_or(u32::MAX);
        (from, self.target(from.unsigned_abs(), u64::from(draw.below(links))))
    }

    /// The target of link number `link` of a node; targets of one node are distinct.
    fn target(&self, from: u64, link: u64) -> i64 {
        target_of(self.nodes, from, link)
    }
}

/// The same, among `nodes`.
fn target_of(nodes: u64, from: u64, link: u64) -> i64 {
    signed(1 + (mix(from, 9) % nodes + link * 7919) % nodes)
}

/// Links that a node is loaded with: few nodes have many.
fn links_of(node: u64) -> u64 {
    match mix(node, 13) % 100 {
        0..40 => 1,
        40..90 => LINKS,
        90..99 => LINKS * 2,
        _ => LINKS * 20,
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Workload for LinkBench {
    fn operations(&self) -> &'static [&'static str] {
        &[
            "get links",
            "get node",
            "add link",
            "update link",
            "update node",
            "count links",
            "delete link",
            "add node",
            "delete node",
            "get link",
        ]
    }

    fn load(&self, client: &mut dyn Client, seed: u64) -> Result<(), ClientError> {
        client.run(
            "DROP TABLE IF EXISTS nodetable; DROP TABLE IF EXISTS linktable; DROP TABLE IF EXISTS counttable;
             CREATE TABLE nodetable (id bigint PRIMARY KEY, type integer NOT NULL, version bigint NOT NULL,
                 time integer NOT NULL, data text NOT NULL);
             CREATE TABLE linktable (id1 bigint NOT NULL, id2 bigint NOT NULL, link_type bigint NOT NULL,
                 visibility integer NOT NULL, data text NOT NULL, time bigint NOT NULL, version integer NOT NULL,
                 PRIMARY KEY (link_type, id1, id2));
             CREATE TABLE counttable (id bigint NOT NULL, link_type bigint NOT NULL, count integer NOT NULL,
                 time bigint NOT NULL, version bigint NOT NULL, PRIMARY KEY (id, link_type))",
        )?;
        let rows = csv(self.nodes, move |number, piece| {
            let mut draw = Draw::new(mix(seed, number), 22);
            let data = letters(&mut draw, 64, 192);
            piece.push_str(&format!("{},2048,0,{MADE_AT},{data}\n", number + 1));
        });
        client.load("nodetable", rows)?;
        let nodes = self.nodes;
        let links = csv(self.nodes, move |number, piece| {
            let from = number + 1;
            for link in 0..links_of(from) {
                let mut draw = Draw::new(mix(seed, from), link);
                let (to, data) = (target_of(nodes, from, link), letters(&mut draw, 4, 12));
                let time = MADE_AT + between(&mut draw, 0, 1_000_000);
                piece.push_str(&format!("{from},{to},{LINK_TYPE},1,{data},{time},0\n"));
            }
        });
        client.load("linktable", links)?;
        let counts = csv(self.nodes, |number, piece| {
            let from = number + 1;
            piece.push_str(&format!("{from},{LINK_TYPE},{},{MADE_AT},0\n", links_of(from)));
        });
        client.load("counttable", counts)?;
        client.run("CREATE INDEX id1_type ON linktable (id1, link_type, time)")?;
        client.run("ANALYZE").map(|_| ())
    }

    fn prepare(&self, client: &mut dyn Client) -> Result<(), ClientError> {
        let statements = [
            (
                "get links",
                "SELECT id1, id2, link_type, visibility, data, time, version FROM linktable
                 WHERE id1 = $1 AND link_type = $2 AND time >= $3 AND time <= $4 AND visibility = 1
                 ORDER BY time DESC LIMIT $5",
            ),
            ("get node", "SELECT id, type, version, time, data FROM nodetable WHERE id = $1"),
            (
                "get link",
                "SELECT id1, id2, link_type, visibility, data, time, version FROM linktable
                 WHERE link_type = $1 AND id1 = $2 AND id2 = $3",
            ),
            (
                "visibility",
                "SELECT visibility FROM linktable WHERE link_type = $1 AND id1 = $2 AND id2 = $3",
            ),
            (
                "change link",
                "UPDATE linktable SET visibility = 1, data = $4, time = $5, version = version + 1
                 WHERE link_type = $1 AND id1 = $2 AND id2 = $3",
            ),
            ("add link", "INSERT INTO linktable VALUES ($2, $3, $1, 1, $4, $5, 0)"),
            (
                "hide link",
                "UPDATE linktable SET visibility = 0, version = version + 1
                 WHERE link_type = $1 AND id1 = $2 AND id2 = $3",
            ),
            (
                "count",
                "UPDATE counttable SET count = count + $3, time = $4, version = version + 1
                 WHERE id = $1 AND link_type = $2",
            ),
            ("count links", "SELECT count FROM counttable WHERE id = $1 AND link_type = $2"),
            ("add count", "INSERT INTO counttable VALUES ($1, $2, 0, $3, 0)"),
            ("add node", "INSERT INTO nodetable VALUES ($1, 2048, 0, $2, $3)"),
            (
                "update node",
                "UPDATE nodetable SET version = version + 1, time = $2, data = $3 WHERE id = $1",
            ),
            ("delete node", "DELETE FROM nodetable WHERE id = $1"),
        ];
        statements.iter().try_for_each(|(name, sql)| client.prepare(name, sql))?;
        let last = client.run("SELECT max(id) FROM nodetable")?.number(0, 0).unwrap_or(0);
        self.last.fetch_max(last.unsigned_abs(), Ordering::AcqRel);
        Ok(())
    }

    fn choose(&self, draw: &mut Draw, _: Turn) -> usize {
        by_share(draw, &SHARES)
    }

    fn perform(
        &self,
        operation: usize,
        client: &mut dyn Client,
        mut draw: Draw,
        (who, number): Turn,
    ) -> Result<(), ClientError> {
        let draw = &mut draw;
        let now = MADE_AT + 2_000_000 + signed(number);
        match operation {
            GET_LINKS => {
                let values = [self.node(draw), LINK_TYPE, 0, i64::MAX, RANGE_MAX].map(Value::from);
                client.execute("get links", &values)?;
            }
            GET_NODE => {
                client.execute("get node", &[self.node(draw).into()])?;
            }
            GET_LINK => {
                let (from, to) = self.ends(draw);
                client.execute("get link", &[LINK_TYPE, from, to].map(Value::from))?;
            }
            COUNT_LINKS => {
                client.execute("count links", &[self.node(draw), LINK_TYPE].map(Value::from))?;
            }
            ADD_LINK | UPDATE_LINK | DELETE_LINK => {
                let ends = self.ends(draw);
                let data = (operation != DELETE_LINK).then(|| letters(draw, 4, 12));
                in_transaction(client, |client| change_link(client, ends, data, now))?;
            }
            ADD_NODE => {
                // Ids are unique among clients and earlier runs.
                let id = self.last.load(Ordering::Acquire) + 1 + number * self.clients + who;
                let data = letters(draw, 64, 192);
                client.execute("add node", &[signed(id).into(), now.into(), data.into()])?;
            }
            UPDATE_NODE => {
                let (id, data) = (self.node(draw), letters(draw, 64, 192));
                client.execute("update node", &[id.into(), now.into(), data.into()])?;
            }
            DELETE_NODE => {
                client.execute("delete node", &[self.node(draw).into()])?;
            }
            _ => return Err(unexpected("LinkBench has no such operation")),
        }
        Ok(())
    }

    fn check(&self, client: &mut dyn Client) -> Result<Vec<String>, ClientError> {
        let wrong = client.run(
            "SELECT count(*) FROM
                 (SELECT id1, count(*) AS links FROM linktable WHERE visibility = 1 GROUP BY id1) AS l
                 FULL JOIN (SELECT id, count FROM counttable) AS c ON c.id = l.id1
             WHERE coalesce(l.links, 0) <> coalesce(c.count, 0)",
        )?;
        Ok(match wrong.number(0, 0) {
            Some(0) => Vec::new(),
            count => {
                vec![format!("{count:?} nodes have another number of links than their count says")]
            }
        })
    }
}

/// Adds, changes or, without data, hides a link, and maintains its node's count.
fn change_link(
    client: &mut dyn Client,
    (from, to): (i64, i64),
    data: Option<String>,
    now: i64,
) -> Result<(), ClientError> {
    let key = [LINK_TYPE, from, to].map(Value::from);
    // The count first: other clients that change a link of the node wait here, and read the link afterwards.
    let count = |client: &mut dyn Client, by: i64| {
        client.execute("count", &[from.into(), LINK_TYPE.into(), by.into(), now.into()])
    };
    if count(client, 0)?.count() == 0 {
        client.execute("add count", &[from.into(), LINK_TYPE.into(), now.into()])?;
    }
    let before = client.execute("visibility", &key)?;
    let (is_there, was_visible) = (!before.is_empty(), before.number(0, 0) == Some(1));
    let visible = match data {
        Some(data) => {
            let mut values = key.to_vec();
            values.extend([data.into(), now.into()]);
            client.execute(if is_there { "change link" } else { "add link" }, &values)?;
            true
        }
        None => {
            if was_visible {
                client.execute("hide link", &key)?;
            }
            false
        }
    };
    if visible != was_visible {
        count(client, i64::from(visible) - i64::from(was_visible))?;
    }
    Ok(())
}
