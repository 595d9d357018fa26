//! Every setting accepts its default; every refusal lists the allowed values.

use super::{
    LIST, Prescribed, Settings, Split, Stack, Values, When, bytes_text, parse_bytes, presets,
};

#[test]
fn every_value_shown_can_be_set_again() {
    let before = Settings::default();
    let mut settings = before.clone();
    for row in settings.show_all() {
        let setting = LIST.iter().find(|setting| setting.name == row.name).unwrap();
        if matches!(setting.values, Values::ReadOnly(_)) {
            assert!(settings.set(row.name, &row.value).is_err(), "{}", row.name);
        } else {
            settings.set(row.name, &row.value).unwrap();
        }
    }
    assert_eq!(settings, before);
}

#[test]
fn the_list_is_sorted_by_name() {
    let names: Vec<_> = LIST.iter().map(|setting| setting.name.to_lowercase()).collect();
    assert!(names.is_sorted(), "{names:?}");
}

#[test]
fn words_are_taken_in_any_case() {
    let mut settings = Settings::default();
    settings.set("SPLIT", "H0").unwrap();
    settings.set("Stack", "Native").unwrap();
    assert_eq!((settings.split, settings.stack), (Split::H0, Stack::Native));
    assert_eq!(settings.show("split").unwrap(), "h0");
    settings.reset("stack").unwrap();
    assert_eq!(settings.stack, Stack::Ndp);
}

#[test]
fn block_stacks_and_ndp_off_imply_the_host() {
    let mut settings = Settings::default();
    settings.set("split", "ndp").unwrap();
    assert_eq!(settings.split_in_force(), Split::Ndp);
    for stack in ["blk", "native"] {
        settings.set("stack", stack).unwrap();
        assert_eq!(settings.split_in_force(), Split::Host);
    }
    settings.reset("stack").unwrap();
    assert_eq!(settings.pages_only(), None);
    settings.set("ndp", "OFF").unwrap();
    assert_eq!((settings.split, settings.split_in_force()), (Split::Ndp, Split::Host));
    assert_eq!(settings.pages_only(), Some("ndp is off"));
    settings.reset("ndp").unwrap();
    assert_eq!(settings.split_in_force(), Split::Ndp);
}

#[test]
fn forms_of_transfer_ask_of_other_settings_what_they_need() {
    let asked = |transfer: &str, split: &str| {
        let mut settings = Settings::default();
        settings.set("transfer", transfer).unwrap();
        settings.set("split", split).unwrap();
        settings.for_transfer()
    };
    let native = asked("native", "h0");
    assert_eq!(native.split_in_force(), Split::Host);
    assert_eq!(native.pages_only(), Some("transfer is native"));
    let pages = asked("Pages", "h0");
    assert_eq!((pages.split_in_force(), pages.pages_only()), (Split::Host, None));
    assert_eq!((pages.page_filter, pages.stealing), (When::Always, When::WherePays));
    let rows = asked("rows", "auto");
    assert_eq!((rows.split_in_force(), rows.stealing), (Split::Auto, When::Never));
    assert!(rows.sends_rows_alone() && !asked("auto", "auto").sends_rows_alone());
    // A forced split says what goes where.
    assert!(!asked("rows", "h1").sends_rows_alone());
}

#[test]
fn devices_that_compute_are_named_local_or_any() {
    let of = |text: &str, split: &str| {
        let mut settings = Settings::default();
        settings.set("compute_on", text).unwrap();
        settings.set("split", split).unwrap();
        settings.for_prescribed()
    };
    assert_eq!(of(" ", "auto").computers(), Prescribed::Any);
    assert_eq!(of("Local", "auto").computers(), Prescribed::Local);
    assert_eq!(of(" n1:a, n2:b ", "auto").computers(), Prescribed::Named("n1:a, n2:b"));
    let named = of("n1:a", "auto");
    assert!(named.is_prescribed() && named.sends_rows_alone() && named.stealing == When::Never);
    let forced = of("n1:a", "h1");
    assert!(forced.is_prescribed() && !forced.sends_rows_alone());
    // Nothing runs on a device there.
    let host = of("n1:a", "host");
    assert!(!host.is_prescribed() && host.stealing == When::WherePays);
    assert_eq!(of("", "auto").stealing, When::WherePays);
    let mut output = Settings::default();
    assert_eq!(output.outputs(), Prescribed::Any);
    output.set("output_on", "LOCAL").unwrap();
    assert_eq!((output.outputs(), output.is_prescribed()), (Prescribed::Local, false));
}

#[test]
fn sizes_take_units() {
    let mut settings = Settings::default();
    settings.set("device_memory", "64 MB").unwrap();
    assert_eq!(settings.device_memory_bytes, 64 * 1024 * 1024);
    assert_eq!(settings.show("device_memory").unwrap(), "64MB");
    settings.set("slot_bytes", "4096").unwrap();
    assert_eq!(settings.show("slot_bytes").unwrap(), "4kB");
    settings.set("slot_bytes", "AUTO").unwrap();
    assert_eq!(
        (settings.slot_bytes, settings.show("slot_bytes").unwrap().as_str()),
        (None, "auto")
    );
    assert_eq!(parse_bytes("1GiB"), Some(1 << 30));
    assert_eq!(parse_bytes("1 light year"), None);
    assert_eq!(parse_bytes("99999999999TB"), None);
    assert_eq!(bytes_text(1000), "1000B");
}

