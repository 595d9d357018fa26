//! Commands of the shell itself, which begin with a backslash: `\d title`, `\timing on`.

use std::path::PathBuf;
use std::time::Duration;

use cleave_host::suggest;

use super::client_copy::{self, ClientCopy};
use super::display;

/// A parsed backslash command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MetaCommand {
    /// `\?`: the commands.
    Help,
    /// `\h [NAME]`: the forms of statements.
    Syntax(String),
    /// `\q`: quit.
    Quit,
    /// `\l`: the open database and its devices.
    Database,
    /// `\d`, `\dt`: the tables; with `+` their sizes.
    Tables {
        /// With `+`.
        has_detail: bool,
    },
    /// `\d NAME`: a table's columns, keys and devices; with `+` what ANALYZE found too.
    Describe {
        /// The table, view or index.
        name: String,
        /// With `+`.
        has_detail: bool,
    },
    /// `\di`: the indexes.
    Indexes,
    /// `\dv`: the views.
    Views,
    /// `\du`: the roles.
    Roles,
    /// `\df [PART]`: the functions.
    Functions(String),
    /// `\stats [TABLE]`: the statistics of ANALYZE.
    Statistics(Option<String>),
    /// `\timing [on|off]`: show the time each statement takes.
    Timing(Option<bool>),
    /// `\pset [NAME [VALUE]]`, `\x [on|off|auto]`: how results are shown.
    Display(Option<(String, Option<String>)>),
    /// `\copy …`: COPY with a file of the shell.
    Copy(ClientCopy),
    /// `\g [FILE]`, `\gx [FILE]`: run the statement in the buffer, or the last one.
    Run {
        /// With one line a value.
        is_expanded: bool,
        /// Where its result goes.
        file: Option<PathBuf>,
    },
    /// `\watch [SECONDS] [c=COUNT]`: run it again and again.
    Watch {
        /// From one run to the next.
        pause: Duration,
        /// How often; None: until Ctrl-C.
        count: Option<u64>,
    },
    /// `\e [FILE]`: change it in an editor.
    Edit(Option<PathBuf>),
    /// `\p`: show it.
    Print,
    /// `\r`: drop it.
    Reset,
    /// `\i FILE`: run the statements in a file.
    Include(PathBuf),
    /// `\o [FILE]`: send results to a file, or back to the screen.
    Output(Option<PathBuf>),
    /// `\set [NAME VALUE]`: change a setting, or show all.
    Set(Option<(String, String)>),
}

/// A command, what it takes, and what it does.
type Entry = (&'static str, &'static str, &'static str);

/// All commands, as `\?` shows them.
const COMMANDS: &[Entry] = &[
    ("\\?", "", "this list"),
    ("\\h", "[NAME]", "the form of a statement"),
    ("\\q", "", "leave (or exit, or Ctrl-D)"),
    ("\\g", "[FILE]", "run the statement, or the last one again; result into a file"),
    ("\\gx", "[FILE]", "the same with one line a value"),
    ("\\watch", "[SECONDS] [c=COUNT]", "run it every 2 seconds until Ctrl-C"),
    ("\\e", "[FILE]", "change the statement or a file in $EDITOR"),
    ("\\p", "", "show the statement that is typed, or the last one"),
    ("\\r", "", "drop the statement that is typed"),
    ("\\i", "FILE", "run a file"),
    ("\\o", "[FILE]", "results into a file; without one, to the screen"),
    ("\\copy", "T FROM|TO FILE ...", "COPY with a file of the shell"),
    ("\\d", "", "tables"),
    ("\\d", "NAME", "columns of a table or view; \\d+ has more"),
    ("\\dt", "", "tables; \\dt+ has sizes"),
    ("\\di", "", "indexes"),
    ("\\dv", "", "views"),
    ("\\du", "", "roles"),
    ("\\df", "[PART]", "functions whose names have this part"),
    ("\\l", "", "this database and its devices"),
    ("\\stats", "[TABLE]", "what ANALYZE found"),
    ("\\timing", "[on|off]", "time of each statement"),
    ("\\x", "[on|off|auto]", "one line a value"),
    ("\\pset", "[NAME [VALUE]]", "how results are shown: format, null, columns, pager ..."),
    ("\\set", "[NAME VALUE]", "a setting (as SET does); all settings"),
];

/// Other names of commands, and with details.
const OTHER_NAMES: [&str; 5] = ["\\d+", "\\dt+", "\\exit", "\\help", "\\quit"];

/// The names of all commands.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let names = COMMANDS.iter().map(|(name, ..)| *name);
    names.chain(OTHER_NAMES)
}

/// The text of `\?`.
pub(crate) fn help() -> String {
    let mut text = "  SQL statements end with a semicolon and may take many lines.\n\n".to_owned();
    for (name, arguments, meaning) in COMMANDS {
        let usage = format!("{name} {arguments}");
        text.push_str(&format!("  {usage:28}{meaning}\n"));
    }
    text.push_str(
        "\n  Tab completes; the arrow keys walk through the history; Ctrl-R searches it;\n  \
         Ctrl-C drops a statement, or stops one that runs.\n",
    );
    text
}

/// Whether a line is a command of the shell.
pub(crate) fn is_meta_command(line: &str) -> bool {
    line.trim_start().starts_with('\\')
}

