//! `cleave.toml`: the options of `cleave serve` in a file, checked as those of the command line are.
//!
//! ```text
//!  cleave serve --config FILE … ─▶ the file's keys ─▶ options that the command line does not give ─▶ parsed together
//!  cleave config sample         ─▶ every option with its meaning and default, as such a file
//! ```
//!
//! A key is an option's long name with underscores. The table `settings` has settings of sessions, as `--set` gives
//! them.
//!
//! Invariants: what the command line or the environment gives counts, whatever the file says. Each key is checked alone
//! before anything runs, and an error names its line; then all are checked together. There is no option that only one
//! of both has.
//!
//! Source: TOML 1.1; `docs/reference/server.md`.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::Path;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory};
use cleave_host::settings::{SettingRow, Settings};
use cleave_host::suggest::nearest;
use toml::de::{DeTable, DeValue};

use super::CommandLine;

/// Name of the command whose options such a file has.
const SERVE: &str = "serve";
/// Name of its table of settings.
const SETTINGS: &str = "settings";
/// Options that make no sense in a file, and `--set`, which is [`SETTINGS`].
const LEFT_OUT: [&str; 4] = ["help", "version", "config", "set"];

/// A file that is read.
struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

/// `arguments`, of which `given` was parsed for `cleave serve`, with what the file at `path` says besides.
pub(super) fn with_file(
    mut arguments: Vec<OsString>,
    given: &ArgMatches,
    path: &Path,
) -> Result<Vec<OsString>, clap::Error> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| misused(format!("cannot read {}: {error}", path.display())))?;
    let file = File { path, text: &text };
    let table = DeTable::parse(&text).map_err(|error| {
        let message = error.message().lines().next().unwrap_or_default().to_owned();
        file.fault(error.span(), message)
    })?;
    let command = serve();
    let is_given = |id: &str| {
        let source = given.value_source(id);
        matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    };
    for (key, value) in table.get_ref().iter() {
        let (name, place) = (&**key.get_ref(), value.span());
        let value = value.get_ref();
        if name == SETTINGS {
            arguments.extend(settings(&file, given, value, place)?);
            continue;
        }
        let known = options(&command).find(|option| key_of(option) == name);
        let Some(option) = known else { return Err(unknown(&file, &command, name, key.span())) };
        let Some(argument) = argument_of(option, value)
            .map_err(|why| file.fault(Some(place.clone()), format!("{name}: {why}")))?
        else {
            continue;
        };
        check(&argument).map_err(|why| file.fault(Some(place), format!("{name}: {why}")))?;
        if !is_given(option.get_id().as_str()) && !conflicts(&command, option, is_given) {
            arguments.push(argument);
        }
    }
    Ok(arguments)
}

/// Checks the file at `path` as `cleave serve --config` does.
pub(crate) fn check_file(path: &Path) -> Result<(), clap::Error> {
    let config = OsString::from(format!("--config={}", path.display()));
    let invocation = super::parse(["cleave".into(), SERVE.into(), config])?;
    if let super::Command::Serve(options) = invocation.command {
        let checked = options.check();
        checked.map_err(|error| misused(format!("{}: {error}", path.display())))?;
    }
    Ok(())
}

/// A file with every option, its meaning and its default, all commented out.
pub(crate) fn sample() -> String {
    let mut text = "# cleave.toml: the options of `cleave serve`, for `cleave serve --config cleave.toml`.\n\
        # Each line shows an option with its default, or what it takes. The command line wins over this file.\n"
        .to_owned();
    for option in options(&serve()) {
        let help = option.get_help().map(ToString::to_string).unwrap_or_default();
        text.push_str(&format!("\n# {}\n", help.replace('\n', "\n# ")));
        text.push_str(&format!("#{} = {}\n", key_of(option), shown_default(option)));
    }
    text.push_str("\n# Settings that every session begins with, as by --set\n[settings]\n");
    let can_be_set = |row: &SettingRow| Settings::default().set(row.name, &row.value).is_ok();
    for row in Settings::default().show_all().into_iter().filter(can_be_set) {
        let value = row.value.replace('\\', "\\\\").replace('"', "\\\"");
        text.push_str(&format!("\n# {}\n#{} = \"{value}\"\n", row.description, row.name));
    }
    text
}

/// The command, with the options that all commands have.
fn serve() -> Command {
    let mut all = CommandLine::command();
    all.build();
    all.find_subcommand(SERVE).cloned().unwrap_or_default()
}

fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_of_files = |option: &&Arg| option.get_long().is_some_and(|l| !LEFT_OUT.contains(&l));
    command.get_arguments().filter(is_of_files)
}

fn key_of(option: &Arg) -> String {
    option.get_long().unwrap_or_default().replace('-', "_")
}

