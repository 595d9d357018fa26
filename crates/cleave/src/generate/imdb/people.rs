//! The people: their names, how busy each is, alternative names and biographical facts.
//!
//! Ids fall into three ranges, as in the original: men, women, and those of unknown sex because they never acted.
//! Within a range a scattered order determines who is busiest.

use super::super::random::{Draw, Scatter, checksum, floor32, mix};
use super::super::rows::Rows;
use super::World;
use super::cast::{ACTOR, ACTRESS};
use super::famous::FAMOUS_PEOPLE;
use super::names::{Gender, first_name, phonetic, push_person, push_phrase, push_surname};
use super::words::MALE_NAMES;
use std::fmt::Write as _;

/// Fewest people a database has.
pub(crate) const PEOPLE_MIN: u32 = 1_000;

const MALE_SHARE: f64 = 0.417;
const FEMALE_SHARE: f64 = 0.231;

/// The ranges of ids.
#[derive(Debug)]
pub(crate) struct People {
    pub(crate) count: u32,
    men: Range,
    women: Range,
    others: Range,
}

#[derive(Debug)]
struct Range {
    first_id: u32,
    count: u32,
    scatter: Scatter,
}

impl Range {
    fn new(first_id: u32, count: u32, seed: u64) -> Self {
        Self { first_id, count, scatter: Scatter::new(count, mix(seed, u64::from(first_id))) }
    }

    /// A person, the busier the likelier: the density falls with the square root of the rank.
    fn pick(&self, draw: &mut Draw) -> u32 {
        let unit = draw.unit();
        let rank = floor32(unit * unit * f64::from(self.count)).min(self.count - 1);
        self.first_id + self.scatter.apply(rank)
    }
}

impl People {
    pub(crate) fn new(count: u32, seed: u64) -> Self {
        let men = floor32(f64::from(count) * MALE_SHARE);
        let women = floor32(f64::from(count) * FEMALE_SHARE);
        Self {
            count,
            men: Range::new(1, men, seed),
            women: Range::new(1 + men, women, seed),
            others: Range::new(1 + men + women, count - men - women, seed),
        }
    }

    fn range_of(&self, id: u32) -> (&Range, Gender) {
        if id >= self.others.first_id {
            (&self.others, Gender::Unknown)
        } else if id >= self.women.first_id {
            (&self.women, Gender::Female)
        } else {
            (&self.men, Gender::Male)
        }
    }

    /// A person for a role.
    pub(crate) fn pick(&self, role: u32, draw: &mut Draw) -> u32 {
        match role {
            ACTOR => self.men.pick(draw),
            ACTRESS => self.women.pick(draw),
            _ => match draw.unit() {
                u if u < 0.34 => self.men.pick(draw),
                u if u < 0.45 => self.women.pick(draw),
                _ => self.others.pick(draw),
            },
        }
    }

    /// How busy a person is: 1 for the busiest of a range, towards 0 for the least.
    fn fame(&self, id: u32) -> f64 {
        let (range, _) = self.range_of(id);
        let rank = range.scatter.invert(id - range.first_id);
        1.0 - f64::from(rank) / f64::from(range.count)
    }

    /// The id of the famous person called `name`: men and women start with the famous ones.
    pub(crate) fn famous(&self, name: &str) -> u32 {
        let mut next = [self.men.first_id, self.women.first_id];
        for person in &FAMOUS_PEOPLE {
            let next = &mut next[usize::from(person.gender == Gender::Female)];
            if person.name == name {
                return *next;
            }
            *next += 1;
        }
        self.men.first_id
    }

    fn famous_at(&self, id: u32) -> Option<&'static super::famous::FamousPerson> {
        let (range, gender) = self.range_of(id);
        let place = (id - range.first_id) as usize;
        if gender == Gender::Unknown || place >= FAMOUS_PEOPLE.len() {
            return None;
        }
        FAMOUS_PEOPLE.iter().filter(|person| person.gender == gender).nth(place)
    }
}

/// Appends the row of `name` with `id`.
pub(crate) fn name_row(world: &World, id: u32, rows: &mut Rows) {
    let (_, gender) = world.people.range_of(id);
    let mut name = String::new();
    let mut draw = Draw::new(world.seed, 0x706E_0000_0000 + u64::from(id));
    match world.people.famous_at(id) {
        Some(person) => name.push_str(person.name),
        None => push_person(&mut name, gender, &mut draw),
    }
    rows.int(id);
    rows.text(&name);
    rows.text_or_null(if draw.chance(0.2133) {
        draw.pick_skewed(&["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI"], 2)
    } else {
        ""
    });
    rows.null();
    rows.text_or_null(match gender {
        Gender::Male => "m",
        Gender::Female => "f",
        Gender::Unknown => "",
    });
    push_sounds(&name, rows);
    rows.text(&checksum(world.seed, 0x706E, id));
}

/// Appends the three phonetic columns of a person: as written, first name first, family name.
fn push_sounds(name: &str, rows: &mut Rows) {
    let whole = phonetic(name);
    rows.text_or_null(&whole);
    match name.split_once(", ") {
        Some((family, first)) => {
            rows.text_or_null(&phonetic(&format!("{first} {family}")));
            // A family name that sounds like the whole name is stored only once.
            let sound = phonetic(family);
            rows.text_or_null(if sound == whole { "" } else { &sound });
        }
        None => {
            rows.null();
            rows.null();
        }
    }
}

