//! The log of `cleave serve`: lines for people or for programs, slow statements, and no secret.

use std::fs::File;

use super::client::Server;

/// What the server says while it runs these statements, each as an object.
fn logged(options: &[&str], statements: &[&str]) -> Vec<serde_json::Value> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let options = [&["--log-format", "json", "--grace", "1"], options].concat();
    let log = File::create(&path).unwrap();
    let mut server = Server::start_with_log(folder.path(), &options, log.into());
    let mut client = server.client();
    for statement in statements {
        client.query(statement);
    }
    server.terminate();
    assert_eq!(server.ended(), Some(0));
    let text = std::fs::read_to_string(&path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn programs_read_the_log_and_slow_statements_have_no_constants() {
    let statements = [
        "CREATE TABLE t (a int, b text)",
        "INSERT INTO t VALUES (1, 'private')",
        "SELECT a / 0 FROM t WHERE b = 'private'",
        "CREATE ROLE ada PASSWORD 'pencil'",
    ];
    let log = logged(&["--log-min-duration-statement", "0"], &statements);
    assert!(log.iter().all(|line| line["timestamp"].as_str().unwrap().ends_with('Z')), "{log:?}");
    assert!(
        log.iter().any(|line| line["message"].as_str().unwrap().starts_with("serving database"))
    );
    let slow = |text: &str| log.iter().find(|line| line["statement"] == text).unwrap();
    let insert = slow("INSERT INTO t VALUES ($1, $2)");
    assert_eq!((insert["level"].as_str(), insert["rows"].as_u64()), (Some("INFO"), Some(1)));
    assert!(insert["duration_ms"].as_f64().unwrap() > 0.0 && insert["user"] == "ada", "{insert}");
    let failed = slow("SELECT a / $1 FROM t WHERE b = $2");
    assert!(failed["outcome"] == "failed" && failed["sqlstate"] == "22012", "{failed}");
    slow("CREATE ROLE ada PASSWORD $1");
    let text = format!("{log:?}");
    assert!(!text.contains("private") && !text.contains("pencil"), "{text}");
    // With constants, but never those that let somebody in.
    let options = ["--log-min-duration-statement", "0", "--log-statement-constants"];
    let text = format!("{:?}", logged(&options, &statements));
    assert!(text.contains("private") && !text.contains("pencil"), "{text}");
}

#[test]
fn the_log_has_what_is_grave_enough() {
    assert_eq!(logged(&["--log-level", "warn"], &["SELECT 1"]), Vec::<serde_json::Value>::new());
}