fn is_flag(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::SetTrue)
}

fn shown_default(option: &Arg) -> String {
    if is_flag(option) {
        return "false".to_owned();
    }
    let default = option.get_default_values().first().and_then(|default| default.to_str());
    match default {
        Some(number) if number.parse::<u64>().is_ok() => number.to_owned(),
        Some(text) => format!("\"{text}\""),
        None => {
            let names = option.get_value_names().unwrap_or_default();
            format!("\"{}\"", names.first().map(ToString::to_string).unwrap_or_default())
        }
    }
}

/// The argument that says the same as `value`; None: a flag that is not set.
fn argument_of(option: &Arg, value: &DeValue<'_>) -> Result<Option<OsString>, String> {
    let long = option.get_long().unwrap_or_default();
    if is_flag(option) {
        return match value.as_bool() {
            Some(is_set) => Ok(is_set.then(|| format!("--{long}").into())),
            None => Err("takes true or false".to_owned()),
        };
    }
    Ok(Some(format!("--{long}={}", text_of(value)?).into()))
}

/// A text or a number, as an option takes it.
fn text_of(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok((**text).to_owned()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        DeValue::Integer(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_) => Err(format!(
            "takes a text or a decimal number, not a value of type {}",
            value.type_str()
        )),
    }
}

/// Whether one of the options that the command line gives excludes `option`.
fn conflicts(command: &Command, option: &Arg, is_given: impl Fn(&str) -> bool) -> bool {
    let excludes = |one: &Arg, other: &Arg| {
        command.get_arg_conflicts_with(one).iter().any(|known| known.get_id() == other.get_id())
    };
    let mut given = command.get_arguments().filter(|one| is_given(one.get_id().as_str()));
    given.any(|one| excludes(one, option) || excludes(option, one))
}

/// Checks the value of one argument alone: what it needs beside it may be elsewhere.
fn check(argument: &OsStr) -> Result<(), String> {
    let line = [OsStr::new("cleave"), OsStr::new(SERVE), argument];
    match CommandLine::command().try_get_matches_from(line) {
        Ok(_) => Ok(()),
        Err(error) => match error.kind() {
            ErrorKind::MissingRequiredArgument | ErrorKind::ArgumentConflict => Ok(()),
            _ => {
                let text = error.to_string();
                let first = text.lines().next().unwrap_or_default();
                Err(first.strip_prefix("error: ").unwrap_or(first).to_owned())
            }
        },
    }
}

/// The arguments of the table of settings, but those that the command line sets.
fn settings(
    file: &File<'_>,
    given: &ArgMatches,
    value: &DeValue<'_>,
    place: Range<usize>,
) -> Result<Vec<OsString>, clap::Error> {
    let Some(table) = value.as_table() else {
        return Err(file.fault(Some(place), format!("{SETTINGS} is a table: [{SETTINGS}]")));
    };
    let given: Vec<&str> = given
        .get_many::<(String, String)>(SETTINGS)
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect();
    let mut arguments = Vec::new();
    for (key, value) in table.iter() {
        let name = &**key.get_ref();
        let fault = |why: String| file.fault(Some(value.span()), format!("{name}: {why}"));
        let text = match value.get_ref() {
            DeValue::Boolean(is_on) => if *is_on { "on" } else { "off" }.to_owned(),
            other => text_of(other).map_err(fault)?,
        };
        let set = Settings::default().set(name, &text);
        set.map_err(|error| file.fault(Some(key.span()), error.to_string()))?;
        if !given.iter().any(|given| given.eq_ignore_ascii_case(name)) {
            arguments.push(format!("--set={name}={text}").into());
        }
    }
    Ok(arguments)
}

fn unknown(file: &File<'_>, command: &Command, name: &str, place: Range<usize>) -> clap::Error {
    let keys: Vec<String> = options(command).map(key_of).chain([SETTINGS.to_owned()]).collect();
    let hint = match nearest(name, keys.iter().map(String::as_str)) {
        Some(known) => format!("; did you mean `{known}`?"),
        None => "; `cleave config sample` shows those that there are".to_owned(),
    };
    file.fault(Some(place), format!("there is no option `{name}`{hint}"))
}

