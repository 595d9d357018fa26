//! The texts that the test queries use exist even in a small database.

use super::*;

const QUERIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/imdb_queries");

#[test]
fn constants_of_the_test_queries_exist() {
    let folder = std::env::var("IMDB_QUERIES").unwrap_or_else(|_| QUERIES.to_owned());
    let mut constants = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "sql") {
            let sql = std::fs::read_to_string(path).unwrap();
            let code: String =
                sql.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n");
            constants.extend(code.split('\'').skip(1).step_by(2).map(str::to_owned));
        }
    }
    assert!(constants.len() > 20);

    let imdb = Imdb::new(0.005, 42).unwrap();
    for table in imdb.tables() {
        for part in 0..imdb.parts(table.name) {
            for batch in imdb.part(table.name, part) {
                for column in batch.columns() {
                    if let Some(texts) = column.as_string_opt::<i32>() {
                        for text in texts.iter().flatten() {
                            constants.retain(|constant| !is_like(text, constant));
                        }
                    }
                }
            }
        }
    }
    assert!(constants.is_empty(), "no rows have {constants:?}");
}

/// SQL's LIKE with `%`. A constant that is compared by `<` or `>` is found by equality too.
fn is_like(text: &str, pattern: &str) -> bool {
    let mut pieces = pattern.split('%');
    let Some(mut rest) = pieces.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let pieces: Vec<&str> = pieces.collect();
    let Some((last, middle)) = pieces.split_last() else { return rest.is_empty() };
    for piece in middle {
        match rest.split_once(piece) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}
