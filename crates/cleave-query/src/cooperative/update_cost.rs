//! What a bulk change costs row by row on the host, and as page versions made by fragments: the choice of
//! `update_placement = auto`.
//!
//! ```text
//!  by rows    few: rows × (new version, lock, log record, an entry in each index, bytes)            + link
//!             many: rows × (less of it, bytes of pages) + manifest                                  + link
//!             both: pages with changed rows × bytes of the other columns that no memory holds
//!  by pages   a fragment + the longer of
//!               rows × (lock, change) + pages with changed rows × (old values read, chunks encoded)
//!               bytes written
//!  by keys    the same + rows × (gathered, encoded, joined)                                         + link
//!
//!  rows of a query that are inserted:
//!  by rows    pages read by all cores of the device + link, twice + rows encoded by a core of the host
//!  by pages   pages read and rows encoded by cores of the device: as many as write a stage,
//!              or as a table in load order has tablets there
//! ```
//!
//! Finding the rows is part of all and left out. The constants that are marked so were fitted to measurements with an
//! embedded device, which `docs/experiments-updates.md` lists with their predictions; the others are assumptions for
//! one core of a present x86 server. The device's side scales with its figures. Source: Update NDP, section 8 (S1 to
//! S3).

use cleave_media::BLOCK_SIZE;
use cleave_plan::profile::{Figure, LinkProfile, Profile, SideProfile};
use cleave_store::PageClass;

/// Seconds on the host for one of few rows: its new version, its lock, its part of the log record and of the delta.
/// Fitted.
const ROW_S: f64 = 2.3e-6;
/// Seconds on the host for a byte of such a row: made, logged, and kept. Fitted.
const ROW_BYTE_S: f64 = 7.0e-9;
/// Seconds on the host for one of many rows, which are written as pages. Fitted.
const BULK_ROW_S: f64 = 0.3e-6;
/// Seconds on the host for a byte of such a row. Fitted.
const BULK_BYTE_S: f64 = 4.0e-9;
/// Seconds on the host for an entry of an index.
const ENTRY_S: f64 = 0.2e-6;
/// Seconds on the host for an entry that is read back from new pages, and sorted into a run.
const SORTED_ENTRY_S: f64 = 1.0e-6;
/// Bytes that are read back for an entry.
const KEY_BYTES: f64 = 16.0;
/// Rows beyond which also the host writes pages and replaces the manifest.
const LOGGED_ROWS_MAX: f64 = 10_000.0;
/// Seconds of a commit with a manifest. A DELETE has none, but the host locks its table for so many rows.
const MANIFEST_S: f64 = 8.0e-3;
/// Seconds that a fragment costs whatever it changes: its command, its space, the sync of its device. Fitted.
const FRAGMENT_S: f64 = 12.0e-3;
/// The same of a fragment that writes nothing, for a DELETE. Fitted.
const ENDING_FRAGMENT_S: f64 = 4.0e-3;
/// Seconds for a row that a fragment locks and changes. Fitted.
const CHANGED_ROW_S: f64 = 1.5e-7;
/// Seconds of a typical core for a byte of changed columns: read, merged, encoded and written. Fitted.
const CHANGED_BYTE_S: f64 = 1.8e-9;
/// Seconds of a typical core for a byte of rows that a fragment writes whole: encoded and written.
const ENCODED_BYTE_S: f64 = 3.0e-9;
/// Seconds of a typical core for a page with changed rows. Fitted.
const PAGE_S: f64 = 1.0e-4;
/// Seconds on the host for a row that is sent: gathered, encoded, and joined with its page.
const SENT_ROW_S: f64 = 2.0e-7;
/// Seconds of a typical core for a byte of pages that a query reads.
const READ_BYTE_S: f64 = 0.5e-9;

/// What is to be changed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BulkChange {
    /// Rows that are expected to change.
    pub rows: f64,
    /// Rows of the pages that are read.
    pub rows_read: f64,
    /// These pages, and their bytes.
    pub pages_read: f64,
    /// The bytes of these pages.
    pub bytes_read: f64,
    /// The share of these bytes that is in the memory of the side that reads the pages.
    pub held_share: f64,
    /// The share of a row's bytes that is in changed columns; 0 for a DELETE.
    pub column_share: f64,
    /// Indexes of the table.
    pub indexes: usize,
    /// The share of a row's bytes that comes to the host for RETURNING.
    pub returned_share: f64,
}

/// What is to be inserted.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BulkInsert {
    /// Bytes of the rows that are expected.
    pub bytes: f64,
    /// Bytes of the pages that are read for them.
    pub bytes_read: f64,
    /// The most cores of the device that write, at least 1.
    pub writers: f64,
}

