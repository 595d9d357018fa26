//! EXPLAIN as JSON, in PostgreSQL's shape, so that viewers of its plans read it: an array of one object with `Plan`,
//! a tree of nodes, beside which stand keys of our own.
//!
//! ```text
//! [{"Plan": {"Node Type": "Aggregate", …, "Side": "host", "Plans": [{…}]},
//!   "Planning Time": 1.2, "Execution Time": 3.4, "Split": "h0", "Candidates": […], "Orders": […],
//!   "Operators": [every operator in preorder, as it names itself], "Notes": [what the text has below the plan]}]
//! ```
//!
//! PostgreSQL's costs have no unit. Here they are rows: those that a node and all below it are expected to return.
//! Times of nodes include those below, as there; they are of all threads together.
//!
//! Source: PostgreSQL's `explain.c`. Members of our own keys are in small letters with underscores.

use std::fmt::Write as _;
use std::time::Duration;

use cleave_plan::split::PricedSplit;

use super::Tail;
use super::plan_nodes::PlanNode;
use super::wording::Property;
use crate::select::PricedOrder;

/// The plan and what is known of it.
pub(super) fn json(nodes: &[PlanNode], tail: &Tail) -> String {
    let mut fields = Vec::new();
    if let Some(root) = root(nodes) {
        fields.push(format!("\"Plan\":{}", object(&root, nodes, None).text));
    }
    let times = [("Planning Time", tail.planning), ("Execution Time", tail.execution)];
    let times = times.into_iter().filter_map(|(key, spent)| Some((key, spent?)));
    fields.extend(times.map(|(key, spent)| format!("\"{key}\":{:.3}", milliseconds(spent))));
    let or_null =
        |text: Option<String>| text.map_or_else(|| "null".to_owned(), |text| quoted(&text));
    let chosen = tail.priced.iter().find(|one| one.is_chosen).map(|one| one.split.to_string());
    let profile = tail.profile.map(|origin| origin.name().to_owned());
    let listed = |key: &str, values: Vec<String>| format!("\"{key}\":[{}]", values.join(","));
    fields.extend([
        format!("\"Split\":{}", or_null(chosen)),
        format!("\"Profile\":{}", or_null(profile)),
        listed("Candidates", tail.priced.iter().map(candidate_json).collect()),
        listed("Orders", tail.orders.planned.iter().map(order_json).collect()),
        format!("\"Orders Looked At\":{}", tail.orders.looked_at),
        listed("Operators", nodes.iter().map(operator_json).collect()),
        listed("Notes", tail.groups.iter().map(group_json).collect()),
    ]);
    format!("[{{{}}}]", fields.join(","))
}

/// A node with those below it, the hidden ones left out.
struct Branch {
    place: usize,
    below: Vec<Branch>,
}

/// The tree. Other roots are plans of queries of WITH, which run before the first one.
fn root(nodes: &[PlanNode]) -> Option<Branch> {
    let mut roots = branches(nodes, &mut 0, 0).into_iter();
    let mut first = roots.next()?;
    first.below.extend(roots);
    Some(first)
}

/// Those at `place` and after it that are at least so deep; `place` is then behind them.
fn branches(nodes: &[PlanNode], place: &mut usize, depth_min: usize) -> Vec<Branch> {
    let mut found = Vec::new();
    while let Some(node) = nodes.get(*place).filter(|node| node.depth >= depth_min) {
        let own = *place;
        *place += 1;
        let below = branches(nodes, place, node.depth + 1);
        match node.words.is_hidden {
            true => found.extend(below),
            false => found.push(Branch { place: own, below }),
        }
    }
    found
}

/// A node in JSON, and what is summed over it and those below.
#[derive(Default)]
struct Object {
    text: String,
    cost: f64,
    time: Duration,
}

