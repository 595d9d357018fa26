//! Counters of a scan's index look-ups, kept among the scan's metrics so that they travel with those.
//!
//! A metric's name is the counter's and the index's. [`IndexFigures::of_metrics`] reassembles what
//! [`IndexFigures::counts`] took apart, summed over partitions and devices.

use std::collections::BTreeMap;
use std::fmt;

/// Separates the counter's name from the index's.
const OF: &str = " of index ";

/// The results of looking a join's keys up in one index.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IndexFigures {
    /// Name of the index.
    pub index: String,
    /// Times that its entries filtered a scan.
    pub used: u64,
    /// Times that it was tried and did not pay.
    pub given_up: u64,
    /// Known keys.
    pub keys: u64,
    /// Entries found.
    pub entries: u64,
    /// Index pages read.
    pub pages_read: u64,
    /// Pages of the index.
    pub pages: u64,
}

impl IndexFigures {
    /// Name and value of each count.
    pub fn counts(&self) -> impl Iterator<Item = (String, u64)> {
        let counts = [
            ("uses", self.used),
            ("vain uses", self.given_up),
            ("keys", self.keys),
            ("entries", self.entries),
            ("pages read", self.pages_read),
            ("pages", self.pages),
        ];
        counts.into_iter().map(|(what, count)| (format!("{what}{OF}{}", self.index), count))
    }

    /// The figures of each index among the metrics of a scan, by name.
    pub fn of_metrics<'a>(metrics: impl IntoIterator<Item = (&'a str, u64)>) -> Vec<Self> {
        let mut found: BTreeMap<&str, Self> = BTreeMap::new();
        for (name, count) in metrics {
            let Some((what, index)) = name.split_once(OF) else { continue };
            let figures = found.entry(index).or_default();
            index.clone_into(&mut figures.index);
            match what {
                "uses" => figures.used += count,
                "vain uses" => figures.given_up += count,
                "keys" => figures.keys += count,
                "entries" => figures.entries += count,
                "pages read" => figures.pages_read += count,
                "pages" => figures.pages += count,
                _ => {}
            }
        }
        found.into_values().collect()
    }
}

impl fmt::Display for IndexFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, keys, entries, pages_read, pages, .. } = self;
        write!(f, "{index}, {keys} keys: ")?;
        match (self.used, self.given_up) {
            (0, _) => write!(f, "not used, {pages_read} of {pages} pages read"),
            (_, 0) => write!(f, "{entries} entries on {pages_read} of {pages} pages"),
            (used, given_up) => write!(
                f,
                "{entries} entries, {pages_read} of {pages} pages read, used {used} times of {}",
                used + given_up
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Figures survive the way through metrics, summed up.

    use super::*;

    #[test]
    fn figures_come_back_from_metrics() {
        let one = IndexFigures {
            index: "a of index b".into(),
            used: 1,
            given_up: 0,
            keys: 3,
            entries: 40,
            pages_read: 5,
            pages: 6,
        };
        let other = IndexFigures { index: "c".into(), given_up: 1, keys: 9, ..Default::default() };
        let counts: Vec<(String, u64)> = one.counts().chain(other.counts()).collect();
        let twice = counts.iter().chain(&counts).map(|(name, count)| (name.as_str(), *count));
        let found = IndexFigures::of_metrics(twice.chain([("rows_read", 7)]));
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].to_string(), "a of index b, 6 keys: 80 entries on 10 of 12 pages");
        assert_eq!(found[1].to_string(), "c, 18 keys: not used, 0 of 0 pages read");
    }
}
