//! What another device gets that shows a grant of the owner: what the grant names, as long as it holds, and no more.

use std::sync::Arc;

use cleave_device::Runtime;
use cleave_fragment::Morsel;
use cleave_fragment::command::{
    Command, CommandHeader, DeviceErrorCause, Execute, Grant, PeerAddress, PeerSecret, ReadItem,
    ReadPayload, Reply, Request,
};
use cleave_fragment::link::{
    AbandonedRuns, ConnectedLink, DeviceService, EmbeddedLink, Link, LinkError, Token,
};
use cleave_media::Extent;
use cleave_store::{ColumnRef, PageColumns, PageRead, PageRef, RawColumns};

use crate::bench::{
    Bench, Credentials, INCARNATION, Server, any_port, connect_remote, device_error, every_request,
    extent, memory, options, scan, segment,
};

const SECRET: [u8; 32] = [0xc3; 32];
const NUMBER: u64 = 41;

/// A device with the table, as its host and its network see it.
struct Home {
    host: Bench,
    server: Server,
    morsels: Vec<Morsel>,
}

impl Home {
    async fn new(credentials: Option<&Credentials>) -> Self {
        let media = memory();
        let device = Runtime::new(Arc::clone(&media), options()).unwrap();
        let service = Arc::clone(&device) as Arc<dyn DeviceService>;
        let server = Server::start(service, any_port(), credentials).await;
        let host = Bench::of(EmbeddedLink::new(device, None), media, None).await;
        let morsels = host.load().await;
        Self { host, server, morsels }
    }

    /// The only page of the morsel at `place`.
    fn page(&self, place: usize) -> PageRef {
        self.morsels[place].pages[0].page
    }

    async fn grant(&self, extents: Vec<Extent>) {
        let given = self.host.call(Request::Grant(granting(extents))).await;
        assert_eq!(given.unwrap(), Reply::Done);
    }

    /// Who shows `number` and `secret`, without TLS.
    async fn shows(&self, number: u64, secret: [u8; 32]) -> Result<Arc<ConnectedLink>, LinkError> {
        let address = self.server.address;
        connect_remote(address, credential(number, secret), None, None, AbandonedRuns::default())
            .await
    }

    async fn bearer(&self) -> Arc<ConnectedLink> {
        self.shows(NUMBER, SECRET).await.unwrap()
    }

    /// `item` as `link` reads it, on behalf of the owner.
    async fn read(&self, link: &ConnectedLink, item: ReadItem) -> Result<ReadPayload, LinkError> {
        let reply = link.call(Command::new(self.host.header(), Request::Read(vec![item]))).await?;
        let Reply::Read(mut payloads) = reply else { panic!("{reply:?}") };
        Ok(payloads.remove(0))
    }
}

fn granting(extents: Vec<Extent>) -> Grant {
    Grant { number: NUMBER, secret: PeerSecret(SECRET), extents, outputs: vec![(9, 1)] }
}

fn credential(number: u64, secret: [u8; 32]) -> Token {
    let secret = PeerSecret(secret);
    let address = PeerAddress { host: String::new(), port: 0, ca_pem: None, grant: number, secret };
    Token::new(&address.credential(), "a test").unwrap()
}

fn columns(page: PageRef) -> ReadItem {
    let columns = vec![ColumnRef::User(1), ColumnRef::User(2)];
    ReadItem::Columns { page, segment: segment(), columns }
}

fn cause<T: std::fmt::Debug>(result: Result<T, LinkError>) -> DeviceErrorCause {
    device_error(result).0
}

