//! Tests of statements about devices: as they are read, and what is refused.

use std::path::Path;

use cleave_catalog::catalog::DeviceKind;

use super::DeviceStatement;
use crate::statement::Statement;
use crate::statement::parse::parse_script;

fn read(sql: &str) -> DeviceStatement {
    let mut statements = parse_script(sql).unwrap();
    let Statement::Device(statement) = statements.remove(0).statement else { panic!("{sql}") };
    *statement
}

#[test]
fn devices_are_named_like_tables() {
    let drain = |name: &str, to: &[&str]| DeviceStatement::Drain {
        name: name.to_owned(),
        to: to.iter().map(|name| (*name).to_owned()).collect(),
    };
    assert_eq!(read("ALTER DEVICE Nas DRAIN"), drain("nas", &[]));
    assert_eq!(read("alter device \"Nas\" drain to San, 'b c';"), drain("Nas", &["san", "b c"]));
    let rebuild = |to: &[&str], archive: Option<&str>| DeviceStatement::Rebuild {
        name: "nas".to_owned(),
        to: to.iter().map(|name| (*name).to_owned()).collect(),
        backup: "/b".into(),
        archive: archive.map(Into::into),
    };
    assert_eq!(read("ALTER DEVICE nas REBUILD FROM '/b'"), rebuild(&[], None));
    assert_eq!(
        read("alter device nas rebuild to san, \"b c\" from '/b' archive '/a'"),
        rebuild(&["san", "b c"], Some("/a"))
    );
    let dropped = |if_exists| DeviceStatement::Drop { name: "nas".to_owned(), if_exists };
    assert_eq!(read("DROP DEVICE nas"), dropped(false));
    assert_eq!(read("DROP DEVICE IF EXISTS nas"), dropped(true));
}

#[test]
fn a_device_has_an_address_or_a_socket() {
    let DeviceStatement::Create { name, way, ca } =
        read("CREATE DEVICE nas WITH (address = '[::1]:7700', token_file = '/t', ca = '/c.pem')")
    else {
        panic!("no CREATE DEVICE")
    };
    let DeviceKind::Remote(remote) = way else { panic!("{way:?}") };
    assert_eq!((name.as_str(), remote.host.as_str(), remote.port), ("nas", "::1", 7700));
    assert_eq!(remote.token_file.as_deref(), Some(Path::new("/t")));
    assert_eq!((remote.ca_pem, ca.as_deref()), (None, Some(Path::new("/c.pem"))));
    let DeviceStatement::Create { way: DeviceKind::Local(local), .. } =
        read("CREATE DEVICE nas WITH (local = '/run/nas.sock')")
    else {
        panic!("no local device")
    };
    assert_eq!(local.socket, Path::new("/run/nas.sock"));
}

#[test]
fn a_mirror_has_copies() {
    let copies = vec!["nas".to_owned(), "San".to_owned()];
    let made = DeviceStatement::CreateMirror { name: "both".to_owned(), copies };
    assert_eq!(read("CREATE DEVICE both WITH (mirrors = 'nas,San')"), made);
    assert_eq!(
        read("alter device Both resync"),
        DeviceStatement::Resync { name: "both".to_owned() }
    );
}

#[test]
fn contradictions_are_refused_where_they_stand() {
    for (sql, code, words) in [
        ("ALTER DEVICE nas", "42601", "expected DRAIN, UNDRAIN, REBUILD or RESYNC"),
        ("ALTER DEVICE nas RESYNC san", "42601", "the end of the statement"),
        ("ALTER DEVICE nas REBUILD", "42601", "expected FROM"),
        ("ALTER DEVICE nas REBUILD FROM san", "42601", "the folder of a backup"),
        ("ALTER DEVICE nas REBUILD FROM 'b'", "22023", "'b' is not a whole path: begin it with /"),
        ("ALTER DEVICE nas REBUILD FROM '/b' ARCHIVE", "42601", "the folder of the archived log"),
        ("ALTER DEVICE", "42601", "the name of a device"),
        ("ALTER DEVICE nas DRAIN TO", "42601", "the name of a device"),
        ("ALTER DEVICE nas DRAIN san", "42601", "the end of the statement"),
        ("DROP DEVICE nas, san", "42601", "the end of the statement"),
        ("CREATE DEVICE nas", "42601", "expected WITH"),
        ("CREATE DEVICE nas WITH ()", "42601", "address, local, token_file, ca or mirrors"),
        (
            "CREATE DEVICE nas WITH (rate = '1')",
            "42601",
            "address, local, token_file, ca or mirrors",
        ),
        ("CREATE DEVICE m WITH (mirrors = 'a, ')", "22023", "'a, ' is no list of devices"),
        ("CREATE DEVICE m WITH (mirrors = 'a, b', ca = '/c')", "22023", "mirrors stands alone"),
        ("CREATE DEVICE m WITH (mirrors = 'a', mirrors = 'b')", "22023", "given twice"),
        ("CREATE DEVICE nas WITH (address = 'x')", "22023", "'x' is not an address"),
        ("CREATE DEVICE nas WITH (address = 'x:0')", "22023", "'x:0' is not an address"),
        ("CREATE DEVICE nas WITH (token_file = '/t')", "22023", "needs address"),
        ("CREATE DEVICE nas WITH (local = 'nas.sock')", "22023", "begin it with /"),
        ("CREATE DEVICE nas WITH (local = '/n', ca = '/c')", "22023", "local stands alone"),
        ("CREATE DEVICE nas WITH (address = 'x:1', address = 'y:1')", "22023", "given twice"),
    ] {
        let error = parse_script(sql).unwrap_err();
        assert_eq!(error.sqlstate(), code, "{sql}: {error}");
        assert!(error.to_string().contains(words), "{sql}: {error}");
    }
}
