//! Tests of the movie database: the same bytes every time, valid foreign keys, and the constants that queries use.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Int32Type};

use super::super::random::mix;
use super::*;

mod query_constants;

const SCALE: f64 = 0.002;

/// A checksum of the cells of some rows and their order.
fn checksum_of(batches: impl Iterator<Item = RecordBatch>) -> u64 {
    let mut sum = 0;
    for batch in batches {
        for column in batch.columns() {
            for row in 0..batch.num_rows() {
                let cell = match column.data_type() {
                    _ if column.is_null(row) => 1,
                    DataType::Int32 => {
                        u64::from(column.as_primitive::<Int32Type>().value(row).unsigned_abs())
                    }
                    _ => column
                        .as_string::<i32>()
                        .value(row)
                        .bytes()
                        .fold(2, |sum, byte| mix(sum, u64::from(byte))),
                };
                sum = mix(sum, cell);
            }
        }
    }
    sum
}

fn integers(imdb: &Imdb, table: &str, column: &str) -> Vec<i32> {
    let mut values = Vec::new();
    for part in 0..imdb.parts(table) {
        for batch in imdb.part(table, part) {
            let array = batch.column_by_name(column).unwrap().as_primitive::<Int32Type>().clone();
            values.extend(array.iter().flatten());
        }
    }
    values
}

#[test]
fn the_same_seed_gives_the_same_bytes_in_any_order() {
    let first = Imdb::new(0.005, 7).unwrap();
    let again = Imdb::new(0.005, 7).unwrap();
    let other = Imdb::new(0.005, 8).unwrap();
    for table in first.tables() {
        let parts = first.parts(table.name);
        let forward: Vec<u64> =
            (0..parts).map(|part| checksum_of(first.part(table.name, part))).collect();
        let mut backward: Vec<u64> =
            (0..parts).rev().map(|part| checksum_of(again.part(table.name, part))).collect();
        backward.reverse();
        assert_eq!(forward, backward, "{}", table.name);
        if table.rows > 1_000 {
            assert_ne!(forward[0], checksum_of(other.part(table.name, 0)), "{}", table.name);
        }
    }
}

#[test]
fn counts_ids_and_required_columns_hold() {
    let imdb = Imdb::new(0.01, 42).unwrap();
    for table in imdb.tables() {
        let mut next = 1;
        for part in 0..imdb.parts(table.name) {
            for batch in imdb.part(table.name, part) {
                assert!(batch.num_rows() <= BATCH_ROWS_MAX);
                assert_eq!(batch.schema(), table.schema);
                for (field, column) in table.schema.fields().iter().zip(batch.columns()) {
                    let nulls = column.null_count();
                    assert!(field.is_nullable() || nulls == 0, "{}.{field}", table.name);
                }
                for id in batch.column(0).as_primitive::<Int32Type>().values() {
                    assert_eq!(*id, next, "{}", table.name);
                    next += 1;
                }
            }
        }
        assert_eq!(u64::try_from(next - 1).unwrap(), table.rows, "{}", table.name);
    }
}

#[test]
fn every_key_leads_to_a_row() {
    const KEYS: [(&str, &str, &str); 24] = [
        ("title", "kind_id", "kind_type"),
        ("title", "episode_of_id", "title"),
        ("aka_title", "movie_id", "title"),
        ("aka_title", "kind_id", "kind_type"),
        ("aka_title", "episode_of_id", "title"),
        ("aka_name", "person_id", "name"),
        ("cast_info", "person_id", "name"),
        ("cast_info", "movie_id", "title"),
        ("cast_info", "person_role_id", "char_name"),
        ("cast_info", "role_id", "role_type"),
        ("complete_cast", "movie_id", "title"),
        ("complete_cast", "subject_id", "comp_cast_type"),
        ("complete_cast", "status_id", "comp_cast_type"),
        ("movie_companies", "movie_id", "title"),
        ("movie_companies", "company_id", "company_name"),
        ("movie_companies", "company_type_id", "company_type"),
        ("movie_info", "movie_id", "title"),
        ("movie_info", "info_type_id", "info_type"),
        ("movie_info_idx", "movie_id", "title"),
        ("movie_keyword", "movie_id", "title"),
        ("movie_keyword", "keyword_id", "keyword"),
        ("movie_link", "movie_id", "title"),
        ("movie_link", "linked_movie_id", "title"),
        ("person_info", "person_id", "name"),
    ];
    for scale in [0.0001, SCALE] {
        let imdb = Imdb::new(scale, 42).unwrap();
        let rows: BTreeMap<&str, u64> =
            imdb.tables().into_iter().map(|table| (table.name, table.rows)).collect();
        for (table, column, target) in KEYS {
            for value in integers(&imdb, table, column) {
                let value = u64::try_from(value).unwrap();
                let known = 1..=rows[target];
                assert!(known.contains(&value), "{table}.{column} {value} of {}", rows[target]);
            }
        }
    }
}

#[test]
fn a_rated_title_has_one_rating_one_number_of_votes_and_one_distribution() {
    let imdb = Imdb::new(SCALE, 42).unwrap();
    let facts = integers(&imdb, "movie_info_idx", "info_type_id");
    let movies = integers(&imdb, "movie_info_idx", "movie_id");
    let mut by_movie: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for (movie, fact) in movies.into_iter().zip(facts) {
        by_movie.entry(movie).or_default().push(fact);
    }
    for facts in by_movie.values() {
        assert_eq!(facts[..3], [99, 100, 101]);
    }
}

#[test]
fn scales_that_cannot_be_are_refused() {
    for scale in [0.0, -1.0, f64::NAN, 101.0] {
        assert!(matches!(Imdb::new(scale, 1), Err(GenerateError::Scale { .. })));
    }
}

#[test]
fn parts_and_tables_that_do_not_exist_are_empty() {
    let imdb = Imdb::new(SCALE, 42).unwrap();
    assert_eq!(imdb.parts("no_such_table"), 0);
    assert_eq!(imdb.part("no_such_table", 0).count(), 0);
    assert_eq!(imdb.part("title", imdb.parts("title")).count(), 0);
}

#[test]
fn the_statements_create_all_tables() {
    for table in Imdb::new(SCALE, 42).unwrap().tables() {
        assert!(Imdb::schema_sql().contains(&format!("CREATE TABLE {} (", table.name)));
        assert_eq!(table.schema.field(0).name(), "id");
    }
}
