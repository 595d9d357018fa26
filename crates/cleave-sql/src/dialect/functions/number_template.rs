//! Number templates: `FM9,999.00`.
//!
//! ```text
//!  9 0 . D , G       digits, the point, thousands separators
//!  S MI PL SG PR     the sign: beside the number, or in its place
//!  V                 the digits behind it are those of the number, times a power of ten
//!  RN EEEE           a Roman number, or one with a power of ten: nothing else of the template counts
//!  FM                without blanks
//!  TH L              an ordinal's ending, a currency (a blank)
//! ```
//!
//! A keyword is in upper or lower case, not in both. Without a sign in the template, it has the place before the first
//! digit. A number with more digits than the template becomes `#`.
//!
//! Source: PostgreSQL's documentation, "Template Patterns for Numeric Formatting".

use cleave_fragment::functions::ArgumentFault;

mod number;
mod read;
mod written;

pub(super) use number::Number;

use number::{Picture, powers_of_ten, roman};
use written::Written;

/// A number template.
#[derive(Debug, Default)]
pub(super) struct NumberTemplate {
    parts: Vec<Part>,
    /// Digit places before and behind the point, and behind `V`.
    before: usize,
    behind: usize,
    shifted: usize,
    /// The first `0` before the point, and how many digit places end with the last one.
    zero_from: Option<usize>,
    zero_end: usize,
    sign: SignPlace,
    is_bare: bool,
    has_point: bool,
    has_shift: bool,
    has_minus: bool,
    has_plus: bool,
    has_brackets: bool,
    has_powers: bool,
    is_roman: bool,
}

/// Where `S` stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum SignPlace {
    #[default]
    None,
    /// Behind so many digit places before the point.
    Before(usize),
    Behind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Nine,
    Zero,
    Point,
    Comma,
    Currency,
    /// `MI`, `PL`, `SG`: in the place of the sign.
    Minus,
    Plus,
    Either,
    Roman {
        is_upper: bool,
    },
    Ordinal {
        is_upper: bool,
    },
    /// What says how the number is written, and has no place of its own.
    Mode(Mode),
    Text(char),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Blank,
    Powers,
    Bare,
    Brackets,
    Sign,
    Shift,
    /// `C` and `SP` are read, and mean nothing.
    Nothing,
}

/// In upper case; a longer one stands before its beginning.
const KEYWORDS: [(&str, Part); 20] = [
    (",", Part::Comma),
    (".", Part::Point),
    ("0", Part::Zero),
    ("9", Part::Nine),
    ("B", Part::Mode(Mode::Blank)),
    ("C", Part::Mode(Mode::Nothing)),
    ("D", Part::Point),
    ("EEEE", Part::Mode(Mode::Powers)),
    ("FM", Part::Mode(Mode::Bare)),
    ("G", Part::Comma),
    ("L", Part::Currency),
    ("MI", Part::Minus),
    ("PL", Part::Plus),
    ("PR", Part::Mode(Mode::Brackets)),
    ("RN", Part::Roman { is_upper: true }),
    ("SG", Part::Either),
    ("SP", Part::Mode(Mode::Nothing)),
    ("S", Part::Mode(Mode::Sign)),
    ("TH", Part::Ordinal { is_upper: true }),
    ("V", Part::Mode(Mode::Shift)),
];

impl NumberTemplate {
    pub(super) fn new(template: &str) -> Result<Self, ArgumentFault> {
        let mut new = Self::default();
        let mut rest = template;
        while let Some(letter) = rest.chars().next() {
            if let Some((part, length)) = keyword(rest) {
                new.add(part)?;
                rest = rest.get(length..).unwrap_or_default();
            } else if letter == '"' {
                rest = super::template::quoted(rest, |letter| new.parts.push(Part::Text(letter)));
            } else {
                // A backslash counts before a quote alone.
                let skipped = usize::from(rest.starts_with("\\\""));
                let letter = if skipped == 1 { '"' } else { letter };
                new.parts.push(Part::Text(letter));
                rest = rest.get(skipped + letter.len_utf8()..).unwrap_or_default();
            }
        }
        Ok(new)
    }