fn object(branch: &Branch, nodes: &[PlanNode], relation: Option<&str>) -> Object {
    let Some(node) = nodes.get(branch.place) else { return Object::default() };
    // Below a change, its query is no root.
    let is_root = |below: &Branch| {
        let node = nodes.get(below.place);
        node.is_some_and(|node| node.depth == 0 || node.words.node_type == "CTE")
    };
    let below = branch.below.iter().enumerate().map(|(place, below)| {
        let relation = match (place, node.words.node_type.as_str()) {
            _ if is_root(below) => "InitPlan",
            (_, "Append" | "Merge Append") => "Member",
            (0, _) => "Outer",
            (1, _) => "Inner",
            _ => "Member",
        };
        object(below, nodes, Some(relation))
    });
    let below: Vec<Object> = below.collect();
    let rows = node.estimate.unwrap_or(0.0);
    let cost = rows + below.iter().map(|one| one.cost).sum::<f64>();
    let spent = node.time.unwrap_or_default() + below.iter().map(|one| one.time).sum::<Duration>();
    let mut fields = vec![format!("\"Node Type\":{}", quoted(&node.words.node_type))];
    fields.extend(relation.map(|relation| format!("\"Parent Relationship\":{}", quoted(relation))));
    fields.push("\"Parallel Aware\":false,\"Async Capable\":false".to_owned());
    fields.extend(node.words.properties.iter().map(|(key, value)| {
        let value = match value {
            Property::Text(text) => quoted(text),
            Property::Count(count) => count.to_string(),
            Property::Texts(texts) => {
                let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
                format!("[{}]", texts.join(","))
            }
        };
        format!("\"{key}\":{value}")
    }));
    fields.push(format!("\"Startup Cost\":0.00,\"Total Cost\":{cost:.2}"));
    fields.extend(node.estimate.map(|rows| format!("\"Plan Rows\":{rows:.0}")));
    fields.push(format!("\"Plan Width\":{:.0}", node.row_bytes));
    if let Some(rows) = node.rows {
        fields.push(format!(
            "\"Actual Startup Time\":0.000,\"Actual Total Time\":{:.3},\"Actual Rows\":{rows},\"Actual Loops\":1",
            milliseconds(spent)
        ));
    }
    let side = if node.device.is_some() { "device" } else { "host" };
    fields.push(format!("\"Side\":\"{side}\""));
    fields.extend(node.device.as_ref().map(|device| format!("\"Device\":{}", quoted(device))));
    fields.push(format!("\"Description\":{}", quoted(&node.words.line())));
    if let Some(cut) = &node.cut {
        fields.push(format!("\"Cut\":{}", quoted(&cut.way)));
        fields.extend(cut.bytes.map(|count| format!("\"Cut Bytes\":{count}")));
        let without = cut.without().zip(node.rows);
        fields.extend(without.map(|(without, rows)| {
            format!("\"Cut Rows\":{},\"Cut Without\":{}", cut.rows_of(rows), quoted(&without))
        }));
    }
    if node.is_partial {
        fields.push("\"Is Partial\":true".to_owned());
    }
    fields.extend(node.spilled_bytes.map(|count| spilled(&node.words.node_type, count)));
    if !below.is_empty() {
        let plans: Vec<&str> = below.iter().map(|one| one.text.as_str()).collect();
        fields.push(format!("\"Plans\":[{}]", plans.join(",")));
    }
    Object { text: format!("{{{}}}", fields.join(",")), cost, time: spent }
}

