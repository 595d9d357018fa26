//! The database's settings of automatic VACUUM and ANALYZE: which tables are due, and how often they are checked.
//!
//! Names and defaults are PostgreSQL's, but for `autoanalyze`: there, `autovacuum` switches both.

use std::time::Duration;

use super::TableState;
use crate::error::{Error, Result};

const AUTOVACUUM: &str = "autovacuum";
const NAPTIME: &str = "autovacuum_naptime";
const SCALE_FACTOR: &str = "autovacuum_vacuum_scale_factor";
const THRESHOLD: &str = "autovacuum_vacuum_threshold";
const AUTOANALYZE: &str = "autoanalyze";
const ANALYZE_SCALE_FACTOR: &str = "autovacuum_analyze_scale_factor";
const ANALYZE_THRESHOLD: &str = "autovacuum_analyze_threshold";

/// The stored value of a scale factor of 1.
pub(super) const SCALE_ONE: u32 = 10_000;

/// Settings of automatic vacuum; None: PostgreSQL's default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Autovacuum {
    /// Whether automatic vacuum runs.
    pub is_on: Option<bool>,
    /// Seconds between two checks.
    pub naptime_s: Option<u32>,
    /// Number of dead rows that a table may have in any case.
    pub threshold: Option<u64>,
    /// Share of its live rows that may be dead in addition, in ten-thousandths.
    pub scale: Option<u32>,
    /// Whether tables are not analysed by themselves.
    pub analyzes_none: bool,
    /// Number of rows of a table that may have changed in any case since it was analysed.
    pub analyze_threshold: Option<u64>,
    /// Share of its live rows that may have changed in addition, in ten-thousandths.
    pub analyze_scale: Option<u32>,
}

impl Autovacuum {
    /// Names of its settings.
    pub const NAMES: [&str; 7] = [
        AUTOVACUUM,
        NAPTIME,
        SCALE_FACTOR,
        THRESHOLD,
        AUTOANALYZE,
        ANALYZE_SCALE_FACTOR,
        ANALYZE_THRESHOLD,
    ];

    /// Time between two checks; None: it is off.
    pub fn pause(&self) -> Option<Duration> {
        self.vacuums().then(|| Duration::from_secs(u64::from(self.naptime_s.unwrap_or(60))))
    }

    /// Sets one of its settings; None: the default.
    ///
    /// # Errors
    /// [`Error::SettingValue`].
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<()> {
        let wrong = |name: &'static str, expected: &str| Error::SettingValue {
            name,
            value: value.unwrap_or_default().to_owned(),
            expected: expected.to_owned(),
        };
        match name.to_ascii_lowercase().as_str() {
            AUTOVACUUM => {
                self.is_on = parsed(value, switch).ok_or_else(|| wrong(AUTOVACUUM, "on or off"))?;
            }
            AUTOANALYZE => {
                let is_on = parsed(value, switch);
                let is_on = is_on.ok_or_else(|| wrong(AUTOANALYZE, "on or off"))?;
                self.analyzes_none = is_on == Some(false);
            }
            NAPTIME => {
                let seconds = |text: &str| text.trim_end_matches('s').trim_end().parse().ok();
                let expected = "a whole number of seconds from 1 to 2147483";
                self.naptime_s = parsed(value, |text| {
                    seconds(text).filter(|seconds| (1..=2_147_483).contains(seconds))
                })
                .ok_or_else(|| wrong(NAPTIME, expected))?;
            }
            SCALE_FACTOR => {
                let scale = parsed(value, scale);
                self.scale = scale.ok_or_else(|| wrong(SCALE_FACTOR, FACTORS))?;
            }
            ANALYZE_SCALE_FACTOR => {
                let scale = parsed(value, scale);
                self.analyze_scale = scale.ok_or_else(|| wrong(ANALYZE_SCALE_FACTOR, FACTORS))?;
            }
            ANALYZE_THRESHOLD => {
                let rows = parsed(value, rows);
                self.analyze_threshold = rows.ok_or_else(|| wrong(ANALYZE_THRESHOLD, ROWS))?;
            }
            _ => {
                self.threshold = parsed(value, rows).ok_or_else(|| wrong(THRESHOLD, ROWS))?;
            }
        }
        Ok(())
    }

    /// The value that SHOW prints for one of its settings; None for another setting.
    pub fn show(&self, name: &str) -> Option<String> {
        let name = Self::NAMES.into_iter().find(|known| known.eq_ignore_ascii_case(name))?;
        Some(match name {
            AUTOVACUUM => if self.vacuums() { "on" } else { "off" }.to_owned(),
            NAPTIME => format!("{}s", self.naptime_s.unwrap_or(60)),
            AUTOANALYZE => if self.analyzes_none { "off" } else { "on" }.to_owned(),
            SCALE_FACTOR => self.scale_factor().to_string(),
            ANALYZE_SCALE_FACTOR => self.analyze_scale_factor().to_string(),
            ANALYZE_THRESHOLD => self.analyze_threshold().to_string(),
            _ => self.threshold().to_string(),
        })
    }

    fn vacuums(&self) -> bool {
        self.is_on.unwrap_or(true)
    }

    fn scale_factor(&self) -> f64 {
        f64::from(self.scale.unwrap_or(SCALE_ONE / 5)) / f64::from(SCALE_ONE)
    }

    fn threshold(&self) -> u64 {
        self.threshold.unwrap_or(50)
    }

    fn analyze_scale_factor(&self) -> f64 {
        f64::from(self.analyze_scale.unwrap_or(SCALE_ONE / 10)) / f64::from(SCALE_ONE)
    }

    fn analyze_threshold(&self) -> u64 {
        self.analyze_threshold.unwrap_or(50)
    }

    /// Whether `table`, of which `changed` rows are not as when it was analysed, is to be analysed again.
    pub fn is_due_for_analyze(&self, table: &TableState, changed: u64) -> bool {
        let share = table.row_count() as f64 * self.analyze_scale_factor();
        !self.analyzes_none && changed as f64 > self.analyze_threshold() as f64 + share
    }

    /// Whether `table` has more dead rows than allowed.
    pub fn is_due(&self, table: &TableState) -> bool {
        let dead: u64 = table.tablets.iter().map(|tablet| tablet.dead_row_count()).sum();
        let share = table.row_count() as f64 * self.scale_factor();
        dead as f64 > self.threshold() as f64 + share
    }
}

