//! Expressions of physical plans as SQL writes them, for people: without ordinals of columns, internal names and types
//! of literals, and with long lists elided.
//!
//! Source: PostgreSQL's EXPLAIN, which prints expressions in SQL; DataFusion's `Display` shows how it holds them.
//!
//! Invariant: the text and the depth of the recursion are bounded, whatever the expression.

use std::sync::Arc;

use cleave_catalog::identifiers::{quoted, shown_name};
use cleave_sql::dialect::type_name;
use datafusion::arrow::array::{Array as _, ArrayRef};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, DynamicFilterPhysicalExpr, InListExpr, IsNotNullExpr,
    IsNullExpr, LikeExpr, Literal, NegativeExpr, NotExpr, TryCastExpr,
};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr, ScalarFunctionExpr};

use super::calls::Call;

/// Behind the place of a result's column whose name is put on it at the end.
const NAMED_LATER: &str = ", named later";

/// Values of a list that are shown.
const VALUES_MAX: usize = 5;
/// Conditions of a chain that are shown.
const CONDITIONS_MAX: usize = 20;
/// Expressions within expressions that are shown.
const DEPTH_MAX: usize = 32;
/// Characters of a literal that are shown.
const LITERAL_CHARACTERS_MAX: usize = 60;

/// How tightly a text holds together: operators have DataFusion's precedences, up to 45.
const NEGATION: u8 = 12;
const TEST: u8 = 22;
const SIGN: u8 = 50;
const CAST: u8 = 60;
const WHOLE: u8 = 100;

/// DataFusion's names of types before a literal in the name of a column, as in `Int64(1)`.
const LITERAL_TYPES: [&str; 16] = [
    "Boolean",
    "Date32",
    "Float32",
    "Float64",
    "Int16",
    "Int32",
    "Int64",
    "Int8",
    "LargeUtf8",
    "UInt16",
    "UInt32",
    "UInt64",
    "UInt8",
    "Utf8",
    "Utf8View",
    "Date64",
];

/// What a column is called.
pub(super) type Names<'a> = dyn Fn(&Column) -> String + 'a;

/// A text, and how tightly it holds together.
struct Written {
    text: String,
    precedence: u8,
}

impl Written {
    fn whole(text: String) -> Self {
        Self { text, precedence: WHOLE }
    }

    /// The text where something with `precedence` is around it.
    fn within(self, precedence: u8) -> String {
        match self.precedence < precedence {
            true => format!("({})", self.text),
            false => self.text,
        }
    }
}

/// `expr` as SQL, with columns by their own names.
pub(super) fn sql(expr: &Arc<dyn PhysicalExpr>) -> String {
    sql_with(expr, &|column: &Column| column_text(column.name()))
}

/// `expr` as SQL.
pub(super) fn sql_with(expr: &Arc<dyn PhysicalExpr>, names: &Names<'_>) -> String {
    written(expr, names, 0).text
}

/// The keys of an order, as in ORDER BY.
pub(super) fn sort_keys(keys: &[PhysicalSortExpr]) -> Vec<String> {
    let key = |key: &PhysicalSortExpr| {
        let direction = match (key.options.descending, key.options.nulls_first) {
            (false, false) => "",
            (false, true) => " NULLS FIRST",
            (true, true) => " DESC",
            (true, false) => " DESC NULLS LAST",
        };
        format!("{}{direction}", sql(&key.expr))
    };
    keys.iter().map(key).collect()
}

/// The first of `texts`, and how many more there are.
pub(super) fn listed(texts: &[String], count_max: usize) -> String {
    elided(texts.iter().take(count_max).cloned().collect(), texts.len(), ", ")
}

fn elided(shown: Vec<String>, count: usize, between: &str) -> String {
    let more = count.saturating_sub(shown.len());
    let shown = shown.join(between);
    match more {
        0 => shown,
        more => format!("{shown}{between}… and {more} more"),
    }
}

