//! Runs the commands of the shell.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use cleave_host::{CatalogState, CountedFile, Database};
use cleave_media::{Clock, SystemClock};

use super::client_copy::{ClientCopy, End};
use super::describe::Shown;
use super::format::Expanded;
use super::meta_command::{self, MetaCommand};
use super::output::{Output, ResultFile};
use super::statements::Statement;
use super::{Buffer, Ends, Next, Shell, Target, describe, remote, statement_help};
use crate::failure::Failure;

/// The editor if the environment names none.
const EDITOR: &str = "vi";

/// The roles, as `\du` shows them.
const ROLES: &str = "SELECT rolname AS role, rolsuper AS superuser, rolcreaterole AS \"makes roles\", \
                     rolcanlogin AS \"may connect\", rolvaliduntil AS \"valid until\" \
                     FROM pg_catalog.pg_roles ORDER BY rolname";

impl Shell {
    /// Runs the command in `line`; `buffer` has the statement in front of it, or that is typed.
    pub(super) async fn run_meta_command(
        &mut self,
        line: &str,
        buffer: &mut Buffer,
        origin: Option<&str>,
    ) -> Result<Next, Failure> {
        let command = match meta_command::parse(line) {
            Ok(command) => command,
            Err(message) => return self.complain(&message, origin),
        };
        match command {
            MetaCommand::Quit => return Ok(Next::Quit),
            MetaCommand::Help => self.show_text(meta_command::help().as_bytes())?,
            MetaCommand::Syntax(words) => match statement_help::help(&words) {
                Ok(text) => self.show_text(text.as_bytes())?,
                Err(message) => return self.complain(&message, origin),
            },
            MetaCommand::Database
            | MetaCommand::Tables { .. }
            | MetaCommand::Describe { .. }
            | MetaCommand::Indexes
            | MetaCommand::Views
            | MetaCommand::Functions(_)
            | MetaCommand::Statistics(_) => {
                let database = match &self.target {
                    Target::Local(local) => Arc::clone(&local.database),
                    Target::Remote(_) => return self.describe_remote(&command, origin).await,
                };
                let screen = self.screen.filter(|_| self.out.is_terminal());
                let layout = self.display.layout(screen, false, screen.is_some());
                let mut shown = Shown::new(&layout);
                match Self::describe(&mut shown, &database, &database.catalog(), &command)? {
                    Ok(()) => self.show_text(shown.into_text().as_bytes())?,
                    Err(error) => return self.complain(&error.to_string(), origin),
                }
            }
            MetaCommand::Roles => self.run_own(ROLES, Ends::default(), origin).await?,
            MetaCommand::Timing(value) => {
                self.is_timing = value.unwrap_or(!self.is_timing);
                let state = if self.is_timing { "on" } else { "off" };
                writeln!(self.out, "timing is {state}")?;
            }
            MetaCommand::Display(Some((name, value))) => {
                match self.display.set(&name, value.as_deref()) {
                    Ok(said) => writeln!(self.out, "{said}")?,
                    Err(message) => return self.complain(&message, origin),
                }
            }
            MetaCommand::Display(None) => write!(self.out, "{}", self.display.list())?,
            MetaCommand::Copy(copy) => self.copy(copy, origin).await?,
            MetaCommand::Run { is_expanded, file } => {
                let Some(text) = self.take_statement(buffer) else {
                    return self.complain("there is no statement to run", origin);
                };
                self.run_once(&text, is_expanded, file.as_deref(), origin).await?;
            }
            MetaCommand::Watch { pause, count } => {
                let Some(text) = self.take_statement(buffer) else {
                    return self.complain("there is no statement to run again", origin);
                };
                // A pager would wait for its user between the runs.
                let has_pager = std::mem::replace(&mut self.display.has_pager, false);
                let watched = self.watch(&text, pause, count, origin).await;
                self.display.has_pager = has_pager;
                watched?;
            }
            MetaCommand::Edit(file) => {
                let before = if buffer.text.is_empty() { &self.last } else { &buffer.text };
                let text = match edit(before, file.as_deref()) {
                    Ok(text) => text,
                    // Somebody who types has the statement still.
                    Err(failure) if self.screen.is_some() => {
                        writeln!(io::stderr(), "{failure}")?;
                        return Ok(Next::Continue);
                    }
                    Err(failure) => return Err(failure),
                };
                *buffer = Buffer::default();
                writeln!(self.out, "{}", text.trim_end())?;
                return Box::pin(self.take_typed(&text, buffer)).await;
            }
            MetaCommand::Print => {
                let text = if buffer.text.is_empty() { &self.last } else { &buffer.text };
                writeln!(self.out, "{}", text.trim_end())?;
            }
            MetaCommand::Reset => *buffer = Buffer::default(),
            MetaCommand::Include(path) => Box::pin(self.include(&path)).await?,
            MetaCommand::Output(path) => {
                self.out.flush()?;
                self.out = match path {
                    None => Output::screen(),
                    Some(path) => Output::file(&path)?,
                };
            }
            MetaCommand::Set(Some((name, value))) => {
                let Target::Local(local) = &mut self.target else {
                    let Some(statement) = remote::set_statement(&name, &value) else {
                        return self.complain(&format!("\"{name}\" is no setting"), origin);
                    };
                    self.run_own(&statement, Ends::default(), origin).await?;
                    return Ok(Next::Continue);
                };
                if let Err(error) = local.session.set(&name, &value) {
                    return self.complain(&error.to_string(), origin);
                }
            }
            MetaCommand::Set(None) => self.run_own("SHOW ALL", Ends::default(), origin).await?,
        }
        Ok(Next::Continue)
    }

