//! Messages say what, where and what may help; SQLSTATEs survive DataFusion.

use std::path::Path;
use std::sync::Arc;

use arrow::error::ArrowError;
use datafusion_common::Column;
use datafusion_common::SchemaError as NameError;
use datafusion_common::error::DataFusionError;

use super::{Error, Fault, InputFault, InputPlace, NameKind, Position, cut};
use crate::storage_error::{StorageError, into_store_error};

#[test]
fn a_message_has_place_and_hint() {
    let error = Error::unknown(NameKind::Relation, "titel", ["title", "name"])
        .at(Some(Position { line: 2, column: 15 }));
    assert_eq!(
        error.to_string(),
        "line 2, column 15: relation \"titel\" does not exist; did you mean \"title\"?"
    );
    assert_eq!(error.sqlstate(), "42P01");
    assert_eq!(error.hint().as_deref(), Some("did you mean \"title\"?"));
    assert_eq!(error.position(), Some(Position { line: 2, column: 15 }));
    // A known position stays.
    let error = error.at(Some(Position { line: 9, column: 9 }));
    assert_eq!(error.position(), Some(Position { line: 2, column: 15 }));
    let error = Error::unknown_column("title", "xyz", ["id"]);
    assert_eq!(error.to_string(), "column \"xyz\" of relation \"title\" does not exist");
    assert_eq!(error.sqlstate(), "42703");
}

#[test]
fn sqlstates_survive_the_engine() {
    let wrapped = DataFusionError::from(Error::NotNull { table: "t".into(), column: "c".into() })
        .context("while writing");
    assert_eq!(Error::from(wrapped).sqlstate(), "23502");
    let external = Box::new(Error::unsupported("UPDATE"));
    let arrow = ArrowError::ExternalError(external);
    assert_eq!(Error::from(DataFusionError::ArrowError(Box::new(arrow), None)).sqlstate(), "0A000");
    // As the build side of a join passes it to each of its readers.
    let stopped = StorageError::Stopped { path: "films".into() };
    let stored = DataFusionError::External(Box::new(into_store_error(stopped.into())));
    let several = DataFusionError::Shared(Arc::new(stored));
    assert_eq!(Error::from(several).sqlstate(), "58030");
    let shared = DataFusionError::Shared(Arc::new(DataFusionError::from(Error::unsupported("X"))));
    let error = Error::from(shared);
    assert_eq!((error.sqlstate(), error.to_string().as_str()), ("0A000", "X is not supported"));
    let inner = DataFusionError::Plan("no".into());
    let back = DataFusionError::from(Error::from(inner));
    assert!(matches!(back, DataFusionError::Plan(_)));
}

#[test]
fn the_engines_errors_have_sqlstates() {
    for (error, sqlstate) in [
        (DataFusionError::from(ArrowError::DivideByZero), "22012"),
        (DataFusionError::from(ArrowError::CastError("x".into())), "22P02"),
        (DataFusionError::from(ArrowError::ArithmeticOverflow("x".into())), "22003"),
        (DataFusionError::NotImplemented("x".into()), "0A000"),
        (DataFusionError::Plan("table 'x' not found".into()), "42P01"),
        (DataFusionError::Plan("Invalid function 'x'".into()), "42883"),
        (DataFusionError::Plan("x".into()), "42000"),
        (DataFusionError::ResourcesExhausted("x".into()), "53200"),
        (DataFusionError::Internal("x".into()), "XX000"),
    ] {
        let text = error.to_string();
        assert_eq!(Error::from(error).sqlstate(), sqlstate, "{text}");
    }
}

#[test]
fn a_column_that_the_engine_misses_gets_a_suggestion() {
    let missing = NameError::FieldNotFound {
        field: Box::new(Column::from_name("titel")),
        valid_fields: vec![Column::new(Some("t"), "id"), Column::new(Some("t"), "title")],
    };
    let error = Error::from(DataFusionError::SchemaError(Box::new(missing), Box::new(None)));
    assert_eq!(error.sqlstate(), "42703");
    assert_eq!(error.to_string(), "column \"titel\" does not exist; did you mean \"title\"?");
}

#[test]
fn files_that_fail_are_named() {
    let missing = std::fs::File::open("/no/such/file").unwrap_err();
    let error = Error::io("open", Path::new("/no/such/file"), missing);
    assert_eq!(error.sqlstate(), "58P01");
    assert!(error.to_string().starts_with("cannot open /no/such/file: "), "{error}");
    let other = Error::io("read", Path::new("f"), std::io::Error::other("broken"));
    assert_eq!(other.sqlstate(), "58030");
}

#[test]
fn places_in_files_are_told() {
    let place = InputPlace {
        file: "a.csv".into(),
        line: 7,
        column: Some((2, "name".into())),
        value: Some("x\ny".into()),
    };
    let error = Error::Input { place: Box::new(place), fault: Box::new(InputFault::NotNull) };
    assert_eq!(
        error.to_string(),
        "a.csv, line 7, column 2 (\"name\"), value \"x\\ny\": null value violates not-null constraint"
    );
    assert_eq!(error.sqlstate(), "23502");
}

#[test]
fn every_fault_has_its_sqlstate() {
    for (fault, sqlstate) in [
        (Fault::TableDefinition, "42P16"),
        (Fault::ColumnDefinition, "42611"),
        (Fault::Type, "42804"),
        (Fault::DuplicateColumn, "42701"),
        (Fault::Options, "42601"),
        (Fault::Parameter, "22023"),
        (Fault::Statement, "42601"),
        (Fault::TooComplex, "54001"),
        (Fault::TooManyLocks, "53200"),
        (Fault::State, "55000"),
    ] {
        let error = Error::Invalid { message: "x".into(), fault, position: None };
        assert_eq!((error.sqlstate(), error.to_string().as_str()), (sqlstate, "x"));
    }
    for (kind, unknown, taken) in [
        (NameKind::Relation, "42P01", "42P07"),
        (NameKind::Column, "42703", "42701"),
        (NameKind::Schema, "3F000", "42P06"),
        (NameKind::Function, "42883", "42723"),
        (NameKind::Type, "42704", "42710"),
    ] {
        assert_eq!(Error::unknown(kind, "x", []).sqlstate(), unknown);
        assert_eq!(Error::NameTaken { kind, name: "x".into() }.sqlstate(), taken);
    }
    let key = Error::DuplicateKey {
        table: "t".into(),
        constraint: "t_pkey".into(),
        columns: "id".into(),
        key: "1".into(),
    };
    assert_eq!(key.sqlstate(), "23505");
    assert_eq!(
        key.to_string(),
        "duplicate key value violates unique constraint \"t_pkey\": Key (id)=(1) already exists."
    );
}

#[test]
fn values_are_cut_to_sixty_characters() {
    assert_eq!(cut("short"), "short");
    assert_eq!(cut(&"é".repeat(60)), "é".repeat(60));
    assert_eq!(cut(&"é".repeat(61)), format!("{}…", "é".repeat(60)));
    assert_eq!(cut("a\tb\0"), "a\\tb\\u{0}");
}

#[test]
fn an_error_is_small_enough_to_return() {
    assert!(size_of::<Error>() <= 128, "{}", size_of::<Error>());
}
