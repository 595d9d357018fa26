//! A stream of integers: 64-bit numbers in, the shortest of three layouts out, and back, whole, in part or one.
//!
//! ```text
//! head, 16 bytes    kind u8 │ width u8 │ 2 zero │ count u32 │ base i64
//! 0 packed  head │ value − base, packed
//! 1 delta   head │ stream of every 256th value, packed
//!                │ value − one before − base, packed; 0 for every 256th
//! 2 runs    head │ stream of the runs' values, packed │ stream of the runs' ends, packed     width, base 0
//! ```
//!
//! 1. [`encode`] computes the size of each layout in one pass, and writes the smallest; a layout that is slower to read
//!    must be smaller by a margin.
//! 2. [`Integers::parse`] checks heads and lengths, and that run ends ascend to the count.
//! 3. [`Integers::get`] reads one number, [`Integers::each_block`] all of a range; [`Integers::compare`] and
//!    [`Integers::contained_in`] evaluate comparisons and look-ups on packed numbers, without adding their base.
//!
//! Invariants: sums wrap, so any bytes decode to some numbers; after `parse` no read can fail. Packed and delta read
//! one value in constant time, runs in the logarithm of the number of runs.
//!
//! Source: Zukowski et al., "Super-Scalar RAM-CPU Cache Compression"; Kuschewski et al., "BtrBlocks".

#![deny(clippy::indexing_slicing)]

use std::cmp::Ordering;
use std::ops::Range;

use arrow::array::BooleanBufferBuilder;
use arrow::buffer::BooleanBuffer;
use bytes::Bytes;

use crate::error::Corruption;
use crate::integer_set::{IntegerSet, Kept, word_of};
use crate::page::bitpack::{BLOCK, Packed, pack, packed_length, width_of};
use crate::page::encoding::size_of;
use crate::page::selected::push_selected;

/// Bytes of the head.
const HEAD: usize = 16;

/// If fewer than one number in so many of runs is selected, only those are looked up.
const FEW_OF_RUNS: usize = 4;

/// A checked stream.
#[derive(Debug, Clone)]
pub(crate) struct Integers {
    count: usize,
    layout: IntegerLayout,
}

#[derive(Debug, Clone)]
enum IntegerLayout {
    Packed(Frame),
    Delta { anchors: Frame, steps: Frame },
    Runs { values: Frame, ends: Vec<u32> },
}

/// Packed numbers over a base: frame of reference.
#[derive(Debug, Clone)]
struct Frame {
    base: i64,
    packed: Packed,
}

/// Statistics of the values that [`encode`] gathers.
struct Shape {
    min: i64,
    max: i64,
    run_count: usize,
    /// Least and greatest difference of successive values; None if one does not fit 64 bits.
    steps: Option<(i64, i64)>,
}

/// Appends a stream of `values` to `target`. Equal values make equal bytes.
pub(crate) fn encode(values: &[i64], target: &mut Vec<u8>) {
    let Some(shape) = Shape::of(values) else {
        return head(0, 0, 0, 0, target);
    };
    let width = shape.width();
    let anchor_count = values.len().div_ceil(BLOCK);
    let packed = packed_length(values.len(), width);
    let run_width = width_of(values.len() as u64);
    let runs =
        packed_length(shape.run_count, width) + packed_length(shape.run_count, run_width) + 32;
    let delta = shape.step_width().map(|(_, step_width)| {
        packed_length(anchor_count, width) + packed_length(values.len(), step_width) + HEAD
    });
    if delta.is_none_or(|delta| runs <= delta) && runs < packed / 2 {
        encode_runs(values, shape.run_count, target);
    } else if let Some((base, step_width)) = shape.step_width()
        && delta.is_some_and(|delta| delta < packed / 4 * 3)
    {
        head(1, step_width, values.len(), base, target);
        let anchors: Vec<i64> = values.iter().step_by(BLOCK).copied().collect();
        encode_frame(&anchors, target);
        let before = values.first().into_iter().chain(values);
        let steps = values.iter().zip(before).enumerate().map(|(index, (value, before))| {
            if index % BLOCK == 0 { 0 } else { offset(value.wrapping_sub(*before), base) }
        });
        pack(steps, step_width, target);
    } else {
        head(0, width, values.len(), shape.min, target);
        pack(values.iter().map(|value| offset(*value, shape.min)), width, target);
    }
}

