//! `cleave sql` at a terminal: prompts, keys, words, and what appears on the screen.

mod terminal;

use tempfile::tempdir;

use terminal::Terminal;

#[test]
fn prompts_show_what_is_open_and_words_are_answered() {
    let place = tempdir().unwrap();
    let directory = place.path().join("db");
    let mut shell = Terminal::start(&directory, &["--create"], &[]);
    shell.prompt("cleave>");
    for (line, prompt) in [
        ("SELECT (1", "cleave(>"),
        (") AS one, 'a", "cleave'>"),
        ("", "cleave'>"),
        ("b' AS two /*", "cleave*>"),
        ("*/ -- done", "cleave->"),
    ] {
        shell.press(&format!("{line}\r"));
        shell.prompt(prompt);
    }
    let shown = shell.enter(";");
    assert!(shown.contains("one") && shown.contains("(1 row)"), "{shown}");
    assert_eq!(shown.matches('↵').count(), 2, "{shown}");
    // Ctrl-C drops a line, and all lines of a statement.
    shell.press("SELECT nothing\x03");
    shell.prompt("cleave>");
    shell.press("SELECT\r");
    shell.prompt("cleave->");
    shell.press("exit\r");
    let shown = shell.prompt("cleave->");
    assert!(shown.contains("\\q leaves"), "{shown}");
    shell.press("\x03");
    shell.prompt("cleave>");
    let shown = shell.enter(".tables");
    assert!(shown.contains("try \\dt"), "{shown}");
    let shown = shell.enter("help");
    assert!(shown.contains("\\timing"), "{shown}");
    let shown = shell.enter("SELECT nothing;");
    assert!(shown.contains("ERROR 42703"), "{shown}");
    // Lines that come at once are all read, also where the terminal does not mark them as pasted.
    shell.press("SELECT 40\r+ 2 AS sum;\r");
    let shown = shell.prompt("cleave>");
    assert!(shown.contains("42"), "{shown}");
    shell.press("exit\r");
    shell.end();
}

#[test]
fn wide_and_long_results_are_fitted_to_the_screen() {
    let place = tempdir().unwrap();
    let directory = place.path().join("db");
    let mut shell = Terminal::start(&directory, &["--create"], &[]);
    shell.prompt("cleave>");
    let columns: Vec<String> = (0..200).map(|number| format!("{number} AS c{number}")).collect();
    let script = place.path().join("wide.sql");
    std::fs::write(&script, format!("SELECT {};", columns.join(", "))).unwrap();
    let include = format!("\\i {}", script.display());
    let shown = shell.enter(&include);
    assert!(shown.contains("│ c0 │") && shown.contains("columns not shown; \\x"), "{shown}");
    shell.enter("\\x auto");
    let shown = shell.enter(&include);
    assert!(shown.contains("\nc199 | 199\n"), "{shown}");
    // Without a pager, which these tests have not, the first rows.
    let long = "SELECT v FROM generate_series(1, 1001) AS s (v);";
    let shown = shell.enter(long);
    assert!(shown.contains("the first 1000 of 1001 rows"), "{shown}");
    shell.press("exit\r");
    shell.end();

    let pager = place.path().join("pager");
    let command = format!("cat > '{}'", pager.display());
    let mut shell = Terminal::start(&directory, &[], &[("PAGER", &command), ("NO_COLOR", "1")]);
    shell.prompt("cleave>");
    let shown = shell.enter(long);
    assert!(!shown.contains("rows"), "{shown}");
    assert!(std::fs::read_to_string(pager).unwrap().contains("│ 1001 │"));
    let shown = shell.enter("SELECT NULL AS a, 'NULL' AS b;");
    assert!(shown.contains("│ NULL │ 'NULL' │"), "{shown}");
    assert!(shell.screen.colours.is_empty(), "{:?}", shell.screen.colours);
    shell.press("exit\r");
    shell.end();
}

