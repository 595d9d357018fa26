//! Writes a number by its template: part after part, as the digit places are reached.

use cleave_fragment::functions::ArgumentFault;

use super::number::Picture;
use super::{NumberTemplate, Part, SignPlace};
use crate::dialect::functions::to_char::ordinal_of;

/// What is written so far.
pub(super) struct Written<'a> {
    template: &'a NumberTemplate,
    picture: Picture,
    out: String,
    /// The next digit, and the next place of the template.
    digit: usize,
    place: usize,
    is_in_number: bool,
    has_sign: bool,
    sign: SignPlace,
    has_brackets: bool,
    /// Under `FM`, the last digit that is shown: those behind it are zeros.
    last_shown: Option<usize>,
    /// The number of the last place, with that of the sign: before the first if there are no digits.
    last_place: i64,
}

impl<'a> Written<'a> {
    pub(super) fn new(template: &'a NumberTemplate, picture: Picture) -> Self {
        let own_place = template.has_plus || template.has_minus;
        let is_positive = picture.sign == '+';
        let has_sign = match own_place {
            true => template.has_minus || !template.has_plus,
            false => is_positive && template.is_bare && template.sign == SignPlace::None,
        };
        let sign = match template.sign {
            SignPlace::Before(places) if !own_place && places == picture.before => {
                SignPlace::Behind
            }
            sign => sign,
        };
        let is_dropped = !own_place && picture.sign != '-' && template.is_bare;
        let last_shown = match template.is_bare && template.has_point {
            true => last_shown(&picture, template.zero_end),
            false => None,
        };
        let places = i64::try_from(picture.before + picture.behind).unwrap_or(i64::MAX);
        let last_place = places - 1 + i64::from(!has_sign && picture.blanks == 0);
        Self {
            template,
            picture,
            out: String::new(),
            digit: 0,
            place: 0,
            is_in_number: false,
            has_sign,
            sign,
            has_brackets: template.has_brackets && !is_dropped,
            last_shown,
            last_place,
        }
    }

    pub(super) fn all(mut self) -> Result<String, ArgumentFault> {
        for part in &self.template.parts {
            self.part(*part)?;
        }
        // A digit place behind the last digit ends the text, as a NUL ends it in C.
        if let Some(end) = self.out.find('\0') {
            self.out.truncate(end);
        }
        Ok(self.out)
    }

    fn part(&mut self, part: Part) -> Result<(), ArgumentFault> {
        let is_bare = self.template.is_bare;
        let sign = self.picture.sign;
        match part {
            Part::Nine | Part::Zero | Part::Point if self.template.is_roman => {}
            Part::Nine | Part::Zero | Part::Point => self.digit_place(part == Part::Zero),
            Part::Comma if self.is_in_number => self.out.push(','),
            Part::Comma => self.blank(),
            Part::Currency => self.out.push(' '),
            Part::Minus if sign == '-' => self.out.push('-'),
            Part::Plus if sign == '+' => self.out.push('+'),
            Part::Minus | Part::Plus => self.blank(),
            Part::Either => self.out.push(sign),
            Part::Roman { is_upper } => {
                let digits = match is_upper {
                    true => self.picture.digits.clone(),
                    false => self.picture.digits.to_ascii_lowercase(),
                };
                let width = if is_bare { 0 } else { 15_usize.saturating_sub(digits.len()) };
                self.out.push_str(&" ".repeat(width));
                self.out.push_str(&digits);
            }
            Part::Ordinal { is_upper } => {
                let has_none = self.template.is_roman
                    || self.picture.digits.starts_with('#')
                    || sign == '-'
                    || self.template.has_point;
                if !has_none {
                    let ending = ordinal_of(&self.picture.digits)?;
                    match is_upper {
                        true => self.out.push_str(&ending.to_ascii_uppercase()),
                        false => self.out.push_str(ending),
                    }
                }
            }
            Part::Text(letter) => self.out.push(letter),
            Part::Mode(_) => {}
        }
        Ok(())
    }

    fn blank(&mut self) {
        if !self.template.is_bare {
            self.out.push(' ');
        }
    }

    fn at(&self, digit: usize) -> char {
        self.picture.digits.as_bytes().get(digit).map_or('\0', |byte| char::from(*byte))
    }

    /// Whether the next digit is the zero of `0.1`, which has no place.
    fn is_hidden_zero(&self) -> bool {
        self.template.zero_from.is_none()
            && self.digit == 0
            && self.at(0) == '0'
            && self.picture.behind != 0
    }

    /// Whether the point is the last that is shown.
    fn ends_in_point(&self) -> bool {
        self.last_shown.is_some_and(|last| self.at(last) == '.')
    }

    fn digit_place(&mut self, is_zero: bool) {
        self.is_in_number = false;
        let zero_from = self.template.zero_from;
        let is_blank = self.place < self.picture.blanks;
        let begins = !is_blank || zero_from == Some(self.place);
        if !self.has_sign && begins && (!self.is_hidden_zero() || self.ends_in_point()) {
            self.own_sign();
        }
        if is_blank && zero_from.is_none_or(|from| from > self.place) {
            self.blank();
        } else if is_blank {
            self.out.push('0');
            self.is_in_number = true;
        } else {
            self.next_digit(is_zero);
        }
        let blank = i64::from(self.picture.blanks > 0);
        let end = self.last_place + blank + i64::from(self.template.has_point);
        let is_end = i64::try_from(self.place + 1).is_ok_and(|place| place == end);
        if is_end && self.last_shown != Some(self.digit) {
            if self.has_sign && self.has_brackets {
                self.out.push(if self.picture.sign == '+' { ' ' } else { '>' });
            } else if self.sign == SignPlace::Behind {
                self.out.push(if self.picture.sign == '-' { '-' } else { '+' });
            }
        }
        self.place += 1;
    }

    fn next_digit(&mut self, is_zero: bool) {
        let digit = self.at(self.digit);
        if digit == '.' {
            self.out.push('.');
        } else if self.last_shown.is_some_and(|last| self.digit > last) && !is_zero {
            // A zero that FM leaves out.
        } else if self.is_hidden_zero() {
            if self.template.is_bare {
                if self.ends_in_point() {
                    self.out.push('0');
                }
            } else {
                self.out.push(' ');
            }
        } else {
            self.out.push(digit);
            self.is_in_number = true;
        }
        if digit != '\0' {
            self.digit += 1;
        }
    }

    /// The sign before the first digit.
    fn own_sign(&mut self) {
        let sign = self.picture.sign;
        match self.sign {
            SignPlace::Before(_) => self.out.push(if sign == '-' { '-' } else { '+' }),
            SignPlace::Behind => return,
            SignPlace::None if self.has_brackets => {
                self.out.push(if sign == '+' { ' ' } else { '<' });
            }
            SignPlace::None if sign == '+' => self.blank(),
            SignPlace::None if sign == '-' => self.out.push('-'),
            SignPlace::None => return,
        }
        self.has_sign = true;
    }
}

/// The last digit that is no zero behind the point, or the point; none without a point. What the template has as `0`
/// is shown.
fn last_shown(picture: &Picture, zero_end: usize) -> Option<usize> {
    let point = picture.digits.find('.')?;
    let others = picture.digits.as_bytes().iter().enumerate().skip(point + 1);
    let last = others.filter(|(_, digit)| **digit != b'0').map(|(place, _)| place).next_back();
    let last = last.unwrap_or(point);
    match zero_end > picture.blanks {
        true => Some(last.max((picture.digits.len() - 1).min(zero_end - picture.blanks))),
        false => Some(last),
    }
}
