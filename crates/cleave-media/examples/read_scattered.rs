//! Times reads of scattered pieces of media: the lower bound for a cold scan of one column.
//!
//! `read_scattered FILE PIECE_BYTES PIECE_COUNT DEPTH` reads that many pieces at equal distances over all of the media,
//! DEPTH at once, and prints the milliseconds. `scripts/bench.py cold` runs it.

use std::io::{Error, Write};
use std::path::Path;

use cleave_media::{
    BLOCK_SIZE, BlockAddress, DirectFile, Extent, Media, MediaError, OpenMode, Stopwatch,
};

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, numbers @ ..] = arguments.as_slice() else {
        return Err(Error::other("FILE PIECE_BYTES PIECE_COUNT DEPTH"));
    };
    let numbers: Vec<usize> = numbers.iter().filter_map(|number| number.parse().ok()).collect();
    let [piece_bytes, piece_count, depth] = numbers[..] else {
        return Err(Error::other("PIECE_BYTES, PIECE_COUNT and DEPTH are numbers"));
    };
    let media = DirectFile::open(Path::new(file), OpenMode::Existing).map_err(Error::other)?;
    let milliseconds = read(&media, piece_bytes, piece_count, depth).map_err(Error::other)?;
    let direct = if media.direct() { "direct" } else { "through the page cache" };
    writeln!(std::io::stdout(), "{milliseconds:.3} ms, {direct}")
}

/// Reads the pieces and returns the milliseconds.
fn read(
    media: &DirectFile,
    piece_bytes: usize,
    piece_count: usize,
    depth: usize,
) -> Result<f64, MediaError> {
    let blocks = u32::try_from(piece_bytes.div_ceil(BLOCK_SIZE)).unwrap_or(u32::MAX).max(1);
    let stride = media.block_count() / (piece_count as u64).max(1);
    let extents: Vec<Extent> = (0..piece_count as u64)
        .map(|piece| Extent { start: BlockAddress(piece * stride), block_count: blocks })
        .filter(|extent| extent.end().0 <= media.block_count())
        .collect();
    let stopwatch = Stopwatch::start();
    for batch in extents.chunks(depth.max(1)) {
        media.read_many(batch)?;
    }
    Ok(stopwatch.elapsed().as_secs_f64() * 1e3)
}
