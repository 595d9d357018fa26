//! Refusal, waiting, order.

use super::*;

#[tokio::test]
async fn what_never_fits_is_refused_with_figures() {
    let admission = Admission::new(1 << 20, Duration::from_secs(3600));
    let error = admission.admit((1 << 20) + 1).await.unwrap_err();
    assert_eq!(error.cause, DeviceErrorCause::OutOfMemory);
    assert!(error.message.contains("1048577 bytes"), "{error}");
    assert!(error.message.contains("1048576 of 1048576 bytes for fragments are free"), "{error}");
}

#[tokio::test]
async fn what_does_not_fit_now_waits_until_it_does() {
    let admission = Admission::new(1 << 20, Duration::from_secs(3600));
    let first = admission.admit(800 << 10).await.unwrap();
    assert!(!admission.fits_now(300 << 10));
    let second = admission.admit(300 << 10);
    tokio::pin!(second);
    assert!(futures::poll!(&mut second).is_pending());
    drop(first);
    let _second = second.await.unwrap();
    assert_eq!(admission.free_bytes(), 724 << 10);
}

#[tokio::test]
async fn waiting_ends() {
    let admission = Admission::new(1 << 20, Duration::ZERO);
    let _first = admission.admit(800 << 10).await.unwrap();
    let error = admission.admit(300 << 10).await.unwrap_err();
    assert_eq!(error.cause, DeviceErrorCause::OutOfMemory);
    assert!(error.message.contains("did not end in time"), "{error}");
}
