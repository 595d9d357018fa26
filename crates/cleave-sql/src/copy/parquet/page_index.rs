//! The page index of a row group of a Parquet file in; out, the least and greatest values of some columns in each page.
//!
//! The index is advice: one that is damaged, missing or large is not used. Bounds that are well formed are trusted, as
//! those of row groups are. The crate takes memory for as many pages as an index claims to have, so its structure is
//! checked first.
//!
//! Source: the Parquet format, "Page Index".

use std::fs::File;
use std::os::unix::fs::FileExt;

use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::file::metadata::{
    PageIndexPolicy, ParquetMetaData, ParquetMetaDataBuilder, ParquetMetaDataReader,
};

use super::file::PageBounds;
use super::page_sizes::is_structure;

/// Bytes that the index of a row group may have.
const INDEX_BYTES_MAX: u64 = 1 << 20;

/// The bounds of the pages of the columns at `roots` in `group`, for each column that has any that can be used.
pub(super) fn page_bounds(
    file: &File,
    metadata: &ArrowReaderMetadata,
    group: usize,
    roots: &[usize],
) -> Option<Vec<Option<PageBounds>>> {
    let index = index_of(file, metadata, group, roots)?;
    Some(roots.iter().map(|root| bounds_of(&index, metadata, *root)).collect())
}

/// Metadata of `group` alone, with its index, as far as it is of the columns at `roots`.
fn index_of(
    file: &File,
    metadata: &ArrowReaderMetadata,
    group: usize,
    roots: &[usize],
) -> Option<ParquetMetaData> {
    let schema = metadata.parquet_schema();
    let group = metadata.metadata().row_groups().get(group)?;
    let mut columns = Vec::with_capacity(group.columns().len());
    let mut parts = Vec::new();
    for (leaf, column) in group.columns().iter().enumerate() {
        parts.push((column.offset_index_offset()?, column.offset_index_length()?));
        let own = column.column_index_offset().zip(column.column_index_length());
        let own = own.filter(|_| roots.contains(&schema.get_column_root_idx(leaf)));
        parts.extend(own);
        let (offset, length) = own.unzip();
        let column = column.clone().into_builder();
        let column = column.set_column_index_offset(offset).set_column_index_length(length);
        columns.push(column.build().ok()?);
    }
    if !are_structures(file, &parts)? {
        return None;
    }
    let group = group.clone().into_builder().set_column_metadata(columns).build().ok()?;
    let of_file = metadata.metadata().file_metadata().clone();
    let alone = ParquetMetaDataBuilder::new(of_file).add_row_group(group).build();
    let mut reader = ParquetMetaDataReader::new_with_metadata(alone)
        .with_page_index_policy(PageIndexPolicy::Optional);
    reader.read_page_indexes(file).ok()?;
    reader.finish().ok()
}

/// Whether the parts of an index, which are places and lengths in `file`, are structures, and all are small.
fn are_structures(file: &File, parts: &[(i64, i32)]) -> Option<bool> {
    let spans = parts.iter().map(|(offset, length)| {
        let (offset, length) = (u64::try_from(*offset).ok()?, u64::try_from(*length).ok()?);
        Some((offset, offset.checked_add(length)?))
    });
    let spans: Vec<(u64, u64)> = spans.collect::<Option<_>>()?;
    let begin = spans.iter().map(|span| span.0).min()?;
    let end = spans.iter().map(|span| span.1).max()?;
    let length = end.checked_sub(begin).filter(|length| *length <= INDEX_BYTES_MAX)?;
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut bytes, begin).ok()?;
    let part = |span: &(u64, u64)| {
        let (from, to) = (span.0.checked_sub(begin)?, span.1.checked_sub(begin)?);
        bytes.get(usize::try_from(from).ok()?..usize::try_from(to).ok()?)
    };
    Some(spans.iter().all(|span| part(span).is_some_and(is_structure)))
}

/// The bounds of the pages of the column at `root` in the one row group of `index`.
fn bounds_of(
    index: &ParquetMetaData,
    metadata: &ArrowReaderMetadata,
    root: usize,
) -> Option<PageBounds> {
    let (schema, columns) = (metadata.schema(), metadata.parquet_schema());
    let field = schema.fields().get(root)?;
    // The crate finds columns by their names.
    let named = schema.fields().iter().position(|own| own.name() == field.name());
    let mut leaves = 0..columns.num_columns();
    let leaf = leaves.find(|leaf| columns.get_column_root_idx(*leaf) == root)?;
    if named != Some(root) || field.data_type().is_nested() {
        return None;
    }
    let group_rows = usize::try_from(index.row_groups().first()?.num_rows()).ok()?;
    let (bounds, places) = (index.column_index()?, index.offset_index()?);
    let converter = StatisticsConverter::try_new(field.name(), schema, columns).ok()?;
    let mins = converter.data_page_mins(bounds, places, [&0]).ok()?;
    let maxes = converter.data_page_maxes(bounds, places, [&0]).ok()?;
    let pages = places.first()?.get(leaf)?.page_locations().iter();
    let first_rows = pages.map(|page| usize::try_from(page.first_row_index).ok());
    let first_rows: Vec<usize> = first_rows.collect::<Option<_>>()?;
    let is_ordered = first_rows.first() == Some(&0)
        && first_rows.windows(2).all(|pair| pair.first() < pair.last())
        && first_rows.last().is_some_and(|last| *last < group_rows);
    let is_whole = mins.len() == first_rows.len() && maxes.len() == first_rows.len();
    (is_ordered && is_whole).then_some(PageBounds { mins, maxes, first_rows })
}
