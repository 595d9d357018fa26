//! The crate `cleave-client` with `cleave serve`: values, parameters, transactions, COPY, cancelling, TLS, passwords.

use std::io::{self, Read};
use std::sync::Arc;

use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use cleave_client::{Client, ClientError, Value};
use cleave_host::value::value_text;

use super::client::Server;
use super::{ENDLESS, served};
use crate::program::{cleave, cleave_with_input};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work)
}

fn url(server: &Server, user: &str, options: &str) -> String {
    format!("postgres://{user}@127.0.0.1:{}/db?{options}", server.port)
}

async fn connected(server: &Server) -> Client {
    Client::connect(&url(server, "ada", "sslmode=disable")).await.unwrap()
}

/// The rows of batches, as the shell prints them.
fn texts(batches: &[RecordBatch]) -> Vec<Vec<Option<String>>> {
    let row = |batch: &RecordBatch, row: usize| {
        batch.columns().iter().map(|column| value_text(column, row).unwrap()).collect()
    };
    batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |at| row(batch, at))).collect()
}

async fn rows(client: &mut Client, sql: &str, values: &[Value]) -> Vec<Vec<Option<String>>> {
    let mut answer = client.run(sql, values).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    texts(&answer.collect().await.unwrap())
}

#[test]
fn parameters_name_files() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--allow-files"]);
    let file = folder.path().join("a.csv");
    std::fs::write(&file, "id,title\n1,one\n2,two\n").unwrap();
    let file = file.display().to_string();
    block_on(async {
        let mut client = connected(&server).await;
        let sql = "SELECT title FROM read_csv($1) WHERE id > $2::bigint";
        // Also within a block, which the refusal to tell the columns leaves as it was.
        rows(&mut client, "CREATE SEQUENCE s", &[]).await;
        rows(&mut client, "BEGIN", &[]).await;
        let values = [Value::from(file.as_str()), Value::Int(1)];
        assert_eq!(rows(&mut client, sql, &values).await, [[Some("two".to_owned())]]);
        // The columns have their types, and what was described for that has not run: the sequence begins.
        let counted = "SELECT id, nextval('s') FROM read_csv($1) WHERE id > $2";
        let mut answer = client.run(counted, &values).await.unwrap();
        let fields = answer.schema().unwrap().fields().clone();
        assert!(fields.iter().all(|field| *field.data_type() == DataType::Int64), "{fields:?}");
        let expected = [[Some("2".to_owned()), Some("1".to_owned())]];
        assert_eq!(texts(&answer.collect().await.unwrap()), expected);
        // Without a cast too; and in any kind of statement.
        let sql = "SELECT title FROM read_csv($1) WHERE id > $2";
        assert_eq!(rows(&mut client, sql, &values).await, [[Some("two".to_owned())]]);
        rows(&mut client, "CREATE TABLE t (id bigint, title text)", &[]).await;
        let text = |text: &str| Some(text.to_owned());
        for (sql, expected) in [
            ("INSERT INTO t SELECT * FROM read_csv($1) WHERE id > $2 RETURNING id", text("2")),
            (
                "UPDATE t SET title = 'x' FROM read_csv($1) AS f WHERE f.id = t.id AND f.id > $2 RETURNING f.title",
                text("two"),
            ),
            (
                "DELETE FROM t USING read_csv($1) AS f WHERE f.id = t.id AND t.id > $2 RETURNING t.title",
                text("x"),
            ),
        ] {
            assert_eq!(rows(&mut client, sql, &values).await, [[expected]], "{sql}");
        }
        rows(&mut client, "COMMIT", &[]).await;
        // Also by EXECUTE, whose columns a server does not tell before it runs.
        rows(&mut client, "PREPARE p AS SELECT title FROM read_csv($1)", &[]).await;
        let executed = rows(&mut client, &format!("EXECUTE p ('{file}')"), &[]).await;
        assert_eq!(executed, [[Some("one".to_owned())], [Some("two".to_owned())]]);
        let error = client.run(sql, &[Value::from("none.csv"), Value::Int(1)]).await.unwrap_err();
        assert_eq!(error.sqlstate(), "58P01", "{error}");
    });
}

