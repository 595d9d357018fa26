//! Keywords and which titles have them: a head of known keywords, each with its own frequency and
//! the kind of title it suits, and a long tail whose frequency falls with the id.

use super::super::random::{Draw, Weighted, floor32};
use super::super::rows::Rows;
use super::World;
use super::links::is_keen;
use super::movie::{Kind, Movie};
use super::names::phonetic;
use super::words::{NOUNS, QUALITIES};

/// The titles that a keyword suits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Suits {
    Any,
    Violent,
    Fight,
    Animation,
    /// Titles that may have few other keywords: a fact about their name.
    Name,
}
use Suits::{Animation, Any, Fight, Name, Violent};

/// Keywords with the number of titles that have them at scale 1.
const HEAD: [(&str, f64, Suits); 146] = [
    ("character-name-in-title", 41840.0, Name),
    ("sequel", 10544.0, Any),
    ("based-on-novel", 17000.0, Any),
    ("murder", 18900.0, Violent),
    ("death", 9200.0, Violent),
    ("blood", 8000.0, Violent),
    ("violence", 9600.0, Violent),
    ("gore", 6000.0, Violent),
    ("female-nudity", 20000.0, Violent),
    ("male-nudity", 9000.0, Violent),
    ("hospital", 5000.0, Violent),
    ("revenge", 8500.0, Violent),
    ("murder-in-title", 650.0, Violent),
    ("second-part", 1150.0, Any),
    ("superhero", 2300.0, Fight),
    ("marvel-comics", 620.0, Fight),
    ("based-on-comic", 3300.0, Fight),
    ("tv-special", 2900.0, Any),
    ("fight", 5000.0, Fight),
    ("magnet", 60.0, Fight),
    ("web", 110.0, Fight),
    ("claw", 60.0, Fight),
    ("laser", 400.0, Fight),
    ("hero", 1800.0, Fight),
    ("martial-arts", 5000.0, Fight),
    ("hand-to-hand-combat", 2900.0, Fight),
    ("computer-animation", 414.0, Animation),
    ("computer-animated-movie", 160.0, Animation),
    ("marvel-cinematic-universe", 8.0, Fight),
    ("10,000-mile-club", 0.0, Any),
    ("nerd", 1500.0, Any),
    ("loner", 900.0, Any),
    ("alienation", 600.0, Any),
    ("dignity", 150.0, Any),
    ("sequel-to-cult-favorite", 700.0, Any),
    ("direct-to-video-sequel-to-theatrical-movie", 500.0, Any),
    ("unnecessary-sequel", 350.0, Any),
    ("sequel-baiting", 450.0, Any),
    ("sequel-mentioned-during-end-credits", 180.0, Any),
    ("sequel-in-name-only", 120.0, Any),
    ("love", 10500.0, Any),
    ("friendship", 9500.0, Any),
    ("father-son-relationship", 12500.0, Any),
    ("mother-son-relationship", 8000.0, Any),
    ("mother-daughter-relationship", 7800.0, Any),
    ("father-daughter-relationship", 8500.0, Any),
    ("husband-wife-relationship", 13500.0, Any),
    ("brother-brother-relationship", 5200.0, Any),
    ("brother-sister-relationship", 4900.0, Any),
    ("family-relationships", 9000.0, Any),
    ("boyfriend-girlfriend-relationship", 5000.0, Any),
    ("independent-film", 19000.0, Any),
    ("new-york-city", 9800.0, Any),
    ("los-angeles-california", 5200.0, Any),
    ("london-england", 4200.0, Any),
    ("paris-france", 2900.0, Any),
    ("sex", 13500.0, Any),
    ("kidnapping", 6000.0, Violent),
    ("police", 8500.0, Violent),
    ("policeman", 3500.0, Violent),
    ("detective", 4900.0, Violent),
    ("prison", 4700.0, Violent),
    ("gun", 4300.0, Violent),
    ("shot-to-death", 4000.0, Violent),
    ("stabbed-to-death", 2400.0, Violent),
    ("knife", 3400.0, Violent),
    ("corpse", 3200.0, Violent),
    ("suicide", 7600.0, Violent),
    ("rape", 5200.0, Violent),
    ("torture", 3700.0, Violent),
    ("serial-killer", 3000.0, Violent),
    ("zombie", 2100.0, Violent),
    ("vampire", 2000.0, Violent),
    ("ghost", 3600.0, Violent),
    ("monster", 2700.0, Violent),
    ("gangster", 3600.0, Violent),
    ("robbery", 3700.0, Violent),
    ("drugs", 4200.0, Violent),
    ("explosion", 3600.0, Fight),
    ("chase", 3900.0, Fight),
    ("sword", 1800.0, Fight),
    ("kung-fu", 1500.0, Fight),
    ("fistfight", 2800.0, Fight),
    ("battle", 1900.0, Fight),
    ("robot", 1800.0, Fight),
    ("alien", 2300.0, Fight),
    ("spaceship", 1100.0, Fight),
    ("anime", 2600.0, Animation),
    ("anthropomorphic-animal", 900.0, Animation),
    ("cartoon-cat", 420.0, Animation),
    ("cartoon-mouse", 300.0, Animation),
    ("talking-animal", 800.0, Animation),
    ("surrealism", 2300.0, Any),
    ("satire", 2200.0, Any),
    ("parody", 2300.0, Any),
    ("remake", 2900.0, Any),
    ("number-in-title", 6900.0, Name),
    ("place-name-in-title", 6300.0, Name),
    ("one-word-title", 5200.0, Name),
    ("animal-in-title", 2100.0, Name),
    ("based-on-play", 6100.0, Any),
    ("based-on-true-story", 3600.0, Any),
    ("world-war-two", 4300.0, Any),
    ("flashback", 6400.0, Any),
    ("cult-film", 3600.0, Any),
    ("surprise-ending", 3200.0, Any),
    ("wedding", 4000.0, Any),
    ("marriage", 5200.0, Any),
    ("infidelity", 4400.0, Any),
    ("adultery", 3300.0, Any),
    ("pregnancy", 3500.0, Any),
    ("divorce", 2500.0, Any),
    ("jealousy", 3700.0, Any),
    ("money", 3500.0, Any),
    ("party", 3800.0, Any),
    ("dancing", 4300.0, Any),
    ("singing", 3500.0, Any),
    ("singer", 4500.0, Any),
    ("song", 3000.0, Any),
    ("dog", 6300.0, Any),
    ("cat", 2600.0, Any),
    ("horse", 3300.0, Any),
    ("train", 3200.0, Any),
    ("airplane", 2500.0, Any),
    ("teacher", 3000.0, Any),
    ("doctor", 4000.0, Any),
    ("nurse", 2000.0, Any),
    ("lawyer", 2500.0, Any),
    ("school", 3600.0, Any),
    ("high-school", 3200.0, Any),
    ("christmas", 3700.0, Any),
    ("gay", 3600.0, Any),
    ("lesbian", 3400.0, Any),
    ("homosexual", 3800.0, Any),
    ("prostitute", 3300.0, Any),
    ("alcoholic", 2400.0, Any),
    ("cigarette-smoking", 3800.0, Any),
    ("telephone-call", 2800.0, Any),
    ("restaurant", 2600.0, Any),
    ("beach", 2600.0, Any),
    ("forest", 2400.0, Any),
    ("small-town", 3300.0, Any),
    ("politics", 2700.0, Any),
    ("friend", 2000.0, Any),
    ("escape", 3200.0, Any),
    ("dream", 3600.0, Any),
];

