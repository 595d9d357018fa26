//! Test helpers: tables of every type, rows from a seed, and pages on media in memory.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array,
    FixedSizeBinaryArray, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array,
    IntervalMonthDayNanoArray, RecordBatch, StringArray, Time64MicrosecondArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{IntervalMonthDayNano, i256};
use cleave_media::{BlockAddress, Media, Memory, SplitMix64};

use crate::{
    Column, ColumnRef, ColumnType, EncodedPage, MediaPages, OverflowValues, PageKind, PageRead,
    PageRef, Projection, SegmentId, SegmentRef, StoreError, TableSchema, all_columns, decode_batch,
    overflow_pages,
};

/// One type of each kind.
pub(crate) const TYPES: [ColumnType; 18] = [
    ColumnType::SmallInt,
    ColumnType::Int,
    ColumnType::BigInt,
    ColumnType::Real,
    ColumnType::Double,
    ColumnType::Numeric { precision: 20, scale: 3 },
    ColumnType::NUMERIC,
    ColumnType::Boolean,
    ColumnType::Text,
    ColumnType::Varchar(Some(40)),
    ColumnType::Char(3),
    ColumnType::Date,
    ColumnType::Time,
    ColumnType::Timestamp,
    ColumnType::TimestampTz,
    ColumnType::Interval,
    ColumnType::Bytea,
    ColumnType::Uuid,
];

/// The segment of every test's pages.
pub(crate) const SEGMENT: SegmentRef =
    SegmentRef { table_id: 7, segment: SegmentId(3), schema_version: 2, commit: 41 };

/// A table with these columns; ids descend while positions ascend, so that mixing them up shows.
pub(crate) fn table(types: &[ColumnType]) -> TableSchema {
    let count = u32::try_from(types.len()).unwrap();
    let columns = (0..count).zip(types).map(|(position, column_type)| Column {
        id: count - position,
        name: format!("c{position}"),
        column_type: *column_type,
        not_null: false,
        default: None,
        absent: None,
    });
    TableSchema {
        table_id: SEGMENT.table_id,
        version: SEGMENT.schema_version,
        name: "t".into(),
        columns: columns.collect(),
        primary_key: Vec::new(),
    }
}

/// Random rows for a table, from a seed. Some columns turn out constant, consecutive, without NULLs or with only NULLs;
/// texts have up to `text_length_max` characters of one to four bytes.
pub(crate) fn rows(
    schema: &TableSchema,
    row_count: usize,
    text_length_max: u64,
    seed: u64,
) -> RecordBatch {
    let mut random = SplitMix64::new(seed);
    let columns = schema.columns.iter().map(|column| {
        let style = random.below(6);
        let null_odds = match style {
            0 | 1 => 0,
            2 => 10,
            _ => random.below(4),
        };
        let bits: Vec<Option<u64>> = (0..row_count as u64)
            .map(|row| match style {
                _ if random.below(10) < null_odds => None,
                0 => Some(17),
                1 => Some(1000 + row),
                _ => Some(random.next_u64()),
            })
            .collect();
        array(&column.column_type, &bits, text_length_max)
    });
    RecordBatch::try_new(schema.arrow(), columns.collect()).unwrap()
}

/// Typical rows for a table, from a seed: few distinct values, runs, ascending or narrow values, and rare NULLs.
pub(crate) fn orderly_rows(schema: &TableSchema, row_count: usize, seed: u64) -> RecordBatch {
    let mut random = SplitMix64::new(seed);
    let columns = schema.columns.iter().map(|column| {
        let (style, null_odds) = (random.below(5), random.below(3) * random.below(30));
        let bits: Vec<Option<u64>> = (0..row_count as u64)
            .map(|row| match style {
                _ if random.below(100) < null_odds => None,
                0 => Some(random.below(60)),
                1 => Some(row / 50),
                2 => Some(1_000_000 + row * 8 + random.below(8)),
                3 => Some(random.below(5000)),
                _ => Some(random.next_u64()),
            })
            .collect();
        array(&column.column_type, &bits, 40)
    });
    RecordBatch::try_new(schema.arrow(), columns.collect()).unwrap()
}

