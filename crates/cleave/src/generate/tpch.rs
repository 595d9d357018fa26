//! TPC-H, computed by the crate `tpchgen`: the eight tables in parts, for a given scale.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow,
    RecordBatchIterator, RegionArrow, SupplierArrow,
};

use super::{GenerateError, TableSpec};

/// The eight tables at one scale.
#[derive(Clone, Debug)]
pub(crate) struct Tpch {
    scale: f64,
    line_items: u64,
}

/// The tables in load order.
const TABLES: [&str; 8] =
    ["region", "nation", "supplier", "part", "partsupp", "customer", "orders", "lineitem"];
/// Below it there are so few suppliers that a part often gets one of them twice.
const SCALE_MIN: f64 = 0.01;
/// Approximate rows of a part, and exact rows of a batch.
const PART_ROWS: u64 = 200_000;
const BATCH_ROWS: usize = 16_384;

impl Tpch {
    /// The tables at `scale`, from 0.01; 1 is about a gigabyte of text.
    pub(crate) fn new(scale: f64) -> Result<Self, GenerateError> {
        if !(scale > 0.0 && scale <= 100.0) {
            return Err(GenerateError::Scale { scale });
        }
        if scale < SCALE_MIN || repeats_suppliers(scale) {
            return Err(GenerateError::RepeatedKeys { scale });
        }
        // Each order has its own number of lines; the table has their sum.
        let mut line_counts = OrderGenerator::create_line_count_random();
        let line_items = (0..OrderGenerator::calculate_row_count(scale, 1, 1))
            .map(|_| {
                let lines = line_counts.next_value();
                line_counts.row_finished();
                u64::try_from(lines).unwrap_or(0)
            })
            .sum();
        Ok(Self { scale, line_items })
    }

    /// The eight tables in load order.
    pub(crate) fn tables(&self) -> Vec<TableSpec> {
        TABLES
            .into_iter()
            .filter_map(|name| {
                let schema = plain_schema(self.source(name, 1, 1)?.schema());
                Some(TableSpec { name, schema, rows: self.rows(name) })
            })
            .collect()
    }

    /// The statements that create the tables.
    pub(crate) fn schema_sql() -> &'static str {
        include_str!("tpch.sql")
    }

    /// How many independent parts `table` has; none if there is no such table.
    pub(crate) fn parts(&self, table: &str) -> usize {
        if !TABLES.contains(&table) {
            return 0;
        }
        usize::try_from(self.rows(table).div_ceil(PART_ROWS)).unwrap_or(usize::MAX).max(1)
    }

    /// One part of `table`, keys ascending over the parts. Empty if there is no such table or part.
    pub(crate) fn part(
        &self,
        table: &str,
        part: usize,
    ) -> Box<dyn Iterator<Item = RecordBatch> + Send> {
        let parts = self.parts(table);
        let number = |x: usize| i32::try_from(x).unwrap_or(i32::MAX);
        if part >= parts {
            return Box::new(std::iter::empty());
        }
        match self.source(table, number(part + 1), number(parts)) {
            Some(source) => Box::new(source.map(|batch| plain(&batch))),
            None => Box::new(std::iter::empty()),
        }
    }

    fn rows(&self, table: &str) -> u64 {
        let count = match table {
            "region" => 5,
            "nation" => 25,
            "supplier" => SupplierGenerator::calculate_row_count(self.scale, 1, 1),
            "part" => PartGenerator::calculate_row_count(self.scale, 1, 1),
            // Every part has four suppliers.
            "partsupp" => 4 * PartGenerator::calculate_row_count(self.scale, 1, 1),
            "customer" => CustomerGenerator::calculate_row_count(self.scale, 1, 1),
            "orders" => OrderGenerator::calculate_row_count(self.scale, 1, 1),
            _ => return self.line_items,
        };
        u64::try_from(count).unwrap_or(0)
    }

    fn source(&self, table: &str, part: i32, of: i32) -> Option<Box<dyn RecordBatchIterator>> {
        let scale = self.scale;
        Some(match table {
            "region" => Box::new(RegionArrow::new(RegionGenerator::new(scale, part, of))),
            "nation" => Box::new(NationArrow::new(NationGenerator::new(scale, part, of))),
            "supplier" => Box::new(
                SupplierArrow::new(SupplierGenerator::new(scale, part, of))
                    .with_batch_size(BATCH_ROWS),
            ),
            "part" => Box::new(
                PartArrow::new(PartGenerator::new(scale, part, of)).with_batch_size(BATCH_ROWS),
            ),
            "partsupp" => Box::new(
                PartSuppArrow::new(PartSuppGenerator::new(scale, part, of))
                    .with_batch_size(BATCH_ROWS),
            ),
            "customer" => Box::new(
                CustomerArrow::new(CustomerGenerator::new(scale, part, of))
                    .with_batch_size(BATCH_ROWS),
            ),
            "orders" => Box::new(
                OrderArrow::new(OrderGenerator::new(scale, part, of)).with_batch_size(BATCH_ROWS),
            ),
            "lineitem" => Box::new(
                LineItemArrow::new(LineItemGenerator::new(scale, part, of))
                    .with_batch_size(BATCH_ROWS),
            ),
            _ => return None,
        })
    }
}

/// Whether a part gets the same supplier twice, and so `partsupp` the same key.
///
/// Of S suppliers, part p gets those numbered p + i (S/4 + (p - 1)/S) modulo S, for i from 0 to 3, where /
/// drops the rest. Two of them are the same where a multiple of the step, up to its triple, is one of S.
fn repeats_suppliers(scale: f64) -> bool {
    let suppliers = SupplierGenerator::calculate_row_count(scale, 1, 1).max(1);
    let parts = PartGenerator::calculate_row_count(scale, 1, 1);
    (0..=(parts - 1) / suppliers)
        .map(|round| suppliers / 4 + round)
        .any(|step| (1..4).any(|multiple| (multiple * step) % suppliers == 0))
}

/// The schema with texts as `Utf8`, the only form of text that tables have.
fn plain_schema(schema: &SchemaRef) -> SchemaRef {
    let fields: Vec<Field> = schema
        .fields()
        .iter()
        .map(|field| {
            let data_type = match field.data_type() {
                DataType::Utf8View => DataType::Utf8,
                other => other.clone(),
            };
            Field::new(field.name(), data_type, field.is_nullable())
        })
        .collect();
    Arc::new(Schema::new(fields))
}

fn plain(batch: &RecordBatch) -> RecordBatch {
    let schema = plain_schema(batch.schema_ref());
    let columns = batch
        .columns()
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| cast(column, field.data_type()))
        .collect::<Result<Vec<_>, _>>();
    let plain = columns.and_then(|columns| RecordBatch::try_new(schema, columns));
    assert!(plain.is_ok(), "texts always have the plain form: {plain:?}");
    plain.unwrap_or_else(|_| batch.clone())
}

#[cfg(test)]
mod tests;
