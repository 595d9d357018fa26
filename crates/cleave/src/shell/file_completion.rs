//! Completes file names for the Tab key: after `\i`, `\o` and their like, and in the quotes of `COPY … FROM '…'`.

use std::fs;

use super::meta_command;

/// Completions of the file name that ends at byte `position` of `line`: where its last part starts, and its candidates.
/// None if the line is not at a file name.
pub(super) fn complete(line: &str, position: usize) -> Option<(usize, Vec<String>)> {
    let before = line.get(..position)?;
    let path = path_before(before)?;
    let (directory, prefix) = match path.rsplit_once('/') {
        Some((directory, prefix)) => (format!("{directory}/"), prefix),
        None => ("./".to_owned(), path),
    };
    let mut offers: Vec<String> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let is_hidden = name.starts_with('.') && !prefix.starts_with('.');
            if is_hidden || !name.starts_with(prefix) {
                return None;
            }
            // Through symbolic links too.
            let is_directory = fs::metadata(entry.path()).is_ok_and(|found| found.is_dir());
            Some(if is_directory { format!("{name}/") } else { name })
        })
        .collect();
    offers.sort_unstable();
    Some((before.len() - prefix.len(), offers))
}

/// The file name at the end of a text.
fn path_before(before: &str) -> Option<&str> {
    if let Some((_, path)) = meta_command::file_argument(before) {
        return Some(path);
    }
    let begins_copy = before.trim_start().starts_with("\\copy");
    if meta_command::is_meta_command(before) && !begins_copy {
        let at_argument = matches!(before.trim_start(), "\\i " | "\\o " | "\\e " | "\\g ");
        return at_argument.then_some("");
    }
    let (head, path) = before.rsplit_once('\'')?;
    let mut words = head.split_whitespace();
    let is_copy = words.next()?.trim_start_matches('\\').eq_ignore_ascii_case("copy");
    let last = words.next_back()?;
    let at_file = last.eq_ignore_ascii_case("from") || last.eq_ignore_ascii_case("to");
    (is_copy && at_file).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_offered_where_a_command_takes_one() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display();
        for name in ["one.sql", "on two.sql", ".hidden", "other"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::create_dir(folder.path().join("only")).unwrap();
        let offers = |line: &str| complete(line, line.len());
        let start = |line: &str, prefix: &str| line.len() - prefix.len();
        for begin in [format!("\\i {at}/"), format!("\\o  {at}/"), format!("\\copy t from '{at}/")]
        {
            let line = format!("{begin}on");
            let expected = ["on two.sql", "one.sql", "only/"].map(str::to_owned).to_vec();
            assert_eq!(offers(&line), Some((start(&line, "on"), expected)), "{line}");
            let line = format!("{begin}.h");
            assert_eq!(offers(&line), Some((start(&line, ".h"), vec![".hidden".to_owned()])));
            assert_eq!(offers(&begin).unwrap().1.len(), 4);
        }
        let line = format!("\\i {at}/on tw");
        assert_eq!(offers(&line).unwrap().1, ["on two.sql"]);
        for line in ["\\d one", "select 'one", "\\i", "copy t from ", "\\set a "] {
            assert_eq!(offers(line), None, "{line}");
        }
    }
}
