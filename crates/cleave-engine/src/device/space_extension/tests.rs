//! Tests of the host's answers to a run that needs space: how much it gets, and what a device may not say.

use std::collections::VecDeque;
use std::path::Path;

use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use cleave_catalog::catalog::{DeviceEntry, DeviceId, DeviceKind};
use cleave_fragment::build_id;
use cleave_fragment::command::message::RunEvent;
use cleave_fragment::command::{Execute, Identity, Outputs, Ownership};
use cleave_fragment::link::{DeviceService, SlotSender};
use cleave_media::BlockAddress;

use super::*;
use crate::device::{ClaimedRun, Device, Written, WrittenFragment};

const DEVICE: [u8; 16] = [1; 16];

/// A device of `block_count` blocks, whose one run says one need after the other, each once the one before is answered.
#[derive(Debug, Default)]
struct Asker {
    block_count: u64,
    run: Mutex<Asking>,
}

#[derive(Debug, Default)]
struct Asking {
    needs: VecDeque<(u32, u32)>,
    sink: Option<SlotSender>,
    extensions: Vec<(u32, Vec<Extent>)>,
    refuses: bool,
}

impl Asking {
    /// Says the next need, or that it has ended.
    fn go_on(&mut self) {
        let event = match self.needs.pop_front() {
            Some((extension, block_count)) => RunEvent::Full(SpaceNeed { extension, block_count }),
            None => RunEvent::Finished(Box::default()),
        };
        let _heard = self.sink.as_ref().is_some_and(|sink| sink.send(event));
    }
}

#[async_trait]
impl DeviceService for Asker {
    async fn call(&self, command: Command) -> Result<Reply, DeviceError> {
        match command.request {
            Request::Identify => Ok(Reply::Identity(Identity {
                device: DEVICE,
                build: build_id(),
                protocol_version: 1,
                capabilities: Vec::new(),
                block_size: 4096,
                block_count: 0,
                cores: 1,
                fragment_memory_bytes: 0,
                slot_bytes_max: 0,
                transfer_bytes_max: 0,
                owner: None,
                node: String::new(),
            })),
            Request::Reserve { extents } => {
                match extents.iter().any(|extent| extent.end().0 > self.block_count) {
                    true => Err(DeviceError::new(DeviceErrorCause::OutOfSpace, "full".to_owned())),
                    false => Ok(Reply::Done),
                }
            }
            Request::Extend { number, extents } => {
                let mut run = self.run.lock().unwrap();
                run.extensions.push((number, extents));
                if run.refuses {
                    return Err(DeviceError::new(DeviceErrorCause::Refused, "not these"));
                }
                run.go_on();
                Ok(Reply::Done)
            }
            _ => Ok(Reply::Done),
        }
    }

    async fn execute(&self, _: Execute, slots: SlotSender) -> Result<SchemaRef, DeviceError> {
        let mut run = self.run.lock().unwrap();
        run.sink = Some(slots);
        run.go_on();
        Ok(Arc::new(Schema::empty()))
    }

    fn steer(&self, _: Command) {}
}

/// A run that has these needs on a device of so many blocks.
fn asker(block_count: u64, needs: &[(u32, u32)], refuses: bool) -> (Arc<Asker>, Arc<Claim>) {
    let run = Asking { needs: needs.iter().copied().collect(), refuses, ..Asking::default() };
    let asker = Arc::new(Asker { block_count, run: Mutex::new(run) });
    let service = Arc::clone(&asker);
    let embedded = move |_: &Path| Ok(Arc::clone(&service) as Arc<dyn DeviceService>);
    let entry = DeviceEntry {
        id: DeviceId(1),
        name: "nas".to_owned(),
        identity: DEVICE,
        kind: DeviceKind::Embedded,
    };
    let incarnation = Ownership { database: [3; 16], epoch: 1, incarnation: 1 };
    let folder = Path::new("nowhere");
    let device = Device::new(entry, incarnation, Vec::new(), folder, Arc::new(embedded)).unwrap();
    (asker, Arc::new(Claim::new(Arc::new(device))))
}

fn request(claim: &Claim, reserved: Vec<Extent>) -> Execute {
    Execute {
        header: claim.device.next_run(),
        build: build_id(),
        fragment: Vec::new().into(),
        snapshot: 1,
        inputs: Vec::new(),
        index_filters: Vec::new(),
        indexes: Vec::new(),
        broadcasts: Vec::new(),
        shipped: Vec::new(),
        reserved,
        extensible: true,
        history: cleave_fragment::filter_history::HistoryMode::Off,
        lends: false,
        homes: Vec::new(),
        peers: Vec::new(),
        peer_rows: Vec::new(),
        outputs: Outputs::One,
        output: 0,
        attaches: false,
        trace: Default::default(),
        locks: None,
        partitions: 1,
        memory_bytes: 0,
        slot_count: 1,
        slot_bytes: 4096,
        settings: Vec::new(),
        fed: Vec::new(),
        first_slot: 0,
    }
}

