//! PostgreSQL's regular expressions, written as DataFusion's library reads them.
//!
//! A point matches any character, also a newline; classes as `[:alpha:]` are those of Unicode, which the library has
//! for ASCII; `\y`, `\m`, `\M` are ends of words; within brackets nothing but ranges and classes is special. Literal
//! patterns of `~` and `regexp_like` are translated when a statement is planned. Of a pattern that is no literal only
//! the point is given its meaning there. [The other functions](super::functions) translate when they run.
//!
//! Source: PostgreSQL's documentation, "POSIX Regular Expressions".

use std::iter::Peekable;
use std::str::Chars;

use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr};

use super::functions::SUBSTRING;
use super::lower_calls::word;
use super::row_comparison::{binary, nested};
use crate::statement::catalog_syntax::call;

/// Classes that differ, and what they are.
const CLASSES: [(&str, &str); 8] = [
    ("[:alpha:]", r"\p{Alphabetic}"),
    ("[:alnum:]", r"\p{Alphabetic}\p{Nd}"),
    ("[:lower:]", r"\p{Lowercase}"),
    ("[:upper:]", r"\p{Uppercase}"),
    ("[:space:]", SPACES),
    ("[:punct:]", r"\p{P}\p{S}"),
    ("[:graph:]", r"\p{L}\p{M}\p{N}\p{P}\p{S}"),
    ("[:print:]", r"\p{L}\p{M}\p{N}\p{P}\p{S}\p{Zs}"),
];

/// White space, without the blanks at which no line ends.
const SPACES: &str = r"[\s--\x{85}\x{A0}\x{2007}\x{202F}]";

/// Lets a point match newlines.
const OVER_LINES: &str = "(?s)";

/// Rewrites the pattern of `expression`, if it asks whether there is a match, and the `FROM` of `substring`.
pub(super) fn lower_regular_expressions(expression: &mut Expr) {
    use BinaryOperator as Op;
    match expression {
        Expr::BinaryOp {
            op: Op::PGRegexMatch | Op::PGRegexIMatch | Op::PGRegexNotMatch | Op::PGRegexNotIMatch,
            right,
            ..
        } => lower_pattern(right, false),
        Expr::Function(function) => lower_function(function),
        // `substring(text FROM pattern)`: the first group, or all of the match.
        Expr::Substring { expr, substring_from: Some(pattern), substring_for: None, .. }
            if is_literal(pattern) =>
        {
            *expression = call(SUBSTRING, vec![(**expr).clone(), (**pattern).clone()]);
        }
        _ => {}
    }
}

/// `regexp_like(text, pattern [, flags])`; the other functions read PostgreSQL's patterns.
fn lower_function(function: &mut ast::Function) {
    let [ast::ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return };
    if !name.value.eq_ignore_ascii_case("regexp_like") {
        return;
    }
    let mut by_lines = false;
    if let Some(flags) = argument(&mut function.args, 2).and_then(text_mut) {
        by_lines = flags.contains(['n', 'm']);
        // DataFusion knows one of the two.
        *flags = flags.replace('n', "m");
    }
    if let Some(pattern) = argument(&mut function.args, 1) {
        lower_pattern(pattern, by_lines);
    }
}

fn is_literal(expression: &Expr) -> bool {
    matches!(expression, Expr::Value(value) if literal_text(&value.value).is_some())
}

/// The text of a literal in quotes of any kind.
pub(super) fn literal_text(value: &ast::Value) -> Option<&str> {
    match value {
        ast::Value::SingleQuotedString(text) | ast::Value::EscapedStringLiteral(text) => Some(text),
        ast::Value::DollarQuotedString(text) => Some(&text.value),
        _ => None,
    }
}

fn text_mut(expression: &mut Expr) -> Option<&mut String> {
    let Expr::Value(value) = expression else { return None };
    match &mut value.value {
        ast::Value::SingleQuotedString(text) | ast::Value::EscapedStringLiteral(text) => Some(text),
        ast::Value::DollarQuotedString(text) => Some(&mut text.value),
        _ => None,
    }
}

