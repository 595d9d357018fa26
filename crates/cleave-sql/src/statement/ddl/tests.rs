//! Tests of CREATE TABLE: JOB's schema, every type, every refused clause.

use cleave_catalog::error::Error;
use cleave_store::{ColumnType, TableSchema};

use crate::statement::{Statement, parse_script};

fn create(sql: &str) -> TableSchema {
    match parse_script(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).remove(0).statement {
        Statement::CreateTable(create) => create.schema,
        other => panic!("{other:?}"),
    }
}

fn column_type(sql_type: &str) -> ColumnType {
    create(&format!("CREATE TABLE t (a {sql_type})")).columns[0].column_type
}

fn refused(sql: &str) -> Error {
    parse_script(sql).expect_err(sql)
}

/// The text of a file among the shared data; None where there are none and CLEAVE_DATA is not set.
fn shared(path: &str) -> Option<String> {
    let root = std::env::var_os("CLEAVE_DATA")?;
    let path = std::path::Path::new(&root).join(path);
    Some(
        std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display())),
    )
}

#[test]
fn the_join_order_benchmarks_schema_runs_unmodified() {
    let Some(script) = shared("job/schema.sql") else { return };
    let statements = parse_script(&script).unwrap();
    assert_eq!(statements.len(), 21);
    for parsed in statements {
        let Statement::CreateTable(create) = parsed.statement else { panic!("{}", parsed.text) };
        assert_eq!(create.schema.primary_key, [1], "{}", create.schema.name);
    }
}

#[test]
fn a_table_of_our_own() {
    let script = include_str!("../../../tests/data/airport_schema.sql");
    let tables: Vec<_> = parse_script(script).unwrap();
    assert_eq!(tables.len(), 2);
    let schema = create(script);
    assert_eq!((schema.name.as_str(), schema.table_id, schema.version), ("airport", 0, 1));
    assert_eq!(
        schema.columns.iter().map(|column| column.id).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5, 6, 7]
    );
    assert_eq!(schema.primary_key, [1]);
    assert!(
        schema.columns[0].not_null && schema.columns[1].not_null && !schema.columns[2].not_null
    );
    assert_eq!(schema.columns[6].default.as_deref(), Some("'OurAirports'"));
}

#[test]
fn every_type_name() {
    use ColumnType as Type;
    for (names, expected) in [
        (&["smallint", "int2", "SMALLINT"][..], Type::SmallInt),
        (&["int", "integer", "int4"], Type::Int),
        (&["bigint", "int8"], Type::BigInt),
        (&["real", "float4", "float(1)", "float(24)"], Type::Real),
        (&["double precision", "float8", "float", "float(25)", "float(53)"], Type::Double),
        (&["numeric", "decimal"], Type::NUMERIC),
        (&["numeric(10)", "decimal(10,0)", "dec(10)"], Type::Numeric { precision: 10, scale: 0 }),
        (&["numeric(38,38)"], Type::Numeric { precision: 38, scale: 38 }),
        (&["boolean", "bool"], Type::Boolean),
        (&["text", "text COLLATE \"C\""], Type::Text),
        (&["varchar", "character varying"], Type::Varchar(None)),
        (&["varchar(12)", "character varying(12)", "char varying(12)"], Type::Varchar(Some(12))),
        (&["char", "character", "char(1)"], Type::Char(1)),
        (&["char(12)", "character(12)"], Type::Char(12)),
        (&["date"], Type::Date),
        (&["time", "time without time zone", "time(6)"], Type::Time),
        (&["timestamp", "timestamp without time zone", "timestamp(6)"], Type::Timestamp),
        (
            &["timestamptz", "timestamp with time zone", "timestamp(6) with time zone"],
            Type::TimestampTz,
        ),
        (&["interval"], Type::Interval),
        (&["bytea"], Type::Bytea),
        (&["uuid"], Type::Uuid),
    ] {
        for name in names {
            assert_eq!(column_type(name), expected, "{name}");
        }
    }
}

#[test]
fn types_that_are_refused() {
    for (name, sqlstate, part) in [
        ("json", "0A000", "type JSON"),
        ("jsonb", "0A000", "type JSONB"),
        ("int[]", "0A000", "type INT[]"),
        ("timestamp(3)", "0A000", "type TIMESTAMP(3)"),
        ("time with time zone", "0A000", "time with time zone"),
        ("interval year to month", "0A000", "INTERVAL YEAR TO MONTH"),
        ("money", "0A000", "type money"),
        ("tinyint", "0A000", "TINYINT"),
        ("bit(3)", "0A000", "BIT(3)"),
        ("numeric(39)", "22023", "precision is 1 to 38"),
        ("numeric(0)", "22023", "precision is 1 to 38"),
        ("numeric(5,6)", "22023", "scale 0 up to the precision"),
        ("numeric(5,-2)", "22023", "scale 0 up to the precision"),
        ("float(54)", "22023", "1 to 53"),
        ("varchar(0)", "22023", "1 to 10485760"),
        ("char(10485761)", "22023", "1 to 10485760"),
        ("timestamp(7)", "22023", "0 to 6"),
        ("intger", "42704", "did you mean \"integer\"?"),
    ] {
        let error = refused(&format!("CREATE TABLE t (\n a {name})"));
        assert_eq!(error.sqlstate(), sqlstate, "{name}: {error}");
        assert!(error.to_string().contains(part), "{name}: {error}");
        assert_eq!(error.position().map(|position| position.line), Some(2), "{name}: {error}");
    }
}

