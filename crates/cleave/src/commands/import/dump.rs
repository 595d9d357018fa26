//! Parses a dump: its statements, and the places of the rows that COPY reads.
//!
//! Rows stay in the file: a dump may be larger than memory, its statements are not.

use std::io::{self, BufRead};
use std::ops::Range;

use crate::shell::statements;

/// Longest statement.
const STATEMENT_BYTES_MAX: usize = 64 << 20;

/// One statement of a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    /// Its first line, from 1.
    pub(super) line: u64,
    /// Its text, without the semicolon.
    pub(super) text: String,
    /// For COPY … FROM stdin: the byte range of its rows in the file.
    pub(super) rows: Option<Range<u64>>,
    row_count: u64,
}

impl Item {
    /// Number of rows that follow it in the file.
    pub(super) fn row_count(&self) -> u64 {
        self.row_count
    }
}

/// Why a file is not a dump.
#[derive(Debug, thiserror::Error)]
pub(super) enum DumpError {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is another format of `pg_dump`.
    #[error("this is pg_dump's own format; make text of it: pg_restore --file dump.sql FILE")]
    Custom,
    /// It is not text.
    #[error("line {0}: no UTF-8; write the dump with --encoding=UTF8")]
    Encoding(u64),
    /// It ends within a statement or within rows, or a statement has no end.
    #[error("line {0}: the statement that begins here has no end")]
    Open(u64),
}

/// Reads a whole dump.
pub(super) fn read(mut input: impl BufRead) -> Result<Vec<Item>, DumpError> {
    let mut items = Vec::new();
    let (mut offset, mut number) = (0_u64, 0_u64);
    let (mut text, mut first_line) = (String::new(), 0);
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = input.read_until(b'\n', &mut line)?;
        if length == 0 {
            break;
        }
        if offset == 0 && line.starts_with(b"PGDMP") {
            return Err(DumpError::Custom);
        }
        offset += length as u64;
        number += 1;
        let read = std::str::from_utf8(&line).map_err(|_| DumpError::Encoding(number))?;
        // Between statements: blanks, comments, and psql commands.
        if text.is_empty() {
            let begin = read.trim_start();
            if begin.is_empty() || begin.starts_with("--") {
                continue;
            }
            if begin.starts_with('\\') {
                let command = begin.trim_end().to_owned();
                items.push(Item { line: number, text: command, rows: None, row_count: 0 });
                continue;
            }
            first_line = number;
        }
        text.push_str(read);
        if text.len() > STATEMENT_BYTES_MAX {
            return Err(DumpError::Open(first_line));
        }
        if !read.trim_end().ends_with(';') {
            continue;
        }
        let (found, is_open) = statements::split(&text);
        if is_open {
            continue;
        }
        for statement in found {
            let line = first_line + statement.line as u64 - 1;
            let text = statement.text.to_owned();
            items.push(Item { line, text, rows: None, row_count: 0 });
        }
        text.clear();
        if let Some(copy) = items.last_mut()
            && is_copy_in(&copy.text)
        {
            let start = offset;
            loop {
                line.clear();
                let length = input.read_until(b'\n', &mut line)?;
                if length == 0 {
                    return Err(DumpError::Open(copy.line));
                }
                number += 1;
                if line.trim_ascii_end() == b"\\." {
                    copy.rows = Some(start..offset);
                    offset += length as u64;
                    break;
                }
                offset += length as u64;
                copy.row_count += 1;
            }
        }
    }
    match statements::split(&text) {
        (rest, _) if rest.is_empty() => Ok(items),
        _ => Err(DumpError::Open(first_line)),
    }
}

/// Also if this version does not know the table, or an option: the rows follow in any case.
fn is_copy_in(text: &str) -> bool {
    let words: Vec<String> = text.split_whitespace().map(str::to_ascii_lowercase).collect();
    let mut pairs = words.windows(2);
    words.first().is_some_and(|word| word == "copy")
        && pairs.any(|pair| matches!(pair, [from, stdin] if from == "from" && stdin == "stdin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_and_rows_are_told_apart() {
        let dump = "-- comment; here\n\\restrict x\nSET a = 1;\nCREATE TABLE t (\n  a text DEFAULT \
            ';\n--'\n);\n\nCOPY public.t (a) FROM stdin;\nx;\n;\\n\n\\.\n\nSELECT 1;\n";
        let items = read(dump.as_bytes()).unwrap();
        let told: Vec<(u64, &str)> =
            items.iter().map(|item| (item.line, item.text.split('\n').next().unwrap())).collect();
        let expected = [
            (2, "\\restrict x"),
            (3, "SET a = 1"),
            (4, "CREATE TABLE t ("),
            (9, "COPY public.t (a) FROM stdin"),
            (14, "SELECT 1"),
        ];
        assert_eq!(told, expected);
        let rows = items[3].rows.clone().unwrap();
        let place = usize::try_from(rows.start).unwrap()..usize::try_from(rows.end).unwrap();
        assert_eq!((&dump[place], items[3].row_count()), ("x;\n;\\n\n", 2));
    }

    #[test]
    fn what_is_no_dump_says_so() {
        let why = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
        assert!(why(b"PGDMP\x01").contains("pg_restore"));
        assert!(why(b"SET a = '\xff';\n").contains("line 1"));
        assert!(why(b"\n\nCREATE TABLE t (\n").contains("line 3"));
        assert!(why(b"COPY t FROM stdin;\nx\n").contains("line 1"));
    }
}
