//! A title's hidden traits: its kind, year, country and popularity. Every table about the title is drawn from these,
//! which correlates the tables.
//!
//! Ids fall into two ranges, as in the original: first come series, each followed by its
//! episodes, then everything else. The first titles of either range (in a scattered order) are
//! the [famous](super::famous) ones, then the ranked ones.

use super::super::random::{Draw, floor32, mix};
use super::World;
use super::famous::{FAMOUS_FILMS, FAMOUS_SERIES, Famous};
use super::genres::{ACTION, ANIMATION, CRIME, HORROR, THRILLER, genre_named};
use super::places::{JAPAN, PLACES, USA, place_named};

/// The kind of a title.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Film,
    Series,
    Episode,
    TvMovie,
    VideoMovie,
    VideoGame,
}

impl Kind {
    /// Its id in `kind_type`.
    pub(crate) fn id(self) -> u32 {
        match self {
            Self::Film => 1,
            Self::Series => 2,
            Self::TvMovie => 3,
            Self::VideoMovie => 4,
            Self::VideoGame => 6,
            Self::Episode => 7,
        }
    }

    /// Its column in tables of parameters: film, series, episode, other.
    pub(crate) fn class(self) -> usize {
        match self {
            Self::Film => 0,
            Self::Series => 1,
            Self::Episode => 2,
            Self::TvMovie | Self::VideoMovie | Self::VideoGame => 3,
        }
    }
}

/// A place in the charts, which `movie_info_idx` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    Top(u32),
    Bottom(u32),
}

/// The traits of one title.
#[derive(Clone, Debug)]
pub(crate) struct Movie {
    pub(crate) id: u32,
    /// The key of this title's random streams.
    pub(crate) key: u64,
    pub(crate) kind: Kind,
    pub(crate) year: Option<u32>,
    /// Standard normal over all titles of a kind: the trait that all fan-outs share.
    pub(crate) popularity: f64,
    /// Index in [`PLACES`].
    pub(crate) place: usize,
    pub(crate) genres: Vec<u8>,
    pub(crate) rank: Option<Rank>,
    pub(crate) famous: Option<&'static Famous>,
    pub(crate) episode: Option<Episode>,
}

/// The traits of an episode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Episode {
    pub(crate) series_id: u32,
    pub(crate) season: u32,
    pub(crate) number: u32,
}

/// Share of the titles that are series and episodes.
const SERIAL_SHARE: f64 = 1_634_116.0 / 2_528_312.0;
/// Series do not span blocks of so many ids, so that each can be found alone.
const SERIES_BLOCK: u32 = 1024;

/// How many of `titles` titles are series and episodes.
pub(crate) fn serial_titles(titles: u32) -> u32 {
    floor32(f64::from(titles) * SERIAL_SHARE)
}

impl Movie {
    /// The title with `id`, which runs from 1 to the number of titles.
    pub(crate) fn new(world: &World, id: u32) -> Self {
        let key = mix(world.seed, mix(0x0074_6974_6C65, u64::from(id)));
        if id <= world.serial_titles {
            Self::serial(world, id, key)
        } else {
            Self::film(world, id, key)
        }
    }

    fn film(world: &World, id: u32, key: u64) -> Self {
        let mut draw = Draw::new(key, 1);
        let position = world.film_scatter.invert(id - world.serial_titles - 1);
        let mut popularity = draw.normal();
        let famous = FAMOUS_FILMS.get(position as usize);
        let first_ranked = u32::try_from(FAMOUS_FILMS.len()).unwrap_or(0);
        let rank = position.checked_sub(first_ranked).and_then(|place| world.rank(place));
        let kind = match draw.unit() {
            _ if rank.is_some() => Kind::Film,
            u if u < 0.741_25 => Kind::Film,
            u if u < 0.741_25 + 0.112_5 => Kind::TvMovie,
            u if u < 0.741_25 + 0.112_5 + 0.132_1 => Kind::VideoMovie,
            _ => Kind::VideoGame,
        };
        match rank {
            Some(Rank::Top(_)) => popularity = 2.05 + 0.28 * popularity,
            Some(Rank::Bottom(_)) => popularity = 1.0 + 0.3 * popularity,
            None => {}
        }
        if let Some(famous) = famous {
            return Self::famous(id, key, famous, None);
        }
        let years = if kind == Kind::Film { &FILM_YEARS[..] } else { &OTHER_YEARS[..] };
        let unknown = if kind == Kind::Film { 0.068 } else { 0.02 };
        let year = if draw.chance(unknown) && rank.is_none() {
            None
        } else {
            Some(year_at(years, draw.unit()))
        };
        Self::finish(world, id, key, kind, year, popularity, rank, None, &mut draw)
    }

