//! The division of a table into tablets: which tablet a row belongs to, and which tablets a query needs.
//!
//! Invariant: the tablets of a table are numbered by their position in it, and the number never changes. In a table
//! divided by values, every row lies in the tablet that [`TabletKey`] computes.
//! Source: rule 9; the CORD paper (stripes).

use std::ops::RangeInclusive;

use cleave_fragment::RowDivision;
use cleave_store::{ColumnType, KeyRange, RangeBounds, StoreError, TableSchema, TabletKey};

use super::index_definition::IndexDefinition;
use super::proto;
use crate::value::value_text;

pub use crate::settings::TABLET_COUNT_MAX;

/// How the tablet of a row is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Division {
    /// Not by its values: new rows go to the tablet with the fewest rows.
    LoadOrder,
    /// Not by its values: the rows of a statement go to all tablets in equal shares.
    RoundRobin,
    /// A hash of these columns, by id.
    Hash(Vec<u32>),
    /// The ranges of a column, by id, between these bounds; there are as many tablets.
    Range(u32, RangeBounds),
}

impl Division {
    /// Ids of the columns whose values decide; none: values do not.
    #[must_use]
    pub fn columns(&self) -> &[u32] {
        match self {
            Self::LoadOrder | Self::RoundRobin => &[],
            Self::Hash(ids) => ids,
            Self::Range(id, _) => std::slice::from_ref(id),
        }
    }

    /// Whether rows with equal values in the columns of `index` are always in one tablet.
    #[must_use]
    pub fn holds_together(&self, index: &IndexDefinition) -> bool {
        let is_in_index = |id: &u32| index.columns.iter().any(|column| column.column == *id);
        !self.columns().is_empty() && self.columns().iter().all(is_in_index)
    }

    /// The function from values to tablets, if the values decide.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] for columns that the table does not have.
    pub fn tablet_key(&self, schema: &TableSchema) -> Result<Option<TabletKey>, StoreError> {
        match self {
            Self::LoadOrder | Self::RoundRobin => Ok(None),
            Self::Hash(ids) => TabletKey::new(schema, ids).map(Some),
            Self::Range(id, bounds) => TabletKey::of_ranges(schema, *id, bounds.clone()).map(Some),
        }
    }

    /// How a fragment divides new rows of the table `schema` among its tablets.
    ///
    /// # Errors
    /// As [`Division::tablet_key`].
    pub fn of_rows(&self, schema: &TableSchema) -> Result<RowDivision, StoreError> {
        let places = || -> Result<Vec<usize>, StoreError> {
            let key = self.tablet_key(schema)?;
            Ok(key.map(|key| key.columns().to_vec()).unwrap_or_default())
        };
        Ok(match self {
            Self::LoadOrder => RowDivision::LoadOrder,
            Self::RoundRobin => RowDivision::EqualShares,
            Self::Hash(_) => RowDivision::Hash(places()?),
            Self::Range(_, bounds) => {
                let place = places()?.first().copied().unwrap_or_default();
                RowDivision::Ranges(place, bounds.clone())
            }
        })
    }

    /// What a manifest says of columns: those of a hash, and the ranges of one.
    pub(super) fn encode(&self) -> (Vec<u32>, Option<proto::Ranges>) {
        match self {
            Self::LoadOrder | Self::RoundRobin => (Vec::new(), None),
            Self::Hash(ids) => (ids.clone(), None),
            Self::Range(column, bounds) => {
                let bounds = bounds.keys().to_vec();
                (Vec::new(), Some(proto::Ranges { column: *column, bounds }))
            }
        }
    }

    /// The division of `table`, which `schema` describes, or what is wrong with it.
    pub(super) fn decode(table: &proto::Table, schema: &TableSchema) -> Result<Self, String> {
        let name = &schema.name;
        let division = match (table.hash_columns.as_slice(), table.round_robin, &table.ranges) {
            ([], false, None) => Self::LoadOrder,
            ([], true, None) => Self::RoundRobin,
            (ids, false, None) => Self::Hash(ids.to_vec()),
            ([], false, Some(ranges)) => Self::ranges(ranges, schema)?,
            _ => return Err(format!("table \"{name}\" is divided in two ways")),
        };
        if let Self::Range(_, bounds) = &division
            && bounds.tablet_count() != table.tablets.len()
        {
            let (count, wanted) = (table.tablets.len(), bounds.tablet_count());
            return Err(format!("table \"{name}\" has {count} tablets, and bounds for {wanted}"));
        }
        division.tablet_key(schema).map_err(|error| error.to_string())?;
        Ok(division)
    }

