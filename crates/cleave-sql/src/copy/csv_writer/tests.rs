//! Tests: the output equals PostgreSQL's byte for byte. Round trips are tested with the reader.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int32Array, RecordBatch, StringArray};

use super::CsvWriter;
use crate::copy::options::{ColumnChoice, CsvOptions, Header};

fn batch() -> RecordBatch {
    let texts = vec![
        Some("plain"),
        None,
        Some(""),
        Some("a,b"),
        Some("say \"hi\""),
        Some("two\nlines"),
        Some(" blank "),
        Some("back\\slash\t"),
    ];
    let numbers = vec![Some(1), Some(2), None, Some(4), Some(5), Some(6), Some(7), Some(8)];
    let flags = vec![true; 8];
    RecordBatch::try_from_iter_with_nullable([
        ("text", Arc::new(StringArray::from(texts)) as ArrayRef, true),
        ("a \"number\"", Arc::new(Int32Array::from(numbers)) as ArrayRef, true),
        ("flag", Arc::new(BooleanArray::from(flags)) as ArrayRef, false),
    ])
    .unwrap()
}

fn written(batch: &RecordBatch, options: CsvOptions) -> String {
    let mut writer = CsvWriter::new(Vec::new(), "out.csv", &batch.schema(), options).unwrap();
    writer.write(batch).unwrap();
    assert_eq!(writer.rows_written(), u64::try_from(batch.num_rows()).unwrap());
    String::from_utf8(writer.finish().unwrap()).unwrap()
}

#[test]
fn csv() {
    assert_eq!(
        written(&batch(), CsvOptions { header: Header::Skip, ..CsvOptions::csv() }),
        "text,\"a \"\"number\"\"\",flag\nplain,1,t\n,2,t\n\"\",,t\n\"a,b\",4,t\n\"say \"\"hi\"\"\",5,t\n\
         \"two\nlines\",6,t\n blank ,7,t\nback\\slash\t,8,t\n"
    );
}

#[test]
fn csv_with_options() {
    let options = CsvOptions {
        delimiter: b'\t',
        escape: b'\\',
        null: "\\N".into(),
        force_quote: ColumnChoice::Names(vec!["flag".into()]),
        ..CsvOptions::csv()
    };
    assert_eq!(
        written(&batch(), options),
        "plain\t1\t\"t\"\n\\N\t2\t\"t\"\n\t\\N\t\"t\"\na,b\t4\t\"t\"\n\"say \\\"hi\\\"\"\t5\t\"t\"\n\
         \"two\nlines\"\t6\t\"t\"\n blank \t7\t\"t\"\n\"back\\\\slash\t\"\t8\t\"t\"\n"
    );
}

#[test]
fn text() {
    assert_eq!(
        written(&batch(), CsvOptions::text()),
        "plain\t1\tt\n\\N\t2\tt\n\t\\N\tt\na,b\t4\tt\nsay \"hi\"\t5\tt\ntwo\\nlines\t6\tt\n blank \t7\tt\n\
         back\\\\slash\\t\t8\tt\n"
    );
}

#[test]
fn the_end_marker_alone_is_quoted() {
    let column = |values: Vec<&str>| Arc::new(StringArray::from(values)) as ArrayRef;
    let one = RecordBatch::try_from_iter([("a", column(vec!["\\."]))]).unwrap();
    assert_eq!(written(&one, CsvOptions::csv()), "\"\\.\"\n");
    let two = RecordBatch::try_from_iter([("a", column(vec!["\\."])), ("b", column(vec!["x"]))]);
    assert_eq!(written(&two.unwrap(), CsvOptions::csv()), "\\.,x\n");
}

#[test]
fn no_rows_are_only_a_header() {
    let none = batch().slice(0, 0);
    let options = CsvOptions { header: Header::Skip, ..CsvOptions::csv() };
    assert_eq!(written(&none, options), "text,\"a \"\"number\"\"\",flag\n");
}

#[test]
fn what_fails() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut writer = CsvWriter::new(Full, "out.csv", &batch().schema(), CsvOptions::csv()).unwrap();
    writer.write(&batch()).unwrap();
    let error = writer.finish().err().unwrap();
    assert_eq!(error.sqlstate(), "53100");
    assert!(error.to_string().starts_with("cannot write out.csv"), "{error}");
    let unknown =
        CsvOptions { force_quote: ColumnChoice::Names(vec!["txet".into()]), ..CsvOptions::csv() };
    let error = CsvWriter::new(Vec::new(), "out.csv", &batch().schema(), unknown).unwrap_err();
    assert!(error.to_string().contains("did you mean \"text\"?"), "{error}");
}
