//! Numbers the groups of a page that no code tells: selected rows in, the group of each and its first row out.
//!
//! ```text
//!   phrase   campaign        texts    pairs
//!   'b'      7               0        (0, 7) ▶ 0
//!   'a'      7         ──▶   1  ──▶   (1, 7) ▶ 1   ──▶ groups 0 1 1, first rows 0 1
//!   'a'      7               1        (1, 7) ▶ 1
//! ```
//!
//! 1. A text gets the number of the text among those of the page; an integer and a dictionary's code are numbers.
//! 2. The numbers of several columns are joined, pair by pair, by a table of pairs.
//! 3. Numbers ascend with the first row that has them, so decoding these rows gives the keys of the groups in order.
//!
//! The tables are those of one page, so they stay in the cache, and what is hashed by all pages is a page's groups. A
//! page whose groups are not few for its rows is left to the engine, as soon as that shows; the pages behind it are
//! tried ever less often ([`Backoff`]).
//!
//! Invariant: rows of one number have equal keys. A damaged dictionary with equal entries may give equal keys two
//! numbers, whose states the final aggregate joins.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{DataType, Fields};
use cleave_store::{OpenColumn, Pick};
use datafusion_common::Result;

use super::{BLOCK, pick};
use crate::operators::table_scan_exec::scan_page::external;

/// Pages of fewer selected rows are left to the engine.
const ROWS_MIN: usize = 1024;
/// After so many rows a page is left if nearly each of them has its own group.
const SAMPLE: usize = 4 * BLOCK;
/// Most slots that are looked at for a key. Only keys that were made to collide take more.
const PROBE_COUNT_MAX: usize = 128;
/// Slots of an empty table, a power of two.
const SLOT_COUNT: usize = 1024;
/// Most pages that are left untried behind one whose groups were too many.
const UNTRIED_MAX: u32 = 16;

/// The groups of one page.
pub(super) struct PageNumbers {
    /// The group of each row; any for a row that is not selected.
    pub(super) numbers: Vec<u32>,
    /// The first row of each group.
    firsts: Vec<usize>,
}

/// Which pages are tried.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// Pages to leave untried after the next miss, less one.
    untried: u32,
    left: u32,
}

/// Which numbers have been given to keys, by the hashes of the keys: open addressing.
struct Slots {
    /// A part of the hash, and the number plus one; zero where there is none.
    slots: Vec<(u32, u32)>,
    count: u32,
}

impl Backoff {
    /// What `number` gives, unless the page is left untried; `limit`: groups that it may have.
    pub(super) fn tried(
        &mut self,
        limit: usize,
        number: impl FnOnce() -> Result<Option<PageNumbers>>,
    ) -> Result<Option<PageNumbers>> {
        if limit == 0 {
            return Ok(None);
        }
        if self.left > 0 {
            self.left -= 1;
            return Ok(None);
        }
        let numbered = number()?;
        match numbered {
            Some(_) => self.untried = 0,
            None => self.missed(),
        }
        Ok(numbered)
    }

    /// A page was tried in vain.
    pub(super) fn missed(&mut self) {
        self.untried = (2 * self.untried + 1).min(UNTRIED_MAX);
        self.left = self.untried;
    }
}

