//! Tokens and certificates, good and bad. Handshakes are tested where there are devices.

use super::*;

#[test]
fn a_token_is_read_without_the_space_around_it_and_never_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    cleave_media::files::write_durably(&path, b"  0123456789abcdef\n").unwrap();
    let token = Token::from_file(&path).unwrap();
    assert_eq!(token.bytes(), b"0123456789abcdef");
    assert_eq!(format!("{token:?}"), "Token(…)");
    assert!(token.matches(b"0123456789abcdef"));
    for other in [&b"0123456789abcdeF"[..], b"0123456789abcde", b"0123456789abcdef0", b""] {
        assert!(!token.matches(other));
    }
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o640);
    std::fs::set_permissions(&path, readable).unwrap();
    let error = Token::from_file(&path).unwrap_err().to_string();
    assert!(error.contains("group or world access"), "{error}");
}

#[test]
fn tokens_that_cannot_be_used_are_refused_without_being_shown() {
    for text in ["", "short", "with space inside it", "0123456789abcde\u{e9}", &"x".repeat(1025)] {
        let error = Token::new(text, "the file F").unwrap_err().to_string();
        assert!(error.contains("the file F") && error.contains("16 to 1024"), "{error}");
        assert!(text.is_empty() || !error.contains(text), "{error}");
    }
    assert!(Token::new(&"x".repeat(1024), "a test").is_ok());
    let missing = Token::from_file(Path::new("no/such/file")).unwrap_err().to_string();
    assert!(missing.contains("no/such/file"), "{missing}");
    let unset = Token::from_env("CLEAVE_NO_SUCH_VARIABLE").unwrap_err().to_string();
    assert!(unset.contains("CLEAVE_NO_SUCH_VARIABLE"), "{unset}");
}

#[test]
fn certificates_that_cannot_be_used_are_refused() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    client_config(certificate.as_bytes()).unwrap();
    let identity = DeviceIdentity::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap();
    identity.server_config().unwrap();
    assert!(!format!("{identity:?}").contains("BEGIN"));
    for pem in [
        "",
        "not PEM",
        key.as_str(),
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n",
    ] {
        let error = client_config(pem.as_bytes()).unwrap_err();
        assert!(matches!(error, TlsFileError::Pem { .. }), "{pem}: {error}");
    }
    assert!(DeviceIdentity::from_pem(certificate.as_bytes(), b"not a key").is_err());
    // A key of somebody else's.
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let other_key = other.signing_key.serialize_pem();
    let mismatched = DeviceIdentity::from_pem(certificate.as_bytes(), other_key.as_bytes());
    assert!(mismatched.unwrap().server_config().is_err());
}
