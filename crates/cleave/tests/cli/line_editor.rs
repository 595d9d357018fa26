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
        ("b' AS two /*", "cleave*>"),
        ("*/ -- done", "cleave->"),
    ] {
        shell.press(&format!("{line}\r"));
        shell.prompt(prompt);
    }
    let shown = shell.enter(";");
    assert!(shown.contains("one") && shown.contains("(1 row)"), "{shown}");
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
    // The word that left, and the statement as a whole.
    shell.press("\x1b[A\x1b[A");
    shell.wait(|screen| screen.line(screen.row).ends_with("born IS NULL;"));
    let shown = shell.enter("");
    assert!(shown.contains("(1 row)"), "{shown}");
    // Ctrl-R searches.
    shell.press("\x12CREATE");
    shell.wait(|screen| screen.text(0).contains("born date"));
    shell.press("\x03");
    shell.prompt("cleave>");
    shell.press("\x04");
    shell.end();
}
