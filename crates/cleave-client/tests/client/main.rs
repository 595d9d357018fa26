//! The client against servers that do not keep to the protocol, or to the truth. What it does with a real one is
//! tested beside `cleave serve`.
#![expect(clippy::big_endian_bytes, reason = "the protocol's numbers are in network order")]
#![expect(clippy::unwrap_used, reason = "in a test, a broken expectation is the failure")]

use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::Int32Type;
use cleave_client::{
    Address, Client, ClientError, ScriptOutcome, TransactionStatus, Value, blocking,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const AUTHENTICATED: &[u8] = b"R\0\0\0\x08\0\0\0\0";
const READY: &[u8] = b"Z\0\0\0\x05I";
const FAILED: &[u8] = b"Z\0\0\0\x05E";

/// A message.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind], length.to_be_bytes().as_slice(), body].concat()
}

/// The answer to Parse, Describe and Sync of a query with one column of this type.
fn described(oid: u32) -> Vec<u8> {
    let column =
        [b"\0\x01a\0\0\0\0\0\0\0".as_slice(), &oid.to_be_bytes(), &[0xff; 6], &[0, 0]].concat();
    [message(b'1', b""), message(b't', &[0, 0]), message(b'T', &column), READY.to_vec()].concat()
}

/// A row of one value.
fn row(value: &[u8]) -> Vec<u8> {
    let length = u32::try_from(value.len()).unwrap().to_be_bytes();
    message(b'D', &[b"\0\x01".as_slice(), &length, value].concat())
}

/// The answer to Bind, Execute and Sync: these messages, and the end.
fn executed(messages: &[Vec<u8>]) -> Vec<u8> {
    let end = [message(b'C', b"SELECT 1\0"), READY.to_vec()].concat();
    [message(b'2', b""), messages.concat(), end].concat()
}

fn error(severity: &str, state: &str) -> Vec<u8> {
    let fields = format!("S{severity}\0V{severity}\0C{state}\0Mwrong\0Dmore\0Htry\0P8\0\0");
    message(b'E', fields.as_bytes())
}

/// Greets a client by `greeting`, and answers each Sync, each Query and each end of rows by the next of `answers`.
async fn serve(listener: TcpListener, greeting: Vec<u8>, answers: Vec<Vec<u8>>) {
    let mut stream = visited(&listener).await;
    // A client that has left is what some tests are about.
    drop(stream.write_all(&greeting).await);
    let mut answers = answers.into_iter();
    while let Some(kind) = next_kind(&mut stream).await {
        if matches!(kind, b'S' | b'Q' | b'c')
            && let Some(answer) = answers.next()
        {
            drop(stream.write_all(&answer).await);
        }
    }
}

/// A connection of a client that has said who it is.
async fn visited(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    let length = stream.read_u32().await.unwrap();
    let mut startup = vec![0; usize::try_from(length).unwrap() - 4];
    stream.read_exact(&mut startup).await.unwrap();
    stream
}

async fn next_kind(stream: &mut TcpStream) -> Option<u8> {
    let kind = stream.read_u8().await.ok()?;
    let length = stream.read_u32().await.ok()?;
    let mut body = vec![0; usize::try_from(length).unwrap() - 4];
    stream.read_exact(&mut body).await.ok()?;
    Some(kind)
}

/// What a client finds at a server that greets it so.
async fn greeted(greeting: Vec<u8>) -> Result<(), ClientError> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("postgres://ada:pencil@127.0.0.1:{port}/db?sslmode=disable");
    let client = async { Client::connect(&url).await.map(drop) };
    tokio::join!(serve(listener, greeting, Vec::new()), client).1
}

/// Runs `test` with a session of a server that gives these answers.
async fn with_answers(answers: Vec<Vec<u8>>, test: impl AsyncFnOnce(Client)) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("postgres://ada@127.0.0.1:{port}/db?sslmode=disable");
    let key = message(b'K', &[0; 8]);
    let greeting = [AUTHENTICATED, &key, READY].concat();
    let client = async { test(Client::connect(&url).await.unwrap()).await };
    tokio::join!(serve(listener, greeting, answers), client);
}

