//! Unpacks a block of numbers of at most 32 bits, compiled for each width by itself: the words and shifts of a row are
//! constants, so a row is vector instructions only.

use super::{BLOCK, ROW_BYTES};

/// Lanes of a row, and numbers in it.
const LANES: usize = 8;

/// Unpacks the block of `rows`, `width` rows of 8 words each; zeros for other counts and widths.
pub(super) fn unpack(rows: &[[u8; ROW_BYTES]], width: u32, target: &mut [u32; BLOCK]) {
    macro_rules! by_width {
        ($($known:literal)*) => {
            match width {
                $($known => {
                    if let Some(rows) = rows.first_chunk::<$known>() {
                        return unpack_width(rows, target);
                    }
                })*
                _ => {}
            }
        };
    }
    by_width!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);
    target.fill(0);
}

fn unpack_width<const WIDTH: usize>(rows: &[[u8; ROW_BYTES]; WIDTH], target: &mut [u32; BLOCK]) {
    let (targets, _) = target.as_chunks_mut::<LANES>();
    // Unrolled by hand, since compilers keep a loop of this length, and with it shifts that are not constant.
    macro_rules! put {
        ($($row:literal)*) => {
            $(if let Some(target) = targets.get_mut($row) {
                *target = unpack_row::<WIDTH, $row>(rows);
            })*
        };
    }
    put!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
}

/// The numbers of row `ROW`.
#[inline(always)]
fn unpack_row<const WIDTH: usize, const ROW: usize>(
    rows: &[[u8; ROW_BYTES]; WIDTH],
) -> [u32; LANES] {
    let (at, shift) = (ROW * WIDTH / 32, ROW * WIDTH % 32);
    let mask = u32::MAX >> (32 - WIDTH);
    let low = words(rows, at);
    let mut numbers = [0; LANES];
    if shift + WIDTH > 32 {
        let high = words(rows, at + 1);
        // The bits of the second word are masked before they are shifted: a compiler that sees two words shifted into
        // one uses the instruction for that, which has no vector form.
        let high_mask = mask >> (32 - shift);
        for ((number, low), high) in numbers.iter_mut().zip(low).zip(high) {
            *number = low >> shift | (high & high_mask) << (32 - shift);
        }
    } else {
        for (number, low) in numbers.iter_mut().zip(low) {
            *number = low >> shift & mask;
        }
    }
    numbers
}

/// Word `at` of all lanes.
#[inline(always)]
fn words<const WIDTH: usize>(rows: &[[u8; ROW_BYTES]; WIDTH], at: usize) -> [u32; LANES] {
    let mut words = [0; LANES];
    if let Some(row) = rows.get(at) {
        for (word, bytes) in words.iter_mut().zip(row.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
    }
    words
}
