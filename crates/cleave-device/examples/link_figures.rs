//! Measures whole calls of a link, embedded, local and remote: round trips, and bytes read in a second.
//!
//! `link_figures MEDIA SOCKET PORT TOKEN_FILE`: the embedded device makes its media at MEDIA; a `cleaved` of the same
//! build listens at SOCKET and at PORT of this machine, without TLS. `scripts/bench.py local` starts all of it, on
//! media in memory, so that the link is measured and not a disk.
//!
//! Rounds over the links are interleaved. Each line gives the median of 9 rounds, and the second and eighth of them.

#![expect(clippy::disallowed_methods, reason = "a stopwatch is what it is")]

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{Int64Array, RecordBatch};
use cleave_device::{Runtime, RuntimeOptions};
use cleave_fragment::command::{
    Command, CommandHeader, Payload, ReadItem, Reply, Request, WriteItem,
};
use cleave_fragment::link::{
    AbandonedRuns, ConnectedLink, EmbeddedLink, Link, RemoteAddress, Token,
};
use cleave_media::{BlockAddress, DirectFile, Extent, OpenMode, SplitMix64};
use cleave_store::{
    Column, ColumnRef, ColumnType, PageClass, PageRef, SegmentId, SegmentRef, SegmentWriter,
    TableSchema,
};
use futures::{StreamExt, TryStreamExt, stream};

const REPEATS: usize = 9;
const CALLS: u32 = 2000;
/// Bytes of 8-byte numbers in the table.
const TABLE_BYTES: usize = 64 << 20;
/// Pages of one command, and commands under way at once, as in a scan of the host.
const PAGES_AT_ONCE: usize = 8;
const COMMANDS_AT_ONCE: usize = 4;
const COLUMN_COUNT: u32 = 4;
const HEADER: CommandHeader = CommandHeader {
    database: [7; 16],
    epoch: 1,
    incarnation: 1,
    run: 0,
    sequence: 0,
    interaction: 0,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A device with a table on it.
struct Way {
    name: &'static str,
    link: Arc<dyn Link>,
    pages: Vec<PageRef>,
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [media, socket, port, token_file] = arguments.as_slice() else {
        return Err("link_figures MEDIA SOCKET PORT TOKEN_FILE".into());
    };
    let media = Arc::new(DirectFile::open(Path::new(media), OpenMode::Create)?);
    let embedded = EmbeddedLink::new(Runtime::new(media, RuntimeOptions::new([1; 16]))?, None);
    let abandoned = AbandonedRuns::default();
    let local = ConnectedLink::local(Path::new(socket), None, abandoned.clone(), None)?;
    let address = RemoteAddress { host: "127.0.0.1".to_owned(), port: port.parse()? };
    let token = Token::from_file(Path::new(token_file))?;
    let remote = ConnectedLink::remote(address, token, None, None, abandoned)?.connected().await?;
    call(&*embedded, Request::Claim { after: 0 }).await?;
    call(&*remote, Request::Claim { after: 0 }).await?;
    let pages = write_table(&*embedded).await?;
    write_table(&*remote).await?;
    let links: [(&str, Arc<dyn Link>); 3] =
        [("embedded", embedded), ("local", local.connected().await?), ("remote, no TLS", remote)];
    let ways = links.map(|(name, link)| Way { name, link, pages: pages.clone() });

    let mut out = io::stdout();
    writeln!(out, "{:34} {:>16} {:>10} {:>10}", "one call at a time", "median", "from", "to")?;
    let status = round_trips(&ways, |_| Request::Status).await?;
    tell(&mut out, "status", &ways, &status)?;
    let block = |_: &Way| {
        let extent = Extent { start: BlockAddress(0), block_count: 1 };
        Request::Read(vec![ReadItem::Blocks(extent)])
    };
    tell(&mut out, "read of 4 KiB", &ways, &round_trips(&ways, block).await?)?;
    let page = |way: &Way| {
        Request::Read(way.pages.first().map(|page| columns(*page, 1)).into_iter().collect())
    };
    tell(&mut out, "read of one column of a page", &ways, &round_trips(&ways, page).await?)?;

    writeln!(out, "\n{:34} {:>16} {:>10} {:>10}", "all of the table", "median", "from", "to")?;
    let as_blocks = |page: &PageRef| ReadItem::Blocks(page.extent);
    tell_rate(&mut out, "blocks", &ways, 1, as_blocks).await?;
    tell_rate(&mut out, "blocks", &ways, COMMANDS_AT_ONCE, as_blocks).await?;
    let as_columns = |page: &PageRef| columns(*page, COLUMN_COUNT);
    tell_rate(&mut out, "columns", &ways, 1, as_columns).await?;
    tell_rate(&mut out, "columns", &ways, COMMANDS_AT_ONCE, as_columns).await
}

async fn call(link: &dyn Link, request: Request) -> Outcome<Reply> {
    Ok(link.call(Command::new(HEADER, request)).await?)
}

fn segment() -> SegmentRef {
    SegmentRef { table_id: 1, segment: SegmentId(1), schema_version: 1, commit: 1 }
}

/// The first `count` columns of `page`.
fn columns(page: PageRef, count: u32) -> ReadItem {
    let columns = (1..=count).map(ColumnRef::User).collect();
    ReadItem::Columns { page, segment: segment(), columns }
}

/// Writes the table to the device behind `link`, from its first block on.
async fn write_table(link: &dyn Link) -> Outcome<Vec<PageRef>> {
    let column = |id: u32| Column {
        id,
        name: format!("n{id}"),
        column_type: ColumnType::BigInt,
        not_null: false,
        default: None,
        absent: None,
    };
    let table = TableSchema {
        table_id: 1,
        version: 1,
        name: "numbers".to_owned(),
        columns: (1..=COLUMN_COUNT).map(column).collect(),
        primary_key: Vec::new(),
    };
    let row_count = TABLE_BYTES / 8 / COLUMN_COUNT as usize;
    let mut random = SplitMix64::new(1);
    // Numbers that no encoding makes smaller.
    let mut numbers = || (0..row_count).map(|_| random.next_u64().cast_signed()).collect();
    let arrays = (0..COLUMN_COUNT)
        .map(|_| Arc::new(Int64Array::from_iter_values::<Vec<i64>>(numbers())) as _);
    let rows = RecordBatch::try_new(table.arrow(), arrays.collect())?;
    let mut writer = SegmentWriter::new(segment(), &table, PageClass::BULK, 0, 1)?;
    let mut encoded = writer.push(&rows)?;
    encoded.extend(writer.finish()?);
    let block_count = encoded.iter().map(|page| page.block_count()).sum();
    let extents = vec![Extent { start: BlockAddress(0), block_count }];
    call(link, Request::Reserve { extents }).await?;
    let mut pages = Vec::new();
    let mut start = BlockAddress(0);
    for page in encoded {
        let place = page.page_ref(start);
        let payload = Payload::new(page.bytes.into_bytes());
        call(link, Request::Write(vec![WriteItem { start, payload }])).await?;
        start = place.extent.end();
        pages.push(place);
    }
    Ok(pages)
}

/// Microseconds of one call, by link and round.
async fn round_trips(ways: &[Way], request: impl Fn(&Way) -> Request) -> Outcome<Vec<Vec<f64>>> {
    let mut times = vec![Vec::new(); ways.len()];
    for round in 0..=REPEATS {
        for (way, times) in ways.iter().zip(&mut times) {
            let since = Instant::now();
            for _ in 0..CALLS {
                call(&*way.link, request(way)).await?;
            }
            // The first round warms the caches.
            if round > 0 {
                times.push(since.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS));
            }
        }
    }
    Ok(times)
}

