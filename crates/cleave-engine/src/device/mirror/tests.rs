//! Which copies of a mirror fail, which are asked, and the space that they share.

use std::path::Path;
use std::sync::atomic::Ordering;

use cleave_catalog::catalog::log_replicas::LogReplica;
use cleave_catalog::catalog::{CatalogState, DeviceEntry, DeviceKind, LocalDevice};
use cleave_fragment::command::Ownership;
use cleave_fragment::link::DeviceService;
use cleave_media::BlockAddress;
use futures::future::pending;

use super::*;
use crate::device::testing::fresh;
use crate::device::{DISK_FULL, EmbeddedFactory};
use crate::storage_engine::attach;

fn nobody(_: &Path) -> Result<Arc<dyn DeviceService>> {
    panic!("these devices are elsewhere");
}

fn entry(number: u32) -> DeviceEntry {
    let (id, name) = (DeviceId(number), format!("d{number}"));
    let local = LocalDevice { socket: "/no/such/socket".into(), rate_cap: None };
    DeviceEntry { id, name, identity: [1; 16], kind: local.into() }
}

/// Device `number`, which does not answer.
fn device(number: u32, kind: DeviceKind) -> Device {
    let entry = DeviceEntry { kind, ..entry(number) };
    let incarnation = Ownership { database: [3; 16], epoch: 1, incarnation: 1 };
    Device::new(entry, incarnation, Vec::new(), Path::new("nowhere"), Arc::new(nobody)).unwrap()
}

/// A mirror of two devices, and these.
fn mirror_of_two(number: u32) -> (Arc<Device>, [Arc<Device>; 2]) {
    let copies = [1, 2].map(|number| Arc::new(device(number, entry(number).kind)));
    let of = mirror::Mirror::new(copies.iter().map(|copy| copy.id()));
    let made = device(number, DeviceKind::Mirror(of.clone())).mirroring(&of, copies.to_vec());
    let made = Arc::new(made);
    made.join_copies();
    (made, copies)
}

fn copies_of(device: &Device) -> &Mirror {
    device.mirror.as_ref().unwrap()
}

fn lost(copy: &Device) -> Error {
    copy.unanswered("write", Duration::ZERO)
}

/// It is gone, or is being started again.
fn gone(copy: &Device) -> Error {
    let address = copy.entry().address();
    copy.fault("read", LinkError::Lost { address, detail: "closed".to_owned() })
}

fn refusal(copy: &Device, cause: DeviceErrorCause) -> Error {
    let source = DeviceError::new(cause, "refused".to_owned());
    let (device, address) = (copy.name().to_owned(), copy.entry().address());
    StorageError::Refused { device, address, action: "reserve space", source }.into()
}

fn full(copy: &Device) -> Error {
    refusal(copy, DeviceErrorCause::OutOfSpace)
}

fn extent(start: u64, block_count: u32) -> Extent {
    Extent { start: BlockAddress(start), block_count }
}

#[test]
fn a_copy_that_misses_what_another_one_has_done_has_failed() {
    let (device, [a, b]) = mirror_of_two(7);
    let (mirror, ids) = (copies_of(&device), [a.id(), b.id()]);
    let error =
        mirror.settle::<u8>(vec![(ids[0], Err(lost(&a))), (ids[1], Err(lost(&b)))]).unwrap_err();
    assert!(error.to_string().contains("\"d1\""), "the first one is told: {error}");
    let error = mirror.settle(vec![(ids[0], Ok(1)), (ids[1], Err(full(&b)))]).unwrap_err();
    assert_eq!(error.sqlstate(), DISK_FULL);
    assert!(device.failed_copies().is_empty(), "nobody has done what another has not");

    let done = mirror.settle(vec![(ids[0], Ok(1)), (ids[1], Err(lost(&b)))]).unwrap();
    assert_eq!(done, [(ids[0], 1)]);
    let failed = BTreeSet::from([ids[1]]);
    assert_eq!(device.failed_copies(), failed);
    assert_eq!(device.readers().iter().map(|copy| copy.id()).collect::<Vec<_>>(), [ids[0]]);
    // Begun before that. What the failed copy alone has done is of no use, and the other one is the last.
    mirror.settle(vec![(ids[0], Err(lost(&a))), (ids[1], Ok(1))]).unwrap_err();
    assert_eq!(device.failed_copies(), failed);
    let done = mirror.settle(vec![(ids[1], Ok(2)), (ids[0], Ok(1))]).unwrap();
    assert_eq!(done, [(ids[0], 1)]);

    device.note_current(ids[1]);
    let done = mirror.settle(vec![(ids[0], Ok(1)), (ids[1], Ok(2))]).unwrap();
    assert_eq!(done.len(), 2);
    assert!(device.copies().iter().all(|(_, is_stale)| !is_stale));
}