#[tokio::test]
async fn a_value_that_lies_costs_its_statement_and_nothing_more() {
    let answers = vec![
        described(23),
        executed(&[row(&[0, 0, 0, 1]), row(&[0, 0, 1])]),
        described(23),
        executed(&[row(&[0, 0, 0, 7])]),
    ];
    with_answers(answers, async |mut client| {
        let error = client.run("SELECT a", &[]).await.unwrap_err();
        assert!(matches!(&error, ClientError::Value { column, .. } if column == "a"), "{error}");
        let mut answer = client.run("SELECT a", &[]).await.unwrap();
        let batch = answer.next_batch().await.unwrap().unwrap();
        assert_eq!(batch.column(0).as_primitive::<Int32Type>().value(0), 7);
        assert!(answer.next_batch().await.unwrap().is_none());
        assert_eq!((answer.tag(), answer.row_count()), (Some("SELECT 1"), Some(1)));
    })
    .await;
}

#[tokio::test]
async fn a_broken_message_ends_the_connection() {
    for (name, answer) in [
        (
            "a row of two values",
            executed(&[message(b'D', b"\0\x02\xff\xff\xff\xff\xff\xff\xff\xff")]),
        ),
        ("a row without its bytes", executed(&[message(b'D', b"\0\x01\0\0\0\x09x")])),
        ("a length below its own", b"D\0\0\0\x03".to_vec()),
        ("a length of 2 GB", b"D\x7f\xff\xff\xff".to_vec()),
        ("an unknown kind", message(b'?', b"")),
        ("a state that is none", message(b'Z', b"X")),
        ("twice ready", [message(b'2', b""), READY.to_vec(), READY.to_vec()].concat()),
    ] {
        with_answers(vec![described(23), answer], async |mut client| {
            let first = client.run("SELECT a", &[]).await;
            // The second end comes after the answer.
            let second = client.run("SELECT a", &[]).await;
            let broken = |result: &Result<_, ClientError>| {
                matches!(result, Err(ClientError::Protocol(_) | ClientError::Lost(_)))
            };
            assert!(broken(&first) || broken(&second), "{name}: {first:?} {second:?}");
            drop((first, second));
            assert!(client.is_closed(), "{name}");
        })
        .await;
    }
    let counted = message(b'T', b"\xff\xffa\0");
    with_answers(vec![[message(b'1', b""), counted].concat()], async |mut client| {
        let error = client.run("SELECT a", &[]).await.unwrap_err();
        assert!(matches!(error, ClientError::Protocol(_)), "{error}");
    })
    .await;
}

#[tokio::test]
async fn an_answer_that_is_dropped_is_skipped() {
    let rows: Vec<_> = (0..70_000).map(|_| row(&[0, 0, 0, 1])).collect();
    let answers = vec![described(23), executed(&rows), described(23), executed(&[])];
    with_answers(answers, async |mut client| {
        let mut answer = client.run("SELECT a", &[]).await.unwrap();
        assert_eq!(answer.next_batch().await.unwrap().unwrap().num_rows(), 65_536);
        let busy = client.run("SELECT a", &[]).await.unwrap_err();
        assert!(matches!(busy, ClientError::Busy));
        drop(answer);
        let mut answer = client.run("SELECT a", &[]).await.unwrap();
        assert!(answer.schema().is_some());
        assert!(answer.next_batch().await.unwrap().is_none());
    })
    .await;
}

