//! Names of people, characters and titles, composed of words; and their phonetic codes.

use super::super::random::{Draw, floor32};
use super::movie::{Kind, Movie};
use super::words::{FEMALE_NAMES, MALE_NAMES, NOUNS, QUALITIES, SURNAMES};
use std::fmt::Write as _;

/// A person's sex in the database; for most of the crew it is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gender {
    Male,
    Female,
    Unknown,
}

/// Appends a family name: a common one, or one of many rare ones.
pub(crate) fn push_surname(out: &mut String, draw: &mut Draw) {
    if draw.chance(0.62) {
        out.push_str(draw.pick_skewed(&SURNAMES, 2));
        return;
    }
    const STARTS: [&str; 40] = [
        "Ba", "Be", "Bo", "Bra", "Ca", "Cha", "Co", "Da", "De", "Do", "Fa", "Fe", "Ga", "Go",
        "Gra", "Ha", "He", "Ho", "Ja", "Ka", "Ki", "Ko", "La", "Le", "Lo", "Ma", "Me", "Mo", "Na",
        "Pa", "Pe", "Ra", "Ro", "Sa", "Sha", "Sto", "Ta", "Va", "Wa", "Yo",
    ];
    const MIDDLES: [&str; 24] = [
        "l", "r", "n", "m", "ll", "rr", "nd", "ng", "st", "rt", "ch", "ck", "sh", "t", "d", "v",
        "b", "rm", "ls", "nk", "ff", "z", "x", "gl",
    ];
    const ENDS: [&str; 30] = [
        "er", "man", "son", "ov", "a", "i", "o", "ez", "ini", "sen", "ic", "ski", "en", "el", "as",
        "is", "os", "ard", "ley", "ton", "berg", "stein", "ville", "ana", "oto", "ura", "an",
        "ell", "ett", "y",
    ];
    out.push_str(draw.pick(&STARTS));
    out.push_str(draw.pick_skewed(&MIDDLES, 2));
    if draw.chance(0.3) {
        out.push_str(draw.pick(&["a", "e", "i", "o", "u"]));
        out.push_str(draw.pick(&MIDDLES));
    }
    out.push_str(draw.pick(&ENDS));
}

/// A first name that suits `gender`.
pub(crate) fn first_name(gender: Gender, draw: &mut Draw) -> &'static str {
    match gender {
        Gender::Male => draw.pick_skewed(&MALE_NAMES, 2),
        Gender::Female => draw.pick_skewed(&FEMALE_NAMES, 2),
        Gender::Unknown if draw.chance(0.7) => draw.pick_skewed(&MALE_NAMES, 2),
        Gender::Unknown => draw.pick_skewed(&FEMALE_NAMES, 2),
    }
}

/// Appends a person's name, family name first.
pub(crate) fn push_person(out: &mut String, gender: Gender, draw: &mut Draw) {
    if draw.chance(0.02) {
        // An artist's name.
        out.push_str(first_name(gender, draw));
        return;
    }
    push_surname(out, draw);
    out.push_str(", ");
    out.push_str(first_name(gender, draw));
    match draw.below(20) {
        0 | 1 => {
            let _ =
                write!(out, " {}.", char::from(b'A' + u8::try_from(draw.below(26)).unwrap_or(0)));
        }
        2 => {
            out.push(' ');
            out.push_str(first_name(gender, draw));
        }
        _ => {}
    }
}

/// Appends a title for something of `kind`.
pub(crate) fn push_title(out: &mut String, movie: &Movie, draw: &mut Draw) {
    if movie.kind == Kind::Episode && draw.chance(0.45) {
        // Episodes without a title are known by their number or date.
        match movie.episode {
            Some(episode) if draw.chance(0.85) => {
                let _ = write!(out, "(#{}.{})", episode.season, episode.number);
            }
            _ => {
                let year = movie.year_or_recent();
                let _ = write!(out, "({year}-{:02}-{:02})", 1 + draw.below(12), 1 + draw.below(28));
            }
        }
        return;
    }
    push_phrase(out, draw);
    if matches!(movie.kind, Kind::VideoMovie | Kind::VideoGame | Kind::TvMovie) && draw.chance(0.08)
    {
        let _ = write!(out, " {}", 2 + draw.below(5));
    }
}

/// Appends a few words that could be a title.
pub(crate) fn push_phrase(out: &mut String, draw: &mut Draw) {
    let noun = |draw: &mut Draw| draw.pick_skewed(&NOUNS, 2);
    match draw.below(14) {
        0 | 1 => {
            out.push_str("The ");
            out.push_str(noun(draw));
        }
        2 | 3 => {
            let _ = write!(out, "The {} {}", draw.pick(&QUALITIES), noun(draw));
        }
        4 | 5 => {
            let _ = write!(out, "{} {}", draw.pick(&QUALITIES), noun(draw));
        }
        6 => {
            let _ = write!(out, "{} of the {}", noun(draw), noun(draw));
        }
        7 => {
            let _ = write!(out, "{} and {}", noun(draw), noun(draw));
        }
        8 => {
            let _ = write!(out, "One {} {}", draw.pick(&QUALITIES), noun(draw));
        }
        9 => {
            push_surname(out, draw);
            let _ = write!(out, "'s {}", noun(draw));
        }
        10 => {
            out.push_str(draw.pick(&["Das ", "Der ", "La ", "Le ", "El ", "Il ", "O ", "Den "]));
            out.push_str(noun(draw));
        }
        11 => {
            let _ = write!(out, "{} in {}", noun(draw), noun(draw));
        }
        12 => {
            out.push_str(first_name(Gender::Unknown, draw));
            out.push(' ');
            push_surname(out, draw);
        }
        _ => {
            out.push_str(noun(draw));
            if draw.chance(0.3) {
                let _ = write!(out, " {}", floor32(2.0 + 30.0 * draw.unit().powi(6)));
            }
        }
    }
}

/// The phonetic code of a text: its first letter and up to four digits for the consonants after it, as in columns
/// called `..._pcode`. Empty if there is no sound.
pub(crate) fn phonetic(text: &str) -> String {
    let mut out = String::new();
    let mut last = 0;
    for byte in text.bytes().filter(u8::is_ascii_alphabetic) {
        let digit = match byte.to_ascii_uppercase() {
            b'B' | b'F' | b'P' | b'V' => b'1',
            b'C' | b'G' | b'J' | b'K' | b'Q' | b'S' | b'X' | b'Z' => b'2',
            b'D' | b'T' => b'3',
            b'L' => b'4',
            b'M' | b'N' => b'5',
            b'R' => b'6',
            _ => 0,
        };
        if out.is_empty() {
            out.push(char::from(byte.to_ascii_uppercase()));
        } else if digit != 0 && digit != last {
            out.push(char::from(digit));
        }
        last = digit;
        if out.len() == 5 {
            break;
        }
    }
    out
}