    fn ranges(ranges: &proto::Ranges, schema: &TableSchema) -> Result<Self, String> {
        let proto::Ranges { column: id, bounds } = ranges;
        let column = schema.column_by_id(*id);
        let column = column.ok_or_else(|| format!("\"{}\" has no column {id}", schema.name))?;
        let bounds = RangeBounds::of_keys(&column.column_type.arrow(), bounds.clone());
        Ok(Self::Range(*id, bounds.map_err(|error| error.to_string())?))
    }

    /// The places of the tablets of rows whose entries in `index` lie in `range`; None: this says nothing.
    #[must_use]
    pub fn tablets_of_keys(
        &self,
        index: &IndexDefinition,
        range: &KeyRange,
    ) -> Option<RangeInclusive<usize>> {
        let (Self::Range(id, bounds), Some(first)) = (self, index.columns.first()) else {
            return None;
        };
        let is_in_order = first.column == *id && !first.descending && !first.nulls_first;
        is_in_order.then(|| bounds.tablets(range))
    }

    /// As CREATE TABLE writes it.
    #[must_use]
    pub fn describe(&self, schema: &TableSchema) -> String {
        match self {
            Self::Range(id, bounds) => {
                let column_type = schema.column_by_id(*id).map(|column| column.column_type);
                let literals = column_type.and_then(|own| literals(bounds, own).ok());
                let literals = literals.unwrap_or_default().join(", ");
                format!("{}, bounds = ({literals})", self.kind(schema))
            }
            _ => self.kind(schema),
        }
    }

    /// The same without bounds.
    #[must_use]
    pub fn kind(&self, schema: &TableSchema) -> String {
        let name = match self {
            Self::LoadOrder => return "load_order".to_owned(),
            Self::RoundRobin => return "round_robin".to_owned(),
            Self::Hash(_) => "hash",
            Self::Range(..) => "range",
        };
        let columns = self.columns().iter().filter_map(|id| schema.column_by_id(*id));
        let names: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
        format!("{name} ({})", names.join(", "))
    }
}

/// The values of `bounds`, of a column of type `column_type`, as SQL writes them.
fn literals(bounds: &RangeBounds, column_type: ColumnType) -> crate::error::Result<Vec<String>> {
    let values = bounds.values(&column_type.arrow())?;
    let literal = |place: usize| {
        let text = value_text(&values, place)?.unwrap_or_default();
        let is_bare = match column_type {
            ColumnType::Boolean
            | ColumnType::SmallInt
            | ColumnType::Int
            | ColumnType::BigInt
            | ColumnType::Numeric { .. } => true,
            // NaN and Infinity are no numbers in SQL.
            ColumnType::Real | ColumnType::Double => text.ends_with(|c: char| c.is_ascii_digit()),
            _ => false,
        };
        Ok(if is_bare { text } else { format!("'{}'", text.replace('\'', "''")) })
    };
    (0..values.len()).map(literal).collect()
}

/// The device, by place in `weights`, of each of `tablet_count` tablets: each device has at least one, and of the
/// others a share by its weight. Tablets that follow each other lie on different devices as far as that is possible.
#[must_use]
pub fn spread(weights: &[u32], tablet_count: usize) -> Vec<usize> {
    let weights: Vec<u64> = weights.iter().copied().map(u64::from).collect();
    let mut shares: Vec<u64> = vec![1; weights.len()];
    for _ in weights.len()..tablet_count {
        give_next(&mut shares, &weights);
    }
    let mut given: Vec<u64> = vec![0; weights.len()];
    (0..tablet_count).filter_map(|_| give_next(&mut given, &shares)).collect()
}

/// Gives one more to the place that has the least for its weight, the first of several; returns the place. This is the
/// method of Sainte-Laguë for seats.
fn give_next(given: &mut [u64], weights: &[u64]) -> Option<usize> {
    let mut next: Option<(usize, u64, u64)> = None;
    for (place, (own, weight)) in given.iter().zip(weights).enumerate() {
        let due = own.saturating_mul(2).saturating_add(1);
        let is_next = next.is_none_or(|(_, least, of_least)| {
            due.saturating_mul(of_least) < least.saturating_mul(*weight)
        });
        if is_next {
            next = Some((place, due, *weight));
        }
    }
    let (place, ..) = next?;
    let own = given.get_mut(place)?;
    *own = own.saturating_add(1);
    Some(place)
}

#[cfg(test)]
mod tests;