/// The name of a column as a person knows it. DataFusion names one that is computed by its expression.
pub(super) fn column_text(name: &str) -> String {
    let name = shown_name(name);
    let place = name.strip_suffix(NAMED_LATER).and_then(|text| text.strip_prefix("column "));
    if let Some(place) = place.and_then(|place| place.parse::<usize>().ok()) {
        return format!("column {} of the result", place.saturating_add(1));
    }
    let is_word = |name: &str| {
        !name.is_empty() && name.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
    };
    match is_word(name) {
        true => quoted(name),
        false => tidied(name),
    }
}

/// Whether a name is one that no user has given.
pub(super) fn is_internal(name: &str) -> bool {
    name.starts_with('\u{1}') || name.starts_with("__") || name.ends_with(NAMED_LATER)
}

/// `text` of DataFusion's without the ordinals of columns.
pub(super) fn without_ordinals(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('@') {
        out.push_str(before);
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            out.push('@');
        }
        rest = after.get(digits..).unwrap_or_default();
    }
    out.push_str(rest);
    tidied(&out)
}

/// `text` of DataFusion's without types of literals and control characters, and with casts as in SQL.
fn tidied(text: &str) -> String {
    tidied_within(text, 0)
}

fn tidied_within(text: &str, depth: usize) -> String {
    let text = text.replace("count(Int64(1))", "count(*)");
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(letter) = rest.chars().next() {
        let begins_word = !out.ends_with(|last: char| last.is_alphanumeric() || last == '_');
        let written = || typed_literal(rest).or_else(|| named_cast(rest, depth));
        if let Some((written, behind)) = begins_word.then(written).flatten() {
            out.push_str(&written);
            rest = behind;
            continue;
        }
        if !letter.is_control() {
            out.push(letter);
        }
        rest = rest.get(letter.len_utf8()..).unwrap_or_default();
    }
    out
}

/// The literal that `text` begins with, where DataFusion has its type before it, and what is behind it.
fn typed_literal(text: &str) -> Option<(String, &str)> {
    let end = text.find('(').filter(|end| *end <= 10)?;
    let (name, inner) = (text.get(..end)?, text.get(end + 1..)?);
    if !LITERAL_TYPES.contains(&name) {
        return None;
    }
    match inner.strip_prefix('"') {
        Some(inner) => {
            let (value, behind) = inner.split_once("\")")?;
            Some((string(value), behind))
        }
        None => {
            let (value, behind) = inner.split_once(')')?;
            Some((value.to_owned(), behind))
        }
    }
}

