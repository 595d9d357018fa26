//! A stream of bytes in, [`Chunk`]s of whole records out.
//!
//! A record ends at a line break outside of quotes (in the text format: one without a backslash before it). Finding it
//! is the only step of reading that must go through the bytes in order, so this module does nothing else. It searches
//! for quotes, escapes and line breaks with `memchr`, and leaves fields and values to the thread that parses the chunk.
//!
//! Memory: one chunk of at most [`InputMemory::chunk_bytes`], and one record beyond it. A record has at most
//! [`InputMemory::record_bytes`], so an unclosed quote ends in an error and not with the whole file in memory.
//!
//! What ends the first line ends all: a line feed, to which a carriage return before it belongs, or a lone carriage
//! return. The other one of the two is data only in quotes (in the text format: behind a backslash), and otherwise an
//! error: lines of two kinds in one file would run together. `\.` ends the text format's data, as in PostgreSQL, and
//! means nothing in CSV.

use std::io::{ErrorKind, Read};
use std::path::Path;

use cleave_catalog::error::{Error, InputFault, InputPlace, Result};
use memchr::{memchr, memchr_iter, memchr2, memchr3};

use crate::copy::memory::InputMemory;
use crate::copy::options::{CsvOptions, Header};

/// Most records of one chunk, and so rows of one batch.
pub const CHUNK_RECORDS_MAX: usize = 65_536;
/// Most bytes that are read at once, and so behind the end of a chunk: these are copied to the next one.
const READ_BYTES_MAX: usize = 1 << 20;
const READ_BYTES_MIN: usize = 64 << 10;
/// What is read at once, as a part of a chunk.
const READS_OF_CHUNK: usize = 8;

/// Whole records, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The records with their line breaks.
    pub bytes: Vec<u8>,
    /// Where each record ends, after its line break.
    pub ends: Vec<usize>,
    /// Line from 1 of the first record in its file.
    pub line_first: u64,
    /// The first record names the columns.
    pub has_header: bool,
    /// What ends a line.
    line_end: u8,
}

/// Cuts a stream into chunks.
#[derive(Debug)]
pub struct RecordSplitter<R> {
    input: R,
    file: String,
    /// None in the text format.
    quote: Option<u8>,
    escape: u8,
    /// What ends a line; None before the first one has ended.
    line_end: Option<u8>,
    /// Bytes read and not yet returned.
    buffer: Vec<u8>,
    ends: Vec<usize>,
    /// Bytes of the buffer that were searched.
    scanned: usize,
    in_quotes: bool,
    at_end: bool,
    line: u64,
    has_header: bool,
    at_start: bool,
    /// Lines that are passed over before the first record.
    skip: u64,
    /// Blank lines before the first record are passed over, and some may be left.
    skips_blanks: bool,
    limits: Limits,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    chunk_records: usize,
    chunk_bytes: usize,
    record_bytes: usize,
    read_bytes: usize,
}

impl<R: Read> RecordSplitter<R> {
    /// `file` is how messages name the input.
    pub fn new(input: R, file: &str, options: &CsvOptions, memory: InputMemory) -> Self {
        let limits = Limits {
            chunk_records: CHUNK_RECORDS_MAX,
            chunk_bytes: memory.chunk_bytes,
            record_bytes: memory.record_bytes,
            read_bytes: (memory.chunk_bytes / READS_OF_CHUNK).clamp(READ_BYTES_MIN, READ_BYTES_MAX),
        };
        Self::with_limits(input, file, options, limits)
    }

    fn with_limits(input: R, file: &str, options: &CsvOptions, limits: Limits) -> Self {
        Self {
            input,
            file: file.to_owned(),
            quote: options.csv.then_some(options.quote),
            escape: options.escape,
            line_end: None,
            buffer: Vec::new(),
            ends: Vec::new(),
            scanned: 0,
            in_quotes: false,
            at_end: false,
            line: 1,
            has_header: options.header != Header::None,
            at_start: true,
            skip: 0,
            skips_blanks: options.skips_blanks,
            limits,
        }
    }

    /// The same from behind so many lines on, whatever is in them.
    #[must_use]
    pub fn behind_lines(mut self, lines: u64) -> Self {
        self.skip = lines;
        self
    }

    /// The next records; None at the end.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::Input`] for a quote left open or a record too long.
    pub fn next_chunk(&mut self) -> Result<Option<Chunk>> {
        self.skip_lines()?;
        self.skip_blanks()?;
        loop {
            if self.scan() || (self.at_end && !self.ends.is_empty()) {
                return self.take_chunk().map(Some);
            }
            if self.at_end {
                return match self.buffer.is_empty() {
                    true => Ok(None),
                    // The rest is no record: a quote hides its end.
                    false => Err(self.fault(InputFault::OpenQuote)),
                };
            }
            if self.buffer.len() - self.ends.last().copied().unwrap_or(0) > self.limits.record_bytes
            {
                if !self.ends.is_empty() {
                    return self.take_chunk().map(Some);
                }
                return Err(
                    self.fault(InputFault::RecordTooLong { limit: self.limits.record_bytes })
                );
            }
            self.read()?;
        }
    }