fn argument(arguments: &mut ast::FunctionArguments, place: usize) -> Option<&mut Expr> {
    let ast::FunctionArguments::List(list) = arguments else { return None };
    match list.args.get_mut(place)? {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(argument)) => Some(argument),
        _ => None,
    }
}

/// Rewrites a pattern; `by_lines`: points match no newlines.
fn lower_pattern(pattern: &mut Expr, by_lines: bool) {
    if let Some(text) = text_mut(pattern) {
        *text = translated(text, by_lines);
    } else if !by_lines {
        let text = std::mem::replace(pattern, Expr::value(ast::Value::Null));
        *pattern = nested(binary(word(OVER_LINES), BinaryOperator::StringConcat, text));
    }
}

/// `pattern` as the library reads it.
pub(super) fn translated(pattern: &str, by_lines: bool) -> String {
    // A director of what follows: a text without special characters, or what a pattern is anyway.
    if let Some(text) = pattern.strip_prefix("***=") {
        return regex::escape(text);
    }
    let (options, pattern) = options_of(pattern.strip_prefix("***:").unwrap_or(pattern));
    if options.contains('q') {
        let text = regex::escape(pattern);
        return if options.contains('i') { format!("(?i){text}") } else { text };
    }
    // The last of them holds, also against those of the function.
    let last_of = |letters: &[char]| options.chars().rev().find(|letter| letters.contains(letter));
    let by_lines = last_of(&['n', 'm', 's']).map_or(by_lines, |letter| letter != 's');
    let mut out = String::with_capacity(pattern.len());
    let mut has_points = false;
    let mut letters = pattern.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('y') => out.push_str(r"\b"),
                Some('Y') => out.push_str(r"\B"),
                Some('m') => out.push_str(r"\b{start}"),
                Some('M') => out.push_str(r"\b{end}"),
                Some('Z') => out.push_str(r"\z"),
                Some('d') => out.push_str("[0-9]"),
                Some('D') => out.push_str("[^0-9]"),
                Some('s') => out.push_str(SPACES),
                Some('S') => out.push_str(&format!("[^{SPACES}]")),
                Some('b') => out.push_str(r"\x08"),
                Some('B') => out.push_str(r"\\"),
                Some(sign) if sign.is_ascii_punctuation() => {
                    out.push_str(&regex::escape(&sign.to_string()));
                }
                escaped => out.extend(['\\'].into_iter().chain(escaped)),
            },
            '[' => bracket(&mut letters, by_lines, &mut out),
            // Bounds begin with a digit: of `a{,2}` it is a brace.
            '{' if !letters.peek().is_some_and(char::is_ascii_digit) => out.push_str(r"\{"),
            letter => {
                has_points |= letter == '.';
                out.push(letter);
            }
        }
    }
    let mut flags = String::new();
    if last_of(&['i', 'c']) == Some('i') {
        flags.push('i');
    }
    if options.contains('x') {
        flags.push('x');
    }
    if by_lines && options.contains(['n', 'm']) {
        flags.push('m');
    }
    if has_points && !by_lines {
        flags.push('s');
    }
    if last_of(&['i', 'c']) == Some('c') {
        flags.push_str("-i");
    }
    if flags.is_empty() { out } else { format!("(?{flags}){out}") }
}

/// The options that `pattern` begins with, and the rest of it.
fn options_of(pattern: &str) -> (&str, &str) {
    let all = pattern.strip_prefix("(?").and_then(|rest| rest.split_once(')'));
    match all {
        Some((options, rest)) if options.chars().all(|one| "ceimnqstx".contains(one)) => {
            (options, rest)
        }
        _ => ("", pattern),
    }
}

