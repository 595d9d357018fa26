//! Number templates of `to_char`: `FM9,999.00`.
//!
//! ```text
//!  9 0 . D , G       digits, the point, thousands separators
//!  S MI PL SG PR     the sign: beside the number, or in its place
//!  FM                without blanks
//!  $ L               a currency, which is empty here
//! ```
//!
//! Without a sign in the template, it has the place before the first digit. A number with more digits than the template
//! becomes `#`.
//!
//! Deliberately absent: Roman numbers, `EEEE`, `V`, `B`.
//!
//! Source: PostgreSQL's documentation, "Template Patterns for Numeric Formatting"; its `NUM_processor`.

use cleave_fragment::functions::ArgumentFault;

use super::to_char::ordinal_of;

/// A number template.
pub(super) struct NumberTemplate {
    parts: Vec<Part>,
    /// Digit places before and behind the point.
    before: usize,
    behind: usize,
    /// The first place from which on zeros are shown, before the point or else behind it.
    zero_from: Option<usize>,
    is_bare: bool,
    has_own_sign: bool,
    angle_brackets: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// A digit place, numbered from the left; a zero of the template is always shown.
    Digit {
        place: usize,
        is_zero: bool,
    },
    Point,
    Comma,
    /// `S`: a plus or a minus beside the number.
    Sign,
    /// `MI`, `PL`, `SG`: in the place of the sign.
    Minus,
    Plus,
    Either,
    Ordinal {
        is_upper: bool,
    },
    Text(String),
}

impl NumberTemplate {
    pub(super) fn new(template: &str) -> Result<Self, ArgumentFault> {
        let mut new = Self {
            parts: Vec::new(),
            before: 0,
            behind: 0,
            zero_from: None,
            is_bare: false,
            has_own_sign: false,
            angle_brackets: false,
        };
        let mut rest = template;
        let mut is_behind = false;
        while let Some(letter) = rest.chars().next() {
            let two = rest.get(..2).unwrap_or_default().to_ascii_uppercase();
            let (part, length) = match (two.as_str(), letter.to_ascii_uppercase()) {
                ("FM", _) => {
                    new.is_bare = true;
                    (None, 2)
                }
                ("PR", _) => {
                    (new.angle_brackets, new.has_own_sign) = (true, true);
                    (None, 2)
                }
                ("MI", _) => (Some(Part::Minus), 2),
                ("PL", _) => (Some(Part::Plus), 2),
                ("SG", _) => (Some(Part::Either), 2),
                ("TH", _) => (Some(Part::Ordinal { is_upper: rest.starts_with('T') }), 2),
                ("RN", _) => return Err(unknown("RN")),
                ("EE", _) => return Err(unknown("EEEE")),
                (_, 'V') => return Err(unknown("V")),
                (_, 'B') => return Err(unknown("B")),
                (_, '9' | '0') => {
                    let place = new.before + new.behind;
                    if letter == '0' && new.zero_from.is_none() && !is_behind {
                        new.zero_from = Some(place);
                    }
                    match is_behind {
                        true => new.behind += 1,
                        false => new.before += 1,
                    }
                    (Some(Part::Digit { place, is_zero: letter == '0' }), 1)
                }
                (_, '.' | 'D') => {
                    if is_behind {
                        let reason = "multiple decimal points".to_owned();
                        return Err(ArgumentFault::Invalid { reason });
                    }
                    is_behind = true;
                    (Some(Part::Point), 1)
                }
                (_, ',' | 'G') => (Some(Part::Comma), 1),
                (_, 'S') => (Some(Part::Sign), 1),
                (_, 'L') => (Some(Part::Text(" ".to_owned())), 1),
                (_, '"') => {
                    let text = rest.get(1..).unwrap_or_default();
                    let text = text.split_once('"').map_or(text, |(text, _)| text);
                    (Some(Part::Text(text.to_owned())), (text.len() + 2).min(rest.len()))
                }
                _ => (Some(Part::Text(letter.to_string())), letter.len_utf8()),
            };
            // Beside `PL` a minus still has its own place.
            new.has_own_sign |= matches!(part, Some(Part::Sign | Part::Minus | Part::Either));
            new.parts.extend(part);
            rest = rest.get(length..).unwrap_or_default();
        }
        Ok(new)
    }

    /// `number`, as written elsewhere, in this template.
    pub(super) fn write(&self, number: &str) -> String {
        let (number, is_negative) = match number.strip_prefix('-') {
            Some(number) => (number, true),
            None => (number, false),
        };
        let plain = plain(number);
        let digits = plain.as_deref().and_then(|plain| rounded(plain, self.behind));
        let Some((whole, fraction)) = digits.filter(|(whole, _)| whole.len() <= self.before) else {
            return self.write_places(is_negative, |_| '#');
        };
        // A number that rounds to zero has no sign.
        let is_zero = [&whole, &fraction].iter().all(|digits| digits.bytes().all(|d| d == b'0'));
        let is_negative = is_negative && !is_zero;
        let blanks = self.before - whole.len();
        let all: Vec<char> = whole.chars().chain(fraction.chars()).collect();
        // FM removes zeros at the end that the template has as 9.
        let zeros = self.parts.iter().filter_map(|part| match part {
            Part::Digit { place, is_zero: true } => Some(*place),
            _ => None,
        });
        let last_zero = zeros.max();
        let last_digit = (0..self.behind).rev().map(|place| self.before + place).find(|place| {
            all.get(place - blanks).is_some_and(|digit| *digit != '0')
                || last_zero.is_some_and(|zero| *place <= zero)
        });
        let has_fraction = !self.is_bare || last_digit.is_some();
        let first = self.first_shown(&whole, has_fraction);
        let mut out = String::new();
        let mut has_sign = false;
        for part in &self.parts {
            match part {
                Part::Digit { place, .. } if *place < first => self.blank(&mut out),
                Part::Digit { place, .. } => {
                    if !has_sign {
                        self.put_sign(&mut out, is_negative);
                        has_sign = true;
                    }
                    let is_dropped = self.is_bare
                        && *place >= self.before
                        && last_digit.is_none_or(|last| *place > last);
                    if is_dropped {
                        continue;
                    }
                    let digit = place.checked_sub(blanks).and_then(|place| all.get(place));
                    out.push(digit.copied().unwrap_or('0'));
                }
                Part::Point => {
                    if !has_sign {
                        self.put_sign(&mut out, is_negative);
                        has_sign = true;
                    }
                    out.push('.');
                }
                Part::Comma => match has_sign {
                    true => out.push(','),
                    false => self.blank(&mut out),
                },
                part => self.put_other(&mut out, part, is_negative, &whole),
            }
        }
        self.closed(out, is_negative)
    }

