//! Tests: scripts in; statements, or errors with position, token and SQLSTATE, out.

use cleave_catalog::error::{Error, Position};
use cleave_catalog::settings::Isolation;

use super::{ExplainFormat, Statement, is_default, parse_script, parse_script_in, tokenize};
use super::{Modes, Scope};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;

fn one(sql: &str) -> Statement {
    let mut statements = parse_script(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    assert_eq!(statements.len(), 1, "{sql}");
    statements.remove(0).statement
}

fn refused(sql: &str) -> Error {
    match parse_script(sql) {
        Ok(statements) => panic!("{sql} was read as {statements:?}"),
        Err(error) => error,
    }
}

#[test]
fn a_script_is_cut_into_statements_with_text_and_position() {
    let script = "-- first\n;;SELECT 'a;b' AS \"ü;\" ;\n\n  SHOW split;drop table a, B ; ";
    let statements = parse_script(script).unwrap();
    let found: Vec<_> = statements
        .iter()
        .map(|statement| {
            (statement.text.as_str(), statement.position.line, statement.position.column)
        })
        .collect();
    assert_eq!(
        found,
        [("SELECT 'a;b' AS \"ü;\"", 2, 3), ("SHOW split", 4, 3), ("drop table a, B", 4, 14)]
    );
    assert!(parse_script("").unwrap().is_empty());
    assert!(parse_script(" ; -- nothing\n /* at all */ ;").unwrap().is_empty());
}

#[test]
fn an_operator_ends_before_the_signs_of_its_operand() {
    let columns = |text: &str| -> Vec<_> {
        let tokens = tokenize(&PostgreSqlDialect {}, text).unwrap();
        let places = tokens
            .iter()
            .map(|token| (token.token.to_string(), token.span.start.column, token.span.end.column));
        places.collect()
    };
    let of = |text: &str, start: u64, end: u64| (text.to_owned(), start, end);
    let found = columns("a>=-+5");
    assert_eq!(found, [of("a", 1, 2), of(">=", 2, 4), of("-", 4, 5), of("+", 5, 6), of("5", 6, 7)]);
    assert_eq!(columns("a->-5")[1..3], [of("->", 2, 4), of("-", 4, 5)]);
    assert_eq!(columns("a||-5")[1..3], [of("||", 2, 4), of("-", 4, 5)]);
    assert_eq!(columns("a&-5")[1], of("&-", 2, 4));
}

#[test]
fn syntax_errors_have_line_column_and_token() {
    for (sql, line, column, near) in [
        ("SELECT 1;\nSELEC 2", 2, 1, Some("SELEC")),
        ("SELECT *\nFORM t", 2, 6, Some("t")),
        ("SELECT 1 +", 1, 11, None),
        ("SELECT 'open", 1, 8, Some("'open")),
        ("SELECT 1 2", 1, 10, Some("2")),
        ("SET x", 1, 6, None),
        ("SET x = ;", 1, 9, Some(";")),
        ("COPY t", 1, 7, None),
        ("COPY t FROM nowhere", 1, 13, Some("nowhere")),
        ("42", 1, 1, Some("42")),
        ("EXPLAIN (COST) SELECT 1", 1, 10, Some("COST")),
        ("EXPLAIN (FORMAT yaml) SELECT 1", 1, 17, Some("yaml")),
    ] {
        let error = refused(sql);
        let position = Some(Position { line, column });
        let Error::Syntax { near: found, position: place, .. } = &error else {
            panic!("{sql}: {error:?}");
        };
        assert_eq!((place, found.as_deref()), (&position, near), "{sql}: {error}");
        assert_eq!(error.sqlstate(), "42601");
    }
    let message = refused("SELECT 1 2").to_string();
    assert!(
        message.starts_with("line 1, column 10: syntax error at or near \"2\": expected "),
        "{message}"
    );
}

#[test]
fn a_zero_byte_is_refused_where_it_stands() {
    let error = refused("SELECT 1;\nSELECT 'ä\0b'");
    assert_eq!(error.sqlstate(), "22021");
    assert!(error.to_string().starts_with("line 2, column 10: "), "{error}");
}

#[test]
fn what_this_version_cannot_do_is_named() {
    for (sql, what) in [
        ("UPDATE t SET a = 1 LIMIT 1", "UPDATE ... LIMIT"),
        ("DELETE FROM t LIMIT 1", "DELETE ... LIMIT"),
        ("MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE", "MERGE"),
        ("ALTER TABLE t ENABLE ROW LEVEL SECURITY", "ALTER TABLE ... ENABLE ROW LEVEL SECURITY"),
        ("CREATE INDEX i ON t (lower(a))", "an index over an expression"),
        ("CREATE INDEX i ON t (a) WHERE a > 1", "a partial index (WHERE)"),
        ("CREATE INDEX i ON t USING hash (a)", "an index USING anything but btree"),
        (
            "CREATE UNIQUE INDEX i ON t (a) NULLS NOT DISTINCT",
            "CREATE INDEX ... NULLS NOT DISTINCT",
        ),
        ("CREATE SCHEMA s", "CREATE SCHEMA"),
        ("DROP SCHEMA s", "DROP SCHEMA"),
        ("SELECT a FROM t GROUP BY a FOR UPDATE", "SELECT ... FOR UPDATE with GROUP BY"),
        ("SELECT DISTINCT a FROM t FOR KEY SHARE", "SELECT ... FOR KEY SHARE with DISTINCT"),
        ("SELECT * FROM t FOR JSON AUTO", "SELECT ... FOR JSON AUTO"),
        ("SELECT 1 INTO u UNION SELECT 2", "SELECT ... INTO"),
        (
            "INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = 1",
            "INSERT ... ON DUPLICATE KEY UPDATE",
        ),
        (
            "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET a = (SELECT 1)",
            "a subquery in ON CONFLICT DO UPDATE",
        ),
        ("EXPLAIN DROP TABLE t", "EXPLAIN of this statement"),
        ("DROP TABLE a.b.c", "a table of another database (a.b.c)"),
    ] {
        let error = refused(sql);
        let Error::Unsupported { what: found, position, .. } = &error else {
            panic!("{sql}: {error:?}");
        };
        assert_eq!(found, what, "{sql}");
        assert!(position.is_some(), "{sql}");
        assert_eq!(error.sqlstate(), "0A000");
    }
    let message = refused("SELECT 1;\nCREATE SCHEMA s").to_string();
    assert_eq!(message, "line 2, column 1: CREATE SCHEMA is not supported");
}

#[test]
fn clauses_that_the_engine_would_drop_are_named() {
    for (sql, what) in [
        ("SELECT * FROM t TABLESAMPLE SYSTEM (10)", "TABLESAMPLE"),
        ("SELECT * FROM t AS a TABLESAMPLE BERNOULLI (10) REPEATABLE (1)", "TABLESAMPLE"),
        ("SELECT * FROM (SELECT 1) s TABLESAMPLE SYSTEM (10)", "TABLESAMPLE"),
        ("SELECT (SELECT max(a) FROM t TABLESAMPLE SYSTEM (10))", "TABLESAMPLE"),
        ("INSERT INTO s SELECT * FROM t TABLESAMPLE SYSTEM (10)", "TABLESAMPLE"),
        ("COPY (SELECT * FROM t TABLESAMPLE SYSTEM (10)) TO 'f'", "TABLESAMPLE"),
        ("EXPLAIN SELECT * FROM t TABLESAMPLE SYSTEM (10)", "TABLESAMPLE"),
        ("SELECT * FROM f(1) WITH ORDINALITY", "WITH ORDINALITY"),
        ("SELECT * FROM t, LATERAL f(t.a) WITH ORDINALITY", "WITH ORDINALITY"),
        ("SELECT * FROM s JOIN t WITH (NOLOCK) ON true", "a table WITH (hints)"),
        ("SELECT * FROM f(1) AS t (a int, b text)", "an alias that gives its columns types"),
        ("SELECT * FROM a.f(1)", "a function of a schema in FROM (a.f)"),
        ("SELECT * FROM s GLOBAL JOIN t ON true", "GLOBAL JOIN"),
        ("SELECT * FROM t START WITH a = 1 CONNECT BY a = b", "CONNECT BY"),
        (
            "SELECT a FROM t GROUP BY a GROUPING SETS ((a), ())",
            "GROUP BY with GROUPING SETS that no comma precedes",
        ),
        (
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 9) SELECT * FROM r",
            "LIMIT or OFFSET in a recursive query",
        ),
        (
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION SELECT n FROM r ORDER BY 1) SELECT * FROM r",
            "ORDER BY in a recursive query",
        ),
        ("SELECT abs(DISTINCT a) FROM t", "DISTINCT with abs, which is no aggregate,"),
        ("SELECT UPPER(a) FILTER (WHERE b) FROM t", "FILTER with UPPER, which is no aggregate,"),
        ("SELECT abs(a) OVER () FROM t", "OVER with abs, which is no aggregate,"),
        ("SELECT ARRAY(SELECT a, b FROM t ORDER BY a)", "ARRAY(subquery)"),
        ("SELECT a SIMILAR TO b FROM t", "SIMILAR TO a pattern that is no literal"),
    ] {
        let error = refused(sql);
        let Error::Unsupported { what: found, position, .. } = &error else {
            panic!("{sql}: {error:?}");
        };
        assert_eq!(found, what, "{sql}");
        assert!(position.is_some(), "{sql}");
    }
    for sql in [
        "WITH x AS MATERIALIZED (SELECT 1) SELECT * FROM x",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 9) SELECT * FROM r LIMIT 3",
        "SELECT a FROM t GROUP BY GROUPING SETS ((a), ())",
        "SELECT sum(a) OVER w, count(DISTINCT a), sum(a) FILTER (WHERE b) FROM t WINDOW w AS (ORDER BY b)",
        "SELECT a FROM t ORDER BY (SELECT max(a) OVER w FROM t WINDOW w AS ())",
        "SELECT * FROM generate_series(1, 3) AS g (n)",
        "SELECT a::varchar, b::text, first_value(a) IGNORE NULLS OVER (ORDER BY b) FROM t",
        "SELECT ARRAY(SELECT a FROM t ORDER BY b), a AT TIME ZONE 'UTC', b SIMILAR TO 'x%' FROM t",
        "SELECT 1 for",
    ] {
        assert!(matches!(one(sql), Statement::Query(_)), "{sql}");
    }
}

