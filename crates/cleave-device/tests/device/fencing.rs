//! One host at a time: claims, what they end, and how an older host's commands fail.

use std::sync::Arc;

use cleave_device::{OwnerRecord, Runtime, RuntimeOptions};
use cleave_fragment::command::{
    Command, CommandHeader, DeviceErrorCause, LOOKING_EPOCH, Ownership, Reply, Request, RunState,
};
use cleave_fragment::link::{DeviceService, EmbeddedLink, Link};
use cleave_media::{BLOCK_SIZE, BlockAddress, Media};

use crate::bench::{
    Bench, Credentials, DATABASE, INCARNATION, ROW_COUNT, Server, any_port, device_error, drain,
    every_request, extent, memory, options, scan,
};
use crate::faults::GatedMedia;

use DeviceErrorCause::{NotClaimed, NotReserved, OtherDatabase, Refused, StaleEpoch};

/// A device over media of its own, and links of both kinds to it.
async fn device_and_links(
    media: Arc<dyn Media>,
    options: RuntimeOptions,
) -> (Server, [Arc<dyn Link>; 2]) {
    let device = Runtime::new(media, options).unwrap();
    let credentials = Credentials::new();
    let service = Arc::clone(&device) as Arc<dyn DeviceService>;
    let server = Server::start(service, any_port(), Some(&credentials)).await;
    let remote = credentials.connect(server.address).await.unwrap();
    (server, [EmbeddedLink::new(device, None), remote])
}

async fn owner(bench: &Bench) -> Option<Ownership> {
    let asked = Command::new(CommandHeader::default(), Request::Identify);
    let Reply::Identity(identity) = bench.link.call(asked).await.unwrap() else { panic!() };
    identity.owner
}

#[tokio::test]
async fn every_command_of_an_older_incarnation_is_refused_with_its_cause() {
    for which in 0..2 {
        let media = memory();
        let (_server, links) = device_and_links(Arc::clone(&media), options()).await;
        let older = Bench::of(Arc::clone(&links[which]), Arc::clone(&media), None).await;
        let morsels = older.load().await;
        let mut request = older.request(1, &scan(None), &morsels);
        request.slot_count = 1;
        let mut stream = older.execute(request.clone()).await;
        older.reach(1, RunState::Stalled).await;

        let newer = older.later(2);
        newer.claim(INCARNATION + 1).await.unwrap();
        let (cause, message) = device_error(drain(&mut stream).await);
        assert_eq!(cause, StaleEpoch, "{message}");
        assert!(message.contains("opened again elsewhere"), "{message}");
        let written = media.bytes_written();
        for request in every_request() {
            let what = format!("{request:?}");
            let (cause, message) = device_error(older.call_run(1, request).await);
            assert_eq!(cause, StaleEpoch, "{what}: {message}");
            assert!(message.contains("epoch 1 is over"), "{what}: {message}");
        }
        assert_eq!(device_error(older.link.execute(request).await).0, StaleEpoch);
        assert_eq!(device_error(older.claim(INCARNATION + 1).await).0, StaleEpoch);
        assert_eq!(media.bytes_written(), written);
        assert_eq!(newer.status().await.runs, []);
        let owner = owner(&newer).await.unwrap();
        assert_eq!((owner.epoch, owner.incarnation), (2, INCARNATION + 2));
    }
}

#[tokio::test]
async fn commands_of_an_incarnation_that_has_not_claimed_are_refused() {
    for which in 0..2 {
        let media = memory();
        let (_server, links) = device_and_links(Arc::clone(&media), options()).await;
        let nobody = Bench::unclaimed(Arc::clone(&links[which]), Arc::clone(&media));
        for request in every_request() {
            let is_give_up = request == Request::GiveUp;
            match nobody.call_run(1, request).await {
                Ok(reply) => assert!(is_give_up && reply == Reply::Done),
                error => assert_eq!(device_error(error).0, NotClaimed),
            }
        }
        nobody.claim(0).await.unwrap();
        let eager = nobody.later(2);
        for request in every_request() {
            assert_eq!(device_error(eager.call_run(1, request).await).0, NotClaimed);
        }
        let request = eager.request(1, &scan(None), &[]);
        assert_eq!(device_error(eager.link.execute(request).await).0, NotClaimed);
        assert_eq!(nobody.status().await.reserved_block_count, 0);
    }
}

