//! Time templates: `YYYY-MM-DD HH24:MI:SS` in, its parts out.
//!
//! A keyword is in upper or in lower case, and names of months and days in title case besides; `Yyyy` is a `Y` that
//! nothing reads, and three letters.
//!
//! Source: PostgreSQL's documentation, "Data Type Formatting Functions".

use cleave_fragment::functions::bounded::ResultTooLarge;
use datafusion::error::{DataFusionError, Result};

/// Part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Field {
        field: Field,
        /// The keyword, as written.
        name: &'static str,
        /// As written, where case matters: names of months and days, `AM`.
        case: Case,
        /// `FM` stands before it: no blanks and zeros are put before the value.
        is_bare: bool,
        /// `TM` stands before it: the name in another language, of which there is one, and without blanks.
        is_translated: bool,
        /// `TH` or `th` stands behind it.
        ordinal: Option<Case>,
    },
    /// `FX`: what follows is read as it stands.
    Exact,
    /// Literal text.
    Text { letter: char, kind: Kind },
}

/// What a literal character is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A mark, which separates fields.
    Mark,
    Blank,
    /// Any other, and all in double quotes.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    Upper,
    Title,
    Lower,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Hour12,
    Hour24,
    Minute,
    Second,
    /// Fraction of a second, with that many digits.
    Fraction(u8),
    /// Thousandths and millionths, which have their own rule where they are read.
    Millis,
    Micros,
    SecondOfDay,
    /// With points?
    Noon(bool),
    /// BC or AD, with points?
    Era(bool),
    YearWithComma,
    /// The last digits, that many of them.
    Year(u8),
    IsoYear(u8),
    MonthName,
    MonthShort,
    Month,
    MonthRoman,
    DayName,
    DayShort,
    DayOfYear,
    IsoDayOfYear,
    Day,
    /// 1 is Sunday.
    DayOfWeek,
    /// 1 is Monday.
    IsoDayOfWeek,
    WeekOfMonth,
    WeekOfYear,
    IsoWeek,
    Century,
    Julian,
    Quarter,
    Zone,
    ZoneHours,
    ZoneMinutes,
    Offset,
    /// `FX`.
    Exact,
}

/// A longer name stands before its prefixes.
const FIELDS: [(&str, Field); 54] = [
    ("HH24", Field::Hour24),
    ("HH12", Field::Hour12),
    ("HH", Field::Hour12),
    ("MI", Field::Minute),
    ("SSSSS", Field::SecondOfDay),
    ("SSSS", Field::SecondOfDay),
    ("SS", Field::Second),
    ("MS", Field::Millis),
    ("US", Field::Micros),
    ("FF1", Field::Fraction(1)),
    ("FF2", Field::Fraction(2)),
    ("FF3", Field::Fraction(3)),
    ("FF4", Field::Fraction(4)),
    ("FF5", Field::Fraction(5)),
    ("FF6", Field::Fraction(6)),
    ("FX", Field::Exact),
    ("A.M.", Field::Noon(true)),
    ("P.M.", Field::Noon(true)),
    ("AM", Field::Noon(false)),
    ("PM", Field::Noon(false)),
    ("B.C.", Field::Era(true)),
    ("A.D.", Field::Era(true)),
    ("BC", Field::Era(false)),
    ("AD", Field::Era(false)),
    ("Y,YYY", Field::YearWithComma),
    ("YYYY", Field::Year(4)),
    ("YYY", Field::Year(3)),
    ("YY", Field::Year(2)),
    ("Y", Field::Year(1)),
    ("IYYY", Field::IsoYear(4)),
    ("IYY", Field::IsoYear(3)),
    ("IY", Field::IsoYear(2)),
    ("IDDD", Field::IsoDayOfYear),
    ("ID", Field::IsoDayOfWeek),
    ("IW", Field::IsoWeek),
    ("I", Field::IsoYear(1)),
    ("MONTH", Field::MonthName),
    ("MON", Field::MonthShort),
    ("MM", Field::Month),
    ("RM", Field::MonthRoman),
    ("DAY", Field::DayName),
    ("DY", Field::DayShort),
    ("DDD", Field::DayOfYear),
    ("DD", Field::Day),
    ("D", Field::DayOfWeek),
    ("WW", Field::WeekOfYear),
    ("W", Field::WeekOfMonth),
    ("CC", Field::Century),
    ("J", Field::Julian),
    ("Q", Field::Quarter),
    ("OF", Field::Offset),
    ("TZH", Field::ZoneHours),
    ("TZM", Field::ZoneMinutes),
    ("TZ", Field::Zone),
];
/// In title case.
const TITLES: [(&str, Field); 4] = [
    ("Month", Field::MonthName),
    ("Mon", Field::MonthShort),
    ("Day", Field::DayName),
    ("Dy", Field::DayShort),
];
/// Most bytes of a template.
const TEMPLATE_BYTES_MAX: usize = 1 << 20;

