//! Which stream controls a run.

use super::*;

#[test]
fn only_the_latest_attempt_ends_a_run_and_a_refused_one_never_was() {
    let attempts = Attempts::default();
    let header = CommandHeader { run: 1, ..CommandHeader::default() };
    let first = attempts.begin(&header, None);
    let second = attempts.begin(&header, None);
    let refused = attempts.begin(&header, None);
    assert!(!attempts.speaks(&header, second) && attempts.speaks(&header, refused));
    assert!(!attempts.withdraw(&header, refused), "it is the second's again");
    assert!(attempts.speaks(&header, second));
    assert!(!attempts.end(&header, first));
    assert!(attempts.end(&header, second));
    assert!(!attempts.end(&header, second), "once");
    let other = CommandHeader { run: 2, ..header };
    let refused = attempts.begin(&other, None);
    assert!(!attempts.withdraw(&other, refused));
    assert!(!attempts.end(&other, refused));
}

#[test]
fn a_run_whose_stream_ended_while_it_was_asked_for_again_is_nobodys() {
    let attempts = Attempts::default();
    let header = CommandHeader { run: 1, ..CommandHeader::default() };
    let first = attempts.begin(&header, None);
    let second = attempts.begin(&header, None);
    assert!(!attempts.end(&header, first), "the second speaks for it");
    assert!(attempts.withdraw(&header, second), "and was refused: it is to be released");
    assert!(!attempts.withdraw(&header, second) && !attempts.end(&header, first), "once");
}

#[test]
fn streams_of_two_outputs_do_not_disturb_each_other() {
    let attempts = Attempts::default();
    let header = CommandHeader { run: 1, ..CommandHeader::default() };
    let (one, other) = (attempts.begin(&header, Some(0)), attempts.begin(&header, Some(1)));
    assert!(attempts.speaks(&header, one) && attempts.speaks(&header, other));
    let run = attempts.begin(&header, None);
    assert!(attempts.end(&header, one) && attempts.speaks(&header, other));
    assert!(attempts.end(&header, run));
    assert!(attempts.end(&header, other));
}
