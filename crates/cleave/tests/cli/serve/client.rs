//! A client of PostgreSQL's protocol, as small as the tests allow, and the server that it talks to.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac, pbkdf2};

use crate::program::terminate;

/// A server that is ended with the test.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    /// That of `--http`, if it was given.
    pub(crate) http_port: Option<u16>,
}

/// A message of the server: its kind and its body.
pub(crate) type Message = (char, Vec<u8>);

/// A connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    /// The number and secret with which it cancels.
    pub(crate) key: (i32, i32),
}

/// The result of the statements of one Query.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Rows as text.
    pub(crate) rows: Vec<Vec<Option<String>>>,
    pub(crate) tags: Vec<String>,
    /// Fields of the first error.
    pub(crate) error: Vec<(char, String)>,
    /// The state of the transaction block.
    pub(crate) state: char,
}

impl Server {
    /// `cleave serve` over the database in `directory`.
    pub(crate) fn start(directory: &Path, options: &[&str]) -> Self {
        Self::start_with_log(directory, options, Stdio::null())
    }

    /// The same with its log in `log`.
    pub(crate) fn start_with_log(directory: &Path, options: &[&str], log: Stdio) -> Self {
        let port_file = directory.join("port");
        drop(std::fs::remove_file(&port_file));
        let mut child = Command::new(env!("CARGO_BIN_EXE_cleave"))
            .args(["serve", "--create", "--listen", "127.0.0.1:0", "--db"])
            .arg(directory.join("db"))
            .arg("--port-file")
            .arg(&port_file)
            .args(options)
            .env_remove("CLEAVE_DB")
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let (_never, nothing) = std::sync::mpsc::channel::<()>();
        for _ in 0..600 {
            if let Ok(ports) = std::fs::read_to_string(&port_file) {
                let mut ports = ports.lines().map(|port| port.parse().unwrap());
                return Self { child, port: ports.next().unwrap(), http_port: ports.next() };
            }
            assert!(child.try_wait().unwrap().is_none(), "the server ended at once");
            nothing.recv_timeout(Duration::from_millis(50)).unwrap_err();
        }
        panic!("the server does not listen");
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        // A test that hangs tells less than one that fails.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// A session of a user without a password.
    pub(crate) fn client(&self) -> Client {
        Client::begin(self.connect(), "ada", None).unwrap()
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        terminate(&self.child);
    }

    /// Bytes of memory that it has.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let pages = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id())).unwrap();
        pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }

    /// Its exit code, once it has ended.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A message with a kind.
pub(crate) fn message(kind: char, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[u8::try_from(kind).unwrap()], length.to_be_bytes().as_slice(), body].concat()
}

/// A first message, which has no kind.
pub(crate) fn opening(code: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 8).unwrap();
    [length.to_be_bytes().as_slice(), code.to_be_bytes().as_slice(), body].concat()
}

/// Reads one message; None if the server has closed.
pub(crate) fn read(stream: &mut TcpStream) -> Option<Message> {
    let mut head = [0; 5];
    stream.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes(head[1..].try_into().unwrap());
    let mut body = vec![0; usize::try_from(length).unwrap() - 4];
    stream.read_exact(&mut body).ok()?;
    Some((char::from(head[0]), body))
}

/// The fields of an error.
pub(crate) fn fields(body: &[u8]) -> Vec<(char, String)> {
    body.split(|byte| *byte == 0)
        .filter_map(|field| {
            let (kind, text) = field.split_first()?;
            Some((char::from(*kind), String::from_utf8(text.to_vec()).unwrap()))
        })
        .collect()
}

/// A field of an error.
pub(crate) fn field(fields: &[(char, String)], kind: char) -> &str {
    fields.iter().find(|(known, _)| *known == kind).map_or("", |(_, text)| text)
}

fn row(body: &[u8]) -> Vec<Option<String>> {
    let mut rest = &body[2..];
    let mut values = Vec::new();
    while !rest.is_empty() {
        let length = i32::from_be_bytes(rest[..4].try_into().unwrap());
        rest = &rest[4..];
        values.push(usize::try_from(length).ok().map(|length| {
            let (value, after) = rest.split_at(length);
            rest = after;
            String::from_utf8_lossy(value).into_owned()
        }));
    }
    values
}

