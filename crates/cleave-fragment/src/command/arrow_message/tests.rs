//! Messages that this build never writes are refused before anything is allocated for them; those that it writes pass.

use std::sync::Arc;

use arrow::array::{ArrayRef, DictionaryArray, Int32Array, Int64Array, ListArray, StringViewArray};
use arrow::datatypes::{Field, Int32Type, Schema};
use arrow::ipc::{
    BodyCompressionBuilder, BodyCompressionMethod, Buffer, CompressionType, FieldNode,
    MessageBuilder, MessageHeader, RecordBatchBuilder,
};
use flatbuffers::FlatBufferBuilder;

use super::*;
use crate::command::slot::{SlotDecoder, encode_batch};

/// A message as a peer may write it, whatever it says.
#[derive(Clone)]
pub(crate) struct Crafted {
    pub(crate) length: i64,
    pub(crate) nodes: Vec<(i64, i64)>,
    pub(crate) buffers: Vec<(i64, i64)>,
    pub(crate) variadic: Vec<i64>,
    pub(crate) compression: Option<CompressionType>,
    pub(crate) version: MetadataVersion,
    pub(crate) body: Vec<u8>,
}

impl Crafted {
    /// Three numbers; if compressed, the first is the claimed length.
    pub(crate) fn numbers() -> Self {
        let numbers = [1_i64 << 50, 7, 9];
        Self {
            length: 3,
            nodes: vec![(3, 0)],
            buffers: vec![(0, 0), (0, 24)],
            variadic: Vec::new(),
            compression: None,
            version: MetadataVersion::V5,
            body: numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
        }
    }

    /// One text of 64 bytes, to which `count` views refer.
    fn views(count: u8) -> Self {
        let text = [b'x'; 64];
        let view = [&64_u32.to_le_bytes()[..], b"xxxx", &[0; 8]].concat();
        let views = view.repeat(usize::from(count));
        let end = i64::try_from(views.len()).unwrap();
        Self {
            length: count.into(),
            nodes: vec![(count.into(), 0)],
            buffers: vec![(0, 0), (0, end), (end, 64)],
            variadic: vec![1],
            body: [views, text.to_vec()].concat(),
            ..Self::numbers()
        }
    }

    fn encode(&self) -> Vec<u8> {
        let metadata = self.metadata();
        let length = i32::try_from(metadata.len()).unwrap();
        [&[0xff; 4], &length.to_le_bytes()[..], &metadata, &self.body].concat()
    }

    /// All but the body.
    pub(crate) fn metadata(&self) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        let nodes: Vec<_> =
            self.nodes.iter().map(|(length, nulls)| FieldNode::new(*length, *nulls)).collect();
        let buffers: Vec<_> =
            self.buffers.iter().map(|(at, length)| Buffer::new(*at, *length)).collect();
        let nodes = builder.create_vector(&nodes);
        let buffers = builder.create_vector(&buffers);
        let variadic = builder.create_vector(&self.variadic);
        let compression = self.compression.map(|codec| {
            let mut compression = BodyCompressionBuilder::new(&mut builder);
            compression.add_method(BodyCompressionMethod::BUFFER);
            compression.add_codec(codec);
            compression.finish()
        });
        let mut batch = RecordBatchBuilder::new(&mut builder);
        batch.add_length(self.length);
        batch.add_nodes(nodes);
        batch.add_buffers(buffers);
        batch.add_variadicBufferCounts(variadic);
        if let Some(compression) = compression {
            batch.add_compression(compression);
        }
        let batch = batch.finish();
        let mut message = MessageBuilder::new(&mut builder);
        message.add_version(self.version);
        message.add_header_type(MessageHeader::RecordBatch);
        message.add_bodyLength(i64::try_from(self.body.len()).unwrap());
        message.add_header(batch.as_union_value());
        let message = message.finish();
        builder.finish(message, None);
        let mut metadata = builder.finished_data().to_vec();
        metadata.resize(metadata.len().next_multiple_of(8), 0);
        metadata
    }

    fn decode(&self, data_type: DataType) -> Result<RecordBatch, String> {
        let schema = Schema::new(vec![Field::new("c", data_type, true)]);
        let decoded = SlotDecoder::new(&schema).decode(self.encode().into());
        decoded.map_err(|error| error.to_string())
    }
}

