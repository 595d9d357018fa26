//! COPY in both syntaxes, and every option that is refused.

use cleave_catalog::error::Error;

use crate::copy::options::{ColumnChoice, CopyFormat, CsvOptions, Header, ParquetCompression};
use crate::statement::{Copy, CopyEnd, CopySource, Statement, parse_script};

fn one(sql: &str) -> Copy {
    let mut statements = parse_script(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    match statements.remove(0).statement {
        Statement::Copy(copy) => *copy,
        other => panic!("{other:?}"),
    }
}

fn refused(sql: &str) -> Error {
    parse_script(sql).expect_err(sql)
}

fn from(sql: &str) -> (Vec<String>, CopyEnd, CopyFormat) {
    match one(sql) {
        Copy::From { columns, end, format, .. } => (columns, end, format),
        other => panic!("{other:?}"),
    }
}

fn csv(format: CopyFormat) -> CsvOptions {
    match format {
        CopyFormat::Csv(options) => options,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_newer_syntax() {
    let (columns, end, format) = from(
        "COPY T (a, \"B\") FROM 'dir/f.dat' WITH (FORMAT csv, HEADER true, DELIMITER ',', NULL '\\N', \
         QUOTE '\"', ESCAPE '\\', ENCODING 'UTF8')",
    );
    assert_eq!(columns, ["a", "B"]);
    assert_eq!(end, CopyEnd::File("dir/f.dat".into()));
    let expected =
        CsvOptions { null: "\\N".into(), escape: b'\\', header: Header::Skip, ..CsvOptions::csv() };
    assert_eq!(csv(format), expected);
    let (.., format) = from(
        "copy t from stdin (format CSV, header match, delimiter E'\\t', quote '''', force_null (a), force_not_null *)",
    );
    let options = csv(format);
    assert_eq!((options.delimiter, options.quote, options.escape), (b'\t', b'\'', b'\''));
    assert_eq!(options.header, Header::Match);
    assert_eq!(options.force_null, ColumnChoice::Names(vec!["a".into()]));
    assert_eq!(options.force_not_null, ColumnChoice::All);
    for (text, header) in
        [("", Header::Skip), ("on", Header::Skip), ("0", Header::None), ("false", Header::None)]
    {
        let (.., format) = from(&format!("COPY t FROM 'f' (FORMAT csv, HEADER {text})"));
        assert_eq!(csv(format).header, header, "{text}");
    }
}

#[test]
fn the_older_syntax() {
    let (.., format) = from("COPY t FROM 'f' CSV HEADER");
    assert_eq!(csv(format), CsvOptions { header: Header::Skip, ..CsvOptions::csv() });
    let (.., format) =
        from("COPY t FROM 'f' WITH DELIMITER AS '|' NULL 'x' CSV QUOTE AS '''' ESCAPE '\\'");
    let options = csv(format);
    assert_eq!((options.delimiter, options.quote, options.escape), (b'|', b'\'', b'\\'));
    assert_eq!(options.null, "x");
    let (.., format) = from("COPY t FROM 'f' DELIMITER '|'");
    assert_eq!(format, CopyFormat::Text(CsvOptions { delimiter: b'|', ..CsvOptions::text() }));
}

#[test]
fn both_directions_and_ends() {
    let Copy::To { source, end, format } = one("COPY (SELECT a FROM t) TO 'f' (FORMAT parquet)")
    else {
        panic!();
    };
    assert!(matches!(source, CopySource::Query(_)));
    assert_eq!(
        (end, format),
        (CopyEnd::File("f".into()), CopyFormat::Parquet(ParquetCompression::Zstd))
    );
    let Copy::To { source, end, format } = one("COPY t (a) TO STDOUT") else { panic!() };
    assert_eq!(source, CopySource::Table { name: "t".into(), columns: vec!["a".into()] });
    assert_eq!((end, format), (CopyEnd::Client, CopyFormat::Text(CsvOptions::text())));
    let Copy::To { format, .. } = one("COPY t TO 'f' (FORMAT csv, FORCE_QUOTE *)") else {
        panic!()
    };
    assert_eq!(csv(format).force_quote, ColumnChoice::All);
    let Copy::To { format, .. } = one("COPY t TO 'f' (FORMAT parquet, COMPRESSION snappy)") else {
        panic!()
    };
    assert_eq!(format, CopyFormat::Parquet(ParquetCompression::Snappy));
    // Statements after STDIN are statements, no data.
    assert_eq!(parse_script("COPY t FROM STDIN; SELECT 1").unwrap().len(), 2);
}

#[test]
fn the_name_of_the_file_decides_where_no_format_is_given() {
    assert!(matches!(from("COPY t FROM 'a.CSV'").2, CopyFormat::Csv(_)));
    assert!(matches!(from("COPY t FROM 'a.parquet'").2, CopyFormat::Parquet(_)));
    assert!(matches!(from("COPY t FROM 'a.dat'").2, CopyFormat::Text(_)));
    assert!(matches!(from("COPY t FROM 'a.csv' (FORMAT text)").2, CopyFormat::Text(_)));
    assert!(matches!(from("COPY t FROM 'a.json' (FORMAT text)").2, CopyFormat::Text(_)));
    assert!(matches!(from("COPY t FROM 'a.gz' CSV").2, CopyFormat::Csv(_)));
    assert!(matches!(from("COPY t FROM 'a.csv.ZST'").2, CopyFormat::Csv(_)));
    assert!(matches!(from("COPY t FROM 'a.gz'").2, CopyFormat::Text(_)));
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    for (sql, sqlstate, part) in [
        ("COPY t FROM PROGRAM 'ls'", "0A000", "PROGRAM"),
        ("COPY BINARY t FROM 'f' CSV HEADER", "42601", "HEADER is no option of FORMAT binary"),
        ("COPY t FROM 'f' (FORMAT binary, NULL 'x')", "42601", "NULL is no option"),
        ("COPY t TO 'f' (FORMAT csv, FREEZE)", "42601", "FREEZE"),
        ("COPY t FROM 'f' (ENCODING 'LATIN1')", "0A000", "LATIN1"),
        ("COPY t TO 'f.csv.bz2'", "0A000", "a file that is compressed as .bz2"),
        ("COPY t FROM 'f.json.gz'", "0A000", "the format json"),
        ("COPY t TO 'f.parquet.gz'", "0A000", "a compressed file in FORMAT parquet"),
        ("COPY t FROM 'f' CSV (DATEFORMAT '%d')", "42601", "the end of the statement"),
        ("COPY t FROM 'f' (DATEFORMAT '%d.%m')", "22023", "year, month and day"),
        ("COPY t FROM 'f' (DATEFORMAT '%H')", "22023", "%H is none of"),
        ("COPY t FROM 'f' (DECIMAL_SEPARATOR ', ')", "22023", "one ASCII character"),
        ("COPY t FROM 'f' (DECIMAL_SEPARATOR '1')", "22023", "cannot be 1"),
        ("COPY t TO 'f' (FORMAT csv, DATEFORMAT '%d.%m.%Y')", "42601", "COPY FROM only"),
        ("COPY t FROM 'f' (FORMAT parquet, DECIMAL_SEPARATOR ',')", "42601", "is no option"),
        ("COPY (SELECT 1) TO 'f.json'", "0A000", "the format json"),
        ("COPY t FROM 'f' CSV WHERE a > 1", "0A000", "WHERE"),
        ("COPY t FROM 'f' CSV FORCE NOT NULL a", "0A000", "FORCE outside of parentheses"),
        ("COPY t FROM 'f' (SPEED 9)", "42601", "SPEED"),
        ("COPY t FROM 'f' (FORMAT yaml)", "42601", "csv, text, binary or parquet"),
        ("COPY t FROM 'f' (HEADER maybe)", "42601", "TRUE or FALSE"),
        ("COPY t FROM 'f' (FORMAT csv, FORMAT csv)", "42601", "given twice"),
        ("COPY t FROM 'f' CSV CSV", "42601", "given twice"),
        ("COPY t FROM 'f' WITH", "42601", "an option"),
        ("COPY t FROM 'f' CSV nonsense", "42601", "nonsense"),
        ("COPY t FROM 'f' (FORMAT csv", "42601", "end of input"),
        ("COPY t (a, a) FROM 'f'", "42701", "specified more than once"),
        ("COPY t () FROM 'f'", "42601", "identifier"),
        ("COPY (SELECT 1) FROM 'f'", "42601", "COPY (query)"),
        ("COPY (SELECT 1 TO 'f'", "42601", "closing parenthesis"),
        ("COPY (SELECT a FROM s FOR UPDATE) TO 'f'", "0A000", "FOR UPDATE"),
        ("COPY t FROM 'f' (FORMAT csv, DELIMITER 'ab')", "22023", "one ASCII character"),
        ("COPY t FROM 'f' (FORMAT csv, DELIMITER 'ü')", "22023", "one ASCII character"),
        ("COPY t FROM 'f' (FORMAT csv, DELIMITER E'\\n')", "22023", "no line break"),
        ("COPY t FROM 'f' (FORMAT csv, DELIMITER '\"')", "22023", "must differ"),
        ("COPY t FROM 'f' (FORMAT csv, NULL 'a,b')", "22023", "NULL cannot contain the DELIMITER"),
        ("COPY t FROM 'f' (FORMAT csv, NULL '\"')", "22023", "NULL cannot contain the QUOTE"),
        ("COPY t FROM 'f' (FORMAT csv, NULL E'a\\nb')", "22023", "line break"),
        ("COPY t FROM 'f' (FORMAT text, DELIMITER 'x')", "22023", "text format"),
        (
            "COPY t FROM 'f' (FORMAT text, QUOTE '\"')",
            "42601",
            "QUOTE is an option of FORMAT csv only",
        ),
        (
            "COPY t FROM 'f' (FORMAT parquet, NULL '')",
            "42601",
            "NULL is no option of FORMAT parquet",
        ),
        ("COPY t FROM 'f' (FORMAT parquet, ESCAPE 'x')", "42601", "ESCAPE is no option"),
        ("COPY t FROM 'f' (FORMAT csv, COMPRESSION zstd)", "42601", "COMPRESSION"),
        ("COPY t TO 'f' (FORMAT parquet, COMPRESSION brotli)", "42601", "zstd or lz4"),
        ("COPY t TO 'f' (FORMAT csv, HEADER match)", "42601", "HEADER MATCH"),
        ("COPY t TO 'f' (FORMAT csv, FORCE_NULL *)", "42601", "FORCE_NULL"),
        ("COPY t FROM 'f' (FORMAT csv, FORCE_QUOTE *)", "42601", "FORCE_QUOTE"),
    ] {
        let error = refused(sql);
        assert_eq!(error.sqlstate(), sqlstate, "{sql}: {error}");
        assert!(error.to_string().contains(part), "{sql}: {error}");
    }
}