#[test]
fn a_long_statement_shows_its_time_and_is_stopped() {
    let place = tempdir().unwrap();
    let directory = place.path().join("db");
    let mut shell = Terminal::start(&directory, &["--create"], &[]);
    shell.prompt("cleave>");
    shell.press("SELECT pg_sleep(600);\r");
    // Nothing of its input is counted, so only the time is shown.
    let is_time =
        |line: &str| line.strip_suffix(" s").is_some_and(|time| time.parse::<u32>().is_ok());
    shell.wait(|screen| screen.text(0).lines().any(is_time));
    let process = nix::unistd::Pid::from_raw(shell.child.id().cast_signed());
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGINT).unwrap();
    let shown = shell.prompt("cleave>");
    assert!(shown.contains("stopped") && !shown.lines().any(is_time), "{shown}");
    shell.press("exit\r");
    shell.end();
}

#[test]
fn a_statement_is_changed_in_an_editor_and_run_again() {
    let place = tempdir().unwrap();
    let directory = place.path().join("db");
    let editor = place.path().join("editor.sh");
    std::fs::write(&editor, "sed -i 's/first/changed/; $s/$/;/' \"$1\"\n").unwrap();
    let editor = format!("sh '{}'", editor.display());
    let variables = [("EDITOR", editor.as_str()), ("VISUAL", "")];
    let mut shell = Terminal::start(&directory, &["--create"], &variables);
    shell.prompt("cleave>");
    shell.press("SELECT 7 AS first\r");
    shell.prompt("cleave->");
    let shown = shell.enter("\\e");
    assert!(shown.contains("│ changed │") && shown.contains("│       7 │"), "{shown}");
    let shown = shell.enter("\\gx");
    assert!(shown.contains("changed | 7"), "{shown}");
    shell.press("exit\r");
    shell.end();
}

#[test]
fn tab_completes_and_the_history_lasts() {
    let place = tempdir().unwrap();
    let directory = place.path().join("db");
    let mut shell = Terminal::start(&directory, &["--create"], &[]);
    shell.prompt("cleave>");
    shell.enter("CREATE TABLE people (id int, born date);");
    // The table stands on a line before, or behind the cursor.
    shell.press("SELECT count(*) AS n FROM people\r");
    shell.prompt("cleave->");
    shell.press("WHERE bor\t");
    shell.wait(|screen| screen.line(screen.row).ends_with("WHERE born"));
    let shown = shell.enter(" IS NULL;");
    assert!(shown.contains('0') && shown.contains("(1 row)"), "{shown}");
    shell.press("quit\r");
    shell.end();

    let mut shell = Terminal::start(&directory, &[], &[]);
    shell.prompt("cleave>");
    let colours = |shell: &Terminal, colour: &str| shell.screen.colours.contains(colour);
    assert!(!colours(&shell, "[1;34m"), "nothing is typed yet");
    // The word that left, and the statement as a whole.
    shell.press("\x1b[A\x1b[A");
    shell.wait(|screen| screen.line(screen.row).ends_with("born IS NULL;"));
    let shown = shell.enter("");
    assert!(shown.contains("(1 row)"), "{shown}");
    assert!(colours(&shell, "[1;34m") && !colours(&shell, "[32m"));
    shell.enter("SELECT 'green';");
    assert!(colours(&shell, "[32m"));
    // Ctrl-R searches.
    shell.press("\x12CREATE");
    shell.wait(|screen| screen.text(0).contains("born date"));
    shell.press("\x03");
    shell.prompt("cleave>");
    shell.press("\x04");
    shell.end();
}

#[test]
fn a_second_shell_sees_what_the_first_one_commits_while_both_are_open() {
    let place = tempdir().unwrap();
    let directory = place.path().join("db");
    let mut first = Terminal::start(&directory, &["--create"], &[]);
    first.prompt("cleave>");
    first.enter("CREATE TABLE people (id int);");
    let mut second = Terminal::start(&directory, &[], &[]);
    let shown = second.prompt("cleave>");
    assert!(shown.contains("beside process"), "{shown}");
    first.enter("INSERT INTO people VALUES (4711);");
    let shown = second.enter("SELECT id FROM people;");
    assert!(shown.contains("4711"), "{shown}");
    let shown = second.enter("DELETE FROM people;");
    assert!(shown.contains("ERROR 25006"), "{shown}");
    first.press("exit\r");
    first.end();
    let shown = second.enter("SELECT id FROM people;");
    assert!(shown.contains("ERROR 08006"), "{shown}");
    second.press("exit\r");
    second.end();
}