#[tokio::test]
async fn a_statement_is_stopped_also_by_a_request_that_comes_too_early() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("postgres://ada@127.0.0.1:{port}/db?sslmode=disable");
    let serving = async {
        let mut stream = visited(&listener).await;
        let greeting = [AUTHENTICATED, &message(b'K', &[0; 8]), READY].concat();
        stream.write_all(&greeting).await.unwrap();
        let begun = [message(b'2', b""), row(&[0, 0, 0, 1]).repeat(70_000)].concat();
        for answer in [described(23), begun] {
            while next_kind(&mut stream).await != Some(b'S') {}
            stream.write_all(&answer).await.unwrap();
        }
        // The first request is lost, as where the statement has not begun.
        for _ in 0..2 {
            let (mut request, _) = listener.accept().await.unwrap();
            request.read_exact(&mut [0; 16]).await.unwrap();
        }
        stream.write_all(&[error("ERROR", "57014"), READY.to_vec()].concat()).await.unwrap();
        for answer in [described(23), executed(&[row(&[0, 0, 0, 7])])] {
            while next_kind(&mut stream).await != Some(b'S') {}
            stream.write_all(&answer).await.unwrap();
        }
    };
    let client = async {
        let mut client = Client::connect(&url).await.unwrap();
        let mut answer = client.run("SELECT a", &[]).await.unwrap();
        assert!(answer.next_batch().await.unwrap().is_some());
        answer.stop(&client.cancel_handle()).await;
        // There is nothing to stop any more, and nobody is asked.
        client.stop().await;
        let mut answer = client.run("SELECT a", &[]).await.unwrap();
        let batch = answer.next_batch().await.unwrap().unwrap();
        assert_eq!(batch.column(0).as_primitive::<Int32Type>().value(0), 7);
    };
    tokio::join!(serving, client);
}

/// The answer to a statement with these rows of a number and NULL, or to a query of them.
fn texts(numbers: &[&str]) -> Vec<u8> {
    let row = |number: &&str| {
        let length = u32::try_from(number.len()).unwrap().to_be_bytes();
        message(b'D', &[b"\0\x02".as_slice(), &length, number.as_bytes(), &[0xff; 4]].concat())
    };
    let rows: Vec<_> = numbers.iter().map(row).collect();
    let tag = format!("UPDATE {}\0", numbers.len());
    [message(b'2', b""), rows.concat(), message(b'C', tag.as_bytes()), READY.to_vec()].concat()
}

#[tokio::test]
async fn rows_of_text_come_as_they_were_sent() {
    let parsed = [message(b'1', b""), READY.to_vec()].concat();
    let conflict = [error("ERROR", "40001"), FAILED.to_vec()].concat();
    // A query of two statements: the first one's rows give way to the second one's.
    let columns = message(b'T', &[0, 0]);
    let tag = message(b'C', b"SELECT 1\0");
    let first = [columns.clone(), row(b"a"), tag.clone()].concat();
    let script = [first, columns, row(b"b"), row(b"c"), tag, READY.to_vec()].concat();
    let answers = vec![parsed, texts(&["7", "", "12"]), conflict, texts(&[]), script];
    with_answers(answers, async |mut client| {
        client.prepare("change", "UPDATE t SET a = $1 RETURNING a, b").await.unwrap();
        let values = [Some("7"), None];
        let rows = client.execute_text("change", values.into_iter()).await.unwrap();
        assert_eq!((rows.len(), rows.count(), rows.is_empty()), (3, 3, false));
        let column: Vec<_> = (0..4).map(|place| rows.text(place, 0)).collect();
        assert_eq!(column, [Some("7"), Some(""), Some("12"), None]);
        assert_eq!((rows.text(1, 1), rows.text(1, 2)), (None, None));
        let refused = client.execute_text("change", values.into_iter()).await.unwrap_err();
        assert_eq!(refused.sqlstate(), "40001");
        assert!(client.execute_text("change", values.into_iter()).await.unwrap().is_empty());
        let rows = client.query_text("SELECT 'a'; SELECT 'b'").await.unwrap();
        assert_eq!((rows.text(0, 0), rows.text(1, 0), rows.len()), (Some("b"), Some("c"), 2));
        assert_eq!(rows.count(), 1);
    })
    .await;
    for (name, row) in [
        ("fewer values than it counts", message(b'D', b"\0\x02\xff\xff\xff\xff")),
        ("more", message(b'D', b"\0\x01\xff\xff\xff\xffx")),
        ("no text", row(b"\xff")),
    ] {
        with_answers(vec![executed(&[row])], async |mut client| {
            let error = client.execute_text("change", std::iter::empty()).await.unwrap_err();
            assert!(matches!(error, ClientError::Protocol(_)), "{name}: {error}");
            assert!(client.is_closed(), "{name}");
        })
        .await;
    }
}

