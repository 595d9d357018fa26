//! Named windows: a statement in, the same with each window written out where it is used.
//!
//! ```text
//!  sum(a) OVER w … WINDOW w AS (PARTITION BY b)              ─▶ sum(a) OVER (PARTITION BY b)
//!  sum(a) OVER (w ORDER BY c) … WINDOW w AS (PARTITION BY b) ─▶ sum(a) OVER (PARTITION BY b ORDER BY c)
//! ```
//!
//! DataFusion knows named windows in the select list alone, and no window based on another. A SELECT's windows also
//! apply to its query's ORDER BY; subqueries have their own. The definitions stay, so that errors in unused ones are
//! found.
//!
//! Source: PostgreSQL's `transformWindowDefinitions` (parse_clause.c) and `transformWindowFuncCall` (parse_agg.c).

use std::ops::ControlFlow;

use cleave_catalog::error::{Error, Fault, NameKind, Result};
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, NamedWindowDefinition,
    NamedWindowExpr, ObjectName, ObjectNamePart, Query, Select, SetExpr, Value, VisitorMut,
    WindowFrameBound, WindowSpec, WindowType,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::dialect::Exclusion;
use crate::statement::names::{fold, position_of};
use crate::visiting::{Visited, visit_mut};

/// Whether a statement with this token may have windows.
pub(super) fn is_concerned(token: &TokenWithSpan) -> bool {
    matches!(&token.token, Token::Word(word) if [Keyword::OVER, Keyword::WINDOW].contains(&word.keyword))
}

/// Writes the windows of `part` out.
///
/// # Errors
/// For a missing window (42704), and for one that is defined twice, repeats a clause of its base, or has a frame that
/// ends before it starts (42P20).
pub(super) fn write_out(part: &mut impl Visited) -> Result<()> {
    match visit_mut(part, &mut WriteOut { open: Vec::new() }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// The windows of a SELECT, written out, by their names.
type Windows = Vec<(String, WindowSpec)>;

/// The windows of each query and each SELECT around the place of the visit.
struct WriteOut {
    open: Vec<Windows>,
}

impl VisitorMut for WriteOut {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        // Those of the ORDER BY, which is visited after the SELECT.
        self.open.push(match query.body.as_ref() {
            SetExpr::Select(select) if query.order_by.is_some() => {
                flow(defined(&select.named_window))?
            }
            _ => Windows::new(),
        });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Self::Break> {
        self.open.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        let windows = flow(defined(&select.named_window))?;
        for (definition, (_, window)) in select.named_window.iter_mut().zip(&windows) {
            let window = WindowSpec { window_name: None, ..window.clone() };
            definition.1 = NamedWindowExpr::WindowSpec(window);
        }
        self.open.push(windows);
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _select: &mut Select) -> ControlFlow<Self::Break> {
        self.open.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Self::Break> {
        let Expr::Function(function) = expression else { return ControlFlow::Continue(()) };
        if let Some(WindowType::WindowSpec(window)) = &function.over {
            flow(check_frame(window, &function.name))?;
        }
        let windows = self.open.last().map(Vec::as_slice).unwrap_or_default();
        let mut written = match &function.over {
            Some(WindowType::NamedWindow(name)) => flow(named(windows, name))?.clone(),
            Some(WindowType::WindowSpec(window)) if window.window_name.is_some() => {
                flow(refined(windows, window, false))?
            }
            _ => return ControlFlow::Continue(()),
        };
        flow(check_frame(&written, &function.name))?;
        let exclusion = written.window_name.take().and_then(|mark| Exclusion::split(&mark.value).1);
        function.over = Some(WindowType::WindowSpec(written));
        if let Some(exclusion) = exclusion {
            exclude(function, exclusion);
        }
        ControlFlow::Continue(())
    }
}

/// Refuses a frame that ends before it starts, as PostgreSQL does (gram.y).
fn check_frame(window: &WindowSpec, place: &ObjectName) -> Result<()> {
    use WindowFrameBound::{CurrentRow, Following, Preceding};
    let Some(frame) = &window.window_frame else { return Ok(()) };
    let message = match (&frame.start_bound, &frame.end_bound) {
        (Following(None), _) => "frame start cannot be UNBOUNDED FOLLOWING",
        (_, Some(Preceding(None))) => "frame end cannot be UNBOUNDED PRECEDING",
        (CurrentRow, Some(Preceding(_))) => {
            "frame starting from current row cannot have preceding rows"
        }
        (Following(_), Some(Preceding(_) | CurrentRow)) => {
            "frame starting from following row cannot have preceding rows"
        }
        (Following(_), None) => "frame starting from following row cannot end with current row",
        _ => return Ok(()),
    };
    let name = place.0.first().and_then(ObjectNamePart::as_ident);
    let position = name.and_then(|name| position_of(name.span.start));
    Err(Error::Invalid { message: message.to_owned(), fault: Fault::Window, position })
}

/// Functions that do not look at frames.
const WITHOUT_FRAME: [&str; 8] =
    ["row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead"];

/// Marks a function over a frame with EXCLUDE.
fn exclude(function: &mut Function, exclusion: Exclusion) {
    let name = function.name.0.last().and_then(ObjectNamePart::as_ident).map(fold);
    if name.is_none_or(|name| WITHOUT_FRAME.contains(&name.as_str())) {
        return;
    }
    let FunctionArguments::List(list) = &mut function.args else { return };
    let argument = |value: Value| FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::value(value)));
    for each in &mut list.args {
        // `count(*)` becomes a count of a value that is not NULL.
        if matches!(each, FunctionArg::Unnamed(FunctionArgExpr::Wildcard)) {
            *each = argument(Value::Number("1".to_owned(), false));
        }
    }
    list.args.push(argument(Value::SingleQuotedString(exclusion.mark().to_owned())));
}

fn flow<T>(result: Result<T>) -> ControlFlow<Box<Error>, T> {
    match result {
        Ok(value) => ControlFlow::Continue(value),
        Err(error) => ControlFlow::Break(Box::new(error)),
    }
}

/// The windows of a WINDOW clause.
fn defined(definitions: &[NamedWindowDefinition]) -> Result<Windows> {
    let mut windows = Windows::with_capacity(definitions.len());
    for NamedWindowDefinition(name, window) in definitions {
        let own = fold(name);
        if windows.iter().any(|(other, _)| *other == own) {
            return Err(fault(format!("window \"{own}\" is already defined"), name));
        }
        let window = match window {
            NamedWindowExpr::NamedWindow(other) => named(&windows, other)?.clone(),
            NamedWindowExpr::WindowSpec(window) => refined(&windows, window, true)?,
        };
        windows.push((own, window));
    }
    Ok(windows)
}

fn named<'a>(windows: &'a [(String, WindowSpec)], name: &Ident) -> Result<&'a WindowSpec> {
    let own = fold(name);
    windows.iter().find(|(other, _)| *other == own).map(|(_, window)| window).ok_or_else(|| {
        Error::unknown(NameKind::Window, &own, windows.iter().map(|(name, _)| name.as_str()))
            .at(position_of(name.span.start))
    })
}

