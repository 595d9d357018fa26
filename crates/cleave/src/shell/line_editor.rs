//! The line editor: reads one line at a time, with history, completion and hints.
//!
//! A line may continue a statement: completion sees the lines before it, and the history has the statement as a whole.

use std::borrow::Cow;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use cleave_host::suggest;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::{Hinter, HistoryHinter};
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{ColorMode, CompletionType, Config, Context, Editor, Helper};

use super::completion::Vocabulary;
use super::display::Size;
use super::statements::{self, Piece};
use super::{file_completion, highlight, output};

/// The user's input.
#[derive(Debug)]
pub(crate) enum Input {
    /// A line, or several that were pasted or recalled.
    Text(String),
    /// Ctrl-C: the line is dropped.
    Interrupted,
    /// Ctrl-D: the user leaves.
    End,
}

/// A terminal to read statements from.
pub(crate) struct LineEditor {
    editor: Editor<Keyboard, FileHistory>,
    history_path: Option<PathBuf>,
}

impl LineEditor {
    /// Takes the terminal, and loads the history of earlier sessions if there is one.
    pub(crate) fn new() -> Result<LineEditor, ReadlineError> {
        let has_colour = output::wants_colour();
        let colours = if has_colour { ColorMode::Enabled } else { ColorMode::Disabled };
        let config = Config::builder()
            .color_mode(colours)
            .completion_type(CompletionType::List)
            .history_ignore_space(true)
            .max_history_size(10_000)?
            .build();
        let mut editor = Editor::with_config(config)?;
        editor.set_helper(Some(Keyboard {
            vocabulary: Vocabulary::default(),
            before: String::new(),
            has_colour,
            history_hinter: HistoryHinter::new(),
        }));
        let history_path = history_path();
        if let Some(path) = &history_path {
            // The first session has none, and the shell works without history.
            drop(editor.load_history(path));
        }
        Ok(LineEditor { editor, history_path })
    }

    /// Replaces the completions for Tab.
    pub(crate) fn set_vocabulary(&mut self, vocabulary: Vocabulary) {
        if let Some(keyboard) = self.editor.helper_mut() {
            keyboard.vocabulary = vocabulary;
        }
    }

    /// Reads a line behind the lines `before` of the same statement.
    pub(crate) fn read(&mut self, prompt: &str, before: &str) -> Result<Input, ReadlineError> {
        if let Some(keyboard) = self.editor.helper_mut() {
            before.clone_into(&mut keyboard.before);
        }
        match self.editor.readline(prompt) {
            Ok(text) => Ok(Input::Text(text)),
            Err(ReadlineError::Interrupted) => Ok(Input::Interrupted),
            Err(ReadlineError::Eof) => Ok(Input::End),
            Err(error) => Err(error),
        }
    }

    /// The size of the terminal.
    pub(crate) fn size(&mut self) -> Option<Size> {
        let (columns, rows) = self.editor.dimensions()?;
        Some(Size { columns: usize::from(columns), rows: usize::from(rows) })
    }

    /// Adds what was typed to the history, unless it has a password.
    pub(crate) fn remember(&mut self, entry: &str) {
        if has_password(entry) {
            return;
        }
        // Without history the shell works.
        drop(self.editor.add_history_entry(entry));
    }

    /// Saves the history for the next session, behind what others have saved meanwhile.
    pub(crate) fn save_history(&mut self) {
        if let Some(path) = &self.history_path {
            if let Some(parent) = path.parent() {
                drop(std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent));
            }
            drop(self.editor.append_history(path));
        }
    }
}

/// `$CLEAVE_HISTORY`, or a file in the XDG state folder. Empty means no history.
fn history_path() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("CLEAVE_HISTORY") {
        return (!path.is_empty()).then(|| PathBuf::from(path));
    }
    let state = match std::env::var_os("XDG_STATE_HOME") {
        Some(state) if !state.is_empty() => PathBuf::from(state),
        _ => PathBuf::from(std::env::var_os("HOME")?).join(".local/state"),
    };
    Some(state.join("cleave").join("history"))
}

