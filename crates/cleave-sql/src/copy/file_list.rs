//! Names of files as a statement has them in, the files that they stand for out: `*`, `?`, `[…]` and `**` stand for
//! what a shell takes them for.

use std::io;
use std::path::{Path, PathBuf};

use cleave_catalog::error::{Error, Result};

/// Files that a statement may read at most.
const FILE_COUNT_MAX: usize = 100_000;

/// The files that `names` stand for: in their order, those of one name sorted.
///
/// # Errors
/// [`Error::Io`] for a name that no file fits, for one of a folder, pipe or device, and for a folder that cannot be
/// read.
pub fn files_of(names: &[String]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for name in names {
        let path = Path::new(name);
        // A file may have such a sign in its name.
        if !name.contains(['*', '?', '[']) || path.exists() {
            // A pipe would hold a thread until somebody writes into it, and a device may have no end.
            let found = path.metadata().map_err(|error| Error::io("open", path, error))?;
            if !found.is_file() {
                let other = io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
                return Err(Error::io("open", path, other));
            }
            files.push(path.to_owned());
            continue;
        }
        let before = files.len();
        let wrong = |error| Error::io("list", path, io::Error::other(error));
        for found in glob::glob(name).map_err(wrong)? {
            let found = found.map_err(|error| {
                let folder = error.path().to_owned();
                Error::io("read", &folder, error.into())
            })?;
            if found.is_file() {
                files.push(found);
            }
            if files.len() > FILE_COUNT_MAX {
                let message = format!("these are more than {FILE_COUNT_MAX} files");
                return Err(Error::io("read", path, io::Error::other(message)));
            }
        }
        if files.len() == before {
            let none = io::Error::new(io::ErrorKind::NotFound, "no file has such a name");
            return Err(Error::io("open", path, none));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_signs_stand_for_files_in_order() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.csv", "a.csv", "c.txt", "d[1].csv"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("e.csv")).unwrap();
        let found = |name: &str| {
            let name = folder.path().join(name).display().to_string();
            let files = files_of(&[name]).map_err(|error| error.to_string())?;
            let names = files.iter().filter_map(|file| file.file_name()?.to_str());
            Ok::<_, String>(names.map(str::to_owned).collect::<Vec<_>>())
        };
        assert_eq!(found("*.csv").unwrap(), ["a.csv", "b.csv", "d[1].csv"]);
        assert_eq!(found("[ab].*").unwrap(), ["a.csv", "b.csv"]);
        assert_eq!(found("d[1].csv").unwrap(), ["d[1].csv"]);
        assert!(found("*.parquet").unwrap_err().contains("no file has such a name"));
        for other in ["e.csv", "/dev/zero"] {
            assert!(found(other).unwrap_err().contains("no regular file"), "{other}");
        }
    }
}
