//! `cleaved --config FILE`: the options of a device, or of a node with several, in a TOML file.
//!
//! ```toml
//! token_file = "/etc/cleave/nas.token"
//!
//! [[engine]]
//! media = "/dev/nvme1n1"
//! listen = "0.0.0.0:7700"
//! ```
//!
//! A key is an option's name with underscores. The options of one media stand in a table `[[engine]]` of their own.
//!
//! Invariant: what comes out are arguments, which are checked as others are; an error names the line of its key.

use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;

use toml::de::{DeTable, DeValue};

/// Options of the process.
const OF_PROCESS: [&str; 10] = [
    "node",
    "token_file",
    "token_env",
    "tls_cert",
    "tls_key",
    "rate_cap",
    "log_format",
    "log_level",
    "traces",
    "traces_ca",
];
/// Options of one media.
const OF_ENGINE: [&str; 8] =
    ["media", "id_file", "listen", "local", "cores", "memory", "filter_history", "port_file"];
/// The tables of these.
const ENGINE: &str = "engine";

/// The arguments that a file stands for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FileArguments {
    /// Of the process, by option.
    pub(super) process: Vec<(String, OsString)>,
    /// Of each media, its own first.
    pub(super) engines: Vec<OsString>,
}

/// A file that is read; `check` refuses an argument that is none.
struct File<'a> {
    path: &'a Path,
    text: &'a str,
    check: &'a dyn Fn(&OsString) -> Result<(), String>,
}

/// Reads the file at `path`, each of whose arguments `check` accepts.
///
/// # Errors
/// What is wrong, and in which line.
pub(super) fn read(
    path: &Path,
    check: &dyn Fn(&OsString) -> Result<(), String>,
) -> Result<FileArguments, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let file = File { path, text: &text, check };
    let table = DeTable::parse(&text).map_err(|error| {
        let message = error.message().lines().next().unwrap_or_default().to_owned();
        file.fault(error.span(), &message)
    })?;
    let mut arguments = FileArguments::default();
    for (key, value) in table.get_ref().iter() {
        let name = &**key.get_ref();
        if name != ENGINE {
            file.check_name(name, key.span(), &OF_PROCESS)?;
            let argument = file.argument(name, value.get_ref(), value.span())?;
            arguments.process.push((name.to_owned(), argument));
            continue;
        }
        let wrong = || file.fault(Some(value.span()), "each media has a table: [[engine]]");
        for engine in value.get_ref().as_array().ok_or_else(wrong)?.iter() {
            let options = engine.get_ref().as_table().ok_or_else(wrong)?;
            let (mut media, mut others) = (None, Vec::new());
            for (key, value) in options.iter() {
                let name = &**key.get_ref();
                file.check_name(name, key.span(), &OF_ENGINE)?;
                let argument = file.argument(name, value.get_ref(), value.span())?;
                match name {
                    "media" => media = Some(argument),
                    _ => others.push(argument),
                }
            }
            let missing = || file.fault(Some(engine.span()), "an [[engine]] needs its media");
            arguments.engines.push(media.ok_or_else(missing)?);
            arguments.engines.append(&mut others);
        }
    }
    Ok(arguments)
}

impl File<'_> {
    fn check_name(&self, name: &str, place: Range<usize>, known: &[&str]) -> Result<(), String> {
        match known.contains(&name) {
            true => Ok(()),
            false => {
                let known = known.join(", ");
                let why = format!("there is no option `{name}` here; there are {known}");
                Err(self.fault(Some(place), &why))
            }
        }
    }

    /// `--name=value`.
    fn argument(
        &self,
        name: &str,
        value: &DeValue<'_>,
        place: Range<usize>,
    ) -> Result<OsString, String> {
        let text = match value {
            DeValue::String(text) => text.as_ref(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => {
                return Err(self.fault(Some(place), &format!("{name} takes a text or a number")));
            }
        };
        let argument = OsString::from(format!("--{}={text}", name.replace('_', "-")));
        (self.check)(&argument).map_err(|why| self.fault(Some(place), &why))?;
        Ok(argument)
    }

    fn fault(&self, place: Option<Range<usize>>, why: &str) -> String {
        let before = place.and_then(|place| self.text.get(..place.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        format!("{}:{line}: {why}", self.path.display())
    }
}