fn encode_runs(values: &[i64], run_count: usize, target: &mut Vec<u8>) {
    let mut run_values = Vec::with_capacity(run_count);
    let mut run_ends = Vec::with_capacity(run_count);
    let mut end = 0;
    for run in values.chunk_by(|left, right| left == right) {
        end += i64::try_from(run.len()).unwrap_or(0);
        run_values.extend(run.first());
        run_ends.push(end);
    }
    head(2, 0, values.len(), 0, target);
    encode_frame(&run_values, target);
    encode_frame(&run_ends, target);
}

/// Appends a packed stream, without trying the other layouts.
fn encode_frame(values: &[i64], target: &mut Vec<u8>) {
    let min = values.iter().copied().min().unwrap_or(0);
    let max = values.iter().copied().max().unwrap_or(0);
    let width = width_of(offset(max, min));
    head(0, width, values.len(), min, target);
    pack(values.iter().map(|value| offset(*value, min)), width, target);
}

fn head(kind: u8, width: u32, count: usize, base: i64, target: &mut Vec<u8>) {
    target.extend_from_slice(&[kind, u8::try_from(width).unwrap_or(u8::MAX), 0, 0]);
    target.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
    target.extend_from_slice(&base.to_le_bytes());
}

/// See [`Frame::running_sums`]; `steps` are those of the block, less `base`. The first is ignored.
fn running_sums<N: Copy + Into<u64>>(
    steps: &[N; BLOCK],
    base: i64,
    anchor: i64,
    indices: &[usize],
    mut take: impl FnMut(i64),
) {
    let (mut at, mut sum) = (0, 0_u64);
    for index in indices {
        let within = index % BLOCK;
        if within < at {
            (at, sum) = (0, 0);
        }
        let between = steps.get(at + 1..=within).unwrap_or_default();
        sum = between.iter().fold(sum, |sum, step| sum.wrapping_add((*step).into()));
        at = within;
        let bases = i64::try_from(within).unwrap_or(0).wrapping_mul(base);
        take(anchor.wrapping_add(bases).wrapping_add(sum.cast_signed()));
    }
}

/// How far `value` lies above `base`.
fn offset(value: i64, base: i64) -> u64 {
    value.wrapping_sub(base).cast_unsigned()
}

impl Shape {
    fn of(values: &[i64]) -> Option<Self> {
        let first = *values.first()?;
        let mut shape = Self { min: first, max: first, run_count: 1, steps: Some((0, 0)) };
        let (mut low, mut high) = (i64::MAX, i64::MIN);
        let mut wrapped = false;
        for (value, before) in values.iter().skip(1).zip(values) {
            shape.min = shape.min.min(*value);
            shape.max = shape.max.max(*value);
            shape.run_count += usize::from(value != before);
            let (step, over) = value.overflowing_sub(*before);
            wrapped |= over;
            low = low.min(step);
            high = high.max(step);
        }
        if values.len() > 1 {
            shape.steps = (!wrapped).then_some((low, high));
        }
        Some(shape)
    }

    fn width(&self) -> u32 {
        width_of(offset(self.max, self.min))
    }

    /// The least difference, and the bits of the others above it.
    fn step_width(&self) -> Option<(i64, u32)> {
        self.steps.map(|(low, high)| (low, width_of(offset(high, low))))
    }
}

