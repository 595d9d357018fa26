//! Files that are removed while a check reads them.

use crate::check::space;
use cleave_device::{Runtime, RuntimeOptions};
use cleave_fragment::link::DeviceService;
use cleave_host::database::Database;
use cleave_media::{DirectFile, Media, OpenMode};

use super::*;

/// Makes a database over a device in this process.
fn options() -> OpenOptions {
    OpenOptions::new(Arc::new(embedded)).create(true)
}

fn embedded(path: &Path) -> Result<Arc<dyn DeviceService>> {
    let mode = if path.exists() { OpenMode::Existing } else { OpenMode::Create };
    let media: Arc<dyn Media> = Arc::new(DirectFile::open(path, mode).unwrap());
    let options = RuntimeOptions { cores: 1, io_threads: 2, ..RuntimeOptions::new([7; 16]) };
    let service: Arc<dyn DeviceService> = Runtime::new(media, options).unwrap();
    Ok(service)
}

#[tokio::test]
async fn files_that_a_commit_removed_are_no_finding_and_missing_ones_are() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path(), options()).await.unwrap();
    let mut session = database.session();
    // More rows than go to a hot segment: both tables have sealed segments, and files.
    let make = |name: &str| {
        format!(
            "CREATE TABLE {name} (id bigint PRIMARY KEY);
             INSERT INTO {name} SELECT * FROM generate_series(1, 20000)"
        )
    };
    session.run(&make("kept")).await.unwrap();
    session.run(&make("dropped")).await.unwrap();
    let moment = space::moment(&database).await;
    assert_eq!(moment.state.files.len(), 4, "two heaps and two runs");
    session.run("DROP TABLE dropped").await.unwrap();
    let mut report = CheckReport::default();
    report.findings.limit(10);
    verify(&database, &moment.state, &mut report).await;
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_eq!(report.counts.files, 2);

    let file = *database.catalog().files.keys().next().unwrap();
    std::fs::remove_file(directory.path().join("segments").join(file.0.to_string())).unwrap();
    verify(&database, &moment.state, &mut report).await;
    let [finding] = report.findings.kept() else { panic!("{:#?}", report.findings) };
    assert_eq!(finding.place.segment, Some(file));
    assert_eq!(finding.place.table.as_deref(), Some("kept"));
}
