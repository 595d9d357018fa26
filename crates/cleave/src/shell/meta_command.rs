//! Commands of the shell itself, which begin with a backslash: `\d title`, `\timing on`.

use std::path::PathBuf;

use super::display;

/// A parsed backslash command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MetaCommand {
    /// `\?`: this list.
    Help,
    /// `\q`: quit.
    Quit,
    /// `\l`: the open database and its devices.
    Database,
    /// `\d`, `\dt`: the tables.
    Tables,
    /// `\d TABLE`: its columns, keys and devices.
    Describe(String),
    /// `\stats [TABLE]`: the statistics of ANALYZE.
    Statistics(Option<String>),
    /// `\timing [on|off]`: show the time each statement takes.
    Timing(Option<bool>),
    /// `\pset [NAME [VALUE]]`, `\x [on|off|auto]`: how results are shown.
    Display(Option<(String, Option<String>)>),
    /// `\i FILE`: run the statements in a file.
    Include(PathBuf),
    /// `\o [FILE]`: send results to a file, or back to the screen.
    Output(Option<PathBuf>),
    /// `\set [NAME VALUE]`: change a setting, or show all.
    Set(Option<(String, String)>),
}

/// The text of `\?`.
pub(crate) const HELP: &str = "\
  SQL statements end with a semicolon and may take many lines.

  \\d              tables                    \\timing [on|off]  time of each statement
  \\d TABLE        a table's columns         \\x [on|off|auto]  one line a value
  \\l              this database, devices    \\pset [NAME ...]  how results are shown
  \\stats [TABLE]  what ANALYZE found        \\set              all settings
  \\i FILE         run a file                \\set NAME VALUE   change one (as SET does)
  \\o [FILE]       results into a file       \\q                leave (or exit, Ctrl-D)

  Tab completes; the arrow keys walk through the history; Ctrl-R searches it;
  Ctrl-C drops a line, or stops a statement that runs.
";

/// Whether a line is a command of the shell.
pub(crate) fn is_meta_command(line: &str) -> bool {
    line.trim_start().starts_with('\\')
}

/// Parses a line that begins with a backslash; an error gives the right usage.
pub(crate) fn parse(line: &str) -> Result<MetaCommand, String> {
    let line = line.trim().trim_end_matches(';').trim_end();
    if let Some((command, path)) = file_argument(line) {
        let path = PathBuf::from(path.trim_end());
        return Ok(match command {
            "\\i" => MetaCommand::Include(path),
            _ => MetaCommand::Output(Some(path)),
        });
    }
    let mut words = line.split_whitespace();
    let command = words.next().unwrap_or_default();
    let arguments: Vec<&str> = words.collect();
    match (command, arguments.as_slice()) {
        ("\\?" | "\\h" | "\\help", []) => Ok(MetaCommand::Help),
        ("\\q" | "\\quit" | "\\exit", []) => Ok(MetaCommand::Quit),
        ("\\l", []) => Ok(MetaCommand::Database),
        ("\\d" | "\\dt", []) => Ok(MetaCommand::Tables),
        ("\\d" | "\\dt", [table]) => Ok(MetaCommand::Describe(unquoted(table))),
        ("\\stats", []) => Ok(MetaCommand::Statistics(None)),
        ("\\stats", [table]) => Ok(MetaCommand::Statistics(Some(unquoted(table)))),
        ("\\timing", arguments) => on_or_off(arguments).map(MetaCommand::Timing),
        ("\\x", []) => Ok(display("expanded", None)),
        ("\\x", [value]) => Ok(display("expanded", Some(value))),
        ("\\pset", []) => Ok(MetaCommand::Display(None)),
        ("\\pset", [name]) => Ok(display(name, None)),
        ("\\pset", [name, value]) => Ok(display(name, Some(value.trim_matches('\'')))),
        ("\\i", _) => Err("\\i takes one file: \\i FILE".to_owned()),
        ("\\o", []) => Ok(MetaCommand::Output(None)),
        ("\\set", []) => Ok(MetaCommand::Set(None)),
        ("\\set", [name, value]) => {
            Ok(MetaCommand::Set(Some(((*name).to_owned(), (*value).to_owned()))))
        }
        ("\\set", _) => Err("\\set takes a name and a value: \\set split h0".to_owned()),
        (
            "\\?" | "\\h" | "\\q" | "\\l" | "\\d" | "\\dt" | "\\o" | "\\stats" | "\\x" | "\\pset",
            _,
        ) => Err(format!("{command} got more words than it takes; \\? shows the commands")),
        _ => Err(format!("there is no command {command}; \\? shows the commands")),
    }
}

/// Splits a command that takes a file into its name and the rest: file names may have blanks.
pub(super) fn file_argument(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let (command, rest) = line.split_once(char::is_whitespace)?;
    let path = rest.trim_start();
    (matches!(command, "\\i" | "\\o") && !path.is_empty()).then_some((command, path))
}

fn on_or_off(arguments: &[&str]) -> Result<Option<bool>, String> {
    match arguments {
        [] => Ok(None),
        [value] => display::on_or_off(value).map(Some),
        other => Err(format!("{} is neither on nor off", other.join(" "))),
    }
}

fn display(name: &str, value: Option<&str>) -> MetaCommand {
    MetaCommand::Display(Some((name.to_owned(), value.map(str::to_owned))))
}

/// Names fold to lower case unless they are quoted, as in SQL.
fn unquoted(name: &str) -> String {
    match name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => name.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests;
