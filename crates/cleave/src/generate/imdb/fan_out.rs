//! The number of rows of each table that a title has. Each count is Poisson, around a mean that depends on the title's
//! kind and year, times a log-normal factor. The factor's exponent is partly the title's popularity, which all tables
//! share, and partly the table's own: so popular titles have many rows in every table, and joins over several tables
//! explode.

use super::World;
use super::famous::Known;
use super::movie::{Kind, Movie};
use super::places::USA;

/// The tables whose rows belong to a title.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MovieTable {
    AkaTitle,
    CastInfo,
    CompleteCast,
    MovieCompanies,
    MovieInfo,
    MovieInfoIdx,
    MovieKeyword,
    MovieLink,
}

impl MovieTable {
    pub(crate) const ALL: [Self; 8] = [
        Self::AkaTitle,
        Self::CastInfo,
        Self::CompleteCast,
        Self::MovieCompanies,
        Self::MovieInfo,
        Self::MovieInfoIdx,
        Self::MovieKeyword,
        Self::MovieLink,
    ];
}

/// One kind of row: its means and how it follows popularity, for films, series, episodes, others.
pub(crate) struct FanOut {
    /// Rows per title of an average era.
    pub(crate) mean: [f64; 4],
    /// Factors for the six eras of [`Movie::era`], for films and others, and for series and
    /// episodes.
    pub(crate) eras: [[f64; 6]; 2],
    /// How much the logarithm of the mean follows popularity.
    pub(crate) shared: [f64; 4],
    /// How much it varies independently.
    pub(crate) own: [f64; 4],
}

const EVEN: [f64; 6] = [1.0; 6];

const CAST: FanOut = FanOut {
    mean: [16.1, 15.5, 13.0, 13.2],
    eras: [[0.45, 0.83, 1.02, 1.2, 1.28, 0.8], EVEN],
    shared: [0.83, 0.8, 0.5, 0.7],
    own: [0.55, 0.7, 0.6, 0.7],
};
const KEYWORDS: FanOut = FanOut {
    mean: [4.55, 3.5, 0.37, 3.2],
    eras: [[0.22, 0.86, 1.08, 1.45, 1.12, 0.37], [0.3, 0.55, 0.7, 0.95, 1.25, 0.8]],
    shared: [1.65, 1.3, 1.2, 1.2],
    own: [1.15, 1.3, 1.9, 1.2],
};
const PRODUCERS: FanOut = FanOut {
    mean: [0.967, 0.8, 0.33, 0.55],
    eras: [[0.6, 0.75, 0.9, 1.05, 1.15, 0.9], EVEN],
    shared: [0.47, 0.5, 0.35, 0.45],
    own: [0.5, 0.6, 0.9, 0.6],
};
const DISTRIBUTORS: FanOut = FanOut {
    mean: [1.006, 1.34, 0.18, 0.88],
    eras: [[0.2, 0.9, 1.15, 1.4, 1.0, 0.38], EVEN],
    shared: [1.5, 1.2, 0.7, 0.95],
    own: [0.6, 0.6, 0.9, 0.7],
};
const ALIASES: FanOut = FanOut {
    mean: [0.49, 0.12, 0.002, 0.16],
    eras: [[0.1, 1.0, 1.4, 1.3, 0.6, 0.3], EVEN],
    shared: [1.05, 1.0, 1.0, 1.0],
    own: [0.8, 0.8, 0.8, 0.8],
};
const LINKS: FanOut = FanOut {
    mean: [0.0, 1.2, 0.1, 0.0],
    eras: [EVEN, [0.2, 0.8, 1.0, 1.3, 1.0, 0.5]],
    shared: [1.0, 1.8, 1.9, 1.0],
    own: [1.0, 1.0, 1.3, 1.0],
};
/// Titles with rows in `complete_cast`; at most one each.
const COMPLETE: FanOut = FanOut {
    mean: [0.072, 0.02, 0.031, 0.03],
    eras: [[0.1, 1.55, 1.9, 1.6, 0.32, 0.1], [0.3, 1.7, 1.6, 1.3, 0.8, 0.55]],
    shared: [1.65, 0.95, 0.95, 1.2],
    own: [0.0; 4],
};

/// Titles with rows in `movie_link` have ids up to this share of all, as in the original.
const LINKED_SHARE: f64 = 186_175.0 / 2_528_312.0;

impl FanOut {
    /// The mean for `movie`; `purpose` names the stream of its own variation.
    pub(crate) fn mean_of(&self, movie: &Movie, draw: &mut super::super::random::Draw) -> f64 {
        let class = movie.kind.class();
        let era = self.eras[usize::from(class == 1 || class == 2)][movie.era()];
        let (shared, own) = (self.shared[class], self.own[class]);
        let popularity = movie.popularity.clamp(-3.5, 3.5);
        // The popularity of famous titles is given, so chance has no effect.
        let noise = match movie.famous {
            Some(_) => 0.5 * own,
            None if own > 0.0 => draw.normal().clamp(-3.0, 3.0),
            None => 0.0,
        };
        let exponent = shared * popularity + own * noise - 0.5 * (shared * shared + own * own);
        self.mean[class] * era * exponent.exp()
    }
}

/// How many rows of `table` `movie` has.
pub(crate) fn count(world: &World, movie: &Movie, table: MovieTable) -> u32 {
    let known = movie.famous.map_or(0, |famous| famous.count(table));
    let mut draw = movie.draw(100 + table as u64);
    known
        + match table {
            MovieTable::CastInfo => draw_count(&CAST, movie, &mut draw, 1_400),
            MovieTable::MovieKeyword => {
                let one = u32::from(movie.id == world.titles && movie.kind == Kind::Film);
                draw_count(&KEYWORDS, movie, &mut draw, 500).max(one)
            }
            MovieTable::AkaTitle => draw_count(&ALIASES, movie, &mut draw, 60),
            MovieTable::MovieLink => {
                let linked = f64::from(movie.id) <= f64::from(world.titles) * LINKED_SHARE;
                if !linked {
                    return known;
                }
                // German series have their sequels counted.
                let mean = LINKS.mean_of(movie, &mut draw);
                let keen = if super::links::is_keen(movie) { 3.0 } else { 0.9 };
                draw.poisson(mean * keen).min(300)
            }
            MovieTable::CompleteCast if known > 0 => 0,
            MovieTable::CompleteCast => {
                let share = COMPLETE.mean_of(movie, &mut draw).min(0.95);
                let present = draw.chance(share);
                if present { 1 + u32::from(draw.chance(0.4446)) } else { 0 }
            }
            MovieTable::MovieCompanies => {
                let (makers, sellers) = companies(movie);
                makers + sellers
            }
            MovieTable::MovieInfo => super::infos::count(movie),
            MovieTable::MovieInfoIdx => super::ratings::count(movie),
        }
}

/// How many producers and distributors `movie` has, besides those given for a famous title.
pub(crate) fn companies(movie: &Movie) -> (u32, u32) {
    let mut draw = movie.draw(150);
    let makers = draw_count(&PRODUCERS, movie, &mut draw, 60);
    // Films from the United States are shown everywhere, others mostly at home.
    let reach = if movie.place == USA { 1.28 } else { 0.74 };
    let mean = DISTRIBUTORS.mean_of(movie, &mut draw) * reach;
    let sellers = draw.poisson(mean).min(200);
    (makers, sellers)
}

fn draw_count(
    fan_out: &FanOut,
    movie: &Movie,
    draw: &mut super::super::random::Draw,
    most: u32,
) -> u32 {
    let mean = fan_out.mean_of(movie, draw);
    draw.poisson(mean).min(most)
}
