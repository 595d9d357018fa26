//! Draws a plan: what `EXPLAIN (FORMAT JSON)` prints in, a picture out.
//!
//! ```text
//!  ┌ host ───────────────────────┐
//!  │      ┌─────────────┐        │   the host is the whole picture
//!  │      │ Aggregate   │        │
//!  │      └──────┬──────┘        │
//!  │ ─ ─ link to device nas ─ ─  │   what crosses, as the node above it knows
//!  │ ┌ device nas ─────────────┐ │   a part for each fragment; below its leaves the host may come again
//!  │ │    │ Scan of title │    │ │
//! ```
//!
//! 1. [`branches_of`] reads the nodes. One that only takes the rows of a fragment becomes the link.
//! 2. [`Branch::measure`] finds how wide each node and all below it are, [`Branch::place`] where they stand: a node
//!    over the middle of what is below it. [`Branch::lower_parts`] moves each part below the whole part above it.
//! 3. Parts are drawn first, outer before inner, then edges, then nodes; links last. Below stand the
//!    [`candidates`] of the split.

mod candidates;

use std::fmt;

use serde_json::Value;

use self::candidates::Candidates;
use crate::picture::{Area, LINE, Picture};
use crate::text::{duration, elided, grouped, size, text_width, wrapped};

/// Columns of a line of text.
const COLUMNS_MAX: usize = 44;
/// Lines of what a node does.
const DETAIL_LINES_MAX: usize = 2;
/// Around all.
const MARGIN: f64 = 24.0;
/// For the figures of the whole plan.
const HEAD: f64 = 46.0;
/// From the border of a node to its text.
const PAD: f64 = 8.0;
/// Between nodes side by side.
const GAP: f64 = 26.0;
/// Between a node and those below.
const DROP: f64 = 26.0;
/// From the nodes of a part to those of the next one, with a link between.
const LINK_DROP: f64 = 70.0;
/// From the border of a part to its nodes.
const PART_PAD: f64 = 10.0;
/// The same above, where its name stands.
const PART_HEAD: f64 = 24.0;
/// What plans of PostgreSQL say of a node besides; ours have a description in words.
const TOLD: [&str; 7] =
    ["Relation Name", "Index Name", "Filter", "Index Cond", "Hash Cond", "Group Key", "Sort Key"];
/// Rows are said to be off if they are more than so many times as many as expected, or as few: as in EXPLAIN's text.
const OFF_BY: f64 = 2.0;
/// From a link to the part below it.
const LINK_RISE: f64 = 10.0;

/// A node, with those below it.
#[derive(Debug, Default)]
struct Branch {
    /// Classes and texts of its lines.
    lines: Vec<(&'static str, String)>,
    /// All that is known of it.
    full: String,
    /// Where it runs; None: on the host.
    device: Option<String>,
    /// What lies between it and the node above, if that runs elsewhere.
    link: Option<String>,
    below: Vec<Branch>,
    area: Area,
    /// The width of it and of all below.
    span: f64,
}

/// Why there is no picture of a plan.
#[derive(Debug)]
pub enum NotDrawn {
    /// The text is not JSON, or nested too deep.
    Unread(serde_json::Error),
    /// The JSON has no plan: the statement has none.
    NoPlan,
}

impl fmt::Display for NotDrawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unread(error) => {
                write!(f, "the plan is too deep to be drawn, or is none: {error}")
            }
            Self::NoPlan => f.write_str("the statement has no plan to draw"),
        }
    }
}

impl std::error::Error for NotDrawn {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unread(error) => Some(error),
            Self::NoPlan => None,
        }
    }
}

/// The picture of what `EXPLAIN (FORMAT JSON)` prints, which is a list of one object, or of that object alone.
///
/// # Errors
/// `explained` is not JSON, is nested too deep, or has no plan.
pub fn plan_svg(explained: &str) -> Result<String, NotDrawn> {
    let explained: Value = serde_json::from_str(explained).map_err(NotDrawn::Unread)?;
    drawn(&explained).ok_or(NotDrawn::NoPlan)
}