    fn skip_lines(&mut self) -> Result<()> {
        while self.skip > 0 && !self.at_end {
            self.line_end = self.line_end.or_else(|| first_line_end(&self.buffer));
            let mut start = 0;
            while self.skip > 0
                && let Some(end) = self.line_end
                && let Some(length) = memchr(end, self.buffer.get(start..).unwrap_or_default())
            {
                start += length + 1;
                self.skip -= 1;
                self.line += 1;
            }
            if self.skip == 0 {
                self.buffer.drain(..start);
            } else {
                // The next byte tells what a carriage return at the end is.
                let is_open = self.line_end.is_none() && self.buffer.last() == Some(&b'\r');
                self.buffer.clear();
                self.buffer.extend(is_open.then_some(b'\r'));
                self.read()?;
            }
        }
        if self.skip > 0 {
            self.buffer.clear();
        }
        Ok(())
    }

    /// Passes over blank lines before the first record, which may be a header.
    fn skip_blanks(&mut self) -> Result<()> {
        while self.skips_blanks {
            let mut start = 0;
            let left = loop {
                let left = self.buffer.get(start..).unwrap_or_default();
                let (length, end) = match left {
                    [b'\n', ..] => (1, b'\n'),
                    [b'\r', b'\n', ..] => (2, b'\n'),
                    [b'\r', _, ..] => (1, b'\r'),
                    _ => break left,
                };
                if *self.line_end.get_or_insert(end) != end {
                    break left;
                }
                start += length;
                self.line += 1;
            };
            let may_go_on = matches!(left, b"" | b"\r") && !self.at_end;
            self.buffer.drain(..start);
            match may_go_on {
                true => self.read()?,
                false => self.skips_blanks = false,
            }
        }
        Ok(())
    }

