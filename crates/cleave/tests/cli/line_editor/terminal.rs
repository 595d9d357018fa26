//! A terminal for the shell, through a pseudo-terminal: what is typed in, what appears on the screen out.
//!
//! [`Screen`] follows the escape sequences that the line editor writes. Waits have no time but a limit after which the
//! test fails.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use nix::pty::{Winsize, openpty};

/// How long nothing may appear that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Columns of the screen; it has any number of rows.
pub(crate) const COLUMNS: u16 = 80;

/// `cleave sql` in a terminal.
pub(crate) struct Terminal {
    keyboard: File,
    output: Receiver<Vec<u8>>,
    /// The start of a character that is not here as a whole.
    incomplete: Vec<u8>,
    pub(crate) screen: Screen,
    /// The row of the last prompt.
    prompted: Option<usize>,
    pub(crate) child: Child,
}

impl Terminal {
    /// `cleave sql DIRECTORY ARGUMENTS`, with its history in a file beside the directory.
    pub(crate) fn start(directory: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let size = Winsize { ws_row: 24, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        let child = Command::new(env!("CARGO_BIN_EXE_cleave"))
            .arg("sql")
            .arg(directory)
            .args(arguments)
            .env("TERM", "xterm")
            .env("CLEAVE_HISTORY", directory.with_extension("history"))
            .env("PAGER", "")
            .env_remove("CLEAVE_DB")
            .env_remove("NO_COLOR")
            .envs(variables.iter().copied())
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        // The end of the program is the end of its output.
        drop(pty.slave);
        let keyboard = File::from(pty.master);
        let mut reading = keyboard.try_clone().unwrap();
        let (sender, output) = channel();
        let read = move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = reading.read(&mut bytes) {
                if count == 0 || sender.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        };
        std::thread::Builder::new().spawn(read).unwrap();
        let screen = Screen::default();
        Self { keyboard, output, incomplete: Vec::new(), screen, prompted: None, child }
    }

    /// Presses keys.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen is as meant.
    #[track_caller]
    pub(crate) fn wait(&mut self, meant: impl Fn(&Screen) -> bool) {
        while !meant(&self.screen) {
            let Ok(bytes) = self.output.recv_timeout(PATIENCE) else {
                panic!("this does not become what is meant:\n{}", self.screen.text(0));
            };
            self.show(&bytes);
        }
    }

    /// Waits for the next prompt, and returns what appeared since the last one.
    #[track_caller]
    pub(crate) fn prompt(&mut self, prompt: &str) -> String {
        let before = self.prompted;
        self.wait(|screen| {
            before.is_none_or(|row| screen.row > row) && screen.line(screen.row) == prompt
        });
        self.prompted = Some(self.screen.row);
        self.screen.text(before.unwrap_or(0))
    }

    /// Types a line, and returns what appears up to the next prompt for a statement.
    #[track_caller]
    pub(crate) fn enter(&mut self, line: &str) -> String {
        self.press(&format!("{line}\r"));
        self.prompt("cleave>")
    }

    /// Waits until the program has ended, which must have succeeded.
    #[track_caller]
    pub(crate) fn end(mut self) -> String {
        while let Ok(bytes) = self.output.recv_timeout(PATIENCE) {
            self.show(&bytes);
        }
        let text = self.screen.text(0);
        assert!(self.child.wait().unwrap().success(), "{text}");
        text
    }

    fn show(&mut self, bytes: &[u8]) {
        self.incomplete.extend_from_slice(bytes);
        let length = match std::str::from_utf8(&self.incomplete) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let rest = self.incomplete.split_off(length);
        self.screen.put(&String::from_utf8(std::mem::replace(&mut self.incomplete, rest)).unwrap());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The characters of a screen, and its cursor.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    rows: Vec<Vec<char>>,
    /// The cursor's row.
    pub(crate) row: usize,
    column: usize,
    /// An escape sequence that has begun.
    sequence: Option<String>,
    /// Escape sequences for colours that were written, without repeats.
    pub(crate) colours: BTreeSet<String>,
}

impl Screen {
    /// A row without blanks at its end.
    pub(crate) fn line(&self, row: usize) -> String {
        let line: String = self.rows.get(row).into_iter().flatten().collect();
        line.trim_end().to_owned()
    }

    /// The rows from `first` on.
    pub(crate) fn text(&self, first: usize) -> String {
        (first..self.rows.len()).map(|row| self.line(row) + "\n").collect()
    }

    fn put(&mut self, text: &str) {
        for character in text.chars() {
            match (&mut self.sequence, character) {
                (Some(sequence), _) => {
                    sequence.push(character);
                    let is_long = sequence.starts_with('[');
                    if !is_long || sequence.len() > 1 && ('@'..='~').contains(&character) {
                        let sequence = self.sequence.take().unwrap();
                        self.obey(&sequence);
                    }
                }
                (None, '\x1b') => self.sequence = Some(String::new()),
                (None, '\r') => self.column = 0,
                (None, '\n') => self.row += 1,
                (None, '\x08') => self.column = self.column.saturating_sub(1),
                (None, '\x07') => {}
                (None, character) => self.print(character),
            }
            if self.rows.len() <= self.row {
                self.rows.resize(self.row + 1, Vec::new());
            }
        }
    }

    fn print(&mut self, character: char) {
        if self.column >= usize::from(COLUMNS) {
            (self.row, self.column) = (self.row + 1, 0);
        }
        self.rows.resize(self.rows.len().max(self.row + 1), Vec::new());
        let row = &mut self.rows[self.row];
        row.resize(row.len().max(self.column + 1), ' ');
        row[self.column] = character;
        self.column += 1;
    }

    fn obey(&mut self, sequence: &str) {
        let Some(kind) = sequence.strip_prefix('[').and_then(|rest| rest.chars().last()) else {
            return;
        };
        let count: usize = sequence[1..sequence.len() - 1].parse().unwrap_or(1);
        match kind {
            'A' => self.row = self.row.saturating_sub(count),
            'B' => self.row += count,
            'C' => self.column += count,
            'D' => self.column = self.column.saturating_sub(count),
            'J' | 'K' => {
                if kind == 'J' {
                    self.rows.truncate(self.row + 1);
                }
                if let Some(row) = self.rows.get_mut(self.row) {
                    row.truncate(self.column);
                }
            }
            'm' => {
                self.colours.insert(sequence.to_owned());
            }
            _ => {}
        }
    }
}