/// Fewest keywords a database has.
pub(crate) const KEYWORDS_MIN: u32 = 1_000;

/// Ids after the head below which each further tenth of the tail's rows lies.
const TAIL_TENTHS: [f64; 11] = [
    1.0, 330.0, 830.0, 1_650.0, 2_850.0, 4_600.0, 7_500.0, 12_200.0, 20_100.0, 39_000.0, 134_000.0,
];
/// Rows of `movie_keyword` at scale 1.
const ROWS: f64 = 4_523_930.0;

/// The distributions of keywords.
#[derive(Debug)]
pub(crate) struct Keywords {
    /// For titles of any genre, violent ones, those with action, and animated ones.
    mixes: [Weighted; 4],
    /// For the first keyword of a title.
    first: Weighted,
    /// Natural logarithm of the tail's length, over that at scale 1.
    stretch: f64,
    count: u32,
}

impl Keywords {
    pub(crate) fn new(count: u32) -> Self {
        let mix = |violent: f64, fight: f64, animation: f64| {
            Weighted::new(HEAD.iter().map(|&(_, rows, suits)| {
                rows * match suits {
                    Any => 1.0,
                    Violent => violent,
                    Fight => fight,
                    Animation => animation,
                    Name => 0.12,
                }
            }))
        };
        let tail = f64::from(count) - HEAD.len() as f64;
        Self {
            mixes: [
                mix(0.58, 0.5, 0.2),
                mix(2.3, 1.5, 0.2),
                mix(1.4, 2.8, 0.4),
                mix(0.2, 1.6, 14.0),
            ],
            first: Weighted::new(
                HEAD.iter().map(|&(_, rows, suits)| if suits == Name { rows } else { 0.0 }),
            ),
            stretch: tail.ln() / TAIL_TENTHS[10].ln(),
            count,
        }
    }

