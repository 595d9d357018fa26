//! Stored structures beside pages: directories of segments, version maps, memtables, schemas.
//!
//! The first byte selects one. The rest is a message, which goes into a frame with a correct checksum; checksums of
//! inner frames are corrected too. A decoded value must encode to bytes that decode to the same value.

use std::hint::black_box;
use std::sync::Arc;

use cleave_media::{BlockAddress, Extent};
use cleave_store::frame::FRAME_HEADER_BYTES;
use cleave_store::segment::DIRECTORY;
use cleave_store::{
    Column, ColumnType, Format, KeyFilter, KeyRange, Memtable, PageClass, PageEntry, PageRef, Run,
    RunProperties, SegmentDirectory, SegmentId, SegmentKind, SegmentRef, TableSchema, VersionMap,
    VersionRun, ZoneEntry, ZoneValue, proto,
};
use prost::Message;

use super::Target;
use crate::mutate::Shape;

/// Stored structures other than pages.
pub const TARGET: Target = Target { name: "stored", shape: Shape::Message, seeds, run };

const MAGICS: [[u8; 8]; 3] = [*b"CLVVMAP\0", *b"CLVVRUNS", *b"CLVVCHNK"];
const MEMTABLE: [u8; 8] = *b"CLVMEMTB";

/// Decodes one input.
fn run(input: &[u8]) {
    let Some((kind, message)) = input.split_first() else { return };
    match kind % 4 {
        0 => {
            if let Ok(directory) = SegmentDirectory::decode(&DIRECTORY.seal(message)) {
                check_directory(&directory);
            }
        }
        1 => {
            let Ok(mut parts) = proto::VersionMap::decode(message) else { return };
            parts.runs = sealed(MAGICS[1], &parts.runs);
            for chunk in &mut parts.chunks {
                *chunk = sealed(MAGICS[2], chunk);
            }
            let bytes = framed(MAGICS[0], &parts.encode_to_vec());
            if let Ok(map) = VersionMap::decode(&bytes) {
                let again = VersionMap::decode(&map.encode());
                assert!(again.is_ok_and(|again| again == map), "a map changes on its way");
                for run in map.runs() {
                    let known = map.lookup(run.vid_first) == Some(run.segment);
                    assert!(
                        known || map.is_dead(run.vid_first),
                        "{run:?} does not know its first row"
                    );
                }
            }
        }
        2 => {
            if let Ok(memtable) = Memtable::decode(&framed(MEMTABLE, message)) {
                black_box(memtable.get(b"k"));
            }
        }
        _ => {
            if let Ok(schema) = TableSchema::decode(message) {
                let again = TableSchema::decode(&schema.encode());
                assert!(again.is_ok_and(|again| again == schema), "a schema changes on its way");
                drop(schema.arrow());
            }
        }
    }
}

fn check_directory(directory: &SegmentDirectory) {
    let again = SegmentDirectory::decode(&directory.encode());
    assert!(again.is_ok_and(|again| again == *directory), "a directory changes on its way");
    black_box((directory.row_count(), directory.next_page(), directory.extents().count()));
    for column in 0..4 {
        for column_type in [ColumnType::Int, ColumnType::Text, ColumnType::Real] {
            drop(directory.zone_arrays(column, &column_type.arrow(), None));
        }
    }
    for vid in [0, 1, 77, u64::MAX] {
        black_box(directory.slot_of(vid));
    }
    if let Ok(run) = Run::new(Arc::new(directory.clone())) {
        black_box((run.key_range(), run.may_have(b"key"), run.measure(&KeyRange::default())));
    }
}

/// A message in a frame.
fn framed(magic: [u8; 8], message: &[u8]) -> Vec<u8> {
    Format { magic, name: "fuzzed", versions: 1..=1 }.seal(message)
}

/// The content of `frame` in a frame with correct checksums.
fn sealed(magic: [u8; 8], frame: &[u8]) -> Vec<u8> {
    framed(magic, frame.get(FRAME_HEADER_BYTES..).unwrap_or(frame))
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for count in [0, 1, 5] {
        for is_run in [false, true] {
            let payload = directory(count, is_run).encode();
            seeds.push(tagged(0, payload.get(FRAME_HEADER_BYTES..).unwrap_or_default()));
        }
    }
    let mut map = VersionMap::new();
    for number in 0..3_u32 {
        let first = u64::from(number) * 1000 + 1;
        let run = VersionRun { vid_first: first, vid_count: 900, segment: SegmentId(number + 1) };
        drop(map.append_run(run));
    }
    seeds.push(tagged(1, map.encode().get(FRAME_HEADER_BYTES..).unwrap_or_default()));
    for vid in (5..200).chain(70_000..70_100) {
        map.end(vid);
    }
    seeds.push(tagged(1, map.encode().get(FRAME_HEADER_BYTES..).unwrap_or_default()));
    let mut memtable = Memtable::new();
    for number in 0..50_u64 {
        drop(memtable.insert(&number.swap_bytes().to_le_bytes(), number));
    }
    seeds.push(tagged(2, memtable.encode().get(FRAME_HEADER_BYTES..).unwrap_or_default()));
    let column = |id, name: &str, column_type| Column {
        id,
        name: name.into(),
        column_type,
        not_null: id == 1,
        default: (id == 2).then(|| "'x'".into()),
        absent: None,
    };
    let schema = TableSchema {
        table_id: 3,
        version: 1,
        name: "title".into(),
        columns: vec![
            column(1, "id", ColumnType::Int),
            column(2, "name", ColumnType::Varchar(Some(12))),
            column(5, "price", ColumnType::Numeric { precision: 12, scale: 2 }),
        ],
        primary_key: vec![1],
    };
    seeds.push(tagged(3, &schema.encode()));
    seeds
}

fn tagged(kind: u8, message: &[u8]) -> Vec<u8> {
    std::iter::once(kind).chain(message.iter().copied()).collect()
}

fn directory(page_count: u32, is_run: bool) -> SegmentDirectory {
    let kind = if is_run {
        let filter = Some(KeyFilter { kind: 1, bytes: vec![3; 20] });
        SegmentKind::Index(RunProperties { index_id: 0, level: 1, filter })
    } else {
        SegmentKind::Heap
    };
    let segment = SegmentRef { table_id: 7, segment: SegmentId(3), schema_version: 1, commit: 4 };
    let mut directory = SegmentDirectory::new(segment, kind, PageClass::BULK);
    for number in 0..page_count {
        let reference = |page: u32, row_count| PageRef {
            page,
            extent: Extent { start: BlockAddress(u64::from(page) * 16), block_count: 9 },
            row_count,
            checksum: 0xdead_beef,
        };
        let bounds = |from: &str, to: &str| {
            (Some(ZoneValue::Bytes(from.into())), Some(ZoneValue::Bytes(to.into())))
        };
        let (min, max) = bounds(&format!("k{number}a"), &format!("k{number}z"));
        let integers = ZoneEntry {
            column: 2,
            null_count: 1,
            min: Some(ZoneValue::Integer(-5)),
            max: Some(ZoneValue::Integer(5)),
        };
        directory.pages.push(PageEntry {
            page: reference(number * 3 + 2, 50),
            vid_first: u64::from(number) * 50 + 1,
            gaps: Default::default(),
            overflow: vec![reference(number * 3, 0), reference(number * 3 + 1, 0)],
            shared: Vec::new(),
            zones: vec![ZoneEntry { column: 1, null_count: 0, min, max }, integers],
        });
    }
    directory
}
