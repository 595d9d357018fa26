//! A record in, its fields out: CSV with quotes, or PostgreSQL's text format with backslashes.
//!
//! Most records of CSV have no quote, or have it in a field far behind. Up to a quote only delimiters matter, and
//! [`Places`] finds them eight bytes at a time: fields are short, and a search for each costs more than its bytes.
//! Delimiters of fields that nobody asks for are only counted.
//!
//! Source: PostgreSQL's `CopyReadAttributesCSV`, `CopyReadAttributesText`.

use cleave_catalog::error::InputFault;
use memchr::{memchr, memchr2};

use crate::copy::options::CsvOptions;

/// One field of a record.
pub(super) struct Field<'a> {
    pub(super) text: &'a str,
    pub(super) quoted: bool,
    /// It is written like NULL; the column's options decide about quotes.
    pub(super) is_null_text: bool,
}

/// What is known of a record before it is cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'a> {
    /// It may have quotes.
    pub(super) may_quote: bool,
    /// For each field, how many from it on nobody asks for; those that it has no entry for are asked for.
    pub(super) unasked: &'a [usize],
}

impl Known<'_> {
    /// Nothing, and all fields are asked for.
    pub(super) const NOTHING: Self = Self { may_quote: true, unasked: &[] };
}

/// A fault in a record: the number of the field from 0, what is wrong, and the text if the fault has none.
pub(super) struct FieldFault {
    pub(super) index: usize,
    pub(super) fault: InputFault,
    pub(super) value: Option<String>,
}

/// Cuts records by these options.
pub(super) struct Fields<'a>(pub(super) &'a CsvOptions);

