//! What EXPLAIN says of [page filters](crate::select::page_filter).

use super::seconds;
use crate::select::PlannedQuery;
use crate::select::page_filter::PageFilter;

/// The scans of the host whose pages devices filter first.
pub(super) fn lines(query: &PlannedQuery) -> Vec<(String, String)> {
    let line = |filter: &PageFilter| {
        let (spared_s, asking_s) = filter.expected_s;
        let text = match (filter.pages_left, spared_s > 0.0 && asking_s > 0.0) {
            (Some(left), _) => format!("{left} of {} pages have a matching row", filter.pages),
            (None, true) => format!(
                "the device is asked which of {} pages have a matching row, in {}, to spare the link {}",
                filter.pages,
                seconds(asking_s),
                seconds(spared_s)
            ),
            (None, false) => {
                format!("the device is asked which of {} pages have a matching row", filter.pages)
            }
        };
        (filter.table.clone(), text)
    };
    query.page_filters.iter().map(line).collect()
}
