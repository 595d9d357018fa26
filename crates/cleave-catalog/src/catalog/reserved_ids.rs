//! Reserves ids of tables and segments for transactions, committed or not, since the database was opened.
//!
//! Invariant: two transactions that may both commit never get the same id, although each knows only the catalog version
//! that it began with.

use std::sync::{Mutex, PoisonError};

use crate::error::Result;

/// The next ids of tables and of segments that no transaction has taken; 0: none was taken.
#[derive(Debug, Default)]
pub struct ReservedIds(Mutex<(u32, u32)>);

impl ReservedIds {
    /// Reserves a table id with `take`; `next` is the next id that the transaction knows of.
    ///
    /// # Errors
    /// Errors of `take`.
    pub fn table(&self, next: &mut u32, take: impl FnOnce(&mut u32) -> Result<u32>) -> Result<u32> {
        reserve(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).0, next, take)
    }

    /// As [`ReservedIds::table`], the id of a segment.
    ///
    /// # Errors
    /// Errors of `take`.
    pub fn segment(
        &self,
        next: &mut u32,
        take: impl FnOnce(&mut u32) -> Result<u32>,
    ) -> Result<u32> {
        reserve(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).1, next, take)
    }

    /// The next ids of tables and of segments.
    pub fn next(&self) -> (u32, u32) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn reserve(
    reserved: &mut u32,
    next: &mut u32,
    take: impl FnOnce(&mut u32) -> Result<u32>,
) -> Result<u32> {
    *next = (*next).max(*reserved);
    let id = take(next)?;
    *reserved = *next;
    Ok(id)
}