/// The picture; None: there is no plan in `explained`.
fn drawn(explained: &Value) -> Option<String> {
    let explained = explained.get(0).unwrap_or(explained);
    let mut roots = branches_of(explained.get("Plan")?);
    let is_whole = roots.len() == 1 && roots.iter().all(|root| root.link.is_none());
    let mut root = match roots.pop() {
        Some(root) if is_whole => root,
        // Its rows go from the device to the client as they are.
        last => {
            roots.extend(last);
            Branch {
                lines: vec![("bold", "Result".to_owned())],
                full: "Result: rows as they come".to_owned(),
                below: roots,
                ..Branch::default()
            }
        }
    };
    let figures = elided(&figures_of_all(explained), 2 * COLUMNS_MAX);
    root.measure();
    let candidates = Candidates::of(explained);
    let (table_width, table_height) = candidates.size();
    root.span = root.span.max(text_width(&figures)).max(table_width);
    root.place(MARGIN, HEAD);
    root.lower_parts();
    let mut all = Vec::new();
    root.list(None, &mut all);
    let bottom = all.iter().map(|(branch, _)| branch.area.bottom()).fold(0.0, f64::max);
    let (width, plan_height) = (root.span + 2.0 * MARGIN, bottom + PART_PAD + MARGIN);

    let mut picture = Picture::default();
    let whole = Area { x: 4.0, y: 4.0, width: width - 8.0, height: plan_height - 8.0 };
    picture.rect(whole, "host-part");
    picture.text((MARGIN - 8.0, 22.0), "bold", "host");
    picture.text((MARGIN + 30.0, 22.0), "faint", &figures);
    for (branch, _) in &all {
        branch.draw_part(&mut picture);
    }
    for (branch, above) in &all {
        if let Some(above) = above {
            let (from, to) = (above.area, branch.area);
            let elbow = from.bottom() + DROP / 2.0;
            let points = [
                (from.center(), from.bottom()),
                (from.center(), elbow),
                (to.center(), elbow),
                (to.center(), to.y),
            ];
            picture.line(&points, "edge");
        }
    }
    for (branch, _) in &all {
        branch.draw(&mut picture);
    }
    for (branch, _) in &all {
        branch.draw_link(&mut picture);
    }
    candidates.draw(&mut picture, (MARGIN, plan_height));
    let branches: Vec<&Branch> = all.iter().map(|(branch, _)| *branch).collect();
    Some(picture.finish((width, plan_height + table_height), &title(&branches)))
}

/// What a screen reader says of the picture.
fn title(branches: &[&Branch]) -> String {
    let of_devices = branches.iter().filter_map(|branch| branch.device.as_deref());
    let mut devices: Vec<String> = of_devices.map(part_name).collect();
    let (count, on_devices) = (branches.len(), devices.len());
    devices.sort_unstable();
    devices.dedup();
    let operators = if count == 1 { "operator" } else { "operators" };
    match on_devices {
        0 => format!("Query plan: {count} {operators} on the host"),
        _ => format!(
            "Query plan: {count} {operators}, {} on the host, {on_devices} on {}",
            count - on_devices,
            devices.join(", ")
        ),
    }
}

/// The node, or those below it where it does nothing but take their rows.
fn branches_of(node: &Value) -> Vec<Branch> {
    let is_on_device = text_of(node, "Side") == Some("device");
    let device = is_on_device.then(|| text_of(node, "Device").unwrap_or_default().to_owned());
    let below = node.get("Plans").and_then(Value::as_array).into_iter().flatten();
    let mut below: Vec<Branch> = below.flat_map(branches_of).collect();
    let cut = text_of(node, "Cut").map(|way| crossing(way, node));
    for branch in below.iter_mut().filter(|branch| branch.link.is_none()) {
        branch.link = match (&device, &branch.device) {
            (None, Some(name)) => cut.clone().or_else(|| Some(part_name(name))),
            (Some(_), None) => Some("rows from the host".to_owned()),
            (Some(own), Some(name)) if own != name => {
                Some(format!("rows from {}", part_name(name)))
            }
            _ => None,
        };
    }
    let description = text_of(node, "Description").map_or_else(|| told(node), str::to_owned);
    let only_takes = cut.is_some() && description.starts_with("Fragment");
    if only_takes && !below.is_empty() && below.iter().all(|branch| branch.device.is_some()) {
        return below;
    }
    let (title, detail) = description.split_once(": ").unwrap_or((description.as_str(), ""));
    let title = if title.is_empty() { text_of(node, "Node Type").unwrap_or("?") } else { title };
    let mut lines = vec![("bold", elided(title, COLUMNS_MAX))];
    lines.extend(wrapped(detail, COLUMNS_MAX, DETAIL_LINES_MAX).into_iter().map(|one| ("", one)));
    let figures = figures_of(node);
    if !figures.is_empty() {
        lines.push(("faint", elided(&figures, COLUMNS_MAX + 8)));
    }
    let device_name = device.as_deref().map(part_name);
    let place = device_name.map_or_else(|| "on the host".to_owned(), |name| format!("on {name}"));
    let whole = [description.as_str(), figures.as_str(), place.as_str()];
    let whole = whole.into_iter().filter(|line| !line.is_empty());
    let full = whole.collect::<Vec<_>>().join("\n");
    vec![Branch { lines, full, device, below, ..Branch::default() }]
}