impl Client {
    /// A session, or the fields of the error.
    pub(crate) fn begin(
        mut stream: TcpStream,
        user: &str,
        password: Option<&str>,
    ) -> Result<Self, Vec<(char, String)>> {
        let startup = format!("user\0{user}\0application_name\0test\0\0");
        stream.write_all(&opening(3 << 16, startup.as_bytes())).unwrap();
        let mut scram = Scram::default();
        let mut key = (0, 0);
        loop {
            let Some((kind, body)) = read(&mut stream) else { return Err(Vec::new()) };
            match (kind, body.first_chunk::<4>().map(|code| u32::from_be_bytes(*code))) {
                ('E', _) => return Err(fields(&body)),
                ('R', Some(10)) => stream.write_all(&scram.first()).unwrap(),
                ('R', Some(11)) => {
                    let last = scram.last(&body[4..], password.unwrap_or_default());
                    stream.write_all(&last).unwrap();
                }
                ('K', _) => {
                    let number =
                        |at: usize| i32::from_be_bytes(body[at..at + 4].try_into().unwrap());
                    key = (number(0), number(4));
                }
                ('Z', _) => return Ok(Self { stream, key }),
                _ => {}
            }
        }
    }

    pub(crate) fn send(&mut self, kind: char, body: &[u8]) {
        self.stream.write_all(&message(kind, body)).unwrap();
    }

    /// Runs statements by the simple protocol.
    pub(crate) fn query(&mut self, sql: &str) -> Answer {
        self.send('Q', format!("{sql}\0").as_bytes());
        self.answer()
    }

    /// All messages up to ReadyForQuery.
    pub(crate) fn messages(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            let message = read(&mut self.stream).expect("the server has closed");
            let is_last = message.0 == 'Z';
            messages.push(message);
            if is_last {
                return messages;
            }
        }
    }

    /// The same, decoded.
    pub(crate) fn answer(&mut self) -> Answer {
        let mut answer = Answer::default();
        for (kind, body) in self.messages() {
            match kind {
                'D' => answer.rows.push(row(&body)),
                'C' => answer
                    .tags
                    .push(String::from_utf8_lossy(&body).trim_end_matches('\0').to_owned()),
                'E' if answer.error.is_empty() => answer.error = fields(&body),
                'Z' => answer.state = char::from(body[0]),
                _ => {}
            }
        }
        answer
    }

    /// The kinds of all messages up to ReadyForQuery.
    pub(crate) fn kinds(&mut self) -> String {
        self.messages().iter().map(|(kind, _)| *kind).collect()
    }

    /// The one value of a query.
    pub(crate) fn value(&mut self, sql: &str) -> String {
        let answer = self.query(sql);
        assert_eq!(answer.rows.len(), 1, "{sql}: {answer:?}");
        answer.rows[0][0].clone().unwrap_or_default()
    }
}

/// The client's part of SCRAM-SHA-256.
#[derive(Default)]
struct Scram {
    first: String,
}

impl Scram {
    fn first(&mut self) -> Vec<u8> {
        self.first = "n=,r=abcdefgh".to_owned();
        let text = format!("n,,{}", self.first);
        let length = u32::try_from(text.len()).unwrap();
        let body = [b"SCRAM-SHA-256\0".as_slice(), &length.to_be_bytes(), text.as_bytes()].concat();
        message('p', &body)
    }

    fn last(&self, challenge: &[u8], password: &str) -> Vec<u8> {
        let challenge = std::str::from_utf8(challenge).unwrap();
        let part =
            |name: &str| challenge.split(',').find_map(|part| part.strip_prefix(name)).unwrap();
        let salt = STANDARD.decode(part("s=")).unwrap();
        let rounds: u32 = part("i=").parse().unwrap();
        let mut salted = [0; 32];
        let rounds = rounds.try_into().unwrap();
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &salt, password.as_bytes(), &mut salted);
        let sign =
            |key: &[u8], text: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
        let client_key = sign(&salted, b"Client Key");
        let stored_key = digest::digest(&digest::SHA256, client_key.as_ref());
        let without_proof = format!("c=biws,r={}", part("r="));
        let signed = format!("{},{challenge},{without_proof}", self.first);
        let signature = sign(stored_key.as_ref(), signed.as_bytes());
        let pairs = client_key.as_ref().iter().zip(signature.as_ref());
        let proof: Vec<u8> = pairs.map(|(one, other)| one ^ other).collect();
        message('p', format!("{without_proof},p={}", STANDARD.encode(proof)).as_bytes())
    }
}
