//! Command lines and the commands that they give.

use std::path::PathBuf;

use super::{Command, Invocation, parse, rate, setting};
use crate::shell::Source;
use crate::shell::format::Format;

fn parsed(line: &str) -> Result<Invocation, clap::Error> {
    parse(line.split_whitespace().map(Into::into))
}

#[test]
fn statements_and_files_keep_their_order() {
    let invocation =
        parsed("cleave sql -c a -f b.sql -c c --format json --db d --set split=h0").unwrap();
    assert_eq!(invocation.place.directory, Some(PathBuf::from("d")));
    assert_eq!(invocation.place.settings, [("split".to_owned(), "h0".to_owned())]);
    let Command::Sql { format: Some(Format::Json), create: false, sources, .. } =
        invocation.command
    else {
        panic!("not sql: {:?}", invocation.command)
    };
    let order: Vec<String> = sources
        .into_iter()
        .map(|source| match source {
            Source::Text(text) => text,
            Source::File(path) => path.display().to_string(),
        })
        .collect();
    assert_eq!(order, ["a", "b.sql", "c"]);
}

#[test]
fn statements_may_begin_with_a_comment() {
    let arguments = ["cleave", "sql", "-c", "-- a remark\nSELECT 1", "--format", "csv"];
    let invocation = parse(arguments.map(Into::into)).unwrap();
    let Command::Sql { format: Some(Format::Csv), create: false, sources, .. } = invocation.command
    else {
        panic!()
    };
    assert!(matches!(&sources[..], [Source::Text(text)] if text.ends_with("SELECT 1")));
}

#[test]
fn the_database_may_stand_before_the_command() {
    let invocation = parsed("cleave --db d --buffer-pool 64MB sql").unwrap();
    assert_eq!(invocation.place.directory, Some(PathBuf::from("d")));
    assert_eq!(invocation.place.buffer_pool, Some(64 << 20));
    for (size, bytes) in [("16MB", 16 << 20), ("0", 0)] {
        let invocation = parsed(&format!("cleave serve --db d --filter-history {size}")).unwrap();
        assert_eq!(invocation.place.memory().filter_history, Some(bytes));
    }
}

#[test]
fn the_shell_takes_its_database_by_position() {
    let invocation = parsed("cleave sql films -c a").unwrap();
    assert_eq!(invocation.place.directory, Some(PathBuf::from("films")));
    let Command::Sql { create: false, sources, .. } = invocation.command else { panic!() };
    assert_eq!(sources.len(), 1);
    for twice in ["cleave sql films --db plays", "cleave --db films sql films"] {
        let error = parsed(twice).unwrap_err().to_string();
        assert!(error.contains("name the database once"), "{error}");
    }
}

#[test]
fn a_device_process_gets_its_arguments_as_they_are() {
    let invocation = parsed("cleave device-process --listen 127.0.0.1:0 --db x").unwrap();
    let Command::DeviceProcess { arguments } = invocation.command else { panic!() };
    assert_eq!(arguments, ["--listen", "127.0.0.1:0", "--db", "x"]);
    let invocation = parsed("cleave device-process --filter-history 1kB --media m").unwrap();
    let Command::DeviceProcess { arguments } = invocation.command else { panic!() };
    assert_eq!(arguments, ["--filter-history=1024", "--media", "m"]);
}

#[test]
fn misuse_is_refused() {
    for line in [
        "cleave",
        "cleave frobnicate",
        "cleave sql --format xml",
        "cleave sql --set split",
        "cleave sql --set =h0",
        "cleave sql --buffer-pool much",
        "cleave sql --filter-history -1",
        "cleave serve --db d --filter-history 1.5MB",
        "cleave demo --rate fast",
        "cleave generate imdb",
        "cleave generate tpch",
        "cleave generate particles --rows 0",
        "cleave load",
        "cleave advise",
        "cleave simulate --devices 1,0",
        "cleave simulate --slow 3",
        "cleave simulate --placement 0,0",
    ] {
        let error = parsed(line).unwrap_err();
        assert!(error.use_stderr(), "{line}");
    }
    assert!(!parsed("cleave --help").unwrap_err().use_stderr());
}

#[test]
fn rates_are_bits_or_bytes() {
    assert_eq!(rate("1gbit"), Ok(125_000_000));
    assert_eq!(rate("100Mbit"), Ok(12_500_000));
    assert_eq!(rate("8kbit"), Ok(1_000));
    assert_eq!(rate("4096"), Ok(4096));
    for wrong in ["", "0", "fast", "1xbit", "bit", "-1", "99999999999999999999gbit"] {
        assert!(rate(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn settings_keep_what_follows_the_first_equals_sign() {
    assert_eq!(setting("application_name=a=b"), Ok(("application_name".into(), "a=b".into())));
}
