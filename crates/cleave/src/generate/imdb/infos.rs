//! The table `movie_info`: a few facts that most titles have (running time, colour, genres, languages, countries,
//! releases) and a tail of trivia, quotes, goofs, places and figures that the popular ones collect.

use super::super::random::{Draw, Weighted};
use super::super::rows::Rows;
use super::World;
use super::fan_out::FanOut;
use super::genres::genre_name;
use super::movie::Movie;
use super::names::{push_phrase, push_surname};
use super::places::{PLACES, USA};
use super::words::{MALE_NAMES, NOUNS};
use std::fmt::Write as _;

/// Ids of `info_type`.
const RUNTIMES: u32 = 1;
const COLOR: u32 = 2;
const GENRES: u32 = 3;
const LANGUAGES: u32 = 4;
const COUNTRIES: u32 = 8;
const RELEASES: u32 = 16;
const TRIVIA: u32 = 17;
const BUDGET: u32 = 105;

pub(crate) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const RELEASE: FanOut = FanOut {
    mean: [2.3, 0.6, 0.82, 0.8],
    eras: [[0.3, 0.75, 0.95, 1.1, 1.25, 0.75], [0.5, 0.8, 0.9, 1.0, 1.1, 1.0]],
    shared: [0.95, 0.8, 0.25, 0.6],
    own: [0.35, 0.5, 0.4, 0.4],
};
const TAIL: FanOut = FanOut {
    mean: [5.4, 3.2, 1.2, 1.1],
    eras: [[0.25, 0.65, 0.95, 1.3, 1.35, 0.5], [0.5, 0.8, 1.0, 1.1, 1.1, 0.55]],
    shared: [1.7, 1.5, 1.2, 1.0],
    own: [0.45, 0.7, 0.9, 0.7],
};

/// Shares of the kinds of titles (film, series, episode, other) that have each common fact.
const SHARES: [(u32, [f64; 4]); 5] = [
    (RUNTIMES, [0.72, 0.45, 0.28, 0.72]),
    (COLOR, [0.87, 0.5, 0.35, 0.72]),
    (GENRES, [0.93, 0.85, 0.045, 0.9]),
    (LANGUAGES, [0.88, 0.75, 0.11, 0.75]),
    (COUNTRIES, [0.94, 0.82, 0.14, 0.86]),
];

/// Kinds of the tail with their shares.
const TAIL_KINDS: [(u32, f64); 34] = [
    (5, 0.30),
    (6, 0.20),
    (7, 0.62),
    (9, 0.18),
    (11, 0.07),
    (12, 0.04),
    (13, 0.75),
    (14, 0.40),
    (15, 0.42),
    (TRIVIA, 0.62),
    (18, 0.62),
    (89, 0.004),
    (90, 0.025),
    (91, 0.004),
    (92, 0.006),
    (93, 0.008),
    (94, 0.07),
    (95, 0.015),
    (96, 0.02),
    (97, 0.02),
    (98, 0.47),
    (102, 0.02),
    (103, 0.07),
    (104, 0.025),
    (BUDGET, 0.16),
    (106, 0.02),
    (107, 0.12),
    (108, 0.035),
    (109, 0.01),
    (110, 0.06),
    (40, 0.003),
    (45, 0.003),
    (50, 0.003),
    (86, 0.003),
];

/// The distribution of the tail's kinds.
pub(crate) fn tail_kinds() -> Weighted {
    Weighted::new(TAIL_KINDS.iter().map(|&(_, share)| share))
}

/// How many rows of each common fact, of releases and of the tail a title has.
struct Plan {
    common: [u32; 5],
    releases: u32,
    tail: u32,
}