#[test]
fn transactions() {
    for sql in ["BEGIN", "begin work", "START TRANSACTION", "BEGIN TRANSACTION"] {
        assert_eq!(one(sql), Statement::Begin(Modes::default()), "{sql}");
    }
    for sql in ["COMMIT", "END", "COMMIT WORK"] {
        assert_eq!(one(sql), Statement::Commit { chain: false }, "{sql}");
    }
    assert_eq!(one("ROLLBACK"), Statement::Rollback { chain: false });
    let modes =
        |isolation, read_only| Modes { isolation: Some(isolation), read_only, deferrable: None };
    let repeatable = modes(Isolation::RepeatableRead, Some(true));
    let sql = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";
    assert_eq!(one(sql), Statement::Begin(repeatable));
    let sql = "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED";
    assert_eq!(one(sql), Statement::SetTransaction(modes(Isolation::ReadCommitted, None)));
    let sql = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE";
    assert_eq!(one(sql), Statement::SetCharacteristics(modes(Isolation::Serializable, None)));
    let sql = "START TRANSACTION ISOLATION LEVEL SERIALIZABLE READ ONLY, DEFERRABLE";
    let deferrable = Modes { deferrable: Some(true), ..modes(Isolation::Serializable, Some(true)) };
    assert_eq!(one(sql), Statement::Begin(deferrable));
    assert!(matches!(parse_script("BEGIN READ ONLY,"), Err(Error::Syntax { .. })));
    assert!(matches!(parse_script("SET TRANSACTION"), Err(Error::Syntax { .. })));
    assert_eq!(one("SAVEPOINT A"), Statement::Savepoint { name: "a".into() });
    assert_eq!(one("ROLLBACK TO SAVEPOINT a"), Statement::RollbackTo { name: "a".into() });
    assert_eq!(one("RELEASE a"), Statement::Release { name: "a".into() });
}

