//! Every error message of the sources, once, in `error_messages.txt`: a new or changed one shows up in review.
//!
//! `CLEAVE_WRITE_ERRORS=1` writes the file anew. Placeholders are `…`. What a user can do about a message stands in
//! `docs/reference/errors.md`.
//!
//! Not seen: a message that is put together from parts, and one that is handed to another function than those of
//! [`BEFORE_MESSAGE`].

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What stands before the text of a message.
const BEFORE_MESSAGE: [&str; 16] = [
    "#[error(",
    "message:",
    "let message =",
    "Unsupported {",
    "unsupported(",
    "invalid(",
    "refused(",
    "refuse(",
    "fault(",
    "wrong(",
    "denied(",
    "Complaint::error(",
    "Complaint::fatal(",
    "Failure::Usage(",
    "damaged(",
    "state(",
];
/// Of these, what takes a code before the text.
const AFTER_CODE: [&str; 3] = ["Complaint::error(", "Complaint::fatal(", "state("];
/// Of these, what says of its text that it is not supported.
const NOT_SUPPORTED: [&str; 2] = ["unsupported(", "Unsupported {"];
/// What may stand between that and the text.
const AROUND_TEXT: [&str; 3] = ["format!(", "what:", "&"];
/// Files of which every text is part of a message.
const WHOLE_FILES: [&str; 3] = [
    "cleave-catalog/src/error/no_operator.rs",
    "cleave-catalog/src/error/shown.rs",
    "cleave-catalog/src/value/error.rs",
];
/// Crates that no user runs.
const LEFT_OUT: [&str; 2] = ["cleave-fuzz", "cleave-sim"];
/// Where the code of a file ends.
const TESTS: &str = "\n#[cfg(test)]\nmod tests";
/// White space of a source.
const BLANKS: [char; 5] = [' ', '\t', '\n', '\r', '\x0c'];

#[test]
fn every_message_is_listed_once() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeSet::new();
    for (name, text) in sources(&crates) {
        let code = code_of(&text);
        found.extend(messages(&code));
        if WHOLE_FILES.contains(&name.as_str()) {
            found.extend(texts(&code));
        }
    }
    assert!(found.len() > 500, "too few messages: {}", found.len());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/error_messages.txt");
    if std::env::var_os("CLEAVE_WRITE_ERRORS").is_some() {
        let lines: String = found.iter().map(|line| format!("{line}\n")).collect();
        fs::write(&file, lines).unwrap();
    }
    let listed = fs::read_to_string(&file).unwrap();
    let listed: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
    let new: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "run this test with CLEAVE_WRITE_ERRORS=1, and look at docs/reference/errors.md; not listed: {new:#?}; gone: \
         {gone:#?}"
    );
}

#[test]
fn messages_are_found_however_they_are_made() {
    let code = concat!(
        "#[error(\"table \\\"{table}\\\" is \\\n        away\")] let message = format!(\"{{a}} of {0:?}\");\n",
        "Error::unsupported(format!(\"ALTER {what}\")) Error::Unsupported {\n what: \"a b\".into() }\n",
        "Complaint::fatal(\"08P01\", \"no  message\") transparent(\"not this\") unsupported(what)\n",
    );
    let found: Vec<String> = messages(code).into_iter().collect();
    let expected = [
        "ALTER … is not supported",
        "a b is not supported",
        "no message",
        "table \"…\" is away",
        "{a} of …",
    ];
    assert_eq!(found, expected);
}

/// The sources of what users run, by their paths below `crates`.
fn sources(crates: &Path) -> Vec<(String, String)> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(crates).unwrap() {
        let entry = entry.unwrap();
        let source = entry.path().join("src");
        let is_left_out = LEFT_OUT.iter().any(|name| entry.file_name() == *name);
        if source.is_dir() && !is_left_out {
            rust_files(&source, &mut paths);
        }
    }
    let named = paths.into_iter().map(|path| {
        let name = path.strip_prefix(crates).unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(&path).unwrap())
    });
    named.filter(|(name, _)| !name.contains("/tests/") && !name.ends_with("tests.rs")).collect()
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// A source without its tests and the lines that are comments.
fn code_of(text: &str) -> String {
    let text = text.split(TESTS).next().unwrap();
    let lines = text.split('\n').filter(|line| !line.trim_start_matches(BLANKS).starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The messages of a source that stand behind one of [`BEFORE_MESSAGE`].
fn messages(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for before in BEFORE_MESSAGE {
        for (place, _) in code.match_indices(before) {
            if code[..place].ends_with(|last: char| last.is_ascii_alphanumeric() || last == '_') {
                continue;
            }
            let mut rest = &code[place + before.len()..];
            if AFTER_CODE.contains(&before) {
                let end = rest.find([',', ')']).filter(|end| rest[*end..].starts_with(','));
                let Some(end) = end else { continue };
                rest = &rest[end + 1..];
            }
            let Some((raw, _)) = literal(within(rest)) else { continue };
            let mut message = normal(raw);
            if NOT_SUPPORTED.contains(&before) && !message.is_empty() {
                message.push_str(" is not supported");
            }
            found.insert(message);
        }
    }
    found.retain(|message| is_message(message));
    found
}

/// All texts of a source that read as messages.
fn texts(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut rest = code;
    while let Some(place) = rest.find('"') {
        let Some((raw, behind)) = literal(&rest[place..]) else { break };
        found.insert(normal(raw));
        rest = behind;
    }
    found.retain(|message| is_message(message));
    found
}

fn is_message(text: &str) -> bool {
    text.contains(' ') && text.chars().filter(char::is_ascii_alphabetic).count() >= 3
}

/// `code` without what may stand before a text.
fn within(mut code: &str) -> &str {
    loop {
        code = code.trim_start_matches(BLANKS);
        match AROUND_TEXT.iter().find_map(|around| code.strip_prefix(around)) {
            Some(rest) => code = rest,
            None => return code,
        }
    }
}

/// The content of the string literal that `code` begins with, as written, and what follows it.
fn literal(code: &str) -> Option<(&str, &str)> {
    let content = code.strip_prefix('"')?;
    let mut is_escaped = false;
    let end = content.find(|letter: char| {
        let is_end = letter == '"' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        is_end
    })?;
    Some((&content[..end], &content[end + 1..]))
}

/// A text as it is read: without escapes, on one line, with `…` for what is put in.
fn normal(raw: &str) -> String {
    let mut text = String::new();
    let mut letters = raw.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('n' | 't' | 'r') => text.push(' '),
                Some('\n') => while letters.next_if(|letter| BLANKS.contains(letter)).is_some() {},
                Some(other) => text.push(other),
                None => {}
            },
            '{' | '}' if letters.next_if_eq(&letter).is_some() => text.push(letter),
            '{' => {
                text.push('…');
                let _: Option<char> = letters.find(|letter| *letter == '}');
            }
            other => text.push(other),
        }
    }
    text.split(BLANKS).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}