/// The prediction for both ways, in seconds beside finding the rows.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct UpdateCost {
    /// By rows on the host.
    pub by_rows_s: f64,
    /// By fragments.
    pub by_pages_s: f64,
    /// By fragments that are sent which rows change, and new values.
    pub by_keys_s: f64,
    /// The bytes that are sent with these.
    pub sent_bytes: f64,
    /// Bytes over the link for the former.
    pub link_bytes: f64,
    /// Pages with changed rows, or new ones.
    pub pages: f64,
    /// Bytes that the pages fill which are written.
    pub page_bytes: f64,
}

impl UpdateCost {
    /// The prediction for `changed` with the figures of `profile`.
    #[must_use]
    pub fn of(changed: &BulkChange, profile: &Profile) -> Self {
        let BulkChange { rows, rows_read, pages_read, bytes_read, column_share, .. } = *changed;
        let BulkChange { indexes, returned_share, held_share, .. } = *changed;
        let rows_read = rows_read.max(1.0);
        let row_bytes = bytes_read / rows_read;
        let is_delete = column_share == 0.0;
        let link_bytes = match (profile.link.is_embedded, is_delete) {
            (true, _) => 0.0,
            (false, true) => rows * 8.0,
            (false, false) => rows * row_bytes,
        };
        let is_logged = rows <= LOGGED_ROWS_MAX;
        let (own_s, byte_s) =
            if is_logged { (ROW_S, ROW_BYTE_S) } else { (BULK_ROW_S, BULK_BYTE_S) };
        let row_s = match is_delete {
            true => own_s / 2.0,
            false => own_s + indexes as f64 * ENTRY_S + row_bytes * byte_s,
        };
        // A new version crosses the link twice: as an old row, and on its page.
        let link_s = 2.0 * link_bytes / rate(&profile.link);
        let returned_bytes = match profile.link.is_embedded {
            true => 0.0,
            false => rows * row_bytes * returned_share,
        };
        let returned_s = returned_bytes / rate(&profile.link);
        // A row that dies comes whole if it is returned.
        let link_s = if is_delete { link_s + returned_s } else { link_s };
        let commit_s = if is_logged { 0.0 } else { MANIFEST_S };
        let share = (rows / rows_read).min(1.0);
        let rows_a_page = rows_read / pages_read.max(1.0);
        // Each page keeps its rows with the probability that none of them changes.
        let pages = pages_read * (1.0 - (1.0 - share).powf(rows_a_page));
        let whole_bytes = pages * bytes_read / pages_read.max(1.0);
        let changed_bytes = whole_bytes * column_share;
        // A new row has all columns. A DELETE wants none of them.
        let cold_bytes = match is_delete {
            true => 0.0,
            false => (whole_bytes - changed_bytes) * (1.0 - held_share),
        };
        let cold_s = cold_bytes / profile.device.rate(Figure::MediaReadSequential)
            + cold_bytes * READ_BYTE_S / speed(&profile.device);
        let by_rows_s = rows * row_s + cold_s + link_s + commit_s;
        let page_bytes = match is_delete {
            true => 0.0,
            false => changed_bytes + pages * BLOCK_SIZE as f64,
        };
        let device_s = rows * CHANGED_ROW_S + changed_bytes * CHANGED_BYTE_S + pages * PAGE_S;
        // A page is written while the next one is made.
        let write_s = page_bytes / profile.device.rate(Figure::MediaWriteSequential);
        let made_s = (device_s / speed(&profile.device)).max(write_s);
        let fragment_s = if is_delete { ENDING_FRAGMENT_S } else { FRAGMENT_S };
        let by_pages_s = fragment_s + made_s + returned_s;
        Self { by_rows_s, by_pages_s, link_bytes, pages, page_bytes, ..Self::default() }
    }

    /// The same, where the host can find the rows and send `sent_bytes` bytes of them.
    #[must_use]
    pub fn sending(self, rows: f64, sent_bytes: f64, profile: &Profile) -> Self {
        let link_s = match profile.link.is_embedded {
            true => 0.0,
            false => sent_bytes / rate(&profile.link),
        };
        let host_s = rows * SENT_ROW_S / core_speed(&profile.host);
        Self { by_keys_s: self.by_pages_s + host_s + link_s, sent_bytes, ..self }
    }

    /// The prediction for rows that a fragment replaces whole, as `changed` has them: one core writes them, and the
    /// host makes the keys of all indexes.
    #[must_use]
    pub fn of_replaced(changed: &BulkChange, profile: &Profile) -> Self {
        let BulkChange { rows, rows_read, bytes_read, indexes, .. } = *changed;
        let bytes = rows * bytes_read / rows_read.max(1.0);
        let entries = rows * indexes as f64;
        let link_s = match profile.link.is_embedded {
            true => 0.0,
            false => entries * KEY_BYTES / rate(&profile.link),
        };
        let device_s = rows * CHANGED_ROW_S + bytes * ENCODED_BYTE_S;
        let by_pages_s = device_s / core_speed(&profile.device)
            + bytes / profile.device.rate(Figure::MediaWriteSequential)
            + link_s
            + entries * SORTED_ENTRY_S / core_speed(&profile.host)
            + MANIFEST_S;
        let pages = (bytes / f64::from(PageClass::BULK.page_bytes)).ceil();
        Self { by_pages_s, pages, page_bytes: bytes, ..Self::of(changed, profile) }
    }