/// A set of characters, behind its opening bracket.
fn bracket(letters: &mut Peekable<Chars<'_>>, by_lines: bool, out: &mut String) {
    let rest: String = letters.clone().take(6).collect();
    for (marks, boundary) in [("[:<:]]", r"\b{start}"), ("[:>:]]", r"\b{end}")] {
        if rest == marks {
            letters.nth(5);
            out.push_str(boundary);
            return;
        }
    }
    out.push('[');
    if letters.next_if_eq(&'^').is_some() {
        out.push('^');
        if by_lines {
            out.push_str(r"\n");
        }
    }
    let mut is_first = true;
    while let Some(letter) = letters.next() {
        if letter == ']' && !is_first {
            out.push(letter);
            return;
        }
        is_first = false;
        let Some(first) = element(letter, letters, out) else { continue };
        out.push_str(&escaped(&first));
        // A range, unless the set ends behind the `-`.
        let mut ahead = letters.clone();
        if ahead.next() == Some('-') && ahead.next().is_some_and(|next| next != ']') {
            letters.next();
            if let Some(last) = letters.next().and_then(|letter| element(letter, letters, out)) {
                out.push('-');
                out.push_str(&escaped(&last));
            }
        }
    }
}

/// The character that begins with `letter`; a class is written out, and is none.
fn element(letter: char, letters: &mut Peekable<Chars<'_>>, out: &mut String) -> Option<String> {
    match (letter, letters.peek().copied()) {
        ('\\', Some(next)) => {
            letters.next();
            match next {
                'd' => out.push_str("0-9"),
                's' => out.push_str(SPACES),
                // Classes, and characters with a name.
                next if next.is_alphanumeric() => out.extend(['\\', next]),
                next => return Some(next.to_string()),
            }
            None
        }
        ('[', Some(mark @ (':' | '.' | '='))) => {
            letters.next();
            let mut name = String::new();
            for letter in letters.by_ref() {
                name.push(letter);
                if name.ends_with(&format!("{mark}]")) {
                    break;
                }
            }
            let end = name.len().saturating_sub(2);
            name.truncate(if name.ends_with(']') { end } else { name.len() });
            if mark != ':' {
                return Some(name);
            }
            let class = format!("[:{name}:]");
            let known = CLASSES.iter().find(|(known, _)| *known == class);
            out.push_str(known.map_or(class.as_str(), |(_, own)| own));
            None
        }
        (letter, _) => Some(letter.to_string()),
    }
}

/// A character of a set, without any other meaning.
fn escaped(character: &str) -> String {
    match character.chars().next() {
        Some(letter) if letter.is_ascii_punctuation() => format!("\\{character}"),
        _ => character.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::translated;

    #[test]
    fn patterns_are_written_for_the_engine() {
        for (own, engines) in [
            ("a.b", "(?s)a.b"),
            (r"a\.b[.]", r"a\.b[\.]"),
            ("[[:alpha:]_]+", r"[\p{Alphabetic}\_]+"),
            ("[^][a&&b~~c]", r"[^\]\[a\&\&b\~\~c]"),
            ("[+--]", r"[\+-\-]"),
            ("[--/a-]", r"[\--\/a\-]"),
            ("[[.a.][=b=]-d]", "[ab-d]"),
            ("[[:<:]]a[[:>:]]", r"\b{start}a\b{end}"),
            (r"\mword\M|\y\Y\A\Z", r"\b{start}word\b{end}|\b\B\A\z"),
            (r"\d[\d\w]", r"[0-9][0-9\w]"),
            ("(?n)^[^a].", r"(?m)^[^\na]."),
            ("(?i)a.", "(?is)a."),
            ("***=a.(b", r"a\.\(b"),
            ("***:(?i)a.", "(?is)a."),
            ("(?q)a.", r"a\."),
            ("a{,2}{b}c{1,}", r"a\{,2}\{b}c{1,}"),
            ("[[:digit:]", "[[:digit:]"),
            ("[", "["),
            ("\\", "\\"),
        ] {
            assert_eq!(translated(own, false), engines);
        }
    }
}
