//! Which grants are held, and what they are good for.

use cleave_media::BlockAddress;

use super::*;

mod life;

const OWNER: Ownership = Ownership { database: [1; 16], epoch: 1, incarnation: 1 };

fn extent(start: u64, block_count: u32) -> Extent {
    Extent { start: BlockAddress(start), block_count }
}

fn secret(of: u8) -> PeerSecret {
    PeerSecret([of; 32])
}

fn grant(number: u64, extents: &[Extent]) -> Grant {
    Grant { number, secret: secret(7), extents: extents.to_vec(), outputs: vec![(5, 1)] }
}

#[test]
fn a_grant_is_found_by_number_and_secret_until_it_ends() {
    let mut grants = Grants::of(OWNER);
    grants.add(grant(1, &[extent(0, 4), extent(4, 4), extent(20, 1)])).unwrap();
    assert!(grants.find(1, &secret(8)).is_none() && grants.find(2, &secret(7)).is_none());
    let held = grants.find(1, &secret(7)).unwrap();
    assert!(held.may_read(extent(2, 6)) && held.may_read(extent(20, 1)));
    assert!(!held.may_read(extent(7, 2)) && !held.may_read(extent(19, 2)));
    assert!(held.may_attach(5, 1) && !held.may_attach(5, 0) && !held.may_attach(4, 1));
    grants.end(1);
    grants.end(1);
    assert!(held.has_ended() && !held.may_read(extent(2, 1)) && !held.may_attach(5, 1));
    assert!(grants.find(1, &secret(7)).is_none());
    assert_eq!(grants.place_count, 0);
}

#[test]
fn a_grant_that_has_ended_is_not_given_again() {
    let mut grants = Grants::of(OWNER);
    grants.add(grant(1, &[extent(0, 8)])).unwrap();
    // The second one is ended before it is given.
    [1, 2].into_iter().for_each(|number| grants.end(number));
    for number in [1, 2] {
        let error = grants.add(grant(number, &[extent(0, 8)])).unwrap_err();
        assert_eq!(error.cause, DeviceErrorCause::Refused);
    }
    assert!(grants.held.is_empty());
    grants.add(grant(3, &[extent(0, 8)])).unwrap();
    (10..10 + 2 * ENDED_MAX as u64).for_each(|number| grants.end(number));
    assert_eq!(grants.ended.len(), ENDED_MAX);
    assert!(grants.add(grant(2, &[])).is_err() && grants.add(grant(11, &[])).is_err());
    // One that is still held is what it was.
    grants.add(grant(3, &[extent(0, 8)])).unwrap();
    assert!(grants.find(3, &secret(7)).is_some());
}

#[test]
fn a_repeated_grant_must_be_the_same() {
    let mut grants = Grants::of(OWNER);
    grants.add(grant(1, &[extent(0, 8)])).unwrap();
    let held = grants.find(1, &secret(7)).unwrap();
    // The same blocks in other words.
    grants.add(grant(1, &[extent(4, 4), extent(0, 4)])).unwrap();
    assert!(!held.has_ended());
    for other in [
        grant(1, &[extent(0, 9)]),
        Grant { secret: secret(8), ..grant(1, &[extent(0, 8)]) },
        Grant { outputs: Vec::new(), ..grant(1, &[extent(0, 8)]) },
    ] {
        let error = grants.add(other).unwrap_err();
        assert_eq!(error.cause, DeviceErrorCause::Refused);
        assert!(!error.message.contains("PeerSecret"), "{error}");
    }
}

#[test]
fn the_oldest_give_way() {
    let mut grants = Grants::of(OWNER);
    for number in 0..GRANTS_MAX as u64 + 3 {
        grants.add(grant(number, &[extent(number, 1)])).unwrap();
    }
    assert_eq!(grants.held.len(), GRANTS_MAX);
    assert!(grants.find(2, &secret(7)).is_none() && grants.find(3, &secret(7)).is_some());
    let apart = (0..PLACES_MAX as u64 / 2).map(|place| extent(place * 2, 1));
    let apart: Vec<Extent> = apart.collect();
    for number in 10_000..10_003 {
        grants.add(grant(number, &apart)).unwrap();
        assert!(grants.place_count <= PLACES_MAX, "{}", grants.place_count);
    }
    assert_eq!(grants.held.len(), 1, "two have an output too many");
}

#[test]
fn grants_end_with_their_owner() {
    let mut grants = Grants::of(OWNER);
    grants.add(grant(1, &[extent(0, 8)])).unwrap();
    let held = grants.find(1, &secret(7)).unwrap();
    drop(grants);
    assert!(held.has_ended());
}
