//! Reads a number by its template.

use super::{NumberTemplate, Part, SignPlace};

/// The number of a text as PostgreSQL's `numeric` reads it: its sign or a blank, digits, a point.
pub(super) fn read(template: &NumberTemplate, text: &str) -> String {
    let mut read = Read { template, rest: text, sign: ' ', digits: String::new(), behind: None };
    for part in &template.parts {
        if read.rest.is_empty() {
            break;
        }
        read.part(*part);
    }
    let digits = read.digits.strip_suffix('.').unwrap_or(&read.digits);
    format!("{}{digits}", read.sign)
}

struct Read<'a> {
    template: &'a NumberTemplate,
    rest: &'a str,
    /// A blank is none yet.
    sign: char,
    digits: String,
    /// Digits behind the point, if that was read.
    behind: Option<usize>,
}

impl Read<'_> {
    fn part(&mut self, part: Part) {
        let next = self.next();
        match part {
            Part::Nine | Part::Zero | Part::Point => self.digit_place(part != Part::Point),
            // Digits are never in a number yet: PostgreSQL does not note them while it reads.
            Part::Comma if !self.template.is_bare && next == ',' => self.skip(),
            Part::Comma => {}
            Part::Currency => self.skip_other(1),
            Part::Ordinal { .. } if !self.template.has_point => self.skip_other(2),
            Part::Minus if next == '-' => self.take_sign(next),
            Part::Plus if next == '+' => self.take_sign(next),
            Part::Either if matches!(next, '-' | '+') => self.take_sign(next),
            Part::Minus | Part::Plus | Part::Either => self.skip_other(1),
            Part::Text(_) => self.skip(),
            Part::Ordinal { .. } | Part::Roman { .. } | Part::Mode(_) => {}
        }
    }

    fn next(&self) -> char {
        self.rest.chars().next().unwrap_or_default()
    }

    fn skip(&mut self) {
        let mut letters = self.rest.chars();
        letters.next();
        self.rest = letters.as_str();
    }

    fn take_sign(&mut self, sign: char) {
        self.sign = sign;
        self.skip();
    }

    /// Skips so many characters, but none that a number has.
    fn skip_other(&mut self, count: usize) {
        for _ in 0..count {
            if "\0" != self.rest && !"0123456789.,+-\0".contains(self.next()) {
                self.skip();
            }
        }
    }

    fn digit_place(&mut self, is_digit_place: bool) {
        if self.next() == ' ' {
            self.skip();
        }
        let has_sign_place = self.template.sign != SignPlace::None;
        if self.sign == ' ' && is_digit_place && !self.has_digits() {
            match self.next() {
                sign @ ('-' | '+') => self.take_sign(sign),
                '<' if self.template.has_brackets && !has_sign_place => self.take_sign('-'),
                _ => {}
            }
        }
        if self.rest.is_empty() {
            return;
        }
        let next = self.next();
        let mut is_read = false;
        if next.is_ascii_digit() {
            if self.behind == Some(self.template.behind) {
                return self.skip();
            }
            self.digits.push(next);
            self.behind = self.behind.map(|behind| behind + 1);
            is_read = true;
        } else if self.template.has_point && self.behind.is_none() && next == '.' {
            self.digits.push('.');
            self.behind = Some(0);
            is_read = true;
        }
        if self.sign == ' ' && self.has_digits() {
            let follows = self.rest.chars().nth(1).unwrap_or_default();
            if has_sign_place && is_read && matches!(follows, '-' | '+') {
                self.skip();
                self.sign = follows;
            } else if !is_read
                && !has_sign_place
                && (self.template.has_plus || self.template.has_minus)
                && matches!(next, '-' | '+')
            {
                self.sign = next;
            }
        }
        self.skip();
    }

    fn has_digits(&self) -> bool {
        self.digits.bytes().any(|byte| byte.is_ascii_digit())
    }
}