/// `window`, with the clauses of its base window.
fn refined(
    windows: &[(String, WindowSpec)],
    window: &WindowSpec,
    is_definition: bool,
) -> Result<WindowSpec> {
    let Some(name) = &window.window_name else { return Ok(window.clone()) };
    let (base_name, exclusion) = Exclusion::split(&name.value);
    let mark = exclusion.map(|exclusion| Ident::with_quote('"', exclusion.mark()));
    if base_name.is_empty() && mark.is_some() {
        return Ok(WindowSpec { window_name: mark, ..window.clone() });
    }
    let name = &Ident { value: base_name.to_owned(), ..name.clone() };
    let base = named(windows, name)?;
    let base_name = fold(name);
    let again = |clause: &str| {
        fault(format!("cannot override {clause} clause of window \"{base_name}\""), name)
    };
    if !window.partition_by.is_empty() {
        return Err(again("PARTITION BY"));
    }
    if !window.order_by.is_empty() && !base.order_by.is_empty() {
        return Err(again("ORDER BY"));
    }
    if base.window_frame.is_some() {
        let mut message =
            format!("cannot copy window \"{base_name}\" because it has a frame clause");
        if !is_definition && window.order_by.is_empty() && window.window_frame.is_none() {
            message += "; omit the parentheses in this OVER clause";
        }
        return Err(fault(message, name));
    }
    let order_by = match window.order_by.is_empty() {
        true => base.order_by.clone(),
        false => window.order_by.clone(),
    };
    let partition_by = base.partition_by.clone();
    let window_frame = window.window_frame.clone();
    Ok(WindowSpec { window_name: mark, partition_by, order_by, window_frame })
}

fn fault(message: String, name: &Ident) -> Error {
    Error::Invalid { message, fault: Fault::Window, position: position_of(name.span.start) }
}