impl Fields<'_> {
    /// Gives each field of a record to `take`; returns their number.
    pub(super) fn each(
        &self,
        record: &str,
        scratch: &mut String,
        take: impl FnMut(usize, Field<'_>) -> Result<(), FieldFault>,
    ) -> Result<usize, FieldFault> {
        self.each_asked(record, Known::NOTHING, scratch, take)
    }

    /// The same, which may leave out fields that nobody asks for.
    pub(super) fn each_asked(
        &self,
        record: &str,
        known: Known<'_>,
        scratch: &mut String,
        mut take: impl FnMut(usize, Field<'_>) -> Result<(), FieldFault>,
    ) -> Result<usize, FieldFault> {
        let (mut index, mut start) = (0, 0);
        loop {
            if self.0.csv {
                let (next, is_end) = self.plain_fields(record, (index, start), known, &mut take)?;
                (index, start) = next;
                if is_end {
                    return Ok(index);
                }
            }
            let next = if self.0.csv {
                self.csv_field(record, start, scratch, |field| take(index, field))
            } else {
                self.text_field(record, start, scratch, |field| take(index, field))
            };
            let next = next.map_err(|fault| FieldFault { index, ..fault })?;
            index += 1;
            match next {
                Some(next) => start = next,
                None => return Ok(index),
            }
        }
    }

    /// Takes the fields from the one at `start`, which has the number `index`, that end before the next quote; returns
    /// the number and the start of the field behind them, or their number and that they were the last.
    fn plain_fields(
        &self,
        record: &str,
        (mut index, mut start): (usize, usize),
        Known { may_quote, unasked }: Known<'_>,
        take: &mut impl FnMut(usize, Field<'_>) -> Result<(), FieldFault>,
    ) -> Result<((usize, usize), bool), FieldFault> {
        let bytes = record.as_bytes();
        let rest = bytes.get(start..).unwrap_or_default();
        let quote = may_quote.then(|| memchr(self.0.quote, rest)).flatten();
        let before = rest.get(..quote.unwrap_or(rest.len())).unwrap_or_default();
        let mut field = |index: usize, text: &str| {
            let field = Field { text, quoted: false, is_null_text: text == self.0.null };
            take(index, field).map_err(|fault| FieldFault { index, ..fault })
        };
        let begin = start;
        let mut places = Places::of(self.0.delimiter, before);
        loop {
            let unasked = unasked.get(index).copied().unwrap_or(0);
            if unasked > 0 {
                let (passed, last) = places.pass(unasked);
                index += passed;
                start = last.map_or(start, |last| begin + last + 1);
                if passed < unasked {
                    break;
                }
                continue;
            }
            let Some(place) = places.next() else { break };
            let end = begin + place;
            field(index, record.get(start..end).unwrap_or_default())?;
            index += 1;
            start = end + 1;
        }
        if quote.is_some() {
            return Ok(((index, start), false));
        }
        field(index, record.get(start..).unwrap_or_default())?;
        Ok(((index + 1, start), true))
    }

    /// Takes the field at `start`; returns where the next one starts.
    fn csv_field(
        &self,
        record: &str,
        start: usize,
        scratch: &mut String,
        take: impl FnOnce(Field<'_>) -> Result<(), FieldFault>,
    ) -> Result<Option<usize>, FieldFault> {
        let CsvOptions { delimiter, quote, escape, .. } = *self.0;
        let bytes = record.as_bytes();
        let rest = bytes.get(start..).unwrap_or_default();
        let slice = |from: usize, to: usize| record.get(from..to).unwrap_or_default();
        let marked = |text: &str| text == self.0.null;
        let found = memchr2(delimiter, quote, rest).map(|offset| start + offset);
        let at = |position: usize| bytes.get(position).copied();
        match found {
            None => {
                let text = slice(start, bytes.len());
                take(Field { text, quoted: false, is_null_text: marked(text) })?;
                return Ok(None);
            }
            Some(end) if at(end) == Some(delimiter) => {
                let text = slice(start, end);
                take(Field { text, quoted: false, is_null_text: marked(text) })?;
                return Ok(Some(end + 1));
            }
            // Quotes around the whole field, and no escapes within.
            Some(opening) if opening == start => {
                let inner = bytes.get(start + 1..).unwrap_or_default();
                let closing = memchr2(quote, escape, inner).map(|offset| start + 1 + offset);
                if let Some(closing) = closing.filter(|closing| at(*closing) == Some(quote)) {
                    let after = at(closing + 1);
                    if after.is_none() || after == Some(delimiter) {
                        let text = slice(start + 1, closing);
                        take(Field { text, quoted: true, is_null_text: marked(text) })?;
                        return Ok(after.map(|_| closing + 2));
                    }
                }
            }
            Some(_) => {}
        }
        let next = self.unquote(record, start, scratch)?;
        take(Field { text: scratch, quoted: true, is_null_text: marked(scratch) })?;
        Ok(next)
    }

    /// Copies the field at `start` without its quotes and escapes; returns where the next one starts.
    fn unquote(
        &self,
        record: &str,
        start: usize,
        scratch: &mut String,
    ) -> Result<Option<usize>, FieldFault> {
        let CsvOptions { delimiter, quote, escape, .. } = *self.0;
        let bytes = record.as_bytes();
        scratch.clear();
        let mut position = start;
        let mut in_quotes = false;
        loop {
            let rest = bytes.get(position..).unwrap_or_default();
            let other = if in_quotes { escape } else { delimiter };
            let found = memchr2(quote, other, rest).map_or(bytes.len(), |offset| position + offset);
            scratch.push_str(record.get(position..found).unwrap_or_default());
            let Some(byte) = bytes.get(found).copied() else {
                if in_quotes {
                    // The splitter ends records only outside of quotes.
                    return Err(FieldFault { index: 0, fault: InputFault::OpenQuote, value: None });
                }
                return Ok(None);
            };
            position = found + 1;
            if !in_quotes {
                if byte == delimiter {
                    return Ok(Some(position));
                }
                in_quotes = true;
                continue;
            }
            let next =
                bytes.get(position).copied().filter(|next| *next == quote || *next == escape);
            match next {
                Some(next) if byte == escape => {
                    scratch.push(char::from(next));
                    position += 1;
                }
                _ if byte == quote => in_quotes = false,
                _ => scratch.push(char::from(byte)),
            }
        }
    }

    /// As [`Fields::csv_field`], in the text format: no quotes, and a backslash before anything.
    fn text_field(
        &self,
        record: &str,
        start: usize,
        scratch: &mut String,
        take: impl FnOnce(Field<'_>) -> Result<(), FieldFault>,
    ) -> Result<Option<usize>, FieldFault> {
        let CsvOptions { delimiter, escape, .. } = *self.0;
        let bytes = record.as_bytes();
        let (mut position, mut escaped) = (start, false);
        let end = loop {
            let rest = bytes.get(position..).unwrap_or_default();
            match memchr2(delimiter, escape, rest).map(|offset| position + offset) {
                Some(found) if bytes.get(found) == Some(&escape) => {
                    escaped = true;
                    position = found + 2;
                }
                Some(found) => break found,
                None => break bytes.len(),
            }
        };
        let raw = record.get(start..end).unwrap_or_default();
        let is_null_text = raw == self.0.null;
        if !escaped || is_null_text {
            take(Field { text: raw, quoted: false, is_null_text })?;
        } else {
            unescape(raw, scratch).map_err(|fault| FieldFault {
                index: 0,
                fault,
                value: Some(raw.to_owned()),
            })?;
            take(Field { text: scratch, quoted: false, is_null_text })?;
        }
        Ok((end < bytes.len()).then_some(end + 1))
    }
}

/// The places of one byte among others, in their order.
struct Places<'a> {
    bytes: &'a [u8],
    sign: u8,
    /// Where the word begins that was looked at last.
    word: usize,
    /// Where the next one begins.
    next: usize,
    /// The highest bit of each byte of the word that is the sign, and was not given yet.
    found: u64,
}

impl<'a> Places<'a> {
    fn of(sign: u8, bytes: &'a [u8]) -> Self {
        Self { bytes, sign, word: 0, next: 0, found: 0 }
    }

    /// Passes over the next places, at most `count`: how many there were, and the last of them.
    fn pass(&mut self, count: usize) -> (usize, Option<usize>) {
        let (mut passed, mut last) = (0, None);
        while passed < count && self.look() {
            let here = usize::try_from(self.found.count_ones()).unwrap_or(0);
            if passed + here <= count {
                let highest = u64::BITS - 1 - self.found.leading_zeros();
                last = Some(self.word + usize::try_from(highest / 8).unwrap_or(0));
                self.found = 0;
                passed += here;
            } else {
                last = self.next();
                passed += 1;
            }
        }
        (passed, last)
    }

    /// Looks on to the next word that has the sign; false: there is none.
    fn look(&mut self) -> bool {
        const WORD_BYTES: usize = size_of::<u64>();
        while self.found == 0 {
            let rest = self.bytes.get(self.next..).unwrap_or_default();
            if rest.is_empty() {
                return false;
            }
            let word = match rest.first_chunk::<WORD_BYTES>() {
                Some(word) => *word,
                None => {
                    let mut word = [!self.sign; WORD_BYTES];
                    word.iter_mut().zip(rest).for_each(|(own, byte)| *own = *byte);
                    word
                }
            };
            let signs = u64::from_le_bytes([self.sign; WORD_BYTES]);
            self.found = zero_bytes(u64::from_le_bytes(word) ^ signs);
            self.word = self.next;
            self.next += WORD_BYTES;
        }
        true
    }
}

impl Iterator for Places<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if !self.look() {
            return None;
        }
        let place = usize::try_from(self.found.trailing_zeros() / 8).unwrap_or(0);
        self.found &= self.found - 1;
        Some(self.word + place)
    }
}

/// The highest bit of each byte of `word` that is zero. No byte carries into the next, so the answer is exact for all.
fn zero_bytes(word: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    !(((word & LOW) + LOW) | word | LOW)
}

/// Resolves the text format's backslashes: `\b \f \n \r \t \v`, up to three octal digits, `\x` and up to two
/// hexadecimal ones. Before anything else the backslash is dropped.
fn unescape(raw: &str, scratch: &mut String) -> Result<(), InputFault> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        // So is one at the end of the last line.
        let [next, tail @ ..] = rest else { break };
        rest = tail;
        let byte = match next {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            b'0'..=b'7' => {
                let (value, count) = digits_of(tail, 8, 2, u32::from(next - b'0'));
                rest = tail.get(count..).unwrap_or_default();
                value
            }
            b'x' => match digits_of(tail, 16, 2, 0) {
                (_, 0) => b'x',
                (value, count) => {
                    rest = tail.get(count..).unwrap_or_default();
                    value
                }
            },
            other => *other,
        };
        bytes.push(byte);
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) if !text.contains('\0') => {
            scratch.clear();
            scratch.push_str(text);
            Ok(())
        }
        _ => Err(InputFault::Encoding { bytes: "what the escapes stand for".into() }),
    }
}

