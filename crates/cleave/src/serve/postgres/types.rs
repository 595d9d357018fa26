//! Maps types to PostgreSQL's type OIDs and back.
//!
//! A result column has the PostgreSQL type nearest to its Arrow type; type modifiers (length, precision) are not sent,
//! as PostgreSQL does not for computed columns.
//!
//! Source: PostgreSQL's `pg_type.dat`.

use arrow::datatypes::DataType;
use cleave_host::Error;
use cleave_host::value::binary::Element;
use cleave_store::ColumnType;

/// A type of values, or of lists of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WireType {
    /// The type, or that of the list's items.
    pub(crate) element: Element,
    /// Whether it is a list.
    pub(crate) is_list: bool,
}

impl WireType {
    /// Its OID.
    pub(crate) fn oid(self) -> u32 {
        if self.is_list { self.element.list_oid() } else { self.element.oid() }
    }

    /// Its size in bytes; -1 if it varies.
    pub(crate) fn size(self) -> i16 {
        if self.is_list { -1 } else { self.element.size() }
    }

    /// The PostgreSQL type of a column of this Arrow type.
    pub(crate) fn of_arrow(data_type: &DataType) -> Self {
        match data_type {
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                // One type, whatever the dimensions.
                Self { is_list: true, ..Self::of_arrow(item.data_type()) }
            }
            DataType::Dictionary(_, value) => Self::of_arrow(value),
            other => Self { element: Element::of_arrow(other), is_list: false },
        }
    }
}

/// The type and encoding of a parameter that a client has declared by `oid` (0 if not declared), and whose type in the
/// database is `column_type`; of a list, that of its items.
///
/// # Errors
/// [`Error::Unsupported`] for a list that was declared as one value, or vice versa.
pub(crate) fn parameter(
    number: usize,
    oid: u32,
    column_type: ColumnType,
    is_list: bool,
) -> Result<(u32, Element), Error> {
    let declared = Element::of_list_oid(oid).or(TEXT_LISTS.contains(&oid).then_some(Element::Text));
    if is_list {
        let element = Element::of_column(column_type);
        return match declared {
            Some(declared) => Ok((oid, declared)),
            None if matches!(oid, 0 | 705) => Ok((element.list_oid(), element)),
            None => {
                let what = format!("parameter ${number} as one value, where a list is compared");
                Err(Error::unsupported(what))
            }
        };
    }
    if declared.is_some() {
        let what = format!("parameter ${number}, a list, outside of = ANY and <> ALL");
        return Err(Error::unsupported(what));
    }
    Ok(single_parameter(oid, column_type))
}

/// Lists of names, of character(n) and of character varying.
const TEXT_LISTS: [u32; 3] = [1003, 1014, 1015];

fn single_parameter(oid: u32, column_type: ColumnType) -> (u32, Element) {
    let element = match oid {
        26 => Element::Oid,
        _ => Element::of_column(column_type),
    };
    // Drivers expect the type that they have declared.
    (if matches!(oid, 0 | 705) { element.oid() } else { oid }, element)
}

/// The type of parameter `number` that a client declares by `oid`; None if left open.
///
/// # Errors
/// [`Error::Unsupported`] for an unknown type.
pub(crate) fn declared(number: usize, oid: u32) -> Result<Option<ColumnType>, Error> {
    let item = Element::of_list_oid(oid).map_or(oid, Element::oid);
    Ok(Some(match item {
        // Not declared, and "unknown".
        0 | 705 => return Ok(None),
        16 => ColumnType::Boolean,
        17 => ColumnType::Bytea,
        20 | 26 => ColumnType::BigInt,
        21 => ColumnType::SmallInt,
        23 => ColumnType::Int,
        // "char", name, text, character(n), character varying.
        18 | 19 | 25 | 1003 | 1014 | 1015 | 1042 | 1043 => ColumnType::Text,
        700 => ColumnType::Real,
        701 => ColumnType::Double,
        1082 => ColumnType::Date,
        1083 => ColumnType::Time,
        1114 => ColumnType::Timestamp,
        1184 => ColumnType::TimestampTz,
        1186 => ColumnType::Interval,
        1700 => ColumnType::NUMERIC,
        2950 => ColumnType::Uuid,
        _ => {
            return Err(Error::unsupported(format!(
                "parameter ${number} of the type with number {oid}"
            )));
        }
    }))
}