#[tokio::test]
async fn a_thread_without_a_runtime_waits_for_its_server_itself() {
    let copying = [message(b'H', b"\0\0\0"), message(b'd', b"1\n"), message(b'd', b"2\n")].concat();
    let copied = [message(b'c', b""), message(b'C', b"COPY 2\0"), READY.to_vec()].concat();
    let copy = [copying, copied].concat();
    let taking = message(b'G', b"\0\0\0");
    let taken = [message(b'C', b"COPY 1\0"), READY.to_vec()].concat();
    let answers = vec![texts(&["1"]), copy.clone(), copy, taking, taken, texts(&["5"])];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("postgres://ada@127.0.0.1:{port}/db?sslmode=disable");
    let test = tokio::task::spawn_blocking(move || {
        let mut client = blocking::connect(Address::from_url(&url).unwrap()).unwrap();
        let rows = blocking::wait(client.execute_text("a", [None].into_iter())).unwrap();
        assert_eq!(rows.text(0, 0), Some("1"));
        let mut rows = blocking::wait(client.copy_out_pieces("COPY t TO STDOUT")).unwrap();
        let mut text = Vec::new();
        while let Some(piece) = blocking::wait(rows.next_piece()).unwrap() {
            text.extend_from_slice(&piece);
        }
        assert_eq!((text.as_slice(), rows.row_count()), (b"1\n2\n".as_slice(), 2));
        // Of rows that are dropped the rest is skipped.
        let mut rows = blocking::wait(client.copy_out_pieces("COPY t TO STDOUT")).unwrap();
        assert_eq!(blocking::wait(rows.next_piece()).unwrap().unwrap(), b"1\n".as_slice());
        let busy = blocking::wait(client.query_text("SELECT 1")).unwrap_err();
        assert!(matches!(busy, ClientError::Busy));
        drop(rows);
        let mut lines = b"1\n".as_slice();
        let copied = client.copy_in("COPY t FROM STDIN", &mut lines);
        assert_eq!(blocking::wait(copied).unwrap(), 1);
        let rows = blocking::wait(client.execute_text("a", [None].into_iter())).unwrap();
        assert_eq!(rows.text(0, 0), Some("5"));
    });
    let key = message(b'K', &[0; 8]);
    let greeting = [AUTHENTICATED, &key, READY].concat();
    tokio::join!(serve(listener, greeting, answers), test).1.unwrap();
}

#[tokio::test]
async fn a_server_that_greets_for_ever_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("postgres://ada@127.0.0.1:{port}/db?sslmode=disable&connect_timeout=1");
    let connecting = tokio::task::spawn_blocking(move || {
        blocking::connect(Address::from_url(&url).unwrap()).map(drop)
    });
    let server = async {
        let mut stream = visited(&listener).await;
        let mut notice = error("NOTICE", "00000");
        notice[0] = b'N';
        // None of them is waited for long.
        while stream.write_all(&notice).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let given_up = tokio::join!(server, connecting).1.unwrap().unwrap_err();
    assert!(matches!(given_up, ClientError::Lost(_)), "{given_up}");
}

