//! Betweenness centrality by SQL, over tables like LinkBench's: a recursion counts shortest paths level by level, where
//! the links are. The oracles are the known centrality of a small graph, and Brandes' algorithm.
//!
//! The statement is that of `docs/tutorial.md`.

use std::collections::{BTreeMap, VecDeque};

use cleave_host::Session;
use cleave_media::SplitMix64;

use crate::index_filter::{attached, session_on};
use crate::support::{rows, run};

/// The kite of Krackhardt (1990), by whose centrality measures are told apart.
const KITE: [(i64, i64); 18] = [
    (1, 2),
    (1, 3),
    (1, 4),
    (1, 6),
    (2, 4),
    (2, 5),
    (2, 7),
    (3, 4),
    (3, 6),
    (4, 5),
    (4, 6),
    (4, 7),
    (5, 7),
    (6, 7),
    (6, 8),
    (7, 8),
    (8, 9),
    (9, 10),
];

/// Its betweenness, each pair of nodes counted once.
const OF_KITE: [f64; 10] =
    [5.0 / 6.0, 5.0 / 6.0, 0.0, 11.0 / 3.0, 0.0, 25.0 / 3.0, 25.0 / 3.0, 14.0, 8.0, 0.0];

/// The statement of the tutorial, from every `every`th node, by paths of at most `most` links.
fn statement(every: i64, most: i64) -> String {
    let text = include_str!("../../../../docs/tutorial/betweenness.sql");
    let statement = text.replace("id % 500 = 1", &format!("id % {every} = 1 % {every}"));
    let statement = statement.replace("w.depth < 3", &format!("w.depth < {most}"));
    let statement = statement.replace("LIMIT 10", "LIMIT 100000");
    assert!(statement.contains(&format!("w.depth < {most}")) && statement.contains("LIMIT 100000"));
    statement.trim().trim_end_matches(';').to_owned()
}

async fn load(session: &mut Session, links: &[(i64, i64)], nodes: i64) {
    run(
        session,
        "CREATE TABLE nodetable (id bigint PRIMARY KEY, type integer NOT NULL, data text NOT NULL);
         CREATE TABLE linktable (id1 bigint NOT NULL, id2 bigint NOT NULL, link_type bigint NOT NULL,
             visibility integer NOT NULL, data text NOT NULL, PRIMARY KEY (link_type, id1, id2));
         CREATE INDEX id1_type ON linktable (id1, link_type)",
    )
    .await;
    run(
        session,
        &format!(
            "INSERT INTO nodetable SELECT i, 2048, 'd' FROM generate_series(1, {nodes}) AS g (i)"
        ),
    )
    .await;
    let values = links.iter().map(|(from, to)| format!("({from}, {to}, 7, 1, 'd')"));
    let values = values.collect::<Vec<_>>().join(", ");
    // A link that is hidden leads nowhere.
    let insert = format!("INSERT INTO linktable VALUES {values}, (1, {nodes}, 8, 0, 'hidden')");
    run(session, &insert).await;
    run(session, "ANALYZE").await;
}

/// Centrality by node, from `EXPLAIN ANALYZE`'s statement; and whether a device ran the walk.
async fn measured(session: &mut Session, sql: &str) -> (BTreeMap<i64, f64>, bool) {
    let found = rows(session, sql).await;
    let found = found.iter().map(|row| {
        let (node, value) = row.split_once(',').unwrap();
        (node.parse().unwrap(), value.parse().unwrap())
    });
    let found = found.collect();
    let analyzed = rows(session, &format!("EXPLAIN ANALYZE VERBOSE {sql}")).await;
    let there = |line: &String| line.contains("] RecursionExec: walk") && !line.contains("[host]");
    let here = analyzed.iter().any(|line| line.contains("ran on the host"));
    (found, !here && analyzed.iter().any(there))
}