fn extent(start: u64, block_count: u32) -> Extent {
    Extent { start: BlockAddress(start), block_count }
}

/// What became of the run, the extensions that its device heard of, and what its claim has.
async fn outcome(
    (asker, claim): (Arc<Asker>, Arc<Claim>),
) -> (WrittenFragment, Vec<(u32, Vec<Extent>)>, u64) {
    let first = claim.acquire(8).await.unwrap();
    let request = request(&claim, vec![first]);
    let schema = Arc::new(Schema::empty());
    let written = claim.run_fragment(request, (schema, None), None, None).await.unwrap();
    let extensions = asker.run.lock().unwrap().extensions.clone();
    (written, extensions, claim.block_count())
}

#[tokio::test]
async fn extensions_double_and_have_what_is_needed_at_least() {
    // The same need again, for more blocks: it is answered again, and not twice.
    let needs = [(1, 1), (1, 9), (2, 700), (3, 1), (4, 1), (5, 1), (6, 1), (7, 9000), (8, 1)];
    let (written, extensions, claimed) = outcome(asker(1 << 20, &needs, false)).await;
    assert!(matches!(written.outcome, Written::Rows(_)));
    let blocks: Vec<(u32, u32)> = extensions
        .iter()
        .map(|(number, extents)| (*number, extents.iter().map(|extent| extent.block_count).sum()))
        .collect();
    let expected = [256, 256, 700, 1024, 2048, 4096, 4096, 9000, 4096];
    let expected = needs.iter().map(|(number, _)| *number).zip(expected);
    assert_eq!(blocks, expected.collect::<Vec<_>>());
    assert_eq!(extensions[0], extensions[1]);
    let space: u64 = written.space.iter().map(|extent| u64::from(extent.block_count)).sum();
    assert_eq!((claimed, space), (space, 8 + 256 + 700 + 1024 + 2048 + 3 * 4096 + 9000));
    let given: Vec<Extent> = extensions[1..].iter().flat_map(|(_, given)| given.clone()).collect();
    assert_eq!(written.space[1..], given);
}

#[tokio::test]
async fn a_full_device_gives_what_is_needed_and_then_says_that_there_is_no_more() {
    let (written, extensions, claimed) = outcome(asker(100, &[(1, 50), (2, 50)], false)).await;
    assert!(matches!(written.outcome, Written::Rows(_)), "the run decides what becomes of it");
    assert_eq!(extensions, [(1, vec![extent(8, 50)]), (2, vec![])]);
    assert_eq!((written.space, claimed), (vec![extent(0, 8), extent(8, 50)], 58));
}

#[tokio::test]
async fn a_device_that_skips_an_extension_or_refuses_one_breaks_the_protocol() {
    let failure = async |needs: &[(u32, u32)], refuses| {
        let (written, extensions, _) = outcome(asker(1 << 20, needs, refuses)).await;
        let Written::Failed(LinkError::Protocol { detail, .. }) = written.outcome else {
            panic!("taken: {extensions:?}")
        };
        (detail, extensions.len())
    };
    let (detail, count) = failure(&[(1, 5), (3, 5)], false).await;
    assert!(detail.contains("extension 3 where 2 was due"), "{detail}");
    assert_eq!(count, 1);
    let (detail, count) = failure(&[(0, 5)], false).await;
    assert!(detail.contains("extension 0 where 1 was due"), "{detail}");
    assert_eq!(count, 0);
    let (detail, _) = failure(&[(1, 5)], true).await;
    assert!(detail.contains("refused an extension: not these"), "{detail}");
}

#[tokio::test]
async fn space_ends_at_the_limit_and_is_free_when_the_run_has_ended() {
    let (asker, claim) = asker(1 << 20, &[(1, 10), (2, 300), (3, 1)], false);
    let device = Arc::clone(&claim.device);
    let first = claim.acquire(8).await.unwrap();
    let link = device.link().await.unwrap();
    let (request, schema) = (request(&claim, vec![first]), Arc::new(Schema::empty()) as SchemaRef);
    let mut run = ClaimedRun::begin(claim, &link, request, &schema, 8 + 256 + 310).await.unwrap();
    // Given up in the midst of an answer, and taken up again.
    for _ in 0..3 {
        let mut next = std::pin::pin!(run.next());
        if futures::poll!(&mut next).is_ready() {
            break;
        }
    }
    assert!(run.next().await.unwrap().is_none());
    let extensions = asker.run.lock().unwrap().extensions.clone();
    assert_eq!(extensions, [(1, vec![extent(8, 256)]), (2, vec![extent(264, 310)]), (3, vec![])]);
    assert_eq!(device.space().used_blocks, 0, "nobody writes there any more");
}
