//! Tests: tables through Parquet and back; files that do not fit the table, and files that are not Parquet.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, DictionaryArray, Float64Array, Int32Array, Int64Array, LargeStringArray,
    NullArray, RecordBatch, StringArray, TimestampMillisecondArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{Int64Type, SchemaRef, TimestampMicrosecondType};
use cleave_catalog::error::{Error, Result};
use cleave_store::TableSchema;
use parquet::arrow::ArrowWriter;
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use parquet::data_type::{Int96, Int96Type};
use parquet::file::metadata::{
    ParquetMetaDataBuilder, ParquetMetaDataReader, ParquetMetaDataWriter,
};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::file::ParquetFile;
use super::{ParquetReader, ParquetWriter};
use crate::copy::columns::InputColumns;
use crate::copy::csv_reader::CsvReader;
use crate::copy::memory::InputMemory;
use crate::copy::options::{CsvOptions, ParquetCompression};
use crate::statement::{Statement, parse_script};

fn created(sql: &str) -> TableSchema {
    match parse_script(sql).unwrap().remove(0).statement {
        Statement::CreateTable(create) => create.schema,
        other => panic!("{other:?}"),
    }
}

struct Scratch {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

fn scratch() -> Scratch {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("f.parquet");
    Scratch { _directory: directory, path }
}

fn write(
    scratch: &Scratch,
    schema: &SchemaRef,
    batches: &[RecordBatch],
    compression: ParquetCompression,
) {
    let file = File::create(&scratch.path).unwrap();
    let mut writer = ParquetWriter::new(file, "f.parquet", schema, compression).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.finish().unwrap();
}

/// Writes columns as another program might, and reads them as `table`.
fn through(
    columns: Vec<(&str, ArrayRef)>,
    table: &str,
    listed: &[&str],
) -> Result<Vec<RecordBatch>> {
    let scratch = scratch();
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, values)| (name, values, true)),
    )
    .unwrap();
    write(&scratch, &batch.schema(), &[batch], ParquetCompression::Snappy);
    let listed: Vec<String> = listed.iter().map(|name| (*name).to_owned()).collect();
    ParquetReader::open(&scratch.path, &created(table), &listed, 0, InputMemory::default())?
        .collect()
}

fn texts(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn longs(values: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

#[test]
fn a_column_without_a_type_is_null() {
    let nothing = || -> ArrayRef { Arc::new(NullArray::new(2)) };
    let columns = vec![("id", longs(&[1, 2])), ("day", nothing()), ("code", nothing())];
    let found = through(columns, "CREATE TABLE t (id bigint, day date, code uuid)", &[]).unwrap();
    let nulls: Vec<usize> = found[0].columns().iter().map(|own| own.null_count()).collect();
    assert_eq!(nulls, [0, 2, 2]);
}

#[test]
fn files_of_other_programs_are_read_in_all_their_compressions() {
    let table = created("CREATE TABLE t (id bigint, note text)");
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..5000));
    let notes: ArrayRef =
        Arc::new(StringArray::from_iter_values((0..5000).map(|id| format!("note {}", id % 7))));
    let batch = RecordBatch::try_from_iter([("id", ids), ("note", notes)]).unwrap();
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
        Compression::ZSTD(ZstdLevel::default()),
    ] {
        let scratch = scratch();
        let file = File::create(&scratch.path).unwrap();
        let options = WriterProperties::builder().set_compression(compression).build();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(options)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let reader =
            ParquetReader::open(&scratch.path, &table, &[], 0, InputMemory::default()).unwrap();
        let read = reader.collect::<Result<Vec<_>>>().unwrap();
        let read = concat_batches(&read[0].schema(), &read).unwrap();
        assert_eq!(read.columns(), batch.columns(), "{compression}");
    }
}

#[test]
fn metadata_takes_no_memory_that_it_may_not() {
    let scratch = scratch();
    let file = File::create(&scratch.path).unwrap();
    // No bytes of the disk.
    file.set_len(5 << 30).unwrap();
    file.write_all_at(b"PAR1", 0).unwrap();
    file.write_all_at(b"\xf0\xff\xff\xffPAR1", (5 << 30) - 8).unwrap();
    let error = ParquetFile::open(&scratch.path, InputMemory::of(256 << 20)).unwrap_err();
    assert_eq!(error.sqlstate(), "53200", "{error}");
    // One that the file does not have is damage.
    file.set_len(1 << 20).unwrap();
    file.write_all_at(b"\xf0\xff\xff\xffPAR1", (1 << 20) - 8).unwrap();
    let error = ParquetFile::open(&scratch.path, InputMemory::of(256 << 20)).unwrap_err();
    assert!(matches!(error, Error::InputSchema { .. }), "{error}");
}

