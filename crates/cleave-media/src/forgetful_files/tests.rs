//! Synced writes stay, unsynced ones may be lost, under whatever name.

use super::*;

#[test]
fn bytes_written_in_place_stay_once_synced_and_names_once_their_directory_is() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let files = ForgetfulFiles::new();
    let forget = || files.lose_power(|_| 1, |_| ()).unwrap();

    let file = files.create(&first).unwrap();
    file.write_at(0, &[1; 600]).unwrap();
    file.sync().unwrap();
    files.lose_power(|_| 0, |_| ()).unwrap();
    assert!(!first.exists(), "its name was never durable");

    let file = files.create(&first).unwrap();
    file.write_at(0, &[1; 600]).unwrap();
    file.sync().unwrap();
    files.sync_directory(folder.path()).unwrap();
    file.write_at(512, &[2; 88]).unwrap();
    forget();
    assert_eq!(fs::read(&first).unwrap(), [1; 600]);

    // Synced under a name that is not durable: the bytes are durable, under the old name.
    files.rename(&first, &second).unwrap();
    let file = files.open(&second).unwrap();
    file.write_at(0, &[3; 600]).unwrap();
    file.sync().unwrap();
    files.lose_power(|_| 0, |_| ()).unwrap();
    assert!(!second.exists());
    assert_eq!(fs::read(&first).unwrap(), [3; 600]);
}

#[test]
fn space_ends_and_syncs_fail_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let files = ForgetfulFiles::new();
    let file = files.create(&path).unwrap();
    files.limit_space(Some(1000));
    file.write_at(0, &[1; 900]).unwrap();
    let error = file.write_at(900, &[1; 200]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    file.write_at(500, &[2; 400]).unwrap();
    files.fail_syncs(true);
    assert!(file.sync().is_err());
}

#[test]
fn what_a_failed_sync_was_to_store_is_read_until_power_goes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let files = ForgetfulFiles::new();
    let file = files.create(&path).unwrap();
    files.sync_directory(folder.path()).unwrap();
    let written = [7; 4096];
    file.write_at(0, &written).unwrap();
    files.fail_syncs(true);
    assert!(file.sync().is_err());
    files.fail_syncs(false);
    // The next sync does not report it.
    file.sync().unwrap();
    assert_eq!(fs::read(&path).unwrap(), written);
    files.lose_power(|_| 1, |_| ()).unwrap();
    let left = fs::read(&path).unwrap();
    assert!(left.len() < written.len() || left != written, "something is lost");
    // Rewritten sectors are stored.
    file.write_at(0, &written).unwrap();
    file.sync().unwrap();
    files.lose_power(|_| 1, |_| ()).unwrap();
    assert_eq!(fs::read(&path).unwrap(), written);
}
