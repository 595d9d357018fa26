//! Draws advice: for each statement a bar for the host alone and one for its best split.

use cleave_pictures::text::{duration, elided, text_width};
use cleave_pictures::{Area, Picture, Scale};

/// Statements that are drawn: those for which most could be saved.
const STATEMENTS_MAX: usize = 40;
/// Columns of a statement's name.
const NAME_COLUMNS_MAX: usize = 30;
const MARGIN: f64 = 20.0;
/// For the title and the legend.
const HEAD: f64 = 74.0;
const BAR: f64 = 10.0;
/// From one statement to the next.
const STATEMENT: f64 = 34.0;
/// The width of the longest bar's axis.
const AXIS: f64 = 420.0;
/// Axes that are at least so long are in seconds.
const SECONDS_FROM: f64 = 10.0;
/// For the figures behind the bars.
const FIGURES: f64 = 170.0;

/// The advice for one statement.
#[derive(Debug, Clone)]
pub(super) struct Drawn {
    /// Where the statement stands.
    pub(super) place: String,
    pub(super) text: String,
    pub(super) host_seconds: f64,
    pub(super) best_seconds: f64,
    /// The best split.
    pub(super) best: String,
    /// The one that `auto` takes.
    pub(super) taken: String,
}

impl Drawn {
    /// Its file's name and its line.
    fn name(&self) -> String {
        let name = self.place.rsplit('/').next().unwrap_or(&self.place);
        elided(name, NAME_COLUMNS_MAX)
    }

    fn saved(&self) -> f64 {
        self.host_seconds - self.best_seconds
    }
}

/// The picture.
pub(super) fn picture(all: &[Drawn]) -> String {
    let drawn = most_saved(all);
    let names = drawn.iter().map(|one| text_width(&one.name()));
    let left = names.fold(60.0, f64::max) + MARGIN + 12.0;
    let height = drawn.len() as f64 * STATEMENT + 8.0;
    let axis = Area { x: left, y: HEAD, width: AXIS, height };
    let longest = drawn.iter().flat_map(|one| [one.host_seconds, one.best_seconds]);
    let longest = longest.fold(0.0, f64::max);
    let (unit, in_second) = match longest < SECONDS_FROM {
        true => ("milliseconds", 1e3),
        false => ("seconds", 1.0),
    };
    let scale = Scale::linear(longest * in_second, (axis.x, axis.right()));

    let mut picture = Picture::default();
    let host = duration(all.iter().map(|one| one.host_seconds).sum::<f64>() * 1e3);
    let best = duration(all.iter().map(|one| one.best_seconds).sum::<f64>() * 1e3);
    let title = format!("Predicted for {} statements: host alone {host}, best {best}", all.len());
    picture.text((MARGIN, 26.0), "bold", &title);
    let mut x = MARGIN;
    let legend = [("host", "host alone"), ("device", "best split"), ("auto", "taken by auto")];
    for (class, text) in legend {
        match class {
            "auto" => picture.dot((x + 6.0, 46.0), 3.5, class),
            _ => picture.rect(Area { x, y: 40.0, width: 12.0, height: 12.0 }, class),
        }
        picture.text((x + 18.0, 50.0), "", text);
        x += text_width(text) + 44.0;
    }
    if drawn.len() < all.len() {
        let text = format!("the {} with most to save", drawn.len());
        picture.text((x, 50.0), "faint", &text);
    }
    scale.draw_below(&mut picture, axis, unit);
    for (place, one) in drawn.iter().enumerate() {
        let y = axis.y + 8.0 + place as f64 * STATEMENT;
        picture.explained(&format!("{}\n{}", one.place, one.text), |picture| {
            picture.text((left - 12.0, y + BAR + 3.0), "end", &one.name());
            let bars = [
                ("host", "host", one.host_seconds),
                ("device", one.best.as_str(), one.best_seconds),
            ];
            let mut y = y;
            for (class, split, seconds) in bars {
                let end = scale.place(seconds * in_second);
                picture.rect(Area { x: left, y, width: end - left, height: BAR }, class);
                let mut figures = format!("{} {split}", duration(seconds * 1e3));
                // One that has no bar of its own.
                if class == "device" && one.taken != "host" && one.taken != one.best {
                    figures.push_str(&format!(", auto: {}", one.taken));
                }
                let place = (end + 6.0, y + BAR - 0.5);
                picture.text(place, "faint haloed", &elided(&figures, 22));
                if split == one.taken {
                    picture.dot((left - 5.0, y + BAR / 2.0), 3.5, "auto");
                }
                y += BAR + 3.0;
            }
        });
    }
    let width = (axis.right() + FIGURES).max(text_width(&title) + 2.0 * MARGIN);
    picture.finish((width, axis.bottom() + 34.0 + MARGIN), &title)
}

/// Those with most to save, in the order in which they were given.
fn most_saved(all: &[Drawn]) -> Vec<&Drawn> {
    let mut places: Vec<(usize, &Drawn)> = all.iter().enumerate().collect();
    places.sort_by(|(_, a), (_, b)| b.saved().total_cmp(&a.saved()));
    places.truncate(STATEMENTS_MAX);
    places.sort_by_key(|(place, _)| *place);
    places.into_iter().map(|(_, one)| one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_with_most_to_save_are_drawn_in_their_order() {
        let one = |number: usize| Drawn {
            place: format!("queries/<{number}>.sql:1"),
            text: "SELECT '&'".to_owned(),
            host_seconds: number as f64,
            best_seconds: 0.5,
            best: "h1".to_owned(),
            taken: "h1".to_owned(),
        };
        let all: Vec<Drawn> = (0..50).map(one).collect();
        let found = picture(&all);
        assert!(
            found.contains("Predicted for 50 statements: host alone 1225.0 s, best 25.0 s"),
            "{found}"
        );
        assert!(found.contains("the 40 with most to save"), "{found}");
        assert!(!found.contains(">&lt;9&gt;.sql:1<"), "{found}");
        let places = [10, 11, 49].map(|n| found.find(&format!(">&lt;{n}&gt;.sql:1<")).unwrap());
        assert!(places.is_sorted(), "{places:?}");
        // One in the legend for each, and the dots of what auto takes.
        assert_eq!(found.matches("<rect class=\"device\"").count(), 41);
        assert_eq!(found.matches("<circle class=\"auto\"").count(), 41);
        assert!(found.contains(">seconds<") && !found.contains(">milliseconds<"), "{found}");
        let third = Drawn { taken: "h2".to_owned(), ..one(1) };
        let third = picture(&[third]);
        assert!(third.contains(">500 ms h1, auto: h2<"), "{third}");
        assert!(third.contains(">milliseconds<"), "{third}");
        let none = picture(&[]);
        assert!(none.contains("Predicted for 0 statements"), "{none}");
    }
}