    /// The place of the first digit shown.
    fn first_shown(&self, whole: &str, has_fraction: bool) -> usize {
        let is_only_zero = whole == "0" || whole.is_empty();
        // Before a fraction, a zero is left out if the template has a 9; under FM only if a fraction remains.
        let first = match is_only_zero && self.behind > 0 && has_fraction {
            true => self.before,
            false => self.before - whole.len().max(1).min(self.before),
        };
        self.zero_from.map_or(first, |zero| zero.min(first))
    }

    fn blank(&self, out: &mut String) {
        if !self.is_bare {
            out.push(' ');
        }
    }

    /// The sign in the place before the first digit, if it has no other.
    fn put_sign(&self, out: &mut String, is_negative: bool) {
        if self.angle_brackets {
            match is_negative {
                true => out.push('<'),
                false => self.blank(out),
            }
        } else if !self.has_own_sign {
            match is_negative {
                true => out.push('-'),
                false => self.blank(out),
            }
        }
    }

    fn put_other(&self, out: &mut String, part: &Part, is_negative: bool, whole: &str) {
        match part {
            Part::Sign | Part::Either => out.push(if is_negative { '-' } else { '+' }),
            Part::Minus if is_negative => out.push('-'),
            Part::Plus if !is_negative => out.push('+'),
            Part::Minus | Part::Plus => self.blank(out),
            Part::Ordinal { is_upper } if !is_negative && self.behind == 0 => {
                let ending = ordinal_of(whole);
                match is_upper {
                    true => out.push_str(&ending.to_ascii_uppercase()),
                    false => out.push_str(ending),
                }
            }
            Part::Text(text) => out.push_str(text),
            _ => {}
        }
    }

    fn closed(&self, mut out: String, is_negative: bool) -> String {
        if self.angle_brackets {
            match is_negative {
                true => out.push('>'),
                false => self.blank(&mut out),
            }
        }
        // `S` before the digits stands beside them, not before their blanks.
        if matches!(self.parts.first(), Some(Part::Sign)) {
            let sign: String = out.chars().take(1).collect();
            let rest = out.get(1..).unwrap_or_default();
            let digits = rest.trim_start_matches(' ');
            return format!("{}{sign}{digits}", " ".repeat(rest.len() - digits.len()));
        }
        out
    }

    /// The template with `letter` in the place of each digit.
    fn write_places(&self, is_negative: bool, letter: impl Fn(usize) -> char) -> String {
        let mut out = String::new();
        let mut has_sign = false;
        for part in &self.parts {
            match part {
                Part::Digit { place, .. } => {
                    if !has_sign {
                        self.put_sign(&mut out, is_negative);
                        has_sign = true;
                    }
                    out.push(letter(*place));
                }
                Part::Point => out.push('.'),
                Part::Comma => out.push(','),
                part => self.put_other(&mut out, part, is_negative, ""),
            }
        }
        self.closed(out, is_negative)
    }
}

fn unknown(what: &str) -> ArgumentFault {
    ArgumentFault::Invalid {
        reason: format!("\"{what}\" in a picture of a number is not supported"),
    }
}

/// A number without its power of ten; None: it is not a number.
fn plain(number: &str) -> Option<String> {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let exponent: i32 = exponent.parse().ok()?;
    if !mantissa.starts_with(|letter: char| letter.is_ascii_digit()) {
        return None;
    }
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let point = i32::try_from(whole.len()).ok()? + exponent;
    Some(match usize::try_from(point) {
        Ok(point) if point < digits.len() => {
            let (whole, fraction) = digits.split_at(point);
            format!("{whole}.{fraction}")
        }
        Ok(point) => format!("{digits}{}", "0".repeat(point - digits.len())),
        Err(_) => {
            let zeros = usize::try_from(point.unsigned_abs()).ok()?;
            format!("0.{}{digits}", "0".repeat(zeros))
        }
    })
}

/// The digits before and behind the point, rounded to so many of the latter, without zeros before the first.
fn rounded(number: &str, behind: usize) -> Option<(String, String)> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
    let kept = whole.len() + behind;
    let is_up = digits.get(kept).is_some_and(|digit| *digit >= b'5');
    digits.resize(kept, b'0');
    if is_up {
        let nines = digits.iter().rev().take_while(|digit| **digit == b'9').count();
        let place = digits.len() - nines;
        digits.iter_mut().skip(place).for_each(|digit| *digit = b'0');
        match place.checked_sub(1).and_then(|place| digits.get_mut(place)) {
            Some(digit) => *digit += 1,
            None => digits.insert(0, b'1'),
        }
    }
    let text = String::from_utf8(digits).ok()?;
    let (whole, fraction) = text.split_at_checked(text.len() - behind)?;
    Some((whole.trim_start_matches('0').to_owned(), fraction.to_owned()))
}
