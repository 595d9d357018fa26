//! Dates, times and timestamps as texts, by PostgreSQL's input rules: for values that clients send, and for casts of
//! columns on either side of the link.
//!
//! Dates are read year first (ISO 8601, also `YYYYMMDD`, with slashes or points), month first (`01/05/2024`, as
//! `DateStyle` is MDY), or with the name of a month (`Jan 5, 2024`, `5-Jan-2024`, `2024 January 5`), with a day of the
//! week before them and `BC` behind, or `infinity`; times on a 24-hour clock, or with AM or PM; zones as `Z`, `UTC` or
//! an offset. Blanks around a value are ignored. Times are rounded to the microsecond.
//!
//! Source: PostgreSQL's manual, "Date/Time Input Interpretation", and its `DecodeDateTime` and `DecodeTimeOnly`.

use super::calendar::{days_in_month, days_of};
use super::infinite::{Infinite, MOMENT_END_US};

const DAY_US: i64 = 86_400_000_000;
const HOUR_US: i64 = 3_600_000_000;

/// Why a text is no date, time or interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeTextFault {
    /// It is spelled otherwise (22007).
    Malformed,
    /// It is beyond the type (22008, of an interval 22015).
    OutOfRange,
    /// Its zone is more than 15 hours from UTC (22009).
    ZoneOutOfRange,
    /// PostgreSQL accepts it, this version does not (0A000).
    Unsupported,
}

impl TimeTextFault {
    /// What is wrong with `text` as a value of the type `type_name`, as PostgreSQL says it.
    #[must_use]
    pub fn of(self, type_name: &str, text: &str) -> String {
        match self {
            Self::Malformed => format!("invalid input syntax for type {type_name}: \"{text}\""),
            Self::OutOfRange if type_name == "interval" => {
                format!("interval field value out of range: \"{text}\"")
            }
            Self::OutOfRange => format!("date/time field value out of range: \"{text}\""),
            Self::ZoneOutOfRange => format!("time zone displacement out of range: \"{text}\""),
            Self::Unsupported => format!("value \"{text}\" of type {type_name} is not supported"),
        }
    }
}

type Read<T> = Result<T, TimeTextFault>;

/// `date`: days since 1970-01-01. A time of day and a zone behind it are read and ignored, as in PostgreSQL.
///
/// # Errors
/// The text is no date.
pub fn date(text: &str) -> Read<i32> {
    if let Some(days) = plain_date(text) {
        return i32::try_from(days).map_err(|_| TimeTextFault::OutOfRange);
    }
    if let Some(infinite) = Infinite::of_text(text) {
        return Ok(infinite.days());
    }
    let text = trim(text);
    if text.eq_ignore_ascii_case("epoch") {
        return Ok(0);
    }
    i32::try_from(Moment::read(text)?.days).map_err(|_| TimeTextFault::OutOfRange)
}

/// `time without time zone`: microseconds since midnight, 24:00:00 included. A date before it and a zone behind it are
/// read and ignored, as in PostgreSQL.
///
/// # Errors
/// The text is no time.
pub fn time(text: &str) -> Read<i64> {
    let text = trim(text);
    match Moment::read(text) {
        // A date has a clock's time behind it here.
        Ok(_) if text.ends_with("allballs") => return Err(TimeTextFault::Malformed),
        // Nor has one with the name of a month.
        Ok(Moment { is_numeric: false, .. }) => return Err(TimeTextFault::Malformed),
        Ok(moment) => return moment.time_us.ok_or(TimeTextFault::Malformed),
        Err(TimeTextFault::Malformed) => {}
        Err(other) => return Err(other),
    }
    let mut scan = Scan::new(text);
    let time = scan.time()?;
    scan.zone()?;
    scan.end()?;
    Ok(time)
}