#[test]
fn what_is_crafted_as_a_writer_writes_it_is_read() {
    let read = Crafted::numbers().decode(DataType::Int64).unwrap();
    assert_eq!(read.column(0).as_ref(), &Int64Array::from(vec![1 << 50, 7, 9]) as &dyn Array);
    assert_eq!(Crafted::views(1).decode(DataType::Utf8View).unwrap().num_rows(), 1);
}

#[test]
fn what_is_compressed_is_refused_whatever_it_claims() {
    for codec in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
        // The first number is the length that it claims.
        let crafted = Crafted { compression: Some(codec), ..Crafted::numbers() };
        let error = crafted.decode(DataType::Int64).unwrap_err();
        assert!(error.contains("compressed"), "{error}");
    }
}

#[test]
fn lengths_that_buffers_do_not_bear_out_are_refused() {
    let good = Crafted::numbers();
    let crafted = [
        ("negative length", Crafted { nodes: vec![(-3, 0)], ..good.clone() }),
        ("negative row count", Crafted { length: -1, ..good.clone() }),
        ("negative number of NULLs", Crafted { nodes: vec![(3, -1)], ..good.clone() }),
        ("more NULLs than values", Crafted { nodes: vec![(3, 4)], ..good.clone() }),
        ("not as long as its batch", Crafted { length: 4, ..good.clone() }),
        ("too short", Crafted { length: 4, nodes: vec![(4, 0)], ..good.clone() }),
        ("too short", Crafted { nodes: vec![(3, 1)], ..good.clone() }),
        ("beyond its end", Crafted { buffers: vec![(0, 0), (8, 24)], ..good.clone() }),
        ("beyond its end", Crafted { buffers: vec![(0, 0), (i64::MAX, 24)], ..good.clone() }),
        ("negative buffer length", Crafted { buffers: vec![(0, 0), (0, -24)], ..good.clone() }),
        ("too few buffers", Crafted { buffers: vec![(0, 24)], ..good.clone() }),
        ("too few columns", Crafted { nodes: Vec::new(), ..good.clone() }),
        ("more columns or buffers", Crafted { nodes: vec![(3, 0); 2], ..good.clone() }),
        ("more columns or buffers", Crafted { variadic: vec![1], ..good.clone() }),
        ("one behind the other", Crafted { buffers: vec![(0, 8), (0, 24)], ..good.clone() }),
        (
            "one behind the other",
            Crafted { buffers: vec![(0, 0), (1, 24)], body: vec![0; 32], ..good.clone() },
        ),
        ("format version", Crafted { version: MetadataVersion::V4, ..good.clone() }),
    ];
    for (expected, crafted) in crafted {
        let error = crafted.decode(DataType::Int64).unwrap_err();
        assert!(error.contains(expected), "{error}, and not {expected}");
    }
    for variadic in [vec![], vec![-1], vec![i64::MAX], vec![2]] {
        let views = Crafted { variadic, ..Crafted::views(1) };
        views.decode(DataType::Utf8View).unwrap_err();
    }
}

#[test]
fn rows_that_no_buffer_bounds_are_few() {
    let bare = |count: usize| {
        let count = i64::try_from(count).unwrap();
        let nulls = Crafted {
            length: count,
            nodes: vec![(count, count)],
            buffers: Vec::new(),
            ..Crafted::numbers()
        };
        let columnless = Crafted { nodes: Vec::new(), ..nulls.clone() };
        let columnless = SlotDecoder::new(&Schema::empty()).decode(columnless.encode().into());
        let wide =
            Crafted { buffers: vec![(0, 0), (0, 0)], nodes: vec![(count, 0)], ..nulls.clone() };
        [
            nulls.decode(DataType::Null).is_ok(),
            columnless.is_ok(),
            wide.decode(DataType::FixedSizeBinary(0)).is_ok(),
        ]
    };
    assert_eq!(bare(BARE_ROW_COUNT_MAX), [true; 3]);
    assert_eq!(bare(BARE_ROW_COUNT_MAX + 1), [false; 3]);
    // Offsets of a list of NULLs, as long as they can say.
    let offsets: Vec<u8> = [0, i32::MAX].iter().flat_map(|offset| offset.to_le_bytes()).collect();
    let list = Crafted {
        length: 1,
        nodes: vec![(1, 0), (i32::MAX.into(), i32::MAX.into())],
        buffers: vec![(0, 0), (0, 8)],
        body: offsets,
        ..Crafted::numbers()
    };
    let item = Arc::new(Field::new("item", DataType::Null, true));
    let error = list.decode(DataType::List(item)).unwrap_err();
    assert!(error.contains("rows, where at most"), "{error}");
}

