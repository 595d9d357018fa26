//! Every query gives the same rows, however it is split and however its pages are read.
//!
//! The queries are the project's own, and with `CLEAVE_DATA` those of the Join Order Benchmark. A query that returns
//! one row of minima checks little of a join, so each plain join is also counted and summed up.

use std::path::{Path, PathBuf};

use tempfile::tempdir;

use crate::program::{cleave, sql};

const SCALE: &str = "0.0005";

#[test]
fn own_queries_agree_in_every_stack_and_split() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/demo/queries");
    agree(&queries(&own), None);
}

#[test]
fn join_order_benchmark_agrees_in_every_stack_and_split() {
    let Some(data) = std::env::var_os("CLEAVE_DATA") else {
        eprintln!("skipped: CLEAVE_DATA does not name the test data");
        return;
    };
    let job = PathBuf::from(data).join("job");
    let queries = queries(&job.join("queries"));
    assert!(queries.len() >= 37, "only {} queries", queries.len());
    agree(&queries, Some(&job.join("fkindexes.sql")));
}

#[test]
fn schema_and_indexes_of_the_benchmark_run_unmodified() {
    let Some(data) = std::env::var_os("CLEAVE_DATA") else {
        eprintln!("skipped: CLEAVE_DATA does not name the test data");
        return;
    };
    let (place, job) = (tempdir().unwrap(), PathBuf::from(data).join("job"));
    for file in ["schema.sql", "fkindexes.sql"] {
        sql(place.path(), &["-f", job.join(file).to_str().unwrap()]).ok();
    }
    let out = sql(place.path(), &["-c", "\\d cast_info"]).ok();
    for index in ["cast_info_pkey PRIMARY KEY (id)", "movie_id_cast_info (movie_id)"] {
        assert!(out.contains(index), "{out}");
    }
}

fn queries(folder: &Path) -> Vec<(String, String)> {
    let mut queries: Vec<(String, String)> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sql"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(&path).unwrap().trim().trim_end_matches(';').to_owned())
        })
        .collect();
    queries.sort();
    assert!(!queries.is_empty(), "{} holds no queries", folder.display());
    queries
}

/// Runs `queries` on the host, then, after the script `indexes` if there is one, in every stack and split.
fn agree(queries: &[(String, String)], indexes: Option<&Path>) {
    let place = tempdir().unwrap();
    let directory = place.path().to_str().unwrap();
    cleave(&["generate", "imdb", "--scale", SCALE, "--db", directory]).ok();
    let script: String = queries
        .iter()
        .flat_map(|(name, query)| {
            [format!("SELECT '{name}' AS query"), query.clone()].into_iter().chain(checksum(query))
        })
        .map(|statement| format!("{statement};\n"))
        .collect();
    let file = place.path().with_extension("sql");
    std::fs::write(&file, script).unwrap();
    let run_in = |place: &Path, settings: &[&str]| {
        let settings = settings.iter().flat_map(|setting| ["--set", setting]);
        let arguments: Vec<&str> =
            settings.chain(["--format", "csv", "-f", file.to_str().unwrap()]).collect();
        by_query(&sql(place, &arguments).ok())
    };
    let run = |settings: &[&str]| run_in(place.path(), settings);
    let expected = run(&["split=host"]);
    assert_eq!(expected.len(), queries.len());
    if let Some(indexes) = indexes {
        // All later queries use them too.
        sql(place.path(), &["-f", indexes.to_str().unwrap()]).ok();
        for (mine, theirs) in expected.iter().zip(&run(&["split=host"])) {
            assert_eq!(mine, theirs, "with indexes");
        }
    }
    for settings in [
        &["stack=blk"][..],
        &["stack=native"],
        &["split=h0"],
        &["split=auto"],
        &["split=auto", "threads=1"],
    ] {
        let found = run(settings);
        for (mine, theirs) in expected.iter().zip(&found) {
            assert_eq!(mine, theirs, "with {settings:?}");
        }
        assert_eq!(found.len(), expected.len(), "with {settings:?}");
    }
    // In other orders: the statistics of ANALYZE change them.
    sql(place.path(), &["-c", "ANALYZE"]).ok();
    for settings in [&["split=host"][..], &["split=h0"], &["split=auto"]] {
        let found = run(settings);
        for (mine, theirs) in expected.iter().zip(&found) {
            assert_eq!(mine, theirs, "after ANALYZE, with {settings:?}");
        }
    }
    // Tables in five tablets.
    let divided = tempdir().unwrap();
    let directory = divided.path().to_str().unwrap();
    let tablets = ["--set", "default_tablets=5"];
    cleave(&[&["generate", "imdb", "--scale", SCALE, "--db", directory], &tablets[..]].concat())
        .ok();
    let shown = sql(divided.path(), &["-c", "\\d title"]).ok();
    assert!(shown.contains("5 tablets by hash (id)"), "{shown}");
    for settings in [&["split=h0"][..], &["split=auto"]] {
        let found = run_in(divided.path(), settings);
        for (mine, theirs) in expected.iter().zip(&found) {
            assert_eq!(mine, theirs, "divided, with {settings:?}");
        }
        assert_eq!(found.len(), expected.len(), "divided, with {settings:?}");
    }
    std::fs::remove_file(file).unwrap();
}

/// The output, divided at the lines that name the queries, with rows sorted if the query has no order.
fn by_query(output: &str) -> Vec<Vec<String>> {
    let mut results: Vec<Vec<String>> = Vec::new();
    let mut lines = output.lines();
    while let Some(line) = lines.next() {
        if line == "query" {
            results.push(vec![lines.next().unwrap().to_owned()]);
        } else {
            results.last_mut().expect("rows before the first query").push(line.to_owned());
        }
    }
    for result in &mut results {
        result[1..].sort();
    }
    results
}

/// `SELECT count(*), checksum` over the rows that a plain select-project-join query joins.
fn checksum(query: &str) -> Option<String> {
    let lower_case = query.to_lowercase();
    let is_plain = !["group by", "order by", "limit", "distinct", " join "]
        .iter()
        .any(|word| lower_case.contains(word));
    let from = lower_case.find("from ").filter(|_| is_plain)?;
    let end = lower_case.find("where")?;
    let terms: Vec<String> = query[from + 5..end]
        .split(',')
        .zip([7919_u64, 104_729, 1_299_709, 15_485_863].iter().cycle())
        .map(|(table, prime)| {
            let alias = table.split_whitespace().last().unwrap();
            format!("CAST({alias}.id AS bigint) * {prime}")
        })
        .collect();
    let sum = format!("sum(({}) % 1000003)", terms.join(" + "));
    Some(format!("SELECT count(*) AS joined, {sum} AS checksum {}", &query[from..]))
}
