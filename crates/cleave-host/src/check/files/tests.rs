//! Files that go while a check reads them.

use crate::check::space;
use crate::database::Database;
use crate::device::testing::options;

use super::*;

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
