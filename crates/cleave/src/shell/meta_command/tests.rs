//! Backslash commands and the errors of wrong ones.

use std::path::PathBuf;

use super::{HELP, MetaCommand, parse};

#[test]
fn commands_parse() {
    for (line, expected) in [
        ("\\d", MetaCommand::Tables),
        ("\\dt;", MetaCommand::Tables),
        ("\\d Title", MetaCommand::Describe("title".to_owned())),
        ("\\d \"Title\"", MetaCommand::Describe("Title".to_owned())),
        ("\\timing", MetaCommand::Timing(None)),
        ("\\timing off", MetaCommand::Timing(Some(false))),
        ("  \\x on", MetaCommand::Display(Some(("expanded".into(), Some("on".into()))))),
        ("\\pset null ''", MetaCommand::Display(Some(("null".into(), Some(String::new()))))),
        ("\\i a.sql", MetaCommand::Include(PathBuf::from("a.sql"))),
        ("\\i my files/a b.sql ;", MetaCommand::Include(PathBuf::from("my files/a b.sql"))),
        ("\\o", MetaCommand::Output(None)),
        ("\\set split h0", MetaCommand::Set(Some(("split".to_owned(), "h0".to_owned())))),
        ("\\q", MetaCommand::Quit),
    ] {
        assert_eq!(parse(line), Ok(expected), "{line}");
    }
}

#[test]
fn wrong_ones_say_what_would_be_right() {
    for (line, part) in [
        ("\\frobnicate", "\\frobnicate"),
        ("\\i", "\\i FILE"),
        ("\\set split", "a name and a value"),
        ("\\timing maybe", "neither on nor off"),
        ("\\d a b", "more words"),
        ("\\", "\\?"),
    ] {
        let error = parse(line).unwrap_err();
        assert!(error.contains(part), "{line}: {error}");
    }
}

#[test]
fn help_names_every_command() {
    for command in ["\\d", "\\l", "\\timing", "\\x", "\\pset", "\\i", "\\o", "\\set", "\\q"] {
        assert!(HELP.contains(command), "{command}");
    }
}
