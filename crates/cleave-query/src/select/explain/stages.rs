//! What EXPLAIN says of [stages](crate::select::stages).

use super::{about_bytes, bytes, seconds, time};
use crate::select::PlannedQuery;

/// `text` of the plan of `query`, with the names of its stages for those of their tables.
pub(super) fn named(mut text: String, query: &PlannedQuery) -> String {
    for stage in &query.stages {
        text = text.replace(&stage.table().schema.name, &format!("WITH {}", stage.name));
    }
    text
}

/// The queries of WITH that a device is to write first, or has written.
pub(super) fn lines(query: &PlannedQuery) -> Vec<(String, String)> {
    let offers = query.staging.iter().flat_map(|staging| staging.offers());
    let offers = offers.map(|offer| {
        let text = format!(
            "to be written to {} before the rest is planned: about {:.0} rows, {}, in {}, for {} over the link",
            offer.device,
            offer.rows,
            about_bytes(offer.bytes),
            seconds(offer.write_s),
            seconds(offer.link_s)
        );
        (offer.name.clone(), text)
    });
    let stages = query.stages.iter().map(|stage| {
        let set = stage.set();
        let how = match stage.is_reused {
            true => format!(
                "from result set {}, made {} ago, saves {}",
                set.number,
                time(set.made.elapsed()),
                time(set.cost)
            ),
            false => {
                // Not the cores: each has tablets of its own, but where operators spill, one core writes to all.
                let tablets = set.table.tablets.iter();
                let tablets = match tablets.filter(|tablet| tablet.row_count() > 0).count() {
                    written if written > set.device_count() => format!(" to {written} tablets"),
                    _ => String::new(),
                };
                format!("written{tablets} in {}", time(stage.elapsed))
            }
        };
        let text = format!(
            "on {}: {} rows ({:.0} expected), {}, {how}",
            set.devices(),
            set.table.row_count(),
            stage.expected_rows,
            bytes(set.bytes())
        );
        (stage.name.clone(), text)
    });
    offers.chain(stages).collect()
}
