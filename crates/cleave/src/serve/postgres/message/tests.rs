//! Messages as PostgreSQL's clients write them, and malformed ones.

use bytes::Bytes;
use proptest::prelude::*;

use super::{Bind, Format, Frontend, Malformed, Opening, Target, opening};

fn read(kind: u8, body: &'static [u8]) -> Result<Option<Frontend>, Malformed> {
    Frontend::read(kind, Bytes::from_static(body))
}

#[test]
fn messages_are_read() {
    assert_eq!(read(b'Q', b"SELECT 1\0"), Ok(Some(Frontend::Query("SELECT 1".to_owned()))));
    let parse = Frontend::Parse { name: "s".to_owned(), sql: "q".to_owned(), types: vec![23] };
    assert_eq!(read(b'P', b"s\0q\0\0\x01\0\0\0\x17"), Ok(Some(parse)));
    let bind = Frontend::Bind(Bind {
        portal: String::new(),
        statement: "s".to_owned(),
        formats: vec![Format::Binary],
        values: vec![None, Some(Bytes::from_static(b"ab"))],
        results: vec![],
    });
    let body = b"\0s\0\0\x01\0\x01\0\x02\xff\xff\xff\xff\0\0\0\x02ab\0\0";
    assert_eq!(read(b'B', body), Ok(Some(bind)));
    let target = Target::Portal("p".to_owned());
    assert_eq!(read(b'D', b"Pp\0"), Ok(Some(Frontend::Describe(target))));
    assert_eq!(read(b'~', b""), Ok(None));
}

#[test]
fn what_is_cut_or_too_long_is_refused() {
    let body: &[u8] = b"\0s\0\0\x01\0\x01\0\x02\xff\xff\xff\xff\0\0\0\x02ab\0\0";
    for end in 0..body.len() {
        assert!(Frontend::read(b'B', Bytes::copy_from_slice(&body[..end])).is_err(), "{end}");
    }
    assert!(read(b'Q', b"SELECT 1\0x").is_err());
    assert!(read(b'B', b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0").is_err(), "negative length");
    assert_eq!(read(b'Q', b"\xff\0"), Err(Malformed::Encoding("the query")));
}

#[test]
fn a_connection_opens() {
    let startup = opening(&Bytes::from_static(b"\0\x03\0\0user\0ada\0\0")).unwrap();
    let parameters = vec![("user".to_owned(), "ada".to_owned())];
    assert_eq!(startup, Opening::Startup { minor: 0, parameters });
    let tls = opening(&Bytes::from_static(&[0x04, 0xd2, 0x16, 0x2f])).unwrap();
    assert_eq!(tls, Opening::Tls);
    let old = opening(&Bytes::from_static(b"\0\x02\0\0")).unwrap();
    assert_eq!(old, Opening::Unknown { major: 2, minor: 0 });
    assert!(opening(&Bytes::from_static(b"\0\x03\0\0user\0ada\0")).is_err());
}

proptest! {
    #[test]
    fn no_bytes_bring_it_down(kind in any::<u8>(), body in prop::collection::vec(any::<u8>(), 0..200)) {
        let body = Bytes::from(body);
        drop(opening(&body));
        drop(Frontend::read(kind, body));
    }
}
