//! Fragments over pages of a device of another node, read over a socket by a grant: the same rows, and a home that is
//! gone, lies or takes the grant back is no more than a refusal.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use bytes::Bytes;
use cleave_device::{Runtime, RuntimeOptions};
use cleave_fragment::Morsel;
use cleave_fragment::command::{
    Command, DeviceError, DeviceErrorCause, Execute, Grant, PageHome, Peer, PeerAddress,
    PeerSecret, PeerWay, ReadPayload, Reply, Request, RunState,
};
use cleave_fragment::link::{DeviceService, EmbeddedLink, LinkError, SlotSender};
use cleave_media::{BLOCK_SIZE, Extent};
use cleave_store::{SegmentId, SegmentRef};

use crate::bench::{
    Bench, Credentials, INCARNATION, ROW_COUNT, Server, any_port, device_error, drain, memory,
    options, scan, segment, table_pages_of,
};
use crate::spilling::join;

const HOME: [u8; 16] = [1; 16];
const COMPUTER: [u8; 16] = [2; 16];
const SECRET: [u8; 32] = [0xc3; 32];

/// Two devices of one host: the table lies on the first, which listens, and the second computes.
struct Two {
    home: Bench,
    server: Server,
    computer: Bench,
    morsels: Vec<Morsel>,
    ca_pem: Option<String>,
}

/// A device of the database of the tests.
async fn device(device_id: [u8; 16]) -> (Arc<Runtime>, Bench) {
    let media = memory();
    let options = RuntimeOptions { device_id, ..options() };
    let device = Runtime::new(Arc::clone(&media), options).unwrap();
    let link = EmbeddedLink::new(Arc::clone(&device) as Arc<dyn DeviceService>, None);
    (device, Bench::of(link, media, None).await)
}

impl Two {
    async fn new(lie: Option<Lie>, credentials: Option<&Credentials>) -> Self {
        let (device_of_home, home) = device(HOME).await;
        let device_of_home: Arc<dyn DeviceService> = device_of_home;
        let service: Arc<dyn DeviceService> = match lie {
            Some(lie) => Arc::new(Liar { device: device_of_home, lie }),
            None => device_of_home,
        };
        let server = Server::start(service, any_port(), credentials).await;
        let (_, computer) = device(COMPUTER).await;
        let morsels = home.load().await;
        let ca_pem = credentials.map(|credentials| credentials.certificate.clone());
        let two = Self { home, server, computer, morsels, ca_pem };
        two.grant(5, two.extents()).await;
        two
    }

    fn extents(&self) -> Vec<Extent> {
        let pages = self.morsels.iter().flat_map(|morsel| &morsel.pages);
        pages.map(|page| page.page.extent).collect()
    }

    async fn grant(&self, number: u64, extents: Vec<Extent>) {
        let secret = PeerSecret(SECRET);
        let grant = Grant { number, secret, extents, outputs: Vec::new() };
        assert_eq!(self.home.call(Request::Grant(grant)).await.unwrap(), Reply::Done);
    }

    fn address(&self) -> PeerAddress {
        PeerAddress {
            host: self.server.address.ip().to_string(),
            port: self.server.address.port(),
            ca_pem: self.ca_pem.clone(),
            grant: 5,
            secret: PeerSecret(SECRET),
        }
    }

    /// A run of the second device over pages of the first, which it reaches at `address`.
    fn request_at(&self, run: u64, address: PeerAddress) -> Execute {
        let peer = Peer { device: HOME, way: PeerWay::Link(address) };
        Execute {
            homes: vec![PageHome { device: HOME, segments: vec![SegmentId(1)] }],
            peers: vec![peer],
            ..self.computer.request(run, &scan(None), &self.morsels)
        }
    }

    fn request(&self, run: u64) -> Execute {
        self.request_at(run, self.address())
    }

    async fn rows(&self, request: Execute) -> Result<Vec<i32>, LinkError> {
        let mut stream = self.computer.link.execute(request).await?;
        drain(&mut stream).await
    }

    /// Why the second device gives the host no rows of `request`.
    async fn fault(&self, request: Execute) -> String {
        let failed = self.rows(request).await;
        assert!(failed.as_ref().is_err_and(LinkError::is_refusal), "{failed:?}");
        let (cause, text) = device_error(failed);
        assert_eq!(cause, DeviceErrorCause::Peer, "{text}");
        assert!(text.contains("another device, 0101"), "{text}");
        assert!(!text.contains("c3c3"), "a secret is never shown: {text}");
        self.computer.reach_idle().await;
        text
    }
}

/// A home that does not answer reads of peers as it should. Its host is answered well.
#[derive(Debug)]
struct Liar {
    device: Arc<dyn DeviceService>,
    lie: Lie,
}

