//! An entry against a list.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use proptest::prelude::*;

use super::*;

const FORMATS: [SlotFormat; 3] = [SlotFormat::EIGHT, SlotFormat::SIXTEEN, SlotFormat::FOUR];

fn job(number: u16) -> JobId {
    JobId::new(number).unwrap()
}

fn empty(format: SlotFormat) -> Queue {
    Queue::sound(0, format).unwrap()
}

#[test]
fn seven_jobs_and_always_the_host() {
    for (format, jobs) in [(SlotFormat::EIGHT, 7), (SlotFormat::SIXTEEN, 15), (SlotFormat::FOUR, 3)]
    {
        let mut queue = empty(format);
        for number in 1..=jobs {
            queue = queue.with_job(job(number)).unwrap();
        }
        assert_eq!(queue.with_job(job(200)), None, "the last slot is the host's");
        let queue = queue.with_host().unwrap();
        assert_eq!(queue.tail(), Some(Holder::Host));
        assert_eq!(queue.with_host(), None, "its slot is shared");
        assert_eq!(queue.head(), Some(Holder::Job(job(1))));
    }
    // Host and jobs alternate, as in the paper: four of each.
    let mut queue = empty(SlotFormat::EIGHT);
    for number in 1..=4 {
        queue = queue.with_job(job(number)).unwrap().with_host().unwrap();
    }
    assert_eq!((queue.host_count(), queue.with_job(job(9))), (4, None));
    assert_eq!(queue.place_of_host(3), Some(7));
}

#[test]
fn entries_that_nobody_writes_are_unsound() {
    let slots = |slots: [u16; 8]| {
        slots.iter().rev().fold(0_u128, |bits, slot| bits << 16 | u128::from(*slot))
    };
    let sound = |bits| Queue::sound(bits, SlotFormat::EIGHT).is_some();
    assert!(sound(slots([1, 2, 0xffff, 3, 0xffff, 0xffff, 4, 0xffff])));
    for (wrong, why) in [
        (slots([0, 1, 0, 0, 0, 0, 0, 0]), "no holder"),
        (slots([1, 0, 2, 0, 0, 0, 0, 0]), "a gap"),
        (slots([1, 2, 1, 0, 0, 0, 0, 0]), "a job twice"),
        (slots([1, 2, 3, 4, 5, 6, 7, 8]), "a job in the host's slot"),
    ] {
        assert!(!sound(wrong), "{why}");
    }
    assert!(Queue::sound(1 << 64, SlotFormat::FOUR).is_none(), "longer than the model's");
}

#[test]
fn numbers_of_jobs() {
    assert!(JobId::new(0).is_none() && JobId::new(u16::MAX).is_none());
    assert!(SlotFormat::EIGHT.admits(job(0xfffe)));
    assert!(SlotFormat::SIXTEEN.admits(job(254)) && !SlotFormat::SIXTEEN.admits(job(255)));
}

fn config() -> ProptestConfig {
    if cfg!(miri) {
        return ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() };
    }
    ProptestConfig::default()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn an_entry_is_a_list(
        format in 0_usize..3,
        steps in proptest::collection::vec((0_u8..3, 1_u16..20), 1..80),
    ) {
        let format = FORMATS[format];
        let mut queue = empty(format);
        let mut list: Vec<Holder> = Vec::new();
        for (step, number) in steps {
            let holder = Holder::Job(job(number));
            match step {
                0 if list.contains(&holder) => {
                    let place = list.iter().position(|other| *other == holder);
                    prop_assert_eq!(queue.place_of(job(number)).map(|place| place as usize), place);
                }
                0 => {
                    let with = queue.with_job(job(number));
                    prop_assert_eq!(with.is_some(), list.len() + 1 < format.slot_count as usize);
                    if let Some(with) = with {
                        queue = with;
                        list.push(holder);
                    }
                }
                1 => {
                    let with = queue.with_host();
                    prop_assert_eq!(with.is_none(), list.last() == Some(&Holder::Host));
                    if let Some(with) = with {
                        queue = with;
                        list.push(Holder::Host);
                    }
                }
                _ if list.is_empty() => {}
                _ => {
                    let place = usize::from(number) % list.len();
                    queue = queue.without(u32::try_from(place).unwrap());
                    list.remove(place);
                }
            }
            prop_assert_eq!(Queue::sound(queue.bits(), format), Some(queue));
            prop_assert_eq!(queue.holders().collect::<Vec<_>>(), list.clone());
            prop_assert_eq!((queue.head(), queue.tail()), (list.first().copied(), list.last().copied()));
            let hosts = list.iter().enumerate().filter(|(_, holder)| **holder == Holder::Host);
            let hosts: Vec<_> = hosts.map(|(place, _)| u32::try_from(place).unwrap()).collect();
            prop_assert_eq!(queue.host_count(), hosts.len());
            for (index, place) in hosts.iter().enumerate() {
                prop_assert_eq!(queue.place_of_host(index), Some(*place));
            }
        }
    }

    #[test]
    fn whatever_bits_an_entry_holds_nothing_panics(bits: u128, narrow: bool, format in 0_usize..3) {
        let bits = if narrow { bits & 0xffff_0003_0002_0001_ffff } else { bits };
        if let Some(queue) = Queue::sound(bits, FORMATS[format]) {
            prop_assert!(queue.holders().count() <= FORMATS[format].slot_count as usize);
            prop_assert_eq!(queue.head().is_none(), bits == 0);
        }
    }
}
