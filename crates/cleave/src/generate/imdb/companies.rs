//! Companies and the titles they made, sold and showed: a head of known companies, and for each country a long tail of
//! others. The large distributors gather around the popular titles.

use super::super::random::{Draw, Weighted, checksum, floor32};
use super::super::rows::Rows;
use super::World;
use super::movie::{Kind, Movie};
use super::names::phonetic;
use super::places::{PLACES, USA};
use super::words::{NOUNS, QUALITIES, SURNAMES};
use std::fmt::Write as _;

/// Distributors, the first entry of `company_type`.
pub(crate) const DISTRIBUTOR: u32 = 1;
/// Production companies, the second entry of `company_type`.
pub(crate) const PRODUCER: u32 = 2;

/// A known company: its name, its country and its share of that country's rows, as a producer and as a distributor.
const HEAD: [(&str, &str, f64, f64); 64] = [
    ("Warner Bros. Pictures", "[us]", 0.006, 0.022),
    ("Warner Home Video", "[us]", 0.0, 0.03),
    ("Warner Bros. Television", "[us]", 0.008, 0.004),
    ("Metro-Goldwyn-Mayer (MGM)", "[us]", 0.006, 0.015),
    ("Universal Pictures", "[us]", 0.007, 0.018),
    ("Paramount Pictures", "[us]", 0.007, 0.017),
    ("20th Century Fox Film Corporation", "[us]", 0.001, 0.007),
    ("Twentieth Century Fox Film Corporation", "[us]", 0.006, 0.014),
    ("20th Century Fox Television", "[us]", 0.005, 0.003),
    ("Twentieth Century Fox Home Entertainment", "[us]", 0.0, 0.02),
    ("Columbia Pictures", "[us]", 0.006, 0.012),
    ("Walt Disney Pictures", "[us]", 0.002, 0.003),
    ("DreamWorks Animation", "[us]", 0.0006, 0.0005),
    ("Lionsgate", "[us]", 0.0008, 0.0014),
    ("Lionsgate Home Entertainment", "[us]", 0.0, 0.0008),
    ("Lionsgate Films", "[us]", 0.0003, 0.0003),
    ("Marvel Studios", "[us]", 0.0002, 0.0001),
    ("Marvel Enterprises", "[us]", 0.0004, 0.0001),
    ("YouTube", "[us]", 0.0002, 0.006),
    ("National Broadcasting Company (NBC)", "[us]", 0.016, 0.05),
    ("Columbia Broadcasting System (CBS)", "[us]", 0.015, 0.045),
    ("American Broadcasting Company (ABC)", "[us]", 0.012, 0.05),
    ("Fox Network", "[us]", 0.003, 0.025),
    ("Home Box Office (HBO)", "[us]", 0.004, 0.012),
    ("New Line Cinema", "[us]", 0.002, 0.005),
    ("Miramax Films", "[us]", 0.002, 0.004),
    ("Film Roman Productions", "[us]", 0.004, 0.0),
    ("Pathe Film Exchange", "[us]", 0.001, 0.006),
    ("General Film Company", "[us]", 0.0, 0.02),
    ("Vitagraph Company of America", "[us]", 0.009, 0.004),
    ("495 Productions", "[us]", 0.002, 0.0),
    ("The Asylum", "[us]", 0.001, 0.001),
    ("Internet Archive", "[us]", 0.0, 0.002),
    ("Warner Home Video", "[de]", 0.0, 0.03),
    ("Bavaria Film", "[de]", 0.02, 0.004),
    ("Zweites Deutsches Fernsehen (ZDF)", "[de]", 0.06, 0.06),
    ("Westdeutscher Rundfunk (WDR)", "[de]", 0.03, 0.02),
    ("Constantin Film", "[de]", 0.008, 0.02),
    ("Universum Film (UFA)", "[de]", 0.02, 0.03),
    ("Warner Home Video", "[gb]", 0.0, 0.02),
    ("British Broadcasting Corporation (BBC)", "[gb]", 0.12, 0.12),
    ("Granada Television", "[gb]", 0.03, 0.01),
    ("Channel 4 Television Corporation", "[gb]", 0.01, 0.03),
    ("Pathe Freres", "[fr]", 0.05, 0.05),
    ("France 2 (FR2)", "[fr]", 0.03, 0.02),
    ("Gaumont", "[fr]", 0.03, 0.02),
    ("Toei Animation Company", "[jp]", 0.05, 0.01),
    ("Tokyo Broadcasting System (TBS)", "[jp]", 0.03, 0.04),
    ("Fuji Television Network", "[jp]", 0.02, 0.05),
    ("Nippon Film Company", "[jp]", 0.01, 0.01),
    ("Nederlandse Omroep Stichting (NOS)", "[nl]", 0.03, 0.02),
    ("Warner Home Video", "[nl]", 0.0, 0.05),
    ("RTL Entertainment", "[nl]", 0.05, 0.08),
    ("Svensk Filmindustri (SF)", "[se]", 0.06, 0.08),
    ("Sveriges Television (SVT)", "[se]", 0.09, 0.07),
    ("Filmlance International AB", "[se]", 0.02, 0.0),
    ("Det Danske Filminstitut", "[dk]", 0.06, 0.01),
    ("Danmarks Radio (DR)", "[dk]", 0.08, 0.06),
    ("Mosfilm", "[ru]", 0.03, 0.01),
    ("Central Partnership", "[ru]", 0.04, 0.06),
    ("Cinecitta Film", "[it]", 0.01, 0.02),
    ("Televisa S.A. de C.V.", "[mx]", 0.2, 0.15),
    ("Film Polski", "[pl]", 0.04, 0.08),
    ("Zee Film Works", "[in]", 0.01, 0.01),
];

