//! Damaged tables and indexes: parts of a database that cannot be used because a segment file of theirs cannot be read.
//!
//! ```text
//!  a file of the heap     ─▶ DamagedTable: nothing reads or writes the table
//!  a file of an index run ─▶ DamagedIndex: nothing writes the table, nothing reads the index
//! ```
//!
//! [`manifest`](super::manifest) makes them when a database opens. Their manifest entries are kept word for word, so
//! later manifests have them too: once the file is back, the next incarnation finds everything as it was. Until they
//! are dropped their space stays allocated, as the manifest lists it, and their files stay in place.
//!
//! Invariant: a damaged part is in no [`TableState`](super::TableState), so no statement can take it for whole.

use std::sync::Arc;

use cleave_media::Extent;
use cleave_store::{SegmentId, TableSchema};

use super::index_definition::IndexDefinition;
use super::{DeviceId, proto};
use crate::storage_error::{Faults, Remedy, SegmentFault, StorageError};

/// A table that cannot be used: a segment of its heap cannot be read.
#[derive(Debug, Clone)]
pub struct DamagedTable {
    /// Columns, key, defaults.
    pub schema: Arc<TableSchema>,
    /// The faults, those of its indexes included; at least one.
    pub faults: Vec<SegmentFault>,
    /// Its manifest entry.
    pub message: proto::Table,
    /// Its space, by tablet.
    pub space: Vec<Occupied>,
}

/// An index that cannot be used, of a table that can be read: one of its runs cannot be read.
#[derive(Debug, Clone)]
pub struct DamagedIndex {
    /// Name, columns, whether it is unique.
    pub definition: Arc<IndexDefinition>,
    /// The faults; at least one.
    pub faults: Vec<SegmentFault>,
    /// The manifest entries of its parts, by tablet.
    pub parts: Vec<proto::Index>,
    /// Its space, by tablet.
    pub space: Vec<Occupied>,
}

/// The space of a damaged part on one device.
#[derive(Debug, Clone)]
pub struct Occupied {
    /// The device.
    pub device: DeviceId,
    /// Its known extents.
    pub extents: Vec<Extent>,
    /// Whether these are all: manifests of earlier builds do not list the extents of a segment.
    pub is_known: bool,
}

impl DamagedTable {
    /// The error for a statement that uses it.
    pub fn error(&self) -> StorageError {
        StorageError::DamagedTable {
            table: self.schema.name.clone(),
            faults: Faults(self.faults.clone()),
        }
    }

    /// Names of its indexes.
    pub fn index_names(&self) -> impl Iterator<Item = &str> {
        self.message.indexes.iter().map(|index| index.name.as_str())
    }

    /// Its segments, according to the manifest.
    pub fn segments(&self) -> impl Iterator<Item = SegmentId> {
        self.message.tablets.iter().flat_map(|tablet| {
            let runs = tablet.indexes.iter().flat_map(|index| &index.runs);
            tablet.heap.iter().chain(runs).map(|place| SegmentId(place.segment))
        })
    }
}

impl DamagedIndex {
    /// The error for a statement on `table` that needs it.
    pub fn error(&self, table: &str) -> StorageError {
        let constraint = self.definition.constraint;
        StorageError::DamagedIndex {
            table: table.to_owned(),
            index: self.definition.name.clone(),
            faults: Faults(self.faults.clone()),
            remedy: if constraint { Remedy::CopyRows } else { Remedy::DropIndex },
        }
    }

    /// Its segments, according to the manifest.
    pub fn segments(&self) -> impl Iterator<Item = SegmentId> {
        self.parts.iter().flat_map(|part| &part.runs).map(|place| SegmentId(place.segment))
    }
}
