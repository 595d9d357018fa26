//! Builds a record batch: typed columns to which rows are appended cell by cell.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Builder, RecordBatch, StringBuilder};
use arrow::datatypes::{DataType, SchemaRef};

/// At most this many rows go into one batch.
pub(crate) const BATCH_ROWS_MAX: usize = 65_536;

/// The columns of one batch in the making. Cells are appended in schema order, row by row.
pub(crate) struct Rows {
    schema: SchemaRef,
    columns: Vec<Column>,
    next: usize,
    count: usize,
}

enum Column {
    Integer(Int32Builder),
    Text(StringBuilder),
}

impl Rows {
    pub(crate) fn new(schema: SchemaRef) -> Self {
        let columns = schema
            .fields()
            .iter()
            .map(|field| match field.data_type() {
                DataType::Int32 => Column::Integer(Int32Builder::new()),
                _ => Column::Text(StringBuilder::new()),
            })
            .collect();
        Self { schema, columns, next: 0, count: 0 }
    }

    /// How many rows are complete.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Appends an integer cell. Ids beyond `i32` cannot occur: `Imdb::new` refuses such scales.
    pub(crate) fn int(&mut self, value: u32) {
        if let Column::Integer(column) = &mut self.columns[self.next] {
            column.append_value(i32::try_from(value).unwrap_or(i32::MAX));
        }
        self.advance();
    }

    pub(crate) fn text(&mut self, value: &str) {
        if let Column::Text(column) = &mut self.columns[self.next] {
            column.append_value(value);
        }
        self.advance();
    }

    pub(crate) fn null(&mut self) {
        match &mut self.columns[self.next] {
            Column::Integer(column) => column.append_null(),
            Column::Text(column) => column.append_null(),
        }
        self.advance();
    }

    pub(crate) fn int_or_null(&mut self, value: Option<u32>) {
        match value {
            Some(value) => self.int(value),
            None => self.null(),
        }
    }

    /// Appends a text cell; an empty text stands for NULL.
    pub(crate) fn text_or_null(&mut self, value: &str) {
        if value.is_empty() { self.null() } else { self.text(value) }
    }

    fn advance(&mut self) {
        self.next += 1;
        if self.next == self.columns.len() {
            self.next = 0;
            self.count += 1;
        }
    }

    /// Takes the rows out as a batch; `None` if there are none.
    pub(crate) fn take(&mut self) -> Option<RecordBatch> {
        assert_eq!(self.next, 0, "a row is incomplete");
        if self.count == 0 {
            return None;
        }
        self.count = 0;
        let arrays: Vec<ArrayRef> = self
            .columns
            .iter_mut()
            .map(|column| match column {
                Column::Integer(column) => Arc::new(column.finish()) as ArrayRef,
                Column::Text(column) => Arc::new(column.finish()) as ArrayRef,
            })
            .collect();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), arrays);
        assert!(batch.is_ok(), "generated columns do not fit their schema: {batch:?}");
        batch.ok()
    }
}
