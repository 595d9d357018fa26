//! Time templates: `YYYY-MM-DD HH24:MI:SS` in, its parts out.
//!
//! Source: PostgreSQL's documentation, "Data Type Formatting Functions".

/// Part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Field {
        field: Field,
        /// As written, where case matters: names of months and days, `AM`.
        case: Case,
        /// `FM` stands before it: no blanks and zeros are put before the value.
        is_bare: bool,
        /// `TH` or `th` stands behind it.
        ordinal: Option<Case>,
    },
    /// Literal text.
    Text {
        letter: char,
        /// It stood in double quotes, or behind a backslash.
        is_quoted: bool,
    },
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
}

/// A longer name stands before its prefixes.
const FIELDS: [(&str, Field); 51] = [
    ("HH24", Field::Hour24),
    ("HH12", Field::Hour12),
    ("HH", Field::Hour12),
    ("MI", Field::Minute),
    ("SSSSS", Field::SecondOfDay),
    ("SSSS", Field::SecondOfDay),
    ("SS", Field::Second),
    ("MS", Field::Fraction(3)),
    ("US", Field::Fraction(6)),
    ("FF1", Field::Fraction(1)),
    ("FF2", Field::Fraction(2)),
    ("FF3", Field::Fraction(3)),
    ("FF4", Field::Fraction(4)),
    ("FF5", Field::Fraction(5)),
    ("FF6", Field::Fraction(6)),
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
    ("TZ", Field::Zone),
];
const ZONE_PARTS: [(&str, Field); 2] = [("TZH", Field::ZoneHours), ("TZM", Field::ZoneMinutes)];

/// The parts of `template`.
pub(super) fn parts(template: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = template;
    let mut is_bare = false;
    while let Some(letter) = rest.chars().next() {
        if let Some(behind) = without(rest, "FM") {
            is_bare = true;
            rest = behind;
            continue;
        }
        // Modifiers for strict reading and for names in another language, of which there is one.
        if let Some(behind) = without(rest, "FX").or_else(|| without(rest, "TM")) {
            rest = behind;
            continue;
        }
        let found = ZONE_PARTS
            .iter()
            .chain(&FIELDS)
            .find_map(|(name, field)| Some((*field, name.len(), without(rest, name)?)));
        if let Some((field, length, behind)) = found {
            let case = case_of(rest.get(..length).unwrap_or_default());
            rest = behind;
            let ordinal = match rest.get(..2) {
                Some("TH") => Some(Case::Upper),
                Some("th") => Some(Case::Lower),
                _ => None,
            };
            if ordinal.is_some() {
                rest = rest.get(2..).unwrap_or_default();
            }
            parts.push(Part::Field { field, case, is_bare, ordinal });
            is_bare = false;
            continue;
        }
        rest = rest.get(letter.len_utf8()..).unwrap_or_default();
        match letter {
            '"' => {
                let mut letters = rest.chars();
                rest = "";
                while let Some(letter) = letters.next() {
                    let letter = match letter {
                        '"' => {
                            rest = letters.as_str();
                            break;
                        }
                        '\\' => letters.next().unwrap_or('\\'),
                        letter => letter,
                    };
                    parts.push(Part::Text { letter, is_quoted: true });
                }
            }
            '\\' if rest.starts_with('"') => {
                rest = rest.get(1..).unwrap_or_default();
                parts.push(Part::Text { letter: '"', is_quoted: true });
            }
            letter => parts.push(Part::Text { letter, is_quoted: false }),
        }
    }
    parts
}

/// The rest of `text` behind `word`, if it begins with it in any case.
fn without<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let begin = text.get(..word.len())?;
    begin.eq_ignore_ascii_case(word).then(|| text.get(word.len()..)).flatten()
}

fn case_of(word: &str) -> Case {
    let mut letters = word.chars().filter(char::is_ascii_alphabetic);
    let (first, second) = (letters.next(), letters.next());
    match (first, second) {
        (Some(first), _) if first.is_ascii_lowercase() => Case::Lower,
        (_, Some(second)) if second.is_ascii_lowercase() => Case::Title,
        _ => Case::Upper,
    }
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