/// Fewest companies a database has.
pub(crate) const COMPANIES_MIN: u32 = 400;

/// The ids of one country's companies, and the known ones among them.
#[derive(Debug)]
struct Segment {
    first_id: u32,
    count: u32,
    /// Ids and shares of known companies, for producers and distributors.
    known: Vec<(u32, f64, f64)>,
}

/// The distributions of companies.
#[derive(Debug)]
pub(crate) struct Companies {
    segments: Vec<Segment>,
    /// Companies from here on have no country.
    stateless: Segment,
    markets: Weighted,
}

impl Companies {
    pub(crate) fn new(count: u32) -> Self {
        let head = u32::try_from(HEAD.len()).unwrap_or(0);
        let known_ids = (1..).zip(HEAD);
        let rest = count - head;
        let total: f64 = PLACES.iter().map(|place| place.companies).sum();
        let mut first_id = head + 1;
        let mut segments = Vec::with_capacity(PLACES.len());
        for place in &PLACES {
            let share = place.companies / total * 0.8982;
            let count = floor32(share * f64::from(rest));
            let known = known_ids
                .clone()
                .filter(|(_, (_, code, ..))| *code == place.code && place.companies > 0.0)
                .map(|(id, (_, _, producer, distributor))| (id, producer, distributor))
                .collect();
            segments.push(Segment { first_id, count, known });
            first_id += count;
        }
        let stateless = Segment { first_id, count: count + 1 - first_id, known: Vec::new() };
        Self { segments, stateless, markets: Weighted::new(PLACES.iter().map(|p| p.market)) }
    }

    /// A company in a country (None means without a country) for a title of some popularity.
    fn pick(&self, place: Option<usize>, kind: u32, popularity: f64, draw: &mut Draw) -> u32 {
        let segment = match place {
            // Films of a dissolved country were made by companies of its successor.
            Some(place)
                if self.segments[place].count == 0 && PLACES[place].name == "West Germany" =>
            {
                &self.segments[4]
            }
            Some(place) if self.segments[place].count > 0 => &self.segments[place],
            _ => &self.stateless,
        };
        // The known companies' shares grow with popularity, as e^(0.5 popularity).
        let mut unit = draw.unit();
        let fame = (0.55 * popularity - 0.3).exp().min(3.0);
        for &(id, producer, distributor) in &segment.known {
            let share = if kind == PRODUCER { producer } else { distributor } * fame;
            if unit < share {
                return id;
            }
            unit -= share;
        }
        let rank = draw.unit().powi(3) * f64::from(segment.count);
        segment.first_id + floor32(rank).min(segment.count.saturating_sub(1))
    }
}

