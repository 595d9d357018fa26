//! Who can log in, and as whom: nothing that a client sends opens a server or makes anybody a superuser, and strangers
//! cost authenticated clients nothing.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;

use super::client::{Client, Server, field, fields, message, opening, read};
use crate::program::{cleave, cleave_with_input, sql};

/// The fields of the error by which the server refuses a log-in.
type Refusal = Vec<(char, String)>;

fn as_user(server: &Server, user: &str, password: Option<&str>) -> Result<Client, Refusal> {
    Client::begin(server.connect(), user, password)
}

#[track_caller]
fn refused(server: &Server, user: &str, password: Option<&str>) -> String {
    let error = as_user(server, user, password).err().unwrap();
    assert_eq!(field(&error, 'S'), "FATAL", "{error:?}");
    field(&error, 'C').to_owned()
}

fn database(folder: &Path) -> String {
    let db = folder.join("db");
    if !db.exists() {
        sql(&db, &["-c", "SELECT 1"]).ok();
    }
    db.to_str().unwrap().to_owned()
}

fn add(db: &str, user: &str, more: &[&str]) -> String {
    let arguments = [&["user", "add", user, "--db", db], more].concat();
    cleave_with_input(&arguments, "pencil\n").ok()
}

#[test]
fn no_statement_opens_a_server() {
    for end in [
        "ALTER ROLE app PASSWORD NULL",
        "ALTER ROLE app NOLOGIN",
        "ALTER ROLE app VALID UNTIL '2001-01-01'",
        "DROP ROLE app",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(folder.path(), &[]);
        let mut owner = server.client();
        owner.query("CREATE ROLE app LOGIN PASSWORD 'pencil'");
        as_user(&server, "app", Some("pencil")).unwrap();
        let mut ended = match end.starts_with("DROP") {
            true => owner,
            false => server_of_itself(&server, owner),
        };
        assert!(ended.query(end).error.is_empty(), "{end}");
        for user in ["ada", "app", "root"] {
            assert_eq!(refused(&server, user, None), "28P01", "{end}");
        }
        drop(server);
        let server = Server::start(folder.path(), &[]);
        assert_eq!(refused(&server, "ada", None), "28P01", "{end}, then another start");
    }
}

/// A session that may change the role app.
fn server_of_itself(server: &Server, mut owner: Client) -> Client {
    owner.query("ALTER ROLE app SUPERUSER");
    as_user(server, "app", Some("pencil")).unwrap()
}

#[test]
fn a_role_that_gives_up_its_password_opens_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    server.client().query("CREATE ROLE app LOGIN PASSWORD 'pencil'");
    let mut app = as_user(&server, "app", Some("pencil")).unwrap();
    assert_eq!(app.query("ALTER ROLE app PASSWORD NULL").tags, ["ALTER ROLE"]);
    assert_eq!(refused(&server, "root", None), "28P01");
}

#[test]
fn a_server_stays_closed_without_users_and_their_file_and_in_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path());
    add(&db, "ada", &[]);
    cleave(&["user", "remove", "ada", "--db", &db]).ok();
    for _ in 0..2 {
        let server = Server::start(folder.path(), &[]);
        assert_eq!(refused(&server, "ada", None), "28P01");
        drop(server);
        // As after a failover, or with another --users.
        drop(std::fs::remove_file(folder.path().join("db/users")));
    }
    let other = tempfile::tempdir().unwrap();
    let (backup, copy) = (other.path().join("backup"), other.path().join("db"));
    cleave(&["backup", &db, backup.to_str().unwrap()]).ok();
    cleave(&["restore", backup.to_str().unwrap(), copy.to_str().unwrap()]).ok();
    let server = Server::start(other.path(), &[]);
    assert_eq!(refused(&server, "ada", None), "28P01");
    drop(server);
    let server = Server::start(other.path(), &["--trust"]);
    assert_eq!(server.client().value("SELECT current_user"), "ada", "whoever runs it may open it");
}

#[test]
fn users_that_come_while_the_server_runs_close_it_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path());
    let server = Server::start(folder.path(), &[]);
    server.client().query("SELECT 1");
    add(&db, "ada", &[]);
    assert_eq!(refused(&server, "bob", None), "28P01");
    std::fs::remove_file(folder.path().join("db/users")).unwrap();
    assert_eq!(refused(&server, "bob", None), "28P01");
    drop(server);
    let server = Server::start(folder.path(), &[]);
    assert_eq!(refused(&server, "bob", None), "28P01");
}

#[test]
fn trust_and_files_of_users_are_checked_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path());
    let serve = ["serve", "--db", &db, "--trust", "--tls-self-made", "--listen", "0.0.0.0:0"];
    let complaint = cleave(&serve).fails(1);
    assert!(complaint.contains("--trust is for 127.0.0.1"), "{complaint}");
    let complaint = cleave(&["serve", "--db", &db, "--users", "/nowhere/users"]).fails(1);
    assert!(complaint.contains("there is no file /nowhere/users"), "{complaint}");
    let reserved = ["--connections", "2", "--superuser-reserved-connections", "2"];
    let complaint = cleave(&[&["serve", "--db", &db], &reserved[..]].concat()).fails(1);
    assert!(complaint.contains("must be less than --connections"), "{complaint}");
}

