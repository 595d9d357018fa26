//! Tests: records are cut at the same places whatever the sizes of reads and chunks.

use std::io::Read;

use cleave_catalog::error::{Error, InputFault};
use proptest::prelude::*;

use super::{Chunk, Limits, RecordSplitter};
use crate::copy::memory::InputMemory;
use crate::copy::options::{CsvOptions, Header};

const SMALL: Limits =
    Limits { chunk_records: 3, chunk_bytes: 64, record_bytes: 1000, read_bytes: 7 };

fn chunks(input: &[u8], options: &CsvOptions, limits: Limits) -> Result<Vec<Chunk>, Error> {
    let mut splitter = RecordSplitter::with_limits(input, "f.csv", options, limits);
    let mut chunks = Vec::new();
    while let Some(chunk) = splitter.next_chunk()? {
        chunks.push(chunk);
    }
    Ok(chunks)
}

fn records(input: &str, options: &CsvOptions) -> Vec<String> {
    let mut records = Vec::new();
    for chunk in chunks(input.as_bytes(), options, SMALL).unwrap() {
        assert!(chunk.ends.len() <= SMALL.chunk_records && !chunk.ends.is_empty());
        assert_eq!(chunk.ends.last(), Some(&chunk.bytes.len()));
        for (_, record) in chunk.records() {
            records.push(String::from_utf8(record.to_vec()).unwrap());
        }
    }
    records
}

fn imdb() -> CsvOptions {
    CsvOptions { escape: b'\\', ..CsvOptions::csv() }
}

#[test]
fn line_breaks_within_quotes_end_no_record() {
    let csv = CsvOptions::csv();
    assert_eq!(records("a,b\n\"c\nd\",e\r\nf", &csv), ["a,b\n", "\"c\nd\",e\r\n", "f"]);
    assert_eq!(records("\"a\"\"\n\"\"b\"\nc\n", &csv), ["\"a\"\"\n\"\"b\"\n", "c\n"]);
    assert_eq!(records("\n\n", &csv), ["\n", "\n"]);
    assert_eq!(records("", &csv), [""; 0]);
    // A backslash is nothing special here.
    assert_eq!(records("\"a\\\"\nb\n", &csv), ["\"a\\\"\n", "b\n"]);
}

#[test]
fn what_ends_the_first_line_ends_all() {
    let (csv, text) = (CsvOptions::csv(), CsvOptions::text());
    assert_eq!(records("a\rb\r\rc", &csv), ["a\r", "b\r", "\r", "c"]);
    assert_eq!(records("\"a\n\r\"\rb\r", &csv), ["\"a\n\r\"\r", "b\r"]);
    assert_eq!(records("a\\\nb\rc\r\\.\rd", &text), ["a\\\nb\r", "c\r"]);
    assert_eq!(records("a\r\nb\nc\r\n", &csv), ["a\r\n", "b\n", "c\r\n"]);
    assert_eq!(records("a\n\"\r\"\"\r\"\n", &csv), ["a\n", "\"\r\"\"\r\"\n"]);
    assert_eq!(records("a\nb\\\rc\n", &text), ["a\n", "b\\\rc\n"]);
    for (input, options, expected) in [
        ("a\nb\rc\n", &csv, (2, true)),
        ("a\r\nb\r\nc\r", &csv, (3, true)),
        ("a\n\"\r\"\r\n\"x\"\r", &csv, (3, true)),
        ("a\rb\nc\r", &csv, (2, false)),
        ("a\r\"b\n\"\nc\r", &csv, (2, false)),
        ("a\nb\\\\\rc\n", &text, (2, true)),
        ("a\rb\nc\r", &text, (2, false)),
    ] {
        let Err(Error::Input { place, fault }) = chunks(input.as_bytes(), options, SMALL) else {
            panic!("{input:?}")
        };
        let (line, is_return) = expected;
        let wanted = InputFault::LineEnd { is_return, csv: options.csv };
        assert_eq!((place.line, *fault), (line, wanted), "{input:?}");
    }
}

#[test]
fn lines_are_passed_over_whatever_ends_them() {
    for end in ["\n", "\r\n", "\r"] {
        let input = ["one", "two", "", "a", "b", ""].join(end);
        let options = CsvOptions { skips_blanks: true, ..CsvOptions::csv() };
        let splitter = RecordSplitter::with_limits(input.as_bytes(), "f", &options, SMALL);
        let mut splitter = splitter.behind_lines(2);
        let chunk = splitter.next_chunk().unwrap().unwrap();
        assert_eq!(chunk.bytes, format!("a{end}b{end}").as_bytes(), "{end:?}");
        assert_eq!((chunk.line_first, chunk.line_at(chunk.ends[0])), (4, 5), "{end:?}");
        let beyond = RecordSplitter::with_limits(input.as_bytes(), "f", &options, SMALL);
        assert_eq!(beyond.behind_lines(9).next_chunk().unwrap(), None);
    }
}