/// `timestamp without time zone`: microseconds since 1970-01-01T00:00:00. A zone is read and ignored, as in
/// PostgreSQL.
///
/// # Errors
/// The text is no timestamp.
pub fn timestamp(text: &str) -> Read<i64> {
    let (timestamp, _) = timestamp_and_zone(text)?;
    within_range(timestamp)
}

/// `timestamp with time zone`: microseconds since 1970-01-01T00:00:00Z. Without a zone it is UTC.
///
/// # Errors
/// The text is no timestamp.
pub fn timestamp_tz(text: &str) -> Read<i64> {
    let (timestamp, zone) = timestamp_and_zone(text)?;
    if Infinite::of_micros(timestamp).is_some() {
        return Ok(timestamp);
    }
    within_range(timestamp.checked_sub(zone).ok_or(TimeTextFault::OutOfRange)?)
}

/// `timestamp`, if it is infinite or lies in PostgreSQL's range, and before those that are not finite here.
fn within_range(timestamp: i64) -> Read<i64> {
    let is_finite = (days_of(-4713, 11, 24) * DAY_US..MOMENT_END_US).contains(&timestamp);
    let is_kept = is_finite || Infinite::of_micros(timestamp).is_some();
    is_kept.then_some(timestamp).ok_or(TimeTextFault::OutOfRange)
}

fn timestamp_and_zone(text: &str) -> Read<(i64, i64)> {
    if let Some(infinite) = Infinite::of_text(text) {
        return Ok((infinite.micros(), 0));
    }
    let text = trim(text);
    if text.eq_ignore_ascii_case("epoch") {
        return Ok((0, 0));
    }
    let Moment { days, time_us, zone_us, .. } = Moment::read(text)?;
    let start = days.checked_mul(DAY_US).filter(|start| *start < MOMENT_END_US);
    let timestamp = start.and_then(|start| start.checked_add(time_us.unwrap_or(0)));
    Ok((timestamp.ok_or(TimeTextFault::OutOfRange)?, zone_us))
}

/// The text without surrounding blanks, as defined by C's `isspace`.
#[must_use]
#[inline]
pub fn trim(text: &str) -> &str {
    // Mostly there are none: no byte above a space is one, or is of one.
    let is_other = |byte: Option<&u8>| byte.is_some_and(|byte| *byte > b' ');
    if is_other(text.as_bytes().first()) && is_other(text.as_bytes().last()) {
        return text;
    }
    text.trim_matches(|character: char| character.is_ascii_whitespace() || character == '\x0b')
}

/// The days of a date as SQL writes it, `2024-01-31`; None: it is written in another way, or does not exist.
fn plain_date(text: &str) -> Option<i64> {
    let [a, b, c, d, b'-', e, f, b'-', g, h] = text.as_bytes() else { return None };
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| i64::from(*byte - b'0'));
    let year = digit(a)? * 1000 + digit(b)? * 100 + digit(c)? * 10 + digit(d)?;
    let (month, day) = (digit(e)? * 10 + digit(f)?, digit(g)? * 10 + digit(h)?);
    // All of these years are within PostgreSQL's.
    let exists =
        year > 0 && (1..=12).contains(&month) && (1..=days_in_month(year, month)).contains(&day);
    exists.then(|| days_of(year, month, day))
}

/// A date, with a time of day if there is one.
struct Moment {
    /// Days since 1970-01-01.
    days: i64,
    /// Microseconds since midnight.
    time_us: Option<i64>,
    /// Microseconds that the zone is ahead of UTC.
    zone_us: i64,
    /// Its date has no name of a month.
    is_numeric: bool,
}

impl Moment {
    fn read(text: &str) -> Read<Self> {
        let mut scan = Scan::new(text);
        let Date { year, month, day, early, is_numeric } = scan.date()?;
        let separated = early.is_none()
            && (scan.blanks() || is_numeric && (scan.take(b'T') || scan.take(b't')));
        let has_time = separated
            && scan.peek().is_some_and(|byte| byte.is_ascii_digit() || matches!(byte, b'a' | b'A'));
        let time_us = if has_time { Some(scan.time()?) } else { early };
        let _ = scan.blanks();
        let zone_us = scan.zone()?;
        let before_christ = scan.before_christ();
        scan.end()?;
        let days = civil_days((year, month, day), before_christ)?;
        Ok(Self { days, time_us, zone_us, is_numeric })
    }
}