#[test]
fn timestamps_of_96_bits_may_lie_far_ahead() {
    let scratch = scratch();
    let schema = Arc::new(parse_message_type("message m { REQUIRED INT96 moment; }").unwrap());
    let file = File::create(&scratch.path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    // No nanoseconds, and the Julian day of 9999-12-31.
    let mut value = Int96::new();
    value.set_data(0, 0, 5_373_484);
    column.typed::<Int96Type>().write_batch(&[value], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    let table = created("CREATE TABLE t (moment timestamp)");
    let read = ParquetReader::open(&scratch.path, &table, &[], 0, InputMemory::default()).unwrap();
    let batches = read.collect::<Result<Vec<_>>>().unwrap();
    let times = batches[0].column(0).as_primitive::<TimestampMicrosecondType>();
    assert_eq!(times.value(0), 253_402_214_400_000_000);
}

#[test]
fn every_type_comes_back() {
    let table = created(
        "CREATE TABLE t (a smallint, b int NOT NULL, c bigint, d real, e double precision, f numeric(6,2), g \
            boolean, \
         h text, i varchar(3), j char(3), k date, l time, m timestamp, n timestamptz, o interval, p bytea, q uuid)",
    );
    let input = "-1,2,3,1.5,1e100,12.345,yes,x,abc,a  ,2024-02-29,23:59:59.5,2024-02-29 01:02:03,\
                 2024-02-29 01:02:03+01,1 mon 1 day \
        02:00:00,\\xff,a0eebc999c0b4ef8bb6d6bb9bd380a11\n,7,,,,,,,,,,,,,,,\n";
    let columns = InputColumns::new(&table, &[], 0).unwrap();
    let batch = CsvReader::new(input.as_bytes(), "f", columns, CsvOptions::csv())
        .unwrap()
        .next_batch()
        .unwrap()
        .unwrap();
    for compression in [
        ParquetCompression::Uncompressed,
        ParquetCompression::Snappy,
        ParquetCompression::Zstd,
        ParquetCompression::Lz4,
    ] {
        let scratch = scratch();
        write(&scratch, &table.arrow(), std::slice::from_ref(&batch), compression);
        let mut reader =
            ParquetReader::open(&scratch.path, &table, &[], 0, InputMemory::default()).unwrap();
        assert_eq!(reader.row_count(), 2);
        assert_eq!(reader.next_batch().unwrap().unwrap(), batch, "{compression:?}");
        assert!(reader.next_batch().unwrap().is_none());
    }
}

#[test]
fn columns_are_matched_by_name_and_cast_where_nothing_is_lost() {
    let stamps: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![1_500]));
    let wide: ArrayRef = Arc::new(LargeStringArray::from(vec!["x  "]));
    let batches = through(
        vec![("Name", wide), ("id", longs(&[7])), ("at", stamps), ("extra", longs(&[1]))],
        "CREATE TABLE t (id int PRIMARY KEY, name char(2), at timestamp, note text DEFAULT 'none')",
        &["name", "id", "at"],
    )
    .unwrap();
    let text = |index: usize| {
        cleave_catalog::value::value_text(batches[0].column(index), 0).unwrap().unwrap()
    };
    assert_eq!([text(0), text(1), text(2), text(3)], ["7", "x", "1970-01-01 00:00:01.5", "none"]);
}