#[tokio::test]
async fn who_looks_reads_whoever_owns_the_device_and_changes_nothing() {
    for which in 0..2 {
        let media = memory();
        let (_server, links) = device_and_links(Arc::clone(&media), options()).await;
        let host = Bench::of(Arc::clone(&links[which]), Arc::clone(&media), None).await;
        let morsels = host.load().await;
        let looking = host.later(LOOKING_EPOCH);
        let owned = owner(&host).await;
        let written = media.bytes_written();
        // Beside the owner, and when the device is unowned.
        for is_owned in [true, false] {
            for request in every_request() {
                let what = format!("{request:?}");
                let reads = matches!(request, Request::Read(_) | Request::Status);
                let gives_up = request == Request::GiveUp;
                match looking.call_run(1, request).await {
                    Ok(_) => assert!(reads || (gives_up && !is_owned), "{what}"),
                    error => {
                        let expected = if is_owned { StaleEpoch } else { NotClaimed };
                        assert_eq!(device_error(error).0, expected, "{what}");
                        assert!(!reads, "{what}");
                    }
                }
            }
            let execute = looking.request(1, &scan(None), &morsels);
            assert!(looking.link.execute(execute).await.is_err());
            assert_eq!(device_error(looking.claim(INCARNATION + 1).await).0, Refused);
            assert_eq!(owner(&host).await, owned.filter(|_| is_owned));
            assert_eq!(media.bytes_written(), written);
            if is_owned {
                host.call(Request::GiveUp).await.unwrap();
            }
        }
        let header = CommandHeader { database: [9; 16], ..looking.header() };
        let read = |header| {
            let blocks = cleave_fragment::command::ReadItem::Blocks(extent(0, 1));
            host.link.call(Command::new(header, Request::Read(vec![blocks])))
        };
        read(header).await.unwrap();
        host.later(2).claim(0).await.unwrap();
        assert_eq!(device_error(read(header).await).0, OtherDatabase);
    }
}

#[tokio::test]
async fn of_two_copies_that_count_the_same_epoch_one_is_let_in() {
    let media = memory();
    let (_server, [link, _]) = device_and_links(Arc::clone(&media), options()).await;
    let bench = Bench::of(link, Arc::clone(&media), None).await;
    let claim = async |incarnation: u64, after: u64| bench.copy(2, incarnation).claim(after).await;
    let first = claim(71, INCARNATION + 1).await.unwrap();
    assert_eq!(first, Reply::Done);
    assert_eq!(claim(71, INCARNATION + 1).await.unwrap(), Reply::Done, "twice is once");
    for after in [INCARNATION + 1, 71, 0] {
        let (cause, message) = device_error(claim(72, after).await);
        assert_eq!(cause, StaleEpoch);
        assert!(message.contains("a copy of the database"), "{message}");
    }
    // A copied folder with a higher epoch that has not seen who owns the device now.
    let third = bench.copy(3, 73);
    for after in [INCARNATION + 1, 0] {
        assert_eq!(device_error(third.claim(after).await).0, StaleEpoch);
    }
    assert_eq!(owner(&bench).await.unwrap().incarnation, 71);
    third.claim(71).await.unwrap();
    assert_eq!(device_error(bench.copy(4, 0).claim(73).await).0, Refused);
}

#[tokio::test]
async fn a_copy_that_steers_a_run_of_the_same_number_does_not_reach_it() {
    let media = memory();
    let device = Runtime::new(Arc::clone(&media), options()).unwrap();
    let link: Arc<dyn Link> = EmbeddedLink::new(Arc::clone(&device) as _, None);
    let bench = Bench::of(link, media, None).await;
    let morsels = bench.load().await;
    let mut request = bench.request(1, &scan(None), &morsels);
    request.slot_count = 1;
    let mut stream = bench.execute(request).await;
    bench.reach(1, RunState::Stalled).await;
    // Neither is answered, and so neither is refused.
    let copy = bench.copy(1, INCARNATION);
    device.steer(Command::new(copy.header_of_run(1), Request::Fetch { consumed: 1000, output: 0 }));
    device.steer(Command::new(copy.header_of_run(1), Request::Release));
    assert_eq!(bench.status().await.runs.first().unwrap().consumed, 0);
    assert_eq!(drain(&mut stream).await.unwrap().len(), usize::try_from(ROW_COUNT).unwrap());
}

