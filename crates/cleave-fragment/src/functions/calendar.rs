//! Days since 1970-01-01 and the proleptic Gregorian calendar, both ways, for any year that SQL can write.
//!
//! Year 0 is 1 BC. The arithmetic is Howard Hinnant's `days_from_civil`, in `i64`, exact for every `i32` day.

/// Days since 1970-01-01 of a date; `month` 1 to 12, `day` 1 to 31, not checked against each other.
#[must_use]
pub fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a day since 1970-01-01.
#[must_use]
pub fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// Days of a month.
#[must_use]
pub fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::{date_of, days_in_month, days_of};

    #[test]
    fn known_days() {
        assert_eq!(days_of(1970, 1, 1), 0);
        assert_eq!(days_of(2000, 3, 1), 11_017);
        assert_eq!(days_of(1969, 12, 31), -1);
        assert_eq!(date_of(19_782), (2024, 2, 29));
        assert_eq!(date_of(-719_528), (0, 1, 1));
        assert_eq!(days_in_month(1900, 2), 28);
        assert_eq!(days_in_month(2000, 2), 29);
        assert_eq!(days_in_month(2023, 11), 30);
    }

    #[test]
    fn every_day_of_eight_centuries_and_the_ends_of_32_bits_come_back() {
        let days = (-146_097 * 2..146_097 * 2).chain([i64::from(i32::MIN), i64::from(i32::MAX)]);
        for day in days {
            let (year, month, in_month) = date_of(day);
            assert!((1..=days_in_month(year, month)).contains(&in_month));
            assert_eq!(days_of(year, month, in_month), day);
        }
    }
}