    fn read(&mut self) -> Result<()> {
        // `read_to_end` would read pieces of a few KiB first.
        let before = self.buffer.len();
        self.buffer.resize(before.saturating_add(self.limits.read_bytes), 0);
        let mut count = 0;
        let mut outcome = Ok(());
        while let Some(room) = self.buffer.get_mut(before + count..).filter(|room| !room.is_empty())
        {
            match self.input.read(room) {
                Ok(0) => break,
                Ok(read) => count += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        self.buffer.truncate(before + count);
        outcome.map_err(|source| Error::io("read", Path::new(&self.file), source))?;
        if self.at_start {
            self.at_start = false;
            // A byte order mark is not part of the first value.
            if self.buffer.starts_with(b"\xef\xbb\xbf") {
                self.buffer.drain(..3);
            }
        }
        self.at_end = count == 0;
        Ok(())
    }

    /// Searches for ends of records; true once the chunk is full.
    fn scan(&mut self) -> bool {
        loop {
            let full = self.ends.len() >= self.limits.chunk_records
                || self.ends.last().is_some_and(|end| *end >= self.limits.chunk_bytes);
            if full {
                return true;
            }
            let Some(rest) = self.buffer.get(self.scanned..).filter(|rest| !rest.is_empty()) else {
                break;
            };
            let sign = self.quote.unwrap_or(self.escape);
            let found = match (self.quote, self.line_end) {
                (Some(quote), _) if self.in_quotes && quote == self.escape => memchr(quote, rest),
                (Some(quote), _) if self.in_quotes => memchr2(quote, self.escape, rest),
                (_, Some(end)) => memchr2(sign, end, rest),
                (_, None) => memchr3(sign, b'\n', b'\r', rest),
            };
            let Some(offset) = found else {
                self.scanned = self.buffer.len();
                break;
            };
            let byte = rest[offset];
            let next = rest.get(offset + 1).copied();
            let position = self.scanned + offset;
            if self.line_end.is_none() && !self.in_quotes && matches!(byte, b'\n' | b'\r') {
                self.scanned = position;
                if byte == b'\r' && next.is_none() && !self.at_end {
                    return false;
                }
                self.line_end = first_line_end(rest.get(offset..).unwrap_or_default());
                self.line_end.get_or_insert(byte);
                continue;
            }
            self.scanned = position + 1;
            if Some(byte) == self.line_end && !self.in_quotes {
                self.end_record(position + 1);
            } else if Some(byte) == self.quote {
                // A doubled quote ends the quotes and begins them again.
                self.in_quotes = !self.in_quotes;
            } else {
                // An escape, together with the next byte.
                match next {
                    None if !self.at_end => {
                        self.scanned = position;
                        return false;
                    }
                    Some(next)
                        if self.quote.is_none()
                            || Some(next) == self.quote
                            || next == self.escape =>
                    {
                        self.scanned += 1;
                    }
                    _ => {}
                }
            }
        }
        if self.at_end
            && !self.in_quotes
            && self.ends.last().copied().unwrap_or(0) < self.buffer.len()
        {
            self.end_record(self.buffer.len());
        }
        false
    }

    fn end_record(&mut self, end: usize) {
        let start = self.ends.last().copied().unwrap_or(0);
        let record = self.buffer.get(start..end).unwrap_or_default();
        if self.quote.is_none() && matches!(record, b"\\.\n" | b"\\.\r\n" | b"\\.\r" | b"\\.") {
            self.buffer.truncate(start);
            self.scanned = start;
            // Nothing more is read.
            self.at_end = true;
            return;
        }
        self.ends.push(end);
    }

    fn take_chunk(&mut self) -> Result<Chunk> {
        let end = self.ends.last().copied().unwrap_or(0);
        let left = self.buffer.get(end..).unwrap_or_default();
        // The next chunk will be about as long. A buffer that grows to it step by step is copied at each step.
        let more = match self.at_end {
            true => 0,
            false => end.min(self.limits.chunk_bytes).saturating_add(self.limits.read_bytes),
        };
        let mut rest = Vec::with_capacity(left.len().saturating_add(more));
        rest.extend_from_slice(left);
        let mut bytes = std::mem::replace(&mut self.buffer, rest);
        bytes.truncate(end);
        self.scanned = self.scanned.saturating_sub(end);
        let line_end = self.line_end.unwrap_or(b'\n');
        let (line_first, ends) = (self.line, std::mem::take(&mut self.ends));
        let has_header = std::mem::take(&mut self.has_header);
        let chunk = Chunk { bytes, ends, line_first, has_header, line_end };
        if let Some(place) = self.stray_line_end(&chunk) {
            let record = chunk.ends.partition_point(|end| *end <= place).checked_sub(1);
            let start = record.and_then(|before| chunk.ends.get(before)).copied().unwrap_or(0);
            self.line = chunk.line_at(start);
            let is_return = line_end == b'\n';
            return Err(self.fault(InputFault::LineEnd { is_return, csv: self.quote.is_some() }));
        }
        self.line += chunk.lines_of(&chunk.bytes);
        Ok(chunk)
    }

    /// Where lines of another kind begin: the first carriage return without a line feed, or a line feed among lines
    /// that end with carriage returns, that is neither quoted nor escaped.
    fn stray_line_end(&self, chunk: &Chunk) -> Option<usize> {
        let bytes = chunk.bytes.as_slice();
        let other = if chunk.line_end == b'\n' { b'\r' } else { b'\n' };
        let (mut at, mut in_quotes) = (0, false);
        let mut is_data = |place: usize| {
            while at < place {
                let rest = bytes.get(at..place).unwrap_or_default();
                let Some(found) = memchr2(self.quote.unwrap_or(self.escape), self.escape, rest)
                else {
                    at = place;
                    break;
                };
                let byte = rest.get(found);
                at += found + 1;
                let next = bytes.get(at).copied();
                let is_pair = match self.quote {
                    None => true,
                    Some(quote) => {
                        in_quotes
                            && byte == Some(&self.escape)
                            && (next == Some(quote) || next == Some(self.escape))
                    }
                };
                if is_pair {
                    at += 1;
                } else if byte.copied() == self.quote {
                    in_quotes = !in_quotes;
                }
            }
            in_quotes || at > place
        };
        memchr_iter(other, bytes)
            .filter(|place| other == b'\n' || bytes.get(place + 1) != Some(&b'\n'))
            .find(|place| !is_data(*place))
    }

    fn fault(&self, fault: InputFault) -> Error {
        let place =
            InputPlace { file: self.file.clone(), line: self.line, column: None, value: None };
        Error::Input { place: Box::new(place), fault: Box::new(fault) }
    }
}

impl Chunk {
    /// Each record with its line break, and where it starts.
    pub fn records(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, end)| (start, self.bytes.get(start..*end).unwrap_or_default()))
    }

    /// The line of the file on which a record starts. It counts the lines before it, so it is for messages.
    #[must_use]
    pub fn line_at(&self, start: usize) -> u64 {
        self.line_first + self.lines_of(self.bytes.get(..start).unwrap_or_default())
    }

    /// The ends of lines among `bytes` of it.
    pub(super) fn lines_of(&self, bytes: &[u8]) -> u64 {
        // Counted many bytes at a time, and not found one by one.
        memchr_iter(self.line_end, bytes).count() as u64
    }
}

/// What ends the first line of `bytes`; None: they do not tell.
fn first_line_end(bytes: &[u8]) -> Option<u8> {
    let place = memchr2(b'\n', b'\r', bytes)?;
    match bytes.get(place..).unwrap_or_default() {
        [b'\r'] => None,
        [b'\n', ..] | [b'\r', b'\n', ..] => Some(b'\n'),
        _ => Some(b'\r'),
    }
}

#[cfg(test)]
mod tests;