/// Parses text that begins with a backslash; an error gives the right usage.
pub(crate) fn parse(line: &str) -> Result<MetaCommand, String> {
    let line = line.trim().trim_end_matches(';').trim_end();
    if let Some((command, path)) = file_argument(line) {
        let path = PathBuf::from(path.trim_end());
        return Ok(match command {
            "\\i" => MetaCommand::Include(path),
            "\\e" => MetaCommand::Edit(Some(path)),
            "\\g" => MetaCommand::Run { is_expanded: false, file: Some(path) },
            "\\gx" => MetaCommand::Run { is_expanded: true, file: Some(path) },
            _ => MetaCommand::Output(Some(path)),
        });
    }
    let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let arguments: Vec<&str> = rest.split_whitespace().collect();
    let has_detail = command.ends_with('+');
    match (command, arguments.as_slice()) {
        ("\\?" | "\\help", []) => Ok(MetaCommand::Help),
        ("\\h", _) => Ok(MetaCommand::Syntax(rest.to_owned())),
        ("\\q" | "\\quit" | "\\exit", []) => Ok(MetaCommand::Quit),
        ("\\l", []) => Ok(MetaCommand::Database),
        ("\\d" | "\\dt" | "\\d+" | "\\dt+", []) => Ok(MetaCommand::Tables { has_detail }),
        ("\\d" | "\\dt" | "\\d+" | "\\dt+", [name]) => {
            Ok(MetaCommand::Describe { name: unquoted(name), has_detail })
        }
        ("\\di", []) => Ok(MetaCommand::Indexes),
        ("\\dv", []) => Ok(MetaCommand::Views),
        ("\\du", []) => Ok(MetaCommand::Roles),
        ("\\df", []) => Ok(MetaCommand::Functions(String::new())),
        ("\\df", [part]) => Ok(MetaCommand::Functions(part.trim_matches('*').to_ascii_lowercase())),
        ("\\stats", []) => Ok(MetaCommand::Statistics(None)),
        ("\\stats", [table]) => Ok(MetaCommand::Statistics(Some(unquoted(table)))),
        ("\\timing", arguments) => on_or_off(arguments).map(MetaCommand::Timing),
        ("\\x", []) => Ok(display("expanded", None)),
        ("\\x", [value]) => Ok(display("expanded", Some(value))),
        ("\\pset", []) => Ok(MetaCommand::Display(None)),
        ("\\pset", [name]) => Ok(display(name, None)),
        ("\\pset", [name, value]) => Ok(display(name, Some(value.trim_matches('\'')))),
        ("\\copy", _) => client_copy::parse(rest).map(MetaCommand::Copy),
        ("\\g", []) => Ok(MetaCommand::Run { is_expanded: false, file: None }),
        ("\\gx", []) => Ok(MetaCommand::Run { is_expanded: true, file: None }),
        ("\\watch", arguments) => watch(arguments),
        ("\\e", []) => Ok(MetaCommand::Edit(None)),
        ("\\p", []) => Ok(MetaCommand::Print),
        ("\\r", []) => Ok(MetaCommand::Reset),
        ("\\i", _) => Err("\\i takes one file: \\i FILE".to_owned()),
        ("\\o", []) => Ok(MetaCommand::Output(None)),
        ("\\set", []) => Ok(MetaCommand::Set(None)),
        ("\\set", [name, value]) => {
            Ok(MetaCommand::Set(Some(((*name).to_owned(), (*value).to_owned()))))
        }
        ("\\set", _) => Err("\\set takes a name and a value: \\set split h0".to_owned()),
        _ if names().any(|name| name == command) => {
            Err(format!("{command} got more words than it takes; \\? shows the commands"))
        }
        _ => Err(unknown(command)),
    }
}

fn unknown(command: &str) -> String {
    let near = suggest::nearest(command, names());
    let near = near.map(|near| format!("did you mean {near}?"));
    let near = near.unwrap_or_else(|| "\\? shows the commands".to_owned());
    format!("there is no command {command}; {near}")
}

/// Splits a command that takes a file into its name and the rest: file names may have blanks.
pub(super) fn file_argument(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let (command, rest) = line.split_once(char::is_whitespace)?;
    let path = rest.trim_start();
    let takes_file = matches!(command, "\\i" | "\\o" | "\\e" | "\\g" | "\\gx");
    (takes_file && !path.is_empty()).then_some((command, path))
}

fn on_or_off(arguments: &[&str]) -> Result<Option<bool>, String> {
    match arguments {
        [] => Ok(None),
        [value] => display::on_or_off(value).map(Some),
        other => Err(format!("{} is neither on nor off", other.join(" "))),
    }
}

fn watch(arguments: &[&str]) -> Result<MetaCommand, String> {
    let (mut pause, mut count) = (Duration::from_secs(2), None);
    for argument in arguments {
        let usage =
            || format!("\\watch takes seconds and a count, as in \\watch 5 c=10, not {argument}");
        if let Some(text) = argument.strip_prefix("c=").or(argument.strip_prefix("count=")) {
            count = Some(text.parse::<u64>().map_err(|_| usage())?);
        } else {
            let text = argument.strip_prefix("i=").unwrap_or(argument);
            let seconds: f64 = text.parse().map_err(|_| usage())?;
            pause = Duration::try_from_secs_f64(seconds).map_err(|_| usage())?;
        }
    }
    Ok(MetaCommand::Watch { pause, count })
}

fn display(name: &str, value: Option<&str>) -> MetaCommand {
    MetaCommand::Display(Some((name.to_owned(), value.map(str::to_owned))))
}

/// Names fold to lower case unless they are quoted, as in SQL. All tables and views are in the schema `public`.
fn unquoted(name: &str) -> String {
    let name = match name.split_once('.') {
        Some((schema, name))
            if !name.is_empty()
                && (schema == "\"public\"" || schema.eq_ignore_ascii_case("public")) =>
        {
            name
        }
        _ => name,
    };
    match name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => name.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests;