impl PageNumbers {
    /// The groups of the key `columns` among the rows of a page that are selected (`None` means all); `None` if they
    /// are more than `limit`, or a column has another type.
    pub(super) fn of(
        (columns, fields): (&[&OpenColumn], &Fields),
        (row_count, selection): (usize, Option<&BooleanBuffer>),
        limit: usize,
    ) -> Result<Option<Self>> {
        let selection = selection.filter(|selection| selection.count_set_bits() < row_count);
        let rows = Rows { row_count, selection };
        let kept = selection.map_or(row_count, BooleanBuffer::count_set_bits);
        if kept < ROWS_MIN {
            return Ok(None);
        }
        let mut numbers: Option<Vec<u32>> = None;
        for (column, field) in columns.iter().zip(fields) {
            let is_text = matches!(field.data_type(), DataType::Utf8 | DataType::Binary);
            let texts = if is_text { rows.texts(column)? } else { None };
            let joined = match (texts, numbers.take()) {
                (Some(texts), None) => numbers_of_texts(&texts, limit),
                (Some(texts), Some(before)) => numbers_of_texts(&texts, limit).and_then(|own| {
                    let own: Vec<i64> = own.into_iter().map(i64::from).collect();
                    pairs(&before, &own, limit)
                }),
                (None, before) => rows.integers(column).and_then(|own| {
                    let before = before.unwrap_or_else(|| vec![0; kept]);
                    pairs(&before, &own, limit)
                }),
            };
            // NULLs have any integer.
            let joined = match column.nulls().filter(|_| joined.is_some()) {
                Some(nulls) => {
                    joined.and_then(|joined| pairs(&joined, &rows.validity(nulls), limit))
                }
                None => joined,
            };
            numbers = match joined {
                Some(joined) if joined.len() == kept => Some(joined),
                _ => return Ok(None),
            };
        }
        Ok(numbers.map(|numbers| rows.spread(numbers)))
    }

    pub(super) fn count(&self) -> usize {
        self.firsts.len()
    }

    /// The values of the key, whose `columns` these are, in the groups that are `present`.
    pub(super) fn keys_of(
        &self,
        columns: &[&OpenColumn],
        present: &[(usize, i64)],
    ) -> Result<Vec<ArrayRef>> {
        let mut firsts = vec![false; self.numbers.len()];
        for (group, _) in present {
            if let Some(first) = self.firsts.get(*group).and_then(|row| firsts.get_mut(*row)) {
                *first = true;
            }
        }
        let firsts = BooleanBuffer::from(firsts);
        let pick = Pick::new(0..firsts.len(), Some(&firsts), columns.len()).map_err(external)?;
        columns.iter().map(|column| column.decode(&pick).map_err(external)).collect()
    }
}

/// The rows of a page whose groups are numbered.
struct Rows<'a> {
    row_count: usize,
    /// Not all of them.
    selection: Option<&'a BooleanBuffer>,
}

impl Rows<'_> {
    /// An integer for each selected row, equal where the values are; `None` if the column is of another type.
    fn integers(&self, column: &OpenColumn) -> Option<Vec<i64>> {
        let range = 0..self.row_count;
        let mut numbers = Vec::new();
        if column.distinct_values().ok()?.is_some() {
            let mut codes = Vec::with_capacity(self.row_count);
            column.codes(range, &mut codes).then_some(())?;
            match self.selection {
                None => numbers.extend(codes.into_iter().map(i64::from)),
                Some(rows) => {
                    let codes = rows.set_indices().filter_map(|row| codes.get(row));
                    numbers.extend(codes.map(|code| i64::from(*code)));
                }
            }
            return Some(numbers);
        }
        let is_read = match self.selection {
            None => column.integers(range, &mut numbers),
            Some(rows) => column.integers_selected(range, rows, &mut numbers),
        };
        is_read.then_some(numbers)
    }

    /// The selected values of a column of texts; `None` if it has codes.
    fn texts(&self, column: &OpenColumn) -> Result<Option<ArrayRef>> {
        if column.distinct_values().map_err(external)?.is_some() {
            return Ok(None);
        }
        let pick = Pick::new(0..self.row_count, self.selection, 1).map_err(external)?;
        column.decode(&pick).map(Some).map_err(external)
    }

    /// A number for each selected row that tells whether it is NULL.
    fn validity(&self, nulls: &NullBuffer) -> Vec<i64> {
        match self.selection {
            None => nulls.iter().map(i64::from).collect(),
            Some(rows) => rows.set_indices().map(|row| i64::from(nulls.is_valid(row))).collect(),
        }
    }

    /// The groups, by the numbers of the selected rows.
    fn spread(&self, numbers: Vec<u32>) -> PageNumbers {
        let mut firsts: Vec<usize> = Vec::new();
        let mut note = |row: usize, number: u32| {
            if number as usize == firsts.len() {
                firsts.push(row);
            }
        };
        let Some(selection) = self.selection else {
            numbers.iter().enumerate().for_each(|(row, number)| note(row, *number));
            return PageNumbers { numbers, firsts };
        };
        let mut spread = vec![0; self.row_count];
        for (row, number) in selection.set_indices().zip(numbers) {
            note(row, number);
            if let Some(spread) = spread.get_mut(row) {
                *spread = number;
            }
        }
        PageNumbers { numbers: spread, firsts }
    }
}

