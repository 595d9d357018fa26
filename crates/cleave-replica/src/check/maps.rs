//! Checks version maps: their VIDs, against directories and pages.

use cleave_store::{SegmentId, VersionRun};

use super::pages::Damaged;
use super::{CheckReport, Fault, Place, Work};

/// Compares the map with the directories of its segments: no page is read.
pub(super) fn check(work: &Work, report: &mut CheckReport) {
    let map = &work.tablet.version_map;
    for run in map.runs() {
        report.counts.map_entries += run.vid_count;
        let place = Place { segment: Some(run.segment), ..work.place() };
        let Some(directory) = work.placement.segment(run.segment) else {
            let fault = format!(
                "the version map has VIDs {} to {} in this segment, which the table does not have",
                run.vid_first,
                run.vid_end()
            );
            report.findings.add(place, Fault::Map(fault));
            continue;
        };
        let mut vid = run.vid_first;
        while vid < run.vid_end() {
            let Some((entry, slot)) = directory.slot_of(vid) else {
                // Pruned.
                if map.is_dead(vid) {
                    vid += 1;
                    continue;
                }
                let fault = format!("the version map has VID {vid} here, and no page has it");
                report.findings.add(place, Fault::Map(fault));
                break;
            };
            let slot = u32::from(slot);
            let behind = entry.gaps.next_behind(slot).unwrap_or(entry.page.row_count);
            vid = vid.saturating_add(u64::from(behind.saturating_sub(slot)).max(1));
        }
    }
    let beyond = map.dead_in(work.tablet.next_vid, u64::MAX - work.tablet.next_vid).next();
    if let Some(vid) = beyond {
        let fault = format!("the version map says that VID {vid} is dead, which no row ever had");
        report.findings.add(work.place(), Fault::Map(fault));
    }
    if map.vid_end() > work.tablet.next_vid {
        let fault = format!(
            "the version map reaches to VID {}, and the next row would get {}",
            map.vid_end(),
            work.tablet.next_vid
        );
        report.findings.add(work.place(), Fault::Map(fault));
    }
}

/// Compares how many rows the map has with how many the pages have.
pub(super) fn check_rows(work: &Work, damaged: &Damaged, report: &mut CheckReport) {
    let known = rows_known(work);
    if damaged.is_empty() && damaged.rows != known {
        let fault = format!("the version map has {known} rows, and pages have {}", damaged.rows);
        report.findings.add(work.place(), Fault::Map(fault));
    }
}

/// Rows that the version map knows, but for those that were pruned.
fn rows_known(work: &Work) -> u64 {
    let map = &work.tablet.version_map;
    let on_pages = |run: &VersionRun| {
        let directory = work.placement.segment(run.segment);
        let is_on_page = |vid: &u64| directory.is_some_and(|found| found.slot_of(*vid).is_some());
        let dead = map.dead_in(run.vid_first, run.vid_count);
        let pruned = dead.filter(|vid| !is_on_page(vid)).count();
        run.vid_count.saturating_sub(pruned as u64)
    };
    map.runs().iter().map(on_pages).sum()
}

/// Why the map or the directory does not have `vid` in `slot` of a page.
pub(super) fn judge(
    work: &Work,
    segment: SegmentId,
    page: u32,
    slot: u16,
    vid: u64,
) -> Result<(), String> {
    match work.tablet.version_map.place_of(vid) {
        None => Err(format!("the version map does not know VID {vid}")),
        Some(named) if named != segment => Err(format!("the version map has VID {vid} in {named}")),
        Some(_) => {
            let directory = work.placement.segment(segment);
            match directory.and_then(|directory| directory.slot_of(vid)) {
                Some((entry, found)) if (entry.page.page, found) == (page, slot) => Ok(()),
                Some((entry, found)) => {
                    let page = entry.page.page;
                    Err(format!("the directory has VID {vid} on page {page}, slot {found}"))
                }
                None => Err(format!("the directory does not have VID {vid}")),
            }
        }
    }
}
