//! Groups of the paper's example; that groups are those of the rule, and a partition, whatever the queries are; that
//! groups on one device run one after the other, and those on different devices beside each other.

use proptest::prelude::{prop, prop_assert, prop_assert_eq, proptest};

use super::*;

const TABLE: u32 = 7;

fn query(devices: &[u32], filters: &[u32], outputs: &[u32]) -> BatchQuery {
    let columns = |columns: &[u32]| columns.iter().map(|column| (TABLE, *column)).collect();
    BatchQuery {
        devices: devices.iter().copied().collect(),
        filters: columns(filters),
        outputs: columns(outputs),
    }
}

#[test]
fn the_papers_example_has_two_groups() {
    // SELECT x WHERE ke > 0.1; z WHERE x > 0.2; x WHERE ke > 0.2; z WHERE x > 0.3; z WHERE x < 0.8; x WHERE ke < 0.9
    let (x, z, ke) = (1, 3, 7);
    let by_ke = || query(&[1], &[ke], &[x]);
    let by_x = || query(&[1], &[x], &[z]);
    let queries = [by_ke(), by_x(), by_ke(), by_x(), by_x(), by_ke()];
    assert_eq!(queries[0].reuse(&queries[2]), 11);
    assert_eq!(queries[0].reuse(&queries[1]), 0, "x is an output here and a filter there");
    let both = [vec![0, 2, 5], vec![1, 3, 4]];
    assert_eq!(groups(&queries, 10, 8), both);
    assert_eq!(groups(&queries, 11, 3), both);
    // A group that is full leaves the others to the next one.
    assert_eq!(groups(&queries, 10, 2), [vec![0, 2], vec![1, 3], vec![4], vec![5]]);
    let alone: Vec<Vec<usize>> = (0..6).map(|place| vec![place]).collect();
    assert_eq!(groups(&queries, 12, 8), alone, "two are not enough");
    assert_eq!(groups(&queries, 10, 1), alone);
    assert_eq!(groups(&queries, 10, 0), alone);
    assert!(groups(&[], 10, 8).is_empty());
}

#[test]
fn the_sum_over_the_group_decides() {
    // The last two share an output with the first; the third shares filters with the second.
    let queries = [
        query(&[1], &[1], &[9]),
        query(&[1], &[1, 2], &[9]),
        query(&[1], &[2], &[9]),
        query(&[1], &[3], &[9]),
    ];
    // 2 scores 1 with 0, and 1 + 11 with 0 and 1.
    assert_eq!(groups(&queries, 10, 8), [vec![0, 1, 2], vec![3]]);
    assert_eq!(groups(&queries, 3, 8), [vec![0, 1, 2, 3]], "one output with each of three");
    assert_eq!(groups(&queries, 0, 3), [vec![0, 1, 2], vec![3]]);
}

#[test]
fn groups_on_different_devices_run_beside_each_other() {
    let queries = [query(&[1], &[1], &[]), query(&[1, 2], &[2], &[]), query(&[2], &[3], &[])];
    let made = groups(&queries, 10, 8);
    let mut course = Course::of_groups(&made, &queries);
    assert_eq!([course.begin(), course.begin(), course.begin()], [Some(0), Some(2), None]);
    course.ended(0);
    assert_eq!(course.begin(), None, "one of its devices is in use");
    course.ended(2);
    assert_eq!([course.begin(), course.begin()], [Some(1), None]);
    course.ended(1);
    assert_eq!(course.begin(), None);
}

/// [`groups`] by its rule, with each two queries compared.
fn compared(queries: &[BatchQuery], reuse_min: u64, size_max: usize) -> Vec<Vec<usize>> {
    let mut left: Vec<usize> = (0..queries.len()).collect();
    let mut groups = Vec::new();
    while !left.is_empty() {
        let mut group = vec![left.remove(0)];
        while group.len() < size_max {
            let score = |place: usize| -> u64 {
                group.iter().map(|member| queries[*member].reuse(&queries[place])).sum()
            };
            let enough = left.iter().enumerate().map(|(at, place)| (score(*place), at));
            let enough = enough.filter(|(score, _)| *score >= reuse_min);
            let Some((_, at)) = enough.max_by_key(|(score, at)| (*score, Reverse(*at))) else {
                break;
            };
            group.push(left.remove(at));
        }
        groups.push(group);
    }
    groups
}

proptest! {
    #[test]
    fn each_query_is_in_one_group_and_begins_once(
        drawn in prop::collection::vec(
            (
                prop::collection::btree_set(0..4_u32, 0..3),
                prop::collection::btree_set((0..2_u32, 0..4_u32), 0..4),
                prop::collection::btree_set((0..2_u32, 0..4_u32), 0..4),
            ),
            0..40,
        ),
        reuse_min in 0..40_u64,
        size_max in 0..9_usize,
        ends in prop::collection::vec(0..9_usize, 1..9),
    ) {
        let query = |(devices, filters, outputs)| BatchQuery { devices, filters, outputs };
        let queries: Vec<BatchQuery> = drawn.into_iter().map(query).collect();
        let made = groups(&queries, reuse_min, size_max);
        prop_assert_eq!(&made, &compared(&queries, reuse_min, size_max));
        let mut members: Vec<usize> = made.iter().flatten().copied().collect();
        members.sort_unstable();
        prop_assert_eq!(members, (0..queries.len()).collect::<Vec<_>>());
        let firsts: Vec<usize> = made.iter().map(|group| group[0]).collect();
        prop_assert!(firsts.is_sorted());
        for group in &made {
            prop_assert!(group.len() <= size_max.max(1));
            for (count, member) in group.iter().enumerate().skip(1) {
                let before = group[..count].iter();
                let score: u64 =
                    before.map(|other| queries[*other].reuse(&queries[*member])).sum();
                prop_assert!(score >= reuse_min);
            }
        }
        let devices = |group: usize| -> BTreeSet<u32> {
            made[group].iter().flat_map(|place| queries[*place].devices.iter().copied()).collect()
        };
        let mut course = Course::of_groups(&made, &queries);
        let (mut running, mut begun) = (Vec::<usize>::new(), Vec::new());
        let mut ends = ends.iter().cycle();
        loop {
            while let Some(group) = course.begin() {
                let apart = |other: &usize| devices(*other).is_disjoint(&devices(group));
                prop_assert!(running.iter().all(apart));
                running.push(group);
                begun.push(group);
            }
            let Some(last) = running.len().checked_sub(1) else { break };
            course.ended(running.remove(*ends.next().unwrap() % (last + 1)));
        }
        begun.sort_unstable();
        prop_assert_eq!(begun, (0..made.len()).collect::<Vec<_>>());
    }
}