/// How many rows of `aka_name` the person with `id` has.
pub(crate) fn alias_count(world: &World, id: u32) -> u32 {
    if world.people.famous_at(id).is_some() {
        return 2;
    }
    let mut draw = Draw::new(world.seed, 0x616E_0000_0000 + u64::from(id));
    let fame = world.people.fame(id);
    // Anyone may have another name; the few very busy people have several.
    u32::from(draw.chance(0.05)) + draw.poisson(4.1 * fame.powi(24)).min(60)
}

/// Appends the rows of `aka_name` of one person.
pub(crate) fn alias_rows(world: &World, id: u32, first_id: u32, count: u32, rows: &mut Rows) {
    let (_, gender) = world.people.range_of(id);
    let mut draw = Draw::new(world.seed, 0x6161_0000_0000 + u64::from(id));
    let mut name = String::new();
    for slot in 0..count {
        name.clear();
        match draw.below(10) {
            0 => {
                let _ = write!(name, "\"{}\"", first_name(gender, &mut draw));
            }
            1 => name.push_str(first_name(gender, &mut draw)),
            _ => push_person(&mut name, gender, &mut draw),
        }
        rows.int(first_id + slot);
        rows.int(id);
        rows.text(&name);
        rows.null();
        push_sounds(&name, rows);
        rows.text(&checksum(world.seed, 0x616E, first_id + slot));
    }
}

/// Kinds of facts about people: ids of `info_type` with their shares.
const FACTS: [(u32, f64); 22] = [
    (15, 0.055),
    (17, 0.19),
    (19, 0.075),
    (20, 0.105),
    (21, 0.125),
    (22, 0.09),
    (23, 0.06),
    (24, 0.045),
    (25, 0.13),
    (26, 0.05),
    (28, 0.02),
    (29, 0.006),
    (30, 0.002),
    (31, 0.003),
    (32, 0.006),
    (33, 0.008),
    (34, 0.01),
    (35, 0.012),
    (36, 0.015),
    (37, 0.01),
    (38, 0.006),
    (39, 0.02),
];

/// How many rows of `person_info` the person with `id` has.
pub(crate) fn fact_count(world: &World, id: u32) -> u32 {
    if world.people.famous_at(id).is_some() {
        return FAMOUS_FACTS + 5;
    }
    let mut draw = Draw::new(world.seed, 0x7069_0000_0000 + u64::from(id));
    let fame = world.people.fame(id);
    let noise = (0.7 * draw.normal()).exp();
    let of_anyone = if draw.chance(0.055) { 1 + draw.poisson(2.0 * noise) } else { 0 };
    (of_anyone + draw.poisson(8.6 * fame.powi(20) * noise)).min(300)
}

/// Famous people have a trivia, a height and a biography for certain.
const FAMOUS_FACTS: u32 = 3;

/// Appends the rows of `person_info` of one person.
pub(crate) fn fact_rows(world: &World, id: u32, first_id: u32, count: u32, rows: &mut Rows) {
    let famous = world.people.famous_at(id).is_some();
    let mut draw = Draw::new(world.seed, 0x7070_0000_0000 + u64::from(id));
    let mut text = String::new();
    for slot in 0..count {
        text.clear();
        let fact = match slot {
            0 if famous => 17,
            1 if famous => 22,
            2 if famous => 19,
            _ => {
                let mut unit = draw.unit() * 1.043;
                FACTS
                    .iter()
                    .find(|&&(_, share)| {
                        unit -= share;
                        unit < 0.0
                    })
                    .map_or(17, |&(fact, _)| fact)
            }
        };
        let year = 1880 + draw.below(115);
        match fact {
            20 => {
                push_surname(&mut text, &mut draw);
                text.push_str(draw.pick(&[
                    "ville, USA",
                    " City, USA",
                    ", UK",
                    ", France",
                    ", Germany",
                ]));
            }
            21 | 23 => {
                let month = draw.pick(&super::infos::MONTHS);
                let _ = write!(text, "{} {month} {}", 1 + draw.below(28), year.min(1999));
            }
            22 => {
                let _ = write!(text, "{} cm", 150 + draw.below(50));
            }
            24 => {
                text.push('\'');
                push_person(&mut text, Gender::Unknown, &mut draw);
                let _ = write!(text, "' ({} - present)", 1950 + draw.below(63));
            }
            _ => {
                for _ in 0..2 + draw.below(5) {
                    push_phrase(&mut text, &mut draw);
                    text.push(' ');
                }
                text.truncate(text.trim_end().len());
            }
        }
        rows.int(first_id + slot);
        rows.int(id);
        rows.int(fact);
        rows.text(&text);
        if fact == 19 && (famous || draw.chance(0.33)) {
            let author = match draw.unit() {
                u if famous || u < 0.055 => "Volker Boehm",
                u if u < 0.2 => "Anonymous",
                _ => "",
            };
            if author.is_empty() {
                text.clear();
                let _ = write!(text, "{} ", draw.pick(&MALE_NAMES));
                push_surname(&mut text, &mut draw);
                rows.text(&text);
            } else {
                rows.text(author);
            }
        } else {
            rows.null();
        }
    }
}
