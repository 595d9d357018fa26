//! A device built alone is small: no SQL parser, no Parquet, nothing of the host (rule 6).

use std::collections::BTreeSet;
use std::process::Command;

#[test]
fn built_alone_it_links_no_sql_and_no_parquet() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--package", "cleave-device", "--edges", "normal", "--prefix", "none"])
        .args(["--locked", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let names: BTreeSet<&str> =
        tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    for wanted in ["cleave-fragment", "datafusion-proto", "tokio-rustls"] {
        assert!(names.contains(wanted), "not the device's dependency tree: {tree}");
    }
    for unwanted in ["sqlparser", "parquet", "datafusion", "datafusion-sql", "openssl", "aws-lc-rs"]
    {
        assert!(!names.contains(unwanted), "cleave-device links {unwanted}");
    }
}
