//! Addresses as users write them.

use super::address;

#[test]
fn addresses_have_a_host_and_a_port() {
    assert_eq!(address("storage1:7700"), Ok(("storage1".to_owned(), 7700)));
    assert_eq!(address("[::1]:7700"), Ok(("::1".to_owned(), 7700)));
    for wrong in ["storage1", ":7700", "storage1:", "storage1:0", "storage1:70000", ""] {
        assert!(address(wrong).is_err(), "{wrong}");
    }
}