/// The id of the known company called `name`, if it is one of the head.
pub(crate) fn company_named(name: &str) -> Option<u32> {
    HEAD.iter()
        .position(|&(company, ..)| company == name)
        .and_then(|index| u32::try_from(index + 1).ok())
}

/// Appends the row of `company_name` with `id`.
pub(crate) fn company_name_row(world: &World, id: u32, rows: &mut Rows) {
    let mut name = String::new();
    let mut code = "";
    let mut draw = Draw::new(world.seed, 0x636F_0000_0000 + u64::from(id));
    if let Some((known, country, ..)) = HEAD.get(id as usize - 1) {
        name.push_str(known);
        code = country;
    } else {
        let companies = &world.companies;
        if id < companies.stateless.first_id {
            let after = companies.segments.partition_point(|segment| segment.first_id <= id);
            code = PLACES[after.saturating_sub(1)].code;
        }
        match draw.below(4) {
            0 => name.push_str(draw.pick(&SURNAMES)),
            1 => {
                name.push_str(draw.pick(&QUALITIES));
                name.push(' ');
                name.push_str(draw.pick(&NOUNS));
            }
            2 => {
                name.push_str(draw.pick(&SURNAMES));
                name.push_str(" & ");
                name.push_str(draw.pick(&SURNAMES));
            }
            _ => name.push_str(draw.pick(&NOUNS)),
        }
        name.push_str(draw.pick(&[
            " Productions",
            " Films",
            " Pictures",
            " Entertainment",
            " Film",
            " Filmproduktion",
            " Television",
            " Studios",
            " Media",
            " Video",
            " Home Video",
            " Filmes",
            " Cinema",
            "",
        ]));
        if id.is_multiple_of(7) {
            let _ = write!(name, " {}", id / 7);
        }
    }
    let sound = phonetic(&name);
    rows.int(id);
    rows.text(&name);
    rows.text_or_null(code);
    rows.null();
    rows.text_or_null(&sound);
    rows.text_or_null(if code.is_empty() { "" } else { &sound });
    rows.text(&checksum(world.seed, 0x636F, id));
}

/// Appends the rows of `movie_companies` of one title: `makers` producers, then `sellers` distributors.
pub(crate) fn movie_companies_rows(
    world: &World,
    movie: &Movie,
    first_id: u32,
    (makers, sellers): (u32, u32),
    rows: &mut Rows,
) {
    let known = movie.famous.map_or(&[][..], |famous| famous.companies);
    let mut draw = movie.draw(31);
    let mut note = String::new();
    for slot in 0..makers + sellers {
        note.clear();
        let (company, kind) = match known.get(slot as usize) {
            Some(&(name, kind, text)) => {
                note.push_str(text);
                (company_named(name).unwrap_or(1), kind)
            }
            None if slot < makers => (producer(world, movie, slot, &mut note, &mut draw), PRODUCER),
            None => {
                let nth = slot - makers;
                (distributor(world, movie, nth, sellers, &mut note, &mut draw), DISTRIBUTOR)
            }
        };
        rows.int(first_id + slot);
        rows.int(movie.id);
        rows.int(company);
        rows.int(kind);
        rows.text_or_null(&note);
    }
}

