//! Where statements end, in the places where a semicolon or a quote means something else.

use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};

use super::{Open, command_start, copies_from_client, is_open, open_at_end, split, take_rows};

fn texts(text: &str) -> Vec<&str> {
    split(text).0.into_iter().map(|statement| statement.text).collect()
}

#[test]
fn semicolons_end_statements() {
    assert_eq!(texts("SELECT 1; SELECT 2 ;\n;"), ["SELECT 1", "SELECT 2"]);
    assert_eq!(texts("SELECT 1; SELECT 2"), ["SELECT 1", "SELECT 2"]);
    assert_eq!(texts(" \n -- nothing; here\n /* ; */ "), Vec::<&str>::new());
}

#[test]
fn semicolons_inside_quotes_and_comments_do_not() {
    for text in [
        "SELECT ';'",
        "SELECT 'it''s; fine'",
        "SELECT E'a\\';b'",
        "SELECT \"odd;name\"",
        "SELECT 1 -- ; not yet\n + 2",
        "SELECT /* ; /* ; */ ; */ 1",
        "SELECT $$ ; $$",
        "SELECT $tag$ ; $$ ; $tag$",
        "SELECT name'x;y'",
    ] {
        assert_eq!(texts(&format!("{text}; SELECT 2;")), [text, "SELECT 2"]);
    }
}

#[test]
fn what_is_open_is_told() {
    for (text, open) in [
        ("", None),
        ("SELECT 1; -- done", None),
        ("SELECT ')'", Some(Open::Statement)),
        ("SELECT ('a'", Some(Open::Parenthesis)),
        ("SELECT (1); SELECT", Some(Open::Statement)),
        ("SELECT 'a", Some(Open::Quote)),
        ("SELECT E'a", Some(Open::Quote)),
        ("SELECT \"a", Some(Open::Name)),
        ("SELECT $tag$ '", Some(Open::Dollar)),
        ("SELECT 1; /* and", Some(Open::Comment)),
        ("BATCH BEGIN; SELECT 1;", Some(Open::Statement)),
    ] {
        assert_eq!(open_at_end(text), open, "{text}");
    }
}

#[test]
fn commands_begin_outside_of_quotes() {
    assert_eq!(command_start("SELECT E'\\'', \"\\\" -- \\x\n \\g", 0), Ok(25));
    let mut lines = "SELECT '\\x', é\n, '\\y\n".to_owned();
    let open = lines.find("'\\y").unwrap();
    assert_eq!(command_start(&lines, 0), Err(open));
    lines.push_str("\\z', 1 \\g\n");
    assert_eq!(command_start(&lines, open), Ok(lines.find("\\g").unwrap()));
    assert_eq!(command_start("SELECT '\\x'; é\n", 0), Err(16));
}

#[test]
fn a_batch_is_one_statement() {
    let batch = "BATCH BEGIN; SELECT 1;; SELECT ';' ; batch  end";
    let all = format!("SELECT 0; {batch} ; SELECT 2; BATCH END; SELECT 3");
    assert_eq!(texts(&all), ["SELECT 0", batch, "SELECT 2", "BATCH END", "SELECT 3"]);
    assert!(is_open("BATCH BEGIN; SELECT 1;") && is_open("BATCH BEGIN;") && is_open(batch));
    assert!(!is_open(&format!("{batch};")));
    assert_eq!(texts("BATCH BEGIN; SELECT 1; "), ["BATCH BEGIN; SELECT 1;"]);
}

#[test]
fn rows_of_copy_end_at_a_backslash_and_a_dot() {
    let script = "1\ta;\r\n\n\\.x\n\\.\r\nSELECT 1;\n";
    let mut lines = script.split_inclusive('\n');
    assert_eq!(take_rows(&mut lines), "1\ta;\r\n\n\\.x\n");
    assert_eq!(take_rows(&mut lines), "SELECT 1;\n");
    assert_eq!(take_rows(&mut lines), "");
}

#[test]
fn only_copy_from_stdin_has_rows() {
    for text in ["COPY public.t (a, b) FROM stdin", "copy t from STDIN with (format csv)"] {
        assert!(copies_from_client(text), "{text}");
    }
    for text in
        ["COPY t FROM 'stdin'", "COPY t TO STDOUT", "SELECT 'COPY t FROM STDIN'", "COPY", "é"]
    {
        assert!(!copies_from_client(text), "{text}");
    }
}

#[test]
fn a_parameter_is_no_dollar_quote() {
    assert_eq!(texts("SELECT $1; SELECT $2"), ["SELECT $1", "SELECT $2"]);
}

#[test]
fn lines_are_counted_from_one() {
    let lines: Vec<_> = split("SELECT 1;\n\n-- two\nSELECT\n2;").0.iter().map(|s| s.line).collect();
    assert_eq!(lines, [1, 4]);
}

#[test]
fn open_statements_ask_for_more() {
    for open in [
        "SELECT",
        "SELECT 1; SELECT",
        "SELECT ';",
        "SELECT \";",
        "/* a",
        "SELECT $$;",
        "SELECT E'\\';",
    ] {
        assert!(is_open(open), "{open:?} is finished?");
    }
    for finished in
        ["", "  ", "SELECT 1;", "SELECT 1; -- done", "-- a remark", "/* a */", "SELECT 'a';\n"]
    {
        assert!(!is_open(finished), "{finished:?} is open?");
    }
}

fn pieces() -> impl Strategy<Value = String> {
    let piece = proptest::sample::select(vec![
        "'", "\"", "$$", "$a$", ";", "--", "/*", "*/", "\n", "é", " ", "e'", "\\", "a", "1",
        "SELECT",
    ]);
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_text_splits_without_panic_and_in_order(text in pieces()) {
        let (statements, _) = split(&text);
        let mut from = 0;
        for statement in statements {
            prop_assert!(!statement.text.is_empty());
            let found = text[from..].find(statement.text);
            prop_assert!(found.is_some());
            from += found.unwrap() + statement.text.len();
        }
    }

    #[test]
    fn quoted_constants_stay_whole(value in any::<String>()) {
        let constant = format!("SELECT '{}'", value.replace('\'', "''"));
        let text = format!("{constant};SELECT 2");
        prop_assert_eq!(texts(&text), [constant.as_str(), "SELECT 2"]);
    }
}
