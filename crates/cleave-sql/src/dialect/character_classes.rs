//! `[:alpha:]` and its like in patterns of regular expressions, which PostgreSQL reads as the classes of Unicode, and
//! the engine as those of ASCII. Patterns that are no literals stay as they are.

use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr};

/// Classes that differ, and what they are.
const CLASSES: [(&str, &str); 5] = [
    ("[:alpha:]", r"\p{Alphabetic}"),
    ("[:alnum:]", r"\p{Alphabetic}\p{Nd}"),
    ("[:lower:]", r"\p{Lowercase}"),
    ("[:upper:]", r"\p{Uppercase}"),
    ("[:space:]", r"\s"),
];

/// Rewrites the pattern of `expression`, if it has one.
pub(super) fn lower_character_classes(expression: &mut Expr) {
    use BinaryOperator as Op;
    let pattern = match expression {
        Expr::BinaryOp {
            op: Op::PGRegexMatch | Op::PGRegexIMatch | Op::PGRegexNotMatch | Op::PGRegexNotIMatch,
            right,
            ..
        } => Some(right.as_mut()),
        Expr::Function(function) if is_of_patterns(&function.name) => {
            pattern_of(&mut function.args)
        }
        _ => None,
    };
    if let Some(Expr::Value(value)) = pattern
        && let ast::Value::SingleQuotedString(text) = &mut value.value
        && text.contains("[:")
    {
        for (name, class) in CLASSES {
            *text = text.replace(name, class);
        }
    }
}

fn is_of_patterns(name: &ast::ObjectName) -> bool {
    let [ast::ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return false };
    name.value.to_lowercase().starts_with("regexp_")
}

fn pattern_of(arguments: &mut ast::FunctionArguments) -> Option<&mut Expr> {
    let ast::FunctionArguments::List(list) = arguments else { return None };
    match list.args.get_mut(1)? {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(pattern)) => Some(pattern),
        _ => None,
    }
}
