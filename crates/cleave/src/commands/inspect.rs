//! `cleave inspect`: prints stored structures in readable form.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use cleave_host::inspect::{self, Subject};
use cleave_media::BlockAddress;
use cleave_store::SegmentId;

use crate::arguments::Place;
use crate::failure::Failure;
use crate::open;

/// `cleave inspect …`.
#[derive(Debug, Clone, Args)]
pub(crate) struct InspectCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    /// The catalog: devices, tables, tablets, segments
    Manifest,
    /// A segment's directory: its pages, their places and bounds
    Segment {
        /// The segment's number
        id: u32,
    },
    /// A page: its header, chunks and, with --rows, some rows
    Page {
        /// A block's number, or a page's name as SEGMENT/PAGE
        #[arg(value_parser = page)]
        page: PageName,
        /// Rows to show
        #[arg(long, default_value_t = 0)]
        rows: usize,
        /// The device of a block; by default the embedded one
        #[arg(long, value_name = "NAME")]
        device: Option<String>,
    },
    /// A table's version map
    Map {
        /// The table
        table: String,
    },
    /// The runs of a table's indexes
    Index {
        /// The table
        table: String,
    },
    /// A fragment's plan, from the output of EXPLAIN (FORMAT FRAGMENT), or from its bytes
    Fragment {
        /// The file, or - for standard input
        file: PathBuf,
    },
    /// Devices: identity, media, used space
    Device,
}

/// A page named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageName {
    Address(u64),
    Name(u32, u32),
}

/// Runs `cleave inspect …`.
pub(crate) async fn run(command: &InspectCommand, place: &Place) -> Result<(), Failure> {
    let (subject, rows) = match &command.what {
        What::Fragment { file } => return print(&inspect::fragment(&content(file)?)),
        What::Manifest => (Subject::Manifest, 0),
        What::Segment { id } => (Subject::Segment(SegmentId(*id)), 0),
        What::Page { page: PageName::Name(segment, page), rows, .. } => {
            (Subject::Page(SegmentId(*segment), *page), *rows)
        }
        What::Page { page: PageName::Address(block), rows, device } => {
            (Subject::Address(BlockAddress(*block), device.clone()), *rows)
        }
        What::Map { table } => (Subject::Map(table.clone()), 0),
        What::Index { table } => (Subject::Index(table.clone()), 0),
        What::Device => (Subject::Device, 0),
    };
    let (directory, options) = open::options(place)?;
    let (database, faults) =
        Box::pin(inspect::open(directory, options)).await.map_err(Failure::Open)?;
    let faults: Vec<String> = faults.iter().map(|fault| format!("DAMAGED: {fault}")).collect();
    print(&faults)?;
    let lines = Box::pin(inspect::inspect(&database, &subject, rows)).await;
    print(&lines.map_err(Failure::Sql)?)
}

fn print(lines: &[String]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn content(file: &Path) -> Result<Vec<u8>, Failure> {
    if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map_err(Failure::file(file))?;
        return Ok(bytes);
    }
    std::fs::read(file).map_err(Failure::file(file))
}

fn page(text: &str) -> Result<PageName, String> {
    let wrong = "expected a block's number, or SEGMENT/PAGE as in 3/0";
    let number = |text: &str| text.parse().map_err(|_| wrong.to_owned());
    match text.split_once('/') {
        Some((segment, page)) => Ok(PageName::Name(number(segment)?, number(page)?)),
        None => text.parse().map(PageName::Address).map_err(|_| wrong.to_owned()),
    }
}
