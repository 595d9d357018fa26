//! Rows and errors as JSON, within limits.
//!
//! ```text
//!  { "columns": [{ "name", "type" }], "rows": [["text", null]], "is_truncated", "tag" }
//!  { "error": { "sqlstate", "message", "detail", "hint", "position" } }
//! ```
//! Values are texts, as PostgreSQL's text format has them: a number of JavaScript holds no bigint and no numeric.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use axum::Json;
use cleave_host::KeptMemory;
use cleave_host::settings::IntervalStyle;
use cleave_host::value::ValueText;
use cleave_host::value::binary::Element;
use serde_json::{Map, Value, json};

use super::pieces::{Pieces, Text};
use crate::serve::postgres::complaint::Complaint;
use crate::serve::postgres::types::WireType;

/// Most rows of a result, and most bytes of its values and columns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Rows.
    pub(super) row_count_max: usize,
    /// Bytes.
    pub(super) byte_count_max: usize,
}

impl Limits {
    /// Those of what a user asks for.
    pub(super) const OF_QUERY: Self = Self { row_count_max: 10_000, byte_count_max: 8 << 20 };
    /// Those of what is shown by itself.
    pub(super) const OF_VIEW: Self = Self { row_count_max: 5_000, byte_count_max: 2 << 20 };

    /// Those of another result beside `rows`, in the same answer.
    pub(super) fn after(self, rows: &Rows) -> Self {
        let byte_count_max = self.byte_count_max.saturating_sub(rows.byte_count);
        Self { byte_count_max, ..self }
    }
}

/// Rows of a result, as far as they fit.
#[derive(Debug)]
pub(super) struct Rows {
    text: Text,
    row_count: usize,
    byte_count: usize,
    limits: Limits,
    is_truncated: bool,
}

impl Rows {
    /// None yet, of a session that keeps this memory.
    ///
    /// # Errors
    /// 53200: it keeps too much.
    pub(super) fn new(
        schema: &Schema,
        limits: Limits,
        memory: &Arc<KeptMemory>,
    ) -> cleave_host::Result<Self> {
        let columns = schema.fields().iter().map(|field| {
            let kind = type_name(WireType::of_arrow(field.data_type()));
            json!({ "name": field.name(), "type": kind })
        });
        let mut text = Text::new(memory)?;
        text.put("{\"columns\":")?;
        text.put(&Value::Array(columns.collect()).to_string())?;
        text.put(",\"rows\":[")?;
        let byte_count = schema.fields().iter().map(|field| field.name().len() + 16).sum();
        Ok(Self { text, row_count: 0, byte_count, limits, is_truncated: false })
    }

    /// Whether rows have been left out.
    pub(super) fn is_full(&self) -> bool {
        self.is_truncated
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.row_count
    }

    /// Takes the rows of `batch`, as far as they fit.
    ///
    /// # Errors
    /// A value has no text; 53200: the session keeps too much.
    pub(super) fn take(
        &mut self,
        batch: &RecordBatch,
        style: IntervalStyle,
    ) -> cleave_host::Result<()> {
        let columns = batch.columns().iter();
        let texts = columns.map(|array| ValueText::styled(array, style));
        let texts = texts.collect::<cleave_host::Result<Vec<_>>>()?;
        let mut value = String::new();
        for place in 0..batch.num_rows() {
            let Limits { row_count_max, byte_count_max } = self.limits;
            if self.row_count >= row_count_max || self.byte_count >= byte_count_max {
                self.is_truncated = true;
                break;
            }
            self.text.put(if self.row_count > 0 { ",[" } else { "[" })?;
            for (column, text) in texts.iter().enumerate() {
                if column > 0 {
                    self.text.put(",")?;
                }
                value.clear();
                match text.write(place, &mut value) {
                    true => self.text.put_string(&value)?,
                    false => self.text.put("null")?,
                }
                self.byte_count += value.len() + 8;
            }
            self.text.put("]")?;
            self.row_count += 1;
        }
        Ok(())
    }

    /// The whole, with a command tag.
    ///
    /// # Errors
    /// 53200: the session keeps too much.
    pub(super) fn into_json(mut self, tag: Option<&str>) -> cleave_host::Result<Pieces> {
        self.text.put("],\"is_truncated\":")?;
        self.text.put(if self.is_truncated { "true" } else { "false" })?;
        self.text.put(",\"tag\":")?;
        self.text.put(&Value::from(tag).to_string())?;
        self.text.put("}")?;
        self.text.done()
    }