    /// The prediction for rows that several devices insert, of each what it makes and its figures. A row crosses the
    /// link as a row of the query, and once more on its page. Devices and links work side by side; one core of the host
    /// encodes the rows of all.
    #[must_use]
    pub fn of_insert(each: &[(BulkInsert, Profile)]) -> Self {
        let (mut all, mut sent_s) = (Self::default(), 0.0_f64);
        for (inserted, profile) in each {
            let BulkInsert { bytes, bytes_read, writers } = *inserted;
            let link_bytes = if profile.link.is_embedded { 0.0 } else { 2.0 * bytes };
            let encoded_s = bytes * ENCODED_BYTE_S;
            let read_s = bytes_read * READ_BYTE_S;
            let cores = writers.min(profile.device.cores_together).max(1.0);
            let by_pages_s = (read_s + encoded_s) / (core_speed(&profile.device) * cores);
            sent_s = sent_s.max(read_s / speed(&profile.device) + link_bytes / rate(&profile.link));
            all.by_rows_s += encoded_s / core_speed(&profile.host);
            all.by_pages_s = all.by_pages_s.max(by_pages_s);
            all.link_bytes += link_bytes;
            all.pages += (bytes / f64::from(PageClass::BULK.page_bytes)).ceil();
            all.page_bytes += bytes;
        }
        all.by_rows_s += sent_s;
        all
    }

    /// That of both, one after the other.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            by_rows_s: self.by_rows_s + other.by_rows_s,
            by_pages_s: self.by_pages_s + other.by_pages_s,
            by_keys_s: self.by_keys_s + other.by_keys_s,
            sent_bytes: self.sent_bytes + other.sent_bytes,
            link_bytes: self.link_bytes + other.link_bytes,
            pages: self.pages + other.pages,
            page_bytes: self.page_bytes + other.page_bytes,
        }
    }
}

/// All cores of `side` together, in typical cores.
fn speed(side: &SideProfile) -> f64 {
    core_speed(side) * side.cores_together.max(1.0)
}

/// One core of `side`, in typical cores.
fn core_speed(side: &SideProfile) -> f64 {
    (side.rate(Figure::Hash) / SideProfile::assumed(1, 0).rate(Figure::Hash)).max(1e-3)
}

fn rate(link: &LinkProfile) -> f64 {
    link.bytes_per_second.max(1.0)
}

#[cfg(test)]
mod tests {
    //! Where the choice lies for tables as the papers have them.

    use super::*;

    impl UpdateCost {
        fn is_by_pages(&self) -> bool {
            self.by_pages_s < self.by_rows_s
        }
    }

    fn table(rows: f64) -> BulkChange {
        BulkChange {
            rows,
            rows_read: 500_000.0,
            pages_read: 40.0,
            bytes_read: 550e6,
            held_share: 1.0,
            column_share: 0.1,
            indexes: 1,
            returned_share: 0.0,
        }
    }

    #[test]
    fn many_rows_change_as_pages_and_few_as_rows() {
        let profile = Profile::assumed();
        let embedded = Profile {
            link: LinkProfile { is_embedded: true, ..LinkProfile::assumed() },
            ..profile.clone()
        };
        for profile in [&profile, &embedded] {
            assert!(UpdateCost::of(&table(500_000.0), profile).is_by_pages());
            assert!(!UpdateCost::of(&table(20.0), profile).is_by_pages());
        }
        let [near, far] = [&embedded, &profile].map(|profile| UpdateCost::of(&table(1e5), profile));
        assert!(far.by_rows_s > near.by_rows_s && near.link_bytes == 0.0);
        assert!((far.link_bytes - 1.1e8).abs() < 1e3);
    }

    #[test]
    fn rows_are_replaced_where_the_link_costs_more_than_their_keys() {
        let slow =
            LinkProfile { bytes_per_second: 1e8, is_embedded: false, ..LinkProfile::assumed() };
        let profile = Profile { link: slow, ..Profile::assumed() };
        let changed = BulkChange { column_share: 1.0, ..table(200_000.0) };
        let cost = UpdateCost::of_replaced(&changed, &profile);
        assert!(cost.is_by_pages() && cost.link_bytes > 2e8, "{cost:?}");
        assert!((cost.page_bytes - 2.2e8).abs() < 1e3);
        let many = UpdateCost::of_replaced(&BulkChange { indexes: 40, ..changed }, &profile);
        assert!(many.by_pages_s > cost.by_pages_s + 5.0);
    }