#[test]
fn values_in_binary_are_those_in_text() {
    let (_folder, server) = served();
    block_on(async {
        let mut client = connected(&server).await;
        let mut outcomes = Vec::new();
        let made = "CREATE TABLE t (a boolean, b smallint, c integer, d bigint, e real, f double precision, \
            g numeric(10, 2), h text, i bytea, j date, k time, l timestamp, m timestamptz, n interval, o uuid, \
            p varchar(5));
            INSERT INTO t VALUES (true, -3, 1, 9000000000, 1.5, -1e300, -12345.67, 'x y', '\\x00ff', '2024-02-29', \
            '23:59:59.5', '1969-12-31 23:59:59.25', '2024-01-02 03:04:05+00', '1 year 2 days 03:04:05', \
            '6ba7b810-9dad-11d1-80b4-00c04fd430c8', 'abc'), (false, 4, 2, -1, 'NaN', 'Infinity', 0.05, '', '', \
            '0001-01-01', '00:00', 'infinity', '-infinity', '-3 days', NULL, NULL); INSERT INTO t (c) VALUES (3)";
        client.run_script(made, &mut outcomes).await.unwrap();
        let tags: Vec<&str> = outcomes.iter().map(|outcome| outcome.tag.as_str()).collect();
        assert_eq!(tags, ["CREATE TABLE", "INSERT 0 2", "INSERT 0 1"]);
        for sql in [
            "SELECT * FROM t ORDER BY c",
            "SELECT count(*), sum(g), avg(c), sum(d) FROM t",
            // Quotients, of which each has its own number of digits.
            "SELECT g / 3 FROM t ORDER BY c",
            "SELECT ARRAY[1, 2], ARRAY['a', 'b \"c']",
            "SELECT * FROM t WHERE false",
            "SHOW split",
            "INSERT INTO t (c) VALUES (7) RETURNING c, c + 1",
        ] {
            let mut shown = Vec::new();
            let binary = rows(&mut client, sql, &[]).await;
            client.run_script(sql, &mut shown).await.unwrap();
            let (schema, batches) = shown.remove(0).rows.unwrap();
            assert_eq!(binary, texts(&batches), "{sql}");
            assert!(schema.fields().iter().all(|field| *field.data_type() == DataType::Utf8));
        }
        // More than one batch.
        let many = "SELECT v, v::text FROM generate_series(1, 150000) AS s (v)";
        let mut answer = client.run(many, &[]).await.unwrap();
        let batches = answer.collect().await.unwrap();
        assert!(batches.len() > 2 && batches.iter().all(|batch| batch.num_rows() <= 65_536));
        assert_eq!((answer.tag(), answer.row_count()), (Some("SELECT 150000"), Some(150_000)));
    });
}

#[test]
fn parameters_have_the_types_of_their_statement_or_their_own() {
    let (_folder, server) = served();
    block_on(async {
        let mut client = connected(&server).await;
        client
            .run("CREATE TABLE t (a smallint, b text, c bytea, d numeric(6, 2))", &[])
            .await
            .unwrap();
        let insert = "INSERT INTO t VALUES ($1, $2, $3, $4)";
        let values = [Value::Int(7), "x".into(), Value::Bytes(vec![0, 255]), Value::Float(1.25)];
        let answer = client.run(insert, &values).await.unwrap();
        assert_eq!((answer.tag(), answer.schema().is_none()), (Some("INSERT 0 1"), true));
        client.run(insert, &[Value::Int(8), Value::Null, Value::Null, Value::Null]).await.unwrap();
        let find = "SELECT a, c, d FROM t WHERE a = $1 AND b = $2";
        let found = rows(&mut client, find, &[Value::Int(7), "x".into()]).await;
        assert_eq!(found, [["7", "\\x00ff", "1.25"].map(|value| Some(value.to_owned()))]);
        // Nothing decides these.
        let typed = Value::Typed { type_oid: 1082, text: "2024-02-29".to_owned() };
        let values = [Value::Int(5), Value::Float(0.5), Value::Bool(true), typed, "x".into()];
        let mut answer = client.run("SELECT $1, $2, $3, $4, $5", &values).await.unwrap();
        let schema = Arc::clone(answer.schema().unwrap());
        let types: Vec<_> = schema.fields().iter().map(|field| field.data_type().clone()).collect();
        let (int, float) = (DataType::Int32, DataType::Float64);
        assert_eq!(types, [int, float, DataType::Boolean, DataType::Date32, DataType::Utf8]);
        answer.collect().await.unwrap();
        let few = client.run("SELECT $1", &[]).await.unwrap_err();
        assert!(matches!(few, ClientError::ParameterCount { wanted: 1, given: 0 }), "{few}");
    });
}