#[test]
fn settings() {
    let set = |name: &str, value: Option<&str>| Statement::Set {
        name: name.into(),
        value: value.map(str::to_owned),
        scope: Scope::Session,
    };
    assert_eq!(one("SET split = h0"), set("split", Some("h0")));
    assert_eq!(one("SET SESSION split TO 'ndp'"), set("split", Some("ndp")));
    assert_eq!(one("SET slot_bytes = 64kB"), set("slot_bytes", Some("64kB")));
    assert_eq!(one("SET threads = -1"), set("threads", Some("-1")));
    assert_eq!(one("SET datestyle = ISO, MDY"), set("datestyle", Some("ISO, MDY")));
    assert_eq!(one("SET x = on"), set("x", Some("on")));
    assert_eq!(one("SET split = DEFAULT"), set("split", None));
    assert_eq!(one("RESET split"), set("split", None));
    assert_eq!(one("SET TIME ZONE 'UTC'"), set("TimeZone", Some("UTC")));
    assert_eq!(one("SET datafusion.execution.x = 1"), set("datafusion.execution.x", Some("1")));
    assert_eq!(one("SET NAMES 'utf8'"), set("client_encoding", Some("utf8")));
    let local = Statement::Set {
        name: "split".into(),
        value: Some("h0".into()),
        scope: Scope::Transaction,
    };
    assert_eq!(one("SET LOCAL split = h0"), local);
    assert_eq!(one("RESET ALL"), Statement::ResetAll);
    assert_eq!(one("SHOW split"), Statement::Show { name: "split".into() });
    assert_eq!(one("SHOW TIME ZONE"), Statement::Show { name: "TimeZone".into() });
    assert_eq!(one("SHOW ALL"), Statement::ShowAll);
    assert_eq!(one("SHOW TABLES"), Statement::ShowTables);
}