/// The cast that `text` begins with, where DataFusion has it as `CAST(… AS Int64)`, and what is behind it.
fn named_cast(text: &str, depth: usize) -> Option<(String, &str)> {
    if depth > DEPTH_MAX {
        return None;
    }
    let text = text.strip_prefix("TRY_").unwrap_or(text).strip_prefix("CAST(")?;
    let (mut brackets, mut is_quoted, mut word) = (0_usize, false, None);
    let end = text.bytes().enumerate().find_map(|(at, letter)| {
        match letter {
            b'"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            b'(' => brackets += 1,
            b')' if brackets == 0 => return Some(at),
            b')' => brackets -= 1,
            b' ' if brackets == 0 && text.get(at..)?.starts_with(" AS ") => word = Some(at),
            _ => {}
        }
        None
    })?;
    let word = word?;
    // Behind the type may be what its field says of it.
    let to = text.get(word + " AS ".len()..end)?.split('<').next()?;
    let to = type_name(&to.parse::<DataType>().ok()?);
    let operand = tidied_within(text.get(..word)?, depth + 1);
    let precedence = if is_one(&operand) { WHOLE } else { 0 };
    Some((cast_text(Written { text: operand, precedence }, &to).text, text.get(end + 1..)?))
}

/// Whether `text` is one name, literal, call or cast, or has brackets around it.
fn is_one(text: &str) -> bool {
    let (mut brackets, mut quote) = (0_usize, None);
    let is_within = |letter: u8| {
        match (quote, letter) {
            (Some(open), _) if open != letter => {}
            (Some(_), _) => quote = None,
            (None, b'"' | b'\'') => quote = Some(letter),
            (None, b'(') => brackets += 1,
            (None, b')') => brackets = brackets.saturating_sub(1),
            (None, b' ') => return brackets > 0,
            (None, _) => {}
        }
        true
    };
    !text.starts_with('-') && text.bytes().all(is_within)
}

fn written(expr: &Arc<dyn PhysicalExpr>, names: &Names<'_>, depth: usize) -> Written {
    if depth > DEPTH_MAX {
        return Written::whole("…".to_owned());
    }
    let inner = |expr: &Arc<dyn PhysicalExpr>| written(expr, names, depth + 1);
    if let Some(column) = expr.downcast_ref::<Column>() {
        return Written::whole(names(column));
    }
    if let Some(value) = expr.downcast_ref::<Literal>() {
        return literal(value.value());
    }
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        return binary_text(binary, names, depth);
    }
    if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        return cast_text(inner(cast.expr()), &type_name(cast.cast_type()));
    }
    if let Some(cast) = expr.downcast_ref::<TryCastExpr>() {
        return cast_text(inner(cast.expr()), &type_name(cast.cast_type()));
    }
    let test = |operand: Written, test: &str| Written {
        text: format!("{} {test}", operand.within(TEST + 1)),
        precedence: TEST,
    };
    if let Some(is_null) = expr.downcast_ref::<IsNullExpr>() {
        return test(inner(is_null.arg()), "IS NULL");
    }
    if let Some(is_not_null) = expr.downcast_ref::<IsNotNullExpr>() {
        return test(inner(is_not_null.arg()), "IS NOT NULL");
    }
    if let Some(not) = expr.downcast_ref::<NotExpr>() {
        let text = format!("NOT {}", inner(not.arg()).within(NEGATION));
        return Written { text, precedence: NEGATION };
    }
    if let Some(negative) = expr.downcast_ref::<NegativeExpr>() {
        let text = format!("-{}", inner(negative.arg()).within(SIGN + 1));
        return Written { text, precedence: SIGN };
    }
    if let Some(list) = expr.downcast_ref::<InListExpr>() {
        let values = list.list().iter().take(VALUES_MAX).map(|value| inner(value).text);
        let values = elided(values.collect(), list.list().len(), ", ");
        let word = if list.negated() { "NOT IN" } else { "IN" };
        return test(inner(list.expr()), &format!("{word} ({values})"));
    }
    if let Some(like) = expr.downcast_ref::<LikeExpr>() {
        let word = match (like.negated(), like.case_insensitive()) {
            (false, false) => "LIKE",
            (false, true) => "ILIKE",
            (true, false) => "NOT LIKE",
            (true, true) => "NOT ILIKE",
        };
        let pattern = inner(like.pattern()).within(TEST + 1);
        return test(inner(like.expr()), &format!("{word} {pattern}"));
    }
    if let Some(case) = expr.downcast_ref::<CaseExpr>() {
        let mut words = vec!["CASE".to_owned()];
        words.extend(case.expr().map(|subject| inner(subject).text));
        for (when, then) in case.when_then_expr().iter().take(VALUES_MAX) {
            words.push(format!("WHEN {} THEN {}", inner(when).text, inner(then).text));
        }
        words.extend((case.when_then_expr().len() > VALUES_MAX).then(|| "…".to_owned()));
        words.extend(case.else_expr().map(|other| format!("ELSE {}", inner(other).text)));
        words.push("END".to_owned());
        return Written::whole(words.join(" "));
    }
    if let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() {
        return call_text(call, &inner);
    }
    if let Some(filter) = expr.downcast_ref::<DynamicFilterPhysicalExpr>() {
        return match filter.current() {
            Ok(current) => inner(&current),
            Err(_) => Written::whole("a filter".to_owned()),
        };
    }
    Written::whole(without_ordinals(&expr.to_string()))
}