fn tell(out: &mut impl Write, what: &str, ways: &[Way], times: &[Vec<f64>]) -> Outcome<()> {
    for (way, times) in ways.iter().zip(times) {
        let (low, median, high) = middle(times);
        let name = format!("{what}, {}", way.name);
        writeln!(out, "{name:34} {median:>13.1} us {low:>10.1} {high:>10.1}")?;
    }
    Ok(())
}

/// Reads all pages, with `at_once` commands under way, and prints the rate.
async fn tell_rate(
    out: &mut impl Write,
    what: &str,
    ways: &[Way],
    at_once: usize,
    item: impl Fn(&PageRef) -> ReadItem,
) -> Outcome<()> {
    let mut rates = vec![Vec::new(); ways.len()];
    for round in 0..=REPEATS {
        for (way, rates) in ways.iter().zip(&mut rates) {
            let (bytes, time) = read_all(way, at_once, &item).await?;
            if round > 0 {
                rates.push(bytes as f64 / time.as_secs_f64() / 1e9);
            }
        }
    }
    for (way, rates) in ways.iter().zip(&rates) {
        let (low, median, high) = middle(rates);
        let name = format!("{what}, {at_once} at once, {}", way.name);
        writeln!(out, "{name:34} {median:>11.2} GB/s {low:>10.2} {high:>10.2}")?;
    }
    Ok(())
}

async fn read_all(
    way: &Way,
    at_once: usize,
    item: impl Fn(&PageRef) -> ReadItem,
) -> Outcome<(usize, Duration)> {
    let commands: Vec<Request> = way
        .pages
        .chunks(PAGES_AT_ONCE)
        .map(|pages| Request::Read(pages.iter().map(&item).collect()))
        .collect();
    let since = Instant::now();
    let bytes = stream::iter(commands)
        .map(|request| call(&*way.link, request))
        .buffer_unordered(at_once)
        .try_fold(0, async |bytes, reply| {
            let Reply::Read(payloads) = reply else { return Err("no pages came".into()) };
            Ok(bytes + payloads.iter().map(|payload| payload.byte_count()).sum::<usize>())
        })
        .await?;
    Ok((bytes, since.elapsed()))
}

/// The second, the middle and the last but one of `figures`.
fn middle(figures: &[f64]) -> (f64, f64, f64) {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |place: usize| sorted.get(place).copied().unwrap_or_default();
    (at(1), at(sorted.len() / 2), at(sorted.len().saturating_sub(2)))
}
