//! Fetches in flight: parts of pages on their way into the pool, so that no part is fetched twice.
//!
//! Invariant: a flight is listed from before its fetch begins until the part is in the pool or the fetch has failed. A
//! reader that finds a part neither in the pool nor, with the list locked since, in a flight has to fetch it.

use std::collections::HashMap;
use std::sync::Arc;

use cleave_store::{ColumnRef, PageColumns};
use futures::future::{BoxFuture, Shared};

use super::PartKey;

/// Pages on their way; `None` where fetching them failed.
pub type Fetch = Shared<BoxFuture<'static, Option<Arc<Vec<PageColumns>>>>>;

/// All fetches under way, by the header of the page that they fetch columns of.
#[derive(Debug, Default)]
pub struct Flights {
    by_page: HashMap<PartKey, Vec<Flight>>,
    last_number: u64,
}

/// Columns of one page that are on their way.
#[derive(Debug)]
pub struct Flight {
    number: u64,
    /// The columns, in the order in which they come.
    pub columns: Vec<ColumnRef>,
    /// The fetch that they come with.
    pub fetch: Fetch,
    /// Which of the fetch's pages it is.
    pub answer: usize,
}

impl Flights {
    /// A number that no flight has had.
    pub fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// The flights of the page whose header has `key`.
    pub fn of_page(&self, key: &PartKey) -> &[Flight] {
        self.by_page.get(key).map_or(&[], Vec::as_slice)
    }

    /// Lists a flight.
    pub fn begin(
        &mut self,
        key: PartKey,
        number: u64,
        columns: Vec<ColumnRef>,
        fetch: Fetch,
        answer: usize,
    ) {
        self.by_page.entry(key).or_default().push(Flight { number, columns, fetch, answer });
    }

    /// Takes the flights of this number off the page's list.
    pub fn end(&mut self, key: &PartKey, number: u64) {
        if let Some(flights) = self.by_page.get_mut(key) {
            flights.retain(|flight| flight.number != number);
            if flights.is_empty() {
                self.by_page.remove(key);
            }
        }
    }
}
