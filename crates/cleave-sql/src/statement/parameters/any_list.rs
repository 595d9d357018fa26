//! Parameters that are lists: `= ANY ($1)` and `<> ALL ($1)`, as drivers write IN.
//!
//! With a known value the comparison becomes IN with the list's items. Before that it becomes IN with the parameter as
//! its one item, from which the item's type follows. So no later step has to handle lists.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use cleave_catalog::error::Result;
use cleave_catalog::value::{ValueError, list, value_text};
use cleave_store::ColumnType;
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::sql::sqlparser::ast::{self, DataType, Expr, Visitor};

use super::{Flow, Parameter, canonical, ended, flow, place_of};
use crate::visiting::visit;

/// A comparison with a parameter that is a list.
pub(super) struct AnyList<'a> {
    /// The value that is compared with its items.
    compared: &'a Expr,
    /// Whether it is `<> ALL`.
    is_negated: bool,
    /// The parameter, from 0.
    pub(super) place: usize,
    /// The item's type, where the text says it.
    pub(super) item_type: Option<&'a DataType>,
}

impl<'a> AnyList<'a> {
    /// The comparison of `expression` with a list; None: it is none.
    pub(super) fn of(expression: &'a Expr) -> Result<Option<Self>> {
        use ast::BinaryOperator::{Eq, NotEq};
        let (compared, is_negated, list) = match expression {
            Expr::AnyOp { left, compare_op: Eq, right, .. } => (left, false, right),
            Expr::AllOp { left, compare_op: NotEq, right } => (left, true, right),
            _ => return Ok(None),
        };
        let mut list = list.as_ref();
        while let Expr::Nested(inner) = list {
            list = inner;
        }
        let (list, item_type) = match list {
            Expr::Cast { expr, data_type: data_type @ DataType::Array(_), .. } => {
                (expr.as_ref(), item_type(data_type))
            }
            other => (other, None),
        };
        let place = place_of(list)?;
        Ok(place.map(|place| Self { compared, is_negated, place, item_type }))
    }

    /// The same with `value`; None: it is not known.
    pub(super) fn with(&self, value: Option<&Parameter>) -> Expr {
        let list = match value {
            None => {
                let name = format!("${}", self.place + 1);
                vec![Expr::value(ast::Value::Placeholder(name))]
            }
            Some(value) => match value.item_literals() {
                // Nothing is in an empty list, not even NULL.
                Some(items) if items.is_empty() => {
                    return Expr::value(ast::Value::Boolean(self.is_negated));
                }
                Some(items) => items,
                None => vec![value.literal()],
            },
        };
        Expr::InList { expr: Box::new(self.compared.clone()), list, negated: self.is_negated }
    }
}

/// The type of the items of a type of lists.
pub(in crate::statement) fn item_type(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::Array(
            ast::ArrayElemTypeDef::AngleBracket(item)
            | ast::ArrayElemTypeDef::Parenthesis(item)
            | ast::ArrayElemTypeDef::SquareBracket(item, _),
        ) => Some(item.as_ref()),
        _ => None,
    }
}

/// The parameter, from 0, that is cast to a list, and the expression that it is.
pub(super) fn cast_list(expression: &mut Expr) -> Result<Option<(usize, &mut Expr)>> {
    let Expr::Cast { expr, data_type, .. } = expression else { return Ok(None) };
    if item_type(data_type).is_none() {
        return Ok(None);
    }
    let mut list = expr.as_mut();
    while let Expr::Nested(inner) = list {
        list = inner;
    }
    Ok(place_of(list)?.map(|place| (place, list)))
}

/// The value that `expression` compares with any item of a list, and the parameter, from 0, that is the list; None: it
/// is no such comparison.
pub fn any_of(expression: &Expr) -> Option<(&Expr, usize)> {
    let list = AnyList::of(expression).ok().flatten()?;
    (!list.is_negated).then_some((list.compared, list.place))
}

/// The parameters of `query`, from 0, that are lists.
///
/// # Errors
/// Those of a parameter that is written wrongly.
pub fn list_places(query: &ast::Query) -> Result<BTreeSet<usize>> {
    struct Lists(BTreeSet<usize>);
    impl Visitor for Lists {
        type Break = Box<cleave_catalog::error::Error>;

        fn pre_visit_expr(&mut self, expression: &Expr) -> Flow {
            if let Expr::Cast { expr, data_type, .. } = expression
                && item_type(data_type).is_some()
            {
                let mut list = expr.as_ref();
                while let Expr::Nested(inner) = list {
                    list = inner;
                }
                match place_of(list) {
                    Ok(place) => self.0.extend(place),
                    Err(error) => return flow(Err(error)),
                }
            }
            match AnyList::of(expression) {
                Ok(Some(list)) => {
                    self.0.insert(list.place);
                    ControlFlow::Continue(())
                }
                Ok(None) => ControlFlow::Continue(()),
                Err(error) => flow(Err(error)),
            }
        }
    }
    let mut lists = Lists(BTreeSet::new());
    ended(visit(query, &mut lists))?;
    Ok(lists.0)
}

impl Parameter {
    /// A list of items of `column_type`, one that [`parameter_type`](super::parameter_type) gives, from its text; None:
    /// NULL.
    ///
    /// # Errors
    /// [`ValueError`] where it is no list, or an item is no value of the type.
    pub fn read_list(column_type: ColumnType, text: Option<&str>) -> Result<Self, ValueError> {
        let Some(text) = text else { return Ok(Self::null(column_type)) };
        let name = || format!("{}[]", super::type_name(column_type));
        let items = list::items(text).map_err(|bad| ValueError::new(bad, name(), text))?;
        let read = |item: Option<String>| match item {
            Some(item) => canonical(column_type, &item).map(Some),
            None => Ok(None),
        };
        let items = items.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { column_type, text: Some(list::text_of(&items)), items: Some(items) })
    }

    /// A list of the values of `column`, which is of `column_type`.
    pub fn of_items(column_type: ColumnType, column: &ArrayRef) -> Result<Self> {
        let items = (0..column.len()).map(|row| value_text(column, row));
        let items = items.collect::<Result<Vec<_>>>()?;
        Ok(Self { column_type, text: Some(list::text_of(&items)), items: Some(items) })
    }

    /// Its items; None: it is no list.
    pub fn items(&self) -> Option<&[Option<String>]> {
        self.items.as_deref()
    }

    /// It as a list, to be cast.
    pub(super) fn list_literal(&self) -> Expr {
        match self.item_literals() {
            Some(elem) => Expr::Array(ast::Array { elem, named: true }),
            None => Expr::value(ast::Value::Null),
        }
    }

    /// Its items as they are written in a statement; None: it is no list.
    fn item_literals(&self) -> Option<Vec<Expr>> {
        let literal = |text: &Option<String>| {
            Self { column_type: self.column_type, text: text.clone(), items: None }.literal()
        };
        Some(self.items.as_ref()?.iter().map(literal).collect())
    }
}