#[test]
fn many_rows_of_values_are_one_transaction() {
    let (_folder, server) = served();
    block_on(async {
        let mut client = connected(&server).await;
        client.run("CREATE TABLE t (a int PRIMARY KEY, b text)", &[]).await.unwrap();
        let insert = "INSERT INTO t VALUES ($1, $2)";
        let mut values: Vec<Vec<Value>> =
            (0..1000).map(|number| vec![Value::Int(number), "x".into()]).collect();
        assert_eq!(client.run_many(insert, &values).await.unwrap(), 1000);
        // The last one is there already.
        values.rotate_left(1);
        for (number, row) in values.iter_mut().enumerate().take(999) {
            row[0] = Value::Int(i64::try_from(number).unwrap() + 5000);
        }
        let error = client.run_many(insert, &values).await.unwrap_err();
        assert_eq!(error.sqlstate(), "23505");
        // One that is dropped before its end leaves nothing either.
        values.truncate(999);
        let dropped = client.run_many(insert, &values);
        drop(tokio::time::timeout(std::time::Duration::ZERO, dropped).await);
        let count = rows(&mut client, "SELECT count(*) FROM t", &[]).await;
        assert_eq!(count, [[Some("1000".to_owned())]]);
        values.push(vec![Value::Int(9000)]);
        let wrong = client.run_many(insert, &values).await.unwrap_err();
        assert!(matches!(wrong, ClientError::ParameterCount { wanted: 2, given: 1 }), "{wrong}");
        assert_eq!(client.run_many("DELETE FROM t WHERE a = $1", &[]).await.unwrap(), 0);
    });
}

#[test]
fn errors_have_their_place_and_blocks_their_state() {
    let (_folder, server) = served();
    block_on(async {
        let mut client = connected(&server).await;
        client.run("CREATE TABLE t (a int PRIMARY KEY)", &[]).await.unwrap();
        client.run("BEGIN", &[]).await.unwrap();
        assert!(client.in_transaction() && !client.has_failed());
        let error = client.run("SELECT nam FROM t", &[]).await.unwrap_err();
        assert_eq!((error.sqlstate(), error.server().unwrap().position), ("42703", Some(8)));
        assert!(client.has_failed());
        let error = client.run("SELECT 1", &[]).await.unwrap_err();
        assert_eq!(error.sqlstate(), "25P02");
        client.run("ROLLBACK", &[]).await.unwrap();
        assert!(!client.in_transaction());
        // An error behind the first rows.
        let late = "SELECT 1 / (v - 140000) FROM generate_series(1, 150000) AS s (v)";
        let error = match client.run(late, &[]).await {
            Ok(mut answer) => answer.collect().await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.sqlstate(), "22012");
        client.run("COMMIT", &[]).await.unwrap();
        assert!(!client.take_notices().is_empty(), "there is no transaction in progress");
        let copy = client.run("COPY t FROM STDIN", &[]).await.unwrap_err();
        assert!(matches!(copy, ClientError::CopyWithoutStream(_)), "{copy}");
        let copy = client.run("COPY t TO STDOUT", &[]).await.unwrap_err();
        assert!(matches!(copy, ClientError::CopyWithoutStream(_)), "{copy}");
        assert_eq!(rows(&mut client, "SELECT 1", &[]).await.len(), 1);
    });
}

#[test]
fn a_statement_is_cancelled_and_the_session_goes_on() {
    let (_folder, server) = served();
    block_on(async {
        let mut client = connected(&server).await;
        let handle = client.cancel_handle();
        let error = {
            let mut running = Box::pin(client.run(ENDLESS, &[]));
            loop {
                // There is nothing to cancel until it runs.
                tokio::select! {
                    done = &mut running => break done.unwrap_err(),
                    asked = handle.cancel() => asked.unwrap(),
                }
            }
        };
        assert_eq!(error.sqlstate(), "57014");
        // A cancel that came too late may stop the next one.
        drop(client.run("SELECT 1", &[]).await);
        assert_eq!(rows(&mut client, "SELECT 1", &[]).await.len(), 1);
    });
}