fn producer(world: &World, movie: &Movie, slot: u32, note: &mut String, draw: &mut Draw) -> u32 {
    let roll = draw.unit();
    if roll < 0.1056 + 0.035 * (movie.popularity - 0.5).clamp(-1.5, 2.0) {
        match draw.unit() {
            u if u < 0.24 => note.push_str("(co-production)"),
            u if u < 0.46 => note.push_str("(presents)"),
            u if u < 0.64 => note.push_str("(in association with)"),
            u if u < 0.72 => note.push_str("(in co-production with)"),
            u if u < 0.722 => note.push_str("(as Metro-Goldwyn-Mayer Pictures) (presents)"),
            u if u < 0.723 => note.push_str("(as Metro-Goldwyn-Mayer Pictures)"),
            u if u < 0.729 => note.push_str("(co-production) (USA)"),
            u if u < 0.80 => note.push_str("(produced in association with)"),
            u => {
                let _ = write!(note, "(as {} {})", draw.pick(&SURNAMES), draw.pick(&NOUNS));
                if u < 0.86 {
                    note.push_str(" (presents)");
                }
            }
        }
    }
    let place = match draw.unit() {
        u if u < 0.035 => None,
        u if u < 0.87 || slot == 0 => Some(movie.place),
        u if u < 0.90 => Some(USA),
        _ => Some(world.companies.markets.pick(draw)),
    };
    world.companies.pick(place, PRODUCER, movie.popularity, draw)
}

fn distributor(
    world: &World,
    movie: &Movie,
    nth: u32,
    of: u32,
    note: &mut String,
    draw: &mut Draw,
) -> u32 {
    // The first few sell at home; the longer the list, the more of it is abroad.
    let home = match movie.kind {
        Kind::Episode => 0.88,
        _ if nth == 0 => 0.9,
        _ => (if movie.era() >= 4 { 0.56 } else { 0.95 }) / (1.0 + 0.055 * f64::from(of)),
    };
    let place = match draw.unit() {
        _ if draw.chance(0.03) => None,
        u if u < home => Some(movie.place),
        _ => Some(world.companies.markets.pick(draw)),
    };
    // The Internet is worldwide; small films, and those from the United States, more so.
    let worldwide = if place == Some(USA) { 0.33 } else { 0.10 }
        * (1.0 - 0.35 * movie.popularity).clamp(0.3, 1.5);
    if !draw.chance(0.061) {
        // The first sell new films. The others, which only popular titles have, sell discs, which came when many of the
        // films were old.
        let made = movie.year_or_recent();
        let lag = match draw.unit() {
            u if nth < 2 && u < 0.80 => u32::from(u > 0.70),
            u if nth < 2 || u < 0.70 => draw.below(3),
            _ if made < 1999 => 1_999 - made + draw.below(14),
            _ => draw.below(9),
        };
        // A few sell films that are not made yet.
        let early = u32::from(draw.chance(0.012));
        let year = (made + lag - early).min(2013);
        if draw.chance(0.95) {
            let _ = write!(note, "({year}) ");
        }
        let global = (2_000..2_010).contains(&year) && draw.chance(worldwide);
        let country = match place {
            _ if global => "worldwide",
            Some(place) => PLACES[place].name,
            None => PLACES[movie.place].name,
        };
        let _ = write!(note, "({country})");
        let medium = match (movie.kind, draw.unit()) {
            (_, u) if u < 0.04 => "",
            (Kind::Episode | Kind::Series | Kind::TvMovie, u) if u < 0.72 => " (TV)",
            (Kind::VideoGame, _) => "",
            (_, u) if lag < 2 && u < 0.68 => " (theatrical)",
            (_, u) if year >= 2007 && u < 0.73 => " (Blu-ray)",
            (_, _) if year >= 1999 => match draw.unit() {
                u if u < 0.78 => " (DVD)",
                u if u < 0.84 => " (all media)",
                u if u < 0.91 => " (TV)",
                _ => " (internet)",
            },
            (_, _) if year >= 1980 => " (VHS)",
            _ => " (theatrical)",
        };
        note.push_str(medium);
    }
    world.companies.pick(place, DISTRIBUTOR, movie.popularity, draw)
}