    /// The text of the first value of a result.
    pub(super) fn first_text(result: &Value) -> Option<&str> {
        result.get("rows")?.get(0)?.get(0)?.as_str()
    }
}

/// An error as the body of an answer.
pub(super) fn error_body(complaint: &Complaint) -> Json<Value> {
    Json(json!({ "error": error_json(complaint) }))
}

/// An error.
pub(super) fn error_json(complaint: &Complaint) -> Value {
    let mut error = Map::new();
    error.insert("sqlstate".to_owned(), complaint.sqlstate.clone().into());
    error.insert("message".to_owned(), complaint.message.clone().into());
    for (name, text) in [
        ("detail", &complaint.detail),
        ("hint", &complaint.hint),
        ("context", &complaint.about.context),
    ] {
        if let Some(text) = text {
            error.insert(name.to_owned(), text.clone().into());
        }
    }
    if let Some(position) = complaint.about.position {
        error.insert("position".to_owned(), position.into());
    }
    Value::Object(error)
}

fn type_name(of: WireType) -> String {
    let name = match of.element {
        Element::Bool => "boolean",
        Element::Bytea => "bytea",
        Element::Int8 => "bigint",
        Element::Int2 => "smallint",
        Element::Int4 => "integer",
        Element::Text => "text",
        Element::Oid => "oid",
        Element::Float4 => "real",
        Element::Float8 => "double precision",
        Element::Date => "date",
        Element::Time => "time",
        Element::Timestamp => "timestamp",
        Element::TimestampTz => "timestamptz",
        Element::Interval => "interval",
        Element::Numeric => "numeric",
        Element::Uuid => "uuid",
        Element::Record => "record",
    };
    if of.is_list { format!("{name}[]") } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    //! Rows beyond the limits are left out, and that is said.

    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field};
    use cleave_embedded::embedded_device;
    use cleave_host::{Database, OpenOptions};

    use super::*;

    fn schema() -> Arc<Schema> {
        Arc::new(Schema::new(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("<b>", DataType::Utf8, true),
        ]))
    }

    #[tokio::test]
    async fn rows_are_texts_and_stop_at_their_limits() {
        let directory = tempfile::tempdir().unwrap();
        let options = OpenOptions::new(embedded_device()).create(true);
        let folder = directory.path().join("db");
        let session = Database::open(&folder, options).await.unwrap().session();
        let none = |limits| Rows::new(&schema(), limits, session.kept()).unwrap();
        let (numbers, texts) =
            (vec![Some(i64::MAX), None, Some(1)], vec![Some("a"), None, Some("b")]);
        let columns: Vec<arrow::array::ArrayRef> =
            vec![Arc::new(Int64Array::from(numbers)), Arc::new(StringArray::from(texts))];
        let batch = RecordBatch::try_new(schema(), columns).unwrap();
        let mut rows = none(Limits { row_count_max: 2, ..Limits::OF_VIEW });
        rows.take(&batch, IntervalStyle::Postgres).unwrap();
        assert!(rows.is_full() && rows.count() == 2);
        let made = rows.into_json(Some("SELECT 2")).unwrap().value();
        assert_eq!(made["tag"], "SELECT 2");
        assert_eq!(made["rows"], json!([["9223372036854775807", "a"], [null, null]]));
        let columns = json!([{"name": "n", "type": "bigint"}, {"name": "<b>", "type": "text"}]);
        assert_eq!((&made["columns"], &made["is_truncated"]), (&columns, &json!(true)));
        assert_eq!(Rows::first_text(&made), Some("9223372036854775807"));
        let limits = Limits { byte_count_max: 40, ..Limits::OF_VIEW };
        let mut rows = none(limits);
        rows.take(&batch, IntervalStyle::Postgres).unwrap();
        assert_eq!(rows.count(), 1);
        // The second result of a script has no room beside the first.
        let mut beside = none(limits.after(&rows));
        beside.take(&batch, IntervalStyle::Postgres).unwrap();
        assert!(beside.is_full() && beside.count() == 0);
    }
}