    fn add(&mut self, part: Part) -> Result<(), ArgumentFault> {
        if self.has_powers && part != Part::Mode(Mode::Powers) {
            return Err(wrong("\"EEEE\" must be the last pattern used"));
        }
        let has_sign = self.sign != SignPlace::None;
        match part {
            Part::Nine if self.has_brackets => return Err(wrong("\"9\" must be ahead of \"PR\"")),
            Part::Zero if self.has_brackets => return Err(wrong("\"0\" must be ahead of \"PR\"")),
            Part::Nine if self.has_shift => self.shifted += 1,
            Part::Nine | Part::Zero => {
                if part == Part::Zero && self.zero_from.is_none() && !self.has_point {
                    self.zero_from = Some(self.before);
                }
                match self.has_point {
                    true => self.behind += 1,
                    false => self.before += 1,
                }
                if part == Part::Zero {
                    self.zero_end = self.before + self.behind;
                }
            }
            Part::Point if self.has_point => return Err(wrong("multiple decimal points")),
            Part::Point | Part::Mode(Mode::Shift)
                if self.has_point || self.has_shift && part == Part::Point =>
            {
                return Err(wrong("cannot use \"V\" and decimal point together"));
            }
            Part::Point => self.has_point = true,
            Part::Mode(Mode::Shift) => self.has_shift = true,
            Part::Minus | Part::Plus | Part::Either if has_sign => {
                let name = match part {
                    Part::Minus => "MI",
                    Part::Plus => "PL",
                    _ => "SG",
                };
                return Err(wrong(format!("cannot use \"S\" and \"{name}\" together")));
            }
            Part::Minus => self.has_minus = true,
            Part::Plus => self.has_plus = true,
            Part::Either => (self.has_minus, self.has_plus) = (true, true),
            Part::Mode(Mode::Sign) if has_sign => return Err(wrong("cannot use \"S\" twice")),
            Part::Mode(Mode::Sign) if self.has_minus || self.has_plus || self.has_brackets => {
                let reason = "cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together";
                return Err(wrong(reason));
            }
            Part::Mode(Mode::Sign) => {
                self.sign = match self.has_point {
                    true => SignPlace::Behind,
                    false => SignPlace::Before(self.before),
                };
            }
            Part::Mode(Mode::Brackets) if has_sign || self.has_minus || self.has_plus => {
                let reason = "cannot use \"PR\" and \"S\"/\"PL\"/\"MI\"/\"SG\" together";
                return Err(wrong(reason));
            }
            Part::Mode(Mode::Brackets) => self.has_brackets = true,
            Part::Mode(Mode::Bare) => self.is_bare = true,
            Part::Mode(Mode::Powers) if self.has_powers => {
                return Err(wrong("cannot use \"EEEE\" twice"));
            }
            Part::Mode(Mode::Powers) => {
                let others = [
                    self.is_bare,
                    has_sign,
                    self.has_brackets,
                    self.has_minus,
                    self.has_plus,
                    self.is_roman,
                    self.has_shift,
                ];
                if others.contains(&true) {
                    return Err(wrong("\"EEEE\" is incompatible with other formats"));
                }
                self.has_powers = true;
            }
            Part::Roman { .. } => self.is_roman = true,
            Part::Mode(Mode::Blank | Mode::Nothing)
            | Part::Comma
            | Part::Currency
            | Part::Ordinal { .. }
            | Part::Text(_) => {}
        }
        if !matches!(part, Part::Mode(_)) {
            self.parts.push(part);
        }
        Ok(())
    }

    /// `number` in this template.
    pub(super) fn write(&self, number: Number<'_>) -> Result<String, ArgumentFault> {
        if self.has_powers {
            return powers_of_ten(number, self.before, self.behind);
        }
        if self.is_roman {
            let picture = Picture { digits: roman(number)?, sign: '\0', ..Picture::default() };
            return Written::new(self, picture).all();
        }
        Written::new(self, Picture::of(number, self)?).all()
    }

    /// The digits that a text has where this template has places, as the text of a number, and how many powers of
    /// ten `V` takes from it.
    pub(super) fn read(&self, text: &str) -> Result<(String, usize), ArgumentFault> {
        if self.has_powers {
            return Err(unsupported("\"EEEE\" not supported for input"));
        }
        if self.is_roman {
            return Err(unsupported("\"RN\" not supported for input"));
        }
        let number = read::read(self, text);
        let whole = number.split('.').next().unwrap_or_default();
        let whole = whole.trim_start_matches([' ', '+', '-']).trim_start_matches('0');
        if whole.len() > self.before + self.shifted {
            return Err(ArgumentFault::OutOfRange { reason: "numeric field overflow".to_owned() });
        }
        Ok((number, self.shifted))
    }

    /// Whether the template has nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty() && !self.has_powers
    }

    /// The digits behind the point of a number that is read by this template.
    pub(super) fn scale(&self) -> usize {
        self.behind + self.shifted
    }
}

/// The keyword that a text begins with, and its length.
fn keyword(text: &str) -> Option<(Part, usize)> {
    KEYWORDS.iter().find_map(|(name, part)| {
        let begin = text.get(..name.len())?;
        if begin == *name {
            return Some((*part, name.len()));
        }
        let is_lower = begin.bytes().all(|byte| byte.is_ascii_lowercase());
        let part = match part {
            Part::Roman { .. } => Part::Roman { is_upper: false },
            Part::Ordinal { .. } => Part::Ordinal { is_upper: false },
            part => *part,
        };
        (is_lower && begin.eq_ignore_ascii_case(name)).then_some((part, name.len()))
    })
}

fn wrong(reason: impl Into<String>) -> ArgumentFault {
    ArgumentFault::Syntax { reason: reason.into() }
}

fn unsupported(reason: &str) -> ArgumentFault {
    ArgumentFault::Unsupported { reason: reason.to_owned() }
}