/// A chain of one operator is one list, as deep as it may be.
fn binary_text(binary: &BinaryExpr, names: &Names<'_>, depth: usize) -> Written {
    let op = *binary.op();
    let precedence = op.precedence();
    let part =
        |expr: &Arc<dyn PhysicalExpr>, least: u8| written(expr, names, depth + 1).within(least);
    if !matches!(op, Operator::And | Operator::Or) {
        let (left, right) = (binary.left(), binary.right());
        let text = format!("{} {op} {}", part(left, precedence), part(right, precedence + 1));
        return Written { text, precedence };
    }
    let mut waiting = vec![binary.right(), binary.left()];
    let mut conditions = Vec::new();
    while let Some(next) = waiting.pop() {
        match next.downcast_ref::<BinaryExpr>().filter(|inner| *inner.op() == op) {
            Some(inner) => waiting.extend([inner.right(), inner.left()]),
            None => conditions.push(next),
        }
    }
    let shown =
        conditions.iter().copied().take(CONDITIONS_MAX).map(|one| part(one, precedence + 1));
    let text = elided(shown.collect(), conditions.len(), &format!(" {op} "));
    Written { text, precedence }
}

fn call_text(
    call: &ScalarFunctionExpr,
    inner: &dyn Fn(&Arc<dyn PhysicalExpr>) -> Written,
) -> Written {
    match Call::of(call) {
        Call::Operators { links, precedence, operands } => {
            let mut operands = operands.iter();
            let first = operands.next().map(|first| inner(first).within(precedence));
            let mut text = first.unwrap_or_default();
            for (link, operand) in links.iter().zip(operands).take(CONDITIONS_MAX) {
                text = format!("{text} {link} {}", inner(operand).within(precedence + 1));
            }
            if links.len() > CONDITIONS_MAX {
                text = format!("{text} … and {} more", links.len() - CONDITIONS_MAX);
            }
            Written { text, precedence }
        }
        Call::Operand(operand) => inner(operand),
        Call::Cast(operand, to) => cast_text(inner(operand), to),
        Call::Named => {
            let values = call.args().iter().take(VALUES_MAX).map(|value| inner(value).text);
            let values = elided(values.collect(), call.args().len(), ", ");
            Written::whole(format!("{}({values})", tidied(call.name())))
        }
    }
}

fn cast_text(inner: Written, to: &str) -> Written {
    Written { text: format!("{}::{to}", inner.within(CAST)), precedence: CAST }
}

fn literal(value: &ScalarValue) -> Written {
    literal_within(value, 0)
}

fn literal_within(value: &ScalarValue, depth: usize) -> Written {
    if value.is_null() {
        return Written::whole("NULL".to_owned());
    }
    let text = match value {
        ScalarValue::Utf8(Some(text))
        | ScalarValue::LargeUtf8(Some(text))
        | ScalarValue::Utf8View(Some(text)) => string(text),
        ScalarValue::Dictionary(_, value) => return literal_within(value, depth),
        ScalarValue::List(list) => array_text(&list.value(0), depth),
        ScalarValue::LargeList(list) => array_text(&list.value(0), depth),
        ScalarValue::FixedSizeList(list) => array_text(&list.value(0), depth),
        ScalarValue::Binary(Some(bytes)) | ScalarValue::LargeBinary(Some(bytes)) => {
            let digits = bytes.iter().take(LITERAL_CHARACTERS_MAX / 2);
            let digits: String = digits.map(|byte| format!("{byte:02x}")).collect();
            let cut = if bytes.len() > LITERAL_CHARACTERS_MAX / 2 { "…" } else { "" };
            format!("'\\x{digits}{cut}'")
        }
        other => {
            let text = other.to_array().and_then(|array| Ok(array_value_to_string(&array, 0)?));
            let text = shortened(&text.unwrap_or_else(|_| other.to_string()));
            match other.data_type() {
                DataType::Boolean => text,
                number if number.is_numeric() => text,
                _ => format!("'{text}'"),
            }
        }
    };
    match text.starts_with('-') {
        true => Written { text, precedence: SIGN },
        false => Written::whole(text),
    }
}

/// A list of these items, as an array constructor.
fn array_text(items: &ArrayRef, depth: usize) -> String {
    if depth > DEPTH_MAX {
        return "…".to_owned();
    }
    let item = |place: usize| match ScalarValue::try_from_array(items, place) {
        Ok(item) => literal_within(&item, depth + 1).text,
        Err(_) => "…".to_owned(),
    };
    let shown = (0..items.len().min(VALUES_MAX)).map(item);
    format!("ARRAY[{}]", elided(shown.collect(), items.len(), ", "))
}

