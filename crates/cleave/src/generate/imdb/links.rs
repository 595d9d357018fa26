//! The smaller tables about titles: links between them, whether their cast is complete, and alternative titles.

use super::super::random::{Draw, Weighted, checksum};
use super::super::rows::Rows;
use super::World;
use super::movie::{Kind, Movie};
use super::names::{phonetic, push_phrase};
use super::places::PLACES;
use std::fmt::Write as _;

/// Shares of the entries of `link_type` among the links of series, of episodes, and of what
/// [`is_keen`].
const LINK_SHARES: [[f64; 17]; 3] = [
    [2.6, 3.2, 0.4, 0.4, 28.0, 20.0, 2.5, 6.0, 9.0, 9.0, 5.0, 5.5, 5.0, 0.0, 0.7, 0.7, 2.5],
    [1.2, 1.6, 0.4, 0.4, 37.0, 18.0, 5.0, 5.0, 11.0, 12.0, 0.8, 0.8, 4.2, 0.0, 1.0, 1.0, 0.6],
    [18.0, 22.0, 0.4, 0.4, 15.0, 10.0, 2.0, 3.0, 8.0, 8.0, 3.0, 3.0, 4.2, 0.0, 1.0, 1.0, 0.6],
];

/// The distributions of link types.
#[derive(Debug)]
pub(crate) struct LinkTypes {
    by_class: [Weighted; 3],
}

impl LinkTypes {
    pub(crate) fn new() -> Self {
        Self { by_class: LINK_SHARES.map(Weighted::new) }
    }
}

/// Whether a title is from a country with most of the links to sequels.
pub(crate) fn is_keen(movie: &Movie) -> bool {
    PLACES[movie.place].language == "German"
}

/// Appends the rows of `movie_link` of one title.
pub(crate) fn movie_link_rows(
    world: &World,
    movie: &Movie,
    first_id: u32,
    count: u32,
    rows: &mut Rows,
) {
    let known = movie.famous.map_or(&[][..], |famous| famous.links);
    let mut draw = movie.draw(71);
    for slot in 0..count {
        let (link, target) = match known.get(slot as usize) {
            Some(&(link, title)) => (link, super::famous::id_of(world, title)),
            None => {
                let class = match movie.kind {
                    _ if is_keen(movie) => 2,
                    Kind::Episode => 1,
                    _ => 0,
                };
                let link = world.link_types.by_class[class].pick(&mut draw);
                let link = u32::try_from(link + 1).unwrap_or(1);
                (link, pick_target(world, movie, link, &mut draw))
            }
        };
        rows.int(first_id + slot);
        rows.int(movie.id);
        rows.int(target);
        rows.int(link);
    }
}

/// A title to link to. A referenced title is popular; a followed one is of the same kind.
fn pick_target(world: &World, movie: &Movie, link: u32, draw: &mut Draw) -> u32 {
    let same_kind = matches!(link, 1 | 2 | 11 | 12 | 13);
    let candidates = if same_kind { 40 } else { 12 };
    let mut best = (f64::MIN, 1);
    for _ in 0..candidates {
        let last = if same_kind { world.serial_titles } else { world.titles };
        let candidate = Movie::new(world, 1 + draw.below(last));
        let mut score = candidate.popularity;
        if same_kind && candidate.kind == movie.kind {
            score += 10.0;
        }
        if candidate.id != movie.id && score > best.0 {
            best = (score, candidate.id);
        }
    }
    best.1
}

/// Appends the rows of `complete_cast` of one title.
pub(crate) fn complete_cast_rows(movie: &Movie, first_id: u32, count: u32, rows: &mut Rows) {
    let known = movie.famous.map_or(&[][..], |famous| famous.complete);
    let mut draw = movie.draw(81);
    for slot in 0..count {
        let (subject, status) = match known.get(slot as usize) {
            Some(&known) => known,
            None => {
                let crew = slot == 1 || (count == 1 && draw.chance(0.146));
                (1 + u32::from(crew), 3 + u32::from(draw.chance(0.182)))
            }
        };
        rows.int(first_id + slot);
        rows.int(movie.id);
        rows.int(subject);
        rows.int(status);
    }
}

/// Appends the rows of `aka_title` of one title.
pub(crate) fn aka_title_rows(
    world: &World,
    movie: &Movie,
    first_id: u32,
    count: u32,
    rows: &mut Rows,
) {
    let mut draw = movie.draw(91);
    let (mut title, mut note) = (String::new(), String::new());
    for slot in 0..count {
        title.clear();
        note.clear();
        push_phrase(&mut title, &mut draw);
        if !draw.chance(0.0774) {
            let place = &PLACES[world.places.markets.pick(&mut draw)];
            match draw.below(10) {
                0 | 1 => note.push_str("(International: English title)"),
                2 => {
                    let _ = write!(note, "({}: {} title)", place.name, place.language);
                }
                _ => {
                    let _ = write!(note, "({})", place.name);
                }
            }
            note.push_str(draw.pick_skewed(
                &[
                    "",
                    " (imdb display title)",
                    " (alternative title)",
                    " (working title)",
                    " (DVD title)",
                    " (TV title)",
                    " (video title)",
                    " (reissue title)",
                    " (literal title)",
                ],
                3,
            ));
        }
        rows.int(first_id + slot);
        rows.int(movie.id);
        rows.text(&title);
        rows.text_or_null(if draw.chance(0.0082) { "I" } else { "" });
        rows.int(movie.kind.id());
        rows.int_or_null(movie.year);
        rows.text_or_null(&phonetic(&title));
        rows.int_or_null(movie.episode.map(|episode| episode.series_id));
        rows.int_or_null(movie.episode.map(|episode| episode.season));
        rows.int_or_null(movie.episode.map(|episode| episode.number));
        rows.text_or_null(&note);
        rows.text(&checksum(world.seed, 0x6174, first_id + slot));
    }
}
