//! Failures that end a command, with the exit code that a script sees.

use std::path::PathBuf;
use std::process::ExitCode;

use cleave_client::ClientError;
use cleave_host::{Error, StorageError};

/// A failed command; one variant for each exit code, and for each remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command line, or a file that it names, is wrong: correct it.
    #[error("{0}")]
    Usage(String),
    /// A file that the command line names cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The database or a device cannot be opened or reached.
    #[error("{0}")]
    Open(#[source] Error),
    /// Another process has the database open, and the command does not go by that process: end it.
    #[error(
        "the database \"{}\" is in use by another process{holder}; this command needs the database for itself: \
         end that process",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// That process and its program, after a comma; empty: not known.
        holder: String,
    },
    /// A server cannot be reached, or refuses the connection.
    #[error("{0}")]
    Server(#[source] ClientError),
    /// A device process that this program started did not become ready.
    #[error("{0}")]
    Device(String),
    /// A statement failed; its error is already on standard error.
    #[error("a statement failed")]
    Reported,
    /// A statement, or a load, failed.
    #[error("ERROR {state}: {0}", state = .0.sqlstate())]
    Sql(#[source] Error),
    /// A statement of a workload failed, here or on the server that it was sent to.
    #[error("{0}")]
    Workload(String),
    /// A check found faults, which are on standard output.
    #[error("{0} faults were found")]
    Faults(u64),
    /// Two ways to run one query gave different rows, or rows violate a workload's invariants: a defect of the measured
    /// system.
    #[error("{0}")]
    Disagreement(String),
    /// Standard output cannot be written.
    #[error("standard output: {0}")]
    Output(#[from] std::io::Error),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Usage(message) => Self::Usage(message),
            ClientError::ParameterCount { .. }
            | ClientError::TooMany
            | ClientError::CopyWithoutStream(_) => Self::Usage(error.to_string()),
            error => Self::Server(error),
        }
    }
}

impl Failure {
    /// The exit code: 1 usage, 2 cannot open or connect, 3 a statement failed, 4 results disagree.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Usage(_) | Failure::File { .. } | Failure::Output(_) | Failure::Faults(_) => 1,
            Failure::Open(_) | Failure::InUse { .. } | Failure::Server(_) | Failure::Device(_) => 2,
            Failure::Reported | Failure::Sql(_) | Failure::Workload(_) => 3,
            Failure::Disagreement(_) => 4,
        })
    }

    /// Whether the reader of our output has closed the pipe, as `head` does: not an error.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Failure::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }

    /// The same of a command that needs the database for itself.
    pub(crate) fn of_lone_command(self) -> Failure {
        if let Failure::Open(Error::Storage(error)) = &self
            && let StorageError::InUse { path, holder } = &**error
        {
            return Failure::InUse { path: path.clone(), holder: holder.clone() };
        }
        self
    }

    /// A failure to read or write `path`.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Failure {
        let path = path.into();
        move |source| Failure::File { path, source }
    }
}
