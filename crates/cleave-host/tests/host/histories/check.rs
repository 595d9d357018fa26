//! The check of a history of appends and reads: the transactions as clients saw them in, Adya's phenomena out.
//!
//! 1. The final lists give the order of the appends to each of them: the versions of a key.
//! 2. Reads of rolled back appends, or of a part of a transaction's appends, are found at once.
//! 3. Dependencies among committed transactions: the next append (ww), a read of an append (wr), a read of what the
//!    next append changed (rw). A cycle is classified by the dependencies that it needs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// An action of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Op {
    Append {
        key: u64,
        value: u64,
        /// It was not rolled back to a savepoint before it.
        is_kept: bool,
    },
    Read {
        key: u64,
        elements: Vec<u64>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Transaction {
    pub(super) ops: Vec<Op>,
    pub(super) is_committed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Anomaly {
    /// G0: a cycle of writes.
    DirtyWrite,
    /// G1a.
    AbortedRead,
    /// G1b.
    IntermediateRead,
    /// G1c: a cycle of writes and reads of them.
    CircularInformation,
    /// A committed append is missing, or there twice, or a list was read that never existed.
    Lost,
    /// G-single: a cycle with one read that another transaction's write has invalidated.
    ReadSkew,
    /// G2: a cycle with several of them.
    WriteSkew,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) anomaly: Anomaly,
    /// Transactions that are part of it, by their places in the history.
    pub(super) among: Vec<usize>,
    pub(super) what: String,
}

/// The order of transactions, with the kind of dependency.
#[derive(Default)]
struct Edges {
    writes: BTreeSet<(usize, usize)>,
    reads: BTreeSet<(usize, usize)>,
    overtaken: BTreeSet<(usize, usize)>,
}

/// The faults in `history`, after which the lists are `ends`.
pub(super) fn check(history: &[Transaction], ends: &BTreeMap<u64, Vec<u64>>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let writers = writers(history);
    lost(history, ends, &writers, &mut findings);
    let mut edges = Edges::default();
    for (key, elements) in ends {
        let order: Vec<usize> = elements.iter().filter_map(|e| Some(writers.get(e)?.0)).collect();
        for pair in order.windows(2) {
            if let [one, other] = pair {
                add(&mut edges.writes, *one, *other);
            }
        }
        let none = Vec::new();
        for (place, transaction) in history.iter().enumerate() {
            let mut own: Vec<u64> = Vec::new();
            for op in &transaction.ops {
                match op {
                    Op::Append { key: of, value, is_kept: true } if of == key => own.push(*value),
                    Op::Read { key: of, elements: read } if of == key => {
                        let read = (place, *key, read.as_slice());
                        let own = if own.is_empty() { &none } else { &own };
                        reads(history, elements, &writers, read, own, &mut edges, &mut findings);
                    }
                    _ => {}
                }
            }
        }
    }
    cycles(&edges, &mut findings);
    findings
}

/// The transaction that appended each value, and whether that was to stay.
fn writers(history: &[Transaction]) -> BTreeMap<u64, (usize, bool)> {
    let mut writers = BTreeMap::new();
    for (place, transaction) in history.iter().enumerate() {
        for op in &transaction.ops {
            if let Op::Append { value, is_kept, .. } = op {
                let before = writers.insert(*value, (place, *is_kept && transaction.is_committed));
                assert!(before.is_none(), "{value} is appended twice");
            }
        }
    }
    writers
}

fn add(edges: &mut BTreeSet<(usize, usize)>, from: usize, to: usize) {
    if from != to {
        edges.insert((from, to));
    }
}

/// Appends that are not in the end as often as they should be.
fn lost(
    history: &[Transaction],
    ends: &BTreeMap<u64, Vec<u64>>,
    writers: &BTreeMap<u64, (usize, bool)>,
    findings: &mut Vec<Finding>,
) {
    let mut find = |anomaly, place, what| {
        findings.push(Finding { anomaly, among: vec![place], what });
    };
    for (place, transaction) in history.iter().enumerate() {
        for op in &transaction.ops {
            let Op::Append { key, value, .. } = op else { continue };
            let end = ends.get(key).map_or(&[][..], Vec::as_slice);
            let count = end.iter().filter(|element| *element == value).count();
            let is_there = writers.get(value).is_some_and(|(_, is_there)| *is_there);
            if is_there && count != 1 {
                find(Anomaly::Lost, place, format!("{value} is {count} times in list {key}"));
            }
            if !is_there && count != 0 {
                find(Anomaly::AbortedRead, place, format!("{value} stayed in list {key}"));
            }
        }
    }
}

/// What the transaction at `place` has read of the list `key`, which in the end is `end`; it had itself appended `own`
/// by then.
fn reads(
    history: &[Transaction],
    end: &[u64],
    writers: &BTreeMap<u64, (usize, bool)>,
    (place, key, read): (usize, u64, &[u64]),
    own: &[u64],
    edges: &mut Edges,
    findings: &mut Vec<Finding>,
) {
    let mut find = |anomaly, among, what: String| {
        let what = format!("{what} was read of list {key}: {read:?}, in the end {end:?}");
        findings.push(Finding { anomaly, among, what });
    };
    // Own appends are the last ones, all of them.
    let Some(foreign) = read.strip_suffix(own) else {
        find(Anomaly::Lost, vec![place], format!("not what it had appended, {own:?},"));
        return;
    };
    for element in foreign {
        match writers.get(element) {
            Some((writer, true)) if *writer != place => {}
            Some((writer, _)) => {
                find(Anomaly::AbortedRead, vec![place, *writer], format!("{element}"));
                return;
            }
            None => {
                find(Anomaly::Lost, vec![place], format!("{element}, which nobody appended,"));
                return;
            }
        }
    }
    let is_committed = history.get(place).is_some_and(|one| one.is_committed);
    if !end.starts_with(foreign) {
        find(Anomaly::Lost, vec![place], "what there never was".to_owned());
        return;
    }
    let writer_at = |at: usize| Some(writers.get(end.get(at)?)?.0);
    let next = writer_at(foreign.len()).filter(|next| *next != place);
    let last = foreign.len().checked_sub(1).and_then(writer_at);
    if last.is_some() && last == next {
        find(Anomaly::IntermediateRead, vec![place, next.unwrap_or_default()], "a part".to_owned());
    }
    if !is_committed {
        return;
    }
    if let Some(last) = last {
        add(&mut edges.reads, last, place);
    }
    if let Some(next) = next {
        add(&mut edges.overtaken, place, next);
    }
}

/// The shortest way from one to another.
fn way(edges: &BTreeSet<(usize, usize)>, from: usize, to: usize) -> Option<Vec<usize>> {
    let mut before: BTreeMap<usize, usize> = BTreeMap::new();
    let mut next = VecDeque::from([from]);
    while let Some(at) = next.pop_front() {
        for (_, other) in edges.range((at, 0)..=(at, usize::MAX)) {
            if *other == to {
                let mut way = vec![to, at];
                while let Some(earlier) = way.last().and_then(|last| before.get(last)) {
                    way.push(*earlier);
                }
                way.reverse();
                return Some(way);
            }
            if *other != from && !before.contains_key(other) {
                before.insert(*other, at);
                next.push_back(*other);
            }
        }
    }
    None
}

/// One cycle of each kind that there is; the worst kind for a cycle that is several.
fn cycles(edges: &Edges, findings: &mut Vec<Finding>) {
    let information: BTreeSet<(usize, usize)> = edges.writes.union(&edges.reads).copied().collect();
    let all: BTreeSet<(usize, usize)> = information.union(&edges.overtaken).copied().collect();
    let mut find = |closing: &BTreeSet<(usize, usize)>, by: &BTreeSet<(usize, usize)>, anomaly| {
        let found = closing.iter().find_map(|(from, to)| way(by, *to, *from));
        if let Some(among) = found {
            findings.push(Finding { anomaly, among, what: "a cycle".to_owned() });
            return true;
        }
        false
    };
    if !find(&edges.writes, &edges.writes, Anomaly::DirtyWrite) {
        find(&edges.reads, &information, Anomaly::CircularInformation);
    }
    if !find(&edges.overtaken, &information, Anomaly::ReadSkew) {
        find(&edges.overtaken, &all, Anomaly::WriteSkew);
    }
}

mod tests {
    use super::*;

    fn append(key: u64, value: u64) -> Op {
        Op::Append { key, value, is_kept: true }
    }

    fn read(key: u64, elements: &[u64]) -> Op {
        Op::Read { key, elements: elements.to_vec() }
    }

    fn done(ops: &[Op]) -> Transaction {
        Transaction { ops: ops.to_vec(), is_committed: true }
    }

    fn found(history: &[Transaction], ends: &[(u64, &[u64])]) -> Vec<Anomaly> {
        let ends = ends.iter().map(|(key, elements)| (*key, elements.to_vec())).collect();
        check(history, &ends).into_iter().map(|finding| finding.anomaly).collect()
    }

    #[test]
    fn a_history_in_order_has_nothing_wrong() {
        let history = [
            done(&[append(1, 10), read(1, &[10]), append(1, 11)]),
            done(&[read(1, &[10, 11]), append(2, 20)]),
            Transaction { is_committed: false, ..done(&[append(1, 12), read(1, &[10, 11, 12])]) },
            done(&[read(2, &[20]), append(1, 13)]),
        ];
        assert_eq!(found(&history, &[(1, &[10, 11, 13]), (2, &[20])]), []);
    }

    #[test]
    fn each_phenomenon_is_found() {
        use Anomaly::*;
        let two_writes =
            [done(&[append(1, 10), append(2, 20)]), done(&[append(1, 11), append(2, 21)])];
        assert_eq!(found(&two_writes, &[(1, &[10, 11]), (2, &[21, 20])]), [DirtyWrite]);
        let aborted = Transaction { is_committed: false, ..done(&[append(1, 10)]) };
        assert_eq!(found(&[aborted, done(&[read(1, &[10])])], &[(1, &[])]), [AbortedRead]);
        let undone = done(&[Op::Append { key: 1, value: 10, is_kept: false }]);
        assert_eq!(found(&[undone, done(&[read(1, &[10])])], &[(1, &[])]), [AbortedRead]);
        let parts = [done(&[append(1, 10), append(1, 11)]), done(&[read(1, &[10])])];
        // Which is a cycle as well: it has seen the writer, and it has not.
        let intermediate = found(&parts, &[(1, &[10, 11])]);
        assert_eq!(intermediate, [IntermediateRead, ReadSkew]);
        let circle =
            [done(&[append(1, 10), read(2, &[20])]), done(&[append(2, 20), read(1, &[10])])];
        assert_eq!(found(&circle, &[(1, &[10]), (2, &[20])]), [CircularInformation]);
        let overwritten = [done(&[append(1, 10)]), done(&[append(1, 11)])];
        assert_eq!(found(&overwritten, &[(1, &[11])]), [Lost]);
        let lost_update =
            [done(&[read(1, &[]), append(1, 10)]), done(&[read(1, &[]), append(1, 11)])];
        assert_eq!(found(&lost_update, &[(1, &[10, 11])]), [ReadSkew]);
        let skew = [done(&[append(1, 10), append(2, 20)]), done(&[read(1, &[10]), read(2, &[])])];
        assert_eq!(found(&skew, &[(1, &[10]), (2, &[20])]), [ReadSkew]);
        let writes = [done(&[read(1, &[]), append(2, 20)]), done(&[read(2, &[]), append(1, 10)])];
        assert_eq!(found(&writes, &[(1, &[10]), (2, &[20])]), [WriteSkew]);
        let never = [done(&[append(1, 10)]), done(&[append(1, 11)]), done(&[read(1, &[11])])];
        assert_eq!(found(&never, &[(1, &[10, 11])]), [Lost]);
    }
}