#[tokio::test]
async fn a_claim_waits_for_the_writes_that_are_under_way() {
    let gate = Arc::new(GatedMedia::new(memory()));
    let media = Arc::clone(&gate) as Arc<dyn Media>;
    let device = Runtime::new(Arc::clone(&media), options()).unwrap();
    let link: Arc<dyn Link> = EmbeddedLink::new(device, None);
    let older = Bench::of(link, media, None).await;
    let morsels = older.load().await;
    gate.close_below(BlockAddress(u64::MAX));
    let mut reading = Box::pin(older.read_blocks(extent(0, 1)));
    assert!(futures::poll!(&mut reading).is_pending());
    gate.wait_for_readers().await;
    let newer = older.later(2);
    let mut claiming = Box::pin(newer.claim(INCARNATION + 1));
    assert!(futures::poll!(&mut claiming).is_pending());
    let mut late = Box::pin(older.read_blocks(extent(0, 1)));
    assert!(futures::poll!(&mut late).is_pending());
    gate.open();
    // What was under way ends as it would have; commands after the claim are too late.
    assert!(reading.await.is_ok());
    claiming.await.unwrap();
    assert_eq!(device_error(late.await).0, StaleEpoch);
    // A claim that is cancelled while it waits changes nothing.
    let stream = newer.execute(newer.request(1, &scan(None), &morsels)).await;
    gate.close_below(BlockAddress(u64::MAX));
    let mut reading = Box::pin(newer.read_blocks(extent(0, 1)));
    assert!(futures::poll!(&mut reading).is_pending());
    gate.wait_for_readers().await;
    let newest = older.later(3);
    {
        let mut claiming = Box::pin(newest.claim(INCARNATION + 2));
        assert!(futures::poll!(&mut claiming).is_pending());
    }
    gate.open();
    assert!(reading.await.is_ok());
    newer.reserve(0, 1).await;
    newest.claim(INCARNATION + 2).await.unwrap();
    assert_eq!(newest.status().await.runs, []);
    drop(stream);
}

#[tokio::test]
async fn memory_and_record_agree_however_far_a_claim_came_that_nobody_waits_for() {
    let directory = tempfile::tempdir().unwrap();
    let record = OwnerRecord::beside_identity(&directory.path().join("nas.media.id"));
    let media = memory();
    let options = RuntimeOptions { owner: record.clone(), ..options() };
    let device = Runtime::new(Arc::clone(&media), options).unwrap();
    let link: Arc<dyn Link> = EmbeddedLink::new(device, None);
    let bench = Bench::of(link, media, None).await;
    let mut last = INCARNATION + 1;
    for epoch in 2..6 {
        let next = bench.later(epoch);
        {
            let mut claiming = Box::pin(next.claim(last));
            assert!(futures::poll!(&mut claiming).is_pending());
            // Until the record is written, which is not reported here.
            while record.read().unwrap().unwrap().epoch < epoch {
                std::thread::yield_now();
            }
        }
        assert_eq!(owner(&bench).await, record.read().unwrap(), "epoch {epoch}");
        last = INCARNATION + epoch;
    }
    {
        let last = bench.later(5);
        let mut giving_up = Box::pin(last.call(Request::GiveUp));
        assert!(futures::poll!(&mut giving_up).is_pending());
        while record.read().unwrap().is_some() {
            std::thread::yield_now();
        }
    }
    assert_eq!(owner(&bench).await, None);
}