    /// Writes what a command shows of the catalog; the inner error is the user's.
    fn describe(
        out: &mut Shown<'_>,
        database: &Database,
        catalog: &CatalogState,
        command: &MetaCommand,
    ) -> io::Result<cleave_host::Result<()>> {
        match command {
            MetaCommand::Tables { has_detail } => describe::tables(out, catalog, *has_detail)?,
            MetaCommand::Describe { name, has_detail } => {
                if describe::view_or_index(out, catalog, name, *has_detail)? {
                    return Ok(Ok(()));
                }
                let table = match catalog.find_table(name) {
                    Ok(table) => table,
                    Err(error) => return Ok(Err(error)),
                };
                describe::table(out, catalog, table)?;
                if *has_detail {
                    describe::statistics(out, database, catalog, Some(name))?;
                }
            }
            MetaCommand::Indexes => describe::indexes(out, catalog)?,
            MetaCommand::Views => describe::views(out, catalog)?,
            MetaCommand::Functions(part) => describe::functions(out, part)?,
            MetaCommand::Statistics(name) => {
                let unusable = name.as_ref().and_then(|name| catalog.find_table(name).err());
                if let Some(error) = unusable {
                    return Ok(Err(error));
                }
                describe::statistics(out, database, catalog, name.as_deref())?;
            }
            _ => describe::database(out, database)?,
        }
        Ok(Ok(()))
    }

    /// Shows what a command shows of the catalog of a server.
    async fn describe_remote(
        &mut self,
        command: &MetaCommand,
        origin: Option<&str>,
    ) -> Result<Next, Failure> {
        let queries = match remote::queries(command) {
            Ok(queries) => queries,
            Err(message) => return self.complain(&message, origin),
        };
        // The values of a histogram are a hundred.
        let is_statistics = matches!(command, MetaCommand::Statistics(_));
        let text_width = is_statistics.then_some(describe::STATISTICS_WIDTH);
        for query in queries {
            let ends = Ends { text_width, ..Ends::default() };
            self.run_own(&query, ends, origin).await?;
        }
        Ok(Next::Continue)
    }

    /// Runs a statement of the shell itself.
    async fn run_own(
        &mut self,
        text: &str,
        ends: Ends,
        origin: Option<&str>,
    ) -> Result<(), Failure> {
        self.run_statement(Statement { text, line: 1 }, ends, origin).await
    }

    async fn copy(&mut self, copy: ClientCopy, origin: Option<&str>) -> Result<(), Failure> {
        let mut file = None;
        let ends = match copy.end {
            End::From(path) => {
                let file = File::open(&path).map_err(Failure::file(path))?;
                let input: Box<dyn Read + Send> = match &self.target {
                    Target::Local(local) => {
                        Box::new(CountedFile::new(file, local.session.progress()))
                    }
                    Target::Remote(_) => Box::new(file),
                };
                Ends { input: Some(input), ..Ends::default() }
            }
            End::To(path) => {
                let written = file.insert(ResultFile::create(&path)?);
                Ends { output: Some(Box::new(written.clone())), ..Ends::default() }
            }
            End::Client => Ends::default(),
        };
        let ran = self.run_own(&copy.statement, ends, origin).await;
        let closed = file.map_or(Ok(()), |file| file.close(ran.is_ok()));
        ran.and(closed)
    }

