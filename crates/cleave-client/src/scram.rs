//! The client's half of SCRAM-SHA-256: makes a proof of a password that does not reveal it, and knows the proof that
//! the server must give in return.
//!
//! A password is used as it is written: only those of other than ASCII letters could have several forms, which
//! PostgreSQL's servers bring into one.
//!
//! Source: RFC 5802, section 3; RFC 7677.

use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};

/// Most rounds that a server may ask for, since they cost CPU time.
const ROUNDS_MAX: u32 = 1_000_000;

/// An authentication in progress.
pub struct Proof {
    first: String,
}

impl Proof {
    /// Begins with a new nonce.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn begin() -> Result<Self, String> {
        let mut nonce = [0; 18];
        let drawn = SystemRandom::new().fill(&mut nonce);
        drawn.map_err(|_| "the system has no random numbers".to_owned())?;
        Ok(Self { first: format!("n=,r={}", STANDARD.encode(nonce)) })
    }

    /// The client's first message.
    #[must_use]
    pub fn first(&self) -> String {
        format!("n,,{}", self.first)
    }

    /// The client's last message, and the expected answer of the server.
    ///
    /// # Errors
    /// The challenge is none, or asks for too much.
    pub fn last(&self, challenge: &str, password: &str) -> Result<(String, String), String> {
        let wrong = || "the server's challenge is none of SCRAM".to_owned();
        let part = |name: &str| {
            challenge.split(',').find_map(|part| part.strip_prefix(name)).ok_or_else(wrong)
        };
        // An extension that must be understood, as the standard has none yet.
        if challenge.starts_with("m=") {
            return Err(wrong());
        }
        let (nonce, salt, rounds) = (part("r=")?, part("s=")?, part("i=")?);
        let own = self.first.strip_prefix("n=,r=").unwrap_or_default();
        let salt = STANDARD.decode(salt).map_err(|_| wrong())?;
        let rounds = rounds.parse().ok().filter(|rounds| *rounds <= ROUNDS_MAX);
        let rounds = rounds.and_then(NonZeroU32::new).ok_or_else(wrong)?;
        if !nonce.starts_with(own) || nonce.len() == own.len() {
            return Err(wrong());
        }
        let mut salted = [0; 32];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &salt, password.as_bytes(), &mut salted);
        let client_key = signed(&salted, b"Client Key");
        let without_proof = format!("c=biws,r={nonce}");
        let all = format!("{},{challenge},{without_proof}", self.first);
        let stored_key = digest::digest(&digest::SHA256, client_key.as_ref());
        let signature = signed(stored_key.as_ref(), all.as_bytes());
        let pairs = client_key.as_ref().iter().zip(signature.as_ref());
        let proof: Vec<u8> = pairs.map(|(key, signature)| key ^ signature).collect();
        let server = signed(signed(&salted, b"Server Key").as_ref(), all.as_bytes());
        let last = format!("{without_proof},p={}", STANDARD.encode(proof));
        Ok((last, format!("v={}", STANDARD.encode(server))))
    }
}

fn signed(key: &[u8], text: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proofs_are_those_of_the_standard() {
        // RFC 7677, section 3.
        let proof = Proof { first: "n=user,r=rOprNGfwEbeRWgbNEkqO".to_owned() };
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let challenge = format!("r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
        let (last, answer) = proof.last(&challenge, "pencil").unwrap();
        let expected = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(last, format!("c=biws,r={nonce},p={expected}"));
        assert_eq!(answer, "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn a_challenge_that_asks_for_too_much_is_refused() {
        let own = Proof { first: "n=,r=mine".to_owned() };
        for challenge in [
            "r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "r=mine,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "r=mine2,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=999999999",
            "r=mine2,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=0",
            "r=mine2,s=?,i=4096",
            "m=x,r=mine2,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "",
        ] {
            assert!(own.last(challenge, "pencil").is_err(), "{challenge}");
        }
    }
}
