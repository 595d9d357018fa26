//! Row groups of Parquet files that cannot have a row for which a condition holds, by the bounds in their metadata.
//!
//! Only bounds of whole numbers, numerics, dates and timestamps are used. Those of floating-point numbers leave out
//! NaN, which is greater than all others here, and texts may be cut.

use std::collections::HashSet;
use std::sync::Arc;

use cleave_sql::copy::parquet::file::GroupBounds;
use cleave_sql::dialect::balanced_conjunction;
use datafusion::arrow::array::{ArrayRef, BooleanArray, UInt64Array};
use datafusion::arrow::compute::{CastOptions, cast_with_options, concat};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;

use super::parquet::{Group, ParquetFiles};

/// The row groups of `files`, whose columns are those of `schema`, that may have rows for which all of `filters` hold.
pub(super) fn left_by(
    session: &dyn Session,
    files: &ParquetFiles,
    schema: &SchemaRef,
    filters: &[Expr],
) -> Result<Vec<Group>> {
    let groups = files.groups();
    let Some(condition) = balanced_conjunction(filters.iter().cloned()) else { return Ok(groups) };
    let named = DFSchema::try_from(Arc::clone(schema))?;
    let condition = session.create_physical_expr(condition, &named)?;
    let pruning = PruningPredicateBuilder::new().with_file_schema(Arc::clone(schema));
    let Some(pruning) = pruning.build(condition) else { return Ok(groups) };
    // What fails for a bound may never be asked of a row.
    let Ok(keep) = pruning.prune(&Bounds { files, groups: &groups }) else { return Ok(groups) };
    Ok(groups.iter().zip(keep).filter_map(|(group, keep)| keep.then_some(*group)).collect())
}

/// One container a row group.
struct Bounds<'a> {
    files: &'a ParquetFiles,
    groups: &'a [Group],
}

impl Bounds<'_> {
    /// The arrays of all files, one behind the other, as `of` gives them.
    fn arrays(&self, column: &Column, of: impl Fn(&GroupBounds) -> &ArrayRef) -> Option<ArrayRef> {
        let (bounds, data_type) = self.files.bounds(&column.name)?;
        if !is_exact(&data_type) {
            return None;
        }
        let options = CastOptions { safe: true, ..CastOptions::default() };
        let cast = |array: &ArrayRef| match is_exact(array.data_type()) {
            true => cast_with_options(array, &data_type, &options).ok(),
            false => None,
        };
        let arrays = bounds.iter().map(|own| cast(of(own))).collect::<Option<Vec<_>>>()?;
        let arrays: Vec<_> = arrays.iter().map(|array| &**array).collect();
        concat(&arrays).ok().filter(|all| all.len() == self.groups.len())
    }
}

/// Whether bounds of such values hold for all of them.
fn is_exact(data_type: &DataType) -> bool {
    data_type.is_integer()
        || matches!(
            data_type,
            DataType::Date32
                | DataType::Decimal32(..)
                | DataType::Decimal64(..)
                | DataType::Decimal128(..)
                | DataType::Timestamp(..)
        )
}

impl PruningStatistics for Bounds<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.arrays(column, |bounds| &bounds.mins)
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.arrays(column, |bounds| &bounds.maxes)
    }

    fn num_containers(&self) -> usize {
        self.groups.len()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let (bounds, _) = self.files.bounds(&column.name)?;
        let counts: UInt64Array = bounds.iter().flat_map(|own| own.null_counts.iter()).collect();
        (counts.len() == self.groups.len()).then(|| Arc::new(counts) as ArrayRef)
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        let rows: UInt64Array = self.groups.iter().map(|group| Some(group.rows() as u64)).collect();
        Some(Arc::new(rows))
    }

    fn contained(&self, _column: &Column, _values: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}
