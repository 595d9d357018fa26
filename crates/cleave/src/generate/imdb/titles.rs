//! Writes the rows of `title`.

use super::super::random::checksum;
use super::super::rows::Rows;
use super::World;
use super::movie::{Kind, Movie};
use super::names::{phonetic, push_title};
use std::fmt::Write as _;

/// Appends the row of one title.
pub(crate) fn title_row(world: &World, movie: &Movie, rows: &mut Rows) {
    let mut draw = movie.draw(11);
    let mut title = String::new();
    match movie.famous {
        Some(famous) => title.push_str(famous.title),
        None => push_title(&mut title, movie, &mut draw),
    }
    rows.int(movie.id);
    rows.text(&title);
    rows.text_or_null(if draw.chance(0.0104) { "I" } else { "" });
    rows.int(movie.kind.id());
    rows.int_or_null(movie.year);
    rows.null();
    // Titles like (#1.3) have no sound.
    let sound = if title.starts_with('(') { String::new() } else { phonetic(&title) };
    rows.text_or_null(&sound);
    let numbered = draw.chance(0.715);
    rows.int_or_null(movie.episode.map(|episode| episode.series_id));
    rows.int_or_null(movie.episode.map(|episode| episode.season).filter(|_| numbered));
    rows.int_or_null(movie.episode.map(|episode| episode.number).filter(|_| numbered));
    match (movie.kind, movie.year) {
        (Kind::Series, Some(year)) => {
            let mut years = String::new();
            if draw.chance(0.55) {
                let _ = write!(years, "{year}-????");
            } else {
                let _ = write!(years, "{year}-{}", year + draw.below(5));
            }
            rows.text(&years);
        }
        _ => rows.null(),
    }
    rows.text(&checksum(world.seed, 0x7469, movie.id));
}