    fn serial(world: &World, id: u32, key: u64) -> Self {
        let (series_id, offset) = series_of(world, id);
        let series_key = mix(world.seed, mix(0x7365_7269_6573, u64::from(series_id)));
        let mut series_draw = Draw::new(series_key, 1);
        let shared = series_draw.normal();
        let when = series_draw.unit();
        let place = pick_place(world, shared, Kind::Series, &mut series_draw);
        let mut draw = Draw::new(key, 1);
        if offset == 0 {
            if let Some(famous) = FAMOUS_SERIES.get(id as usize - 1) {
                return Self::famous(id, key, famous, None);
            }
            let year = if draw.chance(0.012) { None } else { Some(year_at(&SERIES_YEARS, when)) };
            let mut series =
                Self::finish(world, id, key, Kind::Series, year, shared, None, None, &mut draw);
            series.place = place;
            return series;
        }
        let per_season = 6 + series_draw.below(20);
        let number = offset - 1;
        let long = series_draw.chance(0.5);
        let episode = Episode {
            series_id,
            season: if long { 1 } else { number / per_season + 1 },
            number: if long { number + 1 } else { number % per_season + 1 },
        };
        // Series with hundreds of episodes have few facts about each.
        let popularity = 0.75 * shared + 0.661 * draw.normal() - if long { 0.45 } else { -0.4 };
        // Episodes follow their series' first year, around the same quantile.
        let spread = when + 0.16 * (draw.unit() - 0.5);
        let reflected = if spread < 0.0 { -spread } else { spread };
        let reflected = if reflected >= 1.0 { 1.999_999 - reflected } else { reflected };
        let year = if draw.chance(0.014) { None } else { Some(year_at(&EPISODE_YEARS, reflected)) };
        let mut found = Self::finish(
            world,
            id,
            key,
            Kind::Episode,
            year,
            popularity,
            None,
            Some(episode),
            &mut draw,
        );
        if draw.chance(0.95) {
            found.place = place;
        }
        found
    }

    #[expect(clippy::too_many_arguments, reason = "the one place where a title is put together")]
    fn finish(
        world: &World,
        id: u32,
        key: u64,
        kind: Kind,
        year: Option<u32>,
        popularity: f64,
        rank: Option<Rank>,
        episode: Option<Episode>,
        draw: &mut Draw,
    ) -> Self {
        let mut place = pick_place(world, popularity, kind, draw);
        if is_gone(place, year) {
            place = pick_place(world, popularity, kind, draw);
        }
        let genres = pick_genres(world, kind, place, year, popularity, draw);
        Self { id, key, kind, year, popularity, place, genres, rank, famous: None, episode }
    }

    fn famous(id: u32, key: u64, famous: &'static Famous, episode: Option<Episode>) -> Self {
        Self {
            id,
            key,
            kind: famous.kind,
            year: Some(famous.year),
            popularity: famous.popularity,
            place: place_named(famous.place),
            genres: famous.genres.iter().map(|genre| genre_named(genre)).collect(),
            rank: famous.rank,
            famous: Some(famous),
            episode,
        }
    }

    /// The random stream of this title for one purpose.
    pub(crate) fn draw(&self, purpose: u64) -> Draw {
        Draw::new(self.key, purpose)
    }

    pub(crate) fn is(&self, genre: u8) -> bool {
        self.genres.contains(&genre)
    }

    pub(crate) fn is_animated(&self) -> bool {
        self.is(ANIMATION)
    }

    /// Whether violent keywords suit it.
    pub(crate) fn is_violent(&self) -> bool {
        self.is(HORROR) || self.is(THRILLER)
    }

    /// Whether keywords about fights suit it.
    pub(crate) fn is_martial(&self) -> bool {
        self.is(ACTION) || self.is(CRIME)
    }

    /// When it was made, in six steps: unknown, up to 1950, 1980, 2000, 2010, later.
    pub(crate) fn era(&self) -> usize {
        match self.year {
            None => 0,
            Some(..=1950) => 1,
            Some(..=1980) => 2,
            Some(..=2000) => 3,
            Some(..=2010) => 4,
            Some(_) => 5,
        }
    }

    /// A year for things that need one.
    pub(crate) fn year_or_recent(&self) -> u32 {
        self.year.unwrap_or(2012)
    }
}

/// The id of the series that the series or episode `id` belongs to, and its position after it. The famous series come
/// first and have no episodes.
fn series_of(world: &World, id: u32) -> (u32, u32) {
    let famous = u32::try_from(FAMOUS_SERIES.len()).unwrap_or(0);
    if id <= famous {
        return (id, 0);
    }
    let mut start = ((id - 1) / SERIES_BLOCK * SERIES_BLOCK + 1).max(famous + 1);
    loop {
        let key = mix(world.seed, mix(0x6570_6973_6F64_6573, u64::from(start)));
        let mut draw = Draw::new(key, 1);
        let episodes = if draw.chance(0.47) {
            0
        } else {
            1 + floor32((2.62 + 1.42 * draw.normal()).exp()).min(SERIES_BLOCK)
        };
        if id <= start + episodes {
            return (start, id - start);
        }
        start += episodes + 1;
    }
}