#[tokio::test]
async fn a_grant_of_one_page_reads_no_other() {
    let home = Home::new(None).await;
    home.grant(vec![home.page(3).extent]).await;
    let bearer = home.bearer().await;
    let identity = Command::new(CommandHeader::default(), Request::Identify);
    assert!(matches!(bearer.call(identity).await.unwrap(), Reply::Identity(_)));
    let page = home.page(3);
    let read = home.read(&bearer, columns(page)).await.unwrap();
    let ReadPayload::Columns { header, chunks } = read else { panic!("{read:?}") };
    let asked = PageRead {
        segment: segment(),
        page,
        columns: vec![ColumnRef::User(1), ColumnRef::User(2)],
    };
    PageColumns::verify(&asked, RawColumns { header, chunks }).unwrap();
    let blocks = home.read(&bearer, ReadItem::Blocks(page.extent)).await.unwrap();
    let ReadPayload::Blocks(blocks) = blocks else { panic!("{blocks:?}") };
    assert_eq!(blocks, home.host.read_blocks(page.extent).await.unwrap());
    let end = page.extent.end().0;
    for item in [
        columns(home.page(2)),
        columns(home.page(4)),
        ReadItem::Blocks(home.page(4).extent),
        ReadItem::Blocks(extent(page.extent.start.0 - 1, 2)),
        ReadItem::Blocks(extent(end - 1, 2)),
        ReadItem::Blocks(extent(end, 1)),
        ReadItem::Blocks(extent(u64::MAX, 8)),
    ] {
        let (cause, text) = device_error(home.read(&bearer, item).await);
        assert_eq!(cause, DeviceErrorCause::Refused, "{text}");
        assert!(text.contains("were not granted"), "{text}");
    }
    // Nor does one read bring what another may.
    let items = vec![columns(page), columns(home.page(4))];
    let both = bearer.call(Command::new(home.host.header(), Request::Read(items))).await;
    assert_eq!(cause(both), DeviceErrorCause::Refused);
}

#[tokio::test]
async fn chunks_that_a_header_names_outside_the_grant_are_not_read() {
    let home = Home::new(None).await;
    let page = home.page(3);
    assert!(page.extent.block_count > 1);
    home.grant(vec![Extent { block_count: 1, ..page.extent }]).await;
    let bearer = home.bearer().await;
    assert_eq!(cause(home.read(&bearer, columns(page)).await), DeviceErrorCause::Refused);
    let first = ReadItem::Blocks(Extent { block_count: 1, ..page.extent });
    home.read(&bearer, first).await.unwrap();
}

#[tokio::test]
async fn a_grant_that_has_ended_is_good_for_nothing() {
    let home = Home::new(None).await;
    let read = || ReadItem::Blocks(home.page(0).extent);
    home.grant(vec![home.page(0).extent]).await;
    let bearer = home.bearer().await;
    home.read(&bearer, read()).await.unwrap();
    for _ in 0..2 {
        let ended = home.host.call(Request::EndGrant { number: NUMBER }).await;
        assert_eq!(ended.unwrap(), Reply::Done);
    }
    let late = home.read(&bearer, read()).await;
    assert_eq!(cause(late), DeviceErrorCause::Unauthenticated, "on a connection that is open");
    let refused = home.shows(NUMBER, SECRET).await.unwrap_err();
    assert!(matches!(refused, LinkError::Unauthenticated { .. }), "{refused}");
    // The command that gave it may come once more.
    let again = home.host.call(Request::Grant(granting(vec![home.page(0).extent]))).await;
    assert_eq!(cause(again), DeviceErrorCause::Refused);
    assert_eq!(cause(home.read(&bearer, read()).await), DeviceErrorCause::Unauthenticated);
    assert!(home.shows(NUMBER, SECRET).await.is_err());
}

#[tokio::test]
async fn a_grant_ends_with_who_gave_it() {
    for gives_up in [false, true] {
        let home = Home::new(None).await;
        let read = || ReadItem::Blocks(home.page(0).extent);
        home.grant(vec![home.page(0).extent]).await;
        let bearer = home.bearer().await;
        let newer = home.host.later(2);
        if gives_up {
            home.host.call(Request::GiveUp).await.unwrap();
        } else {
            newer.claim(INCARNATION + 1).await.unwrap();
        }
        assert_eq!(cause(home.read(&bearer, read()).await), DeviceErrorCause::Unauthenticated);
        let as_newer = Command::new(newer.header(), Request::Read(vec![read()]));
        assert_eq!(cause(bearer.call(as_newer).await), DeviceErrorCause::Unauthenticated);
        let refused = home.shows(NUMBER, SECRET).await.unwrap_err();
        assert!(matches!(refused, LinkError::Unauthenticated { .. }), "{refused}");
    }
}

#[tokio::test]
async fn who_shows_no_grant_of_the_device_is_not_let_in() {
    let home = Home::new(None).await;
    home.grant(vec![home.page(0).extent]).await;
    let mut other = SECRET;
    other[31] ^= 1;
    for (number, secret) in [(NUMBER, other), (NUMBER + 1, SECRET), (NUMBER, [0; 32])] {
        let refused = home.shows(number, secret).await.unwrap_err();
        assert!(matches!(refused, LinkError::Unauthenticated { .. }), "{refused}");
        assert!(!refused.to_string().contains("peer:"), "{refused}");
    }
    let other = Home::new(None).await;
    let refused = other.shows(NUMBER, SECRET).await.unwrap_err();
    assert!(matches!(refused, LinkError::Unauthenticated { .. }), "{refused}");
}