/// What a node without a description says of itself.
fn told(node: &Value) -> String {
    let shown = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Array(texts) => {
            let texts: Vec<&str> = texts.iter().filter_map(Value::as_str).collect();
            texts.join(", ")
        }
        other => other.to_string(),
    };
    let told = TOLD.into_iter().filter_map(|key| Some(format!("{key}: {}", shown(node.get(key)?))));
    let told: Vec<String> = told.collect();
    let name = text_of(node, "Node Type").unwrap_or_default();
    if told.is_empty() { name.to_owned() } else { format!("{name}: {}", told.join("; ")) }
}

/// Rows and bytes that cross the link below `node`, behind the link's name.
fn crossing(way: &str, node: &Value) -> String {
    let number = |key: &str| node.get(key).and_then(Value::as_f64);
    let rows = number("Cut Rows").or_else(|| number("Actual Rows"));
    let expected = number("Plan Rows");
    let mut parts = vec![way.to_owned()];
    match (rows, expected) {
        (Some(rows), Some(expected)) => {
            parts.push(format!("rows {} of ~{}", grouped(rows), grouped(expected)));
        }
        (Some(rows), None) => parts.push(format!("rows {}", grouped(rows))),
        (None, Some(expected)) => parts.push(format!("rows ~{}", grouped(expected))),
        (None, None) => {}
    }
    let guessed = || match (rows, expected, number("Plan Width")) {
        (None, Some(rows), Some(width)) => Some(format!("~{}", size(rows * width))),
        _ => None,
    };
    parts.extend(number("Cut Bytes").map(size).or_else(guessed));
    parts.extend(text_of(node, "Cut Without").map(str::to_owned));
    parts.join(", ")
}

/// Rows, time and space of a node.
fn figures_of(node: &Value) -> String {
    let number = |key: &str| node.get(key).and_then(Value::as_f64);
    let (actual, planned) = (number("Actual Rows"), number("Plan Rows"));
    let rows = actual.map(|rows| format!("rows {}", grouped(rows)));
    let expected = planned.map(|planned| {
        // What others did is not in these rows.
        let is_partial = node.get("Is Partial").and_then(Value::as_bool) == Some(true);
        let off = actual.filter(|_| !is_partial).map(|rows| off(rows, planned)).unwrap_or_default();
        format!("expected {}{off}", grouped(planned))
    });
    let below = node.get("Plans").and_then(Value::as_array).into_iter().flatten();
    let below: f64 = below.filter_map(|one| one.get("Actual Total Time")?.as_f64()).sum();
    let time = number("Actual Total Time").map(|all| duration((all - below).max(0.0)));
    let spilled = number("Spilled Bytes").map(|bytes| format!("{} spilled", size(bytes)));
    let parts: Vec<String> = [rows, expected, time, spilled].into_iter().flatten().collect();
    parts.join(", ")
}

/// By how much rows are off, where that is much.
fn off(rows: f64, expected: f64) -> String {
    let (rows, expected) = (rows.max(1.0), expected.round().max(1.0));
    let (ratio, word) = match rows >= expected {
        true => (rows / expected, "more"),
        false => (expected / rows, "fewer"),
    };
    match ratio {
        ratio if ratio <= OFF_BY => String::new(),
        ratio if ratio < 10.0 => format!(" ({ratio:.1}x {word})"),
        ratio => format!(" ({}x {word})", grouped(ratio)),
    }
}

