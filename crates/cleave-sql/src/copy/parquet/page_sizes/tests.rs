//! Tests: small files that expand to large values are read in small batches, or refused before anything is
//! decompressed.

use std::fs::File;
use std::sync::Arc;

use arrow::array::{ArrayRef, DictionaryArray, Int32Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterVersion};
use proptest::prelude::*;

use super::{PageFault, PageHeader, Thrift, is_structure, rows_per_batch, spans};

fn properties() -> parquet::file::properties::WriterPropertiesBuilder {
    let level = ZstdLevel::try_new(3).unwrap();
    WriterProperties::builder().set_compression(Compression::ZSTD(level))
}

fn written(
    columns: Vec<(&str, ArrayRef)>,
    properties: WriterProperties,
) -> (Arc<File>, ArrowReaderMetadata) {
    let mut file = tempfile::tempfile().unwrap();
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).unwrap();
    (Arc::new(file), metadata)
}

fn rows(file: &Arc<File>, metadata: &ArrowReaderMetadata) -> Result<usize, PageFault> {
    let groups: Vec<_> = metadata.metadata().row_groups().iter().collect();
    let rows = rows_per_batch(file, &groups, &ProjectionMask::all(), 65_536, 64 << 20)?;
    Ok(rows.most)
}

#[test]
fn lists_have_the_items_that_they_count() {
    // Field 4, a list of structures: two empty ones, and two thousand million.
    assert!(is_structure(&[0x49, 0x2c, 0, 0, 0]));
    assert!(!is_structure(&[0x49, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0, 0, 0]));
}

#[test]
fn pages_of_the_second_version_tell_their_rows() {
    let header = |bytes: &[u8]| {
        let header = Thrift { rest: bytes }.page_header().unwrap();
        (header.kind, header.value_count, header.row_count, header.encoding)
    };
    // Four values without NULL, which claim to be three rows, in the encoding 8.
    let second = [0x15, 6, 0x7c, 0x15, 8, 0x15, 0, 0x15, 6, 0x15, 16, 0, 0];
    assert_eq!(header(&second), (3, 4, Some(3), 8));
    // The third number is the encoding of levels.
    let first = [0x15, 0, 0x4c, 0x15, 8, 0x15, 16, 0x15, 6, 0x15, 6, 0, 0];
    assert_eq!(header(&first), (0, 4, None, 8));
}

#[test]
fn a_dictionary_of_one_long_value_makes_small_batches() {
    let long = StringArray::from(vec!["x".repeat(640_000)]);
    let coded = DictionaryArray::new(Int32Array::from(vec![0; 50_000]), Arc::new(long));
    let (file, metadata) = written(vec![("a", Arc::new(coded))], properties().build());
    assert!(file.metadata().unwrap().len() < 10_000, "32 GB of text");
    let rows = rows(&file, &metadata).unwrap();
    assert!((16..=52).contains(&rows), "{rows}");
}

#[test]
fn a_page_that_does_not_fit_in_memory_is_refused_with_its_size() {
    let values = StringArray::from(vec!["short".to_owned(), "y".repeat(100 << 20)]);
    let numbers = Arc::new(Int32Array::from(vec![1, 2]));
    let properties = properties().set_dictionary_enabled(false).build();
    let (file, metadata) = written(vec![("n", numbers), ("a", Arc::new(values))], properties);
    assert!(file.metadata().unwrap().len() < 100_000);
    match rows(&file, &metadata) {
        Err(PageFault::TooLarge { column, page_bytes, .. }) => {
            assert_eq!(column, "a");
            assert!((100 << 20..101 << 20).contains(&page_bytes), "{page_bytes}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn ordinary_files_are_read_in_large_batches() {
    let words: Vec<String> = (0..200_000).map(|row| format!("word {}", row % 5_000)).collect();
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..200_000));
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        let words: ArrayRef = Arc::new(StringArray::from(words.clone()));
        let properties = properties().set_writer_version(version).build();
        let (file, metadata) = written(vec![("n", Arc::clone(&numbers)), ("w", words)], properties);
        assert_eq!(rows(&file, &metadata).unwrap(), 65_536);
        for group in metadata.metadata().row_groups() {
            for column in group.columns() {
                let pages = spans(&file, column).unwrap().pages;
                let counted: u64 = pages.iter().map(|page| page.row_count).sum();
                assert_eq!(i64::try_from(counted).unwrap(), column.num_values());
            }
        }
    }
}

#[test]
fn one_dense_page_among_many_bounds_the_batch() {
    // 1,000 short values to a page, then 400 values of 100 kB.
    let mut values = vec!["short".to_owned(); 100_000];
    values.extend(vec!["z".repeat(100_000); 400]);
    let properties = properties()
        .set_dictionary_enabled(false)
        .set_encoding(Encoding::PLAIN)
        .set_data_page_row_count_limit(100)
        .set_write_batch_size(100)
        .build();
    let (file, metadata) = written(vec![("a", Arc::new(StringArray::from(values)))], properties);
    let rows = rows(&file, &metadata).unwrap();
    assert!(rows <= 512, "{rows} rows may have {} bytes", rows * 100_000);
}

proptest! {
    #[test]
    fn any_bytes_are_a_header_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut thrift = Thrift { rest: &bytes };
        let _: Option<PageHeader> = thrift.page_header();
    }
}