#[test]
fn a_stale_copy_is_neither_read_nor_written() {
    let (_, copies) = mirror_of_two(7);
    let mut of = mirror::Mirror::new(copies.iter().map(|copy| copy.id()));
    of.copies[0].is_stale = true;
    let device = device(8, DeviceKind::Mirror(of.clone())).mirroring(&of, copies.to_vec());
    let current: Vec<DeviceId> = copies_of(&device).current().iter().map(|it| it.id()).collect();
    assert_eq!(current, [DeviceId(2)]);
}

#[test]
fn runs_of_mirrors_and_their_copies_have_different_numbers() {
    let (first, [a, b]) = mirror_of_two(7);
    let (second, _) = mirror_of_two(8);
    let mut runs = BTreeSet::new();
    for device in [&first, &second, &a] {
        for _ in 0..3 {
            assert!(runs.insert(device.next_run().run), "{}", device.name());
        }
    }
    assert!(!runs.insert(b.next_run().run), "another device counts for itself");
}

#[test]
fn space_is_taken_and_let_free_on_all_copies() {
    let (device, [a, b]) = mirror_of_two(7);
    assert_eq!((a.take_free(3), b.take_free(1)), (extent(0, 3), extent(0, 1)));
    let taken = device.take_free(4);
    assert_eq!(taken, extent(3, 4), "the first hole of both");
    assert_eq!((a.take_free(2), b.take_free(2)), (extent(7, 2), extent(1, 2)));
    // A write to one block of it may still arrive.
    device.doubt(extent(5, 1));
    device.let_free(taken);
    assert_eq!(device.space().doubtful_blocks, 1);
    assert_eq!((a.space().doubtful_blocks, b.space().doubtful_blocks), (1, 1));
    assert_eq!(device.take_free(2), extent(3, 2));
    assert_eq!(device.take_free(2), extent(9, 2));

    // What waits for its last reader counts on the copies as well.
    device.retire(5, [extent(3, 2)]);
    device.reclaim(4);
    let retired = [&device, &a, &b].map(|device| device.space().retired_blocks);
    assert_eq!(retired, [2; 3]);
    device.reclaim(5);
    let used = [&device, &a, &b].map(|device| device.space().used_blocks);
    assert_eq!(used, [3, 8, 6]);

    device.retire(9, [extent(9, 1)]);
    device.keep(vec![extent(10, 1)]);
    device.dissolve();
    drop(device);
    for (copy, used_blocks) in [(&a, 7), (&b, 5)] {
        let space = copy.space();
        let waits = (space.doubtful_blocks, space.retired_blocks);
        assert_eq!((space.used_blocks, waits), (used_blocks, (1, 1)));
    }
}

#[test]
fn space_that_the_log_names_is_taken_on_all_copies() {
    let (device, [a, b]) = mirror_of_two(7);
    device.take_named(extent(4, 2)).unwrap();
    assert_eq!([&device, &a, &b].map(|device| device.space().used_blocks), [2; 3]);
    a.take_free(1);
    device.take_named(extent(0, 1)).unwrap_err();
}

