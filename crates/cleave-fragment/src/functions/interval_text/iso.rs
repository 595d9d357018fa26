//! Intervals as ISO 8601 writes them: with designators (`P1Y2DT3H`), or as a date and a time (`P0001-00-02T03:00:00`,
//! `P00010002T030000`).

use super::TimeTextFault::Malformed;
use super::{BILLION, Decimal, Sum, TimeTextFault, Unit, decimal};

const YEAR: Unit = Unit::Months(12);
const MONTH: Unit = Unit::Months(1);
const DAY: Unit = Unit::Days(1);
const HOUR: Unit = Unit::Nanos(3_600 * BILLION);
const MINUTE: Unit = Unit::Nanos(60 * BILLION);
const SECOND: Unit = Unit::Nanos(BILLION);

impl Sum {
    /// The text with its P.
    pub(super) fn of_iso(text: &str) -> Result<Self, TimeTextFault> {
        let text = text.strip_prefix('P').filter(|text| !text.is_empty()).ok_or(Malformed)?;
        let mut sum = Self::default();
        match text.split_once('T') {
            Some((date, time)) => {
                sum.add_part(
                    date,
                    &[('Y', YEAR), ('M', MONTH), ('W', Unit::Days(7)), ('D', DAY)],
                    '-',
                )?;
                sum.add_part(time, &[('H', HOUR), ('M', MINUTE), ('S', SECOND)], ':')?;
            }
            None => {
                sum.add_part(
                    text,
                    &[('Y', YEAR), ('M', MONTH), ('W', Unit::Days(7)), ('D', DAY)],
                    '-',
                )?;
            }
        }
        Ok(sum)
    }

    /// A date or a time: numbers with `designators` behind them, or with a mark between them, or digits of fixed
    /// places.
    fn add_part(
        &mut self,
        text: &str,
        designators: &[(char, Unit)],
        mark: char,
    ) -> Result<(), TimeTextFault> {
        let places = match mark {
            '-' => [YEAR, MONTH, DAY],
            _ => [HOUR, MINUTE, SECOND],
        };
        let mut rest = text;
        let mut is_first = true;
        while !rest.is_empty() {
            let (number, behind) = number(rest)?;
            let designator = behind.chars().next();
            let found = designators.iter().find(|(letter, _)| Some(*letter) == designator);
            if let Some((_, unit)) = found {
                self.add(number, *unit);
                rest = behind.get(1..).unwrap_or_default();
                is_first = false;
                continue;
            }
            if !is_first || designator.is_some_and(|next| next != mark) {
                return Err(Malformed);
            }
            let width = rest.bytes().skip(usize::from(rest.starts_with('-')));
            let width = width.take_while(u8::is_ascii_digit).count();
            let wanted = if mark == '-' { 8 } else { 6 };
            if designator.is_none() && width == wanted {
                let Decimal(number) = number;
                let (whole, fraction) = (number / BILLION, number % BILLION);
                let [first, second, third] = places;
                self.add(Decimal(whole / 10_000 * BILLION), first);
                self.add(Decimal(whole / 100 % 100 * BILLION), second);
                self.add(Decimal(whole % 100 * BILLION + fraction), third);
                return Ok(());
            }
            return self.add_marked(rest, places, mark);
        }
        Ok(())
    }

    /// Up to three numbers with a mark between them.
    fn add_marked(
        &mut self,
        text: &str,
        places: [Unit; 3],
        mark: char,
    ) -> Result<(), TimeTextFault> {
        let mut rest = text;
        for unit in places {
            let (number, behind) = number(rest)?;
            self.add(number, unit);
            if behind.is_empty() {
                return Ok(());
            }
            rest = behind.strip_prefix(mark).ok_or(Malformed)?;
        }
        Err(Malformed)
    }
}

/// The number that a text begins with, and what is behind it.
fn number(text: &str) -> Result<(Decimal, &str), TimeTextFault> {
    let sign = usize::from(text.starts_with('-'));
    let digits = text.bytes().skip(sign);
    let length = sign + digits.take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, behind) = text.split_at_checked(length).ok_or(Malformed)?;
    Ok((decimal(number)?, behind))
}