fn civil_days((year, month, day): (i64, i64, i64), before_christ: bool) -> Read<i64> {
    let year = match (year, before_christ) {
        (0, _) => return Err(TimeTextFault::OutOfRange),
        (year, true) => 1 - year,
        (year, false) => year,
    };
    // PostgreSQL's dates begin with the Julian days and end in the year 5874897.
    let first = days_of(-4713, 11, 24);
    if !(1..=12).contains(&month)
        || !(1..=days_in_month(year, month)).contains(&day)
        || year > 5_874_897
        || days_of(year, month, day) < first
    {
        return Err(TimeTextFault::OutOfRange);
    }
    Ok(days_of(year, month, day))
}

/// The parts of a date.
struct Date {
    year: i64,
    month: i64,
    day: i64,
    /// A time of day that stands before the year, as in `Jan 5 10:00:00 2024`.
    early: Option<i64>,
    /// It has no name of a month.
    is_numeric: bool,
}

impl Date {
    fn numeric(year: i64, month: i64, day: i64) -> Self {
        Self { year, month, day, early: None, is_numeric: true }
    }
}

/// A reader of digits and separators from left to right.
struct Scan<'a> {
    rest: &'a [u8],
}

impl<'a> Scan<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text.as_bytes() }
    }

    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    fn take(&mut self, mark: u8) -> bool {
        match self.rest {
            [first, tail @ ..] if *first == mark => {
                self.rest = tail;
                true
            }
            _ => false,
        }
    }

    /// Takes `word`, in any case.
    fn take_word(&mut self, word: &str) -> bool {
        let begins =
            self.rest.get(..word.len()).is_some_and(|it| it.eq_ignore_ascii_case(word.as_bytes()));
        if begins {
            self.rest = self.rest.get(word.len()..).unwrap_or_default();
        }
        begins
    }

    fn blanks(&mut self) -> bool {
        let before = self.rest.len();
        self.rest = self.rest.trim_ascii_start();
        self.rest.len() < before
    }

    fn end(&self) -> Read<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(TimeTextFault::Malformed) }
    }

    /// A number of at most `count_max` digits, with its count of digits; None where there is no digit.
    fn digits(&mut self, count_max: usize) -> Option<(i64, usize)> {
        let count =
            self.rest.iter().take(count_max).take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, tail) = self.rest.split_at_checked(count)?;
        let value = digits.iter().fold(0_i64, |value, digit| value * 10 + i64::from(digit - b'0'));
        self.rest = tail;
        (count > 0).then_some((value, count))
    }

    fn number(&mut self, count_max: usize) -> Read<i64> {
        self.digits(count_max).map(|(value, _)| value).ok_or(TimeTextFault::Malformed)
    }

    fn date(&mut self) -> Read<Date> {
        let special = ["now", "today", "tomorrow", "yesterday"];
        if special.iter().any(|word| self.rest.eq_ignore_ascii_case(word.as_bytes())) {
            return Err(TimeTextFault::Unsupported);
        }
        if self.named(&WEEKDAYS).is_some() {
            self.gap()?;
        }
        if let Some(month) = self.named(&MONTHS) {
            self.gap()?;
            let day = self.number(2)?;
            self.gap()?;
            let early = if self.has_clock() { Some(self.time()?) } else { None };
            if early.is_some() {
                self.gap()?;
            }
            return Ok(Date { year: self.year()?, month, day, early, is_numeric: false });
        }
        let (first, count) = self.digits(8).ok_or(TimeTextFault::Malformed)?;
        if count == 8 && !matches!(self.peek(), Some(b'-' | b'/' | b'.')) {
            return Ok(Date::numeric(first / 10_000, first / 100 % 100, first % 100));
        }
        let separator = self.peek().ok_or(TimeTextFault::Malformed)?;
        self.gap()?;
        // One or two digits are a day before the name of a month, else a month.
        let is_year = match count {
            1 | 2 => false,
            4..=7 => true,
            _ => return Err(TimeTextFault::Malformed),
        };
        if let Some(month) = self.named(&MONTHS) {
            // As before it.
            if self.peek() != Some(separator) {
                return Err(TimeTextFault::Malformed);
            }
            self.gap()?;
            let (year, day) = match is_year {
                true => (first, self.last_number()?),
                false => (self.year()?, first),
            };
            return Ok(Date { year, month, day, early: None, is_numeric: false });
        }
        if !matches!(separator, b'-' | b'/' | b'.') {
            return Err(TimeTextFault::Malformed);
        }
        let second = self.number(2)?;
        if !self.take(separator) {
            return Err(TimeTextFault::Malformed);
        }
        Ok(match is_year {
            true => Date::numeric(first, second, self.last_number()?),
            false => Date::numeric(self.year()?, first, second),
        })
    }

    /// A number of at most two digits that no digit follows.
    fn last_number(&mut self) -> Read<i64> {
        let number = self.number(2)?;
        match self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            true => Err(TimeTextFault::Malformed),
            false => Ok(number),
        }
    }

    /// A year behind its month and day: of one or two digits, that of 1970 to 2069.
    fn year(&mut self) -> Read<i64> {
        let (year, count) = self.digits(7).ok_or(TimeTextFault::Malformed)?;
        let is_before_christ = self
            .rest
            .trim_ascii_end()
            .last_chunk()
            .is_some_and(|end: &[u8; 2]| end.eq_ignore_ascii_case(b"bc"));
        Ok(match year {
            _ if count > 2 || is_before_christ => year,
            ..70 => year + 2000,
            _ => year + 1900,
        })
    }

    /// The place, from 1 on, of the entry that has the next word.
    fn named(&mut self, names: &[&[&str]]) -> Option<i64> {
        let count = self.rest.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        let (word, tail) = self.rest.split_at_checked(count)?;
        let is_it = |name: &&str| word.eq_ignore_ascii_case(name.as_bytes());
        let place = names.iter().position(|spellings| spellings.iter().any(is_it))?;
        self.rest = tail;
        i64::try_from(place + 1).ok()
    }

    /// What stands between the parts of a date: blanks, with a comma before them, or a mark.
    fn gap(&mut self) -> Read<()> {
        let has_comma = self.take(b',');
        let found =
            self.blanks() || has_comma || [b'-', b'/', b'.'].iter().any(|mark| self.take(*mark));
        if found { Ok(()) } else { Err(TimeTextFault::Malformed) }
    }

    /// Whether a time with a colon follows.
    fn has_clock(&self) -> bool {
        let count = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        count > 0 && self.rest.get(count) == Some(&b':')
    }

    /// `HH:MM[:SS[.digits]]`, `HHMM` or `HHMMSS[.digits]`, with or without AM or PM, or `allballs`, in microseconds.
    fn time(&mut self) -> Read<i64> {
        if self.take_word("allballs") {
            return Ok(0);
        }
        let (first, count) = self.digits(6).ok_or(TimeTextFault::Malformed)?;
        let (hour, minute, second, has_seconds) = match count {
            1 | 2 if self.take(b':') => {
                let minute = self.number(2)?;
                let has_seconds = self.take(b':');
                (first, minute, if has_seconds { self.number(2)? } else { 0 }, has_seconds)
            }
            4 => (first / 100, first % 100, 0, false),
            6 => (first / 10_000, first / 100 % 100, first % 100, true),
            _ => return Err(TimeTextFault::Malformed),
        };
        let fraction = if has_seconds && self.take(b'.') { self.fraction_us() } else { 0 };
        if hour > 24 || minute > 59 || second > 60 {
            return Err(TimeTextFault::OutOfRange);
        }
        let time = ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction;
        let time = match self.half_of_day() {
            Some(_) if hour > 12 => return Err(TimeTextFault::OutOfRange),
            Some(Half::Am) if hour == 12 => time - 12 * HOUR_US,
            Some(Half::Pm) if hour < 12 => time + 12 * HOUR_US,
            _ => time,
        };
        if time > DAY_US { Err(TimeTextFault::OutOfRange) } else { Ok(time) }
    }

    fn half_of_day(&mut self) -> Option<Half> {
        let before = self.rest;
        let _ = self.blanks();
        let half = if self.take_word("am") {
            Some(Half::Am)
        } else if self.take_word("pm") {
            Some(Half::Pm)
        } else {
            None
        };
        if half.is_none() {
            self.rest = before;
        }
        half
    }

    /// Digits after a point as microseconds, half of one rounded to even; none are zero. Digits beyond the twelfth
    /// decide nothing but that.
    fn fraction_us(&mut self) -> i64 {
        let (micros, count) = self.digits(6).unwrap_or_default();
        let micros = (count..6).fold(micros, |micros, _| micros * 10);
        let mut order = std::cmp::Ordering::Less;
        if let Some(seventh) = self.peek().filter(u8::is_ascii_digit) {
            self.take(seventh);
            order = seventh.cmp(&b'5');
            while let Some(digit) = self.peek().filter(u8::is_ascii_digit) {
                self.take(digit);
                if digit != b'0' && order.is_eq() {
                    order = std::cmp::Ordering::Greater;
                }
            }
        }
        micros + i64::from(order.is_gt() || order.is_eq() && micros % 2 == 1)
    }

    /// A zone's offset from UTC in microseconds, behind blanks; no zone is UTC.
    fn zone(&mut self) -> Read<i64> {
        let before = self.rest;
        let _ = self.blanks();
        if ["utc", "gmt", "z"].iter().any(|name| self.take_word(name)) {
            return Ok(0);
        }
        let sign = match self.peek() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => {
                self.rest = before;
                return Ok(0);
            }
        };
        self.rest = self.rest.get(1..).unwrap_or_default();
        let (first, count) = self.digits(4).ok_or(TimeTextFault::Malformed)?;
        let (hour, mut minute) = if count > 2 { (first / 100, first % 100) } else { (first, 0) };
        let mut second = 0;
        if count <= 2 && self.take(b':') {
            minute = self.number(2)?;
            if self.take(b':') {
                second = self.number(2)?;
            }
        }
        if hour > 15 || minute > 59 || second > 59 {
            return Err(TimeTextFault::ZoneOutOfRange);
        }
        Ok(sign * ((hour * 60 + minute) * 60 + second) * 1_000_000)
    }

    fn before_christ(&mut self) -> bool {
        let trimmed = self.rest.trim_ascii_start();
        let found = trimmed.eq_ignore_ascii_case(b"bc");
        if found {
            self.rest = &[];
        }
        found
    }
}

const MONTHS: [&[&str]; 12] = [
    &["jan", "january"],
    &["feb", "february"],
    &["mar", "march"],
    &["apr", "april"],
    &["may"],
    &["jun", "june"],
    &["jul", "july"],
    &["aug", "august"],
    &["sep", "sept", "september"],
    &["oct", "october"],
    &["nov", "november"],
    &["dec", "december"],
];

const WEEKDAYS: [&[&str]; 7] = [
    &["sun", "sunday"],
    &["mon", "monday"],
    &["tue", "tues", "tuesday"],
    &["wed", "weds", "wednesday"],
    &["thu", "thur", "thurs", "thursday"],
    &["fri", "friday"],
    &["sat", "saturday"],
];

/// Which half of the day a time on a 12-hour clock is in.
enum Half {
    Am,
    Pm,
}
