//! Which stream controls a run.

use super::*;

#[test]
fn only_the_latest_attempt_ends_a_run_and_a_refused_one_never_was() {
    let attempts = Attempts::default();
    let header = CommandHeader { run: 1, ..CommandHeader::default() };
    let first = attempts.begin(&header);
    let second = attempts.begin(&header);
    let refused = attempts.begin(&header);
    assert!(!attempts.speaks(&header, second) && attempts.speaks(&header, refused));
    assert!(!attempts.withdraw(&header, refused), "it is the second's again");
    assert!(attempts.speaks(&header, second));
    assert!(!attempts.end(&header, first));
    assert!(attempts.end(&header, second));
    assert!(!attempts.end(&header, second), "once");
    let other = CommandHeader { run: 2, ..header };
    let refused = attempts.begin(&other);
    assert!(!attempts.withdraw(&other, refused));
    assert!(!attempts.end(&other, refused));
}

#[test]
fn a_run_whose_stream_ended_while_it_was_asked_for_again_is_nobodys() {
    let attempts = Attempts::default();
    let header = CommandHeader { run: 1, ..CommandHeader::default() };
    let first = attempts.begin(&header);
    let second = attempts.begin(&header);
    assert!(!attempts.end(&header, first), "the second speaks for it");
    assert!(attempts.withdraw(&header, second), "and was refused: it is to be released");
    assert!(!attempts.withdraw(&header, second) && !attempts.end(&header, first), "once");
}