#[test]
fn only_the_file_makes_superusers_of_its_users() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path());
    assert_eq!(add(&db, "ada", &[]), "user \"ada\" may connect as a superuser\n");
    let said = "user \"bob\" may connect as the role \"bob\", once there is one\n";
    assert_eq!(add(&db, "bob", &[]), said);
    assert!(add(&db, "eve", &["--superuser"]).contains("as a superuser"));
    cleave(&["user", "alter", "eve", "--no-superuser", "--db", &db]).ok();
    cleave(&["user", "alter", "eve", "--db", &db]).fails(1);
    let listed = cleave(&["user", "list", "--db", &db]).ok();
    assert_eq!(listed, "ada superuser\nbob\neve\n");
    let server = Server::start(folder.path(), &[]);
    let error = as_user(&server, "bob", Some("pencil")).err().unwrap();
    assert_eq!(field(&error, 'M'), "role \"bob\" does not exist");
    assert_eq!(field(&error, 'C'), "28000");
    let mut ada = as_user(&server, "ada", Some("pencil")).unwrap();
    ada.query("CREATE TABLE t (a int); CREATE ROLE bob LOGIN CREATEROLE; CREATE ROLE carl LOGIN");
    let mut bob = as_user(&server, "bob", Some("pencil")).unwrap();
    assert_eq!(field(&bob.query("SELECT * FROM t").error, 'C'), "42501");
    // Creating a role of a superuser's name does not give its rights, nor keep it out.
    bob.query("CREATE ROLE ada LOGIN PASSWORD 'crayon'");
    assert_eq!(refused(&server, "ada", Some("crayon")), "28P01");
    let mut again = as_user(&server, "ada", Some("pencil")).unwrap();
    assert_eq!(again.value("SELECT count(*) FROM t"), "0");
    // A user cannot change the name by which its own rights are found.
    let error = bob.query("ALTER ROLE bob RENAME TO nobody").error;
    assert_eq!(field(&error, 'M'), "session user cannot be renamed");
    assert_eq!(field(&error, 'C'), "0A000");
    assert_eq!(bob.query("ALTER ROLE carl RENAME TO charles").tags, ["ALTER ROLE"]);
    // A dropped role has no log-in and no rights, and its sessions have none of a superuser.
    assert_eq!(ada.query("DROP ROLE bob").tags, ["DROP ROLE"]);
    assert_eq!(refused(&server, "bob", Some("pencil")), "28000");
    for statement in [
        "SELECT * FROM t",
        "SELECT 1",
        "CREATE ROLE mallory SUPERUSER",
        "CREATE TABLE u (a int)",
        "ALTER ROLE ada SUPERUSER",
        "CHECKPOINT",
    ] {
        let error = bob.query(statement).error;
        assert_eq!(field(&error, 'C'), "42704", "{statement}: {error:?}");
        assert!(field(&error, 'M').ends_with("was concurrently dropped"), "{error:?}");
    }
    assert_eq!(field(&bob.query("SET SESSION AUTHORIZATION ada").error, 'C'), "42501");
    bob.query("RESET SESSION AUTHORIZATION; RESET ROLE");
    assert_eq!(field(&bob.query("SELECT 1").error, 'C'), "42704");
}

#[test]
fn a_password_whose_time_is_over_counts_neither_in_the_catalog_nor_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path());
    add(&db, "ada", &[]);
    add(&db, "late", &[]);
    let server = Server::start(folder.path(), &[]);
    let mut ada = as_user(&server, "ada", Some("pencil")).unwrap();
    ada.query("CREATE ROLE late LOGIN");
    as_user(&server, "late", Some("pencil")).unwrap();
    ada.query("ALTER ROLE late VALID UNTIL '2001-01-01'");
    assert_eq!(refused(&server, "late", Some("pencil")), "28P01");
}

/// Begins to connect as `user`; returns the server's challenge, without the nonces.
fn challenge(server: &Server, user: &str) -> String {
    let mut stream = server.connect();
    stream.write_all(&opening(3 << 16, format!("user\0{user}\0\0").as_bytes())).unwrap();
    assert_eq!(read(&mut stream).unwrap().0, 'R');
    let first = "n,,n=,r=abcdefgh";
    let length = u32::try_from(first.len()).unwrap().to_be_bytes();
    let body = [b"SCRAM-SHA-256\0".as_slice(), &length, first.as_bytes()].concat();
    stream.write_all(&message('p', &body)).unwrap();
    let (kind, body) = read(&mut stream).unwrap();
    assert_eq!(kind, 'R');
    let text = String::from_utf8_lossy(&body[4..]).into_owned();
    text.split_once(',').unwrap().1.to_owned()
}