/// Whether a text sets a password, `PASSWORD 'text'`, or would do so if it were written right: it makes or changes a
/// role, and has a word that is nearly `password`.
fn has_password(text: &str) -> bool {
    let says_something = |piece: &Piece<'_>| !piece.is_comment && !piece.text.trim().is_empty();
    let pieces: Vec<Piece<'_>> = statements::pieces(text).filter(says_something).collect();
    let is_string =
        |text: &str| matches!(text.as_bytes(), [b'\'' | b'$', ..] | [b'e' | b'E', b'\'', ..]);
    let sets_one = pieces.windows(2).any(|pair| match pair {
        [word, value] => word.text.eq_ignore_ascii_case("password") && is_string(value.text),
        _ => false,
    });
    let is_near = |text: &str, words: [&str; 2]| suggest::nearest(text, words).is_some();
    let nearly_sets_one = |statement: &[Piece<'_>]| match statement {
        [first, second, rest @ ..] => {
            is_near(first.text, ["create", "alter"])
                && is_near(second.text, ["role", "user"])
                && rest.iter().any(|piece| suggest::nearest("password", [piece.text]).is_some())
        }
        _ => false,
    };
    sets_one || pieces.split(|piece| piece.text == ";").any(nearly_sets_one)
}

/// Handles key presses.
struct Keyboard {
    vocabulary: Vocabulary,
    /// The lines before the one that is read, of the same statement.
    before: String,
    has_colour: bool,
    history_hinter: HistoryHinter,
}

impl Helper for Keyboard {}

impl Completer for Keyboard {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        if let Some(files) = file_completion::complete(line, position) {
            return Ok(files);
        }
        let text = format!("{}{line}", self.before);
        let before = self.before.len();
        let (start, offers) = self.vocabulary.complete(&text, before + position);
        // A word ends with its line.
        Ok((start.saturating_sub(before), offers))
    }
}

impl Hinter for Keyboard {
    type Hint = String;

    fn hint(&self, line: &str, position: usize, context: &Context<'_>) -> Option<String> {
        // Without colours it would look like what was typed.
        let begins = !line.is_empty() && self.before.is_empty() && self.has_colour;
        begins.then(|| self.history_hinter.hint(line, position, context)).flatten()
    }
}

impl Highlighter for Keyboard {
    fn highlight<'l>(&self, line: &'l str, _position: usize) -> Cow<'l, str> {
        Cow::Owned(highlight::highlighted(&self.before, line))
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(format!("\x1b[2m{hint}\x1b[0m"))
    }

    fn highlight_char(&self, _line: &str, _position: usize, kind: CmdKind) -> bool {
        // A letter more may make a keyword.
        kind != CmdKind::MoveCursor
    }
}

impl Validator for Keyboard {}

#[cfg(test)]
mod tests {
    use super::has_password;

    #[test]
    fn passwords_are_known() {
        for text in [
            "ALTER ROLE ada password 'secret';",
            "create role ada login PASSWORD\n /* new */ E'secret'",
            "ALTER ROLE ada PASSWORD 'not finished",
            "CREATE USER ada PASSWORD U&'secret';",
            "SELECT 1; create user ada Password \"secret\"",
            "CREATE ROLE ada LOGIN PASSWORD secret",
            "CREATE USER ada passwrd 'secret'",
            "ALTRE USER ada WITH PASWORD = secret",
        ] {
            assert!(has_password(text), "{text}");
        }
        for text in [
            "SELECT 'password', 'x'",
            "SELECT password FROM t WHERE a = 'x'",
            "password",
            "CREATE USER ada LOGIN; SELECT password FROM t",
            "CREATE TABLE users (password text)",
        ] {
            assert!(!has_password(text), "{text}");
        }
    }
}
