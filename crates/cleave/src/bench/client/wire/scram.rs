//! The client's half of SCRAM-SHA-256: makes a proof of a password that does not reveal it, and checks the server's
//! proof.
//!
//! Source: RFC 5802, section 3; RFC 7677.

use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cleave_host::password::{hmac_sha256, sha256};
use ring::pbkdf2;

/// Most rounds that a server may ask for, since they cost CPU time.
const ROUNDS_MAX: u32 = 1_000_000;

/// An authentication in progress.
pub(super) struct Proof {
    first: String,
}

impl Proof {
    /// Begins with a new nonce.
    pub(super) fn begin() -> Result<Self, String> {
        let nonce = cleave_media::random_bytes::<18>().map_err(|error| error.to_string())?;
        Ok(Self { first: format!("n=,r={}", STANDARD.encode(nonce)) })
    }

    /// The client's first message.
    pub(super) fn first(&self) -> String {
        format!("n,,{}", self.first)
    }

    /// The client's last message, and the expected answer of the server.
    pub(super) fn last(&self, challenge: &str, password: &str) -> Result<(String, String), String> {
        let wrong = || "the server's challenge is none of SCRAM".to_owned();
        let part = |name: &str| {
            challenge.split(',').find_map(|part| part.strip_prefix(name)).ok_or_else(wrong)
        };
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
        let client_key = hmac_sha256(&salted, b"Client Key");
        let without_proof = format!("c=biws,r={nonce}");
        let all = format!("{},{challenge},{without_proof}", self.first);
        let signature = hmac_sha256(&sha256(&client_key), all.as_bytes());
        let proof: Vec<u8> =
            client_key.iter().zip(signature).map(|(key, signature)| key ^ signature).collect();
        let server = hmac_sha256(&hmac_sha256(&salted, b"Server Key"), all.as_bytes());
        let last = format!("{without_proof},p={}", STANDARD.encode(proof));
        Ok((last, format!("v={}", STANDARD.encode(server))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proofs_are_those_of_the_standard() {
        // RFC 7677, section 3, has a user name, so the proof differs; the nonce is checked.
        let proof = Proof { first: "n=user,r=rOprNGfwEbeRWgbNEkqO".to_owned() };
        let challenge = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        assert!(proof.last(challenge, "pencil").is_ok());
        let other = "r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let own = Proof { first: "n=,r=mine".to_owned() };
        assert!(own.last(other, "pencil").is_err());
        assert!(own.last("r=mine2,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=999999999", "pencil").is_err());
    }
}
