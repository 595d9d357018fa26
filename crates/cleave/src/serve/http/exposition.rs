//! The text that Prometheus reads: families of samples in, lines out.
//!
//! ```text
//!  # HELP cleave_sessions Sessions by what they do.
//!  # TYPE cleave_sessions gauge
//!  cleave_sessions{state="active"} 2
//! ```
//!
//! Invariants: a family's lines stand together, and its name is written once. A label's value is escaped, whatever a
//! user has called a device or a table.
//!
//! Source: Prometheus, "Exposition formats", text format 0.0.4.

use std::fmt::{Display, Write};

/// The format, as answers name it.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The text so far.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
}

/// What a family's numbers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It only grows, until the process ends.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Counts of values within bounds, their sum and their number.
    Histogram,
}

/// A family, to which samples are added.
#[derive(Debug)]
pub(super) struct Family<'a> {
    name: &'static str,
    text: &'a mut String,
}

impl Exposition {
    /// Begins the family `name`.
    pub(super) fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { name, text: &mut self.text }
    }

    /// A family of one sample without labels.
    pub(super) fn one(&mut self, name: &'static str, kind: Kind, help: &str, value: impl Display) {
        self.family(name, kind, help).sample(&[], value);
    }

    /// The whole text.
    pub(super) fn into_text(self) -> String {
        self.text
    }
}

impl Family<'_> {
    /// Adds a sample with these labels.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.part("", labels, value);
    }

    /// Adds a part of a histogram, whose name has this `end`.
    pub(super) fn part(&mut self, end: &str, labels: &[(&str, &str)], value: impl Display) {
        let text = &mut *self.text;
        text.push_str(self.name);
        text.push_str(end);
        for (number, (label, of)) in labels.iter().enumerate() {
            text.push_str(if number == 0 { "{" } else { "," });
            text.push_str(label);
            text.push_str("=\"");
            for letter in of.chars() {
                match letter {
                    '\\' => text.push_str("\\\\"),
                    '"' => text.push_str("\\\""),
                    '\n' => text.push_str("\\n"),
                    letter => text.push(letter),
                }
            }
            text.push('"');
        }
        if !labels.is_empty() {
            text.push('}');
        }
        let _ = writeln!(text, " {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_users_break_no_line() {
        let mut exposition = Exposition::default();
        exposition.one("cleave_up", Kind::Gauge, "It is.", 1);
        let mut family = exposition.family("cleave_bytes_total", Kind::Counter, "Bytes.");
        family.sample(&[("device", "a\"b\\c\nd"), ("way", "in")], 2.5);
        assert_eq!(
            exposition.into_text(),
            "# HELP cleave_up It is.\n# TYPE cleave_up gauge\ncleave_up 1\n\
             # HELP cleave_bytes_total Bytes.\n# TYPE cleave_bytes_total counter\n\
             cleave_bytes_total{device=\"a\\\"b\\\\c\\nd\",way=\"in\"} 2.5\n"
        );
    }
}
