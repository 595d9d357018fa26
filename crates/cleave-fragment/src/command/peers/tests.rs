//! Credentials of peers.

use proptest::prelude::*;

use super::*;

fn address(grant: u64, secret: [u8; 32]) -> PeerAddress {
    let host = "storage1".to_owned();
    PeerAddress { host, port: 7432, ca_pem: None, grant, secret: PeerSecret(secret) }
}

proptest! {
    #[test]
    fn a_credential_names_its_grant(
        grant in any::<u64>(),
        secret in any::<[u8; 32]>(),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let shown = address(grant, secret).credential();
        prop_assert_eq!(shown_grant(shown.as_bytes()), Some((grant, PeerSecret(secret))));
        prop_assert!(crate::link::Token::new(&shown, "a test").is_ok());
        // One that is changed names another grant or none, unless only the case of a digit was.
        let mut other = shown.clone().into_bytes();
        let place = place.index(other.len());
        other[place] = byte;
        if let Some((number, found)) = shown_grant(&other) {
            let is_same = number == grant && found.matches(&PeerSecret(secret));
            prop_assert_eq!(is_same, other.to_ascii_lowercase() == shown.as_bytes());
        }
        prop_assert_eq!(shown_grant(&shown.as_bytes()[..shown.len() - 1]), None);
    }
}

#[test]
fn what_names_no_grant_is_none() {
    let digits = "0".repeat(64);
    for shown in [
        String::new(),
        "a-token-that-only-tests-use".to_owned(),
        format!("peer::{digits}"),
        format!("peer:+1:{digits}"),
        format!("peer:18446744073709551616:{digits}"),
        format!("peer:1:{digits}0"),
        format!("peer:1:{}g", &digits[1..]),
        format!("peer:1:{}+", &digits[1..]),
    ] {
        assert_eq!(shown_grant(shown.as_bytes()), None, "{shown}");
    }
    assert_eq!(shown_grant(&[0xff; 90]), None);
}

#[test]
fn a_secret_is_not_printed() {
    let printed = format!("{:?}", address(5, [0xab; 32]));
    assert!(!printed.contains("171") && !printed.contains("ab"), "{printed}");
    assert!(printed.contains("PeerSecret(…)") && printed.contains("grant: 5"), "{printed}");
}

#[test]
fn every_bit_of_a_secret_counts() {
    let secret = PeerSecret([7; 32]);
    for bit in 0..256 {
        let mut other = [7; 32];
        other[bit / 8] ^= 1 << (bit % 8);
        assert!(!secret.matches(&PeerSecret(other)));
    }
    assert!(secret.matches(&PeerSecret([7; 32])));
}
