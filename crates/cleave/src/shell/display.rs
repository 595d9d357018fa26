//! What `\pset` and `\x` set: how results are shown.
//!
//! Only a user at a terminal sees results fitted to a screen, shortened, or in a pager; a script has all of them.

use clap::ValueEnum;
use cleave_host::suggest;

use super::format::{Expanded, Format, Layout, NULL};

/// Rows that are shown where there is no pager.
const ROW_COUNT_MAX: usize = 1000;

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// How results are shown.
#[derive(Debug, Clone)]
pub(super) struct Display {
    pub(super) format: Format,
    pub(super) expanded: Expanded,
    /// Whether long results go through a pager.
    pub(super) has_pager: bool,
    null: String,
    /// Columns of the screen; 0: any number; None: as the terminal has.
    columns: Option<usize>,
    /// Most rows without a pager; 0: any number.
    rows: usize,
}

/// The names that `\pset` knows.
const NAMES: [&str; 6] = ["columns", "expanded", "format", "null", "pager", "rows"];

impl Display {
    pub(super) fn new(format: Format) -> Display {
        Display {
            format,
            expanded: Expanded::Off,
            has_pager: true,
            null: NULL.to_owned(),
            columns: None,
            rows: ROW_COUNT_MAX,
        }
    }

    /// The layout of a result on a screen of this size, or in a file. `is_paged`: a pager shows it.
    pub(super) fn layout(&self, screen: Option<Size>, has_colour: bool, is_paged: bool) -> Layout {
        let columns = screen.map(|size| self.columns.unwrap_or(size.columns));
        let may_shorten = screen.is_some() && !is_paged && self.rows > 0;
        Layout {
            format: self.format,
            expanded: self.expanded,
            null: self.null.clone(),
            has_colour,
            width: columns.filter(|columns| *columns > 0),
            row_count_max: may_shorten.then_some(self.rows),
        }
    }

    /// Sets what `\pset NAME [VALUE]` names, and says what it is now; an error gives what would be right.
    pub(super) fn set(&mut self, name: &str, value: Option<&str>) -> Result<String, String> {
        let name = name.to_ascii_lowercase();
        match (name.as_str(), value) {
            ("format", Some(value)) => self.format = format(value)?,
            ("expanded" | "x", value) => {
                let toggled = match self.expanded {
                    Expanded::Off => Expanded::On,
                    Expanded::On | Expanded::Auto => Expanded::Off,
                };
                self.expanded = value.map_or(Ok(toggled), expanded)?;
            }
            ("null", value) => value.unwrap_or_default().clone_into(&mut self.null),
            ("pager", value) => self.has_pager = value.map_or(Ok(!self.has_pager), on_or_off)?,
            ("columns", None | Some("auto")) => self.columns = None,
            ("columns", Some(value)) => self.columns = Some(count("columns", value)?),
            ("rows", Some(value)) => self.rows = count("rows", value)?,
            ("format" | "rows", None) => {}
            _ => {
                let near =
                    suggest::nearest(&name, NAMES).map(|near| format!("; did you mean {near}?"));
                let near = near.unwrap_or_else(|| format!("; it sets {}", NAMES.join(", ")));
                return Err(format!("\\pset knows no {name}{near}"));
            }
        }
        let name = if name == "x" { "expanded" } else { name.as_str() };
        Ok(format!("{name} is {}", self.value(name)))
    }

    /// All that `\pset` shows, a line each.
    pub(super) fn list(&self) -> String {
        NAMES.iter().map(|name| format!("{name:8} {}\n", self.value(name))).collect()
    }

    fn value(&self, name: &str) -> String {
        match name {
            "columns" => match self.columns {
                None => "auto".to_owned(),
                Some(0) => "0 (any number)".to_owned(),
                Some(columns) => columns.to_string(),
            },
            "expanded" => match self.expanded {
                Expanded::Off => "off".to_owned(),
                Expanded::On => "on".to_owned(),
                Expanded::Auto => "auto".to_owned(),
            },
            "format" => name_of(self.format),
            "null" => format!("'{}'", self.null),
            "pager" => (if self.has_pager { "on" } else { "off" }).to_owned(),
            "rows" if self.rows == 0 => "0 (any number)".to_owned(),
            _ => self.rows.to_string(),
        }
    }
}

fn format(text: &str) -> Result<Format, String> {
    Format::from_str(text, true).map_err(|_| {
        let all: Vec<String> = Format::value_variants().iter().copied().map(name_of).collect();
        let near = suggest::nearest(text, all.iter().map(String::as_str));
        let near = near.map(|near| format!("; did you mean {near}?"));
        let near = near.unwrap_or_else(|| format!("; there are {}", all.join(", ")));
        format!("there is no format {text}{near}")
    })
}

fn name_of(format: Format) -> String {
    format.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn expanded(text: &str) -> Result<Expanded, String> {
    match text {
        "on" => Ok(Expanded::On),
        "off" => Ok(Expanded::Off),
        "auto" => Ok(Expanded::Auto),
        _ => Err(format!("{text} is neither on, off nor auto")),
    }
}

pub(super) fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{text} is neither on nor off")),
    }
}

fn count(name: &str, text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("{name} are a number; 0 means any number"))
}

#[cfg(test)]
mod tests {
    //! What `\pset` says of right and wrong values, and where results are fitted.

    use super::*;

    #[test]
    fn values_are_set_and_wrong_ones_named() {
        let mut display = Display::new(Format::Table);
        assert_eq!(display.set("format", Some("BOX")), Ok("format is box".to_owned()));
        assert_eq!(display.set("x", None), Ok("expanded is on".to_owned()));
        assert_eq!(display.set("x", None), Ok("expanded is off".to_owned()));
        assert_eq!(display.set("null", Some("∅")), Ok("null is '∅'".to_owned()));
        assert_eq!(display.set("columns", Some("0")), Ok("columns is 0 (any number)".to_owned()));
        assert!(display.list().contains("format   box\n"), "{}", display.list());
        for (name, value, part) in [
            ("format", "marcdown", "did you mean markdown?"),
            ("fromat", "box", "did you mean format?"),
            ("border", "2", "it sets columns, "),
            ("rows", "many", "0 means any number"),
            ("pager", "always", "neither on nor off"),
            ("expanded", "yes", "nor auto"),
        ] {
            let error = display.set(name, Some(value)).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn only_a_screen_shortens() {
        let mut display = Display::new(Format::Table);
        let layout = display.layout(None, false, false);
        assert_eq!((layout.width, layout.row_count_max), (None, None));
        let screen = Some(Size { columns: 80, rows: 24 });
        let layout = display.layout(screen, true, false);
        assert_eq!((layout.width, layout.row_count_max), (Some(80), Some(ROW_COUNT_MAX)));
        assert_eq!(display.layout(screen, true, true).row_count_max, None, "a pager has all rows");
        display.set("columns", Some("0")).unwrap();
        display.set("rows", Some("0")).unwrap();
        let layout = display.layout(screen, true, false);
        assert_eq!((layout.width, layout.row_count_max), (None, None));
    }
}
