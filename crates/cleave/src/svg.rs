//! Pictures as SVG. Shapes and texts in, one file out that needs nothing else: no scripts, no fonts, no requests.
//!
//! 1. [`Picture`] collects shapes; every text that it takes is escaped.
//! 2. [`scale`] places values on an axis with round ticks.
//! 3. [`plan`] draws a plan with its link. What commands draw besides lies beside them.
//!
//! Colours mean the same in every picture, and can be told apart by people who do not see all of them: the host is
//! blue, devices are orange, what was chosen is green. They are variables of CSS, which have other values where dark
//! pages are preferred.
//!
//! Source of the colours: Okabe and Ito, "Color Universal Design" (2008).

pub(crate) mod plan;
pub(crate) mod scale;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Height of letters, in pixels.
pub(crate) const LETTER: f64 = 12.0;
/// From one line of text to the next, in pixels.
pub(crate) const LINE: f64 = 16.0;
/// What a column of text takes, by the height of letters. No letter of a usual font is wider on the average.
const COLUMN: f64 = 0.6;

/// Where a variable is not known, the value before it counts.
const STYLE: &str = "\
.cleave{--paper:#ffffff;--ink:#1b1b1b;--faint:#5f5f5f;--rule:#d0d0d0;--host:#0072b2;--device:#e69f00;--auto:#009e73;\
--one:#56b4e9;--two:#d55e00;--host-paper:#eef5fa;--device-paper:#fdf4e0}\
@media (prefers-color-scheme:dark){.cleave{--paper:#16181b;--ink:#e8e8e8;--faint:#a8a8a8;--rule:#44484e;\
--host:#4ba3d8;--host-paper:#14232f;--device-paper:#2e2510}}\
.cleave text{font:12px system-ui,sans-serif;fill:#1b1b1b;fill:var(--ink)}\
.cleave .bold{font-weight:600}\
.cleave .faint{fill:#5f5f5f;fill:var(--faint)}\
.cleave .end{text-anchor:end}\
.cleave .middle{text-anchor:middle}\
.cleave .haloed{paint-order:stroke;stroke:#ffffff;stroke:var(--paper);stroke-width:4px}\
.cleave .paper{fill:#ffffff;fill:var(--paper)}\
.cleave .host-part{fill:#eef5fa;fill:var(--host-paper);stroke:#0072b2;stroke:var(--host)}\
.cleave .device-part{fill:#fdf4e0;fill:var(--device-paper);stroke:#e69f00;stroke:var(--device)}\
.cleave .host-box{fill:#ffffff;fill:var(--paper);stroke:#0072b2;stroke:var(--host)}\
.cleave .device-box{fill:#ffffff;fill:var(--paper);stroke:#e69f00;stroke:var(--device)}\
.cleave .host{fill:#0072b2;fill:var(--host)}\
.cleave .device{fill:#e69f00;fill:var(--device)}\
.cleave .auto{fill:#009e73;fill:var(--auto)}\
.cleave .one{fill:#56b4e9;fill:var(--one)}\
.cleave .two{fill:#d55e00;fill:var(--two)}\
.cleave .rule{fill:none;stroke:#d0d0d0;stroke:var(--rule)}\
.cleave .edge{fill:none;stroke:#5f5f5f;stroke:var(--faint)}\
.cleave .link{fill:none;stroke:#1b1b1b;stroke:var(--ink);stroke-width:1.5px;stroke-dasharray:6 4}\
.cleave .curve-one{fill:none;stroke:#56b4e9;stroke:var(--one);stroke-width:2px}\
.cleave .curve-two{fill:none;stroke:#d55e00;stroke:var(--two);stroke-width:2px}";

/// A rectangle, in pixels.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Area {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Area {
    pub(crate) fn right(self) -> f64 {
        self.x + self.width
    }

    pub(crate) fn bottom(self) -> f64 {
        self.y + self.height
    }

    pub(crate) fn center(self) -> f64 {
        self.x + self.width / 2.0
    }

    /// The smallest rectangle around both.
    pub(crate) fn with(self, other: Self) -> Self {
        let (x, y) = (self.x.min(other.x), self.y.min(other.y));
        let width = self.right().max(other.right()) - x;
        Self { x, y, width, height: self.bottom().max(other.bottom()) - y }
    }
}

/// Shapes in the order in which they are drawn.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    body: String,
}

impl Picture {
    /// A rectangle; `class` is one of the style's.
    pub(crate) fn rect(&mut self, area: Area, class: &str) {
        let Area { x, y, width, height } = area;
        let (width, height) = (width.max(0.0), height.max(0.0));
        self.add(&format!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"3\"/>"
        ));
    }

    /// A line of text, whose baseline begins at `(x, y)`, ends there or has its middle there, as the class says.
    pub(crate) fn text(&mut self, (x, y): (f64, f64), class: &str, text: &str) {
        let text = escaped(text);
        self.add(&format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"));
    }

    /// A line through all `points`.
    pub(crate) fn line(&mut self, points: &[(f64, f64)], class: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let points = points.join(" ");
        self.add(&format!("<polyline class=\"{class}\" points=\"{points}\"/>"));
    }

    /// A dot.
    pub(crate) fn dot(&mut self, (x, y): (f64, f64), radius: f64, class: &str) {
        self.add(&format!(
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"/>"
        ));
    }

    /// What `draw` adds, with a text that is shown to who points at it.
    pub(crate) fn explained(&mut self, text: &str, draw: impl FnOnce(&mut Self)) {
        self.add(&format!("<g><title>{}</title>", escaped(text)));
        draw(self);
        self.add("</g>");
    }

    fn add(&mut self, shape: &str) {
        self.body.push_str(shape);
        self.body.push('\n');
    }

    /// The file; `title` is what a screen reader says of it.
    pub(crate) fn finish(self, (width, height): (f64, f64), title: &str) -> String {
        let title = escaped(title);
        let mut file = String::new();
        // Writing to a string cannot fail.
        let _ = write!(
            file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"cleave\" role=\"img\" width=\"{width:.0}\" \
             height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\">\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n{}</svg>\n",
            self.body
        );
        file
    }
}

/// `text` for XML: nothing in it is markup, and what XML does not have is a space.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => out.push(' '),
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}

/// Pixels that a line of text takes at most.
pub(crate) fn text_width(text: &str) -> f64 {
    text.width() as f64 * LETTER * COLUMN
}

/// The first columns of `text`, with a mark where it is cut.
pub(crate) fn elided(text: &str, columns_max: usize) -> String {
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
pub(crate) fn wrapped(text: &str, columns_max: usize, lines_max: usize) -> Vec<String> {
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
pub(crate) fn grouped(number: f64) -> String {
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
pub(crate) fn size(bytes: f64) -> String {
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
pub(crate) fn duration(milliseconds: f64) -> String {
    match milliseconds.abs() {
        0.0..10.0 => format!("{milliseconds:.2} ms"),
        10.0..10_000.0 => format!("{milliseconds:.0} ms"),
        _ => format!("{:.1} s", milliseconds / 1e3),
    }
}
