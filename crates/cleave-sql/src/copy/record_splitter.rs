//! A stream of bytes in, [`Chunk`]s of whole records out.
//!
//! A record ends at a line break outside of quotes (in the text format: one without a backslash before it). Finding it
//! is the only step of reading that must go through the bytes in order, so this module does nothing else. It searches
//! for quotes, escapes and line breaks with `memchr`, and leaves fields and values to the thread that parses the chunk.
//!
//! Memory: one chunk of at most [`InputMemory::chunk_bytes`], and one record beyond it. A record has at most
//! [`InputMemory::record_bytes`], so an unclosed quote ends in an error and not with the whole file in memory.
//!
//! Deliberately absent: line breaks of a lone carriage return; a carriage return before a line feed belongs to the
//! break. `\.` ends the text format's data, as in PostgreSQL, and means nothing in CSV.

use std::io::{ErrorKind, Read};
use std::path::Path;

use cleave_catalog::error::{Error, InputFault, InputPlace, Result};
use memchr::{memchr, memchr2};

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
}

/// Cuts a stream into chunks.
#[derive(Debug)]
pub struct RecordSplitter<R> {
    input: R,
    file: String,
    /// None in the text format.
    quote: Option<u8>,
    escape: u8,
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
                return Ok(Some(self.take_chunk()));
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
                    return Ok(Some(self.take_chunk()));
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
            let mut start = 0;
            while self.skip > 0
                && let Some(length) = memchr(b'\n', self.buffer.get(start..).unwrap_or_default())
            {
                start += length + 1;
                self.skip -= 1;
                self.line += 1;
            }
            if self.skip == 0 {
                self.buffer.drain(..start);
            } else {
                self.buffer.clear();
                self.read()?;
            }
        }
        Ok(())
    }

    /// Passes over blank lines before the first record, which may be a header.
    fn skip_blanks(&mut self) -> Result<()> {
        while self.skips_blanks {
            let mut start = 0;
            let left = loop {
                let left = self.buffer.get(start..).unwrap_or_default();
                start += match left {
                    [b'\n', ..] => 1,
                    [b'\r', b'\n', ..] => 2,
                    _ => break left,
                };
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
            let found = match (self.quote, self.in_quotes) {
                (Some(quote), false) => memchr2(quote, b'\n', rest),
                (Some(quote), true) if quote == self.escape => memchr(quote, rest),
                (Some(quote), true) => memchr2(quote, self.escape, rest),
                (None, _) => memchr2(self.escape, b'\n', rest),
            };
            let Some(offset) = found else {
                self.scanned = self.buffer.len();
                break;
            };
            let byte = rest[offset];
            let next = rest.get(offset + 1).copied();
            let position = self.scanned + offset;
            self.scanned = position + 1;
            if byte == b'\n' && !self.in_quotes {
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
        if self.quote.is_none() && matches!(record, b"\\.\n" | b"\\.\r\n" | b"\\.") {
            self.buffer.truncate(start);
            self.scanned = start;
            // Nothing more is read.
            self.at_end = true;
            return;
        }
        self.ends.push(end);
    }

    fn take_chunk(&mut self) -> Chunk {
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
        let line_first = self.line;
        self.line += count_lines(&bytes);
        let has_header = std::mem::take(&mut self.has_header);
        Chunk { bytes, ends: std::mem::take(&mut self.ends), line_first, has_header }
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
        self.line_first + count_lines(self.bytes.get(..start).unwrap_or_default())
    }
}

/// The line breaks among `bytes`.
pub(super) fn count_lines(bytes: &[u8]) -> u64 {
    // Counted many bytes at a time, and not found one by one.
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

#[cfg(test)]
mod tests;
