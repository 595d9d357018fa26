//! Who helps whom, step by step and at random.

use proptest::prelude::*;

use super::*;

fn engines(cores: &[u32]) -> Engines {
    let mut engines = Engines::default();
    for (number, cores) in cores.iter().enumerate() {
        assert_eq!(engines.add(*cores), number);
    }
    engines
}

fn loan(helper: usize, engine: usize) -> Loan {
    Loan { helper, engine }
}

#[test]
fn only_an_idle_engine_helps() {
    let mut engines = engines(&[1, 1]);
    engines.begin(0);
    engines.begin(1);
    assert_eq!(engines.grant(&[loan(1, 0)], &[9, 0]), None);
    engines.rest(1);
    assert_eq!(engines.grant(&[loan(1, 0)], &[0, 9]), None, "nothing is left to help with");
    assert_eq!(engines.grant(&[loan(1, 0)], &[9, 0]), Some(0));
    assert_eq!(engines.grant(&[loan(1, 0)], &[9, 0]), None, "its only core is lent");
}

#[test]
fn own_work_takes_its_core_back_at_the_next_morsel() {
    let mut engines = engines(&[1, 2]);
    let waiting = [loan(1, 0), loan(1, 0)];
    assert_eq!(engines.grant(&waiting, &[9, 0]), Some(0));
    assert_eq!(engines.grant(&waiting[1..], &[9, 0]), Some(0));
    assert!(engines.goes_on(waiting[0]));
    engines.begin(1);
    assert!(!engines.goes_on(waiting[0]), "three want two cores");
    assert!(engines.goes_on(waiting[1]));
    assert_eq!(engines.grant(&waiting[..1], &[9, 0]), None);
    engines.rest(1);
    assert_eq!(engines.grant(&waiting[..1], &[9, 0]), Some(0));
    engines.leave(1);
    assert!(!engines.goes_on(waiting[1]));
    assert_eq!(engines.lent(1), 1);
}

#[test]
fn the_engine_with_most_left_for_each_worker_is_helped() {
    let mut engines = engines(&[1, 1, 4]);
    engines.begin(0);
    engines.begin(1);
    let waiting = [loan(2, 0), loan(2, 1)];
    let mut granted = || engines.grant(&waiting, &[60, 100]).map(|place| waiting[place].engine);
    // 60 / 2 and 100 / 2; 60 / 2 and 100 / 3; 60 / 2 and 100 / 4; 60 / 3 and 100 / 4.
    let four = [granted(), granted(), granted(), granted()];
    assert_eq!(four, [Some(1), Some(1), Some(0), Some(1)]);
    assert_eq!(granted(), None);
}

#[test]
fn a_run_asks_the_idlest_engines_each_in_turn() {
    let mut engines = engines(&[2, 2, 1, 2, 0]);
    assert_eq!(engines.helpers(0, 9, |_| true), [1, 3, 2, 1, 3]);
    assert_eq!(engines.helpers(1, 3, |_| true), [3, 0, 2], "those after it first");
    engines.begin(3);
    assert_eq!(engines.helpers(0, 2, |_| true), [1, 2]);
    assert_eq!(engines.helpers(0, 9, |other| other == 3), [3, 3], "a busy one may help later");
    assert!(engines.helpers(0, 0, |_| true).is_empty());
    assert!(Engines::default().helpers(0, 5, |_| true).is_empty());
    let many = self::engines(&[1; 64]);
    assert_eq!(many.helpers(60, 8, |_| true), [61, 62, 63, 0, 1, 2, 3, 4]);
}

/// One step of a node, on the engine or loan of that number.
#[derive(Debug, Clone)]
enum Step {
    Begin(usize),
    Rest(usize),
    Wait(Loan),
    /// A granted loan comes to the end of its morsel.
    Morsel(usize),
    End(usize),
    Queue(usize, u64),
}

fn step(count: usize) -> impl Strategy<Value = Step> {
    let engine = 0..count;
    let loan = (0..count, 0..count).prop_filter("an engine does not help itself", |(a, b)| a != b);
    prop_oneof![
        engine.clone().prop_map(Step::Begin),
        engine.clone().prop_map(Step::Rest),
        loan.prop_map(|(helper, engine)| Step::Wait(Loan { helper, engine })),
        (0..64_usize).prop_map(Step::Morsel),
        (0..64_usize).prop_map(Step::End),
        (engine, 0..20_u64).prop_map(|(engine, left)| Step::Queue(engine, left)),
    ]
}

proptest! {
    #[test]
    fn idle_cores_help_and_own_work_waits_for_a_morsel_at_most(
        cores in prop::collection::vec(0..4_u32, 2..6),
        steps in prop::collection::vec(step(6), 1..200),
    ) {
        let count = cores.len();
        let mut engines = engines(&cores);
        let mut own = vec![0_u32; count];
        let mut queues = vec![0_u64; count];
        let (mut waiting, mut granted): (Vec<Loan>, Vec<Loan>) = (Vec::new(), Vec::new());
        let lent_by = |granted: &[Loan], engine: usize| {
            let of_it = granted.iter().filter(|loan| loan.helper == engine);
            u32::try_from(of_it.count()).unwrap()
        };
        for step in steps {
            match step {
                Step::Begin(engine) if engine < count => {
                    own[engine] += 1;
                    engines.begin(engine);
                }
                Step::Rest(engine) if engine < count && own[engine] > 0 => {
                    own[engine] -= 1;
                    engines.rest(engine);
                }
                Step::Wait(loan) if loan.helper.max(loan.engine) < count => waiting.push(loan),
                Step::Morsel(place) if !granted.is_empty() => {
                    let place = place % granted.len();
                    let loan = granted[place];
                    let fits = own[loan.helper] + lent_by(&granted, loan.helper)
                        <= cores[loan.helper];
                    prop_assert_eq!(engines.goes_on(loan), fits);
                    if !fits {
                        waiting.push(granted.remove(place));
                    }
                }
                Step::End(place) if !granted.is_empty() => {
                    engines.end(granted.remove(place % granted.len()));
                }
                Step::Queue(engine, left) if engine < count => queues[engine] = left,
                _ => {}
            }
            while let Some(place) = engines.grant(&waiting, &queues) {
                let loan = waiting.remove(place);
                prop_assert!(queues[loan.engine] > 0);
                granted.push(loan);
                let busy = own[loan.helper] + lent_by(&granted, loan.helper);
                prop_assert!(busy <= cores[loan.helper], "no core was idle");
            }
            for loan in &waiting {
                let busy = own[loan.helper] + lent_by(&granted, loan.helper);
                prop_assert!(
                    busy >= cores[loan.helper] || queues[loan.engine] == 0,
                    "{loan:?} waits for an idle core"
                );
            }
            for engine in 0..count {
                prop_assert_eq!(engines.lent(engine), lent_by(&granted, engine));
            }
        }
    }
}
