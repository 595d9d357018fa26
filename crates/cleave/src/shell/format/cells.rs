//! Cells of a table: text that occupies the columns of a screen that it says, whatever is in it.
//!
//! Control characters are shown as psql shows them, so that a value can neither move the cursor nor end a row.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::Layout;

/// Columns from one tab stop to the next.
const TAB: usize = 8;

/// What a cell shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell {
    /// One or more.
    pub(super) lines: Vec<String>,
    pub(super) is_null: bool,
}

impl Cell {
    /// The cell of a value.
    pub(super) fn of(value: Option<&str>, layout: &Layout) -> Cell {
        let Some(text) = value else {
            return Cell { lines: vec![layout.null.clone()], is_null: true };
        };
        if text == layout.null && !text.is_empty() {
            return Cell { lines: vec![format!("'{text}'")], is_null: false };
        }
        Cell { lines: text.split('\n').map(visible).collect(), is_null: false }
    }

    /// The cell of a column's name.
    pub(super) fn title(name: &str) -> Cell {
        Cell { lines: name.split('\n').map(visible).collect(), is_null: false }
    }

    /// The width of its widest line.
    pub(super) fn width(&self) -> usize {
        self.lines.iter().map(|line| line.width()).max().unwrap_or(0)
    }
}

/// A text of any lines without other control characters.
pub(crate) fn printable(text: &str) -> String {
    text.split('\n').map(visible).collect::<Vec<_>>().join("\n")
}

/// A line without control characters.
fn visible(line: &str) -> String {
    if !line.contains(char::is_control) {
        return line.to_owned();
    }
    let mut shown = String::with_capacity(line.len());
    for character in line.chars() {
        match character {
            '\t' => {
                let column = shown.width();
                shown.push_str(&" ".repeat(TAB - column % TAB));
            }
            '\r' => shown.push_str("\\r"),
            _ if character.is_control() => {
                let code = u32::from(character);
                shown.push_str(&format!("\\x{code:02X}"));
            }
            _ => shown.push(character),
        }
    }
    shown
}

/// A line in exactly `width` columns: padded, or cut with `…` at its end.
pub(super) fn fitted(line: &str, width: usize, is_right: bool) -> String {
    let own = line.width();
    if own <= width {
        let blanks = " ".repeat(width - own);
        return if is_right { format!("{blanks}{line}") } else { format!("{line}{blanks}") };
    }
    let mut cut = String::new();
    let mut used = 0;
    for character in line.chars() {
        let more = character.width().unwrap_or(0);
        if used + more + 1 > width {
            break;
        }
        used += more;
        cut.push(character);
    }
    if width > 0 {
        cut.push('…');
        used += 1;
    }
    cut.push_str(&" ".repeat(width.saturating_sub(used)));
    cut
}

/// Text that is dimmed on a screen with colours.
pub(super) fn dimmed(text: &str, has_colour: bool) -> String {
    if has_colour { format!("\x1b[2m{text}\x1b[0m") } else { text.to_owned() }
}
