//! Definitions other than those of CREATE and DROP; and TRUNCATE: a table without rows in the place of one with rows.
//!
//! VIDs go on where they were: a snapshot that still has the rows must not take others for them.

use std::sync::Arc;

use cleave_store::VersionMap;

use super::{Outcome, Session};
use crate::catalog::{TableState, TabletState};
use crate::error::Result;
use crate::index::TabletIndex;
use crate::statement::parse::{Define, Truncate};

impl Session {
    /// Runs a statement that defines something anew.
    pub(super) async fn define(&mut self, define: Define) -> Result<Outcome> {
        match define {
            Define::Truncate(truncate) => self.truncate(&truncate).await,
            Define::AlterTable(alter) => self.alter_table(alter).await,
            Define::RenameIndex { from, to } => self.rename_index(&from, &to).await,
        }
    }

    async fn truncate(&mut self, truncate: &Truncate) -> Result<Outcome> {
        let mut definition = self.begin_definition("TRUNCATE", &truncate.tables, &[]).await?;
        let transaction = &mut definition.transaction;
        for name in &truncate.tables {
            let emptied = emptied(transaction.next.find_writable_table(name)?);
            transaction.put_table(emptied);
        }
        self.end_definition(definition).await?;
        Ok(Outcome::done("TRUNCATE TABLE"))
    }
}

/// `table` without rows.
pub(super) fn emptied(table: &TableState) -> TableState {
    let tablet = |tablet: &Arc<TabletState>| {
        let indexes = tablet.indexes.iter();
        let indexes = indexes.map(|index| TabletIndex::empty(Arc::clone(index.shape())));
        Arc::new(TabletState {
            heap: Vec::new(),
            version_map: Arc::new(VersionMap::new()),
            indexes: indexes.map(Arc::new).collect(),
            ..TabletState::clone(tablet)
        })
    };
    let tablets = table.tablets.iter().map(tablet).collect();
    TableState { tablets, ..TableState::clone(table) }
}
