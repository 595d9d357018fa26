//! The database's settings of automatic rebalancing: whether a server moves tablets, of which tables, how fast, and
//! which devices get none.
//!
//! Only tables that ask for it are balanced ([`TableState::is_balanced`]): where somebody has put tablets by weights or
//! by MOVE TABLET, they stay. So it is on by default, and does nothing before a table asks.

use std::collections::BTreeSet;
use std::time::Duration;

use cleave_media::BLOCK_SIZE;

use super::autovacuum::{FACTORS, SCALE_ONE, parsed, scale, switch};
use super::{DeviceId, TableState, proto};
use crate::error::{Error, Result};
use crate::settings::{bytes_text, parse_bytes};

const REBALANCE: &str = "rebalance";
const MIN_SIZE: &str = "rebalance_min_size";
const NAPTIME: &str = "rebalance_naptime";
const RATE: &str = "rebalance_rate";
const THRESHOLD: &str = "rebalance_threshold";

/// A fifth, in ten-thousandths.
const THRESHOLD_DEFAULT: u32 = SCALE_ONE / 5;
const MIN_SIZE_DEFAULT: u64 = 64 << 20;
const RATE_DEFAULT: u64 = 32 << 20;
/// A move may hold old catalog versions, and is not to take for ever.
const RATE_MIN: u64 = 64 << 10;
const NAPTIME_S_DEFAULT: u32 = 60;

/// Settings of automatic rebalancing; None: the default. See the module's description.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rebalance {
    /// Whether it runs.
    pub is_on: Option<bool>,
    /// Seconds between two checks.
    pub naptime_s: Option<u32>,
    /// Share of its part of a table that a device may have in addition, in ten-thousandths.
    pub threshold: Option<u32>,
    /// Bytes of the smallest table that is balanced.
    pub min_bytes: Option<u64>,
    /// Bytes that are copied a second; 0: as many as can be.
    pub rate: Option<u64>,
    /// Devices that were drained and get no tablets by themselves; some may be gone by now.
    pub drained: BTreeSet<DeviceId>,
}

impl Rebalance {
    /// Names of its settings.
    pub const NAMES: [&str; 5] = [REBALANCE, MIN_SIZE, NAPTIME, RATE, THRESHOLD];

    /// Whether it runs.
    pub fn is_on(&self) -> bool {
        self.is_on.unwrap_or(true)
    }

    /// Time between two checks.
    pub fn pause(&self) -> Duration {
        Duration::from_secs(u64::from(self.naptime_s.unwrap_or(NAPTIME_S_DEFAULT)))
    }

    /// Bytes that a move may copy a second; None: as many as can be.
    pub fn rate(&self) -> Option<u64> {
        Some(self.rate.unwrap_or(RATE_DEFAULT)).filter(|rate| *rate > 0)
    }

    /// Rows that a device may have of a table, if `share` rows are its part.
    pub fn most(&self, share: u64) -> u64 {
        let threshold = u64::from(self.threshold.unwrap_or(THRESHOLD_DEFAULT));
        let extra = share.saturating_mul(threshold).div_ceil(u64::from(SCALE_ONE));
        share.saturating_add(extra)
    }