impl Integers {
    /// Checks a stream of `count` numbers at the start of `bytes`; also returns the rest of the bytes.
    pub(crate) fn parse(bytes: &Bytes, count: usize) -> Result<(Self, Bytes), Corruption> {
        let (kind, width, found, base) = parse_head(bytes)?;
        if found != count {
            return Err(nonsense(format!("{found} numbers where {count} belong")));
        }
        let rest = bytes.slice(HEAD..);
        let (layout, rest) = match kind {
            0 => {
                let (packed, rest) = Packed::new(&rest, count, width)?;
                (IntegerLayout::Packed(Frame { base, packed }), rest)
            }
            1 => {
                let (anchors, rest) = Frame::parse(&rest, count.div_ceil(BLOCK))?;
                let (packed, rest) = Packed::new(&rest, count, width)?;
                (IntegerLayout::Delta { anchors, steps: Frame { base, packed } }, rest)
            }
            2 => {
                let (_, _, run_count, _) = parse_head(&rest)?;
                if run_count > count {
                    return Err(nonsense(format!("{run_count} runs of {count} numbers")));
                }
                let (values, rest) = Frame::parse(&rest, run_count)?;
                let (ends, rest) = Frame::parse(&rest, run_count)?;
                let ends = checked_ends(&ends, count)?;
                (IntegerLayout::Runs { values, ends }, rest)
            }
            _ => return Err(nonsense(format!("numbers of the unknown layout {kind}"))),
        };
        Ok((Self { count, layout }, rest))
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Bounds of the numbers, if the head of packed numbers or of the runs' values tells them.
    pub(crate) fn bounds(&self) -> Option<(i64, i64)> {
        let frame = match &self.layout {
            IntegerLayout::Packed(frame) => frame,
            IntegerLayout::Runs { values, .. } => values,
            IntegerLayout::Delta { .. } => return None,
        };
        let span = 1_i64.checked_shl(frame.packed.width())?.checked_sub(1)?;
        Some((frame.base, frame.base.checked_add(span)?))
    }

    /// The number at `index`; some number beyond the last.
    pub(crate) fn get(&self, index: usize) -> i64 {
        match &self.layout {
            IntegerLayout::Packed(frame) => frame.get(index),
            IntegerLayout::Delta { anchors, steps } => {
                let block = index / BLOCK;
                let mut value = 0;
                steps.running_sums(block, anchors.get(block), &[index], |sum| value = sum);
                value
            }
            IntegerLayout::Runs { values, ends } => {
                let run = ends.partition_point(|end| u64::from(*end) <= index as u64);
                values.get(run)
            }
        }
    }

    /// Appends the numbers of `range`, converted by `convert`, to `target`.
    pub(crate) fn extend<T>(
        &self,
        range: Range<usize>,
        target: &mut Vec<T>,
        convert: impl Fn(i64) -> T,
    ) {
        let frame = match &self.layout {
            IntegerLayout::Packed(frame) if frame.packed.is_narrow() => frame,
            IntegerLayout::Runs { values, ends } => {
                return parts_of_runs(
                    ends,
                    range.start..range.end.min(self.count),
                    |run, length| {
                        let value = values.get(run);
                        target.extend(std::iter::repeat_n((), length).map(|()| convert(value)));
                    },
                );
            }
            _ => {
                return self.each_block(range, |block| {
                    target.extend(block.iter().map(|value| convert(*value)));
                });
            }
        };
        // The most frequent layout converts from 32 bits to the type of the values in one step.
        let end = range.end.min(self.count);
        let mut numbers = [0_u32; BLOCK];
        for block in range.start / BLOCK..end.div_ceil(BLOCK) {
            frame.packed.block_narrow(block, &mut numbers);
            let start = block * BLOCK;
            let from = range.start.max(start) - start;
            let numbers = numbers.get(from..(end - start).min(BLOCK)).unwrap_or_default();
            let base = frame.base;
            target.extend(
                numbers.iter().map(|number| convert(base.wrapping_add(i64::from(*number)))),
            );
        }
    }

    /// Appends the numbers of `range` that are `selected`, a bit for each, converted by `convert`, to `target`.
    pub(crate) fn extend_selected<T: Copy + Default>(
        &self,
        range: Range<usize>,
        selected: &BooleanBuffer,
        target: &mut Vec<T>,
        convert: impl Fn(i64) -> T,
    ) {
        if let IntegerLayout::Runs { values, ends } = &self.layout
            && selected.count_set_bits() * FEW_OF_RUNS < range.len()
        {
            // No run is written out of which nothing is selected.
            let mut run = ends.partition_point(|end| size_of(*end) <= range.start);
            let mut known = None;
            for offset in selected.set_indices() {
                let row = range.start + offset;
                while ends.get(run).is_some_and(|end| size_of(*end) <= row) {
                    run += 1;
                    known = None;
                }
                target.push(convert(*known.get_or_insert_with(|| values.get(run))));
            }
            return;
        }
        let mut at = 0;
        self.each_block(range, |block| {
            let length = block.len().min(selected.len().saturating_sub(at));
            let values = block.get(..length).unwrap_or_default();
            push_selected(values, &selected.slice(at, length), target, &convert);
            at += length;
        });
    }

    /// Passes the numbers at `indices` to `take`, in any order; ascending ones are read fastest.
    pub(crate) fn gather(&self, indices: &[usize], mut take: impl FnMut(i64)) {
        let IntegerLayout::Delta { anchors, steps } = &self.layout else {
            return indices.iter().for_each(|index| take(self.get(*index)));
        };
        for indices in indices.chunk_by(|left, right| left / BLOCK == right / BLOCK) {
            let block = indices.first().map_or(0, |index| index / BLOCK);
            steps.running_sums(block, anchors.get(block), indices, &mut take);
        }
    }

    /// Passes the numbers of `range` to `take`, in pieces of at most [`BLOCK`].
    pub(crate) fn each_block(&self, range: Range<usize>, mut take: impl FnMut(&[i64])) {
        let range = range.start..range.end.min(self.count);
        let mut values = [0_i64; BLOCK];
        let mut numbers = [0_u64; BLOCK];
        let mut narrow = [0_u32; BLOCK];
        let mut run = match &self.layout {
            IntegerLayout::Runs { ends, .. } => {
                ends.partition_point(|end| u64::from(*end) <= range.start as u64)
            }
            _ => 0,
        };
        let mut block = range.start / BLOCK;
        while block * BLOCK < range.end {
            let start = block * BLOCK;
            let from = range.start.max(start) - start;
            let to = (range.end - start).min(BLOCK);
            match &self.layout {
                IntegerLayout::Packed(frame) if frame.packed.is_narrow() => {
                    frame.packed.block_narrow(block, &mut narrow);
                    for (value, number) in values.iter_mut().zip(&narrow) {
                        *value = frame.base.wrapping_add(i64::from(*number));
                    }
                }
                IntegerLayout::Packed(frame) => {
                    frame.packed.block(block, &mut numbers);
                    for (value, number) in values.iter_mut().zip(&numbers) {
                        *value = frame.base.wrapping_add(number.cast_signed());
                    }
                }
                IntegerLayout::Delta { anchors, steps } => {
                    steps.packed.block(block, &mut numbers);
                    let mut sum = anchors.get(block).wrapping_sub(steps.base);
                    for (index, (value, number)) in values.iter_mut().zip(&numbers).enumerate() {
                        let step = if index == 0 { 0 } else { number.cast_signed() };
                        sum = sum.wrapping_add(steps.base).wrapping_add(step);
                        *value = sum;
                    }
                }
                IntegerLayout::Runs { values: run_values, ends } => {
                    let mut at = from;
                    while at < to {
                        // The last run ends with the last number, so every position has a run.
                        let run_end = ends.get(run).map_or(usize::MAX, |end| size_of(*end));
                        let end = run_end.saturating_sub(start).clamp(at + 1, to);
                        if let Some(part) = values.get_mut(at..end) {
                            part.fill(run_values.get(run));
                        }
                        run += usize::from(run_end <= start + end);
                        at = end;
                    }
                }
            }
            take(values.get(from..to).unwrap_or_default());
            block += 1;
        }
    }

    /// The numbers of `kept` that are in `set`: packed ones without adding their base, runs once a run.
    pub(crate) fn contained_in(&self, set: &IntegerSet, kept: &Kept) -> BooleanBuffer {
        if self.bounds().is_some_and(|(low, high)| !set.may_meet(low, high)) {
            return kept.if_so(false);
        }
        let mut last = usize::MAX;
        match &self.layout {
            IntegerLayout::Packed(frame) if frame.packed.is_narrow() => {
                let base = set.place(frame.base);
                let mut numbers = [0_u32; BLOCK];
                kept.narrowed(|row, kept| {
                    if last != row / BLOCK {
                        last = row / BLOCK;
                        frame.packed.block_narrow(last, &mut numbers);
                    }
                    let numbers = part_of(&numbers, row);
                    set.among(numbers, kept, |number| base.wrapping_add(u64::from(number)))
                })
            }
            IntegerLayout::Packed(frame) => {
                let base = set.place(frame.base);
                let mut numbers = [0_u64; BLOCK];
                kept.narrowed(|row, kept| {
                    if last != row / BLOCK {
                        last = row / BLOCK;
                        frame.packed.block(last, &mut numbers);
                    }
                    set.among(part_of(&numbers, row), kept, |number| base.wrapping_add(number))
                })
            }
            IntegerLayout::Delta { .. } => {
                let mut numbers = [0_i64; BLOCK];
                kept.narrowed(|row, kept| {
                    if last != row / BLOCK {
                        last = row / BLOCK;
                        self.each_block(last * BLOCK..(last + 1) * BLOCK, |block| {
                            for (number, value) in numbers.iter_mut().zip(block) {
                                *number = *value;
                            }
                        });
                    }
                    set.among(part_of(&numbers, row), kept, |number| set.place(number))
                })
            }
            IntegerLayout::Runs { values, ends } => {
                kept.runs(ends, |run| set.contains(values.get(run)))
            }
        }
    }

    /// For each number, whether comparing it with `other` gives one of `wanted`.
    pub(crate) fn compare(&self, other: i128, wanted: impl Fn(Ordering) -> bool) -> BooleanBuffer {
        let [less, equal, greater] =
            [Ordering::Less, Ordering::Equal, Ordering::Greater].map(&wanted);
        match &self.layout {
            IntegerLayout::Packed(frame) => {
                frame.compare(self.count, other, [less, equal, greater])
            }
            IntegerLayout::Runs { values, ends } => {
                let mut bits = BooleanBufferBuilder::new(self.count);
                let mut start = 0;
                for (run, end) in ends.iter().enumerate() {
                    let end = usize::try_from(*end).unwrap_or(start);
                    bits.append_n(end - start, wanted(i128::from(values.get(run)).cmp(&other)));
                    start = end;
                }
                bits.finish()
            }
            IntegerLayout::Delta { anchors, steps } => {
                let mut bits = BooleanBufferBuilder::new(self.count);
                for block in 0..self.count.div_ceil(BLOCK) {
                    let range = block * BLOCK..self.count.min((block + 1) * BLOCK);
                    // Often the least and the greatest step decide it for the block.
                    let bounds = steps.bounds_of_sums(anchors.get(block), range.len());
                    match bounds {
                        Some((_, high)) if high < other => bits.append_n(range.len(), less),
                        Some((low, _)) if low > other => bits.append_n(range.len(), greater),
                        _ => self.each_block(range, |values| {
                            for value in values {
                                let value = i128::from(*value);
                                bits.append(
                                    less & (value < other)
                                        | equal & (value == other)
                                        | greater & (value > other),
                                );
                            }
                        }),
                    }
                }
                bits.finish()
            }
        }
    }
}

impl Frame {
    fn parse(bytes: &Bytes, count: usize) -> Result<(Self, Bytes), Corruption> {
        let (kind, width, found, base) = parse_head(bytes)?;
        if kind != 0 || found != count {
            return Err(nonsense(format!("{found} packed numbers where {count} belong")));
        }
        let (packed, rest) = Packed::new(&bytes.slice(HEAD..), count, width)?;
        Ok((Self { base, packed }, rest))
    }