/// A string literal, without control characters.
fn string(text: &str) -> String {
    format!("'{}'", without_controls(&shortened(text).replace('\'', "''")))
}

/// `text` with escapes in the place of control characters: in a terminal these move the cursor, or end a line.
pub(super) fn without_controls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter.is_control() {
            true => out.extend(letter.escape_default()),
            false => out.push(letter),
        }
    }
    out
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(LITERAL_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    //! Expressions as SQL, on expressions made by hand.

    use cleave_fragment::functions::{
        checked_add, checked_chain, checked_multiply, double_of, opaque,
    };
    use datafusion::arrow::datatypes::{Field, Schema};
    use datafusion::config::ConfigOptions;
    use datafusion::logical_expr::ScalarUDF;
    use datafusion::physical_expr::expressions::lit;

    use super::*;

    fn column(name: &str) -> Arc<dyn PhysicalExpr> {
        Arc::new(Column::new(name, 7))
    }

    fn binary(
        left: Arc<dyn PhysicalExpr>,
        op: Operator,
        right: Arc<dyn PhysicalExpr>,
    ) -> Arc<dyn PhysicalExpr> {
        Arc::new(BinaryExpr::new(left, op, right))
    }

    #[test]
    fn operators_need_brackets_only_where_sql_does() {
        let sum = binary(column("a"), Operator::Plus, lit(1_i64));
        let product = binary(Arc::clone(&sum), Operator::Multiply, lit(-2_i64));
        assert_eq!(sql(&product), "(a + 1) * -2");
        let difference = binary(column("a"), Operator::Minus, Arc::clone(&sum));
        assert_eq!(sql(&difference), "a - (a + 1)");
        let either = binary(
            binary(column("a"), Operator::Eq, lit("it's")),
            Operator::Or,
            Arc::new(IsNullExpr::new(column("b"))),
        );
        let both = binary(either, Operator::And, binary(column("b"), Operator::Gt, sum));
        assert_eq!(sql(&both), "(a = 'it''s' OR b IS NULL) AND b > a + 1");
        let none: Arc<dyn PhysicalExpr> = Arc::new(NotExpr::new(both));
        assert_eq!(sql(&none), "NOT ((a = 'it''s' OR b IS NULL) AND b > a + 1)");
    }

    #[test]
    fn literals_and_casts_are_those_of_sql() {
        let cast: Arc<dyn PhysicalExpr> =
            Arc::new(CastExpr::new(column("a"), DataType::Int64, None));
        assert_eq!(sql(&binary(cast, Operator::Lt, lit(2.5_f64))), "a::bigint < 2.5");
        let texts = |items: &[&str]| {
            let items: Vec<_> = items.iter().map(|item| ScalarValue::from(*item)).collect();
            ScalarValue::List(ScalarValue::new_list_nullable(&items, &DataType::Utf8))
        };
        let of = |value: ScalarValue| -> Arc<dyn PhysicalExpr> { Arc::new(Literal::new(value)) };
        for (value, expected) in [
            (ScalarValue::Utf8(None), "NULL"),
            (ScalarValue::from("a\nb\u{1b}[2J"), "'a\\nb\\u{1b}[2J'"),
            (ScalarValue::Boolean(Some(true)), "true"),
            (ScalarValue::Date32(Some(19_723)), "'2024-01-01'"),
            (ScalarValue::Decimal128(Some(12_345), 38, 2), "123.45"),
            (ScalarValue::Binary(Some(vec![1, 255])), "'\\x01ff'"),
            (texts(&["a", "it's"]), "ARRAY['a', 'it''s']"),
            (texts(&["a"; 7]), "ARRAY['a', 'a', 'a', 'a', 'a', … and 2 more]"),
        ] {
            assert_eq!(sql(&of(value)), expected);
        }
        let long = of(ScalarValue::from("x".repeat(100).as_str()));
        assert_eq!(sql(&long), format!("'{}…'", "x".repeat(60)));
    }

    #[test]
    fn functions_in_the_place_of_operators_are_written_as_operators() {
        let call = |function: Arc<ScalarUDF>, args: Vec<Arc<dyn PhysicalExpr>>| {
            let (name, gives) = (function.name().to_owned(), DataType::Int64);
            let field = Arc::new(Field::new("f", gives, true));
            let config = Arc::new(ConfigOptions::default());
            let call = ScalarFunctionExpr::new(&name, function, args, field, config);
            Arc::new(call) as Arc<dyn PhysicalExpr>
        };
        let sum = call(checked_add(), vec![column("a"), lit(1_i64)]);
        assert_eq!(sql(&sum), "a + 1");
        let product = call(checked_multiply(), vec![Arc::clone(&sum), column("b")]);
        assert_eq!(sql(&product), "(a + 1) * b");
        let chain = |links: &str| {
            call(checked_chain(), vec![lit(links), column("a"), column("b"), lit(2_i64)])
        };
        assert_eq!(sql(&chain("+-")), "a + b - 2");
        assert_eq!(sql(&chain("+*")), "checked_chain('+*', a, b, 2)");
        assert_eq!(sql(&call(double_of(), vec![sum])), "(a + 1)::double precision");
        assert_eq!(sql(&call(opaque(), vec![column("a"), column("b")])), "a");
    }

    #[test]
    fn long_lists_and_chains_are_elided() {
        let schema = Schema::new(vec![Field::new("a", DataType::Int64, true)]);
        let values = (0..100_i64).map(lit).collect();
        let list = InListExpr::try_new(Arc::new(Column::new("a", 0)), values, true, &schema);
        let list: Arc<dyn PhysicalExpr> = Arc::new(list.unwrap());
        assert_eq!(sql(&list), "a NOT IN (0, 1, 2, 3, 4, … and 95 more)");
        let conditions = (0..1000_i64).map(|v| binary(column("a"), Operator::NotEq, lit(v)));
        let chain = conditions.reduce(|all, one| binary(all, Operator::And, one)).unwrap();
        assert!(sql(&chain).starts_with("a != 0 AND a != 1 AND "), "{}", sql(&chain));
        assert!(sql(&chain).ends_with(" AND a != 19 AND … and 980 more"), "{}", sql(&chain));
        // What nests deeply is cut.
        let deep = (0..1000).fold(column("a"), |inner, _| -> Arc<dyn PhysicalExpr> {
            Arc::new(NotExpr::new(inner))
        });
        assert!(sql(&deep).ends_with('…'), "{}", sql(&deep));
    }

    #[test]
    fn names_that_datafusion_gives_are_those_of_sql() {
        for (name, expected) in [
            ("count(Int64(1))", "count(*)"),
            ("t.a + Int64(1)", "t.a + 1"),
            ("concat(a, Utf8(\"it's (b)\"))", "concat(a, 'it''s (b)')"),
            ("\u{1}vid", "vid"),
            ("a⟨2⟩", "a"),
            ("Year", "\"Year\""),
            ("column 0, named later", "column 1 of the result"),
            ("MyInt64(1)", "MyInt64(1)"),
            ("CAST(f.id AS Int64)", "f.id::bigint"),
            (
                "CAST(t.a + Int64(1) AS Float64) < CAST(f(b, c) AS Int32)",
                "(t.a + 1)::double precision < f(b, c)::integer",
            ),
            (
                "TRY_CAST(CAST(Utf8(\"a b\") AS Date32) AS Decimal128(10, 2))",
                "'a b'::date::numeric",
            ),
            ("CAST(a AS Int64", "CAST(a AS Int64"),
            ("CAST(a AS Nothing)", "CAST(a AS Nothing)"),
        ] {
            assert_eq!(column_text(name), expected, "{name}");
        }
        assert_eq!(without_ordinals("[kind_id@0, x@12 DESC]"), "[kind_id, x DESC]");
        assert!(is_internal("\u{1}vid") && !is_internal("vid"));
    }
}
