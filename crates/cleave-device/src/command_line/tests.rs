//! Arguments, one by one. The whole program is tested as a process.

use super::*;

fn parsed(arguments: &[&str]) -> Result<Box<Options>, Failure> {
    match parse(arguments.iter().map(OsString::from))? {
        Invocation::Run(options) => Ok(options),
        other => panic!("{other:?}"),
    }
}

#[test]
fn values_follow_or_are_joined() {
    let options = parsed(&[
        "--media",
        "m",
        "--listen=[::1]:0",
        "--cores=3",
        "--memory",
        "1GiB",
        "--filter-history=1MB",
    ]);
    let options = options.unwrap();
    let [engine] = options.engines.as_slice() else { panic!("{options:?}") };
    assert_eq!(engine.media.as_deref(), Some(Path::new("m")));
    assert_eq!(engine.listen.as_deref(), Some("[::1]:0"));
    assert_eq!((engine.cores, engine.memory_bytes), (Some(3), Some(1 << 30)));
    assert_eq!(engine.filter_history_bytes, Some(1_000_000));
    let none = parsed(&["--filter-history=0"]).unwrap();
    assert_eq!(none.engines.first().and_then(|engine| engine.filter_history_bytes), Some(0));
    assert!(parsed(&["--filter-history=-1"]).is_err() && parsed(&["--memory=0"]).is_err());
    assert!(!options.until_stdin_closes);
    assert!(parsed(&["--until-stdin-closes"]).unwrap().until_stdin_closes);
    assert!(parsed(&["--until-stdin-closes=yes"]).is_err());
    assert!(!options.overwrite_media);
    assert!(parsed(&["--overwrite-media"]).unwrap().overwrite_media);
    assert!(parsed(&["--media="]).is_err());
}

#[test]
fn options_belong_to_the_media_before_them() {
    let first = ["--cores=2", "--media", "a", "--listen", "h:1", "--node", "n-1.x_y"];
    let second = ["--token-env=T", "--media=b", "--local", "s", "--cores", "1", "--port-file=p"];
    let options = parsed(&[first, second].concat()).unwrap();
    let [a, b] = options.engines.as_slice() else { panic!("{options:?}") };
    assert_eq!(
        (a.media.as_deref(), b.media.as_deref()),
        (Some(Path::new("a")), Some(Path::new("b")))
    );
    assert_eq!((a.cores, b.cores), (Some(2), Some(1)), "one before all media is of the first");
    assert_eq!((a.listen.as_deref(), b.listen.as_deref()), (Some("h:1"), None));
    assert!(a.local.is_none() && b.local.is_some() && a.port_file.is_none());
    assert_eq!(options.node.as_deref(), Some("n-1.x_y"));
    assert_eq!(options.token_env.as_deref(), Some("T"));
    for name in ["a:b", "a b", "ä", &"n".repeat(64)] {
        assert!(parsed(&["--node", name]).is_err(), "{name}");
    }
}

#[test]
fn bytes_are_read_as_people_write_them() {
    let bytes = |text: &str| bytes_of("--memory", text.into()).ok();
    for (text, expected) in [
        ("1", 1),
        ("4096", 4096),
        ("10B", 10),
        ("2kb", 2000),
        ("2KiB", 2048),
        ("125MB", 125_000_000),
        ("3 MiB", 3 << 20),
        ("1g", 1_000_000_000),
        ("16GiB", 16 << 30),
    ] {
        assert_eq!(bytes(text), Some(expected), "{text}");
    }
    for text in ["", "0", "MiB", "-1", "1.5GB", "1TBit", "99999999999999999999", "18446744074GB"] {
        assert_eq!(bytes(text), None, "{text}");
    }
}

/// What the program reads of `text` and these arguments.
fn with_file(text: &str, more: &[&str]) -> Result<Box<Options>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cleaved.toml");
    std::fs::write(&path, text).unwrap();
    let config = format!("--config={}", path.display());
    let arguments = [&[config.as_str()][..], more].concat();
    match parse_with_file(arguments.into_iter().map(OsString::from)) {
        Ok(Invocation::Run(options)) => Ok(options),
        Ok(other) => panic!("{other:?}"),
        Err(failure) => Err(failure.to_string().replace(&path.display().to_string(), "FILE")),
    }
}

#[test]
fn a_file_gives_what_the_arguments_do_not() {
    let text = "node = 'n1'\ntoken_file = 't'\nlog_format = 'json'\n\
        [[engine]]\nmedia = 'a'\ncores = 2\nmemory = '1GiB'\n\
        [[engine]]\nlisten = '127.0.0.1:0'\nmedia = 'b'\n";
    let options = with_file(text, &["--node", "n2", "--token-env=T"]).unwrap();
    assert_eq!((options.node.as_deref(), options.token_env.as_deref()), (Some("n2"), Some("T")));
    assert!(options.token_file.is_none() && options.log_format == LogFormat::Json);
    let [a, b] = options.engines.as_slice() else { panic!("{options:?}") };
    assert_eq!(
        (a.media.as_deref(), b.media.as_deref()),
        (Some(Path::new("a")), Some(Path::new("b")))
    );
    assert_eq!((a.cores, a.memory_bytes), (Some(2), Some(1 << 30)));
    assert_eq!((a.listen.as_deref(), b.listen.as_deref()), (None, Some("127.0.0.1:0")));
    let options = with_file(text, &["--media", "c"]).unwrap();
    assert_eq!(options.engines.len(), 1);
}

#[test]
fn errors_of_a_file_name_their_line() {
    for (text, expected) in [
        ("\nmedia = 'a'", "FILE:2: there is no option `media` here; there are node, token_file"),
        ("[[engine]]\nmedia = 'a'\ncores = 0", "FILE:3: --cores takes a number from 1 to 1024"),
        ("[[engine]]\ncores = 1", "an [[engine]] needs its media"),
        ("node = true", "FILE:1: node takes a text or a number"),
        ("engine = 1", "FILE:1: each media has a table: [[engine]]"),
        ("node = ", "FILE:1: "),
    ] {
        let error = with_file(text, &[]).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/cleaved.toml");
    let sample = std::fs::read_to_string(sample).unwrap();
    let uncommented: String = sample
        .lines()
        .map(|line| format!("{}\n", line.strip_prefix('#').unwrap_or(line)))
        .collect();
    // Lines with a blank behind the sign are remarks.
    let settings: String = uncommented
        .lines()
        .filter(|line| !line.starts_with(' '))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(with_file(&settings, &[]).unwrap().engines.len(), 1);
}