#[test]
fn explain_in_both_syntaxes() {
    let parts = |sql: &str| match one(sql) {
        Statement::Explain { analyze, format, statement } => {
            (analyze, format, matches!(*statement, Statement::Insert(_)))
        }
        other => panic!("{other:?}"),
    };
    let (text, verbose) = (ExplainFormat::Text, ExplainFormat::Verbose);
    assert_eq!(parts("EXPLAIN SELECT 1"), (false, text, false));
    assert_eq!(parts("EXPLAIN ANALYZE VERBOSE SELECT 1"), (true, verbose, false));
    assert_eq!(parts("EXPLAIN (VERBOSE) SELECT 1"), (false, verbose, false));
    assert_eq!(
        parts("EXPLAIN (ANALYZE, VERBOSE, FORMAT json) SELECT 1"),
        (true, ExplainFormat::Json, false)
    );
    assert_eq!(parts("EXPLAIN (ANALYZE false, VERBOSE off) SELECT 1"), (false, text, false));
    assert_eq!(parts("EXPLAIN (SELECT 1)"), (false, text, false));
    assert_eq!(parts("EXPLAIN INSERT INTO t VALUES (1)"), (false, text, true));
}

#[test]
fn names_are_folded_and_may_say_public() {
    let names = |sql: &str| match one(sql) {
        Statement::DropTable { names, if_exists, .. } => (names, if_exists),
        other => panic!("{other:?}"),
    };
    let (found, if_exists) = names("DROP TABLE IF EXISTS Title, \"Title\", public.NAME");
    assert_eq!((found, if_exists), (vec!["title".into(), "Title".into(), "name".into()], true));
    assert_eq!(names("DROP TABLE GRÖSSE, İx").0, ["grÖsse", "İx"], "only ASCII folds");
    let error = refused("DROP TABLE publik.t");
    assert_eq!(error.sqlstate(), "3F000");
    assert_eq!(
        error.to_string(),
        "line 1, column 12: schema \"publik\" does not exist; did you mean \"public\"?"
    );
}

#[test]
fn inserts() {
    let Statement::Insert(insert) = one("INSERT INTO T (A, \"B\") VALUES (1, DEFAULT), (2, 'x')")
    else {
        panic!();
    };
    assert_eq!(
        (insert.table.as_str(), insert.columns),
        ("t", vec!["a".to_owned(), "B".to_owned()])
    );
    let source = insert.source.unwrap();
    let ast::SetExpr::Values(values) = *source.body else { panic!() };
    let defaults: Vec<Vec<bool>> =
        values.rows.iter().map(|row| row.iter().map(is_default).collect()).collect();
    assert_eq!(defaults, [[false, true], [false, false]]);
    let Statement::Insert(insert) = one("INSERT INTO t DEFAULT VALUES") else { panic!() };
    assert!(insert.source.is_none() && insert.columns.is_empty());
    let Statement::Insert(insert) = one("INSERT INTO t SELECT * FROM s") else { panic!() };
    assert_eq!(insert.position, Some(Position { line: 1, column: 13 }));
    let error = refused("INSERT INTO t (a, A) VALUES (1, 2)");
    assert_eq!(error.sqlstate(), "42701");
    assert_eq!(error.to_string(), "line 1, column 19: column \"a\" specified more than once");
}

