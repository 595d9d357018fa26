//! What is refused before it crosses. The rest is tested where there are devices.

use super::*;

#[test]
fn a_transfer_that_is_too_large_is_stopped_before_it_crosses() {
    use cleave_media::{BlockAddress, Extent};
    let extent = Extent { start: BlockAddress(0), block_count: u32::MAX };
    let error = check_transfer(&Request::Read(vec![ReadItem::Blocks(extent); 3])).unwrap_err();
    assert!(matches!(error, LinkError::TooLarge { .. }), "{error}");
    assert!(error.to_string().contains("33554432"), "{error}");
}
