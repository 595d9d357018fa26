//! Tests of addresses.

use super::*;

fn read(url: &str, environment: &[(&str, &str)]) -> Result<Address, String> {
    Address::read(url, &|name| {
        let found = environment.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn a_url_names_all_parts_and_the_environment_the_others() {
    let url = "postgres://ada:p%40ss@[::1]:6000/shop%20a?sslmode=disable&application_name=x&connect_timeout=3";
    let address = read(url, &[("PGPASSWORD", "other"), ("PGUSER", "bob")]).unwrap();
    assert_eq!((address.user(), address.host(), address.port()), ("ada", "::1", 6000));
    assert_eq!((address.database(), address.password()), ("shop a", Some("p@ss")));
    assert_eq!((address.tls(), address.place().as_str()), (Tls::Disable, "[::1]:6000"));
    assert_eq!(address.patience(), Duration::from_secs(3));
    assert_eq!(address.settings(), [("application_name".to_owned(), "x".to_owned())]);
    assert!(!format!("{address:?}").contains("p@ss"));
    let set = [("PGHOST", "db"), ("PGPORT", "7000"), ("PGDATABASE", "shop"), ("USER", "eve")];
    let address = read("postgresql://", &set).unwrap();
    assert_eq!((address.place().as_str(), address.database()), ("db:7000", "shop"));
    assert_eq!((address.user(), address.password(), address.tls()), ("eve", None, Tls::Prefer));
    let address = read("postgres://bob@db", &[]).unwrap();
    assert_eq!((address.place().as_str(), address.database()), ("db:5432", "bob"));
}

#[test]
fn a_user_without_a_name_in_the_environment_is_in_the_system_s_file() {
    let users =
        "root:x:0:0:root:/nowhere:/bin/sh\n# a comment\n:x:7::\nada:x:1000:1000:Ada:/nowhere:\n";
    assert_eq!(name_of(1000, users).as_deref(), Some("ada"));
    assert_eq!(name_of(0, users).as_deref(), Some("root"));
    assert_eq!((name_of(7, users), name_of(1, users)), (None, None));
    let user = |environment: &[(&str, &str)]| {
        read("postgres://db", environment).unwrap().user().to_owned()
    };
    assert_eq!(user(&[("LOGNAME", "eve")]), "eve");
    assert!(!user(&[]).is_empty());
}

#[test]
fn tls_verifies_where_it_is_told_whom_to_trust() {
    let mode = |options: &str| read(&format!("postgres://db/?{options}"), &[]).map(|it| it.tls());
    assert_eq!(mode("sslrootcert=f"), Ok(Tls::VerifyFull));
    assert_eq!(mode("sslmode=require"), Ok(Tls::Require));
    assert_eq!(mode("sslmode=verify-full&sslrootcert=f"), Ok(Tls::VerifyFull));
    assert_eq!(mode("sslrootcert=f&sslmode=disable"), Ok(Tls::Disable));
    assert!(mode("sslmode=verify-full").unwrap_err().contains("sslrootcert"));
    assert!(mode("sslmode=maybe").unwrap_err().contains("verify-full"));
}

#[test]
fn wrong_urls_say_what_is_wrong() {
    for (url, what) in [
        ("http://db", "begin"),
        ("postgres://db:port", "port"),
        ("postgres://db:99999", "port"),
        ("postgres://%zz@db", "%"),
        ("postgres://%+1@db", "%"),
        ("postgres://a%00@db", "zero"),
        ("postgres://a,b/x", "several"),
        ("postgres://db/x?host=/tmp", "folder"),
        ("postgres://db/x?nothing=1", "nothing"),
        ("postgres://db/x?connect_timeout=0", "seconds"),
    ] {
        let wrong = read(url, &[]).unwrap_err();
        assert!(wrong.contains(what), "{url}: {wrong}");
    }
    // What may be a part of a password is not shown.
    let wrong = read("postgres://ada:pen?cil@db/x", &[]).unwrap_err();
    assert!(wrong.contains("%3F") && !wrong.contains("cil"), "{wrong}");
}

#[test]
fn the_first_line_that_fits_has_the_password() {
    let wanted = ["db", "5432", "a:b", "ada"];
    let of = |line: &str| password_file::password_of(line, wanted);
    assert_eq!(of(r"db:5432:a\:b:ada:se\:c\\ret"), Some(r"se:c\ret".to_owned()));
    assert_eq!(of("*:*:*:*:pencil"), Some("pencil".to_owned()));
    assert_eq!(of("*:*:*:ada:pencil:more"), Some("pencil".to_owned()));
    for line in ["", "#*:*:*:*:pencil", "*:*:*:bob:pencil", r"\*:*:*:*:pencil", "*:*:*:*", "\\"] {
        assert_eq!(of(line), None, "{line}");
    }
}
