//! `cleave sql`: statements from a terminal, a file, the command line or a pipe; results out.
//!
//! 1. [`line_editor`] reads from a terminal, with [`completion`] and [`highlight`]; other input is read whole.
//!    [`words`] are answered there that other shells know.
//! 2. [`statements`] finds where each statement ends, and the rows of COPY that follow one in a script; what begins
//!    with a backslash goes to [`meta_command`], and is done by [`run_command`].
//! 3. [`Shell::run_statement`] passes a statement to what runs it, the [`Target`]: a session of a database here, and
//!    shows [how far it is](statement_bar), or a session of a server ([`remote`]).
//! 4. [`mod@format`] prints the result; [`complaint`] prints an error and its position.
//! 5. Tables that the statements have filled are analysed, large ones at once ([`Shell::analyze_filled`]).
//!
//! A script stops at its first error; at the terminal the next prompt comes.

mod client_copy;
mod complaint;
mod completion;
mod describe;
mod display;
mod file_completion;
pub(crate) mod format;
mod highlight;
mod line_editor;
mod meta_command;
mod output;
pub(crate) mod remote;
mod run_command;
mod statement_bar;
mod statement_help;
pub(crate) mod statements;
mod target;
mod words;

use std::ffi::OsString;
use std::io::{self, Cursor, IsTerminal, Read, Write};
use std::iter::Enumerate;
use std::path::{Path, PathBuf};
use std::str::SplitInclusive;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use cleave_host::{ClientStreams, Effort, Outcome};
use cleave_media::clock::Stopwatch;
use tokio::sync::Notify;

use crate::failure::Failure;
use completion::Vocabulary;
use display::{Display, Size};
use format::{Format, write_rows};
use line_editor::{Input, LineEditor};
use output::Output;
use remote::Streams;
use statement_bar::StatementBar;
use statements::Statement;
pub(crate) use target::Target;
use words::Word;

/// How deep files may include files: stops a file that includes itself.
const INCLUDE_DEPTH_MAX: usize = 32;

/// Changed rows of a table after which it is analysed at once, and not at the end: queries of the script may follow.
const LARGE_CHANGE: u64 = 10_000;

/// A source of statements, in the order of the command line.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// `-c`: the text itself.
    Text(String),
    /// `-f`: a file.
    File(PathBuf),
}

/// Runs all `sources`, or standard input if there are none.
pub(crate) async fn run(
    target: Target,
    format: Option<Format>,
    sources: &[Source],
) -> Result<(), Failure> {
    let out = Output::screen();
    let usual = if out.is_terminal() { Format::Box } else { Format::Table };
    let mut shell = Shell {
        target,
        display: Display::new(format.unwrap_or(usual)),
        screen: None,
        is_timing: false,
        out,
        includes: Vec::new(),
        copies_from_stdin: !sources.is_empty() && !io::stdin().is_terminal(),
        last: String::new(),
        interrupt: Arc::new(Notify::new()),
    };
    let ran = shell.run(sources).await;
    // What was done before an error stays.
    shell.finish_background().await?;
    shell.analyze_filled(1).await?;
    ran
}

/// Whether statements are asked for, where none are given.
fn is_interactive(sources: &[Source]) -> bool {
    sources.is_empty() && io::stdin().is_terminal()
}

/// One user's session and the state kept between statements.
struct Shell {
    target: Target,
    display: Display,
    /// The user's terminal; None: a script runs, and its results are shown as they are.
    screen: Option<Size>,
    is_timing: bool,
    out: Output,
    /// Files being run, outermost first.
    includes: Vec<String>,
    /// Whether standard input may hold rows for COPY: it holds neither statements nor a user.
    copies_from_stdin: bool,
    /// The statement that ran last, for commands that run it again.
    last: String,
    /// Notified when Ctrl-C is pressed while a statement runs.
    interrupt: Arc<Notify>,
}

/// Statements that were read and have not run: the last of them is not finished.
#[derive(Debug, Default)]
struct Buffer {
    text: String,
    /// The line on which it begins, counted from 1.
    line: usize,
    /// No command begins before this byte of the text.
    looked_at: usize,
}