#[test]
fn rows_that_share_their_values_are_refused() {
    let error = Crafted::views(2).decode(DataType::Utf8View).unwrap_err();
    assert!(error.contains("views that share"), "{error}");
    // A long text, to which every row refers.
    let count = 1 << 17;
    let keys = Int32Array::from(vec![0; count]);
    let long = Arc::new(arrow::array::StringArray::from(vec!["x".repeat(1000)]));
    let column: ArrayRef = Arc::new(DictionaryArray::<Int32Type>::new(keys, long));
    let schema = Arc::new(Schema::new(vec![Field::new("c", column.data_type().clone(), true)]));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column]).unwrap();
    let encoded = encode_batch(&batch).unwrap();
    let error = SlotDecoder::new(&schema).decode(encoded.into()).unwrap_err().to_string();
    assert!(error.contains("dictionary whose rows take"), "{error}");
    let few = encode_batch(&batch.slice(0, 1000)).unwrap();
    assert!(SlotDecoder::new(&schema).decode(few.into()).is_ok());
}

#[test]
fn views_in_lists_come_back_however_they_were_shared() {
    let text = "a text that is too long to be in its view";
    let views = StringViewArray::from_iter_values([text, "short", "another text of some length"]);
    let shared =
        arrow::compute::take(&views, &Int32Array::from(vec![0, 0, 0, 2, 1, 0]), None).unwrap();
    let item = Arc::new(Field::new("item", DataType::Utf8View, true));
    let offsets = arrow::buffer::OffsetBuffer::from_lengths([2, 0, 4]);
    let list: ArrayRef = Arc::new(ListArray::try_new(item, offsets, shared, None).unwrap());
    let schema = Arc::new(Schema::new(vec![Field::new("c", list.data_type().clone(), true)]));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![list]).unwrap();
    for (start, length) in [(0, 3), (1, 2), (2, 1), (0, 0)] {
        let slice = batch.slice(start, length);
        let decoded = SlotDecoder::new(&schema).decode(encode_batch(&slice).unwrap().into());
        assert_eq!(decoded.unwrap(), slice);
    }
}

/// The schema of `count` fields, which are one and the same.
fn schema_of_one_field(count: usize) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let name = builder.create_string(&"a name ".repeat(1000));
    let kind = arrow::ipc::BoolBuilder::new(&mut builder).finish().as_union_value();
    let mut field = arrow::ipc::FieldBuilder::new(&mut builder);
    field.add_name(name);
    field.add_type_type(arrow::ipc::Type::Bool);
    field.add_type_(kind);
    let field = field.finish();
    let fields = builder.create_vector(&vec![field; count]);
    let mut schema = arrow::ipc::SchemaBuilder::new(&mut builder);
    schema.add_fields(fields);
    let schema = schema.finish();
    let mut message = MessageBuilder::new(&mut builder);
    message.add_version(MetadataVersion::V5);
    message.add_header_type(MessageHeader::Schema);
    message.add_header(schema.as_union_value());
    let message = message.finish();
    builder.finish(message, None);
    builder.finished_data().to_vec()
}

#[test]
fn a_schema_whose_parts_are_shared_does_not_expand() {
    assert!(parse(&schema_of_one_field(3)).is_ok());
    let small = schema_of_one_field(10_000);
    assert!(small.len() < 50_000, "{}", small.len());
    assert!(parse(&small).is_err(), "{} bytes become 70 million", small.len());
}