    fn get(&self, index: usize) -> i64 {
        self.base.wrapping_add(self.packed.get(index).cast_signed())
    }

    /// Bounds of `count` numbers that begin with `anchor` and of which each is one of these steps above the one before;
    /// None if they may wrap.
    fn bounds_of_sums(&self, anchor: i64, count: usize) -> Option<(i128, i128)> {
        let step_count = i128::try_from(count).ok()? - 1;
        let span = 1_i128.checked_shl(self.packed.width())? - 1;
        let (anchor, least) = (i128::from(anchor), i128::from(self.base));
        let low = anchor + (step_count * least).min(0);
        let high = anchor + (step_count * (least + span)).max(0);
        (low >= i128::from(i64::MIN) && high <= i128::from(i64::MAX)).then_some((low, high))
    }

    /// Passes on the sums of `anchor` and all steps up to each of `indices`, which lie in `block`.
    fn running_sums(&self, block: usize, anchor: i64, indices: &[usize], take: impl FnMut(i64)) {
        // Narrow numbers are added without widening them first, which pays even for a single value.
        if self.packed.is_narrow() {
            let mut numbers = [0_u32; BLOCK];
            self.packed.block_narrow(block, &mut numbers);
            running_sums(&numbers, self.base, anchor, indices, take);
        } else {
            let mut numbers = [0_u64; BLOCK];
            self.packed.block(block, &mut numbers);
            running_sums(&numbers, self.base, anchor, indices, take);
        }
    }