impl File<'_> {
    /// An error at this place of the file.
    fn fault(&self, place: Option<Range<usize>>, why: String) -> clap::Error {
        let before = place.and_then(|place| self.text.get(..place.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        misused(format!("{}:{line}: {why}", self.path.display()))
    }
}

fn misused(message: String) -> clap::Error {
    clap::Error::raw(ErrorKind::ValueValidation, message + "\n")
}

#[cfg(test)]
mod tests {
    use super::super::{Invocation, parse};
    use super::*;

    fn parsed(text: &str, more: &[&str]) -> Result<Invocation, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cleave.toml");
        std::fs::write(&path, text).unwrap();
        let config = format!("--config={}", path.display());
        let line = [&["cleave", "serve", config.as_str()][..], more].concat();
        let parsed = parse(line.into_iter().map(Into::into));
        let shown = |error: clap::Error| error.to_string();
        parsed.map_err(shown).map_err(|text| text.replace(&path.display().to_string(), "FILE"))
    }

    #[test]
    fn the_file_gives_what_the_command_line_does_not() {
        let text = "db = 'films'\nconnections = 7\ntrust = true\nbuffer_pool = \"64MB\"\n\
            [settings]\nsplit = 'host'\nthreads = 3\n";
        let invocation = parsed(text, &["--connections", "9", "--set", "split=h0"]).unwrap();
        assert_eq!(invocation.place.directory.as_deref(), Some(Path::new("films")));
        assert_eq!(invocation.place.buffer_pool, Some(64 << 20));
        let mut settings = invocation.place.settings;
        settings.sort();
        let expected = [("split", "h0"), ("threads", "3")];
        assert_eq!(settings, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let shown = format!("{:?}", invocation.command);
        assert!(shown.contains("connections: 9") && shown.contains("trust: true"), "{shown}");
        // What excludes an option of the command line does not come from the file.
        let pair = ["--tls-cert", "a", "--tls-key", "b"];
        let shown = format!("{:?}", parsed("tls_self_made = true", &pair).unwrap().command);
        assert!(shown.contains("tls_self_made: false"), "{shown}");
    }

    #[test]
    fn errors_name_their_line() {
        for (text, expected) in [
            (
                "\nlissten = '127.0.0.1:1'",
                "FILE:2: there is no option `lissten`; did you mean `listen`?",
            ),
            (
                "quite_another = 1",
                "FILE:1: there is no option `quite_another`; `cleave config sample`",
            ),
            ("trust = true\nconnections = 0", "FILE:2: connections: invalid value '0'"),
            ("trust = true\nlisten = 'x'", "FILE:2: listen: invalid value 'x'"),
            ("http = 5", "FILE:1: http: invalid value '5'"),
            ("console = ':8642'", "FILE:1: console: invalid value ':8642'"),
            ("trust = 'yes'", "FILE:1: trust: takes true or false"),
            ("connections = [1]", "FILE:1: connections: takes a text or a decimal number"),
            ("trust = true\ntrust = true", "FILE:2: "),
            ("settings = 1", "FILE:1: settings is a table"),
            ("[settings]\nspilt = 'h0'", "FILE:2: "),
            ("[settings]\nsplit = 'nowhere'", "FILE:2: "),
        ] {
            let error = parsed(text, &[]).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn what_a_server_refuses_a_check_refuses_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cleave.toml");
        let checked = |text: &str| {
            std::fs::write(&path, text).unwrap();
            check_file(&path).map_err(|error| error.to_string())
        };
        for (text, expected) in [
            ("trust = true\nlisten = '0.0.0.0:5432'", "--trust is for 127.0.0.1 alone"),
            ("http = '[::]:9187'", "--tls-cert"),
            ("traces = 'ftp://ada:pencil@x'", "--traces: "),
            ("traces = 'http://10.0.0.1'", "--traces: "),
            ("traces = 'https://x'", "--traces: "),
            ("connections = 5\nsuperuser_reserved_connections = 5", "must be less than"),
        ] {
            let error = checked(text).unwrap_err();
            assert!(error.contains(expected) && error.contains("cleave.toml: "), "{text}: {error}");
            assert!(!error.contains("pencil"), "{error}");
        }
        // Files that only the server's user may read are not looked at.
        for files in ["users = '/nowhere/a'\ntls_self_made = true", "tls_cert = 'a'\ntls_key = 'b'"]
        {
            checked(&format!("listen = '0.0.0.0:5432'\n{files}")).unwrap();
        }
        checked("traces = 'https://x'\ntraces_ca = '/nowhere/c'").unwrap();
        checked("trust = true\nlisten = 'localhost:0'\ntraces = 'http://127.0.0.1'").unwrap();
    }

    #[test]
    fn the_sample_has_all_options_and_is_a_file() {
        let sample = sample();
        assert!(sample.contains("\n#listen = \"127.0.0.1:5432\"\n"), "{sample}");
        for key in ["#db = \"DIR\"", "#trust = false", "#connections = 1000", "#split = \"auto\""] {
            assert!(sample.contains(key), "{key}");
        }
        parsed(&sample, &[]).unwrap();
        // With all lines in force that have a default.
        let uncommented: String = sample
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(set) if set.ends_with("= false") => format!("{set}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        parsed(&uncommented, &[]).unwrap();
    }
}
