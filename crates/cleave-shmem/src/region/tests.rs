//! Regions from a peer: which are accepted, and their contents.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use super::*;

fn copy(region: &Region) -> OwnedFd {
    region.descriptor().unwrap().try_clone_to_owned().unwrap()
}

#[test]
fn both_sides_map_the_same_bytes() {
    let ours = Region::create(8192).unwrap();
    let theirs = Region::open(copy(&ours), 8192).unwrap();
    let (here, there) = (ours.part(5000, 1).unwrap(), theirs.part(5000, 1).unwrap());
    assert_ne!(here, there, "two mappings");
    // SAFETY: within the region, which nobody else uses.
    unsafe { here.write_volatile(7) };
    // SAFETY: within the region, which nobody else uses.
    assert_eq!(unsafe { there.read_volatile() }, 7);
    assert_eq!((ours.bytes(), theirs.bytes()), (8192, 8192));
}

#[test]
fn what_is_not_a_sealed_region_of_that_size_is_refused() {
    let region = Region::create(8192).unwrap();
    let refusal = |file, bytes| Region::open(file, bytes).unwrap_err().to_string();
    assert!(refusal(copy(&region), 4096).contains("another size"));
    assert!(refusal(copy(&region), 1 << 40).contains("another size"));
    let file = File::open("/dev/null").unwrap();
    assert!(refusal(file.into(), 8192).contains("no memory file"));
    // SAFETY: the name is a terminated string.
    let fd = unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_ALLOW_SEALING) };
    // SAFETY: just made.
    let open_size = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    open_size.set_len(8192).unwrap();
    assert!(refusal(open_size.into(), 8192).contains("change its size"));
    // The other side of the same rule: a region cannot be shortened.
    let file = File::from(copy(&region));
    assert!(file.set_len(100).is_err() && file.set_len(1 << 20).is_err());
}

#[test]
fn parts_end_where_the_region_does() {
    for region in [Region::create(8192).unwrap(), Region::on_heap(8192).unwrap()] {
        assert!(region.part(0, 8192).is_some() && region.part(8192, 0).is_some());
        assert!(region.part(1, 8192).is_none() && region.part(usize::MAX, 2).is_none());
    }
    assert!(Region::create(usize::MAX).is_err());
    assert!(Region::on_heap(usize::MAX).is_err());
}
