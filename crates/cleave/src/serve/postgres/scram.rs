//! SCRAM-SHA-256: the client proves that it knows a password, the server that it knows the user, and neither sends the
//! password.
//!
//! ```text
//!  client ─ n,,n=,r=<nonce> ─▶        server ─ r=<nonces>,s=<salt>,i=<rounds> ─▶ client
//!  client ─ c=biws,r=<nonces>,p=<proof> ─▶     server ─ v=<signature> ─▶ client
//! ```
//!
//! An unknown user is asked for a proof like any other, with a salt that is always the same for the name and the usual
//! number of rounds ([`LoginSecret`](cleave_host::login::LoginSecret)), so that nobody learns which users exist.
//! Deliberately absent: channel binding (the server does not offer `-PLUS`).
//!
//! Source: RFC 5802 and RFC 7677; PostgreSQL's manual, "SCRAM-SHA-256 Authentication".

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use cleave_host::password::{Verifier, hmac_sha256, is_equal, sha256};

/// The mechanism's name.
pub(crate) const MECHANISM: &str = "SCRAM-SHA-256";

/// A protocol violation, or a wrong proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The message is not one of the mechanism.
    Malformed,
    /// The client wants channel binding, which the server did not offer.
    ChannelBinding,
    /// The proof is wrong.
    Proof,
}

/// The exchange after the client's first message.
#[derive(Debug)]
pub(crate) struct Exchange {
    verifier: Verifier,
    /// False if there is no such user, and no proof suffices.
    is_known: bool,
    header: String,
    client_first: String,
    nonce: String,
    server_first: String,
}

impl Exchange {
    /// Decodes the client's first message. `nonce` are the server's own random characters. If `is_known` is false, no
    /// proof suffices for `verifier`.
    pub(crate) fn begin(
        first: &str,
        (verifier, is_known): (Verifier, bool),
        nonce: &str,
    ) -> Result<Self, Refused> {
        // GS2: n or y (no binding), then an authorisation identity, which is not accepted.
        let (binding, rest) = first.split_once(',').ok_or(Refused::Malformed)?;
        let (acting, bare) = rest.split_once(',').ok_or(Refused::Malformed)?;
        match binding {
            "n" | "y" => {}
            _ if binding.starts_with("p=") => return Err(Refused::ChannelBinding),
            _ => return Err(Refused::Malformed),
        }
        // The user name is the one of the startup message; the one here is ignored.
        let parts = bare.split_once(',').filter(|(name, _)| name.starts_with("n="));
        let theirs =
            parts.and_then(|(_, nonce)| nonce.strip_prefix("r=")).ok_or(Refused::Malformed)?;
        let is_plain = |letter: char| letter.is_ascii_graphic() && letter != ',';
        if !acting.is_empty() || theirs.is_empty() || !theirs.chars().all(is_plain) {
            return Err(Refused::Malformed);
        }
        let nonce = format!("{theirs}{nonce}");
        let salt = STANDARD.encode(&verifier.salt);
        let server_first = format!("r={nonce},s={salt},i={}", verifier.iteration_count);
        let header = STANDARD.encode(format!("{binding},,"));
        let client_first = bare.to_owned();
        Ok(Self { verifier, is_known, header, client_first, nonce, server_first })
    }

    /// The server's answer to the first message.
    pub(crate) fn challenge(&self) -> &str {
        &self.server_first
    }

    /// Checks the client's last message; returns the server's answer if it is right.
    pub(crate) fn finish(&self, last: &str) -> Result<String, Refused> {
        let (without_proof, proof) = last.rsplit_once(",p=").ok_or(Refused::Malformed)?;
        let expected = format!("c={},r={}", self.header, self.nonce);
        if without_proof != expected {
            return Err(Refused::Malformed);
        }
        let proof = STANDARD.decode(proof).map_err(|_| Refused::Malformed)?;
        let proof = <[u8; 32]>::try_from(proof).map_err(|_| Refused::Malformed)?;
        let message = format!("{},{},{without_proof}", self.client_first, self.server_first);
        let signature = hmac_sha256(&self.verifier.stored_key, message.as_bytes());
        let mut client_key = proof;
        client_key.iter_mut().zip(signature).for_each(|(one, other)| *one ^= other);
        if !is_equal(&sha256(&client_key), &self.verifier.stored_key) || !self.is_known {
            return Err(Refused::Proof);
        }
        let signature = hmac_sha256(&self.verifier.server_key, message.as_bytes());
        Ok(format!("v={}", STANDARD.encode(signature)))
    }
}

/// Random characters for a nonce.
pub(crate) fn nonce() -> Result<String, cleave_media::MediaError> {
    Ok(STANDARD.encode(cleave_media::random_bytes::<18>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7677, section 3, with the client's part computed here.
    fn client_last(exchange: &Exchange, password: &str) -> String {
        let verifier = &exchange.verifier;
        let mut salted = [0; 32];
        let rounds = std::num::NonZeroU32::new(verifier.iteration_count).unwrap();
        ring::pbkdf2::derive(
            ring::pbkdf2::PBKDF2_HMAC_SHA256,
            rounds,
            &verifier.salt,
            password.as_bytes(),
            &mut salted,
        );
        let client_key = hmac_sha256(&salted, b"Client Key");
        let without_proof = format!("c=biws,r={}", exchange.nonce);
        let message =
            format!("{},{},{without_proof}", exchange.client_first, exchange.server_first);
        let signature = hmac_sha256(&sha256(&client_key), message.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(signature).map(|(a, b)| a ^ b).collect();
        format!("{without_proof},p={}", STANDARD.encode(proof))
    }

    fn begin(verifier: &Verifier, is_known: bool) -> Exchange {
        Exchange::begin("n,,n=,r=abc", (verifier.clone(), is_known), "def").unwrap()
    }

    #[test]
    fn the_right_password_is_known_and_no_other() {
        let verifier = Verifier::new("pencil").unwrap();
        let exchange = begin(&verifier, true);
        assert!(exchange.challenge().starts_with("r=abcdef,s="));
        assert!(exchange.finish(&client_last(&exchange, "pencil")).unwrap().starts_with("v="));
        let wrong = client_last(&exchange, "crayon");
        assert_eq!(exchange.finish(&wrong), Err(Refused::Proof));
        assert_eq!(exchange.finish("c=biws,r=other,p=AA=="), Err(Refused::Malformed));
    }

    #[test]
    fn no_proof_suffices_where_nobody_is_known() {
        let verifier = Verifier::new("pencil").unwrap();
        let exchange = begin(&verifier, false);
        assert_eq!(exchange.challenge(), begin(&verifier, true).challenge());
        assert_eq!(exchange.finish(&client_last(&exchange, "pencil")), Err(Refused::Proof));
    }

    #[test]
    fn messages_out_of_form_are_refused() {
        let verifier = Verifier::new("pencil").unwrap();
        for first in ["", "n", "n,,", "n,,n=,r=", "n,a=x,n=,r=abc", "x,,n=,r=abc", "n,,r=abc"] {
            let begun = Exchange::begin(first, (verifier.clone(), true), "def");
            assert_eq!(begun.err(), Some(Refused::Malformed), "{first}");
        }
        let begun = Exchange::begin("p=tls-unique,,n=,r=abc", (verifier, true), "def");
        assert_eq!(begun.err(), Some(Refused::ChannelBinding));
    }
}
