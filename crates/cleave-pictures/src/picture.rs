//! Shapes and texts in, the text of an SVG file out.
//!
//! Colours mean the same in every picture, and can be told apart by people who do not see all of them: the host is
//! blue, devices are orange, what was chosen is green. They are variables of CSS, which have other values where dark
//! pages are preferred.
//!
//! Source of the colours: Okabe and Ito, "Color Universal Design" (2008).

use std::fmt::Write as _;

/// From one line of text to the next, in pixels.
pub const LINE: f64 = 16.0;

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
pub struct Area {
    /// Where it begins, from the left.
    pub x: f64,
    /// Where it begins, from above.
    pub y: f64,
    /// From left to right.
    pub width: f64,
    /// From top to bottom.
    pub height: f64,
}

impl Area {
    /// Where it ends on the right.
    #[must_use]
    pub fn right(self) -> f64 {
        self.x + self.width
    }

    /// Where it ends below.
    #[must_use]
    pub fn bottom(self) -> f64 {
        self.y + self.height
    }

    /// Its middle, from the left.
    #[must_use]
    pub fn center(self) -> f64 {
        self.x + self.width / 2.0
    }

    /// The smallest rectangle around both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let (x, y) = (self.x.min(other.x), self.y.min(other.y));
        let width = self.right().max(other.right()) - x;
        Self { x, y, width, height: self.bottom().max(other.bottom()) - y }
    }
}

/// Shapes in the order in which they are drawn.
#[derive(Debug, Default)]
pub struct Picture {
    body: String,
}

impl Picture {
    /// A rectangle; `class` is one of the style's.
    pub fn rect(&mut self, area: Area, class: &str) {
        let Area { x, y, width, height } = area;
        let (width, height) = (width.max(0.0), height.max(0.0));
        self.add(&format!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"3\"/>"
        ));
    }

    /// A line of text, whose baseline begins at `(x, y)`, ends there or has its middle there, as the class says.
    pub fn text(&mut self, (x, y): (f64, f64), class: &str, text: &str) {
        let text = escaped(text);
        self.add(&format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"));
    }

    /// A line through all `points`.
    pub fn line(&mut self, points: &[(f64, f64)], class: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let points = points.join(" ");
        self.add(&format!("<polyline class=\"{class}\" points=\"{points}\"/>"));
    }

    /// A dot.
    pub fn dot(&mut self, (x, y): (f64, f64), radius: f64, class: &str) {
        self.add(&format!(
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"/>"
        ));
    }

    /// What `draw` adds, with a text that is shown to who points at it.
    pub fn explained(&mut self, text: &str, draw: impl FnOnce(&mut Self)) {
        self.add(&format!("<g><title>{}</title>", escaped(text)));
        draw(self);
        self.add("</g>");
    }

    fn add(&mut self, shape: &str) {
        self.body.push_str(shape);
        self.body.push('\n');
    }

    /// The file; `title` is what a screen reader says of it.
    #[must_use]
    pub fn finish(self, (width, height): (f64, f64), title: &str) -> String {
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

/// `text` for XML: nothing in it is markup, and what XML does not have is a space. A title has its lines; where a text
/// is drawn, an end of a line is a space.
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
            '\n' => out.push('\n'),
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}