#[tokio::test]
async fn a_bearer_changes_nothing() {
    let home = Home::new(None).await;
    home.grant(vec![home.page(0).extent]).await;
    let bearer = home.bearer().await;
    let before = home.host.status().await;
    let requests = every_request().into_iter().chain([
        Request::Claim { after: INCARNATION + 1 },
        Request::Grant(Grant {
            number: NUMBER + 1,
            secret: PeerSecret(SECRET),
            extents: vec![extent(0, 100)],
            outputs: Vec::new(),
        }),
        Request::EndGrant { number: NUMBER },
    ]);
    for request in requests {
        let what = format!("{request:?}");
        let answer = bearer.call(Command::new(home.host.header_of_run(1), request.clone())).await;
        match request {
            Request::Read(_) => assert!(answer.is_ok(), "{what}"),
            Request::Release => assert_eq!(answer.unwrap(), Reply::Done),
            _ => assert_eq!(cause(answer), DeviceErrorCause::Refused, "{what}"),
        }
        let next = home.host.later(2);
        let claim = Command::new(next.header(), Request::Claim { after: INCARNATION + 1 });
        assert_eq!(cause(bearer.call(claim).await), DeviceErrorCause::Unauthenticated);
    }
    for execute in [
        home.host.request(9, &scan(None), &home.morsels),
        Execute { output: 1, ..home.host.request(9, &scan(None), &home.morsels) },
        Execute::attaching(home.host.header_of_run(9), 0, (4, 4096)),
        Execute::attaching(home.host.header_of_run(8), 1, (4, 4096)),
    ] {
        assert_eq!(cause(bearer.execute(execute).await.map(drop)), DeviceErrorCause::Refused);
    }
    let after = home.host.status().await;
    assert_eq!((after.runs, after.media_bytes_written), (before.runs, before.media_bytes_written));
    assert_eq!(after.reserved_block_count, before.reserved_block_count);
    home.bearer().await;
}

#[tokio::test]
async fn a_grant_is_good_for_a_few_connections() {
    let home = Home::new(None).await;
    home.grant(vec![home.page(0).extent]).await;
    let mut bearers = Vec::new();
    for _ in 0..4 {
        bearers.push(home.bearer().await);
    }
    let refused = home.shows(NUMBER, SECRET).await.unwrap_err();
    assert!(matches!(refused, LinkError::Unauthenticated { .. }), "{refused}");
    drop(bearers.pop());
    // Once the device has seen that one is gone.
    while home.shows(NUMBER, SECRET).await.is_err() {}
}

#[tokio::test]
async fn a_bearer_that_leaves_does_not_end_a_run() {
    let home = Home::new(None).await;
    home.grant(vec![home.page(0).extent]).await;
    let bearer = home.bearer().await;
    let request = home.host.request(9, &scan(None), &home.morsels);
    let stream = home.host.execute(request).await;
    let release = Command::new(home.host.header_of_run(9), Request::Release);
    assert_eq!(bearer.call(release).await.unwrap(), Reply::Done);
    assert_eq!(home.host.status().await.runs.len(), 1);
    drop(stream);
    home.host.reach_idle().await;
}

#[tokio::test]
async fn grants_are_shown_over_tls_to_the_device_that_is_pinned() {
    let credentials = Credentials::new();
    let home = Home::new(Some(&credentials)).await;
    home.grant(vec![home.page(0).extent]).await;
    let pinned = |pem: String| {
        let address = home.server.address;
        async move {
            let pem = Some(pem.as_bytes());
            let token = credential(NUMBER, SECRET);
            connect_remote(address, token, pem, None, AbandonedRuns::default()).await
        }
    };
    let bearer = pinned(credentials.certificate.clone()).await.unwrap();
    home.read(&bearer, ReadItem::Blocks(home.page(0).extent)).await.unwrap();
    let other = pinned(Credentials::new().certificate).await.unwrap_err();
    assert!(matches!(other, LinkError::Certificate { .. }), "{other}");
    let plain = home.shows(NUMBER, SECRET).await.unwrap_err();
    assert!(matches!(plain, LinkError::Tls { .. }), "{plain}");
}
