//! The header: its stored form, byte by byte, and an invalid value in each field with a matching checksum.

use cleave_media::{BlockAddress, Extent};

use super::{
    ChunkEntry, Encoding, FORMAT_VERSION, LIGHT_VERSION, PageHeader, PageKind, parse_header,
};
use crate::page::checksum::checksum;
use crate::page::columns::ValueType;
use crate::page::testing::{SEGMENT, TYPES};
use crate::{ColumnRef, Corruption, PageRef, StoreError};

fn entry(column: ColumnRef, encoding: Encoding, value_type: ValueType) -> ChunkEntry {
    ChunkEntry {
        column,
        encoding,
        value_type,
        offset: 0,
        shared: None,
        length: 0,
        null_count: 0,
        overflow_count: 0,
        base: 0,
        checksum: 0,
    }
}

/// A page of 100 rows: column 2 an integer, column 5 text with NULLs and a long value, VIDs from 9.
fn header() -> PageHeader {
    PageHeader {
        format_version: LIGHT_VERSION,
        kind: PageKind::Heap,
        table_id: SEGMENT.table_id,
        segment: SEGMENT.segment,
        page: 6,
        schema_version: SEGMENT.schema_version,
        row_count: 100,
        header_length: 48 + 4 * 40,
        block_count: 2,
        chunks: vec![
            ChunkEntry {
                offset: 256,
                length: 400,
                ..entry(ColumnRef::User(2), Encoding::Plain, ValueType::Int32)
            },
            ChunkEntry {
                offset: 704,
                length: 64 + 448 + 64 + 30,
                null_count: 3,
                overflow_count: 1,
                base: 1 | 1 << 32,
                ..entry(ColumnRef::User(5), Encoding::Plain, ValueType::Utf8)
            },
            ChunkEntry { base: 9, ..entry(ColumnRef::Vid, Encoding::Sequence, ValueType::UInt64) },
            entry(ColumnRef::Commit, Encoding::FromSegment, ValueType::UInt64),
        ],
    }
}

fn parse(bytes: &[u8]) -> Result<PageHeader, StoreError> {
    let page = PageRef {
        page: 6,
        extent: Extent { start: BlockAddress(70), block_count: 2 },
        row_count: 100,
        checksum: checksum(bytes),
    };
    parse_header(bytes, &page, &SEGMENT)
}

