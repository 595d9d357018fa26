//! Files that other users of the machine may not read or lock: those of a database, and all that is made of it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::program::cleave;
use crate::serve::client::Server;

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

/// All folders and files in `folder`, itself among them.
fn all_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        if path.is_dir() {
            found.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found
}

#[track_caller]
fn assert_private(folder: &Path) {
    for path in all_in(folder) {
        assert_eq!(mode(&path) & 0o077, 0, "{} has mode {:o}", path.display(), mode(&path));
    }
}

/// Runs the program with the usual umask, whatever that of the test is.
#[track_caller]
fn with_usual_umask(input: &str, arguments: &str) -> String {
    let command = format!("umask 022; {} {arguments}", env!("CARGO_BIN_EXE_cleave"));
    let mut child = Command::new("sh");
    child.args(["-c", &command]).env_remove("CLEAVE_DB").env("XDG_STATE_HOME", "/nowhere");
    child.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    drop(std::io::Write::write_all(&mut stdin, input.as_bytes()));
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments}: {said}");
    said
}

#[test]
fn nothing_of_a_database_is_for_others() {
    let place = tempfile::tempdir().unwrap();
    let names = ["above/db", "backup", "archive", "copy", "rows.csv"];
    let [db, backup, archive, copy, rows] = names.map(|name| place.path().join(name));
    std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
        .create(&archive)
        .unwrap();
    let script = format!(
        "CREATE TABLE t (id int PRIMARY KEY, note text); CREATE INDEX on_note ON t (note);
         ALTER SYSTEM SET archive_directory = '{}';
         INSERT INTO t SELECT g, 'secret' FROM generate_series(1, 20000) g;
         ANALYZE t; CHECKPOINT; INSERT INTO t VALUES (0, 'more');
         COPY t TO '{}';",
        archive.display(),
        rows.display()
    );
    with_usual_umask(&script, &format!("sql --create --db {}", db.display()));
    with_usual_umask("pencil\n", &format!("user add ada --db {}", db.display()));
    with_usual_umask("", &format!("backup {} {}", db.display(), backup.display()));
    with_usual_umask("", &format!("restore {} {}", backup.display(), copy.display()));
    let server = Server::start(&place.path().join("above"), &["--tls-self-made"]);
    drop(server);
    for folder in [&db, &backup, &archive, &copy, &rows] {
        assert!(folder.exists(), "{}", folder.display());
        assert_private(folder);
    }
    let count = |part: &str| {
        all_in(&db).iter().filter(|path| path.to_string_lossy().contains(part)).count()
    };
    assert!(all_in(&archive).len() > 1, "something was archived");
    for part in
        ["log/", "segments", "statistics/", "lock", "manifest", "users", "server.key", "media"]
    {
        assert!(count(part) > 0, "{part}: {:?}", all_in(&db));
    }
}

#[test]
fn a_database_of_an_earlier_version_is_taken_from_others_when_it_is_opened() {
    let place = tempfile::tempdir().unwrap();
    let db = place.path().join("db");
    let open =
        || with_usual_umask("", &format!("sql --create --db {} -c 'SELECT 1'", db.display()));
    assert!(!open().contains("rights of others"));
    for path in all_in(&db) {
        let mode = if path.is_dir() { 0o755 } else { 0o644 };
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    let said = open();
    assert!(said.contains("took the rights of others from"), "{said}");
    assert_private(&db);
    assert!(!open().contains("rights of others"), "it is said once");
    let uid = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&db).unwrap());
    if uid == 0 {
        std::os::unix::fs::chown(&db, Some(12_345), None).unwrap();
        let complaint = cleave(&["sql", "--db", db.to_str().unwrap(), "-c", "SELECT 1"]).fails(2);
        assert!(complaint.contains("wrong ownership"), "{complaint}");
    }
}
