//! Counts the passes of the SQL front end: over the tokens of a script, and the rules that analyse a plan.
//!
//! Each of them was added for one more difference between PostgreSQL and the parser or planner below, knows the others'
//! results, and costs every statement something. So there are to be fewer of them and never more: what a new difference
//! needs is found in a pass that is there, in a function or an operator, or in the binder.
//!
//! The numbers are exact. Whoever removes a pass lowers its number here.

use std::fs;
use std::path::Path;

/// Passes over tokens, those included that only look for something.
const TOKEN_PASSES: usize = 19;
/// Analyzer rules of our own.
const ANALYZER_RULES: usize = 16;

#[test]
fn passes_over_tokens_only_become_fewer() {
    let text = source("cleave-sql/src/statement/parse.rs");
    let begin = text.find("let mut tokens = tokenize(").expect("where tokens are made");
    let end = text[begin..].find(".with_tokens_with_locations(").expect("where they are parsed");
    let found = calls(&text[begin..begin + end]);
    assert_eq!(found.len(), TOKEN_PASSES, "passes over tokens: {found:?}");
}

#[test]
fn analyzer_rules_only_become_fewer() {
    let planner = source("cleave-query/src/planner.rs");
    let begin = planner.find(".with_analyzer_rules(vec![").expect("the list of rules");
    let end = planner[begin..].find("])").expect("its end");
    let rules: Vec<_> = planner[begin..begin + end]
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Arc::new(")?.split(['(', ')', ':']).next())
        // DataFusion's.
        .filter(|rule| !["ResolveGroupingFunction", "TypeCoercion"].contains(rule))
        .collect();
    assert_eq!(rules.len(), ANALYZER_RULES, "analyzer rules: {rules:?}");
    // Rules that are put in elsewhere, or that run others.
    let mut made = Vec::new();
    for folder in ["cleave-sql/src", "cleave-query/src", "cleave-host/src", "cleave-fragment/src"] {
        rules_in(&crates().join(folder), &mut made);
    }
    let runs_others = |rule: &String| rule.starts_with("Needed<") || rule == "WatchedAnalysis";
    made.retain(|rule| !runs_others(rule));
    assert_eq!(made.len(), ANALYZER_RULES, "analyzer rules: {made:?}");
}

#[test]
fn calls_are_counted_wherever_they_stand() {
    let text = "
        let mut tokens = tokenize(&dialect, script).map_err(|error| Error::Syntax { at: place(error) })?;
        words::look(&tokens)?;
        let has_any = tokens.iter().any(windows::is_concerned);
        // A comment about lower(tokens).
        let tokens = one::lower(two(three::drop(tokens)));
        let other = nothing(text);
        let (tokens, is_marked) = mark(tokens);
    ";
    assert_eq!(calls(text), ["look", "any", "lower", "two", "drop", "mark"]);
}

/// The calls of `text` that take tokens.
fn calls(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or_default();
        if !code.contains("tokens") {
            continue;
        }
        for (at, _) in code.match_indices('(') {
            let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
            let name = code[..at].rsplit(|letter| !is_name(letter)).next().unwrap_or_default();
            if !["", "iter", "map_err", "place", "tokenize"].contains(&name) {
                found.push(name.to_owned());
            }
        }
    }
    found
}

/// The types in `folder` that are analyzer rules, but for those of tests.
fn rules_in(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() && name != "tests" {
            rules_in(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = fs::read_to_string(&path).unwrap();
            let rules = text.lines().filter_map(|line| line.strip_prefix("impl AnalyzerRule for "));
            found.extend(rules.map(|rule| rule.trim_end_matches(" {").to_owned()));
        }
    }
}

fn crates() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn source(path: &str) -> String {
    fs::read_to_string(crates().join(path)).unwrap()
}
