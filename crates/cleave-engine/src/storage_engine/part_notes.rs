//! Notes of files that are being written for `COPY … TO 'file'`: what a killed process has left of them is removed by
//! the next start.
//!
//! ```text
//!  spill/part-N ─▶ (symbolic link) …/.cleave-PID-N.part, beside the file that it is to become
//! ```
//! The parts lie in folders of others, where nobody would look for them. A note lies in the folder for temporary files
//! of queries, and goes with it.
//!
//! Invariant: of what a note names, only a regular file with the name of a part is removed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use cleave_media::ReplacedFile;

use super::Engine;
use super::place::SPILLS;

/// How the names of notes begin.
const PREFIX: &str = "part-";

/// The number of the next note of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A note, removed when it is dropped.
#[derive(Debug)]
pub struct PartNote(PathBuf);

impl Engine {
    /// Notes the new file of `file`; None: it has none, or the note cannot be made, and a kill leaves it.
    pub fn note_part(&self, file: &ReplacedFile) -> Option<PartNote> {
        let part = std::path::absolute(file.part()?).ok()?;
        let name = format!("{PREFIX}{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let note = self.directory().join(SPILLS).join(name);
        symlink(&part, &note).ok()?;
        Some(PartNote(note))
    }
}

impl Drop for PartNote {
    fn drop(&mut self) {
        // The folder is emptied by the next start.
        drop(fs::remove_file(&self.0));
    }
}

/// Removes the parts that the notes in `folder` name.
pub(super) fn remove_parts(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let is_note = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let Ok(part) = fs::read_link(entry.path()) else { continue };
        let is_file = part.symlink_metadata().is_ok_and(|found| found.is_file());
        if is_note && is_file && ReplacedFile::is_part(&part) {
            // It only takes up space.
            drop(fs::remove_file(&part));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_note_names_is_removed_if_it_is_a_part() {
        let folder = tempfile::tempdir().unwrap();
        let (notes, outside) = (folder.path().join("spill"), folder.path().join("outside"));
        for made in [&notes, &outside] {
            fs::create_dir(made).unwrap();
        }
        let file = ReplacedFile::create(&outside.join("rows.csv"), 0o600).unwrap();
        let part = file.part().unwrap().to_owned();
        // As a kill leaves it.
        let _left = std::mem::ManuallyDrop::new(file);
        let others = [outside.join("mine"), outside.join(".cleave-1-x.part")];
        for other in &others {
            fs::write(other, b"").unwrap();
        }
        let folder_part = outside.join(".cleave-1-1.part");
        fs::create_dir(&folder_part).unwrap();
        let named = [&part, &others[0], &others[1], &folder_part];
        for (number, named) in named.into_iter().enumerate() {
            symlink(named, notes.join(format!("{PREFIX}{number}"))).unwrap();
        }
        let unnoted = outside.join(".cleave-1-2.part");
        fs::write(&unnoted, b"").unwrap();
        remove_parts(&notes);
        assert!(!part.exists());
        assert!([&others[0], &others[1], &folder_part, &unnoted].iter().all(|left| left.exists()));
    }
}