fn plan(movie: &Movie) -> Plan {
    let mut draw = movie.draw(51);
    let class = movie.kind.class();
    let more = (0.55 * movie.popularity).exp();
    let common = SHARES.map(|(fact, shares)| {
        // Most episodes have hardly any facts, known ones as many as films.
        let share = match class {
            1 | 2 => (shares[class] * (0.9 * movie.popularity - 0.5).exp()).min(0.95),
            _ => shares[class],
        };
        if !draw.chance(share) {
            return 0;
        }
        match fact {
            GENRES => u32::try_from(movie.genres.len()).unwrap_or(0),
            LANGUAGES => 1 + draw.poisson(0.09 * more).min(6),
            COUNTRIES => 1 + draw.poisson(0.09 * more).min(6),
            _ => 1,
        }
    });
    let mean = RELEASE.mean_of(movie, &mut draw);
    let releases = draw.poisson(mean).min(120);
    let mut draw = movie.draw(52);
    let mean = TAIL.mean_of(movie, &mut draw);
    let tail = draw.poisson(mean).min(2_500);
    Plan { common, releases, tail }
}

/// How many rows of `movie_info` a title has, besides those given for a famous one.
pub(crate) fn count(movie: &Movie) -> u32 {
    let plan = plan(movie);
    plan.common.iter().sum::<u32>() + plan.releases + plan.tail
}

/// Appends the rows of `movie_info` of one title, the first with `first_id`.
pub(crate) fn movie_info_rows(world: &World, movie: &Movie, first_id: u32, rows: &mut Rows) {
    let mut id = first_id;
    let mut append = |fact: u32, text: &str, note: &str| {
        rows.int(id);
        rows.int(movie.id);
        rows.int(fact);
        rows.text(text);
        rows.text_or_null(note);
        id += 1;
    };
    for &(fact, text, note) in movie.famous.map_or(&[][..], |famous| famous.infos) {
        append(fact, text, note);
    }
    let plan = plan(movie);
    let mut draw = movie.draw(53);
    let (mut text, mut note) = (String::new(), String::new());
    for ((fact, _), count) in SHARES.into_iter().zip(plan.common) {
        for slot in 0..count {
            text.clear();
            note.clear();
            match fact {
                RUNTIMES => {
                    if draw.chance(0.2) {
                        let _ = write!(text, "{}:", PLACES[movie.place].name);
                    }
                    let _ = write!(text, "{}", runtime(movie, &mut draw));
                    if draw.chance(0.06) {
                        note.push_str("(approx.)");
                    }
                }
                COLOR => {
                    let gray = movie.year.is_some_and(|year| year < 1965) && draw.chance(0.9);
                    text.push_str(if gray { "Black and White" } else { "Color" });
                }
                GENRES => text.push_str(genre_name(movie.genres[slot as usize])),
                LANGUAGES if slot == 0 => text.push_str(PLACES[movie.place].language),
                LANGUAGES => text.push_str(PLACES[world.places.titles.pick(&mut draw)].language),
                _ if slot == 0 => text.push_str(country(movie)),
                _ => text.push_str(PLACES[world.places.titles.pick(&mut draw)].name),
            }
            append(fact, &text, &note);
        }
    }
    for slot in 0..plan.releases {
        text.clear();
        note.clear();
        push_release(world, movie, slot, &mut text, &mut note, &mut draw);
        append(RELEASES, &text, &note);
    }
    let mut has_budget = movie.famous.is_some();
    for _ in 0..plan.tail {
        text.clear();
        note.clear();
        let mut fact = TAIL_KINDS[world.tail_kinds.pick(&mut draw)].0;
        if fact == BUDGET {
            // A film has one budget; the second becomes a trivia.
            fact = if has_budget { TRIVIA } else { BUDGET };
            has_budget = true;
        }
        push_tail(movie, fact, &mut text, &mut note, &mut draw);
        append(fact, &text, &note);
    }
}

/// The country of a title, which may be two by its former name.
fn country(movie: &Movie) -> &'static str {
    let name = PLACES[movie.place].name;
    match (name, movie.year) {
        ("Germany", Some(1949..=1989)) => "West Germany",
        ("West Germany" | "East Germany", Some(1990..)) => "Germany",
        ("Soviet Union", Some(1992..)) => "Russia",
        ("Russia", Some(1922..=1991)) => "Soviet Union",
        _ => name,
    }
}

fn runtime(movie: &Movie, draw: &mut Draw) -> u32 {
    match movie.kind.class() {
        1 | 2 => draw.pick(&[30, 60, 22, 45, 25, 50, 24, 44, 90]),
        _ if movie.genres.first().is_some_and(|&genre| genre_name(genre) == "Short") => {
            2 + draw.below(28)
        }
        _ => 70 + draw.below(60),
    }
}