#[test]
fn files_that_do_not_fit() {
    /// The file's columns, the table's definition, COPY's list, SQLSTATE and part of the message.
    type Case<'a> = (Vec<(&'a str, ArrayRef)>, &'a str, &'a [&'a str], &'a str, &'a str);
    let cases: Vec<Case<'_>> = vec![
        (
            vec![("nmae", texts(&["x"]))],
            "name text",
            &[],
            "22P04",
            "column \"nmae\" of the file does not exist in table \"t\"; did you mean \"name\"?",
        ),
        (
            vec![("nmae", texts(&["x"]))],
            "name text",
            &["name"],
            "22P04",
            "it has no column \"name\"; did you mean \"nmae\"?",
        ),
        (
            vec![("name", longs(&[1]))],
            "name text",
            &[],
            "22P04",
            "column \"name\" holds Int64, which is no text",
        ),
        (vec![("a", texts(&["1"]))], "a int", &[], "22P04", "holds Utf8, which is no integer"),
        (
            vec![("a", longs(&[5_000_000_000]))],
            "a int",
            &[],
            "22003",
            "column \"a\": value \"5000000000\" is out of range for type integer",
        ),
        (
            vec![("a", Arc::new(Float64Array::from(vec![1e300])))],
            "a real",
            &[],
            "22003",
            "\"1e+300\" is out of range for type real",
        ),
        (
            vec![("a", Arc::new(Float64Array::from(vec![1e30])))],
            "a numeric(5,2)",
            &[],
            "22003",
            "out of range for type numeric(5,2)",
        ),
        (
            vec![("a", texts(&["abc"]))],
            "a varchar(2)",
            &[],
            "22001",
            "value too long for type character varying(2): the value is \"abc\"",
        ),
        (
            vec![("a", texts(&["1 fortnight"]))],
            "a interval",
            &[],
            "22007",
            "invalid input syntax for type interval",
        ),
        (
            vec![("a", Arc::new(StringArray::from(vec![None::<&str>])))],
            "a text NOT NULL",
            &[],
            "23502",
            "null value in column \"a\"",
        ),
        (
            vec![("a", texts(&["x"]))],
            "a text, b int NOT NULL",
            &[],
            "23502",
            "null value in column \"b\"",
        ),
        (
            vec![("a", texts(&["x"]))],
            "a text",
            &["c"],
            "42703",
            "column \"c\" of relation \"t\" does not exist",
        ),
    ];
    for (columns, definition, listed, sqlstate, part) in cases {
        let table = format!("CREATE TABLE t ({definition})");
        let error = through(columns, &table, listed).unwrap_err();
        assert_eq!(error.sqlstate(), sqlstate, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn files_that_are_no_parquet() {
    let table = created("CREATE TABLE t (a bigint)");
    let scratch = scratch();
    let open = || ParquetReader::open(&scratch.path, &table, &[], 0, InputMemory::default());
    assert_eq!(open().unwrap_err().sqlstate(), "58P01");
    for bytes in [&b""[..], b"a,b\n1,2\n", b"PAR1xxxxxxxxxxxxPAR1"] {
        std::fs::write(&scratch.path, bytes).unwrap();
        let error = open().unwrap_err();
        assert!(matches!(error, Error::InputSchema { .. }), "{error}");
        assert!(error.to_string().contains("not a Parquet file, or is damaged"), "{error}");
    }
    let batch =
        RecordBatch::try_from_iter([("a", longs(&(0..10_000).collect::<Vec<_>>()))]).unwrap();
    write(&scratch, &batch.schema(), &[batch], ParquetCompression::Uncompressed);
    let bytes = std::fs::read(&scratch.path).unwrap();
    std::fs::write(&scratch.path, &bytes[..bytes.len() / 2]).unwrap();
    assert!(open().unwrap_err().to_string().contains("damaged"));
}

#[test]
fn long_files_come_in_bounded_batches() {
    let table = created("CREATE TABLE t (a bigint)");
    let scratch = scratch();
    let values: Vec<i64> = (0..100_000).collect();
    let batch = RecordBatch::try_new(table.arrow(), vec![longs(&values)]).unwrap();
    write(&scratch, &table.arrow(), &[batch], ParquetCompression::Zstd);
    let reader =
        ParquetReader::open(&scratch.path, &table, &[], 0, InputMemory::default()).unwrap();
    let batches: Vec<_> = reader.collect::<Result<_>>().unwrap();
    assert!(batches.iter().all(|batch| batch.num_rows() <= 65_536));
    let back: Vec<i64> = batches
        .iter()
        .flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec())
        .collect();
    assert_eq!(back, values);
}

#[test]
fn windows_of_a_row_group_are_batches_and_damage_in_one_is_told() {
    let scratch = scratch();
    let numbers: Vec<i64> = (0..10_000).collect();
    let words: Vec<String> = numbers.iter().map(|number| format!("word {number}")).collect();
    let words: ArrayRef = Arc::new(StringArray::from(words));
    let batch = RecordBatch::try_from_iter([("n", longs(&numbers)), ("w", words)]).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(4_000))
        .set_data_page_row_count_limit(500)
        .set_write_batch_size(500)
        .set_dictionary_enabled(false)
        .build();
    let file = File::create(&scratch.path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let read = |wanted: &[bool]| -> Result<Vec<(i64, i64, String)>> {
        let file = ParquetFile::open(&scratch.path, InputMemory::default())?;
        let columns = file.columns(&[1, 0], &[1], InputMemory::default())?.of_rows(1_024);
        assert_eq!(columns.steady_rows(), Some(1_024));
        let mut rows = file.windows(columns, 1, 1_024, wanted)?;
        let mut found = Vec::new();
        while let Some((values, row_count)) = rows.next_columns()? {
            let numbers = values[1].as_primitive::<Int64Type>();
            assert_eq!(numbers.len(), row_count);
            let word = values[0].as_string::<i32>().value(0).to_owned();
            found.push((numbers.value(0), numbers.value(row_count - 1), word));
        }
        Ok(found)
    };
    let first = (4_000_i64, 5_023_i64, "word 4000".to_owned());
    let last = (7_072_i64, 7_999_i64, "word 7072".to_owned());
    assert_eq!(read(&[true, false, false, true]).unwrap(), [first.clone(), last]);
    assert!(read(&[false; 4]).unwrap().is_empty());
    // What the index says of its pages.
    let bounds = ParquetFile::open(&scratch.path, InputMemory::default())
        .unwrap()
        .page_bounds(1, &[0])
        .unwrap();
    let bounds = bounds[0].as_ref().unwrap();
    assert_eq!(bounds.first_rows, [0, 500, 1_000, 1_500, 2_000, 2_500, 3_000, 3_500]);
    assert_eq!(bounds.mins.as_primitive::<Int64Type>().value(7), 7_500);
    assert_eq!(bounds.maxes.as_primitive::<Int64Type>().value(0), 4_499);
    // A text that is longer than its page, in the last window.
    let mut bytes = std::fs::read(&scratch.path).unwrap();
    let place = bytes.windows(9).position(|own| own == b"word 7600").unwrap();
    bytes[place - 4..place].copy_from_slice(&i32::MAX.to_le_bytes());
    std::fs::write(&scratch.path, bytes).unwrap();
    assert_eq!(read(&[true, false, false, false]).unwrap(), [first]);
    let error = read(&[true, false, false, true]).unwrap_err().to_string();
    assert!(error.contains("the file is damaged"), "{error}");
}

#[test]
fn a_file_with_fewer_values_than_rows_is_damaged() {
    let table = created("CREATE TABLE t (a bigint)");
    let scratch = scratch();
    let batch = RecordBatch::try_new(table.arrow(), vec![longs(&[1, 2, 3])]).unwrap();
    write(&scratch, &table.arrow(), &[batch], ParquetCompression::Uncompressed);
    // The row group claims to have thirty rows.
    let metadata =
        ParquetMetaDataReader::new().parse_and_finish(&File::open(&scratch.path).unwrap()).unwrap();
    let group = metadata.row_group(0).clone().into_builder().set_num_rows(30).build().unwrap();
    let damaged =
        ParquetMetaDataBuilder::new(metadata.file_metadata().clone()).add_row_group(group).build();
    let mut bytes = std::fs::read(&scratch.path).unwrap();
    let end = u32::from_le_bytes(*bytes.last_chunk::<8>().unwrap().first_chunk().unwrap());
    bytes.truncate(bytes.len() - 8 - usize::try_from(end).unwrap());
    let mut file = File::create(&scratch.path).unwrap();
    file.write_all(&bytes).unwrap();
    ParquetMetaDataWriter::new(&mut file, &damaged).finish().unwrap();
    let mut reader =
        ParquetReader::open(&scratch.path, &table, &[], 0, InputMemory::default()).unwrap();
    let error = reader.next_batch().unwrap_err().to_string();
    assert!(
        error.contains("the file is damaged") && error.contains("expected 30, got 3"),
        "{error}"
    );
}

#[test]
fn wide_values_that_dictionaries_stand_for_come_in_bounded_batches() {
    let table = created("CREATE TABLE t (a text, n int)");
    let scratch = scratch();
    // 2.7 GB of text in a file of some hundred kilobytes, behind short values.
    const ROW_COUNT: usize = 70_000;
    let long = |letter: &str| letter.repeat(40_000);
    let words = StringArray::from(vec!["short".to_owned(), long("a"), long("b")]);
    let word_of = |row: usize| if row < 2_000 { 0 } else { 1 + row % 2 };
    let keys = (0..ROW_COUNT).map(|row| i32::try_from(word_of(row)).unwrap());
    let keys = Int32Array::from_iter_values(keys);
    let numbers = Int32Array::from_iter_values((0..70_000).collect::<Vec<i32>>());
    let coded: ArrayRef = Arc::new(DictionaryArray::new(keys, Arc::new(words)));
    let batch =
        RecordBatch::try_from_iter([("a", coded), ("n", Arc::new(numbers) as ArrayRef)]).unwrap();
    write(&scratch, &batch.schema(), &[batch], ParquetCompression::Uncompressed);
    assert!(std::fs::metadata(&scratch.path).unwrap().len() < 1 << 20);
    let mut row = 0;
    for batch in ParquetReader::open(&scratch.path, &table, &[], 0, InputMemory::default()).unwrap()
    {
        let batch = batch.unwrap();
        assert!(batch.get_array_memory_size() < 32 << 20, "{}", batch.get_array_memory_size());
        let texts = batch.column(0).as_string::<i32>();
        let numbers = batch.column(1).as_primitive::<arrow::datatypes::Int32Type>();
        for (text, number) in texts.iter().zip(numbers.values()) {
            assert_eq!(usize::try_from(*number).unwrap(), row);
            let expected = [("short", 5), ("a", 40_000), ("b", 40_000)][word_of(row)];
            let text = text.unwrap();
            assert_eq!((&text[..expected.0.len()], text.len()), expected);
            row += 1;
        }
    }
    assert_eq!(row, ROW_COUNT);
}

#[test]
#[ignore = "takes 3 GB of memory: an array outgrows its offsets at 2 GiB"]
fn text_that_outgrows_an_array_is_read_on_in_smaller_batches() {
    let table = created("CREATE TABLE t (a text, n int)");
    let scratch = scratch();
    let keys = Int32Array::from_iter_values((0..66_000).map(|row| row % 2));
    let words = StringArray::from(vec!["a".repeat(40_000), "b".repeat(40_000)]);
    let coded: ArrayRef = Arc::new(DictionaryArray::new(keys, Arc::new(words)));
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..66_000));
    let batch = RecordBatch::try_from_iter([("a", coded), ("n", numbers)]).unwrap();
    write(&scratch, &batch.schema(), &[batch], ParquetCompression::Uncompressed);
    let mut reader =
        ParquetReader::open(&scratch.path, &table, &[], 0, InputMemory::default()).unwrap();
    // The headers of the pages would keep batches small: 65,536 rows have 2.6 GB of text.
    reader.rows.in_batches_of(65_536).unwrap();
    let mut row = 0;
    for batch in reader {
        let batch = batch.unwrap();
        if row == 0 {
            assert_eq!(batch.num_rows(), 65_536 / 8, "the first batch was read again");
        }
        let numbers = batch.column(1).as_primitive::<arrow::datatypes::Int32Type>();
        for (text, number) in batch.column(0).as_string::<i32>().iter().zip(numbers.values()) {
            assert_eq!((*number, text.unwrap().len()), (row, 40_000));
            row += 1;
        }
    }
    assert_eq!(row, 66_000);
}

