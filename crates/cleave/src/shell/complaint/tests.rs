//! Where the caret points.

use cleave_host::{Error, Position};

use super::{complaint, excerpt};
use crate::shell::statements::Statement;

fn unknown_column(line: u32, column: u32) -> Error {
    Error::unknown(cleave_host::NameKind::Column, "titel", ["title"])
        .at(Some(Position { line, column }))
}

#[test]
fn the_caret_stands_under_the_name() {
    let statement = Statement { text: "SELECT titel\nFROM title", line: 1 };
    let text = complaint(&unknown_column(1, 8), statement, None);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("ERROR 42703: column \"titel\" does not exist"), "{text}");
    assert_eq!(lines[1], "LINE 1: SELECT titel");
    assert_eq!(lines[2].find('^'), lines[1].find("titel"));
}

#[test]
fn a_name_is_found_where_only_the_statement_is_known() {
    let statement = Statement { text: "SELECT subtitel, 1\n  , t.Titel\nFROM title t", line: 1 };
    let text = complaint(&unknown_column(1, 1), statement, None);
    assert!(text.contains("\nLINE 2:   , t.Titel\n              ^\n"), "{text}");
}

#[test]
fn lines_are_those_of_the_file() {
    let statement = Statement { text: "SELECT 1\n  , titel\nFROM title", line: 7 };
    let text = complaint(&unknown_column(2, 5), statement, Some("films.sql"));
    assert!(text.starts_with("films.sql:8: ERROR 42703"), "{text}");
    assert!(text.contains("\nLINE 8:   , titel\n            ^\n"), "{text}");
}

#[test]
fn values_in_errors_cannot_move_the_cursor() {
    let error = Error::unknown(cleave_host::NameKind::Column, "a\u{1b}[2J", []);
    let text = complaint(&error, Statement { text: "SELECT 1", line: 1 }, None);
    assert!(text.contains("\"a\\x1B[2J\""), "{text:?}");
    assert_eq!(excerpt("a\tb\u{1b}", 0).0, "a b ");
}

#[test]
fn long_lines_are_cut_around_the_place() {
    let line = format!("{}here{}", "a".repeat(500), "b".repeat(500));
    let (shown, caret) = excerpt(&line, 500);
    assert!(shown.len() < 120);
    assert!(shown[caret..].starts_with("here"));
    assert_eq!(excerpt("ab", 9), ("ab".to_owned(), 2));
}