#[tokio::test]
async fn a_restarted_device_remembers_whose_it_is_and_no_reservation() {
    let directory = tempfile::tempdir().unwrap();
    let identity = directory.path().join("nas.media.id");
    let media = memory();
    let start = || {
        let owner = OwnerRecord::beside_identity(&identity);
        let options = RuntimeOptions { owner, ..options() };
        let device = Runtime::new(Arc::clone(&media), options).unwrap();
        EmbeddedLink::new(device, None) as Arc<dyn Link>
    };
    let first = Bench::of(start(), Arc::clone(&media), None).await;
    let second = first.later(2);
    second.claim(INCARNATION + 1).await.unwrap();
    let morsels = second.load().await;

    let link = start();
    let first = Bench::unclaimed(Arc::clone(&link), Arc::clone(&media));
    let second = first.later(2);
    for request in every_request() {
        assert_eq!(device_error(first.call_run(1, request).await).0, StaleEpoch);
    }
    assert_eq!(device_error(first.claim(0).await).0, StaleEpoch);
    assert_eq!(device_error(first.claim(INCARNATION + 2).await).0, StaleEpoch);
    // The incarnation that owned it continues, and repeats its reservations.
    assert_eq!(second.status().await.reserved_block_count, 0);
    assert_eq!(device_error(second.write(0, &[1; BLOCK_SIZE]).await).0, NotReserved);
    let mut stream = second.execute(second.request(1, &scan(None), &morsels)).await;
    assert_eq!(drain(&mut stream).await.unwrap().len(), usize::try_from(ROW_COUNT).unwrap());
    let other = CommandHeader { database: *b"another database", incarnation: 5, ..second.header() };
    let claim = Request::Claim { after: INCARNATION + 2 };
    let (cause, message) = device_error(second.link.call(Command::new(other, claim)).await);
    assert_eq!(cause, OtherDatabase);
    assert!(message.contains("--hand-over"), "{message}");

    // After a give-up, anyone may claim it.
    second.call(Request::GiveUp).await.unwrap();
    assert_eq!(owner(&second).await, None);
    assert_eq!(device_error(second.call(Request::Sync).await).0, NotClaimed);
    let link = start();
    let other = CommandHeader { database: *b"another database", epoch: 1, ..other };
    let claim = Request::Claim { after: 0 };
    assert_eq!(link.call(Command::new(other, claim)).await.unwrap(), Reply::Done);
}

#[tokio::test]
async fn commands_that_come_late_twice_or_in_another_order_do_no_harm() {
    let media = memory();
    let (_server, [link, _]) = device_and_links(Arc::clone(&media), options()).await;
    let older = Bench::of(link, Arc::clone(&media), None).await;
    let morsels = older.load().await;
    let before = older.read_blocks(extent(0, 4)).await.unwrap();
    // All commands that the older incarnation ever sent are kept and delivered again, and again in reverse order, after
    // a newer one began to write.
    let mut kept: Vec<Command> =
        every_request().into_iter().map(|r| Command::new(older.header_of_run(1), r)).collect();
    kept.push(Command::new(older.header(), Request::Claim { after: 0 }));
    let execute = older.request(1, &scan(None), &morsels);
    let newer = older.later(2);
    newer.claim(INCARNATION + 1).await.unwrap();
    newer.reserve(10_000, 8).await;
    newer.write(10_000, &[4; BLOCK_SIZE]).await.unwrap();
    let mut stream = newer.execute(newer.request(1, &scan(None), &morsels)).await;
    for _ in 0..2 {
        for command in &kept {
            assert_eq!(device_error(older.link.call(command.clone()).await).0, StaleEpoch);
        }
        assert_eq!(device_error(older.link.execute(execute.clone()).await).0, StaleEpoch);
        kept.reverse();
    }
    assert_eq!(newer.status().await.reserved_block_count, 8);
    assert_eq!(newer.read_blocks(extent(0, 4)).await.unwrap(), before);
    assert_eq!(newer.read_blocks(extent(10_000, 1)).await.unwrap(), [4; BLOCK_SIZE]);
    assert_eq!(drain(&mut stream).await.unwrap().len(), usize::try_from(ROW_COUNT).unwrap());
    // Repeating its own claim ends nothing of its own.
    newer.claim(INCARNATION + 1).await.unwrap();
    assert_eq!(newer.status().await.reserved_block_count, 8);
    assert_eq!(DATABASE, owner(&newer).await.unwrap().database);
}