    /// Whether `table` asks to be balanced, and is large enough.
    pub fn concerns(&self, table: &TableState) -> bool {
        let bytes = || {
            let extents = table.tablets.iter().flat_map(|tablet| tablet.extents());
            let blocks: u64 = extents.map(|extent| u64::from(extent.block_count)).sum();
            blocks.saturating_mul(BLOCK_SIZE as u64)
        };
        table.is_balanced && bytes() >= self.min_bytes.unwrap_or(MIN_SIZE_DEFAULT)
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
            REBALANCE => {
                self.is_on = parsed(value, switch).ok_or_else(|| wrong(REBALANCE, "on or off"))?;
            }
            MIN_SIZE => {
                let expected = "a number of bytes, as in '64MB'";
                self.min_bytes =
                    parsed(value, parse_bytes).ok_or_else(|| wrong(MIN_SIZE, expected))?;
            }
            RATE => {
                let rate =
                    |text: &str| parse_bytes(text).filter(|rate| *rate == 0 || *rate >= RATE_MIN);
                let expected = "bytes a second, at least 64kB, or 0 for no limit";
                self.rate = parsed(value, rate).ok_or_else(|| wrong(RATE, expected))?;
            }
            NAPTIME => {
                let seconds = |text: &str| {
                    let seconds = text.trim_end_matches('s').trim_end().parse::<u32>().ok();
                    seconds.filter(|seconds| (1..=2_147_483).contains(seconds))
                };
                let expected = "a whole number of seconds from 1 to 2147483";
                self.naptime_s = parsed(value, seconds).ok_or_else(|| wrong(NAPTIME, expected))?;
            }
            _ => {
                self.threshold = parsed(value, scale).ok_or_else(|| wrong(THRESHOLD, FACTORS))?;
            }
        }
        Ok(())
    }

    /// The value that SHOW prints for one of its settings; None for another setting.
    pub fn show(&self, name: &str) -> Option<String> {
        let name = Self::NAMES.into_iter().find(|known| known.eq_ignore_ascii_case(name))?;
        Some(match name {
            REBALANCE => if self.is_on() { "on" } else { "off" }.to_owned(),
            MIN_SIZE => bytes_text(self.min_bytes.unwrap_or(MIN_SIZE_DEFAULT)),
            RATE => match self.rate() {
                Some(rate) => bytes_text(rate),
                None => "0".to_owned(),
            },
            NAPTIME => format!("{}s", self.naptime_s.unwrap_or(NAPTIME_S_DEFAULT)),
            _ => {
                let threshold = self.threshold.unwrap_or(THRESHOLD_DEFAULT);
                (f64::from(threshold) / f64::from(SCALE_ONE)).to_string()
            }
        })
    }

    /// The message for a manifest; None: all is as it is by default.
    pub(super) fn encode(&self) -> Option<proto::Rebalance> {
        (*self != Self::default()).then(|| proto::Rebalance {
            is_on: self.is_on,
            naptime_s: self.naptime_s,
            threshold: self.threshold,
            min_bytes: self.min_bytes,
            rate: self.rate,
            drained: self.drained.iter().map(|device| device.0).collect(),
        })
    }

    /// Reads what [`Rebalance::encode`] wrote.
    pub(super) fn decode(message: Option<proto::Rebalance>) -> Self {
        let message = message.unwrap_or_default();
        Self {
            is_on: message.is_on,
            naptime_s: message.naptime_s,
            threshold: message.threshold,
            min_bytes: message.min_bytes,
            rate: message.rate,
            drained: message.drained.into_iter().map(DeviceId).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Settings of rebalancing as text.

    use super::*;

    #[test]
    fn settings_are_read_as_they_are_shown() {
        let mut settings = Rebalance::default();
        for (name, shown, value) in [
            ("rebalance", "on", "off"),
            ("rebalance_naptime", "60s", "5s"),
            ("REBALANCE_THRESHOLD", "0.2", "0.05"),
            ("rebalance_min_size", "64MB", "0B"),
            ("rebalance_rate", "32MB", "64kB"),
        ] {
            assert_eq!(settings.show(name).as_deref(), Some(shown));
            settings.set(name, Some(value)).unwrap();
            assert_eq!(settings.show(name).as_deref(), Some(value));
            assert!(settings.set(name, Some("much")).is_err(), "{name}");
        }
        assert!(settings.set("rebalance_rate", Some("1kB")).is_err());
        assert_eq!((settings.is_on(), settings.pause()), (false, Duration::from_secs(5)));
        assert_eq!((settings.most(1000), settings.most(1), settings.most(0)), (1050, 2, 0));
        settings.set("rebalance_rate", Some("0")).unwrap();
        assert_eq!(
            (settings.rate(), settings.show("rebalance_rate").as_deref()),
            (None, Some("0"))
        );
        assert_eq!(Rebalance::decode(settings.encode()), settings);
        for name in Rebalance::NAMES {
            settings.set(name, None).unwrap();
        }
        assert_eq!(settings, Rebalance::default());
        assert_eq!((settings.encode(), settings.show("rebalance_tables")), (None, None));
    }
}