/// The number of each text among the different ones, of which `limit` may be; that of NULL is any.
fn numbers_of_texts(texts: &ArrayRef, limit: usize) -> Option<Vec<u32>> {
    let (offsets, bytes) = match texts.data_type() {
        DataType::Utf8 => {
            let texts = texts.as_string::<i32>();
            (texts.value_offsets(), texts.value_data())
        }
        DataType::Binary => {
            let texts = texts.as_binary::<i32>();
            (texts.value_offsets(), texts.value_data())
        }
        _ => return None,
    };
    let text_of = |(start, end): (i32, i32)| {
        bytes.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    };
    let mut slots = Slots::new();
    let mut known: Vec<(i32, i32)> = Vec::new();
    let mut numbers = Vec::with_capacity(texts.len());
    // In many columns the empty text is the most frequent one.
    let mut empty = None;
    for (row, ends) in offsets.iter().zip(offsets.iter().skip(1)).enumerate() {
        if row % BLOCK == 0 && are_many(known.len(), row, limit) {
            return None;
        }
        let place = (*ends.0, *ends.1);
        if place.0 == place.1
            && let Some(number) = empty
        {
            numbers.push(number);
            continue;
        }
        let text = text_of(place)?;
        let next = slots.count;
        let is_same = |number: u32| {
            known.get(number as usize).and_then(|known| text_of(*known)) == Some(text)
        };
        let number = slots.number(hash_of(text), is_same)?;
        if number == next {
            known.push(place);
        }
        if text.is_empty() {
            empty = Some(number);
        }
        numbers.push(number);
    }
    (known.len() <= limit).then_some(numbers)
}

/// The number of each pair among the different ones, of which `limit` may be.
fn pairs(left: &[u32], right: &[i64], limit: usize) -> Option<Vec<u32>> {
    let mut slots = Slots::new();
    let mut known: Vec<(u32, i64)> = Vec::new();
    let mut numbers = Vec::with_capacity(right.len());
    for (row, (left, right)) in left.iter().zip(right).enumerate() {
        if row % BLOCK == 0 && are_many(known.len(), row, limit) {
            return None;
        }
        let pair = (*left, *right);
        let next = slots.count;
        let hash = finished(mixed(mixed(0, u64::from(*left)), right.cast_unsigned()));
        let number = slots.number(hash, |number| known.get(number as usize) == Some(&pair))?;
        if number == next {
            known.push(pair);
        }
        numbers.push(number);
    }
    (known.len() <= limit).then_some(numbers)
}

/// Whether so many groups of the first `row_count` rows tell that the groups of all are too many.
fn are_many(group_count: usize, row_count: usize, limit: usize) -> bool {
    group_count > limit || row_count == SAMPLE && group_count * 8 > row_count * 7
}

impl Slots {
    fn new() -> Self {
        Self { slots: vec![(0, 0); SLOT_COUNT], count: 0 }
    }

    /// The number of the key with this hash, which `is_same` tells; the next number for one that has none. `None` if
    /// too many keys collide.
    #[inline]
    fn number(&mut self, hash: u64, is_same: impl Fn(u32) -> bool) -> Option<u32> {
        let tag = u32::try_from(hash >> 32).ok()?;
        if self.count as usize * 2 >= self.slots.len() {
            self.grow()?;
        }
        let mask = self.slots.len() - 1;
        let mut at = tag as usize & mask;
        for _ in 0..PROBE_COUNT_MAX {
            let slot = self.slots.get_mut(at)?;
            let Some(number) = slot.1.checked_sub(1) else {
                let next = self.count;
                self.count += 1;
                *slot = (tag, self.count);
                return Some(next);
            };
            if slot.0 == tag && is_same(number) {
                return Some(number);
            }
            at = (at + 1) & mask;
        }
        None
    }

