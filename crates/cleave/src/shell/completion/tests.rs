//! The completions offered in each place.

use super::Vocabulary;

fn vocabulary() -> Vocabulary {
    let columns = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Vocabulary {
        tables: [
            ("title".to_owned(), columns(&["id", "title", "production_year"])),
            ("movie_keyword".to_owned(), columns(&["id", "movie_id", "keyword_id"])),
        ]
        .into(),
        settings: ["split".to_owned(), "stack".to_owned()].into(),
    }
}

fn offers(text: &str) -> Vec<String> {
    vocabulary().complete(text, text.len()).1
}

#[test]
fn keywords_keep_the_case_of_their_beginning() {
    assert_eq!(offers("SEL"), ["SELECT"]);
    assert_eq!(offers("sel"), ["select"]);
}

#[test]
fn tables_come_after_from_and_join() {
    assert_eq!(offers("SELECT * FROM "), ["movie_keyword", "title"]);
    assert_eq!(offers("select * from title join mov"), ["movie_keyword"]);
    assert_eq!(offers("\\d ti"), ["title"]);
}

#[test]
fn settings_come_after_set() {
    assert_eq!(offers("SET sp"), ["split"]);
    assert_eq!(offers("show "), ["split", "stack"]);
}

#[test]
fn columns_come_from_the_tables_that_the_text_names() {
    assert_eq!(offers("SELECT count(*) FROM title WHERE prod"), ["production_year"]);
    assert!(offers("SELECT count(*) FROM title WHERE key").is_empty());
}

#[test]
fn a_qualifier_is_a_table_or_its_alias() {
    assert_eq!(offers("SELECT * FROM title WHERE title.p"), ["production_year"]);
    assert_eq!(offers("SELECT * FROM movie_keyword AS mk, title t WHERE mk.mo"), ["movie_id"]);
    assert_eq!(offers("SELECT * FROM movie_keyword AS mk, title t WHERE t.ti"), ["title"]);
    let text = "SELECT t. FROM title t";
    let (start, columns) = vocabulary().complete(text, "SELECT t.".len());
    assert_eq!((start, columns.len()), ("SELECT t.".len(), 3));
}

#[test]
fn an_alias_may_stand_before_its_table() {
    // The first letters of a table, those of its words, or any table.
    assert_eq!(offers("SELECT t.prod"), ["production_year"]);
    assert_eq!(offers("SELECT mk.m"), ["movie_id"]);
    assert_eq!(offers("SELECT x.keyw"), ["keyword_id"]);
    assert_eq!(offers("SELECT T.ti FROM Title AS t WHERE t.prod"), ["production_year"]);
    // A schema.
    assert_eq!(offers("SELECT * FROM public.t"), ["title"]);
    assert_eq!(offers("SELECT * FROM pg_catalog.pg_nam"), ["pg_namespace"]);
    assert_eq!(offers("SELECT public.title.prod"), ["production_year"]);
}

#[test]
fn any_cursor_in_any_text_is_fine() {
    let text = "SELECT 'é' FROM \"título\" t WHERE t.é \\é";
    for position in 0..=text.len() + 1 {
        let (start, _) = vocabulary().complete(text, position);
        assert!(start <= text.len());
    }
}