proptest::proptest! {
    /// A damaged file gives an error, or other values if the damage hits only values; never a panic.
    #[test]
    fn a_damaged_byte_is_survived(place in 0.0_f64..1.0, flip in 1_u8.., compressed: bool) {
        let table = created("CREATE TABLE t (a bigint, b text)");
        let numbers: Vec<i64> = (0..500).map(|number| number % 37).collect();
        let words: Vec<String> = numbers.iter().map(|number| format!("word {number}")).collect();
        let columns: Vec<ArrayRef> = vec![longs(&numbers), Arc::new(StringArray::from(words))];
        let batch = RecordBatch::try_new(table.arrow(), columns).unwrap();
        let scratch = scratch();
        let compression =
            if compressed { ParquetCompression::Zstd } else { ParquetCompression::Uncompressed };
        write(&scratch, &table.arrow(), &[batch], compression);
        let mut bytes = std::fs::read(&scratch.path).unwrap();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a place within a small file"
        )]
        let index = ((bytes.len() - 1) as f64 * place) as usize;
        bytes[index] ^= flip;
        std::fs::write(&scratch.path, &bytes).unwrap();
        let read = ParquetReader::open(&scratch.path, &table, &[], 0, InputMemory::default())
            .and_then(|reader| reader.collect::<Result<Vec<_>>>());
        if let Err(error) = read {
            proptest::prop_assert!(!error.to_string().is_empty());
        }
    }
}