#[test]
fn what_is_written_is_read() {
    let bytes = header().encode();
    assert_eq!(bytes.len(), 48 + 4 * 40);
    assert_eq!(parse(&bytes).unwrap(), header());
    assert_eq!(parse(&bytes).unwrap().encode(), bytes);
    assert_eq!(&bytes[..12], b"CLVPAGE\n\x02\x00\x01\x00", "docs/formats.md");
    assert_eq!(bytes[28..36], [100, 0, 0, 0, 208, 0, 0, 0]);
    assert_eq!(bytes[48..60], [0, 0, 2, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[60..68], [0, 1, 0, 0, 144, 1, 0, 0]);
    let found = header();
    assert_eq!(found.entry(ColumnRef::User(5)).unwrap().overflow_pages(), (1, 1));
    assert_eq!(found.entry(ColumnRef::User(2)).unwrap().overflow_pages(), (0, 0));
    assert_eq!(found.entry(ColumnRef::User(3)), None);
}

#[test]
fn a_newer_format_is_told_apart_from_damage() {
    let mut bytes = header().encode();
    bytes[8] = 4;
    assert!(matches!(
        parse(&bytes),
        Err(StoreError::NewerFormat { found: 4, newest: FORMAT_VERSION, page: 6, .. })
    ));
    let error = parse(&bytes).unwrap_err().to_string();
    assert_eq!(error, "page 6 of segment 3 has format version 4; this program reads up to 3");
}

#[test]
fn light_encodings_came_with_version_2() {
    let mut old = PageHeader { format_version: 1, ..header() };
    assert_eq!(parse(&old.encode()).unwrap(), old, "version 1 is read as it is");
    let light = ChunkEntry {
        offset: 256,
        length: 100,
        ..entry(ColumnRef::User(2), Encoding::Integers, ValueType::Int32)
    };
    old.chunks[0] = light;
    assert!(matches!(
        parse(&old.encode()),
        Err(StoreError::Corrupt {
            column: Some(ColumnRef::User(2)),
            reason: Corruption::Field { field: "encoding", .. },
            ..
        })
    ));
    let new = PageHeader { format_version: 2, ..old };
    assert_eq!(parse(&new.encode()).unwrap(), new);
}

/// Chunks of removed kinds are refused, not skipped.
#[test]
fn version_columns_of_chains_are_refused() {
    for kind in [3, 4] {
        let mut bytes = header().encode();
        let last = bytes.len() - 40;
        assert_eq!(bytes[last], 2, "the entry of commit numbers");
        bytes[last] = kind;
        let refused = parse(&bytes).unwrap_err();
        assert!(matches!(refused, StoreError::Corrupt { .. }), "{refused}");
        assert!(refused.to_string().contains("column"), "{refused}");
    }
}

#[test]
fn a_cut_header_is_an_error_at_every_length() {
    let bytes = header().encode();
    for length in 0..bytes.len() {
        assert!(matches!(parse(&bytes[..length]), Err(StoreError::Corrupt { .. })), "{length}");
    }
}

/// An invalid value, and the column that the error must name.
type Lie = (&'static str, Option<ColumnRef>, fn(&mut PageHeader));

#[test]
fn a_lie_in_any_field_is_found() {
    const INT: Option<ColumnRef> = Some(ColumnRef::User(2));
    const TEXT: Option<ColumnRef> = Some(ColumnRef::User(5));
    const VID: Option<ColumnRef> = Some(ColumnRef::Vid);
    const COMMIT: Option<ColumnRef> = Some(ColumnRef::Commit);
    let lies: [Lie; 31] = [
        ("format version", None, |h| h.format_version = 0),
        ("kind", None, |h| h.kind = PageKind::Overflow),
        ("table", None, |h| h.table_id += 1),
        ("segment", None, |h| h.segment.0 += 1),
        ("page", None, |h| h.page += 1),
        ("schema version", None, |h| h.schema_version += 1),
        ("row count", None, |h| h.row_count = 70_000),
        ("header length", None, |h| h.header_length += 40),
        ("header length odd", None, |h| h.header_length += 1),
        ("block count", None, |h| h.block_count = 3),
        ("no vid", VID, |h| {
            h.chunks.remove(2);
            h.header_length -= 40;
        }),
        ("no commit", COMMIT, |h| {
            h.chunks.pop();
            h.header_length -= 40;
        }),
        ("order of columns", INT, |h| h.chunks[1].column = ColumnRef::User(2)),
        ("offset in header", INT, |h| h.chunks[0].offset = 192),
        ("offset odd", INT, |h| h.chunks[0].offset = 257),
        ("overlap", TEXT, |h| h.chunks[1].offset = 640),
        ("behind the page", TEXT, |h| h.chunks[1].offset = 8192),
        ("at the end of numbers", TEXT, |h| h.chunks[1].offset = u32::MAX - 63),
        ("length of integers", INT, |h| h.chunks[0].length = 396),
        ("length of text", TEXT, |h| h.chunks[1].length = 500),
        ("NULLs without bits", INT, |h| h.chunks[0].null_count = 1),
        ("more NULLs than rows", TEXT, |h| h.chunks[1].null_count = 101),
        ("long integers", INT, |h| h.chunks[0].overflow_count = 1),
        ("more long values than rows", TEXT, |h| h.chunks[1].overflow_count = 101),
        ("long values nowhere", TEXT, |h| h.chunks[1].base = 5),
        ("vid as text", VID, |h| h.chunks[2].value_type = ValueType::Utf8),
        ("vid past the last", VID, |h| h.chunks[2].base = u64::MAX - 5),
        ("vid of the segment", VID, |h| h.chunks[2].encoding = Encoding::FromSegment),
        ("constant text", TEXT, |h| {
            h.chunks[1] = entry(ColumnRef::User(5), Encoding::Constant, ValueType::Utf8);
        }),
        ("constant too large", INT, |h| {
            h.chunks[0] = ChunkEntry {
                base: 1 << 32,
                ..entry(ColumnRef::User(2), Encoding::Constant, ValueType::Int32)
            };
        }),
        ("counting texts", TEXT, |h| {
            h.chunks[1] = entry(ColumnRef::User(5), Encoding::Sequence, ValueType::Utf8);
        }),
    ];
    for (lie, named, tell) in lies {
        let mut header = header();
        tell(&mut header);
        match parse(&header.encode()) {
            Err(StoreError::Corrupt { column, .. }) => assert_eq!(column, named, "{lie}"),
            other => panic!("{lie}: {other:?}"),
        }
    }
}

#[test]
fn unused_bytes_must_be_zero_and_tags_known() {
    for (at, value) in [(11, 1), (10, 9), (44, 1), (48, 7), (49, 9), (50, 77), (51, 3), (57, 1)] {
        let mut bytes = header().encode();
        bytes[at] = value;
        assert!(
            matches!(
                parse(&bytes),
                Err(StoreError::Corrupt { reason: Corruption::Field { .. }, .. })
            ),
            "byte {at}"
        );
    }
}

#[test]
fn every_type_has_a_tag_of_its_own() {
    let mut tags = std::collections::BTreeSet::new();
    for column_type in TYPES {
        let value_type = ValueType::from_arrow(&column_type.arrow()).unwrap();
        assert_eq!(value_type.arrow(), column_type.arrow());
        let (tag, precision, scale) = value_type.tag();
        assert_eq!(ValueType::from_tag(tag, precision, scale), Some(value_type));
        tags.insert(tag);
    }
    assert_eq!(tags.len(), 16, "text, varchar and char share one");
    assert_eq!(ValueType::from_tag(16, 0, 0), Some(ValueType::UInt64));
    for (tag, precision, scale) in [(0, 0, 0), (18, 0, 0), (6, 0, 0), (6, 39, 0), (1, 1, 0)] {
        assert_eq!(ValueType::from_tag(tag, precision, scale), None);
    }
}
