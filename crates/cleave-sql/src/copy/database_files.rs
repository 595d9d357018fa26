//! Files that statements neither read nor write: those of a database. The path of a file in; out, whether it lies in
//! the folder of a database, or is the media of a device.
//!
//! The path is followed to the file itself. A folder is the database's by device and inode, so another path to it, as a
//! bind mount, is none around this; so is a file with several names. The folders of other databases are known by what
//! is in them.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cleave_catalog::error::{Error, Fault, Result, RoleFault};
use cleave_media::MediaIdentity;

/// What every folder of a database has in it.
const IN_EVERY_FOLDER: [&str; 3] = ["lock", "log", "manifest"];
/// Links that are followed from one to the next.
const LINKS_MAX: usize = 40;

/// Refuses the file or folder at `path`, which need not exist yet, if it belongs to a database; `own` is the folder of
/// the one that asks.
///
/// # Errors
/// [`RoleFault::Rights`].
pub fn check_of_no_database(path: &Path, own: &Path) -> Result<()> {
    if is_of_database(path, own) {
        let message = format!(
            "permission denied for file \"{}\": it belongs to a database, whose files no statement reads or writes",
            path.display()
        );
        return Err(Error::Invalid {
            message,
            fault: Fault::Role(RoleFault::Rights),
            position: None,
        });
    }
    Ok(())
}

fn is_of_database(path: &Path, own: &Path) -> bool {
    let real = followed(path, LINKS_MAX);
    let own_identity = own.metadata().ok().as_ref().map(identity);
    let is_folder = |folder: &Path| {
        let found = folder.metadata().ok();
        let found = found.as_ref().filter(|found| found.is_dir());
        found.is_some_and(|found| {
            Some(identity(found)) == own_identity
                || IN_EVERY_FOLDER.iter().all(|name| folder.join(name).exists())
        })
    };
    real.ancestors().any(is_folder) || is_media(&real) || has_name_in(&real, own)
}

/// Whether the file at `path` is media, or what lies beside media.
fn is_media(path: &Path) -> bool {
    let is_kept = |media: &Path| {
        matches!(MediaIdentity::kept(&MediaIdentity::path_beside(media)), Ok(Some(_)))
    };
    is_kept(path) || path.extension().is_some() && is_kept(&path.with_extension(""))
}

/// Whether the file at `path`, which has other names too, has one in `folder`.
fn has_name_in(path: &Path, folder: &Path) -> bool {
    let Ok(found) = path.metadata() else { return false };
    found.is_file() && found.nlink() > 1 && has_file(folder, identity(&found))
}

fn has_file(folder: &Path, wanted: (u64, u64)) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => has_file(&entry.path(), wanted),
        Ok(_) => entry.metadata().is_ok_and(|found| identity(&found) == wanted),
        Err(_) => false,
    })
}

fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Where `path` leads, as far as it exists.
fn followed(path: &Path, links_left: usize) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    let above = match path.parent() {
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
        None => return path.to_owned(),
    };
    let folder = followed(above, links_left);
    match (fs::read_link(path), path.file_name(), links_left.checked_sub(1)) {
        // A link to what does not exist yet.
        (Ok(target), _, Some(left)) => followed(&folder.join(target), left),
        (_, Some(name), _) => folder.join(name),
        (_, None, _) => folder,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_of_databases_are_found_by_any_name() {
        let place = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let folder = place.path().join(name);
            fs::create_dir_all(folder.join("log")).unwrap();
            for file in ["lock", "manifest"] {
                fs::write(folder.join(file), "").unwrap();
            }
            folder
        };
        let (own, other) = (folder("own"), folder("other"));
        let outside = place.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("a.csv"), "1\n").unwrap();
        fs::hard_link(own.join("manifest"), outside.join("hard")).unwrap();
        symlink(&own, outside.join("folder")).unwrap();
        symlink(own.join("new"), outside.join("dangling")).unwrap();
        fs::write(outside.join("media"), "").unwrap();
        fs::write(outside.join("media.id"), "00112233445566778899aabbccddeeff\n").unwrap();

        for path in [
            own.join("manifest"),
            own.join("new.csv"),
            own.join("log/new/deeper"),
            other.join("users"),
            outside.join("../own/manifest"),
            outside.join("folder/manifest"),
            outside.join("hard"),
            outside.join("dangling"),
            outside.join("media"),
            outside.join("media.id"),
        ] {
            assert!(check_of_no_database(&path, &own).is_err(), "{path:?}");
        }
        for path in ["a.csv", "b.csv", "new/c.csv"] {
            check_of_no_database(&outside.join(path), &own).unwrap();
        }
    }
}