/// Bytes that a node spilled, also as PostgreSQL says it, in units of 1024 bytes.
fn spilled(node_type: &str, bytes: usize) -> String {
    let units = bytes.div_ceil(1024);
    let own = format!("\"Spilled Bytes\":{bytes}");
    match node_type {
        "Sort" => format!(
            "{own},\"Sort Method\":\"external merge\",\"Sort Space Used\":{units},\"Sort Space Type\":\"Disk\""
        ),
        "Aggregate" => format!("{own},\"Disk Usage\":{units}"),
        _ => own,
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn operator_json(node: &PlanNode) -> String {
    let mut fields = vec![
        format!("\"depth\":{}", node.depth),
        format!("\"operator\":{}", quoted(&node.name)),
        format!("\"detail\":{}", quoted(&node.detail)),
        format!("\"runs_on\":{}", quoted(node.device.as_deref().unwrap_or("host"))),
    ];
    if let Some(rows) = node.rows {
        fields.push(format!("\"rows\":{rows}"));
    }
    if let Some(rows) = node.estimate {
        fields.push(format!("\"rows_expected\":{rows:.0}"));
    }
    if let Some(spent) = node.time {
        fields.push(format!("\"time_us\":{}", spent.as_micros()));
    }
    if let Some(bytes) = node.spilled_bytes {
        fields.push(format!("\"spilled_bytes\":{bytes}"));
    }
    format!("{{{}}}", fields.join(","))
}

fn group_json((title, entries): &(&'static str, Vec<(String, String)>)) -> String {
    let entry = |(name, value): &(String, String)| {
        format!("{{\"name\":{},\"value\":{}}}", quoted(name), quoted(value))
    };
    let entries: Vec<String> = entries.iter().map(entry).collect();
    format!("{{\"title\":{},\"entries\":[{}]}}", quoted(title), entries.join(","))
}

fn order_json(priced: &PricedOrder) -> String {
    format!(
        "{{\"order\":{},\"split\":{},\"finish_ms\":{:.3},\"chosen\":{}}}",
        quoted(&priced.order),
        quoted(&priced.split.to_string()),
        priced.finish_s * 1e3,
        priced.is_chosen
    )
}

fn candidate_json(priced: &PricedSplit) -> String {
    let it = &priced.prediction;
    format!(
        "{{\"split\":{},\"finish_ms\":{:.3},\"first_result_ms\":{:.3},\"host_ms\":{:.3},\
         \"host_cpu_ms\":{:.3},\"device_ms\":{:.3},\"link_ms\":{:.3},\"host_wait_ms\":{:.3},\
         \"device_stall_ms\":{:.3},\"link_bytes\":{:.0},\
         \"device_memory_bytes\":{:.0},\"fits\":{},\"chosen\":{}}}",
        quoted(&priced.split.to_string()),
        it.finish * 1e3,
        it.first_result * 1e3,
        it.host_busy * 1e3,
        it.host_cpu * 1e3,
        it.device_busy * 1e3,
        it.link_busy * 1e3,
        it.host_wait * 1e3,
        it.device_stall * 1e3,
        it.link_bytes,
        it.device_memory_bytes,
        it.fits,
        priced.is_chosen
    )
}

/// A string of JSON.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    //! The shape, on nodes made by hand.

    use super::super::wording::Words;
    use super::*;

    fn node(depth: usize, node_type: &str, rows: f64) -> PlanNode {
        let words = Words { node_type: node_type.to_owned(), ..Words::default() };
        PlanNode { depth, words, estimate: Some(rows), ..PlanNode::default() }
    }

    #[test]
    fn hidden_nodes_are_left_out_and_costs_are_summed() {
        let hidden = node(1, "Gather", 2.0);
        let hidden = PlanNode { words: Words { is_hidden: true, ..hidden.words }, ..hidden };
        let nodes = [
            node(0, "Hash Join", 2.0),
            hidden,
            PlanNode { device: Some("nas".into()), ..node(2, "Seq Scan", 3.0) },
            node(1, "Seq Scan", 4.0),
            node(0, "CTE", 1.0),
        ];
        let text = json(&nodes, &Tail::default());
        assert!(text.starts_with("[{\"Plan\":{\"Node Type\":\"Hash Join\","), "{text}");
        assert!(text.ends_with("\"Notes\":[]}]"), "{text}");
        let costs = text.split("\"Total Cost\":").skip(1);
        let costs: Vec<&str> = costs.filter_map(|rest| rest.split(',').next()).collect();
        assert_eq!(costs, ["10.00", "3.00", "4.00", "1.00"]);
        let relations = text.split("\"Parent Relationship\":").skip(1);
        let relations: Vec<&str> = relations.filter_map(|rest| rest.split(',').next()).collect();
        assert_eq!(relations, ["\"Outer\"", "\"Inner\"", "\"InitPlan\""]);
        assert!(text.contains("\"Side\":\"device\",\"Device\":\"nas\""), "{text}");
        assert_eq!(text.matches("\"operator\"").count(), 5, "{text}");
        assert!(!text.contains("Planning Time"), "{text}");
        let tail = Tail { planning: Some(Duration::from_millis(2)), ..Tail::default() };
        assert!(json(&nodes, &tail).contains("\"Planning Time\":2.000,"));
    }

    #[test]
    fn what_was_spilled_is_said_as_postgresql_does() {
        for (node_type, expected) in [
            (
                "Sort",
                "\"Spilled Bytes\":1500,\"Sort Method\":\"external merge\",\"Sort Space Used\":2,\
                 \"Sort Space Type\":\"Disk\"",
            ),
            ("Aggregate", "\"Spilled Bytes\":1500,\"Disk Usage\":2"),
            ("Hash Join", "\"Spilled Bytes\":1500"),
        ] {
            let node = PlanNode { spilled_bytes: Some(1500), ..node(0, node_type, 1.0) };
            let text = json(&[node], &Tail::default());
            assert!(text.contains(&format!("{expected}}}")), "{text}");
        }
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(quoted("a\"b\\\u{1}\n"), "\"a\\\"b\\\\\\u0001\\n\"");
    }
}
