//! The cast tables: who worked on a title, in which role, as which character; and the characters themselves.

use super::super::random::{Draw, Weighted, checksum, floor32};
use super::super::rows::Rows;
use super::World;
use super::movie::Movie;
use super::names::{phonetic, push_surname};
use super::places::JAPAN;
use super::words::{CHARACTERS, FEMALE_NAMES, MALE_NAMES, NOUNS, QUALITIES, SURNAMES};
use std::fmt::Write as _;

/// Ids of `role_type`.
pub(crate) const ACTOR: u32 = 1;
/// See [`ACTOR`].
pub(crate) const ACTRESS: u32 = 2;
/// See [`ACTOR`].
pub(crate) const PRODUCER: u32 = 3;
/// See [`ACTOR`].
pub(crate) const WRITER: u32 = 4;
const CREW: u32 = 10;

/// Shares of the roles 1 to 11 among the cast of films, series, episodes and others.
const ROLES: [[f64; 11]; 4] = [
    [39.0, 19.5, 5.2, 7.0, 3.6, 3.0, 1.2, 5.6, 3.6, 10.5, 1.7],
    [38.0, 22.0, 10.0, 9.0, 2.0, 3.0, 0.7, 3.0, 3.0, 9.5, 1.5],
    [32.5, 20.5, 9.8, 11.2, 2.7, 2.3, 0.9, 3.6, 3.9, 13.5, 1.6],
    [38.0, 22.5, 8.0, 7.0, 3.3, 2.6, 1.0, 5.0, 4.2, 9.0, 1.2],
];

/// Characters below which each further tenth of all parts lies.
const CHARACTER_TENTHS: [f64; 11] = [
    1.0,
    118.0,
    4_464.0,
    18_976.0,
    103_093.0,
    344_979.0,
    791_783.0,
    1_414_237.0,
    2_156_563.0,
    2_545_921.0,
    3_140_340.0,
];
/// Fewest characters a database has.
pub(crate) const CHARACTERS_MIN: u32 = 400;

/// The distributions of the cast.
#[derive(Debug)]
pub(crate) struct Roles {
    by_class: [Weighted; 4],
    /// Natural logarithm of the number of characters, over that at scale 1.
    stretch: f64,
}

impl Roles {
    pub(crate) fn new(characters: u32) -> Self {
        Self {
            by_class: ROLES.map(Weighted::new),
            stretch: f64::from(characters).ln() / CHARACTER_TENTHS[10].ln(),
        }
    }
}

/// The id of the character called `name`, if it is a frequent one.
pub(crate) fn character_named(name: &str) -> Option<u32> {
    CHARACTERS
        .iter()
        .position(|&character| character == name)
        .and_then(|index| u32::try_from(index + 1).ok())
}

fn pick_character(world: &World, draw: &mut Draw) -> u32 {
    let tenths = draw.unit() * 10.0;
    let tenth = floor32(tenths).min(9);
    let low = CHARACTER_TENTHS[tenth as usize].ln();
    let high = CHARACTER_TENTHS[tenth as usize + 1].ln();
    let at = (low + (high - low) * (tenths - f64::from(tenth))) * world.roles.stretch;
    floor32(at.exp()).clamp(1, world.characters)
}

/// Appends the `count` rows of `cast_info` of one title, the first with `first_id`.
pub(crate) fn cast_info_rows(
    world: &World,
    movie: &Movie,
    first_id: u32,
    count: u32,
    rows: &mut Rows,
) {
    let known = movie.famous.map_or(&[][..], |famous| famous.cast);
    let mut draw = movie.draw(41);
    let mut note = String::new();
    let mut order = 0;
    for slot in 0..count {
        note.clear();
        let role;
        let person;
        let mut character = None;
        if let Some(part) = known.get(slot as usize) {
            role = part.role;
            person = world.people.famous(part.person);
            character = character_named(part.character);
            note.push_str(part.note);
        } else {
            let class = movie.kind.class();
            role = pick_role(&world.roles.by_class[class], movie.popularity, &mut draw);
            person = world.people.pick(role, &mut draw);
            if role <= ACTRESS {
                if draw.chance(0.872) {
                    character = Some(pick_character(world, &mut draw));
                }
                push_actor_note(movie, &mut note, &mut draw);
            } else {
                push_crew_note(role, &mut note, &mut draw);
            }
        }
        rows.int(first_id + slot);
        rows.int(person);
        rows.int(movie.id);
        rows.int_or_null(character);
        rows.text_or_null(&note);
        order += u32::from(role <= ACTRESS);
        if role <= ACTRESS && draw.chance(0.535) {
            rows.int(order);
        } else {
            rows.null();
        }
        rows.int(role);
    }
}

/// The role of a cast member. Popular titles have larger casts and crews, but not more writers.
fn pick_role(roles: &Weighted, popularity: f64, draw: &mut Draw) -> u32 {
    let role = u32::try_from(roles.pick(draw)).unwrap_or(0) + 1;
    if role == WRITER && draw.chance(1.0 - (-0.42 * popularity).exp()) { CREW } else { role }
}

