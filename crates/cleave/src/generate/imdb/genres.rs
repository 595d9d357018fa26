//! Genres, and the probability of each as a title's first genre or as a further one.

use super::super::random::Weighted;

/// A genre with its weights: first genre of a film, of a series or episode, further genre.
struct Genre {
    name: &'static str,
    film: f64,
    series: f64,
    further: f64,
}

const fn genre(name: &'static str, film: f64, series: f64, further: f64) -> Genre {
    Genre { name, film, series, further }
}

/// `Horror` in the list of genres.
pub(crate) const HORROR: u8 = 0;
/// `Thriller` in the list of genres.
pub(crate) const THRILLER: u8 = 1;
/// `Animation` in the list of genres.
pub(crate) const ANIMATION: u8 = 2;
/// `Action` in the list of genres.
pub(crate) const ACTION: u8 = 3;
/// `Crime` in the list of genres.
pub(crate) const CRIME: u8 = 4;

const GENRES: [Genre; 29] = [
    genre("Horror", 1.55, 0.3, 4.5),
    genre("Thriller", 0.9, 0.4, 8.6),
    genre("Animation", 3.5, 6.5, 2.0),
    genre("Action", 3.0, 3.0, 9.0),
    genre("Crime", 2.0, 4.5, 8.0),
    genre("Drama", 23.0, 17.0, 18.0),
    genre("Comedy", 15.0, 20.0, 12.0),
    genre("Short", 22.0, 0.5, 0.0),
    genre("Documentary", 14.0, 13.0, 0.0),
    genre("Romance", 2.0, 3.0, 12.0),
    genre("Adventure", 2.0, 3.0, 7.0),
    genre("Family", 1.5, 5.0, 7.0),
    genre("Fantasy", 1.0, 1.5, 5.0),
    genre("Sci-Fi", 1.0, 2.0, 4.5),
    genre("Mystery", 0.8, 1.5, 5.0),
    genre("Music", 2.5, 4.0, 3.0),
    genre("Musical", 1.5, 0.3, 2.0),
    genre("Western", 1.9, 1.0, 0.8),
    genre("War", 0.8, 0.4, 2.5),
    genre("History", 0.5, 0.8, 3.0),
    genre("Biography", 0.5, 0.5, 3.0),
    genre("Sport", 0.5, 2.0, 1.5),
    genre("Adult", 4.5, 0.0, 0.0),
    genre("Film-Noir", 0.05, 0.0, 0.1),
    genre("News", 0.1, 4.0, 0.0),
    genre("Talk-Show", 0.1, 7.0, 0.0),
    genre("Reality-TV", 0.1, 8.0, 0.0),
    genre("Game-Show", 0.0, 4.0, 0.0),
    genre("Experimental", 0.02, 0.0, 0.0),
];

/// The distributions that genres are drawn from.
#[derive(Debug)]
pub(crate) struct Genres {
    pub(crate) film: Weighted,
    pub(crate) series: Weighted,
    pub(crate) further: Weighted,
}

impl Genres {
    pub(crate) fn new() -> Self {
        Self {
            film: Weighted::new(GENRES.iter().map(|genre| genre.film)),
            series: Weighted::new(GENRES.iter().map(|genre| genre.series)),
            further: Weighted::new(GENRES.iter().map(|genre| genre.further)),
        }
    }
}

/// The name of a genre.
pub(crate) fn genre_name(genre: u8) -> &'static str {
    GENRES[usize::from(genre) % GENRES.len()].name
}

/// The genre called `name`; drama if there is none.
pub(crate) fn genre_named(name: &str) -> u8 {
    let index = GENRES.iter().position(|genre| genre.name == name).unwrap_or(5);
    u8::try_from(index).unwrap_or(0)
}
