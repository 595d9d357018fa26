//! Tests: files of PostgreSQL, of the IMDb dump and of OpenFlights; malformed files with the place of the fault; round
//! trips.

use arrow::array::{Array, RecordBatch};
use cleave_catalog::error::{Error, Result};
use cleave_catalog::value::value_text;
use cleave_store::{Column, ColumnType, TableSchema};
use proptest::prelude::*;

use super::{ChunkParser, CsvReader};
use crate::copy::columns::InputColumns;
use crate::copy::csv_writer::CsvWriter;
use crate::copy::memory::InputMemory;
use crate::copy::options::{ColumnChoice, CsvOptions, Header};
use crate::copy::record_splitter::RecordSplitter;
use crate::statement::{Statement, parse_script};

type Rows = Vec<Vec<Option<String>>>;

fn table(columns: &[(&str, ColumnType, bool)]) -> TableSchema {
    let columns = columns
        .iter()
        .zip(1..)
        .map(|((name, column_type, not_null), id)| Column {
            id,
            name: (*name).to_owned(),
            column_type: *column_type,
            not_null: *not_null,
            default: None,
            absent: None,
        })
        .collect();
    TableSchema { table_id: 1, version: 1, name: "t".into(), columns, primary_key: Vec::new() }
}

fn created(sql: &str) -> TableSchema {
    match parse_script(sql).unwrap().remove(0).statement {
        Statement::CreateTable(create) => create.schema,
        other => panic!("{other:?}"),
    }
}

fn batches(input: &[u8], table: &TableSchema, options: CsvOptions) -> Result<Vec<RecordBatch>> {
    let columns = InputColumns::new(table, &[], 0)?;
    CsvReader::new(input, "f.csv", columns, options.check()?)?.collect()
}

fn rows_of(batches: &[RecordBatch]) -> Rows {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let values = batch.columns().iter().map(|column| value_text(column, row).unwrap());
            rows.push(values.collect());
        }
    }
    rows
}

fn read(input: &str, table: &TableSchema, options: CsvOptions) -> Rows {
    rows_of(
        &batches(input.as_bytes(), table, options)
            .unwrap_or_else(|error| panic!("{input:?}: {error}")),
    )
}

fn some(values: &[&str]) -> Vec<Option<String>> {
    values.iter().map(|value| (*value != "NULL").then(|| (*value).to_owned())).collect()
}

fn texts() -> TableSchema {
    table(&[("a", ColumnType::Text, false), ("b", ColumnType::Text, false)])
}

fn dump() -> CsvOptions {
    CsvOptions { escape: b'\\', null: "\\N".into(), ..CsvOptions::csv() }
}

#[test]
fn as_postgres_writes_it() {
    for (input, expected) in [
        ("x,y\n", &["x", "y"][..]),
        ("x,\n", &["x", "NULL"]),
        ("x,\"\"\n", &["x", ""]),
        (",\"\"", &["NULL", ""]),
        ("\"a \"\"b\"\"\",\"c,d\"\n", &["a \"b\"", "c,d"]),
        ("\"a\nb\",\"\"\"\"\r\n", &["a\nb", "\""]),
        (" x , y \n", &[" x ", " y "]),
        ("ab\"c,d\"e,f\n", &["abc,de", "f"]),
        ("\\N,\\\n", &["\\N", "\\"]),
        ("\"x\\\",y\n", &["x\\", "y"]),
        ("NULL,ü\n", &["NULL", "ü"]),
    ] {
        let expected: Vec<_> = expected
            .iter()
            .map(|value| {
                (*value != "NULL" || input.starts_with("NULL")).then(|| (*value).to_owned())
            })
            .collect();
        assert_eq!(read(input, &texts(), CsvOptions::csv()), [expected], "{input:?}");
    }
}

#[test]
fn as_the_imdb_dump_quotes_it() {
    let table = created(
        "CREATE TABLE m (id int NOT NULL, title text NOT NULL, imdb_index varchar(12), year int, note text)",
    );
    let options = CsvOptions { escape: b'\\', ..CsvOptions::csv() };
    let input = include_str!("../../../tests/data/imdb_like.csv");
    // The dump writes NULL as nothing; `\N` is used in the other files, and is no number here.
    let error = batches(input.as_bytes(), &table, options.clone()).unwrap_err();
    assert!(error.to_string().contains("line 2, column 4 (\"year\")"), "{error}");
    let rows = read(&input.replace("\\N", ""), &table, options);
    assert_eq!(rows[0], some(&["1", "Titel, mit Komma", "NULL", "2001", "(as \"Der Kleine\")"]));
    assert_eq!(rows[1], some(&["2", "back\\slash", "I", "NULL", ""]));
    assert_eq!(rows[2], some(&["3", "plain", "NULL", "1999", "two\nlines"]));
}