fn push_actor_note(movie: &Movie, note: &mut String, draw: &mut Draw) {
    let animated = movie.is_animated();
    let fame = (if movie.place == JAPAN { 0.1 } else { -0.35 } * movie.popularity).exp();
    if draw.chance(if animated { 0.44 } else { 0.0125 } * fame) {
        let dubbed = if movie.place == JAPAN && animated {
            (0.55 + 0.25 * movie.popularity).clamp(0.1, 0.95)
        } else {
            0.06
        };
        let silent = 0.009 * (0.9 * movie.popularity).exp();
        match draw.unit() {
            u if u < dubbed => note.push_str("(voice: English version)"),
            u if u < dubbed + 0.012 => note.push_str("(voice: Japanese version)"),
            u if u < dubbed + 0.012 + silent => note.push_str("(voice) (uncredited)"),
            u if u < dubbed + 0.027 + silent => {
                let _ = write!(note, "(voice) (as {})", draw.pick(&SURNAMES));
            }
            _ => note.push_str("(voice)"),
        }
        return;
    }
    match draw.unit() {
        u if u < 0.085 => note.push_str("(uncredited)"),
        u if u < 0.125 => {
            let first =
                if draw.chance(0.6) { draw.pick(&MALE_NAMES) } else { draw.pick(&FEMALE_NAMES) };
            let _ = write!(note, "(as {first} {})", draw.pick(&SURNAMES));
        }
        u if u < 0.150 => note.push_str("(archive footage)"),
        u if u < 0.156 => note.push_str("(credit only)"),
        u if u < 0.162 => {
            let _ = write!(note, "(segment \"{}\")", draw.pick(&NOUNS));
        }
        u if u < 0.164 => note.push_str("(archive footage) (uncredited)"),
        // A person who both played and produced is listed under either role.
        u if u < 0.1643 => note.push_str("(also producer) (producer)"),
        _ => {}
    }
}

/// Notes of one kind of work with their shares; the rest up to 1 has none.
type Notes = [(f64, &'static str)];

const PRODUCER_NOTES: [(f64, &str); 9] = [
    (0.405, "(producer)"),
    (0.385, "(executive producer)"),
    (0.075, "(co-producer)"),
    (0.06, "(associate producer)"),
    (0.03, "(line producer)"),
    (0.015, "(supervising producer)"),
    (0.01, "(co-executive producer)"),
    (0.005, "(executive producer) (as executive)"),
    (0.015, "(coordinating producer)"),
];
const WRITER_NOTES: [(f64, &str); 13] = [
    (0.222, "(writer)"),
    (0.125, "(written by)"),
    (0.045, "(story)"),
    (0.027, "(head writer)"),
    (0.037, "(story editor)"),
    (0.10, "(screenplay)"),
    (0.06, "(creator)"),
    (0.05, "(novel)"),
    (0.03, "(dialogue)"),
    (0.025, "(by)"),
    (0.02, "(characters)"),
    (0.02, "(script)"),
    (0.02, "(teleplay)"),
];
const CREW_NOTES: [(f64, &str); 12] = [
    (0.16, "(production assistant)"),
    (0.12, "(script supervisor)"),
    (0.11, "(assistant director)"),
    (0.10, "(production coordinator)"),
    (0.09, "(makeup artist)"),
    (0.09, "(sound mixer)"),
    (0.08, "(visual effects)"),
    (0.07, "(grip)"),
    (0.06, "(stunts)"),
    (0.05, "(gaffer)"),
    (0.04, "(casting assistant)"),
    (0.03, "(thanks)"),
];
const OTHER_NOTES: [(f64, &str); 4] = [
    (0.06, "(uncredited)"),
    (0.03, "(co-director)"),
    (0.05, "(theme music)"),
    (0.04, "(director of photography)"),
];

fn push_crew_note(role: u32, note: &mut String, draw: &mut Draw) {
    let notes: &Notes = match role {
        PRODUCER => &PRODUCER_NOTES,
        WRITER => &WRITER_NOTES,
        CREW => &CREW_NOTES,
        _ => &OTHER_NOTES,
    };
    let mut unit = draw.unit();
    for &(share, text) in notes {
        if unit < share {
            note.push_str(text);
            return;
        }
        unit -= share;
    }
}

/// Appends the row of `char_name` with `id`.
pub(crate) fn char_name_row(world: &World, id: u32, rows: &mut Rows) {
    let mut name = String::new();
    let mut draw = Draw::new(world.seed, 0x6368_0000_0000 + u64::from(id));
    match CHARACTERS.get(id as usize - 1) {
        Some(known) => name.push_str(known),
        None => match draw.below(12) {
            0..6 => {
                let first = if draw.chance(0.65) {
                    draw.pick(&MALE_NAMES)
                } else {
                    draw.pick(&FEMALE_NAMES)
                };
                let _ = write!(name, "{first} ");
                push_surname(&mut name, &mut draw);
            }
            6 => {
                name.push_str(draw.pick(&["Dr. ", "Mrs. ", "Mr. ", "Miss ", "Capt. ", "Sgt. "]));
                push_surname(&mut name, &mut draw);
            }
            7 => {
                let _ =
                    write!(name, "{} {}", draw.pick(&QUALITIES), draw.pick_skewed(&CHARACTERS, 2));
            }
            8 => {
                let role = draw.pick_skewed(&CHARACTERS, 2);
                let _ = write!(name, "{role} #{}", 1 + draw.below(9));
            }
            9 => name.push_str(if draw.chance(0.65) {
                draw.pick(&MALE_NAMES)
            } else {
                draw.pick(&FEMALE_NAMES)
            }),
            10 => {
                let role = draw.pick(&CHARACTERS);
                let _ = write!(name, "{} {role}", draw.pick(&NOUNS));
            }
            _ => push_surname(&mut name, &mut draw),
        },
    }
    let last = name.rsplit(' ').next().unwrap_or_default();
    rows.int(id);
    rows.text(&name);
    rows.null();
    rows.null();
    rows.text_or_null(&phonetic(&name));
    rows.text_or_null(&if last.len() < name.len() { phonetic(last) } else { String::new() });
    rows.text(&checksum(world.seed, 0x6368, id));
}