#[test]
fn who_there_is_cannot_be_told_from_the_challenge() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path());
    // "pencil", hashed 10,000 times elsewhere.
    let other = "SCRAM-SHA-256$10000:W22ZaJ0SNY7soEsUEjb6gQ==\
        $WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
    let create = format!("CREATE ROLE ada LOGIN PASSWORD '{other}'; CREATE ROLE plain LOGIN");
    sql(Path::new(&db), &["-c", &create]).ok();
    let users = ["ada", "bob", "plain"];
    let ask = |server: &Server| users.map(|user| challenge(server, user));
    let before = ask(&Server::start(folder.path(), &[]));
    let after = ask(&Server::start(folder.path(), &[]));
    assert_eq!(before, after, "a start changes nothing");
    for challenge in &before {
        assert!(challenge.ends_with(",i=10000"), "{challenge}");
        assert_eq!(challenge.len(), before[0].len());
    }
    assert_ne!(before[1], before[2]);
    let server = Server::start(folder.path(), &[]);
    for user in users {
        let error = as_user(&server, user, Some("wrong")).err().unwrap();
        let message = format!("password authentication failed for user \"{user}\"");
        assert_eq!((field(&error, 'C'), field(&error, 'M')), ("28P01", message.as_str()));
    }
}

/// A connection that has sent its startup message, and no more.
fn silent(server: &Server) -> TcpStream {
    let mut stream = server.connect();
    stream.write_all(&opening(3 << 16, b"user\0ada\0\0")).unwrap();
    stream
}

#[test]
fn strangers_send_no_long_messages() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path());
    add(&db, "ada", &[]);
    let server = Server::start(folder.path(), &[]);
    for (sent, said) in [
        // A message that claims 60 MB is refused without waiting for it.
        (&b"p\x03\x93\x87\x00"[..], "invalid message length: 60000000"),
        (b"p\0\0\x27\x11", "invalid message length: 10001"),
        (b"Q\x03\x93\x87\x00", "expected SASL response, got message type 81"),
    ] {
        let mut stream = silent(&server);
        assert_eq!(read(&mut stream).unwrap().0, 'R');
        stream.write_all(sent).unwrap();
        let (kind, body) = read(&mut stream).unwrap();
        let told = fields(&body);
        assert_eq!((kind, field(&told, 'C'), field(&told, 'M')), ('E', "08P01", said));
        assert!(read(&mut stream).is_none());
    }
    // TLS may be requested once.
    let mut stream = server.connect();
    stream.write_all(&[opening(80_877_103, b""), opening(80_877_103, b"")].concat()).unwrap();
    let mut answer = [0; 1];
    std::io::Read::read_exact(&mut stream, &mut answer).unwrap();
    assert_eq!(&answer, b"N");
    assert_eq!(field(&fields(&read(&mut stream).unwrap().1), 'C'), "0A000");
}

#[test]
fn strangers_take_no_places_of_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let db = database(folder.path());
    add(&db, "ada", &[]);
    let options = ["--connections", "3", "--superuser-reserved-connections", "1"];
    let server = Server::start(folder.path(), &options);
    let mut ada = as_user(&server, "ada", Some("pencil")).unwrap();
    ada.query("CREATE ROLE app LOGIN PASSWORD 'pencil'");
    // More than the limits, of both kinds.
    let strangers: Vec<TcpStream> =
        (0..300).map(|n| if n % 2 == 0 { silent(&server) } else { server.connect() }).collect();
    let app = as_user(&server, "app", Some("pencil")).unwrap();
    let error = as_user(&server, "app", Some("pencil")).err().unwrap();
    assert_eq!(field(&error, 'C'), "53300");
    assert!(field(&error, 'M').contains("reserved for non-replication superuser"), "{error:?}");
    assert!(field(&error, 'H').contains("--superuser-reserved-connections"), "{error:?}");
    // The one that remains, and a cancel request while all places are taken.
    let mut other = as_user(&server, "ada", Some("pencil")).unwrap();
    assert_eq!(other.value("SELECT 1"), "1");
    let error = as_user(&server, "ada", Some("pencil")).err().unwrap();
    assert_eq!(field(&error, 'M'), "sorry, too many clients already");
    other.send('Q', b"SELECT pg_sleep(600)\0");
    let (backend, secret) = other.key;
    let reader = other.stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| Client { stream: reader, key: (0, 0) }.answer());
        while !answer.is_finished() {
            let mut stream = server.connect();
            let body = [backend.to_be_bytes(), secret.to_be_bytes()].concat();
            stream.write_all(&opening(80_877_102, &body)).unwrap();
            assert!(read(&mut stream).is_none());
        }
        assert_eq!(field(&answer.join().unwrap().error, 'C'), "57014");
    });
    drop((app, strangers));
}
