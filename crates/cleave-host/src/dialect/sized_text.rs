//! Casts to text of a length, which the engine would read as casts to text.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, CharacterLength, DataType, Expr, TrimWhereField, visit_expressions_mut,
};

/// Makes `x::varchar(n)` and `x::char(n)` in `query` cut the text, as PostgreSQL does; `char(n)` without its
/// trailing blanks, as it is stored.
pub fn cut_sized_text(query: &mut ast::Query) {
    let flow: ControlFlow<()> = visit_expressions_mut(query, |expression| {
        if let Expr::Cast { data_type, .. } = expression
            && let Some((length, is_char)) = text_length(data_type)
        {
            *data_type = DataType::Text;
            let number = |number: u64| {
                let value = ast::Value::Number(number.to_string(), false);
                Some(Box::new(Expr::value(value)))
            };
            let text = Box::new(std::mem::replace(expression, Expr::value(ast::Value::Null)));
            let cut = Expr::Substring {
                expr: text,
                substring_from: number(1),
                substring_for: number(length),
                special: false,
                shorthand: false,
            };
            *expression = if is_char { without_trailing_blanks(cut) } else { cut };
        }
        ControlFlow::Continue(())
    });
    debug_assert!(flow.is_continue(), "nothing stops the visit");
}

fn without_trailing_blanks(text: Expr) -> Expr {
    Expr::Trim {
        expr: Box::new(text),
        trim_where: Some(TrimWhereField::Trailing),
        trim_what: None,
        trim_characters: None,
    }
}

/// The most characters of a type, and whether it is `char(n)`.
fn text_length(data_type: &DataType) -> Option<(u64, bool)> {
    let (length, is_char) = match data_type {
        DataType::Varchar(length)
        | DataType::CharacterVarying(length)
        | DataType::CharVarying(length) => (length.as_ref()?, false),
        DataType::Char(None) | DataType::Character(None) => return Some((1, true)),
        DataType::Char(Some(length)) | DataType::Character(Some(length)) => (length, true),
        _ => return None,
    };
    match length {
        CharacterLength::IntegerLength { length, .. } => Some((*length, is_char)),
        CharacterLength::Max => None,
    }
}