/// Where a COPY of its client's rows reads and writes, if that is not standard input and output; and what of the result
/// is shown.
#[derive(Default)]
struct Ends {
    input: Option<Box<dyn Read + Send>>,
    output: Option<Box<dyn Write + Send>>,
    /// Characters to which texts of the result are shortened for people; None: they are whole.
    text_width: Option<usize>,
}

/// Lines of a script behind those that were read.
type Lines<'a> = Enumerate<SplitInclusive<'a, char>>;

/// Whether to continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Continue,
    Quit,
}

impl Shell {
    async fn run(&mut self, sources: &[Source]) -> Result<(), Failure> {
        if is_interactive(sources) {
            return self.converse().await;
        }
        if sources.is_empty() {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).map_err(Failure::file("standard input"))?;
            return self.run_script(&text, Some("stdin")).await;
        }
        for source in sources {
            match source {
                Source::Text(text) => self.run_script(text, None).await?,
                Source::File(path) => self.include(path).await?,
            }
        }
        Ok(())
    }

    /// The interactive loop: prompt, run, report errors, until the user quits.
    async fn converse(&mut self) -> Result<(), Failure> {
        let mut editor = LineEditor::new()
            .map_err(|error| Failure::Usage(format!("this terminal cannot be read: {error}")))?;
        let interrupt = Arc::clone(&self.interrupt);
        // Without the handler Ctrl-C ends the program: worse, but no reason not to start.
        drop(ctrlc::set_handler(move || interrupt.notify_waiters()));
        writeln!(
            self.out,
            "Cleave {}. Statements end with a semicolon; help lists the commands, exit leaves.",
            env!("CARGO_PKG_VERSION")
        )?;
        let mut buffer = Buffer::default();
        // What the history is told once it has run.
        let mut typed = String::new();
        loop {
            self.out.flush()?;
            editor.set_vocabulary(self.vocabulary().await);
            let open = statements::open_at_end(&buffer.text);
            if open.is_none() {
                buffer.text.clear();
            }
            let prompt = match open {
                Some(open) => format!("cleave{}> ", open.sign()),
                None => "cleave> ".to_owned(),
            };
            let read = editor.read(&prompt, &buffer.text);
            self.screen = editor.size().filter(|_| io::stdout().is_terminal());
            let text = match read {
                Ok(Input::Text(text)) => text,
                Ok(Input::Interrupted) => {
                    buffer.text.clear();
                    typed.clear();
                    continue;
                }
                Ok(Input::End) => break,
                Err(error) => {
                    return Err(Failure::Usage(format!("the terminal cannot be read: {error}")));
                }
            };
            typed.push_str(&text);
            let next = match self.take_word(&text, open.is_some())? {
                Some(next) => Ok(next),
                None => self.take_typed(&text, &mut buffer).await,
            };
            if statements::open_at_end(&buffer.text).is_none() {
                editor.remember(typed.trim_end());
                typed.clear();
            } else {
                typed.push('\n');
            }
            match next {
                Ok(Next::Continue) | Err(Failure::Reported) => {}
                Ok(Next::Quit) => break,
                Err(failure) => writeln!(io::stderr(), "{failure}")?,
            }
        }
        editor.save_history();
        self.out.flush()?;
        Ok(())
    }

    /// Answers a line that is a word of other shells; None: it is something else.
    fn take_word(&mut self, line: &str, is_within: bool) -> io::Result<Option<Next>> {
        if is_within {
            if let Some(hint) = words::within_statement(line) {
                writeln!(io::stderr(), "{hint}")?;
            }
            return Ok(None);
        }
        match words::at_prompt(line) {
            Some(Word::Help) => self.show_text(meta_command::help().as_bytes())?,
            Some(Word::Quit) => return Ok(Some(Next::Quit)),
            Some(Word::Foreign { command, instead }) => {
                writeln!(io::stderr(), "there is no command {command}; try {instead}")?;
            }
            None => return Ok(None),
        }
        Ok(Some(Next::Continue))
    }

    /// Takes what the user typed; an error drops the rest of it.
    async fn take_typed(&mut self, text: &str, buffer: &mut Buffer) -> Result<Next, Failure> {
        let mut nothing = "".split_inclusive('\n').enumerate();
        // An empty line is one, too: it may be in a string constant.
        let text = if text.is_empty() { "\n" } else { text };
        for (index, line) in text.lines().enumerate() {
            let line = format!("{line}\n");
            match self.take_line(buffer, (index + 1, line.as_str()), None, &mut nothing).await {
                Ok(Next::Continue) => {}
                Ok(Next::Quit) => return Ok(Next::Quit),
                Err(failure) => {
                    buffer.text.clear();
                    return Err(failure);
                }
            }
        }
        Ok(Next::Continue)
    }

    async fn run_script(&mut self, text: &str, origin: Option<&str>) -> Result<(), Failure> {
        // A byte order mark, which editors of Windows write, is no part of the first statement.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let result = self.run_text(text, origin).await;
        self.out.flush()?;
        result.map(|_| ())
    }

    /// Runs the statements and commands of `text` up to the first error.
    async fn run_text(&mut self, text: &str, origin: Option<&str>) -> Result<Next, Failure> {
        let mut buffer = Buffer::default();
        let mut lines = text.split_inclusive('\n').enumerate();
        while let Some((index, line)) = lines.next() {
            let next = self.take_line(&mut buffer, (index + 1, line), origin, &mut lines).await?;
            if next == Next::Quit {
                return Ok(Next::Quit);
            }
        }
        // The last statement needs no semicolon.
        self.run_statements(&buffer.text, buffer.line, origin, &mut lines).await?;
        Ok(Next::Continue)
    }

    /// Adds a line, with its number, to the buffer, and runs the statements and the command that are finished by it.
    async fn take_line(
        &mut self,
        buffer: &mut Buffer,
        (number, line): (usize, &str),
        origin: Option<&str>,
        lines: &mut Lines<'_>,
    ) -> Result<Next, Failure> {
        if buffer.text.trim().is_empty() {
            *buffer = Buffer { line: number, ..Buffer::default() };
        }
        buffer.text.push_str(line);
        // Scanning after every line would make a long statement slow.
        if line.contains('\\') {
            match statements::command_start(&buffer.text, buffer.looked_at) {
                Ok(at) => {
                    let command = buffer.text.split_off(at);
                    self.run_finished(buffer, origin, lines).await?;
                    return self.run_meta_command(&command, buffer, origin).await;
                }
                // Of a long statement with a backslash in each line, too.
                Err(looked_at) => buffer.looked_at = looked_at,
            }
        }
        if line.contains(';') && !statements::is_open(&buffer.text) {
            let text = std::mem::take(&mut buffer.text);
            self.run_statements(&text, buffer.line, origin, lines).await?;
        }
        Ok(Next::Continue)
    }

    /// Runs the statements in front of a command, and leaves one without semicolon in the buffer.
    async fn run_finished(
        &mut self,
        buffer: &mut Buffer,
        origin: Option<&str>,
        lines: &mut Lines<'_>,
    ) -> Result<(), Failure> {
        let (all, is_open) = statements::split(&buffer.text);
        let rest = all.last().filter(|_| is_open);
        let left = match rest {
            Some(rest) => {
                let line = buffer.line + rest.line - 1;
                Buffer { text: format!("{}\n", rest.text), line, ..Buffer::default() }
            }
            None => Buffer::default(),
        };
        let unfinished = rest.map_or(0, |rest| rest.text.len());
        let end = buffer.text.trim_end().len().saturating_sub(unfinished);
        let mut before = std::mem::replace(buffer, left);
        before.text.truncate(end);
        self.run_statements(&before.text, before.line, origin, lines).await
    }

    /// Runs the statements of `text`. In a script, the lines after it are the rows of its COPY FROM STDIN.
    async fn run_statements(
        &mut self,
        text: &str,
        first_line: usize,
        origin: Option<&str>,
        lines: &mut Lines<'_>,
    ) -> Result<(), Failure> {
        for statement in statements::split(text).0 {
            let line = statement.line + first_line - 1;
            let statement = Statement { text: statement.text, line };
            let has_rows = origin.is_some() && statements::copies_from_client(statement.text);
            let mut ends = Ends::default();
            if has_rows {
                let rows = statements::take_rows(&mut lines.by_ref().map(|(_, line)| line));
                ends.input = Some(Box::new(Cursor::new(rows)));
            }
            statement.text.clone_into(&mut self.last);
            self.run_statement(statement, ends, origin).await?;
        }
        Ok(())
    }

    /// Runs one statement.
    async fn run_statement(
        &mut self,
        statement: Statement<'_>,
        ends: Ends,
        origin: Option<&str>,
    ) -> Result<(), Failure> {
        let stopwatch = Stopwatch::start();
        let shows_rows = ends.output.is_none() && statements::copies_to_client(statement.text);
        let input = match ends.input {
            None if self.copies_from_stdin => Some(Box::new(io::stdin()) as Box<dyn Read + Send>),
            input => input,
        };
        let output = ends.output.unwrap_or_else(|| Box::new(self.out.clone()));
        let interrupt = Arc::clone(&self.interrupt);
        let mut outcomes = Vec::new();
        let complaint = match &mut self.target {
            Target::Local(local) => {
                local.session.set_client_streams(ClientStreams { input, output: Some(output) });
                let progress = local.session.progress();
                progress.begin();
                // Rows that are printed meanwhile would run into it.
                let has_bar = !(shows_rows && self.out.is_terminal());
                let mut bar =
                    if has_bar { StatementBar::new(progress, stopwatch.clone()) } else { None };
                let result = {
                    // Dropping the statement's future stops it, on both sides of the link.
                    let mut running = local.session.run_into(statement.text, &mut outcomes);
                    let interrupted = interrupt.notified();
                    tokio::pin!(interrupted);
                    let mut pauses = tokio::time::interval(statement_bar::PAUSE);
                    loop {
                        tokio::select! {
                            result = &mut running => break Some(result),
                            () = &mut interrupted => break None,
                            _ = pauses.tick(), if bar.is_some() => {
                                bar.iter_mut().for_each(StatementBar::show);
                            }
                        }
                    }
                };
                drop(bar);
                let Some(result) = result else {
                    writeln!(io::stderr(), "stopped")?;
                    return Err(Failure::Reported);
                };
                result.err().map(|error| complaint::complaint(&error, statement, origin))
            }
            Target::Remote(remote) => {
                let streams = Streams { input, output };
                let ran = Box::pin(remote.run(statement.text, streams, &mut outcomes, &interrupt));
                ran.await.err().map(|error| remote::complaint(&error, statement, origin))
            }
        };
        let has_tags = !self.display.format.is_for_programs() && !shows_rows;
        // Queries of a batch have rows also where one of them has failed.
        let text_width = ends.text_width.filter(|_| !self.display.format.is_for_programs());
        for outcome in outcomes {
            let outcome = match text_width {
                Some(width) => describe::shortened(outcome, width)?,
                None => outcome,
            };
            self.show(outcome, has_tags)?;
        }
        if let Some(complaint) = complaint {
            self.out.flush()?;
            write!(io::stderr(), "{complaint}")?;
            return Err(Failure::Reported);
        }
        if self.is_timing {
            let milliseconds = stopwatch.elapsed().as_secs_f64() * 1e3;
            writeln!(self.out, "Time: {milliseconds:.3} ms")?;
        }
        self.out.flush()?;
        self.analyze_filled(LARGE_CHANGE).await
    }

    /// Waits for what statements have left to be done in the background: it ends with this process. Ctrl-C leaves it.
    async fn finish_background(&mut self) -> Result<(), Failure> {
        let Target::Local(local) = &mut self.target else { return Ok(()) };
        let failures = tokio::select! {
            failures = local.session.finish_background() => failures,
            () = self.interrupt.notified() => return Ok(()),
        };
        for failure in failures {
            writeln!(io::stderr(), "warning: {failure}")?;
        }
        Ok(())
    }

    /// Analyses the tables of which so many rows have changed, if they are due: no server does it. Ctrl-C leaves it.
    async fn analyze_filled(&mut self, least: u64) -> Result<(), Failure> {
        let Target::Local(local) = &mut self.target else { return Ok(()) };
        let analyze = local.database.analyze_filled(&local.before, least, Effort::Quick);
        let failures = tokio::select! {
            failures = Box::pin(analyze) => failures,
            () = self.interrupt.notified() => {
                local.before = local.database.changes();
                return Ok(());
            }
        };
        if !failures.is_empty() {
            local.before = local.database.changes();
        }
        for (table, error) in failures {
            writeln!(io::stderr(), "warning: cannot analyze \"{table}\": {error}")?;
        }
        Ok(())
    }

    /// With layouts for programs only rows are printed, and with COPY … TO STDOUT only its rows; tags are printed if
    /// `has_tags`.
    fn show(&mut self, outcome: Outcome, has_tags: bool) -> io::Result<()> {
        match outcome {
            Outcome::Rows { schema, batches } => self.show_rows(&schema, &batches),
            Outcome::Done { tag } if has_tags => writeln!(self.out, "{tag}"),
            Outcome::Done { .. } => Ok(()),
        }
    }

    /// Shows rows on the screen, in a pager if they are longer than it, or in the file of `\o`.
    fn show_rows(&mut self, schema: &SchemaRef, batches: &[RecordBatch]) -> io::Result<()> {
        let screen = self.screen.filter(|_| self.out.is_terminal());
        let is_paged = screen.is_some() && self.pager().is_some();
        let layout = self.display.layout(screen, self.out.has_colour(), is_paged);
        if !is_paged {
            return write_rows(&mut self.out, &layout, schema, batches);
        }
        let mut text = Vec::new();
        write_rows(&mut text, &layout, schema, batches)?;
        self.show_text(&text)
    }

    /// Shows a text on the screen, in a pager if it is longer than that, or in the file of `\o`.
    fn show_text(&mut self, text: &[u8]) -> io::Result<()> {
        let line_count = text.iter().filter(|byte| **byte == b'\n').count();
        let screen = self.screen.filter(|_| self.out.is_terminal());
        let is_long = screen.is_some_and(|size| line_count >= size.rows);
        match self.pager().filter(|_| is_long) {
            Some(pager) => {
                self.out.flush()?;
                if output::page(&pager, text)? { Ok(()) } else { self.out.write_all(text) }
            }
            None => self.out.write_all(text),
        }
    }

    /// The command of the pager, if there is one.
    fn pager(&self) -> Option<OsString> {
        if self.display.has_pager { output::pager() } else { None }
    }

    fn complain(&mut self, message: &str, origin: Option<&str>) -> Result<Next, Failure> {
        self.out.flush()?;
        let place = origin.map(|origin| format!("{origin}: ")).unwrap_or_default();
        writeln!(io::stderr(), "{place}{message}")?;
        Err(Failure::Reported)
    }

    async fn include(&mut self, path: &Path) -> Result<(), Failure> {
        let name = path.display().to_string();
        if self.includes.len() >= INCLUDE_DEPTH_MAX {
            let message = format!("{name}: files include each other {INCLUDE_DEPTH_MAX} deep");
            return Err(Failure::Usage(message));
        }
        let text = std::fs::read_to_string(path).map_err(Failure::file(path))?;
        self.includes.push(name.clone());
        let result = self.run_script(&text, Some(&name)).await;
        self.includes.pop();
        result
    }

    async fn vocabulary(&mut self) -> Vocabulary {
        let catalog = match &mut self.target {
            Target::Local(local) => local.database.catalog(),
            Target::Remote(remote) => return Box::pin(remote.vocabulary()).await,
        };
        let views = catalog.views().map(|view| {
            let columns = view.schema.columns.iter().map(|column| column.name.clone());
            (view.schema.name.clone(), columns.collect())
        });
        let tables = catalog
            .tables()
            .map(|table| {
                let columns = table.schema.columns.iter().map(|column| column.name.clone());
                (table.schema.name.clone(), columns.collect())
            })
            .chain(views)
            .collect();
        let settings =
            cleave_host::settings::LIST.iter().map(|setting| setting.name.to_owned()).collect();
        Vocabulary { tables, settings }
    }
}