    fn grow(&mut self) -> Option<()> {
        let mut grown = vec![(0, 0); self.slots.len() * 4];
        let mask = grown.len() - 1;
        for slot in self.slots.iter().filter(|slot| slot.1 > 0) {
            let mut at = slot.0 as usize & mask;
            while pick(&grown, u32::try_from(at).ok()?).1 > 0 {
                at = (at + 1) & mask;
            }
            *grown.get_mut(at)? = *slot;
        }
        self.slots = grown;
        Some(())
    }
}

#[inline]
fn hash_of(text: &[u8]) -> u64 {
    let (words, rest) = text.as_chunks::<8>();
    let mut hash = text.len() as u64;
    for word in words {
        hash = mixed(hash, u64::from_le_bytes(*word));
    }
    if !rest.is_empty() {
        // The last eight bytes, of which some may have been read, or all there are.
        let last = text.last_chunk::<8>().copied().unwrap_or_else(|| {
            let mut last = [0; 8];
            for (last, byte) in last.iter_mut().zip(rest) {
                *last = *byte;
            }
            last
        });
        hash = mixed(hash, u64::from_le_bytes(last));
    }
    finished(hash)
}

#[inline]
fn mixed(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A hash whose upper half depends on all bits.
#[inline]
fn finished(hash: u64) -> u64 {
    (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

#[cfg(test)]
mod tests {
    //! Numbers against those of a map.

    use std::collections::HashMap;
    use std::hash::Hash;
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn expected<K: Hash + Eq>(keys: impl Iterator<Item = K>) -> Vec<u32> {
        let mut known: HashMap<K, u32> = HashMap::new();
        keys.map(|key| {
            let next = u32::try_from(known.len()).unwrap();
            *known.entry(key).or_insert(next)
        })
        .collect()
    }

    proptest! {
        #[test]
        fn equal_texts_have_one_number(texts in vec("[ab]{0,3}|[a-z]{7,18}|", 0..3000)) {
            let array: ArrayRef = Arc::new(texts.iter().map(Some).collect::<StringArray>());
            prop_assert_eq!(numbers_of_texts(&array, 3000), Some(expected(texts.iter())));
        }

        #[test]
        fn equal_pairs_have_one_number(pairs_of in vec((0_u32..9, -40_i64..40), 0..3000)) {
            let (left, right): (Vec<u32>, Vec<i64>) = pairs_of.iter().copied().unzip();
            prop_assert_eq!(pairs(&left, &right, 3000), Some(expected(pairs_of.iter())));
        }
    }

    #[test]
    fn too_many_groups_show_early() {
        let all: Vec<i64> = (0..100_000).collect();
        let none = vec![0; all.len()];
        assert!(pairs(&none, &all, 50_000).is_none());
        assert!(pairs(&none[..SAMPLE], &all[..SAMPLE], 50_000).is_some());
        let some: Vec<i64> = all.iter().map(|number| number % 3000).collect();
        assert!(pairs(&none, &some, 3000).is_some());
        assert!(pairs(&none, &some, 2999).is_none());
        assert!(numbers_of_texts(&(Arc::new(Int64Array::from(some)) as ArrayRef), 9).is_none());
    }

    #[test]
    fn a_page_with_too_many_groups_delays_the_next_try() {
        let mut backoff = Backoff::default();
        let mut tried = Vec::new();
        for page in 0..40 {
            let number = || {
                tried.push(page);
                Ok((page == 7).then(|| PageNumbers { numbers: Vec::new(), firsts: Vec::new() }))
            };
            backoff.tried(1, number).unwrap();
        }
        assert_eq!(tried, [0, 2, 6, 14, 30]);
    }
}
