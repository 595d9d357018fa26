//! Profiles as protobuf, for the reply that carries a device's and for the host's files.
//!
//! Figures stand in the order of [`Figure::ALL`], so that a later version may add some: missing ones are unknown. A
//! figure that was read is checked before use: it is a positive number, or unknown.

use prost::Message;

use super::{FIGURE_COUNT, Figure, LinkProfile, Origin, SideProfile};
use crate::command::proto::MalformedMessage;

/// Most remarks of a profile, and most bytes of one.
const REMARK_COUNT_MAX: usize = 64;
const REMARK_BYTES_MAX: usize = 1024;
/// Most sizes of handshakes.
const HANDSHAKE_COUNT_MAX: usize = 64;
/// Most cores that are accepted.
const CORES_MAX: u32 = 1 << 20;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SideProto {
    #[prost(uint32, tag = "1")]
    origin: u32,
    #[prost(uint32, tag = "2")]
    cores: u32,
    #[prost(double, tag = "3")]
    cores_together: f64,
    #[prost(uint64, tag = "4")]
    memory_bytes: u64,
    #[prost(double, repeated, tag = "5")]
    figures: Vec<f64>,
    #[prost(string, repeated, tag = "6")]
    remarks: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct LinkProto {
    #[prost(uint32, tag = "1")]
    origin: u32,
    #[prost(double, tag = "2")]
    round_trip_s: f64,
    #[prost(double, tag = "3")]
    bytes_per_second: f64,
    #[prost(uint64, repeated, tag = "4")]
    handshake_bytes: Vec<u64>,
    #[prost(double, repeated, tag = "5")]
    handshake_s: Vec<f64>,
}

const ORIGINS: [Origin; 3] = [Origin::Measured, Origin::Assumed, Origin::Described];

fn origin_code(origin: Origin) -> u32 {
    match origin {
        Origin::Measured => 1,
        Origin::Assumed => 2,
        Origin::Described => 3,
    }
}

fn origin_from(code: u32) -> Result<Origin, MalformedMessage> {
    ORIGINS
        .into_iter()
        .find(|origin| origin_code(*origin) == code)
        .ok_or(MalformedMessage::Field("origin of a profile"))
}

pub(crate) fn side_to_proto(side: SideProfile) -> SideProto {
    SideProto {
        origin: origin_code(side.origin),
        cores: side.cores,
        cores_together: side.cores_together,
        memory_bytes: side.memory_bytes,
        figures: side.figures.to_vec(),
        remarks: side.remarks,
    }
}

pub(crate) fn side_from_proto(side: SideProto) -> Result<SideProfile, MalformedMessage> {
    let together = side.cores_together;
    let remarks = &side.remarks;
    if side.cores > CORES_MAX || !(together > 0.0 && together <= f64::from(CORES_MAX)) {
        return Err(MalformedMessage::Field("number of cores"));
    }
    if remarks.len() > REMARK_COUNT_MAX || remarks.iter().any(|text| text.len() > REMARK_BYTES_MAX)
    {
        return Err(MalformedMessage::Field("remark of a profile"));
    }
    if side.figures.len() > FIGURE_COUNT {
        return Err(MalformedMessage::Field("number of figures"));
    }
    let origin = origin_from(side.origin)?;
    let mut profile = SideProfile::unknown(origin, side.cores, side.memory_bytes);
    profile.cores_together = together;
    profile.remarks = side.remarks;
    for (figure, rate) in Figure::ALL.into_iter().zip(side.figures) {
        profile.set(figure, rate);
    }
    Ok(profile)
}

impl SideProfile {
    /// Encodes the profile.
    pub fn to_bytes(&self) -> Vec<u8> {
        side_to_proto(self.clone()).encode_to_vec()
    }

    /// Decodes what [`SideProfile::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`MalformedMessage`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MalformedMessage> {
        side_from_proto(SideProto::decode(bytes)?)
    }
}

impl LinkProfile {
    /// Encodes the profile; that of no link has no bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        if self.is_embedded {
            return Vec::new();
        }
        let (handshake_bytes, handshake_s) = self.handshakes.iter().copied().unzip();
        let link = LinkProto {
            origin: origin_code(self.origin),
            round_trip_s: self.round_trip_s,
            bytes_per_second: self.bytes_per_second,
            handshake_bytes,
            handshake_s,
        };
        link.encode_to_vec()
    }

    /// Decodes what [`LinkProfile::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`MalformedMessage`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MalformedMessage> {
        if bytes.is_empty() {
            return Ok(Self::embedded());
        }
        let link = LinkProto::decode(bytes)?;
        let is_time = |time: f64| time.is_finite() && time >= 0.0;
        let counts = (link.handshake_bytes.len(), link.handshake_s.len());
        if counts.0 != counts.1 || counts.0 > HANDSHAKE_COUNT_MAX {
            return Err(MalformedMessage::Field("number of handshakes"));
        }
        if !is_time(link.round_trip_s) || !link.handshake_s.iter().copied().all(is_time) {
            return Err(MalformedMessage::Field("time of a link"));
        }
        if !(link.bytes_per_second > 0.0 && link.bytes_per_second.is_finite()) {
            return Err(MalformedMessage::Field("rate of a link"));
        }
        Ok(Self {
            origin: origin_from(link.origin)?,
            is_embedded: false,
            round_trip_s: link.round_trip_s,
            bytes_per_second: link.bytes_per_second,
            handshakes: link.handshake_bytes.into_iter().zip(link.handshake_s).collect(),
        })
    }
}
