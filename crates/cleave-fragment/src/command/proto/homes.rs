//! Homes of pages as protobuf.

use bytes::Bytes;
use cleave_store::SegmentId;
use prost::Message;

use super::{Decoded, MalformedMessage, identity_from};
use crate::command::homes::PageHome;

#[derive(Clone, PartialEq, Message)]
pub(super) struct PageHomeProto {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) device: Bytes,
    #[prost(uint32, repeated, tag = "2")]
    pub(super) segments: Vec<u32>,
}

pub(super) fn home_to_proto(home: PageHome) -> PageHomeProto {
    PageHomeProto {
        device: Bytes::copy_from_slice(&home.device),
        segments: home.segments.into_iter().map(|segment| segment.0).collect(),
    }
}

pub(super) fn home_from_proto(home: PageHomeProto) -> Decoded<PageHome> {
    let device = identity_from(&home.device);
    Ok(PageHome {
        device: device.ok_or(MalformedMessage::Field("device that pages lie on"))?,
        segments: home.segments.into_iter().map(SegmentId).collect(),
    })
}