#[test]
fn an_escaped_quote_closes_nothing() {
    assert_eq!(records("\"a\\\"\nb\"\nc\n", &imdb()), ["\"a\\\"\nb\"\n", "c\n"]);
    assert_eq!(records("\"a\\\\\"\nb\n", &imdb()), ["\"a\\\\\"\n", "b\n"]);
    // Outside of quotes it escapes nothing.
    assert_eq!(records("\\N\n\\\n\"\\n\"\n", &imdb()), ["\\N\n", "\\\n", "\"\\n\"\n"]);
}

#[test]
fn the_text_format_ends_at_its_marker() {
    let text = CsvOptions::text();
    assert_eq!(records("a\\\nb\nc\\\\\nd", &text), ["a\\\nb\n", "c\\\\\n", "d"]);
    assert_eq!(records("a\n\\.\nb\n", &text), ["a\n"]);
    assert_eq!(records("\\.\nb\n", &text), [""; 0]);
    assert_eq!(records("a\n\\.", &text), ["a\n"]);
}

#[test]
fn a_mark_of_byte_order_is_dropped() {
    assert_eq!(records("\u{feff}a\n", &CsvOptions::csv()), ["a\n"]);
}

#[test]
fn chunks_know_their_lines_and_the_header() {
    let options = CsvOptions { header: Header::Skip, ..CsvOptions::csv() };
    let chunks = chunks(b"h\n\"1\n\n\"\n2\n3\n4\n", &options, SMALL).unwrap();
    let lines: Vec<_> = chunks.iter().map(|chunk| (chunk.line_first, chunk.has_header)).collect();
    assert_eq!(lines, [(1, true), (6, false)]);
    assert_eq!(chunks[0].line_at(chunks[0].ends[1]), 5);
}

#[test]
fn an_open_quote_is_found_with_the_line_where_its_record_starts() {
    let Err(Error::Input { place, fault }) =
        chunks(b"a\nb\nc\nd,\"open\ne\n", &CsvOptions::csv(), SMALL)
    else {
        panic!()
    };
    assert_eq!((place.line, *fault), (4, InputFault::OpenQuote));
}

#[test]
fn a_record_without_end_is_refused_before_it_fills_the_memory() {
    let input = Read::chain(&b"ok\n\""[..], std::io::repeat(b'x'));
    let mut splitter = RecordSplitter::with_limits(input, "f.csv", &CsvOptions::csv(), SMALL);
    assert_eq!(splitter.next_chunk().unwrap().unwrap().bytes, b"ok\n");
    let Err(Error::Input { place, fault }) = splitter.next_chunk() else { panic!() };
    assert_eq!((place.line, *fault), (2, InputFault::RecordTooLong { limit: 1000 }));
}

#[test]
fn a_failing_source_is_named() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("broken"))
        }
    }
    let error = RecordSplitter::new(Broken, "f.csv", &CsvOptions::csv(), InputMemory::default())
        .next_chunk()
        .unwrap_err();
    assert_eq!(error.to_string(), "cannot read f.csv: broken");
    assert_eq!(error.sqlstate(), "58030");
}

proptest! {
    #[test]
    fn sizes_of_reads_and_chunks_change_nothing(
        input in "[a\"\\\\,\n\r]{0,60}",
        read_bytes in 1_usize..9,
        chunk_records in 1_usize..5,
        chunk_bytes in 1_usize..30,
        format in 0_usize..3,
    ) {
        let options = [CsvOptions::csv(), imdb(), CsvOptions::text()][format].clone();
        let limits = Limits { chunk_records, chunk_bytes, record_bytes: 1000, read_bytes };
        let whole = Limits { chunk_records: 1000, chunk_bytes: 1000, record_bytes: 1000, read_bytes: 1000 };
        let cut = |limits| {
            let mut splitter = RecordSplitter::with_limits(input.as_bytes(), "f", &options, limits);
            let mut records = Vec::new();
            loop {
                match splitter.next_chunk() {
                    Ok(Some(chunk)) => records.extend(chunk.records().map(|(start, record)| {
                        (chunk.line_at(start), record.to_vec())
                    })),
                    Ok(None) => return (records, None),
                    // Of lines of two kinds, those before are given with the chunks before.
                    Err(Error::Input { place, fault }) if matches!(*fault, InputFault::LineEnd { .. }) => {
                        return (Vec::new(), Some(format!("{}: {fault}", place.line)));
                    }
                    Err(error) => return (records, Some(error.to_string())),
                }
            }
        };
        prop_assert_eq!(cut(limits), cut(whole));
    }
}
