//! Tests: logins of names that no role has.

use super::*;

#[test]
fn nobody_looks_like_somebody_and_always_the_same() {
    let secret = LoginSecret::read(&[7; 32]).unwrap();
    let none = secret.verifier_of_nobody("ada", &BTreeMap::new());
    assert_eq!((none.iteration_count, none.salt.len()), (4096, 16));
    let counts = BTreeMap::from([(10_000, 3)]);
    let ada = secret.verifier_of_nobody("ada", &counts);
    assert_eq!((ada.iteration_count, &ada.salt), (10_000, &none.salt));
    assert_ne!(secret.verifier_of_nobody("bob", &counts).salt, ada.salt);
    let other = LoginSecret::read(&[8; 32]).unwrap();
    assert_ne!(other.verifier_of_nobody("ada", &counts).salt, ada.salt);
    assert!(LoginSecret::read(&[7; 31]).is_none());
}

#[test]
fn nobodys_rounds_are_spread_as_those_of_users() {
    let secret = LoginSecret::read(&[7; 32]).unwrap();
    let counts = BTreeMap::from([(4096, 3), (20_000, 1)]);
    let drawn = (0..400).map(|n| secret.verifier_of_nobody(&format!("u{n}"), &counts));
    let few = drawn.filter(|verifier| verifier.iteration_count == 20_000).count();
    assert!((50..150).contains(&few), "{few} of 400 instead of about 100");
}

#[test]
fn a_secret_is_not_shown() {
    let secret = LoginSecret::read(&[7; 32]).unwrap();
    assert_eq!(format!("{secret:?}"), "LoginSecret(…)");
}