#[test]
fn nesting_has_a_limit_and_no_stack_overflow() {
    let nested = |depth: usize| format!("SELECT {}1{}", "(".repeat(depth), ")".repeat(depth));
    assert!(parse_script(&nested(20)).is_ok());
    let error = refused(&nested(10_000));
    assert_eq!(error.sqlstate(), "54001");
    // A long chain is not deep.
    let chain = vec!["a = 1"; 2_000].join(" OR ");
    assert!(parse_script(&format!("SELECT 1 FROM t WHERE {chain}")).is_ok());
    // It has a limit all the same: DataFusion recurses once for each operator.
    for long in [
        vec!["1"; 4_000].join(" + "),
        vec!["1"; 4_000].join(" UNION ALL SELECT "),
        vec!["1"; 200_000].join(" + "),
    ] {
        assert_eq!(refused(&format!("SELECT {long}")).sqlstate(), "54001");
    }
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "[a-zA-Z0-9 ;'\"(),.*=\n\\\\$-]{0,60}") {
        if let Err(error) = parse_script(&text) {
            proptest::prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn any_words_are_read_or_refused(
        words in proptest::collection::vec(
            proptest::sample::select(vec![
                "SELECT", "1", "FROM", "t", "COPY", "(", ")", ",", "'x'", "SET", "=", "EXPLAIN", "CREATE",
                "TABLE", "INSERT", "INTO", "VALUES", "WITH", "FORMAT", "csv", "DROP", "TO", "int", "PRIMARY",
                "KEY", "DEFAULT", ";", "SHOW", "NULL", "*", "FOR", "UPDATE", "BEGIN", "ü",
            ]),
            0..14,
        )
    ) {
        if let Err(error) = parse_script(&words.join(" ")) {
            proptest::prop_assert_eq!(error.sqlstate().len(), 5);
        }
    }
}

#[test]
fn explains_of_explains_are_refused_however_many() {
    let explains = || {
        for script in ["EXPLAIN ".repeat(19_999), "EXPLAIN (ANALYZE) ".repeat(9_000)] {
            let error = refused(&script);
            assert_eq!(error.sqlstate(), "0A000", "{error}");
            assert!(error.to_string().contains("EXPLAIN of this statement"), "{error}");
        }
    };
    // The default stack size of a thread.
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(explains);
    thread.unwrap().join().unwrap();
}

#[test]
fn parentheses_and_chains_are_as_deep_as_they_must_be() {
    let nested = |count: usize| format!("SELECT {}1{}", "(".repeat(count), ")".repeat(count));
    let Statement::Query(query) = one(&nested(4900)) else { panic!("no query") };
    assert_eq!(query.to_string(), "SELECT (1)");
    let chain =
        |word: &str| (0..3000).map(|number| format!("a = {number}")).collect::<Vec<_>>().join(word);
    for word in [" OR ", " AND "] {
        let Statement::Query(query) = one(&format!("SELECT 1 FROM t WHERE {}", chain(word))) else {
            panic!("no query")
        };
        // Its text has the operands in their order.
        assert!(query.to_string().ends_with(&chain(word)), "{word}");
    }
    let left = format!("SELECT 1 WHERE {}a{}", "(".repeat(3000), " AND a)".repeat(3000));
    assert!(matches!(one(&left), Statement::Query(_)));
    for sql in [
        nested(20_000),
        format!("SELECT {}1{}", "-(".repeat(500), ")".repeat(500)),
        format!("SELECT {}1{}", "(1 + ".repeat(4000), ")".repeat(4000)),
        format!("SELECT {}1", "NOT ".repeat(5000)),
        format!("SELECT {}1{}", "CASE WHEN true THEN ".repeat(5000), " END".repeat(5000)),
        format!("SELECT {}SELECT 1{}", "(".repeat(20_000), ")".repeat(20_000)),
        format!("SELECT * FROM {}t{}", "(".repeat(600), ")".repeat(600)),
        format!("SELECT {}", "[".repeat(5000)),
    ] {
        let error = refused(&sql);
        assert!(
            ["54001", "42601"].contains(&error.sqlstate()),
            "{}: {error}",
            sql.get(..40).unwrap_or(&sql)
        );
    }
}

#[test]
fn lists_of_results_have_as_many_entries_as_in_postgres() {
    let list = |count: usize| vec!["1"; count].join(", ");
    let of_values = |list: String| format!("SELECT * FROM (VALUES ({list})) AS v");
    for sql in [format!("SELECT {}", list(1664)), of_values(list(1664))] {
        one(&sql);
    }
    for sql in [
        format!("SELECT {}", list(1665)),
        format!("SELECT * FROM (SELECT {}) AS s", list(1665)),
        of_values(list(1665)),
    ] {
        let error = refused(&sql);
        assert_eq!(error.sqlstate(), "54011", "{error}");
    }
}

#[test]
fn the_own_database_before_a_schema_is_taken_out() {
    let read = |sql: &str, database| {
        let mut parsed = parse_script_in(sql, database)?;
        Ok::<_, Error>(parsed.remove(0).statement)
    };
    for (long, short) in [
        (
            "SELECT shop.public.t.a, \"shop\".\"public\".t.b FROM shop.public.t",
            "SELECT public.t.a, \"public\".t.b FROM public.t",
        ),
        (
            "SELECT count(*) FROM \"shop\".INFORMATION_SCHEMA.columns",
            "SELECT count(*) FROM INFORMATION_SCHEMA.columns",
        ),
        ("DROP TABLE IF EXISTS SHOP . public . t, shop.public.u", "DROP TABLE IF EXISTS t, u"),
        ("COMMENT ON COLUMN shop.public.t.a IS 'x'", "COMMENT ON COLUMN public.t.a IS 'x'"),
        ("TRUNCATE shop.public.t", "TRUNCATE public.t"),
    ] {
        let expected = format!("{:?}", read(short, None).unwrap());
        let without_places = |text: String| -> String {
            let kept = text
                .split("Location(")
                .map(|part| part.split_once(')').map_or(part, |(_, rest)| rest));
            kept.collect()
        };
        for database in [Some("shop"), None] {
            let found = format!("{:?}", read(long, database).unwrap());
            assert_eq!(
                without_places(found).contains("shop"),
                without_places(expected.clone()).contains("shop"),
                "{long}"
            );
        }
    }
    let error = read("SELECT * FROM other.public.t", Some("shop")).unwrap_err();
    assert_eq!(error.sqlstate(), "0A000");
    assert!(error.to_string().contains("another database (other.public.t)"), "{error}");
    // A string, and names that only look like it.
    for sql in ["SELECT 'a.public.t'", "SELECT public.t.a FROM public.t", "SELECT a.b.c FROM a.b"] {
        assert!(read(sql, Some("shop")).is_ok(), "{sql}");
    }
}

#[test]
fn a_locking_clause_may_stand_before_limit() {
    for (before, behind) in [
        (
            "SELECT a FROM t ORDER BY a FOR UPDATE SKIP LOCKED LIMIT 1",
            "SELECT a FROM t ORDER BY a LIMIT 1 FOR UPDATE SKIP LOCKED",
        ),
        (
            "SELECT a FROM t FOR NO KEY UPDATE OF t NOWAIT OFFSET 1 LIMIT 2",
            "SELECT a FROM t OFFSET 1 LIMIT 2 FOR NO KEY UPDATE OF t NOWAIT",
        ),
        (
            "SELECT a FROM t FOR SHARE FETCH FIRST 3 ROWS ONLY",
            "SELECT a FROM t FETCH FIRST 3 ROWS ONLY FOR SHARE",
        ),
        (
            "SELECT a FROM t, u FOR UPDATE OF t FOR SHARE OF u LIMIT 1",
            "SELECT a FROM t, u LIMIT 1 FOR UPDATE OF t FOR SHARE OF u",
        ),
        (
            "UPDATE t SET a = 1 WHERE b = (SELECT b FROM t FOR UPDATE LIMIT 1) RETURNING a",
            "UPDATE t SET a = 1 WHERE b = (SELECT b FROM t LIMIT 1 FOR UPDATE) RETURNING a",
        ),
        (
            "INSERT INTO u SELECT a FROM t FOR UPDATE LIMIT 1 ON CONFLICT DO NOTHING",
            "INSERT INTO u SELECT a FROM t LIMIT 1 FOR UPDATE ON CONFLICT DO NOTHING",
        ),
    ] {
        let shape = |sql: &str| match parse_script(sql) {
            Ok(mut parsed) => format!("{:?}", parsed.remove(0).statement.properties().tag),
            Err(error) => error.sqlstate().to_owned(),
        };
        assert_eq!(shape(before), shape(behind), "{before}");
        assert_ne!(shape(before), "42601", "{before}");
    }
}
