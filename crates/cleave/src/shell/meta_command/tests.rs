//! Backslash commands and the errors of wrong ones.

use std::path::PathBuf;
use std::time::Duration;

use super::{COMMANDS, MetaCommand, help, parse};

#[test]
fn commands_parse() {
    for (line, expected) in [
        ("\\d", MetaCommand::Tables { has_detail: false }),
        ("\\dt+;", MetaCommand::Tables { has_detail: true }),
        ("\\d Title", MetaCommand::Describe { name: "title".to_owned(), has_detail: false }),
        ("\\d+ \"Title\"", MetaCommand::Describe { name: "Title".to_owned(), has_detail: true }),
        ("\\d PUBLIC.t", MetaCommand::Describe { name: "t".to_owned(), has_detail: false }),
        ("\\stats \"public\".\"T\"", MetaCommand::Statistics(Some("T".to_owned()))),
        ("\\stats \"public.t\"", MetaCommand::Statistics(Some("public.t".to_owned()))),
        ("\\df *Date*", MetaCommand::Functions("date".to_owned())),
        ("\\h create table", MetaCommand::Syntax("create table".to_owned())),
        ("\\gx a b", MetaCommand::Run { is_expanded: true, file: Some("a b".into()) }),
        ("\\watch", MetaCommand::Watch { pause: Duration::from_secs(2), count: None }),
        (
            "\\watch 0.5 c=3",
            MetaCommand::Watch { pause: Duration::from_millis(500), count: Some(3) },
        ),
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
        ("\\frobnicate", "\\? shows"),
        ("\\timin on", "did you mean \\timing?"),
        ("\\watch -1", "\\watch 5"),
        ("\\copy t", "\\copy TABLE FROM"),
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
fn help_and_reference_name_every_command() {
    let reference = include_str!("../../../../../docs/reference/shell.md");
    for (command, ..) in COMMANDS {
        assert!(
            help().contains(command) && reference.contains(&format!("`{command}")),
            "{command}"
        );
        let found = super::names().any(|name| name == *command);
        assert!(found && !parse(command).is_err_and(|error| error.contains("there is no command")));
    }
}
