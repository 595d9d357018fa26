//! Texts of pictures: their width, lines of a given width, and numbers as people read them.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Height of letters, in pixels.
const LETTER: f64 = 12.0;
/// What a column of text takes, by the height of letters. No letter of a usual font is wider on the average.
const COLUMN: f64 = 0.6;

/// Pixels that a line of text takes at most.
#[must_use]
pub fn text_width(text: &str) -> f64 {
    text.width() as f64 * LETTER * COLUMN
}

/// The first columns of `text`, with a mark where it is cut.
#[must_use]
pub fn elided(text: &str, columns_max: usize) -> String {
    if text.width() <= columns_max {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut columns = 1;
    for letter in text.chars() {
        columns += letter.width().unwrap_or(0);
        if columns > columns_max {
            break;
        }
        out.push(letter);
    }
    out.truncate(out.trim_end().len());
    out.push('…');
    out
}

/// `text` in lines that are broken between words; what the last one has no place for is cut.
#[must_use]
pub fn wrapped(text: &str, columns_max: usize, lines_max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let is_last = lines.len() == lines_max;
        match lines.last_mut() {
            Some(line) if is_last || line.width() + 1 + word.width() <= columns_max => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| elided(line, columns_max)).collect()
}

/// A whole number, with commas between thousands.
#[must_use]
pub fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if number <= -0.5 { format!("-{out}") } else { out }
}

/// Bytes in a unit of which there are few.
#[must_use]
pub fn size(bytes: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let mut scaled = bytes;
    let mut found = "B";
    for unit in units {
        found = unit;
        if scaled < 999.5 {
            break;
        }
        if unit != "TB" {
            scaled /= 1000.0;
        }
    }
    match found != "B" && scaled < 99.95 {
        true => format!("{scaled:.1} {found}"),
        false => format!("{scaled:.0} {found}"),
    }
}

/// Milliseconds in a unit of which there are few.
#[must_use]
pub fn duration(milliseconds: f64) -> String {
    match milliseconds.abs() {
        0.0..10.0 => format!("{milliseconds:.2} ms"),
        10.0..10_000.0 => format!("{milliseconds:.0} ms"),
        _ => format!("{:.1} s", milliseconds / 1e3),
    }
}