    /// Compares without adding the base to any number.
    fn compare(&self, count: usize, other: i128, wanted: [bool; 3]) -> BooleanBuffer {
        let [less, _, greater] = wanted;
        let other = other.saturating_sub(i128::from(self.base));
        // If sums wrap, which no writer causes, the order of offsets is not that of values: any answer will do.
        let Ok(other) = u64::try_from(other) else {
            return constant(if other < 0 { greater } else { less }, count);
        };
        // Every comparison is one range of numbers, or all but one.
        let (low, high, inside) = match wanted {
            [false, true, false] => (other, other, true),
            [true, false, true] => (other, other, false),
            [true, true, false] => (0, other, true),
            [false, false, true] => (0, other, false),
            [false, true, true] => (other, u64::MAX, true),
            [true, false, false] => (other, u64::MAX, false),
            [all, _, _] => (0, u64::MAX, all),
        };
        // The width bounds the numbers, which often decides the comparison for all.
        let greatest = u64::MAX.checked_shr(64 - self.packed.width()).unwrap_or(0);
        if low == 0 && greatest <= high {
            return constant(inside, count);
        }
        if greatest < low {
            return constant(!inside, count);
        }
        let mut bits = Bits::with_capacity(count);
        if self.packed.is_narrow() {
            let high = u32::try_from(high).unwrap_or(u32::MAX);
            let Ok(low) = u32::try_from(low) else {
                return constant(!inside, count);
            };
            let mut numbers = [0_u32; BLOCK];
            for block in 0..count.div_ceil(BLOCK) {
                self.packed.block_narrow(block, &mut numbers);
                bits.extend(&numbers, |number| {
                    (number.wrapping_sub(low) <= high.wrapping_sub(low)) == inside
                });
            }
        } else {
            let mut numbers = [0_u64; BLOCK];
            for block in 0..count.div_ceil(BLOCK) {
                self.packed.block(block, &mut numbers);
                bits.extend(&numbers, |number| {
                    (number.wrapping_sub(low) <= high.wrapping_sub(low)) == inside
                });
            }
        }
        bits.finish(count)
    }
}

/// The numbers of a block from row `row` on.
fn part_of<T>(numbers: &[T; BLOCK], row: usize) -> &[T] {
    let from = row % BLOCK;
    numbers.get(from..(from + 64).min(BLOCK)).unwrap_or_default()
}

fn constant(answer: bool, count: usize) -> BooleanBuffer {
    if answer { BooleanBuffer::new_set(count) } else { BooleanBuffer::new_unset(count) }
}

/// Bits of successive blocks.
struct Bits(Vec<u64>);

impl Bits {
    fn with_capacity(count: usize) -> Self {
        Self(Vec::with_capacity(count.div_ceil(BLOCK) * (BLOCK / 64)))
    }

