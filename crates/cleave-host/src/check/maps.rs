//! Version maps: what they say of VIDs, against directories and, where rows have several versions, against pages.

use cleave_store::{
    ChainStep, ChainWalk, ColumnRef, OverflowValues, PageRead, Projection, RecId, RowPlace,
    Snapshot, VersionHeader, VersionPlace, VersionRun, decode_rows,
};
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{Schema, UInt64Type};

use super::pages::{Damaged, is_of_device, read_page};
use super::{CheckReport, Fault, Place, Work};
use crate::error::Result;

/// What a walk reads of a version.
const COLUMNS: [ColumnRef; 4] =
    [ColumnRef::Vid, ColumnRef::Commit, ColumnRef::Predecessor, ColumnRef::Tombstone];

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
                if map.is_ended(vid) {
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
    for (vid, record) in map.overlay() {
        report.counts.map_entries += u64::from(map.run_of(vid).is_none());
        if work.placement.record(record).is_none() {
            let fault =
                format!("the version map has VID {vid} at {record}, where there is no version");
            report.findings.add(work.place(), Fault::Map(fault));
        }
    }
    let beyond = map.ended_in(work.tablet.next_vid, u64::MAX - work.tablet.next_vid).next();
    if let Some(vid) = beyond {
        let fault = format!("the version map says that VID {vid} has ended, which no row ever had");
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

/// Walks the chain of every row that may have several versions, and compares how many there are with the pages.
pub(super) async fn check_chains(work: &Work, damaged: &Damaged, report: &mut CheckReport) {
    let map = &work.tablet.version_map;
    let mut older = 0;
    for (vid, newest) in map.overlay() {
        let mut at = newest;
        // A snapshot that sees nothing walks to the end.
        let mut walk = ChainWalk::new(Snapshot { commit: 0 }, newest);
        loop {
            let Some(place) = work.placement.record(at) else {
                if at != newest {
                    let fault = format!("VID {vid} has a version at {at}, where there is none");
                    report.findings.add(work.place(), Fault::Version(fault));
                }
                break;
            };
            if damaged.has(place.directory.segment, place.entry.page.page) {
                break;
            }
            let fault = match version(work, place).await {
                Ok(Some((found, _))) if found != vid => {
                    format!("VID {vid} has a version at {at}, which is of VID {found}")
                }
                Ok(Some((_, header))) => match walk.step(header) {
                    Ok(ChainStep::Older(record)) => {
                        older += 1;
                        at = record;
                        continue;
                    }
                    Ok(_) => break,
                    Err(error) => error.to_string(),
                },
                Ok(None) => format!("the version of VID {vid} at {at} does not decode"),
                Err(error) if is_of_device(&error) => {
                    report.findings.add(work.device_place(), Fault::Unreachable(error.to_string()));
                    return;
                }
                Err(error) => error.to_string(),
            };
            report.findings.add(page_place(work, at), Fault::Version(fault));
            break;
        }
    }
    if damaged.is_empty() && older != damaged.older {
        let fault = format!(
            "pages have {} versions that are not the newest of their rows, and {older} are reached",
            damaged.older
        );
        report.findings.add(work.place(), Fault::Version(fault));
    }
    if damaged.is_empty() && damaged.newest != report_newest(work) {
        let fault = format!(
            "the version map has {} rows, and pages have {}",
            report_newest(work),
            damaged.newest
        );
        report.findings.add(work.place(), Fault::Map(fault));
    }
}

/// Rows that the version map knows, but for those that were pruned.
fn report_newest(work: &Work) -> u64 {
    let map = &work.tablet.version_map;
    let on_pages = |run: &VersionRun| {
        let directory = work.placement.segment(run.segment);
        let is_on_page = |vid: &u64| directory.is_some_and(|found| found.slot_of(*vid).is_some());
        let ended = map.ended_in(run.vid_first, run.vid_count);
        let pruned = ended.filter(|vid| !is_on_page(vid)).count();
        run.vid_count.saturating_sub(pruned as u64)
    };
    let runs: u64 = map.runs().iter().map(on_pages).sum();
    let beyond = map.overlay().filter(|(vid, _)| map.run_of(*vid).is_none()).count();
    runs.saturating_add(beyond as u64)
}

fn page_place(work: &Work, record: RecId) -> Place {
    let start = work.placement.record(record).map(|place| place.entry.page.extent.start);
    Place {
        segment: Some(record.segment()),
        page: Some(record.page()),
        address: start,
        ..work.place()
    }
}

/// VID and version columns of one version.
async fn version(work: &Work, place: RowPlace<'_>) -> Result<Option<(u64, VersionHeader)>> {
    let read = PageRead {
        segment: place.directory.segment_ref(),
        page: place.entry.page,
        columns: COLUMNS.to_vec(),
    };
    let page = read_page(&work.device, &read).await?;
    let fields = COLUMNS.into_iter().filter_map(Projection::version_field);
    let projection =
        Projection::new(Schema::new(fields.collect::<Vec<_>>()).into(), COLUMNS.to_vec());
    let row = decode_rows(&page, &read, &[place.slot], &projection, &OverflowValues::none())?;
    let number = |column: usize| {
        row.column(column).as_primitive_opt::<UInt64Type>()?.values().first().copied()
    };
    let header = || {
        Some(VersionHeader {
            commit: number(1)?,
            predecessor: RecId::from_bits(number(2)?),
            tombstone: row.column(3).as_boolean_opt()?.values().iter().next()?,
        })
    };
    Ok(number(0).zip(header()))
}

/// What the map says of the version of `vid` in `slot` of a page: the newest, an older one, or why it is neither.
pub(super) fn judge(
    work: &Work,
    segment: cleave_store::SegmentId,
    page: u32,
    slot: u16,
    vid: u64,
) -> Result<bool, String> {
    match work.tablet.version_map.place_of(vid) {
        None => Err(format!("the version map does not know VID {vid}")),
        Some(VersionPlace::Record(record)) => {
            Ok((record.segment(), record.page(), record.slot()) == (segment, page, slot))
        }
        Some(VersionPlace::Segment(named)) if named != segment => {
            Err(format!("the version map has VID {vid} in {named}"))
        }
        Some(VersionPlace::Segment(_)) => {
            let directory = work.placement.segment(segment);
            match directory.and_then(|directory| directory.slot_of(vid)) {
                Some((entry, found)) if (entry.page.page, found) == (page, slot) => Ok(true),
                Some((entry, found)) => {
                    let page = entry.page.page;
                    Err(format!("the directory has VID {vid} on page {page}, slot {found}"))
                }
                None => Err(format!("the directory does not have VID {vid}")),
            }
        }
    }
}