fn pick_place(world: &World, popularity: f64, kind: Kind, draw: &mut Draw) -> usize {
    let odds = match kind {
        Kind::Film => (-0.88 + 1.08 * popularity).exp(),
        Kind::Series | Kind::Episode => (-0.25 + 0.55 * popularity).exp(),
        _ => (-0.2 + 0.6 * popularity).exp(),
    };
    if draw.chance(odds / (1.0 + odds)) { USA } else { world.places.titles.pick(draw) }
}

/// Whether a country was dissolved by `year`.
fn is_gone(place: usize, year: Option<u32>) -> bool {
    const GONE: [&str; 5] =
        ["West Germany", "East Germany", "Soviet Union", "Czechoslovakia", "Yugoslavia"];
    year.is_none_or(|year| year > 1992) && GONE.contains(&PLACES[place].name)
}

fn pick_genres(
    world: &World,
    kind: Kind,
    place: usize,
    year: Option<u32>,
    popularity: f64,
    draw: &mut Draw,
) -> Vec<u8> {
    let serial = matches!(kind, Kind::Series | Kind::Episode);
    let first = if serial { &world.genres.series } else { &world.genres.film };
    // Popular titles are seldom shorts, and have more genres; horror is more frequent in recent years.
    let mut genres = vec![u8::try_from(first.pick(draw)).unwrap_or(0)];
    if place == JAPAN && draw.chance(0.16) {
        genres[0] = ANIMATION;
    }
    if popularity > 0.8 && genre_named("Short") == genres[0] && draw.chance(0.8) {
        genres[0] = u8::try_from(world.genres.further.pick(draw)).unwrap_or(0);
    }
    let further = draw.poisson(0.68 * (1.0 * popularity - 0.45).exp()).min(4);
    for _ in 0..further {
        let genre = u8::try_from(world.genres.further.pick(draw)).unwrap_or(0);
        let dated = matches!(genre, HORROR | THRILLER) && year.is_some_and(|year| year <= 2000);
        if genres.contains(&genre) || (dated && draw.chance(0.45)) {
            continue;
        }
        genres.push(genre);
    }
    genres
}

/// Points of a distribution of years: (share of titles up to the end of this year, year).
type Years = [(f64, u32)];

const FILM_YEARS: [(f64, u32); 19] = [
    (0.0, 1887),
    (0.03, 1910),
    (0.085, 1920),
    (0.12, 1930),
    (0.16, 1940),
    (0.2025, 1950),
    (0.25, 1960),
    (0.32, 1970),
    (0.40, 1980),
    (0.478, 1990),
    (0.5565, 2000),
    (0.67, 2005),
    (0.764, 2008),
    (0.8398, 2010),
    (0.893, 2011),
    (0.948, 2012),
    (0.988, 2013),
    (0.999, 2015),
    (1.0, 2019),
];
const EPISODE_YEARS: [(f64, u32); 15] = [
    (0.0, 1945),
    (0.02, 1952),
    (0.053, 1960),
    (0.11, 1970),
    (0.154, 1978),
    (0.25, 1992),
    (0.364, 1999),
    (0.394, 2000),
    (0.467, 2003),
    (0.57, 2006),
    (0.695, 2008),
    (0.79, 2010),
    (0.885, 2011),
    (0.975, 2012),
    (1.0, 2013),
];
const SERIES_YEARS: [(f64, u32); 9] = [
    (0.0, 1945),
    (0.045, 1960),
    (0.16, 1980),
    (0.27, 1990),
    (0.48, 2000),
    (0.66, 2005),
    (0.78, 2008),
    (0.87, 2010),
    (1.0, 2013),
];
const OTHER_YEARS: [(f64, u32); 9] = [
    (0.0, 1930),
    (0.02, 1960),
    (0.15, 1980),
    (0.30, 1990),
    (0.48, 2000),
    (0.68, 2005),
    (0.81, 2008),
    (0.89, 2010),
    (1.0, 2013),
];

fn year_at(years: &Years, unit: f64) -> u32 {
    let after = years.partition_point(|&(share, _)| share <= unit).clamp(1, years.len() - 1);
    let (share0, year0) = years[after - 1];
    let (share1, year1) = years[after];
    let within = (unit - share0) / (share1 - share0);
    year0 + 1 + floor32(within * f64::from(year1 - year0)).min(year1 - year0 - 1)
}