/// A reader that fails after its first piece.
struct Failing(bool);

impl Read for Failing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if std::mem::replace(&mut self.0, true) {
            return Err(io::Error::other("the disk is gone"));
        }
        buffer[..2].copy_from_slice(b"9\n");
        Ok(2)
    }
}

#[test]
fn rows_are_copied_in_both_directions() {
    let (_folder, server) = served();
    block_on(async {
        let mut client = connected(&server).await;
        client.run("CREATE TABLE t (a int)", &[]).await.unwrap();
        let copy = "COPY t FROM STDIN";
        let lines: String = (0..50_000).map(|line| format!("{line}\n")).collect();
        assert_eq!(client.copy_in(copy, &mut lines.as_bytes()).await.unwrap(), 50_000);
        let mut copied = Vec::new();
        let out = "COPY (SELECT a FROM t ORDER BY a) TO STDOUT";
        assert_eq!(client.copy_out(out, &mut copied).await.unwrap(), 50_000);
        assert_eq!(copied, lines.as_bytes());
        let failed = client.copy_in(copy, &mut Failing(false)).await.unwrap_err();
        assert!(failed.to_string().contains("the disk is gone"), "{failed}");
        // It is refused while rows are sent.
        let wrong = "x\n".repeat(200_000);
        let refused = client.copy_in(copy, &mut wrong.as_bytes()).await.unwrap_err();
        assert_eq!(refused.sqlstate(), "22P02", "{refused}");
        let unknown = client.copy_in("COPY u FROM STDIN", &mut io::empty()).await.unwrap_err();
        assert_eq!(unknown.sqlstate(), "42P01", "{unknown}");
        let other = client.copy_in("SELECT 1", &mut io::empty()).await.unwrap_err();
        assert!(matches!(other, ClientError::Usage(_)), "{other}");
        let count = rows(&mut client, "SELECT count(*) FROM t", &[]).await;
        assert_eq!(count, [[Some("50000".to_owned())]]);
    });
}

#[test]
fn tls_is_spoken_as_the_url_asks_for_it() {
    let (_folder, plain) = served();
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--tls-self-made"]);
    let certificate = folder.path().join("db/server.crt");
    let other = folder.path().join("other.crt");
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(&other, made.cert.pem()).unwrap();
    block_on(async {
        let verified = format!("sslmode=verify-full&sslrootcert={}", certificate.display());
        for options in ["sslmode=disable", "sslmode=prefer", "sslmode=require", &verified] {
            let mut client = Client::connect(&url(&server, "ada", options)).await.unwrap();
            assert_eq!(rows(&mut client, "SELECT 1", &[]).await.len(), 1, "{options}");
        }
        let options = format!("sslrootcert={}", other.display());
        let error = Client::connect(&url(&server, "ada", &options)).await.unwrap_err();
        assert!(matches!(error, ClientError::Tls { .. }), "{error}");
        let error = Client::connect(&url(&plain, "ada", "sslmode=require")).await.unwrap_err();
        assert!(matches!(error, ClientError::Tls { .. }), "{error}");
        let mut client = Client::connect(&url(&plain, "ada", "sslmode=prefer")).await.unwrap();
        assert_eq!(rows(&mut client, "SELECT 1", &[]).await.len(), 1);
    });
}

#[test]
fn a_password_is_wanted_where_there_are_users() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("db");
    let db = db.to_str().unwrap();
    cleave(&["sql", "--create", "--db", db, "-c", "SELECT 1"]).ok();
    cleave_with_input(&["user", "add", "ada", "--db", db], "pencil\n").ok();
    let server = Server::start(folder.path(), &[]);
    block_on(async {
        let error = Client::connect(&url(&server, "ada", "")).await.unwrap_err();
        assert!(matches!(error, ClientError::PasswordWanted { .. }), "{error}");
        let error = Client::connect(&url(&server, "ada:crayon", "")).await.unwrap_err();
        assert_eq!(error.sqlstate(), "28P01");
        let mut client = Client::connect(&url(&server, "ada:pencil", "")).await.unwrap();
        let user = rows(&mut client, "SELECT current_user", &[]).await;
        assert_eq!(user, [[Some("ada".to_owned())]]);
    });
}
