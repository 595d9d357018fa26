//! All sequences in which grants are given, shown and ended while commands are lost, late and repeated and the device
//! is started again, over the state that the device itself uses: [`Grants`].

use std::collections::VecDeque;

use super::*;

/// The grants that the host gives.
const NUMBERS: [u64; 2] = [1, 2];

/// A command of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Message {
    Give(u64),
    End(u64),
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// The host gives a grant, once.
    Gives(u64),
    /// It ends it, whether or not it knows that it was given; and says so again, over another connection.
    Ends(u64),
    /// A command arrives, and may arrive again.
    Arrives(Message),
    Loses(Message),
    /// A bearer connects.
    Shows(u64),
    /// The device's process is replaced. A connection leads to one process.
    Restarts,
}

/// A host, a device, bearers, and what is between them.
#[derive(Debug)]
struct World {
    device: Grants,
    /// Grants that the host has given, and those of them that it ends.
    given: BTreeSet<u64>,
    ending: BTreeSet<u64>,
    /// On their way, in no order.
    under_way: BTreeSet<Message>,
    /// Grants that this process of the device has heard of, and those whose end it has.
    heard: BTreeSet<u64>,
    told: BTreeSet<u64>,
    /// Who is connected, and by which grant.
    let_in: BTreeMap<u64, Arc<HeldGrant>>,
    has_restarted: bool,
}

/// What tells one state from another.
type Key = (
    [BTreeSet<u64>; 4],
    BTreeSet<Message>,
    BTreeSet<u64>,
    BTreeSet<u64>,
    BTreeMap<u64, bool>,
    bool,
);

impl World {
    fn new() -> Self {
        Self {
            device: Grants::of(OWNER),
            given: BTreeSet::new(),
            ending: BTreeSet::new(),
            under_way: BTreeSet::new(),
            heard: BTreeSet::new(),
            told: BTreeSet::new(),
            let_in: BTreeMap::new(),
            has_restarted: false,
        }
    }

    /// The state after `path`; None: a step of it cannot be made, or changes nothing.
    fn after(path: &[Step]) -> Option<Self> {
        let mut world = Self::new();
        path.iter().all(|step| world.take(*step)).then_some(world)
    }

    fn take(&mut self, step: Step) -> bool {
        match step {
            Step::Gives(number) => {
                self.given.insert(number) && self.under_way.insert(Message::Give(number))
            }
            Step::Ends(number) => {
                self.ending.insert(number);
                self.given.contains(&number) && self.under_way.insert(Message::End(number))
            }
            Step::Arrives(message) => {
                let is_there = self.under_way.contains(&message);
                if is_there {
                    self.serve(message);
                }
                is_there
            }
            Step::Loses(message) => self.under_way.remove(&message),
            Step::Shows(number) => {
                let found = self.device.find(number, &secret_of(number));
                found.is_some_and(|held| self.let_in.insert(number, held).is_none())
            }
            Step::Restarts => {
                self.device = Grants::of(OWNER);
                self.under_way.clear();
                self.heard.clear();
                self.told.clear();
                self.let_in.clear();
                !std::mem::replace(&mut self.has_restarted, true)
            }
        }
    }

    /// The device hears `message`.
    fn serve(&mut self, message: Message) {
        match message {
            Message::Give(number) => {
                let grant = Grant { secret: secret_of(number), ..grant(number, &[]) };
                let is_given = self.device.add(grant).is_ok();
                assert_ne!(is_given, self.told.contains(&number), "{self:?}");
                self.heard.insert(number);
            }
            Message::End(number) => {
                self.device.end(number);
                self.told.insert(number);
            }
        }
    }

    fn check(&self) {
        for number in NUMBERS {
            let found = self.device.find(number, &secret_of(number));
            let is_due = self.heard.contains(&number) && !self.told.contains(&number);
            assert_eq!(found.is_some(), is_due, "grant {number}: {self:?}");
            assert!(self.device.find(number, &secret_of(number + 1)).is_none(), "{self:?}");
            if let Some(held) = self.let_in.get(&number) {
                assert_eq!(held.has_ended(), !is_due, "who shows grant {number}: {self:?}");
                assert_eq!(held.may_attach(5, 1), is_due, "{self:?}");
            }
        }
        let places = self.device.held.values().map(|held| held.place_count());
        assert_eq!(self.device.place_count, places.sum::<usize>(), "{self:?}");
    }

    /// Whether nothing is held once the host has been heard, and all else has come that may come.
    fn check_end(mut self) {
        if self.ending != self.given {
            return;
        }
        let ends: Vec<Message> = self.ending.iter().map(|number| Message::End(*number)).collect();
        let late = self.under_way.clone();
        ends.into_iter().chain(late).for_each(|message| self.serve(message));
        self.check();
        assert!(self.device.held.is_empty(), "{self:?}");
    }

    fn key(&self) -> Key {
        let of_host = [&self.given, &self.ending, &self.heard, &self.told].map(BTreeSet::clone);
        let held = self.device.held.keys().copied().collect();
        let let_in = self.let_in.iter().map(|(number, held)| (*number, held.has_ended()));
        (
            of_host,
            self.under_way.clone(),
            held,
            self.device.ended.clone(),
            let_in.collect(),
            self.has_restarted,
        )
    }
}

fn secret_of(number: u64) -> PeerSecret {
    secret(u8::try_from(number).unwrap())
}

#[test]
fn a_grant_is_good_from_its_command_to_its_end_whatever_is_lost_late_or_doubled() {
    let of_one = |number| {
        let messages = [Message::Give(number), Message::End(number)];
        let own = [Step::Gives(number), Step::Ends(number), Step::Shows(number)];
        let under_way =
            messages.into_iter().flat_map(|message| [Step::Arrives(message), Step::Loses(message)]);
        own.into_iter().chain(under_way).collect::<Vec<_>>()
    };
    let mut steps: Vec<Step> = NUMBERS.into_iter().flat_map(of_one).collect();
    steps.push(Step::Restarts);
    let mut known = BTreeSet::from([World::new().key()]);
    let mut open = VecDeque::from([Vec::new()]);
    while let Some(path) = open.pop_front() {
        for step in &steps {
            let next: Vec<Step> = path.iter().chain([step]).copied().collect();
            let Some(world) = World::after(&next) else { continue };
            if !known.insert(world.key()) {
                continue;
            }
            world.check();
            world.check_end();
            open.push_back(next);
        }
    }
    assert!(known.len() > 1_500, "only {} states were seen", known.len());
}
