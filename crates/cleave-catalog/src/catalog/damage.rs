//! Parts of a database that cannot be used because a segment file of theirs cannot be read.
//!
//! ```text
//!  a file of the heap     ─▶ DamagedTable: nothing reads or writes the table
//!  a file of an index run ─▶ DamagedIndex: nothing writes the table, nothing reads the index
//! ```
//!
//! [`manifest`](super::manifest) makes them when a database opens. What the manifest says of them is kept word for
//! word, so that the manifests written from then on say it too: once the file is back, an incarnation finds everything
//! as it was. Until they are dropped their space stays taken, which the manifest itself tells, and their files stay
//! where they are.
//!
//! Invariant: what is damaged is in no [`TableState`](super::TableState), so that no statement can take it for whole.

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
    /// What is wrong, with its indexes too; at least one.
    pub faults: Vec<SegmentFault>,
    /// What the manifest says of it.
    pub message: proto::Table,
    /// What it occupies, by tablet.
    pub space: Vec<Occupied>,
}

/// An index that cannot be used, of a table that can be read: a run of it cannot be.
#[derive(Debug, Clone)]
pub struct DamagedIndex {
    /// Name, columns, whether it is unique.
    pub definition: Arc<IndexDefinition>,
    /// What is wrong; at least one.
    pub faults: Vec<SegmentFault>,
    /// What the manifest says of its parts, by tablet.
    pub parts: Vec<proto::Index>,
    /// What it occupies, by tablet.
    pub space: Vec<Occupied>,
}

/// What a damaged part occupies on one device.
#[derive(Debug, Clone)]
pub struct Occupied {
    /// The device.
    pub device: DeviceId,
    /// The extents that it is known to occupy.
    pub extents: Vec<Extent>,
    /// Whether these are all. Manifests of earlier builds do not say what a segment occupies.
    pub is_known: bool,
}

impl DamagedTable {
    /// The error of a statement that touches it.
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

    /// Segments that the manifest names for it.
    pub fn segments(&self) -> impl Iterator<Item = SegmentId> {
        self.message.tablets.iter().flat_map(|tablet| {
            let runs = tablet.indexes.iter().flat_map(|index| &index.runs);
            tablet.heap.iter().chain(runs).map(|place| SegmentId(place.segment))
        })
    }
}

impl DamagedIndex {
    /// The error of a statement on `table` that needs it.
    pub fn error(&self, table: &str) -> StorageError {
        let constraint = self.definition.constraint;
        StorageError::DamagedIndex {
            table: table.to_owned(),
            index: self.definition.name.clone(),
            faults: Faults(self.faults.clone()),
            remedy: if constraint { Remedy::CopyRows } else { Remedy::DropIndex },
        }
    }

    /// Segments that the manifest names for it.
    pub fn segments(&self) -> impl Iterator<Item = SegmentId> {
        self.parts.iter().flat_map(|part| &part.runs).map(|place| SegmentId(place.segment))
    }
}
