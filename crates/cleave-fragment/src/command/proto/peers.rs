//! Devices that take from each other, and grants, as protobuf.

use bytes::Bytes;
use prost::Message;

use super::{
    Decoded, ExtentProto, MalformedMessage, extent_from_proto, extent_to_proto, identity_from,
};
use crate::command::message::{Grant, Request};
use crate::command::peers::{
    GRANTED_MAX, HASHED_COLUMNS_MAX, OUTPUTS_MAX, Outputs, PEER_CA_BYTES_MAX, PEER_HOST_BYTES_MAX,
    PEER_STREAMS_MAX, PEERS_MAX, Peer, PeerAddress, PeerRows, PeerSecret, PeerStream, PeerWay,
};

#[derive(Clone, PartialEq, Message)]
pub(super) struct PeerProto {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) device: Bytes,
    /// Without one it is of the same node.
    #[prost(message, optional, tag = "2")]
    pub(super) address: Option<PeerAddressProto>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PeerAddressProto {
    #[prost(string, tag = "1")]
    host: String,
    #[prost(uint32, tag = "2")]
    port: u32,
    #[prost(string, optional, tag = "3")]
    ca_pem: Option<String>,
    #[prost(fixed64, tag = "4")]
    grant: u64,
    #[prost(bytes = "bytes", tag = "5")]
    secret: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PeerRowsProto {
    #[prost(uint32, tag = "1")]
    input: u32,
    #[prost(message, repeated, tag = "2")]
    streams: Vec<PeerStreamProto>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PeerStreamProto {
    #[prost(bytes = "bytes", tag = "1")]
    device: Bytes,
    #[prost(uint64, tag = "2")]
    run: u64,
    #[prost(uint32, tag = "3")]
    output: u32,
}

/// With columns, each row goes to one output; without, to all.
#[derive(Clone, PartialEq, Message)]
pub(super) struct OutputsProto {
    #[prost(uint32, tag = "1")]
    count: u32,
    #[prost(uint32, repeated, tag = "2")]
    columns: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FetchProto {
    #[prost(uint64, tag = "1")]
    pub(super) consumed: u64,
    #[prost(uint32, tag = "2")]
    pub(super) output: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct GrantProto {
    #[prost(fixed64, tag = "1")]
    number: u64,
    #[prost(bytes = "bytes", tag = "2")]
    secret: Bytes,
    #[prost(message, repeated, tag = "3")]
    extents: Vec<ExtentProto>,
    #[prost(message, repeated, tag = "4")]
    outputs: Vec<GrantedOutputProto>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct GrantedOutputProto {
    #[prost(uint64, tag = "1")]
    run: u64,
    #[prost(uint32, tag = "2")]
    output: u32,
}

pub(super) fn peer_to_proto(peer: Peer) -> PeerProto {
    let address = match peer.way {
        PeerWay::Node => None,
        PeerWay::Link(PeerAddress { host, port, ca_pem, grant, secret }) => {
            let secret = Bytes::copy_from_slice(&secret.0);
            Some(PeerAddressProto { host, port: port.into(), ca_pem, grant, secret })
        }
    };
    PeerProto { device: Bytes::copy_from_slice(&peer.device), address }
}

pub(super) fn peers_from_proto(peers: Vec<PeerProto>) -> Decoded<Vec<Peer>> {
    if peers.len() > PEERS_MAX {
        return Err(MalformedMessage::Field("number of peers"));
    }
    peers.into_iter().map(peer_from_proto).collect()
}

fn peer_from_proto(peer: PeerProto) -> Decoded<Peer> {
    let device = identity_from(&peer.device).ok_or(MalformedMessage::Field("peer's device"))?;
    let way = match peer.address {
        None => PeerWay::Node,
        Some(PeerAddressProto { host, port, ca_pem, grant, secret }) => {
            let ca_bytes = ca_pem.as_ref().map_or(0, String::len);
            if host.is_empty() || host.len() > PEER_HOST_BYTES_MAX || ca_bytes > PEER_CA_BYTES_MAX {
                return Err(MalformedMessage::Field("address of a peer"));
            }
            let port = u16::try_from(port).ok().filter(|port| *port > 0);
            let port = port.ok_or(MalformedMessage::Field("port of a peer"))?;
            let secret = secret_from(&secret)?;
            PeerWay::Link(PeerAddress { host, port, ca_pem, grant, secret })
        }
    };
    Ok(Peer { device, way })
}

fn secret_from(secret: &Bytes) -> Decoded<PeerSecret> {
    let secret: Option<[u8; PeerSecret::BYTES]> = secret.as_ref().try_into().ok();
    secret.map(PeerSecret).ok_or(MalformedMessage::Field("secret of a grant"))
}

pub(super) fn peer_rows_to_proto(rows: PeerRows) -> PeerRowsProto {
    let stream = |stream: PeerStream| PeerStreamProto {
        device: Bytes::copy_from_slice(&stream.device),
        run: stream.run,
        output: stream.output,
    };
    PeerRowsProto { input: rows.input, streams: rows.streams.into_iter().map(stream).collect() }
}

pub(super) fn peer_rows_from_proto(rows: Vec<PeerRowsProto>) -> Decoded<Vec<PeerRows>> {
    let streams = rows.iter().map(|rows| rows.streams.len());
    if rows.len() > PEER_STREAMS_MAX || streams.sum::<usize>() > PEER_STREAMS_MAX {
        return Err(MalformedMessage::Field("number of streams from peers"));
    }
    let stream = |stream: PeerStreamProto| {
        let device = identity_from(&stream.device);
        let device = device.ok_or(MalformedMessage::Field("device of a stream"))?;
        if stream.output >= OUTPUTS_MAX {
            return Err(MalformedMessage::Field("output of a stream"));
        }
        Ok(PeerStream { device, run: stream.run, output: stream.output })
    };
    let rows = rows.into_iter().map(|PeerRowsProto { input, streams }| {
        let streams = streams.into_iter().map(stream).collect::<Decoded<_>>()?;
        Ok(PeerRows { input, streams })
    });
    rows.collect()
}

pub(super) fn outputs_to_proto(outputs: Outputs) -> Option<OutputsProto> {
    match outputs {
        Outputs::One => None,
        Outputs::Copies(count) => Some(OutputsProto { count, columns: Vec::new() }),
        Outputs::ByHash { columns, count } => Some(OutputsProto { count, columns }),
    }
}

pub(super) fn outputs_from_proto(outputs: Option<OutputsProto>) -> Decoded<Outputs> {
    let Some(OutputsProto { count, columns }) = outputs else { return Ok(Outputs::One) };
    if !(1..=OUTPUTS_MAX).contains(&count) || columns.len() > HASHED_COLUMNS_MAX {
        return Err(MalformedMessage::Field("division of rows among outputs"));
    }
    Ok(match columns.is_empty() {
        true => Outputs::Copies(count),
        false => Outputs::ByHash { columns, count },
    })
}

pub(super) fn grant_to_proto(grant: Grant) -> GrantProto {
    let output = |(run, output)| GrantedOutputProto { run, output };
    GrantProto {
        number: grant.number,
        secret: Bytes::copy_from_slice(&grant.secret.0),
        extents: grant.extents.into_iter().map(extent_to_proto).collect(),
        outputs: grant.outputs.into_iter().map(output).collect(),
    }
}

pub(super) fn grant_from_proto(grant: GrantProto) -> Decoded<Request> {
    if grant.extents.len() > GRANTED_MAX || grant.outputs.len() > GRANTED_MAX {
        return Err(MalformedMessage::Field("number of extents or outputs of a grant"));
    }
    Ok(Request::Grant(Grant {
        number: grant.number,
        secret: secret_from(&grant.secret)?,
        extents: grant.extents.iter().map(extent_from_proto).collect(),
        outputs: grant.outputs.into_iter().map(|given| (given.run, given.output)).collect(),
    }))
}