#[test]
fn constraints() {
    let schema = create(
        "CREATE TABLE IF NOT EXISTS public.T (A int NULL, b text DEFAULT 'x' NOT NULL, c int CONSTRAINT nn NOT NULL, \
         CONSTRAINT pk PRIMARY KEY (c, b))",
    );
    assert_eq!(schema.primary_key, [3, 2]);
    assert_eq!(
        schema.columns.iter().map(|column| column.not_null).collect::<Vec<_>>(),
        [false, true, true]
    );
    assert_eq!(schema.columns[1].default.as_deref(), Some("'x'"));
    let schema = create("CREATE TABLE t (a int, PRIMARY KEY (a))");
    assert!(schema.columns[0].not_null);
    let schema = create("CREATE TABLE t (a int DEFAULT NULL)");
    assert_eq!(schema.columns[0].default, None);
    let Statement::CreateTable(parsed) =
        parse_script("CREATE TABLE IF NOT EXISTS t (a int)").unwrap().remove(0).statement
    else {
        panic!()
    };
    assert!(parsed.if_not_exists);
}

#[test]
fn clauses_that_are_refused_by_name() {
    for (sql, part) in [
        ("CREATE TABLE t (a int REFERENCES s (a) MATCH PARTIAL)", "MATCH PARTIAL"),
        ("CREATE TABLE t (a int UNIQUE DEFERRABLE)", "DEFERRABLE"),
        ("CREATE TABLE t (a int, UNIQUE NULLS NOT DISTINCT (a))", "NULLS NOT DISTINCT"),
        ("CREATE TABLE t (a int, UNIQUE (a DESC))", "UNIQUE of anything but columns"),
        ("CREATE TABLE t (a text COLLATE \"de_DE\")", "COLLATE \"de_DE\""),
        ("CREATE TABLE t (a int PRIMARY KEY DEFERRABLE)", "DEFERRABLE"),
        ("CREATE TABLE t (a int, PRIMARY KEY (a) DEFERRABLE)", "DEFERRABLE"),
        ("CREATE TABLE t (a int, PRIMARY KEY (a DESC))", "PRIMARY KEY of anything but columns"),
        ("CREATE TABLE t (a int) ON COMMIT DROP", "ON COMMIT"),
        ("CREATE OR REPLACE TABLE t (a int)", "CREATE OR REPLACE TABLE"),
        ("CREATE TABLE t (LIKE s)", "CREATE TABLE ... LIKE"),
        (
            "CREATE TABLE t (a int) WITH (user_catalog_table = true)",
            "storage parameter \"user_catalog_table\"",
        ),
        ("CREATE TABLE t (a int) TABLESPACE s", "TABLESPACE"),
        ("CREATE TABLE t (a int) INHERITS (s)", "INHERITS"),
        ("CREATE TABLE t (a int) PARTITION BY RANGE (a)", "PARTITION BY"),
        ("CREATE TABLE t (a int DEFAULT random())", "DEFAULT random()"),
        ("CREATE TABLE t (a int DEFAULT 1 + 1)", "DEFAULT 1 + 1"),
        ("CREATE TABLE t (a int DEFAULT '1.7'::numeric)", "DEFAULT"),
    ] {
        let error = refused(sql);
        assert_eq!(error.sqlstate(), "0A000", "{sql}: {error}");
        assert!(error.to_string().contains(part), "{sql}: {error}");
    }
}

#[test]
fn contradictions() {
    for (sql, sqlstate, part) in [
        ("CREATE TABLE t (a int NULL NOT NULL)", "42601", "conflicting NULL/NOT NULL declarations"),
        (
            "CREATE TABLE t (a int NULL PRIMARY KEY)",
            "42601",
            "conflicting NULL/NOT NULL declarations",
        ),
        ("CREATE TABLE t (a int DEFAULT 1 DEFAULT 2)", "42601", "multiple default values"),
        (
            "CREATE TABLE t (a int PRIMARY KEY, b int PRIMARY KEY)",
            "42P16",
            "multiple primary keys for table",
        ),
        (
            "CREATE TABLE t (a int PRIMARY KEY, PRIMARY KEY (a))",
            "42P16",
            "multiple primary keys for table",
        ),
        ("CREATE TABLE t (alpha int, PRIMARY KEY (alhpa))", "42703", "did you mean \"alpha\"?"),
        ("CREATE TABLE t (a int, PRIMARY KEY (a, a))", "42701", "twice"),
        ("CREATE TABLE t (a int, A text)", "42701", "more than once"),
        ("CREATE TABLE t ()", "54011", "columns"),
        (
            "CREATE TABLE t (a int DEFAULT 'x')",
            "22P02",
            "column \"a\": invalid input syntax for type integer: \"x\"",
        ),
        ("CREATE TABLE t (a smallint DEFAULT 70000)", "22003", "out of range"),
        ("CREATE TABLE t (a varchar(2) DEFAULT 'abc')", "22001", "too long"),
        ("CREATE TABLE t (a boolean DEFAULT 1)", "42804", "default expression is of type integer"),
        ("CREATE TABLE t (a int DEFAULT true)", "42804", "default expression is of type boolean"),
        ("CREATE TABLE t (a int DEFAULT now())", "42804", "timestamp with time zone"),
        ("CREATE TABLE other.t (a int)", "3F000", "schema \"other\""),
    ] {
        let error = refused(sql);
        assert_eq!(error.sqlstate(), sqlstate, "{sql}: {error}");
        assert!(error.to_string().contains(part), "{sql}: {error}");
    }
}