#[derive(Debug, Clone, Copy)]
enum Lie {
    /// A bit of a chunk is another one.
    SpoiltChunk,
    /// The page that was read first comes in place of all others.
    OtherPage,
    /// A page less comes.
    Fewer,
    Blocks,
    NoChunks,
    Error,
}

#[async_trait]
impl DeviceService for Liar {
    async fn call(&self, command: Command) -> Result<Reply, DeviceError> {
        self.device.call(command).await
    }

    async fn execute(&self, request: Execute, slots: SlotSender) -> Result<SchemaRef, DeviceError> {
        self.device.execute(request, slots).await
    }

    fn steer(&self, command: Command) {
        self.device.steer(command);
    }

    fn peer(self: Arc<Self>, shown: &[u8]) -> Option<Arc<dyn DeviceService>> {
        let device = Arc::clone(&self.device).peer(shown)?;
        Some(Arc::new(LiesToPeers { device, lie: self.lie, first: OnceLock::new() }))
    }
}

/// The same, as the peer has it.
#[derive(Debug)]
struct LiesToPeers {
    device: Arc<dyn DeviceService>,
    lie: Lie,
    first: OnceLock<ReadPayload>,
}

#[async_trait]
impl DeviceService for LiesToPeers {
    async fn call(&self, command: Command) -> Result<Reply, DeviceError> {
        let is_read = matches!(command.request, Request::Read(_));
        let reply = self.device.call(command).await?;
        let Reply::Read(mut payloads) = reply else { return Ok(reply) };
        assert!(is_read);
        match self.lie {
            Lie::SpoiltChunk => {
                if let Some(ReadPayload::Columns { chunks, .. }) = payloads.last_mut()
                    && let Some(chunk) = chunks.iter_mut().flatten().last()
                {
                    let mut spoilt = chunk.to_vec();
                    spoilt[0] ^= 1;
                    *chunk = spoilt.into();
                }
            }
            Lie::OtherPage => {
                let first = self.first.get_or_init(|| payloads[0].clone());
                payloads.fill(first.clone());
            }
            Lie::Fewer => drop(payloads.pop()),
            Lie::Blocks => payloads.fill(ReadPayload::Blocks(Bytes::from_static(&[7; 64]))),
            Lie::NoChunks => {
                if let Some(ReadPayload::Columns { chunks, .. }) = payloads.first_mut() {
                    chunks.clear();
                }
            }
            Lie::Error => return Err(DeviceError::new(DeviceErrorCause::Io, "a broken disk")),
        }
        Ok(Reply::Read(payloads))
    }

    async fn execute(&self, request: Execute, slots: SlotSender) -> Result<SchemaRef, DeviceError> {
        self.device.execute(request, slots).await
    }

    fn steer(&self, command: Command) {
        self.device.steer(command);
    }
}

fn all_ids() -> Vec<i32> {
    (0..ROW_COUNT).collect()
}

#[tokio::test]
async fn pages_of_another_node_give_the_same_rows() {
    let credentials = Credentials::new();
    for credentials in [None, Some(&credentials)] {
        let two = Two::new(None, credentials).await;
        let below = (0..7777).collect::<Vec<i32>>();
        let plans = [(scan(None), all_ids()), (scan(Some(7777)), below), (join(), all_ids())];
        for (run, (plan, expected)) in (1..).zip(plans) {
            let request = Execute {
                inputs: vec![(0, two.morsels.clone()), (1, two.morsels.clone())],
                memory_bytes: 16 << 20,
                fragment: two.computer.request(run, &plan, &[]).fragment,
                ..two.request(run)
            };
            let mut stream = two.computer.execute(request).await;
            assert_eq!(drain(&mut stream).await.unwrap(), expected);
            let report = stream.report().unwrap();
            assert!(report.foreign_bytes > 0 && report.pages_read > 0, "{report:?}");
            assert_eq!(report.media_bytes, report.foreign_bytes);
        }
        assert_eq!(two.computer.media.bytes_read(), 0);
        assert!(two.home.status().await.runs.is_empty());
        two.computer.reach_idle().await;
    }
}