#[tokio::test]
async fn answers_are_read_while_statements_are_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let value = "x".repeat(128 << 10);
    // It answers each statement before it reads the next one.
    let server = async {
        let mut stream = visited(&listener).await;
        stream.write_all(&[AUTHENTICATED, READY].concat()).await.unwrap();
        let column =
            [b"\0\x01a\0\0\0\0\0\0\0".as_slice(), &[0, 0, 0, 25], &[0xff; 6], &[0, 0]].concat();
        let parameter = [0, 1, 0, 0, 0, 25];
        let parsed = [message(b'1', b""), message(b't', &parameter), message(b'T', &column)];
        let tag = message(b'C', b"INSERT 0 1\0");
        let inserted = [message(b'2', b""), row(value.as_bytes()), tag].concat();
        while let Some(kind) = next_kind(&mut stream).await {
            let answer = match kind {
                b'P' => parsed.concat(),
                b'E' => inserted.clone(),
                b'S' => READY.to_vec(),
                _ => continue,
            };
            drop(stream.write_all(&answer).await);
        }
    };
    let client = async {
        let url = format!("postgres://ada@127.0.0.1:{port}/db?sslmode=disable");
        let mut client = Client::connect(&url).await.unwrap();
        let rows = vec![vec![Value::Text(value.clone())]; 256];
        let sql = "INSERT INTO t VALUES ($1) RETURNING a";
        assert_eq!(client.run_many(sql, &rows).await.unwrap(), 256);
    };
    tokio::join!(server, client);
}

#[tokio::test]
async fn errors_and_notices_come_in_parts() {
    let failed = [error("ERROR", "42703"), FAILED.to_vec()].concat();
    let mut noticed = error("NOTICE", "00000");
    noticed[0] = b'N';
    let noticed = [noticed, message(b'C', b"DO\0"), READY.to_vec()].concat();
    let fatal = error("FATAL", "57P01");
    with_answers(vec![failed, noticed, fatal], async |mut client| {
        let error = client.run("SELECT b", &[Value::Null]).await.unwrap_err();
        assert_eq!(error.sqlstate(), "42703");
        let told = error.server().unwrap();
        assert_eq!((told.position, told.hint.as_deref()), (Some(8), Some("try")));
        assert_eq!(client.transaction_status(), TransactionStatus::Failed);
        assert!(client.in_transaction() && client.has_failed());
        let mut outcomes: Vec<ScriptOutcome> = Vec::new();
        client.run_script("DO", &mut outcomes).await.unwrap();
        assert_eq!(outcomes[0].tag, "DO");
        assert_eq!(client.take_notices()[0].message, "wrong");
        assert!(client.take_notices().is_empty() && !client.in_transaction());
        let error = client.run("SELECT 1", &[]).await.unwrap_err();
        assert_eq!(error.sqlstate(), "57P01");
        assert!(client.is_closed());
        let error = client.run("SELECT 1", &[]).await.unwrap_err();
        assert!(matches!(error, ClientError::Lost(_)), "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_server_that_does_not_know_the_password_is_none() {
    let scram = message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0");
    // It is content without the proof; it makes none; it wants the password itself; it asks for endless work.
    let content = [scram.as_slice(), AUTHENTICATED].concat();
    let final_first = [scram.clone(), message(b'R', b"\0\0\0\x0cv=AAAA")].concat();
    let clear = message(b'R', b"\0\0\0\x03");
    let endless = [scram, message(b'R', b"\0\0\0\x0br=x,s=AAAA,i=4000000000")].concat();
    for greeting in [content, final_first, endless] {
        let error = greeted(greeting).await.unwrap_err();
        assert!(matches!(error, ClientError::Protocol(_)), "{error}");
    }
    let error = greeted(clear).await.unwrap_err();
    assert!(matches!(error, ClientError::Usage(_)), "{error}");
    // Before the log-in, no message is long.
    let error = greeted(b"E\0\x7f\xff\xff".to_vec()).await.unwrap_err();
    assert!(matches!(error, ClientError::Protocol(_)), "{error}");
}
