//! Words that people type at the prompt because another shell knows them: `help`, `exit`, `.tables`.
//!
//! None of them begins a statement, so that without an answer the shell would wait for a semicolon.

/// What a line without statement and backslash means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word<'a> {
    /// `help`.
    Help,
    /// `exit`, `quit`.
    Quit,
    /// A command of SQLite's and DuckDB's shells, and what there is for it.
    Foreign {
        /// The command, with its dot.
        command: &'a str,
        /// What to type in its place.
        instead: &'static str,
    },
}

/// The word that a line at an empty prompt consists of.
pub(crate) fn at_prompt(line: &str) -> Option<Word<'_>> {
    let line = line.trim();
    let is = |word: &str| line.trim_end_matches(';').trim_end().eq_ignore_ascii_case(word);
    if is("help") {
        return Some(Word::Help);
    }
    if is("exit") || is("quit") {
        return Some(Word::Quit);
    }
    let command = line.split_whitespace().next().filter(|word| word.starts_with('.'))?;
    let name = command.trim_start_matches('.').to_ascii_lowercase();
    // `.5` may be a slip in a statement.
    name.starts_with(|first: char| first.is_ascii_alphabetic()).then_some(())?;
    let instead = FOREIGN.iter().find(|(foreign, _)| *foreign == name);
    Some(Word::Foreign { command, instead: instead.map_or("\\?", |(_, instead)| instead) })
}

/// What to tell somebody who types such a word within a statement, where it is taken for a part of that.
pub(crate) fn within_statement(line: &str) -> Option<&'static str> {
    match at_prompt(line)? {
        Word::Help => Some("\\? helps; Ctrl-C drops the statement that you have begun"),
        Word::Quit => Some("\\q leaves; Ctrl-C drops the statement that you have begun"),
        Word::Foreign { .. } => None,
    }
}

/// Commands of other shells, and ours.
const FOREIGN: &[(&str, &str)] = &[
    ("databases", "\\l"),
    ("exit", "\\q"),
    ("help", "\\?"),
    ("open", "\\q and cleave sql DIR"),
    ("output", "\\o FILE"),
    ("print", "SELECT"),
    ("quit", "\\q"),
    ("read", "\\i FILE"),
    ("schema", "\\d TABLE"),
    ("show", "\\set"),
    ("tables", "\\dt"),
    ("timer", "\\timing"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_other_shells_are_known() {
        for line in ["help", " HELP ; "] {
            assert_eq!(at_prompt(line), Some(Word::Help), "{line}");
        }
        for line in ["exit", "quit", "Quit;"] {
            assert_eq!(at_prompt(line), Some(Word::Quit), "{line}");
        }
        for (line, command, instead) in
            [(".tables", ".tables", "\\dt"), (".frobnicate now", ".frobnicate", "\\?")]
        {
            assert_eq!(at_prompt(line), Some(Word::Foreign { command, instead }), "{line}");
        }
        for line in ["", "help me", "SELECT 1", ".5", ".", "\\q"] {
            assert_eq!(at_prompt(line), None, "{line}");
        }
        assert!(within_statement("exit").is_some_and(|hint| hint.contains("\\q")));
        assert_eq!(within_statement("FROM exit"), None);
    }
}