#[test]
fn space_that_was_kept_of_a_mirror_is_taken_on_the_copy_that_the_log_names() {
    let (device, [a, b]) = mirror_of_two(7);
    let kept = device.take_free(4);
    device.keep(vec![kept]);
    a.take_named(extent(1, 2)).unwrap();
    let used = || [&device, &a, &b].map(|device| device.space().used_blocks);
    assert_eq!(used(), [2, 4, 2]);
    device.let_go_of_kept();
    device.reclaim(0);
    assert_eq!(used(), [0, 2, 0], "what the log names stays");
    assert_eq!(device.take_free(2), extent(3, 2), "free on both");
    b.take_named(extent(3, 1)).unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_copy_has_taken_of_a_mirrors_kept_space_is_its_own() {
    let (_directory, database) = fresh().await;
    let mut state = CatalogState::clone(&database.catalog());
    let (_, [a, b]) = mirror_of_two(7);
    let of = mirror::Mirror::new([a.id(), b.id()]);
    let mirror = DeviceEntry { kind: DeviceKind::Mirror(of), ..entry(7) };
    let entries = [a.entry().clone(), b.entry().clone(), mirror];
    state.devices.extend(entries.iter().map(|entry| (entry.id, entry.clone())));
    state.upkeep.kept.insert(DeviceId(7), vec![extent(0, 8)]);
    state.upkeep.kept.insert(a.id(), vec![extent(2, 2)]);
    // The copy a has this one in use.
    let arenas = vec![extent(4, 2)];
    let replica =
        LogReplica { device: a.id().0, id: [5; 16], arenas, is_ended: false, gives_up: None };
    state.upkeep.log_replicas.push(replica);
    let embedded: EmbeddedFactory = Arc::new(nobody);
    let space = entries.map(|entry| {
        let device = attach(&state, Some(1), entry, Path::new("nowhere"), &embedded).unwrap();
        (device.space().used_blocks, device.space().retired_blocks)
    });
    assert_eq!(space, [(8, 2), (4, 0), (4, 4)]);
}

#[tokio::test]
async fn a_copy_that_hangs_while_others_ask_it_for_space_is_not_waited_for() {
    let (device, [_, b]) = mirror_of_two(7);
    let asking = b.space_turns().await;
    assert_eq!(device.space_turns().await.len(), 1);
    drop(asking);
    assert_eq!(device.space_turns().await.len(), 2);
    copies_of(&device).state().failed.insert(b.id());
    assert_eq!(device.space_turns().await.len(), 1, "nobody asks it");
}

#[tokio::test]
async fn a_copy_that_is_late_is_waited_for_a_moment_more() {
    let (device, [a, b]) = mirror_of_two(7);
    let (mirror, slow) = (copies_of(&device), b.id());
    let work = move |copy: Arc<Device>| {
        async move {
            if copy.id() == slow {
                pending::<()>().await;
            }
            Ok::<(), Error>(())
        }
        .boxed()
    };
    let wait = ("write", Duration::from_millis(50));
    let outcomes = mirror.each(&mirror.current(), wait, work).await;
    let told: Vec<_> = outcomes.iter().map(|(id, outcome)| (*id, outcome.is_ok())).collect();
    assert_eq!(told, [(a.id(), true), (b.id(), false)]);
    mirror.settle(outcomes).unwrap();
    assert_eq!(device.failed_copies(), BTreeSet::from([b.id()]));
}

#[tokio::test]
async fn a_copy_that_owes_an_answer_is_not_waited_for_again() {
    let (device, [_, b]) = mirror_of_two(7);
    let (mirror, slow) = (copies_of(&device), b.id());
    let work = move |copy: Arc<Device>| {
        async move {
            if copy.id() == slow {
                pending::<()>().await;
            }
            Ok::<(), Error>(())
        }
        .boxed()
    };
    // Another mirror of it has waited.
    let _owed = b.answers.owe(SystemClock.now(), true);
    let (current, wait) = (mirror.current(), ("sync", Duration::from_secs(600)));
    let syncing = mirror.each(&current, wait, work);
    let outcomes = tokio::time::timeout(Duration::from_secs(60), syncing).await.expect("an end");
    mirror.settle(outcomes).unwrap();
    assert_eq!(device.failed_copies(), BTreeSet::from([b.id()]));
}

#[tokio::test]
async fn another_copy_is_asked_where_one_fails_or_is_late() {
    let (device, [a, b]) = mirror_of_two(7);
    let first = a.id();
    let asked = device.ask(move |copy| {
        async move { if copy.id() == first { Err(lost(&copy)) } else { Ok(copy.id()) } }.boxed()
    });
    assert_eq!(asked.await.unwrap(), b.id());
    let asked = device.ask(move |copy| {
        async move {
            if copy.id() == first {
                pending::<()>().await;
            }
            Ok(copy.id())
        }
        .boxed()
    });
    assert_eq!(asked.await.unwrap(), b.id());
    let error = device.ask(|copy| async move { Err::<(), _>(lost(&copy)) }.boxed()).await;
    assert!(error.unwrap_err().to_string().contains("\"d1\""), "the first error");
    // What is no copy's fault is told at once.
    let error = device.ask(|copy| async move { Err::<(), _>(full(&copy)) }.boxed()).await;
    assert_eq!(error.unwrap_err().sqlstate(), DISK_FULL);
}

#[tokio::test]
async fn a_copy_that_comes_back_is_asked_again() {
    let (device, [a, b]) = mirror_of_two(7);
    let (first, times) = (a.id(), AtomicU64::new(0));
    // One has a page that does not hold, the other one is being started.
    let answer = |copy: Arc<Device>, is_back: bool| match (copy.id() == first, is_back) {
        (true, _) => Err(refusal(&copy, DeviceErrorCause::Corrupt)),
        (false, false) => Err(gone(&copy)),
        (false, true) => Ok(copy.id()),
    };
    let asked = device.ask(|copy| {
        let is_back = times.fetch_add(1, Ordering::Relaxed) > 4;
        async move { answer(copy, is_back) }.boxed()
    });
    assert_eq!(asked.await.unwrap(), b.id());
    // It was lost some time ago, and is waited for no more.
    let since = SystemClock.now().saturating_sub(LOST_WAIT);
    copies_of(&device).state().lost_since.insert(b.id(), since);
    let asked = device.ask(|copy| async move { answer(copy, false) }.boxed());
    assert_eq!(asked.await.unwrap_err().sqlstate(), "58030", "the page may be there");
    let damaged = |copy: Arc<Device>| refusal(&copy, DeviceErrorCause::Corrupt);
    let asked = device.ask(|copy| async move { Err::<(), _>(damaged(copy)) }.boxed());
    assert_eq!(asked.await.unwrap_err().sqlstate(), "XX001");
}

#[tokio::test]
async fn a_copy_that_becomes_current_meanwhile_is_asked() {
    let (device, [a, b]) = mirror_of_two(7);
    copies_of(&device).state().failed.insert(a.id());
    let (mirror, last) = (Arc::clone(&device), b.id());
    let asked = device.ask(move |copy| {
        let mirror = Arc::clone(&mirror);
        async move {
            if copy.id() == last {
                mirror.note_current(DeviceId(1));
                return Err(lost(&copy));
            }
            Ok(copy.id())
        }
        .boxed()
    });
    assert_eq!(asked.await.unwrap(), a.id());
}

/// The order in which a reader was told that one copy is offline, though the other one was up: that other one was lost
/// long ago, has come back, and is lost again for a moment when the reader finds the first one gone.
#[tokio::test]
async fn a_copy_that_has_come_back_is_waited_for_when_it_is_lost_again() {
    let (device, [a, _b]) = mirror_of_two(7);
    let lost_long_ago = || {
        let since = SystemClock.now().saturating_sub(LOST_WAIT);
        copies_of(&device).state().lost_since.insert(a.id(), since);
    };
    let comes_back: [&dyn Fn(); 3] = [
        &|| device.note_current(a.id()),
        &|| drop(copies_of(&device).settle(vec![(a.id(), Ok(()))]).unwrap()),
        &|| device.note_answered(a.id()),
    ];
    for comes_back in comes_back {
        lost_long_ago();
        comes_back();
        let (back, times) = (a.id(), AtomicU64::new(0));
        let asked = device.ask(|copy| {
            let is_up = copy.id() == back && times.fetch_add(1, Ordering::Relaxed) > 0;
            async move { if is_up { Ok(copy.id()) } else { Err(gone(&copy)) } }.boxed()
        });
        assert_eq!(asked.await.unwrap(), back);
    }
}

#[tokio::test]
async fn what_begins_while_a_copy_is_stale_is_done_by_it_if_it_becomes_current() {
    let (device, [a, b]) = mirror_of_two(7);
    copies_of(&device).state().failed.insert(a.id());
    let (mirror, stale) = (Arc::clone(&device), a.id());
    let work = move |copy: Arc<Device>| {
        let mirror = Arc::clone(&mirror);
        async move {
            if copy.id() == stale {
                return Ok(1);
            }
            // The last step of its resynchronisation; then the other one is lost.
            mirror.note_current(stale);
            Err(gone(&copy))
        }
        .boxed()
    };
    let how = ("write", Duration::from_secs(60));
    let done = copies_of(&device).by_current(how, work, |_| {}).await.unwrap();
    assert_eq!(done, [(a.id(), 1)]);
    assert_eq!(
        device.failed_copies(),
        BTreeSet::from([b.id()]),
        "it has missed what the other has"
    );
    // Without such a copy it fails, and no copy has.
    device.note_current(b.id());
    let fail = |copy: Arc<Device>| async move { Err::<(), _>(gone(&copy)) }.boxed();
    copies_of(&device).by_current(how, fail, |_| {}).await.unwrap_err();
    assert!(device.failed_copies().is_empty());
}

#[test]
fn the_copy_that_is_the_least_busy_is_read_first() {
    let (device, [a, b]) = mirror_of_two(7);
    let order = || device.readers().iter().map(|copy| copy.id()).collect::<Vec<_>>();
    let ids = [a.id(), b.id()];
    assert_eq!(order(), ids);
    let busy = a.busy();
    assert_eq!(order(), [ids[1], ids[0]]);
    let _busy = b.busy();
    assert_eq!(order(), ids, "one as the other");
    drop(busy);
    a.load.note_late();
    assert_eq!(order(), [ids[1], ids[0]], "lateness is worse");
}