pub(super) const FACTORS: &str = "a number from 0 to 100";
const ROWS: &str = "a whole number of rows from 0 to 2147483647";

/// Whether a setting is on; None if `text` does not say so.
pub fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}

fn rows(text: &str) -> Option<u64> {
    text.parse().ok().filter(|rows| *rows <= u64::from(u32::MAX >> 1))
}

/// A factor in ten-thousandths.
pub(super) fn scale(text: &str) -> Option<u32> {
    let factor: f64 = text.parse().ok().filter(|factor| (0.0..=100.0).contains(factor))?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number from 0 to 1,000,000"
    )]
    let scale = (factor * f64::from(SCALE_ONE)).round() as u32;
    Some(scale)
}

/// The value of a setting, None inside for the default; None if it is no valid value.
pub(super) fn parsed<T>(
    value: Option<&str>,
    parse: impl Fn(&str) -> Option<T>,
) -> Option<Option<T>> {
    match value {
        None => Some(None),
        Some(text) => parse(text).map(Some),
    }
}

#[cfg(test)]
mod tests {
    //! Settings of automatic vacuum as text.

    use super::*;

    #[test]
    fn settings_are_read_as_they_are_shown() {
        let mut settings = Autovacuum::default();
        for (name, shown, value) in [
            ("autovacuum", "on", "off"),
            ("autovacuum_naptime", "60s", "5s"),
            ("AUTOVACUUM_VACUUM_SCALE_FACTOR", "0.2", "0.05"),
            ("autovacuum_vacuum_threshold", "50", "1000"),
            ("autoanalyze", "on", "off"),
            ("autovacuum_analyze_scale_factor", "0.1", "0.5"),
            ("autovacuum_analyze_threshold", "50", "0"),
        ] {
            assert_eq!(settings.show(name).as_deref(), Some(shown));
            settings.set(name, Some(value)).unwrap();
            assert_eq!(settings.show(name).as_deref(), Some(value));
            assert!(settings.set(name, Some("much")).is_err(), "{name}");
        }
        assert_eq!(settings.pause(), None);
        settings.set("autovacuum", None).unwrap();
        assert_eq!(settings.pause(), Some(Duration::from_secs(5)));
        for name in Autovacuum::NAMES {
            settings.set(name, None).unwrap();
        }
        assert_eq!(settings, Autovacuum::default());
        assert_eq!(settings.show("autovacuum_freeze_max_age"), None);
    }
}