    /// The id of the keyword called `name`, if it is one of the head.
    pub(crate) fn named(name: &str) -> Option<u32> {
        HEAD.iter()
            .position(|&(keyword, ..)| keyword == name)
            .and_then(|index| u32::try_from(index + 1).ok())
    }

    /// The `slot`th of `slots` keywords of `movie`.
    fn pick(&self, movie: &Movie, slot: u32, slots: u32, draw: &mut Draw) -> u32 {
        let serial = movie.kind.class() == 2;
        if slot == 0 && draw.chance(if serial { 0.055 } else { 0.075 }) {
            return id_of(self.first.pick(draw));
        }
        // Series that follow others are called sequels, mostly where these are counted.
        if slot == 1 && movie.kind.class() == 1 && is_keen(movie) && draw.chance(0.2) {
            return Self::named("sequel").unwrap_or(1);
        }
        let mix = if movie.is_animated() {
            &self.mixes[3]
        } else if movie.is_violent() {
            &self.mixes[1]
        } else if movie.is_martial() {
            &self.mixes[2]
        } else {
            &self.mixes[0]
        };
        // Each slot draws from its own slice of the distribution, so that few keywords repeat.
        let unit = (f64::from(slot) + draw.unit()) / f64::from(slots);
        let head = mix.total() / ROWS;
        if unit < head {
            return id_of(mix.at(unit / head));
        }
        let tenths = (unit - head) / (1.0 - head) * 10.0;
        let tenth = floor32(tenths).min(9);
        let (low, high) = (TAIL_TENTHS[tenth as usize], TAIL_TENTHS[tenth as usize + 1]);
        let within = tenths - f64::from(tenth);
        let at = if tenth == 0 {
            low + (high - low) * within.powf(1.4)
        } else {
            low * (high / low).powf(within)
        };
        (id_of(HEAD.len()) + floor32(at.powf(self.stretch) - 1.0)).min(self.count)
    }
}

fn id_of(index: usize) -> u32 {
    u32::try_from(index + 1).unwrap_or(u32::MAX)
}

/// Appends the row of `keyword` with `id`.
pub(crate) fn keyword_row(world: &World, id: u32, rows: &mut Rows) {
    let mut text = String::new();
    match HEAD.get(id as usize - 1) {
        Some((keyword, ..)) => text.push_str(keyword),
        None => {
            let mut draw = Draw::new(world.seed, 0x6B77_0000_0000 + u64::from(id));
            text.push_str(&draw.pick(&QUALITIES).to_lowercase());
            text.push('-');
            text.push_str(&draw.pick(&NOUNS).to_lowercase());
            if id > 2_000 {
                text.push('-');
                text.push_str(&draw.pick(&NOUNS).to_lowercase());
            }
        }
    }
    rows.int(id);
    rows.text(&text);
    rows.text_or_null(&phonetic(&text));
}

/// Appends the `count` rows of `movie_keyword` of one title, the first with `first_id`.
pub(crate) fn movie_keyword_rows(
    world: &World,
    movie: &Movie,
    first_id: u32,
    count: u32,
    rows: &mut Rows,
) {
    let known = movie.famous.map_or(&[][..], |famous| famous.keywords);
    let mut draw = movie.draw(21);
    for slot in 0..count {
        let keyword = match known.get(slot as usize).and_then(|name| Keywords::named(name)) {
            Some(keyword) => keyword,
            // The one keyword that exactly one title has.
            None if movie.kind == Kind::Film && movie.id == world.titles && slot == 0 => {
                Keywords::named("10,000-mile-club").unwrap_or(1)
            }
            None => world.keywords.pick(movie, slot, count, &mut draw),
        };
        rows.int(first_id + slot);
        rows.int(movie.id);
        rows.int(keyword);
    }
}