/// Brandes' algorithm (2001) over paths of at most `most` links, from the nodes `sources`.
fn brandes(links: &[(i64, i64)], sources: &[i64], most: i64) -> BTreeMap<i64, f64> {
    let mut centrality = BTreeMap::new();
    for source in sources {
        let mut depths = BTreeMap::from([(*source, 0)]);
        let mut paths = BTreeMap::from([(*source, 1.0)]);
        let (mut queue, mut order) = (VecDeque::from([*source]), Vec::new());
        while let Some(node) = queue.pop_front() {
            order.push(node);
            let depth = depths[&node];
            for (_, to) in links.iter().filter(|(from, _)| *from == node && depth < most) {
                if !depths.contains_key(to) {
                    depths.insert(*to, depth + 1);
                    queue.push_back(*to);
                }
                if depths[to] == depth + 1 {
                    *paths.entry(*to).or_insert(0.0) += paths[&node];
                }
            }
        }
        let mut dependencies: BTreeMap<i64, f64> = BTreeMap::new();
        for node in order.into_iter().rev() {
            let own = dependencies.get(&node).copied().unwrap_or(0.0);
            for (before, _) in links.iter().filter(|(_, to)| *to == node) {
                if depths.get(before).is_some_and(|depth| depth + 1 == depths[&node]) {
                    *dependencies.entry(*before).or_insert(0.0) +=
                        paths[before] / paths[&node] * (1.0 + own);
                }
            }
            if node != *source && own > 0.0 {
                *centrality.entry(node).or_insert(0.0) += own;
            }
        }
    }
    centrality
}

fn assert_equal(found: &BTreeMap<i64, f64>, expected: &BTreeMap<i64, f64>, what: &str) {
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{what}");
    for (node, value) in found {
        let expected = expected[node];
        assert!((value - expected).abs() <= 1e-9 * expected, "{what}: {node}: {value}, {expected}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kite_has_its_known_centrality() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served) = attached("remote", outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET default_device = 'other'").await;
    let links: Vec<(i64, i64)> = KITE.into_iter().flat_map(|(a, b)| [(a, b), (b, a)]).collect();
    load(&mut session, &links, 10).await;
    // Pairs count in both directions here.
    let known = (1..).zip(OF_KITE).filter(|(_, value)| *value > 0.0);
    let known: BTreeMap<i64, f64> = known.map(|(node, value)| (node, 2.0 * value)).collect();
    assert_equal(&brandes(&links, &(1..=10).collect::<Vec<_>>(), 4), &known, "the oracle");
    for (split, is_there) in [("host", false), ("h1", true), ("h1+", true)] {
        run(&mut session, &format!("SET split = '{split}'")).await;
        let (found, there) = measured(&mut session, &statement(1, 4)).await;
        assert_equal(&found, &known, split);
        assert_eq!(there, is_there, "{split}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_graphs_have_the_centrality_that_brandes_finds() {
    for (seed, mode) in (5..).zip(["embedded", "remote", "local"]) {
        let outside = tempfile::tempdir().unwrap();
        let (_directory, database, _served) = attached(mode, outside.path()).await;
        let mut session = session_on(&database, mode).await;
        let mut random = SplitMix64::new(seed);
        let mut node = || i64::try_from(1 + random.below(60)).unwrap();
        let mut links: Vec<(i64, i64)> = (0..180).map(|_| (node(), node())).collect();
        links.sort_unstable();
        links.dedup();
        links.retain(|(from, to)| from != to);
        load(&mut session, &links, 60).await;
        for (every, most) in [(1, 2), (7, 3), (1, 4)] {
            let sources: Vec<i64> = (1..=60).filter(|id| id % every == 1 % every).collect();
            let expected = brandes(&links, &sources, most);
            for split in ["host", "h1", "auto"] {
                run(&mut session, &format!("SET split = '{split}'")).await;
                let (found, there) = measured(&mut session, &statement(every, most)).await;
                assert_equal(&found, &expected, &format!("{mode}, {split}, {every}, {most}"));
                assert!(split != "h1" || there, "{mode}: the device walks");
            }
        }
    }
}
