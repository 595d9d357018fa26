//! Where results go: the screen, a pager in front of it, or a file. A file of one statement takes the place of an older
//! one if the statement succeeds ([`ResultFile`]).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cleave_media::ReplacedFile;

use crate::failure::Failure;

/// The pager if `PAGER` names none: it ends at once if all fits, passes colours on, and leaves what it showed.
const PAGER: &str = "less";
const PAGER_OPTIONS: &str = "-SRFX";

/// The output of results: the screen, or the file of `\o`. Clones write to the same place.
#[derive(Clone)]
pub(super) struct Output {
    writer: Arc<Mutex<BufWriter<Box<dyn Write + Send>>>>,
    is_terminal: bool,
}

impl Output {
    pub(super) fn screen() -> Output {
        Output::to(Box::new(io::stdout()), io::stdout().is_terminal())
    }

    pub(super) fn file(path: &Path) -> Result<Output, Failure> {
        Ok(Output::to(Box::new(File::create(path).map_err(Failure::file(path))?), false))
    }

    /// The file of one statement.
    pub(super) fn result(file: &ResultFile) -> Output {
        Output::to(Box::new(file.clone()), false)
    }

    fn to(place: Box<dyn Write + Send>, is_terminal: bool) -> Output {
        Output { writer: Arc::new(Mutex::new(BufWriter::new(place))), is_terminal }
    }

    /// Whether somebody looks at it.
    pub(super) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Whether it may have colours: a terminal that has some, for a user who wants them.
    pub(super) fn has_colour(&self) -> bool {
        self.is_terminal && wants_colour()
    }

    fn writer(&self) -> MutexGuard<'_, BufWriter<Box<dyn Write + Send>>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }
}

/// The file of `\g` and `\copy`. Clones write to the same one, until it is closed.
#[derive(Clone)]
pub(super) struct ResultFile {
    path: PathBuf,
    /// None: it is closed.
    file: Arc<Mutex<Option<BufWriter<ReplacedFile>>>>,
}

impl ResultFile {
    pub(super) fn create(path: &Path) -> Result<ResultFile, Failure> {
        let file = ReplacedFile::create(path, 0o666).map_err(Failure::file(path))?;
        let file = Arc::new(Mutex::new(Some(BufWriter::new(file))));
        Ok(ResultFile { path: path.to_owned(), file })
    }

    /// Gives the file its name if the statement has succeeded; otherwise the old one stays.
    pub(super) fn close(&self, has_succeeded: bool) -> Result<(), Failure> {
        if !has_succeeded {
            // A statement that was stopped may still wait for the reader of a pipe: it drops the file when it ends.
            if let Ok(mut file) = self.file.try_lock() {
                *file = None;
            }
            return Ok(());
        }
        let Some(file) = self.file().take() else { return Ok(()) };
        let file = file.into_inner().map_err(io::IntoInnerError::into_error);
        file.and_then(ReplacedFile::finish).map_err(Failure::file(&self.path))
    }

    fn file(&self) -> MutexGuard<'_, Option<BufWriter<ReplacedFile>>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `act` use the file while it is open.
    fn with<T>(
        &self,
        act: impl FnOnce(&mut BufWriter<ReplacedFile>) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut file = self.file();
        let file = file.as_mut().ok_or_else(|| io::Error::other("its statement has ended"))?;
        act(file)
    }
}

impl Write for ResultFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.with(|file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.with(BufWriter::flush)
    }
}

/// Whether the environment does not forbid colours (`NO_COLOR`), nor names a terminal that has none.
pub(super) fn wants_colour() -> bool {
    let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    !is_refused && !is_dumb
}

/// The command of the pager: that of `PAGER`, which may be empty, or `less` if there is one.
pub(super) fn pager() -> Option<OsString> {
    if let Some(command) = std::env::var_os("PAGER") {
        let is_blank = command.to_str().is_some_and(|command| command.trim().is_empty());
        return (!is_blank).then_some(command);
    }
    let folders = std::env::var_os("PATH")?;
    let is_there = std::env::split_paths(&folders).any(|folder| folder.join(PAGER).is_file());
    is_there.then(|| OsString::from(format!("{PAGER} {PAGER_OPTIONS}")))
}

/// Shows a text in a pager, until the user leaves it; false: there is no such program.
pub(super) fn page(command: &OsStr, text: &[u8]) -> io::Result<bool> {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).stdin(Stdio::piped());
    if std::env::var_os("LESSCHARSET").is_none() {
        shell.env("LESSCHARSET", "utf-8");
    }
    let mut child = shell.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // It may be left before it has read all.
        drop(input.write_all(text));
    }
    // What the shell says of a command that it does not find, or may not run.
    Ok(!matches!(child.wait()?.code(), Some(126 | 127)))
}