    #[test]
    fn other_columns_are_read_unless_memory_holds_them() {
        let profile = Profile {
            link: LinkProfile { is_embedded: true, ..LinkProfile::assumed() },
            ..Profile::assumed()
        };
        let rows = BulkChange { rows: 1000.0, ..table(0.0) };
        let cost = |held_share| UpdateCost::of(&BulkChange { held_share, ..rows }, &profile);
        let [held, half, cold] = [1.0, 0.5, 0.0].map(cost);
        assert!(!held.is_by_pages() && cold.is_by_pages(), "{held:?} {cold:?}");
        let [half_s, cold_s] = [half, cold].map(|cost| cost.by_rows_s - held.by_rows_s);
        assert!((cold_s - 2.0 * half_s).abs() < 1e-9 && cold_s > 0.0);
        assert!((held.by_pages_s - cold.by_pages_s).abs() < 1e-12);
        // A DELETE reads nothing but what finds its rows.
        let ending = |held_share| BulkChange { held_share, column_share: 0.0, ..rows };
        let [held, cold] = [1.0, 0.0].map(|share| UpdateCost::of(&ending(share), &profile));
        assert!((held.by_rows_s - cold.by_rows_s).abs() < 1e-12);
    }

    #[test]
    fn a_page_counts_once() {
        let cost = UpdateCost::of(&table(500_000.0), &Profile::assumed());
        assert!((cost.pages - 40.0).abs() < 1e-6);
        let few = UpdateCost::of(&table(2.0), &Profile::assumed());
        assert!(few.pages < 2.01 && few.pages > 1.9, "{few:?}");
    }

    #[test]
    fn rows_are_inserted_where_the_link_costs_more_than_a_slower_core() {
        let inserted = BulkInsert { bytes: 100e6, bytes_read: 200e6, writers: 1.0 };
        let link = |bytes_per_second, is_embedded| LinkProfile {
            bytes_per_second,
            is_embedded,
            ..LinkProfile::assumed()
        };
        let with = |link| Profile { link, ..Profile::assumed() };
        let cost = |profile| UpdateCost::of_insert(&[(inserted, profile)]);
        let (slow, fast) = (cost(with(link(1e8, false))), cost(with(link(1e11, false))));
        assert!(slow.is_by_pages() && slow.link_bytes == 200e6);
        assert!(slow.by_rows_s > 1.0 + fast.by_rows_s);
        let embedded = cost(with(link(1e8, true)));
        assert!(!embedded.is_by_pages() && embedded.link_bytes == 0.0);
        let weak = SideProfile::scaled(0.01, 1, 0);
        let weak = cost(Profile { device: weak, ..with(link(1e9, false)) });
        assert!(!weak.is_by_pages());
        let device = SideProfile::scaled(1.0, 4, 0);
        let by_pages_s = |writers| {
            let profile = Profile { device: device.clone(), ..with(link(1e8, false)) };
            UpdateCost::of_insert(&[(BulkInsert { writers, ..inserted }, profile)]).by_pages_s
        };
        assert!(by_pages_s(2.0) < 0.6 * by_pages_s(1.0));
        assert_eq!(by_pages_s(64.0), by_pages_s(device.cores_together));
    }

    #[test]
    fn devices_that_insert_their_own_rows_take_as_long_as_the_slowest() {
        let link =
            LinkProfile { bytes_per_second: 1e8, is_embedded: false, ..LinkProfile::assumed() };
        let profile = Profile { link, ..Profile::assumed() };
        let part =
            |bytes| (BulkInsert { bytes, bytes_read: 2.0 * bytes, writers: 1.0 }, profile.clone());
        let one = UpdateCost::of_insert(&[part(80e6)]);
        let two = UpdateCost::of_insert(&[part(60e6), part(20e6)]);
        assert!((two.by_pages_s - 0.75 * one.by_pages_s).abs() < 1e-9);
        assert!(two.by_rows_s < one.by_rows_s && two.by_rows_s > 0.75 * one.by_rows_s);
        assert!(two.is_by_pages() && (two.link_bytes - one.link_bytes).abs() < 1e-3);
    }

    #[test]
    fn a_slow_device_gets_less() {
        let slow = Profile { device: SideProfile::scaled(0.05, 1, 0), ..Profile::assumed() };
        let rows = table(30_000.0);
        let (slow, fast) =
            (UpdateCost::of(&rows, &slow), UpdateCost::of(&rows, &Profile::assumed()));
        assert!(slow.by_pages_s > 5.0 * fast.by_pages_s);
    }
}
