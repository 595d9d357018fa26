//! Draws the candidates of the choice of a split: the list of the plan's JSON in, a table below the plan out.

use serde_json::Value;

use super::text_of;
use crate::picture::{LINE, Picture};
use crate::text::{duration, elided, size, text_width};

/// Splits that are drawn; the chosen one besides.
const SPLITS_MAX: usize = 12;
const NAME_COLUMNS_MAX: usize = 14;
/// The columns of figures: their names and where they end, from the left of the table.
const FIGURES: [(&str, f64); 4] =
    [("expected", 190.0), ("host", 270.0), ("device", 350.0), ("over the link", 470.0)];
/// Where remarks begin.
const REMARKS: f64 = 486.0;
/// From the plan to the table, and from the table to the end of the picture.
const GAP: f64 = 20.0;

/// The table.
#[derive(Debug)]
pub(super) struct Candidates {
    splits: Vec<Priced>,
    left_out: usize,
}

/// A split with its prediction.
#[derive(Debug)]
struct Priced {
    name: String,
    figures: [String; 4],
    remark: &'static str,
    is_chosen: bool,
}

impl Candidates {
    /// Those in what EXPLAIN prints; none where nothing was priced.
    pub(super) fn of(explained: &Value) -> Self {
        let listed = explained.get("Candidates").and_then(Value::as_array);
        let mut splits: Vec<Priced> = listed.into_iter().flatten().map(Priced::of).collect();
        let (mut place, count) = (0, splits.len());
        splits.retain(|split| {
            place += 1;
            place <= SPLITS_MAX || split.is_chosen
        });
        let left_out = count - splits.len();
        Self { splits, left_out }
    }

    /// Pixels that the table takes beside and below others.
    pub(super) fn size(&self) -> (f64, f64) {
        if self.splits.is_empty() {
            return (0.0, 0.0);
        }
        // A title, a head, and what is left out.
        let lines = 2 + self.splits.len() + usize::from(self.left_out > 0);
        (REMARKS + text_width("no room"), lines as f64 * LINE + 2.0 * GAP)
    }

    /// Draws it with its upper left corner at `(x, y)`.
    pub(super) fn draw(&self, picture: &mut Picture, (x, y): (f64, f64)) {
        if self.splits.is_empty() {
            return;
        }
        let mut y = y + GAP;
        picture.text((x, y), "bold", "Candidates");
        y += LINE;
        picture.text((x, y), "faint", "split");
        for (name, end) in FIGURES {
            picture.text((x + end, y), "faint end", name);
        }
        for split in &self.splits {
            y += LINE;
            if split.is_chosen {
                picture.dot((x - 8.0, y - 4.0), 3.5, "auto");
            }
            picture.text((x, y), if split.is_chosen { "bold" } else { "" }, &split.name);
            for ((_, end), figure) in FIGURES.iter().zip(&split.figures) {
                picture.text((x + end, y), "end", figure);
            }
            picture.text((x + REMARKS, y), "", split.remark);
        }
        if self.left_out > 0 {
            let text = format!("and {} more", self.left_out);
            picture.text((x, y + LINE), "faint", &text);
        }
    }
}

impl Priced {
    fn of(listed: &Value) -> Self {
        let figure = |key: &str, shown: fn(f64) -> String| {
            listed.get(key).and_then(Value::as_f64).map_or_else(|| "–".to_owned(), shown)
        };
        let is = |key: &str| listed.get(key).and_then(Value::as_bool);
        let is_chosen = is("chosen") == Some(true);
        let remark = match (is_chosen, is("fits")) {
            (true, _) => "chosen",
            (false, Some(false)) => "no room",
            (false, _) => "",
        };
        Self {
            name: elided(text_of(listed, "split").unwrap_or("?"), NAME_COLUMNS_MAX),
            figures: [
                figure("finish_ms", duration),
                figure("host_ms", duration),
                figure("device_ms", duration),
                figure("link_bytes", size),
            ],
            remark,
            is_chosen,
        }
    }
}
