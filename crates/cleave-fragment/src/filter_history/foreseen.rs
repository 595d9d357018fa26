//! What the planner asks of a filter history: on how many of some pages the conditions of a scan are known.
//!
//! It asks of a few pages, numbers no leaf, and counts as no use of what is kept.

use arrow::buffer::BooleanBuffer;

use super::formula::Formula;
use super::store::{FilterHistory, PageKey};

/// Pages that were asked for, by what is known of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KnownCount {
    /// All.
    pub asked: u32,
    /// Those of which all conditions are known.
    pub known: u32,
    /// Those of these that have a row left.
    pub left: u32,
}

impl FilterHistory {
    /// Of `pages`, those on which all of `formulas` are known.
    pub fn foresee(
        &self,
        formulas: &[Formula],
        pages: impl IntoIterator<Item = PageKey>,
    ) -> KnownCount {
        let mut formulas = formulas.to_vec();
        formulas.iter_mut().for_each(|formula| self.recognise(formula));
        let mut count = KnownCount::default();
        for page in pages {
            count.asked += 1;
            let mut answers = formulas.iter().map(|formula| self.foreseen(formula, &page));
            let Some(Some(first)) = answers.next() else { continue };
            let rows = answers.try_fold(first, |rows, more| more.map(|more| &rows & &more));
            if let Some(rows) = rows {
                count.known += 1;
                count.left += u32::from(rows.count_set_bits() > 0);
            }
        }
        count
    }

    /// The rows of `page` for which `formula` is true; None: it is not known.
    fn foreseen(&self, formula: &Formula, page: &PageKey) -> Option<BooleanBuffer> {
        let (parts, is_and) = match formula {
            Formula::Leaf(leaf) => return self.peek(leaf, page),
            Formula::And(parts) => (parts, true),
            Formula::Or(parts) => (parts, false),
        };
        let mut answers = parts.iter().map(|part| self.foreseen(part, page));
        let first = answers.next()??;
        answers.try_fold(first, |rows, more| {
            let more = more?;
            Some(if is_and { &rows & &more } else { &rows | &more })
        })
    }
}
