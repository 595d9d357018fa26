//! Columns of lists: one dimension, items of the column's type, or NULL.
//!
//! ```text
//!  dimensions | has NULLs | type of items | count | first index | length, item | length, item | …
//! ```
//! Source: PostgreSQL's `array_send`.

use std::sync::Arc;

use arrow::array::builder::NullBufferBuilder;
use arrow::array::{ArrayRef, ListArray, new_null_array};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, FieldRef};

use super::{Fault, Values};
use crate::kind::{Kind, NO_MODIFIER};
use crate::wire::Reader;

/// The lists of a column.
pub(super) struct List {
    kind: Kind,
    items: Values,
    item_count: i32,
    offsets: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl List {
    pub(super) fn new(item: &Kind) -> Self {
        Self {
            kind: item.clone(),
            items: Values::new(item),
            item_count: 0,
            offsets: vec![0],
            nulls: NullBufferBuilder::new(0),
        }
    }

    pub(super) fn data_type(&self) -> DataType {
        DataType::List(self.field())
    }

    fn field(&self) -> FieldRef {
        Arc::new(Field::new_list_field(self.items.data_type(), true))
    }

    /// Appends a list, None for NULL; returns the bytes of its items.
    pub(super) fn append(&mut self, value: Option<&[u8]>) -> Result<usize, Fault> {
        let taken = value.map_or(Ok(0), |value| self.append_items(Reader::new(value)))?;
        self.nulls.append(value.is_some());
        self.offsets.push(self.item_count);
        Ok(taken)
    }

    fn append_items(&mut self, mut list: Reader<'_>) -> Result<usize, Fault> {
        let (dimensions, oid) = head(&mut list).ok_or(Fault::Malformed)?;
        let count = match dimensions {
            0 => 0,
            1 => count(&mut list).ok_or(Fault::Malformed)?,
            2.. => return Err(Fault::Dimensions),
            _ => return Err(Fault::Malformed),
        };
        if count < 0 || Kind::of(oid, NO_MODIFIER, false) != self.kind {
            return Err(Fault::Malformed);
        }
        let mut taken = 0;
        // A count that lies ends with the bytes.
        for _ in 0..count {
            let item = list.sized().ok_or(Fault::Malformed)?;
            taken += self.items.append(item)?;
            self.item_count = self.item_count.checked_add(1).ok_or(Fault::Unfit)?;
        }
        if list.is_empty() { Ok(taken) } else { Err(Fault::Malformed) }
    }

    pub(super) fn finish(&mut self) -> ArrayRef {
        let offsets = std::mem::replace(&mut self.offsets, vec![0]);
        self.item_count = 0;
        let row_count = offsets.len() - 1;
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let (field, items, nulls) = (self.field(), self.items.finish(), self.nulls.finish());
        match ListArray::try_new(field, offsets, items, nulls) {
            Ok(lists) => Arc::new(lists),
            // Offsets, items and NULLs are counted together.
            Err(_) => new_null_array(&self.data_type(), row_count),
        }
    }
}

/// The number of dimensions, and the type of the items.
fn head(list: &mut Reader<'_>) -> Option<(i32, u32)> {
    let (dimensions, _has_nulls) = (list.i32()?, list.i32()?);
    Some((dimensions, list.u32()?))
}

/// The number of items of a dimension.
fn count(list: &mut Reader<'_>) -> Option<i32> {
    let (count, _first) = (list.i32()?, list.i32()?);
    Some(count)
}