fn figures_of_all(explained: &Value) -> String {
    let time = |key: &str| explained.get(key).and_then(Value::as_f64).map(duration);
    let parts = [
        text_of(explained, "Split").map(|split| format!("split {split}")),
        time("Planning Time").map(|time| format!("planning {time}")),
        time("Execution Time").map(|time| format!("execution {time}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join(", ")
}

fn text_of<'a>(node: &'a Value, key: &str) -> Option<&'a str> {
    node.get(key)?.as_str()
}

/// What a part is called that the device `name` runs, or those of a list, or a node of them.
fn part_name(name: &str) -> String {
    match name.strip_prefix("node=") {
        Some(names) if names.contains(", ") => format!("nodes {names}"),
        Some(name) => format!("node {name}"),
        None if name.is_empty() => "device".to_owned(),
        None if name.contains(", ") => format!("devices {name}"),
        None => format!("device {name}"),
    }
}

impl Branch {
    /// The name of the part that begins here.
    fn part_name(&self) -> String {
        let name = self.device.as_deref().map(part_name);
        name.map_or_else(|| "host".to_owned(), |name| elided(&name, COLUMNS_MAX))
    }

    fn measure(&mut self) {
        self.below.iter_mut().for_each(Self::measure);
        let widths = self.lines.iter().map(|(_, text)| text_width(text));
        self.area.width = widths.fold(80.0, f64::max) + 2.0 * PAD;
        self.area.height = self.lines.len() as f64 * LINE + PAD;
        self.span = self.area.width.max(self.span_below());
        if let Some(link) = &self.link {
            let texts = text_width(link).max(text_width(&self.part_name()));
            self.span = self.span.max(texts) + 2.0 * PART_PAD;
        }
    }

    fn span_below(&self) -> f64 {
        let spans: f64 = self.below.iter().map(|branch| branch.span + GAP).sum();
        (spans - GAP).max(0.0)
    }

    fn place(&mut self, x: f64, y: f64) {
        (self.area.x, self.area.y) = (x + (self.span - self.area.width) / 2.0, y);
        let y_below = self.area.bottom() + DROP;
        let mut x_below = x + (self.span - self.span_below()) / 2.0;
        for branch in &mut self.below {
            branch.place(x_below, y_below);
            x_below += branch.span + GAP;
        }
    }

    /// Moves the parts below the part that begins here to where it ends, with the link between.
    fn lower_parts(&mut self) {
        let y = self.part().bottom() + LINK_DROP;
        self.lower_parts_to(y);
    }

    fn lower_parts_to(&mut self, y: f64) {
        for branch in &mut self.below {
            if branch.link.is_some() {
                branch.lower(y - branch.area.y);
                branch.lower_parts();
            } else {
                branch.lower_parts_to(y);
            }
        }
    }

    fn lower(&mut self, by: f64) {
        self.area.y += by;
        self.below.iter_mut().for_each(|branch| branch.lower(by));
    }

    /// It and all below in preorder, each with the one above it.
    fn list<'a>(&'a self, above: Option<&'a Self>, all: &mut Vec<(&'a Self, Option<&'a Self>)>) {
        all.push((self, above));
        self.below.iter().for_each(|branch| branch.list(Some(self), all));
    }

    /// Around the nodes that run where this one does.
    fn part(&self) -> Area {
        let own = self.below.iter().filter(|branch| branch.link.is_none());
        own.fold(self.area, |area, branch| area.with(branch.part()))
    }

    /// The part that begins here with its border.
    fn framed(&self) -> Area {
        let inner = self.part();
        let width = inner.width.max(text_width(&self.part_name())) + 2.0 * PART_PAD;
        Area {
            x: inner.center() - width / 2.0,
            y: inner.y - PART_HEAD,
            width,
            height: inner.height + PART_HEAD + PART_PAD,
        }
    }

    fn draw_part(&self, picture: &mut Picture) {
        if self.link.is_none() {
            return;
        }
        let area = self.framed();
        picture.rect(area, if self.device.is_some() { "device-part" } else { "host-part" });
        picture.text((area.x + PART_PAD, area.y + LINE), "bold", &self.part_name());
    }

    fn draw(&self, picture: &mut Picture) {
        let class = if self.device.is_some() { "device-box" } else { "host-box" };
        picture.explained(&self.full, |picture| {
            picture.rect(self.area, class);
            let mut y = self.area.y + LINE;
            for (class, text) in &self.lines {
                picture.text((self.area.x + PAD, y), class, text);
                y += LINE;
            }
        });
    }

    fn draw_link(&self, picture: &mut Picture) {
        let Some(link) = &self.link else { return };
        let area = self.framed();
        let y = area.y - LINK_RISE;
        let half = (area.width.max(text_width(link)) / 2.0).max(40.0);
        picture.line(&[(area.center() - half, y), (area.center() + half, y)], "link");
        picture.text((area.center(), y - 6.0), "middle haloed", link);
    }
}