#[test]
fn a_wrong_value_lists_what_is_allowed() {
    let before = Settings::default();
    let mut settings = before.clone();
    let error = settings.set("split", "h64").unwrap_err();
    assert_eq!(error.sqlstate(), "22023");
    assert_eq!(
        error.to_string(),
        "invalid value for parameter \"split\": \"h64\"; allowed are host, h0, h1 to h63, h1+ to h63+, \
         g0 to g63, ndp, auto"
    );
    for (name, value, part) in [
        ("threads", "-1", "from 0 to 1024"),
        ("batch_size", "0", "from 1 to 65536"),
        ("slot_bytes", "1", "1kB to 16MB, in B, kB, MB or GB, or auto"),
        ("client_encoding", "LATIN1", "only UTF8"),
        ("server_version", "9", "cannot be changed"),
        ("TimeZone", "Europe/Berlin", "only UTC"),
        ("application_name", "a\nb", "63 bytes in one line"),
    ] {
        let error = settings.set(name, value).unwrap_err();
        assert_eq!(error.sqlstate(), "22023", "{name}");
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(settings, before);
}

#[test]
fn an_unknown_name_finds_the_nearest() {
    let mut settings = Settings::default();
    let error = settings.set("splt", "host").unwrap_err();
    assert_eq!(error.sqlstate(), "42704");
    assert_eq!(
        error.to_string(),
        "unrecognized configuration parameter \"splt\"; did you mean \"split\"?"
    );
    assert!(settings.show("work_mom").is_err());
    assert!(settings.reset("").is_err());
}

#[test]
fn clients_may_set_what_is_true_anyway() {
    let mut settings = Settings::default();
    for (name, value) in
        [("client_encoding", "utf-8"), ("timezone", "Etc/UTC"), ("datestyle", "ISO")]
    {
        settings.set(name, value).unwrap();
    }
    assert_eq!(settings.show("client_encoding").unwrap(), "UTF8");
    settings.set("threads", "3").unwrap();
    settings.reset_all();
    assert_eq!(settings.threads, 0);
}

#[test]
fn a_join_order_is_a_word_or_names() {
    let mut settings = Settings::default();
    for (text, shown) in [
        ("Written", "written"),
        ("a b c", "a b c"),
        ("mk, T ,\"Big One\"", "mk t \"Big One\""),
        ("\"auto\"", "\"auto\""),
        ("AUTO", "auto"),
    ] {
        settings.set("join_order", text).unwrap();
        assert_eq!(settings.show("join_order").unwrap(), shown, "{text}");
        settings.set("join_order", shown).unwrap();
        assert_eq!(settings.show("join_order").unwrap(), shown);
    }
    for text in ["", "a a", "a A", "a.b", "\"a", "a;b", "\"\""] {
        let error = settings.set("join_order", text).unwrap_err();
        assert!(error.to_string().contains("names of tables"), "{text}: {error}");
    }
}

#[test]
fn idle_settings_keep_what_was_set() {
    let mut settings = Settings::default();
    for (name, value, shown) in [
        ("work_mem", "65536", "64MB"),
        ("work_mem", "1 GB", "1GB"),
        ("client_min_messages", "WARNING", "warning"),
        ("enable_seqscan", "false", "off"),
        ("random_page_cost", "1.1", "1.1"),
        ("IntervalStyle", "ISO_8601", "iso_8601"),
    ] {
        settings.set(name, value).unwrap();
        assert_eq!(settings.show(&name.to_uppercase()).unwrap(), shown);
    }
    for (name, value) in [
        ("work_mem", "much"),
        ("client_min_messages", "shout"),
        ("enable_seqscan", "maybe"),
        ("random_page_cost", "high"),
        ("max_identifier_length", "64"),
    ] {
        assert_eq!(settings.set(name, value).unwrap_err().sqlstate(), "22023", "{name}");
    }
    settings.reset("WORK_MEM").unwrap();
    assert_eq!(settings.show("work_mem").unwrap(), "4MB");
    settings.reset_all();
    let shown = |settings: &Settings| {
        let names = presets::LIST.iter().map(|setting| setting.name).chain(["IntervalStyle"]);
        names.map(|name| settings.show(name).ok()).collect::<Vec<_>>()
    };
    assert_eq!(shown(&settings), shown(&Settings::default()));
    let names: Vec<_> = presets::LIST.iter().map(|setting| setting.name).collect();
    assert!(names.is_sorted(), "{names:?}");
}

#[test]
fn a_value_has_so_many_bytes() {
    let mut settings = Settings::default();
    let path = |count: usize| format!("{}public", "x, ".repeat(count));
    settings.set("search_path", &path(20_000)).unwrap();
    assert!(settings.text_bytes() > 60_000);
    for (name, value) in [
        ("search_path", path(30_000)),
        ("application_name", "x".repeat(70_000)),
        ("work_mem", "1".repeat(70_000)),
        ("my.own", "x".repeat(70_000)),
    ] {
        assert_eq!(settings.set(name, &value).unwrap_err().sqlstate(), "54000", "{name}");
    }
    assert!(settings.search_path.has_public());
}
