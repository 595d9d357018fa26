//! Encodes the index pages and index filters of an execute.

use cleave_store::{KeyRange, SegmentId};
use prost::Message;

use super::{
    Decoded, MalformedMessage, PageProto, SegmentProto, page_from_proto, page_to_proto,
    segment_from_proto, segment_to_proto,
};
use crate::index_filter::{IndexFilter, IndexFilteredPart, ScanKeys, Thrift};
use crate::index_input::{IndexInput, IndexPages};

#[derive(Clone, PartialEq, Message)]
pub(super) struct IndexFilterProto {
    #[prost(uint32, tag = "1")]
    input: u32,
    #[prost(message, repeated, tag = "2")]
    ranges: Vec<KeyRangeProto>,
    #[prost(message, repeated, tag = "3")]
    parts: Vec<IndexFilteredPartProto>,
    #[prost(message, optional, tag = "4")]
    keys: Option<ScanKeysProto>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ScanKeysProto {
    #[prost(string, tag = "1")]
    index: String,
    #[prost(uint32, tag = "2")]
    column: u32,
    #[prost(bool, tag = "3")]
    descending: bool,
    #[prost(bool, tag = "4")]
    nulls_first: bool,
    #[prost(uint64, tag = "5")]
    rows_per_key: u64,
    #[prost(uint64, tag = "6")]
    page_count: u64,
    #[prost(uint32, tag = "7")]
    thrift: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyRangeProto {
    #[prost(bytes = "vec", tag = "1")]
    from: Vec<u8>,
    #[prost(bytes = "vec", optional, tag = "2")]
    below: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct IndexFilteredPartProto {
    #[prost(uint32, repeated, tag = "1")]
    segments: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    runs: Vec<IndexPagesProto>,
    #[prost(uint64, repeated, tag = "3")]
    rows: Vec<u64>,
    #[prost(uint32, repeated, tag = "4")]
    hot: Vec<u32>,
    #[prost(uint64, tag = "5")]
    vid_covered: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct IndexInputProto {
    #[prost(uint32, tag = "1")]
    number: u32,
    #[prost(message, repeated, tag = "2")]
    runs: Vec<IndexPagesProto>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct IndexPagesProto {
    #[prost(message, optional, tag = "1")]
    segment: Option<SegmentProto>,
    #[prost(message, repeated, tag = "2")]
    pages: Vec<PageProto>,
    #[prost(bytes = "vec", repeated, tag = "3")]
    fences: Vec<Vec<u8>>,
}

pub(super) fn index_to_proto(input: IndexInput) -> IndexInputProto {
    let runs = input.runs.into_iter().map(index_pages_to_proto).collect();
    IndexInputProto { number: input.number, runs }
}

pub(super) fn index_from_proto(input: IndexInputProto) -> Decoded<IndexInput> {
    let runs = input.runs.into_iter().map(index_pages_from_proto).collect::<Decoded<_>>()?;
    Ok(IndexInput { number: input.number, runs })
}

fn index_pages_to_proto(run: IndexPages) -> IndexPagesProto {
    IndexPagesProto {
        segment: Some(segment_to_proto(run.segment)),
        pages: run.pages.into_iter().map(page_to_proto).collect(),
        fences: run.fences,
    }
}

fn index_pages_from_proto(run: IndexPagesProto) -> Decoded<IndexPages> {
    Ok(IndexPages {
        segment: segment_from_proto(run.segment)?,
        pages: run.pages.into_iter().map(page_from_proto).collect::<Decoded<_>>()?,
        fences: run.fences,
    })
}

pub(super) fn index_filter_to_proto(index_filter: IndexFilter) -> IndexFilterProto {
    let range = |range: KeyRange| KeyRangeProto { from: range.from, below: range.below };
    let part = |part: IndexFilteredPart| IndexFilteredPartProto {
        segments: part.segments.into_iter().map(|segment| segment.0).collect(),
        runs: part.runs.into_iter().map(index_pages_to_proto).collect(),
        rows: part.rows,
        hot: part.hot.into_iter().map(|segment| segment.0).collect(),
        vid_covered: part.vid_covered,
    };
    let keys = index_filter.keys.map(|keys| ScanKeysProto {
        index: keys.index,
        column: keys.column,
        descending: keys.descending,
        nulls_first: keys.nulls_first,
        rows_per_key: keys.rows_per_key,
        page_count: keys.page_count,
        thrift: keys.thrift.code(),
    });
    IndexFilterProto {
        input: index_filter.input,
        keys,
        ranges: index_filter.ranges.into_iter().map(range).collect(),
        parts: index_filter.parts.into_iter().map(part).collect(),
    }
}

pub(super) fn index_filter_from_proto(index_filter: IndexFilterProto) -> Decoded<IndexFilter> {
    let range = |range: KeyRangeProto| KeyRange { from: range.from, below: range.below };
    let part = |part: IndexFilteredPartProto| {
        Ok(IndexFilteredPart {
            segments: part.segments.into_iter().map(SegmentId).collect(),
            runs: part.runs.into_iter().map(index_pages_from_proto).collect::<Decoded<_>>()?,
            rows: part.rows,
            hot: part.hot.into_iter().map(SegmentId).collect(),
            vid_covered: part.vid_covered,
        })
    };
    let keys = |keys: ScanKeysProto| {
        let thrift = Thrift::from_code(keys.thrift)
            .ok_or(MalformedMessage::Field("thrift of an index filter"))?;
        Decoded::Ok(ScanKeys {
            index: keys.index,
            column: keys.column,
            descending: keys.descending,
            nulls_first: keys.nulls_first,
            rows_per_key: keys.rows_per_key,
            page_count: keys.page_count,
            thrift,
        })
    };
    Ok(IndexFilter {
        input: index_filter.input,
        keys: index_filter.keys.map(keys).transpose()?,
        ranges: index_filter.ranges.into_iter().map(range).collect(),
        parts: index_filter.parts.into_iter().map(part).collect::<Decoded<_>>()?,
    })
}