    /// The statement in the buffer, which is then empty, or else the last one.
    fn take_statement(&self, buffer: &mut Buffer) -> Option<String> {
        let typed = std::mem::take(buffer).text;
        let text = if typed.trim().is_empty() { self.last.clone() } else { typed };
        (!text.is_empty()).then(|| text.trim_end().to_owned())
    }

    /// Runs a statement with its own layout, or with its result in a file.
    async fn run_once(
        &mut self,
        text: &str,
        is_expanded: bool,
        file: Option<&Path>,
        origin: Option<&str>,
    ) -> Result<(), Failure> {
        let file = file.map(ResultFile::create).transpose()?;
        let out = file.as_ref().map(|file| std::mem::replace(&mut self.out, Output::result(file)));
        let expanded = self.display.expanded;
        if is_expanded {
            self.display.expanded = Expanded::On;
        }
        let ran = self.run_typed(text, origin).await;
        let flushed = self.out.flush();
        if let Some(out) = out {
            self.out = out;
        }
        self.display.expanded = expanded;
        let ran = ran.and(flushed.map_err(Failure::Output));
        let closed = file.map_or(Ok(()), |file| file.close(ran.is_ok()));
        ran.and(closed)
    }

    /// Runs a statement again and again.
    async fn watch(
        &mut self,
        text: &str,
        pause: Duration,
        count: Option<u64>,
        origin: Option<&str>,
    ) -> Result<(), Failure> {
        let mut run_count = 0;
        while count.is_none_or(|count| run_count < count) {
            if run_count > 0 {
                let interrupt = Arc::clone(&self.interrupt);
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = interrupt.notified() => break,
                }
            }
            run_count += 1;
            if !self.display.format.is_for_programs() {
                let seconds = SystemClock.wall().div_euclid(1_000_000).rem_euclid(24 * 60 * 60);
                let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
                let every = pause.as_secs_f64();
                writeln!(
                    self.out,
                    "{hours:02}:{minutes:02}:{:02} UTC (every {every} s)",
                    seconds % 60
                )?;
            }
            self.run_typed(text, origin).await?;
        }
        Ok(())
    }

    /// Runs a statement that the user typed, and remembers it for commands that run it again.
    pub(super) async fn run_typed(
        &mut self,
        text: &str,
        origin: Option<&str>,
    ) -> Result<(), Failure> {
        text.clone_into(&mut self.last);
        self.run_own(text, Ends::default(), origin).await
    }
}

/// Lets the user change a text, or a file, and returns what it is then.
fn edit(before: &str, file: Option<&Path>) -> Result<String, Failure> {
    let temporary = match file {
        Some(_) => None,
        None => {
            let made = tempfile::Builder::new().prefix("cleave").suffix(".sql").tempfile();
            Some(made.map_err(Failure::file(std::env::temp_dir()))?)
        }
    };
    let path = match (file, &temporary) {
        (Some(file), _) => file,
        (None, Some(temporary)) => {
            fs::write(temporary.path(), before).map_err(Failure::file(temporary.path()))?;
            temporary.path()
        }
        (None, None) => return Ok(before.to_owned()),
    };
    let mut named = ["VISUAL", "EDITOR"].into_iter().filter_map(std::env::var_os);
    let editor = named.find(|name| !name.is_empty());
    let mut command = editor.unwrap_or_else(|| OsString::from(EDITOR));
    // The editor may have arguments, and the path may have blanks.
    command.push(" \"$1\"");
    let status = Command::new("sh").arg("-c").arg(command).arg("sh").arg(path).status();
    let status = status.map_err(|error| Failure::Usage(format!("no editor: {error}")))?;
    if !status.success() {
        return Err(Failure::Usage(format!("the editor has failed ({status})")));
    }
    fs::read_to_string(path).map_err(Failure::file(path))
}