/// At most `count_max` digits as the low byte of a number that starts as `value`, and how many there were.
fn digits_of(text: &[u8], radix: u32, count_max: usize, value: u32) -> (u8, usize) {
    let digits = text.iter().take(count_max).map_while(|digit| char::from(*digit).to_digit(radix));
    let (value, count) =
        digits.fold((value, 0), |(value, count), digit| (value * radix + digit, count + 1));
    (u8::try_from(value & 0xff).unwrap_or(0), count)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// As a search byte by byte finds them.
        #[test]
        fn places_are_those_of_the_byte(
            bytes in proptest::collection::vec(prop_oneof![Just(b','), Just(b'-'), any::<u8>()], 0..40),
            sign in prop_oneof![Just(b','), Just(0_u8), any::<u8>()],
            (taken, count) in (0_usize..4, 0_usize..12),
        ) {
            let expected = bytes.iter().enumerate().filter(|(_, byte)| **byte == sign);
            let expected: Vec<usize> = expected.map(|(place, _)| place).collect();
            prop_assert_eq!(Places::of(sign, &bytes).collect::<Vec<_>>(), &expected[..]);
            // Passing over some leaves the rest.
            let mut places = Places::of(sign, &bytes);
            let first: Vec<usize> = places.by_ref().take(taken).collect();
            let (passed, last) = places.pass(count);
            let behind = first.len() + passed;
            prop_assert_eq!(passed, count.min(expected.len() - first.len()));
            prop_assert_eq!(last, expected[first.len()..behind].last().copied());
            prop_assert_eq!(places.collect::<Vec<_>>(), &expected[behind..]);
        }
    }
}
