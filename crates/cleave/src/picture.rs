//! The file of a drawing: opened before the work that is drawn begins, and replaced when the drawing is complete.
//!
//! Source: `docs/reference/commands.md`.

use std::io::Write;
use std::path::{Path, PathBuf};

use cleave_media::ReplacedFile;

use crate::failure::Failure;

/// A file that waits for its drawing; dropping it leaves what was there.
pub(crate) struct Picture {
    path: PathBuf,
    file: ReplacedFile,
}

impl Picture {
    /// Makes sure that the file can be written.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let file = ReplacedFile::create(path, 0o666).map_err(Failure::file(path))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Writes the drawing.
    pub(crate) fn write(self, drawing: &str) -> Result<(), Failure> {
        let Self { path, mut file } = self;
        file.write_all(drawing.as_bytes()).and_then(|()| file.finish()).map_err(Failure::file(path))
    }
}