fn push_release(
    world: &World,
    movie: &Movie,
    slot: u32,
    text: &mut String,
    note: &mut String,
    draw: &mut Draw,
) {
    let place =
        if slot == 0 || draw.chance(0.08) { movie.place } else { world.places.markets.pick(draw) };
    let lag = match draw.unit() {
        u if u < 0.74 => 0,
        u if u < 0.93 => 1,
        _ => 2 + draw.below(6),
    };
    let year = (movie.year_or_recent() + lag).min(2015);
    let _ = write!(text, "{}:", PLACES[place].name);
    match draw.unit() {
        u if u < 0.78 => {
            let _ = write!(text, "{} {} {year}", 1 + draw.below(28), draw.pick(&MONTHS));
        }
        u if u < 0.9 => {
            let _ = write!(text, "{} {year}", draw.pick(&MONTHS));
        }
        _ => {
            let _ = write!(text, "{year}");
        }
    }
    let online = if year > 2000 { 0.0068 * (-0.8 * movie.popularity).exp().min(2.5) } else { 0.0 };
    match draw.unit() {
        u if u < online * if place == USA { 1.6 } else { 0.7 } => note.push_str("(internet)"),
        u if u < 0.05 => note.push_str("(limited)"),
        u if u < 0.09 => note.push_str("(premiere)"),
        u if u < 0.22 => {
            push_surname(note, draw);
            note.insert(0, '(');
            note.push_str(" Film Festival)");
        }
        u if u < 0.24 => note.push_str("(DVD premiere)"),
        u if u < 0.26 => note.push_str("(re-release)"),
        _ => {}
    }
}

fn push_tail(movie: &Movie, fact: u32, text: &mut String, note: &mut String, draw: &mut Draw) {
    let money = |draw: &mut Draw| {
        let digits = 3 + draw.below(5);
        format!("{},000", (1 + draw.below(9)) * 10u32.pow(digits) / 1000)
    };
    match fact {
        5 => {
            let (place, rating) = draw.pick(&[
                ("USA", "R"),
                ("USA", "PG-13"),
                ("UK", "15"),
                ("Finland", "K-16"),
                ("Sweden", "15"),
                ("Germany", "16"),
                ("Australia", "M"),
            ]);
            let _ = write!(text, "{place}:{rating}");
        }
        6 => text.push_str(
            draw.pick_skewed(&["Mono", "Stereo", "Silent", "Dolby Digital", "Dolby", "DTS"], 2),
        ),
        7 => text.push_str(draw.pick_skewed(
            &[
                "OFM:35 mm",
                "PFM:35 mm",
                "RAT:1.85 : 1",
                "RAT:1.33 : 1",
                "OFM:Video",
                "CAM:Panavision",
                "LAB:Technicolor",
            ],
            2,
        )),
        97 => {
            let _ = write!(
                text,
                "Rated R for {} and language",
                draw.pick(&["violence", "gore", "sexuality", "drug use"])
            );
        }
        BUDGET => {
            let _ = write!(text, "${}", money(draw));
        }
        106..=109 => {
            let _ = write!(text, "${} (USA) ({})", money(draw), movie.year_or_recent());
        }
        110 => {
            let _ = write!(text, "{} (Germany)", money(draw));
        }
        18 => {
            push_surname(text, draw);
            let _ = write!(text, ", {}", PLACES[movie.place].name);
            if draw.chance(0.25) {
                let _ = write!(
                    note,
                    "({})",
                    draw.pick(&["studio", "interior scenes", "exterior scenes"])
                );
            }
        }
        _ => {
            for _ in 0..3 + draw.below(4) {
                push_phrase(text, draw);
                text.push(' ');
            }
            let _ = write!(text, "{}.", draw.pick(&NOUNS).to_lowercase());
            if fact == 98 && draw.chance(0.9) {
                let _ = write!(note, "{} ", draw.pick(&MALE_NAMES));
                push_surname(note, draw);
            }
        }
    }
}
