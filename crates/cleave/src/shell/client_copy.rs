//! `\copy`: COPY whose file the shell reads or writes, and not the database.
//!
//! The line `\copy titles FROM 'titles.csv' WITH (HEADER)` becomes the statement `COPY titles FROM STDIN WITH (FORMAT
//! csv, HEADER)`, beside a file. As for COPY, the file's name gives the format if nothing else does.

use std::path::{Path, PathBuf};

use super::statements;

/// A parsed `\copy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientCopy {
    /// The statement, which reads its client's stream or writes it.
    pub(crate) statement: String,
    pub(crate) end: End,
}

/// The other end of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// A file that is read.
    From(PathBuf),
    /// A file that is written.
    To(PathBuf),
    /// The input or output of the shell.
    Client,
}

const USAGE: &str = "\\copy takes what COPY takes: \\copy TABLE FROM 'FILE', \\copy (QUERY) TO 'FILE' WITH (HEADER)";

/// Parses what follows `\copy`.
pub(crate) fn parse(text: &str) -> Result<ClientCopy, String> {
    let text = text.trim().trim_end_matches(';').trim_end();
    let (source, is_from, rest) = split(text).ok_or(USAGE)?;
    let (file, options) = file(rest).ok_or(USAGE)?;
    let end = match file {
        File::Client => End::Client,
        File::Program => return Err("\\copy runs no programs; give it a file".to_owned()),
        File::Named(path) if is_from => End::From(path),
        File::Named(path) => End::To(path),
    };
    let options = match &end {
        End::From(path) | End::To(path) => with_format(options, path)?,
        End::Client => options.to_owned(),
    };
    let stream = if is_from { "FROM STDIN" } else { "TO STDOUT" };
    let statement = format!("COPY {source} {stream} {options}").trim_end().to_owned();
    Ok(ClientCopy { statement, end })
}

/// The table or query, whether rows come from the file, and what follows `FROM` or `TO`.
fn split(text: &str) -> Option<(&str, bool, &str)> {
    let mut depth = 0_usize;
    for piece in statements::pieces(text).filter(|piece| !piece.is_comment) {
        match piece.text {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            _ => {}
        }
        let is_from = piece.text.eq_ignore_ascii_case("from");
        if depth == 0 && piece.start > 0 && (is_from || piece.text.eq_ignore_ascii_case("to")) {
            let source = text.get(..piece.start)?.trim();
            let rest = text.get(piece.start + piece.text.len()..)?.trim_start();
            return (!source.is_empty()).then_some((source, is_from, rest));
        }
    }
    None
}

enum File {
    Named(PathBuf),
    Client,
    Program,
}

/// The file at the start of `text`, and the options behind it.
fn file(text: &str) -> Option<(File, &str)> {
    if text.starts_with('\'') {
        let quoted = statements::pieces(text).next().filter(|piece| piece.is_closed)?;
        let name = quoted.text.strip_prefix('\'')?.strip_suffix('\'')?.replace("''", "'");
        let rest = text.get(quoted.text.len()..)?.trim_start();
        return (!name.is_empty()).then(|| (File::Named(PathBuf::from(name)), rest));
    }
    let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let file = match name.to_ascii_lowercase().as_str() {
        "" => return None,
        "stdin" | "stdout" | "pstdin" | "pstdout" => File::Client,
        "program" => File::Program,
        _ => File::Named(PathBuf::from(name)),
    };
    Some((file, rest.trim_start()))
}

/// The options with the format that the file's name gives, if they have none.
fn with_format(options: &str, path: &Path) -> Result<String, String> {
    let mut words =
        options.split(|character: char| !character.is_alphanumeric() && character != '_');
    let is_format = |word: &str| {
        ["format", "csv", "text", "binary"].iter().any(|known| word.eq_ignore_ascii_case(known))
    };
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let extension = extension.to_ascii_lowercase();
    if words.any(is_format) {
        return Ok(options.to_owned());
    }
    match (extension.as_str(), options.find('(')) {
        ("csv", Some(open)) => {
            let (before, inside) = options.split_at(open + 1);
            Ok(format!("{before}FORMAT csv, {inside}"))
        }
        ("csv", None) if options.is_empty() => Ok("WITH (FORMAT csv)".to_owned()),
        ("parquet" | "json" | "gz" | "zst" | "bz2" | "xz", _) => Err(format!(
            "\\copy takes text and CSV, and no .{extension}; COPY may take it, or say WITH (FORMAT …)"
        )),
        _ => Ok(options.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_of_a_file_is_copy_of_a_stream() {
        let (from, to) = (|name: &str| End::From(name.into()), |name: &str| End::To(name.into()));
        for (text, statement, end) in [
            ("t from a.txt", "COPY t FROM STDIN", from("a.txt")),
            ("t FROM 'a b''c.csv';", "COPY t FROM STDIN WITH (FORMAT csv)", from("a b'c.csv")),
            (
                "t (a, b) from /x/a.CSV with (header)",
                "COPY t (a, b) FROM STDIN with (FORMAT csv, header)",
                from("/x/a.CSV"),
            ),
            (
                "(SELECT a FROM t WHERE b = ') to (') to 'a.csv' (format text)",
                "COPY (SELECT a FROM t WHERE b = ') to (') TO STDOUT (format text)",
                to("a.csv"),
            ),
            ("t to stdout csv", "COPY t TO STDOUT csv", End::Client),
        ] {
            let statement = statement.to_owned();
            assert_eq!(parse(text), Ok(ClientCopy { statement, end }), "{text}");
        }
        for text in ["", "t", "from a", "t from", "t from ''", "t from 'a", "(select 1 to a"] {
            assert_eq!(parse(text), Err(USAGE.to_owned()), "{text}");
        }
        assert!(parse("t from program 'ls'").unwrap_err().contains("no programs"));
        assert!(parse("t from a.parquet").unwrap_err().contains(".parquet"));
    }
}