#[tokio::test]
async fn a_fragment_reads_its_own_media_and_those_of_another_node() {
    let two = Two::new(None, None).await;
    let (bytes, own) = table_pages_of(SegmentRef { segment: SegmentId(2), ..segment() });
    two.computer.reserve(0, u32::try_from(bytes.len() / BLOCK_SIZE).unwrap()).await;
    two.computer.write(0, &bytes).await.unwrap();
    let mut morsels = two.morsels.clone();
    morsels.extend(own);
    for (number, morsel) in (0..).zip(&mut morsels) {
        morsel.number = number;
    }
    let request = Execute { inputs: vec![(0, morsels)], ..two.request(1) };
    let mut stream = two.computer.execute(request).await;
    let twice: Vec<i32> = (0..ROW_COUNT).flat_map(|id| [id, id]).collect();
    assert_eq!(drain(&mut stream).await.unwrap(), twice);
    let report = stream.report().unwrap();
    assert!((1..report.media_bytes).contains(&report.foreign_bytes), "{report:?}");
}

#[tokio::test]
async fn a_home_that_does_not_let_the_device_in_is_a_refusal() {
    let two = Two::new(None, None).await;
    let mut secret = SECRET;
    secret[0] ^= 1;
    for address in [
        PeerAddress { secret: PeerSecret(secret), ..two.address() },
        PeerAddress { grant: 6, ..two.address() },
    ] {
        let text = two.fault(two.request_at(1, address)).await;
        assert!(text.contains("does not know the grant"), "{text}");
    }
    let pinned = PeerAddress { ca_pem: Some(Credentials::new().certificate), ..two.address() };
    let text = two.fault(two.request_at(1, pinned)).await;
    assert!(text.contains("does not speak TLS"), "{text}");
    let spoilt = PeerAddress { ca_pem: Some("no certificate".to_owned()), ..two.address() };
    let text = two.fault(two.request_at(1, spoilt)).await;
    assert!(text.contains("no usable certificate"), "{text}");
    // The next run is let in.
    assert_eq!(two.rows(two.request(2)).await.unwrap(), all_ids());
}

#[tokio::test]
async fn a_grant_of_less_than_the_run_reads_is_a_refusal() {
    let two = Two::new(None, None).await;
    let mut extents = two.extents();
    extents.remove(7);
    two.grant(6, extents).await;
    let address = PeerAddress { grant: 6, ..two.address() };
    let text = two.fault(two.request_at(1, address)).await;
    assert!(text.contains("were not granted"), "{text}");
}

#[tokio::test]
async fn a_home_that_lies_is_a_refusal() {
    for (lie, why) in [
        (Lie::SpoiltChunk, "it sent what is wrong"),
        (Lie::OtherPage, "it sent what is wrong"),
        (Lie::Fewer, "it answered a read with something else"),
        (Lie::Blocks, "it sent blocks where columns were asked for"),
        (Lie::NoChunks, "it sent what is wrong"),
        (Lie::Error, "a broken disk"),
    ] {
        let two = Two::new(Some(lie), None).await;
        let text = two.fault(two.request(1)).await;
        assert!(text.contains(why), "{lie:?}: {text}");
    }
}

/// A run that has begun, and waits for the host.
async fn stalled(two: &Two) -> cleave_fragment::link::RunStream {
    let request = Execute { slot_count: 1, partitions: 1, ..two.request(1) };
    let stream = two.computer.execute(request).await;
    two.computer.reach(1, RunState::Stalled).await;
    stream
}

#[tokio::test]
async fn a_home_that_is_lost_ends_what_reads_there() {
    let two = Two::new(None, None).await;
    let mut stream = stalled(&two).await;
    let Two { server, computer, .. } = two;
    server.stop().await;
    assert_eq!(device_error(drain(&mut stream).await).0, DeviceErrorCause::Peer);
    drop(stream);
    computer.reach_idle().await;
}

#[tokio::test]
async fn a_claim_of_the_home_ends_what_reads_there() {
    for gives_up in [true, false] {
        let two = Two::new(None, None).await;
        let mut stream = stalled(&two).await;
        match gives_up {
            true => drop(two.home.call(Request::GiveUp).await.unwrap()),
            false => drop(two.home.later(2).claim(INCARNATION + 1).await.unwrap()),
        }
        assert_eq!(device_error(drain(&mut stream).await).0, DeviceErrorCause::Peer);
        drop(stream);
        two.computer.reach_idle().await;
    }
}

#[tokio::test]
async fn runs_with_one_grant_share_a_connection_that_ends_with_them() {
    let two = Two::new(None, None).await;
    let streams = futures::future::join_all((1..4).map(|run| {
        let request = Execute { slot_count: 1, partitions: 1, ..two.request(run) };
        two.computer.execute(request)
    }));
    for mut stream in streams.await {
        assert_eq!(drain(&mut stream).await.unwrap(), all_ids());
    }
    two.computer.reach_idle().await;
    // With the last of them it is closed: what is open has been let in by a grant that is over by now.
    two.home.call(Request::EndGrant { number: 5 }).await.unwrap();
    for run in 9.. {
        if two.fault(two.request(run)).await.contains("does not know the grant") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
