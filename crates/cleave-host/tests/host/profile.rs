//! Tests of the profile of a device: measured on request, stored in a file, and measured again if the file cannot be
//! used.

use cleave_host::device::profile::{Figure, Origin, of_file};

use crate::devices::{FAR, with_nas};
use crate::support::{assert_no_leak, open, row};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_profile_is_measured_once_and_outlives_the_process() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, _served, _) = with_nas(outside.path()).await;
    let id = database.device_named("nas").unwrap().id();
    let path = directory.path().join(format!("device-{id}.profile"));
    assert!(!path.exists(), "attaching measures nothing");
    let profile = database.profile(id, false).await.unwrap();
    assert_eq!(profile.link.origin, Origin::Measured);
    assert!(!profile.link.is_embedded && profile.link.handshakes.len() == 3);
    assert!(profile.link.round_trip_s > 0.0 && profile.link.round_trip_s < 1.0);
    assert_eq!(profile.device.remarks, Vec::<String>::new());
    for figure in Figure::ALL {
        assert!(profile.device.figure(figure).is_some(), "{}", figure.name());
        assert_eq!(profile.host.figure(figure).is_some(), !figure.is_of_media());
    }
    assert_eq!(database.profile(id, false).await.unwrap(), profile);
    assert_no_leak(&database);
    let mut session = database.session();
    assert_eq!(row(&mut session, FAR).await, "20001,200010000");
    drop((session, database));

    let database = open(directory.path()).await;
    assert_eq!(database.profile(id, false).await.unwrap(), profile);
    let again = database.profile(id, true).await.unwrap();
    assert_ne!(again, profile);
    drop(database);

    // Damage loses the profile and nothing else.
    let mut bytes = std::fs::read(&path).unwrap();
    assert_eq!(of_file(&bytes).as_ref(), Some(&*again));
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    assert_eq!(of_file(&bytes), None);
    std::fs::write(&path, bytes).unwrap();
    let database = open(directory.path()).await;
    let anew = database.profile(id, false).await.unwrap();
    assert_ne!(anew, again);
    let mut session = database.session();
    assert_eq!(row(&mut session, FAR).await, "20001,200010000");
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_device_has_the_hosts_cores_and_no_link() {
    let outside = tempfile::tempdir().unwrap();
    let (directory, database, _served, _) = with_nas(outside.path()).await;
    let embedded = cleave_host::DeviceId::EMBEDDED;
    let profile = database.profile(embedded, false).await.unwrap();
    assert!(profile.link.is_embedded);
    assert_eq!(profile.host, profile.device);
    assert_no_leak(&database);
    drop(database);
    // It is not measured again.
    let database = open(directory.path()).await;
    assert_eq!(database.profile(embedded, false).await.unwrap(), profile);
}