#[test]
fn as_openflights_has_it() {
    let table = created(include_str!("../../../tests/data/airport_schema.sql"));
    let rows = read(include_str!("../../../tests/data/airports_like.dat"), &table, dump());
    assert_eq!(
        rows[0],
        some(&[
            "1",
            "Kleinort \"Süd\" Airport",
            "KLN",
            "-6.081689830590001",
            "5282",
            "10.00",
            "OurAirports"
        ])
    );
    assert_eq!(
        rows[1],
        some(&["2", "Åre-Östersund", "NULL", "63.194400787354", "1233", "-3.50", "OurAirports"])
    );
    assert_eq!(rows[2], some(&["3", "O\\'Hare Nord", "", "0.5", "NULL", "NULL", "NULL"]));
}

#[test]
fn the_real_openflights() {
    let Some(root) = std::env::var_os("CLEAVE_DATA") else { return };
    let file = |name: &str| {
        let path = std::path::Path::new(&root).join("openflights").join(name);
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    for (name, schema, row_count) in [
        (
            "airports.dat",
            "CREATE TABLE airports (id int NOT NULL, name text NOT NULL, city text, country text, iata char(3), \
             icao char(4), latitude double precision, longitude double precision, altitude_ft int, \
             utc_offset real, dst text, tz text, type text, source text)",
            None,
        ),
        (
            "airlines.dat",
            "CREATE TABLE airlines (id int NOT NULL, name text, alias text, iata text, icao text, callsign text, \
             country text, active boolean NOT NULL)",
            None,
        ),
        (
            "routes.dat",
            "CREATE TABLE routes (airline text, airline_id int, source text, source_id int, destination text, \
             destination_id int, codeshare text, stops int, equipment text)",
            Some(67_663),
        ),
        ("planes.dat", "CREATE TABLE planes (name text, iata text, icao text)", None),
        ("countries.dat", "CREATE TABLE countries (name text, iso text, dafif text)", None),
    ] {
        let bytes = file(name);
        let batches =
            batches(&bytes, &created(schema), dump()).unwrap_or_else(|error| panic!("{error}"));
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        assert!(rows == lines || rows == lines + 1, "{name}: {rows} rows, {lines} lines");
        assert!(row_count.is_none_or(|count| count == rows), "{name}: {rows}");
    }
}

#[test]
fn the_text_format() {
    let rows = read("a\\tb\t\\N\n\\\\N\t\\x41\\102\\q\nx\\\ny\t\n", &texts(), CsvOptions::text());
    assert_eq!(rows, [some(&["a\tb", "NULL"]), some(&["\\N", "ABq"]), some(&["x\ny", ""])]);
    assert_eq!(read("x\ty\\", &texts(), CsvOptions::text()), [some(&["x", "y"])]);
    let error = batches(b"a\t\\xff\n", &texts(), CsvOptions::text()).unwrap_err();
    assert_eq!(error.sqlstate(), "22021");
    assert!(error.to_string().contains("line 1, column 2 (\"b\")"), "{error}");
}

#[test]
fn headers() {
    let skip = CsvOptions { header: Header::Skip, ..CsvOptions::csv() };
    assert_eq!(read("anything\nx,y\n", &texts(), skip.clone()), [some(&["x", "y"])]);
    assert_eq!(read("a,b\n", &texts(), skip), Rows::new());
    let matched = CsvOptions { header: Header::Match, ..CsvOptions::csv() };
    assert_eq!(read("a,\"b\"\nx,y\n", &texts(), matched.clone()), [some(&["x", "y"])]);
    for (input, part) in [
        (
            "a,c\n",
            "line 1, column 2 (\"b\"): column name mismatch in header line: got \"c\", expected \"b\"",
        ),
        ("a\n", "column 2 (\"b\"): missing data: the record has 1 of 2 columns"),
        ("a,b,c\n", "extra data after last expected column, of 2"),
    ] {
        let error = batches(input.as_bytes(), &texts(), matched.clone()).unwrap_err();
        assert_eq!(error.sqlstate(), "22P04");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn columns_may_be_forced() {
    let options = CsvOptions {
        null: "-".into(),
        force_null: ColumnChoice::Names(vec!["a".into()]),
        force_not_null: ColumnChoice::Names(vec!["b".into()]),
        ..CsvOptions::csv()
    };
    assert_eq!(
        read("\"-\",-\n-,\"-\"\n", &texts(), options),
        [some(&["NULL", "-"]), some(&["NULL", "-"])]
    );
    let unknown =
        CsvOptions { force_null: ColumnChoice::Names(vec!["c".into()]), ..CsvOptions::csv() };
    assert_eq!(batches(b"", &texts(), unknown).unwrap_err().sqlstate(), "42703");
}

#[test]
fn columns_that_nobody_asks_for_are_passed_over() {
    let names = ["a", "b", "c", "d", "e"];
    let table = table(&names.map(|name| (name, ColumnType::Text, false)));
    let read = |input: &str, wanted: &[usize]| {
        let (options, memory) = (CsvOptions::csv(), InputMemory::default());
        let columns = InputColumns::new(&table, &[], 0)?;
        let parser = ChunkParser::new("f.csv", columns, options.clone())?.of_columns(wanted);
        let mut splitter = RecordSplitter::new(input.as_bytes(), "f.csv", &options, memory);
        let mut rows: Rows = Vec::new();
        while let Some(chunk) = splitter.next_chunk()? {
            parser.each_rows_of(&chunk, 2, |columns, count| {
                rows.extend((0..count).map(|row| {
                    let values = columns.iter().map(|column| value_text(column, row).unwrap());
                    values.collect::<Vec<_>>()
                }));
                Ok(())
            })?;
        }
        Ok::<_, Error>(rows)
    };
    let input = "1,22222222,3,4,5\n\"a\",\"x,y\",c,\"d\"\"\",e\n,,,,\n";
    for (wanted, expected) in [
        (&[2, 4][..], [["3", "5"], ["c", "e"], ["NULL", "NULL"]]),
        (&[0, 1], [["1", "22222222"], ["a", "x,y"], ["NULL", "NULL"]]),
        (&[1, 3], [["22222222", "4"], ["x,y", "d\""], ["NULL", "NULL"]]),
    ] {
        let expected = expected.map(|row| some(&row));
        assert_eq!(read(input, wanted).unwrap(), expected, "{wanted:?}");
    }
    // They are counted all the same.
    for input in ["1,2,3,4\n", "1,2,3,4,5,6\n", "1,2,\"3\",4\n", "1,2,3,\"4\",5,6\n", "\n"] {
        let all = read(input, &[0, 1, 2, 3, 4]).unwrap_err().to_string();
        for wanted in [&[0_usize; 0][..], &[0], &[2], &[4], &[1, 3]] {
            assert_eq!(read(input, wanted).unwrap_err().to_string(), all, "{input:?} {wanted:?}");
        }
    }
}

#[test]
fn every_fault_has_its_place() {
    let table = table(&[
        ("id", ColumnType::Int, true),
        ("name", ColumnType::Varchar(Some(5)), false),
        ("at", ColumnType::Date, false),
        ("n", ColumnType::Numeric { precision: 4, scale: 1 }, false),
        ("small", ColumnType::SmallInt, false),
        ("ok", ColumnType::Boolean, false),
    ]);
    let good = "1,abc,2024-01-02,1.5,7,t\n";
    for (bad, sqlstate, message) in [
        (
            "x,,,,,\n",
            "22P02",
            "column 1 (\"id\"): invalid input syntax for type integer: \"x\"; expected a whole number from \
             -2147483648 to 2147483647",
        ),
        (",,,,,\n", "23502", "column 1 (\"id\"): null value violates not-null constraint"),
        (
            "1,abcdef,,,,\n",
            "22001",
            "column 2 (\"name\"): value too long for type character varying(5): the value is \"abcdef\"",
        ),
        (
            "1,,2024-02-30,,,\n",
            "22008",
            "column 3 (\"at\"): date/time field value out of range: \"2024-02-30\"; expected a date as YYYY-MM-DD",
        ),
        (
            "1,,01.02.,,,\n",
            "22007",
            "column 3 (\"at\"): invalid input syntax for type date: \"01.02.\"",
        ),
        (
            "1,,,1000,,\n",
            "22003",
            "column 4 (\"n\"): numeric field overflow: \"1000\" is out of range for type numeric(4,1)",
        ),
        (
            "1,,,,40000,\n",
            "22003",
            "column 5 (\"small\"): value \"40000\" is out of range for type smallint",
        ),
        (
            "1,,,,,maybe\n",
            "22P02",
            "column 6 (\"ok\"): invalid input syntax for type boolean: \"maybe\"; expected true, false",
        ),
        ("1,a\n", "22P04", "column 3 (\"at\"): missing data: the record has 2 of 6 columns"),
        ("\n", "22P04", "column 2 (\"name\"): missing data: the record has 1 of 6 columns"),
        (
            "1,,,,,t,more,and more\n",
            "22P04",
            ", value \"more\": extra data after last expected column, of 6",
        ),
        ("1,\"open,,,,\n2\n", "22P04", ": unterminated quoted field: it starts in this record"),
        ("\"\",,,,,\n", "22P02", "column 1 (\"id\"): invalid input syntax for type integer: \"\""),
    ] {
        for (before, line) in [(String::new(), 1), (good.repeat(2), 3)] {
            let input = format!("{before}{bad}");
            let error = batches(input.as_bytes(), &table, CsvOptions::csv()).unwrap_err();
            assert_eq!(error.sqlstate(), sqlstate, "{error}");
            let expected = format!("f.csv, line {line}");
            let text = error.to_string();
            assert!(
                text.starts_with(&expected) && text.contains(message),
                "{text}\nexpected {message}"
            );
        }
    }
    // A record of several lines is reported by its first line.
    let error =
        batches(b"1,\"a\nb\",,,,\n2,\"\n\n\",x,,,\n", &table, CsvOptions::csv()).unwrap_err();
    assert!(error.to_string().starts_with("f.csv, line 3, column 3"), "{error}");
    // Long values are cut.
    let long = format!("{},,,,,\n", "9".repeat(300));
    let error = batches(long.as_bytes(), &table, CsvOptions::csv()).unwrap_err();
    assert!(error.to_string().contains(&format!("\"{}…\"", "9".repeat(60))), "{error}");
}

#[test]
fn bytes_that_are_no_text_have_their_place() {
    for (input, place, bytes) in [
        (&b"ok,ok\nx,ab\xff\xfe\n"[..], "line 2, column 2 (\"b\")", "0xff 0xfe"),
        (b"ok,ok\n\xe4x,y\n", "line 2, column 1 (\"a\")", "0xe4"),
        (b"x,\"y,\n\xc3\",z\n", "line 1, column 2 (\"b\")", "0xc3"),
        (b"x,a\0b\n", "line 1, column 2 (\"b\")", "0x00"),
        (b"a\0,b\xff\n", "line 1, column 1 (\"a\")", "0x00"),
        (b"x,\xc3", "line 1, column 2 (\"b\")", "0xc3"),
    ] {
        let error = batches(input, &texts(), CsvOptions::csv()).unwrap_err();
        assert_eq!(error.sqlstate(), "22021");
        assert!(error.to_string().contains(place) && error.to_string().contains(bytes), "{error}");
    }
    // A fault before the bad bytes comes first.
    let error = batches(b"x\ny,\xff\n", &texts(), CsvOptions::csv()).unwrap_err();
    assert_eq!(error.sqlstate(), "22P04");
}

#[test]
fn batches_are_bounded_and_bytes_are_counted() {
    let table = table(&[("a", ColumnType::Int, true)]);
    let input = "1\n".repeat(100_000);
    let columns = InputColumns::new(&table, &[], 0).unwrap();
    let mut reader = CsvReader::new(input.as_bytes(), "f", columns, CsvOptions::csv()).unwrap();
    let mut sizes = Vec::new();
    while let Some(batch) = reader.next_batch().unwrap() {
        sizes.push(batch.num_rows());
    }
    assert_eq!(sizes, [65_536, 34_464]);
    assert_eq!(reader.bytes_read(), 200_000);
}

#[test]
fn every_type_is_read() {
    let table = created(
        "CREATE TABLE t (a smallint, b int, c bigint, d real, e double precision, f numeric(6,2), g boolean, \
         h text, i varchar(3), j char(3), k date, l time, m timestamp, n timestamptz, o interval, p bytea, q uuid)",
    );
    let input = "-1,2,3,1.5,1e100,12.345,yes,x,abc,a  ,2024-02-29,23:59:59.5,2024-02-29 01:02:03,\
                 2024-02-29 01:02:03+01,1 day 02:00:00,\\xff,a0eebc999c0b4ef8bb6d6bb9bd380a11\n,,,,,,,,,,,,,,,,\n";
    let batches = batches(input.as_bytes(), &table, CsvOptions::csv()).unwrap();
    let rows = rows_of(&batches);
    assert_eq!(
        rows[0],
        some(&[
            "-1",
            "2",
            "3",
            "1.5",
            "1e+100",
            "12.35",
            "t",
            "x",
            "abc",
            "a",
            "2024-02-29",
            "23:59:59.5",
            "2024-02-29 01:02:03",
            "2024-02-29 00:02:03+00",
            "1 day 02:00:00",
            "\\xff",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ])
    );
    assert!(batches[0].columns().iter().all(|column| column.null_count() == 1));
    assert_eq!(batches[0].schema(), table.arrow());
}

fn written(batches: &[RecordBatch], table: &TableSchema, options: &CsvOptions) -> Vec<u8> {
    let mut writer = CsvWriter::new(Vec::new(), "out", &table.arrow(), options.clone()).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.finish().unwrap()
}

fn any_format() -> impl Strategy<Value = CsvOptions> {
    prop_oneof![
        Just(CsvOptions::csv()),
        Just(CsvOptions { header: Header::Match, ..CsvOptions::csv() }),
        Just(CsvOptions { escape: b'\\', ..CsvOptions::csv() }),
        Just(CsvOptions { escape: b'\\', null: "\\N".into(), ..CsvOptions::csv() }),
        Just(CsvOptions {
            delimiter: b'|',
            quote: b'\'',
            escape: b'\'',
            null: "nil".into(),
            ..CsvOptions::csv()
        }),
        Just(CsvOptions { force_quote: ColumnChoice::All, ..CsvOptions::csv() }),
        Just(CsvOptions::text()),
        Just(CsvOptions { delimiter: b'|', ..CsvOptions::text() }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        options in any_format(),
        rows in proptest::collection::vec(
            (
                proptest::option::of("[a-z\"'\\\\,|\n\r\tüN. ]{0,8}"),
                proptest::option::of(any::<i64>()),
                proptest::option::of(any::<f64>()),
            ),
            0..20,
        ),
    ) {
        let table = table(&[
            ("a", ColumnType::Text, false),
            ("n", ColumnType::BigInt, false),
            ("x", ColumnType::Double, false),
        ]);
        let batch = RecordBatch::try_new(table.arrow(), vec![
            std::sync::Arc::new(rows.iter().map(|row| row.0.clone()).collect::<arrow::array::StringArray>()),
            std::sync::Arc::new(rows.iter().map(|row| row.1).collect::<arrow::array::Int64Array>()),
            std::sync::Arc::new(rows.iter().map(|row| row.2).collect::<arrow::array::Float64Array>()),
        ]).unwrap();
        let bytes = written(std::slice::from_ref(&batch), &table, &options);
        let back = batches(&bytes, &table, options).unwrap();
        prop_assert_eq!(rows_of(&back), rows_of(&[batch]));
    }

    #[test]
    fn one_column_of_text_is_read_back(
        options in any_format(),
        values in proptest::collection::vec("[\\\\.N\"\n\r]{0,4}", 0..6),
    ) {
        let table = table(&[("a", ColumnType::Text, true)]);
        let column = std::sync::Arc::new(arrow::array::StringArray::from(values));
        let batch = RecordBatch::try_new(table.arrow(), vec![column]).unwrap();
        let bytes = written(std::slice::from_ref(&batch), &table, &options);
        let back = batches(&bytes, &table, options).unwrap();
        prop_assert_eq!(rows_of(&back), rows_of(&[batch]));
    }

    #[test]
    fn any_bytes_are_read_or_refused_with_a_place(
        options in any_format(),
        input in proptest::collection::vec(
            prop_oneof![Just(b','), Just(b'"'), Just(b'\\'), Just(b'\n'), Just(b'1'), Just(b'|'), any::<u8>()],
            0..80,
        ),
    ) {
        let table = table(&[("a", ColumnType::Int, false), ("b", ColumnType::Text, true)]);
        if let Err(error) = batches(&input, &table, options) {
            let has_place = matches!(&error, Error::Input { place, .. } if place.line > 0);
            prop_assert!(has_place, "{error}");
        }
    }
}
