//! Prints the error of a failed statement: SQLSTATE, message, and a caret under the position in its text.

use cleave_host::Error;

use super::format::printable;
use super::statements::Statement;

/// Characters of a long line that are shown around the position.
const EXCERPT_WIDTH: usize = 100;

/// A place in a statement, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) line_index: usize,
    pub(crate) column_index: usize,
}

/// An error and its place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Complaint<'a> {
    pub(crate) sqlstate: &'a str,
    pub(crate) message: &'a str,
    pub(crate) position: Option<Position>,
}

impl Complaint<'_> {
    /// `origin` is the file, or nothing if the user typed; the result ends with a newline.
    pub(crate) fn text(self, statement: Statement<'_>, origin: Option<&str>) -> String {
        let Self { sqlstate, message, position } = self;
        // Values that it names cannot move the cursor.
        let message = printable(message);
        let line_number = statement.line + position.map_or(0, |position| position.line_index);
        let place = origin.map(|origin| format!("{origin}:{line_number}: ")).unwrap_or_default();
        let Some(Position { line_index, column_index }) = position else {
            return format!("{place}ERROR {sqlstate}: {message}\n");
        };
        let source_line = statement.text.lines().nth(line_index).unwrap_or_default();
        let (excerpt, caret_column) = excerpt(source_line, column_index);
        let label = format!("LINE {line_number}: ");
        let indent = " ".repeat(label.chars().count() + caret_column);
        format!("{place}ERROR {sqlstate}: {message}\n{label}{excerpt}\n{indent}^\n")
    }
}

/// The text of an error of the database; see [`Complaint::text`].
pub(crate) fn complaint(error: &Error, statement: Statement<'_>, origin: Option<&str>) -> String {
    let (sqlstate, message) = (error.sqlstate(), error.to_string());
    let Some(position) = error.position() else {
        return Complaint { sqlstate, message: &message, position: None }.text(statement, origin);
    };
    // The error counts lines from the statement's start, the reader from the file's.
    let message = message.strip_prefix(&format!("{position}: ")).unwrap_or(&message);
    let mut line_index = usize::try_from(position.line).unwrap_or(1).saturating_sub(1);
    let mut column_index = usize::try_from(position.column).unwrap_or(1).saturating_sub(1);
    if (line_index, column_index) == (0, 0)
        && let Error::UnknownName { name, .. } = error
        && let Some(place) = place_of_name(statement.text, name)
    {
        // Planning knows the name but not its position: then only the statement's start is given.
        (line_index, column_index) = place;
    }
    let position = Some(Position { line_index, column_index });
    Complaint { sqlstate, message, position }.text(statement, origin)
}

/// Line and column, from 0, of the first word that is `name`, or the last part of it.
fn place_of_name(text: &str, name: &str) -> Option<(usize, usize)> {
    let name = name.rsplit('.').next().unwrap_or(name).to_ascii_lowercase();
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    text.lines().enumerate().find_map(|(line_index, line)| {
        let lower_case = line.to_ascii_lowercase();
        let (at, _) = lower_case.match_indices(&name).find(|(at, found)| {
            !lower_case[..*at].ends_with(is_part)
                && !lower_case[at + found.len()..].starts_with(is_part)
        })?;
        Some((line_index, lower_case[..at].chars().count()))
    })
}

/// The part of a line around a character, and the character's position in it. Tabs and other control characters become
/// spaces, so that the caret fits.
fn excerpt(line: &str, column_index: usize) -> (String, usize) {
    let shown = |character: char| if character.is_control() { ' ' } else { character };
    let characters: Vec<char> = line.chars().map(shown).collect();
    let column_index = column_index.min(characters.len());
    let start = column_index.saturating_sub(EXCERPT_WIDTH / 2);
    let end = (start + EXCERPT_WIDTH).min(characters.len());
    let shown: String = characters.get(start..end).unwrap_or_default().iter().collect();
    let before = if start > 0 { "..." } else { "" };
    let after = if end < characters.len() { "..." } else { "" };
    (format!("{before}{shown}{after}"), column_index - start + before.len())
}

#[cfg(test)]
mod tests;
