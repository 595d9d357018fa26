//! Pictures of plans and charts, read as text.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::picture::escaped;
use super::text::{duration, elided, grouped, size, text_width, wrapped};
use super::{Area, NotDrawn, Scale, plan_svg};

fn drawn(explained: &Value) -> String {
    plan_svg(&explained.to_string()).unwrap()
}

fn node(side: &str, description: &str, plans: &[Value]) -> Value {
    let mut node = json!({
        "Node Type": "Seq Scan", "Side": side, "Description": description, "Plan Rows": 3010, "Plan Width": 10,
        "Actual Rows": 9120, "Actual Total Time": 2.5, "Plans": plans,
    });
    if side == "device" {
        node["Device"] = "nas".into();
    }
    node
}

fn fragment(below: Value) -> Value {
    let mut fragment = node("host", "Fragment: 1", &[below]);
    fragment["Cut"] = "link to device nas".into();
    fragment["Cut Bytes"] = 37_600.into();
    fragment
}

/// Every element is closed, and no text holds markup.
fn check_markup(picture: &str) {
    let mut open = Vec::new();
    for part in picture.split('<').skip(1) {
        let (tag, text) = part.split_once('>').unwrap_or_else(|| panic!("{part}"));
        assert!(!text.contains('>'), "{part}");
        let name = tag.split([' ', '/']).find(|name| !name.is_empty()).unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{part}");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

/// Numbers of an attribute of all elements of a class.
fn numbers(picture: &str, class: &str, name: &str) -> Vec<f64> {
    let of_class = picture.lines().filter(|line| line.contains(&format!("class=\"{class}\"")));
    let key = format!(" {name}=\"");
    let found =
        of_class.filter_map(|line| line.split_once(&key)?.1.split('"').next()?.parse().ok());
    found.collect()
}

#[test]
fn a_fragment_is_a_part_below_a_link() {
    let scan = node("device", "Scan of title: columns kind_id", &[]);
    let partial = node("device", "Partial aggregate by kind_id", &[scan]);
    let root = node("host", "Final aggregate by kind_id: count(*)", &[fragment(partial)]);
    let explained = json!([{ "Plan": root, "Split": "h1", "Execution Time": 3.4 }]);
    let picture = drawn(&explained);
    check_markup(&picture);
    for text in [
        ">Final aggregate by kind_id<",
        ">count(*)<",
        ">link to device nas, rows 9,120 of ~3,010, 37.6 kB<",
        ">device nas<",
        ">split h1, execution 3.40 ms<",
        ">rows 9,120, expected 3,010 (3.0x more), 0.00 ms<",
        "<title>Query plan: 3 operators, 1 on the host, 2 on device nas</title>",
        "Scan of title: columns kind_id\nrows 9,120, expected 3,010 (3.0x more), 2.50 ms\non device nas<",
    ] {
        assert!(picture.contains(text), "{text} in {picture}");
    }
    assert!(!picture.contains("Fragment"), "it is the link: {picture}");
    assert_eq!(picture.matches("class=\"device-box\"").count(), 2);
    // The host above the link, the link above the part, and the part around its nodes.
    let host = numbers(&picture, "host-box", "y");
    let part = numbers(&picture, "device-part", "y");
    let inner = numbers(&picture, "device-box", "y");
    assert!(host[0] < part[0] && part[0] < inner[0] && inner[0] < inner[1], "{picture}");
    let ends = |class: &str| {
        let (y, height) = (numbers(&picture, class, "y"), numbers(&picture, class, "height"));
        y.into_iter().zip(height).map(|(y, height)| y + height).fold(0.0, f64::max)
    };
    assert!(ends("device-box") < ends("device-part"), "{picture}");
}

#[test]
fn what_others_took_is_said_at_the_link() {
    let mut scan = node("device", "Scan of title", &[]);
    scan["Is Partial"] = true.into();
    let mut fragment = fragment(scan);
    fragment["Cut Rows"] = 20.into();
    fragment["Cut Without"] = "without 3 of 8 morsels that the host took".into();
    let picture = drawn(&json!([{ "Plan": node("host", "Final aggregate", &[fragment]) }]));
    for text in [
        "rows 20 of ~3,010, 37.6 kB, without 3 of 8 morsels that the host took<",
        ">rows 9,120, expected 3,010, 2.50 ms<",
    ] {
        assert!(picture.contains(text), "{text} in {picture}");
    }
}

#[test]
fn nodes_side_by_side_do_not_overlap() {
    let leaf = |name: &str| {
        fragment(node("device", &format!("Scan of {name}: {}", "c, ".repeat(40)), &[]))
    };
    let join = node("host", "Hash join on a = b", &[leaf("a"), leaf("b"), leaf("c")]);
    let picture = drawn(&json!({ "Plan": join }));
    check_markup(&picture);
    for class in ["device-box", "device-part"] {
        let (x, width) = (numbers(&picture, class, "x"), numbers(&picture, class, "width"));
        assert_eq!(x.len(), 3, "{picture}");
        for (x, width, next) in [(x[0], width[0], x[1]), (x[1], width[1], x[2])] {
            assert!(x + width < next, "{class}: {picture}");
        }
    }
}

#[test]
fn a_fragment_alone_and_the_host_below_a_device_have_their_links() {
    let broadcast = node("host", "Scan of kind_type", &[]);
    let alone = fragment(node("device", "Hash join", &[broadcast]));
    let picture = drawn(&json!({ "Plan": alone }));
    for text in [">Result<", ">link to device nas, rows", ">rows from the host<"] {
        assert!(picture.contains(text), "{text} in {picture}");
    }
    let mut gathered = node("device", "Final aggregate", &[]);
    for (device, part) in
        [("node=n1, n2", ">nodes n1, n2<"), ("node=n1", ">node n1<"), ("a, b", ">devices a, b<")]
    {
        gathered["Device"] = device.into();
        let gathered = drawn(&json!({ "Plan": node("host", "Sort", &[gathered.clone()]) }));
        assert!(gathered.contains(part), "{part} in {gathered}");
    }
    // The whole picture, and the part below the device.
    assert_eq!(picture.matches("class=\"host-part\"").count(), 2);
    assert_eq!(picture.matches("class=\"link\"").count(), 2);
    for without in [r#"[{ "Candidates": [] }]"#, "null", "[]"] {
        assert!(matches!(plan_svg(without), Err(NotDrawn::NoPlan)), "{without}");
    }
    for unread in ["", "[{", &"[".repeat(100_000)] {
        assert!(matches!(plan_svg(unread), Err(NotDrawn::Unread(_))));
    }
}

#[test]
fn plans_of_postgresql_are_drawn() {
    let scan = json!({ "Node Type": "Seq Scan", "Relation Name": "t", "Filter": "(a > 1)" });
    let root = json!({ "Node Type": "Sort", "Sort Key": ["a", "b"], "Plans": [scan] });
    let picture = drawn(&json!([{ "Plan": root }]));
    for text in
        [">Sort<", ">Sort Key: a, b<", ">Seq Scan<", ">Relation Name: t; Filter: (a &gt; 1)<"]
    {
        assert!(picture.contains(text), "{text} in {picture}");
    }
}

#[test]
fn candidates_stand_below_the_plan() {
    let priced = |split: usize| {
        json!({
            "split": format!("h{split}"), "finish_ms": 12.3, "host_ms": 2.0, "device_ms": 250, "link_bytes": 1500,
            "fits": split != 1, "chosen": split == 15,
        })
    };
    let all: Vec<Value> = (0..20).map(priced).collect();
    let plan = node("host", "Scan of title", &[]);
    let with = drawn(&json!({ "Plan": plan, "Candidates": all }));
    check_markup(&with);
    for text in [">Candidates<", ">h0<", ">12 ms<", ">250 ms<", ">1.5 kB<", ">no room<", ">h15<"] {
        assert!(with.contains(text), "{text} in {with}");
    }
    assert!(!with.contains(">h12<") && with.contains(">and 7 more<"), "{with}");
    assert_eq!(with.matches(">chosen<").count(), 1, "{with}");
    assert_eq!(with.matches("<circle").count(), 1, "{with}");
    let odd = drawn(&json!({ "Plan": plan, "Candidates": [7, {}, null] }));
    assert!(odd.contains(">–<"), "{odd}");
    let without = drawn(&json!({ "Plan": plan, "Candidates": [] }));
    assert!(!without.contains("Candidates"), "{without}");
}

#[test]
fn markup_in_names_stays_text() {
    let name = "Scan of \"<script>alert('x')</script>\": a & b";
    let picture = drawn(&json!({ "Plan": node("host", name, &[]) }));
    check_markup(&picture);
    assert!(!picture.contains("<script") && picture.contains("&lt;script&gt;"), "{picture}");
    assert_eq!(escaped("a\u{1}b\r\n<&>"), "a b \n&lt;&amp;&gt;");
}

#[test]
fn texts_are_cut_and_numbers_are_round() {
    assert_eq!(elided("abcdef", 6), "abcdef");
    assert_eq!(elided("abcdefg", 6), "abcde…");
    assert_eq!(wrapped("one two three four", 7, 2), ["one two", "three…"]);
    assert_eq!(wrapped("", 7, 2), Vec::<String>::new());
    assert_eq!(grouped(1_234_567.0), "1,234,567");
    assert_eq!(grouped(999.0), "999");
    assert_eq!([size(0.0), size(1500.0), size(2e15)], ["0 B", "1.5 kB", "2000 TB"]);
    assert_eq!([duration(1.234), duration(250.0), duration(61e3)], ["1.23 ms", "250 ms", "61.0 s"]);
    assert!(text_width("漢字") > text_width("ab"));
    let area = Area { x: 1.0, y: 1.0, width: 2.0, height: 2.0 };
    let both = area.with(Area { x: 0.0, y: 2.0, width: 1.0, height: 5.0 });
    assert_eq!(both, Area { x: 0.0, y: 1.0, width: 3.0, height: 6.0 });
}

#[test]
fn ticks_are_round_numbers() {
    let labels = |scale: Scale| scale.ticks().map(|(_, label)| label).collect::<Vec<_>>();
    let pixels = (0.0, 100.0);
    assert_eq!(labels(Scale::linear(11_250.0, pixels)), ["0", "5,000", "10,000", "15,000"]);
    assert_eq!(labels(Scale::linear(10.0, pixels)), ["0", "2", "4", "6", "8", "10"]);
    assert_eq!(labels(Scale::linear(0.03, pixels)), ["0.00", "0.01", "0.02", "0.03"]);
    assert_eq!(labels(Scale::linear(f64::NAN, pixels)).len(), 6);
    // Of time nothing is empty behind the end, which need not be a tick.
    let time = Scale::up_to(11.0, pixels);
    assert_eq!((time.place(11.0), time.place(5.5)), (100.0, 50.0));
    assert_eq!(labels(time), ["0", "5", "10"]);
    assert_eq!(labels(Scale::up_to(0.0, pixels)).len(), 6);
    assert_eq!(labels(Scale::logarithmic((0.05, 20.0), pixels)), ["0.01", "0.1", "1", "10", "100"]);
}

proptest! {
    #[test]
    fn values_lie_within_their_axis(max in 1e-6_f64..1e12, share in 0.0_f64..1.0) {
        for scale in [
            Scale::linear(max, (10.0, 110.0)),
            Scale::up_to(max, (10.0, 110.0)),
            Scale::logarithmic((max / 100.0, max), (10.0, 110.0)),
        ] {
            let place = scale.place(max * share);
            prop_assert!((10.0..=110.0).contains(&place), "{place}");
            prop_assert!(scale.place(max) >= place);
            prop_assert!(scale.ticks().count() <= 21);
        }
    }
}
