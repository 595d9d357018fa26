//! Votes and charts: `movie_info_idx`. A rated title has exactly one distribution of votes, one
//! number of votes and one rating; a title in the charts has its rank besides.

use super::super::random::{floor32, normal_quantile};
use super::super::rows::Rows;
use super::movie::{Movie, Rank};
use std::fmt::Write as _;

/// Ids of `info_type`.
const DISTRIBUTION: u32 = 99;
const VOTES: u32 = 100;
const RATING: u32 = 101;
const TOP: u32 = 112;
const BOTTOM: u32 = 113;

/// Shares of rated titles: films by era, then series, episodes, others.
const FILMS: [f64; 6] = [0.02, 0.30, 0.37, 0.42, 0.37, 0.145];
const OTHERS: [f64; 4] = [0.0, 0.415, 0.084, 0.29];
/// How much being rated depends on popularity.
const SHARED: f64 = 0.82;

fn is_rated(movie: &Movie) -> bool {
    if movie.famous.is_some() || movie.rank.is_some() {
        return true;
    }
    let class = movie.kind.class();
    let recent = if movie.era() == 5 { 0.65 } else { 1.08 };
    let share = if class == 0 { FILMS[movie.era()] } else { OTHERS[class] * recent };
    let own = movie.draw(61).normal();
    let own_weight = (1.0 - SHARED * SHARED).sqrt();
    SHARED * movie.popularity + own_weight * own > -normal_quantile(share)
}

/// How many rows of `movie_info_idx` a title has.
pub(crate) fn count(movie: &Movie) -> u32 {
    3 * u32::from(is_rated(movie)) + u32::from(movie.rank.is_some())
}

/// Appends those rows, the first with `first_id`.
pub(crate) fn movie_info_idx_rows(movie: &Movie, first_id: u32, count: u32, rows: &mut Rows) {
    let mut draw = movie.draw(62);
    let mut text = String::new();
    let better = match movie.rank {
        Some(Rank::Top(_)) => 2.2,
        Some(Rank::Bottom(_)) => -4.3,
        None => 0.0,
    };
    let spread = if better == 0.0 { 1.13 } else { 0.2 };
    let serial = if matches!(movie.kind.class(), 1 | 2) { 0.75 } else { 0.0 };
    let drawn = (6.15 + better + serial + spread * draw.normal()).clamp(1.0, 9.9);
    let rating = movie.famous.map_or(drawn, |famous| famous.rating);
    for slot in 0..count {
        text.clear();
        let fact = match slot {
            0 => DISTRIBUTION,
            1 => VOTES,
            2 => RATING,
            _ if matches!(movie.rank, Some(Rank::Top(_))) => TOP,
            _ => BOTTOM,
        };
        match fact {
            DISTRIBUTION => push_distribution(rating, &mut draw, &mut text),
            VOTES => {
                let votes = 5.0 + (2.9 + 1.75 * movie.popularity + draw.normal()).exp();
                let _ = write!(text, "{}", floor32(votes));
            }
            RATING => {
                let _ = write!(text, "{rating:.1}");
            }
            _ => {
                let place = match movie.rank {
                    Some(Rank::Top(place) | Rank::Bottom(place)) => place,
                    None => 0,
                };
                let _ = write!(text, "{place}");
            }
        }
        rows.int(first_id + slot);
        rows.int(movie.id);
        rows.int(fact);
        rows.text(&text);
        rows.null();
    }
}

/// Ten characters, one for each mark from 1 to 10: the first digit of its share, or a dot.
fn push_distribution(rating: f64, draw: &mut super::super::random::Draw, text: &mut String) {
    for mark in 1..=10 {
        let distance = (f64::from(mark) - rating).abs();
        let share = (3.2 - distance + 0.8 * draw.normal()).clamp(-1.0, 5.0);
        if share < 0.0 {
            text.push('.');
        } else {
            text.push(char::from(b'0' + u8::try_from(floor32(share)).unwrap_or(0)));
        }
    }
}
