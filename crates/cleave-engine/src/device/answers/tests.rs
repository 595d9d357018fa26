//! A device owes an answer from when its caller gave up until it comes.

use std::sync::Arc;
use std::time::Duration;

use cleave_fragment::waiting;

use super::*;
use crate::device::testing::fresh;

#[tokio::test]
async fn who_comes_later_waits_for_what_is_left_and_then_not_at_all() {
    let (_directory, database) = fresh().await;
    let device = database.devices().remove(0);
    device.set_timeout(Duration::from_millis(200));
    assert!(device.has_answered(Duration::ZERO).await && device.check_answers("sync").is_ok());
    let owed = device.answers.owe(SystemClock.now(), false);
    assert!(device.owes_answer() && !device.has_answered(Duration::from_millis(20)).await);
    device.check_answers("sync").unwrap();
    device.check_writes().unwrap();
    // For the rest of the time it is waited for.
    let error = device.sync().await.unwrap_err();
    assert!(error.is_unanswered() && error.sqlstate() == "58030", "{error}");
    assert!(error.to_string().contains("--device-timeout"), "{error}");
    assert!(device.check_answers("sync").is_err());
    let answering = async {
        waiting::sleep(Duration::from_millis(50)).await;
        drop(owed);
    };
    let answered = device.has_answered(Duration::from_secs(20));
    assert!(tokio::join!(answering, answered).1);
    device.sync().await.unwrap();
    // A sync shows that a late command was completed.
    Arc::clone(&device).note_slow();
    assert!(device.has_answered(Duration::from_secs(20)).await);
}
