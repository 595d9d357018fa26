//! Settings of the database as a whole that its manifest keeps (archive, retention, vacuum, log replicas), and facts
//! that the log does not have.

use std::path::PathBuf;

use cleave_media::Extent;

use super::autovacuum::Autovacuum;
use super::log_replicas::{KeptSpace, LogReplica};
use super::manifest::blocks;
use super::rebalance::Rebalance;
use super::{DeviceId, proto};

/// See the module's description.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// Folder to which finished segments of the log are copied before they are retired; None: they are not.
    pub archive_directory: Option<PathBuf>,
    /// Number of the last commit whose changes are in no log, such as bulk loads and DDL; 0: none.
    pub unlogged_commit: u64,
    /// Time of that commit, in microseconds since 1970.
    pub unlogged_at_us: i64,
    /// Seconds for which older catalog versions are kept, for `as_of`; 0: none are.
    pub version_retention_s: u32,
    /// Settings of automatic vacuum.
    pub autovacuum: Autovacuum,
    /// Settings of automatic rebalancing.
    pub rebalance: Rebalance,
    /// Log replicas on devices.
    pub log_replicas: Vec<LogReplica>,
    /// Space that only manifests in log replicas still use: not reused before these have a newer manifest.
    pub kept: KeptSpace,
    /// The highest epoch of the hosts before the last failover: log replicas may have diverging records of these; 0:
    /// there was none.
    pub failover_epoch: u64,
}

impl Upkeep {
    /// The message for a manifest.
    pub(super) fn encode(&self) -> Option<proto::Upkeep> {
        let message = proto::Upkeep {
            archive_directory: self
                .archive_directory
                .as_ref()
                .map(|path| path.to_string_lossy().into_owned()),
            unlogged_commit: self.unlogged_commit,
            unlogged_at_us: self.unlogged_at_us,
            version_retention_s: self.version_retention_s,
            autovacuum: self.autovacuum.is_on,
            autovacuum_naptime_s: self.autovacuum.naptime_s,
            autovacuum_vacuum_threshold: self.autovacuum.threshold,
            autovacuum_vacuum_scale: self.autovacuum.scale,
            analyzes_none: self.autovacuum.analyzes_none,
            analyze_threshold: self.autovacuum.analyze_threshold,
            analyze_scale: self.autovacuum.analyze_scale,
            log_replicas: self.log_replicas.iter().map(LogReplica::encode).collect(),
            kept: self.kept.iter().map(kept_message).collect(),
            failover_epoch: self.failover_epoch,
            rebalance: self.rebalance.encode(),
        };
        (*self != Self::default()).then_some(message)
    }

    /// Reads what [`Upkeep::encode`] wrote; None if it is invalid.
    pub(super) fn decode(message: Option<proto::Upkeep>) -> Option<Self> {
        let message = message.unwrap_or_default();
        Some(Self {
            archive_directory: message.archive_directory.map(PathBuf::from),
            unlogged_commit: message.unlogged_commit,
            unlogged_at_us: message.unlogged_at_us,
            version_retention_s: message.version_retention_s,
            autovacuum: Autovacuum {
                is_on: message.autovacuum,
                naptime_s: message.autovacuum_naptime_s,
                threshold: message.autovacuum_vacuum_threshold,
                scale: message.autovacuum_vacuum_scale,
                analyzes_none: message.analyzes_none,
                analyze_threshold: message.analyze_threshold,
                analyze_scale: message.analyze_scale,
            },
            log_replicas: message
                .log_replicas
                .into_iter()
                .map(LogReplica::decode)
                .collect::<Option<_>>()?,
            kept: message.kept.iter().map(kept_of).collect::<Option<_>>()?,
            failover_epoch: message.failover_epoch,
            rebalance: Rebalance::decode(message.rebalance),
        })
    }
}

fn kept_message((device, extents): (&DeviceId, &Vec<Extent>)) -> proto::Kept {
    proto::Kept { device: device.0, blocks: Some(blocks::encode(extents)) }
}

fn kept_of(message: &proto::Kept) -> Option<(DeviceId, Vec<Extent>)> {
    let extents = blocks::decode(message.blocks.as_ref()?)?;
    Some((DeviceId(message.device), extents.to_vec()))
}
