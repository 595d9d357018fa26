//! Random histories of inserted, deleted and pruned rows, against a map of the rows that exist.

use cleave_media::SplitMix64;

use super::*;

#[test]
fn what_has_dead_stays_so_however_it_is_pruned() {
    for seed in 0..12 {
        let mut random = SplitMix64::new(seed);
        let mut below = |limit: u64| random.next_u64() % limit.max(1);
        let mut map = VersionMap::new();
        let mut live: BTreeMap<u64, SegmentId> = BTreeMap::new();
        let mut segments: Vec<SegmentId> = Vec::new();
        let (mut end, mut next) = (0, 1);
        for _ in 0..24 {
            let known = map.clone();
            // The last ones die while segments are rewritten.
            let (from, count) = (below(end), below(2500));
            let ends: Vec<u64> = match below(3) {
                0 => live.range(from..from + count).map(|(vid, _)| *vid).collect(),
                _ => (0..count / 10)
                    .map(|_| below(end))
                    .filter(|vid| live.contains_key(vid))
                    .collect(),
            };
            for vid in ends {
                assert_eq!(map.end(vid), live.remove(&vid).is_some());
            }
            if below(2) == 0 {
                let (vid_count, segment) = (1 + below(2000), SegmentId(next));
                map.append_run(VersionRun { vid_first: end, vid_count, segment }).unwrap();
                live.extend((end..end + vid_count).map(|vid| (vid, segment)));
                segments.push(segment);
                end += vid_count;
            } else if !segments.is_empty() {
                let first = usize::try_from(below(segments.len() as u64)).unwrap();
                let last = (first + 1 + usize::try_from(below(3)).unwrap()).min(segments.len());
                let new = SegmentId(next);
                let old: BTreeSet<SegmentId> = segments.splice(first..last, [new]).collect();
                map.move_runs(&old, &known, new);
                live.values_mut().filter(|own| old.contains(&**own)).for_each(|own| *own = new);
                map = VersionMap::decode(&map.encode()).unwrap();
            }
            next += 1;
            assert_eq!((map.live_count(), map.vid_end()), (live.len() as u64, end), "seed {seed}");
            assert_eq!(map.dead_in(0, end).count() as u64, map.dead_count(), "seed {seed}");
            let mut gone = map.gone().into_iter().peekable();
            for vid in 0..end {
                let place = live.get(&vid).copied();
                assert_eq!(map.lookup(vid), place, "seed {seed}, VID {vid}");
                assert_eq!(map.is_dead(vid), place.is_none(), "seed {seed}, VID {vid}");
                let _passed = gone.next_if(|(_, last)| *last <= vid);
                let is_gone = gone.peek().is_some_and(|(first, _)| *first <= vid);
                assert_eq!(is_gone, place.is_none(), "seed {seed}, VID {vid}");
            }
            assert!(!map.is_dead(end), "seed {seed}");
        }
    }
}