/// An array of the column's type whose values follow from these bits.
pub(crate) fn array(
    column_type: &ColumnType,
    bits: &[Option<u64>],
    text_length_max: u64,
) -> ArrayRef {
    #[expect(clippy::cast_possible_truncation, reason = "any low bits will do")]
    fn low32(bits: u64) -> i32 {
        (bits as u32).cast_signed()
    }
    let low64 = |bits: u64| i64::from_le_bytes(bits.to_le_bytes());
    let each = || bits.iter().copied();
    let text = |bits: u64| -> String {
        let mut random = SplitMix64::new(bits);
        let length = random.below(text_length_max + 1);
        let alphabet = ['a', 'b', 'ß', 'ſ', '→', '𝕊', ' ', '\u{0}'];
        (0..length)
            .map(|_| alphabet[usize::try_from(random.below(alphabet.len() as u64)).unwrap()])
            .collect()
    };
    match column_type {
        ColumnType::SmallInt => Arc::new(Int16Array::from_iter(
            each().map(|bits| bits.map(|bits| i16::try_from(bits % 65_536 / 2).unwrap())),
        )),
        ColumnType::Int => Arc::new(Int32Array::from_iter(each().map(|bits| bits.map(low32)))),
        ColumnType::BigInt => Arc::new(Int64Array::from_iter(each().map(|bits| bits.map(low64)))),
        ColumnType::Real => Arc::new(Float32Array::from_iter(
            each().map(|bits| bits.map(|bits| f32::from_bits(u32::try_from(bits >> 32).unwrap()))),
        )),
        ColumnType::Double => {
            Arc::new(Float64Array::from_iter(each().map(|bits| bits.map(f64::from_bits))))
        }
        numeric if *numeric == ColumnType::NUMERIC => Arc::new(
            Decimal256Array::from_iter(each().map(|bits| {
                bits.map(|bits| i256::from_parts(u128::from(bits), i128::from(low32(bits))))
            }))
            .with_data_type(ColumnType::NUMERIC.arrow()),
        ),
        ColumnType::Numeric { precision, scale } => Arc::new(
            Decimal128Array::from_iter(each().map(|bits| bits.map(|bits| i128::from(low64(bits)))))
                .with_precision_and_scale(*precision, *scale)
                .unwrap(),
        ),
        ColumnType::Boolean => {
            Arc::new(BooleanArray::from_iter(each().map(|bits| bits.map(|bits| bits % 2 == 1))))
        }
        ColumnType::Text | ColumnType::Varchar(_) | ColumnType::Char(_) => {
            Arc::new(StringArray::from_iter(each().map(|bits| bits.map(text))))
        }
        ColumnType::Date => Arc::new(Date32Array::from_iter(each().map(|bits| bits.map(low32)))),
        ColumnType::Time => Arc::new(Time64MicrosecondArray::from_iter(
            each().map(|bits| bits.map(|bits| i64::try_from(bits % 86_400_000_000).unwrap())),
        )),
        ColumnType::Timestamp => {
            Arc::new(TimestampMicrosecondArray::from_iter(each().map(|bits| bits.map(low64))))
        }
        ColumnType::TimestampTz => Arc::new(
            TimestampMicrosecondArray::from_iter(each().map(|bits| bits.map(low64)))
                .with_timezone("UTC"),
        ),
        ColumnType::Interval => {
            Arc::new(IntervalMonthDayNanoArray::from_iter(each().map(|bits| {
                bits.map(|bits| {
                    IntervalMonthDayNano::new(low32(bits), low32(bits >> 7), low64(bits))
                })
            })))
        }
        ColumnType::Bytea => Arc::new(BinaryArray::from_iter(
            each().map(|bits| bits.map(|bits| text(bits).into_bytes().repeat(2))),
        )),
        ColumnType::Uuid => Arc::new(
            FixedSizeBinaryArray::try_from_sparse_iter_with_size(
                each().map(|bits| bits.map(|bits| u128::from(bits).to_le_bytes())),
                16,
            )
            .unwrap(),
        ),
    }
}

/// Pages on media in memory, overflow pages apart.
pub(crate) struct Stored {
    pub(crate) media: Arc<Memory>,
    pub(crate) heap: Vec<PageRef>,
    pub(crate) overflow: Vec<PageRef>,
}

impl Stored {
    /// Places pages one after the other, from block 1 on.
    pub(crate) fn place(pages: &[EncodedPage]) -> Self {
        let media = Arc::new(Memory::new());
        let (mut heap, mut overflow) = (Vec::new(), Vec::new());
        let mut start = BlockAddress(1);
        for page in pages {
            let reference = page.page_ref(start);
            start = reference.extent.end();
            media.grow_to(start.0).unwrap();
            media.write(reference.extent.start, &page.bytes).unwrap();
            if page.kind == PageKind::Overflow { &mut overflow } else { &mut heap }.push(reference);
        }
        Self { media, heap, overflow }
    }

    pub(crate) fn pages(&self) -> MediaPages {
        MediaPages::new(Arc::clone(&self.media) as Arc<dyn Media>)
    }

    /// All rows of one page, user columns and then version columns.
    pub(crate) fn decode(
        &self,
        schema: &TableSchema,
        page: PageRef,
    ) -> Result<RecordBatch, StoreError> {
        let read = PageRead { segment: SEGMENT, page, columns: all_columns(schema) };
        let columns = self.pages().read_page(&read)?;
        let projection = everything(schema);
        let needed = overflow_pages(&columns, &read, &projection.columns, None)?;
        let mut overflow = OverflowValues::none();
        for number in needed {
            let Some(page) = self.overflow.iter().find(|page| page.page == number) else {
                continue;
            };
            overflow.insert(number, self.pages().read_overflow_page(&SEGMENT, page)?);
        }
        decode_batch(&columns, &read, &projection, None, &overflow)
    }
}

/// All of a table's columns, user and version.
pub(crate) fn everything(schema: &TableSchema) -> Projection {
    let indices: Vec<usize> = (0..schema.columns.len()).collect();
    Projection::of_table(schema, &indices)
        .with_version(ColumnRef::Vid)
        .with_version(ColumnRef::Commit)
}

/// Equal rows, NaN bits included (Arrow compares floats by bits).
pub(crate) fn assert_same(left: &dyn Array, right: &dyn Array) {
    assert_eq!(left.data_type(), right.data_type());
    assert!(left.to_data() == right.to_data(), "arrays differ:\n{left:?}\n{right:?}");
}