/// Refuses a template whose parts alone would take much memory.
pub(super) fn check_length(function: &str, template: &str) -> Result<()> {
    if template.len() <= TEMPLATE_BYTES_MAX {
        return Ok(());
    }
    let bytes = (template.len() as u64).saturating_mul(size_of::<Part>() as u64);
    let error = ResultTooLarge { function: function.to_owned(), bytes, rows: 1 };
    Err(DataFusionError::External(Box::new(error)))
}

/// The parts of `template`.
pub(super) fn parts(template: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = template;
    loop {
        let (mut is_bare, mut is_translated) = (false, false);
        // One modifier, which a keyword must follow.
        if let Some(behind) = after(rest, &["FM", "fm"]) {
            (is_bare, rest) = (true, behind);
        } else if let Some(behind) = after(rest, &["TM", "tm"]) {
            (is_translated, rest) = (true, behind);
        }
        let Some(letter) = rest.chars().next() else { return parts };
        if let Some((field, name, case)) = keyword(rest) {
            rest = rest.get(name.len()..).unwrap_or_default();
            let mut ordinal = None;
            for (word, case) in [("TH", Some(Case::Upper)), ("th", Some(Case::Lower)), ("SP", None)]
            {
                if let Some(behind) = rest.strip_prefix(word) {
                    (ordinal, rest) = (case, behind);
                    break;
                }
            }
            parts.push(match field {
                Field::Exact => Part::Exact,
                field => Part::Field { field, name, case, is_bare, is_translated, ordinal },
            });
        } else if letter == '"' {
            rest = quoted(rest, |letter| parts.push(Part::Text { letter, kind: Kind::Other }));
        } else {
            // A backslash counts before a quote alone.
            let skipped = usize::from(rest.starts_with("\\\""));
            let letter = if skipped == 1 { '"' } else { letter };
            rest = rest.get(skipped + letter.len_utf8()..).unwrap_or_default();
            let kind = match letter {
                letter if is_mark(letter) => Kind::Mark,
                letter if is_blank(letter) => Kind::Blank,
                _ => Kind::Other,
            };
            parts.push(Part::Text { letter, kind });
        }
    }
}

/// Gives the characters of the text in double quotes that `text` begins with, in which a backslash quotes the next
/// character; returns what is behind it.
pub(super) fn quoted(text: &str, mut give: impl FnMut(char)) -> &str {
    let mut letters = text.chars();
    letters.next();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => return letters.as_str(),
            '\\' => give(letters.next().unwrap_or('\\')),
            letter => give(letter),
        }
    }
    ""
}

pub(super) fn is_mark(letter: char) -> bool {
    letter.is_ascii_graphic() && !letter.is_ascii_alphanumeric()
}

pub(super) fn is_blank(letter: char) -> bool {
    letter.is_ascii_whitespace() || letter == '\x0b'
}

/// The rest of `text` behind one of `words`.
fn after<'a>(text: &'a str, words: &[&str]) -> Option<&'a str> {
    words.iter().find_map(|word| text.strip_prefix(word))
}

fn keyword(text: &str) -> Option<(Field, &'static str, Case)> {
    let found = |(name, field): &(&'static str, Field)| {
        let begin = text.get(..name.len())?;
        let is_title = name.ends_with(|end: char| end.is_ascii_lowercase());
        let is_lower = || !begin.bytes().any(|byte| byte.is_ascii_uppercase());
        let case = match begin == *name {
            true if is_title => Case::Title,
            true => Case::Upper,
            false if begin.eq_ignore_ascii_case(name) && is_lower() => Case::Lower,
            false => return None,
        };
        Some((*field, *name, case))
    };
    TITLES.iter().chain(&FIELDS).find_map(found)
}

pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
pub(super) const MONTHS_ROMAN: [&str; 12] =
    ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];
/// From Sunday on.
pub(super) const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