    /// The bits of a block, whose length is a multiple of 64 except for the last.
    fn extend<T>(&mut self, values: &[T], holds: impl Fn(&T) -> bool) {
        for values in values.chunks(64) {
            // First bytes, which vector instructions make, then eight of them to a byte of bits at a time.
            let mut flags = [0_u8; 64];
            for (flag, value) in flags.iter_mut().zip(values) {
                *flag = u8::from(holds(value));
            }
            self.0.push(word_of(&flags));
        }
    }

    fn finish(self, count: usize) -> BooleanBuffer {
        BooleanBuffer::new(arrow::buffer::Buffer::from_vec(self.0), 0, count)
    }
}

fn parse_head(bytes: &Bytes) -> Result<(u8, u32, usize, i64), Corruption> {
    let truncated = || Corruption::Truncated { expected: HEAD as u64, found: bytes.len() as u64 };
    let head = bytes.first_chunk::<HEAD>().ok_or_else(truncated)?;
    let [kind, width, zero_a, zero_b, c0, c1, c2, c3, base @ ..] = *head;
    if (zero_a, zero_b) != (0, 0) {
        return Err(nonsense("a head of numbers with stray bits".into()));
    }
    let count = usize::try_from(u32::from_le_bytes([c0, c1, c2, c3])).unwrap_or(usize::MAX);
    Ok((kind, u32::from(width), count, i64::from_le_bytes(base)))
}

/// Passes on the runs that have numbers of `range`, with how many; `ends` are the ends of all runs.
fn parts_of_runs(ends: &[u32], range: Range<usize>, mut take: impl FnMut(usize, usize)) {
    let first = ends.partition_point(|end| size_of(*end) <= range.start);
    let mut at = range.start;
    for (run, end) in ends.iter().enumerate().skip(first) {
        let end = size_of(*end).min(range.end);
        if at >= range.end {
            return;
        }
        take(run, end - at);
        at = end;
    }
}

/// The ends of runs, checked to ascend up to `count`.
fn checked_ends(ends: &Frame, count: usize) -> Result<Vec<u32>, Corruption> {
    let run_count = ends.packed.count();
    let mut checked: Vec<u32> = Vec::with_capacity(run_count);
    let mut last = 0;
    let mut numbers = [0_u64; BLOCK];
    for block in 0..run_count.div_ceil(BLOCK) {
        ends.packed.block(block, &mut numbers);
        for number in numbers.iter().take(run_count - block * BLOCK) {
            let end = ends.base.wrapping_add(number.cast_signed());
            let end = u32::try_from(end).ok().filter(|end| *end > last);
            last = end.ok_or_else(|| {
                let run = checked.len();
                nonsense(format!("run {run} does not end behind the one before"))
            })?;
            checked.push(last);
        }
    }
    if u64::from(last) != count as u64 {
        return Err(nonsense(format!("runs of {last} numbers where {count} belong")));
    }
    Ok(checked)
}

fn nonsense(reason: String) -> Corruption {
    Corruption::Values(reason)
}

#[cfg(test)]
mod tests;
