//! Addresses, and a peer that says nothing. The rest is tested where there are devices.

use std::time::Duration;

use tokio::net::TcpListener;

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

#[tokio::test]
async fn a_peer_that_says_nothing_is_given_up() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    for tls in [None, Some(client_config(made.cert.pem().as_bytes()).unwrap())] {
        let dial = Dial {
            address: RemoteAddress { host: "127.0.0.1".to_owned(), port: address.port() },
            token: Token::new("a-token-of-some-length", "a test").unwrap(),
            tls,
            cap: None,
            bytes: Arc::default(),
            handshake_limit: Duration::from_millis(20),
        };
        let error = Connection::open(dial).await.unwrap_err();
        assert!(matches!(error, LinkError::HandshakeTimeout { .. }), "{error:?}");
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}

#[test]
fn a_transfer_that_is_too_large_is_stopped_before_it_crosses() {
    use cleave_media::{BlockAddress, Extent};
    let extent = Extent { start: BlockAddress(0), block_count: u32::MAX };
    let error = check_transfer(&Request::Read(vec![ReadItem::Blocks(extent); 3])).unwrap_err();
    assert!(matches!(error, LinkError::TooLarge { .. }), "{error}");
    assert!(error.to_string().contains("33554432"), "{error}");
}
