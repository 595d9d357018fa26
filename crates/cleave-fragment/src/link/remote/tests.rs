//! Addresses. The rest is tested where there are devices.

use super::*;

#[test]
fn addresses_are_read_and_written() {
    for (text, host, port) in [
        ("storage1:7432", "storage1", 7432),
        ("127.0.0.1:1", "127.0.0.1", 1),
        ("[::1]:65535", "::1", 65535),
    ] {
        let address: RemoteAddress = text.parse().unwrap();
        assert_eq!((address.host.as_str(), address.port), (host, port));
        assert_eq!(address.to_string(), text);
    }
    for text in ["", "storage1", ":7432", "storage1:", "storage1:65536", "::1:7432", "[]:1"] {
        let error = text.parse::<RemoteAddress>().unwrap_err().to_string();
        assert!(error.contains(&format!("`{text}`")), "{error}");
    }
}
